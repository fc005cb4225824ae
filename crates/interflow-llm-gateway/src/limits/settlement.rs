//! What a request is charged when it ends: as the provider reports, and by count whatever no report covers.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use interflow_limits::{DeploymentUsage, ServedModel, UsageLimiter};
use interflow_llm::usage::estimated_tokens;
use interflow_llm::{LlmCall, Operation, Provider, ResponseProgress};
use interflow_types::{Attempts, ByteStr, CallUsage, EntryKind, ErrorSource, Flow, ServiceTier, StatusCode};

use super::FlowReservation;
use crate::gateway::{DeliveryState, ListedAttempt, response_cache};

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
    // What keeps a cache is counted like the counting of tokens, but reports what it used.
    let is_billed = |call: &LlmCall| call.operation == Operation::CountTokens && call.usage().is_some();
    let call = flow.extension::<LlmCall>().filter(|call| !call.operation.is_free() || is_billed(call))?;
    if response_cache::is_hit(flow) {
        return None;
    }
    let (reported, counted) = (call.usage(), call.counted());
    let (held, reach) = (flow.extension::<FlowReservation>(), reach(flow));
    if reported.is_none() && counted.unreported == 0 && reach == DeliveryState::Unsent {
        return None;
    }
    let reserved = reserved(flow, call);
    let mut usage = reported.unwrap_or_default().at_host(&provider_host(flow));
    let mut is_estimated = reported.is_none() || counted.unreported > 0;
    usage.output = usage.output.saturating_add(counted.unreported);
    if call.operation == Operation::Realtime {
        // Its messages add up: these are the ones after the last report.
        usage.input = usage.input.saturating_add(call.estimated_input);
    } else if [usage.input, usage.seconds, usage.searches, usage.pages] == [0; 4] {
        usage.input = reserved.input;
        is_estimated = true;
    }
    // A provider generates a whole reply, and bills it, whether or not its client is still there.
    let is_unknown = match counted.progress {
        ResponseProgress::Complete => false,
        ResponseProgress::Unreadable => {
            // By the length of what was delivered, which has more than the text.
            let delivered = estimated_tokens(call.delivered.load(Relaxed) as usize).min(reserved.output);
            usage.output = usage.output.max(delivered);
            is_estimated = true;
            false
        }
        ResponseProgress::None | ResponseProgress::Partial => {
            !call.stream && call.operation != Operation::Realtime && reach == DeliveryState::Underway
        }
    };
    let is_deferred = held.is_some_and(|held| held.is_deferred) && reach == DeliveryState::Underway;
    // The tokens of speech and of pictures are not counted, but characters and pieces are.
    let is_uncounted = matches!(call.operation, Operation::Speech | Operation::Images) && reach >= DeliveryState::Late;
    if is_uncounted && reported.is_none_or(|usage| usage.output == 0) {
        (usage.output, usage.characters) = (0, call.characters);
        usage.tier = usage.tier.or(Some(ServiceTier::Other));
    }
    if reported.is_none() && (is_unknown || is_deferred) {
        usage.output = usage.output.max(reserved.output);
    }
    Some(ChargedUsage { usage, is_estimated })
}

/// The host that answered, or that was asked.
fn provider_host(flow: &Flow) -> String {
    let answered = ListedAttempt::serving(flow).zip(flow.extension::<Attempts>());
    let host = answered.and_then(|(serving, attempts)| Some(attempts.list().get(serving.index)?.host.clone()));
    host.unwrap_or_else(|| flow.authority.host.to_string())
}

/// What the request of a flow used, by deployment: first the request itself, then the attempts that a provider got besides,
/// which are charged their input. Nothing of them reached the client.
pub(super) fn deployment_usages(flow: &Flow) -> Vec<DeploymentUsage> {
    listed_usages(flow).into_iter().map(|(_, usage)| usage).collect()
}

/// Adds to each attempt in the record of a flow what it is charged.
pub(super) fn record_usage(flow: &Flow, limits: &UsageLimiter) {
    let Some(attempts) = flow.extension::<Attempts>() else { return };
    for (index, usage) in listed_usages(flow) {
        let DeploymentUsage { tokens, served, answered, is_estimated } = usage;
        let Some(index) = index.filter(|_| !tokens.is_zero()) else { continue };
        let answered = answered.as_deref();
        let cost = |model: Option<&str>| limits.cost(&served.as_ref()?.provider, model, answered, &tokens);
        attempts.edit(index, |attempt| {
            // As budgets are charged.
            attempt.cost = cost(attempt.model.as_deref());
            (attempt.input_tokens, attempt.output_tokens) = (Some(tokens.input), Some(tokens.output));
            attempt.estimated = is_estimated;
        });
    }
}

