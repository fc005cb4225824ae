//! Access control: sealed links, passwords, or programs on this machine if no password is configured.

use std::net::IpAddr;
use std::sync::Arc;

use interflow_types::{
    ClientInfo, Flow, ForwardedBy, Headers, Host, Method, RequestHead, Timestamp, client_address, is_forwarded,
};

use super::child_urls::ChildUrls;
use super::error::{MediaError, Result};
use super::params::MediaParams;
use super::state::MediaState;
use crate::hls::rewrite::fill_placeholders;
use crate::relay::CookieJar;
use crate::relay::address::parse;
use crate::token::{LinkGrant, LinkKeys, QueryPairs, read_legacy};

/// A request that was accepted, with the rights that its link or password grants. Endpoints get nothing else of the
/// request's credentials.
#[derive(Clone)]
pub struct AuthorizedRequest {
    /// The endpoint's path, without mount and token.
    pub path: String,
    pub params: MediaParams,
    /// Directives that a player added to a child URL: `_HLS_msn` and the like (RFC 8216bis 6.2.5), which no link can
    /// sign in advance.
    pub directives: QueryPairs,
    /// The presented link, or the grant of the password.
    pub grant: Arc<LinkGrant>,
    pub client: IpAddr,
    /// The gateway's URL as the client reached it, including the mount; child URLs begin with it.
    pub base: String,
    /// Whether child URLs need a token even if they inherit nothing, because the client would not be authorised
    /// without one.
    sealed: bool,
}

impl AuthorizedRequest {
    /// Builds child URLs that carry this request's grant.
    pub fn children(&self, state: &MediaState) -> ChildUrls {
        self.children_with(state, Vec::new())
    }

    /// Like [`children`](Self::children), with further inherited parameters, such as variables of a playlist.
    pub fn children_with(&self, state: &MediaState, more: QueryPairs) -> ChildUrls {
        let mut q = self.params.inherited();
        q.extend(more);
        // The shortest URLs: nothing to protect, and nothing to pass on.
        if !self.sealed && q.is_empty() {
            return ChildUrls::new(&self.base, None, false);
        }
        let grant = LinkGrant { q, child: true, endpoint: None, methods: Vec::new(), ..(*self.grant).clone() };
        let token = state.keys.seal(&grant);
        let key = state.keys.child_key(&token).expect("a key that seals is there");
        ChildUrls::new(&self.base, Some((&token, key)), grant.hide)
    }

    /// The cookies of the playlist or manifest that the link comes from.
    pub fn cookies(&self) -> CookieJar {
        self.params.get("cookies").map(CookieJar::from_text).unwrap_or_default()
    }

    /// The same request with the cookies of a document, for what the document refers to. Its child URLs carry them
    /// sealed.
    pub fn with_cookies(&self, cookies: &CookieJar) -> Self {
        let mut own = self.clone();
        own.params.set("cookies", cookies.to_text());
        own
    }

    /// Fills what the player appended into the address of an archive (`catchup-source`).
    pub fn fill_catchup(&mut self) -> Result<()> {
        if !self.params.is_true("catchup") {
            return Ok(());
        }
        let Some(template) = self.params.get("d") else { return Ok(()) };
        let value = |i: usize| {
            let name = format!("_c{i}");
            self.directives.iter().find(|(n, _)| *n == name).map(|(_, v)| v.as_str())
        };
        let filled = fill_placeholders(template, value).ok_or_else(|| {
            MediaError::bad_request(format!("the times of this archive are missing or invalid: {template}"))
        })?;
        self.params.replace("d", filled);
        Ok(())
    }

    /// The client's user, if it presented a password or link of one; limits and the recorder use it.
    pub fn user(&self) -> Option<&str> {
        self.grant.user.as_deref()
    }
}

