//! `/proxy/hls/*`: playlists rewritten, segments and keys relayed or decrypted.
//!
//! A URL given as a playlist may turn out to be media, and the reverse; the content decides ([`PlaylistProbe`]).

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use bytes::{Bytes, BytesMut};
use interflow_codec::content_coding;
use interflow_types::{Body, BodyFrame, ByteStr, Method, Response, ResponseHead, Result, StatusCode, percent};

use super::decrypt;
use super::error::{EndpointResult, MediaError, playlist_response};
use super::params::parse_range;
use super::request::MediaRequest;
use super::url_rewriter::{SegmentRouting, SegmentSource, UrlRewriter, media_type};
use crate::cenc::{ContentKey, ContentKeyRing, InitSegment};
use crate::config::HlsKeyMode;
use crate::dash::addressing::DashByteRange;
use crate::hls::rewrite::is_playlist_address;
use crate::hls::segment_skip::SkipRanges;
use crate::hls::tags::{attribute_text, is_playlist, lines, tag};
use crate::hls::variant_filter::VariantChoice;
use crate::hls::{
    HlsRewriteOptions, define::PlaylistVariables, rewrite_within, segment_skip, steering, variant_filter,
};
use crate::relay::address::{self, MediaAddress, push_value};
use crate::relay::fetch::FetchedDocument;
use crate::relay::segment_cache::TransformFn;
use crate::relay::ts_unwrap::unwrap_ts;
use crate::relay::{BaseUrl, CachePolicy, FetchRequest, FetchedResponse, ResponseTransform, header_filter, prefetch};
use crate::sample_aes::{Aes128Cbc, SampleAesTs, parse_iv};

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
        header_filter::remove_conditions(&mut ask.headers);
        header_filter::remove_fields(&mut ask.headers, &["range", "if-range"]);
        Ok(ask)
    }

    /// Fetches a resource that may be a playlist. Other content is relayed; a web page, such as a block or parking
    /// page, is rejected, since players would report something misleading.
    pub async fn find_playlist(self, address: MediaAddress) -> Result<PlaylistProbe, MediaError> {
        let credentials = address.clone();
        let named = is_playlist_address(address.url.path.as_str().as_bytes());
        let FetchedResponse { url, response, cookies } =
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
        if !is_one && (!claims || is_media(&seen)) {
            return Ok(PlaylistProbe::Other(self.forward_response(head, body)));
        }
        // Lists without a first line are lenient IPTV ones: comments and URLs.
        if !is_one && !is_plain_list(&seen) {
            let (bytes, _) = body.collect(MAX_PEEKED_BYTES as usize).await.unwrap_or_default();
            let text = format!("{} sent no playlist, but {}", url.authority, described(&head.headers, &bytes).await);
            return Err(MediaError::upstream(text));
        }
        let limit = self.state.config.playlist_limit();
        let fetched = FetchedResponse { url, response: Response { head, body }, cookies };
        let mut document = crate::relay::fetch::collect_within(fetched, limit).await?;
        document.userinfo = credentials.userinfo_for(&document.url);
        if let Some(text) = with_line_feeds(&document.body) {
            document.body = text.into();
        }
        Ok(PlaylistProbe::Playlist(document))
    }

    /// Relays a response of the origin as a stream.
    fn forward_response(self, head: ResponseHead, body: Body) -> Response {
        let mut head = header_filter::response_head(&head);
        self.asked.params.apply_header_overrides(&mut head.headers, false);
        let address = self.asked.params.get("d").unwrap_or_default();
        let origin = address.split('/').take(3).collect::<Vec<_>>().join("/");
        Response { head, body: self.track(body, "stream", origin) }
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
        let asked = &self.asked.with_cookies(&document.cookies);
        MediaRequest { asked, ..self }.rewrite_text(document, direct).await
    }

    pub fn variant_choice(self) -> Option<VariantChoice> {
        let (params, highest) = (&self.asked.params, VariantChoice::Highest);
        params.get("resolution").and_then(VariantChoice::read).or(params.is_true("max_res").then_some(highest))
    }

    async fn rewrite_text(self, document: &FetchedDocument, direct: bool) -> Result<Vec<u8>, MediaError> {
        let params = &self.asked.params;
        let mut text = Cow::Borrowed(&document.body[..]);
        // Variants and segments are removed before the rewriting, so that no link is made for them.
        if let Some(choice) = self.variant_choice() {
            text = variant_filter::filter_variants(&text, choice).into_owned().into();
        }
        if let Some(stretches) = params.get("skip").and_then(SkipRanges::read) {
            text = segment_skip::skip_segments(&text, &stretches).into_owned().into();
        }
        let imported = |(n, v): &(String, String)| Some((n.strip_prefix("v_")?.to_owned(), v.clone()));
        let imported: Vec<_> = params.pairs.iter().filter_map(imported).collect();
        let variables = PlaylistVariables::collect(&text, document.url.query(), &imported)?;
        let is_multivariant = memchr::memmem::find(&text, b"#EXT-X-STREAM-INF").is_some();
        // Variables of a multivariant playlist may be imported by its media playlists (RFC 8216bis 4.4.2.3), which are
        // requested without it: their values go with the links.
        let handed_down = if is_multivariant { variables.pairs() } else { &[] };
        let handed_down = handed_down.iter().map(|(n, v)| (format!("v_{n}"), v.clone())).collect();
        let mut routing = SegmentRouting::for_request(self)?;
        routing.nothing |= direct;
        // Credentials are not handed to players.
        let base = if routing.nothing { BaseUrl::from_url(&document.url) } else { document.base() };
        let keys = self.key_use(&routing)?;
        let inline = match keys {
            HlsKeyMode::Inline => self.keys_of(&text, &base, &variables).await,
            HlsKeyMode::Relay | HlsKeyMode::Apply => HashMap::new(),
        };
        if !inline.is_empty() {
            self.marks.has_keys.store(true, Relaxed);
        }
        let through = matches!(routing.segments, SegmentSource::Ours) && !routing.nothing;
        let own_keys = through && self.keys()?.is_some();
        if own_keys && has_foreign_transport_keys(&text) {
            let text = "the keys of this link are for MP4, but the playlist has encrypted MPEG-TS segments whose keys come \
                        from a licence server; leave `key` out to get them as they are";
            return Err(MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, text.into()));
        }
        let options = HlsRewriteOptions {
            apply_keys: keys == HlsKeyMode::Apply,
            own_keys,
            moves_ranges: through && params.get("transformer") == Some("ts_stream"),
            start: self.start(&text)?,
            variables,
        };
        if self.state.config.cache.prefetch > 0 && matches!(routing.segments, SegmentSource::Ours) {
            self.state.ahead.record_playlist(&document.url.to_string(), prefetch::segment_refs(&text, &base));
        }
        let children = self.asked.children_with(self.state, handed_down);
        let mut rewriter = UrlRewriter {
            inline,
            key_url: params.get("key_url"),
            is_images: memchr::memmem::find(&text, b"#EXT-X-IMAGES-ONLY").is_some(),
            ..UrlRewriter::new(&children, routing, document)
        };
        let most = self.state.config.rewritten_bytes.0;
        Ok(rewrite_within(&text, &base, &options, &mut rewriter, most).await?)
    }

    /// How keys are delivered: by the link, else by the configuration.
    fn key_use(self, routing: &SegmentRouting<'_>) -> Result<HlsKeyMode, MediaError> {
        let key_mode = match self.asked.params.get("keys") {
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
        Ok(if key_mode == HlsKeyMode::Apply && !through { HlsKeyMode::Relay } else { key_mode })
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
        let mut resolved = HashMap::new();
        for line in lines(text) {
            let Some((b"EXT-X-KEY" | b"EXT-X-SESSION-KEY", list)) = tag(line.content(text)) else { continue };
            let Some(uri) = attribute_text(list, b"URI") else { continue };
            let Some(uri) = variables.fill(uri) else { continue };
            let address = base.resolve(&uri);
            if resolved.len() >= MAX_INLINE_KEYS
                || resolved.contains_key(&address)
                || !address::is_http(address.as_bytes())
            {
                continue;
            }
            if let Ok(key) = self.key::<16>(&address).await {
                resolved.insert(address, format!("data:application/octet-stream;base64,{}", STANDARD.encode(key)));
            }
        }
        resolved
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
        let range = parse_range(params.get("segment_range"))?;
        let mut response = match (params.get("k"), params.get("method")) {
            (Some(key), _) if params.get("init_url").is_some() => {
                let keys = ContentKeyRing::any(ContentKey(self.key(key).await?));
                self.decrypt_samples(address, keys, range).await?
            }
            (Some(key), _) => self.decrypt_segment(address, key, range).await?,
            (None, Some("cenc")) => {
                let keys = self.keys()?.ok_or_else(|| MediaError::missing("key"))?;
                self.decrypt_samples(address, keys, range).await?
            }
            (None, Some("init")) => {
                // Without encryption boxes, so that players take the track for a clear one.
                let work = self.decryption("init", ContentKeyRing::default(), None, 0);
                self.relay_segment(address, range, Some(ResponseTransform { takes_ranges: true, ..work })).await?
            }
            (None, _) => self.relay_segment(address, range, None).await?,
        };
        let kind = response.head.headers.get_str("content-type").unwrap_or_default();
        // Players judge by the type, and some origins send none that means anything.
        let says_nothing = ["", "application/octet-stream", "binary/octet-stream", "text/plain"].contains(&kind);
        if says_nothing
            && response.head.status.is_success()
            && let Some(kind) = media_type(extension)
        {
            let _ = response.head.headers.set("Content-Type", kind);
        }
        Ok(response)
    }

    /// A segment, or the part of the origin's resource that is one, transformed by `work`.
    async fn relay_segment(
        self,
        address: MediaAddress,
        range: Option<DashByteRange>,
        work: Option<ResponseTransform>,
    ) -> EndpointResult {
        let Some(range) = range else { return self.relay(address, "segment", Some(work)).await };
        let Response { mut head, mut body } = self.relay_part(address, Some(range), work).await?;
        // To the client this part is the complete resource.
        if header_filter::present_as_whole(&mut head) && self.asked.params.get("transformer") == Some("ts_stream") {
            head.headers.remove("content-length");
            let _ = head.headers.set("Content-Type", "video/mp2t");
            body = unwrap_ts(body);
        }
        self.asked.params.apply_header_overrides(&mut head.headers, true);
        Ok(Response { head, body })
    }

    /// A segment that is encrypted as a whole (AES-128, AES-256), or whose samples are (SAMPLE-AES in MPEG-TS).
    /// It can only be decrypted as a whole, and its padding is removed, so it has no ranges.
    async fn decrypt_segment(self, address: MediaAddress, key: &str, range: Option<DashByteRange>) -> EndpointResult {
        self.note_decryption();
        let params = &self.asked.params;
        let iv = params
            .get("iv")
            .and_then(|iv| parse_iv(&format!("0x{iv}")))
            .ok_or_else(|| MediaError::bad_request("`iv` is not a 16-byte vector"))?;
        // The key itself is part of the identity: two links with different keys must not share a result.
        let id = |method: &str, key: &[u8]| *blake3::hash(&[method.as_bytes(), key, &iv].concat()).as_bytes();
        let (id, run): (_, TransformFn) = match params.get("method") {
            Some("AES-256") => {
                let key: [u8; 32] = self.key(key).await?;
                (id("aes-256", &key), decrypt_whole(Aes128Cbc::new_256(&key, iv)))
            }
            Some("SAMPLE-AES") => {
                let key: [u8; 16] = self.key(key).await?;
                let run = move |head: &mut ResponseHead, body: Body| {
                    // Bytes are removed within the samples' packets, so that the origin's ranges do not fit.
                    head.headers.remove("accept-ranges");
                    let remaining = body.remaining();
                    Ok(decrypt::transformed(body, SampleAesTs::new(&ContentKey(key), iv), remaining))
                };
                (id("sample-aes", &key), Box::new(run))
            }
            _ => {
                let key: [u8; 16] = self.key(key).await?;
                (id("aes-128", &key), decrypt_whole(Aes128Cbc::new(&ContentKey(key), iv)))
            }
        };
        let work = ResponseTransform { id, takes_ranges: false, run };
        self.relay_segment(address, range, Some(work)).await
    }

    /// A segment of MP4 whose samples are decrypted (SAMPLE-AES, or common encryption with the link's own keys). The
    /// length is unchanged, so ranges stay valid.
    async fn decrypt_samples(
        self,
        address: MediaAddress,
        keys: ContentKeyRing,
        range: Option<DashByteRange>,
    ) -> EndpointResult {
        self.note_decryption();
        let init = self.init_section().await?;
        // A missing key is reported with its id.
        init.iter().try_for_each(|init| init.check_keys(&keys))?;
        if range.is_none() && self.head.headers.contains("range") {
            return self.decrypted_file(address, keys, init).await;
        }
        let work = self.decryption("samples", keys, init, range.map_or(0, |(first, _)| first));
        self.relay_segment(address, range, Some(work)).await
    }

    /// The decryption of a segment as a transformation, which `how` tells from others of it. `at`: its offset in the
    /// origin's resource.
    pub fn decryption(
        self,
        how: &str,
        keys: ContentKeyRing,
        init: Option<Arc<InitSegment>>,
        at: u64,
    ) -> ResponseTransform {
        let run = move |_: &mut ResponseHead, body: Body| {
            decrypt::segment(keys, init, at, body).map_err(MediaError::into_error)
        };
        ResponseTransform { id: self.work_id(how), takes_ranges: false, run: Box::new(run) }
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
        let ask = self.whole_request(address.clone())?;
        let mut document = self.state.shared.document(ask, CachePolicy::Playlist, cap).await?;
        document.userinfo = address.userinfo_for(&document.url);
        if !document.status.is_success() {
            return Err(MediaError::Status(
                document.status,
                format!("{} has no such document", document.url.authority),
            ));
        }
        let children = self.asked.with_cookies(&document.cookies).children(self.state);
        let mut rewriter = UrlRewriter::new(&children, SegmentRouting::for_request(self)?, &document);
        let base = document.base();
        let body = if is_steering {
            steering::rewrite_steering(&document.body, &base, &mut rewriter)
        } else {
            steering::rewrite_asset_list(&document.body, &base, &mut rewriter)
        };
        let body = body.ok_or_else(|| MediaError::upstream("the origin sent no JSON in the place of a document"))?;
        Ok(Response::full(StatusCode::OK, "application/json", body))
    }
}

