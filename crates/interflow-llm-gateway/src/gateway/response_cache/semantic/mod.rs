//! The semantic part of the cache (`llm.cache.semantic`): a request whose last text means the same as an earlier one's, by
//! the similarity of their embeddings, is answered with the response to that one. Everything but this text has to be
//! equal, as for the exact cache.

mod guard;
mod query;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use interflow_llm::{LlmCall, Operation, SemanticCacheConfig};
use interflow_types::Flow;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::{LlmGateway, send_json};
use super::key::CacheKey;

pub use guard::TextFeatures;
pub(super) use query::SemanticQuery;

/// Maximum size of an embedding service's answer, and of a vector.
const MAX_ANSWER_BYTES: usize = 1 << 20;
const MAX_DIMENSIONS: usize = 8_192;
/// How long no embedding is asked for after one that took too long: each request would wait.
const PAUSE: Duration = Duration::from_secs(10);
/// Hits are counted by these lower bounds of similarity.
const BOUNDS: [(&str, f32); 8] = [
    ("0.99", 0.99),
    ("0.98", 0.98),
    ("0.97", 0.97),
    ("0.95", 0.95),
    ("0.90", 0.90),
    ("0.85", 0.85),
    ("0.80", 0.80),
    ("0", f32::MIN),
];

/// The texts of stored responses, in the memory of this process.
pub(super) struct SemanticIndex {
    pub config: SemanticCacheConfig,
    state: Mutex<IndexState>,
    /// After an embedding that took too long, requests do not wait for others until then.
    paused_until: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct IndexState {
    /// Texts that may be compared with one another: everything else of their requests is equal.
    spaces: HashMap<CacheKey, Vec<IndexEntry>>,
    /// From the oldest.
    order: VecDeque<(CacheKey, u64)>,
    next: u64,
}

struct IndexEntry {
    id: u64,
    text: EmbeddedText,
    /// Of the response in the store.
    key: CacheKey,
}

/// A text as it is compared.
pub(super) struct EmbeddedText {
    /// Of length 1.
    vector: Box<[f32]>,
    features: TextFeatures,
}

/// A text with the place in the index where it belongs.
pub(super) struct IndexedText {
    pub space: CacheKey,
    pub text: EmbeddedText,
}

/// What was found for a text.
#[derive(Debug, PartialEq)]
pub(super) enum Match {
    Found(CacheKey, f32),
    /// The closest was similar enough, but the guard found a difference.
    Guarded,
    None,
}

/// What was counted since the start, and the texts in memory now.
#[derive(Clone, Debug, Default)]
pub struct SemanticStats {
    /// By the lower bound of their similarity.
    pub hits: BTreeMap<&'static str, u64>,
    pub misses: u64,
    /// Similar enough, but held back by the lexical guard.
    pub guarded: u64,
    /// Requests that are not compared.
    pub ineligible: u64,
    /// Embedding requests that failed.
    pub errors: u64,
    pub entries: u64,
}

impl SemanticIndex {
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(config: &SemanticCacheConfig) -> Result<Self, String> {
        if config.model.is_empty() {
            return Err("llm.cache.semantic.model: write the name of an embedding model".into());
        }
        if !(0.5..=1.0).contains(&config.threshold) {
            return Err(format!("llm.cache.semantic.threshold: {} is not between 0.5 and 1", config.threshold));
        }
        if config.max_entries == 0 {
            return Err("llm.cache.semantic.max_entries: 0 holds nothing; leave the section out".into());
        }
        Ok(Self { config: config.clone(), state: Mutex::default(), paused_until: Mutex::default() })
    }

    /// The text by which a request is compared; `None` if it is not.
    pub fn query(&self, flow: &Flow, call: &LlmCall, body: &[u8]) -> Option<SemanticQuery> {
        // A placeholder has no meaning to compare, and stands for another value in the next request.
        let is_redacted = flow.tags.iter().any(|tag| tag == "redacted");
        // Redaction removes providers for which another policy applies than the request was redacted by.
        let provider = self.config.provider.as_str();
        let mut recipients = call.upstream.iter().chain(&call.others);
        let may = is_comparable(call.operation) && !is_redacted && recipients.any(|name| name.as_str() == provider);
        let max = usize::try_from(self.config.max_text.0).unwrap_or(usize::MAX);
        // The client itself may have sent one, of an answer that it got.
        let query = if may { SemanticQuery::read(body, max) } else { None };
        query.filter(|query| !interflow_redact::holds_placeholder(&query.text))
    }

