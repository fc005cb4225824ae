//! Phase `UpstreamConnect`: selects the route of a request or a tunnel to its origin.

use std::ops::Deref;
use std::sync::Arc;

use interflow_codec::fingerprint::FingerprintTarget;
use interflow_codec::h1::Violation;
use interflow_net::egress::proxy::UpstreamProxy;
use interflow_net::egress::{RouteResolver, UpstreamProtocol, UpstreamRoute};
use interflow_net::tls::TlsProfile;
use interflow_types::{
    Authority, EarlyExit, EntryKind, Error, ErrorKind, Flow, HttpVersion, Phase, RequestHead, Result, Scheme,
    UpstreamOverrides,
};

use crate::compiled::{CompiledConfig, TlsOverride};
use crate::http::loop_detection::ReceivedVia;
use crate::observe::flow_guard::FlowGuard;
use crate::state::ActiveConfig;
use crate::upstream::fingerprint::{self, ClientFingerprint};
use crate::upstream::plan::RequestPlan;

/// The plan's route, or one built for this flow because something overrides it.
pub(crate) enum SelectedRoute {
    Planned(Arc<RequestPlan>),
    Own(Box<UpstreamRoute>),
}

impl Deref for SelectedRoute {
    type Target = UpstreamRoute;

    fn deref(&self) -> &UpstreamRoute {
        match self {
            Self::Planned(plan) => &plan.route,
            Self::Own(route) => route,
        }
    }
}

/// The route of a request, after the stages of the phase ran.
///
/// # Errors
/// A stage answered or denied, or its overrides are invalid.
pub(crate) async fn select_route(
    guard: &mut FlowGuard,
    config: &ActiveConfig,
    head: &RequestHead,
    exclusive: Option<u64>,
    seen: &ClientFingerprint,
) -> Result<SelectedRoute, EarlyExit> {
    let plan = Arc::clone(&guard.plan);
    // A stage may have changed the destination.
    // Then the plan's route leads to the wrong origin, and one is made for the new destination.
    let planned = head.url.authority == plan.route.authority && head.url.scheme == plan.route.scheme;
    let transport = guard.flow.transport;
    let own = || match planned {
        // Without an address to connect to: `dial` belongs to the client's destination, not to the stage's.
        true => plan.route.clone(),
        false => config.settings.route_of(transport, head.url.scheme, &head.url.authority, None),
    };
    let overrides = collect_overrides(&mut guard.flow, &plan, Some(head)).await?;
    let tunnelled = !plan.route.via.is_empty() && guard.flow.extension::<ReceivedVia>().is_some();
    let http2 = knows_http2(transport, head, planned) && !config.settings.is_http1_only(&head.url.authority);
    // The common case shares the plan's route instead of copying it.
    if planned && exclusive.is_none() && overrides.is_none() && !plan.mirrors && !tunnelled && !http2 {
        return Ok(SelectedRoute::Planned(plan));
    }
    let mut route = own();
    // The user's isolation applies to any route; the connection's own, only if its credentials are bound to it.
    route.isolation = plan.route.isolation.clone();
    route.isolation.client_connection = exclusive;
    if http2 {
        route.protocol = UpstreamProtocol::Http2;
    }
    complete_route(&mut route, overrides.unwrap_or_default(), &guard.flow, config, seen).await?;
    Ok(SelectedRoute::Own(Box::new(route)))
}

/// Adds the TLS profile, and what the stages decided.
async fn complete_route(
    route: &mut UpstreamRoute,
    overrides: UpstreamOverrides,
    flow: &Flow,
    config: &ActiveConfig,
    seen: &ClientFingerprint,
) -> Result<(), EarlyExit> {
    let selection = TlsSelection { settings: &config.settings, seen, opening: flow.client_http2.as_deref() };
    if let Some(tls) = selection.select_tls(route, &overrides).await.map_err(EarlyExit::Deny)? {
        route.tls = tls;
    }
    config.settings.pseudonym.add_tunnel_via(route, flow);
    // Last, because a stage's override takes precedence over everything decided so far.
    apply_overrides(route, overrides, config, flow.client.connection).map_err(EarlyExit::Deny)
}

