//! Tool calls that need the running instance: rule explanations, and changes.

use interflow_types::{FlowId, Timestamp};
use serde_json::{Value, json};

use super::secret_masking::{is_secret, mask_path};
use super::{failure, resources, tool_result, tools};

/// Whether tools that change something are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    ReadOnly,
    /// Enabled by the operator.
    Writes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolAction {
    /// `GET /rules/explain/{id}`, which changes nothing.
    ExplainRules,
    /// `PATCH /flows/{id}`, with the tags and comment of the arguments.
    Annotate,
    /// `POST /flows/{id}/replay`, with the changes of the arguments.
    Replay,
    /// `GET /rules`, which changes nothing.
    ListRules,
    /// `GET /pending`, which changes nothing.
    ListPending,
    /// `GET /setup`, which changes nothing.
    Setup,
    /// `POST /rules/proposals`, with the arguments.
    ProposeRule,
}

impl ToolAction {
    const fn writes(self) -> bool {
        matches!(self, Self::Annotate | Self::Replay | Self::ProposeRule)
    }

    /// Whether the tool is about one flow.
    const fn needs_flow(self) -> bool {
        !matches!(self, Self::ListRules | Self::ListPending | Self::Setup | Self::ProposeRule)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct RemoteToolCall {
    id: Value,
    /// Whether it is asked for as the resource of the rules.
    is_resource: bool,
    pub verb: ToolAction,
    /// The flow that the tool is about, if it is about one.
    pub flow: Option<FlowId>,
    pub input: Value,
}

/// Arguments that are passed on to the API. Others are not, so that agents cannot use what the tools do not describe.
const FORWARDED_ARGUMENTS: [&str; 10] =
    ["add_tags", "remove_tags", "comment", "method", "url", "headers", "body", "text", "reason", "query"];
/// Prefixes of reasons that contain no value of a field or body.
const PLAIN: [&str; 9] = ["host", "path", "method", "status", "scheme", "port", "there ", "it is ", "the phase"];

/// Parses a remote tool call, or returns why it is not allowed; `None` for every other message.
pub fn remote_tool_call(message: &Value, access: WriteAccess) -> Option<Result<RemoteToolCall, Value>> {
    if message["method"] == "resources/read" && message["params"]["uri"] == resources::RULES {
        let id = message.get("id").filter(|id| !id.is_null())?.clone();
        let verb = ToolAction::ListRules;
        return Some(Ok(RemoteToolCall { id, is_resource: true, verb, flow: None, input: json!({}) }));
    }
    if message["method"] != "tools/call" {
        return None;
    }
    let name = message["params"]["name"].as_str()?;
    let verb = match name {
        "list_rules" => ToolAction::ListRules,
        "list_pending" => ToolAction::ListPending,
        "propose_rule" => ToolAction::ProposeRule,
        "how_to_route" => ToolAction::Setup,
        "explain_rules" => ToolAction::ExplainRules,
        "annotate_flow" => ToolAction::Annotate,
        "replay_flow" => ToolAction::Replay,
        _ => return None,
    };
    // A notification cannot call a tool: its result would go nowhere.
    let id = message.get("id").filter(|id| !id.is_null())?.clone();
    if verb.writes() && access == WriteAccess::ReadOnly {
        let why = "this server is read-only; `interflow mcp --write`, or admin.mcp_writes for the admin port, offers this tool";
        return Some(Err(failure(&id, -32602, why)));
    }
    let arguments = &message["params"]["arguments"];
    // A wrong argument is an error of the tool, which the model can correct.
    if let Err(why) = tools::check_arguments(name, arguments) {
        return Some(Err(tool_result(&id, Err(why))));
    }
    let flow = arguments["id"].as_str().unwrap_or_default();
    let flow = match flow.parse::<FlowId>() {
        Ok(flow) => Some(flow),
        Err(_) if !verb.needs_flow() => None,
        Err(_) => {
            return Some(Err(tool_result(&id, Err(format!("`{flow}` is no flow id: search_flows lists them")))));
        }
    };
    let mut input = json!({});
    for name in FORWARDED_ARGUMENTS {
        if let Some(value) = arguments.get(name) {
            input[name] = value.clone();
        }
    }
    Some(Ok(RemoteToolCall { id, is_resource: false, verb, flow, input }))
}

impl RemoteToolCall {
    pub fn path(&self) -> String {
        let flow = self.flow.map(|id| id.to_string()).unwrap_or_default();
        match self.verb {
            ToolAction::ExplainRules => format!("/rules/explain/{flow}"),
            ToolAction::Annotate => format!("/flows/{flow}"),
            ToolAction::Replay => format!("/flows/{flow}/replay"),
            ToolAction::ListRules => "/rules".into(),
            ToolAction::ListPending => "/pending".into(),
            ToolAction::Setup => "/setup".into(),
            ToolAction::ProposeRule => "/rules/proposals".into(),
        }
    }

    /// The response to the client, from the API's result.
    pub fn answer(&self, outcome: Result<Value, String>) -> Value {
        let outcome = outcome.map(|said| self.format_result(&said));
        match self.is_resource {
            true => resources::contents(&self.id, resources::RULES, outcome),
            false => tool_result(&self.id, outcome),
        }
    }

    fn format_result(&self, said: &Value) -> String {
        match self.verb {
            ToolAction::ExplainRules => format_explanation(&said["rules"]),
            ToolAction::ListRules => format_rules(said),
            ToolAction::ListPending => format_pending(said),
            ToolAction::Setup => format_setup(said),
            ToolAction::ProposeRule => format_proposal(said),
            ToolAction::Annotate => format!("tags: {}; comment: {}", said["tags"], said["comment"]),
            ToolAction::Replay => {
                let status = &said["response"]["status"];
                let outcome = match said["error"]["message"].as_str() {
                    Some(error) => format!("it failed: {error}"),
                    None => format!("status {status}, {} bytes", said["response"]["size"]),
                };
                let omitted: Vec<&str> =
                    said["omitted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
                let omitted = match omitted.is_empty() {
                    true => String::new(),
                    false => format!("\nnot sent, since recorded with masked values: {}", omitted.join(", ")),
                };
                format!("sent again as flow {}: {outcome}{omitted}", said["id"].as_str().unwrap_or_default())
            }
        }
    }
}

fn format_explanation(rules: &Value) -> String {
    let rules = rules.as_array().map(Vec::as_slice).unwrap_or_default();
    if rules.is_empty() {
        return "no rules are active".to_owned();
    }
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    for rule in rules {
        let word = if rule["matches"] == true { "matched" } else { "did not match" };
        out.push_str(&format!("{} ({}) {word}\n", text(&rule["rule"]), text(&rule["location"])));
        for phase in rule["phases"].as_array().into_iter().flatten() {
            let actions: Vec<String> = phase["actions"].as_array().into_iter().flatten().map(text).collect();
            let why = format_reasons(&text(&phase["why"]));
            out.push_str(&format!(
                "  {} [{}] {}: {why}\n",
                text(&phase["phase"]),
                actions.join(", "),
                text(&phase["outcome"])
            ));
        }
    }
    out
}

/// The active rules, one per line.
fn format_rules(said: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    for rule in said["rules"].as_array().into_iter().flatten() {
        let off = if rule["enabled"] == false { " (disabled)" } else { "" };
        let actions: Vec<String> = rule["actions"].as_array().into_iter().flatten().map(|a| text(&a["name"])).collect();
        // Conditions can quote the secrets that they look for.
        let when = text(&rule["when"]);
        let names_secret = when.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').any(is_secret);
        let when = if names_secret { "(a condition on a secret is not shown)".to_owned() } else { when };
        out.push_str(&format!(
            "{}{off} ({}:{}): when {when}; then {}; {} matches\n",
            text(&rule["name"]),
            text(&rule["file"]),
            rule["line"],
            actions.join(", "),
            rule["matches"]
        ));
    }
    if out.is_empty() {
        out.push_str("no rules are active\n");
    }
    let files: Vec<String> = said["files"].as_array().into_iter().flatten().map(text).collect();
    out + &format!("files: {}\n", if files.is_empty() { "none".into() } else { files.join(", ") })
}

/// Requests that wait for a person, one per line. Notes are for that person: they may quote the flow.
fn format_pending(said: &Value) -> String {
    let now = Timestamp::now().micros();
    let mut out = String::new();
    for item in said["pending"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let method = item["method"].as_str().unwrap_or("tunnel to");
        let by = item["rule"].as_str().map_or_else(|| "awaits approval".to_owned(), |rule| format!("held by {rule}"));
        let replica = item["replica"].as_str().map(|name| format!(" at {name}")).unwrap_or_default();
        let seconds = item["until"].as_u64().unwrap_or(now).saturating_sub(now) / 1_000_000;
        let flows: Vec<String> = item["flows"].as_array().into_iter().flatten().map(text).collect();
        out.push_str(&format!(
            "{}{replica}: {method} {}; {by}; {seconds} s left, then {}; flows: {}\n",
            text(&item["id"]),
            mask_path(&text(&item["url"])),
            text(&item["on_timeout"]),
            flows.join(", ")
        ));
    }
    if out.is_empty() { "nothing waits for a decision\n".to_owned() } else { out }
}

/// What became of a proposal.
fn format_proposal(said: &Value) -> String {
    let matches = said["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = format!(
        "proposal {} waits for the operator, who applies or dismisses it (`interflow rules proposals`). It is not active. \
         Tried on the {} newest flows; {} matches:\n",
        said["id"],
        said["tried"],
        matches.len()
    );
    for m in matches {
        let text = |name: &str| m[name].as_str().unwrap_or_default();
        out.push_str(&format!("{} {} {} {}\n", text("flow"), text("rule"), text("method"), text("url")));
    }
    out
}

/// How a program on the machine of the instance is routed through it.
fn format_setup(said: &Value) -> String {
    let text = |name: &str| said[name].as_str().unwrap_or_default();
    let (proxy, ca, bundle, command) = (text("proxy"), text("ca_file"), text("ca_bundle"), text("command"));
    let mut out = format!(
        "proxy: http://{proxy} (HTTP, HTTPS and SOCKS5)\nCA certificate: {ca}\nCA certificate with those of the system: {bundle}\n"
    );
    if let Some(gateway) = said["gateway"].as_str() {
        out.push_str(&format!(
            "gateway for language models: http://{gateway}, for example http://{gateway}/openai/v1 as the base URL\n"
        ));
    }
    match said["lan_proxy"].as_str() {
        Some(address) => out.push_str(&format!("from other machines: http://{address}\n")),
        None => out.push_str("other machines cannot reach it: it listens on loopback only\n"),
    }
    out.push_str(&format!("\nOne command: {command} exec -- COMMAND\n\nA shell, and most programs started from it:\n"));
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"] {
        out.push_str(&format!("export {name}=http://{proxy}\n"));
    }
    for name in ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"] {
        out.push_str(&format!("export {name}='{bundle}'\n"));
    }
    out.push_str(&format!("export NODE_EXTRA_CA_CERTS='{ca}'\n"));
    out
}

/// Reasons with secrets removed: they quote the flow, whose fields and bodies may contain secrets.
fn format_reasons(why: &str) -> String {
    let shown = |reason: &str| match PLAIN.iter().any(|p| reason.starts_with(p)) {
        true => reason.to_owned(),
        false => "(a reason with values of the flow is not shown)".to_owned(),
    };
    // Reasons come in pairs: what the flow has, and what the rule asks for. The second is shown only if the first is.
    why.split("; ")
        .collect::<Vec<_>>()
        .chunks(2)
        .map(|pair| match pair {
            [is, asks] if asks.starts_with("the rule asks") && shown(is) == *is => format!("{is}; {asks}"),
            [is, asks] if asks.starts_with("the rule asks") => shown(is),
            pair => pair.iter().map(|r| shown(r)).collect::<Vec<_>>().join("; "),
        })
        .collect::<Vec<_>>()
        .join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str, arguments: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
    }

