//! `/metrics` of a running instance: its form, and that it agrees with the table of metrics.

use std::collections::{BTreeMap, BTreeSet};

use interflow_admin::metrics::table::TABLE;
use interflow_codec::prometheus::MetricFamily;

use crate::CHAT;
use crate::instance::{Home, Running};

/// Reads a page strictly: each family is declared once, before its samples, which are together.
#[derive(Default)]
struct Exposition {
    help: BTreeMap<String, String>,
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<String, f64>,
}

impl Exposition {
    fn parse(text: &str) -> Self {
        let mut page = Self::default();
        let mut current = String::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(page.help.insert(name.into(), help.into()).is_none(), "{name} has two HELP lines");
                current = name.to_owned();
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(page.kinds.insert(name.into(), kind.into()).is_none(), "{name} has two TYPE lines");
                assert_eq!(name, current, "TYPE follows HELP");
            } else {
                let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
                let name = series.split('{').next().unwrap();
                let suffixes: &[&str] =
                    if page.kinds[&current] == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
                assert!(
                    suffixes.iter().any(|s| name.strip_suffix(s) == Some(&current)),
                    "{line} is not a sample of {current}"
                );
                let value = value.parse().unwrap_or_else(|_| panic!("{line}"));
                assert!(page.samples.insert(series.into(), value).is_none(), "{series} stands there twice");
            }
        }
        page
    }

    async fn of(running: &Running) -> (Self, String) {
        let text = running.admin("GET", "/metrics", "").await.text();
        (Self::parse(&text), text)
    }

    /// Names of labels of the samples of this family.
    fn labels(&self, family: &str) -> BTreeSet<&str> {
        let of_family = self.samples.keys().filter_map(|series| {
            let (name, labels) = series.strip_suffix('}')?.split_once('{')?;
            let name = ["_bucket", "_sum", "_count"].iter().find_map(|s| name.strip_suffix(s)).unwrap_or(name);
            (name == family).then_some(labels)
        });
        let names = of_family.flat_map(|labels| labels.split("\",").filter_map(|pair| pair.split('=').next()));
        names.filter(|name| *name != "le").collect()
    }
}

fn families() -> BTreeMap<&'static str, &'static MetricFamily> {
    TABLE.iter().flat_map(|(_, families)| families.iter().map(|f| (f.name, *f))).collect()
}

#[tokio::test]
async fn every_family_on_the_page_is_as_the_table_says() {
    let home = Home::new().await;
    home.keys(&["add", "--id", "k1"]).ok();
    let quota = "[[quota.rule]]\nname = \"day\"\ncount_by = \"provider\"\nallow = { tokens_per_day = 1000, requests = \"1/m\" }\n";
    let running = home.start(&format!("{quota}[llm.provider.openai]\nurl = \"{}\"\n", home.provider.url("")));
    assert_eq!(running.post("/v1/chat/completions", "Authorization: Bearer k\r\n", CHAT).await.status, 200);
    assert_eq!(running.post("/v1/chat/completions", "Authorization: Bearer k\r\n", CHAT).await.status, 429);
    let (page, text) = Exposition::of(&running).await;
    let known = families();
    for (name, kind) in &page.kinds {
        let family = known.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not in the table"));
        assert_eq!((kind.as_str(), page.help[name].as_str()), (family.kind.as_str(), family.help), "{name}");
        let labels = page.labels(name);
        assert!(labels.is_empty() || labels == family.labels.iter().copied().collect(), "{name}: {labels:?}");
    }
    // These are not configured.
    let left_out = ["interflow_redis_", "interflow_archive_", "interflow_shared_store_"];
    let mut absent: Vec<_> = known.keys().filter(|name| !page.kinds.contains_key(**name)).collect();
    absent.retain(|name| !left_out.iter().any(|start| name.starts_with(start)));
    // What only Linux has is not looked for elsewhere.
    absent.retain(|name| cfg!(target_os = "linux") || !name.starts_with("process_"));
    assert!(absent.is_empty(), "{absent:?}");
    for (series, value) in [
        ("interflow_quota_limit{rule=\"day\",subject=\"openai\",counter=\"tokens_per_day\"}", 1000.0),
        ("interflow_quota_rejected_requests_total{rule=\"day\",counter=\"requests\"}", 1.0),
        ("interflow_llm_circuit_breaker_open{provider=\"openai\"}", 0.0),
        ("interflow_http_responses_total{listener=\"gateway\",code_class=\"2xx\"}", 1.0),
        ("interflow_http_responses_total{listener=\"gateway\",code_class=\"4xx\"}", 1.0),
        ("interflow_upstream_connect_duration_seconds_count", 1.0),
        ("interflow_upstream_time_to_first_byte_seconds_count", 1.0),
        ("interflow_recorder_up", 1.0),
        ("interflow_config_last_reload_successful", 1.0),
    ] {
        assert_eq!(page.samples.get(series), Some(&value), "{series}\n{text}");
    }
    let used = &page.samples["interflow_quota_used{rule=\"day\",subject=\"openai\",counter=\"tokens_per_day\"}"];
    assert!(*used > 0.0, "{text}");
    let now = interflow_types::Timestamp::now().micros() as f64 / 1e6;
    assert!(page.samples["interflow_ca_not_after_timestamp_seconds"] > now + 86400.0);
    assert!((now - page.samples["process_start_time_seconds"]).abs() < 120.0);
}

#[tokio::test]
async fn a_failed_reload_is_reported_until_one_succeeds() {
    let home = Home::new().await;
    let running = home.start("");
    let successful = async || Exposition::of(&running).await.0.samples["interflow_config_last_reload_successful"];
    assert_eq!(successful().await, 1.0);
    home.write_config("[proxy]\nno_such_key = 1\n");
    running.until(async || successful().await == 0.0).await;
    home.write_config("");
    running.until(async || successful().await == 1.0).await;
}
