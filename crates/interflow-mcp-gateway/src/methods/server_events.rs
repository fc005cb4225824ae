//! What servers send beside their responses: notifications, and requests to clients (elicitation, sampling and roots).
//! Their content is redacted as results are, since it may carry what a server knows, and answers as arguments are.

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use interflow_limits::any_matches;
use interflow_types::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::call_context::{CallContext, Delivery};
use super::url_elicitation;
use crate::protocol::client_capabilities::{ClientCapabilities, ClientRequestKind};
use crate::protocol::envelope::SUBSCRIPTION_ID_KEY;
use crate::protocol::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, notification, request, shown_arguments};
use crate::protocol::log_level::LOG_MESSAGE;
use crate::protocol::task_method::{TASK_CHANGED, TASK_STATUS};
use crate::redaction::restoring::restore_for_server;
use crate::upstream::event_sink::{ServerEvent, ServerRequest};

/// Bound on the message of a progress notification, in bytes.
const MAX_PROGRESS_TEXT: usize = 4096;

impl CallContext {
    /// Passes on what a server sends, until it sends nothing more; progress with this token of the client. Requests that are
    /// not answered by then are given up.
    pub async fn dispatch(
        &self,
        mut events: mpsc::Receiver<ServerEvent>,
        out: mpsc::Sender<String>,
        progress: Option<Value>,
    ) {
        let mut questions = FuturesUnordered::<BoxFuture<'_, ()>>::new();
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                Some(()) = questions.next(), if !questions.is_empty() => continue,
            };
            match event {
                None => return,
                Some(ServerEvent::Progress(params)) => {
                    if let Some(token) = &progress {
                        self.pass_progress(token, &params, &out).await;
                    }
                }
                Some(ServerEvent::Notification { method, params }) if method == LOG_MESSAGE => {
                    self.pass_log_message(&params, &out).await;
                }
                Some(ServerEvent::Notification { method, params }) if method == url_elicitation::COMPLETE => {
                    self.pass_completion(&params, &out);
                }
                Some(ServerEvent::Notification { method, params })
                    if [TASK_CHANGED, TASK_STATUS].contains(&&*method) =>
                {
                    self.pass_task(&method, &params, &out).await;
                }
                Some(ServerEvent::Notification { method, params }) => {
                    self.pass_notification(&method, &params, &out);
                }
                Some(ServerEvent::Request(request)) if matches!(self.delivery, Delivery::Listen(..)) => {
                    let _ = request.reply.send(Err(RpcError::server("the client has no call in progress")));
                }
                Some(ServerEvent::Request(request)) => {
                    let out = out.clone();
                    questions.push(Box::pin(async move {
                        let ServerRequest { method, params, reply } = request;
                        let _ = reply.send(self.ask(&method, &params, &out).await.map(|(answer, _)| answer));
                    }));
                }
            }
        }
    }

    /// Passes on how far a call is. The message is inspected as a result is; one that the client must not get is left out.
    async fn pass_progress(&self, token: &Value, params: &Value, out: &mpsc::Sender<String>) {
        let mut progress = json!({ "progressToken": token });
        for name in ["progress", "total"] {
            if let Some(number) = params.get(name).filter(|n| n.is_number()) {
                progress[name] = number.clone();
            }
        }
        if let Some(message) = params["message"].as_str().filter(|message| message.len() <= MAX_PROGRESS_TEXT)
            && let Ok(json) = self.inspect(Value::from(message).to_string()).await
            && let Ok(inspected) = serde_json::from_str::<Value>(&json)
        {
            progress["message"] = inspected;
        }
        // A client that reads slowly misses some.
        let _ = out.try_send(notification("notifications/progress", &progress));
    }

    fn pass_notification(&self, method: &str, params: &Value, out: &mpsc::Sender<String>) {
        match &self.delivery {
            Delivery::Session => self.session.notify(&self.server.name, method, params),
            Delivery::Request => drop(self.session.notification_params(&self.server.name, method, params)),
            Delivery::Listen(filter, id) => {
                let params = self.session.notification_params(&self.server.name, method, params);
                if let Some(mut params) = params.filter(|params| filter.admits(method, params)) {
                    params["_meta"] = json!({ SUBSCRIPTION_ID_KEY: id });
                    // A client that reads slowly misses some.
                    let _ = out.try_send(notification(method, &params));
                }
            }
        }
    }

    /// Tells the client that the user is done with a URL that it was sent.
    pub(super) fn pass_completion(&self, params: &Value, out: &mpsc::Sender<String>) {
        if self.is_stateless() {
            // It learns of it by its next request.
            return;
        }
        let id = params["elicitationId"].as_str();
        let Some(id) = id.and_then(|id| self.session.elicitations.remove(&self.server.name, id)) else { return };
        let text = notification(url_elicitation::COMPLETE, &json!({ "elicitationId": id }));
        if self.session.standing.keeps_events() {
            self.session.standing.push(text);
        } else {
            let _ = out.try_send(text);
        }
    }

    /// What the client is asked, redacted, after a person approved it if that is needed.
    ///
    /// # Errors
    /// It is not asked, and why.
    pub(super) async fn question(&self, method: &str, params: &str) -> Result<String, RpcError> {
        let (session, config) = (&self.session, &self.server.config);
        let kind = ClientRequestKind::from_method(method);
        let kind =
            kind.filter(|kind| config.client_requests.contains(kind) && session.capabilities.kinds.contains(kind));
        let kind =
            kind.ok_or_else(|| RpcError::new(METHOD_NOT_FOUND, format!("the client has no method `{method}`")))?;
        let (params, is_url) = known_params(kind, params, &session.capabilities, self.is_stateless())?;
        let redacted = self.inspect(params.clone()).await?;
        if is_url {
            url_elicitation::admit(&self.policy, session, &self.server.name, &params, &redacted)?;
        }
        if any_matches(&config.approve, method) {
            let _waiting = session.clock.begin();
            self.review(method, &shown_arguments(&redacted)).await?;
        }
        Ok(redacted)
    }

    /// Asks the client. The result is for the server; with what the client was asked.
    ///
    /// # Errors
    /// It was not asked, or did not answer with a result.
    pub(super) async fn ask(
        &self,
        method: &str,
        params: &str,
        out: &mpsc::Sender<String>,
    ) -> Result<(String, String), RpcError> {
        let (session, config) = (&self.session, &self.server.config);
        let redacted = self.question(method, params).await?;
        let _waiting = session.clock.begin();
        let mut question = session.questions.begin(&self.server)?;
        let gone = || RpcError::server("the client does not listen any more");
        out.send(request(question.id, method, &redacted)).await.map_err(|_| gone())?;
        let limit = config.client_timeout.0;
        let Ok(answer) = tokio::time::timeout(limit, question.answer()).await else {
            let _ = out.try_send(notification("notifications/cancelled", &json!({ "requestId": question.id })));
            let limit = interflow_types::units::HumanDuration(limit);
            return Err(RpcError::server(format!("the client did not answer within {limit} (client_timeout)")));
        };
        let answer = answer.unwrap_or_else(|| Err(gone()))?;
        Ok((restore_for_server(&self.server, &self.policy, session, answer), redacted))
    }
}

