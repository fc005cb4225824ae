//! The failure of a command.

#[derive(Debug)]
pub enum CliError {
    Failed(String),
    /// Invalid usage or configuration: exit code 2.
    Usage(String),
    /// Exit code of the child process of `exec`, which becomes our own.
    Child(u8),
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
