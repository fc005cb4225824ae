//! The keys file on disk and the key ring parsed from it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use interflow_files::{EditTurn, EditedFile, FileAccess, optional};
use jiff::{SignedDuration, Timestamp};

use super::group_file::{self, GroupChange};
use super::key_file::{self, KeyChange, KeyFileError, KeyResult, NewVirtualKey};
use super::{GroupLevel, PlaintextKey, VirtualKeyRing};

/// The active keys and the path of their file; a reload swaps both.
#[derive(Debug)]
pub struct KeyStore {
    path: ArcSwap<PathBuf>,
    ring: ArcSwap<VirtualKeyRing>,
}

impl KeyStore {
    /// Reads the file; a missing file contains no keys.
    ///
    /// # Errors
    /// The file is unreadable or invalid; names the line.
    pub fn open(path: impl Into<PathBuf>) -> KeyResult<Self> {
        let path = path.into();
        let ring = ArcSwap::from_pointee(Self::read(&path)?);
        Ok(Self { path: ArcSwap::from_pointee(path), ring })
    }

    pub fn path(&self) -> Arc<PathBuf> {
        self.path.load_full()
    }

    pub fn ring(&self) -> Arc<VirtualKeyRing> {
        self.ring.load_full()
    }

    /// Activates a ring that was read from this file; requests in flight are not checked again.
    pub fn set(&self, path: PathBuf, ring: VirtualKeyRing) {
        self.path.store(Arc::new(path));
        self.ring.store(Arc::new(ring));
    }

    /// Reads a file without activating it.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn read(path: &Path) -> KeyResult<VirtualKeyRing> {
        VirtualKeyRing::parse(&read_text(path)?).map_err(|e| with_path(path, &e))
    }

    /// Generates a key, writes the file, and returns the key in plain text; it cannot be recovered later.
    ///
    /// # Errors
    /// The file cannot be read or written, or the id is taken.
    pub fn add(&self, turn: &EditTurn, new: NewVirtualKey) -> KeyResult<(PlaintextKey, Arc<str>)> {
        self.edit_file(turn, |text| key_file::add_key(text, new, Timestamp::now())).map(|secret| {
            let id = self.ring.load().keys().last().map(|k| Arc::clone(&k.id)).unwrap_or_default();
            (secret, id)
        })
    }

    /// Revokes a key immediately. Returns whether the key exists.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn revoke(&self, turn: &EditTurn, id: &str) -> KeyResult<bool> {
        self.edit_file(turn, |text| key_file::revoke_key(text, id, Timestamp::now()))
    }

    /// Disables or enables a key, or changes its expiry, immediately. Returns whether the key exists.
    ///
    /// # Errors
    /// The file cannot be read or written, or the key was revoked.
    pub fn change(&self, turn: &EditTurn, id: &str, change: KeyChange) -> KeyResult<bool> {
        self.edit_file(turn, |text| key_file::change_key(text, id, change))
    }

    /// Replaces the secret of a key and returns the new one in plain text; `None` if there is no such key. The old one
    /// is valid for the time of the overlap.
    ///
    /// # Errors
    /// The file cannot be read or written, or the key was revoked.
    pub fn rotate(&self, turn: &EditTurn, id: &str, overlap: Option<Duration>) -> KeyResult<Option<PlaintextKey>> {
        let until = overlap.filter(|overlap| !overlap.is_zero()).map(|overlap| {
            let end = SignedDuration::try_from(overlap).ok().and_then(|d| Timestamp::now().checked_add(d).ok());
            end.ok_or_else(|| KeyFileError("the overlap ends too far in the future".into()))
        });
        let until = until.transpose()?;
        self.edit_file(turn, |text| key_file::rotate_key(text, id, until))
    }

    /// Creates a team or an organisation.
    ///
    /// # Errors
    /// The file cannot be read or written, or the id is taken.
    pub fn add_group(&self, turn: &EditTurn, level: GroupLevel, id: &str, settings: GroupChange) -> KeyResult<()> {
        self.edit_file(turn, |text| group_file::add_group(text, level, id, settings))
    }

    /// Changes a team or an organisation immediately. Returns whether it exists.
    ///
    /// # Errors
    /// The file cannot be read or written, or would be invalid.
    pub fn change_group(&self, turn: &EditTurn, level: GroupLevel, id: &str, change: GroupChange) -> KeyResult<bool> {
        self.edit_file(turn, |text| group_file::change_group(text, level, id, change))
    }

    /// Removes a team or an organisation to which nothing belongs. Returns whether it exists.
    ///
    /// # Errors
    /// The file cannot be read or written, or something belongs to it.
    pub fn remove_group(&self, turn: &EditTurn, level: GroupLevel, id: &str) -> KeyResult<bool> {
        self.edit_file(turn, |text| group_file::remove_group(text, level, id))
    }

    fn edit_file<T>(&self, turn: &EditTurn, edit: impl FnOnce(&mut String) -> KeyResult<T>) -> KeyResult<T> {
        let path = self.path();
        let activate = |ring| {
            self.ring.store(Arc::new(ring));
            Ok(())
        };
        let file = EditedFile::new(&*path, FileAccess::Private, VirtualKeyRing::parse, activate);
        let changed = |former: Option<&str>| {
            let mut text = former.unwrap_or_default().to_owned();
            let result = edit(&mut text)?;
            let is_changed = text != former.unwrap_or_default();
            Ok((result, is_changed.then_some(text)))
        };
        file.edit(turn, changed).map_err(|error| match error.into_file_message() {
            Ok(message) => KeyFileError(format!("{} {message}", path.display())),
            Err(rejected) => with_path(&path, &rejected),
        })
    }
}

