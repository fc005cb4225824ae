//! What may go wrong in this room.

use interflow_codec::json::JsonError;

/// Why something could not be redacted, restored or read. Whoever gets one refuses the message: nothing goes on unredacted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RedactError {
    /// The policy cannot be used; the message names the place and the remedy.
    #[error("policy: {0}")]
    Policy(String),
    /// The body is no JSON, or not one that can be edited safely.
    #[error("JSON at byte {at}: {reason}")]
    Json {
        /// Byte offset into the body.
        at: usize,
        /// What is wrong there.
        reason: &'static str,
    },
    /// The body is not UTF-8.
    #[error("the body is not UTF-8 at byte {at}")]
    Utf8 {
        /// Byte offset of the first bad byte.
        at: usize,
    },
    /// A strategy could not be carried out.
    #[error("strategy {strategy}: {reason}")]
    Strategy {
        /// Its name.
        strategy: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The vault holds as much as it may.
    #[error("the vault is full: {limit} placeholders in one conversation")]
    VaultFull {
        /// The bound.
        limit: usize,
    },
    /// A sealed vault cannot be opened: wrong key, or changed bytes.
    #[error("the sealed vault cannot be opened: the key is wrong or its bytes were changed")]
    Seal,
    /// A service that was asked for a second opinion failed, and is set to fail closed.
    #[error("{0}")]
    Backend(String),
    /// A stream ended inside a placeholder.
    #[error("the stream ended inside a placeholder")]
    OpenPlaceholder,
    /// A stream held back more than it may.
    #[error("more than {limit} bytes would have to be held back")]
    HeldBack {
        /// The bound, in bytes.
        limit: usize,
    },
    /// The work was ended, since nobody waits for it any longer.
    #[error("the work was ended: nobody waits for it")]
    Stopped,
    /// The operating system gave no random bytes.
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
            RedactError::Policy(_) | RedactError::Strategy { .. } => (ErrorKind::StageFailed, ErrorSource::Config),
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
