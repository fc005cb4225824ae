//! HLS playlists (RFC 8216bis) and IPTV lists, rewritten line by line: bytes that are not part of a URI are unchanged.
//!
//! [`rewrite()`] passes every URI to a [`UriReplacer`]; [`variant_filter`] and [`segment_skip`] remove parts
//! beforehand.

pub mod channel;
pub mod define;
pub mod rewrite;
pub mod segment_skip;
pub mod steering;
pub mod tags;
pub mod variant_filter;

pub use rewrite::{HlsRewriteOptions, UriReplacer, UriRole, rewrite, rewrite_within};
