//! Replaces the URLs of a playlist by those of the gateway, or of another server that the link names.

use std::borrow::Cow;
use std::collections::HashMap;

use super::child_urls::ChildUrls;
use super::error::{MediaError, Result};
use super::request::MediaRequest;
use crate::config::SegmentRoute;
use crate::hls::channel::ChannelOptions;
use crate::hls::rewrite::{SEGMENT_TYPES, SegmentEncryption, extension, is_playlist_address, placeholders};
use crate::hls::{UriReplacer, UriRole};
use crate::relay::address::push_value;
use crate::relay::fetch::FetchedDocument;

/// Where players get segments from.
pub(super) enum SegmentSource<'a> {
    Ours,
    Direct,
    Stremio(&'a str, String),
}

/// Which resources are routed through the gateway, by the link and the configuration.
pub(super) struct SegmentRouting<'a> {
    pub segments: SegmentSource<'a>,
    /// Nothing is routed: URLs are only made absolute.
    pub nothing: bool,
}

impl<'a> SegmentRouting<'a> {
    pub fn for_request(job: MediaRequest<'a>) -> Result<Self> {
        let (params, hls) = (&job.asked.params, &job.state.config.hls);
        let keys_alone = params.is_true("key_only_proxy") || job.asked.path.starts_with("/proxy/hls/key_proxy");
        let forced = params.is_true("force_playlist_proxy");
        let segments = match (params.get("segments"), hls.segments, &hls.stremio_url) {
            _ if keys_alone => SegmentSource::Direct,
            _ if forced => SegmentSource::Ours,
            (Some("direct"), ..) => SegmentSource::Direct,
            (Some("proxy"), ..) | (None, SegmentRoute::Proxy, _) => SegmentSource::Ours,
            (None, SegmentRoute::Direct, _) => SegmentSource::Direct,
            (None, SegmentRoute::Stremio, Some(url)) => SegmentSource::Stremio(url, stremio_fields(&params.pairs)),
            (Some(other), ..) => {
                return Err(MediaError::bad_request(format!("`segments={other}`: it is proxy or direct")));
            }
            (None, SegmentRoute::Stremio, None) => SegmentSource::Ours,
        };
        Ok(Self { segments, nothing: params.is_true("no_proxy") })
    }
}

