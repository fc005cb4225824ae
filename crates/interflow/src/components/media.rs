//! The media component: its gateway endpoints, the key of sealed links, and its SSRF-guarded HTTP client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_media::{MediaConfig, MediaService, MediaSetup};

use super::{ApplyFn, Component, DeferredClient};
use crate::instance::config::InterflowConfig;

pub struct MediaComponent {
    media: Arc<MediaService>,
    late: Arc<DeferredClient>,
    secret: Vec<u8>,
    folder: PathBuf,
}

impl MediaComponent {
    ///
    /// # Errors
    /// The `[media]` section or the key file is invalid.
    pub fn new(config: &MediaConfig, home: &DataDir, late: &Arc<DeferredClient>) -> Result<Self, String> {
        let secret = link_secret(home)?;
        let folder = home.join("media-cache");
        let media = MediaService::new(setup(config, &secret, late, &folder))?;
        Ok(Self { media, late: Arc::clone(late), secret, folder })
    }

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

/// File in the data directory that holds the link key if the configuration names none.
pub const KEY_FILE: &str = "media.key";

/// Loads or creates the link key for installations that configure none.
pub fn link_secret(home: &DataDir) -> Result<Vec<u8>, String> {
    home.secret(KEY_FILE)
}
