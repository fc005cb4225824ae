//! WebSockets to providers: events of clients redacted, events of servers looked at and given their originals back.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use interflow_flow::{
    Error, Flow, Injected, Kind, Message, MessageKind, MessagePolicy, RequestHead, StatusCode, Verdict,
};
use interflow_llm::events::Framing;
use interflow_llm::{Exchange, Operation, Provider, Refusal, live, spans};
use interflow_redact::{OutboundMode, RedactMode, Session, UnknownRule, Vault};
use parking_lot::Mutex;

use crate::accounts::{Found, Passing};

use super::answer::refusal;
use super::choice::Choice;
use super::edit::{Editor, Halt, Pen};
use super::pens::{Restoring, Scanning};
use super::{Note, Redaction, SharedSession, prompt};

/// The writers of one WebSocket's messages.
#[derive(Default)]
pub(crate) struct Pens {
    scanning: Option<Mutex<Editor<Scanning>>>,
    restoring: Option<Mutex<Editor<Restoring>>>,
}

/// What is known of a WebSocket from its handshake on.
#[derive(Clone)]
struct Opened {
    provider: Provider,
    head: Arc<RequestHead>,
}

/// Whether the flow is a WebSocket that is looked into.
pub(super) fn is_followed(flow: &Flow) -> bool {
    flow.note::<Option<Opened>>().is_some_and(Option::is_some)
}

/// The handshake: whether the WebSocket may be opened, and what is done with it.
pub(super) fn begin(room: &Redaction, flow: &mut Flow, head: &mut RequestHead, exchange: &Exchange) -> Verdict {
    let settings = room.settings();
    let choice = match settings.choose(flow, head, &mut exchange.clone()) {
        Ok(choice) => Arc::new(choice),
        Err(missing) => return room.refuse(flow, &prompt::missing_policy(&missing)),
    };
    let strict = choice.mode == RedactMode::Redact;
    if let Err(refusal) = prompt::address(room, &settings, &choice, flow, exchange, head) {
        return room.refuse(flow, &refusal);
    }
    if exchange.operation != Operation::Realtime || !live::is_websocket(head) {
        if !strict || settings.unknown == UnknownRule::Pass {
            return Verdict::Continue;
        }
        let message = "what this WebSocket carries is not known, so that it cannot be redacted; redact.unknown = \"pass\" lets it through as it is";
        let refusal = Refusal::new(StatusCode::NOT_IMPLEMENTED, "invalid_request", "websocket_unscannable", message);
        return room.refuse(flow, &refusal);
    }
    if choice.mode != RedactMode::Off {
        let opened = Opened { provider: exchange.provider, head: Arc::new(head.clone()) };
        *flow.note_mut::<Option<Opened>>() = Some(opened);
        flow.note_mut::<MessagePolicy>().strict = strict;
        flow.note_mut::<Passing>();
    }
    flow.note_mut::<Note>().choice = Some(choice);
    Verdict::Continue
}

/// An event of the client.
pub(super) async fn said(room: &Arc<Redaction>, flow: &mut Flow, message: &mut Message) -> Verdict {
    let told = matches!(message.kind, MessageKind::Text | MessageKind::Binary);
    let (true, Some(opened), Some(choice)) = (told, opened(flow), choice(flow)) else { return Verdict::Continue };
    let settings = room.settings();
    let strict = choice.mode == RedactMode::Redact;
    if !live::is_known(opened.provider, &message.payload) {
        if strict && settings.unknown == UnknownRule::Refuse {
            let text = "this event is of no type that can be redacted for certain; redact.unknown = \"pass\" lets such events through as they are";
            let refusal = Refusal::new(StatusCode::BAD_REQUEST, "invalid_request", "unknown_event", text);
            return refuse(room, flow, &opened, &refusal);
        }
        flow.tag("redact:unknown");
        return Verdict::Continue;
    }
    let session = session(room, flow, &opened, &choice, &message.payload);
    let begun = Instant::now();
    let outcome = match prompt::event(&settings, &choice, &session, message.payload.clone(), strict).await {
        Ok(outcome) => outcome,
        Err(refusal) if strict => return refuse(room, flow, &opened, &refusal),
        Err(_) => {
            flow.tag("redact:unread");
            return Verdict::Continue;
        }
    };
    prompt::tell(room, flow, &choice, &outcome);
    room.counters.requests.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    note(flow, &choice, &outcome, begun);
    if let Some(output) = outcome.output.filter(|_| strict) {
        message.payload = output.into();
    }
    Verdict::Continue
}

fn note(flow: &mut Flow, choice: &Choice, outcome: &prompt::Outcome, begun: Instant) {
    let told = flow.note_mut::<Found>();
    let policy = choice.redactor.policy().name();
    told.policy = if policy.is_empty() { "default" } else { policy }.to_owned();
    told.micros += begun.elapsed().as_micros() as u64;
    for (kind, n) in &outcome.found {
        *told.request.entry(kind.clone()).or_default() += n;
    }
}

