//! The redaction component: its policies, and the secret from which placeholders are derived.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_limits::KeyStore;
use interflow_llm_gateway::gateway::check_redact_routes;
use interflow_llm_gateway::redaction::RedactionService;
use interflow_proxy::LocalClient;
use sha2::{Digest, Sha256};

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct RedactionComponent {
    home: PathBuf,
    pub redaction: Arc<RedactionService>,
}

impl RedactionComponent {
    /// # Errors
    /// The `[redact]` section, a policy or the secret file is invalid.
    pub fn new(config: &InterflowConfig, home: &DataDir, local: &LocalClient) -> Result<Self, String> {
        check_names(config, home.path())?;
        let egress = Arc::new(local.unrecorded());
        let redaction = RedactionService::new(&config.redact, home.path(), master_secret(config, home)?, egress)?;
        Ok(Self { home: home.path().to_owned(), redaction })
    }
}

/// Files whose modification triggers a reload.
pub fn files(config: &InterflowConfig, home: &DataDir) -> Vec<PathBuf> {
    RedactionService::policy_files(&config.redact, home.path())
}

impl Component for RedactionComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        check_names(config, &self.home)?;
        let settings = self.redaction.compile(&config.redact, &self.home)?;
        let redaction = Arc::clone(&self.redaction);
        Ok(Box::new(move || redaction.activate(settings)))
    }
}

/// Checks that every upstream named by an exception, and every policy named by a virtual key, exists.
fn check_names(config: &InterflowConfig, home: &Path) -> Result<(), String> {
    check_redact_routes(&config.redact, &config.llm)?;
    let file = home.join(&config.keys.file);
    let ring = KeyStore::read(&file).map_err(|e| e.to_string())?;
    for key in ring.keys() {
        if let Some(name) = key.policy.as_deref().filter(|name| !config.redact.has_policy(name)) {
            let path = file.display();
            return Err(format!(
                "{path}: the key `{}` uses the policy `{name}`, which is not in redact.policies: add its file there, or remove `policy` from the key",
                key.id
            ));
        }
    }
    Ok(())
}

/// The configured secret, or one that is created once in the data directory.
pub fn master_secret(config: &InterflowConfig, home: &DataDir) -> Result<[u8; 32], String> {
    let text = match &config.redact.secret {
        Some(secret) => {
            let text = interflow_files::resolve_secret_ref(secret).map_err(|e| format!("redact.secret: {e}"))?;
            if text.len() < 16 {
                return Err("redact.secret: shorter than 16 characters".into());
            }
            text.into_bytes()
        }
        None => home.secret("redact.key")?,
    };
    // Any length of secret becomes a key of 32 bytes.
    Ok(Sha256::digest(text).into())
}
