//! The URLs that a client was sent for its user.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// Bound on the elicitations that a session remembers.
const MAX_REMEMBERED: usize = 256;

/// The elicitations that a client was sent: the server, the id there, and the id as the client was sent it, redacted.
#[derive(Default)]
pub(crate) struct SentElicitations(Mutex<VecDeque<(Arc<str>, String, String)>>);

impl SentElicitations {
    pub fn remember(&self, server: &Arc<str>, id: &str, client_id: &str) {
        let mut all = self.0.lock();
        if all.len() >= MAX_REMEMBERED {
            all.pop_front();
        }
        all.push_back((Arc::clone(server), id.to_owned(), client_id.to_owned()));
    }

    /// The id for the client of an elicitation that is complete now.
    pub fn take(&self, server: &Arc<str>, id: &str) -> Option<String> {
        let mut all = self.0.lock();
        let at = all.iter().position(|(owner, sent, _)| owner == server && sent == id)?;
        all.remove(at).map(|(_, _, client_id)| client_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_elicitation_is_complete_once_and_for_its_server() {
        let (all, a, b) = (SentElicitations::default(), Arc::from("a"), Arc::from("b"));
        all.remember(&a, "1", "x");
        assert_eq!(all.take(&b, "1"), None);
        assert_eq!(all.take(&a, "1").as_deref(), Some("x"));
        assert_eq!(all.take(&a, "1"), None);
        (0..=MAX_REMEMBERED).for_each(|n| all.remember(&a, &n.to_string(), "x"));
        assert_eq!(all.take(&a, "0"), None, "the oldest made room");
    }
}
