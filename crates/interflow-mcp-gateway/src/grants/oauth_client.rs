//! The gateway as a client of an authorization server: registered by the operator, by the URL of its metadata, or by itself
//! (RFC 7591); and its requests for tokens.

use interflow_tasks::own_request;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::authorization_server::{AuthorizationServer, is_secure};
use super::user::is_near;
use super::{AccountServer, CALLBACK_PATH, DOCUMENT_PATH, KEY_DOCUMENTS, MAX_REMEMBERED};
use crate::config::oauth_endpoint;
use crate::protocol::client_key::{ClientCredential, ClientKey, SIGNED};
use crate::protocol::oauth_form::{INVALID_CLIENT, OAuthFailure, TokenResponse, form_request, response_of};

const NAME: &str = "Interflow";
/// How the gateway authenticates itself, the preferred way first.
const METHODS: [&str; 3] = ["client_secret_basic", "client_secret_post", "none"];
/// Bound on what an authorization server gives a client, in bytes.
const MAX_CREDENTIAL: usize = 512;

/// The gateway, as an authorization server knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OAuthClient {
    pub id: String,
    /// [`SIGNED`], or one of [`METHODS`].
    method: String,
    /// `None` also if it is that of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Its tokens are bound to the key of the gateway for the server.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bound: bool,
}

/// What an authorization server is told of the gateway (RFC 7591, section 2).
fn metadata(base: &str, method: &str, key: Option<&ClientKey>) -> Value {
    let redirect_uri = format!("{base}{CALLBACK_PATH}");
    let mut metadata = json!({
        "client_name": NAME,
        "redirect_uris": [redirect_uri],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": method,
        "application_type": if is_near(base) { "native" } else { "web" },
    });
    if let Some(key) = key {
        (metadata["jwks"], metadata["token_endpoint_auth_signing_alg"]) = (key.jwks(), key.algorithm.into());
    }
    metadata
}

/// The document whose URL is the id of the gateway; with the key for a server, if it has one.
pub(crate) fn metadata_document(base: &str, server: Option<(&str, &ClientKey)>) -> String {
    let method = if server.is_some() { SIGNED } else { METHODS[2] };
    let mut document = metadata(base, method, server.map(|(_, key)| key));
    document["client_id"] = document_url(base, server.map(|(name, _)| name)).into();
    document["client_uri"] = base.into();
    document.to_string()
}

fn document_url(base: &str, server: Option<&str>) -> String {
    server.map_or_else(|| format!("{base}{DOCUMENT_PATH}"), |name| format!("{base}{KEY_DOCUMENTS}{name}.json"))
}

impl OAuthClient {
    pub fn configured(server: &AccountServer, found: &AuthorizationServer) -> Self {
        let method = match &server.credential {
            ClientCredential::Key(_) => SIGNED,
            ClientCredential::Secret(secret) if secret.is_empty() => METHODS[2],
            ClientCredential::Secret(_) => found.auth_method(&METHODS[..2]).unwrap_or(METHODS[0]),
        };
        Self { id: server.config.id().to_owned(), method: method.to_owned(), secret: None, is_bound: false }
    }

    /// The gateway at an authorization server of a server.
    ///
    /// # Errors
    /// It has no way to be known there.
    pub async fn at(server: &AccountServer, found: &AuthorizationServer, base: &str) -> Result<Self, String> {
        let id = server.config.id();
        if !id.is_empty() && (found.takes_documents || !id.starts_with("https://")) {
            return Ok(Self::configured(server, found));
        }
        let key = found.with_key(server.credential.key());
        let signed = key.map(|_| SIGNED);
        if found.takes_documents && is_secure(base) {
            let (id, method) = (document_url(base, key.map(|_| &*server.name)), signed.unwrap_or(METHODS[2]));
            return Ok(Self { id, method: method.to_owned(), secret: None, is_bound: false });
        }
        let issuer = &found.issuer;
        let endpoint = found.registration_endpoint.as_ref().ok_or_else(|| {
            format!("the authorization server {issuer} registers no clients; set oauth.client_id to the id of the gateway there")
        })?;
        let none = || format!("{issuer} supports no way of {METHODS:?} to authenticate a client");
        let method = signed.or_else(|| found.auth_method(&METHODS)).ok_or_else(none)?;
        let told = metadata(base, method, key);
        let (registered, name) = (&server.grants.registered, [issuer.clone(), told.to_string()]);
        if let Some(client) = registered.lock().get(&name) {
            return Ok(client.clone());
        }
        let url = oauth_endpoint(endpoint).map_err(|why| format!("registration_endpoint of {issuer}: {why}"))?;
        let request = || Ok(own_request::post(url.clone(), "application/json", told.to_string()));
        let raw = response_of(server.http(&url), request, None).await;
        let raw = raw.map_err(|why| format!("{issuer} did not register the gateway: {why}"))?;
        let client =
            Self::registered(&raw, method).ok_or_else(|| format!("the registration at {issuer} is invalid"))?;
        let mut registered = registered.lock();
        if registered.len() < MAX_REMEMBERED {
            registered.insert(name, client.clone());
        }
        Ok(client)
    }

