//! Tunnels whose bytes are relayed without inspection: connecting to the origin, waiting for the first bytes of
//! either side, and ending the flow.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use interflow_net::io::IoStream;
use interflow_net::relay::{self, TunnelCounters, TunnelOptions};
use interflow_net::tls::{self, Alpn};
use interflow_types::{ByteCounts, Error, ErrorSource, Result, Scheme};
use tokio::io::{AsyncRead as _, ReadBuf};

use crate::downstream::connection::TunnelTarget;
use crate::observe::flow_guard::FlowGuard;
use crate::observe::login_watch::LoginWatch;
use crate::state::ActiveConfig;
use crate::upstream::route;

pub(crate) async fn dial(guard: &mut FlowGuard, config: &ActiveConfig) -> Result<IoStream> {
    let planned = guard.plan.route.clone();
    let route = route::select_tunnel_route(guard, config, planned).await?;
    config.egress.connect(&route, &mut guard.upstream_report(&mut |_| ())).await
}

/// Connects and opens TLS to the origin, for a protocol other than HTTP inside the client's TLS. No ALPN is offered,
/// since the protocol is unknown.
pub(crate) async fn dial_tls(guard: &mut FlowGuard, config: &ActiveConfig, inside: &TunnelTarget) -> Result<IoStream> {
    let route = config.settings.route(Scheme::Https, &inside.authority, inside.dial.clone());
    let route = route::select_tunnel_route(guard, config, route).await?;
    let io = config.egress.connect(&route, &mut guard.upstream_report(&mut |_| ())).await?;
    let limit = config.settings.config.timeouts.handshake.0;
    let (io, agreed) = tls::connect_tls(io, &inside.authority.host, &route.tls, Alpn::None, limit).await?;
    if let Some(upstream) = &mut guard.flow.upstream {
        upstream.tls = Some(Arc::new(agreed));
    }
    Ok(io)
}

/// Relays bytes both ways until both sides have closed. The recording begins here, and has no body.
pub(crate) async fn passthrough(mut guard: FlowGuard, config: &ActiveConfig, client: IoStream, upstream: IoStream) {
    guard.begin_capture(&config.settings, None).await;
    if let Some(recording) = guard.recording() {
        guard.store_open();
        recording.wait_until_stored().await;
    }
    guard.counters.tunnel_passed_through(guard.flow.passthrough);
    let options = TunnelOptions { idle: config.settings.config.timeouts.tunnel_idle.0, ..TunnelOptions::default() };
    let counters = TunnelCounters::default();
    let login = guard.login.clone();
    let relayed = tokio::select! {
        // A random order would take its number from each poll; the relay yields.
        biased;
        relayed = relay::tunnel(client, upstream, &options, &counters) => {
            relayed.map_err(|e| e.with_error_source(ErrorSource::Upstream))
        }
        error = LoginWatch::ended_if(login.as_ref()) => Err(error),
    };
    match relayed {
        Ok(bytes) => guard.tunnelled(bytes),
        // The counters hold what was relayed before the error.
        Err(e) => guard.tunnel_failed(&e, counters.get()),
    }
}

/// Passes a tunnel through over a connection that was opened, or could not be, or is opened now.
pub(crate) async fn pass_on(
    mut guard: FlowGuard,
    config: &ActiveConfig,
    client: IoStream,
    upstream: Option<Result<IoStream>>,
) {
    let upstream = if let Some(upstream) = upstream { upstream } else { Box::pin(dial(&mut guard, config)).await };
    match upstream {
        Ok(upstream) => passthrough(guard, config, client, upstream).await,
        Err(e) => end_tunnel(guard, config, Err(&e)).await,
    }
}

/// Ends a tunnel that carried nothing, because it failed or neither side sent anything. Its recording begins here.
pub(crate) async fn end_tunnel(mut guard: FlowGuard, config: &ActiveConfig, outcome: Result<ByteCounts, &Error>) {
    guard.begin_capture(&config.settings, None).await;
    match outcome {
        Ok(bytes) => guard.tunnelled(bytes),
        Err(error) => guard.fail(error),
    }
}

/// Which side sent first, with both streams. The bytes read are put back in front of their stream.
pub(crate) enum FirstSpeaker {
    Client(IoStream, IoStream),
    Server(IoStream, IoStream),
    Nobody,
}

/// Waits for the first bytes of either side, for at most `limit`.
pub(crate) async fn first_speaker(mut near: IoStream, mut far: IoStream, limit: Duration) -> FirstSpeaker {
    tokio::select! {
        said = first_bytes(&mut near) => FirstSpeaker::Client(near.prefixed(said), far),
        heard = first_bytes(&mut far) => FirstSpeaker::Server(near, far.prefixed(heard)),
        () = tokio::time::sleep(limit) => FirstSpeaker::Nobody,
    }
}

/// What arrives first; holds no memory while it waits. Errors and the end of the stream are ignored here: the next reader
/// meets them again.
///
/// # Cancellation
/// Loses no bytes.
async fn first_bytes(io: &mut IoStream) -> Bytes {
    poll_fn(|cx| {
        let mut space = [0; 4096];
        let mut buf = ReadBuf::new(&mut space);
        let _ = ready!(Pin::new(&mut *io).poll_read(cx, &mut buf));
        Poll::Ready(Bytes::copy_from_slice(buf.filled()))
    })
    .await
}
