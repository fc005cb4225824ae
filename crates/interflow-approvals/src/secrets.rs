//! Secrets that replace placeholders: stored encrypted (AES-256-GCM under the installation's key), each bound to the
//! origins it may be sent to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::{fmt, fs, io};

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_files::{FileAccess, resolve_secret_ref, write_atomic};
use interflow_types::schema::JsonSchema;
use interflow_types::{Authority, Host, Scheme, Timestamp, random_bytes};
use serde::{Deserialize, Serialize};

use super::clock::{monotonic_secs, now};
use super::config::{ApprovalsConfig, SecretSpec};
use super::key_command;
use super::optional_file::read_optional;
use super::secret_origin::SecretOrigin;

/// Prefix of generated placeholders.
const PLACEHOLDER_PREFIX: &str = "interflow-secret-";
/// Maximum length of a secret, in bytes. It bounds what is held back while a body is scanned.
const MAX_SECRET_BYTES: usize = 64 << 10;
/// Minimum length of a placeholder, in bytes: shorter ones would cause false matches.
const MIN_PLACEHOLDER_LEN: usize = 16;

pub(crate) struct StoredSecret {
    pub label: String,
    pub placeholder: String,
    pub hosts: Vec<String>,
    pub plain_http: bool,
    /// How often it was inserted since the start.
    pub used: AtomicU64,
    /// When it was added, in seconds since the Unix epoch; 0 if loaded from a file of an earlier version.
    pub given: u64,
    /// Its session, and when that expires, in monotonic seconds.
    pub session: Option<(Arc<str>, Arc<AtomicU64>)>,
    value: String,
    /// As it is in the file. Kept, so that a change of the file is a change of those secrets that it is about.
    sealed: OnceLock<SealedValue>,
    origins: Vec<SecretOrigin>,
}

impl fmt::Debug for StoredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret").field("label", &self.label).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl StoredSecret {
    /// Validates a new secret.
    ///
    /// # Errors
    /// What is wrong; never the value.
    pub fn new(spec: SecretSpec) -> Result<Self, String> {
        let mut secret = Self::from_stored_spec(spec)?;
        if let Some(local) = secret.origins.iter().find(|o| o.lacks_port()) {
            return Err(format!(
                "the secret '{}': this machine has many services: name the one that it is for with its port, as in \
                 127.0.0.1:8080, in place of {local}",
                secret.label
            ));
        }
        // Hosts are stored in full, so that their meaning does not depend on defaults.
        secret.hosts = secret.origin_list();
        Ok(secret)
    }

    /// As [`new`](Self::new), with hosts as stored in the file.
    fn from_stored_spec(spec: SecretSpec) -> Result<Self, String> {
        let label = spec.label.trim().to_owned();
        let wrong = |why: &str| format!("the secret '{label}': {why}");
        if label.is_empty() || label.len() > 100 || label.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err("a secret needs a label of 1 to 100 characters without spaces".to_owned());
        }
        // A line end would split a header field.
        if spec.value.is_empty() || spec.value.len() > MAX_SECRET_BYTES || spec.value.contains(['\r', '\n', '\0']) {
            return Err(wrong("it must be 1 to 65536 bytes long, in one line"));
        }
        if spec.hosts.is_empty() {
            return Err(wrong("it must be bound to hosts: without them it could be sent anywhere"));
        }
        let origins = spec.hosts.iter().map(|h| SecretOrigin::parse(h, spec.plain_http)).collect::<Result<Vec<_>, _>>();
        let origins = origins.map_err(|e| wrong(&e))?.into_iter().flatten().collect();
        let placeholder = spec.placeholder.unwrap_or_else(random_placeholder);
        // Characters that no encoding of the replaced texts changes.
        let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'~' | b':');
        if placeholder.len() < MIN_PLACEHOLDER_LEN || placeholder.len() > 256 || !placeholder.bytes().all(plain) {
            return Err(wrong("a placeholder has 16 to 256 letters, digits, or any of - _ . ~ :"));
        }
        if placeholder == spec.value {
            return Err(wrong("it is its own placeholder"));
        }
        Ok(Self {
            label,
            placeholder,
            hosts: spec.hosts,
            plain_http: spec.plain_http,
            used: AtomicU64::new(0),
            given: now(),
            session: None,
            value: spec.value,
            sealed: OnceLock::new(),
            origins,
        })
    }

    /// Whether it may be sent to this origin: scheme, host and port must match.
    pub fn allows_origin(&self, scheme: Scheme, authority: &Authority) -> bool {
        self.origins.iter().any(|o| o.matches(scheme, authority))
    }

    /// Whether it is bound to an origin at this host, regardless of scheme and port: another service of the machine
    /// may return what was sent to the first.
    pub fn allows_host(&self, host: &Host) -> bool {
        self.origins.iter().any(|o| o.matches_host(host))
    }

    /// Its origins in full: `https://api.example.com:443`.
    pub fn origin_list(&self) -> Vec<String> {
        self.origins.iter().map(ToString::to_string).collect()
    }

    /// Whether nothing but its count of uses differs.
    pub fn is_same(&self, other: &Self) -> bool {
        // Encrypted anew it may be under another key, so that it must not be written again as it was.
        if self.sealed.get() != other.sealed.get() {
            return false;
        }
        let parts = |s: &Self| (s.label.clone(), s.placeholder.clone(), s.hosts.clone(), s.plain_http, s.value.clone());
        parts(self) == parts(other)
    }

    pub fn value(&self) -> &str {
        &self.value
    }

    pub fn is_expired(&self) -> bool {
        self.session.as_ref().is_some_and(|(_, until)| until.load(Relaxed) <= monotonic_secs())
    }

    /// Metadata that is authenticated together with the value: nobody who can write the file can bind a secret to
    /// other hosts.
    fn associated_data(&self) -> Vec<u8> {
        [self.label.as_str(), &self.placeholder, &self.hosts.join(" "), if self.plain_http { "plain" } else { "tls" }]
            .join("\n")
            .into_bytes()
    }
}

