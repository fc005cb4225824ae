//! TLS 1.3 with disclosed secrets (RFC 8446): enough of a handshake for readers that have them, and protected records.
//! It provides no security; it only reproduces the protocol layers for readers.

use aes_gcm::aead::{AeadInOut, KeyInit};
use aes_gcm::{Aes128Gcm, Nonce};
use hmac::{Hmac, Mac};
use interflow_types::Direction;
use sha2::Sha256;

/// Maximum content of one record, in bytes.
pub(super) const MAX_RECORD: usize = 16_384;

/// `TLS_AES_128_GCM_SHA256`.
const SUITE: [u8; 2] = [0x13, 0x01];

mod content {
    pub const HANDSHAKE: u8 = 22;
    pub const APPLICATION_DATA: u8 = 23;
}

pub(super) struct TlsWriter {
    seed: [u8; 32],
    /// Keys of the client's records and the server's, after the handshake.
    keys: Option<[RecordKeys; 2]>,
}

impl TlsWriter {
    /// Secrets are derived from the seed, so that the output is deterministic.
    pub fn new(seed: &[u8]) -> Self {
        Self { seed: blake3::derive_key("Interflow pcapng TLS session", seed), keys: None }
    }

    fn secret(&self, purpose: &str) -> [u8; 32] {
        *blake3::keyed_hash(&self.seed, purpose.as_bytes()).as_bytes()
    }

    /// The lines of a key log (`SSLKEYLOGFILE`), each with the client's random number by which readers find it.
    pub fn key_log(&self) -> String {
        let random = hex::encode(self.secret("client random"));
        let labels = [
            "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
            "SERVER_HANDSHAKE_TRAFFIC_SECRET",
            "CLIENT_TRAFFIC_SECRET_0",
            "SERVER_TRAFFIC_SECRET_0",
        ];
        labels.iter().map(|label| format!("{label} {random} {}\n", hex::encode(self.secret(label)))).collect()
    }

    /// The handshake flights in order.
    pub fn handshake(&mut self, server_name: &str, protocol: &str) -> [(Direction, Vec<u8>); 3] {
        let keys = |label| RecordKeys::new(&self.secret(label));
        let [mut client, mut server] = ["CLIENT_HANDSHAKE_TRAFFIC_SECRET", "SERVER_HANDSHAKE_TRAFFIC_SECRET"].map(keys);
        let hello = record(content::HANDSHAKE, [3, 1], &self.client_hello(server_name, protocol));
        let mut answer = record(content::HANDSHAKE, [3, 3], &self.server_hello());
        // The server's flight: EncryptedExtensions (8) and Finished (20). Certificates are left out, since readers do
        // not need them.
        let alpn = extension(16, &vector16(&vector8(protocol.as_bytes())));
        let flight = [message(8, &vector16(&alpn)), message(20, &self.secret("server finished"))].concat();
        answer.extend(server.protect(content::HANDSHAKE, &flight));
        let finished = client.protect(content::HANDSHAKE, &message(20, &self.secret("client finished")));
        self.keys = Some(["CLIENT_TRAFFIC_SECRET_0", "SERVER_TRAFFIC_SECRET_0"].map(keys));
        [(Direction::Request, hello), (Direction::Response, answer), (Direction::Request, finished)]
    }

    /// One record of application data, at most [`MAX_RECORD`] bytes of it.
    pub fn protect(&mut self, direction: Direction, data: &[u8]) -> Vec<u8> {
        let keys = self.keys.as_mut().expect("data follows the handshake");
        keys[direction as usize].protect(content::APPLICATION_DATA, data)
    }

    fn client_hello(&self, server_name: &str, protocol: &str) -> Vec<u8> {
        let mut extensions = Vec::new();
        // A literal address is not a server name (RFC 6066 3).
        if server_name.parse::<std::net::IpAddr>().is_err() {
            let name = [&[0][..], &vector16(server_name.as_bytes())].concat();
            extensions.extend(extension(0, &vector16(&name)));
        }
        // Supported versions: TLS 1.3. Below: groups (10), signature algorithms (13) and a key share (51), for
        // x25519.
        extensions.extend(extension(43, &vector8(&[3, 4])));
        extensions.extend(extension(10, &vector16(&[0, 29])));
        extensions.extend(extension(13, &vector16(&[4, 3, 8, 4])));
        let share = [&[0, 29][..], &vector16(&self.secret("client share"))].concat();
        extensions.extend(extension(51, &vector16(&share)));
        extensions.extend(extension(16, &vector16(&vector8(protocol.as_bytes()))));
        // No compression.
        self.hello(1, "client random", &[&vector16(&SUITE)[..], &[1, 0]].concat(), &extensions)
    }

