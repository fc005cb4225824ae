//! The LLM gateway: maps paths to upstreams, and selects keys and model names.

mod access_token;
mod ambient;
mod attempt;
pub mod aws_signature;
mod circuit_breaker;
mod credential_mask;
mod dispatch;
mod reasoning;
pub(crate) mod response_cache;
mod route_handler;
mod routes;
mod routing;
mod served;
mod shadow;
mod stream_usage;
mod token_count;
mod translated_stream;
mod translation;
mod upstream;
mod upstream_error;
mod upstream_request;
mod wire_format;

use std::sync::{Arc, OnceLock};
use std::time::Instant;

use arc_swap::ArcSwap;
use hashlink::LruCache;
use interflow_tasks::own_request;
use interflow_types::{
    Authority, ByteStr, EndpointId, EntryKind, Flow, GatewayMount, GatewayRequest, Headers, HttpClient, Method,
    MountTarget, Request, RequestHead, StatusCode, Url,
};

use parking_lot::Mutex;
use serde_json::Value;

use interflow_limits::UsageLimiter;
use interflow_llm::message::ApiFormat;
use interflow_llm::{LlmConfig, LlmRefusal, TelemetryRule};

pub(crate) use credential_mask::CredentialMask;
pub(crate) use dispatch::{Dispatcher, is_bedrock};
pub use response_cache::{CacheStats, PreparedCache, ResponseCache, SemanticStats, TextFeatures};
pub use routes::UpstreamTable;
pub(crate) use routes::is_known_upstream;
pub use routes::{check_provider_names, check_redact_routes, is_endpoint_segment};
pub(crate) use routing::response_in_path;
pub use routing::{DeploymentRole, DeploymentState, DeploymentView, LlmRouteView};
pub(crate) use served::{DeliveryState, ListedAttempt};
pub(crate) use stream_usage::{StreamUsageWanted, hides as hides_usage};
pub use upstream::{LlmUpstream, SecretReader};
pub(crate) use upstream_error::send_json;
pub(crate) use wire_format::{MAX_DECODINGS, is_canonical};

/// Conversations that are remembered because their thoughts do not fit; those not used for the longest time are forgotten
/// first.
const MAX_UNBOUND: usize = 10_000;

/// The gateway. One per process; its upstream table changes with the configuration, and requests in progress keep
/// theirs.
pub struct LlmGateway {
    table: ArcSwap<UpstreamTable>,
    deps: GatewayDeps,
    endpoints: OnceLock<NamedEndpoints>,
    cache: ResponseCache,
    pins: Arc<routing::ResponsePins>,
    /// Conversations whose thoughts do not fit their history any more. A request of one that is forgotten is refused
    /// once more, and repeated.
    unbound: Mutex<LruCache<u64, ()>>,
}

/// What the gateway needs besides its configuration.
pub struct GatewayDeps {
    /// Sends requests that may be retried.
    pub egress: Arc<dyn HttpClient>,
    /// Sends token requests, which must not be recorded.
    pub unrecorded: Arc<dyn HttpClient>,
    /// Sends requests to cloud metadata services, whose addresses no other client may reach.
    pub metadata: Arc<dyn HttpClient>,
    /// Prices for routes with the strategy `cost`, and the ledger for copies to shadow deployments.
    pub limits: Arc<UsageLimiter>,
    /// Whether JSON requests to any host are inspected, because prompts must be redacted. If not, only host and path
    /// select requests for inspection.
    pub inspects_everywhere: InspectionCheck,
}

/// The operator's API format override for a URL and method; the last argument is true for a WebSocket.
type NamedEndpoints = Box<dyn Fn(&Url, &Method, bool) -> Option<ApiFormat> + Send + Sync>;

/// Whether requests of this kind are inspected whatever their host.
pub type InspectionCheck = Box<dyn Fn(EntryKind) -> bool + Send + Sync>;

impl LlmGateway {
    pub fn new(table: UpstreamTable, deps: GatewayDeps) -> Arc<Self> {
        Arc::new(Self {
            table: ArcSwap::from_pointee(table),
            deps,
            endpoints: OnceLock::new(),
            cache: ResponseCache::default(),
            pins: Arc::default(),
            unbound: Mutex::new(LruCache::new(MAX_UNBOUND)),
        })
    }