    #[test]
    fn writing_mcp_tools_are_refused_unless_enabled() {
        let id = FlowId::new(interflow_types::Timestamp::now()).to_string();
        for name in ["annotate_flow", "replay_flow"] {
            let argument = if name == "annotate_flow" { "comment" } else { "method" };
            let message = call(name, json!({"id": id, argument: "x"}));
            let refused = remote_tool_call(&message, WriteAccess::ReadOnly).unwrap().unwrap_err();
            assert_eq!(refused["error"]["code"], -32602, "{refused}");
            let allowed = remote_tool_call(&message, WriteAccess::Writes).unwrap().unwrap();
            assert_eq!(allowed.input, json!({argument: "x"}));
            assert!(allowed.path().contains(&id));
            let strange = call(name, json!({"id": id, "strange": 1}));
            let refused = remote_tool_call(&strange, WriteAccess::Writes).unwrap().unwrap_err();
            assert!(refused["result"]["content"][0]["text"].as_str().unwrap().contains("`strange`"), "{refused}");
        }
        assert!(remote_tool_call(&call("explain_rules", json!({"id": id})), WriteAccess::ReadOnly).unwrap().is_ok());
        let wrong =
            remote_tool_call(&call("explain_rules", json!({"id": 4})), WriteAccess::ReadOnly).unwrap().unwrap_err();
        assert_eq!(wrong["result"]["isError"], true);
        assert_eq!(remote_tool_call(&call("read_flow", json!({"id": id})), WriteAccess::Writes), None);
    }

