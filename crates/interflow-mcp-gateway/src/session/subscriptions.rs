//! Subscriptions of a session to resources, its tasks, and the URLs that its user was asked to open.

use std::sync::Arc;

use hashlink::LinkedHashMap;
use parking_lot::Mutex;

use crate::protocol::jsonrpc::RpcError;

/// Bound on subscriptions of a session to resources, on its tasks, and on the elicitations whose URLs its user was asked to
/// open: on each of the three alone.
const MAX_SUBSCRIPTIONS: usize = 1_000;

/// By server and URI or id as the server knows it; the value is the one that the client knows, redacted.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<LinkedHashMap<(Arc<str>, String), String>>);

impl Subscriptions {
    /// Remembers a subscription; `client_uri` is the URI for the client.
    ///
    /// # Errors
    /// There are too many.
    pub fn add(&self, server: &Arc<str>, uri: &str, client_uri: &str) -> Result<(), RpcError> {
        let (mut all, entry) = (self.0.lock(), (Arc::clone(server), uri.to_owned()));
        if all.len() >= MAX_SUBSCRIPTIONS && !all.contains_key(&entry) {
            return Err(RpcError::server(format!("the session has {MAX_SUBSCRIPTIONS} subscriptions already")));
        }
        all.insert(entry, client_uri.to_owned());
        Ok(())
    }

    /// As [`add`](Self::add), of a task or an elicitation by its ids; the oldest makes room.
    pub fn add_newest(&self, server: &Arc<str>, id: &str, client_id: &str) {
        let mut all = self.0.lock();
        all.insert((Arc::clone(server), id.to_owned()), client_id.to_owned());
        if all.len() > MAX_SUBSCRIPTIONS {
            all.pop_front();
        }
    }

    /// Forgets one. Returns the URI or the id for the client.
    pub fn remove(&self, server: &Arc<str>, id: &str) -> Option<String> {
        self.0.lock().remove(&(Arc::clone(server), id.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_already_needs_no_more_and_the_oldest_task_makes_room() {
        let (all, server) = (Subscriptions::default(), Arc::from("a"));
        for i in 0..MAX_SUBSCRIPTIONS {
            all.add(&server, &format!("{i:04}"), "x").unwrap();
        }
        assert!(all.add(&server, "0000", "y").is_ok() && all.add(&server, "new", "x").is_err());
        all.add_newest(&server, "new", "x");
        assert_eq!(all.of_server("a").len(), MAX_SUBSCRIPTIONS);
        let uri = |uri: &str| all.client_uri(&server, uri);
        assert_eq!([uri("0000"), uri("0001"), uri("new")], [Some("y".into()), None, Some("x".into())]);
        assert_eq!(all.remove(&Arc::from("b"), "new"), None);
        assert_eq!([all.remove(&server, "new"), all.remove(&server, "new")], [Some("x".into()), None]);
    }
}
