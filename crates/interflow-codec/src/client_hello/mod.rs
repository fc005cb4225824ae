//! Parses a TLS ClientHello from the first bytes of a connection, without taking part in the handshake (RFC 8446
//! 4.1.2 and 5.1), and computes its JA3 and JA4 fingerprints.

mod fingerprint;

use bytes::Bytes;
use interflow_types::ByteStr;

use crate::cursor::Cursor;

/// The largest ClientHello, with its record headers: several times what browsers with post-quantum key shares send.
pub const MAX_BYTES: usize = 32 << 10;

/// Types of the extensions that are parsed, or that a fingerprint depends on (IANA, TLS ExtensionType Values).
pub mod extension {
    pub const SERVER_NAME: u16 = 0;
    pub const STATUS_REQUEST: u16 = 5;
    pub const SUPPORTED_GROUPS: u16 = 10;
    pub const EC_POINT_FORMATS: u16 = 11;
    pub const SIGNATURE_ALGORITHMS: u16 = 13;
    pub const ALPN: u16 = 16;
    pub const SCT: u16 = 18;
    pub const PADDING: u16 = 21;
    pub const ENCRYPT_THEN_MAC: u16 = 22;
    pub const EXTENDED_MASTER_SECRET: u16 = 23;
    pub const COMPRESS_CERTIFICATE: u16 = 27;
    pub const RECORD_SIZE_LIMIT: u16 = 28;
    pub const DELEGATED_CREDENTIAL: u16 = 34;
    pub const SESSION_TICKET: u16 = 35;
    pub const PRE_SHARED_KEY: u16 = 41;
    pub const EARLY_DATA: u16 = 42;
    pub const SUPPORTED_VERSIONS: u16 = 43;
    pub const PSK_MODES: u16 = 45;
    pub const POST_HANDSHAKE_AUTH: u16 = 49;
    pub const KEY_SHARE: u16 = 51;
    /// `application_settings` under its first code point.
    pub const ALPS_OLD: u16 = 17513;
    pub const ALPS: u16 = 17613;
    pub const TRUST_ANCHORS: u16 = 0xca34;
    pub const ECH: u16 = 0xfe0d;
    pub const RENEGOTIATION: u16 = 0xff01;
}

/// The contents of a ClientHello. Lists are in wire order and include GREASE values (RFC 8701). Fields are named after
/// the extensions that they are from; a list is empty, and `record_size_limit` is 0, if the extension is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// `legacy_version`: 0x0303 since TLS 1.2.
    pub legacy_version: u16,
    pub ciphers: Vec<u16>,
    pub extensions: Vec<u16>,
    /// The SNI name (RFC 6066 3), as sent; `None` also if it is not visible ASCII text.
    pub server_name: Option<ByteStr>,
    /// ALPN protocols (RFC 7301), most preferred first.
    pub alpn: Vec<Bytes>,
    pub versions: Vec<u16>,
    pub groups: Vec<u16>,
    pub point_formats: Vec<u8>,
    pub signature_algorithms: Vec<u16>,
    pub key_shares: Vec<u16>,
    pub certificate_compression: Vec<u16>,
    pub delegated_credentials: Vec<u16>,
    pub record_size_limit: u16,
    pub trust_anchors: Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientHelloError {
    #[error("the bytes are not a TLS handshake record")]
    NotTls,
    #[error("the TLS handshake does not begin with a ClientHello")]
    NotClientHello,
    #[error("the ClientHello is longer than {MAX_BYTES} bytes")]
    TooLong,
    #[error("the ClientHello is malformed")]
    Malformed,
}

/// Whether a connection that begins with these bytes uses TLS; `None` if there are too few to decide.
pub fn looks_like_tls(buf: &[u8]) -> Option<bool> {
    // A handshake record, with the versions 3.0 to 3.4 in its header (SSL 3.0 to what some clients send for TLS 1.3).
    const START: [std::ops::RangeInclusive<u8>; 3] = [22..=22, 3..=3, 0..=4];
    if buf.iter().zip(&START).any(|(b, range)| !range.contains(b)) {
        return Some(false);
    }
    (buf.len() >= START.len()).then_some(true)
}

