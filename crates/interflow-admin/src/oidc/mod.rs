//! Login of people at an OpenID Connect issuer: authorization code flow with PKCE, state and nonce. Nothing is kept
//! between the two requests of a login but a signed cookie, so any instance with the same admin token can end it.

mod access_token;
pub mod config;
pub(crate) mod error;
mod id_token;
mod provider;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use interflow_tasks::own_request::form;
use interflow_types::percent::encoded;
use interflow_types::{HttpClient, Timestamp, random_bytes};
use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq as _;

pub use access_token::AccessTokenChecker;

use crate::auth::cookie_scope::CookieScope;
use crate::auth::person_sessions::PersonSession;
use config::OidcConfig;
use error::{LoginError, Result};
use provider::{Discovery, Provider, check_url};

/// Where a login at the issuer begins.
pub(crate) const START_PATH: &str = "/login/oidc";
/// Where the issuer sends the browser back.
pub(crate) const CALLBACK_PATH: &str = "/login/callback";
/// How long a person may take at the issuer.
const ATTEMPT_LIFETIME: Duration = Duration::from_secs(600);
/// Bound on a name that is shown, in characters.
const MAX_NAME: usize = 200;
/// Bound on `sub` (OpenID Connect Core 1.0, section 2), in bytes.
const MAX_SUBJECT: usize = 255;
/// Lengths of expiry, random bytes and signature of an attempt.
const PARTS: [usize; 3] = [8, 16, 32];

/// What the issuer appends to the callback.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct CallbackParams {
    code: Option<String>,
    state: Option<String>,
    iss: Option<String>,
    error: Option<String>,
    error_description: Option<String>,
}

/// A login that has begun: all of it follows from the random bytes, by the key of this instance.
struct Attempt {
    state: String,
    nonce: String,
    /// The PKCE code verifier (RFC 7636 section 4.1).
    verifier: String,
}

#[derive(Deserialize)]
struct TokenResponse {
    id_token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct TokenError {
    error: String,
    error_description: Option<String>,
}

impl OidcConfig {
    /// Checks the section without asking the issuer.
    ///
    /// # Errors
    /// It is incomplete, or a URL in it cannot be used.
    pub fn check(&self) -> Result<(), String> {
        check_url(&self.issuer).map_err(|e| format!("admin.oidc.issuer: {e}"))?;
        if let Some(url) = &self.redirect_url {
            let url = interflow_types::Url::of_service(url).map_err(|e| format!("admin.oidc.redirect_url: {e}"))?;
            if url.path.as_str() != CALLBACK_PATH {
                return Err(format!("admin.oidc.redirect_url: its path must be {CALLBACK_PATH}"));
            }
        }
        if self.client_id.is_empty() {
            return Err("admin.oidc.client_id: it is missing; register Interflow as a client at the issuer".to_owned());
        }
        if self.roles.is_empty() {
            let why = "no user could log in; name a group for viewer, operator or admin, or \"*\" for everybody";
            return Err(format!("admin.oidc.roles: {why}"));
        }
        Ok(())
    }
}

pub(crate) struct OidcLogin {
    pub config: OidcConfig,
    secret: Option<String>,
    provider: Provider,
    key: [u8; 32],
    scope: CookieScope,
}

impl OidcLogin {
    /// # Errors
    /// The section of the config is incomplete.
    pub fn new(
        config: &OidcConfig,
        token: &str,
        scope: CookieScope,
        http: Arc<dyn HttpClient>,
    ) -> Result<Self, String> {
        config.check()?;
        let secret = config.client_secret.as_deref().map(interflow_files::resolve_secret_ref).transpose();
        let secret = secret.map_err(|e| format!("admin.oidc.client_secret: {e}"))?;
        let key = blake3::derive_key("Interflow admin OIDC login attempt, 2026", token.as_bytes());
        let provider = Provider::new(&config.issuer, config.timeout.0, http);
        Ok(Self { config: config.clone(), secret, provider, key, scope })
    }

