//! Calls at servers with sessions that wait for the answers of a client without one: its request ended with what it is
//! asked, and it sends the request again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use interflow_types::{BoxFuture, random_token};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::call_outcome::CallOutcome;
use super::client_questions::ClientQuestions;
use crate::protocol::envelope::Envelope;
use crate::protocol::jsonrpc::RpcError;

/// Bound on the calls of one client that wait.
pub(crate) const MAX_WAITING: usize = 64;

/// How long further requests of a server may take that come with one.
const QUESTION_PAUSE: Duration = Duration::from_millis(100);

/// A call in progress.
pub(crate) struct RunningCall {
    pub call: BoxFuture<'static, Result<String, RpcError>>,
    /// What the client gets before the result: notifications, and requests of the server.
    pub messages: mpsc::Receiver<String>,
    pub outcome: Arc<Mutex<CallOutcome>>,
    /// The requests of the server that the client has not answered, by id.
    pub questions: Vec<(u64, Value)>,
}

#[derive(Default)]
pub(crate) struct WaitingCalls(Arc<Mutex<HashMap<String, RunningCall>>>);

/// What becomes of a call.
pub(crate) enum CallStep {
    Done(Result<String, RpcError>),
    Message(String),
    /// The server asks the client.
    Asked,
}

impl RunningCall {
    /// The next step. What the server sent before its response comes before that.
    pub async fn step(&mut self) -> CallStep {
        loop {
            tokio::select! {
                biased;
                Some(text) = self.messages.recv() => {
                    if let Some(text) = self.note_question(text) {
                        return CallStep::Message(text);
                    }
                }
                result = &mut self.call => return CallStep::Done(result),
                () = tokio::time::sleep(QUESTION_PAUSE), if !self.questions.is_empty() => return CallStep::Asked,
            }
        }
    }

    /// What is still to be sent after the response came.
    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.messages.try_recv().ok()).collect()
    }

    /// Notes a request of the server; gives anything else back.
    fn note_question(&mut self, text: String) -> Option<String> {
        let mut message: Value = serde_json::from_str(&text).unwrap_or_default();
        let Some(id) = message["id"].as_u64() else { return Some(text) };
        self.questions.push((id, json!({ "method": message["method"].take(), "params": message["params"].take() })));
        None
    }

    /// What the client is asked, by key.
    pub fn input_requests(&self) -> Value {
        self.questions.iter().map(|(id, question)| (key(*id), question.clone())).collect()
    }

    /// Gives the server the answers of the client.
    pub fn answer(&mut self, questions: &ClientQuestions, envelope: &Envelope) {
        self.questions.retain(|(id, _)| {
            let response = envelope.input_response(&key(*id)).map(str::to_owned);
            response.map(|response| questions.answer(*id, Ok(response))).is_none()
        });
    }
}

fn key(question: u64) -> String {
    format!("request-{question}")
}

impl WaitingCalls {
    /// Keeps a call until it is taken or this time is over; it is cancelled then. Returns its name.
    ///
    /// # Errors
    /// Too many calls of the client wait.
    pub fn add(&self, call: RunningCall, ttl: Duration) -> Result<String, RpcError> {
        let mut all = self.0.lock();
        if all.len() >= MAX_WAITING {
            return Err(RpcError::server(format!("{MAX_WAITING} calls wait for the client already")));
        }
        let name = random_token();
        all.insert(name.clone(), call);
        let (calls, expiring) = (Arc::downgrade(&self.0), name.clone());
        tokio::spawn(async move {
            tokio::time::sleep(ttl).await;
            let expired = calls.upgrade().and_then(|calls| calls.lock().remove(&expiring));
            drop(expired);
        });
        Ok(name)
    }

    pub fn take(&self, name: &str) -> Option<RunningCall> {
        self.0.lock().remove(name)
    }
}
