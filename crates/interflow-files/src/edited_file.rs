//! A file that several clients and processes edit while an instance uses it: rules, policies, virtual keys, approval
//! rules, secrets, settings.
//!
//! [`EditedFile`] makes every change in the same order: it locks the file, reads it, lets the caller compare and change the
//! text, checks the new text, writes it atomically, and activates it. Each step blocks, so async code runs an edit on a
//! blocking thread.
//!
//! # Races
//!
//! * The lock is held from the reading to the end of the activation. Of two edits at once, of this process or of others
//!   that lock, the second one reads what the first one wrote. What was active last is therefore what the file has.
//! * An editor that locks nothing can change the file until it is written. A caller that compares the text with the one its
//!   change is based on loses such a change only within the microseconds between the reading and the renaming, and the
//!   time of the check.
//! * The lock is that of one file. A document that is checked together with other files orders its edits itself.
//!
//! # Cancellation
//!
//! An edit cannot be aborted, but it asks its [`EditTurn`] before the first byte is written. A client that does not wait any
//! more, because it disconnected or was told that the change takes too long, ends the turn, and nothing is written. Once
//! the edit has begun to write, the turn cannot be ended: the client waits and is told the result, and the edit runs to
//! its end even if the client disconnects.
//!
//! A failed edit leaves the file and what is active as they were. If the activation fails, the file gets its former text;
//! [`EditError::NotActivated`] says whether it did.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use crate::{FileAccess, FileLock, write_atomic};

/// Why a file was not changed.
#[derive(Debug)]
pub enum EditError<E> {
    /// The turn had ended before anything was written.
    Cancelled,
    /// The file cannot be `locked`, `read` or `written`.
    File { action: &'static str, error: io::Error },
    /// The file does not have the text any more that the change is based on.
    ChangedMeanwhile,
    /// The change is impossible, or its result invalid.
    Rejected(E),
    /// The new text was written, but could not be activated. `restored` is whether the file has its former text again.
    NotActivated { error: E, restored: io::Result<()> },
}

impl<E> EditError<E> {
    fn file(action: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::File { action, error }
    }

    /// What went wrong, to be put behind the file's name.
    ///
    /// # Errors
    /// The error is the document's.
    pub fn into_file_message(self) -> Result<String, E> {
        Ok(match self {
            Self::Cancelled => "was not changed: the request was cancelled".into(),
            Self::File { action, error } => format!("cannot be {action}: {error}"),
            Self::ChangedMeanwhile => "was changed by someone else in the meantime".into(),
            Self::Rejected(error) | Self::NotActivated { error, .. } => return Err(error),
        })
    }
}

/// Whether an edit may still be written. Clones share the state: the waiting client has one, and the edit another.
#[derive(Clone, Debug, Default)]
pub struct EditTurn(Arc<AtomicU8>);

impl EditTurn {
    const OPEN: u8 = 0;
    const WRITING: u8 = 1;
    const ENDED: u8 = 2;

    /// The turn of a caller that waits for the end in any case, such as a command.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// Ends the turn. Returns false if the edit writes already: then its result has to be waited for.
    pub fn end(&self) -> bool {
        self.leave_open(Self::ENDED) || self.is_ended()
    }

    pub fn is_ended(&self) -> bool {
        self.0.load(Acquire) == Self::ENDED
    }

    fn leave_open(&self, to: u8) -> bool {
        self.0.compare_exchange(Self::OPEN, to, AcqRel, Acquire).is_ok()
    }
}

/// A file, and the two functions that know what it contains. The module says what an edit promises.
pub struct EditedFile<C, A> {
    path: PathBuf,
    access: FileAccess,
    check: C,
    activate: A,
}

impl<T, R, E, C: Fn(&str) -> Result<T, E>, A: Fn(T) -> Result<R, E>> EditedFile<C, A> {
    /// `check` checks a text as the next start would, without changing anything. `activate` makes a checked text active
    /// once it is written; if it fails, what was active stays active.
    pub fn new(path: impl Into<PathBuf>, access: FileAccess, check: C, activate: A) -> Self {
        Self { path: path.into(), access, check, activate }
    }

    /// Gives the file a text if it is still the one that the change is based on, as `is_base` tells of the present text:
    /// `None` if there is no file.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn replace(
        &self,
        turn: &EditTurn,
        text: String,
        is_base: impl FnOnce(Option<&str>) -> bool,
    ) -> Result<R, EditError<E>> {
        let (_lock, former) = self.open(turn)?;
        if !is_base(former.as_deref()) {
            return Err(EditError::ChangedMeanwhile);
        }
        self.commit(turn, former.as_deref(), &text)
    }

