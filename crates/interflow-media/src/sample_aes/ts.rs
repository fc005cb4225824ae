//! SAMPLE-AES in MPEG-TS: elementary streams are decrypted frame by frame and written back to their packets, so that
//! clocks, counters and packet order are unchanged.
//!
//! Encryption covers the payload of PES packets, spread over transport packets that are interleaved with those of other
//! streams. All of them wait in one queue, and leave it in order as soon as no PES of which the first one is part is
//! incomplete.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

use super::frames::{self, AudioFraming};
use super::{SampleAesError, nal};
use crate::cenc::{AesKey, ContentKey};
use crate::remux::crc;

/// Size of a transport packet in bytes.
const PACKET: usize = 188;
/// Maximum bytes of packets waiting for a frame to end.
const MAX_WAITING_BYTES: usize = 32 << 20;

/// Decrypts one segment as a stream; packets wait until their frame is complete.
pub struct SampleAesTs {
    key: AesKey,
    iv: [u8; 16],
    /// The beginning of a packet whose rest has not arrived.
    cut: BytesMut,
    pos: u64,
    queue: VecDeque<TsPacket>,
    /// Index of the first packet in the queue, from the start of the segment.
    first: u64,
    programs: Vec<u16>,
    streams: Vec<EncryptedStream>,
}

/// A packet in the queue.
struct TsPacket {
    data: [u8; PACKET],
    /// Contains part of an incomplete PES.
    waits: bool,
}

/// An elementary stream to decrypt.
struct EncryptedStream {
    pid: u16,
    kind: EncryptedStreamKind,
    /// Indexes of the packets of the current PES.
    packets: Vec<u64>,
}

/// What the frames of a stream look like.
#[derive(Clone, Copy)]
enum EncryptedStreamKind {
    Video,
    Audio(AudioFraming),
}

/// Stream types of encrypted streams, and of the same streams in clear.
const TYPES: [(u8, u8, EncryptedStreamKind); 4] = [
    (0xdb, 0x1b, EncryptedStreamKind::Video),
    (0xcf, 0x0f, EncryptedStreamKind::Audio(AudioFraming::Adts)),
    (0xc1, 0x81, EncryptedStreamKind::Audio(AudioFraming::Ac3)),
    (0xc2, 0x87, EncryptedStreamKind::Audio(AudioFraming::Ac3)),
];

impl SampleAesTs {
    pub fn new(key: &ContentKey, iv: [u8; 16]) -> Self {
        let (key, cut, queue) = (AesKey::new(key), BytesMut::new(), VecDeque::new());
        Self { key, iv, cut, pos: 0, queue, first: 0, programs: Vec::new(), streams: Vec::new() }
    }

    /// Processes the next bytes and appends finished packets to `out`.
    ///
    /// # Errors
    /// If packets or frames cannot be located.
    pub fn push(&mut self, chunk: &[u8], out: &mut Vec<Bytes>) -> Result<(), SampleAesError> {
        let mut rest = chunk;
        if !self.cut.is_empty() {
            let (head, after) = rest.split_at((PACKET - self.cut.len()).min(rest.len()));
            self.cut.extend_from_slice(head);
            rest = after;
            if let Some(data) = self.cut.first_chunk().copied() {
                self.cut.clear();
                self.packet(data)?;
            }
        }
        let (packets, tail) = rest.as_chunks::<PACKET>();
        packets.iter().try_for_each(|data| self.packet(*data))?;
        self.cut.extend_from_slice(tail);
        self.flush(out);
        Ok(())
    }

    /// Ends the segment.
    ///
    /// # Errors
    /// If it ends inside a packet, or its last frames cannot be located.
    pub fn finish(&mut self, out: &mut Vec<Bytes>) -> Result<(), SampleAesError> {
        if !self.cut.is_empty() {
            return Err(SampleAesError::Truncated(self.cut.len()));
        }
        for i in 0..self.streams.len() {
            self.close(i)?;
        }
        self.flush(out);
        Ok(())
    }

    /// Takes one packet: tables are read, and packets of encrypted streams wait for the end of their PES.
    fn packet(&mut self, data: [u8; PACKET]) -> Result<(), SampleAesError> {
        if data[0] != 0x47 {
            return Err(SampleAesError::Sync(self.pos));
        }
        self.pos += PACKET as u64;
        let pid = u16::from_be_bytes([data[1], data[2]]) & 0x1fff;
        let begins = data[1] & 0x40 != 0;
        let mut packet = TsPacket { data, waits: false };
        let number = self.first + self.queue.len() as u64;
        if pid == 0 && begins {
            self.association(&packet);
        } else if self.programs.contains(&pid) && begins {
            self.program_map(&mut packet);
        } else if let Some(i) = self.streams.iter().position(|s| s.pid == pid) {
            // A new PES begins, so the previous one is complete: its declared length may be 0 for video.
            if begins {
                self.close(i)?;
            }
            // Packets before the first start of a PES belong to one of an earlier segment, and pass.
            if let Some(stream) = self.streams.get_mut(i)
                && (begins || !stream.packets.is_empty())
            {
                stream.packets.push(number);
                packet.waits = true;
                if stream.packets.len() * PACKET > MAX_WAITING_BYTES {
                    return Err(SampleAesError::TooLarge(pid, MAX_WAITING_BYTES));
                }
            }
        }
        // Other streams wait behind the first incomplete PES too.
        if self.queue.len() * PACKET > 2 * MAX_WAITING_BYTES {
            return Err(SampleAesError::TooLarge(pid, 2 * MAX_WAITING_BYTES));
        }
        self.queue.push_back(packet);
        Ok(())
    }

