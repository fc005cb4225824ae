//! Runs the rules of a phase that has a body: buffered if one of them needs it whole, else as a stream.

use interflow_query::{Flag, QuerySubject as _};
use interflow_types::StatusCode;

use super::*;
use crate::body::BodyEdits;
use crate::body::content_coding::BodyOwner;

/// Request bodies up to this size are buffered for an edit, so that they keep a `Content-Length`; longer ones are
/// streamed.
const MAX_BUFFERED_REQUEST: u64 = 1 << 20;

/// Why the body of a response with a part of a representation (RFC 9110 14) cannot be read whole.
fn partial_content(at: &ActionContext<'_>) -> Option<Error> {
    let is_part = at.phase == Phase::ResponseBody && at.response.as_ref()?.status == StatusCode::PARTIAL_CONTENT;
    is_part.then(|| Error::new(ErrorKind::StageFailed, "it is only a part of the content (206)"))
}

enum BodyFailure {
    Kept(Error, Box<BodyReadState>),
    Lost(Error),
}

impl HostRules {
    /// Runs a phase with a body, which is buffered only if a rule that may act needs it whole.
    pub(super) fn run_with_body<'a>(&'a self, mut at: ActionContext<'a>, body: Body) -> BodyFuture<'a> {
        // State is created only for flows that need it.
        if at.flow.extension::<RuleState>().is_some_and(|s| s.pending.is_some()) {
            at.edits = at.state().pending.take().unwrap_or_default();
            at.snapshot_head();
        }
        if self.wants_whole(&mut at, &body) {
            return MaybeFuture::pending(self.run_on_whole_body(at, body));
        }
        let (cursor, waiting) = match self.run_rules(&mut at, RuleCursor::default()) {
            WalkResult::Done(verdict) => match verdict.into_result() {
                Ok(()) if self.must_read_body(&at, &body) || checks_beginning(&at, &body) => {
                    return MaybeFuture::pending(self.check_and_apply_edits(at, body));
                }
                Ok(()) => return MaybeFuture::Ready(self.apply_body_edits(at, BodyReadState::Stream(body))),
                Err(exit) => return MaybeFuture::Ready(Err(exit)),
            },
            WalkResult::Wait(cursor, waiting) => (cursor, waiting),
        };
        MaybeFuture::pending(async move {
            self.resume(&mut at, cursor, waiting).await.into_result()?;
            self.check_and_apply_edits(at, body).await
        })
    }

    async fn read_and_apply_edits(&self, mut at: ActionContext<'_>, body: Body) -> Result<Body, EarlyExit> {
        let read_state = self.read_body(&mut at, body).await?;
        self.apply_whole_body_edits(at, read_state).await
    }

    /// As a whole where the edits need that. Else as a stream, unless its beginning already tells that it cannot be decoded:
    /// then `on_failure` decides. Text in UTF-16 or UTF-32 that only its beginning shows is edited as a whole.
    async fn check_and_apply_edits(&self, mut at: ActionContext<'_>, mut body: Body) -> Result<Body, EarlyExit> {
        if self.must_read_body(&at, &body) {
            return self.read_and_apply_edits(at, body).await;
        }
        if checks_beginning(&at, &body)
            && let Some(headers) = at.head().cloned()
        {
            let beginning = body::content_coding::read_beginning(&headers, body, body_owner(&at)).await;
            if beginning.failure.is_none() && body::content::is_wide_text(&headers, &beginning.bytes) {
                return self.read_and_apply_edits(at, beginning.body).await;
            }
            (body, at.unread) = (beginning.body, beginning.failure.map(Arc::new));
        }
        self.apply_body_edits(at, BodyReadState::Stream(body))
    }

    async fn run_on_whole_body(&self, mut at: ActionContext<'_>, body: Body) -> Result<Body, EarlyExit> {
        let read_state = self.read_body(&mut at, body).await?;
        self.run_to_end(&mut at).await.into_result()?;
        self.apply_whole_body_edits(at, read_state).await
    }

    async fn apply_whole_body_edits(&self, mut at: ActionContext<'_>, seen: BodyReadState) -> Result<Body, EarlyExit> {
        let long = at.head().and_then(|headers| at.edits.long_json(&seen, headers));
        if let Some((changes, text)) = long {
            at.edits.changed = Some(body::edit::apply_all_off_thread(changes, text).await);
        }
        self.apply_body_edits(at, seen)
    }

