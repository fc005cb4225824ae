//! Which plots a table gets.

use crate::plot::{self, Chart, Series};
use crate::report::{cpu, median};
use crate::tables::{Case, Kind, Row, Table};

/// Cases whose CPU per request is drawn.
const BARS: [(&str, &str); 3] = [("mitm", "TLS 8 KiB"), ("mitm", "TLS new connection"), ("redact", "openai")];

/// The plots of a table: CPU per request as bars, throughput over size and viewers, memory over connections.
pub fn charts(table: &Table) -> Vec<(String, String)> {
    let mut charts = Vec::new();
    for case in table.cases.iter().filter(|c| c.kind == Kind::Throughput && BARS.contains(&(&*table.name, &*c.name))) {
        let bars: Vec<(String, f64)> = case
            .rows
            .iter()
            .filter(|r| r.failure.is_none() && r.arm != "direct")
            .map(|r| (r.arm.clone(), median(r, cpu)))
            .collect();
        charts.push((slug(&case.name), plot::bars(&format!("{}: CPU microseconds per request", case.name), &bars)));
    }
    for (prefix, title) in [("plain ", "plain forward, 100 connections"), ("tunnel ", "CONNECT tunnels")] {
        let cases: Vec<(f64, &Case)> =
            table.cases.iter().filter_map(|c| Some((bytes(c.name.strip_prefix(prefix)?)?, c))).collect();
        let series = series_over(&cases, |row| median(row, |r| r.outcome.rate()));
        let chart = Chart {
            title: format!("{title}: requests per second over body size"),
            x: "bytes".into(),
            y: "req/s".into(),
            series,
        };
        charts.extend(chart.svg().map(|svg| (slug(title), svg)));
    }
    let sweep: Vec<(f64, &Case)> =
        table.cases.iter().filter_map(|c| Some((c.name.strip_suffix(" connections")?.parse().ok()?, c))).collect();
    let series = series_over(&sweep, |row| median(row, |r| r.peak_rss_kib as f64) / 1024.0);
    let chart =
        Chart { title: "peak memory over busy connections".into(), x: "connections".into(), y: "MB".into(), series };
    charts.extend(chart.svg().map(|svg| ("memory".into(), svg)));
    let viewers: Vec<(f64, &Case)> = table
        .cases
        .iter()
        .filter_map(|c| Some((c.name.strip_suffix(" viewers")?.rsplit_once(' ')?.1.parse().ok()?, c)))
        .collect();
    let series = series_over(&viewers, |row| median(row, |r| r.outcome.body_bytes as f64 / r.outcome.seconds / 1e6));
    let chart = Chart { title: "throughput over viewers".into(), x: "viewers".into(), y: "MB/s".into(), series };
    charts.extend(chart.svg().map(|svg| ("viewers".into(), svg)));
    charts
}

fn series_over(cases: &[(f64, &Case)], value: impl Fn(&Row) -> f64) -> Vec<Series> {
    let mut series: Vec<Series> = Vec::new();
    for (x, case) in cases {
        for row in case.rows.iter().filter(|r| r.failure.is_none()) {
            let point = (*x, value(row));
            match series.iter_mut().find(|s| s.name == row.arm) {
                Some(known) => known.points.push(point),
                None => series.push(Series { name: row.arm.clone(), points: vec![point] }),
            }
        }
    }
    series
}

/// `16 KiB` as a number of bytes.
fn bytes(label: &str) -> Option<f64> {
    let (number, unit) = label.split_once(' ')?;
    let factor = match unit {
        "B" => 1.0,
        "KiB" => 1024.0,
        "MiB" => 1_048_576.0,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

fn slug(name: &str) -> String {
    let text: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    text.split('-').filter(|s| !s.is_empty()).collect::<Vec<_>>().join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_become_sizes_and_file_names() {
        assert_eq!(bytes("16 KiB"), Some(16_384.0));
        assert_eq!(bytes("new"), None);
        assert_eq!(slug("TLS 8 KiB (new)"), "tls-8-kib-new");
    }
}
