//! How a store is opened for writing: also when its disk is full, or its database is damaged.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::recover::{self, Recovery};
use super::reserve::Reserve;
use super::shared::{Job, Shared};
use super::writer::{RETRY, Writer};
use super::{schema, segments_dir, set_aside};
use crate::config::RecordConfig;
use crate::error::{Result, StoreError};

/// What the writer's thread begins with.
pub(crate) enum Start {
    Ready(Box<Writer>),
    /// The disk is too full even to open the database: it is tried again until there is room.
    Waiting {
        dir: PathBuf,
        shared: Arc<Shared>,
        config: RecordConfig,
    },
}

/// Opens the store in a folder whose lock is held.
pub(crate) fn open(dir: &Path, shared: &Arc<Shared>, config: &RecordConfig) -> Result<(Start, Recovery)> {
    let reserve = Reserve::of(dir);
    let (opened, full) = match sound(dir, shared, config) {
        Err(e) if e.is_disk() && reserve.release() => (sound(dir, shared, config), Some(e)),
        opened => (opened, None),
    };
    match opened {
        Ok((mut writer, mut recovery)) => {
            if let Some(e) = full {
                recovery.full = true;
                writer.suspend(&e);
            } else if let Err(error) = reserve.ensure() {
                tracing::debug!(%error, "the disk has no room for the store's reserve");
            }
            Ok((Start::Ready(Box::new(writer)), recovery))
        }
        Err(e) if e.is_disk() && is_full(dir) => {
            let why = format!("{e}; free disk space, and recording begins by itself");
            tracing::error!("recording is suspended: {why}; traffic goes on");
            shared.suspend(Some(why));
            let waiting = Start::Waiting { dir: dir.to_owned(), shared: shared.clone(), config: config.clone() };
            Ok((waiting, Recovery { full: true, ..Recovery::default() }))
        }
        Err(e) => Err(e),
    }
}

/// Whether the disk has no room for a few pages: other faults of the disk are no reason to wait.
fn is_full(dir: &Path) -> bool {
    let path = dir.join("room");
    let tried = std::fs::write(&path, vec![0xA5; 64 << 10]);
    let _ = std::fs::remove_file(path);
    tried.is_err_and(|e| {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    })
}

/// Opens the store; a damaged database is set aside, once.
fn sound(dir: &Path, shared: &Arc<Shared>, config: &RecordConfig) -> Result<(Writer, Recovery)> {
    let damage = match set_aside::is_emptied(dir) {
        true => StoreError::damaged("flows.db", "it is empty, and there are segments"),
        false => match attempt(dir, shared, config) {
            Err(e) if e.is_damage() => e,
            opened => return opened,
        },
    };
    let aside = set_aside::set_aside(dir)?;
    tracing::error!(
        "{damage}: it was set aside in {} with its segments, and recording goes on with a new one; delete that folder when \
         nothing in it is needed",
        aside.display()
    );
    let (writer, recovery) = attempt(dir, shared, config)?;
    Ok((writer, Recovery { set_aside: true, ..recovery }))
}

fn attempt(dir: &Path, shared: &Arc<Shared>, config: &RecordConfig) -> Result<(Writer, Recovery)> {
    let db = schema::open_writer(dir)?;
    set_aside::verify(dir, &db)?;
    let (appender, recovery) = recover::recover(dir, &segments_dir(dir), &db)?;
    if recovery.unclean {
        tracing::warn!(
            cut_flows = recovery.cut_flows,
            cut_bytes = recovery.cut_bytes,
            damaged_flows = recovery.damaged_flows,
            "the store was not closed the last time; it was checked and is in order again"
        );
    }
    let writer = Writer::new(dir.to_owned(), shared.clone(), db, appender, config.clone())?;
    Ok((writer, recovery))
}

impl Start {
    /// Runs the writer until the store is closed; says whether everything could be written.
    pub(crate) fn run(self) -> bool {
        match self {
            Self::Ready(writer) => writer.run(),
            Self::Waiting { dir, shared, config } => wait(&dir, &shared, &config).is_some_and(Writer::run),
        }
    }
}

/// Waits for room on the disk. Whoever asks for something meanwhile hears why it cannot be done.
fn wait(dir: &Path, shared: &Arc<Shared>, config: &RecordConfig) -> Option<Writer> {
    shared.queue.adopt_writer();
    loop {
        shared.queue.roused();
        shared.take_jobs().into_iter().for_each(|job| refuse(job, shared));
        if shared.closing.load(SeqCst) {
            shared.queue.close();
            shared.fail_jobs();
            return None;
        }
        if let Ok((writer, _)) = sound(dir, shared, config) {
            shared.suspend(None);
            tracing::info!("recording begins: there is room on the disk");
            return Some(writer);
        }
        if !shared.queue.is_urgent() {
            std::thread::park_timeout(RETRY);
        }
    }
}

fn refuse(job: Job, shared: &Shared) {
    let why = || StoreError::Suspended(shared.suspended().unwrap_or_default());
    match job {
        Job::Flush(reply) | Job::Annotate(_, _, reply) | Job::Keep(_, reply) | Job::ForgetConversations(reply) => {
            let _ = reply.send(Err(why()));
        }
        Job::Insert(_, reply) => drop(reply.send(Err(why()))),
        Job::Delete(_, reply) | Job::Collect(reply) => drop(reply.send(Err(why()))),
    }
}