    /// Whether a rule that may act needs the whole body, for its condition or its action.
    fn wants_whole(&self, at: &mut ActionContext<'_>, body: &Body) -> bool {
        if at.phase == Phase::RequestBody && self.may_need_request_body(at) {
            return true;
        }
        if !self.phase_rules(at.phase).may_want_whole {
            return false;
        }
        // An event stream may never end: a condition on its body stays undecided instead of holding it back. A client
        // sends none, so that a media type does not hide a request's body.
        let endless = at.side() == Direction::Response
            && matches!(body, Body::Stream(_))
            && at.head().is_some_and(body::is_event_stream);
        let entries = &self.phase_rules(at.phase).entries;
        entries.iter().enumerate().any(|(i, entry)| {
            if !(entry.whole || entry.asks_body && !endless) || self.next_candidate(at, i) != i {
                return false;
            }
            if !entry.gate.may_match(at.request(), at.response.as_deref()) {
                return false;
            }
            let rule = &self.program.rules[entry.rule as usize];
            if let Some(before) = at.flow.extension::<RuleState>().and_then(|s| s.decided(entry.rule)) {
                return before && entry.whole;
            }
            let answer = evaluate_uncounted(rule, at);
            // Asked again when the rules run.
            at.json.take_wanted();
            match answer {
                Tristate::NotYet => !endless,
                Tristate::Known(holds) => holds && entry.whole && self.requires_whole_body(entry, at),
            }
        })
    }

    /// Whether a rule that may still act reads the request's body later.
    fn may_need_request_body(&self, at: &ActionContext<'_>) -> bool {
        // The request of a gRPC call may end only after messages of its response.
        let is_call = || at.view().flag(Flag::Grpc).holds();
        self.later_body_rules.iter().any(|id| {
            let rule = &self.program.rules[*id as usize];
            (!is_call() || needs_earlier_request_body(rule, false))
                && !matches!(evaluate_uncounted(rule, at), Tristate::Known(false))
        })
    }

    /// Whether a rule may need the body of the response, and whether one may need it or its messages, as far as the
    /// request tells.
    pub(super) fn may_read_response(&self, at: &ActionContext<'_>) -> (bool, bool) {
        let reads = |phase| {
            self.phase_rules(phase).entries.iter().any(|entry| {
                let rule = &self.program.rules[entry.rule as usize];
                entry.reads_content(phase, &self.program)
                    && entry.gate.may_match(at.request(), None)
                    && !matches!(evaluate_uncounted(rule, at), Tristate::Known(false))
            })
        };
        let body = reads(Phase::ResponseBody);
        (body, body || reads(Phase::Message))
    }

    /// A service declares in its handshake which bodies it needs; chunks for it need no buffering.
    fn requires_whole_body(&self, entry: &PhaseRule, at: &ActionContext<'_>) -> bool {
        let kind =
            if at.phase == Phase::RequestBody { ServiceMessageKind::Request } else { ServiceMessageKind::Response };
        entry.actions_in(&self.program).any(|action| match action {
            Action::Call(names) => {
                let service = names.0.first().and_then(|n| self.program.services.get(n));
                let hello = service.and_then(|s| s.handshake_if_ready());
                // Later response rules may read the request's body.
                hello.is_none_or(|h| {
                    h.wants_message(kind, &at.view())
                        || kind == ServiceMessageKind::Request && h.wants_kind(ServiceMessageKind::Response)
                })
            }
            other => needs_whole_body(other),
        })
    }

    fn must_read_body(&self, at: &ActionContext<'_>, body: &Body) -> bool {
        let Some(headers) = at.head() else { return false };
        // Many origins reject requests without a length, which a streaming edit cannot know in advance.
        let short = || {
            headers
                .get_str("content-length")
                .and_then(|n| n.parse::<u64>().ok())
                .is_some_and(|n| n <= MAX_BUFFERED_REQUEST)
        };
        let sized = || at.side() == Direction::Request && !at.edits.changes.is_empty() && short();
        matches!(body, Body::Stream(_) | Body::Full(_)) && (at.edits.needs_whole(headers) || sized())
    }

    /// Buffers the body up to `rules.max_body`; a larger one goes on as a stream. Rules that depend on content that
    /// cannot be read fail.
    async fn read_body(&self, at: &mut ActionContext<'_>, body: Body) -> Result<BodyReadState> {
        let headers = at.head().cloned().unwrap_or_default();
        let cap = usize::try_from(self.program.config.max_body.0).unwrap_or(usize::MAX);
        let (seen, unread) = body::collect(body, &headers, cap, body_owner(at)).await?;
        let is_empty = matches!(&seen, BodyReadState::Whole(whole) if whole.raw.is_empty());
        let unread = unread.or_else(|| if is_empty { None } else { partial_content(at) });
        if let (BodyReadState::Whole(whole), None) = (&seen, &unread) {
            at.body.clone_from(&whole.content);
        }
        at.unread = unread.map(Arc::new);
        if at.phase == Phase::RequestBody && (self.calls || !self.later_body_rules.is_empty()) {
            let (content, unread) = (at.body.clone(), at.unread.clone());
            let state = at.state();
            (state.request_body, state.unread_request) = (content, unread);
        }
        Ok(seen)
    }

