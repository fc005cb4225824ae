//! The instance itself: statistics, configuration, certificate authority, clients that bypass interception.

use std::net::SocketAddr;
use std::sync::atomic::Ordering::Relaxed;

use axum::Json;
use axum::http::StatusCode;
use interflow_archive::ArchiveProgress;
use interflow_proxy::observe::stats::{LATENCY_BOUNDS, StatsSnapshot};
use interflow_proxy::tunnel::pinning_bypass::BypassedClient;
use interflow_store::{InstanceRow, StoreStats};
use interflow_types::schema::JsonSchema;
use interflow_types::{Host, Microseconds, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::blocking::{run_query, store_stats};
use crate::api::input::{StrictJson, StrictQuery};
use crate::auth::sessions::{CODE_LIFETIME, LOGIN_PATH};
use crate::config_masking::mask_config;
use crate::doctor::DoctorFinding;
use crate::error::{ApiError, Result};
use crate::records::blocking;
use crate::reload::ReloadReport;
use crate::state::SharedState;

#[derive(Serialize, JsonSchema)]
pub(crate) struct Stats {
    version: &'static str,
    /// Time since the start.
    uptime: Microseconds,
    draining: bool,
    addresses: ListenAddresses,
    engine: StatsSnapshot,
    /// Upper bounds of the buckets of `engine.latency`, in microseconds.
    latency_bounds: Vec<u64>,
    /// The store; null if nothing is recorded.
    store: Option<StoreStats>,
    /// The archive of the record; null without `record.archive`.
    archive: Option<ArchiveProgress>,
    /// Connected clients of the event socket.
    event_clients: usize,
    held: HeldCounts,
}

#[derive(Serialize, JsonSchema)]
struct ListenAddresses {
    proxy: Vec<SocketAddr>,
    gateway: Vec<SocketAddr>,
    admin: SocketAddr,
}

#[derive(Serialize, JsonSchema)]
struct HeldCounts {
    /// Pending requests of approvals.
    approvals: usize,
    rules: usize,
}

pub async fn stats(state: SharedState) -> Result<Json<Stats>> {
    let store = store_stats(&state).await?;
    let engine = &state.engine;
    Ok(Json(Stats {
        version: env!("CARGO_PKG_VERSION"),
        uptime: engine.uptime().into(),
        draining: engine.is_draining(),
        addresses: ListenAddresses {
            proxy: engine.proxy_addresses().to_vec(),
            gateway: engine.gateway_addresses().to_vec(),
            admin: state.address,
        },
        engine: engine.snapshot(),
        latency_bounds: LATENCY_BOUNDS.to_vec(),
        store,
        archive: state.archive.as_ref().map(|progress| progress()),
        event_clients: state.viewers.open.load(Relaxed),
        held: HeldCounts {
            approvals: state.approvals.as_ref().map_or(0, |a| a.waiting.list().len()),
            rules: state.rules.as_ref().map_or(0, |r| r.runtime().holds.list().len()),
        },
    }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct InstanceList {
    /// The longest running first; empty unless the recording is in a shared store.
    instances: Vec<InstanceRow>,
}

/// `GET /instances`: the processes that record to the shared store.
pub async fn instances(state: SharedState) -> Result<Json<InstanceList>> {
    let instances = match state.records.store {
        Some(_) => run_query(&state, |store, _| Ok(store.instances()?)).await?,
        None => Vec::new(),
    };
    Ok(Json(InstanceList { instances }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ConfigView {
    /// Its sections, as in the configuration file, with secrets masked.
    #[schemars(with = "serde_json::Map<String, Value>")]
    config: Value,
}

/// `GET /config`: what the instance runs with now, without secrets.
pub async fn config(state: SharedState) -> Json<ConfigView> {
    let mut config = Value::clone(&state.config());
    // Addresses of compatibility modes are known to the proxy alone.
    if let (Value::Object(all), Ok(Value::Object(live))) = (&mut config, serde_json::to_value(state.engine.config())) {
        all.extend(live);
    }
    mask_config(&mut config);
    Json(ConfigView { config })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CredentialRequest {
    user: String,
}

/// An ephemeral credential of the proxy: it is not stored, and is lost with the process.
#[derive(Serialize, JsonSchema)]
pub(crate) struct IssuedCredential {
    user: String,
    password: String,
}

/// `POST /credentials`: Basic authentication separates user and password by a colon, so a user name has none (RFC
/// 7617).
pub async fn issue_credential(
    state: SharedState,
    StrictJson(wanted): StrictJson<CredentialRequest>,
) -> Result<Json<IssuedCredential>> {
    let CredentialRequest { user } = wanted;
    if user.is_empty() || user.contains(':') || user.chars().any(char::is_control) {
        let why = "a user's name is not empty, and holds no colon";
        return Err(ApiError::new(StatusCode::BAD_REQUEST, "bad_user", why));
    }
    Ok(Json(IssuedCredential { password: state.engine.issue_credential(&user), user }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct LoginLink {
    path: String,
    /// Seconds until it is no longer valid.
    expires_in: u64,
}

/// `POST /login-links`: a path that logs one browser in, once and within a short time, so that no token appears in a
/// URL.
pub async fn login_link(state: SharedState) -> Json<LoginLink> {
    let path = format!("{}?code={}", LOGIN_PATH, state.sessions.issue_code().await);
    Json(LoginLink { path, expires_in: CODE_LIFETIME.as_secs() })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReturnedCredential {
    user: String,
    password: String,
}

/// `POST /credentials/revoke`: succeeds for an unknown credential as well.
pub async fn revoke_credential(state: SharedState, StrictJson(pass): StrictJson<ReturnedCredential>) -> StatusCode {
    state.engine.revoke_credential(&pass.user, &pass.password);
    StatusCode::NO_CONTENT
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CaView {
    name: String,
    fingerprint_sha256: String,
    not_after: Timestamp,
    /// The certificate in PEM form, without its key.
    pem: String,
    /// Leaf certificates signed since the start.
    leaves_signed: u64,
    leaves_cached: usize,
}

pub async fn ca(state: SharedState) -> Json<CaView> {
    let ca = state.engine.ca();
    Json(CaView {
        name: ca.name().into(),
        fingerprint_sha256: ca.fingerprint_sha256(),
        not_after: ca.not_after(),
        pem: ca.certificate_pem().into(),
        leaves_signed: ca.leaves_signed(),
        leaves_cached: ca.leaves_cached(),
    })
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct DoctorReport {
    findings: Vec<DoctorFinding>,
}

/// `POST /reload`: reads the configuration and the files that it names again.
pub async fn reload(state: SharedState) -> Result<Json<ReloadReport>> {
    let Some(reload) = &state.reload else {
        let message = "this instance cannot reload its configuration";
        return Err(ApiError::unavailable("no_reload", message));
    };
    let done = reload().await;
    let refused = |why: String| {
        let message = format!("configuration not reloaded, the previous one stays active: {why}");
        ApiError::unprocessable("invalid_config", message)
    };
    Ok(Json(done.map_err(refused)?))
}

pub async fn doctor(state: SharedState) -> Result<Json<DoctorReport>> {
    let Some(look) = state.doctor.clone() else {
        let message = "this instance cannot look at itself";
        return Err(ApiError::unavailable("no_doctor", message));
    };
    // The checks read files and open connections.
    let findings = blocking(move || look()).await?;
    Ok(Json(DoctorReport { findings }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct BypassedClients {
    clients: Vec<BypassedClient>,
}

pub async fn bypassed_clients(state: SharedState) -> Json<BypassedClients> {
    Json(BypassedClients { clients: state.engine.bypassed_clients() })
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RetryParams {
    /// Only connections to this host; all if absent.
    host: Option<String>,
}

/// `DELETE /passthrough`: the next connection of these clients is intercepted again.
pub async fn clear_bypass(state: SharedState, StrictQuery(of): StrictQuery<RetryParams>) -> Result<StatusCode> {
    let host = of.host.map(|h| Host::parse(&h)).transpose();
    let host = host.map_err(|e| ApiError::bad_request(format!("`host` names no host: {e}")))?;
    state.engine.clear_bypass(host.as_ref());
    Ok(StatusCode::NO_CONTENT)
}
