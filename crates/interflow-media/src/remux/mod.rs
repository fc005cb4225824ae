//! Remuxes clear fragmented MP4 to MPEG-TS (ISO 13818-1) for players that need classic HLS: H.264, HEVC, AAC, AC-3,
//! E-AC-3 and MP3. Opus, AV1 and VP9 have no agreed mapping in HLS's MPEG-TS and are rejected.
//!
//! Segments can be generated independently and in any order: each PID has a multiple of 16 packets per segment, so that
//! the continuity counters of any two segments match.

mod access_unit;
mod muxer;
mod packets;
mod tables;

pub use muxer::{RemuxOptions, TsMuxer, TsSegment};
pub(crate) use tables::crc;

use crate::bmff::{BoxError, FourCc};

/// A remuxing error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemuxError {
    /// A malformed box.
    #[error(transparent)]
    Broken(#[from] BoxError),
    /// The codec cannot be carried in HLS's MPEG-TS.
    #[error("codec `{0}` cannot be carried in MPEG-TS: play the fragmented MP4, or choose another track")]
    Codec(FourCc),
    /// An AAC configuration that ADTS cannot express.
    #[error(
        "this AAC (object type {0}, channel configuration {1}) cannot be carried in MPEG-TS: play the fragmented MP4"
    )]
    Aac(u8, u8),
    /// The track is still encrypted.
    #[error("track {0} is encrypted: decrypt it first")]
    Encrypted(u32),
    /// No video or audio track.
    #[error("the init segment has no video or audio track")]
    NoTracks,
    /// A sample outside of the fragment's data.
    #[error("a sample of track {track} at byte {offset} is not in the fragment's media data")]
    Misplaced {
        /// The track.
        track: u32,
        /// Where it should begin.
        offset: u64,
    },
    /// A sample that is invalid for its codec.
    #[error("the sample of track {track} at byte {offset} is not what its codec says: wrong key, or damaged")]
    Sample {
        /// The track.
        track: u32,
        /// Where it begins.
        offset: u64,
    },
    /// A fragment exceeds its size limit.
    #[error("the fragment at byte {offset} takes {size} bytes; {limit} are held at the most")]
    TooLarge {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The segment is truncated within a box.
    #[error("the segment ends at byte {0}, inside a box")]
    Truncated(u64),
}

impl From<RemuxError> for interflow_types::Error {
    fn from(error: RemuxError) -> Self {
        use interflow_types::ErrorKind;
        let kind = match &error {
            RemuxError::Codec(_) | RemuxError::Aac(..) => ErrorKind::Unsupported,
            RemuxError::Truncated(_) => ErrorKind::UpstreamClosed,
            _ => ErrorKind::BadResponse,
        };
        Self::new(kind, format!("the segment could not be made into MPEG-TS: {error}"))
    }
}

#[cfg(test)]
mod tests;
