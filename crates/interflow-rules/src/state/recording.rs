//! Recorded exchanges, and where they come from.

use std::path::Path;

use bytes::Bytes;
use interflow_types::{Headers, Method, ResponseHead, Url};
use parking_lot::Mutex;

/// One recorded exchange; bodies are without their content coding.
#[derive(Clone, Debug)]
pub struct RecordedExchange {
    /// The request's method.
    pub method: Method,
    /// The request's URL.
    pub url: Url,
    /// The request's fields.
    pub headers: Headers,
    /// The request's body.
    pub sent: Bytes,
    /// The response's head, as it came.
    pub head: ResponseHead,
    /// The response's body.
    pub body: Bytes,
    /// When the response was received, in Unix time; if absent, the response's `Date` is used.
    pub at: Option<i64>,
}

/// Reads recordings for `replay`. Implemented outside this crate, where the archive formats and the store are.
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