impl ClientHello {
    /// Parses a ClientHello from the records at the start of `buf`, which it may span; `None` if it is incomplete.
    /// The records are not consumed, because the handshake needs them again.
    ///
    /// # Errors
    /// Bytes that are not a ClientHello, or one over [`MAX_BYTES`].
    pub fn parse(buf: &[u8]) -> Result<Option<Self>, ClientHelloError> {
        let mut records = Cursor(buf);
        // The usual case: all of it in one record, which needs no copy.
        let Some(first) = next_record(&mut records)? else { return need_more(buf) };
        if let Some(message) = message(first)? {
            return Self::parse_message(message).map(Some);
        }
        // A ClientHello may be fragmented over records (RFC 8446 5.1), even at every byte; browsers with post-quantum
        // key shares do so.
        let mut joined = first.to_vec();
        while let Some(record) = next_record(&mut records)? {
            joined.extend_from_slice(record);
            if let Some(message) = message(&joined)? {
                return Self::parse_message(message).map(Some);
            }
        }
        need_more(buf)
    }

    pub fn has_extension(&self, number: u16) -> bool {
        self.extensions.contains(&number)
    }

    pub fn highest_version(&self) -> u16 {
        self.versions.iter().copied().filter(|&v| !is_grease(v)).max().unwrap_or(self.legacy_version)
    }

    /// Whether this ALPN protocol is offered, such as `b"h2"`.
    pub fn offers_alpn(&self, protocol: &[u8]) -> bool {
        self.alpn.iter().any(|p| p == protocol)
    }

    fn parse_message(body: &[u8]) -> Result<Self, ClientHelloError> {
        let mut hello = Self::default();
        hello.read(Cursor(body)).ok_or(ClientHelloError::Malformed)?;
        Ok(hello)
    }

    fn read(&mut self, mut c: Cursor<'_>) -> Option<()> {
        self.legacy_version = c.u16()?;
        // `random`, then `legacy_session_id`.
        c.take(32)?;
        c.counted8()?;
        self.ciphers = numbers(c.counted16()?)?;
        // `legacy_compression_methods`.
        c.counted8()?;
        // TLS 1.2 and earlier permit a ClientHello without extensions.
        if c.is_empty() {
            return Some(());
        }
        let mut extensions = Cursor(c.counted16()?);
        while !extensions.is_empty() {
            let number = extensions.u16()?;
            self.read_extension(number, extensions.counted16()?)?;
            self.extensions.push(number);
        }
        // Trailing bytes are an error: another parser could see extensions in them.
        c.is_empty().then_some(())
    }

    /// If an extension is duplicated, contrary to RFC 8446 4.2, the first one counts, as for most servers.
    fn read_extension(&mut self, number: u16, data: &[u8]) -> Option<()> {
        if self.extensions.contains(&number) {
            return Some(());
        }
        let mut c = Cursor(data);
        match number {
            extension::SERVER_NAME => self.server_name = server_name(c)?,
            extension::ALPN => {
                let mut list = Cursor(c.counted16()?);
                while !list.is_empty() {
                    self.alpn.push(Bytes::copy_from_slice(list.counted8()?));
                }
            }
            extension::SUPPORTED_VERSIONS => self.versions = numbers(c.counted8()?)?,
            extension::SUPPORTED_GROUPS => self.groups = numbers(c.counted16()?)?,
            extension::SIGNATURE_ALGORITHMS => self.signature_algorithms = numbers(c.counted16()?)?,
            extension::EC_POINT_FORMATS => self.point_formats = c.counted8()?.to_vec(),
            _ => return self.read_fingerprint_extension(number, c),
        }
        Some(())
    }

