//! Client of the running instance's event socket: summaries of flows as they begin, change and end.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use interflow_admin::OperationId;
use interflow_host::InstanceApi;
use interflow_store::FlowSummary;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{WebSocketStream, client_async};

/// How long the instance may take to open the socket.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Idle timeout; the instance pings more often.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

pub struct EventSocket(WebSocketStream<TcpStream>);

/// A message of the instance about a query, with the number that this client gave it.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SocketEvent {
    Flows {
        flows: Vec<FlowSummary>,
        generation: u64,
    },
    /// This client was too slow for some flows.
    Lag,
    #[serde(other)]
    Other,
}

impl EventSocket {
    /// Subscribes to the flows of a query; `None` if the instance does not answer.
    pub async fn connect(api: &InstanceApi, query: &str, generation: u64) -> Option<Self> {
        let call = OperationId::Events.call().query("query", query).query("generation", generation);
        let url = format!("ws://{}/api/v1{}", api.address, call.parts().1);
        let mut request = url.into_client_request().ok()?;
        request.headers_mut().insert("Authorization", api.bearer().parse().ok()?);
        let connect = async { client_async(request, TcpStream::connect(api.address).await.ok()?).await.ok() };
        let (socket, _) = timeout(CONNECT_TIMEOUT, connect).await.ok()??;
        Some(Self(socket))
    }

    /// The next event; `None` once the socket is closed. Cancel-safe.
    pub async fn next(&mut self) -> Option<SocketEvent> {
        loop {
            match timeout(IDLE_TIMEOUT, self.0.next()).await.ok()??.ok()? {
                Message::Text(text) => return serde_json::from_str(&text).ok(),
                Message::Close(_) => return None,
                _ => {}
            }
        }
    }

    pub async fn subscribe(&mut self, query: &str, generation: u64) -> Option<()> {
        self.send(&json!({"subscribe": {"query": query, "generation": generation}})).await
    }

    /// While paused, the instance keeps the latest state of a bounded number of flows back.
    pub async fn pause(&mut self, paused: bool) -> Option<()> {
        self.send(&json!({ "pause": paused })).await
    }

    async fn send(&mut self, command: &Value) -> Option<()> {
        timeout(IDLE_TIMEOUT, self.0.send(Message::text(command.to_string()))).await.ok()?.ok()
    }
}
