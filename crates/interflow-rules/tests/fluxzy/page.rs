//! The reference page of rules, generated from the tables of matchers and actions, each with the test that covers it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use interflow_rules::action::ACTIONS as OWN;
use interflow_rules::{phase_names, schema};

use super::load;
use super::rows::{ACTIONS, FILTERS};

/// Tests of actions that have no row in `tests/actions.rs`, or a more complete test than that: file and test.
const ELSEWHERE: &[(&str, &str, &str)] = &[
    ("serve_http1", UPSTREAM_ACTIONS, "serve_http1_rule_offers_clients_only_http1"),
    ("show_certificate", UPSTREAM_ACTIONS, "show_certificate_rule_presents_the_given_certificate"),
    ("dns_over_https", UPSTREAM_ACTIONS, "dns_over_https_is_used_by_rule_and_by_configuration"),
    ("tls_version", UPSTREAM_ACTIONS, "tls_version_rule_restricts_the_upstream_version"),
    ("connect_to", UPSTREAM_ACTIONS, "no_origin_is_probed_before_a_rule_selects_the_route"),
    ("upstream_proxy", ROWS, "upstream_actions_set_route_overrides"),
    ("direct", ROWS, "upstream_actions_set_route_overrides"),
    ("http_version", ROWS, "upstream_actions_set_route_overrides"),
    ("danger_skip_tls_verify", ROWS, "upstream_actions_set_route_overrides"),
    ("client_certificate", ROWS, "upstream_actions_set_route_overrides"),
    ("own_connection", ROWS, "upstream_actions_set_route_overrides"),
    ("impersonate", ROWS, "upstream_actions_set_route_overrides"),
    ("tunnel", ROWS, "tunnel_and_intercept_actions_set_the_tunnel_mode"),
    ("intercept", ROWS, "tunnel_and_intercept_actions_set_the_tunnel_mode"),
    ("map_local", ROWS, "files_are_served_and_written"),
    ("serve_ca", ROWS, "files_are_served_and_written"),
    ("append_file", ROWS, "files_are_served_and_written"),
    ("save_response_body", ROWS, "files_are_served_and_written"),
    ("hold", ROWS, "held_flow_continues_as_decided"),
    ("inject_message", MESSAGES, "websocket_messages_are_edited_dropped_injected_answered_and_tagged"),
    ("replay", REPLAYS, "recorded_flows_and_archives_are_replayed_for_a_missing_origin"),
    ("script", OUTSIDE, "scripts_can_read_edit_answer_and_deny"),
    ("call", OUTSIDE, "middleware_sees_and_rewrites_request_and_response"),
];
/// Fluxzy features that are also tested with real traffic: names, file and test.
const ON_THE_WIRE: &[(&[&str], &str, &str)] = &[
    (
        &["ipIngress", "ipEgress", "processId", "processName", "authority", "agentLabel", "h11TrafficOnly"],
        THEIR_FILTERS,
        "connection_and_process_filters_match_both_ends",
    ),
    (&["connection"], THEIR_FILTERS, "connection_filter_uses_the_recorded_connection_number"),
    (
        &["hasRequestBody", "h2TrafficOnly", "isSecure"],
        THEIR_FILTERS,
        "body_filter_uses_framing_headers_and_h2_filter_the_version",
    ),
    (
        &["isWebSocket", "isSelf", "networkError"],
        THEIR_FILTERS,
        "websocket_own_address_and_network_error_filters_match",
    ),
    (&["exec"], THEIR_FILTERS, "exec_filter_programs_get_the_head_and_decide_by_exit_code"),
    (
        &[
            "addRequestHeader",
            "updateRequestHeader",
            "deleteRequestHeader",
            "setRequestCookie",
            "addAuthorizationBearer",
            "removeCache",
            "setUserAgent",
            "addResponseHeader",
            "updateResponseHeader",
            "setResponseCookie",
            "removeResponseCookie",
        ],
        THEIR_ACTIONS,
        "headers_are_edited_with_fluxzy_defaults",
    ),
    (
        &[
            "abort",
            "reject",
            "rejectWithStatusCode",
            "rejectWithMessage",
            "mockedResponse",
            "serveDirectory",
            "mountCertificateAuthority",
            "mountWelcomePage",
        ],
        THEIR_ACTIONS,
        "mock_actions_respond_without_an_origin",
    ),
    (&["averageThrottle", "delay"], THEIR_ACTIONS, "delay_and_throttle_actions_take_their_time"),
    (&["captureSession", "applySession", "clearSession"], THEIR_ACTIONS, "sessions_are_captured_applied_and_cleared"),
    (
        &["setVariable", "noOp", "fileAppend", "stdOut", "stdErr", "applyTag", "applyComment"],
        THEIR_ACTIONS,
        "file_append_writes_once_and_variables_are_per_flow",
    ),
    (&["injectHtmlTag"], THEIR_ACTIONS, "html_is_injected_after_its_tag_in_any_content_coding"),
    (&["BreakPoint"], THEIR_ACTIONS, "breakpoints_hold_flows_until_a_decision"),
    (
        &["setClientCertificate", "useCertificate"],
        THEIR_ACTIONS,
        "pkcs12_certificates_are_presented_to_origins_and_clients",
    ),
    (
        &[
            "skipRemoteCertificateValidation",
            "forceHttp11",
            "forceHttp2",
            "forceTlsVersion",
            "pinUpstreamConnection",
            "forward",
            "forceRemotePort",
            "spoofDns",
            "changeRequestPath",
            "changeRequestMethod",
        ],
        THEIR_ACTIONS,
        "upstream_route_actions_are_applied",
    ),
    (&["upStreamProxy"], THEIR_ACTIONS, "upstream_proxy_action_sends_credentials_and_honours_the_bypass_list"),
    (
        &["skipSslTunneling", "impersonate", "setJa3FingerPrint"],
        THEIR_ACTIONS,
        "skipped_tls_is_not_intercepted_and_fingerprints_need_the_feature",
    ),
    (&["serveHttp11"], UPSTREAM_ACTIONS, "serve_http1_rule_offers_clients_only_http1"),
    (&["useDnsOverHttps"], UPSTREAM_ACTIONS, "dns_over_https_is_used_by_rule_and_by_configuration"),
];
const THEIR_FILTERS: &str = "interflow/tests/rules/fluxzy_filters.rs";
const THEIR_ACTIONS: &str = "interflow/tests/rules/fluxzy_actions.rs";
const ROWS: &str = "interflow-rules/tests/actions.rs";
const OUTSIDE: &str = "interflow-rules/tests/outside.rs";
const UPSTREAM_ACTIONS: &str = "interflow/tests/rules/upstream_actions.rs";
const MESSAGES: &str = "interflow/tests/rules/messages.rs";
const REPLAYS: &str = "interflow/tests/rules/replays.rs";
const MATCHERS: &str = "interflow-rules/src/matching/matchers.rs";
const FLUXZY: &str = "interflow-rules/tests/fluxzy";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn source(file: &str) -> String {
    std::fs::read_to_string(crates().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

/// The test that covers an action; it must exist.
fn proof(action: &str) -> String {
    let Some((_, file, test)) = ELSEWHERE.iter().find(|(a, ..)| *a == action) else {
        assert!(source(ROWS).contains(&format!("\n    {action}: \"")), "{action} has no test");
        return format!("`{ROWS}`: `{action}`");
    };
    assert!(source(file).contains(&format!("fn {test}(")), "{file} has no test {test}");
    format!("`{file}`: `{test}`")
}

/// The tests that cover one of Fluxzy's filters or actions: its row, and real traffic where there is any.
fn their_proof(kind: &str, row: &str) -> String {
    let mut out = format!("`{FLUXZY}`: `{row}`");
    for (_, file, test) in ON_THE_WIRE.iter().filter(|(kinds, ..)| kinds.contains(&kind)) {
        assert!(source(file).contains(&format!("fn {test}(")), "{file} has no test {test}");
        assert!(source(file).contains(kind) || *file == UPSTREAM_ACTIONS, "{file} does not speak of {kind}");
        write!(out, "; `{file}`: `{test}`").unwrap();
    }
    out
}

/// The conditions and actions that one of Fluxzy's entries becomes, or why it is rejected.
fn becomes(filter: &str, action: &str) -> Result<(String, Vec<&'static str>), String> {
    let text = format!("rules:\n- filter: {filter}\n  action: {action}\n");
    let program = load(&text)?;
    let rule = &program.rules[0];
    let mut names: Vec<&str> = rule.actions.iter().map(|(_, a)| a.info().name).collect();
    names.dedup();
    Ok((rule.cond.describe(), names))
}

/// The name in Fluxzy's own documentation, as in its row.
fn kind(row: &str) -> &str {
    let rest = row.split_once("typeKind: ").map_or("", |(_, r)| r);
    rest.split([',', '}']).next().unwrap_or_default().trim_end_matches("Filter").trim_end_matches("Action")
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn page() -> String {
    let mut out = String::from(
        "# Rules: every matcher and action\n\nMade from the code; [rules](rules.md) says how they go together. The last column names \
         the test that proves the line.\n\n## Actions\n\n`phase` is where it runs unless its condition is known only later.\n\n\
         | action | phase | does | Fluxzy | test |\n|---|---|---|---|---|\n",
    );
    let mut theirs: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (_, row, _) in ACTIONS {
        for name in becomes("{typeKind: any}", row).map(|(_, names)| names).unwrap_or_default() {
            theirs.entry(name).or_default().push(kind(row));
        }
    }
    for action in OWN {
        let theirs = theirs.get(action.name).map(|t| t.join(", ")).unwrap_or_default();
        let (phase, does) = (phase_names::name(action.natural), cell(action.doc.trim()));
        writeln!(out, "| `{}` | {phase} | {does} | {theirs} | {} |", action.name, proof(action.name)).unwrap();
    }
    out.push_str("\n## Matchers\n\n| matcher | holds for | test |\n|---|---|---|\n");
    let (schema, tests) = (schema(), source(MATCHERS));
    let matchers = schema["$defs"]["MatcherMap"]["properties"].as_object().expect("the schema names the matchers");
    for (name, about) in matchers {
        let mentioned = tests.rsplit("mod tests").next().is_some_and(|t| t.contains(name.as_str()));
        assert!(mentioned, "the matcher {name} has no test in {MATCHERS}");
        let about = cell(about["description"].as_str().unwrap_or_default());
        writeln!(out, "| `{name}` | {about} | `{MATCHERS}`: `every_matcher_matches_and_rejects` |").unwrap();
    }
    out.push_str("\n## Filters of Fluxzy\n\nEach is proved by a row of its own: one flow for which it holds, one for which it does not; operations and defaults by `filters_have_fluxzys_defaults` too. The third column is the row's filter as it is understood here.\n\n| filter | example | understood as | test |\n|---|---|---|---|\n");
    for (_, row, ..) in FILTERS {
        let action = "{typeKind: setResponseCookie, name: a, value: b}";
        let (cond, _) = becomes(row, action).unwrap_or_else(|e| panic!("{row}: {e}"));
        let test = their_proof(kind(row), "every_filter_matches_and_rejects");
        writeln!(out, "| {} | `{}` | {} | {test} |", kind(row), cell(row), cell(&cond)).unwrap();
    }
    out.push_str("\n## Actions of Fluxzy\n\nEach is proved by a row of its own: what comes of it in a flow, or why it is refused; parameters and defaults by `actions_have_fluxzys_defaults` too.\n\n| action | here | outcome of its row | test |\n|---|---|---|---|\n");
    for (_, row, outcome) in ACTIONS {
        let here = match becomes("{typeKind: any}", row) {
            Ok((_, names)) => names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
            Err(_) => "an error with its remedy".to_owned(),
        };
        let test = their_proof(kind(row), "every_action_has_its_effect");
        writeln!(out, "| {} | {here} | {} | {test} |", kind(row), cell(outcome)).unwrap();
    }
    out
}

#[test]
fn the_reference_page_is_what_the_code_says() {
    let file = crates().parent().unwrap().join("docs/reference/rules.md");
    let now = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &now).unwrap();
    }
    let there = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(there == now, "docs/reference/rules.md is out of date: `make docs` writes it");
}
