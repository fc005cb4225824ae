//! In-place removal of common encryption (ISO 23001-7: `cenc`, `cens`, `cbc1`, `cbcs`; PIFF 1.1) from MP4: samples are
//! decrypted at their positions, and boxes concerning encryption become `free` boxes. Nothing moves, so sizes, `sidx`
//! offsets and byte ranges stay valid.
//!
//! [`CencDecrypter`] processes a stream, fragmented or progressive; [`ProgressiveFile`] serves any byte range of a
//! progressive file. Only keys given by the caller are used.

mod auxiliary;
mod cipher;
mod decrypt_queue;
mod decrypter;
mod error;
mod fragment;
mod groups;
mod init;
mod keys;
mod progressive;
mod protection;
mod sample;

pub use cipher::{CbcCipher, CtrCipher};
pub use decrypter::CencDecrypter;
pub use error::{CencError, Result};
pub use init::{InitSegment, ProtectedEntry};
pub use keys::{AesKey, ContentKey, ContentKeyRing, KeyId, KeyRingError};
pub use progressive::{IndexProbe, ProgressiveFile, RangeDecrypter};
pub use protection::{CryptPattern, ProtectionScheme, PsshBox, SampleProtection};

#[cfg(test)]
pub(crate) use tests::media as test_media;

#[cfg(test)]
mod tests;
