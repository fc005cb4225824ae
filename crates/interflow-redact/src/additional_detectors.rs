//! Detectors besides the built-in ones: external services, and a model. They are asked about all texts before these are
//! redacted.

use std::sync::Arc;

use crate::{EntityModel, ExternalDetectors, ExternalFindings, ModelFindings, RedactionSession, Result};

/// The detectors that are configured besides the built-in ones.
#[derive(Clone, Default)]
pub struct AdditionalDetectors {
    pub services: Option<Arc<ExternalDetectors>>,
    pub model: Option<Arc<EntityModel>>,
}

/// What they found in texts.
#[derive(Clone, Default)]
pub struct AdditionalFindings {
    services: ExternalFindings,
    model: ModelFindings,
}

impl AdditionalDetectors {
    /// Whether there are none, so that texts need not be collected for them.
    pub const fn is_empty(&self) -> bool {
        self.services.is_none() && self.model.is_none()
    }

    /// Asks all of them about all texts.
    ///
    /// # Errors
    /// One failed and is configured to fail closed: the texts must not be forwarded.
    pub async fn find_all<T: AsRef<str>>(&self, texts: &[T]) -> Result<AdditionalFindings> {
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
        let (services, model) = tokio::try_join!(services, model)?;
        Ok(AdditionalFindings { services, model })
    }
}

impl AdditionalFindings {
    /// Sets the findings for the following texts of a session, in place of earlier ones.
    pub fn apply_to(&self, session: &mut RedactionSession) {
        session.external = self.services.clone();
        session.model = self.model.clone();
    }
}
