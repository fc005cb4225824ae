//! What rules share over reloads and with the rest of the house: counters, held flows, sessions, the way out.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use interflow_types::{CertificateFiles, HttpClient};
use parking_lot::Mutex;

use crate::hold::HoldQueue;
use crate::replay::RecordingSource;
use crate::service::{ExternalService, ServiceDef, TlsConnector};
use crate::sessions::DomainSessions;

/// What outlives a reload.
#[derive(Default)]
pub struct RuleRuntime {
    counters: Mutex<HashMap<String, Arc<AtomicU64>>>,
    /// Flows that wait for a decision.
    pub holds: Arc<HoldQueue>,
    pub(crate) sessions: DomainSessions,
    /// What scripts keep.
    pub(crate) store: Arc<crate::script::ScriptStore>,
    services: Mutex<Vec<Arc<ExternalService>>>,
    /// Whether services are stood up: not for rules that are only looked at.
    live: bool,
    /// The certificate of Interflow's authority, in PEM, for `serve_ca`.
    pub(crate) ca: Option<String>,
    /// Sends requests, for services that are asked over HTTP.
    pub(crate) egress: Option<Arc<dyn HttpClient>>,
    /// Reads recordings, for `replay`.
    pub(crate) recordings: Option<Arc<dyn RecordingSource>>,
    /// Opens TLS, for services at `wss://`.
    pub(crate) tls_connector: Option<Arc<dyn TlsConnector>>,
    /// Knows what can be done on the way to the origin.
    pub(crate) capabilities: Option<Arc<dyn RuleCapabilities>>,
}

/// What this build can do on the ways to origin and client: asked before rules are put in force, so that one that could
/// only fail is refused with its place.
pub trait RuleCapabilities: Send + Sync {
    /// Whether a fingerprint, as [`crate::given::Like`] writes it, can be sent.
    ///
    /// # Errors
    /// Why not, with the remedy.
    fn check_fingerprint(&self, like: &str) -> Result<(), String>;

    /// Whether a certificate and its key can be read and belong together.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check_certificate(&self, files: &CertificateFiles) -> Result<(), String>;
}

impl std::fmt::Debug for RuleRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings").finish_non_exhaustive()
    }
}

/// The most rules that are counted by name, gone ones included.
const MAX_COUNTERS: usize = 100_000;

impl RuleRuntime {
    /// With the certificate of Interflow's authority in PEM, and a way out.
    pub fn new(ca: Option<String>, egress: Option<Arc<dyn HttpClient>>) -> Self {
        Self { ca, egress, live: true, ..Self::default() }
    }

    /// The same with somebody who reads recordings of all formats, and those of the store.
    #[must_use]
    pub fn with_recordings(self, recordings: Arc<dyn RecordingSource>) -> Self {
        Self { recordings: Some(recordings), ..self }
    }

    /// The same with somebody who knows what can be done on the ways.
    #[must_use]
    pub fn with_capabilities(self, means: Arc<dyn RuleCapabilities>) -> Self {
        Self { capabilities: Some(means), ..self }
    }

    /// The same with somebody who opens TLS to services.
    #[must_use]
    pub fn with_tls_connector(self, opener: Arc<dyn TlsConnector>) -> Self {
        Self { tls_connector: Some(opener), ..self }
    }

    /// A service; one that stands already with the same definition goes on. `None` where none are stood up.
    pub(crate) fn service(&self, name: &str, def: ServiceDef) -> Result<Option<Arc<ExternalService>>, String> {
        if !self.live {
            return Ok(None);
        }
        let mut services = self.services.lock();
        if let Some(service) = services.iter().find(|s| s.name == name && s.def == def) {
            return Ok(Some(Arc::clone(service)));
        }
        let service = ExternalService::new(name, def, self.egress.clone(), self.tls_connector.clone())?;
        // An older one of this name ends with the rules that still hold it.
        services.retain(|s| s.name != name);
        services.push(Arc::clone(&service));
        Ok(Some(service))
    }

    pub(crate) fn counter(&self, name: &str) -> Arc<AtomicU64> {
        let mut counters = self.counters.lock();
        if counters.len() >= MAX_COUNTERS && !counters.contains_key(name) {
            return Arc::default();
        }
        Arc::clone(counters.entry(name.to_owned()).or_default())
    }
}
