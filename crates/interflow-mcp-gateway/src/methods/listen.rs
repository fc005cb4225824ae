//! The stream of notifications of a client without a session (MCP 2026-07-28, `subscriptions/listen`). It ends when the
//! client closes it, or with the process.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use interflow_types::{BoxFuture, Response, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::call_context::{AnsweredRequest, CallContext, Delivery};
use super::server_call::ServerCall;
use super::tasks;
use crate::exchange::{ClientView, Endpoint, McpExchange, PreparedRequest, Subscription};
use crate::protocol::client_message::{ClientMethod, ListKind};
use crate::protocol::envelope::SUBSCRIPTION_ID_KEY;
use crate::protocol::event_stream::StreamedReply;
use crate::protocol::jsonrpc::{notification, response};
use crate::protocol::listen_filter::{ACKNOWLEDGED, ListenFilter};
use crate::protocol::responses::refusal;
use crate::session::request_state::StateBinding;
use crate::upstream::event_sink::EventSink;
use crate::upstream::server::McpServer;

/// Bound on notifications that wait for a slow client.
const MAX_QUEUED: usize = 256;

/// Opens the stream, once the servers tell of what the client wants to know.
pub(super) async fn open(
    mut request: AnsweredRequest<'_>,
    endpoint: &Endpoint,
    prepared: PreparedRequest,
    id: Value,
    filter: ListenFilter,
) -> Response {
    let filter = Arc::new(filter);
    let (out, messages) = mpsc::channel(MAX_QUEUED);
    let session = request.session;
    let (settings, only, key) = (&prepared.settings, endpoint.0.as_deref(), prepared.key.as_deref());
    let tasks = tasks::followed(&request, ClientView { settings, session, only, key }, &filter.tasks);
    let servers = prepared.settings.of_endpoint(endpoint.0.as_deref());
    let delivery = || Delivery::Listen(Arc::clone(&filter), id.clone());
    let contexts: Vec<_> = match request.stream_contexts(servers, prepared.key.as_deref(), delivery) {
        Ok(contexts) => contexts.into_iter().map(Arc::new).collect(),
        Err(e) => return refusal(StatusCode::INTERNAL_SERVER_ERROR, e.message),
    };
    let listening = contexts.iter().map(|context| {
        // A server can ask nothing on this stream.
        let (sink, events) = EventSink::outside_of_calls(|| false);
        let heard = context.server.listen(session, sink);
        let (dispatcher, out) = (Arc::clone(context), out.clone());
        let listening: BoxFuture<'static, ()> = Box::pin(async move {
            tokio::join!(heard, dispatcher.dispatch(events, out, None));
        });
        listening
    });
    // From now on each server can be heard; and it is asked for what the client wants before the client is told so.
    let mut listening = join_all(listening).fuse();
    let subscribed = subscribe(&contexts, prepared.subscriptions, tasks);
    tokio::pin!(subscribed);
    let (resources, tasks) = tokio::select! {
        accepted = &mut subscribed => accepted,
        _ = &mut listening => subscribed.await,
    };
    let mut accepted = ListenFilter::clone(&filter);
    (accepted.resources, accepted.tasks) = (resources, tasks);
    let last_id = id.clone();
    let tagged = move |mut params: Value| {
        params["_meta"] = json!({ SUBSCRIPTION_ID_KEY: id });
        params
    };
    let first = notification(ACKNOWLEDGED, &tagged(json!({ "notifications": accepted.to_value() })));
    let last = response(&last_id, &Ok(tagged(json!({ "resultType": "complete" })).to_string()));
    let mut searches = session.found_tools.subscribe();
    let (mut ends, in_use) = (request.service.stream_ends.subscribe(), Arc::clone(&session.open_streams));
    let call = Box::pin(async move {
        let _in_use = in_use;
        let searched = async {
            while searches.changed().await.is_ok() {
                let method = ListKind::Tools.changed_method();
                if filter.admits(method, &json!({})) {
                    // A client that reads slowly misses some.
                    let _ = out.try_send(notification(method, &tagged(json!({}))));
                }
            }
        };
        let heard = async {
            tokio::join!(listening, searched);
            std::future::pending().await
        };
        tokio::select! {
            _ = ends.changed() => last,
            last = heard => last,
        }
    });
    request.flow.extension_mut::<McpExchange>().begin_stream(session, prepared.policy.restore);
    StreamedReply { call, messages, first: Some(first) }.into_response()
}

/// Reaches every server, and subscribes to resources and tasks. Returns those that a server tells of.
async fn subscribe(
    contexts: &[Arc<CallContext>],
    subscriptions: Vec<Subscription>,
    tasks: Vec<(Arc<McpServer>, String)>,
) -> (Vec<String>, Vec<String>) {
    let calls = subscriptions.into_iter().filter_map(|Subscription { server, uri, original }| {
        let context = contexts.iter().find(|context| Arc::ptr_eq(&context.server, &server))?;
        let call = ServerCall {
            context: Arc::clone(context),
            name: uri.clone(),
            method: ClientMethod::Subscribe(uri.clone()),
            original: original.map(ClientMethod::Subscribe),
            passed: None,
            state: None,
            task: None,
            binding: Arc::new(StateBinding::new("", "", "", "")),
        };
        Some(async move { call.run(None, None).await.is_ok().then_some(uri) })
    });
    let accepted = join_all(calls).await.into_iter().flatten().collect();
    // One that fails is missing, as in lists.
    join_all(contexts.iter().map(|context| context.server.hello(&context.session))).await;
    let mut followed = Vec::new();
    for context in contexts {
        let own = tasks.iter().filter(|(server, _)| Arc::ptr_eq(server, &context.server));
        let own: Vec<_> = own.map(|(_, id)| id.clone()).collect();
        if !own.is_empty() && context.server.renew_subscriptions(&context.session).await.is_ok() {
            followed.extend(own);
        }
    }
    (accepted, followed)
}
