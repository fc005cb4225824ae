//! The rules component: loads, compiles and reloads rule files.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_proxy::LocalClient;
use interflow_rules::{ActiveRules, PrivateFiles, RuleRuntime, RulesConfig, ServiceTransport, TlsConnector};
use interflow_types::units::pluralize;
use interflow_types::{Authority, BoxFuture, CertificateFiles, Error};

use super::{ApplyFn, Component, RecordingArchives, rule_formats};
use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;

/// Rule file in the data directory that is used if the configuration names none. The web UI edits it.
const OPERATOR_RULES_FILE: &str = "rules.yaml";
/// Initial content of the file.
const EMPTY_RULES: &str =
    "# Rules, evaluated from top to bottom. The web UI edits this file; see docs/guides/rules.md.\n";

/// Capabilities of this build that rules depend on.
pub struct BuildCapabilities;

impl interflow_rules::RuleCapabilities for BuildCapabilities {
    fn check_fingerprint(&self, like: &str) -> Result<(), String> {
        interflow_proxy::check_fingerprint(like)
    }

    fn check_certificate(&self, files: &CertificateFiles) -> Result<(), String> {
        interflow_proxy::check_certificate(files)
    }
}

/// Opens the TLS connections to rule services.
struct ServiceConnector(LocalClient);

impl TlsConnector for ServiceConnector {
    fn connect<'a>(&'a self, authority: &'a Authority) -> BoxFuture<'a, Result<Box<dyn ServiceTransport>, Error>> {
        Box::pin(async move { Ok(Box::new(self.0.open_tls(authority).await?) as Box<dyn ServiceTransport>) })
    }
}

pub struct RulesComponent {
    pub rules: Arc<ActiveRules>,
    own: PathBuf,
}

impl RulesComponent {
    /// # Errors
    /// All errors in the rule files.
    pub fn new(
        config: &InterflowConfig,
        home: &DataDir,
        local: &LocalClient,
        store: Option<&Arc<RecordStore>>,
    ) -> Result<Self, String> {
        let ca = std::fs::read_to_string(home.ca().join("ca.pem")).ok();
        let around = match home.is_read_only() {
            // It starts no services.
            true => RuleRuntime::default(),
            false => RuleRuntime::new(ca, Some(Arc::new(local.clone()))),
        };
        let around = around
            .with_recordings(Arc::new(RecordingArchives::Running(store.cloned())))
            .with_capabilities(Arc::new(BuildCapabilities))
            .with_formats(rule_formats())
            .with_private_files(PrivateFiles::new(home.path(), own_files(config, home)))
            .with_tls_connector(Arc::new(ServiceConnector(local.clone())));
        let own = home.join(OPERATOR_RULES_FILE);
        let rules =
            ActiveRules::new(&active_rules_config(&config.rules, &own), Arc::new(around)).map_err(|e| e.to_string())?;
        log_problems(&rules.program());
        Ok(Self { rules: Arc::new(rules), own })
    }
}

/// What no rule may read or write: Interflow's folders in the data directory, and files that may be elsewhere. Files
/// directly in the data directory are private anyway.
fn own_files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    let folders = ["browser-profiles", "ca", "collections", "media-cache", "record", "spend", "trust"];
    let (approvals, key) = (&config.approvals, config.approvals.secrets.with_extension("key"));
    let files = [&approvals.file, &approvals.secrets, &key, &config.keys.file, &config.record.dir];
    let trails = [&config.admin.audit.file, &config.audit.file];
    let elsewhere = files.into_iter().chain(trails).map(|path| home.join(path));
    folders.map(|name| home.join(name)).into_iter().chain(elsewhere).chain(home.admin_token_file()).collect()
}

/// The section, completed with the default file if it names none.
fn active_rules_config(config: &RulesConfig, own: &Path) -> RulesConfig {
    let mut config = config.clone();
    if config.files.is_empty() && own.exists() {
        config.files.push(own.to_owned());
    }
    config
}

fn log_problems(program: &interflow_rules::RuleProgram) {
    if !program.rules.is_empty() {
        tracing::info!("{} active", pluralize(program.rules.len() as u64, "rule"));
    }
    for note in &program.notes {
        tracing::warn!("{note}");
    }
}

/// Creates the default file if it is missing and used, before its version is taken.
pub fn create_own_file(config: &InterflowConfig, home: &DataDir) {
    let own = home.join(OPERATOR_RULES_FILE);
    if config.rules.files.is_empty() && !own.exists() && !home.is_read_only() {
        // A missing one is equivalent to an empty one.
        let _ = std::fs::write(&own, EMPTY_RULES);
    }
}

/// Files whose modification triggers a reload. The active program knows those that they include.
pub fn files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    match config.rules.files.is_empty() {
        // Also if it does not exist yet.
        true => vec![home.join(OPERATOR_RULES_FILE)],
        false => config.rules.files.clone(),
    }
}

impl Component for RulesComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        let program = self.rules.prepare(&active_rules_config(&config.rules, &self.own)).map_err(|e| e.to_string())?;
        let rules = Arc::clone(&self.rules);
        Ok(Box::new(move || {
            rules.activate(program);
            log_problems(&rules.program());
        }))
    }
}
