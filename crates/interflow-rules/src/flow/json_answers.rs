//! What JSONPaths of conditions select in the bodies of one phase, and the one that must be evaluated next: away from
//! the threads that serve connections, unless the body is short.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use interflow_types::{Direction, Error, ErrorKind};
use tokio::sync::Semaphore;

use crate::body::content::BodyContent;
use crate::text::json::JsonPath;
use crate::text::json_document::{JsonDocument, JsonFailure};

/// In a body up to this size, paths are evaluated on the calling thread.
const MAX_INLINE_SIZE: usize = 4 << 10;

/// How many evaluations and edits of JSON run at once, in the whole process; others wait.
pub(crate) static JSON_SLOTS: LazyLock<Arc<Semaphore>> =
    LazyLock::new(|| Arc::new(Semaphore::new(std::thread::available_parallelism().map_or(2, usize::from).max(2))));

/// What a path selects: no values in a body that is not JSON. The error says which bound was exceeded.
pub(crate) type JsonSelection = Result<Arc<[Bytes]>, Arc<Error>>;

/// What was evaluated in a phase.
#[derive(Default)]
pub(crate) struct JsonAnswers {
    known: RefCell<Vec<(Direction, JsonPath, JsonSelection)>>,
    /// The documents of each direction that were read already.
    documents: RefCell<[Option<Arc<[JsonDocument]>>; 2]>,
    wanted: RefCell<Option<Box<JsonRun>>>,
}

impl JsonAnswers {
    /// What the path selects; `None` if it has to be evaluated first, which is then wanted.
    pub fn select(&self, side: Direction, path: &JsonPath, content: &BodyContent) -> Option<JsonSelection> {
        if let Some(known) = self.find(side, path) {
            return Some(known);
        }
        let documents = self.documents.borrow()[side as usize].clone();
        let run = JsonRun { side, path: path.clone(), content: content.clone(), documents };
        if content.len() > MAX_INLINE_SIZE {
            self.wanted.borrow_mut().get_or_insert_with(|| Box::new(run));
            return None;
        }
        let done = run.evaluate(&AtomicBool::new(false));
        let selected = done.selected.clone();
        self.record(done);
        Some(selected)
    }

    fn find(&self, side: Direction, path: &JsonPath) -> Option<JsonSelection> {
        self.known.borrow().iter().find(|(s, p, _)| *s == side && p == path).map(|(.., selected)| selected.clone())
    }

    /// Why a path that was evaluated selects nothing that can be relied on.
    pub fn failure(&self, side: Direction, path: &JsonPath) -> Option<Arc<Error>> {
        self.find(side, path)?.err()
    }

    /// Whether an evaluation is needed before a condition can be decided.
    pub fn wants_any(&self) -> bool {
        self.wanted.borrow().is_some()
    }

    /// The body changed: nothing that was evaluated holds any longer.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// The evaluation that is needed before a condition can be decided.
    pub fn take_wanted(&self) -> Option<Box<JsonRun>> {
        self.wanted.take()
    }

    pub fn record(&self, done: JsonDone) {
        if let Some(documents) = done.documents {
            self.documents.borrow_mut()[done.side as usize] = Some(documents);
        }
        self.known.borrow_mut().push((done.side, done.path, done.selected));
    }
}

/// What the path selects, evaluated on the calling thread whatever the size of the body.
pub(crate) fn evaluate_now(side: Direction, path: &JsonPath, content: &BodyContent) -> JsonSelection {
    let run = JsonRun { side, path: path.clone(), content: content.clone(), documents: None };
    run.evaluate(&AtomicBool::new(false)).selected
}

/// An evaluation of a path.
pub(crate) struct JsonRun {
    side: Direction,
    path: JsonPath,
    content: BodyContent,
    documents: Option<Arc<[JsonDocument]>>,
}

/// Its result, with the documents that it read.
pub(crate) struct JsonDone {
    side: Direction,
    path: JsonPath,
    documents: Option<Arc<[JsonDocument]>>,
    pub selected: JsonSelection,
}

/// Ends an evaluation whose flow is gone.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl JsonRun {
    /// Evaluates the path on a blocking thread. Cancel-safe: if this is dropped, the evaluation ends soon.
    pub async fn run(self) -> JsonDone {
        let (side, path) = (self.side, self.path.clone());
        let failed = |e: String| JsonDone {
            side,
            path,
            documents: None,
            selected: Err(Arc::new(Error::new(ErrorKind::Internal, e))),
        };
        let slot = match Arc::clone(&JSON_SLOTS).acquire_owned().await {
            Ok(slot) => slot,
            Err(e) => return failed(e.to_string()),
        };
        let stop = StopOnDrop(Arc::default());
        let stopped = Arc::clone(&stop.0);
        let done = tokio::task::spawn_blocking(move || {
            // The slot is taken until the work has ended, not until it was cancelled.
            let _slot = slot;
            self.evaluate(&stopped)
        });
        done.await.unwrap_or_else(|e| failed(e.to_string()))
    }

    fn evaluate(self, stop: &AtomicBool) -> JsonDone {
        let documents = match self.documents {
            Some(documents) => Ok(documents),
            None => read_documents(&self.content),
        };
        let select = |documents: &Arc<[JsonDocument]>| {
            let mut all = Vec::new();
            for document in documents.iter() {
                match self.path.select(document, stop) {
                    Ok(values) => all.extend(values),
                    Err(JsonFailure::NotJson(_)) => {}
                    Err(JsonFailure::Exceeds(e)) => return Err(e),
                }
            }
            Ok(all.into())
        };
        let (documents, selected) = match documents {
            Ok(documents) => (Some(Arc::clone(&documents)), select(&documents)),
            Err(e) => (None, Err(e)),
        };
        JsonDone { side: self.side, path: self.path, documents, selected: selected.map_err(Arc::new) }
    }
}

/// The JSON that a recipient may read in a body: none if it is not JSON, which is an error if its head says that it is.
/// A lenient recipient may read something in it.
fn read_documents(content: &BodyContent) -> Result<Arc<[JsonDocument]>, Error> {
    let mut documents = Vec::new();
    let mut invalid = None;
    for reading in content.readings() {
        match JsonDocument::read(reading.clone()) {
            Ok(document) => documents.push(document),
            Err(JsonFailure::NotJson(e)) => invalid = Some(e),
            Err(JsonFailure::Exceeds(e)) => return Err(e),
        }
    }
    if let Some(e) = invalid.filter(|_| documents.is_empty() && content.must_be_json()) {
        return Err(Error::new(ErrorKind::StageFailed, format!("its Content-Type is JSON, but it is {e}")));
    }
    Ok(documents.into())
}
