//! A fake OpenID Connect issuer: discovery, keys, authorization endpoint that logs one person in without asking, token
//! and userinfo endpoint. It checks what a client sends as a real one does.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use interflow_types::percent::{decoded_form, encoded};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::message::Request;
use crate::origin::Origin;
use crate::reply::Reply;

/// Changes what the issuer would send.
type Change = Box<dyn Fn(&mut Value) + Send>;
/// Makes an ID token of claims and the public key (JWK).
type Forge = Box<dyn Fn(&Value, &Value) -> String + Send>;

struct SigningKey {
    header: Header,
    key: EncodingKey,
    public: Value,
}

impl SigningKey {
    /// # Panics
    /// For an algorithm other than RS256 and ES256.
    fn generate(id: &str, algorithm: Algorithm) -> Self {
        let key = match algorithm {
            Algorithm::RS256 => {
                let pair = rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
                // PKCS #8 has 26 bytes before the PKCS #1 key of 2048 bits that is asked for here.
                EncodingKey::from_rsa_der(&pair.expect("a key").serialized_der()[26..])
            }
            Algorithm::ES256 => {
                let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).expect("a key");
                EncodingKey::from_ec_der(pair.serialized_der())
            }
            other => panic!("{other:?} is not supported"),
        };
        let mut public = Jwk::from_encoding_key(&key, algorithm).expect("a public key");
        public.common.key_id = Some(id.to_owned());
        let header = Header { kid: Some(id.to_owned()), ..Header::new(algorithm) };
        Self { header, key, public: serde_json::to_value(public).expect("plain data") }
    }
}

/// What an authorization request asked for.
struct Granted {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

struct State {
    client_id: String,
    client_secret: Option<String>,
    key: SigningKey,
    /// Claims of the person who is logged in.
    person: Value,
    has_groups_in_userinfo: bool,
    granted: HashMap<String, Granted>,
    change_token: Option<Change>,
    change_discovery: Option<Change>,
    forge: Option<Forge>,
    /// In place of the key that tokens are signed with.
    published: Option<Value>,
    count: usize,
}

/// The issuer, stopped when dropped.
pub struct Issuer {
    origin: Origin,
    state: Arc<Mutex<State>>,
}

impl Issuer {
    /// Starts an issuer for one client and one person, whose claims are `sub` and those given.
    pub async fn start(client_id: &str, client_secret: Option<&str>, person: Value) -> Self {
        let state = Arc::new(Mutex::new(State {
            client_id: client_id.to_owned(),
            client_secret: client_secret.map(str::to_owned),
            key: SigningKey::generate("first", Algorithm::RS256),
            person,
            has_groups_in_userinfo: false,
            granted: HashMap::new(),
            change_token: None,
            change_discovery: None,
            forge: None,
            published: None,
            count: 0,
        }));
        let shared = Arc::clone(&state);
        let origin = Origin::http().answering(move |request| lock(&shared).answer(request)).start().await;
        Self { origin, state }
    }

    /// The issuer's name, which is its address.
    pub fn url(&self) -> String {
        self.origin.url("")
    }

    pub fn address(&self) -> SocketAddr {
        self.origin.addr()
    }

    /// Paths of the requests so far.
    pub fn paths(&self) -> Vec<String> {
        self.origin.requests().iter().map(|r| r.path().to_owned()).collect()
    }

    /// A token with these claims and its own `iss`, signed with the current key.
    pub fn sign(&self, claims: &Value) -> String {
        let mut claims = claims.clone();
        claims["iss"] = self.url().into();
        let state = lock(&self.state);
        encode(&state.key.header, &claims, &state.key.key).expect("a token")
    }

    /// Names extensions in the headers of tokens that have to be understood (RFC 7515 section 4.1.11).
    pub fn set_critical(&self, extensions: &[&str]) {
        lock(&self.state).key.header.crit = Some(extensions.iter().map(|name| (*name).to_owned()).collect());
    }

    pub fn set_person(&self, person: Value) {
        lock(&self.state).person = person;
    }

    /// Signs with a new key from now on; the old one is gone.
    pub fn rotate(&self, id: &str, algorithm: Algorithm) {
        lock(&self.state).key = SigningKey::generate(id, algorithm);
    }

    /// Signs with another key of this id from now on, which is not published.
    pub fn sign_with_unpublished_key(&self, id: &str, algorithm: Algorithm) {
        let mut state = lock(&self.state);
        let published = state.key.public.clone();
        state.published = Some(published);
        state.key = SigningKey::generate(id, algorithm);
    }

    /// Leaves the id of the key out of tokens and published keys.
    pub fn leave_key_ids_out(&self) {
        let mut state = lock(&self.state);
        state.key.header.kid = None;
        state.key.public.as_object_mut().map(|key| key.remove("kid"));
    }

