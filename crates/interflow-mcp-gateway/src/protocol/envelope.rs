//! What a request of a version without sessions says of itself in `_meta` (MCP 2026-07-28, basic).

use interflow_redact::looks_of;
use serde_json::{Map, Value, json};

use super::client_capabilities::{ClientCapabilities, ClientRequestKind};
use super::header_values::RoutingFields;
use super::jsonrpc::{INVALID_PARAMS, INVALID_REQUEST, RpcError, UNSUPPORTED_VERSION, member, merged, object, without};
use super::log_level::LogLevel;
use super::versions::{STATELESS, VERSIONS, supported};

const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const CLIENT_INFO_KEY: &str = "io.modelcontextprotocol/clientInfo";
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";
pub(crate) const SUBSCRIPTION_ID_KEY: &str = "io.modelcontextprotocol/subscriptionId";
/// Members of `_meta` that the gateway answers for, and params that have a meaning for it.
const OWN_META: [&str; 5] = [VERSION_KEY, CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, "progressToken"];
const OWN_PARAMS: &str = "name arguments uri cursor ref argument context notifications requestState taskId _meta";

/// The envelope of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Envelope {
    pub capabilities: ClientCapabilities,
    /// The level from which on the client wants log messages on the stream of this request.
    pub log_level: Option<LogLevel>,
    /// What an earlier answer to the same request gave the client.
    pub request_state: Option<String>,
    /// Params that are passed on as they are: `inputResponses`, `_meta`, and what this version does not know. Raw JSON, an
    /// object.
    pub passed: String,
}

impl Envelope {
    /// The envelope of a message; `None` if it is of a version with sessions. The order of the checks is that of the
    /// published SDKs, because clients react to the first error.
    ///
    /// # Errors
    /// The envelope is invalid, the header fields disagree with the body, or the version is not supported.
    pub fn parse(raw: &str, message: &Value, fields: &RoutingFields) -> Result<Option<Self>, RpcError> {
        if !check_version(message, Some(fields))? {
            return Ok(None);
        }
        let (params, meta) = (&message["params"], &message["params"]["_meta"]);
        let invalid = |why: String| RpcError::new(INVALID_PARAMS, why);
        let level = |level: &Value| {
            let level = level.as_str().and_then(LogLevel::parse);
            level.ok_or_else(|| invalid(format!("{LOG_LEVEL_KEY} is not a level of log messages")))
        };
        let log_level = meta.get(LOG_LEVEL_KEY).map(level).transpose()?;
        let responses = params.get("inputResponses");
        if responses.is_some_and(|all| !all.as_object().is_some_and(|all| all.values().all(Value::is_object))) {
            return Err(invalid("`inputResponses` is not an object of objects".to_owned()));
        }
        let state = params.get("requestState");
        if state.is_some_and(|state| !state.is_string()) {
            return Err(invalid("`requestState` is not a string".to_owned()));
        }
        let (capabilities, passed) = (ClientCapabilities::parse(&meta[CAPABILITIES_KEY]), passed(raw));
        let request_state = state.and_then(Value::as_str).map(str::to_owned);
        Ok(Some(Self { capabilities, log_level, request_state, passed }))
    }

    /// Raw JSON of the answer with this key to what the client was asked.
    pub fn input_response(&self, key: &str) -> Option<&str> {
        member(member(&self.passed, "inputResponses")?, key)
    }

    /// What is passed on to a server with sessions: it does not know of answers.
    pub fn without_responses(passed: &str) -> String {
        without(passed, |name| name == "inputResponses")
    }

    /// What of the envelope is recorded, as a member of the params.
    pub fn recorded(&self) -> String {
        let capabilities = self.capabilities.declared(&ClientRequestKind::ALL);
        json!({ "_meta": { VERSION_KEY: STATELESS, CAPABILITIES_KEY: capabilities } }).to_string()
    }
}

