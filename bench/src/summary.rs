//! The table at the top of the report, which the README repeats: a few rows that answer how fast Interflow is beside others.

use std::fmt::Write;

use crate::measure::Run;
use crate::report::{cpu, median, median_of};
use crate::tables::{Row, Table};

/// Table and case of the summary.
const SOURCE: (&str, &str) = ("mitm", "TLS 8 KiB");

/// Rows of the summary: name of the row in the case, and what readers call it, before and after its version.
const ROWS: [(&str, &str, &str); 9] = [
    ("interflow", "Interflow", ""),
    ("interflow+record", "Interflow", ", recording"),
    ("nginx", "nginx", " as a TLS reverse proxy"),
    ("pingora", "Pingora", " as a TLS reverse proxy"),
    ("envoy", "Envoy", " as a TLS reverse proxy"),
    ("goproxy", "goproxy", ""),
    ("squid-bump", "Squid", ", ssl-bump"),
    ("greyproxy", "Greyproxy", ", recording"),
    ("mitmdump", "mitmdump", ""),
];

/// The head of each table.
const HEAD: &str = "| proxy | requests/s | CPU per request | p99 | peak memory |\n|---|---|---|---|---|\n";

/// The summary as Markdown; empty if its case was not measured.
pub fn summary(tables: &[Table]) -> String {
    let (name, case_name) = SOURCE;
    let table = tables.iter().find(|t| t.name == name);
    let Some((table, case)) = table.and_then(|t| Some((t, t.cases.iter().find(|c| c.name == case_name)?))) else {
        return String::new();
    };
    let date = table.began.split('T').next().unwrap_or_default();
    let mut out = format!(
        "\n## Summary\n\nGET of 8 KiB over TLS, intercepted, 16 connections, HTTP/1.1 from the client\n\
         (`{}`, commit {}, {date}; {}).\nClient, origin and proxies share this machine, so only ratios mean anything.\n\n{HEAD}",
        table.command, table.commit, table.machine
    );
    for (arm, program, what) in ROWS {
        if let Some(row) = case.rows.iter().find(|r| r.arm == arm) {
            let number = version_number(arm, table.versions.get(arm));
            let _ = writeln!(out, "{}", cells(&format!("{program}{number}{what}"), row));
        }
    }
    out
}

fn cells(label: &str, row: &Row) -> String {
    if row.failure.is_some() {
        return format!("| {label} | failed | | | |");
    }
    // The rate at most is that of a closed loop; where latency is measured at a fixed rate, it has runs of its own.
    let loaded = |f: fn(&Run) -> f64| {
        if row.saturated.is_empty() { median(row, f) } else { median_of(row.saturated.iter().map(f)) }
    };
    let own = |f: fn(&Run) -> f64| median(row, f);
    let p99 = own(|r| r.outcome.total.p99) / 1000.0;
    let digits = usize::from(p99 < 10.0);
    format!(
        "| {label} | {} | {} µs | {p99:.digits$} ms | {:.0} MB |",
        grouped(loaded(|r| r.outcome.rate())),
        grouped(loaded(cpu)),
        loaded(|r| r.peak_rss_kib as f64) / 1024.0
    )
}

/// A whole number with a comma between groups of three digits.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Cases of the page for readers: table, case, and what it is about.
const HEADLINES: [(&str, &str, &str); 9] = [
    ("forward", "plain 16 KiB", "A forward proxy, 100 connections, pages of 16 KiB"),
    ("forward", "9900 connections", "A forward proxy, 9,900 busy connections"),
    ("mitm", "PLAIN 8 KiB", "Plain HTTP, 16 connections, pages of 8 KiB"),
    ("mitm", "TLS new connection", "TLS opened and closed again: a new connection for each request"),
    ("llm-gateway", "pass-through, openai", "A gateway to LLM providers, requests of 2 KB passed on"),
    ("llm-gateway", "translation, anthropic to openai", "A gateway to LLM providers that translates between two APIs"),
    (
        "llm-gateway",
        "key, budget, guardrails, redaction and recording",
        "A key, a budget and a recording; guardrails and redaction besides (agentgateway: a key and a limit)",
    ),
    ("redact", "openai", "Personal data taken out of a prompt and put back into the answer"),
    ("media", "relay 7 MiB, 100 viewers", "A video file of 7 MiB for 100 viewers"),
];

