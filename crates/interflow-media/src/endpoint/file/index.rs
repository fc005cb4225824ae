//! Indexes of MP4 files that are decrypted in ranges.

use std::sync::Arc;

use interflow_types::{Headers, ResponseHead};

use crate::cenc::{InitSegment, ProgressiveFile};
use crate::relay::resume::content_range;

/// A file whose samples or fragments are known.
pub struct IndexedFile {
    pub layout: FileLayout,
    pub length: u64,
    /// The response head, without length and range, which differ between requests.
    pub head: ResponseHead,
}

pub enum FileLayout {
    Progressive(Arc<ProgressiveFile>),
    /// A fragmented file, with known fragment offsets; none if it has no `sidx`.
    Fragments(Option<Arc<InitSegment>>, Vec<u64>),
}

impl IndexedFile {
    /// Whether a response of the origin refers to the same version of the file. Fields that are missing in both count
    /// as equal.
    pub fn is_same(&self, head: &ResponseHead) -> bool {
        let same = |name| head.headers.get(name) == self.head.headers.get(name);
        let length = content_range(head).and_then(|(_, whole)| whole);
        same("etag") && same("last-modified") && length.is_none_or(|l| l == self.length)
    }

    /// Whether the client's cached copy is current (RFC 9110 13.1). `If-None-Match` takes precedence, and compares
    /// weakly.
    pub fn is_known_to(&self, client: &Headers) -> bool {
        match client.get_str("if-none-match") {
            Some(list) => {
                let weak = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
                let own = self.head.headers.get_str("etag").map(weak);
                list.trim() == "*" || own.is_some_and(|own| list.split(',').any(|tag| weak(tag) == own))
            }
            None => client
                .get_str("if-modified-since")
                .is_some_and(|since| self.head.headers.get_str("last-modified") == Some(since)),
        }
    }
}