    /// Outputs the packets before the first waiting one.
    fn flush(&mut self, out: &mut Vec<Bytes>) {
        let n = self.queue.iter().position(|p| p.waits).unwrap_or(self.queue.len());
        if n > 0 {
            let mut ready = BytesMut::with_capacity(n * PACKET);
            self.queue.drain(..n).for_each(|p| ready.extend_from_slice(&p.data));
            self.first += n as u64;
            out.push(ready.freeze());
        }
    }

    /// PAT: the PMT PIDs of the programs.
    fn association(&mut self, packet: &TsPacket) {
        let Some(section) = section(&packet.data, 0) else { return };
        let entries = packet.data.get(section.start + 8..section.end - 4).unwrap_or_default();
        let pids = entries.as_chunks::<4>().0.iter().filter(|e| e[..2] != [0, 0]);
        self.programs = pids.map(|e| u16::from_be_bytes([e[2], e[3]]) & 0x1fff).collect();
    }

    /// PMT: detects encrypted streams; rewritten as that of a clear program, with the stream types of clear streams and
    /// a new CRC.
    fn program_map(&mut self, packet: &mut TsPacket) {
        let Some(section) = section(&packet.data, 2) else { return };
        let (start, end) = (section.start, section.end - 4);
        let at = |packet: &TsPacket, i: usize| packet.data.get(i).copied().map_or(0, usize::from);
        let mut i = start + 12 + ((at(packet, start + 10) & 15) << 8 | at(packet, start + 11));
        while i + 5 <= end {
            let pid = ((at(packet, i + 1) & 31) << 8 | at(packet, i + 2)) as u16;
            let stream_type = TYPES.iter().find(|(sealed, ..)| usize::from(*sealed) == at(packet, i));
            if let (Some((_, clear, kind)), Some(place)) = (stream_type, packet.data.get_mut(i)) {
                *place = *clear;
                // A program has a few streams; more are damage.
                if !self.streams.iter().any(|s| s.pid == pid) && self.streams.len() < 64 {
                    self.streams.push(EncryptedStream { pid, kind: *kind, packets: Vec::new() });
                }
            }
            i += 5 + ((at(packet, i + 3) & 15) << 8 | at(packet, i + 4));
        }
        let sum = crc(packet.data.get(start..end).unwrap_or_default()).to_be_bytes();
        if let Some(place) = packet.data.get_mut(end..end + 4) {
            place.copy_from_slice(&sum);
        }
    }

    /// Decrypts a complete PES of a stream and writes it back.
    fn close(&mut self, i: usize) -> Result<(), SampleAesError> {
        let Some(stream) = self.streams.get_mut(i) else { return Ok(()) };
        let (pid, kind) = (stream.pid, stream.kind);
        let numbers = std::mem::take(&mut stream.packets);
        let mut pes = Vec::with_capacity(numbers.len() * PACKET);
        for number in &numbers {
            let Some(packet) = self.queue.get((number - self.first) as usize) else { continue };
            pes.extend_from_slice(packet.data.get(payload_at(&packet.data)..).unwrap_or_default());
        }
        if !pes.is_empty() {
            pes = self.decrypt(pid, kind, pes)?;
        }
        self.write_back(&numbers, &pes);
        Ok(())
    }

    /// Decrypts a PES after its header, and adjusts the length in it.
    fn decrypt(&self, pid: u16, kind: EncryptedStreamKind, mut pes: Vec<u8>) -> Result<Vec<u8>, SampleAesError> {
        let at = match pes.get(..9) {
            Some([0, 0, 1, .., n]) => 9 + usize::from(*n),
            _ => return Err(SampleAesError::Frames { pid, at: 0 }),
        };
        let Some(content) = pes.get_mut(at..) else { return Err(SampleAesError::Frames { pid, at: 0 }) };
        match kind {
            EncryptedStreamKind::Audio(audio) => {
                frames::decrypt(audio, content, &self.key, self.iv).map_err(|at| SampleAesError::Frames { pid, at })?;
            }
            EncryptedStreamKind::Video => {
                // Removing emulation prevention bytes makes the PES shorter.
                let clear = nal::decrypt(content, &self.key, self.iv).ok_or(SampleAesError::Frames { pid, at: 0 })?;
                pes.truncate(at);
                pes.extend_from_slice(&clear);
                let length = u16::try_from(pes.len() - 6).unwrap_or(0).to_be_bytes();
                if let Some(place) = pes.get_mut(4..6).filter(|l| **l != [0, 0]) {
                    place.copy_from_slice(&length);
                }
            }
        }
        Ok(pes)
    }