/// Authorises a request. `prefix` is its mount, `shown` a password from its body. A link comes first, then a
/// password, and without either only programs on this machine are served.
pub fn authorize(
    state: &MediaState,
    prefix: &str,
    flow: &Flow,
    head: &RequestHead,
    shown: Option<String>,
) -> Result<AuthorizedRequest> {
    let whole = head.url.path.as_str();
    let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
    let path = path.strip_prefix(prefix).unwrap_or(path);
    let client = &*flow.client;
    let forwarded_by = flow.extension::<ForwardedBy>().copied().unwrap_or_default();
    let origin = ClientOrigin::from_request(state, client, forwarded_by, head);
    let base = state.public.clone().unwrap_or_else(|| format!("{}://{}", origin.scheme, origin.host));
    let base = format!("{base}{prefix}");
    let (token, path) = match path.strip_prefix("/_token_") {
        Some(rest) => {
            let (token, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            (Some(token.to_owned()), path)
        }
        None => (None, path),
    };
    let mut params = MediaParams::read(query);
    params.add(shown.map(|password| ("api_password".to_owned(), password)).into_iter().collect());
    let token = token.or_else(|| params.get("token").map(str::to_owned));
    let authorized = |path: &str, params: MediaParams, directives, grant, sealed| AuthorizedRequest {
        path: path.to_owned(),
        params,
        directives,
        grant: Arc::new(grant),
        client: origin.ip,
        base: base.clone(),
        sealed,
    };
    // A link that is presented must be valid, even where none is needed: a wrong one must not be served by accident.
    if let Some(token) = token {
        let (params, directives, grant) =
            authorize_by_token(state, &token, &origin, (&head.method, path), query, params)?;
        return Ok(authorized(path, params, directives, grant, true));
    }
    let translated = super::xtream::login::translate(path, query);
    let (path, params) = match translated {
        Some(t) => (t.endpoint, MediaParams { pairs: t.pairs }),
        None => (path, params),
    };
    let (directives, mut params) = (directives(&params), params);
    if path.starts_with("/proxy/mpd") {
        params.repair();
    }
    if let Some(user) = authorize_by_password(state, &params, &head.headers)? {
        return Ok(authorized(path, params, directives, LinkGrant { user, ..LinkGrant::default() }, true));
    }
    require_local_client(state, client, head)?;
    Ok(authorized(path, params, directives, LinkGrant::default(), false))
}

fn directives(params: &MediaParams) -> QueryPairs {
    // `_n`, `_t` and `_p` are filled in by DASH players, `_c0` and so on by those of IPTV lists.
    let is_one = |name: &str| name.starts_with("_HLS_") || name.starts_with("_c") || matches!(name, "_n" | "_t" | "_p");
    params.pairs.iter().filter(|(n, _)| is_one(n)).cloned().collect()
}

/// Opens a link and returns the parameters that apply: those sealed in it, or, for a child URL, those of the signed
/// query.
fn authorize_by_token(
    state: &MediaState,
    token: &str,
    origin: &ClientOrigin,
    (method, path): (&Method, &str),
    query: &str,
    shown: MediaParams,
) -> Result<(MediaParams, QueryPairs, LinkGrant)> {
    let grant = if LinkKeys::is_sealed_token(token) {
        state.keys.open(token)
    } else {
        let readable = state.password.as_deref().filter(|_| state.config.compat.enabled);
        readable.map_or(Err(crate::token::TokenError::Foreign), |password| read_legacy(token, password))
    };
    let grant = grant.map_err(MediaError::forbidden)?;
    grant.check(Timestamp::now().secs(), origin.ip, method, path).map_err(MediaError::forbidden)?;
    if !grant.child {
        let mut params = MediaParams { pairs: grant.q.clone() };
        if path.starts_with("/proxy/mpd") {
            params.repair();
        }
        return Ok((params, directives(&shown), grant));
    }
    let key = state.keys.child_key(token).map_err(MediaError::forbidden)?;
    let (signed, added) = key.open(path, query).map_err(MediaError::forbidden)?;
    // The link's own parameters come second: a child's query overrides what it inherits.
    let mut params = MediaParams::read(&signed);
    params.add(grant.q.clone());
    Ok((params, directives(&MediaParams::read(&added)), grant))
}

/// The user whose password was presented; `Some(None)` for the password without a name; `None` if no password is
/// configured.
fn authorize_by_password(
    state: &MediaState,
    params: &MediaParams,
    headers: &Headers,
) -> Result<Option<Option<String>>> {
    if state.password.is_none() && state.users.is_empty() {
        return Ok(None);
    }
    let given_password = params.get("api_password").or_else(|| headers.get_str("api_password")).unwrap_or_default();
    let right = |password: &str| constant_time_eq(password, given_password);
    if let Some((name, _)) = state.users.iter().find(|(_, password)| right(password)) {
        return Ok(Some(Some(name.clone())));
    }
    if state.password.as_deref().is_some_and(right) {
        return Ok(Some(None));
    }
    Err(MediaError::forbidden(
        "a password is needed here: give it as api_password, or use a link that was made for you",
    ))
}

/// Compares in constant time, because the response time would otherwise reveal how much of a guess is right.
fn constant_time_eq(a: &str, b: &str) -> bool {
    // The equality of blake3 hashes is constant-time.
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}

/// Without a password, only programs on this machine are served, but no web pages of other sites in a local browser
/// (DNS rebinding, cross-site requests).
fn require_local_client(state: &MediaState, client: &ClientInfo, head: &RequestHead) -> Result<()> {
    let headers = &head.headers;
    let loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    if is_forwarded(headers) || !loopback(client.peer.ip()) || !loopback(client.local.ip()) {
        return Err(MediaError::forbidden(
            "requests from other machines need a password or a signed link: set media.api_password",
        ));
    }
    let named = match &head.url.authority.host {
        Host::Ip(ip) => loopback(*ip),
        Host::Name(name) => &**name == "localhost" || name.ends_with(".localhost"),
    };
    let public = || state.public.as_deref().and_then(|p| parse(p).ok());
    if !named && public().is_none_or(|p| p.url.authority.host != head.url.authority.host) {
        return Err(MediaError::forbidden(
            "this name for the machine is not trusted without a password: use localhost, or set media.api_password",
        ));
    }
    let foreign = match headers.get_str("origin") {
        Some(origin) => !state.allows_page(origin),
        None => headers.get_str("sec-fetch-site") == Some("cross-site"),
    };
    if foreign {
        return Err(MediaError::forbidden("pages of other sites are not served without a password: see media.cors"));
    }
    Ok(())
}

/// The client's address, and the gateway's URL as the client sees it, which a trusted reverse proxy may declare.
struct ClientOrigin {
    ip: IpAddr,
    scheme: String,
    host: String,
}

impl ClientOrigin {
    fn from_request(state: &MediaState, client: &ClientInfo, forwarded_by: ForwardedBy, head: &RequestHead) -> Self {
        let url = &head.url;
        let ip = client.peer.ip().to_canonical();
        let mut origin = Self { ip, scheme: url.scheme.to_string(), host: url.authority.to_host_header(url.scheme) };
        let headers = &head.headers;
        let connected = forwarded_by.0.map_or(ip, |by| by.ip().to_canonical());
        if state.config.trusts_proxy(connected) {
            origin.ip = client_address(headers, connected, |ip| state.config.trusts_proxy(ip));
        } else if forwarded_by.0.is_none() {
            return origin;
        }
        if let Some(proto) = headers.get_str("x-forwarded-proto").filter(|p| matches!(*p, "http" | "https")) {
            origin.scheme = proto.to_owned();
        }
        if let Some(host) = headers.get_str("x-forwarded-host") {
            // The value becomes part of URLs in playlists.
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']' | b'_');
            if host.bytes().all(plain) {
                origin.host = host.to_owned();
            }
        }
        origin
    }
}
