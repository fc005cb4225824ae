//! Webhooks: events of LLM traffic (what a request was and what became of it, without content) in batches of JSON, posted
//! with the headers and the signature of Standard Webhooks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use interflow_tasks::{HttpPost, HttpSink, PostFormat, PostMessage, PostPolicy, SinkCounts, SinkQueue};
use interflow_types::{Headers, HttpClient, Timestamp, Url, random_token};
use serde_json::{Value, json};
use sha2::Sha256;

use super::{CallTelemetry, RedactionFindings, TelemetryWebhookConfig, WebhookEvent};

/// Events in one message.
const MAX_BATCH: usize = 100;
const ATTEMPTS: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_secs(1);

type EventQueue = Arc<SinkQueue<HttpSink<EventBatch>>>;

/// The webhooks of a configuration.
#[derive(Clone, Default)]
pub(super) struct Webhooks(Arc<[(Vec<WebhookEvent>, EventQueue)]>);

impl Webhooks {
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(
        configs: &[TelemetryWebhookConfig],
        client: &Arc<dyn HttpClient>,
        counts: &Arc<SinkCounts>,
    ) -> Result<Self, String> {
        let all = configs.iter().enumerate().map(|(index, config)| {
            let queue = event_queue(config, Arc::clone(client), Arc::clone(counts));
            Ok((config.events.clone(), queue.map_err(|e| format!("telemetry.webhook[{index}].{e}"))?))
        });
        Ok(Self(all.collect::<Result<Vec<_>, String>>()?.into()))
    }

    pub fn send(&self, f: &CallTelemetry<'_>) {
        if self.0.is_empty() {
            return;
        }
        let kind = kind_of(f);
        let mut event: Option<Value> = None;
        for (events, queue) in self.0.iter() {
            if events.contains(&kind) || events.contains(&WebhookEvent::Request) {
                queue.push(event.get_or_insert_with(|| describe(f)).clone());
            }
        }
    }
}

fn event_queue(
    config: &TelemetryWebhookConfig,
    client: Arc<dyn HttpClient>,
    counts: Arc<SinkCounts>,
) -> Result<EventQueue, String> {
    let secret = |key: &str, value: &str| interflow_files::resolve_secret_ref(value).map_err(|e| format!("{key}: {e}"));
    let address = secret("url", &config.url)?;
    let url = Url::of_service(&address).map_err(|e| format!("url: {e}; write it as https://host/path"))?;
    let mut headers = Headers::new();
    for (name, value) in &config.headers {
        let key = format!("headers.{name}");
        headers.append(name, secret(&key, value)?).map_err(|e| format!("{key}: {e}"))?;
    }
    let key = config.secret.as_deref().map(|value| secret("secret", value)).transpose()?;
    let key = key.map(|text| match text.strip_prefix("whsec_") {
        Some(encoded) => {
            STANDARD.decode(encoded.trim()).map_err(|_| "secret: what follows whsec_ is not Base64".to_owned())
        }
        None => Ok(text.into_bytes()),
    });
    if config.events.is_empty() {
        return Err("events: empty; write request, refused or failed".into());
    }
    let may_retry = |_| true;
    let policy = PostPolicy { timeout: config.timeout.0, attempts: ATTEMPTS, first_pause: FIRST_PAUSE, may_retry };
    let post = HttpPost::new("webhook", url, headers, policy);
    let format = Arc::new(EventBatch { secret: key.transpose()? });
    let sink = HttpSink { format, post, client, interval: config.interval.0 };
    Ok(SinkQueue::new(sink, config.max_queue as usize, counts))
}

/// Makes messages of events, and signs them if there is a secret.
struct EventBatch {
    secret: Option<Vec<u8>>,
}

impl PostFormat for EventBatch {
    type Item = Value;

    fn message(&self, events: &mut VecDeque<Value>) -> PostMessage {
        let events: Vec<Value> = events.drain(..events.len().min(MAX_BATCH)).collect();
        // By the id the receiver knows a batch that it has.
        let id = format!("msg_{}", random_token());
        let body = json!({"type": "interflow.events", "id": id, "events": events}).to_string();
        PostMessage { id, body: body.into() }
    }

    fn sign(&self, message: &PostMessage, headers: &mut Headers) {
        let seconds = (Timestamp::now().micros() / 1_000_000).to_string();
        headers.append_unchecked(b"webhook-id", message.id.as_bytes());
        headers.append_unchecked(b"webhook-timestamp", seconds.as_bytes());
        if let Some(secret) = &self.secret {
            let signature = sign(secret, &message.id, &seconds, &message.body);
            headers.append_unchecked(b"webhook-signature", signature.as_bytes());
        }
    }
}

/// The signature of Standard Webhooks: of id, time and body, so that an old batch cannot be replayed as a new one.
fn sign(secret: &[u8], id: &str, seconds: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
}

fn kind_of(f: &CallTelemetry<'_>) -> WebhookEvent {
    match f.refused {
        Some(_) => WebhookEvent::Refused,
        None if f.failed_at_provider() => WebhookEvent::Failed,
        None => WebhookEvent::Request,
    }
}

pub(super) fn describe(f: &CallTelemetry<'_>) -> Value {
    let usage = f.usage.unwrap_or_default();
    let kind = match kind_of(f) {
        WebhookEvent::Request => "request.completed",
        WebhookEvent::Refused => "request.refused",
        WebhookEvent::Failed => "request.failed",
    };
    json!({
        "type": kind,
        "time": f.flow.clock.started_at().micros(),
        "flow": f.flow.id.to_string(),
        "provider": f.provider(),
        "model": f.model(),
        "operation": f.exchange.operation.as_str(),
        "user": f.flow.user.as_deref(),
        "key": f.key,
        "status": f.status(),
        "error": f.error().map(|(_, code)| code),
        "duration_ms": f.flow.timings.done.unwrap_or_default() / 1_000,
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cached_tokens": usage.cache_read,
        "cost_usd": f.micros.map(|micros| micros as f64 / 1e6),
        "entities": f.found.map_or(0, RedactionFindings::total),
        "tags": f.tags(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signature_is_that_of_standard_webhooks() {
        // The example of the specification.
        let secret = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signature = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", b"{\"test\": 2432232314}");
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }
}
