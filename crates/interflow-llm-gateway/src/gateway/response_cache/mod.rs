//! The response cache (`llm.cache`): a repeated request is answered with the response to the first.
//!
//! It sits where the gateway sends a request, behind all request stages and before all response stages. What is looked
//! up is therefore the redacted request, and what is kept the upstream's own response with its placeholders: a response
//! from the cache passes the same policies and guardrails as a fresh one, and placeholders in it are restored with the
//! originals of the request that it answers, never with those of the request that it was made for.

mod capture;
mod entry;
mod in_flight;
mod key;
mod memory;
mod redis_store;
mod semantic;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use interflow_limits::{RedisValues, matches_model};
use interflow_llm::{CacheStoreKind, LlmCall, ResponseCacheConfig};
use interflow_types::{ByteStr, CollectError, Flow, Headers, Request, Response, Result, Timestamp};
use parking_lot::Mutex;

use crate::exchange;
use crate::limits::KeyContext;
use capture::PendingEntry;
use entry::StoredResponse;
use in_flight::{InFlight, Outcome, Place};
use key::{CacheKey, CacheSecrets, RequestFacts};
use memory::MemoryStore;
use redis_store::RedisStore;
use semantic::{IndexedText, Match, SemanticIndex};
pub use semantic::{SemanticStats, TextFeatures};

use super::{LlmGateway, LlmUpstream};
use interflow_types::wildcard;

/// Says in every response that the cache could have served whether it did.
const CACHE_HEADER: &[u8] = b"X-Interflow-Cache";
/// Of a response to a request that means the same: the similarity of their texts.
const SIMILARITY_HEADER: &[u8] = b"X-Interflow-Cache-Similarity";

/// The cache of the process; its settings change with the configuration.
#[derive(Default)]
pub struct ResponseCache {
    active: ArcSwapOption<ActiveCache>,
    counters: Arc<CacheCounters>,
}

/// A validated `[llm.cache]`, not yet active.
pub struct PreparedCache(Option<Arc<ActiveCache>>);

struct ActiveCache {
    config: ResponseCacheConfig,
    secrets: CacheSecrets,
    store: CacheStore,
    semantic: Option<SemanticIndex>,
    in_flight: Arc<InFlight>,
    counters: Arc<CacheCounters>,
}

enum CacheStore {
    Memory(MemoryStore),
    Redis(Box<RedisStore>),
}

#[derive(Default)]
struct CacheCounters {
    /// Without what is in memory now.
    counts: Mutex<CacheStats>,
    failing: AtomicBool,
    semantic_failing: AtomicBool,
}

/// What was counted since the start, and what is in memory now.
#[derive(Clone, Debug, Default)]
pub struct CacheStats {
    pub hits: u64,
    pub misses: u64,
    /// By the reason.
    pub bypassed: BTreeMap<&'static str, u64>,
    pub stored: u64,
    pub evicted: u64,
    /// Commands to Redis that failed.
    pub errors: u64,
    pub entries: u64,
    pub bytes: u64,
    pub semantic: SemanticStats,
}

/// What the cache did with a flow; for the stages that count and charge.
#[derive(Default)]
pub(crate) struct CacheState {
    is_hit: bool,
    pending: Mutex<Option<PendingEntry>>,
}

/// Whether this flow was answered from the cache, and so cost nothing.
pub(crate) fn is_hit(flow: &Flow) -> bool {
    flow.extension::<CacheState>().is_some_and(|state| state.is_hit)
}

/// Stores the response of a flow that has ended well.
pub(super) fn finish(flow: &Flow) {
    let Some(pending) = flow.extension::<CacheState>().and_then(|state| state.pending.lock().take()) else { return };
    let is_refused = flow.tags.iter().any(|tag| tag.starts_with("refused:"));
    if is_refused {
        pending.give_up();
    } else if flow.error_kind.is_none() {
        pending.store();
    }
}

/// The answer of the cache to a request.
pub(super) enum CacheLookup {
    Hit(Response),
    /// To be sent to the upstream.
    Forward(Request, CacheOutcome),
}

pub(super) enum CacheOutcome {
    /// The cache does not apply to the request.
    None,
    Bypass,
    Miss(Box<PendingEntry>),
}

