//! Lua scripts that inspect, change, answer or deny a flow. Each run has a Lua state of its own, off the worker
//! threads, with limits on time, instructions and memory, and no access to files, processes or the network.

mod budget;
mod compiled;
mod json;
mod modules;
mod outcome;
mod pattern;
mod run;
mod snapshot;
mod store;
mod strings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::sync::Semaphore;

use crate::config::RulesConfig;
use crate::params::{ScriptParams, ScriptSource};
use budget::{ScriptBudget, ScriptLimits};
pub(crate) use compiled::CompiledScript;
pub(crate) use outcome::{ScriptOutcome, ScriptVerdict};
pub(crate) use snapshot::{HeaderPairs, RequestSnapshot, ScriptSnapshot};
pub(crate) use store::SharedScriptStore;

impl ScriptParams {
    /// The compiled script; its syntax is checked.
    ///
    /// # Errors
    /// A file that cannot be read, or a syntax error with its line.
    pub(crate) fn compile(&self, config: &RulesConfig) -> Result<Arc<CompiledScript>, String> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(Arc::clone(compiled));
        }
        let code = match &self.source {
            ScriptSource::Text(text) => text.clone(),
            ScriptSource::File(path) => std::fs::read_to_string(path)
                .map_err(|e| format!("the script {} cannot be read: {e}", path.display()))?,
        };
        let compiled = CompiledScript {
            name: self.name.clone(),
            code,
            limits: ScriptLimits {
                time: self.limit.unwrap_or(config.script_timeout).0,
                instructions: config.script_instructions,
                memory: usize::try_from(self.memory.unwrap_or(config.script_memory).0).unwrap_or(usize::MAX),
            },
            bounds: store::ScriptStoreBounds {
                entries: config.store_entries,
                bytes: usize::try_from(config.store_bytes.0).unwrap_or(usize::MAX),
                ttl: config.store_ttl.0,
            },
        };
        compiled.check()?;
        Ok(Arc::clone(self.compiled.get_or_init(|| Arc::new(compiled))))
    }
}

/// Runs scripts on blocking threads with bounded concurrency and a bounded queue.
#[derive(Debug)]
pub(crate) struct ScriptRunner {
    slots: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// How long a run may exceed its own limit before it is abandoned: a single operation on large texts is not
/// interrupted.
const GRACE: Duration = Duration::from_millis(500);

/// Counts a queued run until it is dropped.
struct ScriptQueueGuard<'s>(&'s AtomicUsize);

impl Drop for ScriptQueueGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Cancels the run when it was cancelled.
struct ScriptCancelGuard(Arc<AtomicBool>);

impl Drop for ScriptCancelGuard {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl ScriptRunner {
    /// As many runs at once as `rules.script_threads` says; 0 counts as 1.
    pub fn new(config: &RulesConfig) -> Self {
        Self {
            slots: Arc::new(Semaphore::new(config.script_threads.max(1))),
            waiting: AtomicUsize::new(0),
            most_waiting: config.script_queue,
        }
    }

    /// Runs a script on a snapshot of a flow. If this is dropped, the run ends at its next check of the budget.
    ///
    /// # Errors
    /// A script error with its line, an exhausted budget, or a full queue.
    pub async fn run(&self, asked: ScriptRun) -> Result<ScriptOutcome, String> {
        let turn = match Arc::clone(&self.slots).try_acquire_owned() {
            Ok(turn) => turn,
            Err(_) => {
                if self.waiting.fetch_add(1, Relaxed) >= self.most_waiting {
                    self.waiting.fetch_sub(1, Relaxed);
                    return Err(format!("{} scripts wait already (rules.script_queue)", self.most_waiting));
                }
                let _waiting = ScriptQueueGuard(&self.waiting);
                Arc::clone(&self.slots).acquire_owned().await.map_err(|e| e.to_string())?
            }
        };
        let cancel = ScriptCancelGuard(Arc::default());
        let (cancelled, limit) = (Arc::clone(&cancel.0), asked.compiled.limits.time);
        let running = tokio::task::spawn_blocking(move || {
            // The permit is held until the run ends, even if the caller stops waiting.
            let _turn = turn;
            let budget = Arc::new(ScriptBudget::begin(asked.compiled.limits, cancelled));
            asked.run(&budget)
        });
        match tokio::time::timeout(limit + GRACE, running).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(e)) => Err(format!("the script ended without a result: {e}")),
            Err(_) => Err(format!("it ran longer than {limit:?}, and has not ended since")),
        }
    }
}

/// The input of a run, detached from the flow so that it can move to another thread.
pub(crate) struct ScriptRun {
    pub compiled: Arc<CompiledScript>,
    pub snapshot: ScriptSnapshot,
    pub store: SharedScriptStore,
}
