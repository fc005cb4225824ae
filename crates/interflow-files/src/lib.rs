//! Files the way every crate writes them: replaced atomically ([`write_atomic`]), readable by their owner alone
//! ([`owner_only`]), locked ([`FileLock`]), edited by
//! several at once ([`EditedFile`]), and secrets that the configuration names by reference ([`resolve_secret_ref`]).
//!
//! A crate of its own because every crate that keeps files needs it, and `types` and `codec` do no I/O.
#![forbid(unsafe_code)]

mod atomic;
mod edited_file;
mod file_lock;
mod permissions;
mod positioned;
mod secret_ref;

pub use atomic::{AtomicFile, FileAccess, is_leftover, write_atomic};
pub use edited_file::{EditError, EditTurn, EditedFile, is_same_text};
pub use file_lock::FileLock;
pub use permissions::{create_private_dir, owner_only};
pub use positioned::read_exact_at;
pub use secret_ref::{check_field_secret, resolve_secret_ref};

/// What was read of a file; `None` if there is no such file.
///
/// # Errors
/// Any other than that.
pub fn optional<T>(read: std::io::Result<T>) -> std::io::Result<Option<T>> {
    match read {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        content => content.map(Some),
    }
}
