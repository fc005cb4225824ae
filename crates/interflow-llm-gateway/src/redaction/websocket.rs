//! WebSockets to providers: client events are redacted, server events are scanned and restored.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::{LlmCall, LlmRefusal, Operation, Provider, realtime, spans};
use interflow_redact::{OutboundMode, PlaceholderVault, RedactMode, SharedSession, UnknownRule};
use interflow_types::{
    EarlyExit, Error, ErrorKind, Flow, InjectedMessages, MessageKind, MessagePolicy, MessageVerdict, RequestHead,
    StatusCode, StreamMessage,
};
use parking_lot::Mutex;

use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::event_rewriter::{EventRewriter, TextRewriter};
use crate::llm_telemetry::ResponseFindings;

use super::effective_policy::EffectivePolicy;
use super::rewriters::{RestoreRewriter, ScanRewriter};
use super::sessions::{SessionOwner, conversation_session, one_way_session};
use super::{RedactionService, RedactionState, request_body};

/// The text rewriters of one WebSocket, created by the first server event. They live as long as the connection,
/// because texts continue over several messages.
#[derive(Default)]
pub(crate) struct SocketRewriters {
    scanning: Option<Mutex<EventRewriter<ScanRewriter>>>,
    restoring: Option<Mutex<EventRewriter<RestoreRewriter>>>,
}

/// State of a WebSocket from its handshake on. `None` on a flow whose messages are not inspected.
#[derive(Clone)]
struct SocketContext {
    provider: Provider,
    head: Arc<RequestHead>,
}

/// Whether the flow is an inspected WebSocket, so that its messages are assembled and passed to the stages.
pub(crate) fn wants_messages(flow: &Flow) -> bool {
    flow.extension::<Option<SocketContext>>().is_some_and(Option::is_some)
}

/// The handshake: decides whether the WebSocket may be opened, and prepares its state.
pub(super) fn open(
    service: &RedactionService,
    flow: &mut Flow,
    head: &mut RequestHead,
    exchange: &LlmCall,
) -> Result<(), EarlyExit> {
    let settings = service.settings();
    let choice = settings.effective_policy(flow, head, &mut exchange.clone());
    let refuse = |missing| service.refuse(flow, &request_body::missing_policy(&missing));
    let choice = Arc::new(choice.map_err(refuse)?);
    let strict = choice.mode == RedactMode::Redact;
    request_body::redact_url_and_headers(service, &settings, &choice, flow, exchange, head)
        .map_err(|refusal| service.refuse(flow, &refusal))?;
    let is_known = exchange.operation == Operation::Realtime && realtime::is_websocket(head);
    if !is_known && (!strict || settings.unknown == UnknownRule::Pass) {
        return Ok(());
    }
    // Messages of an unknown format can be scanned, another protocol cannot.
    let is_scanned = realtime::is_websocket(head) && settings.unknown == UnknownRule::Scan;
    if !is_known && !is_scanned {
        let message = "the format of this WebSocket is unknown, so it cannot be redacted; redact.unknown = \"scan\" takes all of its messages for text, and \"pass\" forwards it unchanged";
        let refusal = LlmRefusal::new(StatusCode::NOT_IMPLEMENTED, "invalid_request", "websocket_unscannable", message);
        return Err(service.refuse(flow, &refusal));
    }
    if choice.mode != RedactMode::Off {
        let opened = SocketContext { provider: exchange.provider, head: Arc::new(head.clone()) };
        *flow.extension_mut::<Option<SocketContext>>() = Some(opened);
        flow.extension_mut::<MessagePolicy>().strict = strict;
        flow.extension_mut::<ResponseFindings>();
    }
    flow.extension_mut::<RedactionState>().choice = Some(choice);
    Ok(())
}

/// Redacts a client event. An event that is rejected is answered with an error event; the connection stays open.
pub(crate) async fn redact_message(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    message: &mut StreamMessage,
) -> MessageVerdict {
    let is_text = matches!(message.kind, MessageKind::Text | MessageKind::Binary);
    let (true, Some(opened), Some(choice)) = (is_text, socket_context(flow), socket_policy(flow)) else {
        return MessageVerdict::Continue;
    };
    let settings = service.settings();
    let strict = choice.mode == RedactMode::Redact;
    // The Realtime APIs add event types often; one that is not known may carry text in places that are not inspected.
    let is_unknown = !realtime::is_known_event(opened.provider, &message.payload);
    if is_unknown && settings.unknown != UnknownRule::Scan {
        if strict && settings.unknown == UnknownRule::Refuse {
            let text = "this event has no type that can be redacted reliably; redact.unknown = \"scan\" takes all of such events for text, and \"pass\" forwards them unchanged";
            let refusal = LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request", "unknown_event", text);
            return refuse(service, flow, &opened, &refusal);
        }
        flow.tag("redact:unknown");
        return MessageVerdict::Continue;
    }
    let session = session(service, flow, &opened, &choice, &message.payload);
    let begun = Instant::now();
    let outcome =
        match request_body::redact_event(&settings, &choice, &session, message.payload.clone(), (strict, is_unknown))
            .await
        {
            Ok(outcome) => outcome,
            Err(refusal) if strict => return refuse(service, flow, &opened, &refusal),
            Err(_) => {
                flow.tag("redact:unread");
                return MessageVerdict::Continue;
            }
        };
    request_body::record_outcome(service, flow, &choice, &outcome, begun.elapsed().as_micros() as u64);
    service.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    if let Some(output) = outcome.output.filter(|_| strict) {
        message.payload = output.into();
    }
    MessageVerdict::Continue
}

