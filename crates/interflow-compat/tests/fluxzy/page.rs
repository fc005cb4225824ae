//! The reference page of Fluxzy's rules, made from the tables of its filters and actions, each with the test that covers it;
//! and the tests that cover our own actions and matchers.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use interflow_rules::action::ACTIONS as OWN;
use interflow_rules::schema;
use interflow_testkit::docs::check_reference_page;

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
    ("map_local", FILES, "files_are_served_and_written"),
    ("serve_ca", FILES, "files_are_served_and_written"),
    ("append_file", FILES, "files_are_served_and_written"),
    ("save_response_body", FILES, "files_are_served_and_written"),
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
const FILES: &str = "interflow-rules/tests/files.rs";
const OUTSIDE: &str = "interflow-rules/tests/outside.rs";
const UPSTREAM_ACTIONS: &str = "interflow/tests/rules/upstream_actions.rs";
const MESSAGES: &str = "interflow/tests/rules/messages.rs";
const REPLAYS: &str = "interflow/tests/rules/replays.rs";
const MATCHERS: &str = "interflow-rules/src/matching/matchers.rs";
const FLUXZY: &str = "interflow-compat/tests/fluxzy";

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn source(file: &str) -> String {
    std::fs::read_to_string(crates().join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
}

#[test]
fn every_action_and_matcher_of_ours_has_a_test() {
    for action in OWN.iter().map(|a| a.name) {
        match ELSEWHERE.iter().find(|(a, ..)| *a == action) {
            Some((_, file, test)) => {
                assert!(source(file).contains(&format!("fn {test}(")), "{file} has no test {test}");
            }
            None => assert!(source(ROWS).contains(&format!("\n    {action}: \"")), "{action} has no test"),
        }
    }
    let (schema, tests) = (schema(), source(MATCHERS));
    let matchers = schema["$defs"]["MatcherMap"]["properties"].as_object().expect("the schema names the matchers");
    for name in matchers.keys() {
        let mentioned = tests.rsplit("mod tests").next().is_some_and(|t| t.contains(name.as_str()));
        assert!(mentioned, "the matcher {name} has no test in {MATCHERS}");
    }
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

/// A cell whose text is not Markdown: a tag in it is not HTML.
fn literal(text: &str) -> String {
    cell(text).replace('<', "\\<")
}

fn page() -> String {
    let mut out = String::from(
        "<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         ## All filters and actions\n\n\
         Fluxzy's filters and actions, and what each becomes; [rules](../reference/rules.md) lists Interflow's own matchers and actions.\n\
         The last column names the test that proves the line, in `crates/`.\n\n\
         ### Filters\n\nThe third column is the example as it is understood.\n\n\
         | filter | example | understood as | test |\n|---|---|---|---|\n",
    );
    for (_, row, ..) in FILTERS {
        let action = "{typeKind: setResponseCookie, name: a, value: b}";
        let (cond, _) = becomes(row, action).unwrap_or_else(|e| panic!("{row}: {e}"));
        let test = their_proof(kind(row), "every_filter_matches_and_rejects");
        writeln!(out, "| {} | `{}` | {} | {test} |", kind(row), cell(row), literal(&cond)).unwrap();
    }
    out.push_str(
        "\n### Actions\n\n*Here* names the [actions](../reference/rules.md#actions) of Interflow that it becomes.\n\n\
         | action | here | outcome of its test | test |\n|---|---|---|---|\n",
    );
    for (_, row, outcome) in ACTIONS {
        let here = match becomes("{typeKind: any}", row) {
            Ok((_, names)) => names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
            Err(_) => "an error with its remedy".to_owned(),
        };
        let test = their_proof(kind(row), "every_action_has_its_effect");
        writeln!(out, "| {} | {here} | {} | {test} |", kind(row), literal(outcome)).unwrap();
    }
    out
}

#[test]
fn the_reference_page_is_current() {
    check_reference_page("../migration/fluxzy.md", &page());
}
