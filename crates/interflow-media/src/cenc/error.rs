//! Decryption errors, and who is responsible for them.

use interflow_types as flow;

use super::keys::KeyId;
use crate::bmff::{BoxError, FourCc};

pub type Result<T, E = CencError> = std::result::Result<T, E>;

/// A decryption error. Output before the error is valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CencError {
    #[error(transparent)]
    Broken(#[from] BoxError),
    /// No key was given for an encrypted sample.
    #[error("no key was given for KID {kid} (track {track}): pass it as {kid}:KEY")]
    NoKey { kid: KeyId, track: u32 },
    /// The protection scheme is not one of ISO 23001-7 or PIFF.
    #[error("track {track} is protected by scheme `{scheme}`, which is not supported")]
    Scheme { track: u32, scheme: FourCc },
    /// A feature of the standard that is not supported.
    #[error("box `{kind}` at byte {offset}: {what} is not supported")]
    Unsupported { kind: FourCc, offset: u64, what: &'static str },
    /// A fragment without an init segment, or of a track that the init segment lacks. A player requests them in the
    /// wrong order, or the link lacks its init segment.
    #[error("the fragment at byte {offset} belongs to track {track}, of which no init segment was given")]
    NoInit { offset: u64, track: u32 },
    /// Media data before the index that describes it.
    #[error("the media data at byte {offset} comes before its index: read the `moov` box at the end of the file first")]
    IndexAtEnd { offset: u64 },
    /// A fragment that describes no sample, but has media data.
    #[error("the media data at byte {offset} belongs to a fragment that describes no sample of it (it is damaged)")]
    NoSamples { offset: u64 },
    /// Samples at an offset that has already passed, or that overlap.
    #[error(
        "a sample of track {track} at byte {offset} is located before the fragment that describes it, or overlaps another one"
    )]
    Misplaced { track: u32, offset: u64 },
    /// The stream ended at byte `at` of the file, within what is named.
    #[error("the stream ends at byte {at}, inside {what}")]
    Truncated { at: u64, what: String },
    /// A box exceeds its limit, in bytes.
    #[error("box `{kind}` at byte {offset}: it takes {size} bytes; {limit} are held at the most")]
    TooLarge { kind: FourCc, offset: u64, size: u64, limit: u64 },
}

impl From<CencError> for flow::Error {
    /// A missing key is the client's fault, since links bring their keys; everything else is the origin's.
    fn from(error: CencError) -> Self {
        let kind = match &error {
            CencError::NoKey { .. } => flow::ErrorKind::Denied,
            CencError::Truncated { .. } => flow::ErrorKind::UpstreamClosed,
            _ => flow::ErrorKind::BadResponse,
        };
        let blame = if kind == flow::ErrorKind::Denied { flow::ErrorSource::Client } else { kind.error_source() };
        Self::new(kind, format!("the media could not be decrypted: {error}")).with_error_source(blame)
    }
}
