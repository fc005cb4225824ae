//! The media room: its doors on the gateway port, the secret of its links, and its guarded way out.

use std::sync::Arc;

use interflow_media::{Media, MediaConfig, Setup};

use super::{Change, LateEgress, Room};
use crate::config::Config;
use crate::home::Home;

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
    let allow = config.allow_private.clone();
    let egress = late.door(move |engine| engine.guarded_egress(allow.clone(), "media.allow_private"));
    Setup { config: config.clone(), secret: secret.to_vec(), egress }
}

/// What seals links when the configuration names no key: made once, kept beside the CA.
pub fn secret(home: &Home) -> Result<Vec<u8>, String> {
    home.secret("media.key")
}
