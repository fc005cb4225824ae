//! Sends a request along its route: chooses a deployment, retries, hedges and falls back until one responds. The body is
//! held in memory, up to `llm.max_body`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_types::{
    BoxFuture, CollectError, Error, ErrorKind, Flow, LocalHandler, Request, Response, Result, StatusCode,
};

use super::attempt::{AttemptOutcome, LastFailure, PreparedAttempt, RoutedRequest, prefer_failure};
use super::circuit_breaker::{CircuitBreaker, circuit_open};
use super::response_cache::CacheLookup;
use super::routing::{Affinity, Backoff, Next, Pin, ResponseOwner, Route, Selection, retry_after};
use super::translation::{FORMAT_HEADER, Translation};
use super::{LlmGateway, LlmUpstream, shadow};
use crate::llm_telemetry::refusal_response;
use interflow_llm::translate::may_have_signed_thoughts;
use interflow_llm::{ExperimentUnit, LlmCall, LlmRefusal, Stickiness};

/// The deployment that answered, how many requests that took, and the route, in responses along a configured route.
const DEPLOYMENT_HEADER: &[u8] = b"X-Interflow-Deployment";
const ATTEMPTS_HEADER: &[u8] = b"X-Interflow-Attempts";
const ROUTE_HEADER: &[u8] = b"X-Interflow-Route";

/// Serves the requests to an upstream's endpoint that have a choice of deployments, or may have to be repeated.
pub(super) struct RouteHandler {
    pub gateway: Arc<LlmGateway>,
    /// The upstream that the client addressed.
    pub upstream: Arc<LlmUpstream>,
}

impl LocalHandler for RouteHandler {
    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(async move {
            let cache = self.gateway.cache();
            let looked_up = cache.look_up(&self.gateway, &self.upstream, flow, request).await?;
            let (request, outcome) = match looked_up {
                CacheLookup::Hit(response) => {
                    let format = response.head.headers.get_str(FORMAT_HEADER);
                    format.into_iter().for_each(|format| flow.tag(format!("translated:{format}")));
                    return Ok(response);
                }
                CacheLookup::Forward(request, outcome) => (request, outcome),
            };
            let response = match self.start(flow, request).await {
                Ok(Ok(delivery)) => delivery.run(flow).await,
                Ok(Err(refusal)) => Ok(refusal_response(flow, &refusal)),
                Err(e) => Err(e),
            };
            if response.is_err() {
                outcome.give_up();
            }
            Ok(outcome.follow(flow, response?))
        })
    }
}

impl RouteHandler {
    /// The inner error is for the client: the request cannot be sent anywhere.
    async fn start(&self, flow: &mut Flow, request: Request) -> Result<std::result::Result<Delivery, LlmRefusal>> {
        let table = self.gateway.table();
        let Request { head, body } = request;
        let (raw, _) = body.collect_held(&head.headers, table.max_body, true).await.map_err(|e| match e {
            CollectError::Broken(e) => e,
            CollectError::TooLarge(_) => {
                let message =
                    "a request that may have to be repeated is held in memory; this one is larger than llm.max_body";
                Error::new(ErrorKind::BodyTooLarge, message)
            }
        })?;
        let call = flow.extension::<LlmCall>().cloned().unwrap_or_default();
        let by_model = call.route.as_deref().and_then(|name| table.routes.get(name));
        let route = by_model.or_else(|| table.routes.of_upstream(&self.upstream.name)).cloned();
        // The endpoint may be gone since the request arrived.
        let route = route.unwrap_or_else(|| Arc::new(Route::of_upstream(&self.upstream, &table)));
        let (gateway, upstream) = (Arc::clone(&self.gateway), Arc::clone(&self.upstream));
        let (translation, owner) = (Translation::new(&table, &head, &call, flow), ResponseOwner::of(flow));
        let mut request = RoutedRequest {
            gateway,
            table,
            route: Arc::clone(&route),
            upstream,
            call,
            head,
            raw,
            is_unbound: false,
            owner,
            translation,
        };
        let is_any_unbound = !self.gateway.unbound.lock().is_empty();
        if is_any_unbound && may_have_signed_thoughts(&request.raw) {
            let conversation = session(&request, flow).await;
            request.is_unbound = self.gateway.unbound.lock().get(&conversation.0).is_some();
        }
        let mut selection = Selection::new(&route, |d| request.suits(d));
        let mut tags = Vec::new();
        if route.is_configured {
            tags.push(format!("route:{}", route.name));
        }
        selection.sticky = match route.sticky {
            Stickiness::None => None,
            Stickiness::User => Some(Affinity::of_user(flow, &request.head)),
            Stickiness::Session => Some(session(&request, flow).await),
        };
        let pinned = request.pinned();
        if let Some((id, pin)) = &pinned {
            tags.push("pinned".to_owned());
            if !selection.pin(&route, pin, |d| request.suits(d)) {
                return Ok(Err(deployment_gone(&route, id, pin)));
            }
        } else if let (Some(experiment), Some(variant)) = (&route.experiment, route.variant()) {
            let unit = match experiment.by {
                ExperimentUnit::User => Affinity::of_user(flow, &request.head),
                ExperimentUnit::Session => session(&request, flow).await,
            };
            let is_b = unit.position("experiment") < experiment.share && request.suits(&route.deployments[variant]);
            if is_b {
                selection.assign(variant);
            }
            tags.push(format!("experiment:{}", if is_b { 'B' } else { 'A' }));
        }
        tags.iter().for_each(|tag| flow.tag(tag.clone()));
        // The shadow does not have what the request continues.
        if pinned.is_none() {
            shadow::start(&request, &tags);
        }
        let deadline = Instant::now() + route.timeout;
        Ok(Ok(Delivery { request, route, selection, deadline, sent: 0, retries: 0, is_granted: false }))
    }
}

