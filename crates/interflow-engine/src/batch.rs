//! Phase `Message` for WebSockets: what the stages make of one message, and of those that they put in beside it.

use std::sync::Arc;

use interflow_flow::{
    Direction, Error, Flow, Injected, Kind, Message, MessageKind, MessagePolicy, Phase, Result, Stage, Timestamp,
    Verdict,
};

use crate::messages::{Seen, WebSocketLeg};
use crate::tracker::Tracker;

/// Shows the stages what came, and writes what they leave of it. Gives back what they put in the other way, whatever
/// came of the message.
pub(crate) async fn ask_stages(
    tracker: &mut Tracker,
    leg: &mut WebSocketLeg,
    seen: Seen,
    out: &mut Vec<u8>,
) -> (Vec<Message>, Result<()>) {
    let mut back = Vec::new();
    let asked = ask(tracker, leg, seen, out, &mut back).await;
    (back, asked)
}

async fn ask(
    tracker: &mut Tracker,
    leg: &mut WebSocketLeg,
    seen: Seen,
    out: &mut Vec<u8>,
    back: &mut Vec<Message>,
) -> Result<()> {
    let too_large = |e| Error::new(Kind::BodyTooLarge, "a WebSocket message cannot be changed").because(e);
    let unread = |why: &str| Err(Error::new(Kind::Denied, format!("nothing may pass unread, and {why}")));
    let strict = MessagePolicy::is_strict(&tracker.flow);
    let (message, frames) = match seen {
        Seen::Overloaded => {
            let what = "the memory for WebSocket messages is spent (limits.held_bytes)";
            return Err(Error::new(Kind::Overloaded, what));
        }
        Seen::Lost(_) if strict => return unread("this is no WebSocket"),
        Seen::Part(..) if strict => return unread("this message is too large to be held"),
        Seen::Message(_, frames) if strict && frames.size > frames.data.len() as u64 => {
            return unread("this message is too large to be held");
        }
        Seen::Lost(bytes) => {
            out.extend_from_slice(&bytes);
            return Ok(());
        }
        Seen::Part(raw, compressed) => return leg.write_part(out, &raw, compressed).map_err(too_large),
        Seen::Message(message, frames) => (message, frames),
    };
    let mut batch = Batch { messages: vec![(message, true)], denied: None };
    let mut shown = false;
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(Phase::Message) {
        if batch.denied.is_some() || batch.messages.is_empty() || !stage.follows(&tracker.flow) {
            continue;
        }
        if leg.direction() == Direction::Response && !shown && stage.keeps_response_private(&tracker.flow) {
            batch.record(tracker);
            shown = true;
        }
        batch.ask(stage, &mut tracker.flow, back).await;
    }
    if !shown {
        batch.record(tracker);
    }
    for stage in plan.stages(Phase::Message) {
        batch.messages.iter_mut().for_each(|(message, _)| stage.message_sending(&mut tracker.flow, message));
    }
    let mut kept = false;
    for (message, own) in &batch.messages {
        if *own {
            kept = true;
            leg.write(out, Some(message), &frames).map_err(too_large)?;
        } else {
            leg.put(out, message);
        }
    }
    if !kept {
        leg.write(out, None, &frames).map_err(too_large)?;
    }
    batch.denied.map_or(Ok(()), Err)
}

/// Shows what stages put in on its way to the origin to those that answer for all that leaves; gives what goes on, and puts
/// into `back` what they have to say to the client.
pub(crate) async fn ask_guards(
    tracker: &mut Tracker,
    put_in: Message,
    back: &mut Vec<Message>,
) -> (Vec<Message>, Result<()>) {
    let mut batch = Batch { messages: vec![(put_in, false)], denied: None };
    let plan = Arc::clone(&tracker.plan);
    for stage in plan.stages(Phase::Message) {
        if batch.denied.is_none() && stage.guards_origin() && stage.follows(&tracker.flow) {
            batch.ask(stage, &mut tracker.flow, back).await;
        }
    }
    batch.record(tracker);
    (batch.messages.into_iter().map(|(message, _)| message).collect(), batch.denied.map_or(Ok(()), Err))
}

/// A message on its way through the stages, among those that they put in; each is marked whether it is the one that came.
struct Batch {
    messages: Vec<(Message, bool)>,
    denied: Option<Error>,
}

impl Batch {
    fn record(&self, tracker: &Tracker) {
        self.messages.iter().for_each(|(message, _)| tracker.message(message));
    }

    /// Shows a stage all of them; those that it puts in are shown to the stages behind it.
    async fn ask(&mut self, stage: &dyn Stage, flow: &mut Flow, back: &mut Vec<Message>) {
        for (mut message, own) in std::mem::take(&mut self.messages) {
            let (direction, kind) = (message.direction, data_kind(message.kind));
            let verdict = stage.message(flow, &mut message).get().await;
            let put = |direction, kind, payload| Message { direction, kind, payload, at: Timestamp::now() };
            for payload in MessagePolicy::take_before(flow) {
                self.messages.push((put(direction, MessageKind::Text, payload), false));
            }
            let injected = injected(flow);
            back.extend(injected.back.into_iter().map(|payload| put(direction.opposite(), kind, payload)));
            match verdict {
                Verdict::Drop => {}
                Verdict::Deny(e) => {
                    self.denied = Some(e);
                    return;
                }
                Verdict::Continue | Verdict::Answer(_) | Verdict::Intercept | Verdict::Tunnel => {
                    self.messages.push((message, own));
                }
            }
            self.messages.extend(injected.onward.into_iter().map(|payload| (put(direction, kind, payload), false)));
        }
    }
}

fn injected(flow: &mut Flow) -> Injected {
    if flow.note::<Injected>().is_none_or(|i| *i == Injected::default()) {
        return Injected::default();
    }
    std::mem::take(flow.note_mut::<Injected>())
}

/// What is put in beside a control frame is a text.
const fn data_kind(kind: MessageKind) -> MessageKind {
    match kind {
        MessageKind::Binary => MessageKind::Binary,
        _ => MessageKind::Text,
    }
}
