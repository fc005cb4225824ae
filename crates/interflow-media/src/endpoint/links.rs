//! `/generate_url(s)`: creates links for users and programs.

use interflow_types::data_file;
use std::net::IpAddr;
use std::sync::LazyLock;

use interflow_types::schema::JsonSchema;
use interflow_types::{Body, HostPattern, Timestamp};
use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value, json};

use super::error::{EndpointResult, MediaError, Result, json_response};
use super::params::decode_if_base64;
use super::request::MediaRequest;
use super::state::MediaState;
use crate::cenc::ContentKeyRing;
use crate::relay::address::{self, push_value};
use crate::token::{LinkGrant, QueryPairs, endpoint_of};

/// Maximum size of a link request, in bytes; one request may contain thousands of links.
const MAX_BODY: usize = 8 << 20;

/// The properties of a requested link.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct LinkRequest {
    /// The gateway's URL as players reach it; the request's own if absent.
    pub mediaflow_proxy_url: Option<String>,
    /// `/proxy/stream`, `/proxy/hls/manifest.m3u8`, …
    pub endpoint: Option<String>,
    /// What is fetched.
    pub destination_url: Option<String>,
    /// Further parameters.
    pub query_params: Map<String, Value>,
    /// Header fields sent upstream.
    pub request_headers: Map<String, Value>,
    /// Header fields set on the response.
    pub response_headers: Map<String, Value>,
    /// Header fields set on segments too.
    pub propagate_response_headers: Map<String, Value>,
    /// Header fields removed from responses.
    pub remove_response_headers: Vec<String>,
    /// The byte filter.
    pub stream_transformer: Option<String>,
    /// Lifetime in seconds.
    #[serde(deserialize_with = "number_or_text")]
    pub expiration: Option<u64>,
    /// The client address or network that may use it.
    pub ip: Option<String>,
    /// Only endpoints whose path has this prefix.
    pub path: Option<String>,
    /// The methods that the link allows; GET and HEAD if empty. Others are for `/proxy/forward`.
    pub methods: Vec<String>,
    /// Only these hosts upstream, as host patterns.
    pub hosts: Vec<String>,
    /// The user of the link.
    pub user: Option<String>,
    /// Seals the link. The value is not checked here: the request is already authorised.
    pub api_password: Option<String>,
    /// Whether to seal the link, regardless of `api_password`.
    pub sealed: Option<bool>,
    /// The file name for downloads.
    pub filename: Option<String>,
    /// Encodes the destination in base64 if the link is not sealed.
    pub base64_encode_destination: bool,
}

/// A number, also written as a string, as many clients of mediaflow-proxy do.
fn number_or_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    let number = match &value {
        Value::Null => return Ok(None),
        Value::String(text) => text.trim().parse().ok(),
        number => number.as_u64(),
    };
    number
        .map(Some)
        .ok_or_else(|| D::Error::custom(format!("`expiration` is {value}: a number of seconds is expected")))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedLink {
    pub url: String,
    /// Expiry in seconds since 1970.
    pub expires: Option<u64>,
}

/// The members of a map as parameters with this prefix; lists and objects are dropped.
fn pairs(prefix: &str, map: &Map<String, Value>) -> QueryPairs {
    let text = |v: &Value| match v {
        Value::String(s) => Some(s.clone()),
        Value::Number(_) | Value::Bool(_) => Some(v.to_string()),
        _ => None,
    };
    map.iter().filter_map(|(n, v)| Some((format!("{prefix}{n}"), text(v)?))).collect()
}

impl LinkRequest {
    /// The parameters of the link, in the form of a query.
    fn parameters(&self) -> QueryPairs {
        let mut q: QueryPairs = Vec::new();
        q.extend(self.destination_url.iter().map(|d| ("d".into(), decode_if_base64(d))));
        q.extend(pairs("", &self.query_params));
        q.extend(pairs("h_", &self.request_headers));
        q.extend(pairs("r_", &self.response_headers));
        q.extend(pairs("rp_", &self.propagate_response_headers));
        if !self.remove_response_headers.is_empty() {
            q.push(("x_headers".into(), self.remove_response_headers.join(",")));
        }
        q.extend(self.stream_transformer.iter().map(|t| ("transformer".into(), t.clone())));
        // A password must not be passed on with the link.
        q.retain(|(name, _)| name != "api_password" && name != "token");
        q
    }

