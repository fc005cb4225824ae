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
    // Version 1.0; the length of the section is not known in advance.
    let fixed = [&MAGIC.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let note = "Packets made of recorded flows: TCP and TLS are not those that were on the wire.";
    block(out, SECTION, &with_options(fixed, [(1, note), (4, concat!("Interflow ", env!("CARGO_PKG_VERSION")))]))
}

/// An interface description; packets refer to it by number. Times are in microseconds, the default resolution.
pub(super) fn interface(out: &mut dyn Write, name: &str, description: &str) -> io::Result<()> {
    // No snapshot length limit.
    let fixed = [LINK_TYPE.to_le_bytes(), [0; 4]].concat();
    block(out, INTERFACE, &with_options(fixed, [(2, name), (3, description)]))
}

/// TLS secrets; they must precede the packets that they decrypt.
pub(super) fn secrets(out: &mut dyn Write, lines: &str) -> io::Result<()> {
    let length = (lines.len() as u32).to_le_bytes();
    block(out, SECRETS, &[&TLS_KEY_LOG.to_le_bytes()[..], &length, lines.as_bytes()].concat())
}

/// A packet at `at`, in microseconds since the Unix epoch.
pub(super) fn packet(out: &mut dyn Write, interface: u32, at: u64, packet: &[u8]) -> io::Result<()> {
    let length = packet.len() as u32;
    // Captured and original length are equal: nothing was cut off.
    let head = [interface, (at >> 32) as u32, at as u32, length, length].map(u32::to_le_bytes).concat();
    block(out, PACKET, &[&head, packet].concat())
}

/// A body with its options, each padded, and the one that ends them.
fn with_options(mut body: Vec<u8>, options: [(u16, &str); 2]) -> Vec<u8> {
    for (code, value) in options.into_iter().chain([(0, "")]) {
        body.extend([code, value.len() as u16].map(u16::to_le_bytes).concat());
        body.extend_from_slice(value.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body
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
