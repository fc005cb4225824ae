//! Approvals: pending requests and decisions, rules, modes, sessions, secrets, and rules suggested from recorded
//! traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use interflow_approvals::config::{ApprovalAction, ApprovalMode, RuleSpec, SecretSpec, SessionSpec};
use interflow_approvals::{
    Approvals, ApprovalsError, PendingRequest, Resolution, ResolutionResult, ResolvedQuestion, RuleView, SecretView,
    SessionView,
};
use interflow_files::EditTurn;
use interflow_store::{FlowRecord, ListOptions, ListOrder};
use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use interflow_types::{Microseconds, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::api::blocking::run_query;
use crate::api::edited::edits::run_edit;
use crate::api::input::{StrictJson, StrictQuery, strict_query};
use crate::error::{ApiError, Result};
use crate::identity::caller::Caller;
use crate::pending::queue::no_approvals;
use crate::state::{AdminState, SharedState};

/// Maximum duration of a long poll.
pub(crate) const MAX_WAIT: Duration = Duration::from_secs(60);
/// Maximum number of recorded flows that a suggestion is based on.
const MAX_SUGGESTION_FLOWS: usize = 50_000;
const PAGE: usize = 1000;
/// Number of hosts below one domain from which a rule for the whole domain is suggested.
const MIN_HOSTS_FOR_DOMAIN_RULE: usize = 4;

impl AdminState {
    pub(crate) fn approvals(&self) -> Result<&Arc<Approvals>> {
        self.approvals.as_ref().ok_or_else(no_approvals)
    }
}

/// Runs a change of what approvals store.
async fn edit<T: Send + 'static>(
    state: &AdminState,
    change: impl FnOnce(&Approvals, &EditTurn) -> Result<T, ApprovalsError> + Send + 'static,
) -> Result<T> {
    let approvals = Arc::clone(state.approvals()?);
    run_edit(state, move |turn| Ok(change(&approvals, turn)?)).await
}

impl From<ApprovalsError> for ApiError {
    fn from(error: ApprovalsError) -> Self {
        let (status, kind) = match &error {
            ApprovalsError::NotFound(_) => (StatusCode::NOT_FOUND, "not_found"),
            ApprovalsError::Invalid(_) => (StatusCode::BAD_REQUEST, "bad_request"),
            ApprovalsError::Io(_) => (StatusCode::INTERNAL_SERVER_ERROR, "disk"),
        };
        Self::new(status, kind, error.to_string())
    }
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct PendingWatchParams {
    /// Wait until the version is another than this.
    pub after: Option<u64>,
    /// How long, at most: 25s.
    pub wait: Option<HumanDuration>,
}

/// The active mode.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ModeView {
    mode: ApprovalMode,
    /// When a temporary mode ends; null if it is the configured one, or does not end by itself.
    mode_until: Option<Timestamp>,
    mode_is_configured: bool,
}

impl ModeView {
    fn of(approvals: &Approvals) -> Self {
        let temporary = approvals.temporary_mode();
        Self {
            mode: approvals.mode(),
            mode_until: temporary.and_then(|(_, until)| until),
            mode_is_configured: temporary.is_none(),
        }
    }
}

/// Pending requests, and the active mode.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ApprovalsView {
    #[serde(flatten)]
    mode: ModeView,
    /// Increases with each change.
    version: u64,
    /// How long a request waits before it is denied.
    timeout: Microseconds,
    pending: Vec<PendingRequest>,
}

/// `GET /approvals`: at once, or as soon as the version differs from the given one. A client that passes on the
/// version of each answer misses no change.
pub async fn list(
    state: SharedState,
    StrictQuery(watch): StrictQuery<PendingWatchParams>,
) -> Result<Json<ApprovalsView>> {
    let approvals = state.approvals()?;
    if let Some(after) = watch.after {
        let patience = watch.wait.map_or(Duration::ZERO, |w| w.0).min(MAX_WAIT);
        // Whether or not it timed out, the response is the current state.
        let _ = tokio::time::timeout(patience, approvals.waiting.changed_since(after)).await;
    }
    let version = approvals.waiting.version();
    Ok(Json(ApprovalsView {
        mode: ModeView::of(approvals),
        version,
        timeout: approvals.timeout().into(),
        pending: approvals.waiting.list(),
    }))
}

/// `POST /approvals/{id}`: decides a pending request. A request that was decided or timed out meanwhile is not found.
pub async fn resolve(
    state: SharedState,
    caller: Caller,
    Path(id): Path<u64>,
    StrictJson(answer): StrictJson<Resolution>,
) -> Result<Json<ResolutionResult>> {
    let action = answer.action;
    let done = edit(&state, move |approvals, turn| approvals.resolve(turn, id, &answer)).await?;
    caller.record_detail(json!({ "action": action, "flows": done.flows, "rule": done.rule }));
    Ok(Json(done))
}

