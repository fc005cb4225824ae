//! Copies of requests for a shadow deployment. The copy is what the client's request is after redaction; its response
//! is recorded and discarded. Nothing about it delays or changes the client's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_limits::{DeploymentUsage, SHADOW_TAG, ServedModel, TagSet};
use interflow_llm::LlmCall;
use interflow_llm::event_stream::ResponseForm;
use interflow_types::{ByteStr, FlowClock, Response};

use super::LlmGateway;
use super::attempt::{RecordedAs, RoutedRequest, SendLimits, send};
use super::routing::Deployment;
use super::served::DeliveryState;
use crate::detector::UsageObserver;
use crate::exchange::response::stream;

/// Copies in progress per route; more are left out, so that a slow shadow does not hold memory without bound.
const MAX_IN_PROGRESS: u32 = 16;
/// Time limit of a copy's whole response.
const MAX_RESPONSE: Duration = Duration::from_secs(600);

/// Sends a copy in the background, for the configured share of requests.
pub(super) fn start(request: &RoutedRequest, tags: &[String]) {
    let Some(shadow) = &request.route.shadow else { return };
    let deployment = &shadow.deployment;
    let is_sampled = fastrand::f64() < shadow.share && request.suits(deployment);
    if !is_sampled || deployment.stats.busy() >= MAX_IN_PROGRESS || !deployment.health.allows(Instant::now()) {
        return;
    }
    let tags = tags.iter().cloned().chain(["shadow".to_owned(), format!("deployment:{}", deployment.name)]);
    tokio::spawn(run(RoutedRequest { is_unbound: false, ..request.clone() }, tags.map(ByteStr::from).collect()));
}

async fn run(mut request: RoutedRequest, tags: Vec<ByteStr>) {
    let route = Arc::clone(&request.route);
    let Some(shadow) = &route.shadow else { return };
    let deployment = &shadow.deployment;
    let prepared = request.prepare(deployment, Instant::now() + route.timeout).await;
    let attempt = match prepared.map(|prepared| prepared.map_err(|refusal| refusal.message)) {
        Ok(Ok(attempt)) => attempt,
        failed => {
            deployment.health.abandon_request();
            let why = failed.map_or_else(|e| e.to_string(), |refused| refused.err().unwrap_or_default());
            tracing::debug!("no copy for the shadow {}: {why}", deployment.name);
            return;
        }
    };
    let deadline = Instant::now() + route.timeout;
    let limits = SendLimits { attempt: deployment.limits, form: ResponseForm::default(), deadline, holds: false };
    let (copy, tags) = (attempt.into_request(), RecordedAs::Copy(tags));
    let (active, result) = send(&request.gateway, &route, deployment, copy, tags, limits).await;
    // Read anew: the client's call is another.
    let LlmCall { provider, operation, stream, grows, estimated_input, .. } = request.call;
    let call = LlmCall { provider, operation, stream, grows, estimated_input, ..LlmCall::default() };
    let is_charged = match result {
        Ok(Response { head, mut body }) => {
            let is_success = head.status.is_success();
            if is_success {
                let usage = UsageObserver::new(call.clone(), FlowClock::start());
                let framing = call.response_form().framing(&head.headers);
                body = stream::observe(active.follow(body), &head.headers, framing, usage);
            }
            // To its end, so that it is recorded as a whole.
            let read = async { while let Some(Ok(_)) = body.frame().await {} };
            let _ = tokio::time::timeout(MAX_RESPONSE, read).await;
            drop(body);
            is_success
        }
        Err(e) => DeliveryState::after(e.kind()) != DeliveryState::Unsent,
    };
    if is_charged {
        record(&request.gateway, deployment, request.served_model(deployment), &call);
    }
}

/// Counts what a copy used. The provider bills it to the operator; the client's key did not ask for it.
fn record(gateway: &LlmGateway, deployment: &Deployment, served: Option<ServedModel>, call: &LlmCall) {
    let (summary, unreported) = (call.summary(), call.counted().unreported);
    let mut tokens = summary.usage.unwrap_or_default();
    let is_estimated = tokens.input == 0 || unreported > 0;
    tokens.output = tokens.output.saturating_add(unreported);
    if tokens.input == 0 {
        tokens.input = call.estimated_input;
    }
    let answered = summary.model.map(|model| Arc::from(model.as_str()));
    let tags = TagSet::from([(SHADOW_TAG.to_owned(), deployment.name.to_string())]);
    gateway.limits().record_operator_spend(&DeploymentUsage { tokens, served, answered, is_estimated }, tags);
}