    /// Changes the present text, `None` if there is no file, into the one that `edit` returns beside its result; `None`
    /// if nothing is to be written.
    ///
    /// # Errors
    /// Nothing has changed.
    pub fn edit<V>(
        &self,
        turn: &EditTurn,
        edit: impl FnOnce(Option<&str>) -> Result<(V, Option<String>), E>,
    ) -> Result<V, EditError<E>> {
        let (_lock, former) = self.open(turn)?;
        let (result, text) = edit(former.as_deref()).map_err(EditError::Rejected)?;
        if let Some(text) = text {
            self.commit(turn, former.as_deref(), &text)?;
        }
        Ok(result)
    }

    /// The lock of the file, and its text.
    fn open(&self, turn: &EditTurn) -> Result<(FileLock, Option<String>), EditError<E>> {
        let lock = FileLock::for_edit_while(&self.path, || !turn.is_ended()).map_err(EditError::file("locked"))?;
        match fs::read_to_string(&self.path) {
            Ok(text) => Ok((lock, Some(text))),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok((lock, None)),
            Err(e) => Err(EditError::file("read")(e)),
        }
    }

    fn commit(&self, turn: &EditTurn, former: Option<&str>, text: &str) -> Result<R, EditError<E>> {
        let checked = (self.check)(text).map_err(EditError::Rejected)?;
        // From here on, the turn cannot be ended.
        if !turn.leave_open(EditTurn::WRITING) {
            return Err(EditError::Cancelled);
        }
        write_atomic(&self.path, text.as_bytes(), self.access).map_err(EditError::file("written"))?;
        let activated = (self.activate)(checked);
        activated.map_err(|error| EditError::NotActivated { error, restored: self.restore(former) })
    }

    fn restore(&self, former: Option<&str>) -> io::Result<()> {
        match former {
            Some(text) => write_atomic(&self.path, text.as_bytes(), self.access),
            None => fs::remove_file(&self.path),
        }
    }
}

