//! The terminal that the instance was started from.

use std::io::{self, IsTerminal as _};

/// Which of the standard streams belong to a terminal.
#[derive(Clone, Copy, Debug)]
pub struct StartTerminal {
    stdin: bool,
    stderr: bool,
}

impl StartTerminal {
    /// Looks for one, at the start. There is none for a program that is to outlive it (`nohup`).
    pub fn find() -> Self {
        if ignores_hangup() {
            return Self { stdin: false, stderr: false };
        }
        // Elsewhere `nohup` leaves stdin as it is.
        let stdin = cfg!(target_os = "linux") && io::stdin().is_terminal();
        Self { stdin, stderr: io::stderr().is_terminal() }
    }

    /// Whether SIGHUP means that it was closed, and not that the configuration is to be read again.
    pub fn was_closed(self) -> bool {
        // On Linux, descriptors of a closed terminal are no terminal any more before the signal is sent.
        let is_open = cfg!(target_os = "linux");
        (self.stdin && !(is_open && io::stdin().is_terminal()))
            || (self.stderr && !(is_open && io::stderr().is_terminal()))
    }
}

/// Whether the program was started with SIGHUP ignored.
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // A mask in hexadecimal: the lowest bit is signal 1.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
