//! The operator's overrides of the API format at endpoints where bodies and paths do not identify it.

use interflow_llm::message::ApiFormat;
use interflow_store::{FlowKind, FlowRecord, FlowStore, FlowSummary, Result, StoreError};
use interflow_types::schema::JsonSchema;
use interflow_types::wildcard;
use serde::{Deserialize, Serialize};

/// Maximum number of overrides, since all are compared with each request.
const MAX_ENDPOINTS: usize = 1000;
/// Maximum length of a pattern, in bytes.
const MAX_PATTERN_LEN: usize = 1000;

/// An override for an endpoint. Patterns are case-insensitive, and `*` matches any characters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EndpointOverride {
    /// Its id.
    pub id: u64,
    /// The origin's host, without the port.
    pub host: String,
    /// The path, without the query.
    pub path: String,
    /// The method, or `*` for all; that of a WebSocket is `GET`.
    pub method: String,
    /// The API format at the endpoint.
    #[serde(rename = "format")]
    pub shape: ApiFormat,
    /// The matching override with the highest priority applies; of two equal ones, that with the lower id.
    pub priority: i64,
    pub enabled: bool,
}

impl EndpointOverride {
    fn matches(&self, host: &str, path: &str, method: &str) -> bool {
        self.enabled
            && wildcard::matches(&self.method, method)
            && wildcard::matches(&self.host, host)
            && wildcard::matches(&self.path, path)
    }
}

/// All overrides in order of precedence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointOverrides(Vec<EndpointOverride>);

impl EndpointOverrides {
    /// Validates and sorts the overrides.
    ///
    /// # Errors
    /// An empty or overlong pattern, a duplicate id, or too many overrides.
    pub fn new(mut list: Vec<EndpointOverride>) -> Result<Self, String> {
        if list.len() > MAX_ENDPOINTS {
            return Err(format!("there can be {MAX_ENDPOINTS} endpoints at most"));
        }
        for e in &list {
            for (name, pattern) in [("host", &e.host), ("path", &e.path), ("method", &e.method)] {
                if pattern.is_empty() || pattern.len() > MAX_PATTERN_LEN {
                    return Err(format!("the pattern of the {name} must have 1 to {MAX_PATTERN_LEN} bytes"));
                }
            }
        }
        list.sort_by_key(|e| e.id);
        if list.windows(2).any(|pair| pair[0].id == pair[1].id) {
            return Err("two endpoints have the same number".to_owned());
        }
        // A stable sort: equal priorities stay in the order of their ids.
        list.sort_by_key(|e| std::cmp::Reverse(e.priority));
        Ok(Self(list))
    }

    /// Loads the overrides from a store.
    ///
    /// # Errors
    /// They cannot be read or parsed.
    pub fn load(store: &dyn FlowStore) -> Result<Self> {
        let text = store.endpoints()?;
        if text.is_empty() {
            return Ok(Self::default());
        }
        let list = serde_json::from_str(&text).map_err(|e| e.to_string()).and_then(Self::new);
        list.map_err(|what| StoreError::Damaged { place: "endpoints.json".into(), what })
    }

    /// Saves the overrides in a store.
    ///
    /// # Errors
    /// The store refused.
    pub fn save(&self, store: &dyn FlowStore) -> Result<()> {
        store.write_endpoints(&serde_json::to_string_pretty(&self.0).unwrap_or_default())
    }

    pub fn list(&self) -> &[EndpointOverride] {
        &self.0
    }

    /// The overridden format of a request in progress; `websocket`: it requests an upgrade.
    pub fn shape_at(&self, host: &str, path: &str, method: &str, websocket: bool) -> Option<ApiFormat> {
        self.find(host, path, if websocket { FlowKind::WebSocket } else { FlowKind::Http }, method)
    }

    /// The overridden format of a flow, by its metadata.
    pub(super) fn format_for(&self, flow: &FlowSummary) -> Option<ApiFormat> {
        if self.0.is_empty() {
            return None;
        }
        let host = flow.authority.host.to_string();
        self.find(&host, flow.path.as_deref()?, flow.kind, flow.method.as_deref().unwrap_or_default())
    }

    /// As [`format_for`](Self::format_for), for a full row.
    pub(super) fn format_for_row(&self, row: &FlowRecord) -> Option<ApiFormat> {
        let request = row.request.as_ref().filter(|_| !self.0.is_empty())?;
        self.find(&row.host(), &request.path, row.kind, &request.method)
    }

    fn find(&self, host: &str, path: &str, kind: FlowKind, method: &str) -> Option<ApiFormat> {
        let path = path.split('?').next().unwrap_or_default();
        // Over HTTP/2, its handshake is a CONNECT.
        let method = if kind == FlowKind::WebSocket { "GET" } else { method };
        self.0.iter().find(|e| e.matches(host, path, method)).map(|e| e.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(id: u64, host: &str, path: &str, priority: i64, shape: ApiFormat) -> EndpointOverride {
        let (host, path) = (host.to_owned(), path.to_owned());
        EndpointOverride { id, host, path, method: "POST".into(), shape, priority, enabled: true }
    }

    #[test]
    fn highest_priority_enabled_endpoint_override_wins() {
        let off = EndpointOverride { enabled: false, ..endpoint(4, "*", "*", 99, ApiFormat::Ollama) };
        let list = vec![
            endpoint(1, "*.corp.test", "/*", 0, ApiFormat::Chat),
            endpoint(2, "llm.corp.test", "/v1/*", 5, ApiFormat::Anthropic),
            endpoint(3, "llm.corp.test", "/v1/*", 5, ApiFormat::Gemini),
            off,
        ];
        let all = EndpointOverrides::new(list).unwrap();
        let find = |host, path, method| all.find(host, path, FlowKind::Http, method);
        assert_eq!(find("LLM.corp.test", "/v1/x?y=/v2", "post"), Some(ApiFormat::Anthropic));
        assert_eq!(find("llm.corp.test", "/v2/x", "POST"), Some(ApiFormat::Chat));
        assert_eq!(find("llm.corp.test", "/v1/x", "GET"), None);
        assert_eq!(find("corp.test", "/v1/x", "POST"), None);
    }

    #[test]
    fn invalid_endpoint_overrides_are_refused() {
        let one = |host: &str| endpoint(1, host, "/", 0, ApiFormat::Chat);
        assert!(EndpointOverrides::new(vec![one("")]).unwrap_err().contains("host"));
        assert!(EndpointOverrides::new(vec![one(&"a".repeat(MAX_PATTERN_LEN + 1))]).is_err());
        assert!(EndpointOverrides::new(vec![one("a"), one("b")]).unwrap_err().contains("same number"));
        assert!(
            EndpointOverrides::new((0..=MAX_ENDPOINTS as u64).map(|id| EndpointOverride { id, ..one("a") }).collect())
                .is_err()
        );
    }
}
