//! The load generator: one run of a [`Spec`], in a process of its own so that its CPU is known.

pub mod connect;
pub mod histogram;
mod http1;
mod http2;
pub mod spec;
mod verify;

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::{JoinSet, LocalSet, spawn_local};

use crate::Result;
use crate::load::connect::Io;
use crate::load::histogram::Histogram;
use crate::load::http1::{Buffer, Failure};
use crate::load::spec::{Outcome, Pace, Spec, Version, Via};
use crate::load::verify::{Expected, Verifier};
use crate::process::own_cpu;

/// Open requests beyond this many fail at once: the system under test is far past its limit.
const MAX_IN_FLIGHT: usize = 20_000;
/// A request that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs the spec, prints `begin` and `end` on standard output at the edges of the counted time, then the outcome as JSON.
pub fn run(spec: Spec) -> Result<()> {
    let job = Arc::new(Job::new(spec)?);
    let phase = Arc::new(AtomicU8::new(WARMING));
    let threads: Vec<_> = (0..job.spec.threads.max(1))
        .map(|thread| {
            let (job, phase) = (job.clone(), phase.clone());
            std::thread::spawn(move || drive(&job, &phase, thread))
        })
        .collect();
    std::thread::sleep(Duration::from_secs_f64(job.spec.warm_up));
    await_first_answers(&job);
    let (began, cpu) = (Instant::now(), own_cpu()?);
    phase.store(COUNTING, Ordering::Relaxed);
    say("begin")?;
    std::thread::sleep(Duration::from_secs_f64(job.spec.seconds));
    phase.store(OVER, Ordering::Relaxed);
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), own_cpu()? - cpu);
    say("end")?;
    let mut counts = Counts::default();
    for thread in threads {
        counts.merge(&thread.join().map_err(|_| "a generator thread panicked")??);
    }
    let outcome = Outcome {
        ok: counts.ok,
        answered: job.answered.load(Ordering::Relaxed),
        errors: counts.errors,
        cancelled: counts.cancelled,
        stale: counts.stale,
        messages: counts.messages,
        seconds,
        body_bytes: counts.body_bytes,
        connects: counts.connects,
        total: counts.total.quantiles(),
        ttfb: counts.ttfb.quantiles(),
        event_delay: counts.event_delay.quantiles(),
        own_cpu_us: cpu.as_secs_f64() * 1e6 / counts.ok.max(1) as f64,
    };
    say(&serde_json::to_string(&outcome)?)
}

/// A slow system is counted once it is in its stride: when there were as many answers as requests are open at a time.
fn await_first_answers(job: &Job) {
    let (enough, patience) = match job.spec.pace {
        Pace::Closed(n) => (n as u64, 20),
        Pace::Hold(n) => (n as u64, 60),
        Pace::Open(_) => return,
    };
    let until = Instant::now() + Duration::from_secs(patience);
    while job.answered.load(Ordering::Relaxed) < enough && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
}

const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const OVER: u8 = 2;

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

/// A spec with all that can be prepared before the first request.
struct Job {
    spec: Spec,
    prepared: Vec<Prepared>,
    tls: connect::Tls,
    answered: AtomicU64,
}

struct Prepared {
    authority: String,
    url: String,
    /// The whole request as HTTP/1.1.
    request: Vec<u8>,
    body: bytes::Bytes,
    expected: Expected,
}

impl Job {
    fn new(spec: Spec) -> Result<Self> {
        let prepared = spec.exchanges.iter().map(|e| Prepared::new(&spec, e)).collect::<Result<_>>()?;
        Ok(Self { tls: connect::Tls::new(&spec)?, prepared, answered: AtomicU64::new(0), spec })
    }

    fn largest_body(&self) -> usize {
        self.prepared.iter().map(|p| p.expected.len()).max().unwrap_or(0)
    }
}

