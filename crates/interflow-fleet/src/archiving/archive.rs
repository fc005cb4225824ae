//! Which replica writes the archive of the record, and how far it is.
//!
//! One process at a time archives to a place: the one that is named in the place's row of `archives`, until the time that it
//! renews. It stores how far it is in that row, and only while it is named there. Whoever takes over begins a new epoch.
//! A process that was suspended and wakes up too late still believes that it archives: its files have its own epoch in their
//! names, so that they replace none of its successor's, and what it would store of its progress is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_store::Result;
use interflow_tasks::AbortOnDrop;
use interflow_types::FlowId;
use parking_lot::Mutex;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

use crate::database::pool::Database;
use crate::database::rows::{clean, signed, uuid_of};

/// How long the fleet waits for a process that archives and has gone without a word.
const LEASE: Duration = Duration::from_secs(10);
/// How often the lease is renewed while files are written.
const RENEWAL: Duration = Duration::from_secs(3);

/// Whom the right to archive may be taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveClaim {
    /// From nobody: only a right that has expired or was given up.
    Free,
    /// From a process that writes nothing at the moment, too: for a command.
    Idle,
}

/// Gives up the right to archive, unless files are being written: those of a successor must not meet them.
pub(crate) fn resign_archives(database: &Database) -> Result<()> {
    let name = database.replica.to_string();
    database.run(move |client| async move {
        let sql = "UPDATE archives SET holder = NULL, expires = '-infinity' WHERE holder = $1 AND NOT writing";
        client.execute(sql, &[&name]).await.map(drop)
    })
}

/// The archive at a place, as the database has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedArchiveState {
    /// The progress, as the archive stored it last; `None` before that.
    pub cursor: Option<String>,
    /// The process that archives, if there is one.
    pub holder: Option<String>,
}

/// This process among those that may archive to a place.
pub struct ArchiveTurn {
    database: Database,
    place: Arc<str>,
    /// The epoch in which this process archives, if it does.
    epoch: Mutex<Option<i64>>,
}

impl ArchiveTurn {
    pub(crate) fn new(database: &Database, place: &str) -> Self {
        Self { database: database.clone(), place: clean(place).into(), epoch: Mutex::default() }
    }

    /// The name of this process in the list of instances.
    pub fn name(&self) -> &str {
        &self.database.replica
    }

    /// Takes the right to archive, or keeps it; false while another process has it. It ends unless this is called every few
    /// seconds.
    ///
    /// # Errors
    /// A database error.
    pub fn claim(&self, claim: ArchiveClaim) -> Result<bool> {
        let (place, name) = (self.place.to_string(), self.database.replica.to_string());
        let may_take_idle = claim == ArchiveClaim::Idle;
        let epoch = self.database.run(move |client| async move {
            // The row is there once a process has asked; the next statement then decides between all that ask.
            let sql = "INSERT INTO archives(place) VALUES ($1) ON CONFLICT DO NOTHING";
            client.execute(&client.prepare_cached(sql).await?, &[&place]).await?;
            let sql = "UPDATE archives SET holder = $2, epoch = CASE WHEN holder = $2 THEN epoch ELSE epoch + 1 END, \
                 writing = CASE WHEN holder = $2 THEN writing ELSE false END, \
                 expires = clock_timestamp() + make_interval(secs => $3) WHERE place = $1 \
                 AND (holder = $2 OR holder IS NULL OR expires < clock_timestamp() OR ($4 AND NOT writing)) RETURNING epoch";
            let statement = client.prepare_cached(sql).await?;
            let found =
                client.query_opt(&statement, &[&place, &name, &LEASE.as_secs_f64(), &may_take_idle]).await?;
            Ok(found.map(|row| row.get::<_, i64>(0)))
        })?;
        *self.epoch.lock() = epoch;
        Ok(epoch.is_some())
    }

    /// Begins to write: from here on the right is renewed until the result is dropped. `None` if another process has it.
    ///
    /// # Errors
    /// A database error.
    pub fn begin(&self) -> Result<Option<ArchiveLease>> {
        let Some(epoch) = *self.epoch.lock() else { return Ok(None) };
        let sent_at = Instant::now();
        if !self.database.wait_for(renew(self.database.clone(), Arc::clone(&self.place), epoch))? {
            *self.epoch.lock() = None;
            return Ok(None);
        }
        let until = Arc::new(Mutex::new(sent_at + LEASE));
        let (database, place, renewed) = (self.database.clone(), Arc::clone(&self.place), Arc::clone(&until));
        let renewal = self.database.spawn_abortable(async move {
            loop {
                tokio::time::sleep(RENEWAL).await;
                let asked_at = Instant::now();
                match renew(database.clone(), Arc::clone(&place), epoch).await {
                    Ok(true) => *renewed.lock() = asked_at + LEASE,
                    Ok(false) => {
                        *renewed.lock() = asked_at;
                        return;
                    }
                    // Until the lease has ended, there is time for another attempt.
                    Err(error) => tracing::debug!(%error, "the right to archive could not be renewed"),
                }
            }
        });
        Ok(Some(ArchiveLease {
            database: self.database.clone(),
            place: Arc::clone(&self.place),
            epoch,
            until,
            renewal,
        }))
    }

