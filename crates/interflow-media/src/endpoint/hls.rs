//! `/proxy/hls/*`: playlists rewritten, segments and keys relayed or decrypted.
//!
//! A URL given as a playlist may turn out to be media, and the reverse; the content decides ([`PlaylistProbe`]).

use std::borrow::Cow;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use interflow_codec::content_coding;
use interflow_types::{Body, BodyFrame, ByteStr, Method, Response, ResponseHead, Result, StatusCode};

use super::child_urls::ChildUrls;
use super::decrypt;
use super::error::{EndpointResult, MediaError, playlist_response};
use super::router::MediaRequest;
use crate::cenc::{ContentKey, ContentKeyRing};
use crate::config::{HlsKeyMode, SegmentRoute};
use crate::hls::channel::ChannelOptions;
use crate::hls::rewrite::{SegmentEncryption, extension, is_playlist_address};
use crate::hls::segment_skip::SkipRanges;
use crate::hls::tags::{attribute_text, is_playlist, lines, tag};
use crate::hls::variant_filter::VariantChoice;
use crate::hls::{
    HlsRewriteOptions, UriReplacer, UriRole, define::PlaylistVariables, rewrite_within, segment_skip, steering,
    variant_filter,
};
use crate::relay::address::{self, MediaAddress, push_value};
use crate::relay::fetch::FetchedDocument;
use crate::relay::segment_cache::remove_conditions;
use crate::relay::{BaseUrl, CachePolicy, FetchRequest, FetchedResponse, ResponseTransform, header_filter, prefetch};
use crate::sample_aes::parse_iv;

/// Maximum number of keys fetched for inlining into one playlist; the others are relayed.
const MAX_INLINE_KEYS: usize = 64;

/// Maximum decoded size of a coded body when sniffing its type, in bytes; a decompression bomb ends here.
const MAX_PEEKED_BYTES: u64 = 1 << 20;

/// What turned out to be behind a URL that may be a playlist or media.
pub enum PlaylistProbe {
    /// A playlist, read completely.
    Playlist(FetchedDocument),
    /// Anything else, ready to be relayed; its first bytes were put back.
    Other(Response),
}

