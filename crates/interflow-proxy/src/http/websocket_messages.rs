//! Phase `StreamMessage` for WebSockets: runs the stages on a message and on the messages that they inject.

use std::sync::Arc;

use interflow_types::{
    Direction, Error, ErrorKind, Flow, InjectedMessages, MessageKind, MessagePolicy, MessageVerdict, Phase, Result,
    Stage, StreamMessage, Timestamp,
};

use crate::http::messages::{self, WsDirection, WsEvent};
use crate::observe::flow_guard::FlowGuard;

/// Runs the stages on a message and writes the result. Always returns the messages injected for the other direction,
/// even on failure.
///
/// If the flow's policy is strict, anything that stages cannot inspect as a whole ends the connection: it fails
/// closed.
pub(crate) async fn run_message_stages(
    guard: &mut FlowGuard,
    leg: &mut WsDirection,
    seen: WsEvent,
    out: &mut Vec<u8>,
) -> (Vec<StreamMessage>, Result<()>) {
    let mut back = Vec::new();
    let verdict = run_stages(guard, leg, seen, out, &mut back).await;
    (back, verdict)
}

async fn run_stages(
    guard: &mut FlowGuard,
    leg: &mut WsDirection,
    seen: WsEvent,
    out: &mut Vec<u8>,
    back: &mut Vec<StreamMessage>,
) -> Result<()> {
    let too_large = |e| Error::new(ErrorKind::BodyTooLarge, "a WebSocket message cannot be changed").with_source(e);
    let unread = |why: &str| {
        Err(Error::new(ErrorKind::Denied, format!("message blocked: every message must be inspected, and {why}")))
    };
    let strict = MessagePolicy::is_strict(&guard.flow);
    let (message, frames) = match seen {
        WsEvent::Overloaded => {
            let what = "the memory budget for WebSocket messages is exhausted (limits.held_bytes)";
            return Err(Error::new(ErrorKind::Overloaded, what));
        }
        WsEvent::Lost(_) if strict => return unread("this is not a valid WebSocket stream"),
        WsEvent::Part(..) if strict => return unread("this message exceeds the inspection limit"),
        // The decoder keeps only the beginning of a message beyond its limit.
        WsEvent::Message(_, frames) if strict && frames.size > frames.data.len() as u64 => {
            return unread("this message exceeds the inspection limit");
        }
        WsEvent::Lost(bytes) => {
            let why =
                Error::new(ErrorKind::BadRequest, "the frames do not follow RFC 6455 and the extensions agreed on");
            pass_unread(guard, leg, MessageKind::Binary, &why).await?;
            out.extend_from_slice(&bytes);
            return Ok(());
        }
        // A part passes without stages: it can be neither held nor changed.
        WsEvent::Part(raw, compressed) => {
            pass_unread(guard, leg, MessageKind::Binary, &messages::too_large()).await?;
            return leg.write_part(out, &raw, compressed).map_err(too_large);
        }
        WsEvent::Message(message, frames) if frames.passed || frames.size > frames.data.len() as u64 => {
            if !frames.passed {
                leg.passes_unread = false;
                pass_unread(guard, leg, message.kind, &messages::too_large()).await?;
                leg.passes_unread = false;
            }
            guard.message(&message);
            return leg.write(out, Some(&message), &frames).map_err(too_large);
        }
        WsEvent::Message(message, frames) => (message, frames),
    };
    let mut batch = MessageBatch { messages: vec![(message, true)], denied: None };
    // Recorded before the first stage that restores secrets, as bodies are; otherwise after all stages.
    let mut is_reported = false;
    let plan = Arc::clone(&guard.plan);
    for stage in plan.stages(Phase::Message) {
        // After a denial the loop goes on only to reach the end; no further stage sees the batch.
        if batch.denied.is_some() || batch.messages.is_empty() || !stage.wants_messages(&guard.flow) {
            continue;
        }
        if leg.direction() == Direction::Response && !is_reported && stage.restores_secrets(&guard.flow) {
            batch.record(guard);
            is_reported = true;
        }
        batch.run_stage(stage, &mut guard.flow, back).await;
    }
    if !is_reported {
        batch.record(guard);
    }
    // After recording: what is inserted here, such as a secret, is sent but not recorded.
    for stage in plan.stages(Phase::Message) {
        // Cannot fail or drop: it only replaces placeholders in what is sent.
        batch.messages.iter_mut().for_each(|(message, _)| stage.before_message_send(&mut guard.flow, message));
    }
    let mut is_buffered = false;
    for (message, own) in &batch.messages {
        if *own {
            is_buffered = true;
            leg.write(out, Some(message), &frames).map_err(too_large)?;
        } else {
            leg.write_injected(out, message);
        }
    }
    // The forwarder must know of a dropped message, because the receiver's compression window misses it.
    if !is_buffered {
        leg.write(out, None, &frames).map_err(too_large)?;
    }
    batch.denied.map_or(Ok(()), Err)
}

