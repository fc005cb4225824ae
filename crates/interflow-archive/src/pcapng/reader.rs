//! Reads pcapng: blocks, link layers, IP and TCP, down to the two byte streams of each connection.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};

use super::block;

/// Maximum length of a block; packets have at most 64 KiB, secrets of a long capture a few megabytes.
const MAX_BLOCK: u32 = 64 << 20;
/// Bytes of all connections that are in memory at once.
const MAX_BUFFERED: usize = 512 << 20;
/// Segments of a connection that wait for an earlier one.
const MAX_PENDING: usize = 4096;

const LINK_NULL: u16 = 0;
const LINK_ETHERNET: u16 = 1;
const LINK_RAW: [u16; 3] = [12, 14, 101];
const LINK_LOOP: u16 = 108;
const LINK_LINUX: u16 = 113;
const LINK_LINUX2: u16 = 276;

const TCP: u8 = 6;

/// One direction of a connection.
#[derive(Default)]
pub(super) struct TcpStream {
    pub bytes: Vec<u8>,
    /// Where in `bytes` each segment begins, and its time in microseconds.
    pub marks: Vec<(usize, u64)>,
    /// The next sequence number; unknown before the first segment.
    next: Option<u32>,
    pending: BTreeMap<u32, (u64, Vec<u8>)>,
    ended: bool,
}

impl TcpStream {
    pub fn from_parts(bytes: Vec<u8>, marks: Vec<(usize, u64)>) -> Self {
        Self { bytes, marks, ..Self::default() }
    }

    /// When the byte at this position was captured.
    pub fn time_at(&self, position: usize) -> u64 {
        let at = self.marks.partition_point(|(start, _)| *start <= position);
        self.marks.get(at.saturating_sub(1)).map_or(0, |(_, time)| *time)
    }

    /// Whether bytes are missing before those that follow.
    pub fn has_gap(&self) -> bool {
        !self.pending.is_empty()
    }

    fn take(&mut self, sequence: u32, time: u64, data: &[u8]) -> usize {
        let next = *self.next.get_or_insert(sequence);
        let before = self.bytes.len();
        let distance = sequence.wrapping_sub(next);
        let is_longer = self.pending.get(&distance).is_none_or(|(_, known)| known.len() < data.len());
        if self.pending.len() < MAX_PENDING && !data.is_empty() && is_longer {
            self.pending.insert(distance, (time, data.to_vec()));
        }
        // Keys are distances from `next` as of now: rebuilt below when it moves.
        while let Some((distance, (time, data))) = self.pop_due() {
            // A retransmission may begin before the end of what is known.
            let known = 0_u32.wrapping_sub(distance) as usize;
            if let Some(fresh) = data.get(known..).filter(|fresh| !fresh.is_empty()) {
                self.marks.push((self.bytes.len(), time));
                self.bytes.extend_from_slice(fresh);
                self.advance(fresh.len() as u32);
            }
        }
        self.bytes.len() - before
    }

    /// A segment that begins at or before the next byte.
    fn pop_due(&mut self) -> Option<(u32, (u64, Vec<u8>))> {
        let due = self.pending.keys().copied().find(|distance| *distance == 0 || *distance > 1 << 31)?;
        Some((due, self.pending.remove(&due)?))
    }

    fn advance(&mut self, by: u32) {
        self.next = self.next.map(|n| n.wrapping_add(by));
        let moved = std::mem::take(&mut self.pending).into_iter();
        self.pending = moved.map(|(distance, segment)| (distance.wrapping_sub(by), segment)).collect();
    }
}

/// A TCP connection: from the client, and from the server.
pub(super) struct TcpConnection {
    pub ends: [SocketAddr; 2],
    pub streams: [TcpStream; 2],
    /// Whether its first packets are in the capture.
    opened: bool,
}

impl TcpConnection {
    fn new(ends: [SocketAddr; 2]) -> Self {
        Self { ends, streams: Default::default(), opened: false }
    }

