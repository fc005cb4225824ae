//! State shared by the writer thread and its users: queue, commands, events and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender};

use arc_swap::ArcSwap;
use interflow_types::FlowId;
use parking_lot::Mutex;

use super::overview::columns::EncodedBlock;
use super::subscriptions::Subscriptions;
use crate::config::RecordConfig;
use crate::conversations::{ConversationUpdate, NoteOf};
use crate::error::{Result, StoreError};
use crate::store::recording::queue::WriterQueue;
use crate::stored_flow::FlowWithBodies;

pub(crate) type ReplySender<T> = SyncSender<Result<T>>;
pub(crate) type ReplyReceiver<T> = Receiver<Result<T>>;

/// A change of the annotations that the operator may edit: tags to add and to remove, and a new comment, of which an
/// empty one removes the existing one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowAnnotation {
    pub add_tags: Vec<String>,
    pub remove_tags: Vec<String>,
    pub comment: Option<String>,
}

/// A command for the writer. It is run between batches, after everything recorded before it was sent, and replied to
/// when it is committed.
pub(crate) enum WriterCommand {
    Flush(ReplySender<()>),
    /// Store flows; replies how many of them are new.
    Insert(Vec<FlowWithBodies>, ReplySender<u64>),
    Annotate(FlowId, FlowAnnotation, ReplySender<()>),
    /// Change the tags and the comment of a conversation, or of one of its messages.
    Note(String, Option<u128>, FlowAnnotation, ReplySender<()>),
    /// Add notes of another recording where there are none; replies how many.
    AddNotes(Vec<NoteOf>, ReplySender<u64>),
    /// Delete flows; replies how many.
    Delete(Vec<FlowId>, ReplySender<u64>),
    /// Remove flows that are in the shared store now; replies how many.
    /// Rows in ascending order.
    Release(Vec<i64>, ReplySender<u64>),
    /// Store an update of the conversation indexer.
    Keep(Box<ConversationUpdate>, ReplySender<()>),
    ForgetConversations(ReplySender<()>),
    /// Keep blocks of columns that a reader made from rows; replies how many were still valid.
    SaveColumns(Vec<EncodedBlock>, ReplySender<usize>),
    /// Free the disk space of deleted flows; replies with the bytes of deleted segments.
    Collect(ReplySender<u64>),
}

/// Shared by the writer, the recorder and the readers.
#[derive(Default)]
pub(crate) struct StoreState {
    pub(crate) queue: Arc<WriterQueue>,
    /// The active configuration.
    pub(crate) config: Arc<ArcSwap<RecordConfig>>,
    jobs: Mutex<Vec<WriterCommand>>,
    pub(crate) closing: AtomicBool,
    ended: AtomicBool,
    pub(crate) feeds: Subscriptions,
    suspended: Mutex<Option<String>>,
    /// Why retention by age waits, if it does.
    pub(crate) retention_waits: Mutex<Option<String>>,
    /// Flows that were accepted but could not be written.
    pub(crate) lost_flows: AtomicU64,
    pub(crate) recorded_flows: AtomicU64,
    pub(crate) expired_flows: AtomicU64,
    pub(crate) open_flows: AtomicUsize,
    pub(crate) segment: AtomicU64,
    /// Retention deletes no flow from this one on: they are not archived yet.
    pub(crate) keep_from: Mutex<Option<FlowId>>,
}

impl StoreState {
    pub(crate) fn new(config: &RecordConfig) -> Self {
        Self {
            queue: Arc::new(WriterQueue::new(config)),
            config: Arc::new(ArcSwap::from_pointee(config.clone())),
            // How far the archive is is known when it runs; until then nothing is deleted.
            keep_from: Mutex::new(config.keeps_unarchived().then(|| FlowId::from_u128(0))),
            ..Self::default()
        }
    }

    /// Sends the writer a command and waits for its reply.
    pub(crate) fn send_command<T>(&self, job: impl FnOnce(ReplySender<T>) -> WriterCommand) -> Result<T> {
        self.start_command(job)?.recv().map_err(|_| StoreError::Closed)?
    }

    /// Sends the writer a command; its reply may be waited for later.
    pub(crate) fn start_command<T>(
        &self,
        job: impl FnOnce(ReplySender<T>) -> WriterCommand,
    ) -> Result<ReplyReceiver<T>> {
        // Capacity for one reply, so that the writer does not wait until the caller takes it.
        let (reply, answer) = std::sync::mpsc::sync_channel(1);
        {
            // `ended` is read under the lock under which it is set: a command is either failed by the writer or
            // refused here.
            let mut jobs = self.jobs.lock();
            if self.ended.load(SeqCst) {
                return Err(StoreError::Closed);
            }
            jobs.push(job(reply));
        }
        self.queue.request_urgent_batch();
        Ok(answer)
    }

    pub(crate) fn take_commands(&self) -> Vec<WriterCommand> {
        std::mem::take(&mut *self.jobs.lock())
    }

    /// Fails pending commands because the writer stops.
    pub(crate) fn fail_commands(&self) {
        let mut jobs = self.jobs.lock();
        self.ended.store(true, SeqCst);
        // Dropping the commands drops their reply channels, which ends the waits with `Closed`.
        jobs.clear();
    }

    /// The writer has stopped permanently: commands fail, nothing is accepted, and the statistics say why.
    pub(crate) fn end_with_error(&self, why: &str) {
        tracing::error!("recording has ended: {why}; traffic goes on");
        *self.suspended.lock() = Some(why.to_owned());
        self.queue.close();
        self.fail_commands();
    }

    /// Suspends recording with a reason, or resumes it.
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
