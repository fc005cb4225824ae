//! Recorded exchanges, and where they come from.

use std::path::Path;

use bytes::Bytes;
use interflow_types::{Headers, Method, ResponseHead, Url};
use parking_lot::Mutex;

/// One recorded exchange. Bodies are without their content coding.
#[derive(Clone, Debug)]
pub struct RecordedExchange {
    pub method: Method,
    pub url: Url,
    pub headers: Headers,
    /// The request's body; empty if there was none.
    pub sent: Bytes,
    /// The response's head, as it came.
    pub head: ResponseHead,
    pub body: Bytes,
    /// When the response was received, in Unix time; if absent, the response's `Date` is used.
    pub at: Option<i64>,
}

/// Reads recordings for `replay`. Implemented outside this crate, where the archive formats and the store are.
/// Loading happens when rules are compiled, on the thread that does so, and may block.
pub trait RecordingSource: Send + Sync {
    /// The exchanges of an archive, in order.
    ///
    /// # Errors
    /// What is wrong with the file; the message does not repeat its name.
    fn archive(&self, file: &Path) -> Result<Vec<RecordedExchange>, String>;

    /// The recorded flows that a query selects, in order.
    ///
    /// # Errors
    /// The query or the recording cannot be read.
    fn flows(&self, query: &str) -> Result<Vec<RecordedExchange>, String>;
}

/// A loaded recording.
#[derive(Debug)]
pub struct ReplayIndex {
    pub(crate) entries: Vec<RecordedExchange>,
    pub(crate) used: Mutex<Vec<bool>>,
}
