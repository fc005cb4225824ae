//! `/proxy/stream[/name]`: one resource, relayed as it is.

use interflow_flow::{Body, Method, Response, StatusCode};

use super::mount::Job;
use super::params::plain;
use super::reply::{Answer, Stop};
use crate::relay::address::{Address, decode_percent, push_value};
use crate::relay::resume::resuming;
use crate::relay::transform::ts_stream;
use crate::relay::{Ask, Fetched, Keep, Work, fields};

impl Job<'_> {
    /// The relay. `name` becomes the name under which a browser saves it.
    pub async fn stream(self, name: &str) -> Answer {
        let address = self.asked.params.destination("d")?;
        let mut response = match self.keys()? {
            Some(keys) => self.decrypted_file(address, keys, None).await?,
            None => self.relay(address, "stream", None).await?,
        };
        let name = if name.is_empty() { self.asked.params.get("filename").unwrap_or_default() } else { name };
        if !name.is_empty() && response.head.status.is_success() {
            let _ = response.head.headers.set("Content-Disposition", disposition(name));
        }
        Ok(response)
    }

    /// What to ask for an address, with the link's fields and those of the client that pass.
    pub fn ask(self, address: Address) -> Result<Ask, Stop> {
        let method = match &self.head.method {
            m if *m == Method::GET || *m == Method::HEAD => m.clone(),
            _ => return Err(Stop::Status(StatusCode::METHOD_NOT_ALLOWED, "this is read with GET or HEAD".into())),
        };
        let mut headers = self.asked.params.request_fields(&self.state.config.user_agent);
        if let Some(basic) = address.basic
            && !headers.contains("authorization")
        {
            let _ = headers.set("Authorization", basic);
        }
        fields::forward(&self.head.headers, &mut headers);
        // A coded body could neither be resumed nor read on the way.
        let _ = headers.set("Accept-Encoding", "identity");
        let scope = (!self.asked.grant.hosts.is_empty()).then(|| self.asked.grant.clone());
        Ok(Ask { method, url: address.url, headers, scope })
    }

    /// Relays an address: status, validators, ranges and all; the body goes on after a drop. `segment`: it is shared with
    /// all who want the same, with this done to it.
    pub async fn relay(self, address: Address, kind: &'static str, segment: Option<Option<Work>>) -> Answer {
        let (state, params) = (self.state, &self.asked.params);
        let is_segment = segment.is_some();
        let is_worked = matches!(&segment, Some(Some(_)));
        let mut ask = self.ask(address)?;
        let filter = params.get("transformer") == Some("ts_stream");
        let whole = matches!(&segment, Some(Some(work)) if !work.takes_ranges);
        if filter || whole {
            // Ranges would count what is taken off, or count in what is made.
            for name in ["range", "if-range"] {
                ask.headers.remove(name);
            }
        }
        if is_segment {
            self.fetch_ahead(&mut ask);
        }
        let place = match is_segment && state.shared.knows(&ask) {
            true => None,
            false => Some(state.hosts.enter(&ask.url.authority).await?),
        };
        let origin = format!("{}://{}", ask.url.scheme, ask.url.authority);
        let Response { head, mut body } = match segment {
            Some(work) if ask.method == Method::GET => {
                state.shared.get_worked(ask, Keep::Segment, work).await?.response
            }
            segment => {
                let mut response = self.fetch(ask).await?;
                if let Some(work) = segment.flatten().filter(|_| response.head.status.is_success()) {
                    response.body = (work.run)(&mut response.head, response.body)?;
                }
                response
            }
        };
        let mut head = fields::back(&head);
        if self.head.method == Method::HEAD {
            body = Body::Empty;
        } else if is_worked && matches!(head.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            body = super::decrypt::begun(body).await?;
        }
        if filter && head.status.is_success() {
            head.headers.remove("content-length");
            head.headers.remove("accept-ranges");
            let _ = head.headers.set("Content-Type", "video/mp2t");
            body = ts_stream(body);
        }
        params.shape(&mut head.headers, is_segment);
        let body = match place {
            Some(place) => place.hold(body),
            None => body,
        };
        let body = state.streams.follow(body, kind, origin, self.flow.client.peer, self.flow.user.clone());
        Ok(Response { head, body })
    }

    fn fetch_ahead(self, ask: &mut Ask) {
        let state = self.state;
        // Viewers who differ in nothing but their language see the same segment.
        ask.headers.remove("accept-language");
        if state.config.cache.prefetch > 0 && ask.method == Method::GET {
            let range = ask.headers.get_str("range").map(str::to_owned);
            let piece = (self.asked.params.get("d").map(plain).unwrap_or_default(), range);
            state.ahead.go(&state.shared, ask, &piece, state.config.cache.prefetch);
        }
    }

    /// Fetches for one client. An origin that knows no HEAD is asked with GET, whose body is left unread.
    async fn fetch(self, mut ask: Ask) -> Result<Response, Stop> {
        let state = self.state;
        let mut fetched = state.fetch.send(ask.clone()).await?;
        if ask.method == Method::HEAD && matches!(fetched.response.head.status.as_u16(), 405 | 501) {
            ask.method = Method::GET;
            fetched = state.fetch.send(ask.clone()).await?;
        }
        let Fetched { url, response: Response { head, body } } = fetched;
        let body = resuming(body, &head, Ask { url, ..ask }, &state.fetch, state.patience());
        Ok(Response { head, body })
    }
}