/// The bytes of a `data:` address after its scheme (RFC 2397). Base64 may be of either alphabet.
fn decode_data_url(text: &str) -> Option<Vec<u8>> {
    let (kind, data) = text.split_once(',')?;
    let data = percent::decoded_bytes(data.as_bytes()).into_owned();
    if !kind.to_ascii_lowercase().ends_with(";base64") {
        return Some(data);
    }
    let data: Vec<u8> = data.into_iter().filter(|b| !b.is_ascii_whitespace() && *b != b'=').collect();
    STANDARD_NO_PAD.decode(&data).or_else(|_| URL_SAFE_NO_PAD.decode(&data)).ok()
}

/// Decrypts a segment that is encrypted as a whole (RFC 8216 4.3.2.4). Its PKCS #7 padding is removed, which changes the
/// length, and ranges do not apply.
fn decrypt_whole(cipher: Aes128Cbc) -> TransformFn {
    Box::new(move |head, body| {
        header_filter::remove_fields(&mut head.headers, &["accept-ranges", "content-length", "etag"]);
        Ok(decrypt::transformed(body, cipher, None))
    })
}

/// Whether a playlist has transport streams whose samples are encrypted with keys of a key system. There is no way to
/// decrypt them with keys by id.
fn has_foreign_transport_keys(text: &[u8]) -> bool {
    memchr::memmem::find(text, b"#EXTINF").is_some()
        && memchr::memmem::find(text, b"#EXT-X-MAP").is_none()
        && lines(text).filter_map(|line| tag(line.content(text))).any(|(name, list)| {
            let is_sample = || attribute_text(list, b"METHOD").is_some_and(|m| m.starts_with("SAMPLE-AES"));
            let is_foreign = || attribute_text(list, b"KEYFORMAT").is_some_and(|f| f != "identity");
            name == b"EXT-X-KEY" && is_sample() && is_foreign()
        })
}

