//! Messages of clients, and what of them is recorded and sent on: only members that are known are.

use interflow_codec::json::whole_pairs;
use serde_json::{Value, json};

use super::client_capabilities::{ClientCapabilities, ClientRequestKind, TASKS_EXTENSION};
use super::envelope::Envelope;
use super::header_values::RoutingFields;
use super::jsonrpc::{INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RpcError, ServerMessage, member, merged, response};
pub(crate) use super::list_kind::ListKind;
use super::listen_filter::{LISTEN, ListenFilter};
use super::log_level::{self, LogLevel};
use super::task_method::{TASK_LIST, TaskMethod};

/// Longest name of a tool or a prompt, and longest URI, in bytes.
pub(crate) const MAX_NAME: usize = 256;
const MAX_URI: usize = 8192;

/// The tool of the gateway itself that finds others.
pub(crate) const SEARCH_TOOL: &str = "interflow_search_tools";

pub(crate) const DISCOVER: &str = "server/discover";

/// Whether a value can be an id: another number would come back as a different text.
fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}

/// A message of a client.
#[expect(clippy::large_enum_variant, reason = "nearly all are requests, and each lives as long as its request")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientMessage {
    Request(ClientRequest),
    /// The client no longer wants the response to the request with this id.
    Cancel(Value),
    /// A notification of a version without sessions, in which none needs anything to be done.
    Notice,
    /// The response to a request of a server: the id that this gateway gave it, and the result or the error.
    Response(u64, Result<String, RpcError>),
    /// A notification that needs nothing to be done, or a response to a request that was never sent.
    Ignored,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientRequest {
    /// A string or an integer.
    pub id: Value,
    pub method: ClientMethod,
    /// The token of the progress notifications that the client wants.
    pub progress_token: Option<Value>,
    /// Of a version without sessions.
    pub envelope: Option<Box<Envelope>>,
    /// The call may go on as a task with these settings, of a version with sessions.
    pub task: Option<Value>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientMethod {
    /// With the version that the client wants, its name and version, and what it can be asked.
    Initialize(String, Value, Box<ClientCapabilities>),
    /// What the gateway is and has, for clients of the version without sessions.
    Discover,
    /// A stream of notifications, for clients of the version without sessions.
    Listen(ListenFilter),
    Ping,
    /// A list: `tools/list` and the like, one page.
    List(ListKind),
    /// A tool's name, and its arguments as raw JSON.
    CallTool(String, String),
    /// The arguments of the gateway's own tool, as raw JSON.
    SearchTools(String),
    /// The name of the gateway's own tool that connects the user's account at a server.
    ConnectAccount(String),
    GetPrompt(String, String),
    ReadResource(String),
    /// The URI of a resource whose changes the client wants to know, or does not want to know any more.
    Subscribe(String),
    Unsubscribe(String),
    /// Whose argument is completed, and the members `argument` and `context` of the params as raw JSON.
    Complete(CompletionRef, String),
    /// The level from which on the client wants log messages.
    SetLogLevel(LogLevel),
    /// What is done with a task, and its id.
    Task(TaskMethod, String),
    /// The tasks of the session.
    ListTasks,
    Unknown(String),
}

/// What has arguments that a server can complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CompletionRef {
    Prompt(String),
    /// The template of a resource.
    Resource(String),
}

impl ClientMethod {
    /// What a server has to list before its client may name it: the kind, and the name that the client used.
    pub fn listed_name(&mut self) -> Option<(ListKind, &mut String)> {
        match self {
            Self::CallTool(name, _) => Some((ListKind::Tools, name)),
            Self::GetPrompt(name, _) | Self::Complete(CompletionRef::Prompt(name), _) => {
                Some((ListKind::Prompts, name))
            }
            _ => None,
        }
    }

