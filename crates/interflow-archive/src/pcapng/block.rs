//! The blocks of a pcapng file, written in little-endian order.

use std::io::{self, Write};

/// The link type of Ethernet.
const LINK_TYPE: u32 = 1;
/// `TLSK`: lines of a key log (section 4.7).
const TLS_KEY_LOG: u32 = 0x544c_534b;
/// By which a reader finds the byte order of a section.
const MAGIC: u32 = 0x1a2b_3c4d;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const PACKET: u32 = 6;
const SECRETS: u32 = 0x0a;

pub(super) fn section(out: &mut dyn Write) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&MAGIC.to_le_bytes());
    body.extend_from_slice(&1_u16.to_le_bytes());
    body.extend_from_slice(&0_u16.to_le_bytes());
    // The length of the section is not known in advance.
    body.extend_from_slice(&[0xff; 8]);
    let note = "Packets made of recorded flows: TCP and TLS are not those that were on the wire.";
    option(&mut body, 1, note.as_bytes());
    option(&mut body, 4, concat!("Interflow ", env!("CARGO_PKG_VERSION")).as_bytes());
    option(&mut body, 0, b"");
    block(out, SECTION, &body)
}

/// An interface description; packets refer to it by number. Times are in microseconds, the default resolution.
pub(super) fn interface(out: &mut dyn Write, name: &str, description: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&LINK_TYPE.to_le_bytes());
    // No snapshot length limit.
    body.extend_from_slice(&0_u32.to_le_bytes());
    option(&mut body, 2, name.as_bytes());
    option(&mut body, 3, description.as_bytes());
    option(&mut body, 0, b"");
    block(out, INTERFACE, &body)
}

/// TLS secrets; they must precede the packets that they decrypt.
pub(super) fn secrets(out: &mut dyn Write, lines: &str) -> io::Result<()> {
    let mut body = Vec::new();
    body.extend_from_slice(&TLS_KEY_LOG.to_le_bytes());
    body.extend_from_slice(&(lines.len() as u32).to_le_bytes());
    body.extend_from_slice(lines.as_bytes());
    block(out, SECRETS, &body)
}

/// A packet at `at`, in microseconds since the Unix epoch.
pub(super) fn packet(out: &mut dyn Write, interface: u32, at: u64, packet: &[u8]) -> io::Result<()> {
    let mut body = Vec::with_capacity(packet.len() + 24);
    // Captured and original length are equal: nothing was cut off.
    for number in [interface, (at >> 32) as u32, at as u32, packet.len() as u32, packet.len() as u32] {
        body.extend_from_slice(&number.to_le_bytes());
    }
    body.extend_from_slice(packet);
    block(out, PACKET, &body)
}

fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend_from_slice(&code.to_le_bytes());
    body.extend_from_slice(&(value.len() as u16).to_le_bytes());
    body.extend_from_slice(value);
    pad(body);
}

fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

fn block(out: &mut dyn Write, kind: u32, body: &[u8]) -> io::Result<()> {
    let padded = body.len().next_multiple_of(4);
    let length = (padded as u32 + 12).to_le_bytes();
    // The length stands at both ends of a block, so that files can be read backwards.
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&length)?;
    out.write_all(body)?;
    out.write_all(&[0; 3][..padded - body.len()])?;
    out.write_all(&length)
}
