//! Sends the requests of a user to a server with the token that was granted for them, and renews it. Where there is none,
//! the user has to connect their account first.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use interflow_types::{Error, ErrorKind, Request, Response, Result, StatusCode};
use parking_lot::Mutex;

use super::link::account_needed;
use super::user::AccountUser;
use super::vault::Grant;
use super::{AccountServer, add_missing};
use crate::protocol::challenge::Challenge;
use crate::protocol::dpop::{copy_of, send_authorized};
use crate::protocol::oauth_form::{INVALID_CLIENT, INVALID_GRANT};

/// A server, and what renews tokens for it, one request at a time for each user.
pub(crate) struct AccountClient {
    pub server: AccountServer,
    /// Those under way, by user.
    renewals: Mutex<HashMap<Arc<str>, Renewal>>,
}

type Renewed = std::result::Result<Option<Grant>, (ErrorKind, String)>;
type Renewal = Shared<BoxFuture<'static, Renewed>>;

impl AccountClient {
    pub fn new(server: AccountServer) -> Arc<Self> {
        Arc::new(Self { server, renewals: Mutex::default() })
    }

    /// Sends a request of a user. `note` is told by which secrets it is authorized.
    pub async fn send(
        self: &Arc<Self>,
        request: Request,
        user: Option<&Arc<AccountUser>>,
        note: &(dyn Fn(&[&str]) + Sync),
    ) -> Result<Response> {
        let user = user.ok_or_else(|| {
            let message = "each user has an account there, and nothing says who this is: show a virtual key or an access \
                           token, and have the operator set mcp.public_url";
            Error::new(ErrorKind::BadResponse, message)
        })?;
        let http = &self.server.grants.http;
        let grant = match self.server.grant(user).await.map_err(|why| Error::new(ErrorKind::Internal, why))? {
            Some(grant) if grant.is_stale() => self.renewed(user, grant).await?,
            grant => grant,
        };
        let Some(grant) = grant else {
            // It may serve some requests of anybody.
            return self.checked(user, None, http.send(request).await?);
        };
        let again = copy_of(&request);
        let response = self.send_granted(&grant, request, note).await?;
        if response.head.status != StatusCode::UNAUTHORIZED {
            return self.checked(user, Some(&grant), response);
        }
        let (Some(renewed), Some(again)) = (self.renewed(user, grant).await?, again) else {
            return self.checked(user, None, response);
        };
        let response = self.send_granted(&renewed, again, note).await?;
        self.checked(user, Some(&renewed), response)
    }

    async fn send_granted(&self, grant: &Grant, request: Request, note: &(dyn Fn(&[&str]) + Sync)) -> Result<Response> {
        let renewing = [&grant.refresh_token, &grant.client.secret].map(|own| own.as_deref().unwrap_or_default());
        note(&[&*grant.access_token, renewing[0], renewing[1]]);
        let key = grant.client.is_bound.then_some(&self.server.dpop);
        send_authorized(&*self.server.grants.http, request, &grant.access_token, key).await
    }

    /// A response that does not ask for more than was granted. What was asked for already is not asked for again: the
    /// authorization server, or the user, did not grant it.
    fn checked(&self, user: &AccountUser, grant: Option<&Grant>, response: Response) -> Result<Response> {
        let (mut challenge, error) = Challenge::of(&response.head.headers);
        match (response.head.status, grant) {
            (StatusCode::UNAUTHORIZED, _) => {}
            (StatusCode::FORBIDDEN, Some(grant)) if error.as_deref() == Some("insufficient_scope") => {
                if challenge.scopes.iter().all(|scope| grant.scopes.contains(scope)) {
                    let message =
                        "the account of the user there was not granted the scopes that it needs; connect another one";
                    return Err(Error::new(ErrorKind::BadResponse, message));
                }
                add_missing(&mut challenge.scopes, &grant.scopes);
                challenge.needs_proof |= grant.client.is_bound;
            }
            _ => return Ok(response),
        }
        Err(account_needed(&self.server, user, challenge))
    }

    /// The grant with another token; `None` if the user has to connect their account again. Requests at the same time wait
    /// for one renewal and share what comes of it.
    ///
    /// # Cancellation
    /// The renewal goes on: a client that gives up must not lose a token that is of use only once.
    async fn renewed(self: &Arc<Self>, user: &Arc<AccountUser>, old: Grant) -> Result<Option<Grant>> {
        let renewal = {
            let mut renewals = self.renewals.lock();
            renewals.entry(Arc::clone(&user.name)).or_insert_with(|| self.begin_renewal(user, old)).clone()
        };
        renewal.await.map_err(|(kind, message)| Error::new(kind, message))
    }

    fn begin_renewal(self: &Arc<Self>, user: &Arc<AccountUser>, old: Grant) -> Renewal {
        let (client, user) = (Arc::clone(self), Arc::clone(user));
        let task = tokio::spawn(async move {
            let renewed = AssertUnwindSafe(client.renew(&user, old)).catch_unwind().await;
            client.renewals.lock().remove(&user.name);
            renewed.unwrap_or_else(|_| Err(internal("the renewal ended by a fault of the gateway".to_owned())))
        });
        async move { task.await.unwrap_or_else(|e| Err(internal(e.to_string()))) }.boxed().shared()
    }

    async fn renew(&self, user: &AccountUser, old: Grant) -> Renewed {
        let (server, vault) = (&self.server, &self.server.grants.vault);
        // Another replica may have renewed it.
        let (stored, grant) = match vault.stored(user, &server.name).await.map_err(internal)? {
            Some((stored, same)) if same == old => (stored, same),
            _ => return server.grant(user).await.map_err(internal),
        };
        let Some(refresh_token) = grant.refresh_token.clone() else {
            vault.replace(stored, None).await.map_err(internal)?;
            return Ok(None);
        };
        let fields =
            [("grant_type", "refresh_token"), ("refresh_token", &*refresh_token), ("resource", &*grant.resource)];
        // A gateway that registered itself may be forgotten.
        let is_registered = grant.client.id != server.config.id();
        let renewed = match grant.client.tokens(server, (&grant.issuer, &grant.token_endpoint), &fields).await {
            Ok(response) => {
                let expires = response.expires().map(|seconds| super::now().saturating_add(seconds));
                let refresh_token = response.refresh_token.or(Some(refresh_token));
                Some(Grant { access_token: response.access_token, expires, refresh_token, ..grant })
            }
            Err(why) if why.code == Some(INVALID_GRANT) || is_registered && why.code == Some(INVALID_CLIENT) => {
                tracing::info!(server = &*server.name, "refresh token refused; account removed");
                None
            }
            Err(why) => {
                let message = format!("the access token of the user was not renewed by {}: {why}", grant.issuer);
                return Err((ErrorKind::BadResponse, message));
            }
        };
        match vault.replace(stored, renewed.as_ref()).await.map_err(internal)? {
            true => Ok(renewed),
            // The user disconnected the account or connected another one, or another replica was faster.
            false => server.grant(user).await.map_err(internal),
        }
    }
}

fn internal(why: String) -> (ErrorKind, String) {
    (ErrorKind::Internal, why)
}
