//! Transport packets of 188 bytes (ISO 13818-1 2.4.3), and the packetization of PES packets.

/// Size of a transport packet in bytes.
pub const PACKET: usize = 188;
/// Bytes of a packet after its 4-byte header.
const MAX_PAYLOAD: usize = 184;
/// Timestamps have 33 bits, and wrap after about 26.5 hours.
const WRAP: i64 = 1 << 33;

/// The packets of one PID with its continuity counter, which starts at 0 in each segment.
#[derive(Clone, Copy, Debug)]
pub struct PidCounter {
    id: u16,
    /// Number of packets so far; the counter is its lowest four bits.
    count: usize,
}

/// Adaptation field flags of a PES's first packet.
#[derive(Clone, Copy, Debug, Default)]
pub struct PesMarker {
    /// The PCR, in ticks of 90 kHz.
    pub pcr: Option<i64>,
    /// Decoding may start at this PES.
    pub random_access: bool,
}

impl PidCounter {
    pub fn new(id: u16) -> Self {
        Self { id, count: 0 }
    }

    /// Packets missing to the next multiple of 16 after `more` further ones.
    pub fn missing(&self, more: usize) -> usize {
        (16 - (self.count + more) % 16) % 16
    }

    /// Writes a section of up to 183 bytes in one packet.
    pub fn section(&mut self, section: &[u8], out: &mut Vec<u8>) {
        let end = out.len() + PACKET;
        self.header(true, false, out);
        out.push(0);
        out.extend_from_slice(section);
        out.resize(end, 0xff);
    }

    /// The number of packets that a PES needs.
    pub fn packets(pes: &[u8], mark: PesMarker) -> usize {
        (pes.len() + adaptation_of(mark)).div_ceil(MAX_PAYLOAD)
    }

    /// Packetizes a PES, with `extra` additional packets to align the continuity counter. The payload is spread evenly
    /// over all of them, because only packets with a payload increment the counter (2.4.3.3).
    pub fn pes(&mut self, pes: &[u8], mark: PesMarker, extra: usize, out: &mut Vec<u8>) {
        let mut packets_left = Self::packets(pes, mark) + extra;
        let mut rest = pes;
        let mut first = true;
        while !rest.is_empty() {
            let mark = if first { mark } else { PesMarker::default() };
            let capacity = MAX_PAYLOAD - adaptation_of(mark);
            let stuffed = if extra == 0 { capacity } else { rest.len().div_ceil(packets_left.max(1)) };
            let (payload, after) = rest.split_at(stuffed.min(capacity).min(rest.len()));
            self.packet(payload, first, mark, out);
            (rest, first, packets_left) = (after, false, packets_left.saturating_sub(1));
        }
    }

    // What a payload leaves free is stuffing in the adaptation field: its length byte, flags, and 0xff.
    fn packet(&mut self, payload: &[u8], first: bool, mark: PesMarker, out: &mut Vec<u8>) {
        let adaptation = MAX_PAYLOAD - payload.len();
        self.header(first, adaptation > 0, out);
        let end = out.len() + adaptation;
        if adaptation > 0 {
            out.push(adaptation as u8 - 1);
        }
        if adaptation > 1 {
            out.push(u8::from(mark.random_access) << 6 | u8::from(mark.pcr.is_some()) << 4);
            if let Some(pcr) = mark.pcr {
                let base = pcr.rem_euclid(WRAP) as u64;
                // 33 bits of base, 6 reserved, 9 of extension.
                let [_, _, clock @ ..] = (base << 15 | 0x7e00).to_be_bytes();
                out.extend_from_slice(&clock);
            }
        }
        out.resize(end, 0xff);
        out.extend_from_slice(payload);
    }

    /// The four bytes of a packet's header; advances the continuity counter.
    fn header(&mut self, first: bool, adaptation: bool, out: &mut Vec<u8>) {
        let [high, low] = self.id.to_be_bytes();
        let counter = (self.count % 16) as u8;
        out.extend_from_slice(&[0x47, high | u8::from(first) << 6, low, 0x10 | u8::from(adaptation) << 5 | counter]);
        self.count += 1;
    }
}