/// Whether two texts are the same but for their line ends: a browser may send others than the file has.
pub fn is_same_text(a: &str, b: &str) -> bool {
    a.replace("\r\n", "\n") == b.replace("\r\n", "\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A file whose text is active if it is not `bad`, and whose activation fails for `unlucky`.
    #[derive(Default)]
    struct Numbers {
        active: Mutex<String>,
        /// Tells that a check has begun, and waits for its end.
        check: Option<(Sender<()>, Mutex<Receiver<()>>)>,
    }

    impl Numbers {
        fn check(&self, text: &str) -> Result<String, String> {
            if let Some((begun, end)) = &self.check {
                begun.send(()).unwrap();
                end.lock().unwrap().recv().unwrap();
            }
            if text == "bad" { Err("not a number".into()) } else { Ok(text.to_owned()) }
        }

        fn activate(&self, checked: String) -> Result<usize, String> {
            if checked == "unlucky" {
                return Err("refused".into());
            }
            *self.active.lock().unwrap() = checked;
            Ok(self.active.lock().unwrap().len())
        }
    }

    struct Fixture {
        folder: tempfile::TempDir,
        numbers: Numbers,
    }

    impl Fixture {
        fn new(text: &str) -> Self {
            let this = Self { folder: tempfile::tempdir().unwrap(), numbers: Numbers::default() };
            fs::write(this.path(), text).unwrap();
            *this.numbers.active.lock().unwrap() = text.to_owned();
            this
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("numbers")
        }

        #[expect(clippy::type_complexity, reason = "the functions of this one test")]
        fn file(
            &self,
        ) -> EditedFile<impl Fn(&str) -> Result<String, String>, impl Fn(String) -> Result<usize, String>> {
            let check = |text: &str| self.numbers.check(text);
            EditedFile::new(self.path(), FileAccess::Keep, check, |checked| self.numbers.activate(checked))
        }

        fn replace(&self, turn: &EditTurn, base: &str, text: &str) -> Result<usize, EditError<String>> {
            self.file().replace(turn, text.into(), |now| is_same_text(now.unwrap_or_default(), base))
        }

        /// The text of the file, and the active one.
        fn texts(&self) -> (String, String) {
            (fs::read_to_string(self.path()).unwrap(), self.numbers.active.lock().unwrap().clone())
        }
    }

    fn both(text: &str) -> (String, String) {
        (text.to_owned(), text.to_owned())
    }

    #[test]
    fn of_two_edits_at_once_one_is_refused_and_the_other_stays() {
        let it = Fixture::new("1");
        let results = std::thread::scope(|scope| {
            let save = |text: &'static str| scope.spawn(|| it.replace(&EditTurn::unlimited(), "1", text));
            let saves = [save("22"), save("333")];
            saves.map(|save| save.join().unwrap())
        });
        let saved = results.iter().filter(|result| result.is_ok()).count();
        let refused = results.iter().filter(|result| matches!(result, Err(EditError::ChangedMeanwhile))).count();
        assert_eq!((saved, refused), (1, 1), "{results:?}");
        let winner = if results[0].is_ok() { "22" } else { "333" };
        assert_eq!(it.texts(), both(winner));
    }

    #[test]
    fn a_change_by_another_process_is_not_overwritten() {
        let it = Fixture::new("1");
        let other = FileLock::for_edit(&it.path()).unwrap();
        let refused = std::thread::scope(|scope| {
            let save = scope.spawn(|| it.replace(&EditTurn::unlimited(), "1", "2"));
            fs::write(it.path(), "theirs").unwrap();
            drop(other);
            save.join().unwrap()
        });
        assert!(matches!(refused, Err(EditError::ChangedMeanwhile)), "{refused:?}");
        assert_eq!(it.texts(), ("theirs".into(), "1".into()));
        assert!(it.replace(&EditTurn::unlimited(), "theirs\r\n", "2").is_err());
        assert_eq!(it.replace(&EditTurn::unlimited(), "theirs", "2").unwrap(), 1);
        assert_eq!(it.texts(), both("2"));
    }

    #[test]
    fn an_edit_whose_turn_ends_during_the_check_writes_nothing() {
        let (mut it, turn) = (Fixture::new("1"), EditTurn::default());
        let (begun, check) = channel();
        let (go_on, end) = channel();
        it.numbers.check = Some((begun, Mutex::new(end)));
        let it = it;
        let result = std::thread::scope(|scope| {
            let save = scope.spawn(|| it.replace(&turn, "1", "2"));
            check.recv().unwrap();
            assert!(turn.end());
            go_on.send(()).unwrap();
            save.join().unwrap()
        });
        assert!(matches!(result, Err(EditError::Cancelled)), "{result:?}");
        assert_eq!(it.texts(), both("1"));
    }

    #[test]
    fn an_edit_whose_turn_has_ended_waits_for_no_lock() {
        let (it, turn) = (Fixture::new("1"), EditTurn::default());
        let _other = FileLock::for_edit(&it.path()).unwrap();
        std::thread::scope(|scope| {
            let save = scope.spawn(|| it.replace(&turn, "1", "2"));
            assert!(turn.end());
            assert!(save.join().unwrap().is_err());
        });
        assert_eq!(it.texts(), both("1"));
    }

    #[test]
    fn a_turn_cannot_be_ended_once_the_edit_writes() {
        let (it, turn) = (Fixture::new("1"), EditTurn::default());
        it.replace(&turn, "1", "2").unwrap();
        assert!(!turn.end() && !turn.is_ended());
        assert!(matches!(it.replace(&turn, "2", "3"), Err(EditError::Cancelled)), "a turn is one edit");
    }

    #[test]
    fn a_failed_activation_leaves_the_former_text_in_the_file_and_active() {
        let it = Fixture::new("1");
        let failed = it.replace(&EditTurn::unlimited(), "1", "unlucky");
        assert!(
            matches!(&failed, Err(EditError::NotActivated { error, restored: Ok(()) }) if error == "refused"),
            "{failed:?}"
        );
        assert_eq!(it.texts(), both("1"));
        assert!(matches!(it.replace(&EditTurn::unlimited(), "1", "bad"), Err(EditError::Rejected(_))));
        assert_eq!(it.texts(), both("1"));
        // A file that the edit created is removed again.
        fs::remove_file(it.path()).unwrap();
        let failed = it.replace(&EditTurn::unlimited(), "", "unlucky");
        assert!(matches!(failed, Err(EditError::NotActivated { .. })) && !it.path().exists());
    }

    #[test]
    fn the_former_text_is_given_to_an_edit_that_depends_on_it() {
        let it = Fixture::new("1");
        let add = |now: Option<&str>| Ok((now.map(str::len), Some(format!("{}2", now.unwrap_or_default()))));
        assert_eq!(it.file().edit(&EditTurn::unlimited(), add).unwrap(), Some(1));
        assert_eq!(it.texts(), both("12"));
        fs::remove_file(it.path()).unwrap();
        let none = |now: Option<&str>| Ok((now.is_none(), None));
        assert!(it.file().edit(&EditTurn::unlimited(), none).unwrap());
        assert!(!it.path().exists());
    }
}
