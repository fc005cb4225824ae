//! Measures detection with the default policy: MB/s on the given files, and microseconds for a prompt of 2 KB. Times
//! are CPU time, which is less affected by load.
//!
//! `speed FILE... [--json OUT]`

use std::hint::black_box;
use std::sync::Arc;

use interflow_redact::{FindingCache, PlaceholderVault, RedactionSession, Redactor, VaultKey};

/// CPU time of this thread in seconds.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

fn main() {
    let redactor = Redactor::default();
    let session = RedactionSession::one_way();
    let mut all = String::new();
    let mut rates = serde_json::Map::new();
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let out = args.iter().position(|a| a == "--json").map(|at| args.drain(at..).nth(1).expect("a path behind --json"));
    for path in args {
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("a readable file")).into_owned();
        let rate = rate(&redactor, &session, &text);
        println!("{path}: {rate:.1} MB/s");
        let name = std::path::Path::new(&path).file_stem().map(|n| n.to_string_lossy().into_owned());
        rates.insert(name.unwrap_or(path), rate.into());
        all.push_str(&text);
    }
    let mut prompts = Vec::new();
    let mut at = 0;
    while at + 2048 <= all.len() && prompts.len() < 512 {
        let from = all.floor_char_boundary(at);
        prompts.push(&all[from..all.floor_char_boundary(at + 2048)]);
        at += 2048;
    }
    if prompts.is_empty() {
        return;
    }
    let mut best = f64::MAX;
    for _ in 0..20 {
        let start = on_cpu();
        let turns = (2048 / prompts.len()).max(1);
        for prompt in std::iter::repeat_n(&prompts, turns).flatten() {
            black_box(redactor.find(black_box(prompt), &session));
        }
        best = best.min((on_cpu() - start) / (turns * prompts.len()) as f64);
    }
    let each = conversation(&prompts);
    if let Some(out) = out {
        let told = serde_json::json!({
            "megabytes_per_second": rates,
            "prompt_microseconds": best * 1e6,
            "conversation_microseconds": each * 1e6,
        });
        std::fs::write(out, told.to_string()).expect("the file can be written");
    }
    println!("a prompt of 2 KB: {:.1} us (mean over {} prompts, best of 20 runs)", best * 1e6, prompts.len());
}

/// A body of 64 KB with 50 turns of which 49 are known, as a client sends it with every new turn.
fn conversation(prompts: &[&str]) -> f64 {
    let memo = Arc::new(FindingCache::new(4096).expect("random bytes"));
    let redactor = Redactor::default().with_cache(memo);
    let key = VaultKey::random().expect("random bytes");
    let turn = |n: usize| prompts[n % prompts.len()].chars().take(1300).collect::<String>();
    let body = |last: usize| {
        let messages: Vec<_> =
            (0..49).chain([last]).map(|n| serde_json::json!({"role": "user", "content": turn(n)})).collect();
        serde_json::to_vec(&serde_json::json!({ "messages": messages })).expect("JSON")
    };
    let redact = |body: &[u8]| {
        let mut session = RedactionSession::reversible(PlaceholderVault::new(&key));
        black_box(redactor.redact_json(black_box(body), &mut session).expect("JSON"))
    };
    redact(&body(50));
    let bodies: Vec<_> = (60..260).map(body).collect();
    let start = on_cpu();
    bodies.iter().for_each(|b| drop(redact(b)));
    let each = (on_cpu() - start) / bodies.len() as f64;
    println!("a body of {} KB, 49 of 50 turns seen before: {:.0} us", bodies[0].len() / 1000, each * 1e6);
    each
}

/// Megabytes per second: the best of eight runs of about fifty milliseconds each.
fn rate(redactor: &Redactor, session: &RedactionSession, text: &str) -> f64 {
    let turns = (2_000_000 / text.len().max(1)).max(1);
    let mut best = f64::MAX;
    for _ in 0..8 {
        let start = on_cpu();
        for _ in 0..turns {
            black_box(redactor.find(black_box(text), session));
        }
        best = best.min((on_cpu() - start) / turns as f64);
    }
    text.len() as f64 / best / 1e6
}
