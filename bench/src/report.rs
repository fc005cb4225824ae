//! Results to disk, and from them the Markdown report with its plots.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use crate::Result;
use crate::charts::charts;
use crate::measure::Run;
use crate::summary::{headlines, summary};
use crate::tables::{Case, Kind, Row, TABLES, Table};

/// The row that the others are compared with; where it is missing, the first of its kind.
const OURS: &str = "interflow";

const GENERATED: &str = "<!-- Made by `interflow-bench report` from `bench/results/*.json`; do not edit. -->\n";

const HEADLINES_HEAD: &str = "
## By task

Each table holds proxies that ran in turns in one run. Requests/s are those of a closed loop; p99 is the latency that 1 % of the requests
exceed.
";

const METHOD: &str = "
## Method

- The load generator, the origin and the proxies share one machine of two cores, so only ratios within one table mean anything. Compare
  CPU per request first: it is what a proxy costs, whatever else the machine does.
- The proxies run in turns (A B C, A B C), and each figure is a median.
- CPU is that of the proxy's process tree. Memory is its peak.
- Every body is compared byte for byte; one failed request fails the row. The certificate tells whether TLS was really opened.
- A proxy is configured as its manual recommends: see `bench/src/peers`. Versions are those that Debian 12, PyPI, npm, crates.io and the
  Go module proxy give, or those that `bench/README.md` names.
- All rows with their ranges, more cases and the versions are in `bench/results/report.md`, and each result file names its commit, date,
  machine and command.

## Repeat it

```sh
make bench
```

runs every table in its short form, and writes this page. `bench/README.md` lists single tables, longer runs and peers. `make
bench-instructions` counts the instructions of the hot paths, which no load of the machine changes.
";

/// Charts of the page for readers, with what they show.
const CHARTS: [(&str, &str); 6] = [
    ("mitm-tls-8-kib", "CPU per intercepted request of 8 KiB"),
    ("mitm-tls-new-connection", "CPU per request on a new intercepted connection"),
    ("forward-plain-forward-100-connections", "requests per second over body size"),
    ("forward-memory", "peak memory over busy connections"),
    ("redact-openai", "CPU per redacted request"),
    ("media-viewers", "throughput over viewers"),
];

const PUBLISHED_HEAD: &str = "
## Published by others

The figures are those of the systems' authors. Fluxzy and philter-ai-proxy could not be installed for the measurements; the others are
measured above too where their rows stand.

";

const READING: &str = "
## How to read the tables

- Load generator, origin and proxies share one machine, so only ratios within one table mean anything.
- Rows are interleaved (A B C, A B C). Figures are medians, with the range of the runs in brackets.
- CPU is that of the proxy's process tree, from `/proc/PID/stat`, over the counted time. `CPU ratio` is CPU per request as a multiple of
  Interflow's own.
- `client us` and `origin us` are the CPU of the load generator and of the origin per request. Where they exceed the proxy's, they bound
  the rate, and CPU per request is the figure to compare.
- Every body is compared byte for byte. A row with a single failed request is marked as failed.
- The versions of the proxies are listed with each group of tables; those of Debian are older than the projects' latest.
- How each proxy is configured is in `bench/src/peers`.
";

/// Figures published by systems, as ratios where their authors gave some.
const PUBLISHED: &str = "\
| system | published figure | how, and where |
|---|---|---|
| Fluxzy | 30 to 70 times mitmproxy, about 4 times Squid (plain) | its makers' blog: 16 connections, 0 and 8,192 bytes, own generator, loopback; client, server and proxy on one machine |
| Fluxzy | 51 / 39 % of direct at 0 B / 8 KiB over HTTP/1.1, 57 / 76 % over HTTP/2 | README of haga-rak/fluxzy.core; Ryzen 9 7950X3D, client and proxy in one process |
| Greyproxy 0.5.0 | +3.7 / +3.5 / +4.6 ms TTFB p50 (small, medium, large); large payloads 40/s against mitmproxy's 25/s | its report of 2026-04-15: 30 s at a fixed rate, a connection per request; Apple M4 Pro under Rosetta |
| philter-ai-proxy | 2,947 req/s openai, 729 anthropic, 696 openai-streaming, 1,424 outbound-scan beside 39,907 without a proxy | its load test (`test/load`): 10 users, 20 s; i5-11400; the detection behind it was a reference stub |
| mediaflow-proxy-light | 4.1 times mediaflow-proxy at 10 viewers, 2.1 times at 100, of a 7 MiB file | its benchmark page: bursts of one request per viewer, Apple Silicon |
| Python_Async_Proxy (Cython) | 28,216 req/s at 71 B, 983 at 1 MiB, 612 CONNECT/s, 899 req/s at 10,000 connections | its README; hardware not stated, runs differ by a factor of three |
";

