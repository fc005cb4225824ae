//! The media room: its doors on the gateway port, the secret of its links, and its guarded way out.

use std::io;
use std::sync::{Arc, OnceLock};

use interflow_flow::{Egress, Error, Kind, Reply, Request};
use interflow_media::{Media, MediaConfig, Setup};
use ipnet::IpNet;

use super::{Change, LateEgress, Room};
use crate::config::Config;
use crate::home::{Home, write_private};

/// The room and what it is made from at a reload.
pub struct MediaRoom {
    media: Arc<Media>,
    late: Arc<LateEgress>,
    secret: Vec<u8>,
}

impl MediaRoom {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong with its section, or with the file of its secret.
    pub fn new(config: &MediaConfig, home: &Home, late: &Arc<LateEgress>) -> Result<Self, String> {
        let secret = secret(home)?;
        let media = Media::new(setup(config, &secret, late))?;
        Ok(Self { media, late: Arc::clone(late), secret })
    }

    /// The room itself.
    pub fn media(&self) -> &Arc<Media> {
        &self.media
    }
}

impl Room for MediaRoom {
    fn prepare(&self, config: &Config) -> Result<Change, String> {
        self.media.prepare(setup(&config.media, &self.secret, &self.late))
    }
}

fn setup(config: &MediaConfig, secret: &[u8], late: &Arc<LateEgress>) -> Setup {
    let egress =
        Arc::new(Guarded { late: Arc::clone(late), allow: config.allow_private.clone(), made: OnceLock::new() });
    Setup { config: config.clone(), secret: secret.to_vec(), egress }
}

/// What seals links when the configuration names no key: made once, kept beside the CA.
pub fn secret(home: &Home) -> Result<Vec<u8>, String> {
    let path = home.join("media.key");
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

/// The engine's guarded way out, once there is an engine.
struct Guarded {
    late: Arc<LateEgress>,
    allow: Vec<IpNet>,
    made: OnceLock<Arc<dyn Egress>>,
}

impl Egress for Guarded {
    fn send(&self, request: Request) -> Reply<'_> {
        if self.made.get().is_none()
            && let Some(engine) = self.late.engine()
        {
            let _ = self.made.set(engine.guarded_egress(self.allow.clone(), "media.allow_private"));
        }
        match self.made.get() {
            Some(egress) => egress.send(request),
            None => Box::pin(async {
                Err(Error::new(Kind::Internal, "the corridor does not run yet, so nothing can be fetched"))
            }),
        }
    }
}
