//! Answers on their way back: looked at when the owner wants that, and given their originals back; whole ones as a whole,
//! streams event by event.

use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use interflow_flow::{
    Body, BodyStream, CollectError, Error, Flow, FlowId, Frame, Kind, ResponseHead, Result, StatusCode, Verdict,
};
use interflow_llm::events::Framing;
use interflow_llm::spans::SpanKind;
use interflow_llm::{Exchange, Provider, Refusal, spans};
use interflow_redact::OutboundMode;
use interflow_wire::content_coding::{self as coding, Decoder};

use crate::accounts::Passing;

use super::choice::Choice;
use super::edit::{Edit, Editor, Halt, Pen, splice, text_of};
use super::pens::{Restoring, Scanning};
use super::prompt::json_spans;
use super::{Redaction, SharedSession};

/// Puts originals back.
pub(super) async fn restore(
    room: &Arc<Redaction>,
    flow: &mut Flow,
    _choice: Arc<Choice>,
    session: SharedSession,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, Verdict> {
    let Some(answer) = Answer::of(flow, head, room) else { return Ok(body) };
    let mut pen = Restoring::new(session);
    if answer.framing != Framing::Whole {
        return answer.stream(head, body, pen).map_err(|r| room.refuse(flow, &r));
    }
    let max = room.settings().max_body;
    let raw = match body.collect(max).await {
        Ok((raw, _)) => raw,
        Err(CollectError::TooLarge(body)) => return Ok(body),
        Err(CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
    };
    // An answer that cannot be read keeps its placeholders: nothing is lost by that, and nothing is told.
    let Ok(plain) = coding::decode_held(&head.headers, &raw, max as u64).await else { return Ok(raw.into()) };
    let text = plain.as_deref().unwrap_or(&raw);
    let restored = if is_text(head) { words(&pen, text) } else { json(&mut pen, text) };
    Ok(match restored {
        Some(restored) => changed(head, restored),
        None => raw.into(),
    })
}

/// Looks for personal data and secrets.
pub(super) async fn scan(
    room: &Arc<Redaction>,
    flow: &mut Flow,
    choice: Arc<Choice>,
    head: &mut ResponseHead,
    body: Body,
) -> Result<Body, Verdict> {
    let Some(answer) = Answer::of(flow, head, room) else { return Ok(body) };
    let passing = flow.note_mut::<Passing>().clone();
    let mut pen = Scanning::new(Arc::clone(room), &choice, passing.clone());
    if answer.framing != Framing::Whole {
        return answer.stream(head, body, pen).map_err(|r| room.refuse(flow, &r));
    }
    let strict = choice.outbound != OutboundMode::Flag;
    let max = room.settings().max_body;
    let raw = match body.collect(max).await {
        Ok((raw, _)) => raw,
        Err(CollectError::Broken(e)) => return Err(Verdict::Deny(e)),
        Err(CollectError::TooLarge(body)) if !strict => return Ok(body),
        Err(CollectError::TooLarge(_)) => {
            let halt =
                Halt::new("response_too_large", format!("the answer is larger than {max} bytes (redact.max_body)"));
            return Err(room.refuse(flow, &refusal(&halt)));
        }
    };
    let begun = Instant::now();
    let looked = match coding::decode_held(&head.headers, &raw, max as u64).await {
        Ok(plain) => look(&mut pen, &choice, head, plain.as_ref().unwrap_or(&raw)),
        Err(e) => Err(unreadable(&e)),
    };
    passing.looked(begun.elapsed().as_micros() as u64);
    match looked {
        Ok(Some(output)) if strict => Ok(changed(head, output)),
        Err(halt) if strict => Err(room.refuse(flow, &refusal(&halt))),
        _ => Ok(raw.into()),
    }
}

/// Looks at a whole answer; what stands in its place, if anything does.
fn look(pen: &mut Scanning, choice: &Choice, head: &ResponseHead, body: &Bytes) -> Result<Option<Vec<u8>>, Halt> {
    let mut session = interflow_redact::Session::one_way().in_context(choice.context.clone());
    // An error may be said in words whatever its media type says.
    let error = !head.status.is_success() && spans::mark(body, true).is_err();
    if is_text(head) || error {
        let text = std::str::from_utf8(body).map_err(|e| unreadable(&e))?;
        let redaction = choice.redactor.redact_text(text, &mut session).map_err(|e| unreadable(&e))?;
        pen.told(&redaction.spans)?;
        return Ok(redaction.output.map(String::into_bytes));
    }
    let mut marked = spans::mark(body, true).map_err(|e| unreadable(&e))?;
    match choice.outbound {
        // The client sends it back, and the provider refuses it when its signature no longer holds.
        OutboundMode::Redact => marked.spans.retain(|span| span.kind != SpanKind::Signed),
        _ => marked.spans.iter_mut().filter(|s| s.kind == SpanKind::Signed).for_each(|s| s.kind = SpanKind::Text),
    }
    let spans = json_spans(body, &marked);
    let redaction = choice.redactor.redact_spans(body, spans, &mut session).map_err(|e| unreadable(&e))?;
    pen.told(&redaction.spans)?;
    Ok(redaction.output)
}

fn unreadable(e: &dyn std::fmt::Display) -> Halt {
    Halt::new("response_unreadable", format!("the answer cannot be looked at: {e}"))
}

/// Edits every text of a JSON answer; one that is no JSON is words.
fn json(pen: &mut Restoring, body: &[u8]) -> Option<Vec<u8>> {
    let Ok(marked) = spans::mark(body, true) else { return words(pen, body) };
    let mut edits: Vec<Edit> = Vec::new();
    for span in &marked.spans {
        let Some(raw) = text_of(body, span) else { continue };
        if let Ok(Some(with)) = pen.whole(raw, &span.kind) {
            edits.push((span.range.clone(), with));
        }
    }
    (!edits.is_empty()).then(|| splice(body, &edits))
}

fn words(pen: &Restoring, body: &[u8]) -> Option<Vec<u8>> {
    pen.plain(std::str::from_utf8(body).ok()?).map(String::into_bytes)
}

/// Whether the answer is words rather than JSON: a transcript.
fn is_text(head: &ResponseHead) -> bool {
    let media_type = head.headers.get_str("content-type").unwrap_or_default();
    media_type.trim_start().to_ascii_lowercase().starts_with("text/")
}

fn changed(head: &mut ResponseHead, output: Vec<u8>) -> Body {
    coding::unlike(&mut head.headers);
    Body::from(Bytes::from(output))
}

pub(super) fn refusal(halt: &Halt) -> Refusal {
    let (status, class) = match halt.code {
        "outbound_blocked" => (StatusCode::FORBIDDEN, "pii_blocked"),
        _ => (StatusCode::BAD_GATEWAY, "provider_error"),
    };
    Refusal::new(status, class, halt.code, halt.message.clone())
}

/// What is known of an answer.
struct Answer {
    framing: Framing,
    provider: Provider,
    flow: FlowId,
    max: u64,
    passing: Passing,
}

impl Answer {
    /// `None` when it holds no text: sound, an image.
    fn of(flow: &mut Flow, head: &ResponseHead, room: &Redaction) -> Option<Self> {
        let media_type = head.headers.get_str("content-type").unwrap_or_default().to_ascii_lowercase();
        let silent = ["audio/", "image/", "video/", "application/octet-stream", "application/pdf"];
        if silent.iter().any(|s| media_type.starts_with(s)) {
            return None;
        }
        let exchange = flow.note::<Exchange>()?;
        let max = room.settings().max_body as u64;
        let (framing, provider) = (Framing::of(&head.headers, exchange.grows), exchange.provider);
        let passing = flow.note_mut::<Passing>().clone();
        Some(Self { framing, provider, flow: flow.id, max, passing })
    }

    fn stream<P: Pen + 'static>(self, head: &mut ResponseHead, body: Body, pen: P) -> Result<Body, Refusal> {
        // A stream may be as long as it likes; only what a small piece of it grows to is bounded.
        let decoder = Decoder::new(&head.headers, self.max.saturating_mul(64))
            .map_err(|e| refusal(&Halt::new("response_unreadable", format!("the answer cannot be looked at: {e}"))))?;
        coding::unlike(&mut head.headers);
        let editor = Editor::new(self.framing, pen);
        Ok(Body::stream(Edited { body, decoder, editor, answer: self, begun: false, state: State::Running }))
    }
}

enum State {
    Running,
    /// The last bytes are out; then the stream ends, or fails.
    Failed(Error),
    Over,
}

/// A stream that is edited as it passes.
struct Edited<P> {
    body: Body,
    decoder: Option<Decoder>,
    editor: Editor<P>,
    answer: Answer,
    /// Something of the answer is out.
    begun: bool,
    state: State,
}

impl<P: Pen> Edited<P> {
    fn feed(&mut self, data: &Bytes, out: &mut Vec<u8>) -> Result<(), Halt> {
        match &mut self.decoder {
            None => self.editor.feed(data, out),
            Some(decoder) => {
                let plain = decoder.push(data).map_err(|e| Halt::new("response_unreadable", e.to_string()))?;
                self.editor.feed(&plain, out)
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>) -> Result<(), Halt> {
        if let Some(decoder) = &mut self.decoder {
            let plain = decoder.finish().map_err(|e| Halt::new("response_unreadable", e.to_string()))?;
            self.editor.feed(&plain, out)?;
        }
        self.editor.finish(out)
    }

    /// Tells the client why its stream ends here.
    fn halt(&mut self, halt: &Halt, out: &mut Vec<u8>) {
        let refusal = refusal(halt);
        let mut event = refusal.event(self.answer.provider, self.answer.framing, self.answer.flow);
        if self.answer.framing == Framing::Array && !self.begun && out.is_empty() {
            // Nothing stands before it that it could follow.
            event.splice(..1, *b"[");
        }
        out.extend(event);
        self.answer.passing.cut(refusal.kind, refusal.code);
        self.state = match halt.code {
            // The owner's wish, and the stream's proper end; whoever reads on finds nothing more.
            "outbound_blocked" => State::Over,
            _ => State::Failed(Error::new(Kind::BadResponse, format!("the answer was cut: {}", halt.message))),
        };
    }
}

impl<P: Pen> BodyStream for Edited<P> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Over => return Poll::Ready(None),
                State::Failed(e) => return Poll::Ready(Some(Err(e))),
                State::Running => self.state = State::Running,
            }
            let mut out = Vec::new();
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => {
                    if let Err(halt) = self.feed(&data, &mut out) {
                        self.halt(&halt, &mut out);
                    }
                }
                // The room before this one has told the client why.
                Some(Err(e)) if self.answer.passing.is_cut() => return Poll::Ready(Some(Err(e))),
                Some(Err(e)) => {
                    let halt = Halt::new("response_cut", format!("the provider's stream broke off: {e}"));
                    self.halt(&halt, &mut out);
                    self.state = State::Failed(e);
                }
                None => {
                    self.state = State::Over;
                    if let Err(halt) = self.finish(&mut out) {
                        self.halt(&halt, &mut out);
                    }
                }
                Some(other) => return Poll::Ready(Some(other)),
            }
            if !out.is_empty() {
                self.begun = true;
                return Poll::Ready(Some(Ok(Frame::Data(out.into()))));
            }
        }
    }
}