/// Whether a body is media by its first bytes: MPEG-TS, a box of MP4, packed audio.
fn is_media(seen: &[u8]) -> bool {
    let boxes = [b"ftyp", b"styp", b"moov", b"moof", b"sidx", b"emsg", b"prft"];
    match seen {
        [0x47, ..] | [b'I', b'D', b'3', ..] => true,
        [0xff, second, ..] if *second >= 0xe0 && *second != 0xfe => true,
        [_, _, _, _, kind @ ..] => boxes.iter().any(|b| kind.starts_with(&b[..3])),
        _ => false,
    }
}

/// A text whose lines end with a carriage return alone, with line feeds in their place; `None` for any other. A carriage
/// return inside a line, such as in a title, is not a line end where others are.
fn with_line_feeds(text: &[u8]) -> Option<Vec<u8>> {
    let start = text.iter().position(|b| !matches!(b, b'\r' | b'\n'))?;
    let first = start + memchr::memchr2(b'\r', b'\n', text.get(start..)?)?;
    let is_alone = |at: usize| text.get(at) == Some(&b'\r') && text.get(at + 1) != Some(&b'\n');
    is_alone(first).then(|| text.iter().enumerate().map(|(at, b)| if is_alone(at) { b'\n' } else { *b }).collect())
}

