//! The media room: its doors on the gateway port, the secret of its links, and its guarded way out.

use std::path::{Path, PathBuf};
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
    folder: PathBuf,
}

impl MediaRoom {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong with its section, or with the file of its secret.
    pub fn new(config: &MediaConfig, home: &Home, late: &Arc<LateEgress>) -> Result<Self, String> {
        let secret = secret(home)?;
        let folder = home.join("media-cache");
        let media = Media::new(setup(config, &secret, late, &folder))?;
        Ok(Self { media, late: Arc::clone(late), secret, folder })
    }

    /// The room itself.
    pub fn media(&self) -> &Arc<Media> {
        &self.media
    }
}

impl Room for MediaRoom {
    fn prepare(&self, config: &Config) -> Result<Change, String> {
        self.media.prepare(setup(&config.media, &self.secret, &self.late, &self.folder))
    }
}

fn setup(config: &MediaConfig, secret: &[u8], late: &Arc<LateEgress>, folder: &Path) -> Setup {
    let allow = config.allow_private.clone();
    let egress = late.door(move |engine| engine.guarded_egress(allow.clone(), "media.allow_private"));
    Setup { config: config.clone(), secret: secret.to_vec(), egress, folder: Some(folder.to_owned()) }
}

/// Where the key of links is kept when the configuration names none, in the data folder.
pub const KEY_FILE: &str = "media.key";

/// What seals links when the configuration names no key: made once, kept beside the CA.
pub fn secret(home: &Home) -> Result<Vec<u8>, String> {
    home.secret(KEY_FILE)
}
