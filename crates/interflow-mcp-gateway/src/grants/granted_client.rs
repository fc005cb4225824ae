//! Sends the requests of a user to a server with the token that was granted for them, and renews it. Where there is none,
//! the user has to connect their account first.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use interflow_types::{Error, ErrorKind, HttpClient, Request, Response, ResponseFuture, Result, StatusCode};
use parking_lot::Mutex;

use super::authorization_server::Challenge;
use super::link::account_needed;
use super::user::AccountUser;
use super::vault::Grant;
use super::{AccountServer, MAX_REMEMBERED, add_missing};
use crate::protocol::oauth_form::INVALID_GRANT;
use crate::upstream::access_tokens::{authorized, copy_of};

/// A server, and what renews tokens for it, one request at a time for each user.
pub(crate) struct AccountClient {
    pub server: AccountServer,
    renewals: Mutex<HashMap<Arc<str>, Weak<tokio::sync::Mutex<()>>>>,
}

/// For the requests of a user.
struct UserClient(Arc<AccountClient>, Option<Arc<AccountUser>>);

impl AccountClient {
    pub fn new(server: AccountServer) -> Arc<Self> {
        Arc::new(Self { server, renewals: Mutex::default() })
    }

    /// A client for the requests of a user.
    pub fn of_user(self: &Arc<Self>, user: Option<Arc<AccountUser>>) -> Arc<dyn HttpClient> {
        Arc::new(UserClient(Arc::clone(self), user))
    }

    async fn send(&self, user: &AccountUser, request: Request) -> Result<Response> {
        let http = &self.server.grants.http;
        let grant = match self.stored(user).await? {
            Some(grant) if grant.is_stale() => self.renewed(user, grant).await?,
            grant => grant,
        };
        let Some(grant) = grant else {
            // It may serve some requests of anybody.
            return self.checked(user, None, http.send(request).await?);
        };
        let Request { head, body } = request;
        let again = copy_of(&body);
        let response = http.send(Request { head: authorized(&head, &grant.access_token), body }).await?;
        if response.head.status != StatusCode::UNAUTHORIZED {
            return self.checked(user, Some(&grant), response);
        }
        let (Some(renewed), Some(body)) = (self.renewed(user, grant).await?, again) else {
            return self.checked(user, None, response);
        };
        let response = http.send(Request { head: authorized(&head, &renewed.access_token), body }).await?;
        self.checked(user, Some(&renewed), response)
    }
    /// A response that does not ask for more than was granted. What was asked for already is not asked for again: the
    /// authorization server, or the user, did not grant it.
    fn checked(&self, user: &AccountUser, grant: Option<&Grant>, response: Response) -> Result<Response> {
        let field = response.head.headers.get_str("www-authenticate").unwrap_or_default();
        let mut challenge = Challenge::parse(field);
        match (response.head.status, grant) {
            (StatusCode::UNAUTHORIZED, _) => {}
            (StatusCode::FORBIDDEN, Some(grant)) if Challenge::is_of_scope(field) => {
                if challenge.scopes.iter().all(|scope| grant.scopes.contains(scope)) {
                    let message =
                        "the account of the user there was not granted the scopes that it needs; connect another one";
                    return Err(Error::new(ErrorKind::BadResponse, message));
                }
                add_missing(&mut challenge.scopes, &grant.scopes);
            }
            _ => return Ok(response),
        }
        Err(account_needed(&self.server, user, challenge))
    }

    async fn stored(&self, user: &AccountUser) -> Result<Option<Grant>> {
        self.server.grants.vault.grant(user, &self.server.name).await.map_err(internal)
    }

    /// The grant with another token; `None` if the user has to connect their account again.
    async fn renewed(&self, user: &AccountUser, old: Grant) -> Result<Option<Grant>> {
        let (server, renewal) = (&self.server, self.renewal(&user.name));
        let _alone = renewal.lock().await;
        // Another request, or another replica, may have renewed it.
        let grant = match self.stored(user).await? {
            Some(same) if same == old => same,
            other => return Ok(other),
        };
        let Some(refresh_token) = grant.refresh_token.clone() else {
            server.grants.vault.remove(&user.name, &server.name).await.map_err(internal)?;
            return Ok(None);
        };
        let fields =
            [("grant_type", "refresh_token"), ("refresh_token", &*refresh_token), ("resource", &*grant.resource)];
        let renewed = match grant.client.tokens(server, &grant.token_endpoint, &fields).await {
            Ok(response) => Grant {
                access_token: response.access_token,
                expires: response.expires_in.map(|seconds| super::now().saturating_add(seconds)),
                refresh_token: response.refresh_token.or(Some(refresh_token)),
                ..grant
            },
            Err(why) if why.contains(INVALID_GRANT) => {
                // Unless another replica was faster, and the token was of use once only.
                let other = self.stored(user).await?.filter(|latest| *latest != grant);
                if other.is_none() {
                    tracing::info!(server = &*server.name, "refresh token refused; account removed");
                    server.grants.vault.remove(&user.name, &server.name).await.map_err(internal)?;
                }
                return Ok(other);
            }
            Err(why) => {
                let message = format!("the access token of the user was not renewed by {}: {why}", grant.issuer);
                return Err(Error::new(ErrorKind::BadResponse, message));
            }
        };
        server.grants.vault.put(&user.name, &server.name, &renewed).await.map_err(internal)?;
        Ok(Some(renewed))
    }

    fn renewal(&self, user: &Arc<str>) -> Arc<tokio::sync::Mutex<()>> {
        let mut renewals = self.renewals.lock();
        if let Some(renewal) = renewals.get(user).and_then(Weak::upgrade) {
            return renewal;
        }
        if renewals.len() >= MAX_REMEMBERED {
            renewals.retain(|_, renewal| renewal.strong_count() > 0);
        }
        let renewal = Arc::default();
        renewals.insert(Arc::clone(user), Arc::downgrade(&renewal));
        renewal
    }
}

fn internal(why: String) -> Error {
    Error::new(ErrorKind::Internal, why)
}

impl HttpClient for UserClient {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let unknown = || {
                let message = "each user has an account there, and nothing says who this is: show a virtual key or an \
                               access token, and have the operator set mcp.public_url";
                Error::new(ErrorKind::BadResponse, message)
            };
            self.0.send(self.1.as_deref().ok_or_else(unknown)?, request).await
        })
    }
}
