//! The room of LLM providers: the gateway's doors to them, and the stages that recognise requests and send them off.

use std::sync::Arc;

use interflow_flow::{Mount, Stage};
use interflow_llm::Recogniser;
use interflow_llm::gateway::{Doors, Gateway, Sender};

use super::{Change, LateEgress, Room};
use crate::config::Config;

/// The gateway, and its places in the corridor.
pub struct LlmRoom {
    /// The gateway.
    pub gateway: Arc<Gateway>,
    /// Stands first: whoever comes after it knows what a request is for.
    pub recogniser: Arc<dyn Stage>,
    /// Stands last: keys, names of models and signatures are put on what really goes out.
    pub sender: Arc<dyn Stage>,
    /// The doors on the gateway port.
    pub doors: Arc<dyn Mount>,
}

impl LlmRoom {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong in `[llm]`, with its key.
    pub fn new(config: &Config, late: &Arc<LateEgress>) -> Result<Self, String> {
        let table = Gateway::compile(&config.llm, &interflow_limits::secret)?;
        let gateway = Gateway::new(table, Arc::clone(late) as _, late.unrecorded(), late.metadata());
        Ok(Self {
            recogniser: Arc::new(Recogniser::new(Arc::clone(&gateway))),
            sender: Arc::new(Sender(Arc::clone(&gateway))),
            doors: Arc::new(Doors(Arc::clone(&gateway))),
            gateway,
        })
    }
}

impl Room for LlmRoom {
    fn prepare(&self, config: &Config) -> Result<Change, String> {
        let table = Gateway::compile(&config.llm, &interflow_limits::secret)?;
        let gateway = Arc::clone(&self.gateway);
        Ok(Box::new(move || gateway.put(table)))
    }
}