/// As [`deployment_usages`], each with the place of its attempt.
fn listed_usages(flow: &Flow) -> Vec<(Option<usize>, DeploymentUsage)> {
    let Some((call, charged)) = flow.extension::<LlmCall>().zip(charged_usage(flow)) else {
        return vec![(None, DeploymentUsage::default())];
    };
    let main = farthest_unanswered(flow);
    let answered_by = ListedAttempt::serving(flow);
    let main_index = answered_by.as_ref().or(main.as_ref()).map(|attempt| attempt.index);
    // A batch is priced by the models of its requests.
    let is_batch = call.operation == Operation::Batches;
    let served = answered_by.and_then(|attempt| attempt.served).or_else(|| main.as_ref()?.served.clone());
    let served = served.filter(|_| !is_batch);
    let request = DeploymentUsage {
        tokens: charged.usage,
        served,
        answered: call.summary().model.map(|model| Arc::from(model.as_str())),
        is_estimated: charged.is_estimated,
    };
    if call.operation == Operation::Realtime {
        return socket_usages(call, request).into_iter().map(|usage| (main_index, usage)).collect();
    }
    let input = CallUsage { input: reserved(flow, call).input, ..CallUsage::default() };
    let unanswered = ListedAttempt::unanswered(flow).into_iter();
    let besides = unanswered.filter(|attempt| main.as_ref().is_none_or(|main| main.index != attempt.index));
    let besides = besides.map(|ListedAttempt { index, served, .. }| {
        (Some(index), DeploymentUsage { tokens: input, served, answered: None, is_estimated: true })
    });
    [(main_index, request)].into_iter().chain(besides).collect()
}

/// What the responses of a WebSocket used, each by its own model; then what no report covers.
fn socket_usages(call: &LlmCall, whole: DeploymentUsage) -> Vec<DeploymentUsage> {
    let served = |asked: &Option<ByteStr>| {
        let provider = call.upstream.as_deref().unwrap_or(call.provider.as_str()).into();
        Some(ServedModel { provider, model: asked.as_deref()?.into() })
    };
    let reports = call.summary().by_model;
    let reported = reports.iter().map(|own| DeploymentUsage {
        tokens: own.usage,
        served: served(&own.asked),
        answered: own.answered.as_deref().map(Arc::from),
        is_estimated: false,
    });
    let mut usages: Vec<_> = reported.collect();
    let (input, output) = (call.estimated_input, call.counted().unreported);
    if usages.is_empty() {
        usages.push(DeploymentUsage { served: whole.served.clone().or_else(|| served(&call.model)), ..whole });
    } else if input > 0 || output > 0 {
        let tokens = CallUsage { input, output, ..CallUsage::default() };
        usages.push(DeploymentUsage { tokens, served: served(&call.model), answered: None, is_estimated: true });
    }
    usages
}

/// Whether a request reached a provider that may bill for what is neither reported nor counted: files, jobs, media.
pub(super) fn is_unaccounted(flow: &Flow) -> bool {
    let Some(call) = flow.extension::<LlmCall>() else { return false };
    let has_bound = |held: &FlowReservation| held.is_deferred && !held.has_unstated_maxima;
    let is_reserved = flow.extension().is_some_and(has_bound) && reserved(flow, call).output > 0;
    matches!(call.operation, Operation::Other | Operation::Batches | Operation::Jobs)
        && call.usage().is_none()
        && call.counted().unreported == 0
        && !is_reserved
        && reach(flow) >= DeliveryState::Late
}

/// Whether a request of the gateway is answered, and billed, as a whole though its client leaves: not a stream. Ollama's
/// servers stop then.
pub(super) fn outlives_client(flow: &Flow) -> bool {
    flow.transport == EntryKind::Gateway
        && flow.extension::<LlmCall>().is_some_and(|call| {
            let is_whole = !call.stream && call.operation != Operation::Realtime;
            is_whole && call.operation.generates() && call.provider != Provider::Ollama
        })
}

/// What was reserved for a request, or else the estimate of its input.
fn reserved(flow: &Flow, call: &LlmCall) -> CallUsage {
    let estimated = CallUsage { input: call.estimated_input, ..CallUsage::default() };
    flow.extension::<FlowReservation>().and_then(|held| held.reserved).unwrap_or(estimated)
}

/// The attempt that counts as the request, since none was answered.
fn farthest_unanswered(flow: &Flow) -> Option<ListedAttempt> {
    let is_answered = status(flow).is_some_and(is_answer);
    let unanswered = if is_answered { Vec::new() } else { ListedAttempt::unanswered(flow) };
    unanswered.into_iter().max_by_key(|attempt| attempt.state)
}

