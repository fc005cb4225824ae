//! Who may ask: somebody with a sealed link, somebody with a password, or a program on this machine when there is no
//! password at all.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use interflow_flow::{ClientInfo, Flow, ForwardedBy, Headers, Host, Method, RequestHead, client_address};

use super::children::Children;
use super::mount::State;
use super::params::Params;
use super::reply::Stop;
use crate::relay::address::parse;
use crate::token::{Grant, LinkKeys, Pairs, read_legacy};

/// A request that was let in.
pub struct Asked {
    /// The endpoint's path, without mount and token.
    pub path: String,
    /// Its parameters.
    pub params: Params,
    /// What a player added to a child URL: `_HLS_msn` and the like.
    pub directives: Pairs,
    /// The link that was shown, or what the password allows.
    pub grant: Arc<Grant>,
    /// The client's address.
    pub client: IpAddr,
    /// Our own address as the client knows it, mount included.
    pub base: String,
    /// Whether children need a token even when they inherit nothing.
    sealed: bool,
}

impl Asked {
    /// Child URLs that carry this request's grant.
    pub fn children(&self, state: &State) -> Children {
        self.children_with(state, Vec::new())
    }

    /// The same with more to inherit.
    pub fn children_with(&self, state: &State, more: Pairs) -> Children {
        let mut q = self.params.inherited();
        q.extend(more);
        if !self.sealed && q.is_empty() {
            return Children::new(&self.base, None, false);
        }
        let grant = Grant { q, child: true, endpoint: None, methods: Vec::new(), ..(*self.grant).clone() };
        let token = state.keys.seal(&grant);
        let key = state.keys.child_key(&token).expect("a key that seals is there");
        Children::new(&self.base, Some((&token, key)), grant.hide)
    }

    /// The client's user, when it showed a password or link of one.
    pub fn user(&self) -> Option<&str> {
        self.grant.user.as_deref()
    }
}

