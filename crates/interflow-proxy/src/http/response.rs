//! Responses that Interflow makes itself: a stage's answer, and errors. Each ends its flow.

use std::sync::Arc;

use interflow_net::ingress::ServiceReply;
use interflow_types::{
    Authority, EarlyExit, EntryKind, Error, ErrorKind, ErrorRenderer, FlowClock, Host, RequestHead, RequestId,
    Response, Scheme,
};

use crate::downstream::connection::{ClientConnection, ConnectionKind, challenge};
use crate::http::error_response::error_response;
use crate::http::hop_by_hop;
use crate::observe::flow_guard::{FlowGuard, local_body_bytes};
use crate::state::ActiveConfig;

/// Answers a request that could not be parsed or has no destination. It is recorded as a failed flow, for the
/// tunnel's authority or Interflow's own address.
pub(crate) fn reject_malformed(conn: &ClientConnection, live: &ActiveConfig, error: &Error) -> Response {
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
    let plan = live.plans.get(&live.settings, key);
    let mut flow = conn.flow(FlowClock::start(), transport, scheme, authority, user);
    flow.tag("malformed");
    let mut tracker = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    // Without waiting for the recorder, because the caller is not async.
    tracker.begin_capture_at_once(&live.settings, None);
    let mut response = error_response(error, Some(tracker.flow.id), None);
    tracing::info!(client = %conn.client.peer, flow = %tracker.flow.id, kind = error.kind().as_str(), "refused: {error}");
    tracker.response(&response.head);
    if let Some(bytes) = local_body_bytes(&response.body) {
        // The whole body is recorded here, because the response is not wrapped in a tap.
        tracker.local_response(bytes);
    }
    response.body = tracker.withhold(response.body);
    tracker.fail(error);
    response
}

/// Answers with a stage's response or denial. The response phases are skipped: a stage made this response, not an
/// origin.
pub(crate) fn exit_early(
    mut tracker: FlowGuard,
    live: &ActiveConfig,
    request: &RequestHead,
    end: EarlyExit,
) -> ServiceReply {
    match end {
        EarlyExit::Deny(e) => fail(tracker, live, request, &e),
        EarlyExit::Answer(response) => {
            let Response { mut head, body } = *response;
            tracker.flow.tag("answered-locally");
            RequestId::echo(&tracker.flow, &mut head.headers);
            tracker.response(&head);
            let body = tracker.response_body(hop_by_hop::strip_forbidden_body(request, &head, body), &head);
            ServiceReply::Response(Response { head, body })
        }
    }
}

/// Ends the flow with an error and answers the client. If the client is gone, its connection is aborted instead.
pub(crate) fn fail(mut tracker: FlowGuard, live: &ActiveConfig, request: &RequestHead, error: &Error) -> ServiceReply {
    // Nobody is left to read a response.
    if error.kind() == ErrorKind::ClientGone {
        tracker.fail(error);
        return ServiceReply::Abort(Error::new(ErrorKind::ClientGone, error.message()));
    }
    let html = request.headers.get_str("accept").is_some_and(|a| a.contains("text/html"));
    // A browser gets the page even on an API path, since a person reads it.
    let renderer = tracker.flow.extension::<ErrorRenderer>().filter(|_| !html).and_then(|r| r.0);
    let mut response = match renderer {
        Some(render) => render(&tracker.flow, error),
        None => error_response(error, Some(tracker.flow.id), Some(&request.headers)),
    };
    // RFC 9110 15.5.8: a 407 must carry the challenge.
    if error.kind() == ErrorKind::Unauthorized {
        response = challenge(response, &live.settings.config.auth.realm);
    }
    RequestId::echo(&tracker.flow, &mut response.head.headers);
    tracker.response(&response.head);
    if let Some(bytes) = local_body_bytes(&response.body) {
        tracker.local_response(bytes);
    }
    tracker.fail(error);
    ServiceReply::Response(response)
}
