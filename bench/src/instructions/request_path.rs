//! Instruction counts of whole requests through the shipped binary under callgrind: of the connection tasks of a worker, or,
//! where work leaves the worker, of the whole process. The difference between a short and a long run of the same requests is
//! the cost of the requests alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use interflow_testkit::danger_client;
use rustls::pki_types::ServerName;

use crate::tables::redact::PLANTED;
use crate::testbed::{Role, Testbed, beside_us, free_port};
use crate::{Result, rule_set};

/// The symbol of a connection task's poll function; it must not be inlined.
const WATCHED: &str = "interflow_proxy::worker::*::serve::{{closure}}";

/// A kind of request with its configuration.
pub struct RequestPath {
    /// Its key in `instructions.json`.
    pub name: &'static str,
    flags: &'static [&'static str],
    kind: RequestKind,
    /// Bytes of the body: of the response, of the prompt of a call.
    body: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum RequestKind {
    /// Absolute-form, `http://`.
    Plain,
    /// The same, with twenty rules.
    PlainWithRules,
    /// CONNECT, intercepted TLS.
    Intercepted,
    /// CONNECT, bytes that are tunnelled without inspection.
    Tunnel,
    /// An LLM call on the gateway port, redacted and recorded, whose text was not seen before.
    Call,
    /// An event of an LLM stream on the gateway port, the same.
    Event,
    /// An LLM call on the gateway port that is neither redacted nor recorded.
    PassedOnCall,
    /// A segment from the media proxy.
    Segment,
}

const fn path(name: &'static str, flags: &'static [&'static str], kind: RequestKind, body: usize) -> RequestPath {
    RequestPath { name, flags, kind, body }
}

/// All measured paths.
pub const PATHS: [RequestPath; 12] = [
    path("path-plain-0-B", &["--no-record"], RequestKind::Plain, 0),
    path("path-plain-8-KiB", &["--no-record"], RequestKind::Plain, 8192),
    path("path-plain-0-B-20-rules", &["--no-record"], RequestKind::PlainWithRules, 0),
    path("path-intercepted-8-KiB", &["--no-record"], RequestKind::Intercepted, 8192),
    path("path-recorded-0-B", &[], RequestKind::Plain, 0),
    path("path-recorded-8-KiB", &[], RequestKind::Plain, 8192),
    path("path-tunnel-64-KiB", &["--no-record", "--no-intercept"], RequestKind::Tunnel, 64 << 10),
    path("path-llm-2-KB", &["--no-record"], RequestKind::PassedOnCall, 2_000),
    path("path-llm-2-KB-redacted", &[], RequestKind::Call, 2_000),
    path("path-llm-100-KB-redacted", &[], RequestKind::Call, 100_000),
    path("path-llm-event", &[], RequestKind::Event, 2_000),
    path("path-media-segment-64-KiB", &["--no-record"], RequestKind::Segment, 64 << 10),
];

impl RequestPath {
    /// Instructions of one request.
    ///
    /// # Errors
    /// When nginx, valgrind or a binary is missing, or nothing was counted.
    pub fn count(&self) -> Result<u64> {
        let testbed = Testbed::new(false)?.with_nginx(&[0, 8192, 64 << 10])?.with_provider_watching(&[PLANTED])?;
        // The short run includes one-time costs: plans, connections and pools.
        let (few, many) = if self.body == 100_000 { (5, 25) } else { (50, 250) };
        let (short, long) = (self.collected(&testbed, few)?, self.collected(&testbed, many)?);
        let leaked = crate::tables::redact::sightings(&testbed.provider_stats()?)?;
        if leaked > 0 {
            return Err(format!("{}: the planted number reached the provider {leaked} times", self.name).into());
        }
        Ok(long.saturating_sub(short) / u64::from(many - few))
    }

    /// Whether it is a request to the gateway port.
    fn is_gateway(&self) -> bool {
        self.is_call() || matches!(self.kind, RequestKind::Event | RequestKind::Segment)
    }

    fn is_call(&self) -> bool {
        matches!(self.kind, RequestKind::Call | RequestKind::PassedOnCall)
    }

    fn collected(&self, testbed: &Testbed, requests: u32) -> Result<u64> {
        let (proxy, gateway) = (free_port()?, free_port()?);
        let name = format!("{}-{requests}", self.name);
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        if !self.is_call() {
            command.arg(format!("--toggle-collect={WATCHED}"));
        }
        command.arg(beside_us("interflow")?).args(["run", "--danger-insecure-upstream"]).args(self.flags);
        for (listener, addr) in
            [("--listen-proxy", proxy), ("--listen-gateway", gateway), ("--listen-admin", free_port()?)]
        {
            command.arg(listener).arg(addr.to_string());
        }
        if self.kind == RequestKind::PlainWithRules {
            let rules = testbed.path("20.toml");
            fs::write(&rules, rule_set::TWENTY)?;
            command.arg("--rules").arg(rules);
        }
        if self.is_gateway() {
            let config = testbed.path("gateway.toml");
            let off = if self.kind == RequestKind::PassedOnCall { "[redact]\ngateway = \"off\"\n" } else { "" };
            let provider =
                format!("{off}[llm.provider.openai]\nurl = \"https://localhost:{}\"\n", testbed.llm().port());
            fs::write(&config, format!("[media]\nallow_private = [\"127.0.0.0/8\", \"::1/128\"]\n{provider}"))?;
            command.arg("--config").arg(config);
        }
        command.env("INTERFLOW_DATA_DIR", testbed.path(&name));
        let listener = if self.is_gateway() { gateway } else { proxy };
        let running = testbed.start(&name, command, listener, Role::Proxy)?;
        self.drive(testbed, listener, requests)?;
        running.end(Duration::from_secs(60));
        let log = fs::read_to_string(testbed.path(&format!("{name}.log")))?;
        let collected = log.lines().find_map(|l| l.split_once("Collected : ")?.1.trim().parse().ok());
        match collected {
            Some(n) if n > 0 => Ok(n),
            _ => Err(format!("callgrind counted nothing of {}: {log}", self.name).into()),
        }
    }

    fn drive(&self, testbed: &Testbed, listener: SocketAddr, requests: u32) -> Result<()> {
        let origin = if self.kind == RequestKind::Intercepted { testbed.https() } else { testbed.http() };
        let authority = format!("localhost:{}", origin.port());
        let mut tcp = TcpStream::connect(listener)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
        let get = |target: &str| {
            format!(
                "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: interflow-bench\r\nAccept: */*\r\n\
                 Accept-Encoding: gzip, deflate\r\n\r\n"
            )
        };
        let path = format!("/b/{}", self.body);
        match self.kind {
            RequestKind::Plain | RequestKind::PlainWithRules => {
                repeat(&mut tcp, &get(&format!("http://{authority}{path}")), requests)
            }
            RequestKind::Intercepted | RequestKind::Tunnel => {
                tcp.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes())?;
                head(&mut tcp)?;
                if self.kind == RequestKind::Tunnel {
                    return repeat(&mut tcp, &get(&path), requests);
                }
                let name = ServerName::try_from("localhost")?;
                let tls = rustls::ClientConnection::new(Arc::new(danger_client(&["http/1.1"])), name)?;
                repeat(&mut rustls::StreamOwned::new(tls, tcp), &get(&path), requests)
            }
            RequestKind::Segment => {
                repeat(&mut tcp, &get(&format!("/media/proxy/stream?d=http%3A%2F%2F{authority}{path}")), requests)
            }
            RequestKind::Call => (0..requests).try_for_each(|n| ask(&mut tcp, &call(n, self.body, "x-size: 200"))),
            RequestKind::PassedOnCall => {
                let call = |n| call(n, self.body, "x-size: 200").replace(PLANTED, &"0".repeat(PLANTED.len()));
                (0..requests).try_for_each(|n| ask(&mut tcp, &call(n)))
            }
            // Slower than the proxy, so that each event arrives by itself.
            RequestKind::Event => {
                let stream = format!("x-chunks: {requests}\r\nx-size: {}\r\nx-gap: 10", requests * 20);
                ask(&mut tcp, &call(0, self.body, &stream))
            }
        }
    }
}

