//! The LLM component: gateway endpoints of the providers, and the stages that recognise and send LLM requests.

use std::sync::Arc;

use interflow_admin::metrics::table;
use interflow_codec::prometheus::MetricsPage;
use interflow_llm_gateway::ProviderDetector;
use interflow_llm_gateway::gateway::{
    DeploymentState, DeploymentView, Dispatcher, LlmGateway, LlmGatewayMount, LlmRouteView,
};
use interflow_proxy::LocalClient;
use interflow_types::{GatewayMount, Stage};

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct LlmComponent {
    pub gateway: Arc<LlmGateway>,
    /// Runs first, so that later stages know whether a request is for an LLM.
    pub recogniser: Arc<dyn Stage>,
    /// Runs last: sets keys, model names and signatures on the final request.
    pub sender: Arc<dyn Stage>,
    pub mount: Arc<dyn GatewayMount>,
}

impl LlmComponent {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong in `[llm]`, with its key.
    pub fn new(config: &InterflowConfig, local: &LocalClient) -> Result<Self, String> {
        let table = LlmGateway::compile(&config.llm, &interflow_files::resolve_secret_ref)?;
        let (unrecorded, metadata) = (Arc::new(local.unrecorded()), Arc::new(local.metadata()));
        let gateway = LlmGateway::new(table, Arc::new(local.clone()), unrecorded, metadata);
        Ok(Self {
            recogniser: Arc::new(ProviderDetector::new(Arc::clone(&gateway))),
            sender: Arc::new(Dispatcher(Arc::clone(&gateway))),
            mount: Arc::new(LlmGatewayMount(Arc::clone(&gateway))),
            gateway,
        })
    }
}

impl Component for LlmComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        let table = LlmGateway::compile(&config.llm, &interflow_files::resolve_secret_ref)?;
        let gateway = Arc::clone(&self.gateway);
        Ok(Box::new(move || gateway.activate(table)))
    }
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
    page.samples(&table::LLM_DEPLOYMENT_COOLDOWNS, all.iter().map(|(labels, d)| (labels, d.cooldowns)));
    page.samples(&table::LLM_DEPLOYMENT_IN_FLIGHT, all.iter().map(|(labels, d)| (labels, d.busy)));
    let latencies = all.iter().filter_map(|(labels, d)| Some((labels, d.latency_ms? / 1000.0)));
    page.samples(&table::LLM_DEPLOYMENT_LATENCY, latencies);
    let up = |d: &DeploymentView| u8::from(d.state == DeploymentState::Healthy);
    page.samples(&table::LLM_DEPLOYMENT_UP, all.iter().map(|(labels, d)| (labels, up(d))));
}
