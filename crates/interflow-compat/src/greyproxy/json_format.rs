//! Converts between Interflow's types and Greyproxy's JSON.

use interflow_approvals::config::{ApprovalAction, RuleSpec};
use interflow_approvals::{PendingQuestion, PendingRequest, RuleSource, RuleView};
use interflow_store::{ConversationSummary, FlowRow};
use interflow_types::Timestamp;
use interflow_types::units::HumanDuration;
use serde_json::{Map, Value, json};

/// A time in Greyproxy's format.
pub fn format_micros(micros: u64) -> String {
    let at = i64::try_from(micros).ok().and_then(|m| jiff::Timestamp::from_microsecond(m).ok());
    at.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time in Greyproxy's format.
pub fn format_timestamp(at: Timestamp) -> String {
    format_micros(at.micros())
}

/// A stable number for a name, small enough for JavaScript.
pub fn number(name: &str) -> i64 {
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
    (hash >> 12) as i64
}

/// What Greyproxy calls a client's container.
pub fn container(question: &PendingQuestion) -> String {
    let known = [&question.user, &question.container, &question.process].into_iter().flatten().next();
    known.cloned().unwrap_or_else(|| format!("unknown-{}", question.client))
}

fn container_of(row: &FlowRow) -> String {
    let process = row.client.process.as_ref().map(|p| p.name.as_str());
    let known = [row.user.as_deref(), row.client.container.as_deref(), process].into_iter().flatten().next();
    known.map_or_else(
        || row.client.peer.map_or_else(|| "unknown".to_owned(), |p| format!("unknown-{}", p.ip().to_canonical())),
        str::to_owned,
    )
}

pub fn rule(view: &RuleView) -> Value {
    let spec = &view.spec;
    let who = [&spec.agents, &spec.users, &spec.containers, &spec.processes, &spec.sessions];
    let pattern = |list: &[String]| if list.is_empty() { "*".to_owned() } else { list.join(",") };
    let kind = match (view.layer, &spec.until) {
        (RuleSource::Builtin, _) => "builtin",
        (_, Some(_)) => "temporary",
        (_, None) => "permanent",
    };
    json!({
        "id": number(&view.id),
        "container_pattern": who.into_iter().find(|l| !l.is_empty()).map_or_else(|| "*".to_owned(), |l| l.join(",")),
        "destination_pattern": pattern(&spec.hosts),
        "port_pattern": pattern(&spec.ports),
        "method_pattern": pattern(&spec.methods),
        "path_pattern": pattern(&spec.paths),
        "rule_type": kind,
        "action": spec.action,
        "created_at": format_timestamp(view.made),
        "expires_at": spec.until,
        "last_used_at": view.last_used.map(format_timestamp),
        "created_by": if view.removable { "admin" } else { "config" },
        "notes": spec.note,
        "is_active": true,
        "source": match view.layer { RuleSource::Builtin => "builtin", RuleSource::Session => "session", RuleSource::Global => "global" },
    })
}

/// A rule as sent by Greyproxy's clients.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct GreyproxyRuleInput {
    pub container_pattern: Option<String>,
    pub destination_pattern: Option<String>,
    pub port_pattern: Option<String>,
    pub method_pattern: Option<String>,
    pub path_pattern: Option<String>,
    pub action: Option<String>,
    pub rule_type: Option<String>,
    pub expires_at: Option<String>,
    pub notes: Option<String>,
}

/// The alternatives of a pattern; empty for one that matches everything.
fn patterns(text: Option<&str>) -> Vec<String> {
    let all: Vec<String> =
        text.unwrap_or("*").split(',').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
    if all.iter().any(|p| p == "*") { Vec::new() } else { all }
}

