//! Clients in web pages (CORS). Which origins may send requests is decided by `gateway.origins` before a request gets here,
//! so their pages may read the responses as well.

use interflow_types::{
    Body, ClientResponseFields, Flow, Headers, Method, RequestHead, Response, ResponseHead, StatusCode,
};

/// Fields of a response that scripts may read: by name, since `*` does not cover requests with credentials.
const EXPOSED: &[u8] = b"Mcp-Session-Id, MCP-Protocol-Version, WWW-Authenticate, Retry-After, X-Request-Id";
/// Fields of a request whose names are known; those for tools (`Mcp-Param-*`) are not.
const ALLOWED: &str = "accept, authorization, content-type, last-event-id, mcp-method, mcp-name, mcp-protocol-version, \
                       mcp-session-id, traceparent, x-api-key, x-interflow-key, x-request-id";
const PARAM: &str = "mcp-param-";

/// Has the response say that the page which sent the request may read it. Whether it is the question of a browser that
/// comes before such a request, and which has no credentials.
pub(crate) fn admit_page(flow: &mut Flow, head: &RequestHead) -> bool {
    let Some(origin) = head.headers.get_str("origin") else { return false };
    let mut fields = Headers::new();
    fields.append_unchecked(b"Access-Control-Allow-Origin", origin.as_bytes());
    fields.append_unchecked(b"Vary", b"Origin");
    let is_preflight = head.method == Method::OPTIONS && head.headers.contains("access-control-request-method");
    if is_preflight {
        let mut allowed = ALLOWED.to_owned();
        for name in head.headers.list_items("access-control-request-headers").map(<[u8]>::to_ascii_lowercase) {
            if let Some(name) = std::str::from_utf8(&name).ok().filter(|name| name.starts_with(PARAM)) {
                allowed += &format!(", {name}");
            }
        }
        fields.append_unchecked(b"Access-Control-Allow-Methods", b"GET, POST, DELETE");
        fields.append_unchecked(b"Access-Control-Allow-Headers", allowed.as_bytes());
        fields.append_unchecked(b"Access-Control-Max-Age", b"600");
    } else {
        fields.append_unchecked(b"Access-Control-Expose-Headers", EXPOSED);
    }
    flow.extension_mut::<ClientResponseFields>().0 = fields;
    is_preflight
}

/// Whether a web page sent the request.
pub(crate) fn is_of_page(flow: &Flow) -> bool {
    flow.extension::<ClientResponseFields>().is_some()
}

/// The response to the question of a browser. The flow has its fields.
pub(crate) fn preflight_response() -> Response {
    Response { head: ResponseHead::new(StatusCode::NO_CONTENT), body: Body::Empty }
}
