//! Access tokens that are no JWTs: their issuer is asked what they are (RFC 7662).

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use interflow_tasks::WeighedCache;
use interflow_types::{BoxFuture, HttpClient, Url};
use parking_lot::Mutex;
use serde_json::Value;

use crate::access_identity::{AccessIdentity, AccessRefusal, AccessTokens};
use crate::config::{McpIntrospection, McpOAuthConfig, oauth_endpoint};
use crate::protocol::challenge::words;
use crate::protocol::client_key::ClientCredential;
use crate::protocol::oauth_form::{form_request, response_of};

/// Bound on the tokens whose answers are kept.
const MAX_TOKENS: usize = 10_000;
/// Bounds on a token and on its subject, in bytes.
const MAX_TOKEN: usize = 4096;
const MAX_SUBJECT: usize = 255;

type Outcome = Result<AccessIdentity, AccessRefusal>;

/// Checks JWTs with the keys of the issuer, and other tokens by asking it.
pub(crate) struct IntrospectedTokens {
    jwt: Arc<dyn AccessTokens>,
    http: Arc<dyn HttpClient>,
    config: McpIntrospection,
    url: Url,
    credential: ClientCredential,
    issuer: String,
    audience: String,
    /// By the hash of the token, with the time until which they are used.
    answers: Mutex<WeighedCache<blake3::Hash, (Outcome, Instant)>>,
}

impl McpIntrospection {
    /// # Errors
    /// What is wrong, with its key.
    pub(crate) fn check(&self) -> Result<Url, String> {
        if !self.auth().check()? || self.client_id.is_empty() {
            let why = "it needs `client_id`, and `client_secret` or `private_key`";
            return Err(format!("mcp.oauth.introspection: {why}"));
        }
        oauth_endpoint(&self.url).map_err(|why| format!("mcp.oauth.introspection.url: {why}"))
    }
}

impl IntrospectedTokens {
    /// # Errors
    /// What is wrong, with its key.
    pub fn new(
        oauth: &McpOAuthConfig,
        config: &McpIntrospection,
        jwt: Arc<dyn AccessTokens>,
        http: Arc<dyn HttpClient>,
    ) -> Result<Self, String> {
        let (url, credential, config) = (config.check()?, config.auth().read()?, config.clone());
        let audience = oauth.audience.as_ref().unwrap_or(&oauth.resource).clone();
        let (issuer, answers) = (oauth.issuer.clone(), Mutex::default());
        Ok(Self { jwt, http, config, url, credential, issuer, audience, answers })
    }

    async fn introspect(&self, token: &str) -> Outcome {
        let refused = |why: &str| Err(AccessRefusal::InvalidToken(why.to_owned()));
        if token.len() > MAX_TOKEN {
            return refused("it is too long");
        }
        let key = blake3::hash(token.as_bytes());
        if let Some((outcome, until)) = self.answers.lock().get(&key)
            && *until > Instant::now()
        {
            return outcome.clone();
        }
        let fields = [("token", token), ("token_type_hint", "access_token")];
        let client = (self.config.client_id.as_str(), self.issuer.as_str());
        let build = || form_request(&self.url, &fields, client, &self.credential, true);
        let unavailable = |why: String| {
            tracing::warn!("cannot check access tokens at mcp.oauth.introspection.url: {why}");
            AccessRefusal::IssuerUnavailable
        };
        let raw = response_of(&*self.http, build, None).await.map_err(|why| unavailable(why.into()))?;
        let answer = serde_json::from_slice::<Value>(&raw).ok().filter(|answer| answer["active"].is_boolean());
        let answer = answer.ok_or_else(|| unavailable("its response does not say `active`".to_owned()))?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let outcome = self.identity(&answer, now).map_err(|why| AccessRefusal::InvalidToken(why.to_owned()));
        let left = answer["exp"].as_u64().map(|exp| Duration::from_secs(exp).saturating_sub(now));
        let mut answers = self.answers.lock();
        if answers.len() >= MAX_TOKENS {
            answers.remove_oldest();
        }
        let (cache, left) = (self.config.cache.0, left.filter(|_| outcome.is_ok()));
        let until = Instant::now() + left.map_or(cache, |left| cache.min(left));
        answers.insert(key, (outcome.clone(), until), 1);
        outcome
    }

    /// Whose token it is. What the issuer does not say is not assumed.
    fn identity(&self, answer: &Value, now: Duration) -> Result<AccessIdentity, &'static str> {
        if answer["active"] != true || answer["exp"].as_f64().is_some_and(|exp| exp <= now.as_secs_f64()) {
            return Err("it has expired, was revoked, or is not of the issuer");
        }
        if answer.get("iss").is_some_and(|issuer| *issuer != *self.issuer) {
            return Err("it is of another issuer");
        }
        let audiences = answer["aud"].as_array().map_or_else(|| std::slice::from_ref(&answer["aud"]), Vec::as_slice);
        if !audiences.iter().any(|audience| *audience == *self.audience) {
            return Err("it is for another service (aud)");
        }
        if answer.get("cnf").is_some() {
            return Err("it is bound to a key or certificate of the client (cnf), and proofs are not checked here");
        }
        let subject = answer["sub"].as_str().filter(|sub| !sub.is_empty() && sub.len() <= MAX_SUBJECT);
        let subject = subject.ok_or("its subject is empty or too long")?.to_owned();
        Ok(AccessIdentity { subject, scopes: words(answer["scope"].as_str().unwrap_or_default()) })
    }
}

impl AccessTokens for IntrospectedTokens {
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome> {
        // The header of a JWT is a JSON object in Base64.
        match token.starts_with("eyJ") && token.split('.').count() == 3 {
            true => self.jwt.check(token),
            false => Box::pin(self.introspect(token)),
        }
    }
}
