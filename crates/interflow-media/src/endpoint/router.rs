//! The media service: its endpoints on the gateway port, and the dispatch of requests to them.

use std::net::SocketAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use interflow_types::{
    Body, BoxFuture, DecryptedMedia, Flow, GatewayMount, GatewayRequest, Headers, LocalHandler, Method, MountTarget,
    Request, RequestHead, Response, ResponseHead, Result, SecretBodies, StatusCode, UsageLabel,
};

use super::access::{AuthorizedRequest, authorize};
use super::error::{EndpointResult, MediaError, text_response};
use super::links::{IssuedLink, LinkRequest};
use super::request::{MediaRequest, ResponseMarks};
use super::state::{MediaSetup, MediaState};
use crate::config::MediaConfig;
use crate::relay::StreamRegistry;
use crate::relay::header_filter::set_security_headers;

/// The media component: endpoints on the gateway port, with the state of the current configuration. Active streams
/// survive a reload.
pub struct MediaService {
    state: ArcSwap<MediaState>,
    streams: Arc<StreamRegistry>,
}

impl MediaService {
    /// Builds the service.
    ///
    /// # Errors
    /// An invalid configuration, or a cache folder that cannot be used; the error names the key.
    pub fn new(setup: MediaSetup) -> Result<Arc<Self>, String> {
        let streams = Arc::new(StreamRegistry::default());
        let state = MediaState::new(setup, Arc::clone(&streams))?;
        Ok(Arc::new(Self { state: ArcSwap::from_pointee(state), streams }))
    }

