//! Phase `Dial`: which way a request or a tunnel takes to its origin.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

use interflow_flow::{Error, Kind, Phase, RequestHead, Result, Scheme, Transport, Verdict, Version, Way};
use interflow_net::egress::proxy::UpstreamProxy;
use interflow_net::egress::{Protocol, Route};
use interflow_net::tls::TlsProfile;
use interflow_wire::fingerprint::Likeness;

use crate::exchange::End;
use crate::likeness::{self, Seen};
use crate::loops::ReceivedVia;
use crate::plan::Plan;
use crate::settings::{Settings, TlsWish};
use crate::tracker::Tracker;
use crate::worker::Live;

/// The plan's route, or one made for this flow alone.
pub(crate) enum Chosen {
    Planned(Arc<Plan>),
    Own(Box<Route>),
}

impl Deref for Chosen {
    type Target = Route;

    fn deref(&self) -> &Route {
        match self {
            Self::Planned(plan) => &plan.route,
            Self::Own(route) => route,
        }
    }
}

/// The route of a request, after the stages had their say.
///
/// # Errors
/// A stage answered or denied, or named a way that is none.
pub(crate) async fn choose(
    tracker: &mut Tracker,
    live: &Live,
    head: &RequestHead,
    partition: u64,
    seen: &Seen,
) -> Result<Chosen, End> {
    let plan = Arc::clone(&tracker.plan);
    // A stage may have sent the request elsewhere.
    let planned = head.url.authority == plan.route.authority && head.url.scheme == plan.route.scheme;
    let transport = tracker.flow.transport;
    let own = || match planned {
        true => plan.route.clone(),
        false => live.settings.route_of(transport, head.url.scheme, &head.url.authority, None),
    };
    let way = ask(tracker, Some(head)).await?;
    let tunnelled = !plan.route.via.is_empty() && tracker.flow.note::<ReceivedVia>().is_some();
    let http2 = knows_http2(transport, head) && !live.settings.speaks_http1_alone(&head.url.authority.host);
    if planned && partition == 0 && way.is_none() && !plan.mirrors && !tunnelled && !http2 {
        return Ok(Chosen::Planned(plan));
    }
    let mut route = own();
    route.partition = if partition == 0 { plan.route.partition } else { partition };
    if http2 {
        route.protocol = Protocol::Http2;
    }
    let way = way.unwrap_or_default();
    let dressed = Dress { settings: &live.settings, seen, opening: tracker.flow.client_http2.as_deref() };
    if let Some(tls) = dressed.tls(&route, &way).map_err(End::Failed)? {
        route.tls = tls;
    }
    live.settings.pseudonym.hand_on(&mut route, &tracker.flow);
    go(&mut route, way, live).map_err(End::Failed)?;
    Ok(Chosen::Own(Box::new(route)))
}

/// Whether a client that speaks HTTP/2 in cleartext knows that its origin does (RFC 9113 3.3): it takes us for the origin, or
/// its call is one that only HTTP/2 carries.
fn knows_http2(transport: Transport, head: &RequestHead) -> bool {
    let to_origin =
        matches!(transport, Transport::Connect | Transport::Socks5 | Transport::Transparent | Transport::Reverse);
    let is_grpc = || head.headers.get_str("content-type").is_some_and(|t| t.starts_with("application/grpc"));
    head.version == Version::H2 && head.url.scheme == Scheme::Http && (to_origin || is_grpc())
}

/// Names the setting that is probably missing, where a call in HTTP/2 came to nothing at an origin without TLS.
pub(crate) fn explained(error: Error, route: &Route, head: &RequestHead) -> Error {
    let translated = head.version == Version::H2 && route.scheme == Scheme::Http && route.protocol != Protocol::Http2;
    if !translated || !matches!(error.kind(), Kind::BadResponse | Kind::UpstreamClosed) {
        return error;
    }
    let text = format!(
        "{}; it was asked in HTTP/1.1: if it speaks HTTP/2 without TLS, name {} in upstream.h2c_hosts",
        error.message(),
        route.authority.host
    );
    Error::new(error.kind(), text).blame_on(error.blame()).because(error)
}

