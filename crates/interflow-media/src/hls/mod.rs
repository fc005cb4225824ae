//! HLS playlists (RFC 8216bis) and IPTV lists, rewritten line by line: bytes that are no URI stay what they are.
//!
//! [`rewrite()`] finds every URI and hands it to a [`Place`]; [`variants`] and [`skip`] leave parts out beforehand.

pub mod channel;
pub mod define;
pub mod pathways;
pub mod rewrite;
pub mod skip;
pub mod tags;
pub mod variants;

pub use rewrite::{Kind, Options, Place, rewrite, rewrite_within};
