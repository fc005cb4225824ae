//! Work beside a flow, on what it does not change: its result is recorded when the flow goes on to its response, or ends.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use interflow_types::{BoxFuture, DeferredWork, ErrorKind, Flow};
use parking_lot::Mutex;
use tokio::task::JoinHandle;

/// The work, and who records its result.
pub(crate) struct Background<T, R> {
    /// `None` once its result was taken.
    task: Mutex<Option<JoinHandle<T>>>,
    /// Whether it is cancelled when the client disconnects.
    ends_with_client: bool,
    record: R,
}

impl<T: Send + 'static, R: Fn(&mut Flow, Option<T>) + Send + Sync + 'static> Background<T, R> {
    /// Starts the work. Its result is recorded once: `None` if it was cancelled, or panicked. What it does
    /// [off the worker](super::off_worker) is cancelled with it.
    pub fn start(work: impl Future<Output = T> + Send + 'static, ends_with_client: bool, record: R) -> Arc<Self> {
        Arc::new(Self { task: Mutex::new(Some(tokio::spawn(work))), ends_with_client, record })
    }

    fn poll_result(&self, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut task = self.task.lock();
        let Some(handle) = task.as_mut() else { return Poll::Ready(None) };
        let result = ready!(Pin::new(handle).poll(cx));
        *task = None;
        Poll::Ready(result.ok())
    }
}

impl<T: Send + 'static, R: Fn(&mut Flow, Option<T>) + Send + Sync + 'static> DeferredWork for Background<T, R> {
    /// # Cancellation
    /// Nothing is lost if the future is dropped.
    fn join<'a>(self: Arc<Self>, flow: &'a mut Flow) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let result = poll_fn(|cx| self.poll_result(cx)).await;
            (self.record)(flow, result);
        })
    }

    fn finish(self: Arc<Self>, flow: &mut Flow) -> bool {
        let result = match self.poll_result(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending if self.ends_with_client && flow.error_kind == Some(ErrorKind::ClientGone) => {
                self.task.lock().take().inspect(JoinHandle::abort);
                None
            }
            Poll::Pending => return false,
        };
        (self.record)(flow, result);
        true
    }
}