impl Prepared {
    fn new(spec: &Spec, exchange: &spec::Exchange) -> Result<Self> {
        let body = exchange.body.as_ref().map(std::fs::read).transpose()?;
        let scheme = if spec.tls { "https" } else { "http" };
        let url = format!("{scheme}://{}{}", exchange.authority, exchange.path);
        let absolute = matches!(spec.via, Via::Absolute(_));
        let method = if body.is_some() { "POST" } else { "GET" };
        let target = if absolute { &url } else { &exchange.path };
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {}\r\n", exchange.authority);
        for (name, value) in spec.headers.iter().chain(&exchange.headers) {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(auth) = connect::authorization(spec).filter(|_| absolute) {
            head.push_str(&format!("Proxy-Authorization: {auth}\r\n"));
        }
        if let Some(body) = &body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let body = body.unwrap_or_default();
        let request = [head.as_bytes(), &body].concat();
        let expected = Expected::load(&exchange.check)?;
        Ok(Self { authority: exchange.authority.clone(), url, request, body: body.into(), expected })
    }
}

/// What one thread counted.
#[derive(Default)]
struct Counts {
    ok: u64,
    errors: u64,
    cancelled: u64,
    stale: u64,
    connects: u64,
    body_bytes: u64,
    messages: Vec<String>,
    total: Histogram,
    ttfb: Histogram,
    event_delay: Histogram,
}

impl Counts {
    fn merge(&mut self, other: &Self) {
        self.ok += other.ok;
        self.errors += other.errors;
        self.cancelled += other.cancelled;
        self.stale += other.stale;
        self.connects += other.connects;
        self.body_bytes += other.body_bytes;
        self.messages.extend(other.messages.iter().take(5).cloned());
        self.total.merge(&other.total);
        self.ttfb.merge(&other.ttfb);
        self.event_delay.merge(&other.event_delay);
    }

    fn error(&mut self, message: String) {
        self.errors += 1;
        if self.messages.len() < 5 {
            self.messages.push(message);
        }
    }
}

/// What the tasks of one thread share.
struct Thread {
    job: Arc<Job>,
    phase: Arc<AtomicU8>,
    counts: RefCell<Counts>,
    idle: RefCell<Vec<Box<dyn Io>>>,
    in_flight: Cell<usize>,
    next: Cell<usize>,
}

impl Thread {
    fn over(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == OVER
    }

    /// The counts, while they count.
    fn count(&self, with: impl FnOnce(&mut Counts)) {
        if self.phase.load(Ordering::Relaxed) == COUNTING {
            with(&mut self.counts.borrow_mut());
        }
    }

    fn next(&self) -> &Prepared {
        let n = self.next.get();
        self.next.set(n + 1);
        &self.job.prepared[n % self.job.prepared.len()]
    }

    async fn open(&self, prepared: &Prepared) -> Result<Box<dyn Io>> {
        self.count(|c| c.connects += 1);
        Ok(connect::open(&self.job.spec, &self.job.tls, &prepared.authority).await?)
    }

    fn done(&self, began: Instant, first_byte: Instant, prepared: &Prepared, delays: &[Duration]) {
        let ended = Instant::now();
        self.job.answered.fetch_add(1, Ordering::Relaxed);
        self.count(|c| {
            c.ok += 1;
            c.body_bytes += prepared.expected.len() as u64;
            c.total.add(nanos(ended.saturating_duration_since(began)));
            c.ttfb.add(nanos(first_byte.saturating_duration_since(began)));
            delays.iter().for_each(|d| c.event_delay.add(nanos(*d)));
        });
    }

