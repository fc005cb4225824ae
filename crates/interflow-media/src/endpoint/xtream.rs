//! Xtream Codes: a player logs in with a user name that names its provider, and is led there.
//!
//! The user name is base64url of `http://provider:port:user[:password of ours]`, or the provider alone in base64
//! followed by `:user[:password of ours]`. Every path of the protocol is turned into a destination.

use interflow_flow::{Response, StatusCode};
use serde_json::Value;

use super::hls::Found;
use super::mount::Job;
use super::params::Params;
use super::reply::{Answer, Stop};
use crate::relay::address::{self, push_value};
use crate::relay::{Keep, fields};
use crate::token::Pairs;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};

/// A request of the protocol, turned round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Translated {
    /// `/xtream/api`, `/xtream/list`, `/xtream/guide`, `/xtream/stream`.
    pub endpoint: &'static str,
    /// What the endpoint needs, `d` and `api_password` among it.
    pub pairs: Pairs,
}

/// What a user name says.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Login {
    origin: String,
    user: String,
    password: Option<String>,
}

fn decoded(text: &str) -> Option<String> {
    let text = text.trim_end_matches('=');
    let bytes = URL_SAFE_NO_PAD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).ok()?;
    String::from_utf8(bytes).ok()
}

impl Login {
    fn read(name: &str) -> Option<Self> {
        if let Some((provider, rest)) = name.split_once(':') {
            let (user, password) = rest.split_once(':').map_or((rest, None), |(u, p)| (u, Some(p)));
            return Self::new(&decoded(provider)?, user, password);
        }
        let text = decoded(name)?;
        let (scheme, rest) = text.split_once("://")?;
        let mut fields: Vec<&str> = rest.split(':').collect();
        let has_port =
            fields.get(1).is_some_and(|p| (1..=5).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit()));
        let host = if has_port && fields.len() > 2 {
            fields.drain(..2).collect::<Vec<_>>().join(":")
        } else {
            fields.remove(0).to_owned()
        };
        let user = fields.first()?;
        Self::new(&format!("{scheme}://{host}"), user, fields.get(1).copied())
    }

    fn new(origin: &str, user: &str, password: Option<&str>) -> Option<Self> {
        address::parse(origin).ok()?;
        let password = password.filter(|p| !p.is_empty()).map(str::to_owned);
        (!user.is_empty()).then(|| Self { origin: origin.trim_end_matches('/').into(), user: user.into(), password })
    }
}

/// Turns a request of the protocol round; `None` for anything else.
pub fn translate(path: &str, query: &str) -> Option<Translated> {
    let by_query = match path {
        "/player_api.php" | "/panel_api.php" => Some("/xtream/api"),
        "/get.php" => Some("/xtream/list"),
        "/xmltv.php" => Some("/xtream/guide"),
        "/streaming/timeshift.php" => Some("/xtream/stream"),
        _ => None,
    };
    if let Some(endpoint) = by_query {
        let params = Params::read(query);
        let name = params.get("username")?;
        let login = Login::read(name)?;
        let mut destination = format!("{}{path}?", login.origin).into_bytes();
        for (i, (key, value)) in params.pairs().iter().filter(|(n, _)| n != "api_password").enumerate() {
            if i > 0 {
                destination.push(b'&');
            }
            push_value(key.as_bytes(), &mut destination);
            destination.push(b'=');
            push_value(if key == "username" { login.user.as_bytes() } else { value.as_bytes() }, &mut destination);
        }
        return Some(login.translated(endpoint, name, String::from_utf8_lossy(&destination).into_owned()));
    }
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let place = match segments.as_slice() {
        ["live" | "movie" | "series", _, _, _] | ["timeshift", _, _, _, _, _] => 1,
        ["hlsr", _, _, ..] if segments.len() >= 6 => 2,
        [_, _, _] => 0,
        _ => return None,
    };
    let name = String::from_utf8(address::decode_percent(segments[place])).ok()?;
    let login = Login::read(&name)?;
    let mut theirs: Vec<&str> = segments.clone();
    theirs[place] = &login.user;
    let mut destination = format!("{}/{}", login.origin, theirs.join("/"));
    if !query.is_empty() {
        destination.push('?');
        destination.push_str(query);
    }
    Some(login.translated("/xtream/stream", &name, destination))
}

impl Login {
    fn translated(&self, endpoint: &'static str, name: &str, destination: String) -> Translated {
        let mut pairs = vec![
            ("d".to_owned(), destination),
            ("xc_origin".to_owned(), self.origin.clone()),
            ("xc_user".to_owned(), self.user.clone()),
            ("xc_name".to_owned(), name.to_owned()),
        ];
        pairs.extend(self.password.clone().map(|p| ("api_password".to_owned(), p)));
        Translated { endpoint, pairs }
    }
}