    /// Creates the link below `base` (`http://host/media`). Destination, hosts, address and keys are checked now, so
    /// that a link that cannot work is not issued.
    ///
    /// # Errors
    /// The request is invalid; the error says why.
    pub fn issue(&self, state: &MediaState, base: &str) -> Result<IssuedLink, String> {
        let base = self.mediaflow_proxy_url.as_deref().filter(|u| !u.is_empty()).unwrap_or(base).trim_end_matches('/');
        let endpoint = self.endpoint.as_deref().unwrap_or("/proxy/stream");
        let mut path = format!("/{}", endpoint.trim_matches('/'));
        if let Some(name) = self.filename.as_deref().filter(|_| path == "/proxy/stream") {
            let mut coded = Vec::new();
            push_value(name.replace('/', "_").as_bytes(), &mut coded);
            path = format!("{path}/{}", String::from_utf8_lossy(&coded));
        }
        if let Some(d) = &self.destination_url {
            address::parse(&decode_if_base64(d)).map_err(|e| e.message().to_owned())?;
        }
        if let Some(ip) = self.ip.as_deref().map(str::trim).filter(|ip| !ip.is_empty())
            && ip.parse::<IpAddr>().is_err()
            && ip.parse::<IpNet>().is_err()
        {
            return Err(format!("`{ip}` is not an address or network: no client could use the link"));
        }
        for host in &self.hosts {
            host.parse::<HostPattern>().map_err(|e| format!("`hosts`: {e}"))?;
        }
        let text = |name: &str| self.query_params.get(name).and_then(Value::as_str).filter(|v| !v.is_empty());
        if let Some(key) = text("key") {
            ContentKeyRing::parse(text("key_id"), key).map_err(|e| format!("`key`: {e}"))?;
        }
        // Keys are to be hidden, and limits to be enforced, which only a sealed link does.
        let secret = ["key", "key_id"].iter().any(|k| self.query_params.contains_key(*k));
        let bound = self.expiration.is_some() || self.ip.is_some() || self.path.is_some() || !self.hosts.is_empty();
        let has_password = self.api_password.is_some() || self.query_params.contains_key("api_password");
        let seal = self.sealed.unwrap_or(has_password || secret || bound || state.password.is_some());
        if !seal {
            return Ok(IssuedLink { url: self.unsealed_url(base, &path), expires: None });
        }
        let now = Timestamp::now().secs();
        let grant = LinkGrant {
            q: self.parameters(),
            exp: self.expiration.map(|s| now.saturating_add(s)),
            ip: self.ip.clone().filter(|ip| !ip.is_empty()),
            endpoint: Some(endpoint_of(&path).to_owned()),
            methods: self.methods.iter().map(|m| m.to_ascii_uppercase()).collect(),
            path: self.path.clone(),
            hosts: self.hosts.clone(),
            user: self.user.clone(),
            child: false,
            hide: true,
        };
        let url = format!("{base}/_token_{}{path}", state.keys.seal(&grant));
        Ok(IssuedLink { url, expires: grant.exp })
    }