    fn len(&self) -> usize {
        self.streams.iter().map(|s| s.bytes.len()).sum()
    }
}

/// What a capture contains, in order.
pub(super) enum CaptureItem {
    /// Lines of a TLS key log.
    Secrets(String),
    Connection(Box<TcpConnection>),
}

struct LinkInterface {
    link: u16,
    /// Units of its timestamps per second.
    resolution: u64,
}

pub(super) struct CaptureReader<R> {
    file: R,
    is_big_endian: bool,
    interfaces: Vec<LinkInterface>,
    open: HashMap<(SocketAddr, SocketAddr), Box<TcpConnection>>,
    buffered: usize,
    /// Packets that are not TCP over IP, or are fragments.
    pub ignored: u64,
}

impl<R: Read> CaptureReader<R> {
    pub fn new(file: R) -> Self {
        Self { file, is_big_endian: false, interfaces: Vec::new(), open: HashMap::new(), buffered: 0, ignored: 0 }
    }

    /// Reads to the end; calls `each` with secrets, and with connections once they are closed.
    pub fn run(&mut self, each: &mut dyn FnMut(CaptureItem) -> io::Result<()>) -> io::Result<()> {
        while let Some((kind, body)) = self.block()? {
            match kind {
                block::SECTION => self.interfaces.clear(),
                block::INTERFACE => self.interface(&body),
                block::SECRETS if self.u32(&body, 0) == Some(block::TLS_KEY_LOG) => {
                    let lines = body.get(8..).unwrap_or_default();
                    each(CaptureItem::Secrets(String::from_utf8_lossy(lines).into_owned()))?;
                }
                block::PACKET => {
                    if let Some(closed) = self.packet(&body) {
                        each(CaptureItem::Connection(closed))?;
                    }
                }
                _ => {}
            }
            if self.buffered > MAX_BUFFERED {
                return Err(invalid("its connections have more than 512 MiB at once: split the capture"));
            }
        }
        let mut left: Vec<_> = self.open.drain().map(|(_, connection)| connection).filter(|c| c.len() > 0).collect();
        // A map has no order.
        left.sort_by_key(|c| c.streams.iter().filter_map(|s| s.marks.first()).map(|m| m.1).min());
        left.into_iter().try_for_each(|connection| each(CaptureItem::Connection(connection)))
    }

