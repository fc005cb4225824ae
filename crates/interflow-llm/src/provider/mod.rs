//! Providers and operations, and how a request tells which ones it is for.

mod detection;

use interflow_types::ByteStr;

pub(crate) use detection::{by_shape, call_for_path, detect_by_body, is_bedrock, may_be_call};

pub use detection::{detect_call, model_in_path};

macro_rules! names {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// The name in config, queries, metrics and audit.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The one of this name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

names! {
    /// Whose API is spoken.
    Provider {
        /// OpenAI, or a server that speaks its API.
        OpenAi = "openai",
        /// OpenAI's models at Azure.
        Azure = "azure",
        /// Anthropic.
        Anthropic = "anthropic",
        /// Google's Gemini API.
        Gemini = "gemini",
        /// Google Cloud's Vertex AI.
        Vertex = "vertex",
        /// Amazon Bedrock's runtime.
        Bedrock = "bedrock",
        /// Ollama.
        Ollama = "ollama",
        /// Cohere.
        Cohere = "cohere",
        /// Mistral.
        Mistral = "mistral",
        /// None that is known.
        #[default]
        Unknown = "unknown",
    }
}

names! {
    /// What a request asks a provider for.
    Operation {
        /// A turn of a conversation: Chat Completions, Messages, generateContent, Converse and their like.
        Chat = "chat",
        /// OpenAI's Responses.
        Responses = "responses",
        /// The continuation of a text: legacy completions, fill-in-the-middle, Ollama's generate.
        Completions = "completions",
        /// Vectors for texts.
        Embeddings = "embeddings",
        /// The classification of texts.
        Moderations = "moderations",
        /// Images from texts.
        Images = "images",
        /// Speech from a text.
        Speech = "speech",
        /// A text from speech.
        Transcriptions = "transcriptions",
        /// An upload.
        Files = "files",
        /// Many requests at once.
        Batches = "batches",
        /// How many tokens a request has.
        CountTokens = "count_tokens",
        /// The order of texts by their relevance.
        Rerank = "rerank",
        /// Events over a WebSocket, both ways.
        Realtime = "realtime",
        /// A look at what is there, without a body: models, the state of a batch.
        Lookup = "lookup",
        /// What an agent reports of itself to its maker: events, metrics, traces.
        Telemetry = "telemetry",
        /// Anything else.
        #[default]
        Other = "other",
    }
}

impl Operation {
    /// Whether the places of text in its body are known.
    pub const fn is_known(self) -> bool {
        !matches!(self, Self::Other)
    }
}

/// A request, recognised by its target and head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DetectedCall {
    /// Whose API it speaks.
    pub provider: Provider,
    /// What it asks for.
    pub operation: Operation,
    /// The model, when the path names it, percent-encoding undone.
    pub model: Option<ByteStr>,
    /// Whether the path asks for a stream; `None` when the body tells.
    pub stream: Option<bool>,
    /// Whether a stream comes as a growing JSON array (Gemini without `alt=sse`).
    pub grows: bool,
}