/// Scans a server event, if `redact.responses` is on.
pub(crate) fn scan_message(
    service: &Arc<RedactionService>,
    flow: &mut Flow,
    message: &mut StreamMessage,
) -> MessageVerdict {
    let Some(choice) = socket_policy(flow).filter(|c| c.outbound != OutboundMode::Off) else {
        return MessageVerdict::Continue;
    };
    let passing = flow.extension_mut::<ResponseFindings>().clone();
    let scan = || ScanRewriter::new(Arc::clone(service), &choice, true, passing);
    let begin = || Mutex::new(EventRewriter::new(StreamFraming::Messages, scan()));
    let editor = flow.extension_mut::<RedactionState>().rewriters.scanning.get_or_insert_with(begin).get_mut();
    let edited = rewrite(editor, message);
    apply_rewrite(flow, message, edited)
}

/// Restores a server event for the client; runs after the recorder's copy was taken.
pub(crate) fn restore_message(flow: &mut Flow, message: &mut StreamMessage) -> MessageVerdict {
    let note = flow.extension_mut::<RedactionState>();
    let (Some(session), Some(choice)) = (note.session.clone(), note.choice.clone()) else {
        return MessageVerdict::Continue;
    };
    if !choice.restore || session.lock().vault().is_none_or(PlaceholderVault::is_empty) {
        return MessageVerdict::Continue;
    }
    let begin = || Mutex::new(EventRewriter::new(StreamFraming::Messages, RestoreRewriter::new(session, true)));
    let edited = rewrite(note.rewriters.restoring.get_or_insert_with(begin).get_mut(), message);
    apply_rewrite(flow, message, edited)
}

type RewrittenMessage = (Vec<Bytes>, Result<Option<Bytes>, StreamAbort>);

fn rewrite<P: TextRewriter>(editor: &mut EventRewriter<P>, message: &StreamMessage) -> RewrittenMessage {
    match message.kind {
        MessageKind::Text | MessageKind::Binary => {
            let (ahead, edited) = editor.rewrite_message(message.payload.clone());
            (ahead, edited.map(Some))
        }
        // Text that was held back must be sent before the close frame: nothing may follow it (RFC 6455 5.5.1).
        MessageKind::Close => {
            let (ahead, closed) = editor.finish_messages();
            (ahead, closed.map(|()| None))
        }
        // Pings and pongs carry no text.
        _ => (Vec::new(), Ok(None)),
    }
}

/// Applies the rewritten server event, or tells the client why the stream is cut off, in an event before the close.
fn apply_rewrite(flow: &mut Flow, message: &mut StreamMessage, rewritten: RewrittenMessage) -> MessageVerdict {
    let (mut ahead, edited) = rewritten;
    let verdict = match edited {
        Ok(Some(payload)) => {
            message.payload = payload;
            MessageVerdict::Continue
        }
        Ok(None) => MessageVerdict::Continue,
        Err(halt) => {
            let refusal = halt.refusal();
            let provider = socket_context(flow).map(|o| o.provider).unwrap_or_default();
            ahead.push(refusal.to_event(provider, StreamFraming::Messages, flow.id).into());
            flow.extension_mut::<ResponseFindings>().mark_cut(refusal.kind, refusal.code);
            MessageVerdict::Deny(Error::new(ErrorKind::Denied, format!("the response was cut off: {}", halt.message)))
        }
    };
    if !ahead.is_empty() {
        flow.extension_mut::<MessagePolicy>().before.extend(ahead);
    }
    verdict
}

/// Tells the client that its event was rejected; the connection stays open.
fn refuse(service: &RedactionService, flow: &mut Flow, opened: &SocketContext, refusal: &LlmRefusal) -> MessageVerdict {
    // Counts, tags and logs as for a request; the HTTP response is not usable here.
    drop(service.refuse(flow, refusal));
    let event = refusal.to_event(opened.provider, StreamFraming::Messages, flow.id);
    flow.extension_mut::<InjectedMessages>().reply.push(event.into());
    MessageVerdict::Drop
}

fn socket_context(flow: &Flow) -> Option<SocketContext> {
    flow.extension::<Option<SocketContext>>().cloned().flatten()
}

fn socket_policy(flow: &Flow) -> Option<Arc<EffectivePolicy>> {
    socket_context(flow)?;
    flow.extension::<RedactionState>()?.choice.clone()
}

/// The connection's session, created by its first event; that of the response it continues, if known. Without an id
/// or a first message, the flow's id keeps connections apart.
fn session(
    service: &RedactionService,
    flow: &mut Flow,
    opened: &SocketContext,
    choice: &EffectivePolicy,
    event: &[u8],
) -> SharedSession {
    if let Some(session) = flow.extension::<RedactionState>().and_then(|n| n.session.clone()) {
        return session;
    }
    if choice.mode != RedactMode::Redact {
        return one_way_session(choice);
    }
    let marked = spans::mark_body(event, false).unwrap_or_default();
    let text = |range: Option<std::ops::Range<usize>>| range.and_then(|r| event.get(r));
    let (owner, id) = (SessionOwner::of(flow, &opened.head), flow.id.to_string());
    let first = text(marked.first_message).unwrap_or(id.as_bytes());
    let session = conversation_session(service, choice, owner, &opened.head, text(marked.continues), first);
    let state = flow.extension_mut::<RedactionState>();
    (state.session, state.owner) = (Some(Arc::clone(&session)), Some(owner));
    session
}