    /// Distributes a PES that may have become shorter over its original packets: each keeps at least one byte, because
    /// a packet without payload does not increment the continuity counter.
    fn write_back(&mut self, numbers: &[u64], pes: &[u8]) {
        let mut rest = pes;
        for (left, number) in (0..numbers.len()).rev().zip(numbers) {
            let Some(packet) = self.queue.get_mut((number - self.first) as usize) else { continue };
            packet.waits = false;
            let at = payload_at(&packet.data);
            // `left` packets follow, each of which needs a byte.
            let n = rest.len().saturating_sub(left).min(PACKET - at);
            let (part, after) = rest.split_at(n);
            rest = after;
            fill(&mut packet.data, at, part);
        }
    }
}

/// Where the payload of a packet begins, after the adaptation field; at its end if it has none.
fn payload_at(packet: &[u8; PACKET]) -> usize {
    match packet[3] >> 4 & 3 {
        1 => 4,
        3 => (5 + usize::from(packet[4])).min(PACKET),
        _ => PACKET,
    }
}

/// Writes a payload no longer than the old one, which began at `at`, to the end of a packet; the adaptation field is
/// enlarged.
fn fill(packet: &mut [u8; PACKET], at: usize, payload: &[u8]) {
    let begin = PACKET - payload.len();
    if at >= PACKET {
        return;
    }
    if let Some(place) = packet.get_mut(begin..) {
        place.copy_from_slice(payload);
    }
    if begin == at {
        return;
    }
    let had_field = packet[3] & 0x20 != 0 && packet[4] > 0;
    packet[3] |= 0x20;
    packet[4] = (begin - 5) as u8;
    let stuffed = if had_field {
        at
    } else {
        // A new adaptation field has no flags.
        if let Some(flags) = packet.get_mut(5).filter(|_| begin > 5) {
            *flags = 0;
        }
        6
    };
    if let Some(stuffing) = packet.get_mut(stuffed.min(begin)..begin) {
        stuffing.fill(0xff);
    }
}

/// The position of a table section in a packet, if it is complete in it.
fn section(packet: &[u8; PACKET], table: u8) -> Option<std::ops::Range<usize>> {
    let at = payload_at(packet);
    let start = at + 1 + usize::from(*packet.get(at)?);
    let [id, high, low] = *packet.get(start..)?.first_chunk()?;
    let end = start + 3 + (usize::from(high & 15) << 8 | usize::from(low));
    (id == table && end <= PACKET && end >= start + 12).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shorter_payload_is_padded_by_the_adaptation_field(field in 0_usize..100, shorter in 0_usize..80) {
            let mut packet = [0x11; PACKET];
            let at = if field == 0 { packet[3] = 0x10; 4 } else { packet[3] = 0x30; packet[4] = field as u8 - 1; 4 + field };
            let payload: Vec<u8> = (0..PACKET - at - shorter.min(PACKET - at - 1)).map(|i| i as u8).collect();
            let before = packet;
            fill(&mut packet, at, &payload);
            let begins = payload_at(&packet);
            prop_assert_eq!(&packet[begins..], &payload[..]);
            if field > 1 {
                prop_assert_eq!(&packet[5..at], &before[5..at], "the field keeps what it said");
            }
            if begins > at {
                prop_assert!(packet[at.max(6).min(begins)..begins].iter().all(|b| *b == 0xff));
            }
        }

        #[test]
        fn arbitrary_packets_never_panic(packets in prop::collection::vec(any::<[u8; 32]>(), 0..40), step in 1_usize..400) {
            let mut data = Vec::new();
            for (i, head) in packets.iter().enumerate() {
                let mut p = [0xff; PACKET];
                p[..32].copy_from_slice(head);
                p[0] = 0x47;
                if i == 0 {
                    p[..18].copy_from_slice(&[0x47, 0x40, 0, 0x10, 0, 0, 0xb0, 13, 0, 1, 0xc1, 0, 0, 0, 1, 0xe0 | head[1] & 31, head[2], 0]);
                }
                data.extend(p);
            }
            let mut ts = SampleAesTs::new(&ContentKey([1; 16]), [2; 16]);
            let mut out = Vec::new();
            let result = data.chunks(step).try_for_each(|c| ts.push(c, &mut out)).and_then(|()| ts.finish(&mut out));
            if result.is_ok() {
                prop_assert_eq!(out.concat().len(), data.len());
            }
        }
    }
}
