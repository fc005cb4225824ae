//! Opens tunnels: CONNECT, SOCKS5, transparent and reverse-proxy connections differ only in how the client names its
//! destination and how it is notified that the tunnel is open.

use std::sync::Arc;
use std::time::Duration;

use interflow_net::ingress::{IncomingRequest, ServiceReply};
use interflow_net::io::IoStream;
use interflow_types::{
    Authority, BoxFuture, ByteStr, EntryKind, Error, ErrorKind, FlowClock, Passthrough, Phase, RequestHead,
    RequestTarget, ResponseHead, Result, Scheme, StatusCode, Url,
};

use crate::downstream::access::Login;
use crate::downstream::builtin_pages;
use crate::downstream::connection::ClientConnection;
use crate::http::loop_detection::{ReceivedVia, received_via};
use crate::http::response::fail;
use crate::observe::flow_guard::FlowGuard;
use crate::observe::login_watch::LoginWatch;
use crate::state::ActiveConfig;
use crate::tunnel::intercept::{InterceptOverride, TunnelContext, inspect, inspect_passthrough};
use crate::tunnel::passthrough::{dial, end_tunnel};

/// How long what runs in a tunnel has to end by itself, and to tell the client, after the login of the tunnel ended.
const LOGIN_END_TIMEOUT: Duration = Duration::from_secs(2);

/// What a client asks for when it opens a tunnel, whatever protocol it used.
pub(crate) struct TunnelRequest {
    pub transport: EntryKind,
    pub authority: Authority,
    /// The login, or why the client could not be authenticated.
    pub login: Result<Login>,
    /// The `Via` of the CONNECT request, passed on to upstream proxies.
    pub received_via: Option<Arc<str>>,
}

/// A tunnel that was allowed. Nothing has been sent to the client yet.
pub(crate) struct OpenTunnel {
    context: TunnelContext,
    guard: FlowGuard,
    login: Option<LoginWatch>,
    interception: InterceptOverride,
    /// The connection to the origin, and why bytes are passed through, unless the SNI changes the decision.
    passthrough: Option<(IoStream, Passthrough)>,
}

/// A tunnel that was denied, or whose origin could not be reached. Its flow has not ended: the caller records it.
pub(crate) struct RefusedTunnel {
    pub guard: FlowGuard,
    pub error: Error,
}

impl RefusedTunnel {
    /// Ends and records the flow, for clients that are not told a reason.
    pub async fn end(self, config: &ActiveConfig) {
        end_tunnel(self.guard, config, Err(&self.error)).await;
    }
}

/// Applies users, access rules and stages, and connects a tunnel that is to be passed through.
pub(crate) async fn open_tunnel(
    conn: &ClientConnection,
    config: &Arc<ActiveConfig>,
    request: TunnelRequest,
) -> Result<OpenTunnel, RefusedTunnel> {
    let TunnelRequest { transport, authority, login, received_via } = request;
    let name = login.as_ref().ok().and_then(Login::user);
    // The scheme is a guess: what the tunnel carries is not known before its first bytes.
    let key = conn.plan_key(Scheme::Https, authority.clone(), None, transport, name.clone());
    let flow = conn.flow(FlowClock::start(), transport, Scheme::Https, authority, name);
    let planned = login.and_then(|login| Ok((conn.plan(config, &key, "CONNECT", conn.client.peer.ip())?, login)));
    let (plan, login) = match planned {
        Ok((plan, login)) => (plan, Ok(login)),
        // A denied tunnel needs a plan for its flow; no stage runs.
        Err(e) => (config.plans.get(&config.settings, key), Err(e)),
    };
    let mut guard = FlowGuard::new(flow, plan, Arc::clone(&conn.worker.counters));
    guard.tunnel = true;
    let opened = match login {
        Err(error) => Err(error),
        Ok(login) => {
            let undecided = Undecided(&mut guard, config);
            let decided = decide(config, undecided.0, received_via).await;
            std::mem::forget(undecided);
            decided.map(|decided| (decided, login))
        }
    };
    match opened {
        Ok(((interception, passthrough), login)) => {
            let watch = LoginWatch::new(&conn.worker, login.clone());
            let guard = guard.with_login(watch.clone());
            let context = TunnelContext::new(conn, Arc::clone(config), login);
            Ok(OpenTunnel { context, guard, login: watch, interception, passthrough })
        }
        Err(error) => Err(RefusedTunnel { guard, error }),
    }
}

