//! Composed WebSockets: opened, written to and closed by calls of the API. Their messages are read from the recording.

use axum::Json;
use axum::http::StatusCode;
use bytes::Bytes;
use interflow_archive::replay::ComposedParts;
use interflow_codec::websocket::Opcode;
use interflow_types::schema::JsonSchema;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::api::flows::compose::{ComposeResult, remember};
use crate::api::flows::replay::{ReplayBody, summarized};
use crate::api::input::{FlowIdPath, StrictJson};
use crate::collections::ComposedRequest;
use crate::composed_streams::{MAX_WAITING, carry};
use crate::error::{ApiError, Result};
use crate::state::SharedState;

/// Maximum size of a message that the operator sends, in bytes.
pub(crate) const MAX_MESSAGE: usize = 4 << 20;
/// 1000, a normal closure (RFC 6455 7.4.1).
const NORMAL_CLOSURE: [u8; 2] = 1000_u16.to_be_bytes();

/// A WebSocket or gRPC call to open, with every variable replaced.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct StreamInput {
    /// With the scheme `http` or `https`; that of a WebSocket may also be `ws` or `wss`.
    pub url: String,
    /// Names and values, in order. Fields of the connection and of the handshake are left to the sender, and for gRPC
    /// `Content-Type` and `TE`.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// The request as written, which the history keeps.
    pub saved: Option<ComposedRequest>,
}

/// `POST /compose/websocket`: opens a WebSocket through the proxy's own client. It is open if the response has status
/// 101, until either side closes it or nothing was sent for `timeouts.tunnel_idle`.
pub async fn open(state: SharedState, StrictJson(input): StrictJson<StreamInput>) -> Result<Json<ComposeResult>> {
    let parts = ComposedParts::web_socket(&input.url, &input.headers)?;
    let room = state.composed_sockets.room()?;
    remember(&state, input.saved).await;
    let (id, sent) = state.engine.local_client().send_chosen(parts.into_request(), None);
    let sent = sent.await.map(|(response, socket)| {
        if let Some(socket) = socket {
            let (sender, frames) = mpsc::channel(MAX_WAITING);
            state.composed_sockets.add(id, sender.clone(), room, carry(socket, sender, frames));
        }
        Some(response)
    });
    let (response, error) = summarized(&state, sent).await;
    Ok(Json(ComposeResult { id: id.to_string(), response, error }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebSocketMessageInput {
    /// A text is sent as a text message, bytes as a binary one.
    message: ReplayBody,
}

/// `POST /compose/websocket/{id}`
pub async fn send(
    state: SharedState,
    FlowIdPath(id): FlowIdPath,
    StrictJson(input): StrictJson<WebSocketMessageInput>,
) -> Result<StatusCode> {
    let opcode = if matches!(input.message, ReplayBody::Text(_)) { Opcode::Text } else { Opcode::Binary };
    let message = input.message.bytes()?;
    if message.len() > MAX_MESSAGE {
        return Err(ApiError::too_large("the message", MAX_MESSAGE as u64));
    }
    state.composed_sockets.write(id, (opcode, message), false)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /compose/websocket/{id}`
pub async fn close(state: SharedState, FlowIdPath(id): FlowIdPath) -> Result<StatusCode> {
    state.composed_sockets.write(id, (Opcode::Close, Bytes::from_static(&NORMAL_CLOSURE)), true)?;
    Ok(StatusCode::NO_CONTENT)
}
