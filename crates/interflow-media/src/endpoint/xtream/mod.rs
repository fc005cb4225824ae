//! Xtream Codes: a player logs in with a user name that names its provider, and is routed there.
//!
//! [`login`] reads the user name and translates the paths of the protocol.

pub mod login;

use interflow_types::{Response, StatusCode, percent};
use serde_json::Value;

use super::error::{EndpointResult, MediaError, Result};
use super::hls::PlaylistProbe;
use super::request::MediaRequest;
use crate::relay::CachePolicy;

impl MediaRequest<'_> {
    /// Serves a translated request: a stream, the programme guide, or a text whose URLs are rewritten.
    pub async fn xtream(self) -> EndpointResult {
        match self.asked.path.as_str() {
            "/xtream/stream" => self.xtream_stream().await,
            "/xtream/guide" => self.epg().await,
            _ => self.xtream_text().await,
        }
    }

    async fn xtream_stream(self) -> EndpointResult {
        let address = self.asked.params.destination("d")?;
        let is_list = address.url.path_only().ends_with(".m3u8");
        if !is_list {
            return self.relay(address, "stream", None).await;
        }
        match self.find_playlist(address).await? {
            PlaylistProbe::Playlist(document) => self.rewrite_playlist(&document).await,
            PlaylistProbe::Other(response) => Ok(response),
        }
    }

    /// The provider's API response, with its URL and user name replaced by the gateway's, so that the player stays
    /// here.
    async fn xtream_text(self) -> EndpointResult {
        let params = &self.asked.params;
        let ask = self.whole_request(params.destination("d")?)?;
        let cap = self.state.config.document_bytes.0;
        let document = self.state.shared.document(ask, CachePolicy::Playlist, cap).await?;
        if !document.status.is_success() {
            return Err(MediaError::Status(document.status, format!("the provider answered {}", document.status)));
        }
        let get = |name: &str| params.get(name).unwrap_or_default();
        let (origin, user, name) = (get("xc_origin"), get("xc_user"), get("xc_name"));
        let base = &self.asked.base;
        let children = self.asked.with_cookies(&document.cookies).children(self.state);
        let own = |url: &str| match rewrite_url(url, origin, user, base, name) {
            Some(url) => url,
            // Logos and the like are not part of the protocol and are relayed as they are.
            None => children.url("/proxy/stream", &[("d", url)]),
        };
        let limit = self.state.config.rewritten_bytes.0;
        let mut text = rewrite_urls(&String::from_utf8_lossy(&document.body), origin, limit, own).await?;
        if text.contains("\"server_info\"")
            && let Ok(mut api) = serde_json::from_str::<Value>(&text)
            && api.get("server_info").is_some()
        {
            rewrite_server_info(&mut api, base, name);
            text = api.to_string();
        }
        let kind = document.headers.get_str("content-type").unwrap_or("application/json");
        Ok(Response::full(StatusCode::OK, kind, text))
    }
}

/// Bytes processed before yielding to other tasks: such a list may have a hundred megabytes.
const YIELD_BYTES: usize = 256 << 10;

/// Replaces the provider's URLs in a text. In JSON a URL may be escaped (`http:\\/\\/`): decoded string values are
/// compared. The text is not parsed as a whole, which would take many times its memory.
async fn rewrite_urls(text: &str, origin: &str, limit: u64, mut own: impl FnMut(&str) -> String) -> Result<String> {
    let is_json = text.trim_start().starts_with(['{', '[']);
    let mut out = String::with_capacity(text.len() + text.len() / 4);
    let (mut rest, mut paused) = (text, 0);
    while !rest.is_empty() {
        let (before, string, behind) = if is_json { next_string(rest) } else { next_line(rest) };
        out.push_str(before);
        let escaped = Some(string).filter(|s| is_json && s.contains('\\'));
        let decoded = escaped.and_then(|s| serde_json::from_str::<String>(s).ok());
        match &decoded {
            Some(decoded) if decoded.contains(origin) => {
                out.push_str(&Value::from(rewrite_line(decoded, origin, &mut own)).to_string());
            }
            None if string.contains(origin) => out.push_str(&rewrite_line(string, origin, &mut own)),
            _ => out.push_str(string),
        }
        rest = behind;
        if out.len() as u64 > limit {
            return Err(MediaError::upstream(format!(
                "the provider's answer would be longer than {limit} bytes (media.rewritten_bytes)"
            )));
        }
        if out.len() - paused > YIELD_BYTES {
            paused = out.len();
            tokio::task::yield_now().await;
        }
    }
    Ok(out)
}

/// The next string of a JSON text with its quotes, and what precedes and follows it. A string that does not end takes
/// the rest.
fn next_string(text: &str) -> (&str, &str, &str) {
    let Some(start) = text.find('"') else { return (text, "", "") };
    let bytes = text.as_bytes();
    let mut at = start + 1;
    while let Some(b) = bytes.get(at) {
        match b {
            // An escaped quote does not end the string.
            b'\\' => at += 2,
            b'"' => break,
            _ => at += 1,
        }
    }
    let mut end = (at + 1).min(text.len());
    while !text.is_char_boundary(end) {
        end += 1;
    }
    (&text[..start], &text[start..end], &text[end..])
}