    /// Compiles a new configuration; the returned closure activates it. Active streams keep the one they began with.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn prepare(self: &Arc<Self>, setup: MediaSetup) -> Result<Box<dyn FnOnce() + Send>, String> {
        let state = Arc::new(MediaState::new(setup, Arc::clone(&self.streams))?);
        let media = Arc::clone(self);
        Ok(Box::new(move || media.state.store(state)))
    }

    pub fn state(&self) -> Arc<MediaState> {
        self.state.load_full()
    }

    /// Creates a link below `base` (`http://host:port/media`).
    ///
    /// # Errors
    /// The request is invalid; the error says why.
    pub fn link(&self, request: &LinkRequest, base: &str) -> std::result::Result<IssuedLink, String> {
        request.issue(&self.state(), base)
    }

    /// The base URL of the endpoints on this gateway, by its address or by the configured public URL, without a
    /// trailing slash.
    pub fn base(&self, gateway: SocketAddr) -> String {
        let state = self.state();
        let path = &state.config.path;
        state.public.as_ref().map_or_else(|| format!("http://{gateway}{path}"), |public| format!("{public}{path}"))
    }

    pub fn streams(&self) -> &Arc<StreamRegistry> {
        &self.streams
    }

    /// Authorises a request and passes it to its endpoint.
    async fn handle(&self, state: &Arc<MediaState>, flow: &mut Flow, request: Request) -> EndpointResult {
        let prefix = prefix_of(&state.config, &request.head.url.path).unwrap_or_default();
        let Request { head, mut body } = request;
        let path = head.url.path_only().strip_prefix(prefix).unwrap_or_default();
        if let Some(answer) = super::diagnostics::public_endpoint(path, &head, &mut body).await? {
            return Ok(answer);
        }
        // The password may be in the body of a request for a link, and only there is the body read before
        // authorization.
        let (body, shown) = match path.contains("/generate_") {
            true => super::links::with_password(body).await?,
            false => (body, None),
        };
        let mut authorized = authorize(state, prefix, flow, &head, shown)?;
        let filled = authorized.fill_catchup();
        if let Some(user) = authorized.user() {
            flow.user = Some(user.into());
        }
        flow.tag("media");
        // The endpoints have the flow by shared reference; what they find out about the response is set on it
        // afterwards.
        let marks = ResponseMarks::default();
        let answer = match filled {
            Ok(()) => self.route((state, &marks), flow, &authorized, &head, body).await,
            Err(e) => Err(e),
        };
        if marks.decrypted.into_inner() {
            flow.extension_mut::<DecryptedMedia>();
        }
        // Sealed child URLs show their endpoint only now.
        if marks.has_keys.into_inner() || carries_keys(&authorized.path) {
            flow.extension_mut::<SecretBodies>();
        }
        match answer {
            Err(error) if authorized.grant.hide => Err(error.without_details()),
            answer => answer,
        }
    }

    async fn route(
        &self,
        (state, marks): (&Arc<MediaState>, &ResponseMarks),
        flow: &Flow,
        asked: &AuthorizedRequest,
        head: &RequestHead,
        body: Body,
    ) -> EndpointResult {
        let job = MediaRequest { state, marks, flow, asked, head };
        asked.params.check()?;
        let path = asked.path.as_str();
        // Clients of other media proxies may ask for it; a silent fallback would look like a playback error.
        if path.starts_with("/proxy/") && asked.params.is_true("transcode") {
            let text = "`transcode=true`: nothing is transcoded here; leave it out to get the media as it is";
            return Err(MediaError::Status(StatusCode::NOT_IMPLEMENTED, text.into()));
        }
        if let Some(name) = strip_endpoint(path, "/proxy/stream") {
            return job.stream(name).await;
        }
        if let Some(file) = path.strip_prefix("/proxy/hls/segment") {
            return job.hls_segment(file.strip_prefix('.').unwrap_or_default()).await;
        }
        if let Some(file) = path.strip_prefix("/proxy/mpd/segment") {
            return job.mpd_segment(file.strip_prefix('.').unwrap_or_default()).await;
        }
        if path.starts_with("/xtream/") && asked.params.get("xc_origin").is_some() {
            return job.xtream().await;
        }
        match path {
            "/proxy/mpd/manifest.m3u8" | "/proxy/mpd/manifest" => job.mpd_master().await,
            "/proxy/mpd/manifest.mpd" => job.mpd_manifest().await,
            "/proxy/mpd/playlist.m3u8" | "/proxy/mpd/playlist" => job.mpd_playlist().await,
            "/proxy/mpd/init.mp4" | "/proxy/mpd/init" => job.mpd_init().await,
            "/proxy/hls/manifest.m3u8"
            | "/proxy/hls/manifest"
            | "/proxy/hls/playlist.m3u8"
            | "/proxy/hls/playlist"
            | "/proxy/hls/key_proxy/manifest.m3u8" => job.hls_manifest().await,
            "/proxy/hls/key.bin" | "/proxy/hls/data" => job.hls_segment("").await,
            "/proxy/hls/steering.json" => job.hls_json(true).await,
            "/proxy/hls/assets.json" => job.hls_json(false).await,
            "/playlist/playlist" => job.merged_playlist().await,
            "/playlist/builder" => job.built_playlist().await,
            "/proxy/epg" => job.epg().await,
            "/proxy/forward" => job.forward(body).await,
            "/generate_url" | "/proxy/generate_url" | "/generate_encrypted_or_encoded_url" => job.make_link(body).await,
            "/generate_urls" | "/proxy/generate_urls" => job.make_links(body).await,
            "/proxy/ip" => job.exit_address().await,
            _ => Err(MediaError::not_found(format!("there is no media endpoint at {path}"))),
        }
    }
}

/// Whether the bodies at this path are keys, licences, or requests for links, which contain keys and passwords.
fn carries_keys(path: &str) -> bool {
    path.ends_with("/proxy/hls/key.bin") || path.ends_with("/proxy/forward") || path.contains("/generate_")
}

/// The rest of a path after an endpoint: empty, or the name without its slash. `None` if another word follows.
pub fn strip_endpoint<'a>(path: &'a str, endpoint: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(endpoint)?;
    if rest.is_empty() { Some("") } else { rest.strip_prefix('/') }
}

/// The mount that a path (with its query) belongs to; `None` if it is not the media service's.
fn prefix_of<'a>(config: &'a MediaConfig, path: &str) -> Option<&'a str> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let own = config.path.as_str();
    if path.strip_prefix(own).is_some_and(|rest| rest.starts_with('/')) {
        return Some(own);
    }
    // At the root, only the paths of `media.compat` and those of Xtream Codes are taken.
    let ours = || is_endpoint(path) || super::xtream::login::translate(path, query).is_some();
    (config.compat.enabled && ours()).then_some("")
}

