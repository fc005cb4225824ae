//! The operator's tags and comments on conversations and their messages.

use rusqlite::{Connection, OptionalExtension, params};

use super::conversations::key_of;
use super::store_state::FlowAnnotation;
use super::writer::StoreWriter;
use crate::conversations::ConversationNote;
use crate::error::Result;

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

/// The notes on a conversation, that on the conversation itself first.
pub(super) fn of(db: &Connection, id: &str) -> Result<Vec<ConversationNote>> {
    let sql = "SELECT message, tags, comment FROM conversation_notes WHERE conversation = ? ORDER BY message LIMIT ?";
    let mut statement = db.prepare_cached(sql)?;
    let mut rows = statement.query(params![id, MAX_NOTES as i64])?;
    let mut notes = Vec::new();
    while let Some(row) = rows.next()? {
        let blob = row.get_ref(0)?;
        let message = if blob.as_blob().is_ok_and(<[u8]>::is_empty) { None } else { key_of(blob)? };
        notes.push(ConversationNote { message, tags: split_tags(&row.get::<_, String>(1)?), comment: row.get(2)? });
    }
    Ok(notes)
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
