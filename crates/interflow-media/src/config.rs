//! The keys of `[media]`: streams, playlists and manifests carried by the gateway port.

use std::net::IpAddr;

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use ipnet::IpNet;
use serde::{Deserialize, Serialize, Serializer};

config_sections! {
    /// Media through the gateway port: relay, HLS, DASH, decryption with configured keys, links.
    pub struct MediaConfig {
        /// Whether the endpoints are there.
        pub enabled: bool = true,
        /// The path below which they stand: `/media/proxy/stream` and so on.
        pub path: String = "/media".into(),
        /// How players reach this gateway, when that is not what their `Host` field says: `https://tv.example.com`.
        pub public_url: Option<String>,
        /// The password that requests show as `api_password` (in the query or as a field of that name). Without one, and
        /// without users, only programs on this machine are served, and signed links. May be `env:NAME` or `file:PATH`.
        #[serde(serialize_with = "hidden")]
        pub api_password: Option<String>,
        /// Users with a password each; the flow carries the user's name, and limits by user hold for it.
        pub user: Vec<MediaUser>,
        /// The secrets that links are sealed with. The first one seals, all of them open; when there is none, one is made
        /// and kept in the data directory.
        pub link_key: Vec<LinkKey>,
        /// Reverse proxies whose `X-Forwarded-For`, `-Proto` and `-Host` are believed, besides those of `gateway.trusted_proxies`.
        #[schemars(with = "Vec<String>")]
        pub trusted_proxies: Vec<IpNet>,
        /// Web pages (origins such as `https://player.example.com`, or `*`) whose scripts may read what is served without a
        /// signed link. With a signed link any page may.
        pub cors: Vec<String>,
        /// Private, loopback and other special addresses that may be fetched from all the same: `192.168.1.0/24`.
        #[schemars(with = "Vec<String>")]
        pub allow_private: Vec<IpNet>,
        /// `User-Agent` upstream, when a link gives none. In the place of mediaflow-proxy (`compat.mediaflow`), a browser's
        /// unless another one is set here.
        pub user_agent: String = "Interflow".into(),
        /// How many redirects are followed.
        pub redirects: u8 = 10,
        /// How often a body that broke off is asked for again from where it stopped.
        pub resume: u8 = 3,
        /// How long to wait before that.
        pub resume_delay: HumanDuration = HumanDuration::from_millis(250),
        /// The largest document that is read: a programme guide, an index of a file, an initialization section.
        pub document_bytes: ByteSize = ByteSize(64 << 20),
        /// The largest playlist or manifest that is read, decoded when it came coded; `document_bytes` bounds it as well.
        pub playlist_bytes: ByteSize = ByteSize(32 << 20),
        /// The largest playlist or manifest that is written, with each address made one of this gateway.
        pub rewritten_bytes: ByteSize = ByteSize(96 << 20),
        /// Streams at once from one host, 0 for any number; playlists and manifests are never held back.
        pub streams_per_host: u32,
        /// How long a stream waits for its turn.
        pub stream_wait: HumanDuration = HumanDuration::from_secs(30),
        /// How long a programme guide is kept.
        pub epg_ttl: HumanDuration = HumanDuration::from_secs(3600),
        /// Shared work: many viewers, one request upstream.
        pub cache: MediaCacheConfig,
        /// HLS playlists.
        pub hls: HlsConfig,
        /// DASH manifests.
        pub dash: DashConfig,
        /// Being used in the place of another proxy.
        pub compat: MediaCompatConfig,
    }
}

/// Somebody who may use the media endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MediaUser {
    /// The name.
    pub name: String,
    /// What they show as `api_password`. May be `env:NAME` or `file:PATH`.
    #[serde(serialize_with = "hidden_text")]
    pub password: String,
}

/// A secret for links.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkKey {
    /// Its name in links: up to 16 letters and digits. A link names its key, so that keys can be changed.
    pub id: String,
    /// At least 16 characters, best 32 random bytes in hex. May be `env:NAME` or `file:PATH`.
    #[serde(serialize_with = "hidden_text")]
    pub secret: String,
}

config_sections! {
    /// Shared work.
    pub struct MediaCacheConfig {
        /// Memory for segments, keys and playlists together; 0 turns sharing off.
        pub memory: ByteSize = ByteSize(64 << 20),
        /// The largest body that is shared; longer ones are relayed to each viewer.
        pub entry: ByteSize = ByteSize(16 << 20),
        /// How long a segment is kept.
        pub ttl: HumanDuration = HumanDuration::from_secs(60),
        /// How long a playlist or manifest is kept.
        pub playlist_ttl: HumanDuration = HumanDuration::from_millis(500),
        /// Disk for segments as they came from origins; 0 for none. They outlive a restart. What was decrypted here is never
        /// written.
        pub disk: ByteSize,
        /// How long a segment is kept on disk.
        pub disk_ttl: HumanDuration = HumanDuration::from_secs(3600),
        /// How many segments are fetched ahead of a player that plays on; 0 for none.
        pub prefetch: u8,
    }
}

config_sections! {
    /// HLS playlists.
    pub struct HlsConfig {
        /// Where players get segments from.
        pub segments: SegmentRoute = SegmentRoute::Proxy,
        /// Base address for `segments = "stremio"`: `http://127.0.0.1:11470`.
        pub stremio_url: Option<String>,
        /// What becomes of keys of AES-128 and SAMPLE-AES.
        pub keys: HlsKeyMode = HlsKeyMode::Relay,
        /// `EXT-X-START` for live playlists that have none, in seconds before the end (`-18`); 0 for none.
        pub live_start: f64,
    }
}