/// An event of the server: looked at, when the owner wants that.
pub(super) fn scan(room: &Arc<Redaction>, flow: &mut Flow, message: &mut Message) -> Verdict {
    let Some(choice) = choice(flow).filter(|c| c.outbound != OutboundMode::Off) else { return Verdict::Continue };
    let passing = flow.note_mut::<Passing>().clone();
    let begin = || Mutex::new(Editor::new(Framing::Messages, Scanning::new(Arc::clone(room), &choice, passing)));
    let editor = flow.note_mut::<Note>().pens.scanning.get_or_insert_with(begin).get_mut();
    let edited = edit(editor, message);
    settle(flow, message, edited)
}

/// An event of the server: gets its originals back.
pub(super) fn restore(flow: &mut Flow, message: &mut Message) -> Verdict {
    let note = flow.note_mut::<Note>();
    let (Some(session), Some(choice)) = (note.session.clone(), note.choice.clone()) else { return Verdict::Continue };
    if !choice.restore || session.lock().vault().is_none_or(Vault::is_empty) {
        return Verdict::Continue;
    }
    let begin = || Mutex::new(Editor::new(Framing::Messages, Restoring::new(session)));
    let edited = edit(note.pens.restoring.get_or_insert_with(begin).get_mut(), message);
    settle(flow, message, edited)
}

type Edited = (Vec<Bytes>, Result<Option<Bytes>, Halt>);

fn edit<P: Pen>(editor: &mut Editor<P>, message: &Message) -> Edited {
    match message.kind {
        MessageKind::Text | MessageKind::Binary => {
            let (ahead, edited) = editor.message(message.payload.clone());
            (ahead, edited.map(Some))
        }
        MessageKind::Close => {
            let (ahead, closed) = editor.close_messages();
            (ahead, closed.map(|()| None))
        }
        _ => (Vec::new(), Ok(None)),
    }
}

/// Sends on what an event of the server has become, or tells the client why nothing more comes.
fn settle(flow: &mut Flow, message: &mut Message, (mut ahead, edited): Edited) -> Verdict {
    let verdict = match edited {
        Ok(Some(payload)) => {
            message.payload = payload;
            Verdict::Continue
        }
        Ok(None) => Verdict::Continue,
        Err(halt) => {
            let refusal = refusal(&halt);
            let provider = opened(flow).map(|o| o.provider).unwrap_or_default();
            ahead.push(refusal.event(provider, Framing::Messages, flow.id).into());
            flow.note_mut::<Passing>().cut(refusal.kind, refusal.code);
            Verdict::Deny(Error::new(Kind::Denied, format!("the answer was cut: {}", halt.message)))
        }
    };
    if !ahead.is_empty() {
        flow.note_mut::<MessagePolicy>().before.extend(ahead);
    }
    verdict
}

/// Tells the client that its event does not go on; the connection stays.
fn refuse(room: &Redaction, flow: &mut Flow, opened: &Opened, refusal: &Refusal) -> Verdict {
    // Counts, tags and logs as for a request; the answer to one is of no use here.
    drop(room.refuse(flow, refusal));
    let event = refusal.event(opened.provider, Framing::Messages, flow.id);
    flow.note_mut::<Injected>().back.push(event.into());
    Verdict::Drop
}

fn opened(flow: &Flow) -> Option<Opened> {
    flow.note::<Option<Opened>>().cloned().flatten()
}

fn choice(flow: &Flow) -> Option<Arc<Choice>> {
    opened(flow)?;
    flow.note::<Note>()?.choice.clone()
}

/// The connection's placeholders and originals, begun by its first event; those of the answer that it continues, if they
/// are known.
fn session(room: &Redaction, flow: &mut Flow, opened: &Opened, choice: &Choice, event: &[u8]) -> SharedSession {
    if let Some(session) = flow.note::<Note>().and_then(|n| n.session.clone()) {
        return session;
    }
    let context = choice.context.clone();
    if choice.mode != RedactMode::Redact {
        return Arc::new(Mutex::new(Session::one_way().in_context(context)));
    }
    let marked = spans::mark(event, false).unwrap_or_default();
    let text = |range: Option<std::ops::Range<usize>>| range.and_then(|r| event.get(r));
    let continued = text(marked.continues).and_then(|id| std::str::from_utf8(id).ok());
    let known = continued.and_then(|id| room.kept(&id.into()));
    let session = known.unwrap_or_else(|| {
        let id = flow.id.to_string();
        let first = text(marked.first_message).unwrap_or(id.as_bytes());
        let key = prompt::key_of(room, flow, &opened.head, first);
        Arc::new(Mutex::new(Session::reversible(prompt::vault(room, &key)).in_context(context)))
    });
    flow.note_mut::<Note>().session = Some(Arc::clone(&session));
    session
}
