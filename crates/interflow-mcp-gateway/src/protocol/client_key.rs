//! How the gateway authenticates itself as a client of an authorization server: by a secret, or by a private key that signs
//! an assertion in place of one (RFC 7523, section 2.2; OpenID Connect Core 1.0, section 9).

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeyPairComponents, PublicKeyComponents};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING as P256, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_types::{Timestamp, random_token};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};

/// The name of this way to authenticate (OpenID Connect Core 1.0, section 9).
pub(crate) const SIGNED: &str = "private_key_jwt";
/// How long an assertion is valid, in seconds.
const LIFETIME: u64 = 60;
const INVALID: &str = "it is not a private key of RSA with 2048 to 8192 bits, P-256 or Ed25519, in PEM without a \
                       passphrase or as a JWK (a file is written as file:PATH)";

/// Signs a message.
type Signer = dyn Fn(&[u8]) -> Option<Vec<u8>> + Send + Sync;

pub(crate) struct ClientKey {
    /// The name of its algorithm (RFC 7518, section 3.1; RFC 8037).
    pub algorithm: &'static str,
    pub public: Value,
    sign: Box<Signer>,
}

/// What the gateway authenticates itself with.
pub(crate) enum ClientCredential {
    /// Empty for a public client.
    Secret(String),
    Key(ClientKey),
}

/// What a section of the configuration says of it: a secret or a private key, or neither for a public client. Errors begin
/// with the key.
#[derive(Clone, Copy)]
pub(crate) struct ClientAuth<'a> {
    section: &'static str,
    secret: &'a str,
    private_key: &'a str,
}

impl<'a> ClientAuth<'a> {
    pub fn new(section: &'static str, secret: Option<&'a str>, private_key: Option<&'a str>) -> Self {
        Self { section, secret: secret.unwrap_or_default(), private_key: private_key.unwrap_or_default() }
    }

    /// Whether it is one of the two.
    ///
    /// # Errors
    /// It is both.
    pub fn check(self) -> Result<bool, String> {
        match (self.secret, self.private_key) {
            ("", key) => Ok(!key.is_empty()),
            (_, "") => Ok(true),
            _ => Err(format!("{}: a client has either `client_secret` or `private_key`", self.section)),
        }
    }

    /// The secret or the key, without references.
    ///
    /// # Errors
    /// There is none at the reference. The message names it: it is for the operator.
    pub fn resolve(self) -> Result<String, String> {
        let is_secret = self.private_key.is_empty();
        let (name, own) = if is_secret { ("client_secret", self.secret) } else { ("private_key", self.private_key) };
        interflow_files::resolve_secret_ref(own).map_err(|e| format!("{}.{name}: {e}", self.section))
    }

    /// The credential, as it is now.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve) and [`credential`](Self::credential).
    pub fn read(self) -> Result<ClientCredential, String> {
        self.credential(self.resolve()?)
    }

    /// The credential, of what was resolved.
    ///
    /// # Errors
    /// The key is invalid.
    pub fn credential(self, resolved: String) -> Result<ClientCredential, String> {
        if self.private_key.is_empty() {
            return Ok(ClientCredential::Secret(resolved));
        }
        ClientKey::parse(&resolved).map(ClientCredential::Key).map_err(|e| format!("{}.private_key: {e}", self.section))
    }
}

impl ClientCredential {
    pub fn key(&self) -> Option<&ClientKey> {
        if let Self::Key(key) = self { Some(key) } else { None }
    }
}

