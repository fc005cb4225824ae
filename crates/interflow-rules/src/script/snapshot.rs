//! A detached copy of the parts of a flow that a script may read, so that it can run on another thread.

use bytes::Bytes;
use interflow_types::{FlowId, Phase};

/// Fields by name in lower case, in order.
pub(crate) type HeaderPairs = Vec<(String, Vec<u8>)>;

/// A request's head, as scripts see it.
#[derive(Debug)]
pub(crate) struct RequestSnapshot {
    pub method: String,
    /// The URL presented to the script.
    pub url: String,
    pub path: String,
    /// `https://host:port`, to which a changed path is appended.
    pub base: String,
    pub headers: HeaderPairs,
}

/// A flow at a phase, as scripts see it.
#[derive(Debug)]
pub(crate) struct ScriptSnapshot {
    pub phase: Phase,
    pub id: FlowId,
    pub host: String,
    pub port: u16,
    pub scheme: &'static str,
    pub client: String,
    pub user: Option<String>,
    pub variables: Vec<(String, String)>,
    pub request: Option<RequestSnapshot>,
    pub response: Option<(u16, HeaderPairs)>,
    /// The sender of a message.
    pub message: Option<&'static str>,
    /// The body of this phase, or the message.
    pub body: Option<Bytes>,
}

impl ScriptSnapshot {
    /// The name of the table that the script may change; changes to the others are ignored.
    pub fn changeable_side(&self) -> &'static str {
        if self.message.is_some() {
            "message"
        } else if self.phase >= Phase::ResponseHead {
            "response"
        } else {
            "request"
        }
    }

    /// The fields of that side.
    pub fn headers(&self) -> &[(String, Vec<u8>)] {
        match self.changeable_side() {
            "request" => self.request.as_ref().map_or(&[], |r| &r.headers),
            "response" => self.response.as_ref().map_or(&[], |r| &r.1),
            _ => &[],
        }
    }
}
