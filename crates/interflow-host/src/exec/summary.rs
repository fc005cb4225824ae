//! Per-host summary of a command's traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use interflow_query::Query;
use interflow_store::{FlowStore, FlowSummary, ListOptions, ListOrder};
use interflow_types::units::pluralize;
use interflow_types::{ErrorKind, Passthrough, Timestamp};

use crate::data_dir::shell_argument;

#[derive(Default)]
struct HostSummary {
    flows: u64,
    errors: u64,
    sent: u64,
    received: u64,
    /// Why tunnels were not intercepted.
    passed: BTreeMap<&'static str, u64>,
    /// Connections whose client rejected the certificate.
    refused: u64,
}

/// Prints a table to stderr, so that the command's stdout stays clean. `aside` is the directory of a separate recording,
/// if one was used, `command` how commands begin.
pub fn print(store: &dyn FlowStore, began: Timestamp, aside: Option<&Path>, command: &str) {
    let options = ListOptions { query: Query::all(), order: ListOrder::Newest, after: None, limit: 10_000 };
    let Ok(rows) = store.list(&options) else { return };
    let now = Timestamp::now();
    let flows: Vec<_> = rows.iter().map(|r| r.summary(now)).filter(|f| f.started >= began).collect();
    if flows.is_empty() {
        crate::errln!("\ninterflow: no requests were sent through the proxy");
        return;
    }
    let dim = anstyle::Style::new().dimmed();
    crate::errln!("\n{dim}interflow: {}{dim:#}", pluralize(flows.len() as u64, "flow"));
    let hosts = by_host(&flows);
    for (name, host) in &hosts {
        let errors = if host.errors > 0 { format!(", {} failed", host.errors) } else { String::new() };
        let (flows, sent, received) = (pluralize(host.flows, "flow"), size(host.sent), size(host.received));
        crate::errln!("{dim}  {name}: {flows}{errors}, {sent} sent, {received} received{dim:#}");
    }
    let refused: u64 = hosts.values().map(|h| h.refused).sum();
    if refused > 0 {
        crate::errln!(
            "{dim}  {} refused or abandoned by the client: it probably does not trust the CA (see \
             `{command} flows list error:client_tls`){dim:#}",
            if refused == 1 { "1 TLS handshake was".to_owned() } else { format!("{refused} TLS handshakes were") }
        );
    }
    for (name, host) in &hosts {
        for (why, count) in &host.passed {
            crate::errln!("{dim}  {name}: {} passed through uninspected: {why}{dim:#}", pluralize(*count, "tunnel"));
        }
    }
    let unredacted = unredacted(rows.iter().filter(|r| r.started >= began).map(|r| r.tags.as_slice()));
    if let Some(warning) = unredacted.warning(command) {
        let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
        crate::errln!("{yellow}  {warning}{yellow:#}");
    }
    let variable = aside.map(|dir| format!("INTERFLOW_RECORD_DIR={} ", shell_argument(dir))).unwrap_or_default();
    let them = if flows.len() == 1 { "it" } else { "them" };
    crate::errln!("{dim}  {variable}{command} flows list shows {them}{dim:#}");
}

fn by_host(flows: &[FlowSummary]) -> BTreeMap<String, HostSummary> {
    let mut hosts: BTreeMap<String, HostSummary> = BTreeMap::new();
    for flow in flows {
        let host = hosts.entry(flow.authority.to_string()).or_default();
        host.flows += 1;
        host.errors += u64::from(flow.error.is_some());
        host.refused += u64::from(flow.error.as_deref() == Some(ErrorKind::ClientTls.as_str()));
        if let Some(why) = flow.passthrough.as_deref().and_then(Passthrough::from_label) {
            *host.passed.entry(why.explanation()).or_default() += 1;
        }
        host.sent += flow.request_size;
        host.received += flow.response_size;
    }
    hosts
}

/// LLM requests that were sent with personal data or secrets in them.
#[derive(Debug, Default, PartialEq, Eq)]
struct UnredactedRequests {
    requests: u64,
    findings: u64,
    kinds: BTreeSet<String>,
}

/// Counts the flows whose findings were only flagged, by their tags. Rejected requests were not sent.
fn unredacted<'t>(tags_of_flows: impl Iterator<Item = &'t [String]>) -> UnredactedRequests {
    let mut unredacted = UnredactedRequests::default();
    for tags in tags_of_flows {
        if tags.iter().any(|t| t == "redact:flagged") && !tags.iter().any(|t| t.starts_with("refused:")) {
            unredacted.requests += 1;
            let findings = tags.iter().filter_map(|t| t.strip_prefix("unredacted:")?.parse::<u64>().ok());
            unredacted.findings = findings.fold(unredacted.findings, u64::saturating_add);
            unredacted.kinds.extend(tags.iter().filter_map(|t| t.strip_prefix("found:")).map(str::to_owned));
        }
    }
    unredacted
}

impl UnredactedRequests {
    fn warning(&self, command: &str) -> Option<String> {
        let kinds = self.kinds.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        (self.requests > 0).then(|| {
            format!(
                "{} left with {} unredacted ({kinds}): `{command} exec --redact` replaces them; \
                 `redact.proxied = \"redact\"` in the configuration does so for all clients",
                pluralize(self.requests, "prompt"),
                pluralize(self.findings, "finding"),
            )
        })
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_requests_with_flagged_findings_are_counted_with_their_kinds() {
        let tags = |list: &[&str]| list.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>();
        let flows = [
            tags(&["redact:flagged", "unredacted:5", "found:ssn", "found:email-address"]),
            tags(&["redact:flagged", "unredacted:2", "found:ssn"]),
            tags(&["redacted", "found:iban"]),
            tags(&["redact:flagged", "unredacted:9", "found:iban", "refused:denied"]),
            tags(&[]),
        ];
        let left = unredacted(flows.iter().map(Vec::as_slice));
        let warning = left.warning("interflow").unwrap();
        assert!(warning.starts_with("2 prompts left with 7 findings unredacted"), "{warning}");
        assert!(warning.contains("(email-address, ssn)") && warning.contains("exec --redact"), "{warning}");
        assert_eq!(unredacted(flows[2..].iter().map(Vec::as_slice)).warning("interflow"), None);
    }

    #[test]
    fn sizes_are_human_readable() {
        assert_eq!([size(9), size(1500), size(2_000_000), size(3_500_000_000)], ["9 B", "1.5 kB", "2.0 MB", "3.5 GB"]);
    }
}