impl GreyproxyRuleInput {
    /// Converts to Interflow's rule type.
    ///
    /// # Errors
    /// The rule has no destination, or an action other than allow and deny.
    pub fn spec(&self) -> Result<RuleSpec, String> {
        let action = match self.action.as_deref().unwrap_or("allow") {
            "allow" => ApprovalAction::Allow,
            "deny" => ApprovalAction::Deny,
            other => return Err(format!("action must be allow or deny, not '{other}'")),
        };
        if self.destination_pattern.as_deref().is_none_or(|d| d.trim().is_empty()) {
            return Err("destination_pattern is required".to_owned());
        }
        let mut spec = RuleSpec::new(action);
        spec.agents = patterns(self.container_pattern.as_deref());
        spec.hosts = patterns(self.destination_pattern.as_deref());
        spec.ports = patterns(self.port_pattern.as_deref());
        spec.methods = patterns(self.method_pattern.as_deref());
        spec.paths = patterns(self.path_pattern.as_deref());
        spec.until = self.expires_at.clone().filter(|e| !e.is_empty());
        spec.note = self.notes.clone().filter(|n| !n.is_empty());
        Ok(spec)
    }
}

/// The scope and duration of a decision.
///
/// # Errors
/// The scope or duration is unknown.
pub fn resolution(action: &str, scope: &str, duration: &str) -> Result<Value, String> {
    let (ours, everyone) = match scope {
        "" | "exact" => ("host", false),
        "any_port" => ("any_port", false),
        "subdomain_wildcard" => ("subdomains", false),
        "all_containers" => ("host", true),
        other => return Err(format!("unknown scope '{other}'")),
    };
    let mut answer = json!({"action": action, "scope": ours, "everyone": everyone});
    match duration {
        "" | "permanent" => {}
        "once" => answer["for"] = json!("30s"),
        text => {
            let span: HumanDuration = text.parse().map_err(|_| format!("unknown duration '{text}'"))?;
            answer["for"] = json!(span);
        }
    }
    Ok(answer)
}

pub fn pending(held: &PendingRequest) -> Value {
    let q = &held.question;
    json!({
        "id": held.id,
        "container_name": container(q),
        "container_id": q.container.clone().unwrap_or_default(),
        "destination_host": q.host,
        "destination_port": q.port,
        "resolved_hostname": Value::Null,
        "first_seen": format_timestamp(held.since),
        "last_seen": format_timestamp(held.since),
        "attempt_count": held.waiting,
        "waiting_count": held.waiting,
        "method": q.method,
        "path": q.path,
    })
}

/// A number for a flow: its start time in microseconds.
pub fn flow_number(row: &FlowRow) -> u64 {
    row.started.micros()
}

/// A connection as in Greyproxy's log.
pub fn log(row: &FlowRow) -> Value {
    let blocked = row.error.as_ref().is_some_and(|e| e.kind == "denied");
    json!({
        "id": flow_number(row),
        "timestamp": format_micros(row.started.micros()),
        "container_name": container_of(row),
        "container_id": row.client.container,
        "destination_host": row.host(),
        "destination_port": row.authority.port,
        "resolved_hostname": row.tags.iter().find_map(|t| t.strip_prefix("dns:")),
        "method": row.request.as_ref().map_or_else(|| row.transport.as_str().to_uppercase(), |r| r.method.clone()),
        "result": if blocked { "blocked" } else { "allowed" },
        "rule_id": Value::Null,
        "response_time_ms": row.duration().map(|d| d / 1000),
    })
}

