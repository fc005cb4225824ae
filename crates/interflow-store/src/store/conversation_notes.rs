//! The operator's tags and comments on conversations and their messages.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::conversation_rows::key_of;
use super::rows;
use super::sqlite_store::SqliteStore;
use super::store_state::{FlowAnnotation, WriterCommand};
use crate::conversations::{ConversationNote, NoteOf};
use crate::error::Result;
use crate::store::recording::writer::StoreWriter;

/// Notes read per conversation; the rest of them is stored, but not shown.
const MAX_NOTES: usize = 1000;

impl StoreWriter {
    /// Changes the note on a conversation, or on one of its messages, if it exists.
    pub(crate) fn put_note(&mut self, id: &str, message: Option<u128>, change: &FlowAnnotation) -> Result<()> {
        let db = &self.db;
        let exists = match message {
            None => db.prepare_cached("SELECT 1 FROM conversations WHERE id = ?")?.exists([id])?,
            Some(key) => db
                .prepare_cached("SELECT 1 FROM conversation_nodes WHERE conversation = ? AND key = ?")?
                .exists(params![id, key.to_be_bytes()])?,
        };
        if !exists {
            return Ok(());
        }
        let blob = blob_of(message);
        let mut note = ConversationNote { message, ..ConversationNote::default() };
        let found = db
            .prepare_cached("SELECT tags, comment FROM conversation_notes WHERE conversation = ? AND message = ?")?
            .query_row(params![id, blob], |r| Ok((r.get::<_, String>(0)?, r.get(1)?)))
            .optional()?;
        if let Some((tags, comment)) = found {
            (note.tags, note.comment) = (split_tags(&tags), comment);
        }
        change.apply(&mut note.tags, &mut note.comment);
        if note.is_empty() {
            delete_one(db, id, &blob)?;
        } else {
            db.prepare_cached("INSERT OR REPLACE INTO conversation_notes VALUES(?,?,?,?)")?.execute(params![
                id,
                blob,
                note.tags.join("\n"),
                note.comment
            ])?;
        }
        // An estimate of what the transaction adds to the write-ahead log.
        self.logged += 1024 + note.comment.map_or(0, |c| c.len());
        Ok(())
    }
}

impl StoreWriter {
    /// Adds notes where there are none, also on conversations that are put together later; returns how many.
    pub(crate) fn add_notes(&mut self, notes: &[NoteOf]) -> Result<u64> {
        let mut added = 0;
        let mut insert = self.db.prepare_cached("INSERT OR IGNORE INTO conversation_notes VALUES(?,?,?,?)")?;
        for (id, note) in notes {
            let blob = blob_of(note.message);
            added += insert.execute(params![id, blob, note.tags.join("\n"), note.comment])? as u64;
            self.logged += 1024 + note.comment.as_ref().map_or(0, String::len);
        }
        Ok(added)
    }
}

impl SqliteStore {
    /// Notes of all conversations in their order, after this one.
    pub fn notes_after(&self, last: Option<&NoteOf>, limit: usize) -> Result<Vec<NoteOf>> {
        self.read(|db| after(db, last, limit))
    }

    /// Adds notes where there are none; returns how many.
    pub fn add_notes(&self, notes: Vec<NoteOf>) -> Result<u64> {
        self.shared()?.send_command(|reply| WriterCommand::AddNotes(notes, reply))
    }
}

/// Notes of all conversations in their order, after this one.
fn after(db: &Connection, last: Option<&NoteOf>, limit: usize) -> Result<Vec<NoteOf>> {
    let sql = "SELECT conversation, message, tags, comment FROM conversation_notes \
               WHERE (conversation, message) > (?, ?) OR ?3 ORDER BY conversation, message LIMIT ?";
    let (id, message) = last.map_or(("", Vec::new()), |(id, note)| (id.as_str(), blob_of(note.message)));
    let params = params![id, message, last.is_none(), limit as i64];
    rows::query_all(db, sql, params, |row| Ok((row.get(0)?, read_note(row, 1)?)))
}

/// The note in columns from this one on.
fn read_note(row: &Row<'_>, first: usize) -> Result<ConversationNote> {
    let blob = row.get_ref(first)?;
    let message = if blob.as_blob().is_ok_and(<[u8]>::is_empty) { None } else { key_of(blob)? };
    let tags = split_tags(&row.get::<_, String>(first + 1)?);
    Ok(ConversationNote { message, tags, comment: row.get(first + 2)? })
}

/// The notes on a conversation, that on the conversation itself first.
pub(super) fn of(db: &Connection, id: &str) -> Result<Vec<ConversationNote>> {
    let sql = "SELECT message, tags, comment FROM conversation_notes WHERE conversation = ? ORDER BY message LIMIT ?";
    rows::query_all(db, sql, params![id, MAX_NOTES as i64], |row| read_note(row, 0))
}

/// Deletes the note on a message, or with `None` all notes on the conversation.
pub(super) fn delete(db: &Connection, id: &str, message: Option<u128>) -> Result<()> {
    if message.is_some() {
        return delete_one(db, id, &blob_of(message));
    }
    db.prepare_cached("DELETE FROM conversation_notes WHERE conversation = ?")?.execute([id])?;
    Ok(())
}

fn delete_one(db: &Connection, id: &str, blob: &[u8]) -> Result<()> {
    db.prepare_cached("DELETE FROM conversation_notes WHERE conversation = ? AND message = ?")?
        .execute(params![id, blob])?;
    Ok(())
}

fn blob_of(message: Option<u128>) -> Vec<u8> {
    message.map_or_else(Vec::new, |key| key.to_be_bytes().to_vec())
}

fn split_tags(text: &str) -> Vec<String> {
    text.split('\n').filter(|t| !t.is_empty()).map(str::to_owned).collect()
}