async fn session(request: &RoutedRequest, flow: &Flow) -> Affinity {
    Affinity::of_session(flow, &request.head, &request.plain_body().await)
}

/// Why a response cannot be continued: the configuration changed since it was made.
fn deployment_gone(route: &Route, id: &str, pin: &Pin) -> LlmRefusal {
    let message = format!(
        "the response {id} was made by {}, which {} does not lead to: send the whole conversation in `input`, without `previous_response_id`",
        pin.deployment,
        if route.is_configured { format!("llm.route.{}", route.name) } else { format!("llm.provider.{}", route.name) },
    );
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request_error", "previous_response_not_found", message)
}

/// A permission of a deployment's circuit breaker, possibly that of its only probe, until the request is sent. It is
/// returned if the request cannot be made, and if its future is dropped before.
struct HeldProbe<'r>(Option<&'r CircuitBreaker>);

impl<'r> HeldProbe<'r> {
    fn new(route: &'r Route, index: usize) -> Self {
        Self(route.deployments.get(index).map(|deployment| &*deployment.health))
    }

    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for HeldProbe<'_> {
    fn drop(&mut self) {
        if let Some(health) = self.0 {
            health.abandon_request();
        }
    }
}

/// Of an attempt and its hedge, if it has one.
type Outcomes = Vec<AttemptOutcome>;

/// One request on its way.
struct Delivery {
    request: RoutedRequest,
    route: Arc<Route>,
    selection: Selection,
    deadline: Instant,
    sent: u32,
    retries: u32,
    /// Whether the next attempt was taken from the budget of retries already.
    is_granted: bool,
}

impl Delivery {
    async fn run(mut self, flow: &mut Flow) -> Result<Response> {
        let route = Arc::clone(&self.route);
        let (mut last, mut backoff) = (LastFailure::None, Backoff::new());
        route.budget.count_request();
        // The time limit covers pauses and attempts of all deployments; the attempt in progress is cut off by it, too.
        while Instant::now() < self.deadline {
            let index = match self.choose() {
                Next::Deployment(index) => index,
                Next::Wait(at) if at < self.deadline && self.retries < route.retries => {
                    tokio::time::sleep_until(at.into()).await;
                    continue;
                }
                Next::Wait(_) | Next::None => break,
            };
            let deployment = &route.deployments[index];
            if !deployment.health.allows(Instant::now()) {
                // Another request probes it.
                self.selection.exclude(index);
                continue;
            }
            if let Some(response) = self.request.estimate(deployment) {
                deployment.health.abandon_request();
                last.discard();
                return Ok(response);
            }
            if self.sent > 0 && !self.is_granted && !self.grant_retry(flow) {
                deployment.health.abandon_request();
                break;
            }
            if self.selection.is_tried(index) {
                let remaining = self.deadline.saturating_duration_since(Instant::now());
                tokio::time::sleep(backoff.next(fastrand::f64()).min(remaining)).await;
            }
            let probe = HeldProbe::new(&route, index);
            let prepared = match self.request.prepare(deployment, self.deadline).await {
                Ok(prepared) => prepared.map_err(LastFailure::Refused),
                Err(e) if e.kind() == ErrorKind::UpstreamTimeout => Err(LastFailure::Failed(e)),
                Err(e) => return Err(e),
            };
            let attempt = match prepared {
                Ok(attempt) => attempt,
                Err(failure) => {
                    // Another attempt would not be possible either, but another deployment may be.
                    self.selection.exclude(index);
                    last = prefer_failure(last, failure);
                    continue;
                }
            };
            probe.keep();
            let outcomes = self.send(index, attempt, flow).await;
            let outcomes = self.without_unfitting_thoughts(outcomes, flow).await?;
            outcomes.iter().for_each(|outcome| outcome.settle(self.is_answer(outcome)));
            for outcome in outcomes {
                if self.is_answer(&outcome) {
                    last.discard();
                    return self.finish(flow, outcome).await;
                }
                self.respect_wait(&outcome);
                let name = &route.deployments[outcome.index].name;
                flow.tag(format!("attempt-failed:{name}"));
                if outcome.is_timeout() {
                    flow.tag(format!("attempt-timeout:{name}"));
                }
                // What the client gets if no other deployment answers.
                last = prefer_failure(last, self.request.failure(outcome, self.deadline).await?);
            }
        }
        self.fail(flow, last)
    }

