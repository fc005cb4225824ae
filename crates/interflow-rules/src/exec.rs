//! A program that decides by its exit code whether a rule holds: Fluxzy's `exec` filter, with a time limit.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interflow_flow::Phase;

use crate::template::Template;
use crate::view::View;

/// A program and its arguments.
#[derive(Debug)]
pub struct Exec {
    /// The program.
    pub program: Template,
    /// Its arguments, one text each.
    pub arguments: Vec<Template>,
    /// Whether it is given the request's head in `Exec.RequestHead`.
    pub head_in_env: bool,
    /// How long it may run.
    pub limit: Duration,
}

impl Exec {
    pub(crate) fn phase(&self) -> Phase {
        if self.head_in_env { Phase::RequestHead } else { Phase::Authority }
    }

    pub(crate) fn describe(&self) -> String {
        format!("`{}` ends with 0", self.program.source())
    }

    /// Runs it, and waits. The worker stands still meanwhile, so the limit is short.
    pub(crate) fn says_yes(&self, view: &View<'_>) -> bool {
        let mut command = Command::new(&*self.program.fill_from(view));
        command.args(self.arguments.iter().map(|a| a.fill_from(view).into_owned()));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(request) = view.request.filter(|_| self.head_in_env) {
            let mut head = format!("{} {} {}\r\n", request.method, request.url.path, request.version).into_bytes();
            request.headers.write_to(&mut head);
            command.env("Exec.RequestHead", String::from_utf8_lossy(&head).replace('\0', ""));
        }
        let program = self.program.source();
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) => {
                tracing::warn!("the filter program {program} could not be started, so its rule does not match: {e}");
                return false;
            }
        };
        let deadline = Instant::now() + self.limit;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return status.success(),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                _ => {
                    let _ = child.kill();
                    let _ = child.wait();
                    tracing::warn!(
                        "the filter program {program} took longer than {:?}, so its rule does not match",
                        self.limit
                    );
                    return false;
                }
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use crate::sample::Sample;

    fn run(script: &str) -> bool {
        let sample = Sample::get("http://a.test/x").header("X-A", "7").unwrap();
        let constants = Vec::new();
        let exec = Exec {
            program: Template::literal("sh"),
            arguments: vec![Template::literal("-c"), Template::parse(script).unwrap()],
            head_in_env: true,
            limit: Duration::from_millis(300),
        };
        exec.says_yes(&sample.view(Phase::RequestHead, &constants))
    }

    #[test]
    fn the_exit_code_decides() {
        assert!(run("test ${host} = a.test"));
        assert!(!run("exit 3"));
    }

    #[test]
    fn one_that_hangs_is_killed_and_says_no() {
        let began = Instant::now();
        assert!(!run("sleep 20"));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