    /// Removes what may have to be redacted.
    pub fn clear_values(&mut self) {
        match self {
            Self::CallTool(_, arguments) | Self::GetPrompt(_, arguments) | Self::SearchTools(arguments) => {
                *arguments = "{}".to_owned();
            }
            Self::ReadResource(uri) | Self::Subscribe(uri) | Self::Unsubscribe(uri) => uri.clear(),
            Self::Complete(reference, values) => {
                *values = "{}".to_owned();
                if let CompletionRef::Resource(uri) = reference {
                    uri.clear();
                }
            }
            Self::Listen(filter) => filter.resources.clear(),
            Self::Task(_, id) => id.clear(),
            Self::Initialize(..)
            | Self::Discover
            | Self::Ping
            | Self::List(_)
            | Self::ListTasks
            | Self::SetLogLevel(_)
            | Self::ConnectAccount(_)
            | Self::Unknown(_) => {}
        }
    }
}

/// A message that cannot be answered but with an error; the id is null if it is not known.
pub(crate) type InvalidMessage = (Value, RpcError);

impl ClientMessage {
    /// # Errors
    /// The message is invalid.
    pub fn parse(raw: &str, fields: &RoutingFields) -> Result<Self, InvalidMessage> {
        let raw = &*whole_pairs(raw);
        let message: Value = serde_json::from_str(raw)
            .map_err(|e| (Value::Null, RpcError::new(PARSE_ERROR, format!("the body is invalid JSON: {e}"))))?;
        let invalid = |id: Value, why: &str| (id, RpcError::new(INVALID_REQUEST, why));
        if message.is_array() {
            return Err(invalid(Value::Null, "batches are not supported, as since MCP 2025-06-18: send one message"));
        }
        let id = message.get("id").filter(|id| !id.is_null()).cloned();
        if !id.as_ref().is_none_or(is_id) {
            return Err(invalid(Value::Null, "an id is a string or an integer of at most 64 bits"));
        }
        if message["jsonrpc"] != "2.0" {
            return Err(invalid(id.unwrap_or_default(), "not a message of JSON-RPC 2.0"));
        }
        let invalid_envelope = |e| (id.clone().unwrap_or_default(), e);
        let envelope = Envelope::parse(raw, &message, fields).map_err(invalid_envelope)?;
        let Some(method) = message["method"].as_str() else {
            let is_response = message.get("result").is_some() || message.get("error").is_some();
            return if is_response && envelope.is_none() {
                Ok(parse_response(raw))
            } else {
                Err(invalid(id.unwrap_or_default(), "no method"))
            };
        };
        let params = &message["params"];
        let Some(id) = id else {
            if envelope.is_some() {
                return Ok(Self::Notice);
            }
            let cancelled = params.get("requestId").filter(|id| is_id(id));
            let cancelled = cancelled.filter(|_| method == "notifications/cancelled").cloned();
            return Ok(cancelled.map_or(Self::Ignored, Self::Cancel));
        };
        let method = parse_method(raw, method, params, envelope.is_some())
            .map_err(|why| (id.clone(), RpcError::new(INVALID_PARAMS, format!("{method}: {why}"))))?;
        let token = params["_meta"].get("progressToken").filter(|token| is_id(token)).cloned();
        let task =
            params["task"].as_object().filter(|_| envelope.is_none() && matches!(method, ClientMethod::CallTool(..)));
        let task = task.map(|task| task.get("ttl").map_or_else(|| json!({}), |ttl| json!({ "ttl": ttl.as_u64() })));
        let envelope = envelope.map(Box::new);
        Ok(Self::Request(ClientRequest { id, method, progress_token: token, envelope, task }))
    }

    /// The message as it is recorded: without what was not understood, and thus not redacted.
    pub fn to_json(&self) -> String {
        match self {
            Self::Request(request) => request.to_json(),
            Self::Cancel(id) => json!({
                "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id }
            })
            .to_string(),
            Self::Response(id, result) => response(&json!(id), result),
            Self::Notice | Self::Ignored => r#"{"jsonrpc":"2.0"}"#.to_owned(),
        }
    }
}

