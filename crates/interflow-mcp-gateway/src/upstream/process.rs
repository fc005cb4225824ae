//! The process of a server over standard streams: how it is started, what it writes to standard error, and how it ends.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::INHERITED_VARIABLES;
use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

/// Bound on the lines of standard error that are kept for an error message, and on their length in bytes.
const MAX_STDERR_LINES: usize = 5;
const MAX_STDERR_LINE: usize = 500;

/// How the process is started.
pub(super) struct CommandLine {
    pub program: String,
    pub args: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub directory: Option<PathBuf>,
}

/// The last lines that a process wrote to standard error.
#[derive(Clone, Default)]
pub(super) struct StderrTail(Arc<Mutex<VecDeque<String>>>);

/// A process that runs, with its children. All of them are killed when it is dropped.
pub(super) struct ProcessGroup(Child);

/// The standard streams of a process.
pub(super) struct ProcessStreams {
    pub input: ChildStdin,
    pub output: BufReader<ChildStdout>,
    pub errors: ChildStderr,
}

impl CommandLine {
    /// # Errors
    /// The program cannot be started.
    pub fn start(&self) -> Result<(ProcessGroup, ProcessStreams), String> {
        let mut command = Command::new(&self.program);
        command.args(&self.args).env_clear().kill_on_drop(true);
        let inherited = INHERITED_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.envs(inherited).envs(&self.env);
        if let Some(directory) = &self.directory {
            command.current_dir(directory);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that its children end with it, and not by Ctrl-C at the terminal.
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(|e| format!("`{}` cannot be started: {e}", self.program))?;
        let (Some(input), Some(output), Some(errors)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(format!("`{}` has no standard streams", self.program));
        };
        Ok((ProcessGroup(child), ProcessStreams { input, output: BufReader::new(output), errors }))
    }
}

impl ProcessGroup {
    /// How it ended, if it ends within `limit`: the kernel closes a process's streams before its status can be read.
    pub async fn status_within(&mut self, limit: Duration) -> Option<String> {
        tokio::time::timeout(limit, self.0.wait()).await.ok()?.ok().map(|status| status.to_string())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(pid) = self.0.id().and_then(|p| i32::try_from(p).ok()).and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        }
        let _ = self.0.start_kill();
    }
}

impl StderrTail {
    /// Reads standard error to its end; a process whose errors are not read would stop.
    pub async fn collect(self, name: Arc<str>, errors: ChildStderr) {
        let mut errors = BufReader::new(errors);
        while let Ok(Some(line)) = read_line(&mut errors, MAX_STDERR_LINE, LongLine::Cut).await {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            tracing::debug!("MCP server {name}: {line}");
            let mut lines = self.0.lock();
            lines.push_back(line);
            while lines.len() > MAX_STDERR_LINES {
                lines.pop_front();
            }
        }
    }

    pub fn text(&self) -> String {
        let lines = self.0.lock();
        lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ")
    }
}

/// What is done with a line that is too long.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum LongLine {
    /// Its end is left out.
    Cut,
    /// It is an error.
    Refuse,
}

/// The next line without its end; `None` at the end of the stream.
///
/// # Errors
/// The stream failed, or the line is too long.
pub(super) async fn read_line<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
    max: usize,
    long: LongLine,
) -> Result<Option<Vec<u8>>, String> {
    let mut line = Vec::new();
    let mut has_read = false;
    loop {
        let read = reader.fill_buf().await.map_err(|e| e.to_string())?;
        if read.is_empty() {
            return Ok(has_read.then_some(line));
        }
        has_read = true;
        let end = read.iter().position(|b| *b == b'\n');
        let part = read.get(..end.unwrap_or(read.len())).unwrap_or_default();
        let room = max - line.len();
        if part.len() > room && long == LongLine::Refuse {
            return Err(format!("it sent a message of more than {max} bytes (mcp.max_message)"));
        }
        line.extend_from_slice(part.get(..room).unwrap_or(part));
        let used = end.map_or(read.len(), |end| end + 1);
        reader.consume(used);
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_are_read_within_a_bound() {
        let mut reader = BufReader::with_capacity(4, &b"ab\nlonger line\n\nend"[..]);
        for (max, long, line) in [
            (10, LongLine::Refuse, Ok(Some("ab"))),
            (3, LongLine::Cut, Ok(Some("lon"))),
            (10, LongLine::Refuse, Ok(Some(""))),
            (3, LongLine::Refuse, Ok(Some("end"))),
            (3, LongLine::Refuse, Ok(None)),
        ] {
            let read = read_line(&mut reader, max, long).await;
            assert_eq!(read, line.map(|l: Option<&str>| l.map(|l| l.as_bytes().to_vec())));
        }
        let mut reader = BufReader::with_capacity(4, &b"longer line\n"[..]);
        assert!(read_line(&mut reader, 5, LongLine::Refuse).await.unwrap_err().contains("mcp.max_message"));
    }
}