    /// Sets the operator's API format overrides for endpoints that host and path do not identify. May be set once.
    pub fn name_endpoints(&self, named: impl Fn(&Url, &Method, bool) -> Option<ApiFormat> + Send + Sync + 'static) {
        let _ = self.endpoints.set(Box::new(named));
    }

    pub(crate) fn limits(&self) -> &UsageLimiter {
        &self.deps.limits
    }

    pub(crate) fn named_endpoint(&self, url: &Url, method: &Method, websocket: bool) -> Option<ApiFormat> {
        self.endpoints.get()?(url, method, websocket)
    }

    pub(crate) fn inspects_everywhere(&self, transport: EntryKind) -> bool {
        (self.deps.inspects_everywhere)(transport)
    }

    /// Compiles a configuration without activating it. `secret` resolves references (`env:`, `file:`).
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub fn compile(config: &LlmConfig, secret: &SecretReader<'_>) -> Result<UpstreamTable, String> {
        UpstreamTable::new(config, secret)
    }

    /// Activates another table. Circuit breakers and cached tokens belong to the table, so they start anew; what was
    /// counted of deployments goes on.
    pub fn activate(&self, mut table: UpstreamTable) {
        table.routes.continue_counters(&self.table().routes);
        self.table.store(Arc::new(table));
    }

    /// The response cache.
    pub fn cache(&self) -> &ResponseCache {
        &self.cache
    }

    /// Name and target of each upstream, for the gateway's index page.
    pub fn endpoints(&self) -> Vec<(String, String)> {
        self.table().upstreams().map(|u| (format!("/{}", u.name), u.target())).collect()
    }

    /// Name of each upstream, and whether its circuit breaker is open.
    pub fn breakers(&self) -> Vec<(String, bool)> {
        self.table().upstreams().map(|u| (u.name.clone(), u.breaker.is_open())).collect()
    }

    /// The state of the routes that the operator configured, providers with fallbacks included.
    pub fn routes(&self) -> Vec<LlmRouteView> {
        let now = Instant::now();
        self.table().routes.shown().map(|route| LlmRouteView::new(route, now)).collect()
    }

    /// Whether a request to the endpoint of this upstream may be sent with a key of the gateway: the upstream's own, or
    /// that of a deployment, since every endpoint leads to the routes.
    pub fn holds_key_of(&self, upstream: &str) -> bool {
        let table = self.table();
        table.get(upstream).is_some_and(|u| u.has_key()) || table.routes.hold_key()
    }

    pub(crate) fn table(&self) -> Arc<UpstreamTable> {
        self.table.load_full()
    }

    pub(crate) fn telemetry(&self) -> TelemetryRule {
        self.table.load().telemetry
    }

    pub(crate) fn max_body(&self) -> usize {
        self.table.load().max_body
    }

    pub(crate) fn egress(&self) -> &Arc<dyn HttpClient> {
        &self.deps.egress
    }

    fn token_egress(&self) -> ambient::TokenEgress {
        ambient::TokenEgress { web: Arc::clone(&self.deps.unrecorded), metadata: Arc::clone(&self.deps.metadata) }
    }

    /// The client whose requests are not recorded.
    pub(crate) fn unrecorded(&self) -> &dyn HttpClient {
        &*self.deps.unrecorded
    }

    /// A request of Interflow's own to an upstream, with the gateway's credentials.
    ///
    /// # Errors
    /// The upstream has no address or no credentials.
    pub(crate) async fn own_request(&self, upstream: &str, path: &str, body: &Value) -> Result<Request, String> {
        let table = self.table();
        let upstream = table.get(upstream).ok_or_else(|| format!("there is no upstream {upstream}"))?;
        let url = upstream.url(path, &Headers::new()).ok_or_else(|| upstream.disabled().message)?;
        let mut request = own_request::post(url, "application/json", body.to_string());
        let token = upstream.token(self.token_egress()).await.map_err(|refusal| refusal.message)?;
        upstream.authorize(&mut request.head, token.as_ref());
        Ok(request)
    }

