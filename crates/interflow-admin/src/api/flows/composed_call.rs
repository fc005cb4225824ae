//! Composed gRPC calls: opened, written to, half-closed and cancelled by calls of the API. Their messages are read from
//! the recording.

use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Json;
use axum::http::StatusCode;
use bytes::Bytes;
use interflow_archive::replay::ComposedParts;
use interflow_codec::grpc::write_prefix;
use interflow_types::schema::JsonSchema;
use interflow_types::{Body, BodyFrame, BodyStream, Error, ErrorKind, Request};
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use crate::api::flows::compose::{ComposeResult, remember};
use crate::api::flows::composed_socket::{MAX_MESSAGE, StreamInput};
use crate::api::flows::replay::{ReplayBody, drain_body, summarized};
use crate::api::input::{FlowIdPath, StrictJson};
use crate::composed_streams::ComposedStreams;
use crate::error::{ApiError, Result};
use crate::state::AdminState;

/// `POST /compose/grpc`: opens a call through the proxy's own client. It is open until the server has ended it or it is
/// cancelled. Returns once the request is being sent, since a server may wait for messages before it responds.
pub(crate) async fn open(
    state: Arc<AdminState>,
    StrictJson(input): StrictJson<StreamInput>,
) -> Result<Json<ComposeResult>> {
    let own = [("Content-Type", "application/grpc"), ("TE", "trailers")];
    let is_own = |name: &str| own.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
    let mut fields: Vec<_> = own.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    fields.extend(input.headers.into_iter().filter(|(name, _)| !is_own(name)));
    let head = ComposedParts::parse("POST", &input.url, &fields, Bytes::new())?.head;
    let room = state.composed_calls.room()?;
    remember(&state, input.saved).await;
    let (sender, requests) = ComposedStreams::channel();
    let (begin, begun) = oneshot::channel();
    let body = Body::stream(RequestMessages { requests, begin: Some(begin), has_ended: false });
    let (id, sending) = state.engine.local_client().send_chosen(Request { head, body }, None);
    let (fail, failed) = oneshot::channel();
    state.composed_calls.add(id, sender, room, async move {
        match sending.await {
            Ok((response, _)) => {
                drop(fail);
                drain_body(response.body).await;
            }
            Err(error) => drop(fail.send(error)),
        }
    });
    let sent = tokio::select! {
        Ok(()) = begun => Ok(None),
        Ok(error) = failed => Err(error),
        else => Ok(None),
    };
    let (response, error) = summarized(&state, sent).await;
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
pub(crate) async fn send(
    state: Arc<AdminState>,
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
    state.composed_calls.write(id, Requests { framed: framed.into(), are_last: input.end })?;
    Ok(StatusCode::NO_CONTENT)
}

/// `DELETE /compose/grpc/{id}`
pub(crate) async fn cancel(state: Arc<AdminState>, FlowIdPath(id): FlowIdPath) -> Result<StatusCode> {
    state.composed_calls.cancel(id)?;
    Ok(StatusCode::NO_CONTENT)
}

/// Messages of a client, in the frames of gRPC.
pub(crate) struct Requests {
    framed: Bytes,
    are_last: bool,
}

/// The request body of a call.
struct RequestMessages {
    requests: mpsc::Receiver<Requests>,
    /// Told when the body is first read.
    begin: Option<oneshot::Sender<()>>,
    has_ended: bool,
}

impl BodyStream for RequestMessages {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<interflow_types::Result<BodyFrame>>> {
        if let Some(begin) = self.begin.take() {
            let _ = begin.send(());
        }
        while !self.has_ended {
            let Some(requests) = ready!(self.requests.poll_recv(cx)) else {
                self.has_ended = true;
                return Poll::Ready(Some(Err(Error::new(ErrorKind::ClientGone, "the call was cancelled"))));
            };
            self.has_ended = requests.are_last;
            if !requests.framed.is_empty() {
                return Poll::Ready(Some(Ok(BodyFrame::Data(requests.framed))));
            }
        }
        Poll::Ready(None)
    }
}
