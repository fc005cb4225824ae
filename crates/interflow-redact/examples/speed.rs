//! Measures detection with the default policy: MB/s on the files named, and microseconds for a prompt of 2 KB.
//!
//! `speed FILE...`

use std::hint::black_box;
use std::time::Instant;

use interflow_redact::{Redactor, Session};

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
        let start = Instant::now();
        for prompt in &prompts {
            black_box(redactor.find(black_box(prompt), &session));
        }
        best = best.min(start.elapsed().as_secs_f64() / prompts.len() as f64);
    }
    println!("a prompt of 2 KB: {:.1} us (mean over {} prompts, best of 20 runs)", best * 1e6, prompts.len());
}

fn rate(redactor: &Redactor, session: &Session, text: &str) -> f64 {
    let mut best = f64::MAX;
    let mut spent = 0.0;
    while spent < 0.5 {
        let start = Instant::now();
        black_box(redactor.find(black_box(text), session));
        let took = start.elapsed().as_secs_f64();
        best = best.min(took);
        spent += took;
    }
    text.len() as f64 / best / 1e6
}