/// The route of a request for the proxy at the end of its tunnel: to connect there must be allowed as for the tunnel itself.
///
/// # Errors
/// As of [`select_tunnel_route`], or the TLS profile cannot be made.
pub(crate) async fn select_nested_route(
    guard: &mut FlowGuard,
    config: &ActiveConfig,
    tunnel: &Arc<RequestPlan>,
    seen: &ClientFingerprint,
) -> Result<SelectedRoute, EarlyExit> {
    let mut route = tunnel.route.clone();
    let of_tunnel = TunnelOriginFlow::new(&mut guard.flow, &route);
    let overrides = collect_tunnel_overrides(of_tunnel.flow, tunnel).await.map_err(EarlyExit::Deny)?;
    drop(of_tunnel);
    complete_route(&mut route, overrides, &guard.flow, config, seen).await?;
    route.isolation.client_connection = Some(guard.flow.client.connection);
    route.absolute_form = true;
    // After the overrides: HTTP/2 has no absolute-form, and the scheme of the named URL would be lost.
    route.protocol = UpstreamProtocol::Http1;
    Ok(SelectedRoute::Own(Box::new(route)))
}

/// A flow with its tunnel's origin. It has its own again when this is dropped, be it because the client left.
struct TunnelOriginFlow<'a> {
    flow: &'a mut Flow,
    own: (Scheme, Authority),
}

impl<'a> TunnelOriginFlow<'a> {
    fn new(flow: &'a mut Flow, tunnel: &UpstreamRoute) -> Self {
        let own = (flow.scheme, std::mem::replace(&mut flow.authority, tunnel.authority.clone()));
        flow.scheme = tunnel.scheme;
        Self { flow, own }
    }
}

impl Drop for TunnelOriginFlow<'_> {
    fn drop(&mut self) {
        (self.flow.scheme, self.flow.authority) = self.own.clone();
    }
}

/// Whether a client that uses HTTP/2 in cleartext knows that its origin supports it (RFC 9113 3.3): it addresses the
/// origin directly, or sends gRPC, which needs HTTP/2. Of an origin that a stage put in its place, it knows nothing.
fn knows_http2(transport: EntryKind, head: &RequestHead, is_clients_origin: bool) -> bool {
    let to_origin = is_clients_origin
        && matches!(transport, EntryKind::Connect | EntryKind::Socks5 | EntryKind::Transparent | EntryKind::Reverse);
    let is_grpc = || head.headers.get_str("content-type").is_some_and(|t| t.starts_with("application/grpc"));
    head.version == HttpVersion::H2 && head.url.scheme == Scheme::Http && (to_origin || is_grpc())
}

/// Names the setting that is probably missing when a request in HTTP/2 failed at an origin without TLS.
pub(crate) fn explain_http2_error(error: Error, route: &UpstreamRoute, head: &RequestHead) -> Error {
    // Only then did Interflow translate the request to HTTP/1.1.
    let translated =
        head.version == HttpVersion::H2 && route.scheme == Scheme::Http && route.protocol != UpstreamProtocol::Http2;
    // Of an origin that answered in HTTP/1.1, the setting is not missing.
    let not_http1 = match error.kind() {
        ErrorKind::UpstreamClosed => error.message().ends_with("without a response"),
        ErrorKind::BadResponse => {
            [Violation::StatusLine, Violation::Version].iter().any(|rule| error.message().ends_with(&rule.to_string()))
        }
        _ => false,
    };
    if !translated || !not_http1 {
        return error;
    }
    let text = format!(
        "{error}; the request used HTTP/1.1: if the origin supports HTTP/2 without TLS, add {} to upstream.h2c_hosts",
        route.authority.host
    );
    Error::new(error.kind(), text).with_error_source(error.error_source())
}

struct TlsSelection<'a> {
    settings: &'a CompiledConfig,
    seen: &'a ClientFingerprint,
    opening: Option<&'a str>,
}