fn next_line(text: &str) -> (&str, &str, &str) {
    let end = text.find('\n').map_or(text.len(), |n| n + 1);
    ("", &text[..end], &text[end..])
}

/// A text with each URL of this origin replaced, wherever it occurs.
fn rewrite_line(text: &str, origin: &str, own: &mut impl FnMut(&str) -> String) -> String {
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.find(origin) {
        let (before, url) = rest.split_at(at);
        out.push_str(before);
        let stops = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\'' | '<' | '>' | '|' | '\\');
        let end = url.find(stops).unwrap_or(url.len());
        let is_whole = url.get(origin.len()..end).is_some_and(|path| path.is_empty() || path.starts_with(['/', '?']));
        let (url, behind) = url.split_at(end.max(origin.len()));
        // `http://host:80` is not a prefix match of `http://host:8080`.
        out.push_str(&if is_whole { own(url) } else { url.to_owned() });
        rest = behind;
    }
    out.push_str(rest);
    out
}

/// Translates a protocol URL on the provider's host; `None` for any other, or one of another user.
fn rewrite_url(url: &str, origin: &str, user: &str, base: &str, name: &str) -> Option<String> {
    let path = url.strip_prefix(origin)?;
    if path.is_empty() || path == "/" {
        return Some(format!("{base}{path}"));
    }
    let (place, query) = path.split_once('?').map_or((path, None), |(place, query)| (place, Some(query)));
    if matches!(place, "/player_api.php" | "/panel_api.php" | "/get.php" | "/xmltv.php" | "/streaming/timeshift.php") {
        let own = |pair: &str| match pair.strip_prefix("username=") {
            Some(_) => format!("username={name}"),
            None => pair.to_owned(),
        };
        let pairs: Vec<_> = query.unwrap_or_default().split('&').map(own).collect();
        return Some(format!("{base}{place}?{}", pairs.join("&")));
    }
    let mut segments: Vec<&str> = place.trim_start_matches('/').split('/').collect();
    let at = login::user_position(&segments)?;
    let own = segments.get_mut(at)?;
    if *percent::decoded_bytes(own.as_bytes()) != *user.as_bytes() {
        return None;
    }
    *own = name;
    let query = query.map(|q| format!("?{q}")).unwrap_or_default();
    Some(format!("{base}/{}{query}", segments.join("/")))
}

/// Replaces server address and user name in the provider's server information, which players use for all further
/// requests.
fn rewrite_server_info(api: &mut Value, base: &str, name: &str) {
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

    #[tokio::test]
    async fn provider_urls_are_rewritten_in_every_notation() {
        let (origin, base) = ("http://p.test:8080", "http://us");
        let own = |url: &str| rewrite_url(url, origin, "ann", base, "NAME").unwrap_or_else(|| format!("<{url}>"));
        let with = async |text: &str| rewrite_urls(text, origin, 1 << 20, own).await.unwrap();
        let text = r#"[{"direct_source":"http:\/\/p.test:8080\/live\/ann\/x\/5.ts","a":"http:\u002f\u002fp.test:8080/movie/ann/x/6.mkv",
            "icon":"http://p.test:8080/logos/a.png","n":"quote \" http://p.test:80801/x","m":"http://p.test:8080"}]"#;
        let read: Value = serde_json::from_str(&with(text).await).unwrap();
        assert_eq!(read[0]["direct_source"], "http://us/live/NAME/x/5.ts");
        assert_eq!(read[0]["a"], "http://us/movie/NAME/x/6.mkv");
        assert_eq!(read[0]["icon"], "<http://p.test:8080/logos/a.png>");
        assert_eq!(read[0]["n"], "quote \" http://p.test:80801/x");
        assert_eq!(read[0]["m"], "http://us");
        let list = with("#EXTINF:-1 tvg-logo=\"http://p.test:8080/l.png\",A\nhttp://p.test:8080/ann/x/7\n").await;
        assert_eq!(list, "#EXTINF:-1 tvg-logo=\"<http://p.test:8080/l.png>\",A\nhttp://us/NAME/x/7\n");
        let guide = with("{\"u\":\"http://p.test:8080/xmltv.php?username=ann&password=x\"}").await;
        assert!(guide.contains("http://us/xmltv.php?username=NAME&password=x"), "{guide}");
        for broken in ["{\"a\":\"http:\\", "[\"", "{\"\\\u{e4}", "[\"http://p.test:8080"] {
            with(broken).await;
        }
    }

    #[test]
    fn server_info_is_rewritten_to_the_gateway() {
        let mut api = serde_json::json!({ "user_info": { "username": "ann" }, "server_info": { "url": "p.test", "port": "80", "https_port": "443", "server_protocol": "http" } });
        rewrite_server_info(&mut api, "https://tv.test:8443/media", "name");
        assert_eq!(api["server_info"]["url"], "tv.test");
        assert_eq!(
            (api["server_info"]["port"].as_str(), api["user_info"]["username"].as_str()),
            (Some("8443"), Some("name"))
        );
    }
}