    /// Asks the embedding service.
    ///
    /// # Errors
    /// Why there is no embedding. Nothing of the text is in the message.
    pub async fn embed(&self, gateway: &LlmGateway, text: &str) -> Result<EmbeddedText, String> {
        if self.paused_until.lock().is_some_and(|until| Instant::now() < until) {
            return Err("it is not asked for a while, since it took too long".to_owned());
        }
        let body = json!({ "model": self.config.model, "input": text });
        let request = gateway.own_request(&self.config.provider, "/v1/embeddings", &body).await?;
        let (limit, answer) = (self.config.timeout.0, send_json(gateway.unrecorded(), request, MAX_ANSWER_BYTES));
        let Ok(answer) = tokio::time::timeout(limit, answer).await else {
            *self.paused_until.lock() = Some(Instant::now() + PAUSE);
            return Err(format!("it took more than {limit:?}"));
        };
        EmbeddedText::new(text, &answer?["data"][0]["embedding"])
            .ok_or_else(|| "its answer has no embedding that can be used".to_owned())
    }

    /// The response of the closest text that is similar enough and passes the guard.
    pub fn search(&self, space: &CacheKey, text: &EmbeddedText) -> Match {
        let (state, mut best) = (self.state.lock(), Match::None);
        for entry in state.spaces.get(space).into_iter().flatten() {
            let similarity = similarity(&entry.text.vector, &text.vector);
            let is_closer = match best {
                Match::Found(_, before) => similarity > before,
                _ => true,
            };
            if !is_closer || f64::from(similarity) < self.config.threshold {
                continue;
            }
            if self.config.guard && entry.text.features.conflict(&text.features).is_some() {
                if best == Match::None {
                    best = Match::Guarded;
                }
                continue;
            }
            best = Match::Found(entry.key, similarity);
        }
        best
    }

    /// Adds the text of a response that was stored; the oldest make room for it.
    pub fn insert(&self, IndexedText { space, text }: IndexedText, key: CacheKey) {
        let mut state = self.state.lock();
        while state.order.len() >= self.config.max_entries {
            let Some((space, id)) = state.order.pop_front() else { break };
            state.remove(&space, |entry| entry.id == id);
        }
        // A fresh response to the same request replaces the one before.
        state.remove_key(&space, &key);
        let id = state.next;
        state.next += 1;
        state.order.push_back((space, id));
        state.spaces.entry(space).or_default().push(IndexEntry { id, text, key });
    }

    /// Forgets the text of a response that is not in the store any more.
    pub fn remove(&self, space: &CacheKey, key: &CacheKey) {
        self.state.lock().remove_key(space, key);
    }

    pub fn len(&self) -> u64 {
        self.state.lock().order.len() as u64
    }
}

impl IndexState {
    fn remove_key(&mut self, space: &CacheKey, key: &CacheKey) {
        let entry_of_key = self.spaces.get(space).and_then(|all| all.iter().find(|entry| entry.key == *key));
        if let Some(id) = entry_of_key.map(|entry| entry.id) {
            self.remove(space, |entry| entry.id == id);
            self.order.retain(|(_, other)| *other != id);
        }
    }