    /// The next block: its type and body.
    fn block(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        let mut head = [0; 8];
        match self.file.read_exact(&mut head) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(e) => return Err(e),
        }
        let mut start = Vec::new();
        // The type of a section header reads the same in both byte orders; its magic number says which it is.
        if head[..4] == block::SECTION.to_le_bytes() {
            let mut magic = [0; 4];
            self.file.read_exact(&mut magic)?;
            self.is_big_endian = match u32::from_le_bytes(magic) {
                block::MAGIC => false,
                swapped if swapped.swap_bytes() == block::MAGIC => true,
                _ => return Err(invalid("a section has no byte order: this is not pcapng")),
            };
            start.extend_from_slice(&magic);
        }
        let kind = self.u32(&head, 0).unwrap_or_default();
        let length = self.u32(&head, 4).unwrap_or_default();
        if !(12..=MAX_BLOCK).contains(&length) || (length as usize) < 12 + start.len() {
            return Err(invalid(format!("a block of {length} bytes")));
        }
        let mut body = vec![0; length as usize - 8];
        body[..start.len()].copy_from_slice(&start);
        self.file.read_exact(&mut body[start.len()..])?;
        // The length again.
        body.truncate(body.len() - 4);
        Ok(Some((kind, body)))
    }

    fn u16(&self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = <[u8; 2]>::try_from(bytes.get(at..at + 2)?).ok()?;
        Some(if self.is_big_endian { u16::from_be_bytes(raw) } else { u16::from_le_bytes(raw) })
    }

    fn u32(&self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = <[u8; 4]>::try_from(bytes.get(at..at + 4)?).ok()?;
        Some(if self.is_big_endian { u32::from_be_bytes(raw) } else { u32::from_le_bytes(raw) })
    }

    fn interface(&mut self, body: &[u8]) {
        let link = self.u16(body, 0).unwrap_or(u16::MAX);
        let mut resolution = 1_000_000;
        let mut at = 8;
        // Options: `if_tsresol` is the ninth.
        while let (Some(code), Some(length)) = (self.u16(body, at), self.u16(body, at + 2)) {
            match (code, body.get(at + 4)) {
                (0, _) => break,
                (9, Some(value)) if value & 0x80 != 0 => resolution = 1_u64 << (value & 0x7f).min(63),
                (9, Some(value)) => resolution = 10_u64.saturating_pow((*value).into()),
                _ => {}
            }
            at += 4 + usize::from(length).next_multiple_of(4);
        }
        self.interfaces.push(LinkInterface { link, resolution });
    }

    /// Adds a packet to its connection; returns a connection that is complete with it.
    fn packet(&mut self, body: &[u8]) -> Option<Box<TcpConnection>> {
        let interface = self.interfaces.get(self.u32(body, 0)? as usize)?;
        let units = u64::from(self.u32(body, 4)?) << 32 | u64::from(self.u32(body, 8)?);
        let time = (u128::from(units) * 1_000_000 / u128::from(interface.resolution)) as u64;
        let frame = body.get(20..20 + self.u32(body, 12)? as usize)?;
        let Some(segment) = ip_packet(interface.link, frame).and_then(TcpSegment::parse) else {
            self.ignored += 1;
            return None;
        };
        self.segment(&segment, time)
    }

    fn segment(&mut self, segment: &TcpSegment<'_>, time: u64) -> Option<Box<TcpConnection>> {
        let (from, to) = (segment.from, segment.to);
        let key = if from < to { (from, to) } else { (to, from) };
        let begins = segment.is(TcpSegment::SYN) && !segment.is(TcpSegment::ACK);
        // The same ports again: another connection.
        let before = if begins && self.open.get(&key).is_some_and(|c| c.len() > 0) { self.remove(key) } else { None };
        let connection = self.open.entry(key).or_insert_with(|| Box::new(TcpConnection::new([from, to])));
        if segment.is(TcpSegment::SYN) {
            if !connection.opened {
                connection.ends = if begins { [from, to] } else { [to, from] };
                connection.opened = true;
            }
            let side = usize::from(connection.ends[0] != from);
            connection.streams[side].next = Some(segment.sequence.wrapping_add(1));
            return before;
        }
        let stream = &mut connection.streams[usize::from(connection.ends[0] != from)];
        self.buffered += stream.take(segment.sequence, time, segment.data);
        stream.ended |= segment.is(TcpSegment::FIN);
        let closed = segment.is(TcpSegment::RST) || connection.streams.iter().all(|s| s.ended && !s.has_gap());
        if closed { self.remove(key) } else { None }
    }

    fn remove(&mut self, key: (SocketAddr, SocketAddr)) -> Option<Box<TcpConnection>> {
        let connection = self.open.remove(&key)?;
        self.buffered -= connection.len();
        (connection.len() > 0).then_some(connection)
    }
}

/// The IP packet of a frame.
fn ip_packet(link: u16, frame: &[u8]) -> Option<&[u8]> {
    match link {
        LINK_ETHERNET => {
            let mut at = 12;
            loop {
                match frame.get(at..at + 2)? {
                    // VLAN tags.
                    [0x81, 0x00] | [0x88, 0xa8] => at += 4,
                    [0x08, 0x00] | [0x86, 0xdd] => return frame.get(at + 2..),
                    _ => return None,
                }
            }
        }
        LINK_NULL | LINK_LOOP => frame.get(4..),
        LINK_LINUX => frame.get(16..),
        LINK_LINUX2 => frame.get(20..),
        raw if LINK_RAW.contains(&raw) => Some(frame),
        _ => None,
    }
}

