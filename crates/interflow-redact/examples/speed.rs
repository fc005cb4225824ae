//! Measures detection with the default policy: MB/s on the files named, and microseconds for a prompt of 2 KB.
//!
//! Times are those of the processor, not of the clock, so that a busy machine disturbs them less.
//!
//! `speed FILE...`

use std::hint::black_box;

use interflow_redact::{Redactor, Session};

/// Seconds that this thread has been on a processor.
fn on_cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    stat.split(' ').next().and_then(|n| n.parse::<f64>().ok()).expect("nanoseconds") / 1e9
}

fn main() {
    let redactor = Redactor::default();
    let session = Session::one_way();
    let mut all = String::new();
    for path in std::env::args().skip(1) {
        let text = String::from_utf8_lossy(&std::fs::read(&path).expect("a readable file")).into_owned();
        println!("{path}: {:.1} MB/s", rate(&redactor, &session, &text));
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
        for prompt in &prompts {
            black_box(redactor.find(black_box(prompt), &session));
        }
        best = best.min((on_cpu() - start) / prompts.len() as f64);
    }
    println!("a prompt of 2 KB: {:.1} us (mean over {} prompts, best of 20 runs)", best * 1e6, prompts.len());
}

/// Megabytes per second: the best of eight runs of about fifty milliseconds each.
fn rate(redactor: &Redactor, session: &Session, text: &str) -> f64 {
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
