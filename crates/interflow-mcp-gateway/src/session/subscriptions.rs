//! Subscriptions of a session to resources, and its tasks.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::jsonrpc::RpcError;

/// Bound on subscriptions of a session to resources, and on its tasks.
const MAX_SUBSCRIPTIONS: usize = 1_000;

/// By server and URI as the server knows it; the value is the URI as the client's was redacted.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<HashMap<(Arc<str>, String), String>>);

impl Subscriptions {
    /// Remembers a subscription; `client_uri` is the URI for the client.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&self, server: &Arc<str>, uri: &str, client_uri: &str) -> Result<(), RpcError> {
        let mut all = self.0.lock();
        if all.len() >= MAX_SUBSCRIPTIONS {
            return Err(RpcError::server(format!(
                "the session has {MAX_SUBSCRIPTIONS} subscriptions or tasks already"
            )));
        }
        all.insert((Arc::clone(server), uri.to_owned()), client_uri.to_owned());
        Ok(())
    }

    pub fn remove(&self, server: &Arc<str>, uri: &str) {
        self.0.lock().remove(&(Arc::clone(server), uri.to_owned()));
    }

    /// The URIs of a server's resources, as it knows them.
    pub fn of_server(&self, server: &str) -> Vec<String> {
        let all = self.0.lock();
        let mut uris: Vec<_> = all.keys().filter(|(owner, _)| **owner == *server).map(|(_, uri)| uri.clone()).collect();
        uris.sort_unstable();
        uris
    }

    /// What the client knows them by, of all servers.
    pub fn for_client(&self) -> Vec<String> {
        self.0.lock().values().cloned().collect()
    }

    /// The URI for the client of a resource that it subscribed to.
    pub fn client_uri(&self, server: &Arc<str>, uri: &str) -> Option<String> {
        self.0.lock().get(&(Arc::clone(server), uri.to_owned())).cloned()
    }
}
