//! Links that define what may be fetched, by whom and until when, sealed against reading and modification.
//!
//! A [`LinkGrant`] is the content of a link. [`LinkKeys`] seals it (XChaCha20-Poly1305) and opens it again. Child URLs
//! of a playlist carry the playlist's grant and their own query; [`ChildKey`] signs or encrypts that query.

mod child;
mod grant;
mod keys;
mod legacy;
mod sealed;

pub use child::ChildKey;
pub use grant::{GrantRefusal, LinkGrant, QueryPairs, endpoint_of};
pub use keys::{LinkKeyError, LinkKeys};
pub use legacy::read_legacy;

/// A token error; does not reveal which check failed, which would help a forger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Sealed elsewhere, modified, or not a token at all.
    #[error("the link is not valid here: it was changed, cut off, or sealed by another gateway")]
    Foreign,
    /// It names a key that is no longer configured; the link was valid once.
    #[error("the link was sealed with a key that is no longer in use")]
    Retired,
}
