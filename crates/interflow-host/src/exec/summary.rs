//! Per-host summary of a command's traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::Path;

use interflow_query::{CompareOp, Expr, Key, TermTest, TextPattern, TimePoint, TimeTest};
use interflow_store::{FlowStore, Result};
use interflow_types::units::pluralize;
use interflow_types::{ErrorKind, Passthrough, Timestamp};

use crate::data_dir::shell_argument;

/// The traffic of a command.
pub struct ExecTraffic<'a> {
    pub began: Timestamp,
    /// The user of its flows, if it had a login.
    pub user: Option<&'a str>,
    /// The directory of a separate recording, if one was used.
    pub aside: Option<&'a Path>,
    /// Why nothing is recorded for now, if that is so.
    pub suspended: Option<String>,
}

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

/// Prints a table to stderr, so that the command's stdout stays clean. Without a store, nothing was recorded. `command` is how
/// commands begin.
pub fn print(store: Option<&dyn FlowStore>, traffic: &ExecTraffic<'_>, command: &str) {
    let Some(store) = store else {
        return crate::errln!("\ninterflow: no requests were recorded: record.enabled is false");
    };
    let Ok((hosts, unredacted)) = by_host(store, traffic) else { return };
    let flows: u64 = hosts.values().map(|host| host.flows).sum();
    if flows == 0 {
        let why = match (&traffic.suspended, traffic.user) {
            (Some(why), _) => format!("recorded: recording is suspended: {why}"),
            (None, Some(user)) => format!("sent through the proxy as the user {user}"),
            (None, None) => "sent through the proxy".to_owned(),
        };
        return crate::errln!("\ninterflow: no requests were {why}");
    }
    let dim = anstyle::Style::new().dimmed();
    crate::errln!("\n{dim}interflow: {}{dim:#}", pluralize(flows, "flow"));
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
    if let Some(warning) = unredacted.warning(command) {
        let yellow = anstyle::AnsiColor::Yellow.on_default().bold();
        crate::errln!("{yellow}  {warning}{yellow:#}");
    }
    let aside = traffic.aside.map(|dir| format!("INTERFLOW_RECORD_DIR={} ", shell_argument(dir))).unwrap_or_default();
    let them = if flows == 1 { "it" } else { "them" };
    crate::errln!("{dim}  {aside}{command} flows list shows {them}{dim:#}");
}

/// The flows of a command by host, and those that left unredacted.
fn by_host(
    store: &dyn FlowStore,
    traffic: &ExecTraffic<'_>,
) -> Result<(BTreeMap<String, HostSummary>, UnredactedRequests)> {
    let (mut hosts, mut unredacted) = (BTreeMap::<String, HostSummary>::new(), UnredactedRequests::default());
    let began = TimePoint::At { start: traffic.began.micros(), lasts: 1 };
    let since = Expr::term(Key::Time, TermTest::Time(TimeTest::Compare(CompareOp::Ge, began)));
    let of_user = |user: &str| Expr::term(Key::User, TermTest::Text(TextPattern::Exact(user.to_owned())));
    let query = Expr::and(traffic.user.map(of_user).into_iter().chain([since])).into();
    let now = Timestamp::now();
    store.search(&query, &|_| ControlFlow::Continue(()), &mut |row| {
        let flow = row.summary(now);
        let host = hosts.entry(flow.authority.to_string()).or_default();
        host.flows += 1;
        host.errors += u64::from(flow.error.is_some());
        host.refused += u64::from(flow.error.as_deref() == Some(ErrorKind::ClientTls.as_str()));
        if let Some(why) = flow.passthrough.as_deref().and_then(Passthrough::from_label) {
            *host.passed.entry(why.explanation()).or_default() += 1;
        }
        host.sent += flow.request_size;
        host.received += flow.response_size;
        unredacted.add(&row.tags);
        ControlFlow::Continue(())
    })?;
    Ok((hosts, unredacted))
}

/// LLM requests that were sent with personal data or secrets in them.
#[derive(Debug, Default, PartialEq, Eq)]
struct UnredactedRequests {
    requests: u64,
    findings: u64,
    kinds: BTreeSet<String>,
}

impl UnredactedRequests {
    /// Counts a flow whose findings were only flagged, by its tags. Rejected requests were not sent.
    fn add(&mut self, tags: &[String]) {
        if tags.iter().any(|t| t == "redact:flagged") && !tags.iter().any(|t| t.starts_with("refused:")) {
            self.requests += 1;
            let findings = tags.iter().filter_map(|t| t.strip_prefix("unredacted:")?.parse::<u64>().ok());
            self.findings = findings.fold(self.findings, u64::saturating_add);
            self.kinds.extend(tags.iter().filter_map(|t| t.strip_prefix("found:")).map(str::to_owned));
        }
    }

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
        let unredacted = |flows: &[Vec<String>]| {
            let mut left = UnredactedRequests::default();
            flows.iter().for_each(|tags| left.add(tags));
            left
        };
        let left = unredacted(&flows);
        let warning = left.warning("interflow").unwrap();
        assert!(warning.starts_with("2 prompts left with 7 findings unredacted"), "{warning}");
        assert!(warning.contains("(email-address, ssn)") && warning.contains("exec --redact"), "{warning}");
        assert_eq!(unredacted(&flows[2..]).warning("interflow"), None);
    }

    #[test]
    fn only_flows_of_the_login_are_counted_however_many_others_there_are() {
        use interflow_store::{FlowRecord, FlowWithBodies, RecordConfig, SqliteStore};
        use interflow_types::{Authority, EntryKind, FlowId, Scheme};

        const OTHERS: u64 = 6000;
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(dir.path(), &RecordConfig::default()).unwrap();
        let flow = |second: u64, user: Option<&str>| {
            let started = Timestamp::from_secs(1_800_000_000 + second);
            let id = FlowId::from_u128(u128::from(started.micros() / 1000) << 80 | u128::from(second));
            let authority = Authority::parse("a.test:80", None).unwrap();
            let mut row = FlowRecord::new(id, started, EntryKind::Absolute, Scheme::Http, authority);
            row.user = user.map(Into::into);
            FlowWithBodies::new(row)
        };
        let mut flows: Vec<_> = (0..2 * OTHERS).map(|second| flow(second, None)).collect();
        flows.extend([flow(2, Some("exec")), flow(OTHERS, Some("exec")), flow(OTHERS + 1, Some("other"))].map(
            |mut flow| {
                flow.row.id = FlowId::from_u128(flow.row.id.to_u128() | 1 << 70);
                flow
            },
        ));
        store.insert_all(flows).unwrap();
        let count = |began: u64, user| {
            let traffic =
                ExecTraffic { began: Timestamp::from_secs(1_800_000_000 + began), user, aside: None, suspended: None };
            by_host(&store, &traffic).unwrap().0.values().map(|host| host.flows).sum::<u64>()
        };
        assert_eq!((count(0, Some("exec")), count(3, Some("exec")), count(6 * OTHERS, None)), (2, 1, 0));
        assert_eq!(count(0, None), 2 * OTHERS + 3);
    }

    #[test]
    fn sizes_are_human_readable() {
        assert_eq!([size(9), size(1500), size(2_000_000), size(3_500_000_000)], ["9 B", "1.5 kB", "2.0 MB", "3.5 GB"]);
    }
}