impl ClientRequest {
    fn to_json(&self) -> String {
        let (method, params) = match &self.method {
            ClientMethod::Initialize(version, client, capabilities) => {
                let capabilities = capabilities.declared(&ClientRequestKind::ALL);
                let params = json!({ "protocolVersion": version, "capabilities": capabilities, "clientInfo": client });
                ("initialize", params.to_string())
            }
            ClientMethod::Discover => (DISCOVER, "{}".to_owned()),
            ClientMethod::Listen(filter) => (LISTEN, json!({ "notifications": filter.to_value() }).to_string()),
            ClientMethod::Ping => ("ping", "{}".to_owned()),
            ClientMethod::List(kind) => (kind.as_str(), "{}".to_owned()),
            ClientMethod::CallTool(name, arguments) => ("tools/call", named_params(name, arguments)),
            ClientMethod::SearchTools(arguments) => ("tools/call", named_params(SEARCH_TOOL, arguments)),
            ClientMethod::ConnectAccount(name) => ("tools/call", named_params(name, "{}")),
            ClientMethod::GetPrompt(name, arguments) => ("prompts/get", named_params(name, arguments)),
            ClientMethod::ReadResource(uri) => ("resources/read", json!({ "uri": uri }).to_string()),
            ClientMethod::Subscribe(uri) => ("resources/subscribe", json!({ "uri": uri }).to_string()),
            ClientMethod::Unsubscribe(uri) => ("resources/unsubscribe", json!({ "uri": uri }).to_string()),
            ClientMethod::Complete(reference, values) => ("completion/complete", completion_params(reference, values)),
            ClientMethod::SetLogLevel(level) => (log_level::SET_LEVEL, level.params()),
            ClientMethod::Task(method, id) => (method.as_str(), json!({ "taskId": id }).to_string()),
            ClientMethod::ListTasks => (TASK_LIST, "{}".to_owned()),
            ClientMethod::Unknown(method) => (method.as_str(), "{}".to_owned()),
        };
        let params = match (&self.envelope, &self.task) {
            (Some(envelope), _) => merged(&merged(&params, &envelope.passed), &envelope.recorded()),
            (None, Some(task)) => merged(&params, &json!({ "task": task }).to_string()),
            (None, None) => params,
        };
        format!(r#"{{"jsonrpc":"2.0","id":{},"method":{},"params":{params}}}"#, self.id, Value::from(method))
    }
}

/// The params of `tools/call` and `prompts/get`.
pub(crate) fn named_params(name: &str, arguments: &str) -> String {
    format!(r#"{{"name":{},"arguments":{arguments}}}"#, Value::from(name))
}

/// The params of `completion/complete`.
pub(crate) fn completion_params(reference: &CompletionRef, values: &str) -> String {
    let reference = match reference {
        CompletionRef::Prompt(name) => json!({ "type": "ref/prompt", "name": name }),
        CompletionRef::Resource(uri) => json!({ "type": "ref/resource", "uri": uri }),
    };
    let members = values.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).unwrap_or_default().trim();
    let comma = if members.is_empty() { "" } else { "," };
    format!(r#"{{"ref":{reference}{comma}{members}}}"#)
}

fn parse_completion(params: &Value) -> Result<ClientMethod, &'static str> {
    let (reference, argument) = (&params["ref"], &params["argument"]);
    let named = |member: &str, max: usize| reference[member].as_str().filter(|t| t.len() <= max).map(str::to_owned);
    let reference = match reference["type"].as_str() {
        Some("ref/prompt") => named("name", MAX_NAME).map(CompletionRef::Prompt),
        Some("ref/resource") => named("uri", MAX_URI).map(CompletionRef::Resource),
        _ => None,
    };
    let reference = reference.ok_or("`ref` names neither a prompt (ref/prompt) nor a resource (ref/resource)")?;
    let (Some(name), Some(value)) = (argument["name"].as_str(), argument["value"].as_str()) else {
        return Err("`argument` needs a name and a value, both strings");
    };
    let mut values = json!({ "argument": { "name": name, "value": value } });
    if let Some(known) = params["context"].get("arguments").filter(|known| !known.is_null()) {
        if !known.as_object().is_some_and(|known| known.values().all(Value::is_string)) {
            return Err("`context.arguments` is not an object of strings");
        }
        values["context"] = json!({ "arguments": known });
    }
    Ok(ClientMethod::Complete(reference, values.to_string()))
}

/// Methods that only versions with sessions have.
const OF_SESSIONS: [&str; 5] =
    ["initialize", "ping", "resources/subscribe", "resources/unsubscribe", log_level::SET_LEVEL];

fn parse_method(raw: &str, method: &str, params: &Value, is_stateless: bool) -> Result<ClientMethod, &'static str> {
    let text = |name: &str, max: usize| params[name].as_str().filter(|text| text.len() <= max).map(str::to_owned);
    let name = || text("name", MAX_NAME).ok_or("it needs the name of what is called, of 256 bytes at most");
    let uri = || text("uri", MAX_URI).ok_or("it needs the URI of a resource, of 8192 bytes at most");
    let unknown = || ClientMethod::Unknown(method.chars().take(100).collect());
    Ok(match method {
        _ if is_stateless && OF_SESSIONS.contains(&method) => unknown(),
        DISCOVER if is_stateless => ClientMethod::Discover,
        LISTEN if is_stateless => ClientMethod::Listen(ListenFilter::parse(params)?),
        "initialize" => {
            let part =
                |name: &str| params["clientInfo"][name].as_str().map(|t| t.chars().take(200).collect::<String>());
            let client = json!({ "name": part("name"), "version": part("version") });
            let mut capabilities = Box::new(ClientCapabilities::parse(&params["capabilities"]));
            // It is of the version without sessions.
            capabilities.extensions.remove(TASKS_EXTENSION);
            // A date; what is not could be any text.
            let version =
                text("protocolVersion", 10).filter(|own| own.bytes().all(|b| b.is_ascii_digit() || b == b'-'));
            ClientMethod::Initialize(version.unwrap_or_default(), client, capabilities)
        }
        "ping" => ClientMethod::Ping,
        "tools/call" if params["name"] == SEARCH_TOOL => ClientMethod::SearchTools(arguments(raw)?),
        "tools/call" => ClientMethod::CallTool(name()?, arguments(raw)?),
        "prompts/get" => ClientMethod::GetPrompt(name()?, arguments(raw)?),
        "resources/read" => ClientMethod::ReadResource(uri()?),
        "resources/subscribe" => ClientMethod::Subscribe(uri()?),
        "resources/unsubscribe" => ClientMethod::Unsubscribe(uri()?),
        log_level::SET_LEVEL => {
            let level = params["level"].as_str().and_then(LogLevel::parse);
            let levels = "`level` is not one of debug, info, notice, warning, error, critical, alert and emergency";
            ClientMethod::SetLogLevel(level.ok_or(levels)?)
        }
        "completion/complete" => parse_completion(params)?,
        TASK_LIST if !is_stateless => ClientMethod::ListTasks,
        _ => match (TaskMethod::from_name(method, is_stateless), ListKind::from_method(method)) {
            (Some(task), _) => {
                let id = text("taskId", MAX_URI).ok_or("it needs the id of a task, of 8192 bytes at most")?;
                ClientMethod::Task(task, id)
            }
            (None, Some(kind)) => ClientMethod::List(kind),
            (None, None) => unknown(),
        },
    })
}

