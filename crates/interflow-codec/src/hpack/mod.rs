//! Decodes the header compression of HTTP/2 (RFC 7541), for readers of recorded connections: those that Interflow itself
//! handles are decoded by h2.

mod huffman;

use std::collections::VecDeque;
use std::sync::LazyLock;

use interflow_types::data_file;

/// Appendix A.
static STATIC_TABLE: LazyLock<Vec<[&str; 2]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/hpack_static.txt")).collect());

/// The size of the dynamic table until an update changes it (RFC 9113 6.5.2), and the largest one that is accepted, in
/// bytes.
const INITIAL_TABLE: usize = 4096;
const MAX_TABLE: usize = 1 << 20;
/// What an entry counts beside its name and value (RFC 7541 4.1).
const ENTRY_OVERHEAD: usize = 32;

/// Why a header block cannot be decoded. What follows on the connection cannot be, either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    #[error("the header block is cut")]
    Cut,
    #[error("a number is too large")]
    Number,
    #[error("an entry of the table does not exist")]
    Index,
    #[error("a string is not valid Huffman code")]
    Huffman,
    #[error("the table is to grow over 1 MiB")]
    TableSize,
    /// The caller has no capacity for more fields.
    #[error("there are too many header fields")]
    TooMany,
}

/// The state of one direction of a connection.
pub struct HpackDecoder {
    /// The newest entry first.
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    size: usize,
    max_size: usize,
}

impl Default for HpackDecoder {
    fn default() -> Self {
        Self { entries: VecDeque::new(), size: 0, max_size: INITIAL_TABLE }
    }
}

/// Receives the name and the value of each field; an error ends the decoding.
pub type FieldSink<'s> = &'s mut dyn FnMut(&[u8], &[u8]) -> Result<(), HpackError>;

impl HpackDecoder {
    /// Decodes a header block and passes each field, name and value, to `each`, which bounds what it keeps: a byte of the
    /// block may stand for a field as large as the table.
    ///
    /// # Errors
    /// The block is malformed, or `each` returned an error.
    pub fn decode(&mut self, block: &[u8], each: FieldSink<'_>) -> Result<(), HpackError> {
        let mut rest = block;
        while let Some(first) = rest.first().copied() {
            match first {
                0x80.. => {
                    let index = number(&mut rest, 7)?;
                    let (name, value) = self.entry(index)?;
                    each(name, value)?;
                }
                0x40..0x80 => {
                    let (name, value) = self.literal(&mut rest, 6)?;
                    each(&name, &value)?;
                    self.insert(name, value);
                }
                0x20..0x40 => {
                    self.max_size = number(&mut rest, 5)?;
                    if self.max_size > MAX_TABLE {
                        return Err(HpackError::TableSize);
                    }
                    self.evict();
                }
                // Not to be indexed, or never.
                0..0x20 => {
                    let (name, value) = self.literal(&mut rest, 4)?;
                    each(&name, &value)?;
                }
            }
        }
        Ok(())
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError::Index)?;
        if let Some([name, value]) = STATIC_TABLE.get(index) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self.entries.get(index - STATIC_TABLE.len()).ok_or(HpackError::Index)?;
        Ok((name, value))
    }

    /// A field whose value, and perhaps name, is in the block.
    fn literal(&self, rest: &mut &[u8], prefix: u32) -> Result<(Vec<u8>, Vec<u8>), HpackError> {
        let name = match number(rest, prefix)? {
            0 => string(rest)?,
            index => self.entry(index)?.0.to_vec(),
        };
        Ok((name, string(rest)?))
    }

    fn insert(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.size += name.len() + value.len() + ENTRY_OVERHEAD;
        self.entries.push_front((name, value));
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.max_size
            && let Some((name, value)) = self.entries.pop_back()
        {
            self.size -= name.len() + value.len() + ENTRY_OVERHEAD;
        }
    }
}

/// An integer with a prefix of so many bits (RFC 7541 5.1).
fn number(rest: &mut &[u8], prefix: u32) -> Result<usize, HpackError> {
    let mut next = || {
        let (byte, behind) = rest.split_first().ok_or(HpackError::Cut)?;
        *rest = behind;
        Ok(usize::from(*byte))
    };
    let mask = (1 << prefix) - 1;
    let mut value = next()? & mask;
    if value < mask {
        return Ok(value);
    }
    // Four bytes of seven bits are more than any block is long.
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(HpackError::Number)
}

/// A string, perhaps in Huffman code (RFC 7541 5.2).
fn string(rest: &mut &[u8]) -> Result<Vec<u8>, HpackError> {
    let is_huffman = rest.first().is_some_and(|b| b & 0x80 != 0);
    let length = number(rest, 7)?;
    let (bytes, behind) = rest.split_at_checked(length).ok_or(HpackError::Cut)?;
    *rest = behind;
    if is_huffman { huffman::decode(bytes).ok_or(HpackError::Huffman) } else { Ok(bytes.to_vec()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(decoder: &mut HpackDecoder, block: &str) -> Result<Vec<String>, HpackError> {
        let block: Vec<u8> = block.split_whitespace().flat_map(|word| hex::decode(word).unwrap()).collect();
        let mut fields = Vec::new();
        decoder.decode(&block, &mut |name, value| {
            fields.push(format!("{}: {}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
            Ok(())
        })?;
        Ok(fields)
    }

    #[test]
    fn the_responses_of_rfc_7541_c_6_are_decoded_with_evictions() {
        let mut decoder = HpackDecoder::default();
        // A table of 256 bytes, as in the example.
        assert_eq!(decoded(&mut decoder, "3fe101"), Ok(Vec::new()));
        let first = "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e \
             919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3";
        let date = "date: Mon, 21 Oct 2013 20:13:21 GMT";
        let (cache, location) = ("cache-control: private", "location: https://www.example.com");
        assert_eq!(decoded(&mut decoder, first).unwrap(), [":status: 302", cache, date, location]);
        assert_eq!(decoded(&mut decoder, "4883 640e ffc1 c0bf").unwrap(), [":status: 307", cache, date, location]);
        let third = "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d \
             d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07";
        assert_eq!(
            decoded(&mut decoder, third).unwrap(),
            [
                ":status: 200",
                cache,
                "date: Mon, 21 Oct 2013 20:13:22 GMT",
                location,
                "content-encoding: gzip",
                "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ]
        );
        assert_eq!(decoder.size, 215);
    }

    #[test]
    fn malformed_blocks_are_refused() {
        let mut decoder = HpackDecoder::default();
        for (block, error) in [
            ("80", HpackError::Index),
            ("be", HpackError::Index),
            ("ffffffffffff01", HpackError::Number),
            ("ff", HpackError::Cut),
            ("400361", HpackError::Cut),
            ("4082ffff00", HpackError::Huffman),
            ("3fe1ff7f", HpackError::TableSize),
        ] {
            assert_eq!(decoded(&mut decoder, block), Err(error), "{block}");
        }
    }

    #[test]
    fn the_caller_bounds_what_a_block_expands_to() {
        let mut decoder = HpackDecoder::default();
        let mut left = 2;
        let result = decoder.decode(&[0x82; 100], &mut |_, _| {
            left -= 1;
            if left == 0 { Err(HpackError::TooMany) } else { Ok(()) }
        });
        assert_eq!((result, left), (Err(HpackError::TooMany), 0));
    }
}
