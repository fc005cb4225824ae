//! The LLM component: gateway endpoints of the providers, and the stages that recognise and send LLM requests.

use std::sync::Arc;

use interflow_llm_gateway::ProviderDetector;
use interflow_llm_gateway::gateway::{Dispatcher, LlmGateway, LlmGatewayMount};
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