    /// Why the edits, or rules on its messages, cannot be applied to a body, before any of it was read for them.
    fn refuse_edits(
        &self,
        at: &ActionContext<'_>,
        work: &BodyEdits,
        seen: &BodyReadState,
        messages: bool,
    ) -> Option<Error> {
        let headers = at.head()?;
        if matches!(seen, BodyReadState::Stream(Body::Stream(_))) && work.needs_whole(headers) {
            let what = "a rule needs the whole body, which is larger than rules.max_body: raise that, or use an edit that streams (find)";
            return Some(Error::new(ErrorKind::BodyTooLarge, what));
        }
        if matches!(seen, BodyReadState::Stream(Body::Empty)) {
            return None;
        }
        let by = match work.needs_content() {
            true => {
                let by = work.by.join("`, `");
                if let Some(why) = partial_content(at) {
                    return Some(unread_error(&by, at, &why));
                }
                by
            }
            false if messages && body::is_event_stream(headers) => "messages".to_owned(),
            false => return None,
        };
        let lacks_content = match seen {
            BodyReadState::Whole(whole) => whole.content.is_none(),
            // A body over `rules.max_body` can still be edited as it streams.
            BodyReadState::Stream(_) => at.unread.as_deref().is_some_and(|why| why.kind() != ErrorKind::BodyTooLarge),
        };
        match (at.unread.as_deref().filter(|_| lacks_content), body::content_coding::is_encoded(headers)) {
            (Some(why), _) => Some(unread_error(&by, at, why)),
            (None, Err(why)) => Some(unread_error(&by, at, &why)),
            (None, Ok(_)) => None,
        }
    }

    /// Applies the collected edits, then message rules. `on_failure` decides about a body that cannot be edited.
    fn apply_body_edits(&self, mut at: ActionContext<'_>, seen: BodyReadState) -> Result<Body, EarlyExit> {
        let mut work = std::mem::take(&mut at.edits);
        let side = at.side();
        if let Some(cap) = at.flow.extension::<RuleState>().and_then(|s| s.throttle[side as usize].clone()) {
            work.throttle = Some(cap);
        }
        let messages = self.messages.then(|| messages::MessageRuleContext::new(self, &mut at, side)).flatten();
        if work.is_empty() && messages.is_none() {
            at.keep_original(None);
            return Ok(body::into_body(seen));
        }
        let refused = self.refuse_edits(&at, &work, &seen, messages.is_some());
        let owner = body_owner(&at);
        let Some(headers) = at.head_mut() else { return Ok(body::into_body(seen)) };
        let mut original = None;
        let finished = if let Some(why) = refused {
            BodyFailure::Kept(why, Box::new(seen))
        } else {
            // `finish` consumes the body; a copy shares its bytes.
            let spare = match (&seen, self.program.config.on_failure) {
                (BodyReadState::Whole(whole), OnFailure::Pass) => Some(BodyReadState::Whole(whole.clone())),
                _ => None,
            };
            let by = work.by.join("`, `");
            let seen = if work.may_change_body() { originals::tee_original(seen, &mut original) } else { seen };
            match body::finish(work, seen, headers, owner) {
                Ok(body) => {
                    let original = original.filter(|o| originals::is_different(o, &body));
                    let body = messages::apply_message_rules(messages, body, headers);
                    at.keep_original(original);
                    return Ok(body);
                }
                Err(e) => {
                    // An edit that does not fit the content: that of the sender is to blame.
                    let kind = match e.kind() {
                        ErrorKind::StageFailed => unread_error(&by, &at, &e).kind(),
                        kind => kind,
                    };
                    let e = if by.is_empty() { e } else { Error::new(kind, format!("rule `{by}`: {e}")) };
                    if let Some(seen) = spare { BodyFailure::Kept(e, Box::new(seen)) } else { BodyFailure::Lost(e) }
                }
            }
        };
        at.flow.tag("rule_failed");
        at.keep_original(None);
        match (finished, self.program.config.on_failure) {
            (BodyFailure::Kept(e, seen), OnFailure::Pass) => {
                tracing::warn!(flow = %at.flow.id, "the body passes unchanged: {e}");
                Ok(body::into_body(*seen))
            }
            (BodyFailure::Kept(e, _) | BodyFailure::Lost(e), _) => Err(EarlyExit::Deny(e)),
        }
    }
}

fn body_owner(at: &ActionContext<'_>) -> BodyOwner {
    BodyOwner { flow: at.flow.id, side: at.side() }
}

/// Whether the edits are made of a body as it streams whose beginning tells how to read it: it is compressed, or may be
/// text in UTF-16 or UTF-32.
fn checks_beginning(at: &ActionContext<'_>, body: &Body) -> bool {
    let depends = |headers: &interflow_types::Headers| {
        // The first event may be far away, and the client waits for the head.
        !body::is_event_stream(headers)
            && (body::content_coding::is_encoded(headers).unwrap_or(false) || body::content::may_be_wide(headers))
    };
    at.edits.needs_content() && !body.is_empty() && at.head().is_some_and(depends)
}