/// Header fields for a Stremio server: `h=name:value` for the request, `r=name:value` for the response. It takes them
/// from the URL.
fn stremio_fields(pairs: &[(String, String)]) -> String {
    let mut out = Vec::new();
    for (name, value) in pairs {
        for (ours, theirs) in [("h_", "h"), ("rp_", "r")] {
            if let Some(name) = name.strip_prefix(ours) {
                out.extend_from_slice(format!("&{theirs}=").as_bytes());
                push_value(format!("{name}:{value}").as_bytes(), &mut out);
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Replaces origin URLs with gateway URLs, line by line.
pub(super) struct UrlRewriter<'a> {
    pub children: &'a ChildUrls,
    pub routing: SegmentRouting<'a>,
    pub inline: HashMap<String, String>,
    pub key_url: Option<&'a str>,
    /// Options for the next channel of the list, collected from the lines before its URL.
    pub channel: ChannelOptions,
    /// The credentials that the playlist's references inherit.
    pub userinfo: Option<&'a str>,
    /// The segments are pictures (`EXT-X-IMAGES-ONLY`).
    pub is_images: bool,
    /// The byte range of the next segment.
    pub range: Option<String>,
}

impl<'a> UrlRewriter<'a> {
    pub fn new(children: &'a ChildUrls, routing: SegmentRouting<'a>, document: &'a FetchedDocument) -> Self {
        let (inline, channel, userinfo) = (HashMap::new(), ChannelOptions::default(), document.userinfo.as_deref());
        Self { children, routing, inline, key_url: None, channel, userinfo, is_images: false, range: None }
    }

    /// Writes a child's URL to the end of its destination, and returns where its path begins.
    fn write_child(&self, path: &str, address: &str, out: &mut Vec<u8>) -> usize {
        let from = self.children.write_prefix(path, out);
        out.extend_from_slice(b"d=");
        push_value(address.as_bytes(), out);
        from
    }

    fn child(&self, path: &str, address: &str, out: &mut Vec<u8>) {
        self.children.push(path, &[("d", address.as_bytes())], out);
    }

    fn child_with(&self, path: &str, address: &str, more: &[(String, String)], out: &mut Vec<u8>) {
        let mut parameters = vec![("d", address.as_bytes())];
        parameters.extend(more.iter().map(|(name, value)| (name.as_str(), value.as_bytes())));
        self.children.push(path, &parameters, out);
    }

    fn segment(&mut self, address: &str, crypt: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        let range = self.range.take();
        match &self.routing.segments {
            // Credentials are not handed to players.
            SegmentSource::Direct => {
                out.extend_from_slice(without_userinfo(address, self.userinfo).as_bytes());
            }
            SegmentSource::Stremio(url, fields) => out.extend_from_slice(stremio(url, fields, address).as_bytes()),
            SegmentSource::Ours => {
                let extension = match extension(address) {
                    // A segment with the name of a picture is media behind the header of one. Players refuse it by
                    // this name.
                    "jpg" | "png" if !self.is_images => "ts",
                    other => other,
                };
                let from = self.write_child(segment_path(extension), address, out);
                if let Some(range) = range {
                    out.extend_from_slice(format!("&segment_range={range}").as_bytes());
                }
                if let Some(crypt) = crypt {
                    match &crypt.key {
                        Some(key) => {
                            out.extend_from_slice(b"&k=");
                            push_value(key.as_bytes(), out);
                            out.extend_from_slice(b"&iv=");
                            push_value(crypt.iv.trim_start_matches('#').as_bytes(), out);
                        }
                        None => out.extend_from_slice(b"&method=cenc"),
                    }
                    match crypt.method.as_str() {
                        "AES-128" | "" => {}
                        "AES-256" => out.extend_from_slice(b"&method=AES-256"),
                        _ => out.extend_from_slice(b"&method=SAMPLE-AES"),
                    }
                    if let Some((map, range)) = &crypt.map {
                        out.extend_from_slice(b"&init_url=");
                        push_value(map.as_bytes(), out);
                        if let Some((first, last)) = range {
                            out.extend_from_slice(format!("&init_range={first}-{last}").as_bytes());
                        }
                    }
                }
                self.children.write_signature(out, from);
            }
        }
    }
}

impl UriReplacer for UrlRewriter<'_> {
    fn write_uri(&mut self, kind: UriRole, address: &str, crypt: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        if self.routing.nothing {
            return out.extend_from_slice(address.as_bytes());
        }
        match kind {
            UriRole::Playlist => {
                let more = self.channel.finish();
                self.child_with("/proxy/hls/manifest.m3u8", address, &more, out);
            }
            UriRole::Segment => self.segment(address, crypt, out),
            UriRole::Init => {
                let from = self.write_child(segment_path(extension(address)), address, out);
                if let Some(range) = self.range.take() {
                    out.extend_from_slice(format!("&segment_range={range}").as_bytes());
                }
                out.extend_from_slice(b"&method=init");
                self.children.write_signature(out, from);
            }
            UriRole::Key => match self.key_url.map(|url| with_origin_of(address, url)) {
                Some(address) => self.child("/proxy/hls/key.bin", &address, out),
                None => self.child("/proxy/hls/key.bin", address, out),
            },
            UriRole::Data => self.child("/proxy/hls/data", address, out),
            UriRole::Steering => self.child("/proxy/hls/steering.json", address, out),
            UriRole::Assets => self.child("/proxy/hls/assets.json", address, out),
            UriRole::Channel => {
                let more = self.channel.finish();
                let path = if is_mpd(address) { "/proxy/mpd/manifest.m3u8" } else { "/proxy/stream" };
                self.child_with(path, address, &more, out);
            }
            UriRole::Guide => self.child("/proxy/epg", address, out),
        }
    }

    fn channel_option(&mut self, line: &str) -> bool {
        !self.routing.nothing && self.channel.take(line)
    }

    fn channel_fields(&mut self, fields: &str) -> bool {
        !self.routing.nothing && self.channel.fields_behind_address(fields)
    }

    fn write_catchup(&mut self, template: &str, options: &[&str], fields: &str, out: &mut Vec<u8>) -> bool {
        if self.routing.nothing {
            return false;
        }
        let mut channel = self.channel.clone();
        options.iter().for_each(|line| {
            channel.take(line);
        });
        channel.fields_behind_address(fields);
        let mut more = channel.finish();
        more.push(("catchup".into(), "1".into()));
        let path = match template {
            t if is_playlist_address(t.as_bytes()) => "/proxy/hls/manifest.m3u8",
            t if is_mpd(t) => "/proxy/mpd/manifest.m3u8",
            _ => "/proxy/stream",
        };
        self.child_with(path, template, &more, out);
        // Behind the signature, for the player.
        for (i, place) in placeholders(template).into_iter().enumerate() {
            out.extend_from_slice(format!("&_c{i}={}", &template[place]).as_bytes());
        }
        true
    }

    fn segment_range(&mut self, range: String) {
        self.range = Some(range);
    }

    fn end_channel(&mut self) {
        self.channel.finish();
    }

    fn inline(&self, address: &str) -> Option<String> {
        self.inline.get(address).cloned()
    }
}

fn segment_path(extension: &str) -> &'static str {
    SEGMENT_TYPES.get(extension).map_or("/proxy/hls/segment.ts", |(path, _)| path)
}

/// The media type for a file extension, for origins that send none.
pub(super) fn media_type(extension: &str) -> Option<&'static str> {
    SEGMENT_TYPES.get(extension).map(|(_, media)| *media)
}

/// A URL without the credentials that it inherited from the playlist's.
fn without_userinfo<'t>(address: &'t str, userinfo: Option<&str>) -> Cow<'t, str> {
    let stripped = userinfo.and_then(|userinfo| {
        let (scheme, rest) = address.split_once("://")?;
        Some(format!("{scheme}://{}", rest.strip_prefix(userinfo)?))
    });
    stripped.map_or(Cow::Borrowed(address), Cow::Owned)
}

fn is_mpd(address: &str) -> bool {
    let path = address.split(['?', '#']).next().unwrap_or_default();
    path.len() > 4 && path.get(path.len() - 4..).is_some_and(|e| e.eq_ignore_ascii_case(".mpd"))
}

/// The URL with scheme and host of another one (`key_url`, for key servers that were moved).
fn with_origin_of(address: &str, to: &str) -> String {
    let path = address.split_once("://").map_or("", |(_, rest)| rest.find('/').map_or("", |at| &rest[at..]));
    let origin: Vec<&str> = to.splitn(4, '/').take(3).collect();
    format!("{}{path}", origin.join("/"))
}

/// The URL of a resource through a Stremio server.
fn stremio(server: &str, fields: &str, address: &str) -> String {
    let end = address.split_once("://").map_or(0, |(s, rest)| s.len() + 3 + rest.find('/').unwrap_or(rest.len()));
    let (origin, path) = address.split_at(end);
    let mut d = Vec::new();
    push_value(origin.as_bytes(), &mut d);
    let d = String::from_utf8_lossy(&d).replace('/', "%2F").replace(':', "%3A");
    format!("{}/proxy/d={d}{fields}{path}", server.trim_end_matches('/'))
}
