//! The room of redaction: its policies, and the secret that placeholders are made with.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_engine::redaction::Redaction;
use interflow_limits::KeyStore;
use sha2::{Digest, Sha256};

use super::{Change, LateEgress, Room};
use crate::config::Config;
use crate::home::Home;

/// The room, and where its files are.
pub struct RedactionRoom {
    home: PathBuf,
    /// The room itself.
    pub redaction: Arc<Redaction>,
}

impl RedactionRoom {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong in `[redact]`, in a policy, or with the file of the secret.
    pub fn new(config: &Config, home: &Home, late: &Arc<LateEgress>) -> Result<Self, String> {
        check_keys(config, home.path())?;
        let egress = late.unrecorded();
        let redaction = Redaction::new(&config.redact, home.path(), master(config, home)?, egress)?;
        Ok(Self { home: home.path().to_owned(), redaction })
    }
}

impl Room for RedactionRoom {
    fn files(&self, config: &Config) -> Vec<PathBuf> {
        Redaction::files(&config.redact, &self.home)
    }

    fn prepare(&self, config: &Config) -> Result<Change, String> {
        check_keys(config, &self.home)?;
        let settings = self.redaction.compile(&config.redact, &self.home)?;
        let room = Arc::clone(&self.redaction);
        Ok(Box::new(move || room.put(settings)))
    }
}

/// Sees that every policy that a virtual key asks for is there.
fn check_keys(config: &Config, home: &Path) -> Result<(), String> {
    let file = home.join(&config.keys.file);
    let ring = KeyStore::read(&file).map_err(|e| e.to_string())?;
    for key in ring.keys() {
        if let Some(name) = key.policy.as_deref().filter(|name| !config.redact.has_policy(name)) {
            let place = file.display();
            return Err(format!(
                "{place}: the key `{}` goes by the policy `{name}`, which is not in redact.policies: name its file there, or take `policy` out of the key",
                key.id
            ));
        }
    }
    Ok(())
}

/// The secret of the config, or one of this data folder, made once.
fn master(config: &Config, home: &Home) -> Result<[u8; 32], String> {
    let text = match &config.redact.secret {
        Some(secret) => {
            let text = interflow_limits::secret(secret).map_err(|e| format!("redact.secret: {e}"))?;
            if text.len() < 16 {
                return Err("redact.secret: it is shorter than 16 characters".into());
            }
            text.into_bytes()
        }
        None => home.secret("redact.key")?,
    };
    Ok(Sha256::digest(text).into())
}