/// The page for readers: the summary, the headline cases with Interflow's rows first, and links to what is behind them.
pub fn headlines(tables: &[Table]) -> String {
    let mut out = String::new();
    for (name, case_name, title) in HEADLINES {
        let table = tables.iter().find(|t| t.name == name);
        let Some((table, case)) = table.and_then(|t| Some((t, t.cases.iter().find(|c| c.name == case_name)?))) else {
            continue;
        };
        let _ = write!(out, "\n### {title}\n\n{HEAD}");
        for row in case.rows.iter().filter(|row| row.arm != "direct") {
            let _ = writeln!(out, "{}", cells(&label(&row.arm, table.versions.get(&row.arm)), row));
        }
        let date = table.began.split('T').next().unwrap_or_default();
        let whole = format!("`{}`, commit {}, {date}", table.command, table.commit);
        let _ = write!(out, "\n{}.\n", case.apart.as_ref().unwrap_or(&whole));
    }
    out
}

/// A row's name with its version, unless it is Interflow's own.
fn label(arm: &str, version: Option<&String>) -> String {
    let (program, rest) = arm
        .split_once('+')
        .map_or((arm, String::new()), |(program, with)| (program, format!(", {}", with.replace('+', ", "))));
    let own = ["interflow", "gateway"].into_iter().find_map(|name| program.strip_prefix(name));
    let program = own.map_or_else(|| program.to_owned(), |variant| format!("Interflow{variant}"));
    format!("{program}{}{rest}", version_number(arm, version))
}

/// A space and the number in a version, unless it is Interflow's own.
fn version_number(arm: &str, version: Option<&String>) -> String {
    let number = version.filter(|_| !arm.starts_with("interflow") && !arm.starts_with("gateway")).and_then(|version| {
        version
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .find(|part| part.contains(|c: char| c.is_ascii_digit()))
    });
    number.map_or_else(String::new, |number| format!(" {number}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped_by_three_digits() {
        assert_eq!([0.4, 999.0, 1_487.2, 1_234_567.0].map(grouped), ["0", "999", "1,487", "1,234,567"]);
    }

    #[test]
    fn rows_are_named_with_the_versions_of_others() {
        let label = |arm, version: &str| label(arm, Some(&version.to_owned()));
        assert_eq!(label("nginx", "nginx version: nginx/1.22.1"), "nginx 1.22.1");
        assert_eq!(label("goproxy-tunnel", "goproxy v1.9.2"), "goproxy-tunnel 1.9.2");
        assert_eq!(label("interflow+record", "interflow 0.1.0"), "Interflow, record");
        assert_eq!(label("gateway+all", "interflow 0.1.0"), "Interflow, all");
        assert_eq!(label("agentgateway+mask", "agentgateway 1.4.1"), "agentgateway 1.4.1, mask");
        assert_eq!(label("litellm+presidio", "litellm 1.106.2"), "litellm 1.106.2, presidio");
    }

    #[test]
    fn readme_and_performance_page_have_the_measured_rows() {
        let table: Table = serde_json::from_str(include_str!("../results/mitm.json")).unwrap();
        let summary = summary(&[table]);
        let rows: Vec<_> = summary.lines().filter(|l| l.starts_with("| ")).collect();
        assert_eq!(rows.len(), ROWS.len() + 1, "{summary}");
        let pages = [include_str!("../../README.md"), include_str!("../../docs/explanation/performance.md")];
        for row in rows {
            assert!(
                pages.iter().all(|page| page.contains(row)),
                "run `interflow-bench report` and copy to the README: {row}"
            );
        }
    }
}