    fn server_hello(&self) -> Vec<u8> {
        let share = [&[0, 29][..], &vector16(&self.secret("server share"))].concat();
        let extensions = [extension(43, &[3, 4]), extension(51, &share)].concat();
        self.hello(2, "server random", &[&SUITE[..], &[0]].concat(), &extensions)
    }

    /// Both hellos differ in their type, their random number, and how they name cipher suite and compression.
    fn hello(&self, kind: u8, random: &str, suite: &[u8], extensions: &[u8]) -> Vec<u8> {
        let session = vector8(&self.secret("session"));
        message(kind, &[&[3, 3], &self.secret(random)[..], &session, suite, &vector16(extensions)].concat())
    }
}

struct RecordKeys {
    cipher: Aes128Gcm,
    iv: [u8; 12],
    number: u64,
}

impl RecordKeys {
    fn new(secret: &[u8; 32]) -> Self {
        let (mut key, mut iv) = ([0; 16], [0; 12]);
        expand(secret, "key", &mut key);
        expand(secret, "iv", &mut iv);
        Self { cipher: Aes128Gcm::new(&key.into()), iv, number: 0 }
    }

    /// RFC 8446 5.2: the type follows the content, and both are encrypted.
    fn protect(&mut self, kind: u8, plain: &[u8]) -> Vec<u8> {
        let mut nonce = self.iv;
        // The nonce is the IV combined with the record's number (RFC 8446 section 5.3).
        nonce[4..].iter_mut().zip(self.number.to_be_bytes()).for_each(|(n, b)| *n ^= b);
        self.number += 1;
        let mut body = [plain, &[kind]].concat();
        // The length includes the authentication tag of 16 bytes.
        let head = [&[content::APPLICATION_DATA, 3, 3][..], &(body.len() as u16 + 16).to_be_bytes()].concat();
        self.cipher
            .encrypt_in_place(&Nonce::from(nonce), &head, &mut body)
            .expect("a record is far shorter than what AES-GCM can protect");
        [head, body].concat()
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 7.1), at most 32 bytes.
fn expand(secret: &[u8; 32], label: &str, out: &mut [u8]) {
    let label = format!("tls13 {label}");
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(secret).expect("HMAC takes keys of any length");
    mac.update(&(out.len() as u16).to_be_bytes());
    mac.update(&vector8(label.as_bytes()));
    mac.update(&[0, 1]);
    // One block of HMAC is enough, because at most 32 bytes are needed.
    let block = mac.finalize().into_bytes();
    out.copy_from_slice(&block[..out.len()]);
}

fn record(kind: u8, version: [u8; 2], body: &[u8]) -> Vec<u8> {
    [&[kind], &version[..], &vector16(body)].concat()
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &vector16(body)].concat()
}

fn vector8(body: &[u8]) -> Vec<u8> {
    [&[body.len() as u8], body].concat()
}

fn vector16(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u16).to_be_bytes()[..], body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's handshake secret, key and iv of RFC 8448 3.
    #[test]
    fn key_expansion_matches_rfc_8448() {
        let secret = [
            0xb6, 0x7b, 0x7d, 0x69, 0x0c, 0xc1, 0x6c, 0x4e, 0x75, 0xe5, 0x42, 0x13, 0xcb, 0x2d, 0x37, 0xb4, 0xe9, 0xc9,
            0x12, 0xbc, 0xde, 0xd9, 0x10, 0x5d, 0x42, 0xbe, 0xfd, 0x59, 0xd3, 0x91, 0xad, 0x38,
        ];
        let (mut key, mut iv) = ([0; 16], [0; 12]);
        expand(&secret, "key", &mut key);
        expand(&secret, "iv", &mut iv);
        assert_eq!(hex::encode(key), "3fce516009c21727d0f2e4e86ee403bc");
        assert_eq!(hex::encode(iv), "5d313eb2671276ee13000b30");
    }

    #[test]
    fn the_same_seed_gives_the_same_session_and_records_differ() {
        let mut a = TlsWriter::new(b"x");
        assert_eq!(a.key_log(), TlsWriter::new(b"x").key_log());
        assert_ne!(a.key_log(), TlsWriter::new(b"y").key_log());
        a.handshake("example.com", "h2");
        let (one, two) = (a.protect(Direction::Request, b"data"), a.protect(Direction::Request, b"data"));
        assert_eq!(one.len(), 5 + 4 + 1 + 16);
        assert_ne!(one, two);
    }
}
