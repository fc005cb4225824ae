//! What clients can be asked: kinds of requests, and what a client declared of them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// What a server may ask of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ClientRequestKind {
    /// `elicitation/create`: a form for the user.
    Elicitation,
    /// `sampling/createMessage`: a completion of the client's model.
    Sampling,
    /// `roots/list`: the directories that the client works in.
    Roots,
}

impl ClientRequestKind {
    pub const ALL: [Self; 3] = [Self::Elicitation, Self::Sampling, Self::Roots];

    pub(crate) const fn method(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation/create",
            Self::Sampling => "sampling/createMessage",
            Self::Roots => "roots/list",
        }
    }

    const fn capability(self) -> &'static str {
        match self {
            Self::Elicitation => "elicitation",
            Self::Sampling => "sampling",
            Self::Roots => "roots",
        }
    }

    pub(crate) fn from_method(method: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.method() == method)
    }

    /// The members of its params that are passed on. Others, such as those of tasks, need what this gateway does not have.
    pub(crate) const fn members(self) -> &'static [&'static str] {
        match self {
            Self::Elicitation => &["message", "requestedSchema"],
            Self::Sampling => &[
                "messages",
                "modelPreferences",
                "systemPrompt",
                "includeContext",
                "temperature",
                "maxTokens",
                "stopSequences",
                "metadata",
                "tools",
                "toolChoice",
            ],
            Self::Roots => &[],
        }
    }
}

/// What a client declared that it can be asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ClientCapabilities {
    pub kinds: Vec<ClientRequestKind>,
    /// It samples with tools.
    pub tools: bool,
}

impl ClientCapabilities {
    pub fn parse(declared: &Value) -> Self {
        let offers = |kind: &ClientRequestKind| {
            let capability = &declared[kind.capability()];
            // A client that has modes, but not forms, only opens URLs.
            let has_forms = capability.as_object().is_some_and(|modes| modes.is_empty() || modes.contains_key("form"));
            capability.is_object() && (*kind != ClientRequestKind::Elicitation || has_forms)
        };
        let kinds = ClientRequestKind::ALL.into_iter().filter(offers).collect();
        Self { kinds, tools: declared["sampling"]["tools"].is_object() }
    }

    /// As they are declared to a server that may ask for these.
    pub fn declared(&self, allowed: &[ClientRequestKind]) -> Value {
        let kinds = self.kinds.iter().filter(|kind| allowed.contains(kind));
        let declared = kinds.map(|kind| {
            let has_tools = *kind == ClientRequestKind::Sampling && self.tools;
            let value = if has_tools { json!({ "tools": {} }) } else { json!({}) };
            (kind.capability().to_owned(), value)
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
            (json!({ "elicitation": { "url": {} } }), &all[..], json!({})),
            (json!({ "elicitation": { "url": {}, "form": {} } }), &all[..], json!({ "elicitation": {} })),
            (json!({ "sampling": { "tools": {}, "context": {} } }), &all[..], json!({ "sampling": { "tools": {} } })),
            (json!({ "sampling": {}, "roots": {} }), &all[..1], json!({})),
        ] {
            assert_eq!(ClientCapabilities::parse(&declared).declared(allowed), told, "{declared}");
        }
    }
}
