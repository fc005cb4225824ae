//! What is known of the capabilities of a server.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

/// How long a server that failed is taken to have nothing, without being asked again.
const RETRY: Duration = Duration::from_secs(30);

/// What a server declared the last time that a session with it began; `None` if it failed.
#[derive(Default)]
pub(crate) struct KnownCapabilities(Mutex<Option<(Option<Value>, Instant)>>);

impl KnownCapabilities {
    pub fn record(&self, capabilities: Option<Value>) {
        *self.0.lock() = Some((capabilities, Instant::now()));
    }

    /// What is known; `None` if the server has to be asked.
    pub fn get(&self) -> Option<Value> {
        match &*self.0.lock() {
            Some((Some(capabilities), _)) => Some(capabilities.clone()),
            Some((None, at)) if at.elapsed() < RETRY => Some(Value::Null),
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
        let capabilities = KnownCapabilities::default();
        assert_eq!(capabilities.get(), None);
        capabilities.record(None);
        assert_eq!(capabilities.get(), Some(Value::Null));
        capabilities.record(Some(json!({ "logging": {} })));
        assert_eq!(capabilities.get(), Some(json!({ "logging": {} })));
    }
}