impl MediaRequest<'_> {
    /// A playlist, rewritten; media behind such a URL is relayed.
    pub async fn hls_manifest(self) -> EndpointResult {
        let address = self.with_directives(self.asked.params.destination("d")?);
        match self.find_playlist(address).await? {
            PlaylistProbe::Playlist(document) => self.rewrite_playlist(&document).await,
            PlaylistProbe::Other(response) => Ok(response),
        }
    }

    /// The player's LL-HLS directives are sent upstream (RFC 8216bis 6.2.5).
    fn with_directives(self, mut address: MediaAddress) -> MediaAddress {
        let mut path = address.url.path.as_str().as_bytes().to_vec();
        for (name, value) in self.asked.directives.iter().filter(|(n, _)| n.starts_with("_HLS_")) {
            path.push(if path.contains(&b'?') { b'&' } else { b'?' });
            push_value(name.as_bytes(), &mut path);
            path.push(b'=');
            push_value(value.as_bytes(), &mut path);
        }
        address.url.path = ByteStr::from(String::from_utf8_lossy(&path).into_owned());
        address
    }

    /// A request for a complete document, without the client's own conditions and ranges, which concern its own copy.
    pub fn whole_request(self, address: MediaAddress) -> Result<FetchRequest, MediaError> {
        let mut ask = self.fetch_request(address)?;
        ask.method = Method::GET;
        remove_conditions(&mut ask.headers);
        for name in ["range", "if-range"] {
            ask.headers.remove(name);
        }
        Ok(ask)
    }

    /// Fetches a resource that may be a playlist. Other content is relayed; a web page, such as a block or parking
    /// page, is rejected, since players would report something misleading.
    pub async fn find_playlist(self, address: MediaAddress) -> Result<PlaylistProbe, MediaError> {
        let named = is_playlist_address(address.url.path.as_str().as_bytes());
        let FetchedResponse { url, response } =
            self.state.shared.get(self.whole_request(address)?, CachePolicy::Playlist).await?;
        let Response { head, mut body } = response;
        if !head.status.is_success() {
            return Ok(PlaylistProbe::Other(self.forward_response(head, body)));
        }
        let (mut first, mut seen) = (BytesMut::new(), Vec::new());
        let unreadable = |e: std::io::Error| {
            MediaError::upstream(format!(
                "{} sent a body with a content coding that cannot be undone: {e}",
                url.authority
            ))
        };
        let mut decoder = content_coding::ContentDecoder::new(&head.headers, MAX_PEEKED_BYTES).map_err(unreadable)?;
        // `#EXTM3U`, possibly after a byte order mark or spaces, tells a playlist.
        while seen.trim_ascii_start().len() < 7 {
            match body.frame().await {
                Some(Ok(BodyFrame::Data(data))) => {
                    first.extend_from_slice(&data);
                    let out = seen.len();
                    match &mut decoder {
                        // Only the beginning is needed: excess output is not an error.
                        Some(decoder) => match decoder.push_into(&data, &mut seen) {
                            Err(e) if seen.len() == out => return Err(unreadable(e)),
                            _ => {}
                        },
                        None => seen.extend_from_slice(&data),
                    }
                }
                Some(Ok(BodyFrame::Trailers(_))) => {}
                Some(Err(e)) => return Err(e.into()),
                None => break,
            }
        }
        if let Some(decoder) = &mut decoder
            && seen.is_empty()
        {
            let _ = decoder.finish_into(&mut seen);
        }
        let kind = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
        let claims = named || kind.contains("mpegurl");
        let is_one = is_playlist(&seen);
        let page = seen.trim_ascii_start().starts_with(b"<");
        if !is_one && (claims && page || kind.starts_with("text/html")) {
            return Err(MediaError::upstream(format!("{} sent a web page in the place of a playlist", url.authority)));
        }
        // The bytes that were read are put back, still with their content coding.
        let read = (!first.is_empty()).then(|| Ok(BodyFrame::Data(first.freeze())));
        let body = Body::replay(read.into_iter().collect(), body);
        if !is_one && !claims {
            return Ok(PlaylistProbe::Other(self.forward_response(head, body)));
        }
        let limit = self.state.config.playlist_limit();
        let document = crate::relay::fetch::collect_within(url, Response { head, body }, limit).await?;
        Ok(PlaylistProbe::Playlist(document))
    }

    /// Relays a response of the origin as a stream.
    fn forward_response(self, head: ResponseHead, body: Body) -> Response {
        let mut head = header_filter::response_head(&head);
        self.asked.params.apply_header_overrides(&mut head.headers, false);
        let body = self.state.streams.track(
            body,
            "stream",
            self.asked.params.get("d").unwrap_or_default().split('/').take(3).collect::<Vec<_>>().join("/"),
            self.flow.client.peer,
            self.flow.user.clone(),
        );
        Response { head, body }
    }

    /// A rewritten playlist as a response, with the origin's media type and cache lifetime.
    pub async fn rewrite_playlist(self, document: &FetchedDocument) -> EndpointResult {
        let params = &self.asked.params;
        let mut response = playlist_response(self.rewrite_playlist_text(document, false).await?);
        let kind = document.headers.get_str("content-type");
        if let Some(kind) = kind.filter(|k| k.to_ascii_lowercase().contains("mpegurl")) {
            let _ = response.head.headers.set("Content-Type", kind);
        }
        if let Some(control) = document.headers.get("cache-control") {
            let _ = response.head.headers.set("Cache-Control", control);
        }
        params.apply_header_overrides(&mut response.head.headers, false);
        Ok(response)
    }

    /// The text of a playlist with the link's options applied. `direct`: URLs are made absolute and bypass the gateway.
    pub async fn rewrite_playlist_text(self, document: &FetchedDocument, direct: bool) -> Result<Vec<u8>, MediaError> {
        let params = &self.asked.params;
        let mut text = Cow::Borrowed(&document.body[..]);
        let choice = params
            .get("resolution")
            .and_then(VariantChoice::read)
            .or(params.is_true("max_res").then_some(VariantChoice::Highest));
        // Variants and segments are removed before the rewriting, so that no link is made for them.
        if let Some(choice) = choice {
            text = variant_filter::filter_variants(&text, choice).into_owned().into();
        }
        if let Some(stretches) = params.get("skip").map(SkipRanges::read) {
            text = segment_skip::skip_segments(&text, &stretches).into_owned().into();
        }
        let imported = |(n, v): &(String, String)| Some((n.strip_prefix("v_")?.to_owned(), v.clone()));
        let imported: Vec<_> = params.pairs().iter().filter_map(imported).collect();
        let variables = PlaylistVariables::collect(&text, document.url.query(), &imported)?;
        let is_multivariant = memchr::memmem::find(&text, b"#EXT-X-STREAM-INF").is_some();
        // Variables of a multivariant playlist may be imported by its media playlists (RFC 8216bis 4.4.2.3), which are
        // requested without it: their values go with the links.
        let handed_down = if is_multivariant { variables.pairs() } else { &[] };
        let handed_down = handed_down.iter().map(|(n, v)| (format!("v_{n}"), v.clone())).collect();
        let base = BaseUrl::from_url(&document.url);
        let mut routing = SegmentRouting::for_request(self)?;
        routing.nothing |= direct;
        let keys = self.key_use(&routing)?;
        let inline = match keys {
            HlsKeyMode::Inline => self.keys_of(&text, &base, &variables).await,
            HlsKeyMode::Relay | HlsKeyMode::Apply => HashMap::new(),
        };
        if !inline.is_empty() {
            self.note_keys();
        }
        let options = HlsRewriteOptions { apply_keys: keys == HlsKeyMode::Apply, start: self.start(&text)?, variables };
        if self.state.config.cache.prefetch > 0 && matches!(routing.segments, SegmentSource::Ours) {
            self.state.ahead.record_playlist(&document.url.to_string(), prefetch::segment_refs(&text, &base));
        }
        let children = self.asked.children_with(self.state, handed_down);
        let mut place = UrlRewriter {
            children: &children,
            routing,
            inline,
            key_url: params.get("key_url"),
            channel: ChannelOptions::default(),
        };
        let most = self.state.config.rewritten_bytes.0;
        Ok(rewrite_within(&text, &base, &options, &mut place, most).await?)
    }

    /// How keys are delivered: by the link, else by the configuration.
    fn key_use(self, routing: &SegmentRouting<'_>) -> Result<HlsKeyMode, MediaError> {
        let wanted = match self.asked.params.get("keys") {
            None => self.state.config.hls.keys,
            Some("relay") => HlsKeyMode::Relay,
            Some("inline") => HlsKeyMode::Inline,
            Some("apply") => HlsKeyMode::Apply,
            Some(other) => {
                return Err(MediaError::bad_request(format!("`keys={other}`: it is relay, inline or apply")));
            }
        };
        // Segments that bypass the gateway cannot be decrypted here.
        let through = matches!(routing.segments, SegmentSource::Ours) && !routing.nothing;
        Ok(if wanted == HlsKeyMode::Apply && !through { HlsKeyMode::Relay } else { wanted })
    }

    /// The start of a live playlist in seconds (`EXT-X-START`), if set by the link or configuration and not by the
    /// playlist.
    fn start(self, text: &[u8]) -> Result<Option<f64>, MediaError> {
        let has = |needle: &[u8]| memchr::memmem::find(text, needle).is_some();
        if has(b"#EXT-X-START:") {
            return Ok(None);
        }
        if let Some(offset) = self.asked.params.number("start_offset")? {
            return Ok(Some(offset));
        }
        let usual = self.state.config.hls.live_start;
        let live = has(b"#EXTINF") && !has(b"#EXT-X-ENDLIST") && !has(b"#EXT-X-PLAYLIST-TYPE:VOD");
        Ok((usual != 0.0 && live && has(b"#EXT-X-TARGETDURATION")).then_some(usual))
    }

    /// The keys of a playlist as `data:` URLs; keys that cannot be fetched are left to the player, which reports the
    /// error.
    async fn keys_of(self, text: &[u8], base: &BaseUrl, variables: &PlaylistVariables) -> HashMap<String, String> {
        let mut found = HashMap::new();
        for line in lines(text) {
            let Some((b"EXT-X-KEY" | b"EXT-X-SESSION-KEY", list)) = tag(line.content(text)) else { continue };
            let Some(uri) = attribute_text(list, b"URI") else { continue };
            let Some(uri) = variables.fill(uri) else { continue };
            let address = base.resolve(&uri);
            if found.len() >= MAX_INLINE_KEYS || found.contains_key(&address) || !address::is_http(address.as_bytes()) {
                continue;
            }
            if let Ok(key) = self.key::<16>(&address).await {
                found.insert(address, format!("data:application/octet-stream;base64,{}", STANDARD.encode(key)));
            }
        }
        found
    }

    /// A key of `N` bytes, fetched from its URL or contained in it (`data:`). Any other length is an error.
    async fn key<const N: usize>(self, address: &str) -> Result<[u8; N], MediaError> {
        if let Some(data) = address.get(..5).filter(|s| s.eq_ignore_ascii_case("data:")).and_then(|_| address.get(5..))
        {
            let key = decode_data_url(data).and_then(|bytes| <[u8; N]>::try_from(bytes).ok());
            return key.ok_or_else(|| {
                MediaError::upstream(format!("the playlist's data: address holds no key of {N} bytes"))
            });
        }
        let ask = FetchRequest { is_secret: true, ..self.whole_request(address::parse(address)?)? };
        let document = self.state.shared.document(ask, CachePolicy::Segment, 4096).await?;
        let key = <[u8; N]>::try_from(&document.body[..]).ok().filter(|_| document.status.is_success());
        key.ok_or_else(|| {
            MediaError::upstream(format!("no key of {N} bytes is at {} ({})", document.url.authority, document.status))
        })
    }

    /// A segment, part, initialization section, key or data, decrypted if the link has a key for it.
    pub async fn hls_segment(self, extension: &str) -> EndpointResult {
        let params = &self.asked.params;
        let address = params.destination("d")?;
        let mut response = match params.get("k") {
            Some(key) if params.get("init_url").is_some() => self.decrypt_sample_aes(address, key).await?,
            Some(key) => self.decrypt_segment(address, key).await?,
            None if params.get("method") == Some("init") => self.clear_init(address).await?,
            None => self.relay(address, "segment", Some(None)).await?,
        };
        let kind = response.head.headers.get_str("content-type").unwrap_or_default();
        // Players judge by the type, and some origins send none that means anything.
        let says_nothing = ["", "application/octet-stream", "binary/octet-stream", "text/plain"].contains(&kind);
        if says_nothing
            && response.head.status.is_success()
            && let Some(kind) = media_type(extension)
        {
            let _ = response.head.headers.set("Content-Type", kind);
            response.head.headers.remove("content-security-policy");
        }
        Ok(response)
    }

    /// A segment that is encrypted as a whole (AES-128, AES-256), or whose samples are (SAMPLE-AES in MPEG-TS).
    async fn decrypt_segment(self, address: MediaAddress, key: &str) -> EndpointResult {
        self.note_decryption();
        let params = &self.asked.params;
        let iv = params
            .get("iv")
            .and_then(|iv| parse_iv(&format!("0x{iv}")))
            .ok_or_else(|| MediaError::bad_request("`iv` is not a 16-byte vector"))?;
        if params.get("method") == Some("AES-256") {
            let key: [u8; 32] = self.key(key).await?;
            // The key itself is part of the identity: two links with different keys must not share a result.
            let mut hasher = blake3::Hasher::new();
            hasher.update(b"aes-256").update(&key).update(&iv);
            let run = move |head: &mut ResponseHead, body: Body| {
                decrypted_head(head);
                Ok(decrypt::aes_256(key, iv, body))
            };
            let work = ResponseTransform { id: *hasher.finalize().as_bytes(), takes_ranges: true, run: Box::new(run) };
            return self.relay(address, "segment", Some(Some(work))).await;
        }
        let key: [u8; 16] = self.key(key).await?;
        let samples = params.get("method") == Some("SAMPLE-AES");
        let mut hasher = blake3::Hasher::new();
        hasher.update(if samples { b"sample-aes" } else { b"aes-128" }).update(&key).update(&iv);
        let run = move |head: &mut ResponseHead, body: Body| {
            // Bytes are removed within the samples' packets, so that the origin's ranges do not fit.
            if samples {
                (head.status, head.reason) = (StatusCode::OK, Bytes::from_static(b"OK"));
                head.headers.remove("content-range");
                head.headers.remove("accept-ranges");
                return Ok(decrypt::sample_aes(key, iv, body));
            }
            decrypted_head(head);
            Ok(decrypt::aes_128(key, iv, body))
        };
        let work = ResponseTransform { id: *hasher.finalize().as_bytes(), takes_ranges: true, run: Box::new(run) };
        self.relay(address, "segment", Some(Some(work))).await
    }

    /// A segment of MP4 whose samples are decrypted (SAMPLE-AES). The length is unchanged, so ranges stay valid.
    async fn decrypt_sample_aes(self, address: MediaAddress, key: &str) -> EndpointResult {
        self.note_decryption();
        let keys = ContentKeyRing::any(ContentKey(self.key(key).await?));
        let init = self.init_section().await?;
        if self.head.headers.contains("range") {
            return self.decrypted_file(address, keys, init).await;
        }
        let id = self.work_id("samples");
        let run = move |_: &mut ResponseHead, body: Body| {
            decrypt::segment(keys, init, 0, body).map_err(MediaError::into_error)
        };
        self.relay(address, "segment", Some(Some(ResponseTransform { id, takes_ranges: false, run: Box::new(run) })))
            .await
    }

    /// The initialization section of such segments, with encryption boxes removed, so that players take the track for
    /// a clear one.
    async fn clear_init(self, address: MediaAddress) -> EndpointResult {
        let run = |_: &mut ResponseHead, body: Body| {
            let all = ContentKeyRing::default();
            decrypt::segment(all, None, 0, body).map_err(MediaError::into_error)
        };
        let work = ResponseTransform { id: self.work_id("init"), takes_ranges: true, run: Box::new(run) };
        self.relay(address, "segment", Some(Some(work))).await
    }

    /// A cache identity for a transformation of a segment, including all key parameters of the link. Values are
    /// preceded by their length, so that none can be taken for another.
    pub fn work_id(self, how: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        hasher.update(how.as_bytes());
        for name in ["key_id", "key", "k", "iv", "init_url", "init_range"] {
            let value = self.asked.params.get(name).unwrap_or_default();
            hasher.update(&(value.len() as u64).to_le_bytes()).update(value.as_bytes());
        }
        *hasher.finalize().as_bytes()
    }

    /// A steering manifest (RFC 8216bis 7.1), or a list of interstitial assets, with its URLs rewritten.
    pub async fn hls_json(self, is_steering: bool) -> EndpointResult {
        let address = self.with_directives(self.asked.params.destination("d")?);
        let cap = self.state.config.document_bytes.0;
        let document = self.state.shared.document(self.whole_request(address)?, CachePolicy::Playlist, cap).await?;
        if !document.status.is_success() {
            return Err(MediaError::Status(
                document.status,
                format!("{} has no such document", document.url.authority),
            ));
        }
        let children = self.asked.children(self.state);
        let mut place = UrlRewriter {
            children: &children,
            routing: SegmentRouting::for_request(self)?,
            inline: HashMap::new(),
            key_url: None,
            channel: ChannelOptions::default(),
        };
        let base = BaseUrl::from_url(&document.url);
        let body = if is_steering {
            steering::rewrite_steering(&document.body, &base, &mut place)
        } else {
            steering::rewrite_asset_list(&document.body, &base, &mut place)
        };
        let body = body.ok_or_else(|| MediaError::upstream("the origin sent no JSON in the place of a document"))?;
        Ok(Response::full(StatusCode::OK, "application/json", body))
    }
}

