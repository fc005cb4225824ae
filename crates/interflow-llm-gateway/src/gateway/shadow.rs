//! Copies of requests for a shadow deployment. The copy is what the client's request is after redaction; its response
//! is recorded and discarded. Nothing about it delays or changes the client's.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_types::Flow;

use super::attempt::{RoutedRequest, send};

/// Copies in progress per route; more are left out, so that a slow shadow does not hold memory without bound.
const MAX_IN_PROGRESS: u32 = 16;
/// Time limit of a copy's whole response.
const MAX_RESPONSE: Duration = Duration::from_secs(600);

/// Sends a copy in the background, for the configured share of requests.
pub(super) fn start(request: &RoutedRequest, flow: &Flow, tags: &[String]) {
    let Some(shadow) = &request.route.shadow else { return };
    let deployment = &shadow.deployment;
    let wanted = fastrand::f64() < shadow.share && request.suits(deployment);
    if !wanted || deployment.stats.busy() >= MAX_IN_PROGRESS || !deployment.health.allows(Instant::now()) {
        return;
    }
    let tags = tags.iter().cloned().chain(["shadow".to_owned(), format!("deployment:{}", deployment.name)]).collect();
    tokio::spawn(run(request.copy(flow), tags));
}

async fn run(mut request: RoutedRequest, tags: Vec<String>) {
    let route = Arc::clone(&request.route);
    let Some(shadow) = &route.shadow else { return };
    let deployment = &shadow.deployment;
    let attempt = match request.prepare(deployment).await {
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
    let (active, result) = send(&request.gateway, &route, deployment, attempt.into_request(), tags, deadline).await;
    let Ok(response) = result else { return };
    let mut body = if response.head.status.is_success() { active.follow(response.body) } else { response.body };
    // Read to its end, so that it is recorded as a whole.
    let read = async { while let Some(Ok(_)) = body.frame().await {} };
    let _ = tokio::time::timeout(MAX_RESPONSE, read).await;
}
