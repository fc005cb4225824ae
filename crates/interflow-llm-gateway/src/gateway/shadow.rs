//! Copies of requests for a shadow deployment. The copy is what the client's request is after redaction; its response
//! is recorded and discarded. Nothing about it delays or changes the client's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_codec::content_coding::ContentDecoder;
use interflow_limits::{DeploymentUsage, SHADOW_TAG, ServedModel, TagSet};
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::usage::UsageScanner;
use interflow_types::{BodyFrame, ByteStr, Flow};

use super::LlmGateway;
use super::attempt::{RecordedAs, RoutedRequest, SendLimits, StreamKind, send};
use super::routing::Deployment;
use super::served::DeliveryState;

/// Copies in progress per route; more are left out, so that a slow shadow does not hold memory without bound.
const MAX_IN_PROGRESS: u32 = 16;
/// Bound on the decoded size of a copy's response, whose usage is read.
const MAX_DECODED_BYTES: u64 = 1 << 30;
/// Time limit of a copy's whole response.
const MAX_RESPONSE: Duration = Duration::from_secs(600);

/// Sends a copy in the background, for the configured share of requests.
pub(super) fn start(request: &RoutedRequest, flow: &Flow, tags: &[String]) {
    let Some(shadow) = &request.route.shadow else { return };
    let deployment = &shadow.deployment;
    let is_sampled = fastrand::f64() < shadow.share && request.suits(deployment);
    if !is_sampled || deployment.stats.busy() >= MAX_IN_PROGRESS || !deployment.health.allows(Instant::now()) {
        return;
    }
    let tags = tags.iter().cloned().chain(["shadow".to_owned(), format!("deployment:{}", deployment.name)]);
    tokio::spawn(run(request.copy(flow), tags.map(ByteStr::from).collect()));
}

async fn run(mut request: RoutedRequest, tags: Vec<ByteStr>) {
    let route = Arc::clone(&request.route);
    let Some(shadow) = &route.shadow else { return };
    let deployment = &shadow.deployment;
    let attempt = match request.prepare(deployment, Instant::now() + route.timeout).await {
        Ok(Ok(attempt)) => attempt,
        Ok(Err(refusal)) => {
            deployment.health.abandon_request();
            tracing::debug!("no copy for the shadow {}: {}", deployment.name, refusal.message);
            return;
        }
        Err(e) => {
            deployment.health.abandon_request();
            tracing::debug!("no copy for the shadow {}: {e}", deployment.name);
            return;
        }
    };
    let deadline = Instant::now() + route.timeout;
    let limits = SendLimits { attempt: deployment.limits, stream: StreamKind::default(), deadline, holds: false };
    let (copy, tags) = (attempt.into_request(), RecordedAs::Copy(tags));
    let (active, result) = send(&request.gateway, &route, deployment, copy, tags, limits).await;
    let served = request.served_model(deployment);
    let input = request.call.estimated_input;
    let (response, is_success) = match result {
        Ok(response) => {
            let is_success = response.head.status.is_success();
            (response, is_success)
        }
        Err(e) => {
            if DeliveryState::after(e.kind()) != DeliveryState::Unsent {
                record(&request.gateway, deployment, served, input, &mut UsageScanner::new(StreamFraming::Whole));
            }
            return;
        }
    };
    let mut body = if is_success { active.follow(response.body) } else { response.body };
    let mut decoder = ContentDecoder::new(&response.head.headers, MAX_DECODED_BYTES).ok().flatten();
    let mut scanner = UsageScanner::new(StreamFraming::from_headers(&response.head.headers, request.call.grows));
    // Read to its end, so that it is recorded as a whole.
    let read = async {
        while let Some(Ok(frame)) = body.frame().await {
            let (BodyFrame::Data(data), true) = (frame, is_success) else { continue };
            match &mut decoder {
                None => scanner.push(&data),
                // What cannot be decoded has no usage.
                Some(decoder) => scanner.push(&decoder.push(&data).unwrap_or_default()),
            }
        }
        if let Some(rest) = decoder.as_mut().and_then(|decoder| decoder.finish().ok()) {
            scanner.push(&rest);
        }
    };
    let _ = tokio::time::timeout(MAX_RESPONSE, read).await;
    if is_success {
        record(&request.gateway, deployment, served, input, &mut scanner);
    }
}

/// Counts what a copy used. The provider bills it to the operator; the client's key did not ask for it.
fn record(
    gateway: &LlmGateway,
    deployment: &Deployment,
    served: Option<ServedModel>,
    input: u64,
    scanner: &mut UsageScanner,
) {
    let summary = scanner.finish().clone();
    let unreported = scanner.usage().unreported_output();
    let mut tokens = summary.usage.unwrap_or_default();
    let is_estimated = tokens.input == 0 || unreported > 0;
    tokens.output = tokens.output.saturating_add(unreported);
    if tokens.input == 0 {
        tokens.input = input;
    }
    let answered = summary.model.map(|model| Arc::from(model.as_str()));
    let tags = TagSet::from([(SHADOW_TAG.to_owned(), deployment.name.to_string())]);
    gateway.limits().record_operator_spend(&DeploymentUsage { tokens, served, answered, is_estimated }, tags);
}
