//! Segments can be generated independently and in any order: each PID has a multiple of 16 packets per segment, so that
//! the continuity counters (four bits, ISO 13818-1 2.4.3.3) of any two segments match. Whatever order a player requests
//! them in, it sees no lost packets, and no state is kept between requests.

mod access_unit;
mod muxer;
mod packets;
mod tables;

pub use muxer::{RemuxOptions, TsMuxer, TsSegment};
pub(crate) use tables::crc;

use crate::bmff::{BoxError, FourCc};

/// Why a segment cannot be remuxed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemuxError {
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
    /// Only clear samples can be remuxed.
    #[error("track {0} is encrypted: decrypt it first")]
    Encrypted(u32),
    /// Neither a video nor an audio track.
    #[error("the init segment has no video or audio track")]
    NoTracks,
    /// A sample outside of the fragment's data.
    #[error("a sample of track {track} at byte {offset} is not in the fragment's media data")]
    Misplaced { track: u32, offset: u64 },
    /// A sample that is invalid for its codec.
    #[error("the sample of track {track} at byte {offset} is not what its codec says: wrong key, or damaged")]
    Sample { track: u32, offset: u64 },
    /// A fragment exceeds [`RemuxOptions::limit`], in bytes.
    #[error("the fragment at byte {offset} takes {size} bytes; {limit} are held at the most")]
    TooLarge { offset: u64, size: u64, limit: u64 },
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