    fn choose(&self) -> Next {
        self.selection.next(&self.route, Instant::now(), &mut fastrand::f64, &|d| self.request.cost(d))
    }

    fn grant_retry(&mut self, flow: &mut Flow) -> bool {
        if self.retries >= self.route.retries {
            return false;
        }
        if !self.route.budget.take() {
            flow.tag("retry-budget");
            return false;
        }
        self.retries += 1;
        self.is_granted = true;
        true
    }

    /// Sends an attempt, the first with a hedge if the route has one. Of several outcomes an answer is the last.
    async fn send(&mut self, index: usize, attempt: PreparedAttempt, flow: &mut Flow) -> Outcomes {
        let hedge_after = self.route.hedge_after.filter(|_| self.sent == 0);
        let first = self.begin(flow, index, attempt);
        let Some(after) = hedge_after else { return vec![first.await] };
        tokio::pin!(first);
        if let Ok(outcome) = tokio::time::timeout(after, &mut first).await {
            return vec![outcome];
        }
        // The first request may be answered while its hedge is prepared.
        let hedge = tokio::select! {
            biased;
            outcome = &mut first => return vec![outcome],
            hedge = self.hedge() => hedge,
        };
        let Some((index, attempt)) = hedge else { return vec![first.await] };
        flow.tag("hedged");
        let second = self.begin(flow, index, attempt.into_hedge());
        tokio::pin!(second);
        // The request that loses is cancelled by its drop.
        tokio::select! {
            outcome = &mut first => if self.is_answer(&outcome) { vec![outcome] } else { vec![outcome, second.await] },
            outcome = &mut second => if self.is_answer(&outcome) { vec![outcome] } else { vec![outcome, first.await] },
        }
    }

    /// A history whose thoughts are bound to another is refused as long as the conversation lasts: its request is repeated
    /// at once, and the provider leaves them out, now and later.
    async fn without_unfitting_thoughts(&mut self, mut outcomes: Outcomes, flow: &mut Flow) -> Result<Outcomes> {
        let Some(last) = outcomes.last_mut() else { return Ok(outcomes) };
        if !self.request.refuses_thoughts(last, self.deadline).await {
            return Ok(outcomes);
        }
        let conversation = session(&self.request, flow).await;
        self.request.gateway.unbound.lock().insert(conversation.0, ());
        self.request.is_unbound = true;
        let (route, index) = (Arc::clone(&self.route), last.index);
        if let Ok(attempt) = self.request.prepare(&route.deployments[index], self.deadline).await? {
            last.settle(false);
            flow.tag("thoughts-left-out");
            let repeated = self.begin(flow, index, attempt);
            *last = repeated.await;
        }
        Ok(outcomes)
    }

    /// The deployment of a hedge, if one is free, the budget of retries allows it, and the request can be made: the
    /// first request does not depend on it.
    async fn hedge(&mut self) -> Option<(usize, PreparedAttempt)> {
        let Next::Deployment(index) = self.choose() else { return None };
        let route = Arc::clone(&self.route);
        let deployment = &route.deployments[index];
        if self.selection.is_tried(index) || !deployment.health.allows(Instant::now()) {
            return None;
        }
        let probe = HeldProbe::new(&route, index);
        if !route.budget.take() {
            return None;
        }
        let prepared = self.request.prepare(deployment, self.deadline).await.map_err(|e| e.to_string());
        match prepared.and_then(|prepared| prepared.map_err(|refusal| refusal.message)) {
            Ok(attempt) => {
                probe.keep();
                Some((index, attempt))
            }
            Err(why) => {
                tracing::debug!("no hedge at {}: {why}", deployment.name);
                None
            }
        }
    }

    /// Counts an attempt and sends it. The future borrows nothing, so that another can be prepared beside it.
    fn begin(
        &mut self,
        flow: &mut Flow,
        index: usize,
        attempt: PreparedAttempt,
    ) -> impl Future<Output = AttemptOutcome> + Send + use<> {
        self.selection.count_attempt(index);
        self.is_granted = false;
        self.sent += 1;
        let deployment = &self.route.deployments[index];
        let model = self.request.served_model(deployment).map(|served| served.model.to_string());
        let handle = attempt.record(deployment, model, flow);
        let (gateway, route, deadline) = (Arc::clone(&self.request.gateway), Arc::clone(&self.route), self.deadline);
        async move { attempt.send(&gateway, &route, index, handle, deadline).await }
    }