/// Whether a message is of the version without sessions. `fields` are those of HTTP.
///
/// # Errors
/// The JSON-RPC error response to a message whose envelope is invalid, whose header fields disagree with its body, or
/// whose version is not supported.
pub fn is_stateless(message: &Value, fields: Option<&RoutingFields>) -> Result<bool, Value> {
    check_version(message, fields).map_err(|e| {
        let error = json!({ "code": e.code, "message": e.message, "data": e.data });
        json!({ "jsonrpc": "2.0", "id": message.get("id"), "error": error })
    })
}

fn check_version(message: &Value, fields: Option<&RoutingFields>) -> Result<bool, RpcError> {
    let (params, method) = (&message["params"], message["method"].as_str().unwrap_or_default());
    let (version, header) = (params["_meta"].get(VERSION_KEY), fields.and_then(|fields| fields.version.as_deref()));
    if version.is_none() && header != Some(STATELESS) {
        return match header.filter(|version| !VERSIONS.contains(version)) {
            Some(other) => Err(unsupported(other)),
            None => Ok(false),
        };
    }
    if message.is_array() {
        return Err(RpcError::new(INVALID_REQUEST, "batches are not supported: send one message"));
    }
    // A notification has no envelope.
    let is_request = message.get("id").is_some_and(|id| !id.is_null());
    if is_request {
        if let Some(key) = [VERSION_KEY, CAPABILITIES_KEY].iter().find(|key| params["_meta"].get(**key).is_none()) {
            return Err(RpcError::new(INVALID_PARAMS, format!("`_meta` of the params has no {key}")));
        }
        fields.map_or(Ok(()), |fields| fields.check(&params["_meta"][VERSION_KEY], method, params))?;
    }
    match version.and_then(Value::as_str).or(header.filter(|_| !is_request)) {
        Some(STATELESS) => Ok(true),
        other => Err(unsupported(other.unwrap_or_default())),
    }
}

/// The result that asks a client without a session.
pub(crate) fn input_required(requests: &Value, state: Option<String>) -> String {
    let mut result = json!({ "resultType": "input_required", "inputRequests": requests });
    if let Some(state) = state {
        result["requestState"] = state.into();
    }
    result.to_string()
}

/// What a server is told with each request.
pub(crate) fn server_meta(capabilities: &Value, log_level: Option<LogLevel>) -> Map<String, Value> {
    let mut meta = Map::new();
    meta.insert(VERSION_KEY.to_owned(), STATELESS.into());
    meta.insert(CLIENT_INFO_KEY.to_owned(), json!({ "name": "interflow", "version": env!("CARGO_PKG_VERSION") }));
    meta.insert(CAPABILITIES_KEY.to_owned(), capabilities.clone());
    if let Some(level) = log_level {
        meta.insert(LOG_LEVEL_KEY.to_owned(), level.as_str().into());
    }
    meta
}

fn unsupported(requested: &str) -> RpcError {
    let supported = supported();
    let message = format!("MCP {requested:?} is not supported; supported are {}", supported.join(", "));
    let data = json!({ "supported": supported, "requested": requested });
    RpcError { data: Some(Box::new(data)), ..RpcError::new(UNSUPPORTED_VERSION, message) }
}

fn passed(raw: &str) -> String {
    let params = member(raw, "params").unwrap_or_default();
    let meta = without(member(params, "_meta").unwrap_or_default(), |name| OWN_META.contains(&name));
    // Some servers would take `Arguments` for `arguments`.
    let params = without(params, |name| OWN_PARAMS.split(' ').any(|own| looks_of(own) == looks_of(name)));
    if meta == "{}" { params } else { merged(&params, &object([("_meta", meta.as_str())])) }
}

/// What the gateway says of itself in the `_meta` of its results.
pub(crate) fn own_meta() -> Value {
    json!({ SERVER_INFO_KEY: { "name": "interflow", "version": env!("CARGO_PKG_VERSION") } })
}
