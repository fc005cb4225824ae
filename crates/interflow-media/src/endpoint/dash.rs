//! `/proxy/mpd/*`: manifests converted to HLS or rewritten, segments relayed or decrypted with configured keys.
//!
//! No state is kept per client: the URLs in a playlist carry what is needed to serve them (the origin's URLs, keys, the
//! initialization section), and the manifest is fetched again for each playlist, through a cache. Manifests can be
//! large and are untrusted, so their size, the number of their elements, and the size of what is generated from them
//! are limited, and long work is kept off the threads that serve connections.

use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{Body, Error, ErrorKind, Response, ResponseHead, StatusCode};
use tokio::sync::Semaphore;

use super::access::AuthorizedRequest;
use super::dash_links::{SegmentUse, init_section_of, init_url, segment_child, segment_url};
use super::decrypt;
use super::error::{EndpointResult, MediaError, Result, playlist_response};
use super::live_timeline::PlaylistPosition;
use super::params::parse_range;
use super::request::MediaRequest;
use crate::bmff::{SegmentIndex, boxes, init_length};
use crate::cenc::{CencError, ContentKeyRing, InitSegment};
use crate::dash::addressing::{AddressingMode, DashByteRange, TemplateValues, fill};
use crate::dash::model::{self, DashManifest, DashMediaKind, DashPeriod, Representation};
use crate::dash::segments::{self, DashSegment};
use crate::dash::to_hls::{self, HlsOptions, PlaylistHeader, PlaylistPeriod};
use crate::dash::{to_mpd, to_mpd::ManifestUrlKind, xml};
use crate::relay::address::parse;
use crate::relay::{BaseUrl, CachePolicy, FetchRequest, MediaAddress, ResponseTransform, header_filter};
use crate::remux::{self, TsMuxer};
use crate::webvtt;

/// Bytes read from the beginning of a file to find its index, if the manifest does not say where it is.
const INDEX_READ_BYTES: u64 = 64 << 10;
/// Maximum number of indexes read per file: an index may refer to further ones.
const MAX_INDEXES: usize = 64;

/// Maximum number of periods of a track whose initialization section is examined for encryption.
const MAX_CHECKED_PERIODS: usize = 8;

/// Manifests above this size are parsed on a blocking thread, in bytes.
const BLOCKING_MANIFEST_BYTES: usize = 256 << 10;
/// Playlists above this number of segments are generated on a blocking thread.
const BLOCKING_SEGMENTS: usize = 5000;
/// Concurrent blocking manifest jobs; others wait.
static BLOCKING_SLOTS: Semaphore = Semaphore::const_new(4);

/// Runs work on a blocking thread if it is `long`, and inline otherwise.
async fn run_off_workers<T: Send + 'static>(
    long: bool,
    run: impl FnOnce() -> interflow_types::Result<T> + Send + 'static,
) -> Result<T> {
    if !long {
        return Ok(run()?);
    }
    let failed =
        |e: &dyn std::fmt::Display| MediaError::Failed(Error::new(ErrorKind::Internal, format!("a manifest: {e}")));
    // The slot is kept by the work, not by this future, which may be dropped.
    let permit = BLOCKING_SLOTS.acquire().await.map_err(|e| failed(&e))?;
    let done = tokio::task::spawn_blocking(move || {
        let _place = permit;
        run()
    });
    Ok(done.await.map_err(|e| failed(&e))??)
}

/// What the beginning of a file says: its segments, if it has an index, and the range of its initialization section.
#[derive(Default)]
struct FileIndex {
    segments: Option<Vec<DashSegment>>,
    init: Option<DashByteRange>,
}

struct FetchedManifest {
    /// As received, to be rewritten as MPD.
    text: Bytes,
    manifest: Arc<DashManifest>,
    /// The URL for its next update: its `Location`, or its own.
    address: String,
    /// The request with the cookies for what it refers to.
    asked: AuthorizedRequest,
}

