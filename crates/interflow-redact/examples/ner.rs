//! Measures a model of names beside the built-in detectors: what each finds in labelled texts alone, what both find
//! weighed, and what the model costs.
//!
//! `ner MODEL.toml TEXTS.json OUT_FOLDER [NEGATIVE FILE...]`
//!
//! MODEL.toml holds the keys of `[redact.model]`. Writes `rules.json`, `model.json` and `weighed.json` with spans in code
//! points, `texts.json` with the model's findings for `fit_names`, and `cost.json`.

use std::path::Path;
use std::time::Instant;

use interflow_redact::{EntityModel, Finding, ModelConfig, ModelFindings, RedactionSession, Redactor};
use serde_json::{Value, json};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [config, texts, out, negatives @ ..] = args.as_slice() else {
        panic!("usage: ner MODEL.toml TEXTS.json OUT_FOLDER [NEGATIVE FILE...]");
    };
    let config: ModelConfig = toml::from_str(&read(config)).expect("the keys of [redact.model]");
    let texts: Vec<Value> = serde_json::from_str(&read(texts)).expect("labelled texts");
    let (empty, begun) = (resident(), Instant::now());
    let model = EntityModel::load(&config, Path::new(".")).unwrap_or_else(|e| panic!("{e}"));
    let (loaded, load_ms) = (resident(), begun.elapsed().as_millis() as u64);

    let full: Vec<&str> = texts.iter().map(|t| t["full_text"].as_str().unwrap_or_default()).collect();
    let redactor = Redactor::default();
    let find = |text: &str, model: Option<&[Finding]>| {
        let mut session = RedactionSession::one_way();
        if let Some(findings) = model {
            session.model = ModelFindings::for_text(text, findings.to_vec());
        }
        redactor.find(text, &session).to_vec()
    };
    let (rules, rules_ms) = timed(|| full.iter().map(|t| find(t, None)).collect::<Vec<_>>());
    let alone = || full.iter().map(|t| model.find(t).expect("the model runs")).collect::<Vec<_>>();
    let (alone, model_ms) = timed(alone);
    let weighed: Vec<_> = full.iter().zip(&alone).map(|(t, m)| find(t, Some(m))).collect();
    let kilobytes = full.iter().map(|t| t.len()).sum::<usize>() as f64 / 1024.0;

    let out = Path::new(out);
    for (name, found) in [("rules", &rules), ("model", &alone), ("weighed", &weighed)] {
        let spans: Vec<Value> = full.iter().zip(found).map(|(text, found)| spans(text, found)).collect();
        write(&out.join(format!("{name}.json")), &json!(spans));
    }
    let with_model: Vec<Value> =
        texts.iter().zip(&full).zip(&alone).map(|((item, text), m)| labelled(item, text, m)).collect();
    write(&out.join("texts.json"), &json!(with_model));

    let mut false_alarms = [0usize; 2];
    let mut words = 0;
    for path in negatives {
        let text = read(path);
        words += text.split_whitespace().count();
        let found = model.find(&text).expect("the model runs");
        let (without, with) = (find(&text, None), find(&text, Some(&found)));
        let new = with.iter().filter(|f| !without.iter().any(|w| w.start < f.end && f.start < w.end));
        for f in new {
            println!("{path}: {} {} {:?}", f.kind, f.confidence, &text[f.start..f.end]);
        }
        false_alarms = [false_alarms[0] + without.len(), false_alarms[1] + with.len()];
    }
    let per_thousand = |n: usize| if words == 0 { 0.0 } else { n as f64 * 1000.0 / words as f64 };
    let cost = json!({
        "texts": full.len(), "kilobytes": kilobytes, "threads": config.threads, "load_ms": load_ms,
        "rules_cpu_ms_per_kilobyte": rules_ms[0] / kilobytes,
        "model_cpu_ms_per_kilobyte": model_ms[0] / kilobytes, "model_wall_ms_per_kilobyte": model_ms[1] / kilobytes,
        "rss_mb": { "before": empty, "loaded": loaded, "after": resident() },
        "negative_words": words,
        "false_alarms_per_1000_words": { "rules": per_thousand(false_alarms[0]), "weighed": per_thousand(false_alarms[1]) },
    });
    write(&out.join("cost.json"), &cost);
    println!("{cost:#}");
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn write(path: &Path, value: &Value) {
    std::fs::write(path, value.to_string()).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// The result, with the milliseconds of processor time of the whole process and by the clock.
fn timed<T>(work: impl FnOnce() -> T) -> (T, [f64; 2]) {
    let (cpu, wall) = (on_cpu(), Instant::now());
    let done = work();
    (done, [on_cpu() - cpu, wall.elapsed().as_secs_f64() * 1000.0])
}

/// Processor time of all threads in milliseconds.
fn on_cpu() -> f64 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let spent = |task: std::fs::DirEntry| -> Option<f64> {
        let stat = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse().ok()
    };
    tasks.flatten().filter_map(spent).sum::<f64>() / 1e6
}

/// Resident memory in megabytes.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()).unwrap_or_default() / 1024.0
}

fn code_points(text: &str, f: &Finding) -> (usize, usize) {
    let start = text[..f.start].chars().count();
    (start, start + text[f.start..f.end].chars().count())
}

fn spans(text: &str, found: &[Finding]) -> Value {
    let span = |f: &Finding| {
        let (start, end) = code_points(text, f);
        json!([f.kind.as_str(), start, end])
    };
    found.iter().map(span).collect()
}

/// The text with its labels and what the model found.
fn labelled(item: &Value, text: &str, found: &[Finding]) -> Value {
    let label = |f: &Finding| {
        let (start, end) = code_points(text, f);
        json!({ "entity_type": f.kind.as_str(), "start_position": start, "end_position": end, "confidence": f.confidence })
    };
    json!({ "full_text": text, "spans": item["spans"], "model": found.iter().map(label).collect::<Vec<_>>() })
}
