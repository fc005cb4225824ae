//! A model of names (NER) in this process: a token classifier in ONNX that the operator provides. What it finds is weighed
//! with the features of the built-in detectors.
//!
//! A model takes milliseconds per kilobyte, so that texts are collected in a first pass, given to the model off the worker
//! threads, and edited in a second pass with its findings at hand, as with external detectors.

mod config;
mod labels;
mod network;
mod wordpiece;

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

use crate::detect::Finding;
use crate::scan::finding_cache::FindingCache;
use crate::scan::scan_capacity;
use crate::scan::stop_flag;
use crate::{RedactError, Result, StopFlag};
use labels::{LabelMap, WordLabel};
use network::Network;
use wordpiece::{WordList, WordPiece};

pub use config::ModelConfig;

/// Findings of the model by text. A text that the model did not see has no entry.
#[derive(Clone, Debug, Default)]
pub struct ModelFindings(Arc<HashMap<String, Arc<[Finding]>>>);

impl ModelFindings {
    /// What the model found in a text; `None` if it did not see it.
    pub(crate) fn findings_in(&self, text: &str) -> Option<Arc<[Finding]>> {
        self.0.get(text).cloned()
    }

    /// The findings in one text, as the model would return them.
    pub fn for_text(text: &str, findings: Vec<Finding>) -> Self {
        Self(Arc::new(HashMap::from([(text.to_owned(), findings.into())])))
    }
}

/// A loaded model with its tokenizer and labels.
pub struct EntityModel {
    config: ModelConfig,
    tokenizer: WordPiece,
    labels: LabelMap,
    network: Network,
    cache: FindingCache,
    /// One request at a time: a second one would not be done sooner, and would take memory meanwhile.
    turn: Arc<Semaphore>,
}

impl std::fmt::Debug for EntityModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EntityModel").field("config", &self.config).finish_non_exhaustive()
    }
}

impl EntityModel {
    /// Loads the model after its files were compared with their checksums. A relative path starts at `base`.
    ///
    /// # Errors
    /// The key or the file, and what is wrong with it.
    pub fn load(config: &ModelConfig, base: &Path) -> Result<Self> {
        Self::from_files(config, base).map_err(RedactError::Policy)
    }

    fn from_files(config: &ModelConfig, base: &Path) -> Result<Self, String> {
        config.validate()?;
        let folder = base.join(&config.path);
        let read = |name: &str| read_checked(&folder, name, config);
        let wrong = |name: &str, why: String| format!("redact.model: {}: {why}", folder.join(name).display());
        let tokenizer = WordPiece::parse(&read("tokenizer.json")?).map_err(|e| wrong("tokenizer.json", e))?;
        let labels = LabelMap::parse(&read("config.json")?, &config.labels).map_err(|e| wrong("config.json", e))?;
        let network = Network::load(read(&config.file)?, config.threads, labels.len(), config.window);
        let network = network.map_err(|e| wrong(&config.file, e))?;
        let cache = FindingCache::new(20_000).map_err(|e| e.to_string())?;
        Ok(Self { config: config.clone(), tokenizer, labels, network, cache, turn: Arc::new(Semaphore::new(1)) })
    }

    /// The findings in these texts. Each distinct text is given to the model once; results are cached.
    ///
    /// # Errors
    /// The model failed or was too slow, and is configured to fail closed: the texts must not be forwarded.
    pub async fn find_all<T: AsRef<str>>(self: &Arc<Self>, texts: &[T]) -> Result<ModelFindings> {
        let mut findings = HashMap::new();
        let mut open = Vec::new();
        for text in texts.iter().map(AsRef::as_ref).filter(|t| t.chars().any(char::is_alphabetic)) {
            if findings.contains_key(text) {
                continue;
            }
            let cached = self.cache.get(&[], text);
            if cached.is_none() {
                open.push(text.to_owned());
            }
            findings.insert(text.to_owned(), cached.unwrap_or_default());
        }
        match self.run_all(open).await {
            Ok(more) => findings.extend(more),
            Err(why) => return self.failed(&why).map(|()| ModelFindings::default()),
        }
        Ok(ModelFindings(Arc::new(findings)))
    }

    /// Runs the model on texts that are not cached, off the worker threads. It takes its part of the
    /// [scan capacity](scan_capacity) only when it is its turn: who waits for the model must not keep others from scans
    /// that need none.
    async fn run_all(self: &Arc<Self>, texts: Vec<String>) -> Result<Vec<(String, Arc<[Finding]>)>, String> {
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let limit = self.config.timeout;
        let late = |_| format!("it was not done within {limit} (redact.model.timeout)");
        let deadline = Instant::now() + limit.0;
        let turn = tokio::time::timeout_at(deadline.into(), Arc::clone(&self.turn).acquire_owned());
        let turn = turn.await.map_err(late)?.map_err(|e| e.to_string())?;
        let size = texts.iter().map(String::len).sum();
        let capacity = tokio::time::timeout_at(deadline.into(), scan_capacity::reserve(size)).await.map_err(late)?;
        let stop = StopFlag::default();
        // When the client disconnects, this future is dropped, which stops the work.
        let _left = stop.on_drop();
        let model = Arc::clone(self);
        let work = move || {
            let _held = (turn, capacity);
            let find = |text: String| {
                let findings: Arc<[Finding]> = model.find_until(&text, Some(deadline))?.into();
                model.cache.insert_findings(&[], &text, findings.clone());
                Ok((text, findings))
            };
            stop.run(|| texts.into_iter().map(find).collect())
        };
        let done = tokio::time::timeout_at(deadline.into(), tokio::task::spawn_blocking(work)).await;
        done.map_err(late)?.map_err(|_| "it ended with a panic".to_owned())?
    }