impl Job<'_> {
    /// Answers a request of the protocol.
    pub async fn xtream(self) -> Answer {
        match self.asked.path.as_str() {
            "/xtream/stream" => self.xtream_stream().await,
            "/xtream/guide" => self.guide().await,
            _ => self.xtream_text().await,
        }
    }

    async fn xtream_stream(self) -> Answer {
        let address = self.asked.params.destination("d")?;
        let is_list = address.url.path_only().ends_with(".m3u8");
        if !is_list {
            return self.relay(address, "stream", None).await;
        }
        match self.find_playlist(address).await? {
            Found::Playlist(document) => self.rewritten(&document).await,
            Found::Other(response) => Ok(response),
        }
    }

    /// What the provider's API says, with its address and the user's name replaced by ours.
    async fn xtream_text(self) -> Answer {
        let params = &self.asked.params;
        let ask = self.ask_whole(params.destination("d")?)?;
        let cap = self.state.config.document_bytes.0;
        let document = self.state.shared.document(ask, Keep::Playlist, cap).await?;
        if !document.status.is_success() {
            return Err(Stop::Status(document.status, format!("the provider answered {}", document.status)));
        }
        let get = |name: &str| params.get(name).unwrap_or_default();
        let (origin, user, name) = (get("xc_origin"), get("xc_user"), get("xc_name"));
        let text = String::from_utf8_lossy(&document.body);
        let base = &self.asked.base;
        let escaped = |s: &str| s.replace('/', "\\/");
        let mut text = text.replace(origin, base).replace(&escaped(origin), &escaped(base));
        for kind in ["live", "movie", "series", "timeshift"] {
            text = text.replace(&format!("{base}/{kind}/{user}/"), &format!("{base}/{kind}/{name}/"));
        }
        text = text.replace(&format!("{base}/{user}/"), &format!("{base}/{name}/"));
        if let Ok(mut api) = serde_json::from_str::<Value>(&text)
            && api.get("server_info").is_some()
        {
            own_server(&mut api, base, name);
            text = api.to_string();
        }
        let kind = document.headers.get_str("content-type").unwrap_or("application/json");
        let mut response = Response::full(StatusCode::OK, kind, text);
        fields::secure(&mut response.head);
        Ok(response)
    }
}

/// Puts our address and the name that the player logged in with into the provider's words on itself.
fn own_server(api: &mut Value, base: &str, name: &str) {
    let (scheme, rest) = base.split_once("://").unwrap_or(("http", base));
    let authority = rest.split('/').next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (host, port),
        _ => (authority, if scheme == "https" { "443" } else { "80" }),
    };
    let server = &mut api["server_info"];
    for (field, value) in [("url", host), ("port", port), ("https_port", port), ("server_protocol", scheme)] {
        if server.get(field).is_some() {
            server[field] = value.into();
        }
    }
    if api.get("user_info").is_some_and(|u| u.get("username").is_some()) {
        api["user_info"]["username"] = name.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn b64(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    #[test]
    fn logins_are_read_in_every_form() {
        let login = |origin: &str, user: &str, password: Option<&str>| {
            Some(Login { origin: origin.into(), user: user.into(), password: password.map(str::to_owned) })
        };
        for (name, expected) in [
            (b64("http://p.test:8080:ann"), login("http://p.test:8080", "ann", None)),
            (b64("http://p.test:ann"), login("http://p.test", "ann", None)),
            (b64("https://p.test:443:ann:pw"), login("https://p.test:443", "ann", Some("pw"))),
            (b64("http://p.test:ann:pw"), login("http://p.test", "ann", Some("pw"))),
            (format!("{}:ann:pw", b64("http://p.test:8080")), login("http://p.test:8080", "ann", Some("pw"))),
            ("ann".into(), None),
            (b64("nothing"), None),
        ] {
            assert_eq!(Login::read(&name), expected, "{name}");
        }
    }

    #[test]
    fn paths_lead_to_the_provider_and_no_other_path_is_touched() {
        let name = b64("http://p.test:8080:ann");
        let to = |path: &str, query: &str| {
            translate(path, query).map(|t| (t.endpoint, Params::of(t.pairs).get("d").unwrap().to_owned()))
        };
        let d = |endpoint, d: &str| Some((endpoint, d.to_owned()));
        assert_eq!(
            to("/player_api.php", &format!("username={name}&password=x&action=get_live_streams")),
            d("/xtream/api", "http://p.test:8080/player_api.php?username=ann&password=x&action=get_live_streams")
        );
        assert_eq!(to(&format!("/live/{name}/x/5.ts"), ""), d("/xtream/stream", "http://p.test:8080/live/ann/x/5.ts"));
        assert_eq!(to(&format!("/{name}/x/5"), ""), d("/xtream/stream", "http://p.test:8080/ann/x/5"));
        assert_eq!(
            to(&format!("/timeshift/{name}/x/60/2024/5.ts"), ""),
            d("/xtream/stream", "http://p.test:8080/timeshift/ann/x/60/2024/5.ts")
        );
        for (path, query) in [
            ("/v1/chat/completions", ""),
            ("/proxy/hls/manifest.m3u8", ""),
            ("/player_api.php", "username=ann"),
            ("/a", ""),
        ] {
            assert_eq!(translate(path, query), None, "{path}");
        }
    }

    #[test]
    fn the_provider_speaks_of_us() {
        let mut api = serde_json::json!({ "user_info": { "username": "ann" }, "server_info": { "url": "p.test", "port": "80", "https_port": "443", "server_protocol": "http" } });
        own_server(&mut api, "https://tv.test:8443/media", "name");
        assert_eq!(api["server_info"]["url"], "tv.test");
        assert_eq!(
            (api["server_info"]["port"].as_str(), api["user_info"]["username"].as_str()),
            (Some("8443"), Some("name"))
        );
    }
}
