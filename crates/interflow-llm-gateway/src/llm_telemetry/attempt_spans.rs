//! The spans of the attempts at which the gateway sent a request, as children of the request's.

use interflow_llm::otlp::attribute;
use interflow_types::{Attempt, AttemptState};
use serde_json::{Value, json};

use super::bounded;

/// The spans of these attempts at a request that began at this time, in microseconds. Their usage has names of its own:
/// that of the request is their sum.
pub(super) fn spans(attempts: &[Attempt], trace: &str, request: &str, start: u64) -> Vec<Value> {
    (1..).zip(attempts).map(|(number, attempt)| span(number, attempt, trace, request, start)).collect()
}

fn span(index: u64, attempt: &Attempt, trace: &str, request: &str, start: u64) -> Value {
    // Different from the request's and from each other's.
    let id = u64::from_str_radix(request, 16).unwrap_or_default() ^ index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (begin, end) = (start + attempt.started, start + attempt.ended.unwrap_or(attempt.started));
    let (address, port) = match attempt.host.rsplit_once(':') {
        Some((address, port)) if !port.ends_with(']') => (address, port.parse().ok()),
        _ => (attempt.host.as_str(), None),
    };
    let mut attributes = vec![
        attribute("interflow.attempt.number", index),
        attribute("interflow.attempt.deployment", attempt.deployment.as_str()),
        attribute("interflow.attempt.state", attempt.state.as_str()),
        attribute("interflow.attempt.hedge", attempt.hedge),
        attribute("server.address", address),
        attribute("url.path", attempt.path.as_str()),
    ];
    attributes.extend(port.map(|port: u64| attribute("server.port", port)));
    attributes.extend(attempt.model.as_deref().map(|model| attribute("interflow.attempt.model", bounded(model))));
    attributes.extend(attempt.status.map(|status| attribute("http.response.status_code", status)));
    attributes.extend(attempt.error.map(|kind| attribute("error.type", kind.as_str())));
    attributes.extend(attempt.input_tokens.map(|tokens| attribute("interflow.attempt.input_tokens", tokens)));
    attributes.extend(attempt.output_tokens.map(|tokens| attribute("interflow.attempt.output_tokens", tokens)));
    attributes.extend(attempt.cost.map(|micros| attribute("interflow.attempt.cost_usd", micros as f64 / 1e6)));
    let is_good = attempt.state != AttemptState::Failed && attempt.error.is_none();
    json!({
        "traceId": trace,
        "spanId": format!("{id:016x}"),
        "parentSpanId": request,
        "name": format!("attempt {}", attempt.deployment),
        "kind": 3,
        "startTimeUnixNano": format!("{begin}000"),
        "endTimeUnixNano": format!("{end}000"),
        "attributes": attributes,
        "status": { "code": if is_good { 1 } else { 2 } },
    })
}
