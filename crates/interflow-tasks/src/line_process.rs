//! A child process that is spoken with in lines: how it is started, what it writes to standard error, and how it ends.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::INHERITED_VARIABLES;
use parking_lot::Mutex;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;

use crate::lines::{LineReader, LineWriter};

/// How long the end of standard error and the exit status are awaited after a process closed its standard output.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// Bound on the lines of standard error that are kept for an error message, and on their length in bytes.
const MAX_ERROR_LINES: usize = 5;
const MAX_ERROR_LINE: usize = 500;

/// How a process is started. Of Interflow's own environment it gets [`INHERITED_VARIABLES`] alone.
#[derive(Clone, Debug)]
pub struct ProcessSpec {
    pub program: String,
    pub args: Vec<String>,
    pub env: Vec<(String, String)>,
    /// Its working directory; that of Interflow if absent.
    pub directory: Option<PathBuf>,
    /// Bound on the length of its lines in bytes.
    pub max_line: usize,
    pub errors: ErrorOutput,
}

/// What happens to the standard error of a process.
#[derive(Clone, Debug)]
pub enum ErrorOutput {
    /// It goes to Interflow's own.
    Inherit,
    /// Its last lines become part of the reason why the process ended. They may be about anybody, so they go to no log.
    Collect,
}

/// Why a process ended: for a log without what it wrote, or in full.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndReason {
    pub why: String,
    /// What the process said of it.
    pub errors: String,
}

impl std::fmt::Display for EndReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let colon = if self.errors.is_empty() { "" } else { ": " };
        write!(f, "{}{colon}{}", self.why, self.errors)
    }
}

impl From<String> for EndReason {
    fn from(why: String) -> Self {
        Self { why, errors: String::new() }
    }
}

/// A process that runs.
pub struct LineProcess {
    pub input: LineWriter<ChildStdin>,
    pub output: LineReader<ChildStdout>,
    /// The process is killed, with its children, when this is dropped.
    pub exit: ProcessExit,
}

/// The end of a process, and the reason for it.
pub struct ProcessExit {
    group: ProcessGroup,
    errors: Option<(JoinHandle<()>, ErrorTail)>,
}

impl ProcessSpec {
    /// Starts the process. Needs a Tokio runtime.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(&self) -> Result<LineProcess, String> {
        let program = &self.program;
        let mut command = Command::new(program);
        let inherited = INHERITED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.args(&self.args).env_clear().envs(inherited).envs(self.env.iter().map(|(name, value)| (name, value)));
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        command.stderr(match &self.errors {
            ErrorOutput::Inherit => Stdio::inherit(),
            ErrorOutput::Collect => Stdio::piped(),
        });
        // A group of its own, so that its children end with it, and not by Ctrl-C at the terminal.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| format!("`{program}` cannot be started: {e}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("`{program}` has no standard streams"));
        };
        let errors = match (&self.errors, child.stderr.take()) {
            (ErrorOutput::Collect, Some(errors)) => {
                let tail = ErrorTail::default();
                Some((tokio::spawn(tail.clone().collect(errors)), tail))
            }
            _ => None,
        };
        let group = ProcessGroup {
            #[cfg(unix)]
            pid: child.id().and_then(|p| i32::try_from(p).ok()).and_then(rustix::process::Pid::from_raw),
            child,
        };
        Ok(LineProcess {
            input: LineWriter::new(input),
            output: LineReader::new(output, self.max_line),
            exit: ProcessExit { group, errors },
        })
    }
}

impl ProcessExit {
    /// Why the process ended, once it closed its standard output or is of no more use: `why` if that is given, or else its
    /// exit status, and the end of its standard error. Waits for a moment, since the kernel closes the streams of a process
    /// before its status can be read.
    ///
    /// # Cancellation
    /// It can be called again.
    pub async fn reason(&mut self, why: Option<String>) -> EndReason {
        if let Some((collecting, _)) = &mut self.errors
            && !collecting.is_finished()
        {
            // What it wrote last explains why it ended.
            let _ = tokio::time::timeout(EXIT_GRACE, collecting).await;
        }
        let why = match why {
            Some(why) => why,
            None => match tokio::time::timeout(EXIT_GRACE, self.group.child.wait()).await {
                Ok(Ok(status)) => {
                    // At once: a number that is free may become another process's.
                    self.group.kill();
                    format!("its program ended ({status})")
                }
                Ok(Err(_)) | Err(_) => "its program closed its standard output".to_owned(),
            },
        };
        let errors = self.errors.as_ref().map(|(_, tail)| tail.text()).unwrap_or_default();
        EndReason { why, errors }
    }
}

