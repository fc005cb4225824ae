//! Events of LLM traffic for webhooks: what a request was and what became of it, without content.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_types::{Headers, HttpClient, Url};
use serde_json::{Value, json};

use super::webhook::{WebhookSender, WebhookTarget};
use super::{CallTelemetry, TelemetryWebhookConfig, WebhookEvent};

/// The webhooks of a configuration.
#[derive(Clone, Default)]
pub(super) struct Webhooks(Arc<[(Vec<WebhookEvent>, Arc<WebhookSender>)]>);

impl Webhooks {
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(configs: &[TelemetryWebhookConfig], egress: &Arc<dyn HttpClient>) -> Result<Self, String> {
        let all = configs.iter().enumerate().map(|(index, config)| {
            let target = target(config).map_err(|e| format!("telemetry.webhook[{index}].{e}"))?;
            Ok((config.events.clone(), WebhookSender::new(target, Arc::clone(egress))))
        });
        Ok(Self(all.collect::<Result<Vec<_>, String>>()?.into()))
    }

    /// Events delivered and dropped.
    pub fn counts(&self) -> (u64, u64) {
        self.0.iter().fold((0, 0), |(sent, dropped), (_, sender)| (sent + sender.sent(), dropped + sender.dropped()))
    }

    pub fn send(&self, f: &CallTelemetry<'_>) {
        if self.0.is_empty() {
            return;
        }
        let kind = match f.refused {
            Some(_) => WebhookEvent::Refused,
            None if f.error().is_some() || f.status() >= 400 => WebhookEvent::Failed,
            None => WebhookEvent::Request,
        };
        let mut event: Option<Value> = None;
        for (events, sender) in self.0.iter() {
            if events.contains(&kind) || events.contains(&WebhookEvent::Request) {
                sender.send(event.get_or_insert_with(|| describe(f, kind)).clone());
            }
        }
    }
}

fn target(config: &TelemetryWebhookConfig) -> Result<WebhookTarget, String> {
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
    Ok(WebhookTarget {
        url,
        headers,
        secret: key.transpose()?,
        interval: config.interval.0,
        timeout: config.timeout.0,
        max_queue: config.max_queue as usize,
    })
}

fn describe(f: &CallTelemetry<'_>, kind: WebhookEvent) -> Value {
    let usage = f.usage.unwrap_or_default();
    let kind = match kind {
        WebhookEvent::Request => "request.completed",
        WebhookEvent::Refused => "request.refused",
        WebhookEvent::Failed => "request.failed",
    };
    json!({
        "type": kind,
        "time": f.flow.clock.started_at().micros(),
        "flow": f.flow.id.to_string(),
        "provider": f.provider(),
        "model": f.exchange.model.as_deref(),
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
        "entities": f.found.map_or(0, |found| found.request.values().chain(found.response.values()).sum::<u64>()),
        "tags": f.flow.tags.iter().take(32).map(|tag| str::to_owned(tag)).collect::<Vec<_>>(),
    })
}
