//! `/proxy/stream[/name]`: relays one resource unchanged.

use interflow_types::{Body, Method, Response, StatusCode, percent};

use super::error::{EndpointResult, MediaError, Result};
use super::params::decode_if_base64;
use super::request::MediaRequest;
use crate::relay::address::{MediaAddress, push_value};
use crate::relay::ts_unwrap::unwrap_ts;
use crate::relay::{CachePolicy, FetchRequest, ResponseTransform, header_filter};

impl MediaRequest<'_> {
    /// The relay of one resource. `name` becomes the file name for downloads. With keys, an MP4 file is decrypted.
    pub async fn stream(self, name: &str) -> EndpointResult {
        let address = self.asked.params.destination("d")?;
        let mut response = match self.keys()?.filter(|_| !self.asked.params.is_true("clear")) {
            Some(keys) => self.decrypted_file(address, keys, None).await?,
            None => self.relay(address, "stream", None).await?,
        };
        let name = if name.is_empty() { self.asked.params.get("filename").unwrap_or_default() } else { name };
        if !name.is_empty() && response.head.status.is_success() {
            let _ = response.head.headers.set("Content-Disposition", disposition(name));
        }
        Ok(response)
    }

    /// The request for a URL, with the link's fields and those of the client that are passed on. Only GET and HEAD.
    pub fn fetch_request(self, address: MediaAddress) -> Result<FetchRequest> {
        let method = match &self.head.method {
            m if *m == Method::GET || *m == Method::HEAD => m.clone(),
            _ => {
                return Err(MediaError::Status(StatusCode::METHOD_NOT_ALLOWED, "this is read with GET or HEAD".into()));
            }
        };
        let mut headers = self.asked.params.request_fields(&self.state.config.user_agent);
        if let Some(basic) = address.basic
            && !headers.contains("authorization")
        {
            let _ = headers.set("Authorization", basic);
        }
        header_filter::copy_request_headers(&self.head.headers, &mut headers);
        // A coded body could be neither resumed nor transformed.
        let _ = headers.set("Accept-Encoding", "identity");
        let scope = (!self.asked.grant.hosts.is_empty()).then(|| self.asked.grant.clone());
        let is_secret = self.asked.path == "/proxy/hls/key.bin";
        let cookies = self.asked.cookies();
        Ok(FetchRequest { method, url: address.url, headers, scope, is_secret, cookies })
    }

    /// Relays a URL including status, validators and ranges; the body is resumed after a connection loss. `segment`: it
    /// is shared among clients that need the same transformation.
    pub async fn relay(
        self,
        address: MediaAddress,
        kind: &'static str,
        segment: Option<Option<ResponseTransform>>,
    ) -> EndpointResult {
        let (state, params) = (self.state, &self.asked.params);
        let is_segment = segment.is_some();
        let is_worked = matches!(&segment, Some(Some(_)));
        let mut ask = self.fetch_request(address)?;
        let filter = params.get("transformer") == Some("ts_stream");
        let whole = matches!(&segment, Some(Some(work)) if !work.takes_ranges);
        if filter || whole {
            // Ranges would refer to the transformed representation.
            header_filter::remove_fields(&mut ask.headers, &["range", "if-range"]);
        }
        if is_segment {
            self.prefetch(&mut ask);
        }
        // Joining a fetch in progress, or a cached segment, opens no stream at the origin.
        let permit = match is_segment && state.shared.contains_request(&ask) {
            true => None,
            false => Some(state.hosts.acquire(&ask.url.authority).await?),
        };
        let origin = format!("{}://{}", ask.url.scheme, ask.url.authority);
        let Response { head, mut body } = match segment {
            Some(work) if ask.method == Method::GET => {
                state.shared.get_transformed(ask, CachePolicy::Segment, work).await?.response
            }
            segment => {
                let mut response = self.fetch(ask).await?;
                if let Some(work) = segment.flatten().filter(|_| response.head.status.is_success()) {
                    response.body = (work.run)(&mut response.head, response.body)?;
                }
                response
            }
        };
        let mut head = header_filter::response_head(&head);
        if self.head.method == Method::HEAD {
            body = Body::Empty;
        // The first bytes show whether the keys are right. Until then the error can still be a status.
        } else if is_worked && matches!(head.status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            body = super::decrypt::wait_for_first_bytes(body).await?;
        }
        if filter && head.status.is_success() {
            header_filter::remove_fields(&mut head.headers, &["content-length", "accept-ranges"]);
            let _ = head.headers.set("Content-Type", "video/mp2t");
            body = unwrap_ts(body);
        }
        params.apply_header_overrides(&mut head.headers, is_segment);
        let body = if let Some(permit) = permit { permit.attach_to(body) } else { body };
        Ok(Response { head, body: self.track(body, kind, origin) })
    }

    /// Starts prefetching what follows this segment, if it is configured.
    fn prefetch(self, ask: &mut FetchRequest) {
        let state = self.state;
        // Clients that differ only in their language share the segment.
        ask.headers.remove("accept-language");
        if state.config.cache.prefetch > 0 && ask.method == Method::GET {
            let range = ask.headers.get_str("range").map(str::to_owned);
            let piece = (self.asked.params.get("d").map(decode_if_base64).unwrap_or_default(), range);
            state.ahead.prefetch_after(&state.shared, ask, &piece, state.config.cache.prefetch);
        }
    }

    /// Fetches for one client. If the origin does not support HEAD, a GET is sent and its body is not read, only
    /// dropped.
    async fn fetch(self, mut ask: FetchRequest) -> Result<Response> {
        let state = self.state;
        let response = state.send_resumable(ask.clone()).await?;
        if ask.method == Method::HEAD && matches!(response.head.status.as_u16(), 405 | 501) {
            ask.method = Method::GET;
            return Ok(state.send_resumable(ask).await?);
        }
        Ok(response)
    }
}

