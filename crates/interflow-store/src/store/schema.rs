//! The database schema, its migrations, and how connections are opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use interflow_files::owner_only;
use rusqlite::{Connection, OpenFlags};

use crate::error::{Result, StoreError};

/// The tables of conversations. `facts` and `body` hold opaque JSON of the conversations component; long bodies are compressed.
const CONVERSATIONS: &str = "
CREATE TABLE conversations(
    id TEXT PRIMARY KEY, session TEXT NOT NULL, parent TEXT, started INTEGER NOT NULL, updated INTEGER NOT NULL,
    agent TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL, host TEXT NOT NULL, user TEXT NOT NULL,
    title TEXT NOT NULL, turns INTEGER NOT NULL, facts TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX conversations_session ON conversations(session, updated);
CREATE INDEX conversations_updated ON conversations(updated);
CREATE INDEX conversations_parent ON conversations(parent) WHERE parent IS NOT NULL;

CREATE TABLE conversation_nodes(
    n INTEGER PRIMARY KEY, conversation TEXT NOT NULL, key BLOB NOT NULL, parent BLOB, at INTEGER NOT NULL,
    facts TEXT NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX conversation_nodes_key ON conversation_nodes(conversation, key);

CREATE TABLE conversation_exchanges(
    flow BLOB NOT NULL, part INTEGER NOT NULL, conversation TEXT NOT NULL, started INTEGER NOT NULL, leaf BLOB,
    agent TEXT NOT NULL, model TEXT NOT NULL, provider TEXT NOT NULL, input INTEGER NOT NULL, output INTEGER NOT NULL,
    cache_read INTEGER NOT NULL, cache_write INTEGER NOT NULL, reasoning INTEGER NOT NULL, cost REAL,
    facts TEXT NOT NULL, PRIMARY KEY(flow, part)) WITHOUT ROWID;
CREATE INDEX conversation_exchanges_of ON conversation_exchanges(conversation, started);
CREATE INDEX conversation_exchanges_started ON conversation_exchanges(started);

CREATE TABLE conversation_cursor(one INTEGER PRIMARY KEY CHECK(one = 1), flow BLOB NOT NULL);
";

/// Added to these tables: whether an exchange failed, and what the operator notes.
const CONVERSATION_NOTES: &str = "
ALTER TABLE conversation_exchanges ADD COLUMN failed INTEGER NOT NULL DEFAULT 0;
UPDATE conversation_exchanges SET failed = 1 WHERE json_valid(facts) AND json_extract(facts, '$.error') IS NOT NULL;

-- `message` is empty for the conversation as a whole; tags are separated by line breaks.
CREATE TABLE conversation_notes(
    conversation TEXT NOT NULL, message BLOB NOT NULL, tags TEXT NOT NULL, comment TEXT,
    PRIMARY KEY(conversation, message)) WITHOUT ROWID;
";

/// Blocks with when their first and last flow began. A block may be absent at any time: it is made again from its rows.
const FLOW_COLUMNS: &str = "
CREATE TABLE flow_columns(block INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, data BLOB NOT NULL);
";

/// Each entry migrates the schema to the next version; the database's `user_version` counts them.
const MIGRATIONS: [&str; 6] = ["
CREATE TABLE hosts(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);

-- What lists and queries look at. `chunks` names what lies in segments: see refs.rs.
CREATE TABLE flows(
    seq INTEGER PRIMARY KEY, id BLOB NOT NULL, state INTEGER NOT NULL, kind INTEGER NOT NULL, started INTEGER NOT NULL,
    duration INTEGER, transport INTEGER NOT NULL, scheme INTEGER NOT NULL, host INTEGER NOT NULL, port INTEGER NOT NULL,
    method TEXT, path TEXT, status INTEGER, version TEXT, user TEXT, client TEXT, listener TEXT,
    request_size INTEGER NOT NULL, response_size INTEGER NOT NULL, request_type TEXT, response_type TEXT,
    messages INTEGER NOT NULL, error TEXT, tags TEXT, stored INTEGER NOT NULL, kept INTEGER NOT NULL, chunks BLOB);
CREATE UNIQUE INDEX flows_id ON flows(id);
CREATE INDEX flows_host ON flows(host, id);
CREATE INDEX flows_open ON flows(seq) WHERE state = 0;

-- Everything else of a flow: see detail.rs.
CREATE TABLE details(seq INTEGER PRIMARY KEY, detail BLOB NOT NULL);

-- The end of a body that is still coming, until it is long enough to be cut.
CREATE TABLE tails(seq INTEGER, direction INTEGER, at INTEGER, bytes BLOB NOT NULL, PRIMARY KEY(seq, direction, at)) WITHOUT ROWID;

-- Blocks of messages: `meta` lists them, their payloads lie end to end in `payload` or in chunks: see messages.rs.
CREATE TABLE messages(seq INTEGER, first INTEGER, count INTEGER NOT NULL, meta BLOB NOT NULL, payload BLOB, chunks BLOB,
    PRIMARY KEY(seq, first)) WITHOUT ROWID;

-- Where chunks lie. Those of long bodies have their hash here, to be found when the same bytes come again.
CREATE TABLE chunks(id INTEGER PRIMARY KEY, segment INTEGER NOT NULL, offset INTEGER NOT NULL, len INTEGER NOT NULL, hash BLOB);
CREATE INDEX chunks_hash ON chunks(hash) WHERE hash IS NOT NULL;
", CONVERSATIONS, "
-- `flows.chunks` may name two more bodies, as they came in before they were edited: whoever does not know them would take their
-- chunks for garbage.
", FLOW_COLUMNS, CONVERSATION_NOTES, "
-- As above: after these bodies, `flows.chunks` may name two certificate chains.
"];

/// How long SQLite waits for a lock held by another connection.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

const VERSION: i64 = MIGRATIONS.len() as i64;

pub(crate) fn file(dir: &Path) -> PathBuf {
    dir.join("flows.db")
}

/// Opens the database for the writer: creates it if necessary, and migrates it to this build's version.
pub(crate) fn open_writer(dir: &Path) -> Result<Connection> {
    let path = file(dir);
    // Accessible by its owner only; SQLite creates the files beside it with the same mode.
    let opened = owner_only(std::fs::OpenOptions::new().create(true).append(true)).open(&path);
    drop(opened.map_err(StoreError::io("could not open", &path))?);
    let db = Connection::open(path)?;
    if user_version(&db)? == 0 {
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
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(48);
    migrate(&db)?;
    Ok(db)
}

/// Opens the database for reading, also while another process writes it.
pub(crate) fn open_reader(dir: &Path) -> Result<Connection> {
    let file = file(dir);
    if !file.exists() {
        return Err(match std::fs::read_dir(super::segments_dir(dir)).is_ok_and(|mut files| files.next().is_some()) {
            true => StoreError::DatabaseLost(dir.to_owned()),
            false => StoreError::Absent(dir.to_owned()),
        });
    }
    let db = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.pragma_update(None, "cache_size", -(4 << 10))?;
    match user_version(&db)? {
        VERSION => Ok(db),
        0 => Err(StoreError::Absent(dir.to_owned())),
        found if found < VERSION => Err(StoreError::Older { found, known: VERSION }),
        found => Err(StoreError::Newer { found, known: VERSION }),
    }
}

/// Writes a page without changing anything; an error means that the disk still refuses writes.
pub(crate) fn touch(db: &Connection) -> Result<()> {
    Ok(db.pragma_update(None, "user_version", VERSION)?)
}

fn user_version(db: &Connection) -> Result<i64> {
    Ok(db.query_row("PRAGMA user_version", [], |r| r.get(0))?)
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
