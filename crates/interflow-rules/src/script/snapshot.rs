//! A detached copy of the parts of a flow that a script may read, so that it can run on another thread.

use bytes::Bytes;
use interflow_types::{Direction, FlowId, Headers, Phase};

use crate::actions::ActionContext;
use crate::program::RuleProgram;

/// Fields by name in lower case, in order.
pub(crate) type HeaderPairs = Vec<(String, Vec<u8>)>;

/// A request's head.
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

/// A flow at a phase.
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
    pub fn from_context(at: &ActionContext<'_>, program: &RuleProgram) -> Self {
        let view = at.view(program);
        let variables = view.flow.extension::<crate::flow_state::RuleState>();
        let request = view.request.map(|r| RequestSnapshot {
            method: r.method.as_str().to_owned(),
            url: view.url().to_owned(),
            path: r.url.path.as_str().to_owned(),
            base: format!("{}://{}", r.url.scheme, r.url.authority.to_host_header(r.url.scheme)),
            headers: fields(&r.headers),
        });
        let bodies = matches!(at.phase, Phase::RequestBody | Phase::ResponseBody);
        Self {
            phase: at.phase,
            id: view.flow.id,
            host: view.with_host(ToOwned::to_owned),
            port: view.flow.authority.port,
            scheme: view.scheme().as_str(),
            client: view.flow.client.peer.ip().to_canonical().to_string(),
            user: view.flow.user.as_deref().map(ToOwned::to_owned),
            variables: variables
                .map(|s| s.variables().map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
                .unwrap_or_default(),
            request,
            response: view.response.map(|r| (r.status.as_u16(), fields(&r.headers))),
            message: view.message.map(|m| if m.direction == Direction::Request { "client" } else { "server" }),
            body: view.message.map(|m| m.payload.clone()).or_else(|| at.body.clone().filter(|_| bodies)),
        }
    }

    /// The name of the table that the script may change.
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

fn fields(headers: &Headers) -> HeaderPairs {
    headers.iter().map(|(n, v)| (String::from_utf8_lossy(n).to_ascii_lowercase(), v.to_vec())).collect()
}
