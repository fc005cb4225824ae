//! Requests of servers that wait for the answer of the client.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::protocol::jsonrpc::RpcError;
use crate::upstream::server::McpServer;

/// Bound on requests of servers that wait for the client.
const MAX_QUESTIONS: usize = 64;

/// What the client answers to a request of a server.
type ClientAnswer = Result<String, RpcError>;

#[derive(Default)]
pub(crate) struct ClientQuestions(Arc<Mutex<QuestionState>>);

#[derive(Default)]
struct QuestionState {
    last: u64,
    waiting: HashMap<u64, (Arc<McpServer>, oneshot::Sender<ClientAnswer>)>,
}

/// A request of a server that the client was sent. It is forgotten when this is dropped.
pub(crate) struct ClientQuestion {
    questions: Arc<Mutex<QuestionState>>,
    pub id: u64,
    answer: oneshot::Receiver<ClientAnswer>,
}

impl ClientQuestions {
    /// Registers a request of a server that the client has to answer.
    ///
    /// # Errors
    /// The client has not answered too many.
    pub fn begin(&self, server: &Arc<McpServer>) -> Result<ClientQuestion, RpcError> {
        let mut state = self.0.lock();
        if state.waiting.len() >= MAX_QUESTIONS {
            return Err(RpcError::server(format!("{MAX_QUESTIONS} requests wait for the client already")));
        }
        state.last += 1;
        let (id, (sender, answer)) = (state.last, oneshot::channel());
        state.waiting.insert(id, (Arc::clone(server), sender));
        Ok(ClientQuestion { questions: Arc::clone(&self.0), id, answer })
    }

    /// The server that waits for an answer of the client.
    pub fn server(&self, id: u64) -> Option<Arc<McpServer>> {
        self.0.lock().waiting.get(&id).map(|(server, _)| Arc::clone(server))
    }

    /// Gives a server the answer of the client.
    pub fn answer(&self, id: u64, answer: ClientAnswer) {
        let waiting = self.0.lock().waiting.remove(&id);
        if let Some((_, sender)) = waiting {
            let _ = sender.send(answer);
        }
    }
}

impl ClientQuestion {
    /// The client's answer; `None` if none can come any more.
    pub async fn answer(&mut self) -> Option<ClientAnswer> {
        (&mut self.answer).await.ok()
    }
}

impl Drop for ClientQuestion {
    fn drop(&mut self) {
        self.questions.lock().waiting.remove(&self.id);
    }
}