    fn registered(raw: &[u8], requested: &str) -> Option<Self> {
        let answer: Value = serde_json::from_slice(raw).ok()?;
        let text = |name: &str| answer[name].as_str().filter(|text| text.len() <= MAX_CREDENTIAL).map(str::to_owned);
        let method = text("token_endpoint_auth_method").unwrap_or_else(|| requested.to_owned());
        let secret = text("client_secret").filter(|_| METHODS[..2].contains(&method.as_str()));
        let is_usable = secret.is_some() || method == METHODS[2] || method == SIGNED && requested == SIGNED;
        Some(Self { id: text("client_id")?, method, secret, is_bound: false }).filter(|_| is_usable)
    }

    /// Asks for tokens.
    ///
    /// # Errors
    /// Why there are none.
    pub async fn tokens(
        &self,
        server: &AccountServer,
        (issuer, endpoint): (&str, &str),
        fields: &[(&str, &str)],
    ) -> Result<TokenResponse, OAuthFailure> {
        let url = oauth_endpoint(endpoint)?;
        // With which it registered itself, or of a public client.
        let own = ClientCredential::Secret(self.secret.clone().unwrap_or_default());
        let credential = match (self.method.as_str(), &server.credential) {
            (SIGNED, ClientCredential::Secret(_)) => return Err("oauth.private_key is missing".to_owned().into()),
            (SIGNED, key) => key,
            (method, configured @ ClientCredential::Secret(_)) if method != METHODS[2] && self.secret.is_none() => {
                configured
            }
            _ => &own,
        };
        let in_header = self.method == METHODS[0];
        let build = || form_request(&url, fields, (&self.id, issuer), credential, in_header);
        let key = self.is_bound.then_some(&server.dpop);
        let response = response_of(server.http(&url), build, key).await.inspect_err(|why| {
            if why.code == Some(INVALID_CLIENT) {
                // The gateway registers itself again when an account is connected next.
                server.grants.registered.lock().retain(|_, client| client.id != self.id);
            }
        });
        Ok(TokenResponse::parse(&response?, self.is_bound)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registration_is_used_only_if_the_gateway_can_authenticate_itself() {
        let registered = |answer: Value| OAuthClient::registered(answer.to_string().as_bytes(), "client_secret_basic");
        let client = registered(json!({ "client_id": "a", "client_secret": "s" })).unwrap();
        assert_eq!(
            (client.id.as_str(), client.method.as_str(), client.secret.as_deref()),
            ("a", METHODS[0], Some("s"))
        );
        let public = json!({ "client_id": "a", "client_secret": "s", "token_endpoint_auth_method": "none" });
        assert_eq!(registered(public).unwrap().secret, None);
        for wrong in [
            json!({ "client_id": "a" }),
            json!({ "client_secret": "s" }),
            json!({ "client_id": "a", "client_secret": "s", "token_endpoint_auth_method": "private_key_jwt" }),
            json!({ "client_id": "a".repeat(MAX_CREDENTIAL + 1), "token_endpoint_auth_method": "none" }),
        ] {
            assert_eq!(registered(wrong.clone()), None, "{wrong}");
        }
    }
}