    /// One HTTP/1 request whose latency counts from `began`, on a kept connection if there is one.
    async fn request(&self, began: Instant, buffer: &mut Buffer, conn: &mut Option<Box<dyn Io>>) -> Result<()> {
        let prepared = self.next();
        loop {
            let kept = conn.is_some();
            let mut io = match conn.take() {
                Some(io) => io,
                None => {
                    buffer.clear();
                    self.open(prepared).await?
                }
            };
            let mut verifier = Verifier::new(&prepared.expected);
            let mut answered = false;
            match http1::exchange(&mut *io, buffer, &prepared.request, &mut verifier, &mut answered).await {
                Ok(done) => {
                    self.done(began, done.first_byte, prepared, &verifier.delays);
                    if done.reusable && !self.job.spec.new_connection {
                        *conn = Some(io);
                    }
                    return Ok(());
                }
                Err(Failure::Closed | Failure::Broken(_)) if kept && !answered => self.count(|c| c.stale += 1),
                Err(e) => return Err(e.to_string().into()),
            }
        }
    }

    /// Sends a request and goes away before the answer is there, or within it; `turn` says in which of four ways.
    async fn break_off(&self, turn: u32) {
        let prepared = self.next();
        let broken = async {
            let mut io = self.open(prepared).await?;
            io.write_all(&prepared.request).await?;
            io.flush().await?;
            if turn & 1 == 1 {
                let _ = io.read(&mut [0; 512]).await?;
            }
            if turn & 2 == 2 {
                io.reset_on_close()?;
            }
            Ok::<_, crate::Error>(())
        };
        match tokio::time::timeout(PATIENCE, broken).await {
            Ok(Ok(())) => self.count(|c| c.cancelled += 1),
            Ok(Err(e)) => self.count(|c| c.error(format!("before it was broken off: {e}"))),
            Err(_) => self.count(|c| c.error(format!("not sent within {PATIENCE:?}"))),
        }
    }