    /// Extensions that matter only for impersonation; malformed ones are ignored.
    fn read_fingerprint_extension(&mut self, number: u16, mut c: Cursor<'_>) -> Option<()> {
        match number {
            extension::COMPRESS_CERTIFICATE => {
                self.certificate_compression = c.counted8().and_then(numbers).unwrap_or_default();
            }
            extension::DELEGATED_CREDENTIAL => {
                self.delegated_credentials = c.counted16().and_then(numbers).unwrap_or_default();
            }
            extension::RECORD_SIZE_LIMIT => self.record_size_limit = c.u16().unwrap_or_default(),
            extension::TRUST_ANCHORS => {
                self.trust_anchors = c.counted16().map(Bytes::copy_from_slice).unwrap_or_default();
            }
            extension::KEY_SHARE => {
                let mut shares = Cursor(c.counted16().unwrap_or_default());
                // Only the group is kept; the key itself is random.
                while let Some((group, _)) = shares.u16().zip(shares.counted16()) {
                    self.key_shares.push(group);
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// RFC 8701: 0x0a0a, 0x1a1a and so on up to 0xfafa.
pub(crate) const fn is_grease(n: u16) -> bool {
    n & 0x0f0f == 0x0a0a && n >> 8 == n & 0xff
}

fn need_more(buf: &[u8]) -> Result<Option<ClientHello>, ClientHelloError> {
    // `>=`: with this many bytes and no end, the message is certainly longer than the limit.
    if buf.len() >= MAX_BYTES { Err(ClientHelloError::TooLong) } else { Ok(None) }
}

/// The content of the next handshake record, if it is complete.
fn next_record<'a>(c: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, ClientHelloError> {
    const MAX_RECORD: u16 = 1 << 14;
    if looks_like_tls(c.0) == Some(false) {
        return Err(ClientHelloError::NotTls);
    }
    let mut record = *c;
    // Content type and version were checked above.
    let Some(([_, _, _], length)) = record.array().zip(record.u16()) else { return Ok(None) };
    // RFC 8446 5.1: handshake records are neither empty nor longer than 2^14 bytes.
    if length == 0 || length > MAX_RECORD {
        return Err(ClientHelloError::NotTls);
    }
    let Some(content) = record.take(length.into()) else { return Ok(None) };
    // Advanced only past whole records.
    *c = record;
    Ok(Some(content))
}

/// The body of the ClientHello in these handshake bytes, if it is complete.
fn message(handshake: &[u8]) -> Result<Option<&[u8]>, ClientHelloError> {
    const CLIENT_HELLO: u8 = 1;
    let mut c = Cursor(handshake);
    // Known from the first byte, without waiting for the rest.
    if c.u8().is_some_and(|kind| kind != CLIENT_HELLO) {
        return Err(ClientHelloError::NotClientHello);
    }
    let Some(length) = c.u24() else { return Ok(None) };
    let length = length as usize;
    if length > MAX_BYTES {
        return Err(ClientHelloError::TooLong);
    }
    Ok(c.take(length))
}

fn numbers(list: &[u8]) -> Option<Vec<u16>> {
    let (pairs, rest) = list.as_chunks::<2>();
    // An odd number of bytes is not a list of 16-bit numbers.
    rest.is_empty().then(|| pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect())
}

fn server_name(mut c: Cursor<'_>) -> Option<Option<ByteStr>> {
    const HOST_NAME: u8 = 0;
    let mut list = Cursor(c.counted16()?);
    while !list.is_empty() {
        let kind = list.u8()?;
        let name = list.counted16()?;
        // RFC 6066 3 defines no other type; the first name counts.
        if kind == HOST_NAME {
            let text =
                std::str::from_utf8(name).ok().filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_graphic()));
            return Some(text.map(ByteStr::from));
        }
    }
    Some(None)
}
