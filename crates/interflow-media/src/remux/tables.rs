//! PAT and PMT (ISO 13818-1 2.4.4).

/// PID of the program map.
pub const PMT: u16 = 0x1000;
/// PID of the first elementary stream; the others follow.
pub const FIRST: u16 = 0x100;

/// An elementary stream as listed in the PMT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PmtStream {
    /// Stream type (table 2-34; 0x81 and 0x87 as ATSC and HLS use them).
    pub stream_type: u8,
    /// The format identifier of a registration descriptor (ISO 13818-1 2.6.8).
    pub registration: Option<[u8; 4]>,
    /// ISO 639-2 code for the language descriptor (ISO 13818-1 2.6.18).
    pub language: Option<[u8; 3]>,
}

/// The program association section: one program.
pub fn pat() -> Vec<u8> {
    let [high, low] = PMT.to_be_bytes();
    section(0, &[0, 1, 0xe0 | high, low])
}

/// The program map section; `clock` is the index of the PCR stream.
pub fn pmt(streams: &[PmtStream], clock: usize) -> Vec<u8> {
    let pid = |i: usize| (FIRST + i as u16).to_be_bytes();
    let [high, low] = pid(clock);
    let mut body = vec![0xe0 | high, low, 0xf0, 0];
    for (i, stream) in streams.iter().enumerate() {
        let mut descriptors = Vec::new();
        if let Some(id) = stream.registration {
            descriptors.extend([5, 4]);
            descriptors.extend(id);
        }
        if let Some(language) = stream.language {
            descriptors.extend([10, 4]);
            descriptors.extend(language);
            descriptors.push(0);
        }
        let [high, low] = pid(i);
        body.extend([stream.stream_type, 0xe0 | high, low, 0xf0, descriptors.len() as u8]);
        body.extend(descriptors);
    }
    section(2, &body)
}

/// A section with its header and CRC.
fn section(table: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = ((body.len() + 9) as u16).to_be_bytes();
    // Program or stream 1, version 0, current, the only section.
    let mut out = vec![table, 0xb0 | high, low, 0, 1, 0xc1, 0, 0];
    out.extend_from_slice(body);
    out.extend(crc(&out).to_be_bytes());
    out
}

/// CRC-32 as in annex A: not reflected, no final inversion.
pub fn crc(data: &[u8]) -> u32 {
    data.iter().fold(u32::MAX, |crc, byte| {
        let shifted = |crc: u32, _| if crc >> 31 == 1 { crc << 1 ^ 0x04c1_1db7 } else { crc << 1 };
        (0..8).fold(crc ^ u32::from(*byte) << 24, shifted)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_crc_is_valid() {
        let streams = [
            PmtStream { stream_type: 0x1b, registration: None, language: None },
            PmtStream { stream_type: 0x81, registration: Some(*b"AC-3"), language: Some(*b"deu") },
        ];
        for section in [pat(), pmt(&streams, 0)] {
            assert_eq!(crc(&section), 0);
            assert_eq!(usize::from(section[2]) + 3, section.len());
        }
        assert_eq!(crc(b"123456789"), 0x0376_e6e7, "the check value of CRC-32/MPEG-2");
    }
}
