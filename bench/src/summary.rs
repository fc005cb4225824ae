//! The table at the top of the report, which the README repeats: six rows that answer how fast Interflow is beside others.

use std::fmt::Write;

use crate::measure::Run;
use crate::report::{cpu, median};
use crate::tables::{Row, Table};

/// Table and case of the summary.
const SOURCE: (&str, &str) = ("mitm", "TLS 8 KiB");

/// Rows of the summary: name of the row in the case, and what readers call it.
const ROWS: [(&str, &str); 6] = [
    ("interflow", "Interflow"),
    ("interflow+record", "Interflow, recording"),
    ("nginx", "nginx 1.22 as a TLS reverse proxy"),
    ("goproxy", "goproxy 1.9"),
    ("squid-bump", "Squid 5.7, ssl-bump"),
    ("mitmdump", "mitmdump 12.2"),
];

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
         (`{}`, commit {}, {date}; {}).\nClient, origin and proxies share this machine, so only ratios mean anything.\n\n\
         | proxy | requests/s | CPU per request | p99 | peak memory |\n|---|---|---|---|---|\n",
        table.command, table.commit, table.machine
    );
    for line in ROWS.iter().filter_map(|(arm, label)| Some(cells(label, case.rows.iter().find(|r| r.arm == *arm)?))) {
        let _ = writeln!(out, "{line}");
    }
    out
}

fn cells(label: &str, row: &Row) -> String {
    if row.failure.is_some() {
        return format!("| {label} | failed | | | |");
    }
    let own = |f: fn(&Run) -> f64| median(row, f);
    let p99 = own(|r| r.outcome.total.p99) / 1000.0;
    let digits = usize::from(p99 < 10.0);
    format!(
        "| {label} | {} | {} µs | {p99:.digits$} ms | {:.0} MB |",
        grouped(own(|r| r.outcome.rate())),
        grouped(own(cpu)),
        own(|r| r.peak_rss_kib as f64) / 1024.0
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped_by_three_digits() {
        assert_eq!([0.4, 999.0, 1_487.2, 1_234_567.0].map(grouped), ["0", "999", "1,487", "1,234,567"]);
    }

    #[test]
    fn readme_and_performance_page_have_the_measured_rows() {
        let table: Table = serde_json::from_str(include_str!("../results/mitm.json")).unwrap();
        let summary = summary(&[table]);
        let rows: Vec<_> = summary.lines().filter(|l| l.starts_with("| ")).collect();
        assert_eq!(rows.len(), 7, "{summary}");
        let pages = [include_str!("../../README.md"), include_str!("../../docs/explanation/performance.md")];
        for row in rows {
            assert!(
                pages.iter().all(|page| page.contains(row)),
                "run `interflow-bench report` and copy to the README: {row}"
            );
        }
    }
}