/// Writes a table's result as JSON. Where only some of its cases were measured, the others stay as they are there.
///
/// # Errors
/// When the folder cannot be written, or what is there cannot be read.
pub fn save(results: &Path, mut table: Table, some: bool) -> Result<()> {
    fs::create_dir_all(results)?;
    let path = results.join(format!("{}.json", table.name));
    if some && let Ok(text) = fs::read_to_string(&path) {
        let mut all: Table = serde_json::from_str(&text)?;
        all.take(table);
        table = all;
    }
    Ok(fs::write(path, serde_json::to_string_pretty(&table)? + "\n")?)
}

/// Makes the report and the plots from all results in the folder.
///
/// # Errors
/// When a file cannot be read or written.
pub fn write(results: &Path, page: &Path) -> Result<()> {
    let mut tables = Vec::new();
    for (name, ..) in TABLES {
        if let Ok(text) = fs::read_to_string(results.join(format!("{name}.json"))) {
            tables.push(serde_json::from_str::<Table>(&text)?);
        }
    }
    let images = page.with_extension("");
    // Charts that no case draws any more must not stay.
    let _ = fs::remove_dir_all(&images);
    fs::create_dir_all(&images)?;
    let mut readers = format!("# Performance\n\n{GENERATED}{}{HEADLINES_HEAD}{}", summary(&tables), headlines(&tables));
    readers.push_str("\n## Charts\n");
    let drawn: Vec<(String, String)> = tables
        .iter()
        .flat_map(|table| charts(table).into_iter().map(|(name, svg)| (format!("{}-{name}", table.name), svg)))
        .collect();
    let folder = images.file_name().unwrap_or_default().to_string_lossy();
    for (file, title) in CHARTS {
        if let Some((_, svg)) = drawn.iter().find(|(name, _)| name == file) {
            fs::write(images.join(format!("{file}.svg")), svg)?;
            let _ = write!(readers, "\n![{title}]({folder}/{file}.svg)\n");
        }
    }
    readers.push_str(METHOD);
    let _ = write!(readers, "{PUBLISHED_HEAD}{PUBLISHED}");
    fs::write(page, &readers)?;
    let mut out = format!("# Results\n\n{GENERATED}{READING}");
    for table in &tables {
        section(&mut out, table);
    }
    fs::write(results.join("report.md"), &out)?;
    eprintln!("{} and {} are written", page.display(), images.display());
    Ok(())
}

fn section(out: &mut String, table: &Table) {
    let runs = match table.name.as_str() {
        "endurance" => String::new(),
        "start" => format!(" {} starts per row;", table.repeats),
        _ => format!(" {} x {} s per row;", table.repeats, table.seconds),
    };
    let pinned = if table.pinned { "proxies on a core of their own" } else { "cores not pinned" };
    let _ = write!(
        out,
        "\n## `{}`: {}\n\n{}; {pinned}; commit {}, {};{runs} `{}`.\n\n",
        table.name, table.title, table.machine, table.commit, table.began, table.command
    );
    if let Some(note) = &table.note {
        let _ = write!(out, "{note}\n\n");
    }
    for (arm, version) in &table.versions {
        let _ = writeln!(out, "- {arm}: {version}");
    }
    for case in &table.cases {
        let _ = write!(out, "\n### {}\n\n{}.\n\n", case.name, case.what);
        if let Some(apart) = &case.apart {
            let _ = write!(out, "{apart}.\n\n");
        }
        rows(out, case);
    }
    if let Some(recorded) = &table.recorded {
        let lost = recorded.answered.saturating_sub(recorded.flows);
        let _ = write!(
            out,
            "\n`interflow+record` answered {} requests over the whole table, and its store held {} flows after a clean stop: {}.\n",
            recorded.answered,
            recorded.flows,
            if lost == 0 { "nothing lost".to_owned() } else { format!("**{lost} lost**") }
        );
    }
}

