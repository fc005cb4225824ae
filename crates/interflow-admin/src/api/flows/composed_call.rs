//! Composed gRPC calls: opened, written to, half-closed and cancelled by calls of the API. Their messages are read from
//! the recording.

use std::task::{Context, Poll, ready};

use axum::Json;
use axum::http::StatusCode;
use bytes::Bytes;
use interflow_archive::replay::ComposedParts;
use interflow_codec::grpc::write_prefix;
use interflow_types::schema::JsonSchema;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, HttpVersion, Request};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use crate::api::flows::compose::{ComposeResult, remember};
use crate::api::flows::composed_socket::{MAX_MESSAGE, StreamInput};
use crate::api::flows::replay::{ReplayBody, drain_body, summarized};
use crate::api::input::{FlowIdPath, StrictJson};
use crate::composed_streams::{MAX_WAITING, Requests};
use crate::error::{ApiError, Result};
use crate::state::SharedState;

/// `POST /compose/grpc`: opens a call through the proxy's own client. It is open until the server has ended it or it is
/// cancelled. Returns once the request is being sent, since a server may wait for messages before it responds.
pub async fn open(state: SharedState, StrictJson(input): StrictJson<StreamInput>) -> Result<Json<ComposeResult>> {
    let mut head = ComposedParts::parse("POST", &input.url, &input.headers, Bytes::new())?.head;
    // HTTP/2 is not negotiated in plain text.
    head.version = HttpVersion::H2;
    let _ = head.headers.set("Content-Type", "application/grpc");
    let _ = head.headers.set("TE", "trailers");
    let room = state.composed_calls.room()?;
    remember(&state, input.saved).await;
    let (sender, requests) = mpsc::channel(MAX_WAITING);
    let (begin, begun) = oneshot::channel();
    let (opened, given_up) = oneshot::channel();
    let body = Body::stream(RequestMessages { requests, begin: Some(begin), has_ended: false });
    let (id, sending) = state.engine.local_client().send_chosen(Request { head, body }, None);
    state.composed_calls.add(id, sender, room, async move {
        let sent = async {
            if let Ok((response, _)) = sending.await {
                drain_body(response.body).await;
            }
        };
        // Only the answer tells the client which call to cancel: without it, the call would never end.
        tokio::select! {
            () = sent => {}
            Err(_) = given_up => {}
        }
    });
    // Until the body is read or dropped: the flow is known then, and it says why a call was refused.
    let _ = begun.await;
    let (response, error) = summarized(&state, Ok(None)).await;
    let _ = opened.send(());
    Ok(Json(ComposeResult { id: id.to_string(), response, error }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallMessagesInput {
    /// Encoded messages, without the prefix of gRPC.
    #[serde(default)]
    messages: Vec<ReplayBody>,
    /// Whether they are the last (half-close).
    #[serde(default)]
    end: bool,
}

/// `POST /compose/grpc/{id}`
pub async fn send(
    state: SharedState,
    FlowIdPath(id): FlowIdPath,
    StrictJson(input): StrictJson<CallMessagesInput>,
) -> Result<StatusCode> {
    let mut framed = Vec::new();
    for message in input.messages {
        let message = message.bytes()?;
        write_prefix(&mut framed, false, message.len() as u32);
        framed.extend_from_slice(&message);
    }
    if framed.len() > MAX_MESSAGE {
        return Err(ApiError::too_large("the messages", MAX_MESSAGE as u64));
    }
    state.composed_calls.write(id, (framed.into(), input.end), input.end)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /compose/grpc/{id}`
pub async fn cancel(state: SharedState, FlowIdPath(id): FlowIdPath) -> Result<StatusCode> {
    state.composed_calls.cancel(id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// The request body of a call.
struct RequestMessages {
    requests: mpsc::Receiver<Requests>,
    /// Dropped when the body is first read.
    begin: Option<oneshot::Sender<()>>,
    has_ended: bool,
}

impl BodyStream for RequestMessages {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<interflow_types::Result<BodyFrame>>> {
        drop(self.begin.take());
        if self.has_ended {
            return Poll::Ready(None);
        }
        let next = ready!(self.requests.poll_recv(cx));
        self.has_ended = next.as_ref().is_none_or(|(_, are_last)| *are_last);
        let cancelled = || Error::new(ErrorKind::ClientGone, "the call was cancelled");
        Poll::Ready(Some(next.map(|(framed, _)| BodyFrame::Data(framed)).ok_or_else(cancelled)))
    }
}
