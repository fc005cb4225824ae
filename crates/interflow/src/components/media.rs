//! The media room: its doors on the gateway port, the secret of its links, and its guarded way out.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_media::{MediaConfig, MediaService, MediaSetup};

use super::{ApplyFn, Component, DeferredClient};
use crate::config::InterflowConfig;
use crate::data_dir::DataDir;

/// The room and what it is made from at a reload.
pub struct MediaComponent {
    media: Arc<MediaService>,
    late: Arc<DeferredClient>,
    secret: Vec<u8>,
    folder: PathBuf,
}

impl MediaComponent {
    /// Builds it.
    ///
    /// # Errors
    /// What is wrong with its section, or with the file of its secret.
    pub fn new(config: &MediaConfig, home: &DataDir, late: &Arc<DeferredClient>) -> Result<Self, String> {
        let secret = link_secret(home)?;
        let folder = home.join("media-cache");
        let media = MediaService::new(setup(config, &secret, late, &folder))?;
        Ok(Self { media, late: Arc::clone(late), secret, folder })
    }

    /// The room itself.
    pub fn media(&self) -> &Arc<MediaService> {
        &self.media
    }
}

impl Component for MediaComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        self.media.prepare(setup(&config.media, &self.secret, &self.late, &self.folder))
    }
}

fn setup(config: &MediaConfig, secret: &[u8], late: &Arc<DeferredClient>, folder: &Path) -> MediaSetup {
    let allow = config.allow_private.clone();
    let egress = late.lazy_client(move |engine| engine.filtered_client(allow.clone(), "media.allow_private"));
    MediaSetup { config: config.clone(), secret: secret.to_vec(), egress, folder: Some(folder.to_owned()) }
}

/// Where the key of links is kept when the configuration names none, in the data folder.
pub const KEY_FILE: &str = "media.key";

/// What seals links when the configuration names no key: made once, kept beside the CA.
pub fn link_secret(home: &DataDir) -> Result<Vec<u8>, String> {
    home.secret(KEY_FILE)
}
