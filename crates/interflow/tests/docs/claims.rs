//! What README.md says of Interflow in its comparison and its limits, and the test or the file that proves each statement.
//!
//! A statement of README.md that is not in these tables fails the test, and so does one whose proof is gone.

use std::fs;

use serde_json::Value;

use crate::pages::root;

/// What proves a statement.
#[derive(Debug)]
enum Proof {
    /// A file of `crates/`, and the name of a test in it.
    Test(&'static str, &'static str),
    /// A black-box suite below `tests/`, which `make NAME` runs.
    Suite(&'static str),
    /// A file contains this text.
    Says(&'static str, &'static str),
    /// A table of `crates/` has this many rows.
    Rows(&'static str, usize),
    /// None of these packages is among the dependencies.
    NoPackage(&'static [&'static str]),
    /// The schema of the configuration has this value at this pointer.
    Schema(&'static str, &'static str),
    /// Of another program, or of what Interflow is not meant for: what was read.
    Read(&'static str),
}

use Proof::{NoPackage, Read, Rows, Says, Schema, Suite, Test};

/// HTTP/3 needs QUIC, and one of these.
const QUIC: Proof = NoPackage(&["quinn", "h3", "s2n-quic", "quiche", "tokio-quiche", "neqo-transport"]);

/// The row of Interflow in the comparison: `column: cell`.
const COMPARISON: &[(&str, &[Proof])] = &[
    (
        "proxy modes: forward, reverse, transparent (Linux)",
        &[
            Test("interflow-proxy/tests/proxy/tunnels.rs", "socks5_takes_names_and_addresses"),
            Test("interflow-proxy/tests/proxy/reverse.rs", "reverse_listener_routes_tls_by_sni"),
            Suite("transparent"),
        ],
    ),
    (
        "TLS interception: yes",
        &[Test("interflow-proxy/tests/proxy/interception.rs", "ip_addresses_are_intercepted_with_ip_certificates")],
    ),
    ("HTTP/3: no", &[QUIC]),
    (
        "recording: on disk, indexed; shared in PostgreSQL",
        &[
            Test("interflow/tests/cli/main.rs", "flows_are_listed_in_either_order_and_in_every_format"),
            Test("interflow/tests/replicas/store.rs", "replicas_show_the_flows_of_all_and_a_crash_loses_none"),
        ],
    ),
    (
        "user interface: web, terminal, CLI",
        &[
            Test("interflow-admin/src/ui.rs", "paths_without_a_file_extension_serve_the_page"),
            Test("interflow/tests/flows/top.rs", "top_shows_flows_as_they_happen_filters_and_opens_them"),
            Test("interflow/tests/cli/main.rs", "help_topics_and_commands_are_printed"),
        ],
    ),
    (
        "LLM gateway: yes, 18 providers",
        &[
            Rows("interflow-llm-gateway/data/upstreams.txt", 18),
            Test(
                "interflow-llm-gateway/tests/gateway/routing.rs",
                "each_upstream_has_an_endpoint_and_the_providers_own_paths_work",
            ),
        ],
    ),
    (
        "reversible redaction: yes, built in",
        &[Test("interflow-llm-gateway/tests/gateway/leaks.rs", "gateway_leaks_nothing_in_whole_and_streamed_requests")],
    ),
    ("licence: MIT or Apache-2.0", &[Says("Cargo.toml", "license = \"MIT OR Apache-2.0\"")]),
];

/// The rows of other programs, and what was read. A change of a row needs a look at the program.
const OTHERS: &[(&str, Proof)] = &[
    (
        "mitmproxy | forward, reverse, transparent, WireGuard, local capture | yes | yes, not in forward mode | in memory; flow files | terminal, web | no | no | MIT",
        Read("its documentation: Modes of Operation, Protocols"),
    ),
    (
        "Fluxzy | forward, reverse by name | yes | no | archive files | CLI; desktop (closed) | no | no | GPL-3.0 or commercial",
        Read("its documentation and source"),
    ),
    (
        "HTTP Toolkit | forward, per-app capture | yes | no | in memory | desktop | no | no | AGPL-3.0, engine Apache-2.0",
        Read("its documentation and source"),
    ),
    (
        "Squid | forward, reverse, transparent | yes (ssl-bump) | no | access log | none | no | no | GPL-2.0",
        Read("its configuration reference"),
    ),
    (
        "LiteLLM | reverse | – | – | spend log | web | yes, over 100 | with a Presidio server | MIT, parts commercial",
        Read("its documentation: Providers, PII Masking"),
    ),
    (
        "agentgateway | reverse | – | – | request log | web | yes, also MCP and A2A | masks or blocks, not reversible | Apache-2.0",
        Read("its documentation"),
    ),
    (
        "philter-ai-proxy | reverse | – | – | audit log | none | yes, redaction only | with a Philter server; not restored | Apache-2.0",
        Read("its documentation and source"),
    ),
    (
        "mediaflow-proxy | reverse, media only | – | – | none | web page | no | no | MIT",
        Read("its documentation and source"),
    ),
];

/// The list below "Do not use Interflow".
const LIMITS: &[(&str, &[Proof])] = &[
    ("HTTP/3: it is neither intercepted nor proxied, and browsers fall back to HTTP/2 behind a proxy.", &[QUIC]),
    (
        "Python add-ons (mitmproxy), a cache of web content (Squid) or load balancing between web servers (any reverse proxy).",
        &[
            NoPackage(&["pyo3", "rustpython-vm", "cpython"]),
            // A route has one origin.
            Schema("/$defs/GatewayRoute/properties/to/type", "string"),
        ],
    ),
    (
        "a hundred providers, or a self-service page for keys (LiteLLM).",
        &[
            Rows("interflow-llm-gateway/data/upstreams.txt", 18),
            Test("interflow-admin/tests/api/issuer.rs", "changes_over_a_persons_session_need_the_origin_and_the_right"),
        ],
    ),
    (
        "several instances on one data directory: each needs its own; replicas share a record through PostgreSQL, limits through Redis.",
        &[
            Test("interflow/tests/cli/instances.rs", "a_start_names_the_instance_that_is_in_its_way"),
            Test("interflow/tests/replicas/store.rs", "replicas_show_the_flows_of_all_and_a_crash_loses_none"),
            Test("interflow-fleet/tests/redis/main.rs", "redis_counters_behave_like_in_memory_counters"),
        ],
    ),
    (
        "logins by LDAP or SAML: people log in with OpenID Connect or the admin token.",
        &[
            NoPackage(&["ldap3", "samael", "opensaml"]),
            Test("interflow-admin/tests/api/issuer.rs", "a_person_logs_in_with_the_role_and_rights_of_their_groups"),
            Test(
                "interflow-admin/tests/api/access_control.rs",
                "login_page_prompts_for_the_token_and_remembers_the_requested_page",
            ),
        ],
    ),
    (
        "detection of names by a ready-made model: detection is by patterns, word lists and weights; external detectors (Presidio, Philter, GLiNER) or a model of your own can be added.",
        &[
            Test("interflow-redact/src/remote/tests.rs", "presidio_entities_map_to_kinds_and_low_scores_are_ignored"),
            Test("interflow-redact/src/remote/tests.rs", "philter_is_queried_with_bearer_token_and_utf16_offsets"),
            Test(
                "interflow-redact/src/model/tests.rs",
                "names_that_only_the_model_knows_are_redacted_under_the_policy",
            ),
        ],
    ),
    ("a security scanner (Burp, ZAP), or a managed service.", &[Read("the scope of ARCHITECTURE.md")]),
];

fn file(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Why a proof does not hold.
fn refuted(proof: &Proof) -> Option<String> {
    match proof {
        Test(path, name) => {
            let text = file(&format!("crates/{path}"));
            let before = text.split(&format!("fn {name}(")).next().filter(|before| before.len() < text.len());
            let attributes = before.and_then(|before| before.rsplit("\n\n").next());
            let is_test = attributes.is_some_and(|a| a.contains("#[test]") || a.contains("#[tokio::test"));
            (!is_test).then(|| format!("crates/{path} has no test {name}"))
        }
        Suite(name) => {
            (!root().join(format!("tests/{name}/run")).exists()).then(|| format!("there is no tests/{name}/run"))
        }
        Says(path, text) => (!file(path).contains(text)).then(|| format!("{path} does not contain {text}")),
        Rows(path, expected) => {
            let text = file(&format!("crates/{path}"));
            let rows = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).count();
            (rows != *expected).then(|| format!("crates/{path} has {rows} rows, not {expected}"))
        }
        NoPackage(names) => {
            let lock = file("Cargo.lock");
            let found = names.iter().find(|name| lock.contains(&format!("\nname = \"{name}\"\n")));
            found.map(|name| format!("{name} is a dependency"))
        }
        Schema(pointer, expected) => {
            let schema: Value = serde_json::from_str(&file("docs/reference/schemas/config.json")).expect("JSON");
            let found = schema.pointer(pointer).and_then(Value::as_str);
            (found != Some(expected)).then(|| format!("the schema has {found:?} at {pointer}, not {expected}"))
        }
        Read(source) => source.is_empty().then(|| "names nothing that was read".to_owned()),
    }
}

/// A line of Markdown without links and emphasis.
fn plain(line: &str) -> String {
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, after)) = link.split_once("](") else { break };
        out.push_str(before);
        out.push_str(text);
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out.replace("**", "")
}