fn random_placeholder() -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    // 26 characters of five bits: 130 bits of randomness.
    let text: String = random_bytes::<26>().iter().map(|b| char::from(LETTERS[usize::from(b & 31)])).collect();
    format!("{PLACEHOLDER_PREFIX}{text}")
}

/// A secret without its value, for display.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SecretView {
    pub label: String,
    pub placeholder: String,
    /// The origins it may be sent to, each with scheme and port.
    pub hosts: Vec<String>,
    /// Whether it may be sent without TLS.
    pub plain_http: bool,
    /// How often it was inserted since the start.
    pub used: u64,
    /// When it was added, if known.
    #[serde(rename = "added")]
    pub given: Option<Timestamp>,
    pub session: Option<String>,
}

impl From<&StoredSecret> for SecretView {
    fn from(secret: &StoredSecret) -> Self {
        Self {
            label: secret.label.clone(),
            placeholder: secret.placeholder.clone(),
            hosts: secret.origin_list(),
            plain_http: secret.plain_http,
            used: secret.used.load(Relaxed),
            given: Some(secret.given).filter(|at| *at != 0).map(Timestamp::from_secs),
            session: secret.session.as_ref().map(|(id, _)| id.to_string()),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EncryptedSecret {
    label: String,
    placeholder: String,
    hosts: Vec<String>,
    #[serde(default)]
    plain_http: bool,
    #[serde(default)]
    given: u64,
    nonce: String,
    sealed: String,
}

/// A value under the key of the file, in Base64.
#[derive(Clone, PartialEq, Eq)]
struct SealedValue {
    nonce: String,
    sealed: String,
}

/// The key that the file of secrets is encrypted with.
#[derive(Clone)]
pub(crate) enum VaultKey {
    /// In a file beside it, created with the first secret.
    Beside,
    Given([u8; 32]),
}

impl VaultKey {
    /// # Errors
    /// The key cannot be read, or is none. The message never has its value.
    pub fn from_config(config: &ApprovalsConfig) -> Result<Self, String> {
        let (key, text) = match (&config.secrets_key, &config.secrets_key_command[..]) {
            (None, []) => return Ok(Self::Beside),
            (Some(_), [_, ..]) => {
                return Err("approvals: set secrets_key or secrets_key_command, not both".to_owned());
            }
            (Some(reference), []) => ("secrets_key", resolve_secret_ref(reference)),
            (None, [program, arguments @ ..]) => {
                ("secrets_key_command", key_command::run(program, arguments, key_command::TIME_LIMIT))
            }
        };
        let text = text.map_err(|e| format!("approvals.{key}: {e}"))?;
        let text = text.trim();
        let bytes = hex::decode(text).ok().filter(|b| b.len() == 32).or_else(|| STANDARD.decode(text).ok());
        let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
        let wrong =
            || format!("approvals.{key}: a key has 32 bytes: 64 hexadecimal digits, or 44 characters of Base64");
        bytes.map(Self::Given).ok_or_else(wrong)
    }
}

/// The file of secrets.
pub(crate) struct SecretVault {
    path: PathBuf,
    key: VaultKey,
}

impl SecretVault {
    pub fn new(path: PathBuf, key: VaultKey) -> Self {
        Self { path, key }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Loads all secrets; none if the file does not exist.
    ///
    /// # Errors
    /// The file cannot be read, or does not match the key.
    pub fn read(&self) -> Result<Vec<StoredSecret>, String> {
        self.parse(read_optional(&self.path)?.as_deref())
    }

    /// The secrets in a text of the file; none if there is no file.
    ///
    /// # Errors
    /// The text is invalid, or does not match the key.
    pub fn parse(&self, text: Option<&str>) -> Result<Vec<StoredSecret>, String> {
        let wrong = |why: String| format!("{}: {why}", self.path.display());
        let Some(text) = text else { return Ok(Vec::new()) };
        let file: BTreeMap<String, Vec<EncryptedSecret>> =
            serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        let cipher = self.cipher(false)?;
        let sealed = file.into_iter().filter(|(name, _)| name == "secrets").flat_map(|(_, list)| list);
        sealed.map(|s| decrypt_secret(&cipher, s).map_err(wrong)).collect()
    }

    /// The text of a file with these secrets. Creates the key if there is none.
    ///
    /// # Errors
    /// The key cannot be read or written.
    pub fn to_text(&self, secrets: &[Arc<StoredSecret>]) -> Result<String, String> {
        let cipher = self.cipher(true)?;
        // Secrets of sessions end with the process.
        let global = secrets.iter().filter(|s| s.session.is_none());
        let sealed = global.map(|s| encrypt_secret(&cipher, s)).collect::<Result<Vec<_>, _>>()?;
        serde_json::to_string_pretty(&BTreeMap::from([("secrets", sealed)])).map_err(|e| e.to_string())
    }

    fn cipher(&self, make: bool) -> Result<Aes256Gcm, String> {
        if let VaultKey::Given(key) = &self.key {
            return Ok(Aes256Gcm::new(key.into()));
        }
        let path = self.path.with_extension("key");
        let wrong = |why: String| format!("{}: {why}", path.display());
        let key = match fs::read(&path) {
            Ok(key) => key,
            // Created with the first secret; reading never creates one, so a lost key is reported.
            Err(e) if e.kind() == io::ErrorKind::NotFound && make => {
                let key = random_bytes::<32>();
                write_atomic(&path, &key, FileAccess::Private).map_err(|e| wrong(e.to_string()))?;
                key.to_vec()
            }
            Err(e) => return Err(wrong(e.to_string())),
        };
        Aes256Gcm::new_from_slice(&key).map_err(|_| wrong("a key has 32 bytes".to_owned()))
    }
}

fn encrypt_secret(cipher: &Aes256Gcm, secret: &StoredSecret) -> Result<EncryptedSecret, String> {
    let SealedValue { nonce, sealed } = match secret.sealed.get() {
        Some(value) => value.clone(),
        None => {
            // A nonce must not be used twice with one key; 96 random bits suffice for the secrets of one file.
            let nonce = random_bytes::<12>();
            let payload = Payload { msg: secret.value.as_bytes(), aad: &secret.associated_data() };
            let sealed = cipher.encrypt(&Nonce::from(nonce), payload).map_err(|_| "encryption failed".to_owned())?;
            let value = SealedValue { nonce: STANDARD.encode(nonce), sealed: STANDARD.encode(sealed) };
            secret.sealed.get_or_init(|| value).clone()
        }
    };
    Ok(EncryptedSecret {
        label: secret.label.clone(),
        placeholder: secret.placeholder.clone(),
        hosts: secret.hosts.clone(),
        plain_http: secret.plain_http,
        given: secret.given,
        nonce,
        sealed,
    })
}

fn decrypt_secret(cipher: &Aes256Gcm, sealed: EncryptedSecret) -> Result<StoredSecret, String> {
    let wrong = format!("the secret '{}' was encrypted with another key, or was modified", sealed.label);
    let bytes = |text: &str| STANDARD.decode(text).map_err(|_| wrong.clone());
    let (nonce, packed) = (bytes(&sealed.nonce)?, bytes(&sealed.sealed)?);
    // A stand-in value: the real one is known only after the metadata has been authenticated.
    let mut secret = StoredSecret::from_stored_spec(SecretSpec {
        label: sealed.label,
        value: "-".to_owned(),
        hosts: sealed.hosts,
        placeholder: Some(sealed.placeholder),
        plain_http: sealed.plain_http,
    })?;
    let nonce = Nonce::try_from(&nonce[..]).map_err(|_| wrong.clone())?;
    let payload = Payload { msg: &packed, aad: &secret.associated_data() };
    let value = cipher.decrypt(&nonce, payload).map_err(|_| wrong.clone())?;
    if secret.hosts != secret.origin_list() {
        tracing::info!(
            "the secret '{}' was bound to {} without scheme or port: it goes to {}",
            secret.label,
            secret.hosts.join(", "),
            secret.origin_list().join(", ")
        );
    }
    secret.given = sealed.given;
    secret.value = String::from_utf8(value).map_err(|_| wrong)?;
    secret.sealed = SealedValue { nonce: sealed.nonce, sealed: sealed.sealed }.into();
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(hosts: &[&str]) -> SecretSpec {
        SecretSpec {
            label: "api".into(),
            value: "s3cret".into(),
            hosts: hosts.iter().map(|h| (*h).to_owned()).collect(),
            ..SecretSpec::default()
        }
    }

    #[test]
    fn secrets_are_bound_to_hosts() {
        let secret = StoredSecret::new(spec(&["*.example.com", "10.0.0.1"])).unwrap();
        assert!(
            secret.placeholder.starts_with(PLACEHOLDER_PREFIX)
                && secret.placeholder.len() == PLACEHOLDER_PREFIX.len() + 26
        );
        for (origin, bound) in [
            ("api.example.com:443", true),
            ("api.example.com:8443", false),
            ("example.com:443", false),
            ("evil.test:443", false),
            ("10.0.0.1:443", true),
        ] {
            assert_eq!(secret.allows_origin(Scheme::Https, &origin.parse().unwrap()), bound, "{origin}");
            assert!(!secret.allows_origin(Scheme::Http, &origin.parse().unwrap()), "{origin}");
        }
        assert!(secret.allows_host(&Host::parse("api.example.com").unwrap()), "what comes back is hidden on any port");
        assert!(!format!("{secret:?} {:?}", spec(&[])).contains("s3cret"));
        for (bad, why) in [
            (spec(&[]), "bound to hosts"),
            (spec(&["*"]), "every host"),
            (spec(&["127.0.0.1"]), "its port"),
            (spec(&["localhost", "a.test"]), "its port"),
            (SecretSpec { label: String::new(), ..spec(&["a"]) }, "label"),
            (SecretSpec { value: "a\nb".into(), ..spec(&["a"]) }, "one line"),
            (SecretSpec { placeholder: Some("short".into()), ..spec(&["a"]) }, "16 to 256"),
            (SecretSpec { placeholder: Some("with spaces in it all".into()), ..spec(&["a"]) }, "letters"),
        ] {
            let error = StoredSecret::new(bad).unwrap_err();
            assert!(error.contains(why) && !error.contains("s3cret"), "{error}");
        }
    }

    fn write(vault: &SecretVault, secrets: &[Arc<StoredSecret>]) -> io::Result<()> {
        fs::write(vault.path(), vault.to_text(secrets).unwrap())
    }

    #[test]
    fn legacy_host_only_binding_means_https() {
        let dir = tempfile::tempdir().unwrap();
        let vault = SecretVault::new(dir.path().join("secrets.json"), VaultKey::Beside);
        let earlier = |hosts: &[&str]| Arc::new(StoredSecret::from_stored_spec(spec(hosts)).unwrap());
        write(&vault, &[earlier(&["a.test"]), earlier(&["127.0.0.1"])]).unwrap();
        let read = vault.read().unwrap();
        assert_eq!(SecretView::from(&read[0]).hosts, ["https://a.test:443"]);
        assert!(read[0].allows_origin(Scheme::Https, &"a.test:443".parse().unwrap()));
        assert!(!read[0].allows_origin(Scheme::Http, &"a.test:80".parse().unwrap()));
        assert!(!read[1].allows_origin(Scheme::Http, &"127.0.0.1:3000".parse().unwrap()));
    }

    #[test]
    fn a_change_of_the_file_leaves_the_other_secrets_as_they_are_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let vault = SecretVault::new(dir.path().join("secrets.json"), VaultKey::Beside);
        let secret =
            |label: &str| Arc::new(StoredSecret::new(SecretSpec { label: label.into(), ..spec(&["a.test"]) }).unwrap());
        let sealed = || -> Vec<String> {
            let file: serde_json::Value = serde_json::from_str(&fs::read_to_string(vault.path()).unwrap()).unwrap();
            file["secrets"].as_array().unwrap().iter().map(ToString::to_string).collect()
        };
        let first = secret("first");
        write(&vault, std::slice::from_ref(&first)).unwrap();
        let before = sealed();
        // By the process that has added it, and by one that has read it.
        write(&vault, &[first, secret("second")]).unwrap();
        assert_eq!(sealed()[..1], before);
        let mut read: Vec<_> = vault.read().unwrap().into_iter().map(Arc::new).collect();
        let both = sealed();
        read.push(secret("third"));
        write(&vault, &read).unwrap();
        assert_eq!(sealed()[..2], both);
        assert!(vault.read().unwrap().iter().all(|s| s.value() == "s3cret"));
    }

    #[test]
    fn key_of_the_configuration_encrypts_the_file_and_another_does_not_open_it() {
        let dir = tempfile::tempdir().unwrap();
        let (path, key) = (dir.path().join("secrets.json"), dir.path().join("vault"));
        let config = |key: Option<String>, command: &[&str]| ApprovalsConfig {
            secrets_key: key,
            secrets_key_command: command.iter().map(|&c| c.to_owned()).collect(),
            ..ApprovalsConfig::default()
        };
        let file = Some(format!("file:{}", key.display()));
        fs::write(&key, format!("{}\n", "ab".repeat(32))).unwrap();
        let vault = SecretVault::new(path.clone(), VaultKey::from_config(&config(file.clone(), &[])).unwrap());
        write(&vault, &[Arc::new(StoredSecret::new(spec(&["a.test"])).unwrap())]).unwrap();
        assert!(!path.with_extension("key").exists(), "the key is nowhere in the data directory");
        // As from a key management service, in Base64.
        let printed = STANDARD.encode([0xab; 32]);
        let same = VaultKey::from_config(&config(None, &["echo", &printed])).unwrap();
        assert_eq!(SecretVault::new(path.clone(), same).read().unwrap()[0].value(), "s3cret");
        let other = VaultKey::from_config(&config(Some("cd".repeat(32)), &[])).unwrap();
        assert!(SecretVault::new(path, other).read().unwrap_err().contains("was modified"));
        for (bad, why) in [
            (config(Some("env:NOT_SET_ANYWHERE".into()), &[]), "NOT_SET_ANYWHERE is not set"),
            (config(Some("tooshort".into()), &[]), "32 bytes"),
            (config(None, &["false"]), "approvals.secrets_key_command: false: exit status"),
            (config(None, &["/no/such/program"]), "cannot be run"),
            (config(file, &["true"]), "not both"),
        ] {
            let error = VaultKey::from_config(&bad).err().unwrap();
            assert!(error.contains(why) && !error.contains("tooshort"), "{error}");
        }
    }

    #[test]
    fn secrets_file_is_encrypted_and_tampering_is_detected() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secrets.json");
        let vault = SecretVault::new(path.clone(), VaultKey::Beside);
        assert!(vault.read().unwrap().is_empty());
        write(&vault, &[Arc::new(StoredSecret::new(spec(&["a.test"])).unwrap())]).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("s3cret"));
        assert_eq!(vault.read().unwrap()[0].value(), "s3cret");
        fs::write(&path, text.replace("a.test", "b.test")).unwrap();
        assert!(vault.read().unwrap_err().contains("was modified"), "another host is another secret");
        fs::write(path.with_extension("key"), [0; 32]).unwrap();
        assert!(vault.read().is_err());
    }
}