/// Begins the recording of a tunnel that the client abandons while it is decided.
struct Undecided<'a>(&'a mut FlowGuard, &'a ActiveConfig);

impl Drop for Undecided<'_> {
    fn drop(&mut self) {
        self.0.begin_capture_at_once(&self.1.settings, None);
    }
}

/// Runs the stages of the phase `Authority`. The result is their decision about TLS, and the connection to the origin
/// if the tunnel is passed through.
async fn decide(
    config: &ActiveConfig,
    guard: &mut FlowGuard,
    received_via: Option<Arc<str>>,
) -> Result<(InterceptOverride, Option<(IoStream, Passthrough)>)> {
    let plan = Arc::clone(&guard.plan);
    let mut interception = InterceptOverride::None;
    for stage in plan.stages(Phase::Authority) {
        interception.apply_verdict(stage.authority(&mut guard.flow).resolve().await)?;
    }
    if received_via.is_some() {
        *guard.flow.extension_mut() = ReceivedVia(received_via);
    }
    let Authority { host, port } = &guard.flow.authority;
    // The name of the built-in pages resolves nowhere, so it can only be intercepted.
    let why = interception.passthrough(&config.settings, &[host], *port).filter(|_| !builtin_pages::is_local(host));
    // Only a tunnel that is passed through is connected before the client is answered, so that a CONNECT can report
    // the failure. Otherwise the requests inside report it.
    match why {
        Some(why) => Ok((interception, Some((dial(guard, config).await?, why)))),
        None => Ok((interception, None)),
    }
}

impl OpenTunnel {
    /// Serves the client, which knows that the tunnel is open.
    pub fn serve(self, io: IoStream) -> BoxFuture<'static, ()> {
        let Self { context, guard, login, interception, passthrough } = self;
        let serve = match passthrough {
            None => inspect(context, guard, io, interception),
            Some((upstream, why)) => inspect_passthrough(context, guard, (io, upstream), interception, why),
        };
        let Some(login) = login else { return serve };
        Box::pin(async move {
            tokio::select! {
                biased;
                () = serve => {}
                () = login.ended_for(LOGIN_END_TIMEOUT) => {}
            }
        })
    }
}

/// A CONNECT request (RFC 9110 9.3.6). The 200 is sent by the driver before the tunnel is served.
pub(crate) async fn http_connect(
    conn: &ClientConnection,
    config: Arc<ActiveConfig>,
    incoming: IncomingRequest,
) -> ServiceReply {
    let IncomingRequest { target, headers, method, version, protocol, .. } = incoming;
    let RequestTarget::Authority(authority) = target else {
        return ServiceReply::Abort(Error::new(ErrorKind::Internal, "a CONNECT request has no authority"));
    };
    let url = Url { scheme: Scheme::Https, authority: authority.clone(), path: ByteStr::from_static("/") };
    let head = RequestHead { method, url, version, headers, protocol };
    let login = conn.authenticate(&config, &head.headers).await;
    let login = login.and_then(|login| config.settings.pseudonym.check(&head.headers).map(|()| login));
    let received_via = received_via(&head.headers);
    let request = TunnelRequest { transport: EntryKind::Connect, authority, login, received_via };
    match open_tunnel(conn, &config, request).await {
        Ok(tunnel) => {
            let established =
                ResponseHead { reason: "Connection established".into(), ..ResponseHead::new(StatusCode::OK) };
            ServiceReply::Upgrade(established, Box::new(move |io| tunnel.serve(io)))
        }
        Err(RefusedTunnel { mut guard, error }) => {
            guard.begin_capture(&config.settings, Some(&head)).await;
            fail(guard, &config, &head, &error)
        }
    }
}
