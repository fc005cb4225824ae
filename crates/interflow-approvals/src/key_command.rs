//! Runs the command that prints the key of the stored secrets, within a time limit: a client of a key management service
//! that cannot reach it would otherwise keep the instance from starting, without a word.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How long the command may take.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(30);
/// What is read of each of its outputs, in bytes; a key is far shorter.
const MAX_OUTPUT: u64 = 64 << 10;
/// How long its outputs are waited for after its end: a process that it left behind may keep them open.
const OUTPUT_GRACE: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// The standard output of a command that succeeds.
///
/// # Errors
/// It cannot be run, fails, takes longer than the limit, or prints something else than text. The message never has its
/// standard output.
pub(crate) fn run(program: &str, arguments: &[String], limit: Duration) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{program} cannot be run: {e}"))?;
    let (out, errors) = (OutputReader::start(child.stdout.take()), OutputReader::start(child.stderr.take()));
    let Some(status) = wait(&mut child, limit).map_err(|e| format!("{program}: {e}"))? else {
        let _ = child.kill();
        let _ = child.wait();
        let seconds = limit.as_secs();
        return Err(format!(
            "{program} did not end within {seconds} s and was stopped: check that it reaches its service, and that it asks \
             for nothing"
        ));
    };
    if !status.success() {
        // The standard error of such clients has the reason; the key would be on standard output.
        let reason = errors.take();
        return Err(format!("{program}: {status}: {}", String::from_utf8_lossy(&reason).trim()));
    }
    String::from_utf8(out.take()).map_err(|_| format!("{program} printed something else than text"))
}

/// Waits for the end of a process; `None` if the time is over.
fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Reads an output on a thread of its own, so that a full pipe stops nobody.
struct OutputReader {
    bytes: Arc<Mutex<Vec<u8>>>,
    ended: Receiver<()>,
}

impl OutputReader {
    fn start(output: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let (end, ended) = sync_channel(1);
        let read = Arc::clone(&bytes);
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            let mut output = output.map(|output| output.take(MAX_OUTPUT));
            while let Some(Ok(n @ 1..)) = output.as_mut().map(|output| output.read(&mut buffer)) {
                read.lock().extend_from_slice(&buffer[..n]);
            }
            let _ = end.send(());
        });
        Self { bytes, ended }
    }

    fn take(self) -> Vec<u8> {
        let _ = self.ended.recv_timeout(OUTPUT_GRACE);
        std::mem::take(&mut self.bytes.lock())
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    fn sh(script: &str, limit: Duration) -> Result<String, String> {
        run("sh", &["-c".to_owned(), script.to_owned()], limit)
    }

    #[test]
    fn command_that_hangs_is_stopped_and_its_error_says_what_to_check() {
        let begun = Instant::now();
        let error = sh("echo secret-key; exec sleep 60", Duration::from_millis(300)).unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert!(error.contains("did not end within") && error.contains("service"), "{error}");
        assert!(!error.contains("secret-key"), "{error}");
    }

    #[test]
    fn output_is_read_although_a_process_that_was_left_behind_keeps_it_open() {
        let begun = Instant::now();
        assert_eq!(sh("sleep 60 & echo abc", TIME_LIMIT).unwrap(), "abc\n");
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let error = sh("echo hidden; echo reason >&2; exit 3", TIME_LIMIT).unwrap_err();
        assert!(error.contains("reason") && error.contains('3') && !error.contains("hidden"), "{error}");
        // More than a pipe holds is no reason to hang.
        assert_eq!(sh("head -c 300000 /dev/zero | tr '\\0' a; true", TIME_LIMIT).unwrap().len() as u64, MAX_OUTPUT);
        assert!(run("/no/such/program", &[], TIME_LIMIT).unwrap_err().contains("cannot be run"));
    }
}
