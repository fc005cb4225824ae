//! The table of metrics: its conventions, the reference page made from it, and the dashboard and alerts in deploy/ that name
//! its families.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use interflow_admin::metrics::table::TABLE;
use interflow_codec::prometheus::{MetricFamily, MetricKind};
use serde_json::Value;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn families() -> impl Iterator<Item = &'static MetricFamily> {
    TABLE.iter().flat_map(|(_, families)| families.iter().copied())
}

#[test]
fn names_and_labels_follow_prometheus_conventions() {
    let all: Vec<_> = families().collect();
    // OpenMetrics names a counter without `_total`, where it must not meet another family.
    let names: BTreeSet<_> = all.iter().map(|f| f.name.strip_suffix("_total").unwrap_or(f.name)).collect();
    assert_eq!(names.len(), all.len(), "two families have one name");
    for family in all {
        let MetricFamily { name, kind, labels, help } = family;
        let word = |text: &str| text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        assert!(word(name) && labels.iter().all(|l| word(l) && !l.starts_with('_') && *l != "le"), "{name}");
        assert_eq!(*kind == MetricKind::Counter, name.ends_with("_total"), "{name}");
        let reserved = ["_bucket", "_count", "_sum", "_created", "_info"];
        assert!(*name == "interflow_build_info" || !reserved.iter().any(|end| name.ends_with(end)), "{name}");
        assert!(help.ends_with('.') && help.starts_with(|c: char| c.is_uppercase() || c == '0' || c == '`'), "{help}");
        assert!(["interflow_", "process_"].iter().any(|p| name.starts_with(p)), "{name}");
    }
}

#[test]
fn the_reference_page_is_current() {
    interflow_testkit::docs::check_reference_page("metrics.md", &page());
}

