//! Links that say what may be fetched, by whom and until when, sealed so that nobody can read or change them.
//!
//! A [`LinkGrant`] is the content of a link. [`LinkKeys`] seals it (XChaCha20-Poly1305) and opens it again. Child URLs of a
//! playlist carry the playlist's grant and their own query; [`ChildKey`] signs that query, or hides it.

mod child;
mod grant;
mod keys;
mod legacy;

pub use child::ChildKey;
pub use grant::{GrantRefusal, LinkGrant, QueryPairs, endpoint_of};
pub use keys::{LinkKeyError, LinkKeys};
pub use legacy::read_legacy;

/// What is wrong with a token, without a word on which check it failed: that would help to forge one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It is none of ours, or was changed.
    #[error("the link is not valid here: it was changed, cut off, or sealed by another gateway")]
    Foreign,
    /// It names a key that is not in the configuration any more.
    #[error("the link was sealed with a key that is no longer in use")]
    Retired,
}