/// Bytes of the adaptation field needed for the flags: with a PCR six more than the length and flag bytes.
fn adaptation_of(mark: PesMarker) -> usize {
    match mark {
        PesMarker { pcr: Some(_), .. } => 8,
        PesMarker { random_access: true, .. } => 2,
        PesMarker { .. } => 0,
    }
}

/// The PES header (2.4.3.6) for `length` bytes of payload.
pub fn pes_header(stream_id: u8, pts: i64, dts: i64, length: usize, out: &mut Vec<u8>) {
    let has_dts = pts.rem_euclid(WRAP) != dts.rem_euclid(WRAP);
    let fields = if has_dts { 10 } else { 5 };
    // A length that does not fit is left unspecified, which is allowed for video only.
    let length = u16::try_from(length + 3 + fields).unwrap_or(0);
    out.extend_from_slice(&[0, 0, 1, stream_id]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[0x84, if has_dts { 0xc0 } else { 0x80 }, fields as u8]);
    timestamp(if has_dts { 3 } else { 2 }, pts, out);
    if has_dts {
        timestamp(1, dts, out);
    }
}

/// A timestamp of 33 bits in five bytes with marker bits (ISO 13818-1 2.4.3.7).
fn timestamp(prefix: u8, ticks: i64, out: &mut Vec<u8>) {
    let t = ticks.rem_euclid(WRAP) as u64;
    out.extend_from_slice(&[
        prefix << 4 | (t >> 29) as u8 & 0x0e | 1,
        (t >> 22) as u8,
        (t >> 14) as u8 | 1,
        (t >> 7) as u8,
        (t << 1) as u8 | 1,
    ]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn timestamps_wrap_at_33_bits() {
        let mut out = Vec::new();
        pes_header(0xe0, (1 << 33) + 3, -1, 100, &mut out);
        assert_eq!(out[4..9], [0, 113, 0x84, 0xc0, 10]);
        assert_eq!(out[9..], [0x31, 0, 1, 0, 7, 0x1f, 0xff, 0xff, 0xff, 0xff]);
        out.clear();
        pes_header(0xc0, 5, 5 + (1 << 33), 70_000, &mut out);
        assert_eq!((out[4..9].to_vec(), out.len()), (vec![0, 0, 0x84, 0x80, 5], 14));
    }

    #[test]
    fn pcr_is_in_the_first_packet() {
        let mut out = Vec::new();
        PidCounter::new(0x100).pes(&[7; 300], PesMarker { pcr: Some(-1), random_access: true }, 0, &mut out);
        assert_eq!(out[..13], [0x47, 0x41, 0, 0x30, 7, 0x50, 0xff, 0xff, 0xff, 0xff, 0xfe, 0, 7]);
        assert_eq!(out[188..192], [0x47, 0x01, 0, 0x31]);
    }

    proptest! {
        #[test]
        fn pes_round_trips_through_the_expected_number_of_packets(
            n in 20_usize..3000,
            extra in 0_usize..16,
            clock: bool,
            random_access: bool,
        ) {
            let pes: Vec<u8> = (0..n).map(|i| i as u8).collect();
            let mark = PesMarker { pcr: clock.then_some(900), random_access };
            let mut pid = PidCounter::new(0x101);
            let mut out = Vec::new();
            pid.pes(&pes, mark, extra, &mut out);
            prop_assert_eq!(out.len(), (PidCounter::packets(&pes, mark) + extra) * PACKET);
            let mut back = Vec::new();
            for (i, p) in out.chunks(PACKET).enumerate() {
                prop_assert_eq!((p[0], p[3] & 15, p[1] & 0x40 != 0), (0x47, (i % 16) as u8, i == 0));
                let skip = if p[3] & 0x20 != 0 { 1 + usize::from(p[4]) } else { 0 };
                back.extend_from_slice(&p[4 + skip..]);
            }
            prop_assert_eq!(back, pes);
        }
    }
}