impl ClientKey {
    /// # Errors
    /// The text is not such a key. Nothing of it is part of the message.
    fn parse(text: &str) -> Result<Self, &'static str> {
        let jwk: Value = serde_json::from_str(text).unwrap_or_default();
        let key = match PrivateKeyDer::from_pem_slice(text.as_bytes()) {
            Ok(key) => Self::from_der(key.secret_der()),
            Err(_) => Self::from_jwk(&jwk),
        };
        let mut key = key.ok_or(INVALID)?;
        (key.public["use"], key.public["alg"]) = ("sig".into(), key.algorithm.into());
        if jwk["kid"].is_string() {
            key.public["kid"] = jwk["kid"].clone();
        }
        Ok(key)
    }

    /// Of RSA, PKCS #8 or a curve (RFC 5915).
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let rsa = RsaKeyPair::from_pkcs8(der).or_else(|_| RsaKeyPair::from_der(der)).map(Self::rsa);
        let p256 = || EcdsaKeyPair::from_private_key_der(&P256, der).map(Self::p256);
        let ed25519 = || Ed25519KeyPair::from_pkcs8_maybe_unchecked(der).map(Self::ed25519);
        rsa.or_else(|_| p256()).or_else(|_| ed25519()).ok()
    }

    /// Of a JWK (RFC 7518, section 6; RFC 8037).
    fn from_jwk(jwk: &Value) -> Option<Self> {
        let part = |name: &str| URL_SAFE_NO_PAD.decode(jwk[name].as_str()?).ok();
        match (jwk["kty"].as_str()?, jwk["crv"].as_str()) {
            ("RSA", _) => {
                let public_key = PublicKeyComponents { n: part("n")?, e: part("e")? };
                let ([d, p, q], [dp, dq, qi]) = (["d", "p", "q"].map(part), ["dp", "dq", "qi"].map(part));
                let all = KeyPairComponents { public_key, d: d?, p: p?, q: q?, dP: dp?, dQ: dq?, qInv: qi? };
                RsaKeyPair::from_components(&all).map(Self::rsa)
            }
            ("EC", Some("P-256")) => {
                let point = [vec![4], part("x")?, part("y")?].concat();
                EcdsaKeyPair::from_private_key_and_public_key(&P256, &part("d")?, &point).map(Self::p256)
            }
            ("OKP", Some("Ed25519")) => {
                Ed25519KeyPair::from_seed_and_public_key(&part("d")?, &part("x")?).map(Self::ed25519)
            }
            _ => return None,
        }
        .ok()
    }

    fn rsa(pair: RsaKeyPair) -> Self {
        let [n, e] = [pair.public_key().modulus(), pair.public_key().exponent()]
            .map(|number| URL_SAFE_NO_PAD.encode(number.big_endian_without_leading_zero()));
        let sign = Box::new(move |message: &[u8]| {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), message, &mut signature).ok()?;
            Some(signature)
        });
        Self { algorithm: "RS256", public: json!({ "kty": "RSA", "n": n, "e": e }), sign }
    }

    fn p256(pair: EcdsaKeyPair) -> Self {
        // The point is 4 and both coordinates.
        let (_, point) = pair.public_key().as_ref().split_at(1);
        let [x, y] = <[_; 2]>::from(point.split_at(32)).map(|number| URL_SAFE_NO_PAD.encode(number));
        let sign =
            Box::new(move |message: &[u8]| Some(pair.sign(&SystemRandom::new(), message).ok()?.as_ref().to_vec()));
        Self { algorithm: "ES256", public: json!({ "kty": "EC", "crv": "P-256", "x": x, "y": y }), sign }
    }

    fn ed25519(pair: Ed25519KeyPair) -> Self {
        let x = URL_SAFE_NO_PAD.encode(pair.public_key());
        let sign = Box::new(move |message: &[u8]| Some(pair.sign(message).as_ref().to_vec()));
        Self { algorithm: "EdDSA", public: json!({ "kty": "OKP", "crv": "Ed25519", "x": x }), sign }
    }

    /// The public keys for an authorization server (RFC 7517).
    pub fn jwks(&self) -> Value {
        json!({ "keys": [self.public] })
    }

    /// An assertion that the gateway is this client, for one use at this authorization server.
    ///
    /// # Errors
    /// The key does not sign.
    pub fn assertion(&self, client: &str, audience: &str) -> Result<String, String> {
        let mut header = json!({ "alg": self.algorithm, "typ": "JWT" });
        if let Some(id) = self.public.get("kid") {
            header["kid"] = id.clone();
        }
        let now = Timestamp::now().secs();
        let claims = json!({ "iss": client, "sub": client, "aud": audience, "jti": random_token(), "iat": now,
            "exp": now + LIFETIME });
        self.signed(&header, &claims)
    }

    /// A JWT with this header and these claims.
    ///
    /// # Errors
    /// The key does not sign.
    pub fn signed(&self, header: &Value, claims: &Value) -> Result<String, String> {
        let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
        let signed = format!("{header}.{claims}");
        let signature = (self.sign)(signed.as_bytes()).ok_or("the private key of the gateway does not sign")?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
