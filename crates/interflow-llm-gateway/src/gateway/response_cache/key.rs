//! What identifies a request in the cache, and which requests may be answered from it at all.

use std::borrow::Cow;

use aws_lc_rs::hmac;
use bytes::Bytes;
use interflow_limits::VirtualKey;
use interflow_llm::{CacheScope, LlmCall, Operation};
use interflow_types::{Flow, RequestHead};
use serde::Deserialize;
use serde_json::Value;

use super::super::{LlmUpstream, UpstreamTable};
use crate::credentials::SENT_CREDENTIALS;
use crate::limits::KeyContext;
use crate::redaction::HashedParts;

/// Header fields that change the meaning of a request.
const MEANINGFUL_HEADERS: &str = "anthropic-version anthropic-beta anthropic-workspace-id anthropic-user-profile-id \
    openai-beta openai-organization openai-project x-goog-user-project x-policy-id \
    x-amzn-bedrock-guardrailidentifier x-amzn-bedrock-guardrailversion x-amzn-bedrock-trace \
    x-amzn-bedrock-performanceconfig-latency x-amzn-bedrock-service-tier";

/// The name of a response in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey(pub [u8; 32]);

/// The keys derived from the secret: one for names, one for contents. Names are keyed too, so that nobody who reads the
/// store can test guesses of a prompt.
pub(super) struct CacheSecrets {
    name: hmac::Key,
    content: hmac::Key,
}

/// All that the response to a request depends on.
#[derive(Clone, Copy)]
pub(super) struct KeyParts<'a> {
    pub table: &'a UpstreamTable,
    pub upstream: &'a LlmUpstream,
    pub call: &'a LlmCall,
    /// Who shares it.
    pub scope: &'a [u8],
    pub head: &'a RequestHead,
    pub body: &'a [u8],
}

impl CacheSecrets {
    pub fn new(secret: &[u8]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let derived = |purpose: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&secret, purpose).as_ref());
        Self { name: derived(b"interflow llm.cache name 1"), content: derived(b"interflow llm.cache content 1") }
    }

    pub fn key(&self, parts: &KeyParts<'_>) -> CacheKey {
        let mut hash = HashedParts::default();
        let mut add = |part: &[u8]| hash.add(part);
        // Other upstreams, names of models or routes lead to other responses.
        add(&parts.table.digest);
        add(parts.scope);
        add(parts.upstream.name.as_bytes());
        add(parts.call.provider.as_str().as_bytes());
        add(parts.call.route.as_deref().unwrap_or_default().as_bytes());
        add(parts.call.model.as_deref().unwrap_or_default().as_bytes());
        add(parts.head.method.as_str().as_bytes());
        add(parts.head.url.path.as_bytes());
        for name in MEANINGFUL_HEADERS.split(' ') {
            let values: Vec<&[u8]> = parts.head.headers.get_all(name).collect();
            add(&(values.len() as u64).to_le_bytes());
            values.into_iter().for_each(&mut add);
        }
        add(&minified(parts.body));
        let name = hmac::sign(&self.name, &hash.finish());
        let mut key = [0; 32];
        key.copy_from_slice(name.as_ref());
        CacheKey(key)
    }

    /// The key of the contents of one response.
    pub fn content_key(&self, key: &CacheKey) -> [u8; 32] {
        let mut out = [0; 32];
        out.copy_from_slice(hmac::sign(&self.content, &key.0).as_ref());
        out
    }
}

/// Whether responses of this operation may be repeated.
pub(super) const fn is_cacheable(operation: Operation) -> bool {
    use Operation::{Chat, Completions, Embeddings, Rerank, Responses};
    matches!(operation, Chat | Responses | Completions | Embeddings | Rerank)
}

/// Who shares a response with this request.
pub(super) fn scope_id(scope: CacheScope, flow: &Flow, head: &RequestHead) -> Vec<u8> {
    let mut hash = HashedParts::default();
    let mut add = |name: &str, value: &[u8]| {
        hash.add(name.as_bytes());
        hash.add(value);
    };
    let key = flow.extension::<KeyContext>().and_then(|context| context.key.as_deref());
    let user = flow.user.as_deref();
    let mut is_named = true;
    match (scope, user, key) {
        (CacheScope::Shared, ..) => {}
        (CacheScope::User, Some(user), _) => add("user", user.as_bytes()),
        (CacheScope::Team, _, Some(VirtualKey { team: Some(team), .. })) => {
            let organisation = team.parent.as_ref().map_or("", |parent| &*parent.id);
            add("organisation", organisation.as_bytes());
            add("team", team.id.as_bytes());
        }
        (_, _, Some(key)) => add("key", key.id.as_bytes()),
        (_, Some(user), None) => add("user", user.as_bytes()),
        (_, None, None) => is_named = false,
    }
    // A provider may answer one client and reject another, so that different ones never share a response.
    for name in SENT_CREDENTIALS {
        for value in head.headers.get_all(name) {
            is_named |= key.is_none();
            add(name, value);
        }
    }
    if !is_named && scope != CacheScope::Shared {
        add("client", flow.client.peer.ip().to_canonical().to_string().as_bytes());
    }
    hash.finish().to_vec()
}

