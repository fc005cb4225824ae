//! Composed WebSockets that are open: what writes to them, and the frames of the protocol. Their messages are in the
//! recording.

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
use tokio::sync::mpsc;

use crate::error::{ApiError, Result};

/// Composed WebSockets that are open at once.
const MAX_OPEN: usize = 32;
/// Frames that wait to be written to one of them.
const MAX_WAITING: usize = 64;
/// Content of a received message that is kept until the message ends. All of it is in the recording.
const MAX_BUFFERED: usize = 64 << 10;
/// How long the origin has to close the connection after the WebSocket was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) type Frame = (Opcode, Bytes);

/// The composed WebSockets that are open, with what writes to them.
#[derive(Default)]
pub(crate) struct ComposedSockets(Arc<Mutex<HashMap<FlowId, mpsc::Sender<Frame>>>>);

impl ComposedSockets {
    /// # Errors
    /// No further one may be opened.
    pub fn check_room(&self) -> Result<()> {
        if self.0.lock().len() >= MAX_OPEN { Err(ApiError::busy()) } else { Ok(()) }
    }

    /// Takes over the client's end of a connection, until the WebSocket has ended.
    pub fn add(&self, id: FlowId, socket: DuplexStream) {
        let (sender, frames) = mpsc::channel(MAX_WAITING);
        self.0.lock().insert(id, sender.clone());
        let open = Arc::clone(&self.0);
        tokio::spawn(async move {
            carry(socket, sender, frames).await;
            open.lock().remove(&id);
        });
    }

    /// # Errors
    /// This WebSocket is not open.
    pub async fn write(&self, id: FlowId, frame: Frame) -> Result<()> {
        let message = format!("the WebSocket of flow {id} is not open");
        let closed = || ApiError::not_found(message.clone());
        let sender = self.0.lock().get(&id).cloned().ok_or_else(closed)?;
        sender.send(frame).await.map_err(|_| closed())
    }
}

/// Writes frames to an open WebSocket and answers those of the protocol, until it has ended. Both directions go on at
/// once: an origin that does not read must still be read.
async fn carry(socket: DuplexStream, sender: mpsc::Sender<Frame>, frames: mpsc::Receiver<Frame>) {
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
