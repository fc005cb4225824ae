//! Where, and when, a stream of a server is resumed.

use std::time::Duration;

/// Bound on the id of an event, in bytes.
const MAX_EVENT_ID: usize = 1024;
/// The pause before a stream is opened again, unless the server names another, and bounds on it.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);
const RECONNECT_BOUNDS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(60)];

/// Where a stream can be resumed.
pub(super) struct Resumption {
    pub last_event: Option<String>,
    pub pause: Duration,
}

impl Default for Resumption {
    fn default() -> Self {
        Self { last_event: None, pause: RECONNECT_PAUSE }
    }
}

impl Resumption {
    pub fn note(&mut self, id: Option<&String>, retry: Option<u64>) {
        if let Some(id) = id.filter(|id| id.len() <= MAX_EVENT_ID) {
            self.last_event = Some(id.clone());
        }
        if let Some(retry) = retry {
            self.pause = Duration::from_millis(retry).clamp(RECONNECT_BOUNDS[0], RECONNECT_BOUNDS[1]);
        }
    }
}
