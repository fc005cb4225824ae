//! The Huffman code of HPACK (RFC 7541, 5.2 and appendix B), which QPACK shares.

/// The length in bits of each byte's code, and last that of the end of the string. The code is canonical: codes of one
/// length count up in the order of the bytes, so that the lengths are all that has to be known.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28,
    28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7,
    8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19,
    13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13,
    28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21,
    22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23,
    22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
    25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

const LONGEST: usize = 30;
const END: u16 = 256;

/// The codes of one length: the first one, and which of the sorted symbols it stands for.
#[derive(Clone, Copy)]
struct CodeGroup {
    first: u32,
    count: u32,
    symbol: usize,
}

struct CodeTable {
    /// By the length of the codes.
    groups: [CodeGroup; LONGEST + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
}

static TABLE: CodeTable = code_table();

const fn code_table() -> CodeTable {
    let mut table = CodeTable { groups: [CodeGroup { first: 0, count: 0, symbol: 0 }; LONGEST + 1], symbols: [0; 257] };
    let (mut code, mut sorted, mut length) = (0, 0, 1);
    while length <= LONGEST {
        code <<= 1;
        table.groups[length].first = code;
        table.groups[length].symbol = sorted;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                table.symbols[sorted] = symbol as u16;
                sorted += 1;
                code += 1;
            }
            symbol += 1;
        }
        table.groups[length].count = code - table.groups[length].first;
        length += 1;
    }
    table
}

/// Decodes a string; `None` if it is not one: it contains the end, or does not end with its first bits.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    // The shortest code has 5 bits.
    let mut out = Vec::with_capacity(bytes.len() * 8 / 5);
    let (mut code, mut length) = (0_u32, 0_usize);
    for byte in bytes {
        for bit in (0..8).rev() {
            code = code << 1 | u32::from(byte >> bit & 1);
            length += 1;
            let group = TABLE.groups.get(length)?;
            let index = code.wrapping_sub(group.first);
            if index < group.count {
                let symbol = TABLE.symbols[group.symbol + index as usize];
                if symbol == END {
                    return None;
                }
                out.push(symbol as u8);
                (code, length) = (0, 0);
            }
        }
    }
    // The rest of the last byte is filled with ones.
    (length < 8 && code == (1 << length) - 1).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strings_of_rfc_7541_c_4_and_c_6_are_decoded() {
        for (code, text) in [
            (&b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff"[..], "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x64\x02", "302"),
            (b"\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3", "https://www.example.com"),
            (b"", ""),
        ] {
            assert_eq!(decode(code).as_deref(), Some(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_bad_end_is_refused() {
        // The end of the string within it, a byte of padding, and padding of zeros.
        for bad in [&b"\xff\xff\xff\xff"[..], b"\x64\x02\xff", b"\x18"] {
            assert_eq!(decode(bad), None, "{bad:x?}");
        }
    }
}
