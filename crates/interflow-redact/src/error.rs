//! The errors of redaction, and their meaning for the proxy.

use interflow_codec::json::JsonError;

pub type Result<T, E = RedactError> = std::result::Result<T, E>;

/// Why something could not be redacted, restored or parsed. The caller must reject the message: nothing may be
/// forwarded unredacted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedactError {
    /// The policy is invalid; the message names the location and the remedy.
    #[error("policy: {0}")]
    Policy(String),
    /// The body is not JSON, or cannot be edited safely; `at` is the byte offset.
    #[error("JSON at byte {at}: {reason}")]
    Json { at: usize, reason: &'static str },
    /// The text is not UTF-8; `at` is the byte offset.
    #[error("the body is not UTF-8 at byte {at}")]
    Utf8 { at: usize },
    /// The vault has reached its maximum number of placeholders.
    #[error("the vault is full: {limit} placeholders in one conversation")]
    VaultFull { limit: usize },
    /// The key of the policy does not encrypt the value.
    #[error("a value cannot be encrypted with the key of the policy")]
    Seal,
    /// An external detector failed, and is configured to fail closed.
    #[error("{0}")]
    Backend(String),
    /// A stream ended while a possible placeholder was held back that cannot be resolved.
    #[error("the stream ended inside a placeholder")]
    OpenPlaceholder,
    /// A stream would have to buffer more than allowed.
    #[error("more than {limit} bytes would have to be held back")]
    HeldBack { limit: usize },
    /// The work was cancelled, since nobody waits for the result.
    #[error("the work was cancelled")]
    Stopped,
    /// The operating system provided no random bytes.
    #[error("no random bytes: {0}")]
    Random(String),
}

impl From<JsonError> for RedactError {
    fn from(JsonError { at, reason }: JsonError) -> Self {
        Self::Json { at, reason }
    }
}

impl From<RedactError> for interflow_types::Error {
    fn from(e: RedactError) -> Self {
        use interflow_types::{ErrorKind, ErrorSource};
        let (kind, blame) = match &e {
            RedactError::Json { .. } | RedactError::Utf8 { .. } => (ErrorKind::BadRequest, ErrorSource::Client),
            RedactError::Policy(_) => (ErrorKind::StageFailed, ErrorSource::Config),
            RedactError::Backend(_) => (ErrorKind::StageFailed, ErrorSource::Upstream),
            RedactError::Stopped => (ErrorKind::ClientGone, ErrorSource::Client),
            RedactError::OpenPlaceholder | RedactError::HeldBack { .. } => {
                (ErrorKind::BadResponse, ErrorSource::Upstream)
            }
            RedactError::VaultFull { .. } | RedactError::Seal | RedactError::Random(_) => {
                (ErrorKind::StageFailed, ErrorSource::Internal)
            }
        };
        Self::new(kind, format!("redaction failed: {e}")).with_error_source(blame)
    }
}
