//! DNS messages (RFC 1035), as far as a forwarder needs them: the addresses in a response, and error responses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cursor::Cursor;

/// The size of the header (RFC 1035 4.1.1).
const HEADER_LEN: usize = 12;
/// The longest name, in bytes (RFC 1035 2.3.4).
const MAX_NAME_LEN: usize = 255;
/// Records of one response that are examined; more are ignored. Real answers have a few dozen.
const MAX_RECORDS: usize = 256;

/// RCODE 2 (RFC 1035 4.1.1): the server failed.
pub const SERVFAIL: u8 = 2;
pub const REFUSED: u8 = 5;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsQuestion {
    /// The message id, which matches a response to its query.
    pub id: u16,
    /// The name in lower case, without the trailing dot.
    pub name: String,
    /// The record type: 1 for A, 28 for AAAA.
    pub kind: u16,
}

/// The addresses in a response, each with its time to live in seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRecords {
    pub question: DnsQuestion,
    pub addresses: Vec<(IpAddr, u32)>,
}

/// Parses the question of a query or a response; `None` if there is not exactly one, or it is malformed.
pub fn parse_question(message: &[u8]) -> Option<DnsQuestion> {
    read_question(message, &mut DnsReader::new(message)?)
}

/// Parses the addresses that a response gives for the queried name, through any aliases (CNAME); `None` if the
/// message is not a response or is malformed.
pub fn parse_addresses(message: &[u8]) -> Option<AddressRecords> {
    let mut reader = DnsReader::new(message)?;
    // The QR bit (RFC 1035 4.1.1).
    let is_response = message.get(2)? & 0x80 != 0;
    let question = read_question(message, &mut reader).filter(|_| is_response)?;
    let count = usize::from(u16::from_be_bytes([*message.get(6)?, *message.get(7)?])).min(MAX_RECORDS);
    let mut addresses = Vec::new();
    for _ in 0..count {
        reader.name()?;
        let mut rest = Cursor(message.get(reader.at..)?);
        let (kind, class, ttl) = (rest.u16()?, rest.u16()?, rest.u32()?);
        let data = rest.counted16()?;
        // Type, class, TTL and data length take ten bytes.
        reader.at += 10 + data.len();
        let address = match (class, kind) {
            (1, 1) => <[u8; 4]>::try_from(data).ok().map(|a| IpAddr::V4(Ipv4Addr::from(a))),
            (1, 28) => <[u8; 16]>::try_from(data).ok().map(|a| IpAddr::V6(Ipv6Addr::from(a))),
            _ => None,
        };
        // A TTL with its most significant bit set is treated as 0 (RFC 2181 8).
        addresses.extend(address.map(|a| (a, if ttl > i32::MAX as u32 { 0 } else { ttl })));
    }
    Some(AddressRecords { question, addresses })
}

/// An error response to a query; `None` if the query cannot be answered at all.
pub fn error_response(query: &[u8], code: u8) -> Option<Vec<u8>> {
    let mut reader = DnsReader::new(query)?;
    read_question(query, &mut reader)?;
    let mut out = query.get(..reader.at)?.to_vec();
    // A response with the query's RD flag, RA set, its question, and no records.
    out[2] = 0x80 | (out[2] & 0x79);
    out[3] = 0x80 | (code & 0x0f);
    // The counts of all sections but the question's.
    out[6..HEADER_LEN].fill(0);
    Some(out)
}

fn read_question(message: &[u8], reader: &mut DnsReader<'_>) -> Option<DnsQuestion> {
    let mut header = Cursor(message);
    let (id, _, questions) = (header.u16()?, header.u16()?, header.u16()?);
    // More than one question is possible by the format, but no server answers it.
    if questions != 1 {
        return None;
    }
    let name = reader.name()?;
    let kind = Cursor(message.get(reader.at..)?).u16()?;
    // The class must be present too; its value does not matter here.
    message.get(reader.at + 2..reader.at + 4)?;
    reader.at += 4;
    Some(DnsQuestion { id, name, kind })
}

struct DnsReader<'a> {
    message: &'a [u8],
    at: usize,
}

impl<'a> DnsReader<'a> {
    fn new(message: &'a [u8]) -> Option<Self> {
        (message.len() >= HEADER_LEN).then_some(Self { message, at: HEADER_LEN })
    }

