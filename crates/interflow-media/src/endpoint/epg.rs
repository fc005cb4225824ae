//! `/proxy/epg` (programme guides) and `/proxy/forward` (arbitrary requests from the gateway's address).

use std::time::Duration;

use interflow_types::{Body, Response, StatusCode};

use super::error::{EndpointResult, MediaError};
use super::request::MediaRequest;
use crate::relay::{CachePolicy, FetchRequest, FetchedResponse, header_filter};

/// Client fields passed on by a forwarded request, in addition to those of every fetch. `Cookie` is not among them.
const FORWARDED: [&str; 6] =
    ["Accept", "Accept-Encoding", "Content-Type", "Content-Encoding", "X-Requested-With", "Authorization"];

impl MediaRequest<'_> {
    /// A programme guide (XMLTV), cached and shared by all clients.
    pub async fn epg(self) -> EndpointResult {
        let params = &self.asked.params;
        let ttl = match params.number("cache_ttl")? {
            Some(seconds) => Duration::from_secs_f64(seconds.clamp(0.0, 86_400.0)),
            None => self.state.config.epg_ttl.0,
        };
        let mut ask = self.whole_request(params.destination("d")?)?;
        header_filter::remove_conditions(&mut ask.headers);
        let is_cached = self.state.shared.contains_request(&ask);
        let cap = self.state.config.document_bytes.0;
        let document = match ttl.is_zero() {
            true => self.state.fetch.document(ask, cap).await?,
            false => self.state.shared.document(ask, CachePolicy::For(ttl), cap).await?,
        };
        if !document.status.is_success() {
            return Err(MediaError::Status(document.status, format!("{} has no such guide", document.url.authority)));
        }
        // Guides are often gzip files without a matching type.
        let kind = if document.body.starts_with(&[0x1f, 0x8b]) { "application/gzip" } else { "application/xml" };
        let mut response = Response::full(StatusCode::OK, kind, document.body);
        let cached = if is_cached && !ttl.is_zero() { "HIT" } else { "MISS" };
        response.head.headers.append_unchecked(b"X-EPG-Cache", cached.as_bytes());
        let control = format!("public, max-age={}", ttl.as_secs());
        response.head.headers.append_unchecked(b"Cache-Control", control.as_bytes());
        params.apply_header_overrides(&mut response.head.headers, false);
        Ok(response)
    }

    /// A request with any method and body, for services that bind a response to the client's address. Never cached.
    pub async fn forward(self, body: Body) -> EndpointResult {
        let params = &self.asked.params;
        let address = params.destination("d")?;
        let mut headers = params.request_fields(&self.state.config.user_agent);
        header_filter::copy_request_headers(&self.head.headers, &mut headers);
        for name in FORWARDED {
            if !headers.contains(name)
                && let Some(value) = self.head.headers.get(name)
            {
                headers.append_unchecked(name.as_bytes(), value);
            }
        }
        if let Some(basic) = address.basic {
            let _ = headers.set("Authorization", basic);
        }
        let scope = (!self.asked.grant.hosts.is_empty()).then(|| self.asked.grant.clone());
        let origin = format!("{}://{}", address.url.scheme, address.url.authority);
        let (method, cookies) = (self.head.method.clone(), self.asked.cookies());
        let ask = FetchRequest { method, url: address.url, headers, scope, is_secret: true, cookies };
        let FetchedResponse { response, .. } = self.state.fetch.send_with(ask, body).await?;
        let mut head = header_filter::response_head(&response.head);
        params.apply_header_overrides(&mut head.headers, false);
        Ok(Response { head, body: self.track(response.body, "forward", origin) })
    }
}
