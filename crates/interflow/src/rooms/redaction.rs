//! The room of redaction: its policies, and the secret that placeholders are made with.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use interflow_engine::redaction::Redaction;
use interflow_flow::{Egress, Error, Kind, Reply, Request};
use sha2::{Digest, Sha256};

use super::{Change, LateEgress, Room};
use crate::config::Config;
use crate::home::{Home, write_private};

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
        let egress = Unrecorded::new(late);
        let redaction = Redaction::new(&config.redact, home.path(), master(config, home)?, egress)?;
        Ok(Self { home: home.path().to_owned(), redaction })
    }
}

impl Room for RedactionRoom {
    fn files(&self, config: &Config) -> Vec<PathBuf> {
        Redaction::files(&config.redact, &self.home)
    }

    fn prepare(&self, config: &Config) -> Result<Change, String> {
        let settings = self.redaction.compile(&config.redact, &self.home)?;
        let room = Arc::clone(&self.redaction);
        Ok(Box::new(move || room.put(settings)))
    }
}

/// The engine's way out that no recorder sees, once there is an engine.
pub struct Unrecorded {
    late: Arc<LateEgress>,
    made: OnceLock<Arc<dyn Egress>>,
}

impl Unrecorded {
    /// Over this engine, once it is there.
    pub fn new(late: &Arc<LateEgress>) -> Arc<Self> {
        Arc::new(Self { late: Arc::clone(late), made: OnceLock::new() })
    }
}

impl Egress for Unrecorded {
    fn send(&self, request: Request) -> Reply<'_> {
        if self.made.get().is_none()
            && let Some(engine) = self.late.engine()
        {
            let _ = self.made.set(engine.unrecorded_egress());
        }
        match self.made.get() {
            Some(egress) => egress.send(request),
            None => Box::pin(async { Err(Error::new(Kind::Internal, "the corridor does not run yet")) }),
        }
    }
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
        None => own_secret(home)?,
    };
    Ok(Sha256::digest(text).into())
}

fn own_secret(home: &Home) -> Result<Vec<u8>, String> {
    let path = home.join("redact.key");
    match std::fs::read(&path) {
        Ok(secret) if secret.len() >= 16 => return Ok(secret),
        Ok(_) => {}
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(format!("{} cannot be read: {e}", path.display())),
    }
    home.create()?;
    let secret = interflow_admin::new_token().into_bytes();
    write_private(&path, &secret).map_err(|e| format!("{} cannot be written: {e}", path.display()))?;
    Ok(secret)
}