/// Lets a request in, or says why not. `prefix` is the mount that it came by, `shown` a password in its body.
pub fn admit(
    state: &State,
    prefix: &str,
    flow: &Flow,
    head: &RequestHead,
    shown: Option<String>,
) -> Result<Asked, Stop> {
    let whole = head.url.path.as_str();
    let (path, query) = whole.split_once('?').unwrap_or((whole, ""));
    let path = path.strip_prefix(prefix).unwrap_or(path);
    let client = &*flow.client;
    let forwarded_by = flow.note::<ForwardedBy>().copied().unwrap_or_default();
    let origin = Origin::of(state, client, forwarded_by, head);
    let base = state.public.clone().unwrap_or_else(|| format!("{}://{}", origin.scheme, origin.host));
    let base = format!("{base}{prefix}");
    let (token, path) = match path.strip_prefix("/_token_") {
        Some(rest) => {
            let (token, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            (Some(token.to_owned()), path)
        }
        None => (None, path),
    };
    let mut params = Params::read(query);
    params.add(shown.map(|password| ("api_password".to_owned(), password)).into_iter().collect());
    let token = token.or_else(|| params.get("token").map(str::to_owned));
    let asked = |params: Params, directives, grant, sealed| Asked {
        path: path.to_owned(),
        params,
        directives,
        grant: Arc::new(grant),
        client: origin.ip,
        base: base.clone(),
        sealed,
    };
    if let Some(token) = token {
        let (params, directives, grant) = by_token(state, &token, &origin, (&head.method, path), query, params)?;
        return Ok(asked(params, directives, grant, true));
    }
    let translated = super::xtream::translate(path, query);
    let (path, params) = match translated {
        Some(t) => (t.endpoint, Params::of(t.pairs)),
        None => (path, params),
    };
    let asked = |params: Params, directives, grant, sealed| Asked {
        path: path.to_owned(),
        ..asked(params, directives, grant, sealed)
    };
    let (directives, mut params) = (directives(&params), params);
    if path.starts_with("/proxy/mpd") {
        params.repair();
    }
    if let Some(user) = by_password(state, &params, &head.headers)? {
        return Ok(asked(params, directives, Grant { user, ..Grant::default() }, true));
    }
    is_at_home(state, client, head)?;
    Ok(asked(params, directives, Grant::default(), false))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn directives(params: &Params) -> Pairs {
    // `_n`, `_t` and `_p` are what a DASH player fills into a pattern.
    let is_one = |name: &str| name.starts_with("_HLS_") || matches!(name, "_n" | "_t" | "_p");
    params.pairs().iter().filter(|(n, _)| is_one(n)).cloned().collect()
}

fn by_token(
    state: &State,
    token: &str,
    origin: &Origin,
    (method, path): (&Method, &str),
    query: &str,
    shown: Params,
) -> Result<(Params, Pairs, Grant), Stop> {
    let grant = if LinkKeys::is_ours(token) {
        state.keys.open(token)
    } else {
        let readable = state.password.as_deref().filter(|_| state.config.compat.mediaflow);
        readable.map_or(Err(crate::token::TokenError::Foreign), |password| read_legacy(token, password))
    };
    let grant = grant.map_err(|e| Stop::forbidden(e.to_string()))?;
    grant.check(now(), origin.ip, method, path).map_err(|e| Stop::forbidden(e.to_string()))?;
    if !grant.child {
        let mut params = Params::of(grant.q.clone());
        if path.starts_with("/proxy/mpd") {
            params.repair();
        }
        return Ok((params, directives(&shown), grant));
    }
    let key = state.keys.child_key(token).map_err(|e| Stop::forbidden(e.to_string()))?;
    let (signed, added) = key.open(path, query).map_err(|e| Stop::forbidden(e.to_string()))?;
    let mut params = Params::read(&signed);
    params.add(grant.q.clone());
    Ok((params, directives(&Params::read(&added)), grant))
}

/// The user whose password was shown; `Some(None)` for the password without a name.
fn by_password(state: &State, params: &Params, headers: &Headers) -> Result<Option<Option<String>>, Stop> {
    if state.password.is_none() && state.users.is_empty() {
        return Ok(None);
    }
    let shown = params.get("api_password").or_else(|| headers.get_str("api_password")).unwrap_or_default();
    let right = |password: &str| is_same(password, shown);
    if let Some((name, _)) = state.users.iter().find(|(_, password)| right(password)) {
        return Ok(Some(Some(name.clone())));
    }
    if state.password.as_deref().is_some_and(right) {
        return Ok(Some(None));
    }
    Err(Stop::forbidden("a password is needed here: give it as api_password, or use a link that was made for you"))
}

/// Compares in a time that does not tell how much was right.
fn is_same(a: &str, b: &str) -> bool {
    // blake3's own equality of hashes takes the same time for any two.
    blake3::hash(a.as_bytes()) == blake3::hash(b.as_bytes())
}

/// Without a password, only programs on this machine are served, and no pages from elsewhere that a browser on it shows.
fn is_at_home(state: &State, client: &ClientInfo, head: &RequestHead) -> Result<(), Stop> {
    let headers = &head.headers;
    let forwarded = ["x-forwarded-for", "forwarded", "x-real-ip"].iter().any(|n| headers.contains(n));
    let loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
    if forwarded || !loopback(client.peer.ip()) || !loopback(client.local.ip()) {
        return Err(Stop::forbidden(
            "requests from other machines need a password or a signed link: set media.api_password",
        ));
    }
    let named = match &head.url.authority.host {
        Host::Ip(ip) => loopback(*ip),
        Host::Name(name) => &**name == "localhost" || name.ends_with(".localhost"),
    };
    let public = || state.public.as_deref().and_then(|p| parse(p).ok());
    if !named && public().is_none_or(|p| p.url.authority.host != head.url.authority.host) {
        return Err(Stop::forbidden(
            "this name for the machine is not trusted without a password: use localhost, or set media.api_password",
        ));
    }
    let foreign = match headers.get_str("origin") {
        Some(origin) => !state.allows_page(origin),
        None => headers.get_str("sec-fetch-site") == Some("cross-site"),
    };
    if foreign {
        return Err(Stop::forbidden("pages of other sites are not served without a password: see media.cors"));
    }
    Ok(())
}

/// Where the client is, and what it calls us.
struct Origin {
    ip: IpAddr,
    scheme: String,
    host: String,
}

impl Origin {
    fn of(state: &State, client: &ClientInfo, forwarded_by: ForwardedBy, head: &RequestHead) -> Self {
        let url = &head.url;
        let ip = client.peer.ip().to_canonical();
        let mut origin = Self { ip, scheme: url.scheme.to_string(), host: url.authority.host_field(url.scheme) };
        let headers = &head.headers;
        let connected = forwarded_by.0.map_or(ip, |by| by.ip().to_canonical());
        if state.config.trusts(connected) {
            origin.ip = client_address(headers, connected, |ip| state.config.trusts(ip));
        } else if forwarded_by.0.is_none() {
            return origin;
        }
        if let Some(proto) = headers.get_str("x-forwarded-proto").filter(|p| matches!(*p, "http" | "https")) {
            origin.scheme = proto.to_owned();
        }
        if let Some(host) = headers.get_str("x-forwarded-host") {
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b':' | b'[' | b']' | b'_');
            if host.bytes().all(plain) {
                origin.host = host.to_owned();
            }
        }
        origin
    }
}
