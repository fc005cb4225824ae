//! The gateway's doors to providers: which upstream a path leads to, with which key, under which names for models.

mod access_token;
mod ambient;
pub mod aws_signature;
mod circuit_breaker;
mod dispatch;
mod routes;
mod upstream;

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use interflow_types::{
    Authority, ByteStr, EndpointId, EntryKind, Flow, GatewayMount, GatewayRequest, HttpClient, Method, MountTarget,
    StatusCode, Url,
};

use crate::LlmRefusal;
use crate::config::{LlmConfig, TelemetryRule};
use crate::message::ApiFormat;

pub use dispatch::Dispatcher;
pub use routes::UpstreamTable;
pub use upstream::{LlmUpstream, SecretReader};

/// The room. One per process; its table of upstreams changes with the config.
pub struct LlmGateway {
    table: ArcSwap<UpstreamTable>,
    egress: Arc<dyn HttpClient>,
    unseen: Arc<dyn HttpClient>,
    metadata: Arc<dyn HttpClient>,
    looks: OnceLock<InspectionCheck>,
    endpoints: OnceLock<NamedEndpoints>,
}

/// What the operator says is spoken at a host and a path, with a method, by a WebSocket or not.
type NamedEndpoints = Box<dyn Fn(&Url, &Method, bool) -> Option<ApiFormat> + Send + Sync>;

/// Whether requests of a transport are looked into wherever they go.
type InspectionCheck = Box<dyn Fn(EntryKind) -> bool + Send + Sync>;

impl LlmGateway {
    /// The gateway with its upstreams; `egress` carries requests that may have to be tried more than once, `unseen` those
    /// for tokens, which must not be recorded, and `metadata` those to the metadata services of clouds, which are at
    /// addresses that nobody else may reach.
    pub fn new(
        table: UpstreamTable,
        egress: Arc<dyn HttpClient>,
        unseen: Arc<dyn HttpClient>,
        metadata: Arc<dyn HttpClient>,
    ) -> Arc<Self> {
        Arc::new(Self {
            table: ArcSwap::from_pointee(table),
            egress,
            unseen,
            metadata,
            looks: OnceLock::new(),
            endpoints: OnceLock::new(),
        })
    }

    /// Has requests with JSON looked into wherever they go, where this says that prompts must not leave as they are. Without
    /// it, and where it says no, host and path alone make a request worth a look. Said once.
    pub fn set_inspection_check(&self, looks: impl Fn(EntryKind) -> bool + Send + Sync + 'static) {
        let _ = self.looks.set(Box::new(looks));
    }

    /// Has requests recognised by what the operator says of endpoints, where host and path say nothing. Said once.
    pub fn name_endpoints(&self, named: impl Fn(&Url, &Method, bool) -> Option<ApiFormat> + Send + Sync + 'static) {
        let _ = self.endpoints.set(Box::new(named));
    }

    pub(crate) fn named_endpoint(&self, url: &Url, method: &Method, websocket: bool) -> Option<ApiFormat> {
        self.endpoints.get()?(url, method, websocket)
    }

    pub(crate) fn inspects_everywhere(&self, transport: EntryKind) -> bool {
        self.looks.get().is_some_and(|looks| looks(transport))
    }

    /// Compiles a config. `secret` reads values that stand elsewhere (`env:`, `file:`).
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub fn compile(config: &LlmConfig, secret: &SecretReader<'_>) -> Result<UpstreamTable, String> {
        UpstreamTable::new(config, secret)
    }

    /// Puts another table in force. Breakers begin anew.
    pub fn activate(&self, table: UpstreamTable) {
        self.table.store(Arc::new(table));
    }

    /// The doors: name and target of each upstream, as the gateway's page lists them.
    pub fn endpoints(&self) -> Vec<(String, String)> {
        self.table().upstreams().map(|u| (format!("/{}", u.name), u.target())).collect()
    }

    /// Whether the upstream of this name is given the gateway's own key.
    pub fn holds_key_of(&self, upstream: &str) -> bool {
        self.table().get(upstream).is_some_and(|u| u.has_key())
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
        &self.egress
    }

    fn token_egress(&self) -> ambient::TokenEgress<'_> {
        ambient::TokenEgress { web: &*self.unseen, metadata: &*self.metadata }
    }

    /// The upstream of a flow of the gateway port, and the path as the upstream sees it.
    pub(crate) fn identify(&self, flow: &Flow, url: &Url) -> Option<(Arc<LlmUpstream>, String)> {
        let table = self.table();
        // A request that the gateway itself sends on, perhaps more than once, is still at our own address.
        if flow.transport == EntryKind::Gateway && flow.authority == Authority::from(flow.client.local) {
            let door = table.find_route(&url.path, false)?;
            return Some((door.upstream, door.rest.to_owned()));
        }
        // Upstreams may share a target: then the door alone tells whose key and names of models are meant.
        let door = flow.extension::<EndpointId>().and_then(|d| d.0.as_deref()).and_then(|name| table.get(name));
        if let Some((upstream, rest)) = door.and_then(|u| Some((u, u.path_within(url)?))) {
            return Some((Arc::clone(upstream), rest));
        }
        table.by_target(url)
    }
}

/// The mount: the door of the gateway on its port.
pub struct LlmGatewayMount(pub Arc<LlmGateway>);

impl GatewayMount for LlmGatewayMount {
    fn name(&self) -> &'static str {
        "llm"
    }

    fn find(&self, knock: &GatewayRequest<'_>) -> Option<MountTarget> {
        let table = self.0.table();
        let anthropic = knock.headers.contains("anthropic-version");
        let door = table.find_route(knock.path, anthropic)?;
        if !is_canonical(door.rest) {
            let message = "the path holds empty, . or .. segments; write it without";
            return Some(MountTarget::Serve(Arc::new(dispatch::RejectHandler::new(
                door.upstream.provider,
                LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request", "path_not_canonical", message),
            ))));
        }
        // What changes its protocol is tried once only.
        let upgrade = knock.headers.contains("upgrade") || *knock.method == Method::CONNECT;
        if door.upstream.may_retry() && !upgrade {
            return Some(MountTarget::Serve(Arc::new(dispatch::FallbackHandler {
                gateway: Arc::clone(&self.0),
                upstream: door.upstream,
            })));
        }
        match door.upstream.url(door.rest, knock.headers) {
            Some(url) => {
                let name = ByteStr::from(door.upstream.name.as_str());
                Some(MountTarget::Forward { url, keep_host: false, endpoint: Some(name) })
            }
            None => {
                let refusal = door.upstream.disabled();
                Some(MountTarget::Serve(Arc::new(dispatch::RejectHandler::new(door.upstream.provider, refusal))))
            }
        }
    }
}

/// Whether no two readers of the path can see different paths in it.
fn is_canonical(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let lower = path.to_ascii_lowercase().replace("%2e", ".");
    let mut segments = lower.split('/').skip(1).peekable();
    let mut good = true;
    while let Some(segment) = segments.next() {
        // Only the last one may be empty.
        good &= match segment {
            "." | ".." => false,
            "" => segments.peek().is_none(),
            _ => true,
        };
    }
    good && !path.contains('\\')
}

/// A model's other name, when it has one.
pub(crate) fn resolve_alias<'t>(table: &'t UpstreamTable, upstream: &'t LlmUpstream, model: &str) -> Option<&'t str> {
    table.resolve_model(upstream, model)
}
