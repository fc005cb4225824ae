//! The failure of a command, and the exit codes.

use std::fmt;

/// Exit codes, the same for every command. `exec` ends with the exit code of its command instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CliExit {
    Ok = 0,
    Failed = 1,
    Usage = 2,
    NotRunning = 3,
    NotExecutable = 126,
    NotFound = 127,
    Signal = 128,
}

impl CliExit {
    /// In ascending order.
    pub const ALL: [Self; 7] =
        [Self::Ok, Self::Failed, Self::Usage, Self::NotRunning, Self::NotExecutable, Self::NotFound, Self::Signal];

    /// The code; of [`Signal`](Self::Signal) the number that the signal's is added to.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The code as documented.
    pub fn label(self) -> String {
        match self {
            Self::Signal => format!("{}+N", self.code()),
            other => other.code().to_string(),
        }
    }

    /// What the code means, in a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Ok => "The command succeeded.",
            Self::Failed => {
                "The command failed, or a check found a problem (`config check`, `rules check`, `rules test`, `doctor`, \
                 `audit verify`, `flows check`)."
            }
            Self::Usage => {
                "The command line or the configuration is invalid. Nothing was done. (`config check` exits with 1 if a \
                 file that the configuration names is invalid.)"
            }
            Self::NotRunning => {
                "The command needs a running instance, and none runs with this data directory. `status` uses it, too."
            }
            Self::NotExecutable => "`exec`: the command was found but could not be started.",
            Self::NotFound => "`exec`: the command was not found.",
            Self::Signal => "`exec`: the command was ended by signal N.",
        }
    }
}

pub type Result<T, E = CliError> = std::result::Result<T, E>;

#[derive(Debug)]
pub enum CliError {
    /// The work failed.
    Failed(String),
    /// Invalid usage or configuration.
    Usage(String),
    /// No instance is running.
    NotRunning(String),
    /// Exit code of the child process of `exec`, which becomes our own. It has reported its failure itself.
    Child(u8),
}

impl CliError {
    /// The exit code of the process.
    pub const fn code(&self) -> u8 {
        match self {
            Self::Failed(_) => CliExit::Failed.code(),
            Self::Usage(_) => CliExit::Usage.code(),
            Self::NotRunning(_) => CliExit::NotRunning.code(),
            Self::Child(code) => *code,
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(text) | Self::Usage(text) | Self::NotRunning(text) => f.write_str(text),
            Self::Child(code) => write!(f, "exit code {code}"),
        }
    }
}

impl From<String> for CliError {
    fn from(text: String) -> Self {
        Self::Failed(text)
    }
}

impl From<interflow_store::StoreError> for CliError {
    fn from(error: interflow_store::StoreError) -> Self {
        Self::Failed(error.to_string())
    }
}
