//! The user of a request, as accounts are kept for them, and where their browser reaches the gateway.

use std::sync::Arc;

use interflow_limits::{KeyContext, VirtualKey};
use interflow_types::{Flow, Url};

use super::authorization_server::origin_of;
use crate::config::is_local;

/// What the names of users begin with, by what they showed.
pub(crate) const KEY: &str = "key:";
/// The subject of an access token.
pub(crate) const SUBJECT: &str = "user:";
/// Nothing was shown, from this machine.
pub(crate) const LOCAL: &str = "local";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AccountUser {
    pub name: Arc<str>,
    /// When their key was made, in seconds since 1970: accounts that are older are of another key with its id.
    pub since: u64,
    /// Where browsers reach the gateway.
    pub base: Arc<str>,
}

/// The name of the user who has a key.
pub(crate) fn of_key(key: &VirtualKey) -> (String, u64) {
    let since = key.created.map_or(0, |created| u64::try_from(created.as_second()).unwrap_or_default());
    (format!("{KEY}{}", key.id), since)
}

impl AccountUser {
    /// Whether two requests are of one user, wherever they come from.
    pub fn is_same(one: Option<&Arc<Self>>, other: Option<&Arc<Self>>) -> bool {
        one.map(|user| (&user.name, user.since)) == other.map(|user| (&user.name, user.since))
    }

    /// The user of a request, with the subject of its access token; `is_forwarded` by a reverse proxy. `None` if nothing
    /// tells one user of the gateway from another.
    pub fn of(flow: &Flow, subject: Option<&str>, public_url: Option<&str>, is_forwarded: bool) -> Option<Arc<Self>> {
        let url = Url { scheme: flow.scheme, authority: flow.authority.clone(), path: "/".into() };
        let base = public_url.map(str::to_owned).or_else(|| is_local(&url).then(|| origin_of(&url)))?;
        let key = flow.extension::<KeyContext>().and_then(|context| context.key.as_ref());
        let is_near = flow.client.peer.ip().is_loopback() && is_near(&base) && !is_forwarded;
        let (name, since) = match (key, subject) {
            (Some(key), _) => of_key(key),
            (None, Some(subject)) => (format!("{SUBJECT}{subject}"), 0),
            (None, None) if is_near && flow.user.is_none() => (LOCAL.to_owned(), 0),
            (None, None) => return None,
        };
        Some(Arc::new(Self { name: name.into(), since, base: base.into() }))
    }
}

/// Whether only browsers of this machine reach an address.
pub(crate) fn is_near(base: &str) -> bool {
    Url::of_service(base).is_ok_and(|url| is_local(&url))
}
