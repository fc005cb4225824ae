//! The LLM component: the gateway to the providers, and its endpoints.

use std::sync::Arc;

use interflow_admin::metrics::table;
use interflow_codec::prometheus::MetricsPage;
use interflow_host::data_dir::DataDir;
use interflow_limits::{RedisServer, UsageLimiter};
use interflow_llm::CacheStoreKind;
use interflow_llm_gateway::gateway::{
    CacheStats, DeploymentState, DeploymentView, GatewayDeps, LlmGateway, LlmGatewayMount, LlmRouteView, PreparedCache,
};
use interflow_llm_gateway::redaction::RedactionService;
use interflow_proxy::LocalClient;
use interflow_types::GatewayMount;

use super::{ApplyFn, Component};
use crate::fleet;
use crate::instance::config::InterflowConfig;

pub struct LlmComponent {
    home: DataDir,
    pub gateway: Arc<LlmGateway>,
    pub mount: Arc<dyn GatewayMount>,
}

impl LlmComponent {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong in `[llm]`, with its key.
    pub fn new(
        config: &InterflowConfig,
        home: &DataDir,
        local: &LocalClient,
        limits: &Arc<UsageLimiter>,
        redaction: &Arc<RedactionService>,
    ) -> Result<Self, String> {
        let table = LlmGateway::compile(&config.llm, &interflow_files::resolve_secret_ref)?;
        let redaction = Arc::clone(redaction);
        let deps = GatewayDeps {
            egress: Arc::new(local.clone()),
            unrecorded: Arc::new(local.unrecorded()),
            metadata: Arc::new(local.metadata()),
            limits: Arc::clone(limits),
            inspects_everywhere: Box::new(move |transport| redaction.redacts(transport)),
        };
        let gateway = LlmGateway::new(table, deps);
        gateway.cache().activate(prepare_cache(&gateway, config, home)?);
        Ok(Self { home: home.clone(), mount: Arc::new(LlmGatewayMount(Arc::clone(&gateway))), gateway })
    }
}

impl Component for LlmComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        let table = LlmGateway::compile(&config.llm, &interflow_files::resolve_secret_ref)?;
        let cache = prepare_cache(&self.gateway, config, &self.home)?;
        let gateway = Arc::clone(&self.gateway);
        Ok(Box::new(move || {
            gateway.activate(table);
            gateway.cache().activate(cache);
        }))
    }
}

/// The response cache with its server and its secret.
fn prepare_cache(gateway: &LlmGateway, config: &InterflowConfig, home: &DataDir) -> Result<PreparedCache, String> {
    let cache = &config.llm.cache;
    if cache.store != CacheStoreKind::Redis {
        // What is in memory ends with the process, and so may its secret.
        return gateway.cache().prepare(cache, None, &interflow_types::random_bytes::<32>());
    }
    let shared = interflow_limits::redis_server(&config.quota.shared, home.path()).map_err(|e| e.to_string())?;
    let url = cache.redis.as_deref().map(interflow_files::resolve_secret_ref).transpose();
    let server = match (url.map_err(|e| format!("llm.cache.redis: {e}"))?, shared) {
        (Some(url), shared) => Some(RedisServer { url, ..shared.unwrap_or_default() }),
        (None, shared) => shared,
    };
    let server = server.map(|server| RedisServer { timeout: cache.timeout.0, ..server });
    let values =
        server.map(|server| fleet::REDIS.values(&server, "the Redis server of the response cache")).transpose();
    let values = values.map_err(|e| format!("llm.cache.redis cannot be used: {e}"))?;
    let secret = match &cache.redis_key {
        Some(key) => {
            interflow_files::resolve_secret_ref(key).map_err(|e| format!("llm.cache.redis_key: {e}"))?.into_bytes()
        }
        None => home.secret("cache.key")?,
    };
    if secret.len() < 16 {
        return Err("llm.cache.redis_key: shorter than 16 characters".into());
    }
    gateway.cache().prepare(cache, values, &secret)
}

/// Writes what is counted of the response cache.
pub fn write_cache_metrics(stats: &CacheStats, page: &mut MetricsPage) {
    let bypassed: u64 = stats.bypassed.values().sum();
    let results = [(["hit"], stats.hits), (["miss"], stats.misses), (["bypass"], bypassed)];
    page.samples(&table::LLM_CACHE_REQUESTS, results);
    page.samples(&table::LLM_CACHE_BYPASSED, stats.bypassed.iter().map(|(reason, n)| ([*reason], n)));
    page.value(&table::LLM_CACHE_STORED, stats.stored);
    page.value(&table::LLM_CACHE_EVICTED, stats.evicted);
    page.value(&table::LLM_CACHE_ERRORS, stats.errors);
    page.value(&table::LLM_CACHE_ENTRIES, stats.entries);
    page.value(&table::LLM_CACHE_BYTES, stats.bytes);
    let semantic = &stats.semantic;
    page.samples(&table::LLM_CACHE_SEMANTIC_HITS, semantic.hits.iter().map(|(bound, n)| ([*bound], n)));
    page.value(&table::LLM_CACHE_SEMANTIC_MISSES, semantic.misses);
    page.value(&table::LLM_CACHE_SEMANTIC_GUARDED, semantic.guarded);
    page.value(&table::LLM_CACHE_SEMANTIC_INELIGIBLE, semantic.ineligible);
    page.value(&table::LLM_CACHE_SEMANTIC_ERRORS, semantic.errors);
    page.value(&table::LLM_CACHE_SEMANTIC_ENTRIES, semantic.entries);
}

/// Writes what is counted of the deployments of each route.
pub fn write_deployment_metrics(routes: &[LlmRouteView], page: &mut MetricsPage) {
    let label = |route: &LlmRouteView| match route.configured {
        true => route.name.clone(),
        false => format!("provider/{}", route.name),
    };
    let labelled =
        |route: &LlmRouteView, d: &DeploymentView| [label(route), d.name.clone(), d.role.as_str().to_owned()];
    let all: Vec<_> = routes.iter().flat_map(|r| r.deployments.iter().map(move |d| (labelled(r, d), d))).collect();
    page.samples(&table::LLM_DEPLOYMENT_REQUESTS, all.iter().map(|(labels, d)| (labels, d.requests)));
    page.samples(&table::LLM_DEPLOYMENT_ERRORS, all.iter().map(|(labels, d)| (labels, d.errors)));
    page.samples(&table::LLM_DEPLOYMENT_TIMEOUTS, all.iter().map(|(labels, d)| (labels, d.timeouts)));
    page.samples(&table::LLM_DEPLOYMENT_COOLDOWNS, all.iter().map(|(labels, d)| (labels, d.cooldowns)));
    page.samples(&table::LLM_DEPLOYMENT_IN_FLIGHT, all.iter().map(|(labels, d)| (labels, d.busy)));
    let latencies = all.iter().filter_map(|(labels, d)| Some((labels, d.latency_ms? / 1000.0)));
    page.samples(&table::LLM_DEPLOYMENT_LATENCY, latencies);
    let up = |d: &DeploymentView| u8::from(d.state == DeploymentState::Healthy);
    page.samples(&table::LLM_DEPLOYMENT_UP, all.iter().map(|(labels, d)| (labels, up(d))));
}
