//! HLS playlists (RFC 8216bis) and IPTV lists, rewritten line by line: bytes that are no URI stay what they are.
//!
//! [`rewrite()`] finds every URI and hands it to a [`UriReplacer`]; [`variants`] and [`skip`] leave parts out beforehand.

pub mod channel;
pub mod define;
pub mod rewrite;
pub mod segment_skip;
pub mod steering;
pub mod tags;
pub mod variant_filter;

pub use rewrite::{HlsRewriteOptions, UriReplacer, UriRole, rewrite, rewrite_within};