fn with_path(path: &Path, error: &KeyFileError) -> KeyFileError {
    KeyFileError(format!("{}: {error}", path.display()))
}

fn read_text(path: &Path) -> KeyResult<String> {
    let text = optional(fs::read_to_string(path)).map(Option::unwrap_or_default);
    text.map_err(|e| KeyFileError(format!("{} cannot be read: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::super::KeyRejection;
    use super::*;

    #[test]
    fn keys_added_by_several_processes_at_once_are_all_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                // Each has a store of its own, like a command or a replica.
                scope.spawn(|| {
                    for _ in 0..10 {
                        KeyStore::open(&path).unwrap().add(&EditTurn::unlimited(), NewVirtualKey::default()).unwrap();
                    }
                });
            }
        });
        assert_eq!(KeyStore::read(&path).unwrap().keys().len(), 40);
    }

    #[test]
    fn keys_are_persisted_and_an_invalid_file_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let store = KeyStore::open(&path).unwrap();
        assert!(store.ring().keys().is_empty());
        let (secret, id) = store
            .add(&EditTurn::unlimited(), NewVirtualKey { owner: Some("ann".into()), ..NewVirtualKey::default() })
            .unwrap();
        assert_eq!(id.len(), 8, "an id is made up");
        let now = Timestamp::now();
        let other = KeyStore::open(&path).unwrap();
        assert_eq!(other.ring().find(secret.reveal(), now).unwrap().id, id);
        assert!(
            other.revoke(&EditTurn::unlimited(), &id).unwrap()
                && !other.revoke(&EditTurn::unlimited(), "nobody").unwrap()
        );
        assert!(other.ring().find(secret.reveal(), now).is_err());
        assert!(
            other.rotate(&EditTurn::unlimited(), &id, None).unwrap_err().to_string().contains("revoked"),
            "a revoked key stays revoked"
        );
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
        fs::write(&path, "[[key]]\nid = 1").unwrap();
        let e = KeyStore::open(&path).unwrap_err().to_string();
        assert!(e.contains("keys.toml") && e.contains("line 2"), "{e}");
    }

    #[test]
    fn a_key_is_disabled_enabled_and_rotated_without_losing_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys.toml");
        let store = KeyStore::open(&path).unwrap();
        let (first, id) = store
            .add(&EditTurn::unlimited(), NewVirtualKey { note: Some("ci".into()), ..NewVirtualKey::default() })
            .unwrap();
        let now = Timestamp::now();
        let disabled = |disabled| KeyChange { disabled: Some(disabled), ..KeyChange::default() };
        assert!(
            store.change(&EditTurn::unlimited(), &id, disabled(true)).unwrap()
                && !store.change(&EditTurn::unlimited(), "nobody", disabled(true)).unwrap()
        );
        assert_eq!(store.ring().find(first.reveal(), now), Err(KeyRejection::Disabled(Arc::clone(&id))));
        assert!(store.change(&EditTurn::unlimited(), &id, disabled(false)).unwrap());
        let second = store.rotate(&EditTurn::unlimited(), &id, None).unwrap().unwrap();
        assert!(store.ring().find(first.reveal(), now).is_err());
        let found = KeyStore::open(&path).unwrap().ring().find(second.reveal(), now).unwrap();
        assert_eq!((&found.id, found.note.as_deref()), (&id, Some("ci")));
        let end = KeyChange { expires: Some(Some(now)), ..KeyChange::default() };
        assert!(store.change(&EditTurn::unlimited(), &id, end).unwrap());
        assert_eq!(store.ring().find(second.reveal(), now), Err(KeyRejection::Expired(Arc::clone(&id))));
        assert!(
            store
                .change(&EditTurn::unlimited(), &id, KeyChange { expires: Some(None), ..KeyChange::default() })
                .unwrap()
        );
        assert!(store.ring().find(second.reveal(), now).is_ok());
        assert!(store.rotate(&EditTurn::unlimited(), "nobody", None).unwrap().is_none());
    }
}
