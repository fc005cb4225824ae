//! What a request is charged when it ends: as the provider reports, and by count whatever no report covers.

use interflow_limits::TokenCounts;
use interflow_llm::{CallUsage, LlmCall, Operation, ResponseProgress};
use interflow_types::{ErrorKind, ErrorSource, Flow, StatusCode};

use super::FlowReservation;
use crate::gateway::{DeliveryState, response_cache};

/// The usage that a request is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChargedUsage {
    pub usage: CallUsage,
    /// Whether a part of it was counted or estimated here, because the provider did not report it.
    pub is_estimated: bool,
}

/// The usage that the request of a flow is charged; `None` if it is free: it did not reach the provider, the provider
/// rejected it, or another request paid for its response. Complete at `Done`.
pub(crate) fn charged_usage(flow: &Flow) -> Option<ChargedUsage> {
    let call = flow.extension::<LlmCall>().filter(|call| !call.operation.is_free())?;
    if response_cache::is_hit(flow) {
        return None;
    }
    let (reported, counted) = (call.usage(), call.counted());
    let held = flow.extension::<FlowReservation>();
    // Without limits, the status is that of the client's response.
    let answered = || flow.status.filter(|_| flow.timings.first_byte.is_some());
    let reach = reach(flow, held.and_then(|held| held.status).or_else(answered));
    if reported.is_none() && counted.unreported == 0 && reach == DeliveryState::Unsent {
        return None;
    }
    let estimated = TokenCounts { input: call.estimated_input, ..TokenCounts::default() };
    let reserved = held.and_then(|held| held.reserved).unwrap_or(estimated);
    let mut usage = reported.unwrap_or_default();
    let mut is_estimated = reported.is_none() || counted.unreported > 0;
    usage.output = usage.output.saturating_add(counted.unreported);
    if call.operation == Operation::Realtime {
        // Its messages add up: these are the ones after the last report.
        usage.input = usage.input.saturating_add(call.estimated_input);
    } else if usage.input == 0 {
        usage.input = reserved.input;
        is_estimated = true;
    }
    // A provider generates a whole reply, and bills it, whether or not its client is still there.
    let is_unknown = match counted.progress {
        ResponseProgress::Complete => false,
        ResponseProgress::Unreadable => true,
        ResponseProgress::None | ResponseProgress::Partial => {
            !call.stream && call.operation != Operation::Realtime && reach == DeliveryState::Underway
        }
    };
    let is_deferred = held.is_some_and(|held| held.is_deferred) && reach == DeliveryState::Underway;
    if reported.is_none() && (is_unknown || is_deferred) {
        usage.output = usage.output.max(reserved.output);
    }
    Some(ChargedUsage { usage, is_estimated })
}

/// How far the request came: one that was answered with success counts as under way, since its response may be cut.
fn reach(flow: &Flow, status: Option<StatusCode>) -> DeliveryState {
    let delivered = flow.extension::<DeliveryState>().copied().unwrap_or_default();
    match status {
        Some(status) if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS => DeliveryState::Underway,
        // The provider's, or the gateway's own after attempts that failed.
        Some(_) => delivered,
        None if flow.timings.request_sent.is_none() => delivered,
        None => match flow.error_kind {
            Some(kind) if kind.error_source() == ErrorSource::Upstream => DeliveryState::after(kind),
            // Its client left, or a stage refused the answer.
            _ => DeliveryState::Underway,
        },
    }
}

