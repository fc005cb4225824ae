//! Blocking work: store queries, and bodies that a thread writes or reads piece by piece. Work for clients that
//! disconnect is cancelled.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::http::StatusCode;
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use interflow_store::{FlowStore, StoreStats};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::error::{ApiError, Result};
use crate::state::AdminState;

/// Maximum size of a text to check, in bytes.
const MAX_CHECKED: usize = 4 << 20;
/// Maximum bracket nesting of a text to check.
const MAX_NESTING: usize = 200;
/// How long a client waits for a check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// Pieces buffered between a thread and a client.
const PIECES: usize = 4;
/// Size at which a piece is passed on, in bytes.
const PIECE: usize = 64 << 10;

/// Whether the client has gone away. Clones share the flag; the work reads it between its steps.
#[derive(Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// `Break` once the client has gone away.
    pub fn check(&self) -> ControlFlow<()> {
        if self.0.load(Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// Sets the flag when dropped, with the request's future, because the client disconnected.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Relaxed);
    }
}

/// Runs a store query on a blocking thread. Concurrency is limited; others wait.
pub async fn run_query<T: Send + 'static>(
    state: &AdminState,
    work: impl FnOnce(&dyn FlowStore, &CancelFlag) -> Result<T> + Send + 'static,
) -> Result<T> {
    let store = state.store()?;
    // Acquired here and not on the thread, so that waiting requests take up no thread.
    let permit = Arc::clone(&state.questions).acquire_owned().await.map_err(|_| ApiError::busy())?;
    let waiting = CancelOnDrop(CancelFlag::default());
    let wanted = waiting.0.clone();
    // The thread cannot be aborted; it ends when the work reads the flag. The permit is released then, not when the
    // client goes away.
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        work(&*store, &wanted)
    });
    done.await.map_err(|e| ApiError::internal(format!("the work was not finished: {e}")))?
}

/// Statistics of the store, if there is one. They do not wait for queries that run, which may wait for a database.
pub async fn store_stats(state: &AdminState) -> Result<Option<StoreStats>> {
    let Some(store) = state.store.clone() else { return Ok(None) };
    let read = tokio::task::spawn_blocking(move || store.stats()).await;
    Ok(Some(read.map_err(|e| ApiError::internal(format!("the statistics were not read: {e}")))??))
}

/// Checks a client's text on a blocking thread, because parsers may take long for a hostile one. Two run at a time, and
/// the client waits at most [`CHECK_TIMEOUT`].
pub(crate) async fn check_text<T: Send + 'static>(
    state: &AdminState,
    text: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    save_text(state, text, |_| work()).await
}

/// Whether a text that is being checked is still to be saved.
#[derive(Clone, Default)]
pub(crate) struct SaveTurn(Arc<AtomicU8>);

impl SaveTurn {
    const CHECKING: u8 = 0;
    const SAVING: u8 = 1;
    const GIVEN_UP: u8 = 2;

    /// Called once the text is checked, before anything is changed: from here on, the client waits for the end.
    ///
    /// # Errors
    /// The client has been told that it took too long, or is gone. Nothing may be changed.
    pub(crate) fn begin(&self) -> Result<()> {
        self.leave_check(Self::SAVING).then_some(()).ok_or_else(too_slow)
    }

    /// Whether the check was still going on.
    fn leave_check(&self, to: u8) -> bool {
        self.0.compare_exchange(Self::CHECKING, to, AcqRel, Acquire).is_ok()
    }
}

/// Gives up when the request's future is dropped, with which the client's answer goes.
struct GiveUpOnDrop(SaveTurn);

impl Drop for GiveUpOnDrop {
    fn drop(&mut self) {
        self.0.leave_check(SaveTurn::GIVEN_UP);
    }
}

/// As [`check_text`], for work that saves the text after the check: the time limit is that of the check, so that what the
/// client is told is what happened.
pub(crate) async fn save_text<T: Send + 'static>(
    state: &AdminState,
    text: &str,
    work: impl FnOnce(&SaveTurn) -> Result<T> + Send + 'static,
) -> Result<T> {
    // Cheap bounds first: nesting matters because parsers recurse.
    if text.len() > MAX_CHECKED {
        return Err(ApiError::too_large("the text", MAX_CHECKED as u64));
    }
    if nesting(text) > MAX_NESTING {
        let message = format!("the text opens more than {MAX_NESTING} brackets within one another");
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "too_deep", message));
    }
    run_until(&state.checks, tokio::time::sleep(CHECK_TIMEOUT), work).await
}

