//! One TCP connection as packets: Ethernet, IPv4 or IPv6, TCP (RFC 791, 8200, 9293).

use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};

use interflow_types::Direction;

use super::block;

/// Payload of one segment in bytes: an Ethernet payload of 1500 less the IPv6 and TCP headers, and also what the
/// handshake announces as the maximum segment size.
const SEGMENT: usize = 1440;
/// Segments between two acknowledgements, few enough that the window of 64 KiB is never exceeded.
const ACK_EVERY: usize = 16;
const WINDOW: u16 = 0xffff;

mod bit {
    pub const FIN: u8 = 1;
    pub const SYN: u8 = 2;
    pub const PSH: u8 = 8;
    pub const ACK: u8 = 16;
}

/// One TCP connection between `ends` (the client, then the server). Sequence numbers in `next` and the IPv4
/// identifications in `ident` are those of each endpoint's next packet.
pub(super) struct TcpWriter {
    interface: u32,
    ends: [SocketAddr; 2],
    next: [u32; 2],
    ident: [u16; 2],
    /// The time of the last packet: a connection's packets are in order.
    at: u64,
}

impl TcpWriter {
    /// A connection that begins at `at`. Both endpoints have addresses of one family. Initial sequence numbers derive
    /// from `seed`.
    pub fn new(interface: u32, client: SocketAddr, server: SocketAddr, at: u64, seed: [u8; 8]) -> Self {
        let [a, b, c, d, rest @ ..] = seed;
        let next = [u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes(rest)];
        Self { interface, ends: [client, server], next, ident: [1, 1], at }
    }

    /// The three packets of the handshake.
    pub fn open(&mut self, out: &mut dyn Write) -> io::Result<()> {
        self.packet(out, Direction::Request, bit::SYN, b"")?;
        self.packet(out, Direction::Response, bit::SYN | bit::ACK, b"")?;
        self.packet(out, Direction::Request, bit::ACK, b"")
    }

    /// Data in one direction, with the other endpoint's acknowledgements.
    pub fn send(&mut self, out: &mut dyn Write, direction: Direction, at: u64, bytes: &[u8]) -> io::Result<()> {
        // Times of imported flows may go backwards.
        self.at = self.at.max(at);
        let last = bytes.len().div_ceil(SEGMENT);
        for (i, segment) in bytes.chunks(SEGMENT).enumerate() {
            // PSH marks the end of a message.
            let end = i + 1 == last;
            self.packet(out, direction, bit::ACK | if end { bit::PSH } else { 0 }, segment)?;
            if end || (i + 1) % ACK_EVERY == 0 {
                self.packet(out, direction.opposite(), bit::ACK, b"")?;
            }
        }
        Ok(())
    }

    pub fn close(&mut self, out: &mut dyn Write) -> io::Result<()> {
        // The server closes first, then the client.
        self.packet(out, Direction::Response, bit::FIN | bit::ACK, b"")?;
        self.packet(out, Direction::Request, bit::FIN | bit::ACK, b"")?;
        self.packet(out, Direction::Response, bit::ACK, b"")
    }

    fn packet(&mut self, out: &mut dyn Write, direction: Direction, bits: u8, payload: &[u8]) -> io::Result<()> {
        let (from, to) = (direction as usize, direction.opposite() as usize);
        // The acknowledgement is the next number that is expected from the other end.
        let acknowledged = if bits & bit::ACK == 0 { 0 } else { self.next[to] };
        let segment = segment(self.ends[from], self.ends[to], self.next[from], acknowledged, bits, payload);
        let mut packet = Vec::with_capacity(segment.len() + 54);
        // Generated MAC addresses: the locally-administered bit is set.
        packet.extend_from_slice(&[2, 0, 0, 0, 0, to as u8 + 1, 2, 0, 0, 0, 0, from as u8 + 1]);
        // Below, the type of the payload: IPv4 or IPv6.
        packet.extend(match (self.ends[from].ip(), self.ends[to].ip()) {
            (IpAddr::V4(source), IpAddr::V4(target)) => {
                [&[8, 0][..], &ipv4(source.octets(), target.octets(), self.ident[from], segment.len())].concat()
            }
            (source, target) => [&[0x86, 0xdd][..], &ipv6(octets(source), octets(target), segment.len())].concat(),
        });
        packet.extend(segment);
        // SYN and FIN each take one sequence number (RFC 9293 3.4).
        let counted = payload.len() as u32 + u32::from(bits & (bit::SYN | bit::FIN) != 0);
        self.next[from] = self.next[from].wrapping_add(counted);
        self.ident[from] = self.ident[from].wrapping_add(1);
        block::packet(out, self.interface, self.at, &packet)
    }
}

fn octets(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

fn ipv4(source: [u8; 4], target: [u8; 4], ident: u16, payload: usize) -> Vec<u8> {
    let length = (payload as u16 + 20).to_be_bytes();
    // Don't fragment, TTL 64, TCP, checksum placeholder.
    let fixed = [0x40, 0, 64, 6, 0, 0];
    let mut head = [&[0x45, 0][..], &length, &ident.to_be_bytes(), &fixed, &source, &target].concat();
    let sum = checksum(&[&head]);
    head[10..12].copy_from_slice(&sum.to_be_bytes());
    head
}

fn ipv6(source: [u8; 16], target: [u8; 16], payload: usize) -> Vec<u8> {
    [&[0x60, 0, 0, 0][..], &(payload as u16).to_be_bytes(), &[6, 64], &source, &target].concat()
}

fn segment(from: SocketAddr, to: SocketAddr, number: u32, acknowledged: u32, bits: u8, payload: &[u8]) -> Vec<u8> {
    // The handshake announces the maximum segment size.
    let options: &[u8] = if bits & bit::SYN == 0 { &[] } else { &[2, 4, (SEGMENT >> 8) as u8, SEGMENT as u8] };
    let ports = [from.port().to_be_bytes(), to.port().to_be_bytes()].concat();
    let numbers = [number.to_be_bytes(), acknowledged.to_be_bytes()].concat();
    let kind = [(5 + options.len() as u8 / 4) << 4, bits];
    // The checksum is filled in below; no data is urgent.
    let [sum, urgent] = [[0; 2]; 2];
    let mut out = [&ports[..], &numbers, &kind, &WINDOW.to_be_bytes(), &sum, &urgent, options, payload].concat();
    let length = (out.len() as u32).to_be_bytes();
    let sum = match (from.ip(), to.ip()) {
        // The checksum also covers a pseudo header of addresses, protocol and length (RFC 9293 section 3.1).
        (IpAddr::V4(f), IpAddr::V4(t)) => checksum(&[&f.octets(), &t.octets(), &[0, 6], &length[2..], &out]),
        (f, t) => checksum(&[&octets(f), &octets(t), &length, &[0, 0, 0, 6], &out]),
    };
    out[16..18].copy_from_slice(&sum.to_be_bytes());
    out
}

/// RFC 1071. Every part but the last has an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u64 = words.map(|w| u64::from(w[0]) << 8 | u64::from(w.get(1).copied().unwrap_or(0))).sum();
    while sum >> 16 != 0 {
        // Carries are added back (one's complement).
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_rfc_1071() {
        assert_eq!(checksum(&[&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]]), !0xddf2);
        assert_eq!(checksum(&[&[0x12]]), !0x1200);
    }

    #[test]
    fn a_checksum_over_a_whole_header_is_zero() {
        let head = ipv4([127, 0, 0, 1], [10, 0, 0, 1], 7, 100);
        assert_eq!(checksum(&[&head]), 0);
    }
}