    #[test]
    fn rules_are_listed_without_secrets_in_their_conditions() {
        let said = json!({"files": ["rules.yaml"], "rules": [
            {"name": "slow", "file": "rules.yaml", "line": 2, "when": "host:a.test", "enabled": true, "matches": 3,
             "actions": [{"name": "delay", "phase": "request"}]},
            {"name": "mine", "file": "rules.yaml", "line": 7, "when": "header.x-api-key:sk-1", "enabled": false,
             "matches": 0, "actions": [{"name": "tag", "phase": "request"}]},
        ]});
        assert_eq!(
            format_rules(&said),
            "slow (rules.yaml:2): when host:a.test; then delay; 3 matches\n\
             mine (disabled) (rules.yaml:7): when (a condition on a secret is not shown); then tag; 0 matches\n\
             files: rules.yaml\n"
        );
    }

    #[test]
    fn pending_requests_are_listed_without_secrets_and_contents() {
        let said = json!({"version": 3, "pending": [
            {"id": "rule-5@8c2f01aa", "replica": "gateway-2", "kind": "rule", "method": "POST", "url": "http://a.test/x?api_key=sk-1&n=2",
             "headers": [["X-Plan", "sk-2"]], "body": "sk-3", "note": "sk-4", "rule": "look", "flows": ["f1"], "until": 0,
             "on_timeout": "deny"},
            {"id": "approval-3", "replica": null, "kind": "approval", "method": null, "url": "b.test:22", "flows": ["f2", "f3"],
             "until": 0, "on_timeout": "deny"},
        ]});
        let shown = format_pending(&said);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("rule-5@8c2f01aa at gateway-2: POST http://a.test/x?api_key="), "{shown}");
        assert!(lines[0].ends_with("&n=2; held by look; 0 s left, then deny; flows: f1"), "{shown}");
        assert_eq!(lines[1], "approval-3: tunnel to b.test:22; awaits approval; 0 s left, then deny; flows: f2, f3");
        assert!(!shown.contains("sk-"), "{shown}");
        assert_eq!(format_pending(&json!({"pending": []})), "nothing waits for a decision\n");
        // There is no tool that decides.
        let decide = call("decide_pending", json!({"id": "rule-5", "action": "allow"}));
        assert_eq!(remote_tool_call(&decide, WriteAccess::Writes), None);
    }

    #[test]
    fn routing_names_addresses_files_and_environment() {
        let said = json!({"proxy": "127.0.0.1:7070", "gateway": null, "lan_proxy": null, "ca_file": "/d/ca.pem",
            "command": "interflow", "ca_bundle": "/d/all.pem"});
        let shown = format_setup(&said);
        for line in ["export HTTPS_PROXY=http://127.0.0.1:7070", "export SSL_CERT_FILE='/d/all.pem'", "loopback only"] {
            assert!(shown.contains(line), "{line}: {shown}");
        }
    }

    #[test]
    fn rule_explanations_do_not_quote_headers_or_bodies() {
        for (why, shown) in [
            ("host is \"a\"; the rule asks for host:b", true),
            ("status is 404; the rule asks for status:500", true),
            ("there is no cookie sid", true),
            ("header Authorization is \"Bearer sk-1\"; the rule asks for one that is \"x\"", false),
            ("the body is \"sk-1\"; the rule asks for another", false),
            ("not: header X is \"sk-1\"", false),
        ] {
            let out = format_reasons(why);
            assert!(!out.contains("sk-1"), "{out}");
            assert_eq!(out == why, shown, "{out}");
        }
    }
}
