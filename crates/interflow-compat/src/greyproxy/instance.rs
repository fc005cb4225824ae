//! Health, settings, silent mode, the certificate and maintenance.

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use interflow_approvals::config::ApprovalMode;
use interflow_conversations::conversations::endpoints::DECODERS;
use interflow_proxy::config::InterceptMode;
use interflow_types::units::HumanDuration;
use serde::Deserialize;
use serde_json::{Value, json};

use super::json_format;
use super::{GreyproxyApiState, GreyproxyError, GreyproxyResult, GreyproxyState, LenientJson};

/// Maximum duration of silent mode, in seconds.
const MAX_SILENT_SECONDS: u64 = 8 * 3600;

/// `GET /api/health`
pub(super) async fn health(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(json!({"status": "ok", "version": env!("CARGO_PKG_VERSION"), "ports": grey.ports, "server": "interflow"}))
}

fn notifications_json(grey: &GreyproxyState) -> Value {
    json!({"enabled": grey.approvals.notifies(), "available": true, "backend": "interflow", "supportsActions": false,
        "claims": grey.approvals.notifier_count()})
}

/// `GET` and `PUT /api/notifications`: reports the state, which only the configuration can change.
pub(super) async fn notifications(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(notifications_json(&grey))
}

/// `GET /api/settings`
pub(super) async fn settings(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(all_settings(&grey))
}

fn all_settings(grey: &GreyproxyState) -> Value {
    let config = grey.admin.engine.config();
    let cert = certificate(grey);
    json!({
        "theme": *grey.theme.lock(),
        "notifications": notifications_json(grey),
        "notificationsEnabled": grey.approvals.notifies(),
        "mitm": {"enabled": config.intercept.mode != InterceptMode::None, "certGenerated": true,
            "certPath": cert["certPath"], "installed": Value::Null},
        "mitmEnabled": config.intercept.mode != InterceptMode::None,
        "conversations": {"enabled": grey.admin.conversations.is_some()},
        "conversationsEnabled": grey.admin.conversations.is_some(),
        "redactedHeaders": grey.admin.config()["record"]["mask_headers"],
    })
}

/// `PUT /api/settings`: changes the theme, and whether TLS is intercepted; everything else is set in the configuration.
pub(super) async fn change_settings(
    State(grey): GreyproxyApiState,
    LenientJson(given): LenientJson<Value>,
) -> GreyproxyResult {
    if let Some(theme) = given["theme"].as_str() {
        if !matches!(theme, "system" | "light" | "dark") {
            return Err(GreyproxyError::bad_request("theme must be system, light, or dark"));
        }
        theme.clone_into(&mut grey.theme.lock());
    }
    if let Some(enabled) = given["mitmEnabled"].as_bool().or_else(|| given["mitm"]["enabled"].as_bool()) {
        let mut config = grey.admin.engine.config();
        let is_on = config.intercept.mode != InterceptMode::None;
        if enabled != is_on {
            config.intercept.mode = if enabled { InterceptMode::All } else { InterceptMode::None };
            grey.admin.engine.reload(config).map_err(|e| GreyproxyError::bad_request(e.to_string()))?;
        }
    }
    Ok(Json(all_settings(&grey)))
}

fn silent_mode_json(grey: &GreyproxyState) -> Value {
    match grey.approvals.temporary_mode() {
        Some((mode, until)) if mode != ApprovalMode::Ask => json!({
            "active": true,
            "enabled": true,
            "mode": if mode == ApprovalMode::Observe { "allow" } else { "deny" },
            "expires_at": until.map(json_format::format_timestamp),
        }),
        _ => json!({"active": false, "enabled": false, "mode": "", "expires_at": Value::Null}),
    }
}