/// Asks the stages once about a message, or all that follows, that cannot be read.
async fn pass_unread(guard: &mut FlowGuard, leg: &mut WsDirection, kind: MessageKind, why: &Error) -> Result<()> {
    if !leg.passes_unread {
        let plan = Arc::clone(&guard.plan);
        messages::pass_unread(&plan, &mut guard.flow, leg.direction(), kind, why).await?;
        leg.passes_unread = true;
    }
    Ok(())
}

/// Runs the stages that inspect injected messages on those going to the origin; returns what is to be sent, and adds
/// their replies to the client to `back`.
pub(crate) async fn inspect_injected(
    guard: &mut FlowGuard,
    put_in: StreamMessage,
    back: &mut Vec<StreamMessage>,
) -> (Vec<StreamMessage>, Result<()>) {
    let mut batch = MessageBatch { messages: vec![(put_in, false)], denied: None };
    let plan = Arc::clone(&guard.plan);
    for stage in plan.stages(Phase::Message) {
        if batch.denied.is_none() && stage.inspects_injected_messages() && stage.wants_messages(&guard.flow) {
            batch.run_stage(stage, &mut guard.flow, back).await;
        }
    }
    batch.record(guard);
    (batch.messages.into_iter().map(|(message, _)| message).collect(), batch.denied.map_or(Ok(()), Err))
}

/// A message and those that stages injected beside it; each is marked whether it is the original one.
struct MessageBatch {
    messages: Vec<(StreamMessage, bool)>,
    denied: Option<Error>,
}

impl MessageBatch {
    /// Records all messages of the batch in their order.
    fn record(&self, guard: &FlowGuard) {
        self.messages.iter().for_each(|(message, _)| guard.message(message));
    }

    /// Runs a stage on all of them; those that it injects are passed only to later stages.
    async fn run_stage(&mut self, stage: &dyn Stage, flow: &mut Flow, back: &mut Vec<StreamMessage>) {
        for (mut message, own) in std::mem::take(&mut self.messages) {
            let (direction, kind) = (message.direction, data_kind(message.kind));
            let verdict = stage.message(flow, &mut message).resolve().await;
            let put = |direction, kind, payload| StreamMessage { direction, kind, payload, at: Timestamp::now() };
            // In front of the current message, even if that is dropped.
            for payload in MessagePolicy::take_before(flow) {
                self.messages.push((put(direction, MessageKind::Text, payload), false));
            }
            let injected = take_injected(flow);
            back.extend(injected.reply.into_iter().map(|payload| put(direction.opposite(), kind, payload)));
            match verdict {
                MessageVerdict::Drop => {}
                MessageVerdict::Deny(e) => {
                    self.denied = Some(e);
                    return;
                }
                MessageVerdict::Continue => self.messages.push((message, own)),
            }
            self.messages.extend(injected.forward.into_iter().map(|payload| (put(direction, kind, payload), false)));
        }
    }
}

fn take_injected(flow: &mut Flow) -> InjectedMessages {
    if flow.extension::<InjectedMessages>().is_none_or(|i| *i == InjectedMessages::default()) {
        return InjectedMessages::default();
    }
    std::mem::take(flow.extension_mut::<InjectedMessages>())
}

/// The kind of messages injected beside this one: text beside a control frame.
const fn data_kind(kind: MessageKind) -> MessageKind {
    match kind {
        MessageKind::Binary => MessageKind::Binary,
        _ => MessageKind::Text,
    }
}