impl MediaRequest<'_> {
    /// Fetches and parses the manifest that the link names. Cached only for as long as playlists are.
    async fn mpd(self) -> Result<FetchedManifest> {
        let destination = self.asked.params.destination("d")?;
        let (address, credentials) = (destination.text(), destination.clone());
        let limit = self.state.config.playlist_limit();
        let document =
            self.state.shared.document_within(self.whole_request(destination)?, CachePolicy::Playlist, limit).await?;
        if !document.status.is_success() {
            let text = format!("{} answered {} for the manifest", document.url.authority, document.status);
            return Err(MediaError::Status(document.status, text));
        }
        let userinfo = credentials.userinfo_for(&document.url);
        let (text, base) = (document.body.clone(), BaseUrl::from_url(&document.url).with_userinfo(userinfo.as_deref()));
        let read = move || model::read(&xml::read(&text)?, &base).map(Arc::new);
        let manifest = run_off_workers(document.body.len() > BLOCKING_MANIFEST_BYTES, read).await?;
        let address = manifest.location.clone().unwrap_or(address);
        let asked = self.asked.with_cookies(&document.cookies);
        Ok(FetchedManifest { text: document.body, manifest, address, asked })
    }

    fn hls_options(self) -> HlsOptions {
        let params = &self.asked.params;
        let height = self.variant_choice();
        let ts =
            params.get("remux_to_ts").map_or(self.state.config.dash.remux_to_ts, |_| params.is_true("remux_to_ts"));
        let most = Some(self.state.config.rewritten_bytes.0);
        let mp4_text = params.get("subtitles") == Some("mp4");
        HlsOptions { height, language: params.get("language").map(str::to_owned), ts, mp4_text, most }
    }

    /// The content keys of the link; `None` if it has none.
    pub fn keys(self) -> Result<Option<ContentKeyRing>> {
        let params = &self.asked.params;
        let Some(key) = params.get("key") else { return Ok(None) };
        let ring = ContentKeyRing::parse(params.get("key_id"), key)
            .map_err(|e| MediaError::bad_request(format!("`key`: {e}")))?;
        Ok(Some(ring))
    }

    /// The keys of the link, of which the response is decrypted if there are any.
    fn noted_keys(self) -> Result<Option<ContentKeyRing>> {
        Ok(self.keys()?.inspect(|_| self.note_decryption()))
    }

    /// The multivariant playlist of a manifest. Live streams may have several periods, of which the main one decides
    /// about the tracks.
    pub async fn mpd_master(self) -> EndpointResult {
        let FetchedManifest { manifest, address, asked, .. } = self.mpd().await?;
        // Invalid keys are reported now, and not with the first segment.
        self.keys()?;
        to_hls::check_encryption(&manifest)?;
        let options = self.hls_options();
        let period =
            to_hls::main_period(&manifest).ok_or_else(|| MediaError::upstream("the manifest lists no media"))?;
        let job = MediaRequest { asked: &asked, ..self };
        for own in to_hls::encrypted_kinds(period) {
            job.check_clear(own, None).await?;
        }
        let children = asked.children(self.state);
        let text = to_hls::master(period, &options, |track| {
            let (profile, language) = (track.profile(), track.set.language.as_deref().unwrap_or_default());
            let parameters = [
                ("d", address.as_str()),
                ("profile_id", &profile),
                ("kind", track.set.media.as_str()),
                ("lang", language),
            ];
            children.url("/proxy/mpd/playlist.m3u8", &parameters)
        })?;
        let mut response = playlist_response(text);
        self.asked.params.apply_header_overrides(&mut response.head.headers, false);
        Ok(response)
    }

    /// A track's playlist. For live streams, the segments are numbered consistently with the last one.
    pub async fn mpd_playlist(self) -> EndpointResult {
        let params = &self.asked.params;
        let profile = params.get("profile_id").ok_or_else(|| MediaError::missing("profile_id"))?;
        let media = params.get("kind").and_then(DashMediaKind::from_name);
        let language = params.get("lang").unwrap_or_default();
        let FetchedManifest { manifest, address, asked, .. } = self.mpd().await?;
        to_hls::check_encryption(&manifest)?;
        let now = self.origin_time(&manifest.clocks).await;
        let job = MediaRequest { asked: &asked, ..self };
        let (mut parts, mut count) = (Vec::new(), 0);
        // Periods announced for the future are not listed.
        for period in manifest.periods.iter().filter(|p| !manifest.is_live || manifest.available + p.start <= now) {
            let Some(track) = to_hls::find(period, profile, media, language) else { continue };
            let FileIndex { segments, init } = job.load_index(track.own, period).await?;
            let listed = match segments {
                Some(indexed) => indexed,
                None => segments::list(track.own, period, &manifest, now)?,
            };
            count += listed.len();
            if count > segments::MAX_SEGMENTS {
                return Err(segments::too_many().into());
            }
            parts.push(PlaylistPeriod { period, track, segments: listed, init });
            // Between periods other tasks may run: a manifest can have thousands of them.
            tokio::task::yield_now().await;
        }
        let is_text =
            parts.first().is_some_and(|p| matches!(p.track.set.media, DashMediaKind::Text | DashMediaKind::Image));
        if parts.is_empty() {
            return Err(MediaError::not_found(format!("the manifest has no track `{profile}`")));
        }
        if count == 0 && !manifest.is_live {
            let text = format!(
                "the manifest lists no segments of the track `{profile}`: its periods are empty, or past its end"
            );
            return Err(MediaError::upstream(text));
        }
        let is_examined = |i: usize| i == 0 && !is_text || parts.get(i).is_some_and(|p| p.track.own.is_protected);
        for i in (0..parts.len()).filter(|i| is_examined(*i)).take(MAX_CHECKED_PERIODS) {
            if let Some(part) = parts.get(i) {
                job.check_clear(part.track.own, part.init).await?;
            }
        }
        self.trim_live_window(&manifest, &mut parts);
        let line = if manifest.is_live {
            self.state.lines.position(&format!("{address} {profile} {language}"), &parts)
        } else {
            PlaylistPosition::default()
        };
        let options = self.hls_options();
        let (ts, mp4_text) = (options.ts && !is_text, options.mp4_text);
        let start = match params.number("start_offset")? {
            Some(start) => Some(start),
            None if !manifest.is_live => None,
            // A negative offset counts from the end, in HLS as here.
            None => manifest.delay.map(|d| -d).or(Some(self.state.config.hls.live_start).filter(|s| *s != 0.0)),
        };
        let most = Some(self.state.config.rewritten_bytes.0);
        let frame = PlaylistHeader { sequence: line.sequence, discontinuities: line.discontinuities, start, ts, most };
        let (children, keyed) = (asked.children(self.state), params.get("key").is_some());
        let write = move |manifest: &DashManifest, parts: &[PlaylistPeriod<'_>]| {
            to_hls::media(manifest, parts, frame, |wanted| match wanted {
                to_hls::UrlKind::Init(part) if part.track.is_wvtt() && !mp4_text => None,
                to_hls::UrlKind::Init(part) => {
                    init_section_of(part.track.own, part.init).map(|(a, r)| init_url(&children, &a, r))
                }
                to_hls::UrlKind::Segment(part, segment) => {
                    segment_url(&children, part, segment, SegmentUse { ts, keyed, mp4_text })
                }
            })
        };
        let text = if count <= BLOCKING_SEGMENTS {
            write(&manifest, &parts)?
        } else {
            // The track is looked up again there, because it is borrowed.
            let listed: Vec<_> = parts.into_iter().map(|p| (p.period.start, p.segments, p.init)).collect();
            let (manifest, profile, language) = (Arc::clone(&manifest), profile.to_owned(), language.to_owned());
            let write = move || {
                let mut listed = listed.into_iter().peekable();
                let part = |period| {
                    let track = to_hls::find(period, &profile, media, &language)?;
                    let (_, segments, init) = listed.next_if(|(start, ..)| *start == period.start)?;
                    Some(PlaylistPeriod { period, track, segments, init })
                };
                let parts: Vec<_> = manifest.periods.iter().filter_map(part).collect();
                write(&manifest, &parts)
            };
            run_off_workers(true, write).await?
        };
        let mut response = playlist_response(text);
        params.apply_header_overrides(&mut response.head.headers, false);
        Ok(response)
    }

    /// Refuses an encrypted track if the link has no keys: HLS players cannot use the key systems of a manifest, and would
    /// get encrypted bytes. The initialization section decides, and the manifest where that cannot be read.
    async fn check_clear(self, own: &Representation, in_file: Option<DashByteRange>) -> Result<()> {
        if self.asked.params.get("key").is_some() {
            return Ok(());
        }
        let (mut is_protected, mut kid) = (own.is_protected, own.key_id.clone());
        if let Some((addresses, range)) = init_section_of(own, in_file)
            && let Ok(bytes) = self.bytes_from(&addresses, range).await
        {
            match InitSegment::parse(&bytes) {
                Ok(section) => {
                    is_protected = section.is_protected();
                    let named = section.kids().into_iter().find(|kid| kid.0 != [0; 16]);
                    kid = named.map(|kid| kid.to_string()).or(kid);
                }
                Err(CencError::Scheme { .. }) => is_protected = true,
                Err(_) => {}
            }
        }
        if !is_protected {
            return Ok(());
        }
        let text = match kid {
            Some(kid) => format!("no key was given for KID {kid}: pass it as key={kid}:KEY"),
            None => {
                "no key was given for the encrypted media, which does not name its KID: pass it as key=KEY".to_owned()
            }
        };
        let text = format!("{text}. DASH players that get their keys elsewhere have it at /proxy/mpd/manifest.mpd");
        Err(MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, text))
    }

    /// Omits segments that the link skips, and for live tracks everything but the end, which is all that players
    /// need.
    fn trim_live_window(self, manifest: &DashManifest, parts: &mut [PlaylistPeriod<'_>]) {
        let skip = self.asked.params.get("skip").filter(|_| !manifest.is_live);
        if let Some(stretches) = skip.and_then(crate::hls::segment_skip::SkipRanges::read) {
            for part in parts.iter_mut() {
                let begins = part.period.start;
                part.segments.retain(|s| !stretches.overlaps(begins + s.start, begins + s.start + s.duration));
            }
        }
        let most = self.state.config.dash.live_segments as usize;
        let all: usize = parts.iter().map(|p| p.segments.len()).sum();
        if !manifest.is_live || most == 0 || all <= most {
            return;
        }
        // From the beginning, over as many periods as it takes.
        let mut over = all - most;
        for part in parts.iter_mut() {
            let gone = over.min(part.segments.len());
            part.segments.drain(..gone);
            over -= gone;
        }
    }

    /// What a file says about its segments (`sidx`) and its initialization section; nothing for other addressing modes.
    async fn load_index(self, own: &Representation, period: &DashPeriod) -> Result<FileIndex> {
        let range = match &own.addressing.form {
            AddressingMode::Base { index: Some(range) } => *range,
            AddressingMode::Base { index: None } => (0, INDEX_READ_BYTES - 1),
            AddressingMode::Whole if own.mime.ends_with("/mp4") || own.mime.ends_with("/webm") => {
                (0, INDEX_READ_BYTES - 1)
            }
            _ => return Ok(FileIndex::default()),
        };
        let mut init = None;
        let mut listed: Vec<DashSegment> = Vec::new();
        let mut todo = vec![range];
        let mut read = 0;
        while let Some(range) = todo.pop() {
            // An index may refer to further ones, and these to themselves.
            read += 1;
            if read > MAX_INDEXES {
                return Err(MediaError::upstream("the file's index leads to too many others"));
            }
            let bytes = self.bytes_from(&own.bases, Some(range)).await?;
            if range.0 == 0 && init.is_none() {
                init = init_length(&bytes).map(|length| (0, length - 1));
            }
            let Some(index) = index_in(&bytes, range.0)? else { continue };
            listed.extend(segments::index_segments(&index, &own.addressing, period, listed.len() as u64 + 1));
            let further = index.references.iter().filter(|r| r.index && r.size > 0);
            let further: Vec<_> = further.map(|r| (r.offset, r.offset + u64::from(r.size) - 1)).collect();
            // In reverse, because the last one is taken first.
            todo.extend(further.into_iter().rev());
        }
        listed.sort_by(|a, b| a.start.total_cmp(&b.start));
        Ok(FileIndex { segments: (!listed.is_empty()).then_some(listed), init })
    }

    fn with_byte_range(self, address: MediaAddress, range: Option<DashByteRange>) -> Result<FetchRequest> {
        let mut ask = self.whole_request(address)?;
        if let Some((first, last)) = range {
            let _ = ask.headers.set("Range", format!("bytes={first}-{last}"));
        }
        Ok(ask)
    }

    /// The bytes at an address, or a range of them, limited by `media.document_bytes`.
    async fn bytes(self, address: &str, range: Option<DashByteRange>) -> Result<Bytes> {
        let ask = self.with_byte_range(parse(address)?, range)?;
        let cap = self.state.config.document_bytes.0;
        let document = self.state.shared.document(ask, CachePolicy::Segment, cap).await?;
        match (document.status, range) {
            (StatusCode::PARTIAL_CONTENT, _) | (StatusCode::OK, None) => Ok(document.body),
            // The origin does not support ranges.
            (StatusCode::OK, Some((first, last))) => {
                let end = document.body.len().min(usize::try_from(last).unwrap_or(usize::MAX).saturating_add(1));
                Ok(document.body.slice(usize::try_from(first).unwrap_or(usize::MAX).min(end)..end))
            }
            (status, _) => Err(MediaError::Status(status, format!("{} answered {status}", document.url.authority))),
        }
    }

    /// Like [`bytes`](Self::bytes), from the first of several URLs (`BaseURL`) that succeeds.
    async fn bytes_from(self, addresses: &[String], range: Option<DashByteRange>) -> Result<Bytes> {
        let mut last = None;
        for address in addresses {
            match self.bytes(address, range).await {
                Ok(bytes) => return Ok(bytes),
                Err(e) => last = Some(e),
            }
        }
        Err(last.unwrap_or_else(|| MediaError::bad_request("no address is given")))
    }

    /// The initialization section that the link names; `None` if it names none.
    async fn init_bytes(self) -> Result<Option<Bytes>> {
        let params = &self.asked.params;
        let named = params.pairs.iter().filter(|(n, _)| n == "init_url" || n == "init_alt");
        let addresses: Vec<String> = named.map(|(_, address)| super::params::decode_if_base64(address)).collect();
        if addresses.is_empty() {
            return Ok(None);
        }
        self.bytes_from(&addresses, parse_range(params.get("init_range"))?).await.map(Some)
    }

    /// An initialization section, decrypted if the link has keys: then it declares a clear track.
    pub async fn mpd_init(self) -> EndpointResult {
        let params = &self.asked.params;
        let bytes = self.init_bytes().await?.ok_or_else(|| MediaError::missing("init_url"))?;
        let bytes = decrypt::init(self.noted_keys()?, bytes)?;
        let kind = params.get("mime_type").filter(|k| k.contains('/')).unwrap_or("video/mp4");
        Ok(self.generated_segment(kind, bytes))
    }

    /// A segment, decrypted if the link has keys.
    pub async fn mpd_segment(self, extension: &str) -> EndpointResult {
        match extension {
            "ts" => self.mpd_ts().await,
            "vtt" if self.asked.params.get("init_url").is_some() => self.mpd_vtt().await,
            _ => self.clear_segment().await,
        }
    }

    /// A segment of cues in MP4 as WebVTT, decrypted first if the link has keys.
    async fn mpd_vtt(self) -> EndpointResult {
        let params = &self.asked.params;
        let section = self.init_section().await?.ok_or_else(|| MediaError::missing("init_url"))?;
        let range = parse_range(params.get("segment_range"))?;
        let at = range.map_or(0, |(first, _)| first);
        let mut bytes = self.bytes_from(&self.segment_addresses()?, range).await?;
        if let Some(keys) = self.noted_keys()? {
            let body = decrypt::segment(keys, Some(Arc::clone(&section)), at, Body::Full(bytes.clone()))?;
            let body = decrypt::wait_for_first_bytes(body).await?;
            (bytes, _) = body.collect(bytes.len()).await.map_err(MediaError::upstream)?;
        }
        let track = section.movie.tracks.first().ok_or_else(|| MediaError::upstream("the subtitles have no track"))?;
        // As late as the pictures that are remuxed.
        let shift = if self.hls_options().ts { remux::RemuxOptions::default().shift } else { 0 };
        let text = webvtt::from_mp4(track, &bytes, at, shift)
            .map_err(|e| MediaError::upstream(format!("the subtitles cannot be read: {e}")))?;
        Ok(self.generated_segment("text/vtt", text))
    }

    /// A segment or an initialization section that was made here.
    fn generated_segment(self, kind: &str, bytes: impl Into<Bytes>) -> Response {
        let mut response = Response::full(StatusCode::OK, kind, bytes);
        self.asked.params.apply_header_overrides(&mut response.head.headers, true);
        response
    }

    async fn clear_segment(self) -> EndpointResult {
        let params = &self.asked.params;
        let range = parse_range(params.get("segment_range"))?;
        let mut response = match self.noted_keys()? {
            None => self.try_addresses(range, None, |_| None).await?,
            Some(keys) => {
                let init = self.init_section().await?;
                init.iter().try_for_each(|init| init.check_keys(&keys))?;
                // A range of a decrypted file needs its index.
                let file =
                    (range.is_none() && self.head.headers.contains("range")).then(|| (keys.clone(), init.clone()));
                let at = range.map_or(0, |(first, _)| first);
                self.try_addresses(range, file, |job| Some(job.decryption("clear", keys.clone(), init.clone(), at)))
                    .await?
            }
        };
        if range.is_some() {
            header_filter::present_as_whole(&mut response.head);
        }
        if let Some(kind) = params.get("mime_type").filter(|k| k.contains('/')) {
            let _ = response.head.headers.set("Content-Type", kind);
        }
        params.apply_header_overrides(&mut response.head.headers, true);
        Ok(response)
    }

    /// The parsed initialization section that the link names, for the parameters of its encryption.
    pub async fn init_section(self) -> Result<Option<Arc<InitSegment>>> {
        let Some(bytes) = self.init_bytes().await? else { return Ok(None) };
        Ok(Some(InitSegment::parse(&bytes)?))
    }

    /// The segment from the first URL that succeeds, transformed. `file`: the client requests a range of a decrypted
    /// file.
    async fn try_addresses(
        self,
        range: Option<DashByteRange>,
        file: Option<(ContentKeyRing, Option<Arc<InitSegment>>)>,
        work: impl Fn(Self) -> Option<ResponseTransform>,
    ) -> EndpointResult {
        let addresses = self.segment_addresses()?;
        let mut last = None;
        for address in addresses {
            let parsed = parse(&address)?;
            let answer = match (&file, range) {
                (Some((keys, init)), _) => self.decrypted_file(parsed, keys.clone(), init.clone()).await,
                // A fragmented file whose segments are ranges of it is relayed in parts; a whole one is indexed and
                // decrypted at any place.
                (None, None) => self.relay(parsed, "segment", Some(work(self))).await,
                (None, Some(_)) => self.relay_part(parsed, range, work(self)).await,
            };
            match &answer {
                Ok(r) if r.head.status.is_success() || r.head.status == StatusCode::NOT_MODIFIED => return answer,
                _ => last = Some(answer),
            }
        }
        last.unwrap_or_else(|| Err(MediaError::missing("segment_url")))
    }

    /// The segment's URL and its alternatives, with templates filled in from what the player appended.
    fn segment_addresses(self) -> Result<Vec<String>> {
        let params = &self.asked.params;
        let all = params.pairs.iter().filter(|(n, _)| n == "segment_url" || n == "alt").map(|(_, v)| v);
        if !params.is_true("pattern") {
            return Ok(all.map(|a| super::params::decode_if_base64(a)).collect());
        }
        let number = |name: &str| match self.asked.directives.iter().find(|(n, _)| n == name) {
            Some((_, v)) => v.parse::<u64>().map_err(|_| MediaError::bad_request(format!("`{name}` is not a number"))),
            None => Ok(0),
        };
        let (number, time, part) = (number("_n")?, number("_t")?, number("_p")?);
        let filling = TemplateValues { number, time, part, ..TemplateValues::default() };
        Ok(all.map(|a| fill(a, filling)).collect())
    }

    /// A manifest whose media is routed through the gateway. It remains DASH, for players that prefer it.
    pub async fn mpd_manifest(self) -> EndpointResult {
        let FetchedManifest { text, manifest, address, asked } = self.mpd().await?;
        let keyed = self.keys()?.is_some();
        let children = asked.children(self.state);
        let (most, is_large) = (self.state.config.rewritten_bytes.0, text.len() > BLOCKING_MANIFEST_BYTES);
        let write = move || {
            let own = children.url("/proxy/mpd/manifest.mpd", &[("d", &address)]);
            let mut root = xml::read(&text)?;
            to_mpd::rewrite(&mut root, &manifest, &own, keyed, most, &mut |wanted| match wanted {
                ManifestUrlKind::Init(address, range) => init_url(&children, address, range),
                // The link's keys are for media.
                ManifestUrlKind::Clock(address) => children.url("/proxy/stream", &[("d", address), ("clear", "1")]),
                ManifestUrlKind::Key(address) => children.url("/proxy/hls/key.bin", &[("d", address)]),
                ManifestUrlKind::Segment { addresses, range, init, pattern } => {
                    let init = init.filter(|_| keyed);
                    segment_child(&children, "mp4", &addresses, range, init.as_ref(), pattern)
                }
            })?;
            let mut written = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
            if !root.write_within(&mut written, usize::try_from(most).unwrap_or(usize::MAX)) {
                return Err(to_mpd::too_long(most));
            }
            Ok(written)
        };
        let written = run_off_workers(is_large, write).await?;
        let mut response = Response::full(StatusCode::OK, "application/dash+xml", written);
        response.head.headers.append_unchecked(b"Cache-Control", b"no-cache");
        self.asked.params.apply_header_overrides(&mut response.head.headers, false);
        Ok(response)
    }

    /// A range of the origin's file as a resource of its own, through the cache.
    pub(super) async fn relay_part(
        self,
        address: MediaAddress,
        range: Option<DashByteRange>,
        work: Option<ResponseTransform>,
    ) -> EndpointResult {
        let ask = self.with_byte_range(address, range)?;
        let origin = format!("{}://{}", ask.url.scheme, ask.url.authority);
        let is_worked = work.is_some() && self.head.method != interflow_types::Method::HEAD;
        let mut response = self.state.shared.get_transformed(ask, CachePolicy::Segment, work).await?.response;
        if is_worked && matches!(response.head.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            response.body = decrypt::wait_for_first_bytes(response.body).await?;
        }
        let head = header_filter::response_head(&response.head);
        let body = self.track(response.body, "segment", origin);
        // The whole file instead of the segment: it would be played as a segment of many gigabytes.
        if head.status == StatusCode::OK {
            return Err(MediaError::upstream("the origin does not support ranges, which this manifest needs"));
        }
        Ok(Response { head, body: if self.head.method == interflow_types::Method::HEAD { Body::Empty } else { body } })
    }

    /// A segment as MPEG-TS, decrypted first if the link has keys.
    async fn mpd_ts(self) -> EndpointResult {
        let params = &self.asked.params;
        let init = self.init_bytes().await?.ok_or_else(|| MediaError::missing("init_url"))?;
        let init = decrypt::init(self.keys()?, init)?;
        let unfit = |e: remux::RemuxError| MediaError::Status(StatusCode::UNPROCESSABLE_ENTITY, e.to_string());
        let muxer = TsMuxer::new(&init, remux::RemuxOptions::default()).map_err(unfit)?;
        let range = parse_range(params.get("segment_range"))?;
        let (keys, at) = (self.noted_keys()?, range.map_or(0, |(first, _)| first));
        let section = self.init_section().await?;
        let make = |job: Self| {
            let (keys, section, muxer) = (keys.clone(), section.clone(), Arc::clone(&muxer));
            let run = move |head: &mut ResponseHead, mut body: Body| {
                if let Some(keys) = keys {
                    body = decrypt::segment(keys, section, at, body).map_err(MediaError::into_error)?;
                }
                // A conversion changes length and content, so ranges do not apply.
                let stale = ["content-length", "accept-ranges", "etag", "content-range"];
                header_filter::remove_fields(&mut head.headers, &stale);
                let _ = head.headers.set("Content-Type", "video/mp2t");
                Ok(decrypt::transformed(body, Some(muxer.segment()), None))
            };
            Some(ResponseTransform { id: job.work_id("ts"), takes_ranges: false, run: Box::new(run) })
        };
        let mut response = self.try_addresses(range, None, make).await?;
        // The range was the gateway's own; the client asked for a segment.
        header_filter::present_as_whole(&mut response.head);
        params.apply_header_overrides(&mut response.head.headers, true);
        Ok(response)
    }
}

/// Finds the index (`sidx`) in a part of a file; `None` if it has none.
fn index_in(bytes: &[u8], offset: u64) -> Result<Option<SegmentIndex>> {
    // A box truncated after the index is media.
    let index = boxes(bytes, offset).flatten().find(|b| b.kind() == b"sidx").map(|b| SegmentIndex::read(&b));
    index.transpose().map_err(|e| MediaError::upstream(format!("the file's index: {e}")))
}
