//! Requests of Xtream Codes, translated: the provider and its user are read from the player's user name.
//!
//! The user name is base64url of `http://provider:port:user[:gateway password]`, or the provider alone in base64
//! followed by `:user[:gateway password]`. Every path of the protocol is translated to a destination.

use interflow_types::percent;

use crate::endpoint::params::{MediaParams, decode_base64_text};
use crate::relay::address::{self, push_value};
use crate::token::QueryPairs;

/// A request of the protocol, translated to an endpoint of this service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranslatedRequest {
    /// `/xtream/api`, `/xtream/list`, `/xtream/guide`, `/xtream/stream`.
    pub endpoint: &'static str,
    /// The endpoint's parameters, including `d` and `api_password`.
    pub pairs: QueryPairs,
}

/// The provider, user and gateway password that a user name stands for: players have no other fields.
#[derive(Clone, Debug, PartialEq, Eq)]
struct XtreamLogin {
    origin: String,
    user: String,
    password: Option<String>,
}

impl XtreamLogin {
    fn read(name: &str) -> Option<Self> {
        if let Some((provider, rest)) = name.split_once(':') {
            let (user, password) = rest.split_once(':').map_or((rest, None), |(u, p)| (u, Some(p)));
            return Self::new(&decode_base64_text(provider)?, user, password);
        }
        let text = decode_base64_text(name)?;
        let (scheme, rest) = text.split_once("://")?;
        let mut fields: Vec<&str> = rest.split(':').collect();
        // Digits after the host are a port only if a user name follows; else they are the user name.
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

    /// The parameters of the translated request, with what is needed to rewrite the response.
    fn translated(&self, endpoint: &'static str, name: &str, destination: String) -> TranslatedRequest {
        let mut pairs = vec![
            ("d".to_owned(), destination),
            ("xc_origin".to_owned(), self.origin.clone()),
            ("xc_user".to_owned(), self.user.clone()),
            ("xc_name".to_owned(), name.to_owned()),
        ];
        pairs.extend(self.password.clone().map(|p| ("api_password".to_owned(), p)));
        TranslatedRequest { endpoint, pairs }
    }
}

/// Translates a request of the protocol; `None` for anything else, which may be another endpoint.
pub fn translate(path: &str, query: &str) -> Option<TranslatedRequest> {
    let by_query = match path {
        "/player_api.php" | "/panel_api.php" => Some("/xtream/api"),
        "/get.php" => Some("/xtream/list"),
        "/xmltv.php" => Some("/xtream/guide"),
        "/streaming/timeshift.php" => Some("/xtream/stream"),
        _ => None,
    };
    if let Some(endpoint) = by_query {
        let params = MediaParams::read(query);
        let name = params.get("username")?;
        let login = XtreamLogin::read(name)?;
        let mut destination = format!("{}{path}?", login.origin).into_bytes();
        for (i, (key, value)) in params.pairs.iter().filter(|(n, _)| n != "api_password").enumerate() {
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
    let position = user_position(&segments)?;
    let name = String::from_utf8(percent::decoded_bytes(segments[position].as_bytes()).into_owned()).ok()?;
    let login = XtreamLogin::read(&name)?;
    let mut theirs: Vec<&str> = segments.clone();
    theirs[position] = &login.user;
    let mut destination = format!("{}/{}", login.origin, theirs.join("/"));
    if !query.is_empty() {
        destination.push('?');
        destination.push_str(query);
    }
    Some(login.translated("/xtream/stream", &name, destination))
}

/// Which segment of a path names the user.
pub fn user_position(segments: &[&str]) -> Option<usize> {
    match segments {
        ["live" | "movie" | "series", _, _, _] | ["timeshift", _, _, _, _, _] => Some(1),
        ["hlsr", _, _, _, _, _, ..] => Some(2),
        // The short form of a live stream's path, `/user/password/id`.
        [_, _, _] => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use super::*;

    fn b64(text: &str) -> String {
        URL_SAFE_NO_PAD.encode(text)
    }

    #[test]
    fn logins_are_read_in_every_form() {
        let login = |origin: &str, user: &str, password: Option<&str>| {
            Some(XtreamLogin { origin: origin.into(), user: user.into(), password: password.map(str::to_owned) })
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
            assert_eq!(XtreamLogin::read(&name), expected, "{name}");
        }
    }

    #[test]
    fn xtream_paths_are_mapped_to_the_provider_and_others_untouched() {
        let name = b64("http://p.test:8080:ann");
        let to = |path: &str, query: &str| {
            translate(path, query).map(|t| (t.endpoint, MediaParams { pairs: t.pairs }.get("d").unwrap().to_owned()))
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
}
