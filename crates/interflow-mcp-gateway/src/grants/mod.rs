//! Accounts of users at servers: each user lets the gateway act for them at a server, in a browser, and the server's
//! authorization server grants it tokens (RFC 6749, section 4.1; MCP 2026-07-28, authorization). The tokens stay here: a
//! client sees none of them.

mod authorization;
pub(crate) mod authorization_server;
pub(crate) mod connect_tool;
pub(crate) mod granted_client;
pub(crate) mod link;
pub(crate) mod link_answer;
mod oauth_client;
mod page;
pub(crate) mod pages;
pub(crate) mod user;
pub(crate) mod vault;

use std::collections::HashMap;
use std::sync::Arc;

use interflow_limits::VirtualKeyRing;
use interflow_types::{HttpClient, Timestamp, Url};
use parking_lot::Mutex;

use self::authorization_server::Discovered;
use self::oauth_client::OAuthClient;
use self::user::AccountUser;
use self::vault::{Grant, GrantVault};
use crate::config::{McpClientCredentials, is_local};
use crate::protocol::challenge::Challenge;
use crate::protocol::client_key::ClientCredential;
use crate::protocol::dpop::DpopKey;
use crate::session::request_state::{StateSealer, now};

/// Bound on the clients that are remembered as registered, and on the links and responses that are remembered as used: of
/// all users, and of one.
const MAX_REMEMBERED: usize = 10_000;
const MAX_USED_BY_ONE: usize = 100;

/// Where the pages are on the gateway listener.
const PATH: &str = "/mcp-accounts";
const LINK_PATH: &str = "/mcp-accounts/link";
const CALLBACK_PATH: &str = "/mcp-accounts/callback";
/// The metadata of the gateway as a client.
const DOCUMENT_PATH: &str = "/mcp-accounts/client.json";
/// As it is with a private key, by the name of the server that it is configured for.
const KEY_DOCUMENTS: &str = "/mcp-accounts/clients/";
/// The scope of tokens that are renewed while the user is away.
const OFFLINE: &str = "offline_access";

/// The keys of the gateway at present.
pub type KeyRingSource = Arc<dyn Fn() -> Arc<VirtualKeyRing> + Send + Sync>;

/// What all servers at which users have accounts share.
pub(crate) struct Grants {
    pub vault: GrantVault,
    pub sealer: Arc<StateSealer>,
    started: Timestamp,
    /// The secret of the installation.
    pub master: [u8; 32],
    /// For URLs that the operator named.
    pub http: Arc<dyn HttpClient>,
    /// For URLs that servers name.
    discovered: Arc<dyn HttpClient>,
    /// As what the gateway is registered, by what it is told the issuer and by that.
    registered: Mutex<HashMap<[String; 2], OAuthClient>>,
    /// The hashes of what is of use only once, and when it expires.
    used: Mutex<HashMap<blake3::Hash, (u64, String)>>,
}

/// A server at which users have accounts.
pub(crate) struct AccountServer {
    pub grants: Arc<Grants>,
    pub name: Arc<str>,
    pub url: Url,
    pub config: McpClientCredentials,
    credential: ClientCredential,
    /// For tokens that are bound.
    dpop: DpopKey,
}

impl Grants {
    pub fn new(
        vault: GrantVault,
        sealer: Arc<StateSealer>,
        master: [u8; 32],
        http: Arc<dyn HttpClient>,
        discovered: Arc<dyn HttpClient>,
    ) -> Arc<Self> {
        let (registered, used) = Default::default();
        Arc::new(Self { vault, sealer, started: Timestamp::now(), master, http, discovered, registered, used })
    }

    fn is_used(&self, id: &str) -> bool {
        self.used.lock().contains_key(&blake3::hash(id.as_bytes()))
    }

    /// Notes that something was used by a user; `false` if it was before, or if they used too many.
    pub fn use_once(&self, id: &str, user: &str, expires: u64) -> bool {
        let (mut used, now) = (self.used.lock(), now());
        used.retain(|_, (expires, _)| *expires > now);
        let is_full =
            used.len() >= MAX_REMEMBERED || used.values().filter(|(_, other)| other == user).count() >= MAX_USED_BY_ONE;
        !is_full && used.insert(blake3::hash(id.as_bytes()), (expires, user.to_owned())).is_none()
    }
}

/// Adds those of the scopes that are not among the others.
fn add_missing(scopes: &mut Vec<String>, more: &[String]) {
    for scope in more {
        if !scopes.contains(scope) {
            scopes.push(scope.clone());
        }
    }
}

impl AccountServer {
    pub fn new(
        grants: &Arc<Grants>,
        name: &str,
        url: Url,
        config: &McpClientCredentials,
        credential: ClientCredential,
    ) -> Result<Self, String> {
        let (grants, dpop) = (Arc::clone(grants), DpopKey::derive(&grants.master, name)?);
        Ok(Self { grants, name: name.into(), url, config: config.clone(), credential, dpop })
    }

    /// What a user granted. A token that is not bound, from before `dpop` was set, is not used.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn grant(&self, user: &AccountUser) -> Result<Option<Grant>, String> {
        let grant = self.grants.vault.grant(user, &self.name).await?;
        Ok(grant.filter(|grant| grant.client.is_bound || !self.config.dpop))
    }

    /// The scopes to ask for: those that the server demands, or else all that it has, and those of the configuration.
    fn scopes(&self, challenge: &Challenge, discovered: &Discovered) -> Vec<String> {
        let mut scopes = self.config.scopes.clone();
        let demanded =
            if challenge.scopes.is_empty() && scopes.is_empty() { &discovered.scopes } else { &challenge.scopes };
        add_missing(&mut scopes, demanded);
        // Alone, it would take the place of the scopes that a token has by default.
        if !scopes.is_empty() && discovered.server.scopes.iter().any(|scope| scope == OFFLINE) {
            add_missing(&mut scopes, &[OFFLINE.to_owned()]);
        }
        scopes
    }

    /// The client for a URL that the server, or its authorization server, named. Only what the operator named may be in a
    /// private network.
    fn http(&self, url: &Url) -> &dyn HttpClient {
        let issuer = self.config.issuer.as_deref().and_then(|issuer| Url::of_service(issuer).ok());
        let is_named = url.authority == self.url.authority || issuer.is_some_and(|own| own.authority == url.authority);
        let is_near = is_local(url) && is_local(&self.url);
        if is_named || is_near { &*self.grants.http } else { &*self.grants.discovered }
    }
}