impl ResponseCache {
    /// Validates another configuration. `redis` has the values on the Redis server, `secret` is what names and contents
    /// there are derived from. What is in memory is kept if the section did not change.
    ///
    /// # Errors
    /// What is wrong, with its key.
    pub fn prepare(
        &self,
        config: &ResponseCacheConfig,
        redis: Option<Box<dyn RedisValues>>,
        secret: &[u8],
    ) -> std::result::Result<PreparedCache, String> {
        if let Some(active) = self.active.load_full().filter(|active| active.config == *config) {
            return Ok(PreparedCache(Some(active)));
        }
        if config.ttl.0 < Duration::from_millis(1) {
            return Err("llm.cache.ttl: write a time of at least 1ms".into());
        }
        let max = config.max_bytes.0;
        let store = match config.store {
            CacheStoreKind::Off => return Ok(PreparedCache(None)),
            CacheStoreKind::Memory if config.max_body.0 > max => {
                return Err("llm.cache.max_body: larger than llm.cache.max_bytes".into());
            }
            CacheStoreKind::Memory => CacheStore::Memory(MemoryStore::new(max)),
            CacheStoreKind::Redis => {
                let missing = "llm.cache.redis: no server; write its URL, here or in quota.shared.redis";
                CacheStore::Redis(Box::new(RedisStore::new(redis.ok_or(missing)?, config.prefix.clone())))
            }
        };
        let semantic = config.semantic.as_ref().map(SemanticIndex::new).transpose()?;
        let (config, counters) = (config.clone(), Arc::clone(&self.counters));
        let (secrets, in_flight) = (CacheSecrets::new(secret), Arc::default());
        let active = ActiveCache { config, secrets, store, semantic, in_flight, counters };
        Ok(PreparedCache(Some(Arc::new(active))))
    }

    pub fn activate(&self, prepared: PreparedCache) {
        self.active.store(prepared.0);
    }

    pub fn stats(&self) -> CacheStats {
        let active = self.active.load();
        let mut stats = self.counters.counts.lock().clone();
        let semantic = active.as_deref().and_then(|active| active.semantic.as_ref());
        stats.semantic.entries = semantic.map_or(0, SemanticIndex::len);
        if let Some(ActiveCache { store: CacheStore::Memory(memory), .. }) = active.as_deref() {
            (stats.entries, stats.bytes) = memory.size();
        }
        stats
    }

    /// Whether requests of this operation to this upstream may be answered from the cache, as far as their head tells.
    pub(super) fn may_serve(&self, upstream: &str, operation: interflow_llm::Operation) -> bool {
        let active = self.active.load();
        active.as_ref().is_some_and(|active| key::is_cacheable(operation) && covers(&active.config.providers, upstream))
    }

    /// The provider that would embed texts of requests for this operation to an upstream: redaction has to suit it, too.
    pub(crate) fn embedding_provider(&self, upstream: &str, operation: interflow_llm::Operation) -> Option<ByteStr> {
        let active = self.active.load();
        let active = active.as_ref().filter(|_| self.may_serve(upstream, operation))?;
        let semantic = active.semantic.as_ref().filter(|_| semantic::is_comparable(operation))?;
        Some(semantic.config.provider.as_str().into())
    }

    /// Looks a request up. It is returned as it was if it has to be sent.
    ///
    /// # Errors
    /// The request's body cannot be read.
    pub(super) async fn look_up(
        &self,
        gateway: &LlmGateway,
        upstream: &LlmUpstream,
        flow: &mut Flow,
        request: Request,
    ) -> Result<CacheLookup> {
        let Some(active) = self.active.load_full() else {
            return Ok(CacheLookup::Forward(request, CacheOutcome::None));
        };
        active.look_up(gateway, upstream, flow, request).await
    }
}

/// Whether a list of patterns includes a name; an empty one includes all.
fn covers(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| wildcard::matches(pattern, name))
}

/// As [`covers`], for a model: also with or without the collection and the vendor before its name.
fn covers_model(patterns: &[String], model: &str) -> bool {
    covers(patterns, model) || matches_model(patterns, model)
}