    async fn bounded(&self, began: Instant, buffer: &mut Buffer, conn: &mut Option<Box<dyn Io>>) {
        let failed = match tokio::time::timeout(PATIENCE, self.request(began, buffer, conn)).await {
            Ok(Ok(())) => return,
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer within {PATIENCE:?}"),
        };
        self.count(|c| c.error(failed));
        *conn = None;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

/// One thread's share of the run.
fn drive(job: &Arc<Job>, phase: &Arc<AtomicU8>, thread: usize) -> Result<Counts> {
    let state = Rc::new(Thread {
        job: job.clone(),
        phase: phase.clone(),
        counts: RefCell::default(),
        idle: RefCell::default(),
        in_flight: Cell::new(0),
        next: Cell::new(thread),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(LocalSet::new().run_until(async {
        let mut tasks = start(&state, thread)?;
        while !state.over() {
            tokio::time::sleep(Duration::from_millis(5)).await;
            while let Some(ended) = tasks.try_join_next() {
                ended.map_err(|e| format!("a generator task failed: {e}"))?;
            }
        }
        settle(&state, &mut tasks).await;
        tasks.abort_all();
        Ok::<_, crate::Error>(())
    }))?;
    Ok(state.counts.take())
}

/// Lets open requests end by themselves: a client that vanishes in the middle of a handshake looks to a proxy like one that
/// refuses its certificate.
async fn settle(state: &Rc<Thread>, tasks: &mut JoinSet<()>) {
    if matches!(state.job.spec.pace, Pace::Hold(_)) {
        // Kept connections stay open until the other side of the measurement has been looked at.
        tokio::time::sleep(Duration::from_secs(2)).await;
        return;
    }
    let until = Instant::now() + Duration::from_secs(3);
    while (!tasks.is_empty() || state.in_flight.get() > 0) && Instant::now() < until {
        tokio::time::sleep(Duration::from_millis(5)).await;
        while tasks.try_join_next().is_some() {}
    }
}

fn start(state: &Rc<Thread>, thread: usize) -> Result<JoinSet<()>> {
    let threads = state.job.spec.threads.max(1);
    let share = |n: usize| n / threads + usize::from(thread < n % threads);
    let mut tasks = JoinSet::new();
    match (state.job.spec.pace, state.job.spec.version) {
        (Pace::Closed(n), Version::H1) => (0..share(n)).for_each(|_| {
            tasks.spawn_local(closed(state.clone()));
        }),
        (Pace::Closed(n), Version::H2 { connections }) => {
            let connections = share(connections).max(1);
            for _ in 0..connections {
                tasks.spawn_local(http2::closed(state.clone(), share(n).div_ceil(connections)));
            }
        }
        (Pace::Open(rate), Version::H1) => {
            tasks.spawn_local(open(state.clone(), ticks(rate / threads as f64, state.phase.clone())));
        }
        (Pace::Open(_), Version::H2 { .. }) => return Err("an open loop over HTTP/2 is not offered".into()),
        (Pace::Hold(n), _) => {
            tasks.spawn_local(hold(state.clone(), share(n)));
        }
    }
    Ok(tasks)
}

async fn closed(state: Rc<Thread>) {
    let (mut buffer, mut conn) = (Buffer::new(state.job.largest_body()), None);
    let mut sent = 0_u32;
    while !state.over() {
        sent = sent.wrapping_add(1);
        match state.job.spec.cancel_every {
            n if n > 0 && sent.is_multiple_of(n) => state.break_off(sent / n).await,
            _ => state.bounded(Instant::now(), &mut buffer, &mut conn).await,
        }
    }
}

/// The intended send times, each handed over as it comes. A thread of its own keeps them more exact than a millisecond timer would.
fn ticks(rate: f64, phase: Arc<AtomicU8>) -> tokio::sync::mpsc::UnboundedReceiver<Instant> {
    let (send, receive) = tokio::sync::mpsc::unbounded_channel();
    std::thread::spawn(move || {
        let began = Instant::now();
        for n in 0_u64.. {
            let at = began + Duration::from_secs_f64(n as f64 / rate);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if phase.load(Ordering::Relaxed) == OVER || send.send(at).is_err() {
                return;
            }
        }
    });
    receive
}

async fn open(state: Rc<Thread>, mut ticks: tokio::sync::mpsc::UnboundedReceiver<Instant>) {
    let buffers = Rc::new(RefCell::new(Vec::new()));
    while let Some(at) = ticks.recv().await {
        if state.in_flight.get() >= MAX_IN_FLIGHT {
            state.count(|c| c.error(format!("{MAX_IN_FLIGHT} requests were already open")));
            continue;
        }
        state.in_flight.set(state.in_flight.get() + 1);
        let (state, buffers) = (state.clone(), buffers.clone());
        spawn_local(async move {
            let kept = buffers.borrow_mut().pop();
            let mut buffer = kept.unwrap_or_else(|| Buffer::new(state.job.largest_body()));
            let mut conn = state.idle.borrow_mut().pop();
            state.bounded(at, &mut buffer, &mut conn).await;
            if let Some(conn) = conn {
                state.idle.borrow_mut().push(conn);
            }
            buffer.clear();
            buffers.borrow_mut().push(buffer);
            state.in_flight.set(state.in_flight.get() - 1);
        });
    }
}

/// Opens connections, 64 at a time, asks once on each (so that they are known to work), and keeps them.
async fn hold(state: Rc<Thread>, n: usize) {
    let kept = Rc::new(RefCell::new(Vec::with_capacity(n)));
    let left = Rc::new(Cell::new(n));
    let mut openers = JoinSet::new();
    for _ in 0..64 {
        let (state, kept, left) = (state.clone(), kept.clone(), left.clone());
        openers.spawn_local(async move {
            let mut buffer = Buffer::new(state.job.largest_body());
            while left.get() > 0 {
                left.set(left.get() - 1);
                let mut conn = None;
                match state.request(Instant::now(), &mut buffer, &mut conn).await {
                    Ok(()) => kept.borrow_mut().push(conn),
                    Err(e) => state.counts.borrow_mut().error(e.to_string()),
                }
            }
        });
    }
    while openers.join_next().await.is_some() {}
    let all = kept.borrow().iter().flatten().count() as u64;
    state.counts.borrow_mut().ok = all;
    std::future::pending::<()>().await;
}