struct TcpSegment<'a> {
    from: SocketAddr,
    to: SocketAddr,
    sequence: u32,
    flags: u8,
    data: &'a [u8],
}

impl<'a> TcpSegment<'a> {
    const FIN: u8 = 1;
    const SYN: u8 = 2;
    const RST: u8 = 4;
    const ACK: u8 = 16;

    const fn is(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// From an IP packet; `None` for other protocols and for fragments.
    fn parse(packet: &'a [u8]) -> Option<Self> {
        let (from, to, tcp) = match packet.first()? >> 4 {
            4 => ipv4(packet)?,
            6 => ipv6(packet)?,
            _ => return None,
        };
        let port = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let header = usize::from(tcp.get(12)? >> 4) * 4;
        Some(Self {
            from: SocketAddr::new(from, port(0)?),
            to: SocketAddr::new(to, port(2)?),
            sequence: u32::from_be_bytes(tcp.get(4..8)?.try_into().ok()?),
            flags: *tcp.get(13)?,
            data: tcp.get(header.max(20)..)?,
        })
    }
}

/// Source, target and payload of an IPv4 packet with TCP.
fn ipv4(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let header = usize::from(packet[0] & 15) * 4;
    let total = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
    // The fragment offset, and the flag that more fragments follow.
    let fragment = u16::from_be_bytes(packet.get(6..8)?.try_into().ok()?) & 0x3fff;
    if *packet.get(9)? != TCP || fragment != 0 {
        return None;
    }
    // Segmentation offload leaves the length at 0; short packets are padded.
    let end = if total == 0 { packet.len() } else { total.min(packet.len()) };
    let address = |at: usize| Some(IpAddr::from(<[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?));
    Some((address(12)?, address(16)?, packet.get(header.max(20)..end)?))
}

/// Source, target and payload of an IPv6 packet with TCP.
fn ipv6(packet: &[u8]) -> Option<(IpAddr, IpAddr, &[u8])> {
    let length = usize::from(u16::from_be_bytes(packet.get(4..6)?.try_into().ok()?));
    let end = if length == 0 { packet.len() } else { (40 + length).min(packet.len()) };
    let address = |at: usize| Some(IpAddr::from(<[u8; 16]>::try_from(packet.get(at..at + 16)?).ok()?).to_canonical());
    let (mut next, mut at) = (*packet.get(6)?, 40);
    // Hop-by-hop options, routing, destination options.
    while matches!(next, 0 | 43 | 60) {
        next = *packet.get(at)?;
        at += 8 + usize::from(*packet.get(at + 1)?) * 8;
    }
    if next != TCP {
        return None;
    }
    Some((address(8)?, address(24)?, packet.get(at..end)?))
}

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_out_of_order_and_repeated_ones_are_joined() {
        let mut stream = TcpStream::default();
        // Around the wrap of sequence numbers.
        let start = u32::MAX - 2;
        stream.next = Some(start);
        let mut take = |offset: u32, time, data: &[u8]| stream.take(start.wrapping_add(offset), time, data);
        assert_eq!(take(3, 1, b"def"), 0);
        assert_eq!(take(9, 2, b"j"), 0);
        assert_eq!(take(0, 3, b"abc"), 6);
        assert_eq!(take(1, 4, b"bcdefghi"), 4);
        assert_eq!(take(0, 5, b"abc"), 0);
        assert_eq!(stream.bytes, b"abcdefghij");
        assert!(!stream.has_gap());
        assert_eq!([0, 3, 6, 9].map(|at| stream.time_at(at)), [3, 1, 4, 2]);
    }

    #[test]
    fn a_lost_segment_leaves_a_gap() {
        let mut stream = TcpStream::default();
        stream.take(10, 1, b"ab");
        stream.take(20, 2, b"later");
        assert_eq!((&stream.bytes[..], stream.has_gap()), (&b"ab"[..], true));
    }
}
