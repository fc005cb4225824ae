//! Decrypts recorded sessions of TLS 1.3 and 1.2 with the secrets of a key log; of other sessions it says why they stay
//! closed.

use std::collections::HashMap;

use interflow_codec::client_hello::ClientHello;

use super::reader::TcpStream;
use super::record_keys::{RecordKeys, Suite, TlsVersion};

mod content {
    pub const CHANGE_CIPHER_SPEC: u8 = 20;
    pub const HANDSHAKE: u8 = 22;
    pub const APPLICATION_DATA: u8 = 23;
}

mod handshake {
    pub const SERVER_HELLO: u8 = 2;
    pub const FINISHED: u8 = 20;
    pub const KEY_UPDATE: u8 = 24;
}

/// The random number of a ServerHello that is a HelloRetryRequest (RFC 8446 4.1.3).
const RETRY: [u8; 4] = [0xcf, 0x21, 0xad, 0x74];

/// Sessions of a capture whose secrets are remembered.
const MAX_SECRETS: usize = 1 << 20;

/// Secrets by the label of the key log and the client's random number.
#[derive(Default)]
pub(super) struct SessionSecrets(HashMap<(&'static str, [u8; 32]), Vec<u8>>);

impl SessionSecrets {
    /// The master secret of TLS 1.2 and older.
    const MASTER: &'static str = "CLIENT_RANDOM";
    const TLS13_LABELS: [&'static str; 4] = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ];

    /// Adds the lines of a key log; those with other labels are ignored.
    pub fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(label), Some(random), Some(secret)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let mut known = Self::TLS13_LABELS.into_iter().chain([Self::MASTER]);
            let label = known.find(|known| *known == label);
            let random = hex::decode(random).ok().and_then(|r| <[u8; 32]>::try_from(r).ok());
            if let (Some(label), Some(random), Ok(secret)) = (label, random, hex::decode(secret))
                && self.0.len() < MAX_SECRETS
            {
                self.0.insert((label, random), secret);
            }
        }
    }

    fn get(&self, label: &'static str, random: [u8; 32]) -> Option<&[u8]> {
        self.0.get(&(label, random)).map(Vec::as_slice)
    }
}

/// What a session carried.
pub(super) struct DecryptedSession {
    pub server_name: Option<String>,
    pub client: TcpStream,
    pub server: TcpStream,
    /// Why it does not contain everything.
    pub problem: Option<&'static str>,
}

/// Whether a stream begins with a TLS handshake.
pub(super) fn is_tls(bytes: &[u8]) -> bool {
    bytes.starts_with(&[content::HANDSHAKE, 3])
}

/// Decrypts a session.
pub(super) fn decrypt(
    client: &TcpStream,
    server: &TcpStream,
    secrets: &SessionSecrets,
) -> Result<DecryptedSession, &'static str> {
    let hello = ClientHello::parse(&client.bytes).ok().flatten();
    let random =
        first_message(&client.bytes).and_then(|m| random_of(&m)).ok_or("its TLS ClientHello cannot be read")?;
    let Negotiated { suite, random: server_random } = negotiated(&server.bytes)?;
    let secret = |label| secrets.get(label, random).ok_or(NO_SECRETS);
    let [client, server] = match suite.version {
        TlsVersion::Tls13 => {
            let [client_early, server_early, client_late, server_late] = SessionSecrets::TLS13_LABELS.map(secret);
            [
                decrypt_tls13(client, suite, client_early?, client_late?)?,
                decrypt_tls13(server, suite, server_early?, server_late?)?,
            ]
        }
        TlsVersion::Tls12 => {
            let [client_keys, server_keys] =
                RecordKeys::tls12(suite, secret(SessionSecrets::MASTER)?, &random, &server_random);
            [decrypt_tls12(client, client_keys)?, decrypt_tls12(server, server_keys)?]
        }
    };
    Ok(DecryptedSession {
        server_name: hello.and_then(|h| h.server_name).map(|name| name.to_string()),
        problem: client.problem.or(server.problem),
        client: client.plain,
        server: server.plain,
    })
}

const NO_SECRETS: &str = "its TLS cannot be decrypted: the file has no secrets of it";

/// A record: its position, type and content.
struct TlsRecord<'a> {
    at: usize,
    kind: u8,
    header: &'a [u8],
    body: &'a [u8],
}

fn records(bytes: &[u8]) -> impl Iterator<Item = TlsRecord<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = bytes.get(at..at + 5)?;
        let end = at + 5 + usize::from(u16::from_be_bytes([header[3], header[4]]));
        let record = TlsRecord { at, kind: header[0], header, body: bytes.get(at + 5..end)? };
        at = end;
        Some(record)
    })
}

/// The first handshake message that is not encrypted, with its header.
fn first_message(bytes: &[u8]) -> Option<Vec<u8>> {
    plain_messages(bytes).into_iter().next()
}