/// The longest name for saving, in bytes: more is no name of a file on most systems.
const LONGEST_NAME: usize = 200;

/// A name for saving (RFC 6266), with the form of RFC 8187 beside it for what ASCII cannot say. What could lead to
/// another folder, hide the ending or break a line is taken out.
fn disposition(name: &str) -> String {
    let name = clean(&String::from_utf8_lossy(&decode_percent(name)));
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() && c != '%' || c == ' ' { c } else { '_' }).collect();
    if plain == name {
        return format!("attachment; filename=\"{plain}\"");
    }
    let mut coded = Vec::new();
    push_value(name.replace([',', '@', '\''], "_").as_bytes(), &mut coded);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", String::from_utf8_lossy(&coded))
}

/// A name without separators of paths, control characters and marks that turn the direction of writing; `_` stands for
/// what cannot stand in a name. Its ending stays when it is too long.
fn clean(name: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let allowed = name.chars().filter(|c| !is_hidden(*c));
    let name: String = allowed
        .map(|c| if matches!(c, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|') { '_' } else { c })
        .collect();
    // Neither hidden, nor a folder, nor with an ending that some systems drop.
    let name = name.trim().trim_start_matches('.').trim_end_matches(['.', ' ']);
    let (stem, ending) = match name.rfind('.') {
        Some(at) if name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    };
    let mut room = LONGEST_NAME.saturating_sub(ending.len()).min(stem.len());
    while !stem.is_char_boundary(room) {
        room -= 1;
    }
    let kept = stem.get(..room).unwrap_or_default();
    if kept.is_empty() && ending.is_empty() { "download".to_owned() } else { format!("{kept}{ending}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_saving_are_safe() {
        assert_eq!(disposition("a%20b.mp4"), "attachment; filename=\"a b.mp4\"");
        assert_eq!(disposition("x%22%0d%0ay"), "attachment; filename=\"x_y\"");
        assert_eq!(disposition("..%2f..%5cetc%2fpasswd"), "attachment; filename=\"_.._etc_passwd\"");
        // The mark would show `movie_gpj.exe` as `movie_exe.jpg`.
        assert_eq!(disposition("movie_%E2%80%AEgpj.exe"), "attachment; filename=\"movie_gpj.exe\"");
        assert_eq!(disposition("..."), "attachment; filename=\"download\"");
        let long = disposition(&format!("{}.mp4", "\u{e4}".repeat(3000)));
        assert!(long.len() < 2000 && long.ends_with(".mp4"), "{long}");
        assert!(disposition("\u{fc}.ts").ends_with("filename*=UTF-8''%C3%BC.ts"));
    }
}