fn page() -> String {
    let mut out = "# Metrics\n\n<!-- Generated from the code by `make docs`; do not edit. -->\n\n\
        `/metrics` on the admin port serves these in the text format of Prometheus; it requires the token unless\n\
        `admin.public_metrics` is set. Counters and histograms count from the start of the process. A family without a value, such\n\
        as that of a feature that is not configured, has no samples or is left out. `deploy/grafana/` has a dashboard and\n\
        `deploy/prometheus/` alert rules.\n"
        .to_owned();
    for (title, families) in TABLE {
        let _ = write!(out, "\n## {title}\n\n| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
        for family in *families {
            let labels: Vec<_> = family.labels.iter().map(|l| format!("`{l}`")).collect();
            let (name, unit) = (family.name, family.unit().unwrap_or_default());
            let (kind, labels) = (family.kind.as_str(), labels.join(", "));
            let _ = writeln!(out, "| `{name}` | {kind} | {unit} | {labels} | {} |", family.help);
        }
    }
    out
}

#[test]
fn the_dashboard_names_only_families_and_labels_that_exist() {
    let text = std::fs::read_to_string(root().join("deploy/grafana/interflow.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut found = Vec::new();
    collect(&dashboard, &["expr", "definition"], &mut found);
    assert!(found.len() > 30, "only {} expressions", found.len());
    assert_eq!(found.iter().flat_map(|expression| problems(expression)).collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn the_alerts_name_only_families_and_labels_that_exist() {
    let text = std::fs::read_to_string(root().join("deploy/prometheus/alerts.yaml")).unwrap();
    let alerts: Value = interflow_codec::document::from_yaml(&text).unwrap();
    let mut found = Vec::new();
    collect(&alerts, &["expr"], &mut found);
    assert!(found.len() > 15, "only {} expressions", found.len());
    assert_eq!(found.iter().flat_map(|expression| problems(expression)).collect::<Vec<_>>(), [""; 0]);
    let mut texts = Vec::new();
    collect(&alerts, &["summary", "description"], &mut texts);
    let unknown = texts.iter().flat_map(|text| names(text)).filter(|name| !families().any(|f| f.name == *name));
    assert_eq!(unknown.collect::<Vec<_>>(), [""; 0], "in annotations");
    let variables = std::fs::read_to_string(root().join("docs/reference/environment.md")).unwrap();
    let keys: Vec<&str> = texts.iter().flat_map(|text| configuration_keys(text)).collect();
    assert!(keys.contains(&"record.retention_bytes"), "{keys:?}");
    let variable = |key: &str| format!("INTERFLOW_{}", key.to_ascii_uppercase().replace('.', "_"));
    let unknown = keys.into_iter().filter(|key| !variables.contains(&variable(key)));
    assert_eq!(unknown.collect::<Vec<_>>(), [""; 0], "configuration keys in annotations");
}

#[test]
fn a_misspelt_family_or_label_is_a_problem() {
    for expression in [
        "rate(interflow_http_request_total[5m])",
        "interflow_errors_total{kinds=\"dns\"}",
        "sum by (listner) (interflow_http_requests_total)",
        "rate(interflow_errors_total_bucket[5m])",
        "rate(interflow_http_request_duration_seconds[5m])",
    ] {
        assert_eq!(problems(expression).len(), 1, "{expression}");
    }
    let good = "histogram_quantile(0.9, sum by (le, listener) (rate(interflow_http_request_duration_seconds_bucket{instance=~\"a,b{}\"}[5m])))";
    assert_eq!(problems(good), [""; 0]);
}

/// The texts under these keys, at any depth.
fn collect(value: &Value, keys: &[&str], found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                match value.as_str().filter(|_| keys.contains(&key.as_str())) {
                    Some(text) => found.push(text.to_owned()),
                    None => collect(value, keys, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect(value, keys, found)),
        _ => {}
    }
}

/// The configuration keys in a text: `record.bodies`.
fn configuration_keys(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.');
    words
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.contains('.') && word.starts_with(|c: char| c.is_ascii_lowercase()))
        // Templates of Prometheus, and pages of the documentation.
        .filter(|word| !word.starts_with("labels.") && !word.ends_with(".md"))
}

/// The names of our metrics in an expression.
fn names(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|w| ["interflow_", "process_"].iter().any(|p| w.starts_with(p))).collect()
}

/// The family of a sample, unless a histogram is named without a suffix, or another family with one.
fn family(sample: &str) -> Option<&'static MetricFamily> {
    let plain = families().find(|f| f.name == sample && f.kind != MetricKind::Histogram);
    let of_histogram = || {
        let name = ["_bucket", "_sum", "_count"].iter().find_map(|suffix| sample.strip_suffix(suffix))?;
        families().find(|f| f.name == name && f.kind == MetricKind::Histogram)
    };
    plain.or_else(of_histogram)
}

/// What is wrong with an expression of PromQL: families and labels that the table does not have.
fn problems(expression: &str) -> Vec<String> {
    let bare = without_strings(expression);
    let mut problems = Vec::new();
    let mut known: BTreeSet<&str> = ["le", "job", "instance"].into();
    for name in names(&bare) {
        match family(name) {
            Some(family) => known.extend(family.labels),
            None => problems.push(format!("{name} does not exist: {expression}")),
        }
    }
    let selectors = bare.split('{').skip(1).filter_map(|rest| rest.split('}').next());
    let selected =
        selectors.flat_map(|s| s.split(',')).map(|matcher| matcher.split(['=', '!']).next().unwrap_or_default());
    let grouped = ["by (", "on (", "ignoring (", "without ("].into_iter().flat_map(|word| bare.split(word).skip(1));
    let grouped = grouped.filter_map(|rest| rest.split(')').next()).flat_map(|list| list.split(','));
    for label in selected.chain(grouped).map(str::trim).filter(|label| !label.is_empty() && !known.contains(label)) {
        if problems.is_empty() {
            problems.push(format!("{label} is not a label of it: {expression}"));
        }
    }
    problems
}

/// The expression with empty strings, whose contents are no part of its grammar.
fn without_strings(expression: &str) -> String {
    expression.split('"').step_by(2).collect::<Vec<_>>().join("\"\"")
}
