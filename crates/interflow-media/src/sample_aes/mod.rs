//! HLS encryption: `METHOD=AES-128` over whole segments, and `METHOD=SAMPLE-AES` inside MPEG-TS (RFC 8216 4.3.2.4,
//! Apple's "MPEG-2 Stream Encryption Format for HTTP Live Streaming").
//!
//! SAMPLE-AES in fragmented MP4 is common encryption with scheme `cbcs`: see [`crate::cenc`]. Packed audio with
//! SAMPLE-AES is rejected.

mod aes128;
mod frames;
mod nal;
mod ts;

pub use aes128::{Aes128Cbc, iv_from_sequence, parse_iv};
pub use ts::SampleAesTs;

/// Why a segment cannot be decrypted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SampleAesError {
    /// Not a whole number of 16-byte blocks.
    #[error(
        "the segment has {0} bytes, which is not a multiple of 16: it was truncated, or is not encrypted with AES-128"
    )]
    Length(u64),
    /// The last block has no valid padding.
    #[error("the segment does not end in padding: the key or the IV is wrong")]
    Padding,
    /// No sync byte where a packet of 188 bytes should begin.
    #[error("there is no MPEG-TS packet at byte {0}")]
    Sync(u64),
    /// The stream is truncated within a packet.
    #[error("the segment ends {0} bytes into an MPEG-TS packet")]
    Truncated(usize),
    /// The packets of one frame, which wait for its end, take too many bytes.
    #[error("a frame of PID {0} is larger than {1} bytes")]
    TooLarge(u16, usize),
    /// Frames of an elementary stream cannot be located.
    #[error("the frames of PID {pid} cannot be read at byte {at} of the elementary stream: the stream is damaged")]
    Frames { pid: u16, at: usize },
}

impl From<SampleAesError> for interflow_types::Error {
    fn from(error: SampleAesError) -> Self {
        use interflow_types::ErrorKind;
        let kind = if matches!(error, SampleAesError::Truncated(_) | SampleAesError::Length(_)) {
            ErrorKind::UpstreamClosed
        } else {
            ErrorKind::BadResponse
        };
        Self::new(kind, format!("the segment could not be decrypted: {error}"))
    }
}
