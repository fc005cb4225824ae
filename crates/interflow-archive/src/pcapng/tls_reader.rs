//! Decrypts recorded TLS 1.3 sessions with the traffic secrets of a key log (RFC 8446 5.2 and 7.3). The suites with
//! AES-GCM only; of other sessions it says why they stay closed.

use std::collections::HashMap;

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Aes256Gcm, Nonce};
use hmac::{Hmac, Mac};
use interflow_codec::client_hello::ClientHello;
use sha2::{Sha256, Sha384};

use super::reader::TcpStream;

mod content {
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
    const LABELS: [&'static str; 4] = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
    ];

    /// Adds the lines of a key log; others than those of TLS 1.3 are ignored.
    pub fn add(&mut self, lines: &str) {
        for line in lines.lines() {
            let mut words = line.split_ascii_whitespace();
            let (Some(label), Some(random), Some(secret)) = (words.next(), words.next(), words.next()) else {
                continue;
            };
            let label = Self::LABELS.into_iter().find(|known| *known == label);
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
    let suite = negotiated_suite(&server.bytes)?;
    let side = |stream: &TcpStream, labels: [&'static str; 2]| {
        let [early, late] = labels.map(|label| secrets.get(label, random));
        let (early, late) = early.zip(late).ok_or("its TLS cannot be decrypted: the file has no secrets of it")?;
        decrypt_side(stream, suite, early, late)
    };
    Ok(DecryptedSession {
        server_name: hello.and_then(|h| h.server_name).map(|name| name.to_string()),
        client: side(client, [SessionSecrets::LABELS[0], SessionSecrets::LABELS[2]])?,
        server: side(server, [SessionSecrets::LABELS[1], SessionSecrets::LABELS[3]])?,
    })
}

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

/// The handshake messages in records before the first encrypted one.
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

#[derive(Clone, Copy)]
enum Suite {
    Aes128,
    Aes256,
}

fn negotiated_suite(server: &[u8]) -> Result<Suite, &'static str> {
    let mut hellos = plain_messages(server).into_iter().filter(|m| m[0] == handshake::SERVER_HELLO);
    // The answer to the second ClientHello, if the first one was to be repeated.
    let hello = hellos.rfind(|m| m.get(6..10).is_none_or(|r| r != RETRY));
    let hello = hello.ok_or("its TLS has no ServerHello in the capture")?;
    let session = usize::from(*hello.get(38).ok_or("its TLS ServerHello is too short")?);
    match hello.get(39 + session..41 + session) {
        Some([0x13, 0x01]) => Ok(Suite::Aes128),
        Some([0x13, 0x02]) => Ok(Suite::Aes256),
        Some([0x13, _]) => Err("its TLS suite is not supported: AES-GCM is"),
        _ => Err("it uses TLS 1.2 or older: only TLS 1.3 is decrypted"),
    }
}

fn decrypt_side(stream: &TcpStream, suite: Suite, early: &[u8], late: &[u8]) -> Result<TcpStream, &'static str> {
    let mut keys = RecordKeys::new(suite, early);
    let mut plain = TcpStream::default();
    let mut flight = Vec::new();
    let mut is_finished = false;
    for record in records(&stream.bytes) {
        // Before the keys: the hello itself, and the message for old middleboxes.
        if record.kind != content::APPLICATION_DATA {
            continue;
        }
        let mut body = record.body.to_vec();
        let kind = keys.open(record.header, &mut body).ok_or("its TLS records do not fit the secrets in the file")?;
        match kind {
            content::APPLICATION_DATA if is_finished && !body.is_empty() => {
                plain.marks.push((plain.bytes.len(), stream.time_at(record.at)));
                plain.bytes.extend_from_slice(&body);
            }
            content::HANDSHAKE if !is_finished => {
                flight.extend_from_slice(&body);
                if split_messages(&flight).any(|m| m[0] == handshake::FINISHED) {
                    is_finished = true;
                    keys = RecordKeys::new(suite, late);
                }
            }
            content::HANDSHAKE if split_messages(&body).any(|m| m[0] == handshake::KEY_UPDATE) => keys = keys.next(),
            _ => {}
        }
    }
    Ok(plain)
}

enum RecordCipher {
    Aes128(Box<Aes128Gcm>),
    Aes256(Box<Aes256Gcm>),
}

/// The keys of one direction.
struct RecordKeys {
    suite: Suite,
    secret: Vec<u8>,
    cipher: RecordCipher,
    iv: [u8; 12],
    number: u64,
}

impl RecordKeys {
    fn new(suite: Suite, secret: &[u8]) -> Self {
        let mut iv = [0; 12];
        expand(suite, secret, "iv", &mut iv);
        let mut key = [0; 32];
        let cipher = match suite {
            Suite::Aes128 => {
                expand(suite, secret, "key", &mut key[..16]);
                let (short, _) = key.split_first_chunk::<16>().expect("a part of the array");
                RecordCipher::Aes128(Box::new(Aes128Gcm::new(&(*short).into())))
            }
            Suite::Aes256 => {
                expand(suite, secret, "key", &mut key);
                RecordCipher::Aes256(Box::new(Aes256Gcm::new(&key.into())))
            }
        };
        Self { suite, secret: secret.to_vec(), cipher, iv, number: 0 }
    }

    /// The keys behind a KeyUpdate (RFC 8446 7.2).
    fn next(&self) -> Self {
        let mut secret = vec![0; self.secret.len()];
        expand(self.suite, &self.secret, "traffic upd", &mut secret);
        Self::new(self.suite, &secret)
    }

    /// Decrypts a record in place; returns its type.
    fn open(&mut self, header: &[u8], body: &mut Vec<u8>) -> Option<u8> {
        let mut nonce = self.iv;
        nonce[4..].iter_mut().zip(self.number.to_be_bytes()).for_each(|(n, b)| *n ^= b);
        self.number += 1;
        let nonce = Nonce::from(nonce);
        match &self.cipher {
            RecordCipher::Aes128(cipher) => cipher.decrypt_in_place(&nonce, header, body).ok()?,
            RecordCipher::Aes256(cipher) => cipher.decrypt_in_place(&nonce, header, body).ok()?,
        }
        // Padding of zeros follows the type.
        let end = body.iter().rposition(|b| *b != 0)?;
        let kind = body[end];
        body.truncate(end);
        Some(kind)
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 7.1), one block of HMAC at most.
fn expand(suite: Suite, secret: &[u8], label: &str, out: &mut [u8]) {
    let label = format!("tls13 {label}");
    let mut info = (out.len() as u16).to_be_bytes().to_vec();
    info.push(label.len() as u8);
    info.extend_from_slice(label.as_bytes());
    info.extend_from_slice(&[0, 1]);
    match suite {
        Suite::Aes128 => first_block::<Hmac<Sha256>>(secret, &info, out),
        Suite::Aes256 => first_block::<Hmac<Sha384>>(secret, &info, out),
    }
}

fn first_block<M: Mac + KeyInit>(secret: &[u8], info: &[u8], out: &mut [u8]) {
    let mut mac = <M as KeyInit>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(info);
    let block = mac.finalize().into_bytes();
    // A secret of a wrong length in the file asks for more than a block; its records fail to decrypt.
    let length = out.len().min(block.len());
    out[..length].copy_from_slice(&block[..length]);
}