/// Whether a request presents a link, which must then be valid: no password can take its place.
fn is_signed(config: &MediaConfig, path: &str) -> bool {
    let path_in_mount = prefix_of(config, path).and_then(|prefix| path.strip_prefix(prefix)).unwrap_or_default();
    let query = path.split_once('?').map_or("", |(_, query)| query);
    path_in_mount.starts_with("/_token_")
        || query.split('&').any(|p| p.strip_prefix("token=").is_some_and(|t| !t.is_empty()))
}

/// Whether a path is a media endpoint at the root, where other components have theirs.
fn is_endpoint(path: &str) -> bool {
    const ENDPOINTS: &str = "/proxy /playlist /base64 /generate_url /generate_urls /generate_encrypted_or_encoded_url \
                             /health";
    path.starts_with("/_token_") || ENDPOINTS.split(' ').any(|e| strip_endpoint(path, e).is_some())
}

/// The mount of the media service on the gateway port; its handler is the service itself.
pub struct MediaMount(pub Arc<MediaService>);

impl GatewayMount for MediaMount {
    fn name(&self) -> &'static str {
        "media"
    }

    fn find(&self, knock: &GatewayRequest<'_>) -> Option<MountTarget> {
        let state = self.0.state.load();
        if !state.config.enabled || prefix_of(&state.config, knock.path).is_none() {
            return None;
        }
        Some(MountTarget::Serve(Arc::clone(&self.0) as Arc<dyn LocalHandler>))
    }

    /// Requests authorise themselves: by links and passwords, or by `Host` and `Origin` if there is neither.
    fn authorizes_requests(&self) -> bool {
        true
    }
}

impl LocalHandler for MediaService {
    fn identify_client(&self, flow: &mut Flow, head: &RequestHead) {
        let state = self.state();
        // Before authorization, and before the recorder sees the request.
        if carries_keys(head.url.path_only()) {
            flow.extension_mut::<SecretBodies>();
        }
        let prefix = prefix_of(&state.config, &head.url.path).unwrap_or_default();
        let Ok(asked) = authorize(&state, prefix, flow, head, None) else { return };
        if let Some(user) = asked.user() {
            flow.user = Some(user.into());
        }
        flow.extension_mut::<UsageLabel>().0 = Some("media");
    }

    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(async move {
            let state = self.state();
            let page = request.head.headers.get_str("origin").map(str::to_owned);
            let signed = is_signed(&state.config, &request.head.url.path);
            if request.head.method == Method::OPTIONS {
                return Ok(preflight(&state, page.as_deref(), signed));
            }
            let is_head = request.head.method == Method::HEAD;
            let mut response = match self.handle(&state, flow, request).await {
                Ok(response) => response,
                Err(MediaError::Status(status, text)) => text_response(status, &text),
                Err(MediaError::Failed(error)) => return Err(error),
            };
            // The length that GET would have (RFC 9110 9.3.2).
            if is_head && let Body::Full(bytes) = &response.body {
                let _ = response.head.headers.set("Content-Length", bytes.len().to_string());
                response.body = Body::Empty;
            }
            set_security_headers(&mut response.head);
            allow_page(&state, page.as_deref(), signed, &mut response.head.headers);
            Ok(response)
        })
    }
}

/// Sets CORS headers: any page with a sealed link, otherwise those of the list. Without them, a page cannot read the
/// response.
fn allow_page(state: &MediaState, page: Option<&str>, signed: bool, headers: &mut Headers) {
    let Some(page) = page else { return };
    // A link may be used by all who have it, so any page may read its response; nothing else authorises the request.
    if signed {
        headers.append_unchecked(b"Access-Control-Allow-Origin", b"*");
    } else if state.allows_page(page) && headers.append("Access-Control-Allow-Origin", page).is_ok() {
        headers.append_unchecked(b"Vary", b"Origin");
    } else {
        return;
    }
    headers.append_unchecked(
        b"Access-Control-Expose-Headers",
        b"Content-Length, Content-Range, Accept-Ranges, ETag, Date",
    );
}