    /// Anything but a status to be retried is an answer, also an error of the client's: the next deployment would say
    /// the same.
    fn is_answer(&self, outcome: &AttemptOutcome) -> bool {
        let retried = |response: &Response| self.route.retry_on.contains(&response.head.status.as_u16());
        outcome.result.as_ref().is_ok_and(|response| !retried(response))
    }

    /// A deployment is not tried again before it asked for; not at all if that is too long.
    fn respect_wait(&mut self, outcome: &AttemptOutcome) {
        let Ok(response) = &outcome.result else { return };
        let Some(wait) = retry_after(&response.head.headers).filter(|wait| !wait.is_zero()) else { return };
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if wait < remaining.min(self.route.max_retry_after + Duration::from_millis(1)) {
            self.selection.wait_until(outcome.index, Instant::now() + wait);
        } else {
            self.selection.exclude(outcome.index);
        }
    }

    async fn finish(mut self, flow: &mut Flow, outcome: AttemptOutcome) -> Result<Response> {
        let route = Arc::clone(&self.route);
        let deployment = &route.deployments[outcome.index];
        flow.tag(format!("upstream:{}", deployment.upstream.name));
        if self.retries > 0 {
            flow.tag(format!("retry:{}", self.retries));
        }
        let mut response = self.request.answer(flow, outcome, self.deadline).await?;
        if route.is_configured {
            flow.tag(format!("deployment:{}", deployment.name));
            let headers = &mut response.head.headers;
            headers.append_unchecked(ROUTE_HEADER, route.name.as_bytes());
            headers.append_unchecked(DEPLOYMENT_HEADER, deployment.name.as_bytes());
            headers.append_unchecked(ATTEMPTS_HEADER, self.sent.to_string().as_bytes());
        }
        Ok(response)
    }

    fn fail(self, flow: &mut Flow, last: LastFailure) -> Result<Response> {
        if self.retries > 0 {
            flow.tag(format!("retry:{}", self.retries));
        }
        let refusal = match last {
            LastFailure::Answered(response, _) => return Ok(response),
            LastFailure::Refused(refusal) => refusal,
            LastFailure::Failed(e) if e.kind() == ErrorKind::UpstreamTimeout => {
                LlmRefusal::new(StatusCode::GATEWAY_TIMEOUT, "provider_error", "timeout", e.to_string())
            }
            LastFailure::Failed(e) => LlmRefusal::new(
                StatusCode::BAD_GATEWAY,
                "provider_error",
                "unreachable",
                format!("no upstream answered: {e}"),
            ),
            LastFailure::None => self.nothing_sent(),
        };
        Ok(refusal_response(flow, &refusal))
    }

    /// Why no deployment was sent the request.
    fn nothing_sent(&self) -> LlmRefusal {
        if let Some((deployment, wait)) = self.selection.held_back(&self.route, Instant::now()) {
            return LlmRefusal { retry_after: Some(Duration::from_secs(wait)), ..circuit_open(&deployment.name) };
        }
        if self.selection.is_empty() {
            let name = &self.route.name;
            let message = format!(
                "no deployment of llm.route.{name} may be sent this request: other redaction policies apply there"
            );
            return LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "provider_error", "upstream_unavailable", message);
        }
        let message = "no upstream could be asked in time (llm.provider.NAME.budget, llm.route.NAME.timeout)";
        LlmRefusal::new(StatusCode::GATEWAY_TIMEOUT, "provider_error", "timeout", message)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_probe_that_is_not_sent_is_returned() {
        let config = json!({
            "provider": { "a": { "url": "http://a" } },
            "route": { "r": { "deployments": [{ "provider": "a" }], "cooldown_failures": 1, "cooldown": "1ms" } },
        });
        let config = serde_json::from_value(config).unwrap();
        let table = LlmGateway::compile(&config, &|text: &str| Ok(text.to_owned())).unwrap();
        let route = table.route_of_model("r").unwrap();
        let (health, failed) = (&route.deployments[0].health, Instant::now());
        health.record_result(false, failed);
        let later = failed + Duration::from_millis(100);
        assert!(health.allows(later) && !health.allows(later), "one probe at a time");
        drop(HeldProbe::new(route, 0));
        assert!(health.allows(later), "the next request is the probe");
        HeldProbe::new(route, 0).keep();
        assert!(!health.allows(later), "it was sent, and its result decides");
    }
}