/// The bytes of a `data:` address after its scheme (RFC 2397). Base64 may be of either alphabet.
fn decode_data_url(text: &str) -> Option<Vec<u8>> {
    let (kind, data) = text.split_once(',')?;
    let data = address::decode_percent(data);
    if !kind.to_ascii_lowercase().ends_with(";base64") {
        return Some(data);
    }
    let data: Vec<u8> = data.into_iter().filter(|b| !b.is_ascii_whitespace() && *b != b'=').collect();
    STANDARD_NO_PAD.decode(&data).or_else(|_| URL_SAFE_NO_PAD.decode(&data)).ok()
}

/// The head of a segment that is decrypted completely: removing the padding changes the length, and ranges no longer
/// apply.
fn decrypted_head(head: &mut ResponseHead) {
    (head.status, head.reason) = (StatusCode::OK, Bytes::from_static(b"OK"));
    for name in ["content-range", "accept-ranges", "content-length", "etag"] {
        head.headers.remove(name);
    }
}

/// The media type for a file extension, for origins that send none.
fn media_type(extension: &str) -> Option<&'static str> {
    Some(match extension {
        "ts" | "m2ts" | "mpg" => "video/mp2t",
        "m4s" | "mp4" | "m4v" | "cmfv" => "video/mp4",
        "m4a" | "cmfa" => "audio/mp4",
        "aac" => "audio/aac",
        "ac3" => "audio/ac3",
        "ec3" => "audio/eac3",
        "mp3" => "audio/mpeg",
        "vtt" | "webvtt" => "text/vtt",
        "cmft" => "application/mp4",
        "ttml" => "application/ttml+xml",
        "jpg" => "image/jpeg",
        "png" => "image/png",
        _ => return None,
    })
}