impl DeliveryState {
    /// Of an attempt that ended with this error.
    pub(crate) const fn after(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::UpstreamTimeout => Self::Underway,
            ErrorKind::UpstreamClosed | ErrorKind::BadResponse => Self::Failed,
            _ => Self::Unsent,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interflow_llm::CountedOutput;
    use interflow_types::{Authority, ClientInfo, EntryKind, Scheme, Timestamp};

    use super::*;

    fn flow(call: LlmCall) -> Flow {
        let at: Authority = "127.0.0.1:2".parse().unwrap();
        let peer = "127.0.0.1:1".parse().unwrap();
        let (connection, accepted) = (1, Timestamp::now());
        let (process, container) = (None, None);
        let client = ClientInfo { connection, peer, local: peer, listener: "g".into(), accepted, process, container };
        let mut flow = Flow::begin(Arc::new(client), EntryKind::Gateway, Scheme::Http, at);
        *flow.extension_mut() = call;
        let reserved = Some(TokenCounts { input: 10, output: 1_000, ..TokenCounts::default() });
        *flow.extension_mut() = FlowReservation { reserved, ..FlowReservation::default() };
        flow
    }

    #[test]
    fn an_answer_before_the_response_is_generated_is_charged_the_reservation() {
        for (status, reported, expected) in [
            (200, None, Some((10, 1_000, true))),
            (200, Some(CallUsage { input: 9, output: 40, ..CallUsage::default() }), Some((9, 40, false))),
            (400, None, None),
        ] {
            let call = LlmCall { operation: Operation::Responses, ..LlmCall::default() };
            call.merge_summary(&interflow_llm::ResponseSummary { usage: reported, ..Default::default() });
            call.set_counted(CountedOutput { unreported: 0, progress: ResponseProgress::Complete, is_upstream: false });
            let mut flow = flow(call);
            let held = flow.extension_mut::<FlowReservation>();
            (held.status, held.is_deferred) = (StatusCode::from_u16(status).ok(), true);
            assert_eq!(charged(&flow), expected, "{status} {reported:?}");
        }
    }

    /// Input and output that are charged, and whether they are estimated.
    fn charged(flow: &Flow) -> Option<(u64, u64, bool)> {
        charged_usage(flow).map(|c| (c.usage.input, c.usage.output, c.is_estimated))
    }

    #[test]
    fn a_request_without_an_answer_is_charged_if_it_reached_the_provider() {
        for (stream, kind, sent, expected) in [
            (false, Some(ErrorKind::Connect), false, None),
            (false, Some(ErrorKind::Denied), false, None),
            (false, Some(ErrorKind::ClientGone), false, None),
            (false, Some(ErrorKind::ClientGone), true, Some((10, 1_000, true))),
            (true, Some(ErrorKind::ClientGone), true, Some((10, 0, true))),
            (false, Some(ErrorKind::UpstreamTimeout), true, Some((10, 1_000, true))),
            (false, Some(ErrorKind::UpstreamClosed), true, Some((10, 0, true))),
            // A connection of the pool was closed, and the next one refused.
            (false, Some(ErrorKind::Connect), true, None),
        ] {
            let mut flow = flow(LlmCall { stream, operation: Operation::Chat, ..LlmCall::default() });
            flow.error_kind = kind;
            flow.timings.request_sent = sent.then_some(1);
            assert_eq!(charged(&flow), expected, "{stream} {kind:?} {sent}");
        }
    }

    #[test]
    fn attempts_of_the_gateway_are_charged_by_how_far_they_came() {
        for (state, status, expected) in [
            (DeliveryState::Unsent, Some(502), None),
            (DeliveryState::Failed, Some(502), Some((10, 0, true))),
            (DeliveryState::Underway, Some(504), Some((10, 1_000, true))),
            (DeliveryState::Underway, None, Some((10, 1_000, true))),
            (DeliveryState::Unsent, Some(429), None),
        ] {
            let mut flow = flow(LlmCall { operation: Operation::Chat, ..LlmCall::default() });
            *flow.extension_mut() = state;
            flow.extension_mut::<FlowReservation>().status = status.and_then(|s| StatusCode::from_u16(s).ok());
            assert_eq!(charged(&flow), expected, "{state:?} {status:?}");
        }
    }

    #[test]
    fn an_answer_is_charged_as_reported_and_counted_beyond() {
        let usage = |input, output| Some(CallUsage { input, output, ..CallUsage::default() });
        let cut = ResponseProgress::Partial;
        for (stream, reported, unreported, progress, expected) in [
            (true, usage(9, 40), 0, ResponseProgress::Complete, Some((9, 40, false))),
            (true, usage(9, 1), 8_000, cut, Some((9, 8_001, true))),
            (true, None, 700, cut, Some((10, 700, true))),
            (false, None, 700, ResponseProgress::Complete, Some((10, 700, true))),
            (false, None, 0, cut, Some((10, 1_000, true))),
            (true, None, 5, ResponseProgress::Unreadable, Some((10, 1_000, true))),
        ] {
            let call = LlmCall { stream, operation: Operation::Chat, ..LlmCall::default() };
            call.merge_summary(&interflow_llm::ResponseSummary { usage: reported, ..Default::default() });
            call.set_counted(CountedOutput { unreported, progress, is_upstream: false });
            let mut flow = flow(call);
            flow.extension_mut::<FlowReservation>().status = Some(StatusCode::OK);
            assert_eq!(charged(&flow), expected, "{stream} {reported:?} {unreported} {progress:?}");
        }
    }
}
