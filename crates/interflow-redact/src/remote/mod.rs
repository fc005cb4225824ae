//! External PII detectors over HTTP. Called concurrently before a request is edited; their findings are added to those
//! of the built-in detectors.
//!
//! Editing is synchronous, and a network call in the middle of it would block a worker. So the texts are collected in a
//! first pass, sent to the services, and edited in a second pass with the findings at hand.

mod breaker;
mod config;
mod offsets;
mod service;
mod window;

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use interflow_types::HttpClient;

use crate::detect::Finding;
use crate::scan::finding_cache::FindingCache;
use crate::{RedactError, Result};
use service::DetectorService;

pub use config::{BackendConfig, BackendFailure, BackendKind};

/// Maximum number of texts in flight, over all services, of one request.
const MAX_CONCURRENT_TEXTS: usize = 16;

/// Findings of the external detectors, by text.
#[derive(Clone, Debug, Default)]
pub struct ExternalFindings(Arc<HashMap<String, Vec<Finding>>>);

impl ExternalFindings {
    pub(crate) fn findings_in(&self, text: &str) -> &[Finding] {
        self.0.get(text).map_or(&[], Vec::as_slice)
    }

    /// Whether there are no findings in any text, also if none was sent.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(Vec::is_empty)
    }
}

/// The configured external detectors, with a cache of their findings by service and text.
pub struct ExternalDetectors {
    services: Vec<DetectorService>,
    memo: FindingCache,
    egress: Arc<dyn HttpClient>,
}

impl ExternalDetectors {
    /// `egress` must not be recorded: the texts are not redacted yet.
    ///
    /// # Errors
    /// The service, and what is wrong with its configuration.
    pub fn new(config: &[BackendConfig], egress: Arc<dyn HttpClient>) -> Result<Self> {
        let one = |(i, c): (usize, &BackendConfig)| {
            DetectorService::new(c).map_err(|e| RedactError::Policy(format!("redact.backend[{i}]: {e}")))
        };
        let services = config.iter().enumerate().map(one).collect::<Result<_, _>>()?;
        Ok(Self { services, memo: FindingCache::new(20_000)?, egress })
    }

    /// Whether none is configured, so that texts need not be collected.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// The findings in these texts. Each distinct text is sent once; results are cached.
    ///
    /// # Errors
    /// A service that is configured to fail closed did not reply as expected: the texts must not be forwarded.
    pub async fn find_all<T: AsRef<str>>(&self, texts: &[T]) -> Result<ExternalFindings> {
        let mut by_text: HashMap<String, Vec<Finding>> = HashMap::new();
        let mut open = Vec::new();
        // A text without letters and digits contains nothing personal.
        for text in
            texts.iter().map(AsRef::as_ref).filter(|t| t.bytes().any(|b| b.is_ascii_alphanumeric() || b >= 0x80))
        {
            if by_text.contains_key(text) {
                continue;
            }
            let mut cached = Vec::new();
            for (place, service) in self.services.iter().enumerate() {
                match self.memo.get(&[service.scope()], text) {
                    Some(findings) => cached.extend_from_slice(&findings),
                    None => open.push((place, text)),
                }
            }
            by_text.insert(text.to_owned(), cached);
        }
        let mut failures = vec![None; self.services.len()];
        let limit = self.services.iter().map(DetectorService::request_timeout).min_by_key(|limit| limit.0);
        let asking = self.ask_all(open, &mut by_text, &mut failures);
        let in_time = match limit {
            Some(limit) => tokio::time::timeout(limit.0, asking).await.map_err(|_| limit),
            None => Ok(asking.await),
        };
        match in_time {
            Ok(done) => done?,
            Err(limit) => {
                let why = format!("not all texts of a request were answered within {limit} (request_timeout)");
                failures.iter_mut().for_each(|failure| *failure = Some(why.clone()));
            }
        }
        // Once for all texts of the request.
        for (service, why) in self.services.iter().zip(failures) {
            if let Some(why) = why {
                service.failed(&why)?;
            }
        }
        Ok(ExternalFindings(Arc::new(by_text)))
    }

    /// Asks services about texts that are not cached. Fails at the first failure of a service without which a request must
    /// not go on; others are noted by their service.
    async fn ask_all(
        &self,
        open: Vec<(usize, &str)>,
        found: &mut HashMap<String, Vec<Finding>>,
        failures: &mut [Option<String>],
    ) -> Result<()> {
        let query = |(place, text): (usize, _)| async move {
            (place, text, self.services[place].find(&*self.egress, text).await)
        };
        let mut waiting = open.into_iter();
        let mut requests = FuturesUnordered::new();
        requests.extend(waiting.by_ref().take(MAX_CONCURRENT_TEXTS).map(query));
        while let Some((place, text, answer)) = requests.next().await {
            match answer {
                Ok(findings) => {
                    self.memo.insert_findings(&[self.services[place].scope()], text, findings.as_slice().into());
                    found.entry(text.to_owned()).or_default().extend(findings);
                }
                Err(why) if self.services[place].is_required() => return self.services[place].failed(&why),
                Err(why) => failures[place] = Some(why),
            }
            // One more for each that is done, so that the number in flight stays at the limit.
            requests.extend(waiting.next().map(query));
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
