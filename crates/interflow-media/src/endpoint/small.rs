//! The small ones: health, the exit address, base64.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use interflow_flow::{Body, RequestHead, Response, StatusCode};
use serde_json::{Value, json};

use super::mount::Job;
use super::params::{Params, decode_base64};
use super::reply::{Answer, Stop, json};
use crate::relay::Ask;
use crate::relay::address::parse;
use crate::token::Pairs;

/// Services that tell a client its address, asked in turn.
const ECHOES: [(&str, &str); 3] = [
    ("https://api.ipify.org?format=json", "ip"),
    ("https://ipinfo.io/json", "ip"),
    ("https://httpbin.org/ip", "origin"),
];

/// The longest body of a question about an address, in bytes.
const QUESTION: usize = 64 << 10;

/// What stands in the body of a question about an address, when it is a JSON object.
async fn told(body: &mut Body) -> Result<Pairs, Stop> {
    let (bytes, _) = std::mem::take(body).collect(QUESTION).await.map_err(|e| Stop::bad(e.to_string()))?;
    let fields: serde_json::Map<String, Value> = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(fields.into_iter().filter_map(|(n, v)| Some((n, v.as_str()?.to_owned()))).collect())
}

/// Endpoints that anybody may ask, since they tell nothing and fetch nothing.
pub async fn open(path: &str, head: &RequestHead, body: &mut Body) -> Result<Option<Response>, Stop> {
    let mut read = Params::read(head.url.query().unwrap_or_default());
    if path.starts_with("/base64/") {
        read.add(told(body).await?);
    }
    let params = || read.clone();
    let given = |params: &Params, names: [&str; 2]| {
        let found = names.iter().find_map(|n| params.get(n)).map(str::to_owned);
        found.ok_or_else(|| Stop::bad(format!("the parameter `{}` is missing", names[0])))
    };
    Ok(Some(match path {
        "/health" => json(&json!({ "status": "healthy" })),
        "/base64/encode" => {
            let url = given(&params(), ["url", "d"])?;
            json(&json!({ "encoded_url": B64.encode(&url), "original_url": url }))
        }
        "/base64/decode" => {
            let encoded = given(&params(), ["encoded_url", "url"])?;
            let url = decode_base64(&encoded).ok_or_else(|| Stop::bad("this is no address in base64"))?;
            json(&json!({ "decoded_url": url, "encoded_url": encoded }))
        }
        "/base64/check" => {
            let url = given(&params(), ["url", "encoded_url"])?;
            let decoded = decode_base64(&url);
            json(&json!({ "url": url, "is_base64": decoded.is_some(), "decoded_url": decoded }))
        }
        _ => return Ok(None),
    }))
}

impl Job<'_> {
    /// The address that services see requests of ours come from.
    pub async fn ip(self) -> Answer {
        for (url, field) in ECHOES {
            let address = parse(url)?;
            let ask = Ask {
                method: interflow_flow::Method::GET,
                url: address.url,
                headers: Params::default().request_fields(&self.state.config.user_agent),
                scope: None,
            };
            let Ok(document) = self.state.fetch.document(ask, 64 << 10).await else { continue };
            let told: Option<serde_json::Value> = serde_json::from_slice(&document.body).ok();
            if let Some(ip) = told.as_ref().and_then(|v| v[field].as_str())
                && document.status == StatusCode::OK
            {
                return Ok(json(&json!({ "ip": ip })));
            }
        }
        Err(Stop::upstream("no service told us our address"))
    }
}
