//! `/api/sessions` and `/api/credentials`: approval sessions and secrets for placeholders, each bound to hosts.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use interflow_approvals::config::{ApprovalAction, RuleSpec, SecretSpec, SessionSpec};
use interflow_approvals::{SecretView, SessionView, default_hosts};
use interflow_types::units::HumanDuration;
use interflow_types::{Timestamp, random_bytes};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::json_format::{self, GreyproxyRuleInput};
use super::{GreyproxyApiState, GreyproxyError, GreyproxyResult, GreyproxyState, LenientJson};

/// Session lifetime without a heartbeat in seconds, if the client gives none.
const DEFAULT_TTL: u64 = 900;
/// Maximum session lifetime, in seconds.
const MAX_TTL: u64 = 3600;
/// Maximum size of a session's metadata, in bytes.
const MAX_METADATA: usize = 64 << 10;
/// Prefix of placeholders.
const PREFIX: &str = "greyproxy:credential:v1:";

/// Metadata given by a session.
#[derive(Clone, Default)]
pub(super) struct SessionMetadata {
    labels: BTreeMap<String, String>,
    metadata: Map<String, Value>,
    ttl: u64,
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct SessionInput {
    session_id: String,
    container_name: String,
    mappings: BTreeMap<String, String>,
    labels: BTreeMap<String, String>,
    global_credentials: Vec<String>,
    metadata: Map<String, Value>,
    ttl_seconds: u64,
    network_rules: Vec<GreyproxyRuleInput>,
    allow_all: bool,
    /// Interflow's extension: the hosts a credential is for, by its placeholder or its label.
    hosts: BTreeMap<String, Vec<String>>,
}

/// `GET /api/sessions`
pub(super) async fn list(State(grey): GreyproxyApiState) -> Json<Value> {
    let sessions = grey.approvals.sessions();
    let mut said = grey.said.lock();
    said.retain(|id, _| sessions.iter().any(|s| s.id == *id));
    Json(sessions.iter().map(|s| session_json(s, said.get(&s.id))).collect())
}

fn session_json(session: &SessionView, said: Option<&SessionMetadata>) -> Value {
    let said = said.cloned().unwrap_or_default();
    let labels: Vec<&String> = said.labels.values().collect();
    json!({
        "session_id": session.id,
        "container_name": session.agent,
        "credential_labels": labels,
        "labels": said.labels,
        "ttl_seconds": said.ttl,
        "created_at": json_format::format_timestamp(session.began),
        "expires_at": json_format::format_timestamp(session.until),
        "last_heartbeat": json_format::format_timestamp(Timestamp::from_micros(session.until.micros().saturating_sub(said.ttl * 1_000_000))),
        "substitution_count": session.secrets.iter().map(|s| s.used).sum::<u64>(),
        "metadata": said.metadata,
    })
}

impl GreyproxyState {
    /// The hosts that a credential may be sent to; empty if unknown.
    fn hosts_of(&self, label: &str, value: &str, given: Option<&Vec<String>>) -> Vec<String> {
        let given = given.filter(|h| !h.is_empty()).cloned();
        let known = || Some(default_hosts::default_hosts(label, value)).filter(|h| !h.is_empty());
        given.or_else(known).unwrap_or_else(|| self.config.credential_hosts.clone())
    }
}

/// `POST /api/sessions`: replaces a session of the same id.
pub(super) async fn create(
    State(grey): GreyproxyApiState,
    LenientJson(new): LenientJson<SessionInput>,
) -> GreyproxyResult {
    for (name, value) in [("session_id", &new.session_id), ("container_name", &new.container_name)] {
        if value.is_empty() {
            return Err(GreyproxyError::bad_request(format!("{name} is required")));
        }
    }
    let nothing = new.mappings.is_empty() && new.global_credentials.is_empty() && new.network_rules.is_empty();
    if nothing && !new.allow_all {
        return Err(GreyproxyError::bad_request("no credentials or network rules provided"));
    }
    let globals = global_placeholders(&grey, &new.global_credentials)?;
    let mut rules = new
        .network_rules
        .iter()
        .map(GreyproxyRuleInput::spec)
        .collect::<Result<Vec<_>, _>>()
        .map_err(GreyproxyError::bad_request)?;
    // The session already implies the agent.
    rules.iter_mut().for_each(|r| r.agents.clear());
    if new.allow_all {
        rules.push(RuleSpec::new(ApprovalAction::Allow));
    }
    let (mut secrets, mut unbound) = (Vec::new(), Vec::new());
    for (placeholder, value) in &new.mappings {
        let label = new.labels.get(placeholder).cloned().unwrap_or_else(|| placeholder.clone());
        let given = new.hosts.get(placeholder).or_else(|| new.hosts.get(&label));
        let hosts = grey.hosts_of(&label, value, given);
        if hosts.is_empty() {
            unbound.push(label);
            continue;
        }
        let label: String = label.chars().filter(|c| !c.is_whitespace() && !c.is_control()).take(100).collect();
        secrets.push(SecretSpec {
            label,
            value: value.clone(),
            hosts,
            placeholder: Some(placeholder.clone()),
            plain_http: false,
        });
    }
    let ttl = if new.ttl_seconds == 0 { DEFAULT_TTL } else { new.ttl_seconds.min(MAX_TTL) };
    let view = grey.approvals.add_session(SessionSpec {
        id: Some(new.session_id.clone()),
        agent: Some(new.container_name.clone()),
        user: Some(new.container_name),
        ttl: Some(HumanDuration::from_secs(ttl)),
        rules,
        secrets,
        ..SessionSpec::default()
    })?;
    if !unbound.is_empty() {
        tracing::warn!(
            "the session {} has credentials that are bound to no host and are put in nowhere: {}; name hosts for \
            them in the session's `hosts`, or in compat.credential_hosts",
            view.id,
            unbound.join(", ")
        );
    }
    let metadata = if json!(new.metadata).to_string().len() <= MAX_METADATA { new.metadata } else { Map::new() };
    let mut labels = new.labels;
    labels.extend(globals.iter().map(|(label, placeholder)| (placeholder.clone(), label.clone())));
    grey.said.lock().insert(view.id.clone(), SessionMetadata { labels, metadata, ttl });
    grey.broadcast_event("session.created", json!(view.id));
    let mut answer = json!({
        "session_id": view.id,
        "expires_at": json_format::format_timestamp(view.until),
        "credential_count": new.mappings.len() + globals.len(),
        "rules_created": view.rules,
    });
    if !globals.is_empty() {
        answer["global_credentials"] = json!(globals);
    }
    if !unbound.is_empty() {
        answer["unbound_credentials"] = json!(unbound);
    }
    Ok(Json(answer))
}

/// The placeholders of globally stored credentials, by their labels.
fn global_placeholders(grey: &GreyproxyState, labels: &[String]) -> Result<BTreeMap<String, String>, GreyproxyError> {
    let kept: Vec<SecretView> = grey.approvals.secrets().into_iter().filter(|s| s.session.is_none()).collect();
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for label in labels {
        match kept.iter().find(|s| s.label == *label) {
            Some(secret) => drop(found.insert(label.clone(), secret.placeholder.clone())),
            None => missing.push(label.as_str()),
        }
    }
    if missing.is_empty() {
        Ok(found)
    } else {
        Err(GreyproxyError::bad_request(format!("unknown global credentials: {}", missing.join(", "))))
    }
}

/// `POST /api/sessions/:id/heartbeat`; file system reports of sandboxes are discarded.
pub(super) async fn heartbeat(State(grey): GreyproxyApiState, Path(id): Path<String>) -> GreyproxyResult {
    let gone = |_| GreyproxyError(StatusCode::NOT_FOUND, "session not found or expired".to_owned());
    let session = grey.approvals.heartbeat(&id).map_err(gone)?;
    grey.broadcast_event("session.heartbeat", json!(id));
    Ok(Json(json!({"session_id": session.id, "expires_at": json_format::format_timestamp(session.until)})))
}

/// `DELETE /api/sessions/:id`
pub(super) async fn remove(State(grey): GreyproxyApiState, Path(id): Path<String>) -> Json<Value> {
    let deleted = grey.approvals.end_session(&id).is_ok();
    grey.said.lock().remove(&id);
    if deleted {
        grey.broadcast_event("session.deleted", json!(id));
    }
    Json(json!({"session_id": id, "deleted": deleted}))
}

/// `GET /api/sessions/:id/fsevents`: always empty.
pub(super) async fn fs_events(Path(id): Path<String>) -> Json<Value> {
    Json(json!({"session_id": id, "events": [], "dropped": 0, "truncated": false}))
}

fn credential_id(label: &str) -> String {
    format!("cred_{:016x}", json_format::number(label))
}

fn credential_json(secret: &SecretView) -> Value {
    json!({
        "id": credential_id(&secret.label),
        "label": secret.label,
        "placeholder": secret.placeholder,
        "value_preview": "***",
        "created_at": secret.given.map(json_format::format_timestamp),
        "hosts": secret.hosts,
    })
}

/// `GET /api/credentials`
pub(super) async fn credentials(State(grey): GreyproxyApiState) -> Json<Value> {
    Json(grey.approvals.secrets().iter().filter(|s| s.session.is_none()).map(credential_json).collect())
}

#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct CredentialInput {
    label: String,
    value: String,
    /// Interflow's extension: the hosts it is for.
    hosts: Vec<String>,
}