/// A response of a client has the form of a server's.
fn parse_response(raw: &str) -> ClientMessage {
    match ServerMessage::parse(raw) {
        Ok(ServerMessage::Response(id, result)) => ClientMessage::Response(id, result),
        _ => ClientMessage::Ignored,
    }
}

fn arguments(raw: &str) -> Result<String, &'static str> {
    let params = member(raw, "params").unwrap_or_default();
    match member(params, "arguments") {
        None | Some("null") => Ok("{}".to_owned()),
        Some(text) if text.starts_with('{') => Ok(text.to_owned()),
        Some(_) => Err("`arguments` is not an object"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_parsed_with_its_arguments_as_they_were_written() {
        let raw = r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"arguments":{"n":1.50},"name":"s__t","x":"ann@example.com","_meta":{"progressToken":4}}}"#;
        let message = ClientMessage::parse(raw, &RoutingFields::default()).unwrap();
        let ClientMessage::Request(request) = &message else { panic!("a request") };
        assert_eq!(request.method, ClientMethod::CallTool("s__t".into(), r#"{"n":1.50}"#.into()));
        assert_eq!(request.progress_token, Some(json!(4)));
        // What is not known is not recorded.
        let recorded =
            r#"{"jsonrpc":"2.0","id":"a","method":"tools/call","params":{"name":"s__t","arguments":{"n":1.50}}}"#;
        assert_eq!(message.to_json(), recorded);
    }

    #[test]
    fn half_of_an_emoji_in_a_call_is_a_replacement_character() {
        let raw = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"s__t","arguments":{"text":"cut \uD83E"}}}"#;
        let message = ClientMessage::parse(raw, &RoutingFields::default()).unwrap();
        let ClientMessage::Request(request) = &message else { panic!("a request") };
        assert_eq!(request.method, ClientMethod::CallTool("s__t".into(), r#"{"text":"cut \ufffd"}"#.into()));
    }

    #[test]
    fn a_completion_is_parsed_with_its_known_members_only() {
        let parse = |params: &str| {
            let raw = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"completion/complete","params":{params}}}"#);
            ClientMessage::parse(&raw, &RoutingFields::default())
        };
        let known = r#"{"ref":{"name":"s__p","type":"ref/prompt"},"argument":{"name":"a","value":"b"},"context":{"arguments":{"x":"y"}}}"#;
        let message = parse(&known.replace(r#""value":"b""#, r#""value":"b","more":1"#)).unwrap();
        let recorded: Value = serde_json::from_str(&message.to_json()).unwrap();
        assert_eq!(recorded["params"], serde_json::from_str::<Value>(known).unwrap());
        for params in [
            "{}",
            r#"{"ref":{"type":"ref/tool","name":"a"},"argument":{"name":"a","value":"b"}}"#,
            r#"{"ref":{"type":"ref/prompt","name":"a"},"argument":{"name":"a","value":1}}"#,
            r#"{"ref":{"type":"ref/resource","uri":"a"},"argument":{"name":"a","value":"b"},"context":{"arguments":{"x":1}}}"#,
        ] {
            assert_eq!(parse(params).unwrap_err().1.code, INVALID_PARAMS, "{params}");
        }
    }

    #[test]
    fn invalid_messages_are_refused_with_their_id() {
        for (raw, id, code, says) in [
            ("{", Value::Null, PARSE_ERROR, "invalid JSON"),
            ("[]", Value::Null, INVALID_REQUEST, "batches"),
            (r#"{"jsonrpc":"2.0","id":1}"#, json!(1), INVALID_REQUEST, "no method"),
            (r#"{"id":1,"method":"ping"}"#, json!(1), INVALID_REQUEST, "JSON-RPC 2.0"),
            (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, Value::Null, INVALID_REQUEST, "string or an integer"),
            (r#"{"jsonrpc":"2.0","id":18446744073709551616,"method":"ping"}"#, Value::Null, INVALID_REQUEST, "64 bits"),
            (r#"{"jsonrpc":"2.0","id":2,"method":"tools/call"}"#, json!(2), INVALID_PARAMS, "name"),
            (
                r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"a","arguments":[1]}}"#,
                json!(2),
                INVALID_PARAMS,
                "not an object",
            ),
        ] {
            let (found, error) = ClientMessage::parse(raw, &RoutingFields::default()).unwrap_err();
            assert_eq!((found, error.code), (id, code), "{raw}");
            assert!(error.message.contains(says), "{raw}: {error}");
        }
    }

    #[test]
    fn notifications_and_responses_are_not_answered() {
        let parse = |raw: &str| ClientMessage::parse(raw, &RoutingFields::default()).unwrap();
        assert_eq!(parse(r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), ClientMessage::Ignored);
        assert_eq!(parse(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#), ClientMessage::Ignored);
        assert_eq!(
            parse(r#"{"jsonrpc":"2.0","id":1,"result":{"n":1.0}}"#),
            ClientMessage::Response(1, Ok(r#"{"n":1.0}"#.into()))
        );
        let refused = parse(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":"x"}}"#);
        let ClientMessage::Response(1, Err(e)) = refused else { panic!("a response") };
        assert_eq!((e.code, e.message.as_str()), (-1, "no"));
        let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7,"reason":"x"}}"#;
        assert_eq!(parse(cancel), ClientMessage::Cancel(json!(7)));
    }
}
