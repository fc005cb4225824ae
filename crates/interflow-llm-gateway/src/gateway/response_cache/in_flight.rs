//! Equal requests at the same time: the first is sent, and the others wait for its response.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::entry::StoredResponse;
use super::key::CacheKey;

/// The longest that a request waits for an equal one. It is then sent, too.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The requests that others may wait for.
#[derive(Default)]
pub(super) struct InFlight(Mutex<HashMap<CacheKey, watch::Receiver<Progress>>>);

#[derive(Clone, Default)]
enum Progress {
    #[default]
    Running,
    Stored(StoredResponse),
    /// It failed, or its response is not one to repeat.
    NotShared,
}

/// The place of a request among equal ones.
pub(super) enum Place {
    First(Leader),
    Behind(Follower),
}

/// The request that is sent. Dropped before its response is known, as when its client leaves, the next one takes its
/// place.
pub(crate) struct Leader {
    all: Arc<InFlight>,
    key: CacheKey,
    progress: watch::Sender<Progress>,
}

pub(super) struct Follower(watch::Receiver<Progress>);

/// What a follower gets.
pub(super) enum Outcome {
    Response(StoredResponse),
    /// It has to be sent itself.
    NotShared,
    /// The first one's client left.
    Abandoned,
}

impl InFlight {
    pub fn join(self: &Arc<Self>, key: CacheKey) -> Place {
        let mut all = self.0.lock();
        if let Some(running) = all.get(&key) {
            return Place::Behind(Follower(running.clone()));
        }
        let (progress, running) = watch::channel(Progress::Running);
        all.insert(key, running);
        Place::First(Leader { all: Arc::clone(self), key, progress })
    }
}

impl Leader {
    /// The response of all that wait.
    pub fn share(self, response: StoredResponse) {
        self.progress.send_replace(Progress::Stored(response));
    }

    /// Lets the others go on alone: a failure is not shared.
    pub fn release(self) {
        self.progress.send_replace(Progress::NotShared);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.key);
    }
}

impl Follower {
    pub async fn wait(mut self) -> Outcome {
        let ended = self.0.wait_for(|progress| !matches!(progress, Progress::Running));
        match tokio::time::timeout(MAX_WAIT, ended).await {
            Ok(Ok(progress)) => match &*progress {
                Progress::Stored(response) => Outcome::Response(response.clone()),
                _ => Outcome::NotShared,
            },
            Ok(Err(_)) => Outcome::Abandoned,
            Err(_) => Outcome::NotShared,
        }
    }
}
