//! Clear fragmented MP4 into MPEG-TS (ISO 13818-1) for players that want HLS in its first form: H.264, HEVC, AAC, AC-3,
//! E-AC-3 and MP3. Opus, AV1 and VP9 have no agreed form in HLS's MPEG-TS and are refused.
//!
//! Every segment can be made by itself and in any order: on each PID it has a multiple of 16 packets, so that the
//! continuity counters of any two segments fit together.

mod access_unit;
mod muxer;
mod packets;
mod tables;

pub use muxer::{RemuxOptions, TsMuxer, TsSegment};
pub(crate) use tables::crc;

use crate::bmff::{BoxError, FourCc};

/// Why a segment cannot be made into MPEG-TS.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemuxError {
    /// A box is not what it should be.
    #[error(transparent)]
    Broken(#[from] BoxError),
    /// The codec has no place in HLS's MPEG-TS.
    #[error("codec `{0}` cannot be carried in MPEG-TS: play the fragmented MP4, or choose another track")]
    Codec(FourCc),
    /// AAC whose configuration ADTS cannot express.
    #[error(
        "this AAC (object type {0}, channel configuration {1}) cannot be carried in MPEG-TS: play the fragmented MP4"
    )]
    Aac(u8, u8),
    /// The track is still encrypted.
    #[error("track {0} is encrypted: decrypt it first")]
    Encrypted(u32),
    /// There is nothing to carry.
    #[error("the init segment has no video or audio track")]
    NoTracks,
    /// A sample whose bytes are not where its fragment says.
    #[error("a sample of track {track} at byte {offset} is not in the fragment's media data")]
    Misplaced {
        /// The track.
        track: u32,
        /// Where it should begin.
        offset: u64,
    },
    /// A sample that is not what its codec says.
    #[error("the sample of track {track} at byte {offset} is not what its codec says: wrong key, or damaged")]
    Sample {
        /// The track.
        track: u32,
        /// Where it begins.
        offset: u64,
    },
    /// A fragment is larger than the limit.
    #[error("the fragment at byte {offset} takes {size} bytes; {limit} are held at the most")]
    TooLarge {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The segment ended in the middle of a box.
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