/// Where players get segments from.
enum SegmentSource<'a> {
    Ours,
    Direct,
    Stremio(&'a str, String),
}

/// Which resources are routed through the gateway, by the link and the configuration.
struct SegmentRouting<'a> {
    segments: SegmentSource<'a>,
    /// Nothing is routed: URLs are only made absolute.
    nothing: bool,
}

impl<'a> SegmentRouting<'a> {
    fn for_request(job: MediaRequest<'a>) -> Result<Self, MediaError> {
        let (params, hls) = (&job.asked.params, &job.state.config.hls);
        let keys_alone = params.is_true("key_only_proxy") || job.asked.path.starts_with("/proxy/hls/key_proxy");
        let forced = params.is_true("force_playlist_proxy");
        let segments = match (params.get("segments"), hls.segments, &hls.stremio_url) {
            _ if keys_alone => SegmentSource::Direct,
            _ if forced => SegmentSource::Ours,
            (Some("direct"), ..) => SegmentSource::Direct,
            (Some("proxy"), ..) | (None, SegmentRoute::Proxy, _) => SegmentSource::Ours,
            (None, SegmentRoute::Direct, _) => SegmentSource::Direct,
            (None, SegmentRoute::Stremio, Some(url)) => SegmentSource::Stremio(url, stremio_fields(params.pairs())),
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
struct UrlRewriter<'a> {
    children: &'a ChildUrls,
    routing: SegmentRouting<'a>,
    inline: HashMap<String, String>,
    key_url: Option<&'a str>,
    /// Options for the next channel of the list, collected from the lines before its URL.
    channel: ChannelOptions,
}

impl UrlRewriter<'_> {
    fn child(&self, path: &str, address: &str, out: &mut Vec<u8>) {
        self.child_with(path, address, &[], out);
    }

    fn child_with(&self, path: &str, address: &str, more: &[(String, String)], out: &mut Vec<u8>) {
        let from = self.children.write_prefix(path, out);
        out.extend_from_slice(b"d=");
        push_value(address.as_bytes(), out);
        for (name, value) in more {
            out.push(b'&');
            out.extend_from_slice(name.as_bytes());
            out.push(b'=');
            push_value(value.as_bytes(), out);
        }
        self.children.write_signature(out, from);
    }

    fn segment(&self, address: &str, crypt: Option<&SegmentEncryption>, out: &mut Vec<u8>) {
        match &self.routing.segments {
            SegmentSource::Direct => out.extend_from_slice(address.as_bytes()),
            SegmentSource::Stremio(url, fields) => out.extend_from_slice(stremio(url, fields, address).as_bytes()),
            SegmentSource::Ours => {
                let path = segment_path(extension(address));
                let from = self.children.write_prefix(path, out);
                out.extend_from_slice(b"d=");
                push_value(address.as_bytes(), out);
                if let Some(crypt) = crypt {
                    out.extend_from_slice(b"&k=");
                    push_value(crypt.key.as_bytes(), out);
                    out.extend_from_slice(format!("&iv={}", crypt.iv.trim_start_matches('#')).as_bytes());
                    match crypt.method.as_str() {
                        "AES-128" => {}
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
                let from = self.children.write_prefix(segment_path(extension(address)), out);
                out.extend_from_slice(b"d=");
                push_value(address.as_bytes(), out);
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

    fn end_channel(&mut self) {
        self.channel.finish();
    }

    fn inline(&self, address: &str) -> Option<String> {
        self.inline.get(address).cloned()
    }
}

/// Static strings, because most lines of a long playlist need one. The extension helps players that judge by it.
fn segment_path(extension: &str) -> &'static str {
    match extension {
        "m4s" => "/proxy/hls/segment.m4s",
        "mp4" => "/proxy/hls/segment.mp4",
        "m4a" => "/proxy/hls/segment.m4a",
        "m4v" => "/proxy/hls/segment.m4v",
        "aac" => "/proxy/hls/segment.aac",
        "ac3" => "/proxy/hls/segment.ac3",
        "ec3" => "/proxy/hls/segment.ec3",
        "mp3" => "/proxy/hls/segment.mp3",
        "vtt" => "/proxy/hls/segment.vtt",
        "webvtt" => "/proxy/hls/segment.webvtt",
        "cmfv" => "/proxy/hls/segment.cmfv",
        "cmfa" => "/proxy/hls/segment.cmfa",
        "cmft" => "/proxy/hls/segment.cmft",
        "jpg" => "/proxy/hls/segment.jpg",
        "png" => "/proxy/hls/segment.png",
        "ttml" => "/proxy/hls/segment.ttml",
        _ => "/proxy/hls/segment.ts",
    }
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
