//! What it costs to put a conversation together: per exchange as its history grows, and per second at histories of 100 KB.
//!
//! `cargo run --release -p interflow-llm --example conversation_cost`

use std::convert::Infallible;
use std::time::{Duration, Instant};

use interflow_flow::{FlowId, Headers, Timestamp};
use interflow_llm::conversation::{Assembler, Recorded, Seen};
use serde_json::{Value, json};

/// Exchanges of the conversation that grows, and how many make a line of the table.
const TURNS: usize = 400;
const LINE: usize = 50;
/// Conversations that go on side by side at histories of 100 KB, and the exchanges of each.
const SIDE_BY_SIDE: usize = 50;
const EACH: usize = 10;
/// Characters that each message has.
const MESSAGE: usize = 500;

/// What an exchange took.
#[derive(Clone, Copy, Default)]
struct Took {
    bytes: usize,
    reading: Duration,
    assembling: Duration,
    rows: usize,
}

/// An assembler and the clock of its world.
#[derive(Default)]
struct World {
    assembler: Assembler,
    headers: Headers,
    count: u64,
}

impl World {
    /// Asks with a history, is answered, and puts both behind the history.
    fn exchange(&mut self, session: &str, history: &mut Vec<Value>) -> Took {
        self.count += 1;
        let n = self.count;
        history.push(json!({"role": "user", "content": words(n, "what about")}));
        let body = json!({"model": "m", "messages": history, "metadata": {"user_id": format!("u_session_{session}")}});
        let content = json!([{"type": "text", "text": words(n, "this is how")}]);
        let answer = json!({"id": format!("m{n}"), "model": "m", "content": content, "usage": {"input_tokens": 1}});
        let (body, answer) = (body.to_string(), answer.to_string());
        history.push(json!({"role": "assistant", "content": content}));
        let seen = Seen {
            flow: FlowId::from_u128(u128::from(n)),
            part: 0,
            started: Timestamp::from_micros(n * 1000),
            first_byte: Some(100),
            duration: 500,
            host: "api.anthropic.com",
            path: "/v1/messages",
            provider: "anthropic",
            user: "",
            peer: "127.0.0.1",
            headers: &self.headers,
            status: 200,
            fault: None,
        };
        let start = Instant::now();
        let value = serde_json::from_str(&body).expect("it was written as JSON");
        let recorded = Recorded::read(&seen, value, "application/json", answer.as_bytes()).expect("it is an exchange");
        let reading = start.elapsed();
        let start = Instant::now();
        let Ok(found) = self.assembler.take(recorded, |_| Ok::<_, Infallible>(Vec::new()));
        Took { bytes: body.len(), reading, assembling: start.elapsed(), rows: found.nodes.len() }
    }
}

fn words(n: u64, start: &str) -> String {
    let mut text = format!("{start} number {n}: ");
    while text.len() < MESSAGE {
        text.push_str("the quick brown fox jumps over the lazy dog; ");
    }
    text
}

fn line(label: usize, took: &[Took]) {
    let n = took.len() as f64;
    let mean = |f: fn(&Took) -> f64| took.iter().map(f).sum::<f64>() / n;
    println!(
        "{label:>9} {:>8.1} kB {:>9.0} µs {:>9.0} µs {:>6.1}",
        mean(|t| t.bytes as f64) / 1e3,
        mean(|t| t.reading.as_secs_f64() * 1e6),
        mean(|t| t.assembling.as_secs_f64() * 1e6),
        mean(|t| t.rows as f64)
    );
}

fn main() {
    println!("{:>9} {:>11} {:>12} {:>12} {:>6}", "exchanges", "request", "reading", "assembling", "rows");
    let mut world = World::default();
    let mut history = Vec::new();
    let mut took = Vec::new();
    for turn in 1..=TURNS {
        took.push(world.exchange("grown", &mut history));
        if turn % LINE == 0 {
            line(turn, &took);
            took.clear();
        }
    }

    // Histories of 100 KB from the first exchange on, many sessions in turn.
    let mut sessions: Vec<Vec<Value>> = (0..SIDE_BY_SIDE).map(|_| Vec::new()).collect();
    for (s, history) in sessions.iter_mut().enumerate() {
        while history.len() * MESSAGE < 100_000 {
            let text = words(s as u64 * 10_000 + history.len() as u64, "before");
            let role = if history.len().is_multiple_of(2) { "user" } else { "assistant" };
            history.push(json!({"role": role, "content": text}));
        }
    }
    let mut world = World::default();
    let mut took = Vec::new();
    for _ in 0..EACH {
        for (s, history) in sessions.iter_mut().enumerate() {
            took.push(world.exchange(&format!("side-{s}"), history));
        }
    }
    let spent: Duration = took.iter().map(|t| t.reading + t.assembling).sum();
    println!("\n{SIDE_BY_SIDE} conversations side by side:");
    line(took.len(), &took);
    println!("{:.0} exchanges a second on one core", took.len() as f64 / spent.as_secs_f64());
}