    /// The issuer as the login page names it.
    pub fn display_name(&self) -> String {
        self.config.name.clone().unwrap_or_else(|| {
            let url = interflow_types::Url::of_service(&self.config.issuer);
            url.map_or_else(|_| self.config.issuer.clone(), |url| url.authority.host.to_string())
        })
    }

    /// The host and port of `redirect_url`, which are this instance's behind a proxy.
    pub fn public_host(&self) -> Option<String> {
        let url = interflow_types::Url::of_service(self.config.redirect_url.as_deref()?).ok()?;
        Some(url.authority.host.to_string())
    }

    pub fn is_https(&self) -> bool {
        self.config.redirect_url.as_deref().is_some_and(|url| url.starts_with("https:"))
    }

    pub fn attempt_cookie_name(&self) -> String {
        format!("interflow_login_{}", self.scope)
    }

    fn redirect_uri(&self, host: &str) -> String {
        self.config.redirect_url.clone().unwrap_or_else(|| format!("http://{host}{CALLBACK_PATH}"))
    }

    /// Where the browser goes to log in, and the `Set-Cookie` that ties the login to it.
    pub async fn begin(&self, host: &str, next: &str) -> Result<(String, String)> {
        let discovery = self.provider.discovery().await?;
        let random = random_bytes::<{ PARTS[1] }>();
        let expiry = Timestamp::now().secs() + ATTEMPT_LIFETIME.as_secs();
        let attempt = self.attempt(&random);
        let mut scopes = self.config.scopes.clone();
        if !scopes.iter().any(|s| s == "openid") {
            scopes.insert(0, "openid".to_owned());
        }
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&attempt.verifier));
        let redirect_uri = self.redirect_uri(host);
        let query = form(&[
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", &redirect_uri),
            ("scope", &scopes.join(" ")),
            ("state", &attempt.state),
            ("nonce", &attempt.nonce),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);
        let endpoint = &discovery.authorization_endpoint;
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        let signed = [&expiry.to_be_bytes()[..], &random, &self.sign(expiry, &random, next)].concat();
        let value = format!("{}.{}", URL_SAFE_NO_PAD.encode(signed), URL_SAFE_NO_PAD.encode(next));
        Ok((format!("{endpoint}{separator}{query}"), self.attempt_cookie(&value, ATTEMPT_LIFETIME)))
    }

    /// The `Set-Cookie` that ends an attempt.
    pub fn expired_attempt(&self) -> String {
        self.attempt_cookie("", Duration::ZERO)
    }

    fn attempt_cookie(&self, value: &str, lifetime: Duration) -> String {
        // `Lax`, because the browser comes back from another site; the signed state is compared with what comes back.
        let secure = if self.is_https() { "; Secure" } else { "" };
        format!(
            "{}={value}; Path=/login; Max-Age={}; HttpOnly; SameSite=Lax{secure}",
            self.attempt_cookie_name(),
            lifetime.as_secs()
        )
    }

    /// Ends a login: who it is, with or without a role here, and the page to go to.
    pub async fn finish(
        &self,
        host: &str,
        params: CallbackParams,
        cookie: Option<&str>,
    ) -> Result<(PersonSession, String)> {
        let (random, next) = cookie.and_then(|value| self.check_attempt(value)).ok_or_else(|| {
            let message = "this browser has not begun a login, or more than ten minutes ago";
            LoginError::request(message, "log in again; the browser must accept cookies")
        })?;
        let attempt = self.attempt(&random);
        let state = params.state.unwrap_or_default();
        if !bool::from(state.as_bytes().ct_eq(attempt.state.as_bytes())) {
            return Err(LoginError::request("the response belongs to another login (state)", "log in again"));
        }
        let discovery = self.provider.discovery().await?;
        // RFC 9207: the response of another issuer is not mixed up with that of ours.
        let names_issuer = discovery.authorization_response_iss_parameter_supported || params.iss.is_some();
        if names_issuer && params.iss.as_deref() != Some(self.config.issuer.as_str()) {
            return Err(LoginError::request("the response is from another issuer (iss)", "log in again"));
        }
        if let Some(error) = params.error {
            let why = params.error_description.map_or_else(String::new, |d| format!(" ({})", shorten(&d)));
            let message = format!("the issuer did not log you in: {}{why}", shorten(&error));
            return Err(LoginError::forbidden(message, "log in again, or ask the people who run the issuer"));
        }
        let code = params.code.ok_or_else(|| LoginError::request("the issuer sent no code", "log in again"))?;
        let tokens = self.redeem(&discovery, host, &code, &attempt).await?;
        let person = self.identify(&discovery, &tokens, &attempt).await?;
        Ok((person, next))
    }