    /// The name at this position (RFC 1035 4.1.4). Compression pointers must point backwards, which guarantees
    /// termination.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let (mut at, mut end, mut jumped) = (self.at, None, self.at);
        loop {
            let length = *self.message.get(at)?;
            // The two highest bits distinguish labels from pointers.
            match length & 0xc0 {
                0 if length == 0 => {
                    self.at = end.unwrap_or(at + 1);
                    return Some(name);
                }
                0 => {
                    // The name's bytes are mapped one by one, so any name is valid text.
                    let label = self.message.get(at + 1..at + 1 + usize::from(length))?;
                    if !name.is_empty() {
                        name.push('.');
                    }
                    label.iter().for_each(|b| name.push(char::from(b.to_ascii_lowercase())));
                    if name.len() > MAX_NAME_LEN {
                        return None;
                    }
                    at += 1 + usize::from(length);
                }
                0xc0 => {
                    let to = usize::from(u16::from_be_bytes([length & 0x3f, *self.message.get(at + 1)?]));
                    // The record continues after its first pointer, wherever that leads.
                    end.get_or_insert(at + 2);
                    // Forwards or to itself: such a pointer could loop.
                    if to >= jumped {
                        return None;
                    }
                    (at, jumped) = (to, to);
                }
                // Reserved label types.
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> Vec<u8> {
        let labels = text.split('.').flat_map(|l| [&[l.len() as u8], l.as_bytes()].concat());
        labels.chain([0]).collect()
    }

    fn query(text: &str, kind: u8) -> Vec<u8> {
        [&[0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], &name(text), &[0, kind, 0, 1]].concat()
    }

    /// A response with records: the name as bytes, type, TTL, data.
    fn response(text: &str, kind: u8, records: &[(&[u8], u8, u32, &[u8])]) -> Vec<u8> {
        let mut out = query(text, kind);
        (out[2], out[7]) = (0x81, records.len() as u8);
        for (name, kind, ttl, data) in records {
            out.extend_from_slice(name);
            out.extend_from_slice(&[0, *kind, 0, 1]);
            out.extend_from_slice(&ttl.to_be_bytes());
            out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            out.extend_from_slice(data);
        }
        out
    }

    #[test]
    fn a_response_gives_the_addresses_of_the_queried_name() {
        let back: &[u8] = &[0xc0, 12];
        let alias = name("edge.cdn.test");
        let message = response(
            "WWW.Shop.test",
            1,
            &[(back, 5, 300, &alias), (&alias, 1, 60, &[192, 0, 2, 7]), (back, 1, u32::MAX, &[192, 0, 2, 8])],
        );
        let records = parse_addresses(&message).unwrap();
        assert_eq!(records.question, DnsQuestion { id: 0xabcd, name: "www.shop.test".into(), kind: 1 });
        assert_eq!(records.addresses, [("192.0.2.7".parse().unwrap(), 60), ("192.0.2.8".parse().unwrap(), 0)]);
        let six = "2001:db8::1".parse::<Ipv6Addr>().unwrap();
        let message = response("v6.test", 28, &[(back, 28, 5, &six.octets())]);
        assert_eq!(parse_addresses(&message).unwrap().addresses, [(IpAddr::V6(six), 5)]);
        assert_eq!(parse_addresses(&query("a.test", 1)), None, "a query has no addresses");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let mut looping = response("a.test", 1, &[(&[0xc0, 12], 1, 1, &[1, 2, 3, 4])]);
        let at = looping.len() - 16;
        (looping[at], looping[at + 1]) = (0xc0, at as u8);
        assert_eq!(parse_addresses(&looping), None, "a name that points at itself");
        let mut two = query("a.test", 1);
        two[5] = 2;
        assert_eq!(parse_question(&two), None);
        let whole = response("a.test", 1, &[(&[0xc0, 12], 1, 1, &[1, 2, 3, 4])]);
        for cut in 0..whole.len() {
            assert_eq!(parse_addresses(&whole[..cut]), None, "cut at {cut}");
        }
    }

    #[test]
    fn an_error_response_repeats_only_the_question() {
        let mut asked = query("a.test", 1);
        asked[11] = 1;
        asked.extend_from_slice(&[0, 0, 41, 16, 0, 0, 0, 0, 0, 0, 0]);
        let said = error_response(&asked, SERVFAIL).unwrap();
        assert_eq!((said[2], said[3], &said[4..12]), (0x81, 0x82, &[0, 1, 0, 0, 0, 0, 0, 0][..]));
        assert_eq!(parse_question(&said), parse_question(&asked));
        assert_eq!(error_response(&asked[..15], SERVFAIL), None);
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (parse_addresses(&bytes), parse_question(&bytes), error_response(&bytes, REFUSED));
            let mut message = query("a.test", 1);
            message[2] |= 0x80;
            message[7] = 3;
            message.extend_from_slice(&bytes);
            let _ = parse_addresses(&message);
        }
    }
}