    /// The upstream that keeps the response which a path names, if it is another than that of the endpoint, and the path
    /// there. It needs a key of its own: the client's is for the endpoint's.
    fn keeper_of_response(
        &self,
        table: &UpstreamTable,
        route: &routes::ResolvedRoute<'_>,
    ) -> Option<(Arc<LlmUpstream>, String)> {
        let pin = self.pins.get(&response_in_path(route.rest)?)?;
        let keeper = table.get(&pin.upstream).filter(|u| u.name != route.upstream.name && u.has_key())?;
        let path = keeper.path_from(&route.upstream, route.rest, None).into_owned();
        Some((Arc::clone(keeper), path))
    }

    /// The upstream of a flow of the gateway port, and the path at the upstream.  Falls back to the target URL.
    pub(crate) fn identify(&self, flow: &Flow, head: &RequestHead) -> Option<(Arc<LlmUpstream>, String)> {
        let (table, url) = (self.table(), &head.url);
        // A request handled by the route handler still has the local authority.
        if flow.transport == EntryKind::Gateway && flow.authority == Authority::from(flow.client.local) {
            // As the mount found it: the upstreams that the request may be sent to depend on it.
            let route = table.find_route(&url.path, head.headers.contains("anthropic-version"))?;
            return Some((route.upstream, route.rest.to_owned()));
        }
        // Upstreams may share a target: then only the endpoint determines keys and model names.
        let route = flow.extension::<EndpointId>().and_then(|d| d.0.as_deref()).and_then(|name| table.get(name));
        if let Some((upstream, rest)) = route.and_then(|u| Some((u, u.path_within(url)?))) {
            return Some((Arc::clone(upstream), rest));
        }
        table.by_target(url)
    }
}

/// The mount of the gateway's endpoints on the gateway port. Routes by path alone; keys and models are handled by
/// stages later.
pub struct LlmGatewayMount(pub Arc<LlmGateway>);

impl GatewayMount for LlmGatewayMount {
    fn name(&self) -> &'static str {
        "llm"
    }

    fn find(&self, request: &GatewayRequest<'_>) -> Option<MountTarget> {
        let table = self.0.table();
        let anthropic = request.headers.contains("anthropic-version");
        let route = table.find_route(request.path, anthropic)?;
        // An upstream may resolve such a path to another endpoint than the one that was detected here, and inspected
        // accordingly.
        // So may one that decodes the model's name first.
        let call = route.call(request.method);
        let provider = route.upstream.provider;
        let reject = |refusal| Some(MountTarget::Serve(Arc::new(dispatch::RejectHandler { provider, refusal })));
        let forward = |upstream: &LlmUpstream, url| {
            let endpoint = Some(ByteStr::from(upstream.name.as_str()));
            Some(MountTarget::Forward { url, keep_host: false, endpoint })
        };
        let path = route.rest.split('?').next().unwrap_or_default();
        let is_plain = is_canonical(path) && !path.contains('\\') && !path.contains("//");
        if !is_plain || call.model.is_some_and(|model| !wire_format::is_path_segment(&model)) {
            let message = "the path holds empty, . or .. segments; write it without";
            let kind = "invalid_request";
            return reject(LlmRefusal::new(StatusCode::BAD_REQUEST, kind, "path_not_canonical", message));
        }
        if let Some(list) = routing::ModelListHandler::new(&self.0, &route, request) {
            return Some(MountTarget::Serve(Arc::new(list)));
        }
        if let Some((keeper, path)) = self.0.keeper_of_response(&table, &route)
            && let Some(url) = keeper.url(&path, request.headers)
        {
            return forward(&keeper, url);
        }
        // A protocol upgrade is tried only once.
        let upgrade = request.headers.contains("upgrade") || *request.method == Method::CONNECT;
        let translated = route.upstream.translates(request.method, route.rest).is_some();
        let routed = || table.may_be_routed(&route, request.method);
        // The answer has the URL that the file is sent to, which has to lead here.
        let announces = request.headers.get_str("x-goog-upload-command").is_some_and(|c| c.contains("start"));
        let cached = || self.0.cache.may_serve(&route.upstream.name, call.operation);
        if (route.upstream.may_retry() || translated || announces || routed() || cached()) && !upgrade {
            return Some(MountTarget::Serve(Arc::new(route_handler::RouteHandler {
                gateway: Arc::clone(&self.0),
                upstream: route.upstream,
            })));
        }
        let url = route.upstream.url(route.rest, request.headers);
        url.map_or_else(|| reject(route.upstream.disabled()), |url| forward(&route.upstream, url))
    }
}