/// The status with which the provider answered; without limits, that of the client's response.
fn status(flow: &Flow) -> Option<StatusCode> {
    let answered = || flow.status.filter(|_| flow.timings.first_byte.is_some());
    flow.extension::<FlowReservation>().and_then(|held| held.status).or_else(answered)
}

fn is_answer(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS
}

/// How far the request came: one that was answered with success counts as under way, since its response may be cut.
fn reach(flow: &Flow) -> DeliveryState {
    let farthest = || farthest_unanswered(flow).map_or(DeliveryState::Unsent, |attempt| attempt.state);
    match status(flow) {
        Some(status) if is_answer(status) => DeliveryState::Underway,
        // The gateway's own: what the provider answered could not be translated.
        Some(_) if ListedAttempt::serving(flow).is_some_and(|attempt| attempt.is_success) => DeliveryState::Failed,
        // The provider's, or the gateway's own after attempts that failed.
        Some(_) => farthest(),
        None if flow.timings.request_sent.is_none() => farthest(),
        None => match flow.error_kind {
            Some(kind) if kind.error_source() == ErrorSource::Upstream => DeliveryState::after(kind),
            // Its client left, or a stage refused the answer.
            _ => DeliveryState::Underway,
        },
    }
}

#[cfg(test)]
mod tests {
    use interflow_llm::CountedOutput;
    use interflow_types::{Attempt, AttemptState, Authority, ClientInfo, ErrorKind, Scheme, ServiceRegion, Timestamp};

    use super::*;

