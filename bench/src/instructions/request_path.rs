//! Instruction counts of whole requests through the shipped binary under callgrind, limited to the connection tasks of a worker.
//! The difference between a short and a long run of the same requests is the cost of the requests alone.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use interflow_testkit::danger_client;
use rustls::pki_types::ServerName;

use crate::testbed::{Role, Testbed, beside_us, free_port};
use crate::{Result, rule_set};

/// The symbol of a connection task's poll function; it must not be inlined.
const WATCHED: &str = "interflow_proxy::worker::*::serve::{{closure}}";
/// Requests of the short run, which includes one-time costs: plans, connections and pools.
const FEW: u32 = 50;
/// Requests of the long run.
const MANY: u32 = 250;

/// A kind of request with its configuration.
pub struct RequestPath {
    /// Its key in `instructions.json`.
    pub name: &'static str,
    flags: &'static [&'static str],
    rules: bool,
    mode: Mode,
    body: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    /// Absolute-form, `http://`.
    Plain,
    /// CONNECT, intercepted TLS.
    Intercepted,
    /// CONNECT, bytes that are tunnelled without inspection.
    Tunnel,
}

/// All measured paths.
pub const PATHS: [RequestPath; 7] = [
    RequestPath { name: "path-plain-0-B", flags: &["--no-record"], rules: false, mode: Mode::Plain, body: 0 },
    RequestPath { name: "path-plain-8-KiB", flags: &["--no-record"], rules: false, mode: Mode::Plain, body: 8192 },
    RequestPath { name: "path-plain-0-B-20-rules", flags: &["--no-record"], rules: true, mode: Mode::Plain, body: 0 },
    RequestPath {
        name: "path-intercepted-8-KiB",
        flags: &["--no-record"],
        rules: false,
        mode: Mode::Intercepted,
        body: 8192,
    },
    RequestPath { name: "path-recorded-0-B", flags: &[], rules: false, mode: Mode::Plain, body: 0 },
    RequestPath { name: "path-recorded-8-KiB", flags: &[], rules: false, mode: Mode::Plain, body: 8192 },
    RequestPath {
        name: "path-tunnel-64-KiB",
        flags: &["--no-record", "--no-intercept"],
        rules: false,
        mode: Mode::Tunnel,
        body: 64 << 10,
    },
];

impl RequestPath {
    /// Instructions of one request.
    ///
    /// # Errors
    /// When nginx, valgrind or the binary is missing, or nothing was counted.
    pub fn count(&self) -> Result<u64> {
        let testbed = Testbed::new(false)?.with_nginx(&[0, 8192, 64 << 10])?;
        let (few, many) = (self.collected(&testbed, FEW)?, self.collected(&testbed, MANY)?);
        Ok(many.saturating_sub(few) / u64::from(MANY - FEW))
    }

    fn collected(&self, testbed: &Testbed, requests: u32) -> Result<u64> {
        let proxy = free_port()?;
        let name = format!("{}-{requests}", self.name);
        let mut command = Command::new("valgrind");
        command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        command.arg(format!("--toggle-collect={WATCHED}"));
        command.arg(beside_us("interflow")?).args(["run", "--danger-insecure-upstream"]).args(self.flags);
        for (listener, addr) in
            [("--listen-proxy", proxy), ("--listen-gateway", free_port()?), ("--listen-admin", free_port()?)]
        {
            command.arg(listener).arg(addr.to_string());
        }
        if self.rules {
            let rules = testbed.path("20.toml");
            fs::write(&rules, rule_set::TWENTY)?;
            command.arg("--rules").arg(rules);
        }
        command.env("INTERFLOW_DATA_DIR", testbed.path(&name));
        let running = testbed.start(&name, command, proxy, Role::Proxy)?;
        self.drive(testbed, proxy, requests)?;
        running.end(Duration::from_secs(60));
        let log = fs::read_to_string(testbed.path(&format!("{name}.log")))?;
        let collected = log.lines().find_map(|l| l.split_once("Collected : ")?.1.trim().parse().ok());
        match collected {
            Some(n) if n > 0 => Ok(n),
            _ => Err(format!("callgrind counted nothing of {}: {log}", self.name).into()),
        }
    }

    fn drive(&self, testbed: &Testbed, proxy: SocketAddr, requests: u32) -> Result<()> {
        let origin = if self.mode == Mode::Intercepted { testbed.https() } else { testbed.http() };
        let authority = format!("localhost:{}", origin.port());
        let mut tcp = TcpStream::connect(proxy)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(Duration::from_secs(60)))?;
        let target = match self.mode {
            Mode::Plain => format!("http://{authority}/b/{}", self.body),
            Mode::Intercepted | Mode::Tunnel => {
                tcp.write_all(format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n").as_bytes())?;
                head(&mut tcp)?;
                format!("/b/{}", self.body)
            }
        };
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: interflow-bench\r\nAccept: */*\r\n\
             Accept-Encoding: gzip, deflate\r\n\r\n"
        );
        if self.mode == Mode::Intercepted {
            let name = ServerName::try_from("localhost")?;
            let tls = rustls::ClientConnection::new(Arc::new(danger_client(&["http/1.1"])), name)?;
            return self.ask(&mut rustls::StreamOwned::new(tls, tcp), request.as_bytes(), requests);
        }
        self.ask(&mut tcp, request.as_bytes(), requests)
    }

    /// Sends requests sequentially; each response is read completely before the next request.
    fn ask(&self, io: &mut (impl Read + Write), request: &[u8], requests: u32) -> Result<()> {
        let mut rest = vec![0; self.body];
        for _ in 0..requests {
            io.write_all(request)?;
            io.flush()?;
            let (answer, begun) = head(io)?;
            if !answer.starts_with(b"HTTP/1.1 200") {
                return Err(String::from_utf8_lossy(&answer).into());
            }
            io.read_exact(&mut rest[begun..])?;
        }
        Ok(())
    }
}

/// Reads a head; also returns the number of bytes received after it.
fn head(io: &mut impl Read) -> Result<(Vec<u8>, usize)> {
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let n = io.read(&mut buffer)?;
        if n == 0 {
            return Err("the proxy closed within a head".into());
        }
        seen.extend_from_slice(&buffer[..n]);
        if let Some(at) = memchr::memmem::find(&seen, b"\r\n\r\n") {
            let behind = seen.len() - at - 4;
            seen.truncate(at + 4);
            return Ok((seen, behind));
        }
    }
}