    /// Handles a failure according to the configuration: an error, or no findings.
    fn failed(&self, why: &str) -> Result<()> {
        self.config.failure.handle(format!("the model of redact.model: {why}"), "redact.model.failure")
    }

    /// The findings in one text, on this thread and without a time limit.
    ///
    /// # Errors
    /// The model cannot be run on the text.
    pub fn find(&self, text: &str) -> Result<Vec<Finding>> {
        self.find_until(text, None).map_err(RedactError::Backend)
    }

    fn find_until(&self, text: &str, deadline: Option<Instant>) -> Result<Vec<Finding>, String> {
        let most = self.config.max_text;
        if text.len() as u64 > most.0 {
            return Err(format!("a text has {} bytes, more than {most} (redact.model.max_text)", text.len()));
        }
        let list = self.tokenizer.split(text);
        let mut labels: Vec<Option<WordLabel>> = vec![None; list.words.len()];
        for window in windows(&list, self.config.window - 2, self.config.overlap) {
            if stop_flag::is_stop_requested() {
                return Err("it was cancelled".into());
            }
            if deadline.is_some_and(|d| Instant::now() >= d) {
                return Err(format!("it was not done within {} (redact.model.timeout)", self.config.timeout));
            }
            self.run_window(&list, &window, &mut labels)?;
        }
        Ok(labels::join(list.words.into_iter().map(|w| w.bytes).zip(labels)))
    }

    /// Runs the model on a window, and sets the labels of the words that it is to decide on.
    fn run_window(&self, list: &WordList, window: &Window, labels: &mut [Option<WordLabel>]) -> Result<(), String> {
        let Some(words) = list.words.get(window.words.clone()) else { return Ok(()) };
        let (Some(first), Some(last)) = (words.first(), words.last()) else { return Ok(()) };
        // A single word of many pieces may exceed the window.
        let end = last.pieces.end.min(first.pieces.start + self.config.window - 2);
        let pieces = &list.ids[first.pieces.start..end];
        let ids: Vec<i32> = [&[self.tokenizer.first], pieces, &[self.tokenizer.last]].concat();
        let scores = self.network.run(&ids)?;
        let least = f32::from(self.config.threshold) / 100.0;
        for at in window.decides.clone() {
            // The first piece of a word speaks for it, as in training; the window begins with a token of its own.
            let token = list.words[at].pieces.start - first.pieces.start + 1;
            let row = scores.get(token * self.labels.len()..(token + 1) * self.labels.len());
            labels[at] = row.and_then(|row| self.labels.decide(row, least));
        }
        Ok(())
    }
}

/// Words that are given to the model together, and those of them that it decides on: in an overlap, each window decides
/// on the half that it sees more of the text around.
#[derive(Debug, PartialEq, Eq)]
struct Window {
    words: Range<usize>,
    decides: Range<usize>,
}

/// Windows of at most `size` pieces, between words, that overlap by about `overlap` pieces.
fn windows(list: &WordList, size: usize, overlap: usize) -> Vec<Window> {
    let words = &list.words;
    let mut all: Vec<Window> = Vec::new();
    let mut start = 0;
    while start < words.len() {
        let fits = |w: &wordpiece::Word| w.pieces.end - words[start].pieces.start <= size;
        let end = (start + words[start..].partition_point(fits)).max(start + 1);
        let from = all.last_mut().map_or(0, |before| {
            let middle = usize::midpoint(start, before.words.end);
            before.decides.end = middle;
            middle
        });
        all.push(Window { words: start..end, decides: from..end });
        if end == words.len() {
            break;
        }
        let back = words[end].pieces.start.saturating_sub(overlap);
        // Always progresses, also with words longer than the overlap.
        start = words.partition_point(|w| w.pieces.start < back).clamp(start + 1, end);
    }
    all
}

/// A file of the model, if its checksum is as configured.
fn read_checked(folder: &Path, name: &str, config: &ModelConfig) -> Result<Vec<u8>, String> {
    let path = folder.join(name);
    let Some(expected) = config.sha256.get(name) else {
        return Err(format!("redact.model.sha256: it has no entry for {name}; take it from where you trust the file"));
    };
    let bytes =
        std::fs::read(&path).map_err(|e| format!("redact.model.path: {} cannot be read: {e}", path.display()))?;
    let sum = hex::encode(Sha256::digest(&bytes));
    if !expected.trim().eq_ignore_ascii_case(&sum) {
        return Err(format!("redact.model.sha256: {} has the checksum {sum}, not {expected}", path.display()));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
