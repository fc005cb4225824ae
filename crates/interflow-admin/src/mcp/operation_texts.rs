//! The results of operations as texts for agents, without secrets.

use interflow_types::Timestamp;
use interflow_types::secret_names::is_secret_name;
use serde_json::Value;

use super::secret_masking::mask_path;

/// Prefixes of reasons that contain no value of a field or body.
const PLAIN: [&str; 9] = ["host", "path", "method", "status", "scheme", "port", "there ", "it is ", "the phase"];

pub fn annotation(result: &Value) -> String {
    format!("tags: {}; comment: {}", result["tags"], result["comment"])
}

pub fn replay(result: &Value) -> String {
    let outcome = match result["error"]["message"].as_str() {
        Some(error) => format!("it failed: {error}"),
        None => format!("status {}, {} bytes", result["response"]["status"], result["response"]["size"]),
    };
    let omitted: Vec<&str> = result["omitted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let omitted = match omitted.is_empty() {
        true => String::new(),
        false => format!("\nnot sent, since recorded with masked values: {}", omitted.join(", ")),
    };
    format!("sent again as flow {}: {outcome}{omitted}", result["id"].as_str().unwrap_or_default())
}

pub fn explanation(result: &Value) -> String {
    let rules = result["rules"].as_array().map(Vec::as_slice).unwrap_or_default();
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
            let why = reasons(&text(&phase["why"]));
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
pub fn rules(result: &Value) -> String {
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let mut out = String::new();
    for rule in result["rules"].as_array().into_iter().flatten() {
        let off = if rule["enabled"] == false { " (disabled)" } else { "" };
        let actions: Vec<String> = rule["actions"].as_array().into_iter().flatten().map(|a| text(&a["name"])).collect();
        // Conditions can quote the secrets that they look for.
        let when = text(&rule["when"]);
        let names_secret = when.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_').any(is_secret_name);
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
    let files: Vec<String> = result["files"].as_array().into_iter().flatten().map(text).collect();
    out + &format!("files: {}\n", if files.is_empty() { "none".into() } else { files.join(", ") })
}

/// Requests that wait for a person, one per line. Notes are for that person: they may quote the flow.
pub fn pending(result: &Value) -> String {
    let now = Timestamp::now().micros();
    let mut out = String::new();
    for item in result["pending"].as_array().into_iter().flatten() {
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
pub fn proposal(result: &Value) -> String {
    let matches = result["matches"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = format!(
        "proposal {} waits for the operator, who applies or dismisses it (`interflow rules proposals`). It is not active. \
         Tried on the {} newest flows; {} matches:\n",
        result["id"],
        result["tried"],
        matches.len()
    );
    for m in matches {
        let text = |name: &str| m[name].as_str().unwrap_or_default();
        out.push_str(&format!("{} {} {} {}\n", text("flow"), text("rule"), text("method"), text("url")));
    }
    out
}

/// The model that was named, or else the names of those that were listed.
pub fn models(result: &Value) -> String {
    let (named, as_of) = (&result["named"], &result["as_of"]["built_in"]);
    let names: Vec<_> = result["models"].as_array().into_iter().flatten().filter_map(|m| m["name"].as_str()).collect();
    let found = if named.is_object() { format!("{named:#}") } else { names.join("\n") };
    format!("{found}\n{} in all, as of {as_of}; prices of tokens are in dollars per million", result["total"])
}

/// How a program on the machine of the instance is routed through it.
pub fn setup(result: &Value) -> String {
    let text = |name: &str| result[name].as_str().unwrap_or_default();
    let (proxy, ca, bundle, command) = (text("proxy"), text("ca_file"), text("ca_bundle"), text("command"));
    let mut out = format!(
        "proxy: http://{proxy} (HTTP, HTTPS and SOCKS5)\nCA certificate: {ca}\nCA certificate with those of the system: {bundle}\n"
    );
    if let Some(gateway) = result["gateway"].as_str() {
        out.push_str(&format!(
            "gateway for language models: http://{gateway}, for example http://{gateway}/openai/v1 as the base URL\n"
        ));
    }
    match result["lan_proxy"].as_str() {
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
fn reasons(why: &str) -> String {
    let mask = |reason: &str| match PLAIN.iter().any(|p| reason.starts_with(p)) {
        true => reason.to_owned(),
        false => "(a reason with values of the flow is not shown)".to_owned(),
    };
    // Reasons come in pairs: what the flow has, and what the rule asks for. The second is shown only if the first is.
    let masked_pair = |pair: &[&str]| match pair {
        [is, asks] if asks.starts_with("the rule asks") && mask(is) == *is => format!("{is}; {asks}"),
        [is, asks] if asks.starts_with("the rule asks") => mask(is),
        pair => pair.iter().map(|r| mask(r)).collect::<Vec<_>>().join("; "),
    };
    let reasons: Vec<_> = why.split("; ").collect();
    reasons.chunks(2).map(masked_pair).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_are_listed_without_secrets_in_their_conditions() {
        let said = json!({"files": ["rules.yaml"], "rules": [
            {"name": "slow", "file": "rules.yaml", "line": 2, "when": "host:a.test", "enabled": true, "matches": 3,
             "actions": [{"name": "delay", "phase": "request"}]},
            {"name": "mine", "file": "rules.yaml", "line": 7, "when": "header.x-api-key:sk-1", "enabled": false,
             "matches": 0, "actions": [{"name": "tag", "phase": "request"}]},
        ]});
        assert_eq!(
            rules(&said),
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
        let shown = pending(&said);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[0].starts_with("rule-5@8c2f01aa at gateway-2: POST http://a.test/x?api_key="), "{shown}");
        assert!(lines[0].ends_with("&n=2; held by look; 0 s left, then deny; flows: f1"), "{shown}");
        assert_eq!(lines[1], "approval-3: tunnel to b.test:22; awaits approval; 0 s left, then deny; flows: f2, f3");
        assert!(!shown.contains("sk-"), "{shown}");
        assert_eq!(pending(&json!({"pending": []})), "nothing waits for a decision\n");
    }

    #[test]
    fn routing_names_addresses_files_and_environment() {
        let said = json!({"proxy": "127.0.0.1:7070", "gateway": null, "lan_proxy": null, "ca_file": "/d/ca.pem",
            "command": "interflow", "ca_bundle": "/d/all.pem"});
        let shown = setup(&said);
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
            let out = reasons(why);
            assert!(!out.contains("sk-1"), "{out}");
            assert_eq!(out == why, shown, "{out}");
        }
    }
}
