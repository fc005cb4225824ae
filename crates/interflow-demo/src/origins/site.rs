//! One host of the [origins](super): answers its requests over HTTP/1.1 and HTTP/2.

use std::sync::LazyLock;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use interflow_net::ingress::{HttpService, IncomingRequest, ServiceReply};
use interflow_net::io::IoStream;
use interflow_types::{Error, RequestTarget, Response, ResponseHead, StatusCode};
use serde_json::json;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::paced_body::paced;
use super::{grpc, pages};
use crate::fake_model::{self, ModelResponse};

/// Host patterns of the origins, each with the kind of its site.
pub static HOSTS: LazyLock<Vec<(&str, &str)>> =
    LazyLock::new(|| include_str!("../../data/hosts.txt").lines().filter_map(|line| line.split_once(' ')).collect());

/// Maximum size of a request's body, in bytes.
const MAX_BODY: usize = 16 << 20;
/// Delay before a model's first chunk, and between chunks.
const FIRST_CHUNK_DELAY: Duration = Duration::from_millis(180);
const CHUNK_DELAY: Duration = Duration::from_millis(14);

pub enum Site {
    /// Answers `/` with a page and every other path with what it received.
    Example,
    Shop,
    Provider,
}

impl Site {
    pub fn new(host: &str) -> Self {
        match HOSTS.iter().find(|(name, _)| *name == host) {
            Some((_, "models")) => Self::Provider,
            Some((_, "shop")) => Self::Shop,
            _ => Self::Example,
        }
    }
}

impl HttpService for Site {
    async fn call(&self, request: IncomingRequest) -> ServiceReply {
        let path = match &request.target {
            RequestTarget::Origin(path) => path.to_string(),
            RequestTarget::Absolute(url) => url.path.to_string(),
            RequestTarget::Authority(_) | RequestTarget::Asterisk => "/".to_owned(),
        };
        let header = |name: &str| request.headers.get_str(name).unwrap_or_default().to_owned();
        if request.protocol.as_deref() == Some("websocket") {
            return ServiceReply::Upgrade(ResponseHead::new(StatusCode::OK), Box::new(|io| Box::pin(repeat(io))));
        }
        if header("upgrade").eq_ignore_ascii_case("websocket") {
            let accept = derive_accept_key(header("sec-websocket-key").as_bytes());
            let head = ResponseHead::new(StatusCode::SWITCHING_PROTOCOLS)
                .with_header("Connection", "Upgrade")
                .with_header("Upgrade", "websocket")
                .with_header("Sec-WebSocket-Accept", accept);
            return ServiceReply::Upgrade(head, Box::new(|io| Box::pin(repeat(io))));
        }
        let (media, method) = (header("content-type"), request.method.to_string());
        let page = path.split('?').next().unwrap_or_default();
        if media.starts_with("application/grpc") && !media.starts_with("application/grpc-web") {
            return ServiceReply::Response(grpc::call(page, request.body));
        }
        let body = match request.body.collect(MAX_BODY).await {
            Ok((body, _)) => body,
            Err(_) => return ServiceReply::Response(json_response(413, &json!({"error": "the body is too large"}))),
        };
        ServiceReply::Response(match self {
            Self::Provider => provider(&method, &path, &body),
            Self::Shop => pages::page(page, &body)
                .unwrap_or_else(|| json_response(404, &json!({"error": "there is no such page"}))),
            Self::Example => {
                pages::example(page).unwrap_or_else(|| json_response(200, &json!({"method": method, "path": path})))
            }
        })
    }

    fn error_response(&self, error: &Error) -> Response {
        Response::full(error.kind().status(), "text/plain", error.to_string())
    }
}

fn json_response(status: u16, value: &serde_json::Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    Response::full(status, "application/json", value.to_string())
}

fn provider(method: &str, path: &str, body: &[u8]) -> Response {
    if method == "GET" && path.contains("/models") {
        let model = |id: &&str| json!({"id": id, "object": "model", "owned_by": "demo"});
        let models: Vec<_> = fake_model::NAMES.iter().map(model).collect();
        return json_response(200, &json!({"object": "list", "data": models}));
    }
    let Some(ModelResponse { status, media, pieces }) = fake_model::answer(path, body) else {
        return json_response(404, &json!({"error": {"type": "not_found_error", "message": "unknown path"}}));
    };
    let head =
        ResponseHead::new(StatusCode::from_u16(status).unwrap_or(StatusCode::OK)).with_header("Content-Type", media);
    let pieces = pieces.into_iter().map(Bytes::from).collect();
    Response { head, body: paced(pieces, FIRST_CHUNK_DELAY, CHUNK_DELAY) }
}

/// Returns each message of a WebSocket to its sender.
async fn repeat(io: IoStream) {
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    while let Some(Ok(message)) = socket.next().await {
        if (message.is_text() || message.is_binary()) && socket.send(message).await.is_err() {
            return;
        }
    }
}
