//! One connection of one side: its endpoints, and the layers below HTTP.

use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use interflow_types::{Direction, EntryKind, Scheme};

use super::Interface;
use super::tcp::TcpWriter;
use super::tls::{MAX_RECORD, TlsWriter};
use interflow_store::{FlowKind, FlowRecord};

/// Substitutes for addresses that were not recorded (RFC 5737, TEST-NET-1 and 2). They cannot belong to a real
/// machine.
const CLIENT_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const PROXY_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
const ORIGIN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConnectionKey {
    /// The recorded connection's number, or a generated one.
    pub number: u64,
    pub client: SocketAddr,
    pub server: SocketAddr,
    pub tls: bool,
    pub http2: bool,
}

impl ConnectionKey {
    /// The connection of a flow's side; `None` if it has no such side. `flow` is the flow's number in the file.
    pub fn for_flow(side: Interface, row: &FlowRecord, flow: u64) -> Option<Self> {
        let origin = || {
            let ip = row.authority.host.ip();
            SocketAddr::new(ip.unwrap_or(ORIGIN_ADDRESS), row.authority.port)
        };
        let recorded = match side {
            Interface::Client => row.client.connection,
            Interface::Upstream => row.upstream.as_ref()?.connection,
        };
        // Numbers are unique within a process; imports have none, or those of another process.
        let number = if recorded == 0 || row.imported { u64::MAX - flow } else { recorded };
        // Derived from the number, so that connections get different ports and the output is deterministic.
        let port = 1024 + (number % 60_000) as u16;
        let version = |leg: &str| leg.starts_with("HTTP/2");
        let request = row.request.as_ref().map_or("HTTP/1.1", |r| &*r.version);
        let (client, server, tls, http2) = match side {
            Interface::Client => {
                let is_tunnelled = matches!(row.transport, EntryKind::Connect | EntryKind::Socks5);
                // Imported flows rarely say whether the client used TLS.
                let tls = row.client.tls.is_some() || (row.imported && row.scheme == Scheme::Https && is_tunnelled);
                let peer = row.client.peer.unwrap_or(SocketAddr::new(CLIENT_ADDRESS, port));
                (peer, row.client.local.unwrap_or_else(origin), tls, version(request))
            }
            Interface::Upstream => {
                let upstream = row.upstream.as_ref()?;
                let local = upstream.local.unwrap_or(SocketAddr::new(PROXY_ADDRESS, port));
                let peer = upstream.peer.unwrap_or_else(origin);
                let tls = row.scheme == Scheme::Https;
                (local, peer, tls, version(&upstream.version))
            }
        };
        // What a tunnel carries is not known to be TLS.
        let tunnel = row.kind == FlowKind::Tunnel;
        let (client, server) = same_address_family(client, server);
        Some(Self { number, client, server, tls: tls && !tunnel, http2: http2 && !tunnel })
    }
}

fn same_address_family(a: SocketAddr, b: SocketAddr) -> (SocketAddr, SocketAddr) {
    let canonical = |s: SocketAddr| SocketAddr::new(s.ip().to_canonical(), s.port());
    let wide = |s: SocketAddr| match s.ip() {
        IpAddr::V4(ip) => SocketAddr::new(IpAddr::V6(ip.to_ipv6_mapped()), s.port()),
        IpAddr::V6(_) => s,
    };
    let (a, b) = (canonical(a), canonical(b));
    if a.is_ipv4() == b.is_ipv4() { (a, b) } else { (wide(a), wide(b)) }
}

pub(super) struct PacketConnection {
    pub ends: ConnectionKey,
    pub tcp: TcpWriter,
    tls: Option<TlsWriter>,
    /// The current time of the connection, in microseconds since the Unix epoch.
    pub at: u64,
    /// The next HTTP/2 stream of the client: odd numbers, from 1 (RFC 9113 section 5.1.1).
    pub stream: u32,
    /// No further exchange is possible, and the connection is closed after this flow.
    pub over: bool,
    /// The number of the last flow that used it.
    pub used: u64,
}