    /// Sends this in place of signed tokens, made of the claims and the public key.
    pub fn forge_tokens(&self, forge: impl Fn(&Value, &Value) -> String + Send + 'static) {
        lock(&self.state).forge = Some(Box::new(forge));
    }

    /// Leaves the groups out of ID tokens.
    pub fn put_groups_into_userinfo(&self) {
        lock(&self.state).has_groups_in_userinfo = true;
    }

    /// Changes the claims of every ID token.
    pub fn change_token(&self, change: impl Fn(&mut Value) + Send + 'static) {
        lock(&self.state).change_token = Some(Box::new(change));
    }

    pub fn change_discovery(&self, change: impl Fn(&mut Value) + Send + 'static) {
        lock(&self.state).change_discovery = Some(Box::new(change));
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl State {
    fn answer(&mut self, request: &Request) -> Reply {
        let issuer = format!("http://{}", request.authority);
        match (request.method.as_str(), request.path()) {
            ("GET", "/.well-known/openid-configuration") => self.discovery(&issuer),
            ("GET", "/jwks") => {
                Reply::json(&json!({"keys": [{"kty": "unknown"}, self.published.as_ref().unwrap_or(&self.key.public)]}))
            }
            ("GET", "/authorize") => self.authorize(request, &issuer),
            ("POST", "/token") => self.token(request, &issuer).unwrap_or_else(|error| refuse(&error)),
            ("GET", "/userinfo") if request.header("authorization") == Some("Bearer access") => {
                Reply::json(&self.person)
            }
            _ => Reply::status(404),
        }
    }

    fn discovery(&self, issuer: &str) -> Reply {
        let mut document = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "userinfo_endpoint": format!("{issuer}/userinfo"),
            "jwks_uri": format!("{issuer}/jwks"),
            "authorization_response_iss_parameter_supported": true,
        });
        if let Some(change) = &self.change_discovery {
            change(&mut document);
        }
        Reply::json(&document)
    }

    fn authorize(&mut self, request: &Request, issuer: &str) -> Reply {
        let field = |name: &str| request.query(name).map(decoded_form).unwrap_or_default();
        let is_code_flow = field("response_type") == "code" && field("code_challenge_method") == "S256";
        let is_openid = field("scope").split(' ').any(|s| s == "openid");
        if field("client_id") != self.client_id || !is_code_flow || !is_openid || field("state").is_empty() {
            return Reply::status(400);
        }
        self.count += 1;
        let code = format!("code-{}", self.count);
        let redirect_uri = field("redirect_uri");
        let state = encoded(&field("state"));
        let location = format!("{redirect_uri}?code={code}&state={state}&iss={}", encoded(issuer));
        let granted = Granted { nonce: field("nonce"), challenge: field("code_challenge"), redirect_uri };
        self.granted.insert(code, granted);
        Reply::status(302).header("Location", &location)
    }

    fn token(&mut self, request: &Request, issuer: &str) -> Result<Reply, String> {
        let body = String::from_utf8_lossy(&request.body).into_owned();
        let fields: HashMap<String, String> =
            body.split('&').filter_map(|p| p.split_once('=')).map(|(n, v)| (n.to_owned(), decoded_form(v))).collect();
        let field = |name: &str| fields.get(name).map(String::as_str).unwrap_or_default();
        match &self.client_secret {
            Some(secret) => {
                let expected = STANDARD.encode(format!("{}:{}", encoded(&self.client_id), encoded(secret)));
                if request.header("authorization") != Some(&format!("Basic {expected}")) {
                    return Err("invalid_client".to_owned());
                }
            }
            None if field("client_id") != self.client_id => return Err("invalid_client".to_owned()),
            None => {}
        }
        // A code is redeemed once, by who holds the verifier (RFC 7636 section 4.6).
        let granted = self.granted.remove(field("code")).ok_or("invalid_grant")?;
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(field("code_verifier")));
        if challenge != granted.challenge || field("redirect_uri") != granted.redirect_uri {
            return Err("invalid_grant".to_owned());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut claims = self.person.clone();
        for (name, value) in [("iss", json!(issuer)), ("aud", json!(self.client_id)), ("nonce", json!(granted.nonce))] {
            claims[name] = value;
        }
        (claims["iat"], claims["exp"]) = (json!(now), json!(now + 300));
        if self.has_groups_in_userinfo {
            claims.as_object_mut().map(|c| c.remove("groups"));
        }
        if let Some(change) = &self.change_token {
            change(&mut claims);
        }
        let token = match &self.forge {
            Some(forge) => forge(&claims, &self.key.public),
            None => encode(&self.key.header, &claims, &self.key.key).map_err(|e| e.to_string())?,
        };
        Ok(Reply::json(&json!({"access_token": "access", "token_type": "Bearer", "id_token": token})))
    }
}

fn refuse(error: &str) -> Reply {
    let body = json!({"error": error}).to_string();
    Reply::status(400).header("Content-Type", "application/json").body(body)
}