/// What decides how TLS is done on a flow's own way.
struct Dress<'a> {
    settings: &'a Settings,
    seen: &'a Seen,
    opening: Option<&'a str>,
}

impl Dress<'_> {
    /// TLS as the stages want it, under the fingerprint that they or the configuration want; `None` when the route has
    /// it already.
    fn tls(&self, route: &Route, way: &Way) -> Result<Option<Arc<TlsProfile>>> {
        let host = &route.authority.host;
        let wish = way.fingerprint.as_deref().map(likeness::wish).transpose();
        let wish = wish.map_err(|e| Error::new(Kind::StageFailed, "a stage named a fingerprint").because(e))?;
        let mirrors = wish.is_none() && self.settings.likenesses.mirrors(host);
        let how = TlsWish::of(way);
        if how == TlsWish::default() && wish.is_none() && !mirrors {
            return Ok(None);
        }
        let failed =
            |e| Error::new(Kind::StageFailed, "a stage named a client certificate that cannot be used").because(e);
        let base = self.settings.tls_as(host, how).map_err(|e: String| failed(e))?;
        match wish {
            None if mirrors => self.seen.mirrored(base, self.opening).map(Some),
            None => Ok(Some(self.settings.likenesses.dressed(host, base))),
            Some(None) => Ok(Some(base)),
            Some(Some(Likeness::Mirror)) => self.seen.mirrored(base, self.opening).map(Some),
            Some(Some(like)) => self.settings.likenesses.disguise(&base, &like).map(Some),
        }
    }
}

/// The same for a tunnel to `route`, which nobody can answer.
///
/// # Errors
/// A stage denied, or named a way that is none.
pub(crate) async fn choose_for_tunnel(tracker: &mut Tracker, live: &Live, mut route: Route) -> Result<Route> {
    live.settings.pseudonym.hand_on(&mut route, &tracker.flow);
    match ask(tracker, None).await {
        Ok(None) => Ok(route),
        Ok(Some(way)) => go(&mut route, way, live).map(|()| route),
        Err(End::Failed(e)) => Err(e),
        Err(End::Answered(_)) => Err(Error::new(Kind::StageFailed, "a stage answered for a tunnel at Dial")),
    }
}

/// Asks the stages; `None` when they leave everything as it is.
async fn ask(tracker: &mut Tracker, head: Option<&RequestHead>) -> Result<Option<Way>, End> {
    if !tracker.plan.wants(Phase::Dial) {
        return Ok(None);
    }
    let plan = Arc::clone(&tracker.plan);
    let mut way = Way::default();
    for stage in plan.stages(Phase::Dial) {
        let verdict: Verdict = stage.dial(&mut tracker.flow, head, &mut way).get().await;
        if let Some(end) = End::of(verdict) {
            return Err(end);
        }
    }
    Ok((way != Way::default()).then_some(way))
}

/// Mixes a number in, so that what was kept apart before stays so.
fn keep_apart(route: &mut Route, number: u64) {
    route.partition = (route.partition ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
}

fn go(route: &mut Route, way: Way, live: &Live) -> Result<()> {
    if let Some(version) = way.version {
        route.protocol = if version == Version::H2 { Protocol::Http2 } else { Protocol::Http1 };
    }
    if let Some(partition) = way.partition {
        keep_apart(route, partition);
    }
    if let Some(server) = way.dns_over_https {
        let mut hasher = DefaultHasher::new();
        server.hash(&mut hasher);
        keep_apart(route, hasher.finish());
        let names = live.settings.resolver_by(&server);
        let failed = |e: String| Error::new(Kind::StageFailed, "a stage named a DNS server that is none").because(e);
        route.names = Some(names.map_err(failed)?);
    }
    if let Some(dial) = way.dial {
        route.dial = Some(dial);
    }
    if let Some(via) = way.via {
        let parse = |url: &String| url.parse::<UpstreamProxy>();
        let via: Result<Vec<_>, _> = via.iter().map(parse).collect();
        route.via = via
            .map_err(|e| Error::new(Kind::StageFailed, "a stage named an upstream proxy that is none").because(e))?
            .into();
    }
    Ok(())
}
