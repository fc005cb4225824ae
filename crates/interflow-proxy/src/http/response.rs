//! Responses that Interflow makes itself: a stage's answer, and errors. Each ends its flow.

use std::sync::Arc;

use interflow_net::ingress::ServiceReply;
use interflow_types::{
    Authority, EarlyExit, EntryKind, Error, ErrorKind, ErrorRenderer, FlowClock, Host, RequestHead, Response, Scheme,
};

use crate::downstream::connection::{ClientConnection, ConnectionKind, challenge};
use crate::http::error_response::error_response;
use crate::http::{hop_by_hop, upgrade};
use crate::observe::flow_guard::{FlowGuard, local_body_bytes};
use crate::state::ActiveConfig;

/// Answers a request that could not be parsed or has no destination. It is recorded as a failed flow, for the
/// tunnel's authority or Interflow's own address.
pub(crate) fn reject_malformed(conn: &ClientConnection, config: &ActiveConfig, error: &Error) -> Response {
    let (scheme, authority, transport, user) = match &conn.entry {
        // No plan key can come from a request that was not understood: the flow gets the authority of its connection.
        ConnectionKind::Inside(i) => (i.scheme, i.authority.clone(), i.transport, i.login.user()),
        ConnectionKind::Proxy | ConnectionKind::Gateway => {
            let transport =
                if matches!(conn.entry, ConnectionKind::Proxy) { EntryKind::Absolute } else { EntryKind::Gateway };
            let local = conn.client.local;
            (Scheme::Http, Authority::new(Host::Ip(local.ip()), local.port()), transport, None)
        }
    };
    // Looked up, not run: no stage sees a request that could not be parsed.
    let key = conn.plan_key(scheme, authority.clone(), None, transport, user.clone());
    let plan = config.plans.get(&config.settings, key);
    let mut flow = conn.flow(FlowClock::start(), transport, scheme, authority, user);
    flow.tag("malformed");
    let mut guard = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    // Without waiting for the recorder, because the caller is not async.
    guard.begin_capture_at_once(&config.settings, None);
    let mut response = error_response(error, Some(guard.flow.id), None);
    tracing::info!(client = %conn.client.peer, flow = %guard.flow.id, kind = error.kind().as_str(), "refused: {error}");
    guard.response(&response.head);
    if let Some(bytes) = local_body_bytes(&response.body) {
        // The whole body is recorded here, because the response is not wrapped in a tap.
        guard.local_response(bytes);
    }
    response.body = guard.withhold(response.body);
    guard.fail(error);
    response
}

/// Answers with a stage's response or denial. The response phases are skipped: a stage made this response, not an
/// origin.
pub(crate) fn exit_early(
    mut guard: FlowGuard,
    config: &ActiveConfig,
    request: &RequestHead,
    end: EarlyExit,
) -> ServiceReply {
    match end {
        EarlyExit::Deny(e) => fail(guard, config, request, &e),
        EarlyExit::Answer(response) => {
            let Response { mut head, body } = *response;
            if let Err(error) = upgrade::check_not_accepted(request, head.status) {
                return fail(guard, config, request, &error);
            }
            guard.flow.tag("answered-locally");
            hop_by_hop::add_client_fields(&guard.flow, &mut head.headers);
            guard.response(&head);
            let body = guard.response_body(hop_by_hop::strip_forbidden_body(request, &head, body), &head);
            ServiceReply::Response(Response { head, body })
        }
    }
}

/// Ends the flow with an error and answers the client. If the client is gone, or is not to be answered, its connection is aborted
/// instead.
pub(crate) fn fail(mut guard: FlowGuard, config: &ActiveConfig, request: &RequestHead, error: &Error) -> ServiceReply {
    if matches!(error.kind(), ErrorKind::ClientGone | ErrorKind::Dropped) {
        guard.fail(error);
        return ServiceReply::Abort(Error::new(error.kind(), error.message()));
    }
    let html = request.headers.get_str("accept").is_some_and(|a| a.contains("text/html"));
    // A browser gets the page even on an API path, since a person reads it.
    let renderer = guard.flow.extension::<ErrorRenderer>().filter(|_| !html).and_then(|r| r.0);
    let mut response = match renderer {
        Some(render) => render(&guard.flow, error),
        None => error_response(error, Some(guard.flow.id), Some(&request.headers)),
    };
    // RFC 9110 15.5.8: a 407 must carry the challenge.
    if error.kind() == ErrorKind::Unauthorized {
        response = challenge(response, &config.settings.config.auth.realm);
    }
    // RFC 10036 5.1.
    if error.kind() == ErrorKind::IncrementalRefused {
        response.head.headers.append_unchecked(b"Proxy-Status", b"interflow; error=incremental_refused");
    }
    hop_by_hop::add_client_fields(&guard.flow, &mut response.head.headers);
    guard.response(&response.head);
    if let Some(bytes) = local_body_bytes(&response.body) {
        guard.local_response(bytes);
    }
    guard.fail(error);
    ServiceReply::Response(response)
}
