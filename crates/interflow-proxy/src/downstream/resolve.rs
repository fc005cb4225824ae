//! Finds where a request goes, once: from the kind of its connection, its target and the configuration. Nothing is
//! sent or recorded here.

use std::sync::Arc;

use interflow_net::ingress::IncomingRequest;
use interflow_types::{
    Authority, ClientInfo, EndpointId, EntryKind, Error, ErrorKind, FlowId, GatewayRequest, Host, LocalHandler, Method,
    MountTarget, RequestId, RequestTarget, Response, Scheme, Timestamp, Url,
};

use crate::downstream::connection::{ClientConnection, ConnectionKind, TunnelTarget};
use crate::downstream::{builtin_pages, gateway, setup_page};
use crate::http::hop_by_hop;
use crate::state::ActiveConfig;
use crate::upstream::plan::PlanKey;

pub(crate) struct ResolvedRequest {
    pub url: Url,
    /// Selects the plan. Its scheme, authority, user and kind of entry are the flow's too.
    pub key: PlanKey,
    /// Answers in the origin's place, if a mount serves the request.
    pub handler: Option<Arc<dyn LocalHandler>>,
    /// The gateway endpoint that the client used; stages recognise a component's requests by it.
    pub endpoint: EndpointId,
    /// The client that a trusted reverse proxy names.
    pub forwarded: Option<Arc<ClientInfo>>,
    /// The `Via` of the CONNECT request that opened the tunnel.
    pub received_via: Option<Arc<str>>,
    /// The authority in `Host`, if it is not the tunnel's: domain fronting must be allowed for both.
    pub fronted: Option<Authority>,
    /// The tunnel, if the request is for a proxy at its end, which the client asks for another host.
    pub through: Option<Box<PlanKey>>,
}

impl ResolvedRequest {
    fn new(url: Url, key: PlanKey) -> Self {
        Self {
            url,
            key,
            handler: None,
            endpoint: EndpointId::default(),
            forwarded: None,
            received_via: None,
            fronted: None,
            through: None,
        }
    }

    /// Whether it is for the pages that Interflow serves to clients of the proxy.
    pub fn is_builtin_page(&self) -> bool {
        self.key.transport != EntryKind::Gateway && builtin_pages::is_local(&self.url.authority.host)
    }
}

pub(crate) enum Resolution {
    Request(ResolvedRequest),
    /// Interflow answers without a flow: nothing is recorded.
    Reply(Response),
    /// Refused before there is a flow: counted, not recorded.
    Refused(Error),
    /// It has no destination: recorded as malformed.
    Malformed(Error),
}

/// Finds where a request goes. Takes the target, and those fields of the head that only name it.
pub(crate) fn resolve(
    conn: &ClientConnection,
    config: &ActiveConfig,
    user: Option<Arc<str>>,
    incoming: &mut IncomingRequest,
) -> Resolution {
    // Moved out: path and authority become those of the URL without a copy.
    let target = std::mem::replace(&mut incoming.target, RequestTarget::Asterisk);
    match &conn.entry {
        ConnectionKind::Proxy => resolve_proxy(conn, user, target),
        ConnectionKind::Gateway => resolve_gateway(conn, config, user, target, incoming),
        ConnectionKind::Inside(inside) => resolve_inside(conn, inside, user, target, incoming),
    }
}

/// A request on the proxy port, normally in absolute-form.
fn resolve_proxy(conn: &ClientConnection, user: Option<Arc<str>>, target: RequestTarget) -> Resolution {
    // In origin-form: somebody opened the address of the proxy in a browser, for instance.
    let RequestTarget::Absolute(url) = target else {
        if let RequestTarget::Origin(path) = &target
            && let Some(page) = setup_page::serve(path, conn.client.local, &conn.worker.ca)
        {
            return Resolution::Reply(page);
        }
        return Resolution::Reply(builtin_pages::not_a_proxy_request(conn.client.local));
    };
    let key = conn.plan_key(url.scheme, url.authority.clone(), None, EntryKind::Absolute, user);
    Resolution::Request(ResolvedRequest::new(url, key))
}

