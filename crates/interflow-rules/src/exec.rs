//! Conditions decided by the exit code of a program: Fluxzy's `exec` filter, with a time limit.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use interflow_types::Phase;

use crate::template::TextTemplate;
use crate::view::FlowView;

#[derive(Debug)]
pub struct ExecCondition {
    pub program: TextTemplate,
    pub arguments: Vec<TextTemplate>,
    /// Whether the request's head is passed in `Exec.RequestHead`.
    pub head_in_env: bool,
    /// Time limit.
    pub limit: Duration,
}

impl ExecCondition {
    pub(crate) fn phase(&self) -> Phase {
        if self.head_in_env { Phase::RequestHead } else { Phase::Authority }
    }

    pub(crate) fn describe(&self) -> String {
        format!("`{}` ends with 0", self.program.source())
    }

    /// Runs the program and waits. Blocks the worker thread, so the limit is short.
    pub(crate) fn evaluate(&self, view: &FlowView<'_>) -> bool {
        let mut command = Command::new(&*self.program.render_view(view));
        command.args(self.arguments.iter().map(|a| a.render_view(view).into_owned()));
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
    use crate::fixture::FlowFixture;

    fn run(script: &str) -> bool {
        let sample = FlowFixture::for_get("http://a.test/x").with_header("X-A", "7").unwrap();
        let constants = Vec::new();
        let exec = ExecCondition {
            program: TextTemplate::literal("sh"),
            arguments: vec![TextTemplate::literal("-c"), TextTemplate::parse(script).unwrap()],
            head_in_env: true,
            limit: Duration::from_millis(300),
        };
        exec.evaluate(&sample.view(Phase::RequestHead, &constants))
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
