//! Detectors besides the built-in ones: external services, and a model. They are asked about all texts before these are
//! redacted, of LLM requests and of MCP messages in the same way.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::scan_capacity::off_worker;
use crate::{EntityModel, ExternalDetectors, ExternalFindings, ModelFindings, RedactionSession, Result};

/// Placeholders and originals that a request and its response share. Locked only while texts are processed, never across an
/// await.
pub type SharedSession = Arc<Mutex<RedactionSession>>;

/// The detectors that are configured besides the built-in ones.
#[derive(Clone, Default)]
pub struct AdditionalDetectors {
    pub services: Option<Arc<ExternalDetectors>>,
    pub model: Option<Arc<EntityModel>>,
}

impl AdditionalDetectors {
    /// Redacts a body of `size` bytes off the worker, once all of them were asked about its texts, by a dry run: they must see
    /// exactly the texts that their findings apply to. Errors in the body are those of the real run. `None` if the work was
    /// cut short.
    ///
    /// # Cancellation
    /// As of [`off_worker`].
    ///
    /// # Errors
    /// One failed and is configured to fail closed: the texts must not be forwarded.
    pub async fn redact<T: Send + 'static>(
        &self,
        size: usize,
        session: &SharedSession,
        redact: impl Fn(&mut RedactionSession) -> T + Send + 'static,
    ) -> Result<Option<T>> {
        let mut findings = Default::default();
        if self.services.is_some() || self.model.is_some() {
            let mut texts = RedactionSession::collecting();
            redact(&mut texts);
            findings = self.find_all(&texts.collected_texts()).await?;
        }
        let session = Arc::clone(session);
        let work = move || {
            // Other requests may wait for the session: these findings are for this one only.
            let mut session = session.lock();
            (session.external, session.model) = findings;
            redact(&mut session)
        };
        Ok(off_worker(size, work).await)
    }

    async fn find_all(&self, texts: &[String]) -> Result<(ExternalFindings, ModelFindings)> {
        let services = async {
            match &self.services {
                Some(services) => services.find_all(texts).await,
                None => Ok(ExternalFindings::default()),
            }
        };
        let model = async {
            match &self.model {
                Some(model) => model.find_all(texts).await,
                None => Ok(ModelFindings::default()),
            }
        };
        tokio::try_join!(services, model)
    }
}