    /// The link with its parameters in clear, for which nothing is enforced.
    fn unsealed_url(&self, base: &str, path: &str) -> String {
        use base64::Engine as _;
        let mut out = format!("{base}{path}").into_bytes();
        for (i, (name, value)) in self.parameters().iter().enumerate() {
            out.push(if i == 0 { b'?' } else { b'&' });
            push_value(name.as_bytes(), &mut out);
            out.push(b'=');
            if name == "d" && self.base64_encode_destination {
                out.extend_from_slice(base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value).as_bytes());
            } else {
                push_value(value.as_bytes(), &mut out);
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Checks the names of the endpoint and the parameters. Only for people who type them: programs may send
    /// parameters that a later version knows.
    ///
    /// # Errors
    /// The first unknown name, with the known ones.
    pub fn check_names(&self) -> Result<(), UnknownName> {
        let unknown =
            |what, name: &str, known: &'static [&'static str]| UnknownName { what, name: name.to_owned(), known };
        if let Some(endpoint) = &self.endpoint {
            let path = format!("/{}", endpoint.trim_matches('/'));
            if !ENDPOINTS.contains(&path.as_str()) && endpoint_of(&path) != "/proxy/stream" {
                return Err(unknown("endpoint", endpoint, &ENDPOINTS));
            }
        }
        let is_free =
            |name: &str| ["h_", "r_", "rp_", "v_"].iter().any(|p| name.len() > p.len() && name.starts_with(p));
        let other = self.query_params.keys().find(|name| !PARAMETERS.contains(&name.as_str()) && !is_free(name));
        other.map_or(Ok(()), |name| Err(unknown("parameter", name, &PARAMETERS)))
    }
}

/// The endpoints that links may refer to, for error messages and completion. A file name may follow `/proxy/stream`.
pub static ENDPOINTS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/endpoints.txt")).collect());

/// The parameters of endpoints, besides `h_NAME`, `r_NAME`, `rp_NAME` and `v_NAME`.
pub static PARAMETERS: LazyLock<Vec<&str>> =
    LazyLock::new(|| data_file::lines(include_str!("../../data/parameters.txt")).collect());

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName {
    /// `endpoint` or `parameter`.
    pub what: &'static str,
    pub name: String,
    pub known: &'static [&'static str],
}

impl MediaRequest<'_> {
    pub async fn make_link(self, body: Body) -> EndpointResult {
        let request: LinkRequest = read(body).await?;
        let linked = self.link(&request)?;
        Ok(json_response(&json!({ "url": linked.url, "encoded_url": linked.url, "expires": linked.expires })))
    }

    /// Several links that share the properties outside of the list `urls`. One invalid link rejects all.
    pub async fn make_links(self, body: Body) -> EndpointResult {
        let mut all: Map<String, Value> = read(body).await?;
        let Some(Value::Array(list)) = all.remove("urls") else {
            return Err(MediaError::bad_request("`urls` must be a list"));
        };
        let (mut urls, mut held) = (Vec::new(), 0);
        for item in list {
            let Value::Object(own) = item else {
                return Err(MediaError::bad_request("each of `urls` must be an object"));
            };
            let mut merged = all.clone();
            merged.extend(own);
            let request = serde_json::from_value(Value::Object(merged)).map_err(MediaError::bad_request)?;
            let url = self.link(&request)?.url;
            held += url.len() as u64;
            if held > self.state.config.rewritten_bytes.0 {
                return Err(MediaError::bad_request("the links would be longer than media.rewritten_bytes"));
            }
            urls.push(url);
        }
        Ok(json_response(&json!({ "urls": urls })))
    }

    /// One link for the presented rights. A link cannot grant more than the one presented, so links make no links at
    /// all.
    fn link(self, request: &LinkRequest) -> Result<IssuedLink> {
        if self.asked.grant.child || self.asked.grant.hide {
            return Err(MediaError::forbidden("a link cannot be used to make others"));
        }
        let mut request = request.clone();
        if let Some(user) = self.asked.user() {
            request.user = Some(user.to_owned());
        }
        request.issue(self.state, &self.asked.base).map_err(MediaError::bad_request)
    }
}

/// Reads a link request and the password in it, where clients of mediaflow-proxy present it. The body is returned for
/// the endpoint.
pub async fn with_password(body: Body) -> Result<(Body, Option<String>)> {
    let (bytes, _) = body.collect(MAX_BODY).await.map_err(MediaError::bad_request)?;
    let request: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let of_link = |link: &Value| {
        let password = link["api_password"].as_str().or_else(|| link["query_params"]["api_password"].as_str());
        password.map(str::to_owned)
    };
    // Of several links, the first one that has a password shows it for all.
    let password = of_link(&request).or_else(|| request["urls"].as_array()?.iter().find_map(of_link));
    Ok((Body::from(bytes), password))
}

async fn read<T: for<'a> Deserialize<'a>>(body: Body) -> Result<T> {
    let (bytes, _) = body.collect(MAX_BODY).await.map_err(MediaError::bad_request)?;
    serde_json::from_slice(&bytes)
        .map_err(|e| MediaError::bad_request(format!("the body is not a valid JSON link request: {e}")))
}
