//! A request for authorization: the browser leaves with it for the authorization server, and comes back with a code (RFC
//! 6749, section 4.1; RFC 7636; RFC 9207).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_tasks::own_request::form;
use interflow_types::random_token;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::authorization_server::AuthorizationServer;
use super::oauth_client::OAuthClient;
use super::{AccountServer, CALLBACK_PATH, now};
use crate::protocol::oauth_form::{TokenResponse, known_code};

/// What the browser keeps of it, sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Authorization {
    pub issuer: String,
    pub token_endpoint: String,
    names_itself: bool,
    pub client: OAuthClient,
    pub state: String,
    verifier: String,
}

/// What an authorization server appends to the redirect URI.
#[derive(Debug, Default)]
pub(crate) struct AuthorizationResponse {
    pub code: Option<String>,
    pub state: Option<String>,
    pub iss: Option<String>,
    pub error: Option<String>,
}

impl Authorization {
    /// The request, and the URL for the browser.
    pub fn begin(
        server: &AuthorizationServer,
        client: OAuthClient,
        base: &str,
        more: &[(&str, &str)],
    ) -> (Self, String) {
        let (state, verifier) = (random_token(), random_token());
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let redirect_uri = format!("{base}{CALLBACK_PATH}");
        let own = [
            ("response_type", "code"),
            ("client_id", &*client.id),
            ("redirect_uri", &*redirect_uri),
            ("state", &*state),
            ("code_challenge", &*challenge),
            ("code_challenge_method", "S256"),
        ];
        let endpoint = &server.authorization_endpoint;
        let separator = if endpoint.contains('?') { '&' } else { '?' };
        let url = format!("{endpoint}{separator}{}", form(&[&own, more].concat()));
        let (issuer, token_endpoint) = (server.issuer.clone(), server.token_endpoint.clone());
        (Self { issuer, token_endpoint, names_itself: server.names_itself, client, state, verifier }, url)
    }

    /// Exchanges the code of a response for tokens.
    ///
    /// # Errors
    /// The response is not to this request, or was refused.
    pub async fn redeem(
        &self,
        server: &AccountServer,
        base: &str,
        response: &AuthorizationResponse,
        more: &[(&str, &str)],
    ) -> Result<TokenResponse, String> {
        if response.state.as_deref() != Some(&self.state) {
            return Err("the response belongs to another request (state)".to_owned());
        }
        // Compared as texts: the response of another authorization server is not mixed up with that of this one.
        let is_other = response.iss.as_ref().is_some_and(|iss| *iss != self.issuer);
        if is_other || self.names_itself && response.iss.is_none() {
            return Err("the response is not of the authorization server that was asked (iss)".to_owned());
        }
        if let Some(error) = &response.error {
            let code = known_code(error).unwrap_or("an error");
            return Err(format!("{} refused the access: {code}", self.issuer));
        }
        let code = response.code.as_deref().ok_or("the response has no code")?;
        let redirect_uri = format!("{base}{CALLBACK_PATH}");
        let own = [
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &*redirect_uri),
            ("code_verifier", &*self.verifier),
        ];
        let tokens = self.client.tokens(server, (&self.issuer, &self.token_endpoint), &[&own, more].concat()).await;
        tokens.map_err(|why| format!("{} gave no access token: {why}", self.issuer))
    }

    /// The subject of the ID token that came with tokens, straight from the token endpoint, which TLS authenticates (OpenID
    /// Connect Core 1.0, section 3.1.3.7).
    ///
    /// # Errors
    /// It is not for this request.
    pub fn subject(&self, tokens: &TokenResponse, nonce: &str) -> Result<String, &'static str> {
        let payload = tokens.id_token.as_deref().and_then(|token| token.split('.').nth(1));
        let claims = payload.and_then(|payload| URL_SAFE_NO_PAD.decode(payload).ok());
        let claims = claims.and_then(|claims| serde_json::from_slice::<Value>(&claims).ok());
        let claims = claims.ok_or("the issuer sent no ID token")?;
        let audience = &claims["aud"];
        let is_for = |id: &Value| *id == *self.client.id;
        let is_ours =
            is_for(audience) || audience.as_array().is_some_and(|all| all.len() == 1 && all.iter().any(is_for));
        if claims["iss"] != *self.issuer || !is_ours || claims["nonce"] != *nonce {
            return Err("the ID token is of another issuer, or for another request");
        }
        if claims["exp"].as_f64().is_none_or(|expires| expires <= now() as f64) {
            return Err("the ID token has expired");
        }
        claims["sub"].as_str().map(str::to_owned).ok_or("the ID token has no subject")
    }
}