impl ActiveCache {
    /// Whether the operator wants requests like this one to be answered from the cache.
    fn applies(&self, flow: &Flow, call: &LlmCall, upstream: &str) -> bool {
        let config = &self.config;
        let key = flow.extension::<KeyContext>().and_then(|k| k.key.as_ref()).map_or("", |key| &*key.id);
        let model = call.model.as_deref().unwrap_or_default();
        key::is_cacheable(call.operation)
            && covers(&config.providers, upstream)
            && covers(&config.routes, call.route.as_deref().unwrap_or_default())
            && covers_model(&config.models, model)
            && covers(&config.keys, key)
    }

    async fn look_up(
        self: Arc<Self>,
        gateway: &LlmGateway,
        upstream: &LlmUpstream,
        flow: &mut Flow,
        request: Request,
    ) -> Result<CacheLookup> {
        let table = &*gateway.table();
        let call = flow.extension::<LlmCall>().cloned().unwrap_or_default();
        if !self.applies(flow, &call, &upstream.name) {
            return Ok(CacheLookup::Forward(request, CacheOutcome::None));
        }
        let Request { head, body } = request;
        let control = CacheControl::from_headers(&head.headers);
        let (raw, _) = match exchange::collect(flow, &head.headers, body, (table.max_body, false)).await {
            Ok(whole) => whole,
            Err(CollectError::Broken(e)) => return Err(e),
            // Refused where it is held to be sent.
            Err(CollectError::TooLarge(body)) => {
                return Ok(CacheLookup::Forward(Request { head, body }, CacheOutcome::None));
            }
        };
        let decoded = exchange::request_body(flow, &head.headers, &raw, table.max_body).await;
        let request = Request { head, body: raw.into() };
        let Ok(decoded) = decoded else { return Ok(self.bypass(flow, request, "unreadable")) };
        let facts = decoded.read(|body| Ok(RequestFacts::read(body.plain()))).await.ok().flatten();
        let has_experiment =
            call.route.as_deref().and_then(|name| table.routes.get(name)).is_some_and(|r| r.experiment.is_some());
        let reason = match facts {
            _ if control.no_store => Some("no-store"),
            // Its variant would be that of the first client.
            _ if has_experiment => Some("experiment"),
            None => Some("unreadable"),
            Some(facts) if facts.has_state => Some("state"),
            Some(facts) if facts.has_tools && !self.config.tools => Some("tools"),
            Some(facts) if self.config.only_deterministic && !facts.is_deterministic(call.operation) => {
                Some("temperature")
            }
            Some(_) => None,
        };
        if let Some(reason) = reason {
            return Ok(self.bypass(flow, request, reason));
        }
        let scope = key::scope_id(self.config.scope, flow, &request.head);
        let parts =
            key::KeyParts { table, upstream, call: &call, scope: &scope, head: &request.head, body: decoded.plain() };
        let key = self.secrets.key(&parts);
        let mut leader = None;
        // A client that wants a fresh response neither waits for another's nor has others wait.
        while !control.no_cache && leader.is_none() {
            if let Some((entry, age)) = self.get_fresh(&key, &control).await {
                return Ok(CacheLookup::Hit(self.hit(flow, entry, age)));
            }
            match self.in_flight.join(key) {
                Place::First(first) => leader = Some(first),
                Place::Behind(follower) => match follower.wait().await {
                    Outcome::Response(entry) => {
                        flow.tag("cache:coalesced");
                        return Ok(CacheLookup::Hit(self.hit(flow, entry, 0)));
                    }
                    Outcome::NotShared => break,
                    Outcome::Abandoned => {}
                },
            }
        }
        // An equal request may have ended since the look into memory.
        if leader.is_some()
            && matches!(self.store, CacheStore::Memory(_))
            && let Some((entry, age)) = self.get_fresh(&key, &control).await
        {
            return Ok(CacheLookup::Hit(self.hit(flow, entry, age)));
        }
        let meaning = self.embed(gateway, flow, &parts).await;
        if let Some(indexed) = meaning.as_ref().filter(|_| !control.no_cache)
            && let Some((entry, age, similarity)) = self.find_similar(indexed, control.max_age).await
        {
            self.counters.counts.lock().semantic.count_hit(similarity);
            if let Some(leader) = leader {
                leader.release();
            }
            let mut response = self.hit(flow, entry, age);
            flow.tag("cache:semantic");
            response.head.headers.append_unchecked(SIMILARITY_HEADER, format!("{similarity:.4}").as_bytes());
            return Ok(CacheLookup::Hit(response));
        }
        self.counters.counts.lock().misses += 1;
        flow.tag("cache:miss");
        let pending = PendingEntry::new(self, key, call.response_form(), meaning, leader);
        Ok(CacheLookup::Forward(request, CacheOutcome::Miss(Box::new(pending))))
    }