/// A request on the gateway port: for a configured route, or for a component's endpoint.
fn resolve_gateway(
    conn: &ClientConnection,
    config: &ActiveConfig,
    user: Option<Arc<str>>,
    target: RequestTarget,
    incoming: &mut IncomingRequest,
) -> Resolution {
    let settings = &config.settings;
    // The port also accepts connections without TLS, and a connection may be older than the configuration.
    if settings.config.gateway.requires_certificate() && conn.client_name().is_none() {
        let text = "this gateway requires a client certificate: use https:// and present one";
        return Resolution::Refused(Error::new(ErrorKind::Denied, text));
    }
    let forwarded = conn.forwarded_client(config, &incoming.headers);
    let (path, named, unreadable) = match target {
        RequestTarget::Origin(path) => {
            let named = incoming.headers.get_str("host").and_then(|h| Authority::parse(h, Some(80)).ok());
            // A `Host` that cannot be parsed must not pass as a missing one, which HTTP/1.0 allows.
            let unreadable = named.is_none() && incoming.headers.contains("host");
            (path, named, unreadable)
        }
        RequestTarget::Absolute(url) => (url.path, Some(url.authority), false),
        RequestTarget::Asterisk | RequestTarget::Authority(_) => {
            let text = "the gateway accepts requests for a path; tunnels belong on the proxy port";
            return Resolution::Malformed(Error::new(ErrorKind::Unsupported, text));
        }
    };
    let request = GatewayRequest {
        method: &incoming.method,
        path: &path,
        host: named.as_ref().map(|a| &a.host),
        headers: &incoming.headers,
    };
    let target = gateway::find_target(&settings.routes, &settings.mounts, &request);
    let mount = target.as_ref().and_then(|(_, mount)| *mount);
    let authorized = mount.is_some_and(|mount| mount.authorizes_requests());
    let is_page = incoming.method == Method::GET && mount.is_some_and(|mount| mount.is_page(&request));
    // A mount that authorizes requests itself (signed links, for instance) may be used by any page.
    if !authorized
        && let Err(refusal) = settings.web_pages.check(named.as_ref(), unreadable, is_page, &incoming.headers)
    {
        let client = forwarded.as_ref().unwrap_or(&conn.client).peer;
        tracing::debug!(%client, ?refusal, "gateway: a web page's request was refused");
        return Resolution::Reply(refusal.response());
    }
    match target.map(|(mounted, _)| mounted) {
        Some(MountTarget::Forward { url, keep_host, endpoint }) => {
            if !keep_host {
                // Set again for the origin.
                incoming.headers.remove("host");
            }
            let key = conn.plan_key(url.scheme, url.authority.clone(), None, EntryKind::Gateway, user);
            Resolution::Request(ResolvedRequest {
                endpoint: EndpointId(endpoint),
                forwarded,
                ..ResolvedRequest::new(url, key)
            })
        }
        Some(MountTarget::Serve(handler)) => {
            // Its plan has Interflow's own address as the origin.
            let local = Authority::new(Host::Ip(conn.client.local.ip()), conn.client.local.port());
            let scheme = if conn.tls.is_some() { Scheme::Https } else { Scheme::Http };
            let url = Url { scheme, authority: named.unwrap_or_else(|| local.clone()), path };
            let key = conn.plan_key(scheme, local, None, EntryKind::Gateway, user);
            Resolution::Request(ResolvedRequest { handler: Some(handler), forwarded, ..ResolvedRequest::new(url, key) })
        }
        None => {
            let accept = incoming.headers.get_str("accept").unwrap_or_default();
            let mut response = settings.routes.not_found(&path, accept);
            // Even without a flow, an SDK's error message should have a request ID to report.
            RequestId::new(&incoming.headers, FlowId::new(Timestamp::now())).put(&mut response.head.headers);
            Resolution::Reply(response)
        }
    }
}