    fn remove(&mut self, space: &CacheKey, which: impl Fn(&IndexEntry) -> bool) {
        let Some(entries) = self.spaces.get_mut(space) else { return };
        entries.retain(|entry| !which(entry));
        if entries.is_empty() {
            self.spaces.remove(space);
        }
    }
}

impl EmbeddedText {
    /// `None` if this is not a vector with a direction.
    fn new(text: &str, vector: &Value) -> Option<Self> {
        let numbers = vector.as_array().filter(|all| all.len() <= MAX_DIMENSIONS)?;
        let vector: Option<Vec<f32>> = numbers.iter().map(|n| n.as_f64().map(|n| n as f32)).collect();
        let vector = normalized(vector?)?;
        Some(Self { vector, features: TextFeatures::of(text) })
    }
}

/// Whether requests for this operation may be compared by their meaning.
pub(super) const fn is_comparable(operation: Operation) -> bool {
    matches!(operation, Operation::Chat | Operation::Responses)
}

fn normalized(mut vector: Vec<f32>) -> Option<Box<[f32]>> {
    let length = vector.iter().map(|n| f64::from(*n) * f64::from(*n)).sum::<f64>().sqrt();
    if !length.is_finite() || length <= 0.0 {
        return None;
    }
    vector.iter_mut().for_each(|n| *n = (f64::from(*n) / length) as f32);
    Some(vector.into())
}

/// The cosine of the angle between two vectors of length 1; 0 if they are of different models.
fn similarity(a: &[f32], b: &[f32]) -> f32 {
    if a.len() != b.len() {
        return 0.0;
    }
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl SemanticStats {
    pub(super) fn count_hit(&mut self, similarity: f32) {
        let reached = BOUNDS.iter().find(|(_, bound)| similarity >= *bound).unwrap_or(&BOUNDS[BOUNDS.len() - 1]);
        *self.hits.entry(reached.0).or_default() += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(max_entries: usize, guard: bool) -> SemanticIndex {
        let config = SemanticCacheConfig {
            provider: "p".into(),
            model: "m".into(),
            threshold: 0.9,
            guard,
            max_entries,
            ..SemanticCacheConfig::default()
        };
        SemanticIndex::new(&config).unwrap()
    }

    fn text(text: &str, vector: Value) -> EmbeddedText {
        EmbeddedText::new(text, &vector).unwrap()
    }

    fn key(n: u8) -> CacheKey {
        CacheKey([n; 32])
    }

    #[test]
    fn the_closest_text_of_the_same_space_is_found_unless_the_guard_objects() {
        let index = index(10, true);
        for (n, said, vector) in [(1, "in 5 days", json!([1.0, 0.0])), (2, "in a week", json!([0.8, 0.6]))] {
            index.insert(IndexedText { space: key(9), text: text(said, vector) }, key(n));
        }
        let ask = |said: &str, vector: Value, space| index.search(&key(space), &text(said, vector));
        assert!(
            matches!(ask("in 5 days, please", json!([2.0, 0.2]), 9), Match::Found(k, s) if k == key(1) && s > 0.99)
        );
        assert_eq!(ask("in 5 days", json!([1.0, 0.0]), 8), Match::None, "another space");
        assert_eq!(ask("in 6 days", json!([1.0, 0.0]), 9), Match::Guarded);
        assert_eq!(ask("in 5 days", json!([0.0, 1.0]), 9), Match::None, "not similar");
        assert_eq!(ask("in 5 days", json!([1.0, 0.0, 0.0]), 9), Match::None, "of another model");
        index.remove(&key(9), &key(1));
        assert_eq!((ask("in 5 days", json!([1.0, 0.0]), 9), index.len()), (Match::None, 1));
    }

    #[test]
    fn the_oldest_are_dropped_and_a_fresh_response_replaces_its_own() {
        let index = index(3, false);
        for n in 0..10 {
            index.insert(IndexedText { space: key(n % 2), text: text("t", json!([1.0])) }, key(n));
            assert!(index.len() <= 3);
        }
        index.insert(IndexedText { space: key(1), text: text("t", json!([1.0])) }, key(9));
        assert_eq!(index.len(), 2, "one made room, and its own was replaced");
        let state = index.state.lock();
        assert_eq!(state.spaces.values().map(Vec::len).sum::<usize>(), 2);
    }

    #[test]
    fn what_is_no_vector_is_refused() {
        for bad in [json!(null), json!([]), json!([0.0]), json!(["x"]), json!([1e300, 1.0]), json!(vec![1.0; 8_193])] {
            assert!(EmbeddedText::new("t", &bad).is_none(), "{bad}");
        }
    }
}
