//! Measures the semantic cache on labelled pairs of texts: `semantic_cache_accuracy EMBEDDINGS_URL MODEL
//! PAIRS.jsonl… [--json OUT] [--misses THRESHOLD]`. Each line has `label` (`same` or `different`), `kind`, `a` and `b`; the URL is
//! `http://HOST:PORT/v1/embeddings` of a server with OpenAI's API. A hit of a pair that is different is a false one.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use interflow_llm_gateway::gateway::TextFeatures;
use serde_json::{Value, json};

/// Thresholds of the table.
const THRESHOLDS: [f64; 9] = [0.75, 0.8, 0.85, 0.9, 0.92, 0.95, 0.97, 0.98, 0.99];

struct Pair {
    is_same: bool,
    kind: String,
    texts: [String; 2],
    similarity: f64,
    conflict: Option<&'static str>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, model, ..] = &arguments[..] else {
        eprintln!("semantic_cache_accuracy EMBEDDINGS_URL MODEL PAIRS.jsonl… [--json OUT] [--misses THRESHOLD]");
        std::process::exit(2);
    };
    let option = |name: &str| arguments.iter().position(|a| a == name).and_then(|i| arguments.get(i + 1));
    let misses = option("--misses").and_then(|t| t.parse::<f64>().ok());
    let files = arguments.iter().filter(|a| a.ends_with(".jsonl"));
    let results: Vec<Value> = files.map(|file| measure(file, url, model, misses)).collect();
    if let Some(out) = option("--json") {
        let text = serde_json::to_string_pretty(&results).expect("plain values");
        std::fs::write(out, text + "\n").expect("the file of the results can be written");
    }
}

fn measure(file: &str, url: &str, model: &str, misses: Option<f64>) -> Value {
    let lines = std::fs::read_to_string(file).unwrap_or_else(|e| panic!("{file}: {e}"));
    let rows = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is JSON"));
    let pairs: Vec<Pair> = rows.map(|row| measured(&row, url, model)).collect();
    let (same, different): (Vec<&Pair>, Vec<&Pair>) = pairs.iter().partition(|pair| pair.is_same);
    let name = file.rsplit('/').next().unwrap_or(file);
    println!("{name}: {} pairs that ask the same, {} that do not; {model}", same.len(), different.len());
    let mut table = Vec::new();
    for guard in [false, true] {
        println!("\n| threshold, {} | found | false hits |", if guard { "with guard" } else { "no guard" });
        println!("|---|---|---|");
        table.extend(THRESHOLDS.map(|threshold| line(&same, &different, guard, threshold)));
    }
    let guarded = same.iter().filter(|pair| pair.conflict.is_some()).count();
    println!("\nThe guard keeps {guarded} of {} paraphrases from being hits.\n", same.len());
    if let Some(threshold) = misses {
        show(&same, &different, threshold);
    }
    json!({ "file": name, "model": model, "same": same.len(), "different": different.len(),
        "guarded_paraphrases": guarded, "table": table })
}

/// A line of the table.
fn line(same: &[&Pair], different: &[&Pair], guard: bool, threshold: f64) -> Value {
    let is_hit = |pair: &&&Pair| pair.similarity >= threshold && !(guard && pair.conflict.is_some());
    let (found, wrong) = (same.iter().filter(is_hit).count(), different.iter().filter(is_hit).count());
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    different.iter().filter(is_hit).for_each(|pair| *kinds.entry(&pair.kind).or_default() += 1);
    let rate = wrong as f64 / (different.len() as f64).max(1.0);
    println!("| {threshold} | {found} of {} | {wrong} of {} ({:.1} %) |", same.len(), different.len(), rate * 100.0);
    let rate = (rate * 1e4).round() / 1e4;
    json!({ "guard": guard, "threshold": threshold, "found": found, "false_hits": wrong, "false_hit_rate": rate,
        "false_hits_by_kind": kinds })
}

fn show(same: &[&Pair], different: &[&Pair], threshold: f64) {
    let line = |what: &str, pair: &Pair| {
        let [a, b] = &pair.texts;
        println!("{what} {:.3} {} {}: {a} | {b}", pair.similarity, pair.kind, pair.conflict.unwrap_or("-"));
    };
    for pair in same.iter().filter(|pair| pair.similarity < threshold || pair.conflict.is_some()) {
        line("missed", pair);
    }
    for pair in different.iter().filter(|pair| pair.similarity >= threshold && pair.conflict.is_none()) {
        line("false", pair);
    }
}

fn measured(row: &Value, url: &str, model: &str) -> Pair {
    let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let texts = [text("a"), text("b")];
    let [a, b] = texts.each_ref().map(|text| embed(url, model, text));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let similarity = dot(&a, &b) / (dot(&a, &a) * dot(&b, &b)).sqrt();
    let conflict = TextFeatures::of(&texts[0]).conflict(&TextFeatures::of(&texts[1]));
    Pair { is_same: row["label"] == "same", kind: text("kind"), texts, similarity, conflict }
}

/// One request over plain HTTP.
fn embed(url: &str, model: &str, text: &str) -> Vec<f64> {
    let (host, path) = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).expect("an http:// URL");
    let body = json!({ "model": model, "input": text }).to_string();
    let mut wire = TcpStream::connect(host).expect("the embedding server is reachable");
    let head = format!(
        "POST /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    wire.write_all(head.as_bytes()).and_then(|()| wire.write_all(body.as_bytes())).expect("a request can be sent");
    let mut answer = String::new();
    wire.read_to_string(&mut answer).expect("a response is text");
    let (_, json) = answer.split_once("\r\n\r\n").expect("a response has a head");
    let value: Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}"));
    let vector = value["data"][0]["embedding"].as_array().expect("an embedding");
    vector.iter().filter_map(Value::as_f64).collect()
}
