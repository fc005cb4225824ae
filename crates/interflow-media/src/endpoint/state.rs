//! The state of the media service that is derived from one configuration.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_files::resolve_secret_ref;
use interflow_types::{HttpClient, Response};

use super::file::index::IndexedFile;
use super::live_timeline::LiveTimelines;
use crate::config::{MediaCacheConfig, MediaConfig};
use crate::relay::host_concurrency::HostConcurrency;
use crate::relay::prefetch::Prefetcher;
use crate::relay::resume::{RetryPolicy, send_resumable};
use crate::relay::segment_cache::CacheLimits;
use crate::relay::ttl_cache::TtlCache;
use crate::relay::{DiskCache, FetchRequest, MediaFetcher, SegmentCache, StreamRegistry};
use crate::token::LinkKeys;

/// The dependencies of the media service, given by the program.
pub struct MediaSetup {
    pub config: MediaConfig,
    /// The secret that seals links if the configuration names none. It must be the same after a restart.
    pub secret: Vec<u8>,
    /// The HTTP client for fetches; it also enforces the policy on private addresses.
    pub egress: Arc<dyn HttpClient>,
    /// The same for keys and licences: bodies are not recorded.
    pub key_egress: Arc<dyn HttpClient>,
    /// The folder of the disk cache, used if the configuration enables it.
    pub folder: Option<PathBuf>,
}

/// The state derived from one configuration, replaced on reload. Requests in progress keep theirs.
pub struct MediaState {
    pub config: MediaConfig,
    pub keys: LinkKeys,
    pub password: Option<String>,
    /// Users' names and passwords, resolved from their references.
    pub users: Vec<(String, String)>,
    /// The gateway's public URL for links, if configured; otherwise the one that the client used.
    pub public: Option<String>,
    pub fetch: Arc<MediaFetcher>,
    pub shared: Arc<SegmentCache>,
    pub ahead: Prefetcher,
    /// The indexes of files decrypted in ranges, by request and keys, so that seeking needs no new index. The file's
    /// validators are compared on every request.
    pub files: TtlCache<[u8; 32], Arc<IndexedFile>>,
    /// How far origins' clocks are from the local one, in seconds. They determine which segments of a live stream
    /// exist (ISO 23009-1 5.8.4.11).
    pub clocks: TtlCache<String, f64>,
    /// Segment numbers of live tracks, which must not change from one playlist to the next.
    pub lines: LiveTimelines,
    pub hosts: HostConcurrency,
    pub streams: Arc<StreamRegistry>,
}

/// Maximum number of cached indexes; each has an entry per sample.
const MAX_FILES: usize = 16;
const MAX_CLOCKS: usize = 1024;

/// The upstream `User-Agent` with `media.compat`, where the origins expect a browser.
const DEFAULT_USER_AGENT: &str =
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/136.0.0.0 Safari/537.36";

impl MediaState {
    pub fn new(setup: MediaSetup, streams: Arc<StreamRegistry>) -> Result<Self, String> {
        let MediaSetup { mut config, secret, egress, key_egress, folder } = setup;
        if config.compat.enabled && config.user_agent == MediaConfig::default().user_agent {
            config.user_agent = DEFAULT_USER_AGENT.into();
        }
        let read = |key: String, text: &str| resolve_secret_ref(text).map_err(|e| format!("{key}: {e}"));
        let keys = config.link_key.iter().enumerate().map(|(i, k)| {
            read(format!("media.link_key[{i}]"), &k.secret).map(|secret| (k.id.clone(), secret.into_bytes()))
        });
        let mut keys = keys.collect::<Result<Vec<_>, String>>()?;
        // A secret of this installation: links hold across restarts without any configuration.
        if keys.is_empty() {
            keys.push(("0".into(), secret));
        }
        for (i, user) in config.user.iter_mut().enumerate() {
            user.password = read(format!("media.user[{i}]"), &user.password)?;
            if user.name.is_empty() || user.password.is_empty() {
                return Err(format!("media.user[{i}]: a user needs a name and a password"));
            }
        }
        let password = config.api_password.as_deref().map(|p| read("media.api_password".into(), p)).transpose()?;
        config.api_password = password.filter(|p| !p.is_empty());
        // References to secrets are resolved: two may lead to the same password.
        config.check()?;
        let fetch = Arc::new(MediaFetcher::new(egress, key_egress, config.redirects));
        let patience = RetryPolicy { attempts: config.resume, delay: config.resume_delay.0 };
        let bounds = CacheLimits {
            memory: config.cache.memory.0,
            entry: config.cache.entry.0,
            ttl: config.cache.ttl.0,
            playlist_ttl: config.cache.playlist_ttl.0,
            patience,
        };
        let disk = folder.map(|folder| disk(&config.cache, &folder)).transpose()?.flatten();
        Ok(Self {
            keys: LinkKeys::new(&keys).map_err(|e| format!("media.link_key: {e}"))?,
            users: std::mem::take(&mut config.user).into_iter().map(|user| (user.name, user.password)).collect(),
            password: config.api_password.take(),
            public: config.public_url.as_ref().map(|u| u.trim_end_matches('/').to_owned()),
            shared: Arc::new(SegmentCache::new(Arc::clone(&fetch), bounds).with_disk(disk)),
            files: TtlCache::new(MAX_FILES),
            ahead: Prefetcher::default(),
            fetch,
            clocks: TtlCache::new(MAX_CLOCKS),
            lines: LiveTimelines::default(),
            hosts: HostConcurrency::new(config.streams_per_host, config.stream_wait.0),
            streams,
            config,
        })
    }

    /// The response to a request, whose body is resumed if the connection breaks.
    ///
    /// # Errors
    /// As for [`MediaFetcher::send`].
    pub async fn send_resumable(&self, ask: FetchRequest) -> interflow_types::Result<Response> {
        let patience = RetryPolicy { attempts: self.config.resume, delay: self.config.resume_delay.0 };
        Ok(send_resumable(&self.fetch, ask, patience).await?.response)
    }

    /// Whether scripts of this page origin may read responses without a link: pages of this machine, and those of
    /// `media.cors`.
    pub fn allows_page(&self, origin: &str) -> bool {
        let local = ["http://localhost", "http://127.0.0.1", "http://[::1]"]
            .iter()
            .any(|l| origin.strip_prefix(l).is_some_and(|rest| rest.is_empty() || rest.starts_with(':')));
        local || self.config.cors.iter().any(|c| c == "*" || c == origin)
    }
}

/// The disk cache. If it is disabled, files of an earlier run are deleted, since nothing would ever use or expire
/// them.
fn disk(config: &MediaCacheConfig, folder: &Path) -> Result<Option<Arc<DiskCache>>, String> {
    if config.disk.0 == 0 || config.memory.0 == 0 {
        DiskCache::clear(folder);
        return Ok(None);
    }
    let opened = DiskCache::open(folder, config.disk.0, config.disk_ttl.0);
    opened.map(Some).map_err(|e| format!("media.cache.disk: {} cannot be used: {e}", folder.display()))
}