impl TlsSelection<'_> {
    /// The TLS profile with the overrides of the stages, and the fingerprint of stages or configuration; `None` if
    /// the route already has it.
    async fn select_tls(
        &self,
        route: &UpstreamRoute,
        overrides: &UpstreamOverrides,
    ) -> Result<Option<Arc<TlsProfile>>> {
        let to = &route.authority;
        let target = overrides.fingerprint.as_deref().map(fingerprint::parse).transpose();
        let target = target.map_err(|e| {
            Error::new(ErrorKind::StageFailed, "a stage selected an invalid fingerprint").with_source(e)
        })?;
        let mirrors = target.is_none() && self.settings.fingerprints.mirrors(to);
        let how = TlsOverride::from_overrides(overrides);
        // Neither overridden nor mirrored: the route already has the configured profile.
        if how == TlsOverride::default() && target.is_none() && !mirrors {
            return Ok(None);
        }
        let failed =
            |e| Error::new(ErrorKind::StageFailed, "a stage selected an unusable client certificate").with_source(e);
        let base = Box::pin(self.settings.tls_with(to, how)).await.map_err(|e: String| failed(e))?;
        match target {
            None if mirrors => self.seen.mirror_profile(base, self.opening).await.map(Some),
            // The profile with the stage's certificate still gets the configured fingerprint.
            None => Ok(Some(self.settings.fingerprints.profile_for_override(to, base).await)),
            Some(None) => Ok(Some(base)),
            Some(Some(FingerprintTarget::Mirror)) => self.seen.mirror_profile(base, self.opening).await.map(Some),
            Some(Some(like)) => self.settings.fingerprints.impersonate(&base, &like).await.map(Some),
        }
    }
}

/// As [`select_route`], for a tunnel, which a stage can deny but not answer.
///
/// # Errors
/// A stage denied, or its overrides are invalid.
pub(crate) async fn select_tunnel_route(
    guard: &mut FlowGuard,
    config: &ActiveConfig,
    mut route: UpstreamRoute,
) -> Result<UpstreamRoute> {
    config.settings.pseudonym.add_tunnel_via(&mut route, &guard.flow);
    let overrides = collect_tunnel_overrides(&mut guard.flow, &guard.plan).await?;
    apply_overrides(&mut route, overrides, config, guard.flow.client.connection).map(|()| route)
}

/// Runs the stages for a tunnel.
///
/// # Errors
/// A stage denied it.
pub(crate) async fn collect_tunnel_overrides(flow: &mut Flow, plan: &RequestPlan) -> Result<UpstreamOverrides> {
    collect_overrides(flow, plan, None).await.map(Option::unwrap_or_default).map_err(|end| match end {
        EarlyExit::Deny(e) => e,
        EarlyExit::Answer(_) => {
            Error::new(ErrorKind::StageFailed, "a stage answered a tunnel in phase UpstreamConnect")
        }
    })
}

/// Runs the stages; `None` if none overrides anything.
async fn collect_overrides(
    flow: &mut Flow,
    plan: &RequestPlan,
    head: Option<&RequestHead>,
) -> Result<Option<UpstreamOverrides>, EarlyExit> {
    if !plan.wants(Phase::UpstreamConnect) {
        return Ok(None);
    }
    let mut overrides = UpstreamOverrides::default();
    for stage in plan.stages(Phase::UpstreamConnect) {
        stage.upstream_connect(flow, head, &mut overrides).resolve().await.into_result()?;
    }
    Ok((overrides != UpstreamOverrides::default()).then_some(overrides))
}

fn apply_overrides(
    route: &mut UpstreamRoute,
    overrides: UpstreamOverrides,
    config: &ActiveConfig,
    client_connection: u64,
) -> Result<()> {
    if let Some(version) = overrides.version {
        route.protocol = if version == HttpVersion::H2 { UpstreamProtocol::Http2 } else { UpstreamProtocol::Http1 };
    }
    // The number of the connection as pool key: no other client can use the upstream connection.
    if overrides.own_connection {
        route.isolation.client_connection = Some(client_connection);
    }
    if let Some(server) = overrides.dns_over_https {
        let names = config.settings.resolver_for(&server);
        let failed =
            |e: String| Error::new(ErrorKind::StageFailed, "a stage selected an invalid DNS server").with_source(e);
        // The server is part of the route's identity: connections to addresses of another resolver are not reused.
        route.resolver = Some(RouteResolver { resolver: names.map_err(failed)?, server: server.into() });
    }
    if let Some(dial) = overrides.dial {
        route.connect_to = Some(dial);
    }
    if let Some(via) = overrides.via {
        let parse = |url: &String| url.parse::<UpstreamProxy>();
        let via: Result<Vec<_>, _> = via.iter().map(parse).collect();
        route.via = via
            .map_err(|e| {
                Error::new(ErrorKind::StageFailed, "a stage selected an invalid upstream proxy").with_source(e)
            })?
            .into();
    }
    Ok(())
}