    fn hit(&self, flow: &mut Flow, entry: StoredResponse, age: u64) -> Response {
        self.counters.counts.lock().hits += 1;
        flow.tag("cache:hit");
        flow.extension_mut::<CacheState>().is_hit = true;
        entry.into_response(age)
    }

    /// A response that is as fresh as the client wants it.
    async fn get_fresh(&self, key: &CacheKey, control: &CacheControl) -> Option<(StoredResponse, u64)> {
        self.get(key).await.filter(|(_, age)| control.max_age.is_none_or(|max| *age <= max))
    }

    /// The embedding of the request's last text; `None` if requests are not compared by it, or not this one.
    async fn embed(&self, gateway: &LlmGateway, flow: &Flow, parts: &key::KeyParts<'_>) -> Option<IndexedText> {
        let (index, counters) = (self.semantic.as_ref()?, &self.counters);
        let Some(query) = index.query(flow, parts.call, parts.body) else {
            counters.counts.lock().semantic.ineligible += 1;
            return None;
        };
        // Separated like exact responses, by all but the text.
        let space = self.secrets.key(&key::KeyParts { body: query.rest.as_bytes(), ..*parts });
        match index.embed(gateway, &query.text).await {
            Ok(text) => {
                if counters.semantic_failing.swap(false, Relaxed) {
                    tracing::info!("llm.cache.semantic: {} answers again", index.config.provider);
                }
                Some(IndexedText { space, text })
            }
            Err(e) => {
                counters.counts.lock().semantic.errors += 1;
                if !counters.semantic_failing.swap(true, Relaxed) {
                    let name = &index.config.provider;
                    tracing::warn!("llm.cache.semantic: {name} gives no embeddings: {e}; only equal requests are hits");
                }
                None
            }
        }
    }

    /// A stored response to a request that means the same, its age and the similarity.
    async fn find_similar(&self, indexed: &IndexedText, max_age: Option<u64>) -> Option<(StoredResponse, u64, f32)> {
        let index = self.semantic.as_ref()?;
        match index.search(&indexed.space, &indexed.text) {
            Match::Found(key, similarity) => match self.get(&key).await {
                Some((entry, age)) if max_age.is_none_or(|max| age <= max) => return Some((entry, age, similarity)),
                Some(_) => {}
                None => index.remove(&indexed.space, &key),
            },
            Match::Guarded => self.counters.counts.lock().semantic.guarded += 1,
            Match::None => {}
        }
        self.counters.counts.lock().semantic.misses += 1;
        None
    }

    /// Remembers the text of a response that was stored.
    fn index(&self, indexed: Option<IndexedText>, key: CacheKey) {
        if let (Some(index), Some(indexed)) = (&self.semantic, indexed) {
            index.insert(indexed, key);
        }
    }

    fn bypass(&self, flow: &mut Flow, request: Request, reason: &'static str) -> CacheLookup {
        *self.counters.counts.lock().bypassed.entry(reason).or_default() += 1;
        flow.tag(format!("cache:bypass:{reason}"));
        CacheLookup::Forward(request, CacheOutcome::Bypass)
    }

    /// A response that is not too old, and its age in seconds. A server that cannot be reached has none.
    async fn get(&self, key: &CacheKey) -> Option<(StoredResponse, u64)> {
        let entry = match &self.store {
            CacheStore::Memory(memory) => memory.get(key),
            CacheStore::Redis(redis) => {
                let stored = redis.get(&self.secrets, key).await;
                self.record_result(&stored);
                stored.ok().flatten()
            }
        }?;
        let age = Duration::from_micros(Timestamp::now().micros().saturating_sub(entry.stored_at));
        (age < self.config.ttl.0).then_some((entry, age.as_secs()))
    }