fn resolve_inside(
    conn: &ClientConnection,
    inside: &TunnelTarget,
    user: Option<Arc<str>>,
    target: RequestTarget,
    incoming: &mut IncomingRequest,
) -> Resolution {
    // The scheme inside TLS may be stated as `http`.
    let origin = |scheme: Scheme, a: &Authority| (a.host.clone(), (a.port != scheme.default_port()).then_some(a.port));
    // Absolute-form with another authority is what a proxy at the tunnel's end gets, and no origin may take it otherwise (RFC
    // 9112 3.2.2). A reverse-proxy listener has no such clients.
    let nested_url = match &target {
        RequestTarget::Absolute(url)
            if origin(url.scheme, &url.authority) != origin(inside.scheme, &inside.authority)
                && incoming.version.is_http1()
                && inside.transport != EntryKind::Reverse =>
        {
            Some(url.clone())
        }
        _ => None,
    };
    let retargeted = if nested_url.is_some() { None } else { retarget_by_host(conn, inside, incoming) };
    let inside = retargeted.as_ref().unwrap_or(inside);
    let tunnel_target = hop_by_hop::TunnelTargetRef { scheme: inside.scheme, authority: &inside.authority };
    let url = match hop_by_hop::resolve_tunnel_url(target, &tunnel_target, &mut incoming.headers) {
        Ok(url) => url,
        Err(e) => return Resolution::Malformed(e),
    };
    let key = conn.plan_key(inside.scheme, inside.authority.clone(), inside.dial.clone(), inside.transport, user);
    let received_via = inside.received_via.clone();
    Resolution::Request(match nested_url {
        None => {
            let fronted = fronted_host(inside, incoming);
            ResolvedRequest { received_via, fronted, ..ResolvedRequest::new(url, key) }
        }
        Some(url) => {
            let named_key = PlanKey { scheme: url.scheme, authority: url.authority.clone(), dial: None, ..key.clone() };
            let (fronted, through) = (Some(inside.authority.clone()), Some(Box::new(key)));
            ResolvedRequest { received_via, fronted, through, ..ResolvedRequest::new(url, named_key) }
        }
    })
}

/// A redirected client connects to an address and names the host only in each request: then the name is the
/// authority, and the address is where to connect. The same applies to clients of a reverse-proxy listener.
fn retarget_by_host(
    conn: &ClientConnection,
    inside: &TunnelTarget,
    incoming: &IncomingRequest,
) -> Option<TunnelTarget> {
    let named = || fronted_host(inside, incoming);
    match inside.transport {
        EntryKind::Transparent if inside.dial.is_none() => {
            let authority = named().filter(|a| matches!(a.host, Host::Name(_)))?;
            Some(TunnelTarget { authority, dial: Some(inside.authority.clone()), ..inside.clone() })
        }
        // Without TLS there is no SNI to name the origin.
        EntryKind::Reverse if inside.scheme == Scheme::Http => {
            let Authority { host, port } = named()?;
            let own = inside.authority.port;
            // Unless an origin port is configured, the tunnel's port is the listener's own: the port in `Host`
            // decides.
            let port = if own == conn.client.local.port() { port } else { own };
            Some(TunnelTarget { authority: Authority::new(host, port), ..inside.clone() })
        }
        _ => None,
    }
}

/// The authority in `Host`, if it differs from the tunnel's.
fn fronted_host(inside: &TunnelTarget, incoming: &IncomingRequest) -> Option<Authority> {
    let host = incoming.headers.get_str("host")?;
    let named = Authority::parse(host, Some(inside.scheme.default_port())).ok()?;
    // Only hosts are compared, because the connection goes to the port of the tunnel in any case.
    (named.host != inside.authority.host).then_some(named)
}
