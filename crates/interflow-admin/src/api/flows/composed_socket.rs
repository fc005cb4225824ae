//! Composed WebSockets: opened, written to and closed by calls of the API. Their messages are read from the recording.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use bytes::{Bytes, BytesMut};
use interflow_archive::replay::ComposedParts;
use interflow_codec::websocket::{
    FrameSender, MessageType, Opcode, WebSocketDecoder, WebSocketItem, WsDecoderOptions, write_frame,
};
use interflow_types::schema::JsonSchema;
use interflow_types::{FlowId, random_bytes};
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;

use crate::api::flows::compose::{ComposeResult, remember};
use crate::api::flows::replay::{ReplayBody, summarized};
use crate::api::input::{FlowIdPath, StrictJson};
use crate::collections::ComposedRequest;
use crate::error::{ApiError, Result};
use crate::state::AdminState;

/// Composed WebSockets that are open at once.
const MAX_OPEN: usize = 32;
/// Frames that wait to be written to one of them.
const MAX_WAITING: usize = 64;
/// Maximum size of a message that the operator sends, in bytes.
const MAX_MESSAGE: usize = 4 << 20;
/// Content of a received message that is kept until the message ends. All of it is in the recording.
const MAX_BUFFERED: usize = 64 << 10;
/// How long the origin has to close the connection after the WebSocket was closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// 1000, a normal closure (RFC 6455 7.4.1).
const NORMAL_CLOSURE: [u8; 2] = 1000_u16.to_be_bytes();

type Frame = (Opcode, Bytes);

/// The composed WebSockets that are open, with what writes to them.
#[derive(Default)]
pub(crate) struct ComposedSockets(Mutex<HashMap<FlowId, mpsc::Sender<Frame>>>);

impl ComposedSockets {
    async fn write(&self, id: FlowId, frame: Frame) -> Result<StatusCode> {
        let closed =
            || ApiError::new(StatusCode::NOT_FOUND, "not_found", format!("the WebSocket of flow {id} is not open"));
        let sender = self.0.lock().get(&id).cloned().ok_or_else(closed)?;
        sender.send(frame).await.map_err(|_| closed())?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// A WebSocket to open, with every variable replaced.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebSocketInput {
    /// With the scheme `ws`, `wss`, `http` or `https`.
    url: String,
    /// Names and values, in order. Fields of the connection and of the handshake are left to the sender.
    #[serde(default)]
    headers: Vec<(String, String)>,
    /// The request as written, which the history keeps.
    #[serde(default)]
    saved: Option<ComposedRequest>,
}

/// `POST /compose/websocket`: opens a WebSocket through the proxy's own client. It is open if the response has status
/// 101, until either side closes it or nothing was sent for `timeouts.tunnel_idle`.
pub(crate) async fn open(
    State(state): State<Arc<AdminState>>,
    StrictJson(input): StrictJson<WebSocketInput>,
) -> Result<Json<ComposeResult>> {
    let parts = ComposedParts::web_socket(&input.url, &input.headers)?;
    if state.composed_sockets.0.lock().len() >= MAX_OPEN {
        return Err(ApiError::busy());
    }
    remember(&state, input.saved).await;
    let (id, sent) = state.engine.local_client().upgrade_chosen(parts.into_request()).await;
    let outcome = match sent {
        Ok((response, socket)) => {
            if let Some(socket) = socket {
                let (sender, frames) = mpsc::channel(MAX_WAITING);
                state.composed_sockets.0.lock().insert(id, sender.clone());
                let state = Arc::clone(&state);
                tokio::spawn(async move {
                    carry(socket, sender, frames).await;
                    state.composed_sockets.0.lock().remove(&id);
                });
            }
            Ok(response)
        }
        Err(e) => Err(e),
    };
    Ok(Json(ComposeResult::new(id, summarized(&state, outcome).await)))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebSocketMessageInput {
    /// A text is sent as a text message, bytes as a binary one.
    message: ReplayBody,
}

/// `POST /compose/websocket/{id}`
pub(crate) async fn send(
    State(state): State<Arc<AdminState>>,
    FlowIdPath(id): FlowIdPath,
    StrictJson(input): StrictJson<WebSocketMessageInput>,
) -> Result<StatusCode> {
    let opcode = if matches!(input.message, ReplayBody::Text(_)) { Opcode::Text } else { Opcode::Binary };
    let message = input.message.bytes()?;
    if message.len() > MAX_MESSAGE {
        return Err(ApiError::too_large("the message", MAX_MESSAGE as u64));
    }
    state.composed_sockets.write(id, (opcode, message)).await
}

/// `DELETE /compose/websocket/{id}`
pub(crate) async fn close(State(state): State<Arc<AdminState>>, FlowIdPath(id): FlowIdPath) -> Result<StatusCode> {
    state.composed_sockets.write(id, (Opcode::Close, Bytes::from_static(&NORMAL_CLOSURE))).await
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