    /// Stores a response. Waits for nothing: a command to Redis runs in the background.
    fn put(self: Arc<Self>, key: CacheKey, entry: StoredResponse) {
        self.counters.counts.lock().stored += 1;
        match &self.store {
            CacheStore::Memory(memory) => {
                let evicted = memory.put(key, entry);
                self.counters.counts.lock().evicted += evicted;
            }
            CacheStore::Redis(_) => {
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move {
                        let CacheStore::Redis(redis) = &self.store else { return };
                        let done = redis.put(&self.secrets, &key, &entry, self.config.ttl.0).await;
                        self.record_result(&done);
                    });
                }
            }
        }
    }

    /// Counts a failure of the server. The transitions are logged, not each failure.
    fn record_result<T>(&self, result: &std::result::Result<T, String>) {
        match result {
            Ok(_) if self.counters.failing.swap(false, Relaxed) => {
                tracing::info!("llm.cache: Redis is reachable again")
            }
            Ok(_) => {}
            Err(e) => {
                self.counters.counts.lock().errors += 1;
                if !self.counters.failing.swap(true, Relaxed) {
                    tracing::warn!("llm.cache: {e}; requests go to their providers until it is back");
                }
            }
        }
    }
}

impl CacheOutcome {
    /// There is no response to keep.
    pub fn give_up(&self) {
        if let Self::Miss(pending) = self {
            pending.give_up();
        }
    }

    /// Marks the upstream's response, and keeps a copy of it while it is relayed.
    pub fn follow(self, flow: &mut Flow, mut response: Response) -> Response {
        match self {
            Self::None => response,
            Self::Bypass => {
                response.head.headers.append_unchecked(CACHE_HEADER, b"BYPASS");
                response
            }
            Self::Miss(mut pending) => {
                response.body = pending.capture(&response.head, response.body);
                response.head.headers.append_unchecked(CACHE_HEADER, b"MISS");
                *flow.extension_mut::<CacheState>().pending.lock() = Some(*pending);
                response
            }
        }
    }
}

/// What the client asks of the cache (RFC 9111 5.2.1).
#[derive(Debug, Default, PartialEq, Eq)]
struct CacheControl {
    no_store: bool,
    no_cache: bool,
    /// In seconds.
    max_age: Option<u64>,
}

impl CacheControl {
    fn from_headers(headers: &Headers) -> Self {
        let mut control = Self::default();
        for item in headers.list_items("cache-control") {
            let item = String::from_utf8_lossy(item).to_ascii_lowercase();
            match item.split_once('=').map_or((item.as_str(), ""), |(name, value)| (name.trim(), value.trim())) {
                ("no-store", _) => control.no_store = true,
                ("no-cache", _) => control.no_cache = true,
                ("max-age", value) => control.max_age = value.trim_matches('"').parse().ok(),
                _ => {}
            }
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_control_of_a_request_is_read() {
        let read = |text: &str| CacheControl::from_headers(&[("Cache-Control", text)].into_iter().collect());
        assert_eq!(read("No-Store, private"), CacheControl { no_store: true, ..CacheControl::default() });
        assert_eq!(
            read("no-cache, max-age=60"),
            CacheControl { no_cache: true, max_age: Some(60), ..CacheControl::default() }
        );
        assert_eq!(read("max-age=soon"), CacheControl::default());
    }

    #[test]
    fn lists_of_names_have_wildcards_and_an_empty_one_has_all() {
        let list = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        assert!(covers(&[], "") && covers(&list(&["gpt-*"]), "gpt-5") && !covers(&list(&["gpt-*"]), ""));
        for (pattern, model, holds) in [
            ("*", "", true),
            ("GPT-5*", "gpt-5-mini", true),
            ("gpt-5", "openai/gpt-5", true),
            ("models/gpt-5", "gpt-5", true),
            ("gpt-5", "gpt-5-mini", false),
            ("gpt-*", "", false),
        ] {
            assert_eq!(covers_model(&list(&[pattern]), model), holds, "{pattern} {model}");
        }
    }
}