/// Texts of people about this and that.
const PROSE: [&str; 4] = [
    include_str!("../../pii/negatives/story.txt"),
    include_str!("../../pii/negatives/terms.txt"),
    include_str!("../../pii/negatives/handbook.md"),
    include_str!("../../pii/negatives/kitchen.txt"),
];

/// A Chat Completions request with a prompt of about this size that was not sent before; a number in it must not reach the
/// provider. `provider` sets what the fake provider answers.
fn call(n: u32, size: usize, provider: &str) -> String {
    let mut text = format!("Please check whether {PLANTED} is in order for Anna Smith, anna.smith{n}@example.com. ");
    for line in PROSE.iter().flat_map(|prose| prose.split_inclusive('\n')).cycle() {
        text += line;
        if text.len() >= size {
            break;
        }
    }
    let stream = provider.contains("x-chunks");
    let body = serde_json::json!({
        "model": "fake", "stream": stream, "messages": [{ "role": "user", "content": text }],
    })
    .to_string();
    format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nUser-Agent: interflow-bench\r\n\
         Authorization: Bearer sk-fake\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{provider}\r\n\r\n{body}",
        body.len()
    )
}

fn repeat(io: &mut (impl Read + Write), request: &str, times: u32) -> Result<()> {
    (0..times).try_for_each(|_| ask(io, request))
}

/// Sends a request and reads its response completely.
fn ask(io: &mut (impl Read + Write), request: &str) -> Result<()> {
    io.write_all(request.as_bytes())?;
    io.flush()?;
    let (answer, mut body) = head(io)?;
    let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    let length = answer.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    let is_whole = |body: &[u8]| length.map_or_else(|| body.ends_with(b"\r\n0\r\n\r\n"), |length| body.len() >= length);
    let mut buffer = [0; 16 << 10];
    while !is_whole(&body) {
        match io.read(&mut buffer)? {
            0 => return Err("the proxy closed within a body".into()),
            n => body.extend_from_slice(&buffer[..n]),
        }
    }
    if !answer.starts_with("http/1.1 200") {
        return Err(format!("{answer}{}", String::from_utf8_lossy(&body)).into());
    }
    Ok(())
}

/// Reads a head; also returns the bytes received after it.
fn head(io: &mut impl Read) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = io.read(&mut buffer)?;
        if n == 0 {
            return Err("the proxy closed within a head".into());
        }
        received.extend_from_slice(&buffer[..n]);
        if let Some(at) = memchr::memmem::find(&received, b"\r\n\r\n") {
            let body = received.split_off(at + 4);
            return Ok((received, body));
        }
    }
}
