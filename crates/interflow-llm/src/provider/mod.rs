//! Providers and operations, and their detection.

mod detection;

use interflow_types::ByteStr;

pub use detection::{
    by_shape, call_for_path, detect_by_body, detect_by_members, detect_call, endpoint_name, is_bedrock, is_own_host,
    is_sign_in, may_be_call, model_in_path, starts_run, verb_in_path,
};

macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        interflow_types::labelled_enum! {
            $(#[$meta])*
            /// Its label is the name in configuration, queries, metrics and audit records: recorded flows are found by it.
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
            pub enum $name { $($(#[$doc])* $variant $text,)* }
        }

        impl $name {
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

names! {
    /// The provider whose API is used, whoever serves it.
    Provider {
        /// OpenAI, or a server with its API.
        OpenAi = "openai",
        /// OpenAI's models on Azure.
        Azure = "azure",
        Anthropic = "anthropic",
        /// Google's Gemini API.
        Gemini = "gemini",
        /// Google Cloud's Vertex AI.
        Vertex = "vertex",
        /// Amazon Bedrock's runtime.
        Bedrock = "bedrock",
        Ollama = "ollama",
        Cohere = "cohere",
        Mistral = "mistral",
        #[default]
        Unknown = "unknown",
    }
}

names! {
    /// The operation of a request, which determines where its body has text.
    Operation {
        /// A conversation turn: Chat Completions, Messages, generateContent, Converse and similar.
        Chat = "chat",
        /// OpenAI's Responses and Google's Interactions, which the provider keeps and continues by an id.
        Responses = "responses",
        /// Text completion: legacy completions, fill-in-the-middle, Ollama's generate.
        Completions = "completions",
        /// Embeddings of texts (also Google's `:predict`).
        Embeddings = "embeddings",
        /// Classification of texts.
        Moderations = "moderations",
        /// Image generation.
        Images = "images",
        /// Text to speech.
        Speech = "speech",
        /// Speech to text.
        Transcriptions = "transcriptions",
        /// A file upload, such as batch input or training data.
        Files = "files",
        /// A batch of requests.
        Batches = "batches",
        /// Token counting, which costs nothing but contains the prompt.
        CountTokens = "count_tokens",
        /// Reranking of documents.
        Rerank = "rerank",
        /// Bidirectional events over a WebSocket.
        Realtime = "realtime",
        /// A query without a body: models, the state of a batch. It costs nothing.
        Lookup = "lookup",
        /// Telemetry of an agent to its vendor: events, metrics, traces.
        Telemetry = "telemetry",
        /// What the provider does after it has answered, and bills apart: videos, runs of agents, training.
        Jobs = "jobs",
        /// Another endpoint of a provider that uses no model: settings, features, skills, memories. Its JSON may have text
        /// anywhere.
        Side = "side",
        /// Anything else at a provider, whose texts cannot be located.
        #[default]
        Other = "other",
    }
}

impl Operation {
    /// Whether it uses no model and costs nothing, and agents send it unasked.
    pub const fn is_incidental(self) -> bool {
        matches!(self, Self::Telemetry | Self::Side)
    }

    /// Whether the location of text in its body is known.
    pub const fn is_known(self) -> bool {
        !matches!(self, Self::Other)
    }

    /// Whether its response is a model's reply in text.
    pub const fn is_reply(self) -> bool {
        matches!(self, Self::Chat | Self::Responses | Self::Completions)
    }

    /// Whether a request of it costs nothing.
    pub const fn is_free(self) -> bool {
        matches!(self, Self::CountTokens | Self::Files | Self::Lookup | Self::Telemetry | Self::Side)
    }

    /// Whether a response to it has output tokens.
    pub const fn generates(self) -> bool {
        !self.is_free()
            && !matches!(self, Self::Embeddings | Self::Moderations | Self::Rerank | Self::Batches | Self::Jobs)
    }

    /// Whether a provider bills a request of it by the price of a model.
    pub const fn is_billed_by_model(self) -> bool {
        self.has_model() && !matches!(self, Self::Moderations | Self::CountTokens)
            || matches!(self, Self::Transcriptions | Self::Batches | Self::Jobs)
    }

    /// Whether a request of it names a model, in its path or in a JSON body.
    pub const fn has_model(self) -> bool {
        matches!(
            self,
            Self::Chat
                | Self::Responses
                | Self::Completions
                | Self::Embeddings
                | Self::Moderations
                | Self::Images
                | Self::Speech
                | Self::CountTokens
                | Self::Rerank
        )
    }
}

/// A call detected by its target and head, before its body is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedCall {
    pub provider: Provider,
    pub operation: Operation,
    /// The model, if the path contains it, percent-decoded.
    pub model: Option<ByteStr>,
    /// Whether the path requests a stream; `None` if the body determines it.
    pub stream: Option<bool>,
    /// Whether a stream has the form of a growing JSON array (Gemini without `alt=sse`).
    pub grows: bool,
}