/// A process with its children. All of them are killed when this is dropped.
struct ProcessGroup {
    child: Child,
    /// Kept until they are killed: the process itself has none any more once its status was read.
    #[cfg(unix)]
    pid: Option<rustix::process::Pid>,
}

impl ProcessGroup {
    fn kill(&mut self) {
        #[cfg(unix)]
        if let Some(pid) = self.pid.take() {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.child.start_kill();
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The last lines that a process wrote to standard error.
#[derive(Clone, Default)]
struct ErrorTail(Arc<Mutex<VecDeque<String>>>);

impl ErrorTail {
    /// Reads standard error to its end; a process whose errors are not read would stop.
    async fn collect(self, errors: ChildStderr) {
        let mut errors = LineReader::new(errors, MAX_ERROR_LINE);
        while let Ok(Some(line)) = errors.next_cut().await {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let mut lines = self.0.lock();
            lines.push_back(line);
            while lines.len() > MAX_ERROR_LINES {
                lines.pop_front();
            }
        }
    }

    fn text(&self) -> String {
        let lines = self.0.lock();
        lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn shell(script: &str, errors: ErrorOutput) -> LineProcess {
        let args = vec!["-c".to_owned(), script.to_owned()];
        let env = vec![("GIVEN".to_owned(), "yes".to_owned())];
        let spec = ProcessSpec { program: "/bin/sh".into(), args, env, directory: None, max_line: 100, errors };
        spec.start().unwrap()
    }

    fn log() -> ErrorOutput {
        ErrorOutput::Collect
    }

    #[tokio::test]
    async fn a_process_gets_lines_and_answers_with_lines() {
        let mut process = shell("read line; echo \"got $line\"; read more; echo \"$more\"", ErrorOutput::Inherit);
        process.input.send("one").await.unwrap();
        assert_eq!(process.output.next().await.unwrap().unwrap(), b"got one");
        process.input.send("two").await.unwrap();
        assert_eq!(process.output.next().await.unwrap().unwrap(), b"two");
        assert!(process.output.next().await.unwrap().is_none());
        assert_eq!(process.exit.reason(None).await.to_string(), "its program ended (exit status: 0)");
    }

    #[tokio::test]
    async fn the_environment_is_what_was_given_and_nothing_secret() {
        // Cargo sets it for every test.
        assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
        let mut process = shell("echo \"$GIVEN,$CARGO_MANIFEST_DIR,${PATH:+path}\"", ErrorOutput::Inherit);
        assert_eq!(process.output.next().await.unwrap().unwrap(), b"yes,,path");
    }

    #[tokio::test]
    async fn the_reason_of_an_end_has_the_status_and_the_last_errors() {
        let script = "for i in 1 2 3 4 5 6 7; do echo \"error $i\" >&2; done; exit 3";
        let mut process = shell(script, log());
        assert!(process.output.next().await.unwrap().is_none());
        let errors = "error 3 | error 4 | error 5 | error 6 | error 7";
        assert_eq!(
            process.exit.reason(None).await.to_string(),
            format!("its program ended (exit status: 3): {errors}")
        );
        assert_eq!(process.exit.reason(Some("too long".into())).await.to_string(), format!("too long: {errors}"));
        assert_eq!(process.exit.reason(None).await.why, "its program ended (exit status: 3)");
    }

    #[tokio::test]
    async fn a_process_is_killed_with_its_children_when_it_is_dropped() {
        let mut process = shell("sleep 1000 & echo $!; wait", ErrorOutput::Inherit);
        let child = String::from_utf8(process.output.next().await.unwrap().unwrap()).unwrap();
        let LineProcess { mut output, exit, .. } = process;
        drop(exit);
        // The stream ends when the last process that has it is gone.
        assert!(output.next().await.unwrap().is_none(), "the child {child} lives on");
    }

    #[tokio::test]
    async fn children_end_with_a_process_whose_status_was_read() {
        // They keep its standard error, so that this ends when the last of them is gone.
        let mut process = shell("sleep 1000 >/dev/null & exit 0", log());
        let (collecting, _) = process.exit.errors.take().unwrap();
        assert!(process.output.next().await.unwrap().is_none());
        assert_eq!(process.exit.reason(None).await.why, "its program ended (exit status: 0)");
        drop(process.exit);
        tokio::time::timeout(Duration::from_secs(10), collecting).await.expect("a child lives on").unwrap();
    }

    #[tokio::test]
    async fn a_program_that_cannot_be_started_is_named() {
        let (program, errors) = ("/nonexistent/program".to_owned(), ErrorOutput::Inherit);
        let spec = ProcessSpec { program, args: vec![], env: vec![], directory: None, max_line: 1, errors };
        let error = spec.start().err().unwrap();
        assert!(error.starts_with("`/nonexistent/program` cannot be started"), "{error}");
    }
}
