//! The client of one external detector: requests and responses.

use std::ops::Range;
use std::time::Instant;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use interflow_files::{check_field_secret, resolve_secret_ref};
use interflow_tasks::own_request;
use interflow_types::units::HumanDuration;
use interflow_types::{ByteStr, HttpClient, StatusCode, Url, percent};
use serde::Deserialize;
use serde_json::{Value, json};

use super::breaker::ServiceBreaker;
use super::config::{BackendConfig, BackendFailure, BackendKind};
use super::offsets::OffsetUnit;
use super::window::windows;
use crate::detect::Finding;
use crate::{Kind, Result};

/// Maximum size of a response in bytes: 32 MiB.
const MAX_RESPONSE_BYTES: usize = 32 << 20;

/// Maximum number of windows of one text in flight.
const MAX_CONCURRENT_WINDOWS: usize = 8;

/// One external detector, with its configuration validated.
pub(super) struct DetectorService {
    config: BackendConfig,
    url: Url,
    token: Option<String>,
    breaker: ServiceBreaker,
    /// Separates its findings from others in the cache: the whole configuration, since each setting may change them.
    scope: Vec<u8>,
}

/// A span in a service's response, in its own units; `score` is from 0 to 1. Philter's member names differ, and Presidio's
/// in part.
#[derive(Deserialize)]
struct RemoteSpan {
    #[serde(alias = "filterType", alias = "entity_type", default)]
    label: String,
    #[serde(alias = "characterStart")]
    start: u64,
    #[serde(alias = "characterEnd")]
    end: u64,
    #[serde(alias = "confidence", default = "default_score")]
    score: f64,
}

const fn default_score() -> f64 {
    1.0
}

impl DetectorService {
    pub fn new(config: &BackendConfig) -> Result<Self, String> {
        let url = service_url(config)?;
        let token = config.token.as_deref().map(|text| resolve_secret_ref(text).and_then(check_field_secret));
        let token = token.transpose().map_err(|e| format!("token: {e}"))?;
        for (key, limit) in [("timeout", config.timeout), ("request_timeout", config.request_timeout)] {
            if limit.0.is_zero() {
                return Err(format!("{key}: it must be longer than nothing"));
            }
        }
        let breaker = ServiceBreaker::new(config.breaker_failures, config.breaker_pause.0);
        let scope = format!("{config:?}").into_bytes();
        Ok(Self { config: config.clone(), url, token, breaker, scope })
    }

    pub fn scope(&self) -> &[u8] {
        &self.scope
    }

    pub const fn request_timeout(&self) -> HumanDuration {
        self.config.request_timeout
    }

    /// Whether a request must not go on without it.
    pub fn is_required(&self) -> bool {
        self.config.failure == BackendFailure::Closed
    }

    /// Handles a failure according to the configuration: an error, or a warning.
    pub fn failed(&self, why: &str) -> Result<()> {
        let what = format!("the service {} for a second opinion failed: {why}", self.url);
        self.config.failure.handle(what, "redact.backend failure")
    }

