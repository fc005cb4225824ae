//! External PII detectors over HTTP: Philter, Presidio's analyzer, GLiNER or Ph-Eye. Called concurrently before a
//! request is edited; their findings are added to those of the built-in detectors.
//!
//! Editing is synchronous, and a network call in the middle of it would block a worker. So the texts are collected in a
//! first pass, sent to the services, and edited in a second pass with the findings at hand.

mod config;
mod offsets;
mod service;
mod window;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use interflow_types::HttpClient;

use crate::RedactError;
use crate::detect::Finding;
use crate::finding_cache::FindingCache;
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
    pub fn new(config: &[BackendConfig], egress: Arc<dyn HttpClient>) -> Result<Self, RedactError> {
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
    pub async fn find_all<T: AsRef<str>>(&self, texts: &[T]) -> Result<ExternalFindings, RedactError> {
        let mut found: HashMap<String, Vec<Finding>> = HashMap::new();
        let mut open = Vec::new();
        // A text without letters and digits contains nothing personal.
        for text in
            texts.iter().map(AsRef::as_ref).filter(|t| t.bytes().any(|b| b.is_ascii_alphanumeric() || b >= 0x80))
        {
            if found.contains_key(text) {
                continue;
            }
            let mut known = Vec::new();
            for (place, service) in self.services.iter().enumerate() {
                match self.memo.get(&[service.scope()], text) {
                    Some(findings) => known.extend_from_slice(&findings),
                    None => open.push((place, text)),
                }
            }
            found.insert(text.to_owned(), known);
        }
        let mut waiting = open.into_iter();
        let mut asked = FuturesUnordered::new();
        asked.extend(waiting.by_ref().take(MAX_CONCURRENT_TEXTS).map(|(place, text)| self.query_service(place, text)));
        while let Some((place, text, answer)) = asked.next().await {
            let findings = answer?;
            if let Some(findings) = findings {
                self.memo.insert_findings(&[self.services[place].scope()], text, findings.as_slice().into());
                found.entry(text.to_owned()).or_default().extend(findings);
            }
            // One more for each that is done, so that the number in flight stays at the limit.
            asked.extend(waiting.next().map(|(place, text)| self.query_service(place, text)));
        }
        Ok(ExternalFindings(Arc::new(found)))
    }

    /// Asks one service about one text. An error means that the request must be rejected; `None` that it goes on
    /// without.
    async fn query_service<'t>(
        &self,
        place: usize,
        text: &'t str,
    ) -> (usize, &'t str, Result<Option<Vec<Finding>>, RedactError>) {
        let service = &self.services[place];
        let limit = service.timeout();
        let answer = match tokio::time::timeout(limit, service.find(&*self.egress, text)).await {
            Ok(Ok(findings)) => Ok(Some(findings)),
            Ok(Err(why)) => service.failed(&why),
            Err(_) => service.failed(&format!("no answer within {}", format_duration(limit))),
        };
        (place, text, answer)
    }
}

fn format_duration(limit: Duration) -> String {
    interflow_types::units::HumanDuration(limit).to_string()
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