/// Where players get segments from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SegmentRoute {
    /// From this gateway.
    #[default]
    Proxy,
    /// From the origin.
    Direct,
    /// From a Stremio server.
    Stremio,
}

/// What becomes of HLS keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HlsKeyMode {
    /// The player fetches them through this gateway.
    #[default]
    Relay,
    /// They are put into the playlist.
    Inline,
    /// Segments are decrypted here; the player sees clear ones.
    Apply,
}

config_sections! {
    /// DASH manifests.
    pub struct DashConfig {
        /// The most segments that a live HLS playlist made from a manifest lists; 0 for the whole time-shift window.
        pub live_segments: u32 = 60,
        /// Make MPEG-TS segments of them unless a link says otherwise.
        pub remux_to_ts: bool,
    }
}

config_sections! {
    /// Being used in the place of another proxy.
    pub struct MediaCompatConfig {
        /// Answer at the paths of mediaflow-proxy too (`/proxy/…`, `/playlist/…`, `/generate_url`, Xtream Codes at the
        /// root), on its port too, and read its links.
        #[serde(rename = "mediaflow")]
        pub enabled: bool,
        /// The port beside the gateway's own on which programs look for mediaflow-proxy; 0 for none.
        pub port: u16 = 8888,
    }
}

fn displayed_secret(secret: &str) -> &str {
    if secret.starts_with("env:") || secret.starts_with("file:") { secret } else { "***" }
}

fn hidden<S: Serializer>(secret: &Option<String>, s: S) -> Result<S::Ok, S::Error> {
    secret.as_deref().map(displayed_secret).serialize(s)
}

fn hidden_text<S: Serializer>(secret: &str, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(displayed_secret(secret))
}

impl MediaConfig {
    /// What is wrong with it, with the key.
    ///
    /// # Errors
    /// The first fault: `media.link_key[0]: …`.
    pub fn check(&self) -> Result<(), String> {
        if !self.path.starts_with('/') || self.path.ends_with('/') {
            return Err(format!("media.path: `{}` must begin with / and not end with it", self.path));
        }
        for (i, user) in self.user.iter().enumerate() {
            let others = &self.user[..i];
            let is_taken = |password: &str| {
                !password.is_empty()
                    && (others.iter().any(|o| o.password == password) || self.api_password.as_deref() == Some(password))
            };
            // The password tells who a user is.
            if others.iter().any(|o| o.name == user.name) || is_taken(&user.password) {
                return Err(format!("media.user[{i}]: another user has this name or password; give each its own"));
            }
        }
        if let Some(url) = &self.public_url {
            crate::relay::address::parse(url).map_err(|e| format!("media.public_url: {}", e.message()))?;
        }
        if self.hls.segments == SegmentRoute::Stremio && self.hls.stremio_url.is_none() {
            return Err("media.hls.segments: `stremio` needs media.hls.stremio_url".into());
        }
        Ok(())
    }

    /// The limit on playlists and manifests that are read, with its key.
    pub fn playlist_limit(&self) -> (u64, &'static str) {
        if self.document_bytes < self.playlist_bytes {
            (self.document_bytes.0, "media.document_bytes")
        } else {
            (self.playlist_bytes.0, "media.playlist_bytes")
        }
    }

    /// Whether the client's address is a reverse proxy's that is believed.
    pub fn trusts_proxy(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.trusted_proxies.iter().any(|net| net.contains(&ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialized_config_masks_secrets() {
        let config = MediaConfig {
            api_password: Some("hunter2".into()),
            link_key: vec![LinkKey { id: "a".into(), secret: "env:KEY".into() }],
            ..MediaConfig::default()
        };
        let shown = serde_json::to_string(&config).unwrap();
        assert!(!shown.contains("hunter2") && shown.contains("env:KEY"), "{shown}");
    }

    #[test]
    fn invalid_config_is_reported_with_its_key() {
        assert_eq!(MediaConfig::default().check(), Ok(()));
        let user = |name: &str, password: &str| MediaUser { name: name.into(), password: password.into() };
        let two = |a, b| MediaConfig { user: vec![a, b], ..Default::default() };
        let as_all = MediaConfig { api_password: Some("p".into()), user: vec![user("a", "p")], ..Default::default() };
        assert_eq!(two(user("a", "p"), user("b", "q")).check(), Ok(()));
        for (config, key) in [
            (two(user("a", "p"), user("a", "q")), "media.user[1]"),
            (two(user("a", "p"), user("b", "p")), "media.user[1]"),
            (as_all, "media.user[0]"),
            (MediaConfig { path: "media".into(), ..Default::default() }, "media.path"),
            (MediaConfig { path: "/".into(), ..Default::default() }, "media.path"),
            (MediaConfig { public_url: Some("tv".into()), ..Default::default() }, "media.public_url"),
            (
                MediaConfig {
                    hls: HlsConfig { segments: SegmentRoute::Stremio, ..HlsConfig::default() },
                    ..Default::default()
                },
                "media.hls.segments",
            ),
        ] {
            assert!(config.check().unwrap_err().starts_with(key), "{key}");
        }
    }
}