    /// Gives up the right, so that another process need not wait until it ends by itself.
    ///
    /// # Errors
    /// A database error.
    pub fn resign(&self) -> Result<()> {
        let Some(epoch) = self.epoch.lock().take() else { return Ok(()) };
        let (place, name) = (self.place.to_string(), self.database.replica.to_string());
        self.database.run(move |client| async move {
            let sql = "UPDATE archives SET holder = NULL, writing = false, expires = '-infinity' \
                 WHERE place = $1 AND holder = $2 AND epoch = $3";
            client.execute(sql, &[&place, &name, &epoch]).await.map(drop)
        })
    }
}

/// Renews the right of an epoch, as that of a process that writes; false if another one has taken over.
async fn renew(database: Database, place: Arc<str>, epoch: i64) -> Result<bool> {
    let client = database.client().await?;
    let sql = "UPDATE archives SET writing = true, expires = clock_timestamp() + make_interval(secs => $4) \
         WHERE place = $1 AND holder = $2 AND epoch = $3";
    let renewed = client.execute(sql, &[&&*place, &&*database.replica, &epoch, &LEASE.as_secs_f64()]).await;
    Ok(renewed.map_err(|e| database.connector.explain(&e))? > 0)
}

/// The right to write to the archive at a place.
pub struct ArchiveLease {
    database: Database,
    place: Arc<str>,
    epoch: i64,
    /// When another process may take over, by a clock that is not ahead of the database's.
    until: Arc<Mutex<Instant>>,
    renewal: AbortOnDrop<()>,
}

impl ArchiveLease {
    /// Grows with every process that takes over.
    pub const fn epoch(&self) -> u64 {
        self.epoch.unsigned_abs()
    }

    /// The progress that was stored last.
    ///
    /// # Errors
    /// A database error.
    pub fn load(&self) -> Result<Option<String>> {
        let destination = self.place.to_string();
        self.database.run(move |client| async move {
            let cursor_row = client.query_opt("SELECT cursor FROM archives WHERE place = $1", &[&destination]).await?;
            Ok(cursor_row.and_then(|row| row.get(0)))
        })
    }

    /// Stores the progress; false if another process has taken over, and nothing was stored. Flows that began before
    /// `keep_from` and have at most this position are archived.
    ///
    /// # Errors
    /// A database error.
    pub fn save(&self, cursor: &str, keep_from: FlowId, position: u64) -> Result<bool> {
        let (place, name, epoch) = (self.place.to_string(), self.database.replica.to_string(), self.epoch);
        let (cursor, keep_from) = (cursor.to_owned(), uuid_of(keep_from));
        let position = signed(position);
        self.database.run(move |client| async move {
            let sql = "UPDATE archives SET cursor = $4, keep_from = $5, position = $6 \
                 WHERE place = $1 AND holder = $2 AND epoch = $3";
            Ok(client.execute(sql, &[&place, &name, &epoch, &cursor, &keep_from, &position]).await? > 0)
        })
    }

    /// Waits until another process may have taken over.
    pub async fn ended(&self) {
        loop {
            let until = *self.until.lock();
            if Instant::now() >= until {
                return;
            }
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

impl Drop for ArchiveLease {
    fn drop(&mut self) {
        self.renewal.0.abort();
        let (database, place, epoch) = (self.database.clone(), Arc::clone(&self.place), self.epoch);
        // Not waited for: if it fails, a command waits until the right ends.
        self.database.spawn(async move {
            let Ok(client) = database.client().await else { return };
            let sql = "UPDATE archives SET writing = false WHERE place = $1 AND holder = $2 AND epoch = $3";
            let _ = client.execute(sql, &[&&*place, &&*database.replica, &epoch]).await;
        });
    }
}

/// What is archived at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ArchivedFlows {
    /// Flows that began before it are archived,
    pub(crate) keep_from: Uuid,
    /// if they have at most this position.
    pub(crate) position: i64,
}

impl ArchivedFlows {
    /// What retention may delete; `None` if it need not wait for an archive.
    pub(crate) async fn read(client: &Client, database: &Database) -> Result<Option<Self>, Error> {
        if !database.config.load().keeps_unarchived() {
            return Ok(None);
        }
        let nothing = Self { keep_from: Uuid::nil(), position: 0 };
        // Known a moment after the start.
        let Some(place) = database.archive_place.get() else { return Ok(Some(nothing)) };
        let sql = "SELECT keep_from, position FROM archives WHERE place = $1 AND keep_from IS NOT NULL";
        let lease_row = client.query_opt(sql, &[&&**place]).await?;
        Ok(Some(lease_row.map_or(nothing, |row| Self { keep_from: row.get(0), position: row.get(1) })))
    }
}
