//! Opens a store for writing, including the cases of a full disk and a damaged database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use super::store_state::{StoreState, WriterCommand};
use crate::config::RecordConfig;
use crate::error::{Result, StoreError};
use crate::store::recording::writer::{RETRY, StoreWriter};
use crate::store::upkeep::disk_reserve::DiskReserve;
use crate::store::upkeep::recover::StoreRecovery;
use crate::store::upkeep::{quarantine, recover};
use crate::store::{schema, segments_dir};

/// The initial state of the writer thread.
pub(crate) enum WriterStart {
    Ready(Box<StoreWriter>),
    /// The disk is too full even to open the database: opening is retried until space is available.
    Waiting {
        dir: PathBuf,
        shared: Arc<StoreState>,
        config: Box<RecordConfig>,
    },
}

/// Opens the store in a folder whose lock is held.
pub(crate) fn open(
    dir: &Path,
    shared: &Arc<StoreState>,
    config: &RecordConfig,
) -> Result<(WriterStart, StoreRecovery)> {
    let reserve = DiskReserve::for_store(dir);
    let (opened, full) = match open_undamaged(dir, shared, config) {
        // SQLite creates its WAL index when it opens a database; the reserve frees the space for that.
        Err(e) if e.is_disk() && reserve.release() => (open_undamaged(dir, shared, config), Some(e)),
        opened => (opened, None),
    };
    match opened {
        Ok((mut writer, mut recovery)) => {
            if let Some(e) = full {
                // Opened with the space of the reserve, which does not suffice for recording.
                recovery.full = true;
                writer.suspend(&e);
            } else if let Err(error) = reserve.ensure() {
                tracing::debug!(%error, "not enough disk space for the store's reserve");
            }
            Ok((WriterStart::Ready(Box::new(writer)), recovery))
        }
        Err(e) if e.is_disk() && is_full(dir) => {
            let why = format!("{e}; free disk space, and recording begins by itself");
            tracing::error!("recording is suspended: {why}; traffic goes on");
            shared.suspend(Some(why));
            let waiting =
                WriterStart::Waiting { dir: dir.to_owned(), shared: shared.clone(), config: Box::new(config.clone()) };
            Ok((waiting, StoreRecovery { full: true, ..StoreRecovery::default() }))
        }
        Err(e) => Err(e),
    }
}

/// Whether the disk cannot take a few pages; other disk errors are not waited for.
fn is_full(dir: &Path) -> bool {
    // Written in fact: free space as the file system reports it says nothing about quotas.
    let path = dir.join("space-test");
    let tried = std::fs::write(&path, vec![0xA5; 64 << 10]);
    let _ = std::fs::remove_file(path);
    tried.is_err_and(|e| {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        matches!(e.kind(), StorageFull | QuotaExceeded | FileTooLarge)
    })
}

/// Opens the store; a damaged database is quarantined, once.
fn open_undamaged(dir: &Path, shared: &Arc<StoreState>, config: &RecordConfig) -> Result<(StoreWriter, StoreRecovery)> {
    let damage = match quarantine::lost_database(dir) {
        Some(lost) => StoreError::damaged("flows.db", lost),
        // Only damage leads to quarantine. A full disk or a missing permission must never set a good database aside.
        None => match try_open(dir, shared, config) {
            Err(e) if e.is_damage() => e,
            opened => return opened,
        },
    };
    let aside = quarantine::quarantine(dir)?;
    tracing::error!(
        "{damage}: it was set aside in {} with its segments, and recording goes on with a new one; delete that folder when \
         nothing in it is needed",
        aside.display()
    );
    // A second failure is returned, because it cannot come from the old database.
    let (writer, recovery) = try_open(dir, shared, config)?;
    Ok((writer, StoreRecovery { set_aside: true, ..recovery }))
}

fn try_open(dir: &Path, shared: &Arc<StoreState>, config: &RecordConfig) -> Result<(StoreWriter, StoreRecovery)> {
    let db = schema::open_writer(dir)?;
    quarantine::verify(dir, &db)?;
    let (appender, recovery) = recover::recover(dir, &segments_dir(dir), &db)?;
    if recovery.unclean {
        tracing::warn!(
            cut_flows = recovery.cut_flows,
            cut_bytes = recovery.cut_bytes,
            damaged_flows = recovery.damaged_flows,
            "the store was not closed the last time; it was checked and is in order again"
        );
    }
    let writer = StoreWriter::new(dir.to_owned(), shared.clone(), db, appender, config.clone())?;
    Ok((writer, recovery))
}

impl WriterStart {
    /// Runs the writer until the store is closed; returns whether everything could be written.
    pub(crate) fn run(self) -> bool {
        match self {
            Self::Ready(writer) => writer.run(),
            Self::Waiting { dir, shared, config } => {
                wait_for_space(&dir, &shared, &config).is_some_and(StoreWriter::run)
            }
        }
    }
}

/// Waits for disk space. Commands that arrive in the meantime fail with the reason.
fn wait_for_space(dir: &Path, shared: &Arc<StoreState>, config: &RecordConfig) -> Option<StoreWriter> {
    shared.queue.adopt_writer();
    loop {
        shared.queue.clear_urgent();
        // Nothing can be stored yet, so commands fail at once instead of blocking their callers.
        shared.take_commands().into_iter().for_each(|job| reject_command(job, shared));
        if shared.closing.load(SeqCst) {
            shared.queue.close();
            shared.fail_commands();
            return None;
        }
        if let Ok((writer, _)) = open_undamaged(dir, shared, config) {
            shared.suspend(None);
            tracing::info!("recording starts: disk space is available");
            return Some(writer);
        }
        if !shared.queue.is_urgent() {
            std::thread::park_timeout(RETRY);
        }
    }
}

fn reject_command(job: WriterCommand, shared: &StoreState) {
    let why = || StoreError::Suspended(shared.suspended().unwrap_or_default());
    match job {
        WriterCommand::Flush(reply)
        | WriterCommand::Annotate(_, _, reply)
        | WriterCommand::Note(_, _, _, reply)
        | WriterCommand::Keep(_, reply)
        | WriterCommand::ForgetConversations(reply) => {
            let _ = reply.send(Err(why()));
        }
        WriterCommand::SaveColumns(_, reply) => drop(reply.send(Err(why()))),
        WriterCommand::Insert(_, reply) => drop(reply.send(Err(why()))),
        WriterCommand::AddNotes(_, reply) => drop(reply.send(Err(why()))),
        WriterCommand::Delete(_, reply) | WriterCommand::Release(_, reply) | WriterCommand::Collect(reply) => {
            drop(reply.send(Err(why())))
        }
    }
}