async fn run_until<T: Send + 'static>(
    checks: &Arc<Semaphore>,
    limit: impl Future<Output = ()>,
    work: impl FnOnce(&SaveTurn) -> Result<T> + Send + 'static,
) -> Result<T> {
    let waiting = GiveUpOnDrop(SaveTurn::default());
    let turn = waiting.0.clone();
    // The time limit includes waiting for a permit.
    let checked = async {
        let permit = Arc::clone(checks).acquire_owned().await.map_err(|_| ApiError::busy())?;
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&turn)
        });
        done.await.map_err(|e| ApiError::internal(format!("the text was not checked to its end: {e}")))?
    };
    tokio::pin!(checked);
    tokio::select! {
        biased;
        done = &mut checked => return done,
        () = limit => {}
    }
    if waiting.0.leave_check(SaveTurn::GIVEN_UP) { Err(too_slow()) } else { checked.await }
}

fn too_slow() -> ApiError {
    let message =
        format!("the text could not be checked within {} s, and nothing was changed", CHECK_TIMEOUT.as_secs());
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "too_slow", message)
}

/// The maximum bracket nesting, regardless of syntax; also counts runs of YAML block sequences on a line (`- - -`).
fn nesting(text: &str) -> usize {
    let (mut open, mut deepest) = (0usize, 0);
    for b in text.bytes() {
        match b {
            b'[' | b'{' | b'(' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' | b')' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    // In YAML, each dash on a line opens a sequence within the one before.
    let dashes = |line: &str| line.split_ascii_whitespace().take_while(|w| matches!(*w, "-" | "?")).count();
    text.lines().map(dashes).fold(deepest, usize::max)
}

/// A permit for one long transfer. Refused at once if too many run, because a transfer may last as long as its client
/// likes.
pub(crate) fn transfer(state: &AdminState) -> Result<OwnedSemaphorePermit> {
    Arc::clone(&state.transfers).try_acquire_owned().map_err(|_| ApiError::busy())
}

/// A body that a blocking thread writes as the client reads it. An error aborts the connection, so that a partial
/// response cannot be mistaken for a complete one.
pub(crate) fn streamed_body(
    permit: OwnedSemaphorePermit,
    write: impl FnOnce(&mut StreamWriter) -> io::Result<()> + Send + 'static,
) -> Body {
    let (pieces, taken) = mpsc::channel(PIECES);
    tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let mut pipe = StreamWriter { pieces, buffer: BytesMut::new() };
        let end = write(&mut pipe).and_then(|()| pipe.flush());
        if let Err(e) = end
            // If the client has gone away, the error is the consequence and not worth a message.
            && !pipe.pieces.is_closed()
        {
            tracing::warn!("admin: an answer was cut: {e}");
            let _ = pipe.pieces.blocking_send(Err(e));
        }
    });
    Body::from_stream(stream::unfold(taken, |mut taken| async move { taken.recv().await.map(|piece| (piece, taken)) }))
}

pub(crate) struct StreamWriter {
    pieces: mpsc::Sender<io::Result<Bytes>>,
    buffer: BytesMut,
}

impl StreamWriter {
    /// Returns a cancellation check that does not borrow the writer, which an export uses meanwhile.
    pub(crate) fn cancel_check(&self) -> impl Fn() -> ControlFlow<()> + Sync + use<> {
        let pieces = self.pieces.clone();
        move || if pieces.is_closed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Write for StreamWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let piece = self.buffer.split().freeze();
        // Blocks while the client is slow, which bounds what is read ahead. The receiver is dropped with the
        // response.
        self.pieces.blocking_send(Ok(piece)).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

/// Reads an upload on a blocking thread, at most `limit` bytes of it.
pub(crate) async fn read_upload<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    body: Body,
    limit: u64,
    read: impl FnOnce(UploadReader) -> Result<T> + Send + 'static,
) -> Result<T> {
    let (pieces, upload) = mpsc::channel(PIECES);
    let done = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        read(UploadReader { pieces: upload, current: Bytes::new() })
    });
    // The thread reads while the upload arrives; neither side holds the whole of it.
    let over = feed(body.into_data_stream(), &pieces, limit).await;
    // Ends the reader's input; otherwise the thread would wait forever.
    drop(pieces);
    let done = done.await.map_err(|e| ApiError::internal(format!("the upload was not read to its end: {e}")))?;
    // The limit explains the error of the reader better than its own message does.
    if over { Err(ApiError::too_large("the upload", limit)) } else { done }
}

