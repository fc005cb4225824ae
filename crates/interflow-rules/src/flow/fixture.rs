//! A recorded or described flow as input for rules.

use bytes::Bytes;
use interflow_types::{
    ClientInfo, Direction, EntryKind, Flow, Headers, HttpVersion, Method, Phase, RequestHead, ResponseHead, Scheme,
    StatusCode, StreamMessage, Timestamp,
};

use crate::flow::view::{FlowView, RuleConstants};
use crate::text::url::parse_url;

/// A complete flow for tests and explanations of rules. Bodies are without their content coding.
#[derive(Debug)]
pub struct FlowFixture {
    pub flow: Flow,
    /// The request's head; `None` for a tunnel.
    pub request: Option<RequestHead>,
    pub request_body: Bytes,
    /// The response's head, if there was one.
    pub response: Option<ResponseHead>,
    pub response_body: Bytes,
    /// Messages of a WebSocket, event stream or gRPC stream.
    pub messages: Vec<StreamMessage>,
}

impl FlowFixture {
    /// A GET of a URL, without a response.
    ///
    /// # Panics
    /// If the text is not a URL.
    pub fn for_get(url: &str) -> Self {
        Self::for_request("GET", url).unwrap_or_else(|e| panic!("{e}"))
    }

    /// A request without a response.
    ///
    /// # Errors
    /// An invalid method or URL.
    pub fn for_request(method: &str, url: &str) -> Result<Self, String> {
        let url = parse_url(url)?;
        let method = Method::from_bytes(method.as_bytes()).map_err(|_| format!("`{method}` is not a valid method"))?;
        let local = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let client = ClientInfo {
            connection: 0,
            peer: local,
            local,
            listener: "proxy".into(),
            accepted: Timestamp::now(),
            container: None,
            process: None,
        };
        let transport = if url.scheme == Scheme::Https { EntryKind::Connect } else { EntryKind::Absolute };
        let flow = Flow::begin(client.into(), transport, url.scheme, url.authority.clone());
        let mut headers = Headers::new();
        headers.append_unchecked(b"Host", url.authority.to_host_header(url.scheme).as_bytes());
        let head = RequestHead { method, url, version: HttpVersion::Http11, headers, protocol: None };
        Ok(Self {
            flow,
            request: Some(head),
            request_body: Bytes::new(),
            response: None,
            response_body: Bytes::new(),
            messages: Vec::new(),
        })
    }

    /// Adds a request field.
    ///
    /// # Errors
    /// A malformed field.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, String> {
        if let Some(r) = &mut self.request {
            r.headers.append(name, value).map_err(|e| format!("{name}: {e}"))?;
        }
        Ok(self)
    }

    /// Adds a response.
    ///
    /// # Errors
    /// An invalid status.
    pub fn with_response(
        mut self,
        status: u16,
        headers: &[(&str, &str)],
        body: impl Into<Bytes>,
    ) -> Result<Self, String> {
        let mut head =
            ResponseHead::new(StatusCode::from_u16(status).map_err(|_| format!("{status} is not a valid status"))?);
        for (name, value) in headers {
            head.headers.append(name, value).map_err(|e| format!("{name}: {e}"))?;
        }
        self.response = Some(head);
        self.response_body = body.into();
        Ok(self)
    }

    /// What rules can read at a phase: nothing of later phases, as in a running flow.
    pub(crate) fn view<'a>(&'a self, phase: Phase, constants: &'a RuleConstants) -> FlowView<'a> {
        let mut view = FlowView::new(phase, &self.flow, constants);
        if phase >= Phase::RequestHead {
            view.request = self.request.as_ref();
        }
        if phase >= Phase::RequestBody {
            view.request_body = self.request.as_ref().map(|_| self.request_body.clone().into());
        }
        if phase >= Phase::ResponseHead {
            view.response = self.response.as_ref();
        }
        if phase >= Phase::ResponseBody {
            view.response_body = self.response.as_ref().map(|_| self.response_body.clone().into());
        }
        view
    }

    /// Adds a text message of a stream.
    pub fn with_message(mut self, direction: Direction, text: impl Into<Bytes>) -> Self {
        self.messages.push(crate::flow::view::test_message(direction, interflow_types::MessageKind::Text, text.into()));
        self
    }
}