    /// The findings in a text, in bytes. Within the time limit for one text, and only if the service did not fail too
    /// often before.
    pub async fn find(&self, egress: &dyn HttpClient, text: &str) -> Result<Vec<Finding>, String> {
        if !self.breaker.allows(Instant::now()) {
            let pause = self.config.breaker_pause;
            return Err(format!("it failed several times in a row, and is not asked for {pause} (breaker_pause)"));
        }
        let limit = self.config.timeout;
        let answer = tokio::time::timeout(limit.0, self.find_now(egress, text)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {limit}")));
        match &answer {
            Ok(_) => self.breaker.record_success(),
            Err(_) if self.breaker.record_failure(Instant::now()) => {
                tracing::error!("the service {} for a second opinion failed too often in a row", self.url);
            }
            Err(_) => {}
        }
        answer
    }

    async fn find_now(&self, egress: &dyn HttpClient, text: &str) -> Result<Vec<Finding>, String> {
        match self.config.kind {
            BackendKind::Philter => {
                let answer = self.post(egress, "text/plain; charset=utf-8", text.to_owned().into()).await?;
                // Java counts UTF-16 code units, Python code points.
                self.findings(text, 0, OffsetUnit::Utf16, &answer)
            }
            BackendKind::Presidio => {
                let mut body = json!({
                    "text": text,
                    "language": self.config.language,
                    "score_threshold": f64::from(self.config.confidence) / 100.0
                });
                if self.config.labels != BackendConfig::default().labels && !self.config.labels.is_empty() {
                    body["entities"] = json!(self.config.labels);
                }
                let answer = self.post(egress, "application/json", body.to_string().into()).await?;
                self.findings(text, 0, OffsetUnit::Scalar, &answer)
            }
            BackendKind::Gliner => {
                let all = windows(text, self.config.window, self.config.overlap);
                let answers = futures_util::stream::iter(all)
                    .map(|window| self.find_in_window(egress, text, window))
                    .buffered(MAX_CONCURRENT_WINDOWS);
                answers.try_concat().await
            }
        }
    }

    /// The findings in a part of a text, with offsets in the whole text.
    async fn find_in_window(
        &self,
        egress: &dyn HttpClient,
        text: &str,
        window: Range<usize>,
    ) -> Result<Vec<Finding>, String> {
        let piece = text.get(window.clone()).unwrap_or_default();
        let body = json!({
            "text": piece,
            "labels": self.config.labels,
            "threshold": f64::from(self.config.confidence) / 100.0
        });
        let answer = self.post(egress, "application/json", body.to_string().into()).await?;
        self.findings(piece, window.start, OffsetUnit::Scalar, &answer)
    }

    /// Converts the response to findings. A span outside the text shows that the service scanned a different text.
    fn findings(&self, text: &str, base: usize, unit: OffsetUnit, answer: &[u8]) -> Result<Vec<Finding>, String> {
        let sure = |score: f64| (score.clamp(0.0, 1.0) * 100.0).round() as u8;
        parse_spans(self.config.kind, answer)?
            .into_iter()
            .filter(|t| sure(t.score) >= self.config.confidence && t.start != t.end)
            .map(|t| {
                let bytes = unit.to_byte_range(text, &(t.start..t.end)).ok_or("it reported a span outside the text")?;
                Ok(Finding::new(kind_for_label(&t.label), bytes.start + base..bytes.end + base, sure(t.score)))
            })
            .collect()
    }

    /// Posts a text; the response is at most [`MAX_RESPONSE_BYTES`].
    async fn post(&self, egress: &dyn HttpClient, media_type: &str, body: Bytes) -> Result<Bytes, String> {
        let mut request = own_request::post(self.url.clone(), media_type, body);
        own_request::authorize(&mut request.head.headers, self.token.as_deref())?;
        // The response body may contain the text, and must not be logged.
        let refusal = |status: StatusCode| (status != StatusCode::OK).then(|| format!("it answered {status}"));
        own_request::fetch_accepted(egress, request, MAX_RESPONSE_BYTES, refusal).await
    }
}

/// The URL with the default path of the kind of service, if it has none. Philter takes context and policy as
/// parameters.
fn service_url(config: &BackendConfig) -> Result<Url, String> {
    let wrong = |why: &str| format!("url: `{}`: {why}; write it as https://host:port", config.url);
    let (scheme, authority, path) = Url::split_service(&config.url).map_err(|e| wrong(&e.to_string()))?;
    let path = path.trim_end_matches('/');
    let path = match (config.kind, path) {
        (BackendKind::Philter, p) => {
            let p = if p.is_empty() { "/api/explain" } else { p };
            format!("{p}?c={}&p={}", percent::encoded(&config.context), percent::encoded(&config.policy))
        }
        (BackendKind::Presidio, "") => "/analyze".into(),
        (BackendKind::Gliner, "") => "/find".into(),
        (_, p) => p.to_owned(),
    };
    Ok(Url { scheme, authority, path: ByteStr::from(path) })
}

/// The spans in a response: of Philter's `/api/explain`, of Presidio's `/analyze`, or of GLiNER and Ph-Eye, in a list or in
/// a member `entities` or `spans`.
fn parse_spans(kind: BackendKind, answer: &[u8]) -> Result<Vec<RemoteSpan>, String> {
    let value: Value = serde_json::from_slice(answer).map_err(|_| "its answer is not JSON")?;
    let list = match kind {
        BackendKind::Philter => &value["explanation"]["appliedSpans"],
        BackendKind::Presidio => &value,
        BackendKind::Gliner => {
            ["entities", "spans"].iter().map(|n| &value[*n]).find(|v| v.is_array()).unwrap_or(&value)
        }
    };
    if kind == BackendKind::Philter && !list.is_array() {
        return Err("its answer holds no explanation.appliedSpans".into());
    }
    Vec::deserialize(list).map_err(|_| "its answer holds no list of spans as expected".into())
}

/// The built-in kind for a service's label. An unknown label counts as a person's name, the most common purpose of
/// such services.
fn kind_for_label(label: &str) -> Kind {
    let name = label.trim().to_ascii_lowercase().replace(['_', ' '], "-");
    let kind = match name.as_str() {
        "per" | "ph-eye" | "person-name" | "full-name" => Some(Kind::Person),
        "loc" | "address-city" => Some(Kind::Location),
        "crypto" => Some(Kind::Bitcoin),
        _ => Kind::of_entity(&name),
    };
    kind.unwrap_or(Kind::Person)
}
