//! Browser sessions that ended before their time, by logout: their cookies are refused from then on, at all replicas, until
//! they would have expired. A session lives in its cookie alone, so the ends are what is kept.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_files::{FileAccess, optional, write_atomic};
use interflow_store::shared_state::IdentityStore;
use interflow_types::Timestamp;
use parking_lot::Mutex;

/// The file in the data directory.
const FILE: &str = "admin-ended-sessions.json";

enum Place {
    File(PathBuf),
    /// The database of the replicas.
    Shared(Arc<dyn IdentityStore>),
}

/// Ids of sessions, and when they would have expired, in seconds since the Unix epoch.
type SessionEnds = HashMap<String, u64>;

pub(crate) struct EndedSessions {
    place: Place,
    ends: Mutex<SessionEnds>,
    /// Those that the database does not have yet.
    unsaved: Mutex<SessionEnds>,
    /// Held while the file is written, so that an older list never replaces a newer one.
    saving: Mutex<()>,
}

impl EndedSessions {
    /// # Errors
    /// The file cannot be read.
    pub fn open(data_dir: &Path) -> Result<Self, String> {
        let path = data_dir.join(FILE);
        let read = || match optional(std::fs::read(&path))? {
            Some(text) => serde_json::from_slice(&text).map_err(io::Error::other),
            None => Ok(SessionEnds::new()),
        };
        let ends = read().map_err(|e| format!("the ended sessions in {} cannot be read: {e}", path.display()))?;
        Ok(Self::with(Place::File(path), ends))
    }

    /// # Errors
    /// The database does not answer.
    pub fn open_shared(store: Arc<dyn IdentityStore>) -> Result<Self, String> {
        let sessions = Self::with(Place::Shared(store), SessionEnds::new());
        sessions.refresh().map_err(|e| format!("the ended sessions cannot be read: {e}"))?;
        Ok(sessions)
    }

    fn with(place: Place, ends: SessionEnds) -> Self {
        Self { place, ends: Mutex::new(ends), unsaved: Mutex::default(), saving: Mutex::default() }
    }

    pub fn is_ended(&self, id: &str) -> bool {
        self.ends.lock().contains_key(id)
    }

    /// Ends a session that would expire then. It has ended here even if it cannot be saved. Blocks.
    ///
    /// # Errors
    /// It cannot be saved: other replicas learn of it later, and after a restart its cookie is valid again.
    pub fn end(&self, id: &str, expiry: u64) -> io::Result<()> {
        self.ends.lock().insert(id.to_owned(), expiry);
        match &self.place {
            Place::File(path) => {
                let _saving = self.saving.lock();
                let text = {
                    let mut ends = self.ends.lock();
                    retain_valid(&mut ends);
                    serde_json::to_vec_pretty(&*ends).map_err(io::Error::other)?
                };
                write_atomic(path, &text, FileAccess::Private)
            }
            Place::Shared(store) => {
                self.unsaved.lock().insert(id.to_owned(), expiry);
                self.save(&**store)
            }
        }
    }

    fn save(&self, store: &dyn IdentityStore) -> io::Result<()> {
        let unsaved = self.unsaved.lock().clone();
        for (id, expiry) in unsaved {
            store.end_session(&id, expiry).map_err(io::Error::other)?;
            self.unsaved.lock().remove(&id);
        }
        Ok(())
    }

    /// Learns what ended at other replicas, and tells them what they do not know yet. Blocks.
    ///
    /// # Errors
    /// The database does not answer.
    pub fn refresh(&self) -> io::Result<()> {
        let Place::Shared(store) = &self.place else { return Ok(()) };
        self.save(&**store)?;
        let stored = store.ended_sessions().map_err(io::Error::other)?;
        let mut ends = self.ends.lock();
        ends.extend(stored);
        retain_valid(&mut ends);
        Ok(())
    }
}

fn retain_valid(ends: &mut SessionEnds) {
    let now = Timestamp::now().secs();
    ends.retain(|_, expiry| *expiry > now);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_outlives_a_restart_and_not_the_session() {
        let dir = tempfile::tempdir().unwrap();
        let sessions = EndedSessions::open(dir.path()).unwrap();
        let now = Timestamp::now().secs();
        sessions.end("over", now).unwrap();
        sessions.end("ended", now + 3600).unwrap();
        assert!(sessions.is_ended("ended") && !sessions.is_ended("other"));
        let again = EndedSessions::open(dir.path()).unwrap();
        assert!(again.is_ended("ended") && !again.is_ended("over"));
        std::fs::write(dir.path().join(FILE), "no list").unwrap();
        assert!(EndedSessions::open(dir.path()).err().unwrap().contains(FILE));
    }
}
