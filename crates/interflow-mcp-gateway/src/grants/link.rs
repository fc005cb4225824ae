//! Links with which users connect their accounts.

use std::time::Duration;

use interflow_types::{Error, ErrorKind, Timestamp, random_token};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::user::AccountUser;
use super::vault::Grant;
use super::{AccountServer, Grants, LINK_PATH, now};
use crate::protocol::challenge::Challenge;
use crate::protocol::jsonrpc::{RpcError, URL_ELICITATION_REQUIRED};
use crate::session::request_state::StateBinding;

/// How long a link can be opened.
const LIFETIME: Duration = Duration::from_secs(600);

/// What a link is for. The user has it sealed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Link {
    pub user: String,
    pub server: String,
    pub base: String,
    pub challenge: Challenge,
    /// It can be used once.
    pub id: String,
    created: Timestamp,
}

/// An account has to be connected; with the link for it.
#[derive(Debug, thiserror::Error)]
#[error("the user's account there is not connected")]
struct AccountNeeded {
    url: String,
}

fn binding() -> StateBinding {
    StateBinding::new("", "", "account link", "")
}

impl Link {
    pub fn new(server: &AccountServer, user: &AccountUser, challenge: Challenge) -> Self {
        let (user, base) = (user.name.to_string(), user.base.to_string());
        // A clock that is set back must not make links look older than the gateway.
        let (id, created) = (random_token(), Timestamp::now().max(server.grants.started));
        Self { user, server: server.name.to_string(), base, challenge, id, created }
    }

    pub fn open(grants: &Grants, sealed: &str) -> Option<Self> {
        grants.sealer.open_value(sealed, &binding()).filter(|link: &Self| link.is_current(grants))
    }

    /// Whether it has not expired. Which links were used before the gateway started is not known.
    pub fn is_current(&self, grants: &Grants) -> bool {
        self.expires() > now() && self.created >= grants.started
    }

    /// In seconds since 1970.
    pub fn expires(&self) -> u64 {
        self.created.secs() + LIFETIME.as_secs()
    }

    /// Whether an account was connected after it was made, perhaps with it and at another replica.
    pub fn is_older(&self, grant: &Grant) -> bool {
        self.created.secs() < grant.connected
    }

    /// # Errors
    /// It cannot be sealed, here and below.
    pub fn token(&self, grants: &Grants) -> Result<String, RpcError> {
        grants.sealer.seal_value(self, &binding())
    }

    pub fn url(&self, grants: &Grants) -> Result<String, RpcError> {
        // `token` is masked wherever URLs are shown.
        Ok(format!("{}{LINK_PATH}?token={}", self.base, self.token(grants)?))
    }
}

/// The error of a request for which the account has to be connected, or has to be granted more.
pub(crate) fn account_needed(server: &AccountServer, user: &AccountUser, challenge: Challenge) -> Error {
    match Link::new(server, user, challenge).url(&server.grants) {
        Ok(url) => Error::new(ErrorKind::BadResponse, "an account is needed").with_source(AccountNeeded { url }),
        Err(e) => Error::new(ErrorKind::Internal, e.message),
    }
}

/// The error of a request to a server.
pub(crate) fn request_error(error: &Error) -> RpcError {
    match std::error::Error::source(error).and_then(|source| source.downcast_ref::<AccountNeeded>()) {
        Some(needed) => link_error(&needed.url),
        None => RpcError::server(error.to_string()),
    }
}

/// The error that asks the user to open a link. Its data are the gateway's own, which nothing redacts.
pub(crate) fn link_error(url: &str) -> RpcError {
    let message = format!("the user has to connect their account there; have them open {url}");
    let elicitation = json!({ "mode": "url", "url": url, "elicitationId": random_token(),
        "message": "Connect your account, so that the gateway can use the server for you." });
    let data = Some(Box::new(json!({ "elicitations": [elicitation] })));
    RpcError { data, ..RpcError::new(URL_ELICITATION_REQUIRED, message) }
}

impl RpcError {
    /// Whether it has a link of the gateway.
    pub fn has_own_link(&self) -> bool {
        self.code == URL_ELICITATION_REQUIRED && self.data.is_some()
    }
}
