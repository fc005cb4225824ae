//! Blocking work: store queries, and bodies that a thread writes or reads piece by piece.

use std::io::{self, Read, Write};
use std::ops::ControlFlow;

use axum::body::{Body, BodyDataStream};
use bytes::{Buf, Bytes, BytesMut};
use futures_util::{StreamExt, stream};
use interflow_store::{FlowStore, StoreStats};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use crate::error::{ApiError, Result};
use crate::records::{CancelFlag, blocking};
use crate::state::AdminState;

/// Pieces buffered between a thread and a client.
const PIECES: usize = 4;
/// Size at which a piece is passed on, in bytes.
const PIECE: usize = 64 << 10;

/// Runs a query of the instance's recording on a blocking thread. Concurrency is limited; others wait.
pub async fn run_query<T: Send + 'static>(
    state: &AdminState,
    work: impl FnOnce(&dyn FlowStore, &CancelFlag) -> Result<T> + Send + 'static,
) -> Result<T> {
    state.records.query(work).await
}

/// Statistics of the store, if there is one. They do not wait for queries that run, which may wait for a database.
pub async fn store_stats(state: &AdminState) -> Result<Option<StoreStats>> {
    let Some(store) = state.records.store.clone() else { return Ok(None) };
    Ok(Some(blocking(move || store.stats()).await??))
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
            tracing::warn!(error = %e, "admin: response truncated");
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
    let mut received = 0;
    while let Some(piece) = body.next().await {
        let piece = piece.map_err(io::Error::other);
        received += piece.as_ref().map_or(0, |p| p.len() as u64);
        let over = received > limit;
        // The reader must see an error: an end would make a truncated upload look complete.
        let piece = if over { Err(io::Error::other("the upload is too large")) } else { piece };
        let failed = piece.is_err();
        // What a reader that has ended leaves is discarded: if the connection were closed while the client sends, the
        // client would not see the response.
        let has_reader = pieces.send(piece).await.is_ok();
        if failed {
            return over && has_reader;
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
            let Some(piece) = self.pieces.blocking_recv() else { return Ok(0) };
            self.current = piece?;
        }
        let n = out.len().min(self.current.len());
        out[..n].copy_from_slice(&self.current[..n]);
        self.current.advance(n);
        Ok(n)
    }
}
