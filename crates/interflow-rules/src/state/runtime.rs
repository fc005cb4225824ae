//! Runtime context of the rules, shared over reloads: match counters, held flows, sessions, the HTTP client.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use interflow_types::{CertificateFiles, HttpClient};
use parking_lot::Mutex;

use crate::files::private_files::PrivateFiles;
use crate::files::rule_format::RuleFormat;
use crate::service::{ExternalService, ServiceDef, TlsConnector};
use crate::state::hold::HoldQueue;
use crate::state::recording::RecordingSource;
use crate::state::sessions::DomainSessions;

/// State and capabilities that outlive a reload. The default one is for validation: it starts no services.
#[derive(Default)]
pub struct RuleRuntime {
    counters: Mutex<HashMap<String, Arc<AtomicU64>>>,
    /// The queue of flows held for an operator.
    pub holds: Arc<HoldQueue>,
    pub(crate) sessions: DomainSessions,
    /// The shared store of scripts.
    pub(crate) store: crate::script::SharedScriptStore,
    services: Mutex<Vec<Arc<ExternalService>>>,
    /// Whether services are started and recorded flows read; false for validation.
    pub(crate) is_live: bool,
    /// Interflow's CA certificate in PEM, for `serve_ca`.
    pub(crate) ca: Option<String>,
    /// HTTP client for services called by HTTP.
    pub(crate) egress: Option<Arc<dyn HttpClient>>,
    /// Reads recordings, for `replay`.
    pub(crate) recordings: Option<Arc<dyn RecordingSource>>,
    /// Opens TLS connections, for services at `wss://`.
    pub(crate) tls_connector: Option<Arc<dyn TlsConnector>>,
    /// Formats of other programs' rule files.
    pub(crate) formats: Vec<Arc<dyn RuleFormat>>,
    /// Files that no rule reads or writes.
    pub(crate) private_files: PrivateFiles,
    /// Checks upstream capabilities of this build.
    pub(crate) capabilities: Option<Arc<dyn RuleCapabilities>>,
}

/// Capabilities of this build on upstream and downstream connections. Checked before rules are activated, so that an
/// action that could only fail is rejected with its location.
pub trait RuleCapabilities: Send + Sync {
    /// Whether a fingerprint, in the syntax of [`crate::params::FingerprintParam`], is supported.
    ///
    /// # Errors
    /// Why not, with the remedy.
    fn check_fingerprint(&self, like: &str) -> Result<(), String>;

    /// Whether a certificate and its key can be read and match.
    ///
    /// # Errors
    /// What is wrong with them.
    fn check_certificate(&self, files: &CertificateFiles) -> Result<(), String>;
}

impl std::fmt::Debug for RuleRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleRuntime").finish_non_exhaustive()
    }
}

/// Maximum number of match counters by rule name, including removed rules. Further rules count, but not beyond a
/// reload.
const MAX_COUNTERS: usize = 100_000;

impl RuleRuntime {
    /// A runtime that starts services. `ca` is Interflow's CA certificate in PEM.
    pub fn new(ca: Option<String>, egress: Option<Arc<dyn HttpClient>>) -> Self {
        Self { ca, egress, is_live: true, ..Self::default() }
    }

    /// A runtime in which the same rules are valid, with no state and no services.
    pub(crate) fn for_checks(&self) -> Self {
        Self {
            recordings: self.recordings.clone(),
            formats: self.formats.clone(),
            private_files: self.private_files.clone(),
            capabilities: self.capabilities.clone(),
            ..Self::default()
        }
    }

    pub fn with_recordings(self, recordings: Arc<dyn RecordingSource>) -> Self {
        Self { recordings: Some(recordings), ..self }
    }

    pub fn with_capabilities(self, means: Arc<dyn RuleCapabilities>) -> Self {
        Self { capabilities: Some(means), ..self }
    }

    /// Keeps rules away from these files.
    pub fn with_private_files(self, private_files: PrivateFiles) -> Self {
        Self { private_files, ..self }
    }

    pub fn with_tls_connector(self, opener: Arc<dyn TlsConnector>) -> Self {
        Self { tls_connector: Some(opener), ..self }
    }

    /// Reads files of these formats, too; the first that recognizes a file converts it.
    pub fn with_formats(self, formats: Vec<Arc<dyn RuleFormat>>) -> Self {
        Self { formats, ..self }
    }

    /// A service; a running one with the same definition is reused. `None` if services are not started.
    pub(crate) fn service(&self, name: &str, def: ServiceDef) -> Result<Option<Arc<ExternalService>>, String> {
        if !self.is_live {
            return Ok(None);
        }
        let mut services = self.services.lock();
        if let Some(service) = services.iter().find(|s| s.name == name && s.def == def) {
            return Ok(Some(Arc::clone(service)));
        }
        let service = ExternalService::new(name, def, self.egress.clone(), self.tls_connector.clone())?;
        // The previous one of this name ends with the rules that still refer to it.
        services.retain(|s| s.name != name);
        services.push(Arc::clone(&service));
        Ok(Some(service))
    }

    /// The match counter of a rule, which keeps its value over reloads as long as the name stays.
    pub(crate) fn counter(&self, name: &str) -> Arc<AtomicU64> {
        let mut counters = self.counters.lock();
        if counters.len() >= MAX_COUNTERS && !counters.contains_key(name) {
            return Arc::default();
        }
        Arc::clone(counters.entry(name.to_owned()).or_default())
    }
}
