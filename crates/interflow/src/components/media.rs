//! The media component: its gateway endpoints, the key of sealed links, and its SSRF-guarded HTTP client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_host::data_dir::DataDir;
use interflow_llm_gateway::gateway::is_endpoint_segment;
use interflow_media::{MediaConfig, MediaService, MediaSetup};

use interflow_proxy::LocalClient;

use super::{ApplyFn, Component};
use crate::instance::config::InterflowConfig;

pub struct MediaComponent {
    pub media: Arc<MediaService>,
    local: LocalClient,
    secret: Vec<u8>,
    /// Of its cache on disk.
    folder: Option<PathBuf>,
}

impl MediaComponent {
    /// # Errors
    /// The `[media]` section or the key file is invalid.
    pub fn new(config: &InterflowConfig, home: &DataDir, local: &LocalClient) -> Result<Self, String> {
        check_path(config)?;
        let secret = home.secret(KEY_FILE)?;
        let folder = (!home.is_read_only()).then(|| home.join("media-cache"));
        let media = MediaService::new(setup(&config.media, &secret, local, folder.as_deref()))?;
        Ok(Self { media, local: local.clone(), secret, folder })
    }
}

impl Component for MediaComponent {
    fn prepare(&self, config: &InterflowConfig) -> Result<ApplyFn, String> {
        check_path(config)?;
        self.media.prepare(setup(&config.media, &self.secret, &self.local, self.folder.as_deref()))
    }
}

/// Checks that the endpoints of others, which those of media precede, are elsewhere.
pub fn check_path(config: &InterflowConfig) -> Result<(), String> {
    let path = config.media.path.as_str();
    let first = path.split('/').nth(1).unwrap_or_default();
    if config.media.enabled && (first == "mcp" || is_endpoint_segment(&config.llm, first)) {
        return Err(format!(
            "media.path: `{path}` is where other endpoints of the gateway are: choose another, such as /media"
        ));
    }
    Ok(())
}

fn setup(config: &MediaConfig, secret: &[u8], local: &LocalClient, folder: Option<&Path>) -> MediaSetup {
    let egress = local.filtered(config.allow_private.clone(), "media.allow_private");
    MediaSetup {
        config: config.clone(),
        secret: secret.to_vec(),
        key_egress: Arc::new(egress.with_secret_bodies()),
        egress: Arc::new(egress),
        folder: folder.map(Path::to_owned),
    }
}

/// File in the data directory that holds the link key if the configuration names none.
pub const KEY_FILE: &str = "media.key";
