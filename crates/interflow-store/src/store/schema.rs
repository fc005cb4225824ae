//! The database schema, its migrations, and how connections are opened.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use interflow_files::owner_only;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::error::{Result, StoreError};

/// Each entry migrates the schema to the next version; the database's `user_version` counts them.
const MIGRATIONS: [&str; 6] = [
    include_str!("schema/1_flows.sql"),
    include_str!("schema/2_conversations.sql"),
    include_str!("schema/3_edited_bodies.sql"),
    include_str!("schema/4_flow_columns.sql"),
    include_str!("schema/5_conversation_notes.sql"),
    include_str!("schema/6_certificates.sql"),
];

/// How long SQLite waits for a lock held by another connection.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const VERSION: i64 = MIGRATIONS.len() as i64;

pub(crate) fn file(dir: &Path) -> PathBuf {
    dir.join("flows.db")
}

/// The error of the first statement on a database: in a directory that cannot be written, SQLite cannot even read, and says
/// neither that nor where.
fn explain(dir: &Path, error: rusqlite::Error) -> StoreError {
    if !matches!(error.sqlite_error_code(), Some(ErrorCode::CannotOpen | ErrorCode::ReadOnly)) {
        return error.into();
    }
    let remedy = "make it writable for this user, or copy it and name the copy in INTERFLOW_DATA_DIR";
    StoreError::io("SQLite cannot write in", dir)(io::Error::other(format!("{error}; {remedy}")))
}

/// Opens the database for the writer: creates it if necessary, and migrates it to this build's version.
pub(crate) fn open_writer(dir: &Path) -> Result<Connection> {
    let path = file(dir);
    // Accessible by its owner only; SQLite creates the files beside it with the same mode.
    let opened = owner_only(std::fs::OpenOptions::new().create(true).append(true)).open(&path);
    drop(opened.map_err(StoreError::io("could not open", &path))?);
    let db = Connection::open(path)?;
    if user_version(&db).map_err(|e| explain(dir, e))? == 0 {
        // These must be set before the first table is created. Rows are appended at the end of their tables, so larger
        // pages hold more of them per write.
        db.pragma_update(None, "page_size", 8192)?;
        db.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    }
    db.pragma_update(None, "journal_mode", "WAL")?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    // The writer runs checkpoints itself: segments must be durable before rows that refer to them are.
    db.pragma_update(None, "wal_autocheckpoint", 0)?;
    // A restarted log keeps its file, to avoid freeing and allocating the same space repeatedly. The writer truncates
    // it when the store is idle.
    db.pragma_update(None, "journal_size_limit", 24 << 20)?;
    // Rows are appended at the ends of their trees, so a write touches few pages.
    db.pragma_update(None, "cache_size", -(3 << 10))?;
    db.pragma_update(None, "temp_store", "MEMORY")?;
    set_up(&db)?;
    db.set_prepared_statement_cache_capacity(48);
    migrate(&db)?;
    Ok(db)
}

/// Opens the database for reading, also while another process writes it.
pub(crate) fn open_reader(dir: &Path) -> Result<Connection> {
    let file = file(dir);
    // What cannot be looked at is not absent.
    if !file.try_exists().map_err(StoreError::io("cannot look for", &file))? {
        return Err(match std::fs::read_dir(super::segments_dir(dir)).is_ok_and(|mut files| files.next().is_some()) {
            true => StoreError::DatabaseLost(dir.to_owned()),
            false => StoreError::Absent(dir.to_owned()),
        });
    }
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    set_up(&db)?;
    let version = user_version(&db).map_err(|e| explain(dir, e))?;
    db.pragma_update(None, "cache_size", -(4 << 10))?;
    match version {
        VERSION => Ok(db),
        0 => Err(StoreError::Absent(dir.to_owned())),
        found if found < VERSION => Err(StoreError::Older { found, known: VERSION }),
        found => Err(StoreError::Newer { found, known: VERSION }),
    }
}

/// What applies to every connection.
fn set_up(db: &Connection) -> Result<()> {
    // The plan of a statement never depends on what is bound to it. Otherwise statements with `LIMIT ?` or a partial index
    // of their table would be prepared again for every execution.
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    Ok(db.busy_timeout(BUSY_TIMEOUT)?)
}

