//! Whether flows were deleted whose disk space is not given back yet: kept in the database with the deletion itself, so that
//! a process that ends in between leaves it to the next one.

use rusqlite::Connection;

use crate::error::Result;

/// The `application_id` of a database with garbage; 0 without.
const LEFT: i64 = 1;

/// What the writer knows of it.
pub(crate) struct GarbageMark {
    is_marked: bool,
    /// Whether flows were deleted since the current collection began.
    pub(crate) has_more: bool,
}

impl GarbageMark {
    pub(crate) fn read(db: &Connection) -> Result<Self> {
        Ok(Self { is_marked: is_left(db)?, has_more: false })
    }

    /// Part of the transaction that deletes flows.
    pub(crate) fn add(&mut self, db: &Connection) -> Result<()> {
        self.has_more = true;
        if !self.is_marked {
            db.pragma_update(None, "application_id", LEFT)?;
            self.is_marked = true;
        }
        Ok(())
    }

    /// The transaction was rolled back, and maybe the mark with it.
    pub(crate) const fn roll_back(&mut self) {
        self.is_marked = false;
    }

    pub(crate) fn end_collection(&mut self, db: &Connection) -> Result<()> {
        if self.is_marked && !self.has_more {
            db.pragma_update(None, "application_id", 0)?;
            self.is_marked = false;
        }
        Ok(())
    }
}

/// Whether an earlier process has left garbage.
pub(crate) fn is_left(db: &Connection) -> Result<bool> {
    Ok(db.query_row("PRAGMA application_id", [], |r| r.get::<_, i64>(0))? == LEFT)
}