/// The response to a CORS preflight. It reveals nothing, so it needs no authorisation.
fn preflight(state: &MediaState, page: Option<&str>, signed: bool) -> Response {
    let mut head = ResponseHead::new(StatusCode::NO_CONTENT)
        .with_header("Allow", "GET, HEAD, POST, OPTIONS")
        .with_header("Access-Control-Allow-Methods", "GET, HEAD, POST, OPTIONS")
        .with_header("Access-Control-Allow-Headers", "Range, If-Range, If-None-Match, Content-Type, api_password")
        .with_header("Access-Control-Max-Age", "600");
    allow_page(state, page, signed, &mut head.headers);
    Response { head, body: Body::Empty }
}

#[cfg(test)]
mod tests {
    use interflow_types::{
        Authority, ClientInfo, EntryKind, HttpClient, HttpVersion, ResponseFuture, Scheme, Timestamp, Url,
    };

    use super::*;
    use crate::config::MediaCompatConfig;

    /// An origin that has one encrypted file.
    struct OneFile;

    impl HttpClient for OneFile {
        fn send(&self, _: Request) -> ResponseFuture<'_> {
            const FILE: &[u8] = include_bytes!("../../../../fuzz/corpus/bmff/cenc");
            let at = FILE.windows(4).position(|w| w == b"moof").expect("it has fragments") - 4;
            Box::pin(async move { Ok(Response::full(StatusCode::OK, "video/mp4", &FILE[..at])) })
        }
    }

    #[tokio::test]
    async fn decrypted_init_segment_is_recorded_as_decrypted_media() {
        const KEYS: &str = "&key_id=a1b2c3d4e5f60718293a4b5c6d7e8f90&key=00112233445566778899aabbccddeeff";
        let setup = MediaSetup {
            config: MediaConfig::default(),
            secret: vec![7; 32],
            egress: Arc::new(OneFile),
            key_egress: Arc::new(OneFile),
            folder: None,
        };
        let media = MediaService::new(setup).unwrap();
        for (keys, decrypts) in [(KEYS, true), ("", false)] {
            let client = ClientInfo {
                connection: 1,
                peer: ([127, 0, 0, 1], 50_000).into(),
                local: ([127, 0, 0, 1], 7071).into(),
                listener: "gateway".into(),
                accepted: Timestamp::from_micros(0),
                process: None,
                container: None,
            };
            let authority: Authority = "127.0.0.1:7071".parse().unwrap();
            let mut flow = Flow::begin(client.into(), EntryKind::Gateway, Scheme::Http, authority.clone());
            let path = format!("/media/proxy/mpd/init.mp4?init_url=http%3A%2F%2Fo.test%2Fi.mp4{keys}");
            let url = Url { scheme: Scheme::Http, authority, path: path.into() };
            let head = RequestHead {
                method: Method::GET,
                url,
                version: HttpVersion::Http11,
                headers: Headers::new(),
                protocol: None,
            };
            let request = Request { head, body: Body::Empty };
            let answer = media.handle(&media.state(), &mut flow, request).await;
            assert_eq!(answer.map_err(|_| "refused").unwrap().head.status, StatusCode::OK, "{keys}");
            assert_eq!(flow.extension::<DecryptedMedia>().is_some(), decrypts, "{keys}");
        }
    }

    #[test]
    fn endpoints_are_below_the_path_and_optionally_at_the_root() {
        let own = MediaConfig::default();
        let compat = MediaConfig {
            compat: MediaCompatConfig { enabled: true, ..MediaCompatConfig::default() },
            ..MediaConfig::default()
        };
        for (config, path, prefix) in [
            (&own, "/media/proxy/stream", Some("/media")),
            (&own, "/media", None),
            (&own, "/mediax/proxy", None),
            (&own, "/proxy/stream", None),
            (&compat, "/proxy/stream", Some("")),
            (&compat, "/_token_x/proxy/stream", Some("")),
            (&compat, "/media/health", Some("/media")),
            (&compat, "/v1/chat/completions", None),
            (&compat, "/proxyx", None),
        ] {
            assert_eq!(prefix_of(config, path), prefix, "{path}");
        }
    }
}