    fn flow(call: LlmCall) -> Flow {
        let at: Authority = "127.0.0.1:2".parse().unwrap();
        let peer = "127.0.0.1:1".parse().unwrap();
        let (connection, accepted) = (1, Timestamp::now());
        let (process, container) = (None, None);
        let client = ClientInfo { connection, peer, local: peer, listener: "g".into(), accepted, process, container };
        let mut flow = Flow::begin(Arc::new(client), EntryKind::Gateway, Scheme::Http, at);
        *flow.extension_mut() = call;
        let reserved = Some(CallUsage { input: 10, output: 1_000, ..CallUsage::default() });
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
            call.record_count(CountedOutput {
                unreported: 0,
                progress: ResponseProgress::Complete,
                is_upstream: false,
            });
            let mut flow = flow(call);
            let held = flow.extension_mut::<FlowReservation>();
            (held.status, held.is_deferred) = (StatusCode::from_u16(status).ok(), true);
            assert_eq!(charged(&flow), expected, "{status} {reported:?}");
        }
    }

    #[test]
    fn the_prompt_of_speech_and_pictures_counts_and_a_level_that_is_reported_stays() {
        let pictures = CallUsage { images: 2, ..CallUsage::default() };
        let at_level = CallUsage { tier: Some(ServiceTier::Flex), ..pictures };
        for (operation, reported, images, tier) in [
            (Operation::Speech, None, 0, ServiceTier::Other),
            (Operation::Images, None, 0, ServiceTier::Other),
            (Operation::Images, Some(pictures), 2, ServiceTier::Other),
            (Operation::Images, Some(at_level), 2, ServiceTier::Flex),
        ] {
            let call = LlmCall { operation, characters: 5, ..LlmCall::default() };
            call.merge_summary(&interflow_llm::ResponseSummary { usage: reported, ..Default::default() });
            let (progress, is_upstream) = (ResponseProgress::Complete, false);
            call.record_count(CountedOutput { unreported: 9, progress, is_upstream });
            let mut flow = flow(call);
            flow.extension_mut::<FlowReservation>().status = Some(StatusCode::OK);
            let usage = CallUsage { input: 10, images, characters: 5, tier: Some(tier), ..CallUsage::default() };
            assert_eq!(
                charged_usage(&flow),
                Some(ChargedUsage { usage, is_estimated: true }),
                "{operation:?} {tier:?}"
            );
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
            (false, Some(ErrorKind::UpstreamTimeout), true, Some((10, 0, true))),
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

    type AttemptEnd = (AttemptState, Option<ErrorKind>);

    const SERVED: AttemptEnd = (AttemptState::Served, None);
    const REJECTED: AttemptEnd = (AttemptState::Failed, None);
    const UNSENT: AttemptEnd = (AttemptState::Failed, Some(ErrorKind::Connect));
    const FAILED: AttemptEnd = (AttemptState::Failed, Some(ErrorKind::UpstreamClosed));
    const LATE: AttemptEnd = (AttemptState::Failed, Some(ErrorKind::UpstreamTimeout));

    /// An attempt at this provider; without an end, it is still running.
    fn attempt(flow: &mut Flow, provider: &str, end: Option<AttemptEnd>) {
        let attempt = Attempt { provider: provider.into(), model: Some("m".into()), ..Attempt::default() };
        let handle = flow.extension_mut::<Attempts>().begin(attempt);
        end.into_iter().for_each(|(state, error)| handle.settle(state, error));
    }

    /// The deployment, input and output of everything that is charged.
    fn usages(flow: &Flow) -> Vec<(String, u64, u64)> {
        let name = |usage: &DeploymentUsage| usage.served.as_ref().map(|s| s.provider.to_string()).unwrap_or_default();
        deployment_usages(flow).iter().map(|usage| (name(usage), usage.tokens.input, usage.tokens.output)).collect()
    }

    #[test]
    fn attempts_of_the_gateway_are_charged_by_how_far_they_came() {
        for (end, status, expected) in [
            (UNSENT, Some(502), None),
            (FAILED, Some(502), Some((10, 0, true))),
            (LATE, Some(504), Some((10, 0, true))),
            (LATE, None, Some((10, 0, true))),
            (REJECTED, Some(429), None),
        ] {
            let mut flow = flow(LlmCall { operation: Operation::Chat, ..LlmCall::default() });
            attempt(&mut flow, "a", Some(end));
            flow.extension_mut::<FlowReservation>().status = status.and_then(|s| StatusCode::from_u16(s).ok());
            assert_eq!(charged(&flow), expected, "{end:?} {status:?}");
        }
    }

    #[test]
    fn every_attempt_that_a_provider_got_is_charged() {
        let all = |of: &[(&str, u64, u64)]| of.iter().map(|(a, b, c)| ((*a).to_owned(), *b, *c)).collect::<Vec<_>>();
        for (ends, status, expected) in [
            // One timed out, and the next one answered; `c` is a hedge that lost.
            (
                vec![("a", Some(LATE)), ("c", None), ("b", Some(SERVED))],
                200,
                all(&[("b", 9, 40), ("a", 10, 0), ("c", 10, 0)]),
            ),
            (vec![("a", Some(FAILED)), ("b", Some(LATE))], 504, all(&[("b", 10, 0), ("a", 10, 0)])),
            (vec![("a", Some(UNSENT)), ("b", Some(FAILED))], 502, all(&[("b", 10, 0)])),
            (vec![("a", Some(UNSENT)), ("b", Some(REJECTED))], 429, all(&[("", 0, 0)])),
        ] {
            let mut flow = flow(LlmCall { operation: Operation::Chat, ..LlmCall::default() });
            ends.into_iter().for_each(|(name, end)| attempt(&mut flow, name, end));
            if status == 200 {
                let usage = Some(CallUsage { input: 9, output: 40, ..CallUsage::default() });
                let call = flow.extension::<LlmCall>().unwrap();
                call.merge_summary(&interflow_llm::ResponseSummary { usage, ..Default::default() });
            }
            flow.extension_mut::<FlowReservation>().status = StatusCode::from_u16(status).ok();
            assert_eq!(usages(&flow), expected, "{status}");
        }
    }

    #[test]
    fn a_regional_host_is_charged_its_own_price_and_what_is_not_in_tokens_no_input() {
        let usage = CallUsage { input: 9, output: 40, ..CallUsage::default() };
        let pages = CallUsage { pages: 3, ..CallUsage::default() };
        for (host, reported, region) in [
            ("eu.api.openai.com", usage, Some(ServiceRegion::Eu)),
            ("api.openai.com", usage, None),
            ("api.mistral.ai", pages, None),
        ] {
            let call = LlmCall { operation: Operation::Chat, ..LlmCall::default() };
            call.merge_summary(&interflow_llm::ResponseSummary { usage: Some(reported), ..Default::default() });
            let mut flow = flow(call);
            let attempt = Attempt { provider: "p".into(), host: host.into(), ..Attempt::default() };
            flow.extension_mut::<Attempts>().begin(attempt).settle(AttemptState::Served, None);
            flow.extension_mut::<FlowReservation>().status = Some(StatusCode::OK);
            let charged = charged_usage(&flow).unwrap();
            assert_eq!(
                charged,
                ChargedUsage { usage: CallUsage { region, ..reported }, is_estimated: false },
                "{host}"
            );
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
            (true, None, 5, ResponseProgress::Unreadable, Some((10, 300, true))),
            (true, None, 500, ResponseProgress::Unreadable, Some((10, 500, true))),
        ] {
            let call = LlmCall { stream, operation: Operation::Chat, ..LlmCall::default() };
            call.merge_summary(&interflow_llm::ResponseSummary { usage: reported, ..Default::default() });
            call.record_count(CountedOutput { unreported, progress, is_upstream: false });
            call.delivered.store(1_200, Relaxed);
            let mut flow = flow(call);
            flow.extension_mut::<FlowReservation>().status = Some(StatusCode::OK);
            assert_eq!(charged(&flow), expected, "{stream} {reported:?} {unreported} {progress:?}");
        }
    }
}
