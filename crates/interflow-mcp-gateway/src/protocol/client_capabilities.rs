//! What clients can be asked: kinds of requests, and what a client declared of them.

use interflow_types::labelled_enum;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Calls that go on after their response, in the version without sessions.
pub(crate) const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

labelled_enum! {
    /// What a server may ask of a client.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ClientRequestKind {
        /// `elicitation/create`: a form for the user, or a URL that the user opens.
        Elicitation "elicitation",
        /// `sampling/createMessage`: a completion of the client's model.
        Sampling "sampling",
        /// `roots/list`: the directories that the client works in.
        Roots "roots",
    }
}

impl ClientRequestKind {
    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    pub(crate) fn from_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The members of its params that are passed on. Others, such as those of tasks, need what this gateway does not have.
    pub(crate) fn members(self) -> impl Iterator<Item = &'static str> {
        let members = match self {
            Self::Elicitation => "message requestedSchema",
            Self::Sampling => {
                "messages modelPreferences systemPrompt includeContext temperature maxTokens stopSequences metadata tools \
                 toolChoice"
            }
            Self::Roots => "",
        };
        members.split_ascii_whitespace()
    }
}

/// What a client declared that it can be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCapabilities {
    pub kinds: Vec<ClientRequestKind>,
    /// It samples with tools.
    pub tools: bool,
    /// Its modes of elicitation: it shows forms, and has users open URLs.
    pub forms: bool,
    pub urls: bool,
    /// Extensions by their ids.
    pub extensions: Map<String, Value>,
}

impl ClientCapabilities {
    pub fn parse(declared: &Value) -> Self {
        let modes = declared["elicitation"].as_object();
        // Without modes it has forms, as before there were others.
        let forms = modes.is_some_and(|modes| modes.is_empty() || modes.contains_key("form"));
        let urls = modes.is_some_and(|modes| modes.get("url").is_some_and(Value::is_object));
        let offers = |kind: &ClientRequestKind| {
            declared[kind.as_str()].is_object() && (*kind != ClientRequestKind::Elicitation || forms || urls)
        };
        let kinds = ClientRequestKind::ALL.into_iter().filter(offers).collect();
        let extensions = declared["extensions"].as_object().cloned().unwrap_or_default();
        Self { kinds, tools: declared["sampling"]["tools"].is_object(), forms, urls, extensions }
    }

    /// All of them.
    pub fn to_value(&self) -> Value {
        let mut value = self.declared(&ClientRequestKind::ALL);
        if !self.extensions.is_empty() {
            value["extensions"] = Value::Object(self.extensions.clone());
        }
        value
    }

    /// As they are declared to a server that may ask for these.
    pub fn declared(&self, allowed: &[ClientRequestKind]) -> Value {
        let kinds = self.kinds.iter().filter(|kind| allowed.contains(kind));
        let declared = kinds.map(|kind| {
            let value = match kind {
                ClientRequestKind::Sampling if self.tools => json!({ "tools": {} }),
                ClientRequestKind::Elicitation if self.urls && self.forms => json!({ "form": {}, "url": {} }),
                ClientRequestKind::Elicitation if self.urls => json!({ "url": {} }),
                _ => json!({}),
            };
            (kind.as_str().to_owned(), value)
        });
        Value::Object(declared.collect::<Map<_, _>>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_told_what_it_may_ask_of_this_client() {
        let all = ClientRequestKind::ALL;
        for (declared, allowed, told) in [
            (json!({}), &all[..], json!({})),
            (
                json!({ "elicitation": {}, "roots": { "listChanged": true } }),
                &all[..],
                json!({ "elicitation": {}, "roots": {} }),
            ),
            (json!({ "elicitation": { "url": {} } }), &all[..], json!({ "elicitation": { "url": {} } })),
            (
                json!({ "elicitation": { "url": {}, "form": {} } }),
                &all[..],
                json!({ "elicitation": { "form": {}, "url": {} } }),
            ),
            (json!({ "elicitation": { "form": {} } }), &all[..], json!({ "elicitation": {} })),
            (json!({ "elicitation": { "other": {} } }), &all[..], json!({})),
            (json!({ "sampling": { "tools": {}, "context": {} } }), &all[..], json!({ "sampling": { "tools": {} } })),
            (json!({ "sampling": {}, "roots": {} }), &all[..1], json!({})),
        ] {
            assert_eq!(ClientCapabilities::parse(&declared).declared(allowed), told, "{declared}");
        }
    }
}