/// Writes a page without changing anything; an error means that the disk still refuses writes.
pub(crate) fn touch(db: &Connection) -> Result<()> {
    Ok(db.pragma_update(None, "user_version", VERSION)?)
}

fn user_version(db: &Connection) -> rusqlite::Result<i64> {
    db.query_row("PRAGMA user_version", [], |r| r.get(0))
}

fn migrate(db: &Connection) -> Result<()> {
    let found = user_version(db)?;
    // A database of a newer build is refused and not changed: its rows may mean something else.
    if found > VERSION {
        return Err(StoreError::Newer { found, known: VERSION });
    }
    // Each step and its version are one transaction, so an interrupted migration continues where it stopped.
    for (step, sql) in MIGRATIONS.iter().enumerate().skip(found as usize) {
        db.execute_batch(&format!("BEGIN IMMEDIATE; {sql}; PRAGMA user_version = {}; COMMIT;", step + 1))?;
    }
    Ok(())
}

/// A database as an earlier version left it.
#[cfg(test)]
pub(crate) fn create_earlier(dir: &Path, version: usize) -> Connection {
    let db = Connection::open(file(dir)).expect("the folder is the test's own");
    for sql in &MIGRATIONS[..version] {
        db.execute_batch(sql).expect("the migrations apply");
    }
    db.pragma_update(None, "user_version", version as i64).expect("the database is open");
    db
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_of_a_newer_version_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        drop(open_writer(dir.path()).unwrap());
        Connection::open(file(dir.path())).unwrap().pragma_update(None, "user_version", VERSION + 1).unwrap();
        assert!(matches!(open_writer(dir.path()), Err(StoreError::Newer { .. })));
        assert!(matches!(open_reader(dir.path()), Err(StoreError::Newer { .. })));
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named_with_the_remedy() {
        for code in [rusqlite::ffi::SQLITE_CANTOPEN, rusqlite::ffi::SQLITE_READONLY_DIRECTORY] {
            let refused = rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None);
            let error = explain(Path::new("/mnt/data"), refused);
            let message = error.to_string();
            assert!(message.contains("cannot write in /mnt/data: "), "{message}");
            assert!(message.contains("INTERFLOW_DATA_DIR") && error.is_disk(), "{message}");
        }
    }

    #[test]
    fn cached_statements_are_prepared_once() {
        let dir = tempfile::tempdir().unwrap();
        for db in [open_writer(dir.path()).unwrap(), open_reader(dir.path()).unwrap()] {
            let mut statement = db.prepare("SELECT seq FROM flows WHERE seq > ? ORDER BY seq LIMIT ?").unwrap();
            for n in 0..5 {
                assert!(!statement.exists([n, 9]).unwrap());
            }
            assert_eq!(statement.get_status(rusqlite::StatementStatus::RePrepare), 0);
        }
    }

    #[test]
    fn a_store_of_an_earlier_version_is_migrated_by_its_writer() {
        let dir = tempfile::tempdir().unwrap();
        let db = Connection::open(file(dir.path())).unwrap();
        db.execute_batch(&format!("{}; PRAGMA user_version = 1;", MIGRATIONS[0])).unwrap();
        drop(db);
        assert!(matches!(open_reader(dir.path()), Err(StoreError::Older { found: 1, .. })));
        drop(open_writer(dir.path()).unwrap());
        assert!(open_reader(dir.path()).is_ok());
    }

    #[test]
    fn opening_twice_migrates_once() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(open_reader(dir.path()), Err(StoreError::Absent(_))));
        std::fs::create_dir(super::super::segments_dir(dir.path())).unwrap();
        std::fs::write(super::super::segments_dir(dir.path()).join("0.seg"), "x").unwrap();
        assert!(matches!(open_reader(dir.path()), Err(StoreError::DatabaseLost(_))), "bodies without their flows");
        drop(open_writer(dir.path()).unwrap());
        drop(open_writer(dir.path()).unwrap());
        assert!(open_reader(dir.path()).is_ok());
    }
}