fn rows(out: &mut String, case: &Case) {
    let named = case.rows.iter().find(|row| !row.figures.is_empty());
    let own: Vec<&str> =
        std::iter::once("").chain(named.into_iter().flat_map(|row| row.figures.iter().map(|f| &*f.name))).collect();
    let head: &[&str] = match case.kind {
        Kind::Figures => &own,
        Kind::Throughput => &[
            "proxy",
            "req/s",
            "MB/s",
            "CPU us/req",
            "CPU ratio",
            "user us",
            "p50 ms",
            "p99 ms",
            "peak MB",
            "cores",
            "client us",
            "origin us",
        ],
        Kind::Latency => &[
            "proxy",
            "TTFB p50 ms",
            "added",
            "TTFB p95",
            "total p50 ms",
            "added",
            "total p95",
            "total p99",
            "CPU us/req",
            "peak MB",
        ],
        Kind::Ceiling => &["proxy", "held req/s", "of Interflow's"],
        Kind::Memory => &["proxy", "KiB per connection", "RSS MB", "PSS MB", "descriptors"],
        Kind::Growth => &[
            "proxy",
            "minutes",
            "answers",
            "broken off",
            "RSS MB early",
            "RSS MB at the end",
            "PSS MB at the end",
            "descriptors early",
            "at the end",
            "p99 ms",
        ],
        Kind::Gateway => &[
            "proxy",
            "p50 ms",
            "added",
            "p99 ms",
            "added",
            "first byte p50 ms",
            "added",
            "req/s at most",
            "CPU us/req",
            "cores",
            "peak MB",
        ],
        Kind::Events => &["proxy", "events", "age p50 ms", "added", "age p99 ms", "added", "CPU us/stream", "peak MB"],
    };
    let _ = writeln!(out, "| {} |\n|{}", head.join(" | "), "---|".repeat(head.len()));
    for row in &case.rows {
        let _ = match &row.failure {
            Some(why) => writeln!(
                out,
                "| {} | failed: {} |{}",
                row.arm,
                why.replace(['|', '\n'], " "),
                " |".repeat(head.len().saturating_sub(2))
            ),
            None => writeln!(out, "| {} | {} |", row.arm, cells(case, row).join(" | ")),
        };
    }
}

fn cells(case: &Case, row: &Row) -> Vec<String> {
    let own = |f: fn(&Run) -> f64| median(row, f);
    let reference =
        case.rows.iter().find(|r| r.arm == OURS).or_else(|| case.rows.iter().find(|r| r.arm.starts_with(OURS)));
    let direct = case.rows.iter().find(|r| r.arm == "direct");
    let added =
        |f: fn(&Run) -> f64| direct.map_or(String::new(), |d| format!("{:+.3}", (own(f) - median(d, f)) / 1000.0));
    let ms = |f: fn(&Run) -> f64| format!("{:.3}", own(f) / 1000.0);
    match case.kind {
        Kind::Throughput => vec![
            spread(&row.runs, |r| r.outcome.rate(), 0),
            format!("{:.1}", own(|r| r.outcome.body_bytes as f64 / r.outcome.seconds / 1e6)),
            if row.arm == "direct" { String::new() } else { spread(&row.runs, |r| r.cpu_us, 1) },
            times(own(cpu), reference.map(|r| median(r, cpu)), row),
            Some(own(|r| r.user_us)).filter(|us| *us > 0.0).map_or(String::new(), |us| format!("{us:.1}")),
            ms(|r| r.outcome.total.p50),
            ms(|r| r.outcome.total.p99),
            megabytes(own(|r| r.peak_rss_kib as f64)),
            format!("{:.2}", own(|r| r.cores)),
            format!("{:.1}", own(|r| r.outcome.own_cpu_us)),
            format!("{:.1}", own(|r| r.origin_cpu_us)),
        ],
        Kind::Latency => vec![
            ms(|r| r.outcome.ttfb.p50),
            added(|r| r.outcome.ttfb.p50),
            ms(|r| r.outcome.ttfb.p95),
            ms(|r| r.outcome.total.p50),
            added(|r| r.outcome.total.p50),
            ms(|r| r.outcome.total.p95),
            ms(|r| r.outcome.total.p99),
            format!("{:.0}", own(cpu)),
            megabytes(own(|r| r.peak_rss_kib as f64)),
        ],
        Kind::Ceiling => {
            let held = row.ceiling.unwrap_or_default();
            let ours = reference.and_then(|r| r.ceiling).unwrap_or_default();
            vec![format!("{held:.0}"), if ours > 0.0 { format!("{:.2}", held / ours) } else { String::new() }]
        }
        Kind::Memory => vec![
            format!("{:.1}", row.kib_per_connection.unwrap_or_default()),
            megabytes(own(|r| r.rss_kib as f64)),
            megabytes(own(|r| r.pss_kib as f64)),
            format!("{:.0}", own(|r| r.descriptors as f64)),
        ],
        Kind::Growth => growth(row),
        Kind::Figures => row.figures.iter().map(|f| format!("{:.*}", f.digits, f.value)).collect(),
        Kind::Gateway => vec![
            ms(|r| r.outcome.total.p50),
            added(|r| r.outcome.total.p50),
            ms(|r| r.outcome.total.p99),
            added(|r| r.outcome.total.p99),
            ms(|r| r.outcome.ttfb.p50),
            added(|r| r.outcome.ttfb.p50),
            spread(&row.saturated, |r| r.outcome.rate(), 0),
            if row.arm == "direct" { String::new() } else { spread(&row.saturated, cpu, 0) },
            format!("{:.2}", median_of(row.saturated.iter().map(|r| r.cores))),
            megabytes(median_of(row.saturated.iter().map(|r| r.peak_rss_kib as f64))),
        ],
        Kind::Events => vec![
            format!("{:.0}", own(|r| r.outcome.event_delay.count as f64)),
            ms(|r| r.outcome.event_delay.p50),
            added(|r| r.outcome.event_delay.p50),
            ms(|r| r.outcome.event_delay.p99),
            added(|r| r.outcome.event_delay.p99),
            format!("{:.0}", own(cpu)),
            megabytes(own(|r| r.peak_rss_kib as f64)),
        ],
    }
}

