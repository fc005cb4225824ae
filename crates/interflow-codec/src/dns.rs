//! DNS messages (RFC 1035), as far as a forwarder and a client need them: queries, the addresses in a response, and error
//! responses.

use std::net::IpAddr;

use crate::cursor::Cursor;

/// The size of the header (RFC 1035 4.1.1).
const HEADER_LEN: usize = 12;
/// The longest name, in bytes (RFC 1035 2.3.4).
const MAX_NAME_LEN: usize = 255;
const MAX_LABEL_LEN: u8 = 63;
/// Records of one response that are examined; more are ignored. Real answers have a few dozen.
const MAX_RECORDS: usize = 256;

/// RCODE 2 (RFC 1035 4.1.1): the server failed.
pub const SERVFAIL: u8 = 2;
/// RCODE 3: the name does not exist.
pub const NXDOMAIN: u8 = 3;
pub const REFUSED: u8 = 5;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DnsQuestion {
    /// The message id, which matches a response to its query.
    pub id: u16,
    /// The name in lower case, without the trailing dot.
    pub name: String,
    /// The record type: 1 for A, 28 for AAAA.
    pub kind: u16,
}

/// The addresses in a response, each with its time to live in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressRecords {
    pub question: DnsQuestion,
    pub addresses: Vec<(IpAddr, u32)>,
    /// The RCODE; 0 without an error.
    pub code: u8,
    /// The shortest time to live of the answer's records.
    pub ttl: u32,
    /// For how long the absence of records may be cached (RFC 2308 5).
    pub negative_ttl: Option<u32>,
}

/// A query for the records of this type; `None` if the name is not one of DNS.
pub fn write_query(id: u16, name: &str, kind: u16) -> Option<Vec<u8>> {
    // The flag RD, and one question.
    let mut out = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.strip_suffix('.').unwrap_or(name).split('.') {
        out.push(u8::try_from(label.len()).ok().filter(|n| (1..=MAX_LABEL_LEN).contains(n))?);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    (out.len() - HEADER_LEN <= MAX_NAME_LEN).then(|| [&out[..], &kind.to_be_bytes(), &[0, 1]].concat())
}

/// Whether a response is cut to what a datagram holds: the query is repeated over TCP (RFC 2181 9).
pub fn is_truncated(message: &[u8]) -> bool {
    message.get(2).is_some_and(|flags| flags & 2 != 0)
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
    let count = |at| usize::from(u16::from_be_bytes([message[at], message[at + 1]])).min(MAX_RECORDS);
    let (answers, authorities) = (count(6), count(8));
    let (mut addresses, mut shortest, mut negative_ttl) = (Vec::new(), None, None);
    for index in 0..answers + authorities {
        let (kind, class, ttl, data) = reader.record()?;
        match (index < answers, class, kind) {
            (true, 1, 1) => addresses.extend(<[u8; 4]>::try_from(data).ok().map(|a| (IpAddr::V4(a.into()), ttl))),
            (true, 1, 28) => addresses.extend(<[u8; 16]>::try_from(data).ok().map(|a| (IpAddr::V6(a.into()), ttl))),
            // SOA, whose last field limits negative answers.
            (false, 1, 6) => negative_ttl = data.last_chunk().map(|last| ttl.min(u32::from_be_bytes(*last))),
            _ => {}
        }
        if index < answers {
            shortest = Some(shortest.map_or(ttl, |shortest: u32| shortest.min(ttl)));
        }
    }
    let code = message[3] & 0x0f;
    Some(AddressRecords { question, addresses, code, ttl: shortest.unwrap_or(0), negative_ttl })
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

    /// Type, class, time to live and data of the record at this position (RFC 1035 4.1.3).
    fn record(&mut self) -> Option<(u16, u16, u32, &'a [u8])> {
        self.name()?;
        let mut rest = Cursor(self.message.get(self.at..)?);
        let (kind, class, ttl) = (rest.u16()?, rest.u16()?, rest.u32()?);
        let data = rest.counted16()?;
        // Type, class, TTL and data length take ten bytes.
        self.at += 10 + data.len();
        // A TTL with its most significant bit set is treated as 0 (RFC 2181 8).
        Some((kind, class, if ttl > i32::MAX as u32 { 0 } else { ttl }, data))
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
    use std::net::Ipv6Addr;

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
        assert_eq!((records.code, records.ttl), (0, 0));
        let six = "2001:db8::1".parse::<Ipv6Addr>().unwrap();
        let message = response("v6.test", 28, &[(back, 28, 5, &six.octets())]);
        assert_eq!(parse_addresses(&message).unwrap().addresses, [(IpAddr::V6(six), 5)]);
        assert_eq!(parse_addresses(&query("a.test", 1)), None, "a query has no addresses");
    }

    #[test]
    fn a_query_has_one_question_of_valid_labels() {
        assert_eq!(write_query(0xabcd, "WWW.shop.test.", 28), Some(query("WWW.shop.test", 28)));
        for wrong in ["", ".", "a..test", &"x".repeat(64), &format!("{0}.{0}.{0}.{0}.{0}", "x".repeat(60))] {
            assert_eq!(write_query(1, wrong, 1), None, "{wrong}");
        }
    }

    #[test]
    fn a_negative_response_says_for_how_long_it_holds() {
        let soa = [&[0, 0][..], &[0; 16], &30_u32.to_be_bytes()].concat();
        let mut message = response("gone.test", 1, &[(&[0xc0, 12], 6, 60, &soa)]);
        message.swap(7, 9);
        message[3] = NXDOMAIN;
        let records = parse_addresses(&message).unwrap();
        assert_eq!((records.code, records.negative_ttl, records.ttl), (NXDOMAIN, Some(30), 0));
        assert!(!is_truncated(&message));
        message[2] |= 2;
        assert!(is_truncated(&message));
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