/// The cells of a row of a table.
fn cells(row: &str) -> Vec<String> {
    plain(row).trim().trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()
}

/// What is between a heading of README.md and the next one.
fn section(heading: &str) -> String {
    let readme = file("README.md");
    let (_, section) = readme.split_once(&format!("\n## {heading}\n")).expect("the section is in README.md");
    section.split("\n## ").next().unwrap_or_default().to_owned()
}

/// The statements that the table lacks, those that only the table has, and the proofs that do not hold.
fn differences<'a>(stated: &[String], table: impl Iterator<Item = (&'a str, &'a [Proof])>) -> Vec<String> {
    let table: Vec<_> = table.collect();
    let unproven = stated.iter().filter(|text| !table.iter().any(|(claim, _)| claim == text));
    let gone = table.iter().filter(|(claim, _)| !stated.iter().any(|text| text == claim));
    let refuted = table
        .iter()
        .flat_map(|(claim, proofs)| proofs.iter().filter_map(refuted).map(move |why| format!("{claim}: {why}")));
    unproven
        .map(|text| format!("README.md says this without a proof: {text}"))
        .chain(gone.map(|(claim, _)| format!("README.md no longer says: {claim}")))
        .chain(refuted)
        .collect()
}

#[test]
fn every_statement_of_the_comparison_has_a_proof() {
    let section = section("Comparison");
    let rows: Vec<_> = section.lines().filter(|line| line.starts_with('|') && !line.starts_with("|---")).collect();
    let (columns, own) = (cells(rows[0]), cells(rows[1]));
    assert_eq!(own[0], "Interflow", "the first row is Interflow's");
    let stated: Vec<_> = columns.iter().zip(&own).skip(1).map(|(column, cell)| format!("{column}: {cell}")).collect();
    let others: Vec<_> = rows[2..].iter().map(|row| cells(row).join(" | ")).collect();
    let mut wrong = differences(&stated, COMPARISON.iter().map(|(claim, proofs)| (*claim, *proofs)));
    wrong.extend(differences(&others, OTHERS.iter().map(|(row, read)| (*row, std::slice::from_ref(read)))));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_limit_has_a_proof() {
    let section = section("Comparison");
    let (_, list) = section.split_once("**Do not use Interflow**").expect("the list of limits");
    let stated: Vec<_> = list.lines().filter_map(|line| line.strip_prefix("- ")).map(plain).collect();
    let wrong = differences(&stated, LIMITS.iter().map(|(claim, proofs)| (*claim, *proofs)));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn statements_without_a_proof_and_proofs_that_do_not_hold_are_found() {
    let stated = ["a".to_owned(), "b".to_owned()];
    let table: [(&str, &[Proof]); 2] = [
        (
            "a",
            &[
                Test("interflow/tests/docs/claims.rs", "plain"),
                Rows("interflow-llm-gateway/data/upstreams.txt", 3),
                NoPackage(&["tokio"]),
            ],
        ),
        ("c", &[Says("Cargo.toml", "no such text"), Schema("/type", "list"), Suite("none"), Read("")]),
    ];
    assert_eq!(differences(&stated, table.into_iter()).len(), 9);
    assert_eq!(plain("**no**: [a](b.md), [c](d.md#e)."), "no: a, c.");
}