impl PacketConnection {
    /// A connection that begins at `at` with flow number `flow` of the file.
    pub fn new(side: Interface, ends: ConnectionKey, at: u64, flow: u64) -> Self {
        // Deterministic: the same flows always give the same file.
        let seed = blake3::hash(format!("{ends:?} {at} {flow}").as_bytes());
        let [a, b, c, d, e, f, g, h, ..] = *seed.as_bytes();
        let tcp = TcpWriter::new(side as u32, ends.client, ends.server, at, [a, b, c, d, e, f, g, h]);
        Self { ends, tcp, tls: None, at, stream: 1, over: false, used: 0 }
    }

    /// Whether another flow with this key may use it.
    pub fn matches(&self, ends: &ConnectionKey) -> bool {
        !self.over && self.ends == *ends
    }

    /// Starts TLS; returns the key log lines that decrypt it.
    pub fn secrets(&mut self, name: &str) -> String {
        let seed = format!("{name} {:?}", self.ends);
        self.tls.insert(TlsWriter::new(seed.as_bytes())).key_log()
    }

    pub fn handshake(&mut self, out: &mut dyn Write, server_name: &str) -> io::Result<()> {
        let protocol = if self.ends.http2 { "h2" } else { "http/1.1" };
        let Some(tls) = &mut self.tls else { return Ok(()) };
        for (direction, flight) in tls.handshake(server_name, protocol) {
            self.tcp.send(out, direction, self.at, &flight)?;
        }
        Ok(())
    }

    /// Writes HTTP bytes in one direction, through TLS if the connection uses it.
    pub fn send(&mut self, out: &mut dyn Write, direction: Direction, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(MAX_RECORD).try_for_each(|piece| match &mut self.tls {
            Some(tls) => self.tcp.send(out, direction, self.at, &tls.protect(direction, piece)),
            None => self.tcp.send(out, direction, self.at, piece),
        })
    }

    /// A writer that combines its output into records.
    pub fn packet_sink<'c>(
        &'c mut self,
        out: &'c mut dyn Write,
        direction: Direction,
        span: MessageTiming,
    ) -> PacketSink<'c> {
        PacketSink { connection: self, out, direction, span, sent: 0, buffer: Vec::new() }
    }

    pub fn close(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.tcp.close(out)
    }
}

/// When a message of known size was sent: its first and last byte, in microseconds since the Unix epoch.
#[derive(Clone, Copy)]
pub(super) struct MessageTiming {
    pub first: u64,
    pub last: u64,
    pub size: u64,
}

impl MessageTiming {
    /// The times of the request, or of the response.
    pub fn from_row(row: &FlowRecord, direction: Direction) -> Self {
        let t = &row.timings;
        let (first, last) = match direction {
            Direction::Request => (t.request_head, t.request_body.or(t.request_sent)),
            Direction::Response => (t.first_byte.or(t.done), t.last_byte.or(t.done)),
        };
        let at = |micros: u64| row.started.micros().saturating_add(micros);
        let first = at(first.unwrap_or(0));
        Self { first, last: at(last.unwrap_or(0)).max(first), size: row.body(direction).map_or(0, |b| b.kept) }
    }

    fn time_at(&self, sent: u64) -> u64 {
        let length = u128::from(self.last - self.first);
        // Times between the first and the last byte are interpolated by the number of bytes.
        self.first + (length * u128::from(sent.min(self.size)) / u128::from(self.size.max(1))) as u64
    }
}

/// See [`PacketConnection::packet_sink`].
pub(super) struct PacketSink<'c> {
    connection: &'c mut PacketConnection,
    out: &'c mut dyn Write,
    direction: Direction,
    span: MessageTiming,
    sent: u64,
    buffer: Vec<u8>,
}

impl Write for PacketSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(MAX_RECORD - self.buffer.len());
        self.buffer.extend_from_slice(&bytes[..n]);
        if self.buffer.len() == MAX_RECORD {
            self.flush()?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.buffer);
        self.connection.at = self.span.time_at(self.sent);
        self.sent += bytes.len() as u64;
        self.connection.send(self.out, self.direction, &bytes)
    }
}
