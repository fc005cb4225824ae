//! Composed WebSockets and gRPC calls that are open: what writes to them, and the frames of a WebSocket. Their messages are
//! in the recording.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use interflow_codec::websocket::{
    FrameSender, MessageType, Opcode, WebSocketDecoder, WebSocketItem, WsDecoderOptions, write_frame,
};
use interflow_types::{FlowId, random_bytes};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;

use crate::error::{ApiError, Result};

/// Composed streams of one kind that are open at once.
const MAX_OPEN: usize = 32;
/// Items that wait to be written to one of them, each as large as a message may be.
pub(crate) const MAX_WAITING: usize = 4;
/// Content of a received message that is kept until the message ends. All of it is in the recording.
const MAX_BUFFERED: usize = 64 << 10;
/// How long the origin has to close the connection after the WebSocket was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type Frame = (Opcode, Bytes);
/// Messages of a gRPC client, in its frames, and whether they are the last.
pub(crate) type Requests = (Bytes, bool);

/// What writes to a stream, and the task that carries it.
type OpenStream<T> = (mpsc::Sender<T>, AbortHandle);

/// The composed streams of one kind that are open, with what writes to them.
pub(crate) struct ComposedStreams<T> {
    open: Arc<Mutex<HashMap<FlowId, OpenStream<T>>>>,
    room: Arc<Semaphore>,
}

impl<T: Send + 'static> ComposedStreams<T> {
    pub fn new() -> Self {
        Self { open: Arc::default(), room: Arc::new(Semaphore::new(MAX_OPEN)) }
    }

    /// A place for one more.
    ///
    /// # Errors
    /// No further one may be opened.
    pub fn room(&self) -> Result<OwnedSemaphorePermit> {
        Arc::clone(&self.room).try_acquire_owned().map_err(|_| ApiError::busy())
    }

    /// Keeps what writes to a stream until it has been carried to its end.
    pub fn add(
        &self,
        id: FlowId,
        sender: mpsc::Sender<T>,
        room: OwnedSemaphorePermit,
        carry: impl Future<Output = ()> + Send + 'static,
    ) {
        let streams = Arc::clone(&self.open);
        // Locked until the stream is known, so that its end finds it.
        let mut open = self.open.lock();
        let carrier = tokio::spawn(async move {
            let _room = room;
            carry.await;
            streams.lock().remove(&id);
        });
        open.insert(id, (sender, carrier.abort_handle()));
    }

    /// Writes an item. Nothing can be written after the last one.
    ///
    /// # Errors
    /// This stream is not open, or too many items wait.
    pub fn write(&self, id: FlowId, item: T, is_last: bool) -> Result<()> {
        let mut open = self.open.lock();
        let (sender, _) = open.get_mut(&id).ok_or_else(|| not_open(id))?;
        sender.try_send(item).map_err(|e| match e {
            TrySendError::Full(_) => ApiError::busy(),
            TrySendError::Closed(_) => not_open(id),
        })?;
        if is_last {
            *sender = mpsc::channel(1).0;
        }
        Ok(())
    }

    /// Drops a stream, whatever waits to be written.
    ///
    /// # Errors
    /// This stream is not open.
    pub fn cancel(&self, id: FlowId) -> Result<()> {
        self.open.lock().remove(&id).ok_or_else(|| not_open(id))?.1.abort();
        Ok(())
    }
}

fn not_open(id: FlowId) -> ApiError {
    ApiError::not_found(format!("the WebSocket or gRPC call of flow {id} is not open"))
}

/// Writes frames to an open WebSocket and answers those of the protocol, until it has ended. Both directions go on at
/// once: an origin that does not read must still be read.
pub(crate) async fn carry(socket: DuplexStream, sender: mpsc::Sender<Frame>, frames: mpsc::Receiver<Frame>) {
    let (read, write) = tokio::io::split(socket);
    tokio::select! {
        () = read_frames(read, &sender) => {}
        () = async {
            write_frames(write, frames).await;
            tokio::time::sleep(CLOSE_TIMEOUT).await;
        } => {}
    }
}

async fn read_frames(mut socket: ReadHalf<DuplexStream>, sender: &mpsc::Sender<Frame>) {
    let options = WsDecoderOptions { sender: FrameSender::Server, deflate: None, max_message: MAX_BUFFERED };
    let (mut decoder, mut buffer) = (WebSocketDecoder::new(options), BytesMut::new());
    while matches!(socket.read_buf(&mut buffer).await, Ok(1..)) {
        loop {
            let reply = match decoder.decode(&mut buffer) {
                Ok(Some(WebSocketItem::Message(message))) => match message.kind {
                    MessageType::Ping => Some((Opcode::Pong, message.data)),
                    // Closed with the code of the other side (RFC 6455 5.5.1).
                    MessageType::Close => Some((Opcode::Close, message.data)),
                    MessageType::Text | MessageType::Binary | MessageType::Pong => None,
                },
                Ok(Some(WebSocketItem::Part { .. })) => None,
                Ok(None) => break,
                Err(_) => return,
            };
            // A peer that sends pings without reading their answers gets no more of them.
            if let Some(reply) = reply {
                let _ = sender.try_send(reply);
            }
        }
    }
}

/// Returns after a Close frame: nothing may follow it.
async fn write_frames(mut socket: WriteHalf<DuplexStream>, mut frames: mpsc::Receiver<Frame>) {
    while let Some((opcode, payload)) = frames.recv().await {
        let mut frame = Vec::new();
        write_frame(&mut frame, opcode, &payload, Some(random_bytes()));
        if socket.write_all(&frame).await.is_err() || opcode == Opcode::Close {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_and_waiting_frames_are_limited() {
        let sockets = ComposedStreams::new();
        let mut places: Vec<_> = (0..MAX_OPEN).map(|_| sockets.room().unwrap()).collect();
        let kind = |refused: ApiError| refused.into_details().kind;
        assert_eq!(sockets.room().map_err(kind).unwrap_err(), "busy");
        // A peer that reads nothing.
        let (peer, socket) = tokio::io::duplex(1);
        let id = FlowId::new(interflow_types::Timestamp::now());
        let (sender, frames) = mpsc::channel(MAX_WAITING);
        sockets.add(id, sender.clone(), places.pop().unwrap(), carry(socket, sender, frames));
        let frame = || (Opcode::Text, Bytes::from_static(b"text"));
        for _ in 0..MAX_WAITING {
            sockets.write(id, frame(), false).unwrap();
        }
        assert_eq!(sockets.write(id, frame(), true).map_err(kind).unwrap_err(), "busy");
        // It ends, which frees the place.
        drop(peer);
        while sockets.room().is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(sockets.write(id, frame(), false).map_err(kind).unwrap_err(), "not_found");
    }

    #[tokio::test]
    async fn nothing_is_written_after_the_last_item() {
        let (calls, id) = (ComposedStreams::new(), FlowId::new(interflow_types::Timestamp::now()));
        let (sender, mut items) = mpsc::channel(MAX_WAITING);
        calls.add(id, sender, calls.room().unwrap(), std::future::pending());
        calls.write(id, 1, true).unwrap();
        assert_eq!(calls.write(id, 2, false).map_err(|e| e.into_details().kind).unwrap_err(), "not_found");
        assert_eq!(items.recv().await, Some(1));
        calls.cancel(id).unwrap();
    }
}
