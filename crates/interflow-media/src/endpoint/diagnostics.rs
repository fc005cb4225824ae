//! Diagnostic endpoints: health, exit address, base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use interflow_types::{Body, RequestHead, Response, StatusCode};
use serde_json::{Value, json};

use super::error::{EndpointResult, MediaError, Result, json_response};
use super::params::{MediaParams, decode_base64};
use super::request::MediaRequest;
use crate::relay::address::parse;
use crate::relay::{CookieJar, FetchRequest};
use crate::token::QueryPairs;

/// Services that return the caller's address, tried in turn, and the member of their JSON that has it.
const IP_ECHO_SERVICES: [(&str, &str); 3] = [
    ("https://api.ipify.org?format=json", "ip"),
    ("https://ipinfo.io/json", "ip"),
    ("https://httpbin.org/ip", "origin"),
];

/// Maximum size of a request body with a URL to check, in bytes.
const MAX_QUESTION_BYTES: usize = 64 << 10;

/// The parameters in a body that is a JSON object; none if it is anything else.
async fn params_in_body(body: &mut Body) -> Result<QueryPairs> {
    let (bytes, _) = std::mem::take(body).collect(MAX_QUESTION_BYTES).await.map_err(MediaError::bad_request)?;
    let fields: serde_json::Map<String, Value> = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(fields.into_iter().filter_map(|(n, v)| Some((n, v.as_str()?.to_owned()))).collect())
}

/// Endpoints without authorisation, because they reveal and fetch nothing. `None` for any other path.
pub async fn public_endpoint(path: &str, head: &RequestHead, body: &mut Body) -> Result<Option<Response>> {
    let mut read = MediaParams::read(head.url.query().unwrap_or_default());
    if path.starts_with("/base64/") {
        read.add(params_in_body(body).await?);
    }
    let required = |names: [&str; 2]| {
        let value = names.iter().find_map(|n| read.get(n)).map(str::to_owned);
        value.ok_or_else(|| MediaError::missing(names[0]))
    };
    Ok(Some(match path {
        "/health" => json_response(&json!({ "status": "healthy" })),
        "/base64/encode" => {
            let url = required(["url", "d"])?;
            json_response(&json!({ "encoded_url": B64.encode(&url), "original_url": url }))
        }
        "/base64/decode" => {
            let encoded = required(["encoded_url", "url"])?;
            let url =
                decode_base64(&encoded).ok_or_else(|| MediaError::bad_request("this is not an address in base64"))?;
            json_response(&json!({ "decoded_url": url, "encoded_url": encoded }))
        }
        "/base64/check" => {
            let url = required(["url", "encoded_url"])?;
            let decoded = decode_base64(&url);
            json_response(&json!({ "url": url, "is_base64": decoded.is_some(), "decoded_url": decoded }))
        }
        _ => return Ok(None),
    }))
}

impl MediaRequest<'_> {
    /// The gateway's public address as seen by external services, by the route that fetches take.
    pub async fn exit_address(self) -> EndpointResult {
        for (url, field) in IP_ECHO_SERVICES {
            let address = parse(url)?;
            let ask = FetchRequest {
                method: interflow_types::Method::GET,
                url: address.url,
                headers: MediaParams::default().request_fields(&self.state.config.user_agent),
                scope: None,
                is_secret: false,
                cookies: CookieJar::default(),
            };
            let Ok(document) = self.state.fetch.document(ask, 64 << 10).await else { continue };
            let reply: Option<serde_json::Value> = serde_json::from_slice(&document.body).ok();
            if let Some(ip) = reply.as_ref().and_then(|v| v[field].as_str())
                && document.status == StatusCode::OK
            {
                return Ok(json_response(&json!({ "ip": ip })));
            }
        }
        Err(MediaError::upstream("no service returned the gateway's address"))
    }
}