/// `GET /api/allowall`
pub(super) async fn silent(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(silent_mode_json(&grey))
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SilentModeInput {
    mode: String,
    duration: String,
}

/// `POST /api/allowall`: suspends questions for a while; everything is allowed, or everything that no rule allows is
/// denied.
pub(super) async fn set_silent(
    State(grey): GreyproxyApiState,
    LenientJson(given): LenientJson<SilentModeInput>,
) -> GreyproxyResult {
    let mode = match given.mode.as_str() {
        "allow" => ApprovalMode::Observe,
        "deny" => ApprovalMode::Enforce,
        _ => return Err(GreyproxyError::bad_request("mode must be \"allow\" or \"deny\"")),
    };
    let lasting = match given.duration.as_str() {
        "restart" => None,
        text => {
            let span: Result<HumanDuration, _> = text.parse();
            let span = span.map_err(|_| {
                GreyproxyError::bad_request("invalid duration: write it as \"5m\" or \"1h\", or \"restart\"")
            })?;
            if span.0.as_secs() > MAX_SILENT_SECONDS || span.0.is_zero() {
                return Err(GreyproxyError::bad_request("duration exceeds maximum of 8h"));
            }
            Some(span.0)
        }
    };
    grey.approvals.edit(move |approvals, turn| approvals.set_mode(turn, Some((mode, lasting)))).await?;
    let now = silent_mode_json(&grey);
    grey.broadcast_event("allowall.changed", now.clone());
    Ok(Json(now))
}

/// `DELETE /api/allowall`
pub(super) async fn end_silent(State(grey): GreyproxyApiState) -> GreyproxyResult {
    grey.approvals.edit(|approvals, turn| approvals.set_mode(turn, None)).await?;
    let now = silent_mode_json(&grey);
    grey.broadcast_event("allowall.changed", now.clone());
    Ok(Json(now))
}

fn certificate(grey: &GreyproxyState) -> Value {
    json!({
        "generated": true,
        "certPath": "GET /api/cert/download",
        "keyPath": "",
        "fingerprint": grey.admin.engine.ca().fingerprint_sha256(),
        "installCommands": {"linux": "interflow ca install", "macos": "interflow ca install"},
    })
}

/// `GET /api/cert/status`
pub(super) async fn cert_status(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(certificate(&grey))
}

/// `POST /api/cert/generate`, `/api/cert/reload`: a certificate exists already and is active.
pub(super) async fn cert_unchanged(State(grey): GreyproxyApiState) -> Json<Value> {
    let message = "cert unchanged, no reload needed; `interflow ca rotate` makes a new one";
    Json(json!({"message": message, "certStatus": certificate(&grey)}))
}

/// `GET /api/cert/download`
pub(super) async fn cert_download(State(grey): GreyproxyApiState) -> Result<Response, GreyproxyError> {
    Response::builder()
        .header(header::CONTENT_TYPE, "application/x-pem-file")
        .header(header::CONTENT_DISPOSITION, "attachment; filename=interflow-ca.pem")
        .body(Body::from(grey.admin.engine.ca().certificate_pem().to_owned()))
        .map_err(|e| GreyproxyError(StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))
}

/// `POST /api/maintenance/rebuild-conversations`
pub(super) async fn rebuild(State(grey): GreyproxyApiState) -> GreyproxyResult {
    let live = grey.admin.conversations.clone();
    let live = live.ok_or_else(|| GreyproxyError(StatusCode::SERVICE_UNAVAILABLE, "nothing is recorded".to_owned()))?;
    tokio::spawn(async move {
        let done = live.rebuild().await;
        let state = if done.is_ok() { "completed" } else { "failed" };
        let progress = json!({"task": "rebuild-conversations", "status": state, "processed": done.unwrap_or_default()});
        grey.broadcast_event("maintenance.progress", progress);
    });
    Ok(Json(json!({"status": "started"})))
}

/// `POST /api/maintenance/redact-headers`: secrets in headers are masked when recorded, so there is nothing to do.
pub(super) async fn redact_headers() -> Json<Value> {
    Json(json!({"status": "completed", "processed": 0}))
}

/// `GET /api/maintenance/status`
pub(super) async fn maintenance() -> Json<Value> {
    Json(json!({"status": "idle", "running": false}))
}

/// `GET /api/dissectors`: the API formats that are parsed, for any host.
pub(super) async fn dissectors() -> Json<Value> {
    Json(json!({"items": DECODERS.map(|(name, _)| json!({"name": name}))}))
}