/// Maximum size of a download file name, in bytes: most file systems allow 255.
const MAX_NAME_LEN: usize = 200;

/// A `Content-Disposition` value (RFC 6266), with the RFC 8187 form for non-ASCII names. Path separators, bidirectional
/// control characters and line breaks are removed.
fn disposition(name: &str) -> String {
    let name = clean(&percent::decoded_lossy(name));
    let plain: String =
        name.chars().map(|c| if c.is_ascii_graphic() && c != '%' || c == ' ' { c } else { '_' }).collect();
    if plain == name {
        return format!("attachment; filename=\"{plain}\"");
    }
    let mut coded = Vec::new();
    push_value(name.replace([',', '@', '\''], "_").as_bytes(), &mut coded);
    format!("attachment; filename=\"{plain}\"; filename*=UTF-8''{}", String::from_utf8_lossy(&coded))
}

/// A name without path separators, control characters and bidirectional marks; `_` replaces invalid characters. A
/// name that is too long keeps its extension, by which systems choose a program.
fn clean(name: &str) -> String {
    let is_hidden = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
    };
    let allowed = name.chars().filter(|c| !is_hidden(*c));
    let name: String = allowed
        .map(|c| if matches!(c, '/' | '\\' | ':' | '*' | '?' | '"' | '<' | '>' | '|') { '_' } else { c })
        .collect();
    // Not hidden, not a folder, and without trailing characters that some systems drop.
    let name = name.trim().trim_start_matches('.').trim_end_matches(['.', ' ']);
    let (stem, ending) = match name.rfind('.') {
        Some(at) if name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    };
    let mut len = MAX_NAME_LEN.saturating_sub(ending.len()).min(stem.len());
    while !stem.is_char_boundary(len) {
        len -= 1;
    }
    let prefix = stem.get(..len).unwrap_or_default();
    if prefix.is_empty() && ending.is_empty() { "download".to_owned() } else { format!("{prefix}{ending}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn download_file_names_are_sanitized() {
        assert_eq!(disposition("a%20b.mp4"), "attachment; filename=\"a b.mp4\"");
        assert_eq!(disposition("x%22%0d%0ay"), "attachment; filename=\"x_y\"");
        assert_eq!(disposition("..%2f..%5cetc%2fpasswd"), "attachment; filename=\"_.._etc_passwd\"");
        // The mark would display `movie_gpj.exe` as `movie_exe.jpg`.
        assert_eq!(disposition("movie_%E2%80%AEgpj.exe"), "attachment; filename=\"movie_gpj.exe\"");
        assert_eq!(disposition("..."), "attachment; filename=\"download\"");
        let long = disposition(&format!("{}.mp4", "\u{e4}".repeat(3000)));
        assert!(long.len() < 2000 && long.ends_with(".mp4"), "{long}");
        assert!(disposition("\u{fc}.ts").ends_with("filename*=UTF-8''%C3%BC.ts"));
    }
}