/// What a long run has come to; memory and descriptors are those at rest.
fn growth(row: &Row) -> Vec<String> {
    let early = row.samples.get(row.samples.len() / 4).copied().unwrap_or_default();
    let last = row.samples.last().copied().unwrap_or_default();
    vec![
        format!("{:.1}", last.seconds / 60.0),
        last.flows.to_string(),
        row.runs.iter().map(|r| r.outcome.cancelled).sum::<u64>().to_string(),
        megabytes(early.rss_kib as f64),
        megabytes(last.rss_kib as f64),
        megabytes(last.pss_kib as f64),
        early.descriptors.to_string(),
        last.descriptors.to_string(),
        format!("{:.3}", median(row, |r| r.outcome.total.p99) / 1000.0),
    ]
}

/// One row in short, for the terminal.
pub fn line(kind: Kind, row: &Row) -> String {
    if let Some(why) = &row.failure {
        return format!("{:18} failed: {why}", row.arm);
    }
    let own = |f: fn(&Run) -> f64| median(row, f);
    let ms = |f: fn(&Run) -> f64| own(f) / 1000.0;
    let what = match kind {
        Kind::Throughput => format!(
            "{:9.0} req/s {:9.1} us CPU  p99 {:8.3} ms  peak {:6.1} MB  (gen {:.1}, origin {:.1} us)",
            own(|r| r.outcome.rate()),
            own(cpu),
            ms(|r| r.outcome.total.p99),
            own(|r| r.peak_rss_kib as f64) / 1024.0,
            own(|r| r.outcome.own_cpu_us),
            own(|r| r.origin_cpu_us)
        ),
        Kind::Latency => format!(
            "TTFB p50 {:.3} p95 {:.3} ms, total p50 {:.3} p95 {:.3} ms, {:.0} us CPU",
            ms(|r| r.outcome.ttfb.p50),
            ms(|r| r.outcome.ttfb.p95),
            ms(|r| r.outcome.total.p50),
            ms(|r| r.outcome.total.p95),
            own(cpu)
        ),
        Kind::Ceiling => format!("{:.0} req/s held", row.ceiling.unwrap_or_default()),
        Kind::Memory => format!("{:.1} KiB per connection", row.kib_per_connection.unwrap_or_default()),
        Kind::Growth => growth(row).join("  "),
        Kind::Figures => {
            let shown = row.figures.iter().map(|f| format!("{} {:.*}", f.name, f.digits, f.value));
            shown.collect::<Vec<_>>().join(", ")
        }
        Kind::Gateway => {
            let top = |f: fn(&Run) -> f64| median_of(row.saturated.iter().map(f));
            format!(
                "p50 {:7.3} p99 {:8.3} ms  {:8.0} req/s at most {:9.1} us CPU  peak {:6.1} MB",
                ms(|r| r.outcome.total.p50),
                ms(|r| r.outcome.total.p99),
                top(|r| r.outcome.rate()),
                top(cpu),
                top(|r| r.peak_rss_kib as f64) / 1024.0
            )
        }
        Kind::Events => {
            format!("age p50 {:.3} p99 {:.3} ms", ms(|r| r.outcome.event_delay.p50), ms(|r| r.outcome.event_delay.p99))
        }
    };
    format!("{:18} {what}", row.arm)
}

