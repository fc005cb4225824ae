//! What the writer's thread shares with everybody else: the queue, jobs, events and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::SyncSender;

use bytes::Bytes;
use interflow_types::FlowId;
use parking_lot::Mutex;

use super::queue::WriterQueue;
use super::subscriptions::Subscriptions;
use crate::conversations::ConversationUpdate;
use crate::error::{Result, StoreError};
use crate::model::{FlowRow, MessageRow};

/// Where an answer goes.
pub(crate) type ReplySender<T> = SyncSender<Result<T>>;

/// A flow from an archive, with everything that belongs to it.
#[derive(Clone, Debug)]
pub struct NewFlow {
    /// The row; sizes of bodies are taken from it, what is kept from the bytes below.
    pub row: FlowRow,
    /// The request's body as sent.
    pub request_body: Bytes,
    /// The response's body as sent.
    pub response_body: Bytes,
    /// The bodies of request and response as they came in, where the row says that they were edited.
    pub original_bodies: [Bytes; 2],
    /// Its messages, in order.
    pub messages: Vec<MessageRow>,
}

/// A change of what the owner may change of a flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowAnnotation {
    /// Tags to put on.
    pub add_tags: Vec<String>,
    /// Tags to take off.
    pub remove_tags: Vec<String>,
    /// A new comment; an empty one takes it away.
    pub comment: Option<String>,
}

/// What the writer is asked to do.
pub(crate) enum WriterCommand {
    /// Write everything that was told before this.
    Flush(ReplySender<()>),
    /// Store a flow; false when one of this id is there.
    Insert(Box<NewFlow>, ReplySender<bool>),
    Annotate(FlowId, FlowAnnotation, ReplySender<()>),
    /// Delete flows; how many there were.
    Delete(Vec<FlowId>, ReplySender<u64>),
    /// Keep what the LLM room found.
    Keep(Box<ConversationUpdate>, ReplySender<()>),
    /// Forget all conversations.
    ForgetConversations(ReplySender<()>),
    /// Give back the disk space of what was deleted; how many bytes of segments.
    Collect(ReplySender<u64>),
}

/// Shared by the writer, the recorder and the readers.
pub(crate) struct StoreState {
    pub(crate) queue: Arc<WriterQueue>,
    jobs: Mutex<Vec<WriterCommand>>,
    pub(crate) closing: AtomicBool,
    ended: AtomicBool,
    pub(crate) feeds: Subscriptions,
    suspended: Mutex<Option<String>>,
    /// Flows that were taken up but could not be written.
    pub(crate) lost_flows: AtomicU64,
    pub(crate) recorded_flows: AtomicU64,
    pub(crate) expired_flows: AtomicU64,
    pub(crate) open_flows: AtomicUsize,
    pub(crate) segment: AtomicU64,
}

impl StoreState {
    pub(crate) fn new(queue: WriterQueue) -> Self {
        Self {
            queue: Arc::new(queue),
            jobs: Mutex::default(),
            closing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            feeds: Subscriptions::new(),
            suspended: Mutex::default(),
            lost_flows: AtomicU64::new(0),
            recorded_flows: AtomicU64::new(0),
            expired_flows: AtomicU64::new(0),
            open_flows: AtomicUsize::new(0),
            segment: AtomicU64::new(0),
        }
    }

    /// Gives the writer a job and waits for its answer.
    pub(crate) fn send_command<T>(&self, job: impl FnOnce(ReplySender<T>) -> WriterCommand) -> Result<T> {
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        {
            let mut jobs = self.jobs.lock();
            if self.ended.load(SeqCst) {
                return Err(StoreError::Closed);
            }
            jobs.push(job(reply));
        }
        self.queue.request_urgent_batch();
        answer.recv().map_err(|_| StoreError::Closed)?
    }

    pub(crate) fn take_commands(&self) -> Vec<WriterCommand> {
        std::mem::take(&mut *self.jobs.lock())
    }

    /// The writer ends: whoever waits hears that the store is closed.
    pub(crate) fn fail_commands(&self) {
        let mut jobs = self.jobs.lock();
        self.ended.store(true, SeqCst);
        jobs.clear();
    }

    /// The writer is gone for good: nobody waits for it, nothing is taken up, and the figures say why.
    pub(crate) fn end_with_error(&self, why: &str) {
        tracing::error!("recording has ended: {why}; traffic goes on");
        *self.suspended.lock() = Some(why.to_owned());
        self.queue.close();
        self.fail_commands();
    }

    /// Says why nothing can be written, or that it can again.
    pub(crate) fn suspend(&self, why: Option<String>) {
        self.queue.suspend(why.is_some());
        *self.suspended.lock() = why;
    }

    pub(crate) fn suspended(&self) -> Option<String> {
        self.suspended.lock().clone()
    }

    pub(crate) fn note_writer(&self, open: usize, segment: u64) {
        self.open_flows.store(open, SeqCst);
        self.segment.store(segment, SeqCst);
    }
}
