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

use crate::exchange::bad_request;
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
    let Some((opened, choice)) = socket_context(flow).zip(socket_policy(flow)) else {
        return MessageVerdict::Continue;
    };
    if let Some((at, text)) = control_text(message) {
        if !text.is_empty()
            && let Some(output) = redact_control(service, flow, &choice, &text).await
        {
            message.payload = with_text(&message.payload, at, &output).unwrap_or_else(|| message.payload.slice(..at));
        }
        return MessageVerdict::Continue;
    }
    let settings = service.settings();
    let strict = choice.mode == RedactMode::Redact;
    // The Realtime APIs add event types often; one that is not known may carry text in places that are not inspected.
    let is_unknown = !realtime::is_known_event(opened.provider, &message.payload);
    if is_unknown && settings.unknown != UnknownRule::Scan {
        if strict && settings.unknown == UnknownRule::Refuse {
            let text = "this event has no type that can be redacted reliably; redact.unknown = \"scan\" takes all of such events for text, and \"pass\" forwards them unchanged";
            return refuse(service, flow, &opened, &bad_request("unknown_event", text));
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

/// The most that a control frame holds (RFC 6455 5.5).
const MAX_CONTROL_BYTES: usize = 125;

/// The text of a control frame, which ends up in the logs of the other side, and where in the payload it begins: a ping, its
/// pong, or the reason of a close behind the status code. `None` if the message is no such frame.
fn control_text(message: &StreamMessage) -> Option<(usize, String)> {
    let at = match message.kind {
        MessageKind::Ping | MessageKind::Pong => 0,
        MessageKind::Close => message.payload.len().min(2),
        _ => return None,
    };
    // UTF-16 has a NUL in each letter.
    Some((at, String::from_utf8_lossy(message.payload.get(at..)?).replace('\0', "")))
}

/// The payload of a control frame with another text; `None` if that is too long.
fn with_text(payload: &Bytes, at: usize, text: &str) -> Option<Bytes> {
    let payload = [payload.get(..at)?, text.as_bytes()].concat();
    (payload.len() <= MAX_CONTROL_BYTES).then(|| payload.into())
}

/// Redacts the text of a client's control frame; `None` if it stays. The frame cannot be refused: what cannot be redacted,
/// or has no room afterwards, is left out. The pong to a ping that is sent without text has none either.
async fn redact_control(
    service: &RedactionService,
    flow: &mut Flow,
    choice: &Arc<EffectivePolicy>,
    text: &str,
) -> Option<String> {
    let (settings, strict, begun) = (service.settings(), choice.mode == RedactMode::Redact, Instant::now());
    // Which conversation it is, the first event tells, and not a ping before it.
    let session = open_session(flow).unwrap_or_else(|| one_way_session(choice));
    let event = serde_json::json!([text]).to_string().into();
    let redacted = request_body::redact_event(&settings, choice, &session, event, (strict, true)).await;
    let Ok(outcome) = redacted else {
        flow.tag("redact:unread");
        return strict.then(String::new);
    };
    request_body::record_outcome(service, flow, choice, &outcome, begun.elapsed().as_micros() as u64);
    let output = outcome.output.filter(|_| strict)?;
    Some(serde_json::from_slice::<[String; 1]>(&output).map(|[text]| text).unwrap_or_default())
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
    let passing = flow.extension_mut::<ResponseFindings>().clone();
    let restore = || RestoreRewriter::new(session, true, passing);
    let begin = || Mutex::new(EventRewriter::new(StreamFraming::Messages, restore()));
    let editor = flow.extension_mut::<RedactionState>().rewriters.restoring.get_or_insert_with(begin).get_mut();
    let edited = rewrite(editor, message);
    apply_rewrite(flow, message, edited)
}

type RewrittenMessage = (Vec<Bytes>, Result<Option<Bytes>, StreamAbort>);

fn rewrite<P: TextRewriter>(editor: &mut EventRewriter<P>, message: &StreamMessage) -> RewrittenMessage {
    let Some((at, text)) = control_text(message) else {
        let (ahead, edited) = editor.rewrite_message(message.payload.clone());
        return (ahead, edited.map(Some));
    };
    // Text that was held back must be sent before the close frame: nothing may follow it (RFC 6455 5.5.1).
    let is_close = message.kind == MessageKind::Close;
    let (ahead, closed) = if is_close { editor.finish_messages() } else { (Vec::new(), Ok(())) };
    let rewritten = closed.and_then(|()| editor.rewriter.rewrite_plain(&text));
    // A placeholder stays where its original has no room.
    let otherwise = editor.rewriter.is_strict().then(|| message.payload.slice(..at));
    let payload = |text: String| with_text(&message.payload, at, &text).or(otherwise);
    (ahead, rewritten.map(|text| text.and_then(payload)))
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

fn open_session(flow: &Flow) -> Option<SharedSession> {
    flow.extension::<RedactionState>()?.session.clone()
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
    if let Some(session) = open_session(flow) {
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

#[cfg(test)]
mod tests {
    use interflow_types::{Direction, Timestamp};

    use super::*;
    use crate::redaction::tests::scanning;

    #[test]
    fn findings_in_control_frames_of_the_provider_are_replaced_or_end_the_connection() {
        let close = [&3001_u16.to_be_bytes()[..], b"bye 123-45-6789"].concat();
        for (kind, payload, at) in [(MessageKind::Close, close, 2), (MessageKind::Ping, b"SSN 123-45-6789".to_vec(), 0)]
        {
            let (direction, payload) = (Direction::Response, Bytes::from(payload));
            let message = StreamMessage { direction, kind, payload: payload.clone(), at: Timestamp::now() };
            let scanned = |mode| rewrite(&mut EventRewriter::new(StreamFraming::Messages, scanning(mode)), &message).1;
            assert_eq!(scanned(OutboundMode::Block).unwrap_err().code, "outbound_blocked");
            assert_eq!(scanned(OutboundMode::Flag).unwrap(), None);
            let replaced = scanned(OutboundMode::Redact).unwrap().unwrap();
            assert_eq!(replaced[..at], payload[..at]);
            assert!(replaced.len() > at && !String::from_utf8_lossy(&replaced).contains("6789"), "{replaced:?}");
        }
        let empty = StreamMessage {
            direction: Direction::Response,
            kind: MessageKind::Close,
            payload: Bytes::from_static(b"\x03\xe8"),
            at: Timestamp::now(),
        };
        assert_eq!(control_text(&empty), Some((2, String::new())));
        assert_eq!(with_text(&empty.payload, 2, &"x".repeat(124)), None);
    }
}