/// The handshake messages in records before the first one of application data. In TLS 1.2, what follows the first ones is
/// encrypted.
fn plain_messages(bytes: &[u8]) -> Vec<Vec<u8>> {
    let plain =
        records(bytes).take_while(|r| r.kind != content::APPLICATION_DATA).filter(|r| r.kind == content::HANDSHAKE);
    split_messages(&plain.flat_map(|r| r.body.to_vec()).collect::<Vec<u8>>()).map(<[u8]>::to_vec).collect()
}

fn split_messages(mut rest: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32::from_be_bytes([0, *rest.get(1)?, *rest.get(2)?, *rest.get(3)?]) as usize;
        let (message, after) = rest.split_at_checked(4 + length)?;
        rest = after;
        Some(message)
    })
}

/// The random number of a ClientHello or ServerHello.
fn random_of(message: &[u8]) -> Option<[u8; 32]> {
    message.get(6..38)?.try_into().ok()
}

/// What the ServerHello decides.
struct Negotiated {
    suite: Suite,
    random: [u8; 32],
}

fn negotiated(server: &[u8]) -> Result<Negotiated, &'static str> {
    let mut hellos = plain_messages(server).into_iter().filter(|m| m[0] == handshake::SERVER_HELLO);
    // The answer to the second ClientHello, if the first one was to be repeated.
    let hello = hellos.find(|m| m.get(6..10).is_none_or(|r| r != RETRY));
    let hello = hello.ok_or("its TLS has no ServerHello in the capture")?;
    let random = random_of(&hello).ok_or("its TLS ServerHello is too short")?;
    let session = usize::from(*hello.get(38).ok_or("its TLS ServerHello is too short")?);
    let number = hello.get(39 + session..41 + session).and_then(|n| n.try_into().ok());
    let suite = number.and_then(Suite::from_number).ok_or(
        "its TLS suite is not supported: those of TLS 1.3, and of TLS 1.2 those with AES-GCM and ChaCha20-Poly1305, are",
    )?;
    Ok(Negotiated { suite, random })
}

/// The decrypted application data of one direction, as far as the records could be decrypted.
#[derive(Default)]
struct DecryptedSide {
    plain: TcpStream,
    /// Why it is not complete.
    problem: Option<&'static str>,
}

impl DecryptedSide {
    fn push(&mut self, stream: &TcpStream, record: &TlsRecord<'_>, body: &[u8]) {
        if !body.is_empty() {
            self.plain.marks.push((self.plain.bytes.len(), stream.time_at(record.at)));
            self.plain.bytes.extend_from_slice(body);
        }
    }

    /// A record that cannot be decrypted: the first ones mean that the secrets are not those of this session, later ones
    /// leave what was decrypted before.
    fn fail(mut self, problem: &'static str) -> Result<Self, &'static str> {
        if self.plain.bytes.is_empty() {
            return Err(problem);
        }
        self.problem = Some(problem);
        Ok(self)
    }
}

const WRONG_SECRETS: &str = "its TLS records do not fit the secrets in the file";

fn decrypt_tls13(stream: &TcpStream, suite: Suite, early: &[u8], late: &[u8]) -> Result<DecryptedSide, &'static str> {
    let mut keys = RecordKeys::tls13(suite, early);
    let mut side = DecryptedSide::default();
    let mut flight = Vec::new();
    let mut is_finished = false;
    for record in records(&stream.bytes) {
        // Before the keys: the hello itself, and the message for old middleboxes.
        if record.kind != content::APPLICATION_DATA {
            continue;
        }
        let mut body = record.body.to_vec();
        let Some(kind) = keys.open(record.header, &mut body) else { return side.fail(WRONG_SECRETS) };
        match kind {
            content::APPLICATION_DATA if is_finished => side.push(stream, &record, &body),
            content::HANDSHAKE if !is_finished => {
                flight.extend_from_slice(&body);
                if split_messages(&flight).any(|m| m[0] == handshake::FINISHED) {
                    is_finished = true;
                    keys = RecordKeys::tls13(suite, late);
                }
            }
            content::HANDSHAKE if split_messages(&body).any(|m| m[0] == handshake::KEY_UPDATE) => keys = keys.next(),
            _ => {}
        }
    }
    Ok(side)
}

fn decrypt_tls12(stream: &TcpStream, mut keys: RecordKeys) -> Result<DecryptedSide, &'static str> {
    let mut side = DecryptedSide::default();
    let mut is_encrypted = false;
    for record in records(&stream.bytes) {
        if record.kind == content::CHANGE_CIPHER_SPEC {
            if is_encrypted {
                return side.fail("its TLS is negotiated again, from where on it is not decrypted");
            }
            is_encrypted = true;
        } else if is_encrypted {
            let mut body = record.body.to_vec();
            match keys.open(record.header, &mut body) {
                None => return side.fail(WRONG_SECRETS),
                Some(content::APPLICATION_DATA) => side.push(stream, &record, &body),
                Some(_) => {}
            }
        }
    }
    Ok(side)
}
