//! Common encryption (ISO 23001-7: `cenc`, `cens`, `cbc1`, `cbcs`; PIFF 1.1) taken out of MP4 in place: the bytes of
//! samples are decrypted where they stand, and the boxes that spoke of encryption become `free` boxes. Nothing moves,
//! so sizes, `sidx` offsets and byte ranges stay what they were.
//!
//! [`Decrypter`] takes a stream as it comes, fragmented or progressive; [`Progressive`] serves any byte range of a
//! progressive file. Only keys that the caller hands over are used.

mod auxiliary;
mod cipher;
mod decrypter;
mod error;
mod fragment;
mod groups;
mod init;
mod keys;
mod plan;
mod progressive;
mod protection;
mod sample;

pub use cipher::{AesKey, Cbc, Ctr};
pub use decrypter::{Decrypter, Limits};
pub use error::Error;
pub use init::{Init, ProtectedEntry};
pub use keys::{Key, KeyRing, KeyRingError, Kid};
pub use progressive::{Probe, Progressive, RangeDecrypter};
pub use protection::{Pattern, Protection, Pssh, Scheme};

#[cfg(test)]
pub(crate) use tests::media as test_media;

#[cfg(test)]
mod tests;