/// Requests that are no longer pending, the latest first. Only those since the start.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ApprovalHistory {
    answers: Vec<ResolvedQuestion>,
}

pub async fn history(state: SharedState) -> Result<Json<ApprovalHistory>> {
    Ok(Json(ApprovalHistory { answers: state.approvals()?.waiting.history() }))
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModeRequest {
    /// Null or absent for the configured one.
    mode: Option<ApprovalMode>,
    /// How long it is active; if absent, until it is set back, or without a shared store until Interflow stops.
    #[serde(default, rename = "for")]
    lasting: Option<HumanDuration>,
}

/// `POST /approvals/mode`: the mode ends by itself after `for`, without a change of the configuration.
pub async fn mode(
    state: SharedState,
    caller: Caller,
    StrictJson(new): StrictJson<ModeRequest>,
) -> Result<Json<ModeView>> {
    let approvals = state.approvals()?;
    caller.record_detail(json!({ "mode": new.mode, "for": new.lasting }));
    let mode = new.mode.map(|mode| (mode, new.lasting.map(|l| l.0)));
    edit(&state, move |approvals, turn| approvals.change_mode(turn, mode)).await?;
    Ok(Json(ModeView::of(approvals)))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ApprovalRules {
    rules: Vec<RuleView>,
}

pub async fn rules(state: SharedState) -> Result<Json<ApprovalRules>> {
    Ok(Json(ApprovalRules { rules: state.approvals()?.rules() }))
}

pub async fn add_rule(
    state: SharedState,
    caller: Caller,
    StrictJson(spec): StrictJson<RuleSpec>,
) -> Result<Json<RuleView>> {
    caller.record_detail(json!({ "rule": spec }));
    Ok(Json(edit(&state, move |approvals, turn| approvals.add_rule(turn, spec)).await?))
}

pub async fn remove_rule(state: SharedState, Path(id): Path<String>) -> Result<StatusCode> {
    edit(&state, move |approvals, turn| approvals.remove_rule(turn, &id)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Sessions {
    sessions: Vec<SessionView>,
}

pub async fn sessions(state: SharedState) -> Result<Json<Sessions>> {
    Ok(Json(Sessions { sessions: state.approvals()?.sessions() }))
}

pub async fn add_session(
    state: SharedState,
    caller: Caller,
    StrictJson(spec): StrictJson<SessionSpec>,
) -> Result<Json<SessionView>> {
    // Its secrets by their labels, never with their values.
    let labels: Vec<&str> = spec.secrets.iter().map(|secret| secret.label.as_str()).collect();
    caller.record_detail(json!({
        "id": spec.id, "agent": spec.agent, "user": spec.user, "client": spec.client, "pid": spec.pid,
        "process": spec.process, "secrets": labels,
    }));
    Ok(Json(edit(&state, move |approvals, _| approvals.add_session(spec)).await?))
}

/// `POST /sessions/{id}/heartbeat`: without heartbeats, a session ends by itself.
pub async fn heartbeat(state: SharedState, Path(id): Path<String>) -> Result<Json<SessionView>> {
    Ok(Json(state.approvals()?.heartbeat(&id)?))
}

pub async fn end_session(state: SharedState, Path(id): Path<String>) -> Result<StatusCode> {
    state.approvals()?.end_session(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Secrets {
    secrets: Vec<SecretView>,
}

pub async fn secrets(state: SharedState) -> Result<Json<Secrets>> {
    Ok(Json(Secrets { secrets: state.approvals()?.secrets() }))
}

pub async fn add_secret(
    state: SharedState,
    caller: Caller,
    StrictJson(spec): StrictJson<SecretSpec>,
) -> Result<Json<SecretView>> {
    // Never the value.
    caller.record_detail(json!({ "label": spec.label, "hosts": spec.hosts, "plain_http": spec.plain_http }));
    Ok(Json(edit(&state, move |approvals, turn| approvals.add_secret(turn, spec)).await?))
}

pub async fn remove_secret(state: SharedState, Path(label): Path<String>) -> Result<StatusCode> {
    edit(&state, move |approvals, turn| approvals.remove_secret(turn, &label)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SuggestionParams {
    /// The query; every flow when it is empty.
    query: String,
}

/// Rules that would allow recorded traffic.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Suggestions {
    suggestions: Vec<SuggestedRule>,
    /// Number of flows that they are based on.
    flows_examined: usize,
}

#[derive(Debug, PartialEq, Serialize, JsonSchema)]
struct SuggestedRule {
    /// How many of the examined flows it would have allowed.
    flows: u64,
    /// A sample of the paths.
    paths_seen: Vec<String>,
    rule: RuleSpec,
}

/// `GET /approvals/suggestions`
pub async fn suggestions(
    state: SharedState,
    StrictQuery(seen): StrictQuery<SuggestionParams>,
) -> Result<Json<Suggestions>> {
    let query = strict_query(&seen.query)?;
    // The newest flows, in pages: the list may be long, and a page holds whole rows.
    let (suggestions, flows_examined) = run_query(&state, move |store, wanted| {
        let mut options = ListOptions { query, order: ListOrder::Newest, after: None, limit: PAGE };
        let (mut hosts, mut looked) = (BTreeMap::new(), 0);
        while looked < MAX_SUGGESTION_FLOWS {
            let page = store.list_while(&options, &mut || wanted.check())?;
            page.iter().for_each(|row| count_flow(&mut hosts, row));
            looked += page.len();
            options.after = page.last().map(|r| r.id);
            if page.len() < PAGE || wanted.check() == ControlFlow::Break(()) {
                break;
            }
        }
        Ok((suggest(hosts), looked))
    })
    .await?;
    Ok(Json(Suggestions { suggestions, flows_examined }))
}

#[derive(Default)]
struct HostTraffic {
    flows: u64,
    methods: BTreeSet<String>,
    paths: BTreeSet<String>,
}

fn count_flow(places: &mut BTreeMap<(String, u16), HostTraffic>, row: &FlowRecord) {
    // Denied and failed requests are not evidence of what is needed.
    if row.error.as_ref().is_some_and(|e| e.kind == "denied") || row.imported {
        return;
    }
    let traffic = places.entry((row.host().into_owned(), row.authority.port)).or_default();
    traffic.flows += 1;
    if let Some(request) = &row.request {
        traffic.methods.insert(request.method.clone());
        // A sample for the reader; the rule itself does not restrict paths.
        if traffic.paths.len() < 5 {
            traffic.paths.insert(request.path.split('?').next().unwrap_or_default().to_owned());
        }
    }
}

/// One rule per host; where many hosts share a domain, one rule for the domain.
fn suggest(places: BTreeMap<(String, u16), HostTraffic>) -> Vec<SuggestedRule> {
    // Counted first: whether a host is merged depends on how many others share its domain.
    let mut below: BTreeMap<(String, u16), usize> = BTreeMap::new();
    for (host, port) in places.keys() {
        *below.entry((domain(host), *port)).or_default() += 1;
    }
    let mut merged: BTreeMap<(String, u16), HostTraffic> = BTreeMap::new();
    for ((host, port), place) in places {
        let domain = domain(&host);
        // Per port, because a rule for the domain opens this port on every host below it.
        let many =
            domain != host && below.get(&(domain.clone(), port)).is_some_and(|n| *n >= MIN_HOSTS_FOR_DOMAIN_RULE);
        let into = merged.entry((if many { format!("*.{domain}") } else { host }, port)).or_default();
        into.flows += place.flows;
        into.methods.extend(place.methods);
        into.paths.extend(place.paths);
    }
    let rule = |((host, port), place): ((String, u16), HostTraffic)| SuggestedRule {
        flows: place.flows,
        paths_seen: place.paths.into_iter().take(5).collect(),
        rule: RuleSpec {
            hosts: vec![host],
            ports: vec![port.to_string()],
            methods: place.methods.into_iter().collect(),
            ..RuleSpec::new(ApprovalAction::Allow)
        },
    };
    let mut rules: Vec<_> = merged.into_iter().map(rule).collect();
    rules.sort_by_key(|r| std::cmp::Reverse(r.flows));
    rules
}

/// The name without its first label, if at least two labels remain; addresses and short names unchanged.
fn domain(host: &str) -> String {
    match host.split_once('.') {
        Some((_, rest)) if rest.contains('.') && host.parse::<std::net::IpAddr>().is_err() => rest.to_owned(),
        _ => host.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(hosts: &[(&str, &str)]) -> Vec<SuggestedRule> {
        let mut places: BTreeMap<(String, u16), HostTraffic> = BTreeMap::new();
        for (host, method) in hosts {
            let place = places.entry(((*host).to_owned(), 443)).or_default();
            place.flows += 1;
            place.methods.insert((*method).to_owned());
        }
        suggest(places)
    }

    #[test]
    fn hosts_of_one_domain_are_merged_into_one_suggested_rule() {
        let rules = seen(&[
            ("a.cdn.test", "GET"),
            ("b.cdn.test", "GET"),
            ("c.cdn.test", "HEAD"),
            ("d.cdn.test", "GET"),
            ("api.test", "POST"),
            ("api.test", "GET"),
            ("192.0.2.7", "GET"),
        ]);
        let shown: Vec<(&str, String, u64)> =
            rules.iter().map(|r| (r.rule.hosts[0].as_str(), r.rule.methods.join(" "), r.flows)).collect();
        let row = |host, methods: &str, flows| (host, methods.to_owned(), flows);
        assert_eq!(
            shown,
            [row("*.cdn.test", "GET HEAD", 4), row("api.test", "GET POST", 2), row("192.0.2.7", "GET", 1)]
        );
    }
}