/// Whether a text without `#EXTM3U` begins as a list does: with a comment or a URL.
fn is_plain_list(seen: &[u8]) -> bool {
    let text = seen.strip_prefix(b"\xef\xbb\xbf").unwrap_or(seen).trim_ascii_start();
    let is_name = |b: &u8| b.is_ascii_alphanumeric();
    let rest = text.iter().position(|b| !is_name(b)).and_then(|at| text.get(at..)).unwrap_or_default();
    text.starts_with(b"#") || rest.starts_with(b":/") && text.len() > rest.len()
}

/// What an origin sent in the place of a playlist, for an error message: its beginning if it is a text.
async fn described(headers: &interflow_types::Headers, body: &Bytes) -> String {
    if body.is_empty() {
        return "an empty body".to_owned();
    }
    let kind = headers.get_str("content-type").unwrap_or("unknown type");
    let decoded = content_coding::decode_off_thread(headers, body, MAX_PEEKED_BYTES).await.ok().flatten();
    let text = decoded.as_ref().unwrap_or(body);
    let text = text.get(..text.len().min(200)).unwrap_or_default();
    let is_text = text.iter().all(|b| *b >= b' ' || b.is_ascii_whitespace());
    match is_text {
        // On one line.
        true => {
            let words = String::from_utf8_lossy(text).split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{kind}: {words}")
        }
        false => format!("{kind} (the text of a playlist is UTF-8)"),
    }
}
