//! Benchmark of conversation assembly: cost per exchange as the history grows, and exchanges per second at histories of
//! 100 KB. Measures CPU time, so that the load of the machine does not matter.
//!
//! `cargo run --release -p interflow-llm --example conversation_cost [FILE]` (`make bench-conversations`) prints a
//! table and writes it as JSON to the file.

use std::convert::Infallible;
use std::time::Instant;

use interflow_conversations::assembly::{ConversationAssembler, ParsedCall, RawCall};
use interflow_llm::message::ApiFormat;
use interflow_types::{FlowId, Headers, Timestamp};
use serde_json::{Value, json};

/// As in the binary: the system allocator returns large blocks to the kernel and requests them again each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Exchanges of the growing conversation, and how many make a row of the table.
const TURNS: usize = 800;
const LINE: usize = 50;
/// Interleaved conversations with histories of 100 KB, and the exchanges of each.
const SIDE_BY_SIDE: usize = 50;
const EACH: usize = 10;
/// Characters per message.
const MESSAGE: usize = 500;

/// Exchanges measured together; times in microseconds.
#[derive(Clone, Copy, Default)]
struct Took {
    exchanges: usize,
    bytes: usize,
    reading: f64,
    assembling: f64,
    rows: usize,
}

/// An assembler and a simulated clock.
#[derive(Default)]
struct World {
    assembler: ConversationAssembler,
    headers: Headers,
    count: u64,
}

/// An exchange that has not been parsed yet.
struct Asked {
    n: u64,
    body: String,
    answer: String,
}

impl World {
    /// Asks with a history, and appends the prompt and the answer to it.
    fn ask(&mut self, session: &str, history: &mut Vec<Value>) -> Asked {
        self.count += 1;
        let n = self.count;
        history.push(json!({"role": "user", "content": words(n, "what about")}));
        let body = json!({"model": "m", "messages": history, "metadata": {"user_id": format!("u_session_{session}")}});
        let content = json!([{"type": "text", "text": words(n, "this is how")}]);
        let answer = json!({"id": format!("m{n}"), "model": "m", "content": content, "usage": {"input_tokens": 1}});
        history.push(json!({"role": "assistant", "content": content}));
        Asked { n, body: body.to_string(), answer: answer.to_string() }
    }

    /// Parses exchanges and adds them to the assembler.
    fn take(&mut self, asked: &[Asked]) -> Took {
        let mut took = Took { exchanges: asked.len(), ..Took::default() };
        for some in asked.chunks(LINE) {
            let start = Watch::start();
            let read: Vec<ParsedCall> = some.iter().map(|a| self.read(a)).collect();
            took.reading += start.micros();
            took.bytes += some.iter().map(|a| a.body.len()).sum::<usize>();
            let start = Watch::start();
            for recorded in read {
                let Ok(found) = self.assembler.add_call(recorded, |_| Ok::<_, Infallible>(Vec::new()));
                took.rows += found.nodes.len();
            }
            took.assembling += start.micros();
        }
        took
    }

    fn read(&self, asked: &Asked) -> ParsedCall {
        let seen = RawCall {
            flow: FlowId::from_u128(u128::from(asked.n)),
            part: 0,
            lane: "",
            started: Timestamp::from_micros(asked.n * 1000),
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
        let value = serde_json::from_str(&asked.body).expect("it was written as JSON");
        let shape = ApiFormat::detect(seen.path, &value).expect("it is an exchange");
        ParsedCall::parse_as(shape, &seen, value, "application/json", asked.answer.as_bytes())
    }
}

/// CPU time of this thread; wall time where the system does not report it.
struct Watch(Option<u64>, Instant);

impl Watch {
    fn start() -> Self {
        Self(Self::on_processor(), Instant::now())
    }

    fn micros(&self) -> f64 {
        match (self.0, Self::on_processor()) {
            (Some(from), Some(to)) => (to - from) as f64 / 1e3,
            _ => self.1.elapsed().as_secs_f64() * 1e6,
        }
    }

    /// In nanoseconds.
    fn on_processor() -> Option<u64> {
        // The value is updated when the thread yields.
        std::thread::yield_now();
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        told.split(' ').next()?.parse().ok()
    }
}

fn words(n: u64, start: &str) -> String {
    let mut text = format!("{start} number {n}: ");
    while text.len() < MESSAGE {
        text.push_str("the quick brown fox jumps over the lazy dog; ");
    }
    text
}

/// Prints a row of the table and returns it for the file.
fn line(label: usize, took: Took) -> Value {
    let n = took.exchanges as f64;
    let kilobytes = took.bytes as f64 / n / 1e3;
    let (reading, assembling, rows) = (took.reading / n, took.assembling / n, took.rows as f64 / n);
    let per_kilobyte = (reading + assembling) / kilobytes;
    println!(
        "{label:>9} {kilobytes:>8.1} kB {reading:>9.0} µs {assembling:>9.0} µs {per_kilobyte:>11.2} µs {rows:>6.1}"
    );
    json!({"exchanges": label, "request_kb": kilobytes, "reading_us": reading, "assembling_us": assembling,
        "us_per_kb": per_kilobyte, "rows": rows})
}

fn main() -> std::io::Result<()> {
    println!(
        "{:>9} {:>11} {:>12} {:>12} {:>14} {:>6}",
        "exchanges", "request", "reading", "assembling", "per kB", "rows"
    );
    let mut world = World::default();
    let mut history = Vec::new();
    let mut curve = Vec::new();
    for last in (LINE..=TURNS).step_by(LINE) {
        let asked: Vec<Asked> = (0..LINE).map(|_| world.ask("grown", &mut history)).collect();
        curve.push(line(last, world.take(&asked)));
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
    let mut asked = Vec::new();
    for _ in 0..EACH {
        for (s, history) in sessions.iter_mut().enumerate() {
            asked.push(world.ask(&format!("side-{s}"), history));
        }
    }
    let took = world.take(&asked);
    println!("\n{SIDE_BY_SIDE} conversations side by side:");
    let at_once = line(took.exchanges, took);
    let per_second = took.exchanges as f64 * 1e6 / (took.reading + took.assembling);
    println!("{per_second:.0} exchanges a second on one core");
    let Some(file) = std::env::args().nth(1) else { return Ok(()) };
    let all = json!({"grown": curve, "side_by_side": {"conversations": SIDE_BY_SIDE, "line": at_once,
        "exchanges_per_second_on_one_core": per_second}});
    std::fs::write(file, format!("{all:#}\n"))
}