/// Forwards pieces until the end; true if the limit was exceeded.
async fn feed(mut body: BodyDataStream, pieces: &mpsc::Sender<io::Result<Bytes>>, limit: u64) -> bool {
    let mut seen = 0;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(io::Error::other);
        seen += piece.as_ref().map_or(0, |p| p.len() as u64);
        let over = seen > limit;
        // The reader must see an error: an end would make a truncated upload look complete.
        let piece = if over { Err(io::Error::other("the upload is too large")) } else { piece };
        let failed = piece.is_err();
        if pieces.send(piece).await.is_err() || failed {
            return over;
        }
    }
    false
}

pub(crate) struct UploadReader {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    current: Bytes,
}

impl Read for UploadReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        // Empty pieces are skipped, because reading nothing means the end.
        while self.current.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.current = piece?,
                None => return Ok(0),
            }
        }
        let n = out.len().min(self.current.len());
        out[..n].copy_from_slice(&self.current[..n]);
        self.current.advance(n);
        Ok(n)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_told_to_be_too_slow_is_not_saved_afterwards() {
        let checks = Arc::new(Semaphore::new(1));
        // Every step is made by the test, not by time.
        let (go_on, check) = std::sync::mpsc::channel::<()>();
        let (outcome, saved) = std::sync::mpsc::channel();
        let work = move |turn: &SaveTurn| {
            let _ = check.recv();
            let begun = turn.begin();
            outcome.send(begun.is_ok()).unwrap();
            begun
        };
        let told = run_until(&checks, std::future::ready(()), work).await;
        assert!(told.is_err());
        go_on.send(()).unwrap();
        assert!(!saved.recv().unwrap(), "its turn is over");
        // Dropped with the client's connection: likewise.
        let (go_on, check) = std::sync::mpsc::channel::<()>();
        let (outcome, saved) = std::sync::mpsc::channel();
        let work = move |turn: &SaveTurn| {
            outcome.send(true).unwrap();
            let _ = check.recv();
            outcome.send(turn.begin().is_ok()).unwrap();
            Ok(())
        };
        let request = tokio::spawn(async move { run_until(&checks, std::future::pending(), work).await });
        let saved = tokio::task::spawn_blocking(move || saved.recv().map(|_| saved)).await.unwrap().unwrap();
        request.abort();
        assert!(request.await.unwrap_err().is_cancelled());
        go_on.send(()).unwrap();
        assert!(!saved.recv().unwrap());
    }

    #[tokio::test]
    async fn what_has_begun_to_be_saved_is_answered_when_it_is_saved() {
        let checks = Arc::new(Semaphore::new(1));
        let (begun, wait) = tokio::sync::oneshot::channel();
        let (go_on, save) = std::sync::mpsc::channel::<()>();
        let work = move |turn: &SaveTurn| {
            turn.begin()?;
            begun.send(()).unwrap();
            let _ = save.recv();
            Ok("saved")
        };
        let (end, limit) = tokio::sync::oneshot::channel::<()>();
        let limit = async move { drop(limit.await) };
        let told = tokio::spawn(async move { run_until(&checks, limit, work).await });
        wait.await.unwrap();
        end.send(()).unwrap();
        // The limit is seen before the save ends.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        go_on.send(()).unwrap();
        assert_eq!(told.await.unwrap().ok(), Some("saved"));
    }

    #[test]
    fn nesting_counts_brackets_that_are_open_at_once() {
        for (text, depth) in [
            ("", 0),
            ("[[[[", 4),
            ("[a](b){c}", 1),
            ("{\"a\": [[1], [2]]}", 3),
            ("]]]][", 1),
            ("a\n- - - - x\n- y", 4),
            ("? ? ? x", 3),
        ] {
            assert_eq!(nesting(text), depth, "{text}");
        }
    }
}