/// An exchange, with heads and bodies if these are given.
pub fn transaction(row: &FlowRow, bodies: Option<(String, String)>) -> Value {
    use interflow_types::Direction::{Request, Response};
    let mut out = json!({
        "id": flow_number(row),
        "timestamp": format_micros(row.started.micros()),
        "container_name": container_of(row),
        "destination_host": row.host(),
        "destination_port": row.authority.port,
        "method": row.request.as_ref().map_or("", |r| r.method.as_str()),
        "url": row.url(),
        "status_code": row.response.as_ref().map(|r| r.status),
        "request_body_size": row.request.as_ref().map(|r| r.body.size),
        "request_content_type": row.media_type(Request),
        "response_body_size": row.response.as_ref().map(|r| r.body.size),
        "response_content_type": row.media_type(Response),
        "duration_ms": row.duration().map(|d| d / 1000),
        "result": if row.error.as_ref().is_some_and(|e| e.kind == "denied") { "blocked" } else { "auto" },
        "substituted_credentials": row.tags.iter().filter_map(|t| t.strip_prefix("secret:")).collect::<Vec<_>>(),
        "flow_id": row.id.to_string(),
    });
    if let Some((request, response)) = bodies {
        for (name, side, body) in [("request", Request, request), ("response", Response, response)] {
            out[format!("{name}_headers")] = fields(row, side);
            out[format!("{name}_body")] = body.into();
        }
    }
    out
}

fn fields(row: &FlowRow, side: interflow_types::Direction) -> Value {
    let mut all: Map<String, Value> = Map::new();
    for (name, value) in row.headers(side).into_iter().flatten() {
        let name = String::from_utf8_lossy(name).into_owned();
        let list = all.entry(name).or_insert_with(|| json!([]));
        if let Value::Array(list) = list {
            list.push(String::from_utf8_lossy(value).into());
        }
    }
    Value::Object(all)
}

pub fn conversation(listed: &ConversationSummary) -> Value {
    let row = &listed.row;
    json!({
        "id": row.id,
        "model": row.model,
        "container_name": row.user,
        "provider": row.provider,
        "client_name": row.agent,
        "started_at": format_micros(row.started.micros()),
        "ended_at": format_micros(row.updated.micros()),
        "turn_count": row.turns,
        "system_prompt_summary": row.title,
        "parent_conversation_id": row.parent,
        "last_turn_has_response": true,
        "incomplete": false,
        "updated_at": format_micros(row.updated.micros()),
        "metadata": {"usage": listed.used},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greyproxy_rules_convert_to_interflow_rules() {
        let given: GreyproxyRuleInput = serde_json::from_value(json!({
            "container_pattern": "claude*", "destination_pattern": "*.example.com", "port_pattern": "443,8000-8999",
            "action": "deny", "notes": "no"
        }))
        .unwrap();
        let spec = given.spec().unwrap();
        assert_eq!(
            (spec.action, &*spec.agents[0], &*spec.hosts[0]),
            (ApprovalAction::Deny, "claude*", "*.example.com")
        );
        assert_eq!(spec.ports, ["443", "8000-8999"]);
        let any: GreyproxyRuleInput =
            serde_json::from_value(json!({"container_pattern": "*", "destination_pattern": "a.test"})).unwrap();
        let spec = any.spec().unwrap();
        assert!(spec.agents.is_empty() && spec.ports.is_empty() && spec.action == ApprovalAction::Allow);
        assert!(GreyproxyRuleInput::default().spec().unwrap_err().contains("destination_pattern"));
    }

    #[test]
    fn scopes_and_durations_convert() {
        assert_eq!(
            resolution("allow", "subdomain_wildcard", "12h").unwrap(),
            json!({"action": "allow", "scope": "subdomains", "everyone": false, "for": "12h"})
        );
        assert_eq!(resolution("deny", "all_containers", "once").unwrap()["everyone"], true);
        assert!(resolution("allow", "exact", "permanent").unwrap().get("for").is_none());
        assert_eq!(resolution("allow", "", "30m").unwrap()["for"], "30m");
        assert!(resolution("allow", "world", "").is_err() && resolution("allow", "", "soon").is_err());
    }

    #[test]
    fn numeric_ids_are_stable_and_safe_for_javascript() {
        assert_eq!(number("config-0"), number("config-0"));
        assert!(number("a") != number("b") && number("zzzz") < 1 << 53);
        assert_eq!(format_micros(1_700_000_000_000_000), "2023-11-14T22:13:20Z");
    }
}