/// `POST /api/credentials`
pub(super) async fn add_credential(
    State(grey): GreyproxyApiState,
    LenientJson(new): LenientJson<CredentialInput>,
) -> GreyproxyResult {
    for (name, value) in [("label", &new.label), ("value", &new.value)] {
        if value.is_empty() {
            return Err(GreyproxyError::bad_request(format!("{name} is required")));
        }
    }
    let hosts = grey.hosts_of(&new.label, &new.value, Some(&new.hosts));
    if hosts.is_empty() {
        return Err(GreyproxyError::bad_request(
            "it is not known which hosts this credential is for: give them as `hosts`, or set compat.credential_hosts",
        ));
    }
    let id = hex::encode(random_bytes::<16>());
    let spec = SecretSpec {
        label: new.label,
        value: new.value,
        hosts,
        placeholder: Some(format!("{PREFIX}global:{id}")),
        plain_http: false,
    };
    let made = grey.approvals.edit(|approvals, turn| approvals.add_secret(turn, spec)).await?;
    Ok(Json(credential_json(&made)))
}

/// `DELETE /api/credentials/:id`
pub(super) async fn remove_credential(State(grey): GreyproxyApiState, Path(id): Path<String>) -> GreyproxyResult {
    let kept = grey.approvals.secrets();
    let found = kept.iter().find(|s| s.session.is_none() && credential_id(&s.label) == id);
    let label = found.ok_or_else(|| GreyproxyError::not_found("credential"))?.label.clone();
    grey.approvals.edit(move |approvals, turn| approvals.remove_secret(turn, &label)).await?;
    Ok(Json(json!({"id": id, "deleted": true})))
}
