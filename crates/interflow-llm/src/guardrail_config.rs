//! The `[llm.guardrail.NAME]` sections of the config: checks of the texts of LLM requests and responses.

use std::collections::BTreeMap;

use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{config_sections, labelled_enum};
use serde::{Deserialize, Serialize};

use crate::spans::TextPlace;

config_sections! {
    /// A check of the texts that are sent to models, or that they reply with. Guardrails see texts after redaction.
    pub struct GuardrailConfig {
        /// What is looked for.
        pub kind: GuardrailKind,
        /// Which texts are checked: those of requests, of responses, or both.
        pub apply_to: GuardrailDirection,
        /// What is done with a request or response in which something is found.
        pub action: GuardrailAction,
        /// The virtual keys it applies to, by id; `*` stands for any characters. All requests if empty; likewise below.
        pub keys: Vec<String>,
        /// The users it applies to.
        pub users: Vec<String>,
        /// The gateway's upstreams and routes (`llm.route`) it applies to.
        pub routes: Vec<String>,
        /// The providers it applies to: `openai`, `anthropic`, …
        pub providers: Vec<String>,
        /// The models it applies to, as the client names them.
        pub models: Vec<String>,
        /// The places of texts that are checked. If empty, all; for `prompt_injection` and `jailbreak` on requests:
        /// what users, tools and documents say, not system prompts, tool definitions and the model's earlier replies.
        pub places: Vec<TextPlace>,
        /// Which messages of a request are checked: a request repeats the whole conversation.
        pub messages: GuardrailMessages,
        /// What is done if a service fails, or does not answer in time. Of no effect with the action `flag`.
        pub on_error: GuardrailFailure,
        /// Time limit for a service's answer.
        pub timeout: HumanDuration = HumanDuration::from_secs(5),
        /// `prompt_injection`, `jailbreak`: the score from 0 to 1 from which a text is a finding; 0.5 if unset.
        /// `moderation`: that of categories without a threshold of their own; the endpoint's own judgement if unset.
        pub threshold: Option<f64>,
        /// `mask`: what replaces a finding.
        pub mask: String = "[removed]".into(),
        /// `words`: words and phrases, found whatever their case and only as whole words.
        pub words: Vec<String>,
        /// `topics`: words and phrases of each topic, by its name.
        pub topics: BTreeMap<String, Vec<String>>,
        /// `topics`: how many different words of a topic make a text one on it.
        pub min_matches: usize = 2,
        /// `regex`: regular expressions in the syntax of Rust's crate `regex`, without look-around and back references.
        pub patterns: Vec<String>,
        /// `words`, `regex`: how much of a streamed response is held back at most while it may be the beginning of a
        /// match.
        pub window: ByteSize = ByteSize(256),
        /// `json_schema`: the file of the schema, relative to the data directory, or the schema itself.
        pub schema: String,
        /// `moderation`: the upstream of `[llm.provider]` whose moderation endpoint is asked.
        pub provider: String = "openai".into(),
        /// `moderation`: the model that the endpoint is asked for; its own default if empty.
        pub model: String,
        /// `moderation`: the categories that count, with their thresholds from 0 to 1; all if empty.
        pub categories: BTreeMap<String, f64>,
        /// `http`: the service's URL. Calls to it are not recorded.
        pub url: String,
        /// `http`: the bearer token, `env:NAME` or `file:PATH`.
        pub token: Option<String>,
        /// `http`: the form of requests and answers.
        pub protocol: GuardrailProtocol,
    }
}

/// What a guardrail looks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GuardrailKind {
    /// Instructions to the model in what it reads: overrides of its instructions, calls for its prompt, commands in
    /// tool results and documents. By scored patterns.
    #[default]
    PromptInjection,
    /// Prompts that talk a model out of its rules: role play without rules, "developer mode". By scored patterns.
    Jailbreak,
    /// Words and phrases.
    Words,
    /// Texts on a topic, by the number of different words of it.
    Topics,
    /// Regular expressions.
    Regex,
    /// Responses that are not JSON, or not of this schema.
    JsonSchema,
    /// What a moderation endpoint (OpenAI's API) flags.
    Moderation,
    /// What a service decides.
    Http,
}

/// The side of an exchange that a guardrail checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardrailDirection {
    /// Requests.
    #[default]
    Input,
    /// Responses.
    Output,
    /// Requests and responses.
    Both,
}

labelled_enum! {
    /// What is done with a finding.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum GuardrailAction {
        /// It is reported: on the flow, in the audit log and the metrics.
        #[default]
        Flag "flag",
        /// It is replaced by `mask`.
        Mask "mask",
        /// A person decides (`interflow pending`); it is blocked unless they allow it.
        Ask "ask",
        /// The request is not sent, or the response not delivered; the client gets an error.
        Block "block",
    }
}

/// Which messages of a request are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardrailMessages {
    /// The whole conversation, every time: nothing depends on earlier requests.
    #[default]
    All,
    /// What follows the model's last reply. What a client adds before that is not checked.
    Latest,
}

/// What is done if a guardrail's service fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardrailFailure {
    /// The client gets an error (503).
    #[default]
    Closed,
    /// The request or response goes on unchecked.
    Open,
}

/// The form of an HTTP service's requests and answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GuardrailProtocol {
    /// Interflow's own, with the place of each text and findings by position.
    #[default]
    Interflow,
    /// That of LiteLLM's generic guardrail API: `texts`, answered by an `action`.
    Litellm,
}