/// The params that are passed on, and whether they ask for a URL to be opened.
fn known_params(
    kind: ClientRequestKind,
    params: &str,
    client: &ClientCapabilities,
    is_stateless: bool,
) -> Result<(String, bool), RpcError> {
    let invalid = |why: &str| RpcError::new(INVALID_PARAMS, format!("{}: {why}", kind.method()));
    let params: Value = serde_json::from_str(if params.is_empty() { "{}" } else { params })
        .map_err(|e| invalid(&format!("its params are invalid JSON: {e}")))?;
    if kind == ClientRequestKind::Elicitation {
        match params.get("mode").map_or(Some("form"), Value::as_str) {
            Some("form") if client.forms => {}
            Some("url") if client.urls => {
                return url_elicitation::known_members(&params, is_stateless)
                    .map(|members| (members.to_string(), true))
                    .map_err(invalid);
            }
            _ => return Err(invalid("the client does not have this mode")),
        }
    }
    if kind == ClientRequestKind::Sampling && params.get("tools").is_some() && !client.tools {
        return Err(invalid("the client does not sample with tools"));
    }
    let members = kind.members().filter_map(|name| Some((name.to_owned(), params.get(name)?.clone())));
    Ok((Value::Object(members.collect()).to_string(), false))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_members_and_modes_are_passed_on() {
        let client = ClientCapabilities::parse(&json!({ "elicitation": {}, "sampling": {} }));
        let form =
            r#"{"message":"m","requestedSchema":{"type":"object"},"mode":"form","_meta":{"a":1},"task":{"ttl":1}}"#;
        let params = known_params(ClientRequestKind::Elicitation, form, &client, false).unwrap();
        assert_eq!(params, (r#"{"message":"m","requestedSchema":{"type":"object"}}"#.to_owned(), false));
        for (kind, params) in [
            (ClientRequestKind::Elicitation, r#"{"mode":"url","url":"https://a.test"}"#),
            (ClientRequestKind::Sampling, r#"{"messages":[],"tools":[]}"#),
            (ClientRequestKind::Sampling, "["),
        ] {
            assert_eq!(known_params(kind, params, &client, false).unwrap_err().code, INVALID_PARAMS, "{params}");
        }
        assert_eq!(known_params(ClientRequestKind::Roots, "", &client, false), Ok(("{}".to_owned(), false)));
        let opens = ClientCapabilities::parse(&json!({ "elicitation": { "url": {} } }));
        let url = r#"{"mode":"url","url":"https://a.test","elicitationId":"1","message":"m"}"#;
        assert!(known_params(ClientRequestKind::Elicitation, url, &opens, false).unwrap().1);
        assert!(known_params(ClientRequestKind::Elicitation, form, &opens, false).is_err());
    }
}