/// JSON without white space between its tokens. Nothing else is changed, neither order nor numbers nor repeated
/// members: two parsers may read those differently, and then one request could be answered with what another got.
fn minified(json: &[u8]) -> Cow<'_, [u8]> {
    let is_space = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    if !json.iter().any(is_space) {
        return Cow::Borrowed(json);
    }
    let mut out = Vec::with_capacity(json.len());
    let (mut in_string, mut is_escaped) = (false, false);
    for byte in json {
        if in_string {
            in_string = is_escaped || *byte != b'"';
            is_escaped = !is_escaped && *byte == b'\\';
        } else if is_space(byte) {
            continue;
        } else {
            in_string = *byte == b'"';
        }
        out.push(*byte);
    }
    Cow::Owned(out)
}

/// What decides whether a request may be answered from the cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestFacts {
    pub has_tools: bool,
    /// Whether the provider keeps or continues something by an id, which a response from the cache would not.
    pub has_state: bool,
    temperature: Option<f64>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RequestFields {
    temperature: Option<Value>,
    tools: Option<Value>,
    functions: Option<Value>,
    #[serde(rename = "toolConfig")]
    tool_config: Option<Value>,
    web_search_options: Option<Value>,
    mcp_servers: Option<Value>,
    background: Option<Value>,
    conversation: Option<Value>,
    previous_response_id: Option<Value>,
    previous_interaction_id: Option<Value>,
    agent: Option<Value>,
    environment: Option<Value>,
    continuation_token: Option<Value>,
    container: Option<Value>,
    #[serde(rename = "generationConfig")]
    generation: Value,
    #[serde(rename = "inferenceConfig")]
    inference: Value,
    options: Value,
}

impl RequestFacts {
    /// From a request's JSON; `None` if it is none, or repeats a member.
    pub fn read(body: &Bytes) -> Option<Self> {
        let fields: RequestFields = serde_json::from_slice(body).ok()?;
        let is_set = |value: &Option<Value>| match value {
            None | Some(Value::Null | Value::Bool(false)) => false,
            Some(Value::Array(list)) => !list.is_empty(),
            Some(_) => true,
        };
        let tools =
            [&fields.tools, &fields.functions, &fields.tool_config, &fields.web_search_options, &fields.mcp_servers];
        let state = [
            [&fields.background, &fields.conversation, &fields.previous_response_id, &fields.container],
            [&fields.previous_interaction_id, &fields.agent, &fields.environment, &fields.continuation_token],
        ];
        let inner = [&fields.generation, &fields.inference, &fields.options];
        let temperature = fields.temperature.as_ref().and_then(Value::as_f64);
        Some(Self {
            has_tools: tools.into_iter().any(is_set),
            has_state: state.into_iter().flatten().any(is_set),
            temperature: temperature.or_else(|| inner.iter().find_map(|object| object["temperature"].as_f64())),
        })
    }

    pub fn is_deterministic(self, operation: Operation) -> bool {
        matches!(operation, Operation::Embeddings | Operation::Rerank) || self.temperature == Some(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(body: &'static str) -> Option<RequestFacts> {
        RequestFacts::read(&Bytes::from_static(body.as_bytes()))
    }

    #[test]
    fn white_space_between_tokens_is_all_that_is_removed() {
        for (json, expected) in [
            (r#"{ "a" : [1,  2 ] }"#, r#"{"a":[1,2]}"#),
            (r#"{"a b": "c \" d \\", "e": 1.0}"#, r#"{"a b":"c \" d \\","e":1.0}"#),
            (r#"{"b":1,"a":2,"a":3}"#, r#"{"b":1,"a":2,"a":3}"#),
            ("\"open ", "\"open "),
        ] {
            assert_eq!(String::from_utf8_lossy(&minified(json.as_bytes())), expected);
        }
    }

    #[test]
    fn tools_state_and_temperature_are_found_in_every_format() {
        for (body, tools, state, deterministic) in [
            (r#"{"temperature":0,"tools":[]}"#, false, false, true),
            (r#"{"tools":[{"type":"function"}],"temperature":0.7}"#, true, false, false),
            (r#"{"toolConfig":{"tools":[{}]},"inferenceConfig":{"temperature":0}}"#, true, false, true),
            (r#"{"generationConfig":{"temperature":0.0}}"#, false, false, true),
            (r#"{"previous_response_id":"r1"}"#, false, true, false),
            (r#"{"background":false,"conversation":null}"#, false, false, false),
            (r#"{"previous_interaction_id":"i1"}"#, false, true, false),
            (r#"{"agent":"a"}"#, false, true, false),
            (r#"{"environment":{"id":"e"}}"#, false, true, false),
            (r#"{"continuation_token":"t"}"#, false, true, false),
        ] {
            let facts = facts(body).unwrap();
            assert_eq!((facts.has_tools, facts.has_state), (tools, state), "{body}");
            assert_eq!(facts.is_deterministic(Operation::Chat), deterministic, "{body}");
            assert!(facts.is_deterministic(Operation::Embeddings));
        }
        for body in ["", "{", "x", r#"{"tools":null,"tools":[{}]}"#] {
            assert_eq!(facts(body), None, "{body}: two readings are possible");
        }
    }
}
