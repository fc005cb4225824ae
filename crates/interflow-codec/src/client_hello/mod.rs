//! Reads a TLS ClientHello from the first bytes of a connection, without taking part in the handshake (RFC 8446
//! 4.1.2 and 5.1), and makes its JA3 and JA4 fingerprints.

mod fingerprint;

use bytes::Bytes;
use interflow_types::ByteStr;

use crate::cursor::Cursor;

/// The most bytes that a ClientHello and its record headers may take: several times what browsers with post-quantum
/// key shares send.
pub const MAX_BYTES: usize = 32 << 10;

/// Numbers of the extensions that are read (IANA, TLS ExtensionType Values).
mod extension {
    pub(super) const SERVER_NAME: u16 = 0;
    pub(super) const SUPPORTED_GROUPS: u16 = 10;
    pub(super) const EC_POINT_FORMATS: u16 = 11;
    pub(super) const SIGNATURE_ALGORITHMS: u16 = 13;
    pub(super) const ALPN: u16 = 16;
    pub(super) const COMPRESS_CERTIFICATE: u16 = 27;
    pub(super) const RECORD_SIZE_LIMIT: u16 = 28;
    pub(super) const DELEGATED_CREDENTIALS: u16 = 34;
    pub(super) const SUPPORTED_VERSIONS: u16 = 43;
    pub(super) const KEY_SHARE: u16 = 51;
    pub(super) const TRUST_ANCHORS: u16 = 0xca34;
    pub(super) const ENCRYPTED_CLIENT_HELLO: u16 = 0xfe0d;
}

/// What a client offers. Lists are in the order of the wire, GREASE values (RFC 8701) included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// `legacy_version`: 0x0303 since TLS 1.2.
    pub legacy_version: u16,
    /// Cipher suites.
    pub ciphers: Vec<u16>,
    /// The types of all extensions.
    pub extensions: Vec<u16>,
    /// The name in the SNI extension (RFC 6066 3), as written; `None` too when it is no visible ASCII text.
    pub server_name: Option<ByteStr>,
    /// Protocols of the ALPN extension (RFC 7301), best first.
    pub alpn: Vec<Bytes>,
    /// `supported_versions`; empty before TLS 1.3.
    pub versions: Vec<u16>,
    /// `supported_groups`, once called elliptic curves.
    pub groups: Vec<u16>,
    /// `ec_point_formats`.
    pub point_formats: Vec<u8>,
    /// `signature_algorithms`.
    pub signature_algorithms: Vec<u16>,
    /// The groups of `key_share`.
    pub key_shares: Vec<u16>,
    /// `compress_certificate` (RFC 8879).
    pub certificate_compression: Vec<u16>,
    /// `delegated_credential` (RFC 9345).
    pub delegated_credentials: Vec<u16>,
    /// `record_size_limit` (RFC 8449); 0 when it is not there.
    pub record_size_limit: u16,
    /// The list in `trust_anchors`, as written.
    pub trust_anchors: Bytes,
}

/// Why bytes are no ClientHello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClientHelloError {
    /// The bytes are no TLS handshake record.
    #[error("the bytes are no TLS handshake record")]
    NotTls,
    /// The handshake does not begin with a ClientHello.
    #[error("the TLS handshake does not begin with a ClientHello")]
    NotClientHello,
    /// It would be longer than [`MAX_BYTES`].
    #[error("the ClientHello is longer than {MAX_BYTES} bytes")]
    TooLong,
    /// Its lengths contradict each other.
    #[error("the ClientHello is malformed")]
    Malformed,
}

/// Whether a connection that begins with these bytes speaks TLS; `None` when there are too few to say.
pub fn looks_like_tls(buf: &[u8]) -> Option<bool> {
    const START: [std::ops::RangeInclusive<u8>; 3] = [22..=22, 3..=3, 0..=4];
    if buf.iter().zip(&START).any(|(b, range)| !range.contains(b)) {
        return Some(false);
    }
    (buf.len() >= START.len()).then_some(true)
}

impl ClientHello {
    /// Reads a ClientHello from the records at the start of `buf`, over which it may be spread; `None` when it is not
    /// all there. The records are read, not consumed: the handshake needs them again.
    ///
    /// # Errors
    /// Bytes that are no ClientHello, or one over [`MAX_BYTES`].
    pub fn parse(buf: &[u8]) -> Result<Option<Self>, ClientHelloError> {
        let mut records = Cursor(buf);
        let Some(first) = next_record(&mut records)? else { return need_more(buf) };
        if let Some(message) = message(first)? {
            return Self::parse_message(message).map(Some);
        }
        let mut joined = first.to_vec();
        while let Some(record) = next_record(&mut records)? {
            joined.extend_from_slice(record);
            if let Some(message) = message(&joined)? {
                return Self::parse_message(message).map(Some);
            }
        }
        need_more(buf)
    }

