//! Requests that Interflow itself sends: replays, and requests of its components. No stages run, except those of the
//! phase `BeforeSend`.

use std::sync::Arc;
use std::time::Instant;

use interflow_net::egress::{UpstreamClient, UpstreamProtocol, UpstreamResponse};
use interflow_net::ingress::InformationalSender;
use interflow_net::io::IoStream;
use interflow_types::{
    Body, EarlyExit, EntryKind, Error, ErrorKind, Flow, HttpVersion, Phase, Request, RequestHead, Response,
    ResponseHead, Result, Scheme,
};
use tokio::io::DuplexStream;

use crate::downstream::connection::ClientConnection;
use crate::http::pipeline::{before_send, send};
use crate::http::{hop_by_hop, upgrade};
use crate::observe::flow_guard::FlowGuard;
use crate::state::ActiveConfig;

pub(crate) struct LocalRequest<'a> {
    pub conn: &'a ClientConnection,
    pub config: &'a Arc<ActiveConfig>,
    /// The worker's client, or one that filters addresses.
    pub egress: &'a UpstreamClient,
    pub flow: Box<Flow>,
    /// Upstream proxies are not used, although the configuration has one for this host.
    pub is_direct: bool,
    /// The operator chose it: a replay, or a composed request.
    pub is_chosen: bool,
    /// When the response has to have begun.
    pub until: Option<Instant>,
}

/// Bytes of an upgraded connection that wait for the other side, in each direction.
const UPGRADED_BUFFER: usize = 64 << 10;

/// Sends a request of Interflow's own: a replay or a component's request. Its flow is recorded like any other, unless
/// it is marked as not recorded. A request with `protocol` may end in a switch of protocols: then its sender has the
/// client's end of a connection, which is relayed and recorded like a client's.
pub(crate) async fn send_local(local: LocalRequest<'_>, request: Request) -> Result<(Response, Option<DuplexStream>)> {
    let LocalRequest { conn, config, egress, mut flow, is_direct, is_chosen, until } = local;
    let Request { mut head, body } = request;
    let key = conn.plan_key(head.url.scheme, head.url.authority.clone(), None, EntryKind::Internal, None);
    // The request did not arrive: it begins complete.
    flow.timings.request_head = Some(0);
    let plan = config.plans.get(&config.settings, key);
    conn.worker.counters.request_started(EntryKind::Internal);
    let mut guard = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    hop_by_hop::clean_request(&mut head);
    hop_by_hop::set_host_for(&mut head, EntryKind::Internal);
    if head.protocol.as_deref() == Some("websocket") {
        upgrade::set_key(&mut head);
    }
    // A component's request is its own.
    let allowed = if is_chosen { recheck_replay(&mut guard, &mut head).await } else { Ok(()) };
    guard.begin_capture(&config.settings, Some(&head)).await;
    if let Err(e) = allowed {
        guard.fail(&e);
        return Err(e);
    }
    let body = guard.request_body(body, &head);
    // Not the plan's route, which is for clients: no user, and no isolation between them.
    let mut route = config.settings.route(head.url.scheme, &head.url.authority, None);
    route.isolation.client_connection = conn.exclusive_upstream(&head.headers);
    if is_direct {
        route.via = Arc::from([]);
    }
    // As its origin was spoken to before, or as gRPC needs it: HTTP/2 is not negotiated in plain text.
    if is_chosen
        && head.version == HttpVersion::H2
        && head.url.scheme == Scheme::Http
        && !config.settings.is_http1_only(&head.url.authority)
    {
        route.protocol = UpstreamProtocol::Http2;
    }
    let leaving = before_send(&mut guard, &head, body).await;
    let sent = match leaving {
        Ok((mut leaving, body)) => {
            config.settings.pseudonym.add_via(&head, &mut leaving, &route, &guard.flow);
            let leaving = leaving.as_deref().unwrap_or(&head);
            // Nobody waits for 1xx responses.
            let informational = InformationalSender::default();
            let sent = send(&mut guard, egress, &route, leaving, body, &informational);
            match until {
                None => sent.await,
                Some(until) => tokio::time::timeout_at(until.into(), sent).await.unwrap_or_else(|_| Err(late(&head))),
            }
        }
        Err(end) => Err(exit_error(end)),
    };
    let answer = match sent.and_then(|answer| upgrade::check_accept(&head, &answer.head).map(|()| answer)) {
        Ok(answer) => answer,
        Err(e) => {
            guard.fail(&e);
            return Err(e);
        }
    };
    let UpstreamResponse { head: mut response, mut body, upgrade: upgraded, .. } = answer;
    if let Some(upstream) = upgraded {
        let (response, relay) = upgrade::complete_upgrade(guard, config, head, response, upstream);
        let (own_end, client) = tokio::io::duplex(UPGRADED_BUFFER);
        tokio::spawn(relay(IoStream::other(client)));
        return Ok((Response { head: response, body: Body::Empty }, Some(own_end)));
    }
    hop_by_hop::clean_response(&mut response.headers, false);
    // A replay inserts the same secrets as the original did, and the response may repeat them.
    body = match mask_replay_response(&mut guard, &head, &mut response, body).await {
        Ok(body) => body,
        Err(e) => {
            guard.fail(&e);
            return Err(e);
        }
    };
    guard.response(&response);
    let body = guard.response_body(body, &response);
    Ok((Response { head: response, body }, None))
}

fn late(head: &RequestHead) -> Error {
    let message = format!("{} did not begin to respond in the time that this request has", head.url.authority);
    Error::new(ErrorKind::UpstreamTimeout, message)
}

fn exit_error(exit: EarlyExit) -> Error {
    match exit {
        EarlyExit::Deny(error) => error,
        EarlyExit::Answer(response) => {
            let status = response.head.status.as_u16();
            Error::new(ErrorKind::Denied, format!("a stage answered with {status} before the request was sent"))
        }
    }
}

/// Runs the stages of the phase `BeforeSend` on a replay or a composed request. All stages saw a replayed request when it
/// was recorded, but these control what may be reached, and the rules or the destination may have changed.
async fn recheck_replay(guard: &mut FlowGuard, head: &mut RequestHead) -> Result<()> {
    let plan = Arc::clone(&guard.plan);
    for stage in plan.stages(Phase::BeforeSend) {
        stage.request_head(&mut guard.flow, head).resolve().await.into_result().map_err(exit_error)?;
    }
    Ok(())
}

/// Masks in the response what the stages of the phase `BeforeSend` inserted into the request. Without such stages,
/// the response is unchanged.
async fn mask_replay_response(
    guard: &mut FlowGuard,
    request: &RequestHead,
    head: &mut ResponseHead,
    mut body: Body,
) -> Result<Body> {
    let plan = Arc::clone(&guard.plan);
    for stage in plan.stages(Phase::BeforeSend) {
        let verdict = stage.response_head(&mut guard.flow, request, head).resolve().await;
        verdict.into_result().map_err(exit_error)?;
        let masked = stage.response_body(&mut guard.flow, request, head, body).resolve().await;
        body = masked.map_err(exit_error)?;
    }
    Ok(body)
}