pub fn cpu(run: &Run) -> f64 {
    run.cpu_us
}

fn times(own: f64, ours: Option<f64>, row: &Row) -> String {
    match ours {
        Some(ours) if ours > 0.0 && row.arm != "direct" => format!("{:.2}", own / ours),
        _ => String::new(),
    }
}

fn megabytes(kib: f64) -> String {
    if kib > 0.0 { format!("{:.1}", kib / 1024.0) } else { String::new() }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values
}

pub fn median(row: &Row, f: impl Fn(&Run) -> f64) -> f64 {
    median_of(row.runs.iter().map(f))
}

/// 0 if there are none.
pub fn median_of(values: impl Iterator<Item = f64>) -> f64 {
    let values = sorted(values);
    match values.len() {
        0 => 0.0,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

fn spread(runs: &[Run], f: impl Fn(&Run) -> f64 + Copy, digits: usize) -> String {
    let all = sorted(runs.iter().map(f));
    match (all.first(), all.last()) {
        (Some(low), Some(high)) if all.len() > 1 => {
            format!("{:.digits$} [{low:.digits$} - {high:.digits$}]", median_of(runs.iter().map(f)))
        }
        _ => format!("{:.digits$}", median_of(runs.iter().map(f))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::spec::Outcome;
    use crate::tables::Sample;

    fn run(ok: u64, cpu_us: f64) -> Run {
        let outcome = Outcome { ok, seconds: 1.0, ..Outcome::default() };
        Run {
            outcome,
            cpu_us,
            user_us: 0.0,
            cores: 1.0,
            origin_cpu_us: 0.0,
            peak_rss_kib: 2048,
            rss_kib: 1024,
            pss_kib: 1024,
            descriptors: 9,
        }
    }

    fn row(arm: &str, runs: Vec<Run>) -> Row {
        Row { arm: arm.into(), runs, ..Row::default() }
    }

    #[test]
    fn a_row_shows_median_range_and_ratio_to_our_cpu() {
        let ours = row("interflow", vec![run(90, 10.0), run(100, 11.0), run(200, 9.0)]);
        let theirs = row("other", vec![run(50, 40.0)]);
        let case = Case { name: "PLAIN".into(), rows: vec![ours, theirs], ..Case::default() };
        let mut out = String::new();
        rows(&mut out, &case);
        assert!(out.contains("| interflow | 100 [90 - 200] |"), "{out}");
        assert!(out.contains("| other | 50 | 0.0 | 40.0 | 4.00 |"), "{out}");
    }

    #[test]
    fn a_failed_row_shows_why_and_no_figures() {
        let failed = Row { failure: Some("3 errors | x".into()), ..row("other", vec![run(50, 40.0)]) };
        let case = Case { rows: vec![failed], ..Case::default() };
        let mut out = String::new();
        rows(&mut out, &case);
        assert!(out.contains("| other | failed: 3 errors   x |") && !out.contains("40.0"), "{out}");
    }

    #[test]
    fn an_even_number_of_runs_has_its_median_between_the_two() {
        assert_eq!(median(&row("a", vec![run(1, 1.0), run(3, 3.0)]), cpu), 2.0);
        assert_eq!(median(&row("a", Vec::new()), cpu), 0.0);
    }

    #[test]
    fn long_run_shows_memory_growth_and_descriptors() {
        let sample = |rss_kib, descriptors| Sample { seconds: 120.0, flows: 9, rss_kib, pss_kib: 1024, descriptors };
        let samples = vec![sample(512, 1), sample(1024, 20), sample(1024, 21), sample(2048, 22)];
        let row = Row { samples, ..row("interflow", vec![run(9, 1.0)]) };
        assert_eq!(growth(&row)[..8], ["2.0", "9", "0", "1.0", "2.0", "1.0", "20", "22"]);
    }
}