    /// Exchanges the code for tokens.
    async fn redeem(&self, discovery: &Discovery, host: &str, code: &str, attempt: &Attempt) -> Result<TokenResponse> {
        let redirect_uri = self.redirect_uri(host);
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect_uri.as_str()),
            ("code_verifier", attempt.verifier.as_str()),
        ];
        let methods = &discovery.token_endpoint_auth_methods_supported;
        let has = |name: &str| methods.iter().any(|m| m == name);
        // Without a list, the default is `client_secret_basic`.
        let by_post = has("client_secret_post") && !has("client_secret_basic");
        let mut authorization = None;
        match &self.secret {
            Some(secret) if !by_post => {
                // Both parts are encoded as in a form first (RFC 6749 section 2.3.1).
                let pair = format!("{}:{}", encoded(&self.config.client_id), encoded(secret));
                authorization = Some(format!("Basic {}", STANDARD.encode(pair)));
            }
            Some(secret) => fields.extend([("client_id", self.config.client_id.as_str()), ("client_secret", secret)]),
            None => fields.push(("client_id", &self.config.client_id)),
        }
        let (client, endpoint) = (&self.provider.client, &discovery.token_endpoint);
        let (status, body) = client.post_form(endpoint, authorization.as_deref(), form(&fields)).await?;
        if status != 200 {
            let error = serde_json::from_slice::<TokenError>(&body).ok();
            let why = error.as_ref().map_or_else(|| format!("status {status}"), |e| shorten(&e.error));
            let more = error.as_ref().and_then(|e| e.error_description.as_deref()).map(shorten);
            let remedy = match error.as_ref().map(|e| e.error.as_str()) {
                Some("invalid_client") => "check admin.oidc.client_id and admin.oidc.client_secret",
                Some("invalid_grant") => "log in again; check that the redirect URL is the one that is registered",
                _ => "log in again; see the log of the issuer",
            };
            let more = more.map_or_else(String::new, |m| format!(" ({m})"));
            return Err(LoginError::issuer(format!("the issuer did not accept the code: {why}{more}"), remedy));
        }
        serde_json::from_slice(&body)
            .map_err(|_| LoginError::issuer("the issuer's token response cannot be read", "see the log of the issuer"))
    }

    async fn identify(
        &self,
        discovery: &Discovery,
        tokens: &TokenResponse,
        attempt: &Attempt,
    ) -> Result<PersonSession> {
        let remedy = "the issuer must allow the scope openid for this client";
        let none = || LoginError::issuer("the issuer sent no ID token", remedy);
        let id_token = tokens.id_token.as_deref().ok_or_else(none)?;
        let key = self.provider.key_for(id_token).await?;
        let expected = id_token::Expected {
            issuer: &self.config.issuer,
            client_id: &self.config.client_id,
            nonce: &attempt.nonce,
            leeway: self.config.clock_leeway.0,
        };
        let claims = id_token::check(id_token, &key, &expected)?;
        let mut about = claims.all;
        let mut groups = id_token::groups(&about, &self.config.groups_claim);
        // Many issuers put groups and names into the userinfo response only.
        if groups.is_none()
            && let (Some(url), Some(access)) = (&discovery.userinfo_endpoint, &tokens.access_token)
        {
            let info: Map<String, Value> = self.provider.client.get(url, Some(access)).await?;
            // Section 5.3.2: otherwise it may be about somebody else.
            if info.get("sub").and_then(Value::as_str) != Some(claims.sub.as_str()) {
                let remedy = "see the log of the issuer";
                return Err(LoginError::issuer("the userinfo response is about another person", remedy));
            }
            groups = id_token::groups(&info, &self.config.groups_claim);
            about.extend(info);
        }
        let groups = groups.unwrap_or_default();
        let names = ["preferred_username", "email", "name"].iter().filter_map(|n| about.get(*n)?.as_str());
        let name = names.chain([claims.sub.as_str()]).map(str::trim).find(|n| !n.is_empty()).map(shorten);
        if claims.sub.len() > MAX_SUBJECT {
            return Err(LoginError::issuer("the person's id is too long (sub)", "see the log of the issuer"));
        }
        let (name, groups) = (name.unwrap_or_default(), self.config.roles.relevant(&groups));
        Ok(PersonSession { subject: claims.sub, name, groups })
    }

    /// What a person without a role is told.
    pub fn no_role(&self, person: &PersonSession) -> LoginError {
        LoginError::forbidden(
            format!("you are {} at {}, but none of your groups has a role here", person.name, self.display_name()),
            format!(
                "ask an admin of this instance to add one of your groups to admin.oidc.roles, or check that the issuer \
                 sends groups in the claim `{}` (admin.oidc.groups_claim, admin.oidc.scopes)",
                self.config.groups_claim
            ),
        )
    }

    fn attempt(&self, random: &[u8]) -> Attempt {
        let derive = |purpose: &str| {
            let mut hasher = blake3::Hasher::new_keyed(&self.key);
            hasher.update(purpose.as_bytes()).update(&[0]).update(random);
            hex::encode(hasher.finalize().as_bytes())
        };
        Attempt { state: derive("state"), nonce: derive("nonce"), verifier: derive("verifier") }
    }

    fn check_attempt(&self, value: &str) -> Option<(Vec<u8>, String)> {
        let (signed, next) = value.split_once('.')?;
        let next = String::from_utf8(URL_SAFE_NO_PAD.decode(next).ok()?).ok()?;
        let bytes = URL_SAFE_NO_PAD.decode(signed).ok().filter(|b| b.len() == PARTS.iter().sum::<usize>())?;
        let (expiry, rest) = bytes.split_at(PARTS[0]);
        let (random, signature) = rest.split_at(PARTS[1]);
        let expiry = u64::from_be_bytes(expiry.try_into().ok()?);
        let is_signed: bool = signature.ct_eq(&self.sign(expiry, random, &next)[..]).into();
        (is_signed && expiry > Timestamp::now().secs()).then(|| (random.to_vec(), next))
    }

    fn sign(&self, expiry: u64, random: &[u8], next: &str) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(b"attempt\0").update(&self.scope.bytes()).update(&expiry.to_be_bytes());
        hasher.update(random).update(next.as_bytes());
        hasher.finalize().into()
    }
}

/// A text of the issuer, for a message.
fn shorten(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_that_could_let_nobody_in_is_refused_by_key() {
        let right = OidcConfig {
            issuer: "https://id.test".into(),
            client_id: "interflow".into(),
            roles: config::OidcRoles { viewer: vec!["*".into()], ..Default::default() },
            ..OidcConfig::default()
        };
        assert_eq!(right.check(), Ok(()));
        assert_eq!(OidcConfig { issuer: "http://127.0.0.1:8080/x".into(), ..right.clone() }.check(), Ok(()));
        for (wrong, key) in [
            (OidcConfig { issuer: String::new(), ..right.clone() }, "issuer"),
            (OidcConfig { issuer: "http://id.test".into(), ..right.clone() }, "issuer"),
            (OidcConfig { client_id: String::new(), ..right.clone() }, "client_id"),
            (OidcConfig { roles: config::OidcRoles::default(), ..right.clone() }, "roles"),
            (OidcConfig { redirect_url: Some("https://a.test/".into()), ..right.clone() }, "redirect_url"),
        ] {
            let error = wrong.check().unwrap_err();
            assert!(error.starts_with(&format!("admin.oidc.{key}: ")), "{error}");
        }
    }
}
