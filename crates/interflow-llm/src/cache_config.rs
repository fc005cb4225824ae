//! The `[llm.cache]` section of the config: the response cache.

use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use serde::{Deserialize, Serialize};

config_sections! {
    /// The response cache of the gateway: a repeated request is answered with the response to the first, without asking
    /// the provider.
    pub struct ResponseCacheConfig {
        /// Where responses are kept: `off`, `memory` (of this process) or `redis`.
        pub store: CacheStoreKind = CacheStoreKind::Off,
        /// How long a response may be reused.
        pub ttl: HumanDuration = HumanDuration::from_secs(3_600),
        /// Maximum size of a response that is kept.
        pub max_body: ByteSize = ByteSize(1 << 20),
        /// Maximum size of all responses in memory; those that were not used for longest are dropped first.
        pub max_bytes: ByteSize = ByteSize(64 << 20),
        /// Who shares responses: requests with the same virtual `key`, of the same `user`, with keys of the same
        /// `team`, or all (`shared`). Requests that present different credentials of a provider never share; without a
        /// key, `key`, `user` and `team` separate clients by their address.
        pub scope: CacheScope = CacheScope::Key,
        /// Only requests to these providers (the gateway's names, with `*`); empty: all.
        pub providers: Vec<String>,
        /// Only requests on these routes (`llm.route`, with `*`); empty: all requests, with or without a route.
        pub routes: Vec<String>,
        /// Only requests for these models (as the client names them, with `*`); empty: all.
        pub models: Vec<String>,
        /// Only requests with these virtual keys (ids, with `*`); empty: all.
        pub keys: Vec<String>,
        /// Only requests with `temperature` 0, and those without a choice of words (embeddings, reranking).
        pub only_deterministic: bool,
        /// Also requests that offer tools. The client then repeats tool calls that the model chose earlier.
        pub tools: bool,
        /// The Redis server, as `quota.shared.redis`, which is used if this is unset. Certificates are those of
        /// `quota.shared`.
        pub redis: Option<String>,
        /// The secret that responses in Redis are encrypted with, and their names derived from: `env:NAME` or
        /// `file:PATH`, at least 16 characters. Processes share responses only with the same secret. If unset, one in
        /// the data directory.
        pub redis_key: Option<String>,
        /// Prefix of all key names in Redis.
        pub prefix: String = "interflow:cache:".into(),
        /// Timeout of one Redis command, connecting included; a request then goes to the provider.
        pub timeout: HumanDuration = HumanDuration::from_millis(100),
        /// Answers requests that mean the same, too, not only equal ones.
        pub semantic: Option<SemanticCacheConfig>,
    }
}

config_sections! {
    /// The semantic cache: a request is answered with the response to an earlier one if the user's last text means the
    /// same, by the similarity of embeddings, and everything else is equal. It can give a wrong answer; see the guide
    /// for how often.
    pub struct SemanticCacheConfig {
        /// The provider that embeds texts (a name of `llm.provider`), with OpenAI's `/v1/embeddings` and credentials of
        /// the gateway. It gets the redacted text of each request that is compared.
        pub provider: String = "openai".into(),
        /// The embedding model.
        pub model: String = "text-embedding-3-small".into(),
        /// Cosine similarity from which two texts mean the same, from 0.5 to 1. It depends on the model: measure it.
        pub threshold: f64 = 0.95,
        /// Whether texts that differ in numbers, negations, identifiers, names or opposites (enable, disable) are never
        /// the same, however similar.
        pub guard: bool = true,
        /// The longest text that is compared; embedding models read the beginning of longer ones only.
        pub max_text: ByteSize = ByteSize(1 << 10),
        /// The most texts that are remembered, in the memory of this process; the oldest are dropped first.
        pub max_entries: usize = 2_000,
        /// Time limit of one embedding; a request then counts as a miss.
        pub timeout: HumanDuration = HumanDuration::from_millis(1_000),
    }
}

/// Where responses are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheStoreKind {
    /// Nothing is cached.
    #[default]
    Off,
    /// In the memory of this process.
    Memory,
    /// In Redis, encrypted.
    Redis,
}

/// Who shares cached responses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CacheScope {
    /// Requests with the same virtual key.
    #[default]
    Key,
    /// Requests of the same user: the key's owner, or the user of the connection.
    User,
    /// Requests with keys of the same team.
    Team,
    /// All requests.
    Shared,
}
