//! What is known of a server.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::server_hello::ServerHello;

/// How long a server that failed is taken to have nothing, without being asked again.
const RETRY: Duration = Duration::from_secs(30);

/// What a server said the last time that it was greeted; `None` if it failed.
#[derive(Default)]
pub(crate) struct KnownCapabilities(Mutex<Option<(Option<ServerHello>, Instant)>>);

impl KnownCapabilities {
    pub fn record(&self, hello: Option<ServerHello>) {
        *self.0.lock() = Some((hello, Instant::now()));
    }

    /// What is known; `None` if the server has to be asked.
    pub fn get(&self) -> Option<ServerHello> {
        match &*self.0.lock() {
            Some((Some(hello), _)) => Some(hello.clone()),
            Some((None, at)) if at.elapsed() < RETRY => Some(ServerHello::default()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_that_failed_is_not_asked_again_at_once() {
        let hello = json!({ "supportedVersions": ["2026-07-28"], "capabilities": { "logging": {} } });
        let capabilities = KnownCapabilities::default();
        assert!(capabilities.get().is_none());
        capabilities.record(None);
        assert!(!capabilities.get().unwrap().offers("logging"));
        capabilities.record(ServerHello::parse_discovery(&hello.to_string()));
        assert!(capabilities.get().unwrap().offers("logging"));
    }
}