    /// Whether an extension of this type is there.
    pub fn has_extension(&self, number: u16) -> bool {
        self.extensions.contains(&number)
    }

    /// Whether Encrypted ClientHello is offered (RFC 9849): the name in clear is then the fronting server's, unless
    /// the offer is GREASE.
    pub fn offers_ech(&self) -> bool {
        self.has_extension(extension::ENCRYPTED_CLIENT_HELLO)
    }

    /// The highest version offered; GREASE does not count.
    pub fn highest_version(&self) -> u16 {
        self.versions.iter().copied().filter(|&v| !is_grease(v)).max().unwrap_or(self.legacy_version)
    }

    /// Whether this protocol is offered by ALPN, `b"h2"` for instance.
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
        c.take(32)?;
        c.counted8()?;
        self.ciphers = numbers(c.counted16()?)?;
        c.counted8()?;
        if c.is_empty() {
            return Some(());
        }
        let mut extensions = Cursor(c.counted16()?);
        while !extensions.is_empty() {
            let number = extensions.u16()?;
            self.read_extension(number, extensions.counted16()?)?;
            self.extensions.push(number);
        }
        c.is_empty().then_some(())
    }

    /// Of an extension that comes twice, against RFC 8446 4.2, the first counts, as it does for most servers.
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

    /// What matters only to who wants to greet as this client does: what cannot be read is passed over.
    fn read_fingerprint_extension(&mut self, number: u16, mut c: Cursor<'_>) -> Option<()> {
        match number {
            extension::COMPRESS_CERTIFICATE => {
                self.certificate_compression = c.counted8().and_then(numbers).unwrap_or_default();
            }
            extension::DELEGATED_CREDENTIALS => {
                self.delegated_credentials = c.counted16().and_then(numbers).unwrap_or_default();
            }
            extension::RECORD_SIZE_LIMIT => self.record_size_limit = c.u16().unwrap_or_default(),
            extension::TRUST_ANCHORS => {
                self.trust_anchors = c.counted16().map(Bytes::copy_from_slice).unwrap_or_default();
            }
            extension::KEY_SHARE => {
                let mut shares = Cursor(c.counted16().unwrap_or_default());
                while let Some((group, _)) = shares.u16().zip(shares.counted16()) {
                    self.key_shares.push(group);
                }
            }
            _ => {}
        }
        Some(())
    }
}

/// RFC 8701: 0x0a0a, 0x1a1a and so on to 0xfafa.
pub(crate) const fn is_grease(n: u16) -> bool {
    n & 0x0f0f == 0x0a0a && n >> 8 == n & 0xff
}

fn need_more(buf: &[u8]) -> Result<Option<ClientHello>, ClientHelloError> {
    if buf.len() >= MAX_BYTES { Err(ClientHelloError::TooLong) } else { Ok(None) }
}

/// The content of the next handshake record, when it is all there.
fn next_record<'a>(c: &mut Cursor<'a>) -> Result<Option<&'a [u8]>, ClientHelloError> {
    /// RFC 8446 5.1.
    const MAX_RECORD: u16 = 1 << 14;
    if looks_like_tls(c.0) == Some(false) {
        return Err(ClientHelloError::NotTls);
    }
    let mut record = *c;
    let Some(([_, _, _], length)) = record.array().zip(record.u16()) else { return Ok(None) };
    if length == 0 || length > MAX_RECORD {
        return Err(ClientHelloError::NotTls);
    }
    let Some(content) = record.take(length.into()) else { return Ok(None) };
    *c = record;
    Ok(Some(content))
}

/// The body of the ClientHello in these handshake bytes, when it is all there.
fn message(handshake: &[u8]) -> Result<Option<&[u8]>, ClientHelloError> {
    const CLIENT_HELLO: u8 = 1;
    let mut c = Cursor(handshake);
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
    rest.is_empty().then(|| pairs.iter().map(|&pair| u16::from_be_bytes(pair)).collect())
}

fn server_name(mut c: Cursor<'_>) -> Option<Option<ByteStr>> {
    const HOST_NAME: u8 = 0;
    let mut list = Cursor(c.counted16()?);
    while !list.is_empty() {
        let kind = list.u8()?;
        let name = list.counted16()?;
        if kind == HOST_NAME {
            let text =
                std::str::from_utf8(name).ok().filter(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_graphic()));
            return Some(text.map(ByteStr::from));
        }
    }
    Some(None)
}
