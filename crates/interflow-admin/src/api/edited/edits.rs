//! Changes that clients make to files, and checks of their texts: on blocking threads, within time limits.
//!
//! # Cancellation
//!
//! The work has an [`EditTurn`], which ends with the client's wait: because it takes too long, or because the request's
//! future is dropped when the client disconnects. Nothing is written then. Once the work writes, the client is told its
//! result, however long it takes.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use interflow_files::{EditError, EditTurn};
use tokio::sync::Semaphore;

use crate::error::{ApiError, Result};
use crate::state::AdminState;

/// Maximum size of a text to check, in bytes.
const MAX_CHECKED: usize = 4 << 20;
/// Maximum bracket nesting of a text to check.
const MAX_NESTING: usize = 200;
/// How long a client waits for the check of a text.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client waits until another change is written: longer than an edit waits for the lock of a file, whose error
/// says more.
const EDIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks a client's text on a blocking thread, because parsers may take long for a hostile one. Two run at a time, and
/// the client waits at most [`CHECK_TIMEOUT`].
pub(crate) async fn check_text<T: Send + 'static>(
    state: &AdminState,
    text: &str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    save_text(state, text, |_| work()).await
}

/// As [`check_text`], for work that saves the text after the check.
pub(crate) async fn save_text<T: Send + 'static>(
    state: &AdminState,
    text: &str,
    work: impl FnOnce(&EditTurn) -> Result<T> + Send + 'static,
) -> Result<T> {
    // Cheap bounds first: nesting matters because parsers recurse.
    if text.len() > MAX_CHECKED {
        return Err(ApiError::too_large("the text", MAX_CHECKED as u64));
    }
    if nesting(text) > MAX_NESTING {
        let message = format!("the text opens more than {MAX_NESTING} brackets within one another");
        return Err(ApiError::unprocessable("too_deep", message));
    }
    let too_slow = || {
        let limit = CHECK_TIMEOUT.as_secs();
        let message = format!("the text could not be checked within {limit} s, and nothing was changed");
        ApiError::unprocessable("too_slow", message)
    };
    run_until(&state.checks, tokio::time::sleep(CHECK_TIMEOUT), too_slow, work).await
}

/// Runs a change of a file whose text is not the client's, and so quick to check.
pub(crate) async fn run_edit<T: Send + 'static>(
    state: &AdminState,
    work: impl FnOnce(&EditTurn) -> Result<T> + Send + 'static,
) -> Result<T> {
    let too_slow = || {
        let limit = EDIT_TIMEOUT.as_secs();
        let message = format!("other changes took longer than {limit} s, and nothing was changed");
        ApiError::unavailable("busy", message)
    };
    run_until(&state.edits, tokio::time::sleep(EDIT_TIMEOUT), too_slow, work).await
}

/// The API's error of an edit of this file.
pub(crate) fn edit_error<E>(file: &str, error: EditError<E>, rejected: impl FnOnce(E) -> ApiError) -> ApiError {
    let is_conflict = matches!(error, EditError::ChangedMeanwhile);
    match error.into_file_message() {
        Ok(why) if is_conflict => ApiError::new(StatusCode::CONFLICT, "changed_meanwhile", format!("{file} {why}")),
        Ok(why) => ApiError::internal(format!("{file} {why}")),
        Err(error) => rejected(error),
    }
}

/// Ends the turn when the request's future is dropped.
struct EndOnDrop(EditTurn);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

async fn run_until<T: Send + 'static>(
    permits: &Arc<Semaphore>,
    limit: impl Future<Output = ()>,
    too_slow: impl FnOnce() -> ApiError,
    work: impl FnOnce(&EditTurn) -> Result<T> + Send + 'static,
) -> Result<T> {
    let turn = EndOnDrop(EditTurn::default());
    let work_turn = turn.0.clone();
    // The time limit includes waiting for a permit.
    let result = async {
        let permit = Arc::clone(permits).acquire_owned().await.map_err(|_| ApiError::busy())?;
        let task = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&work_turn)
        });
        task.await.map_err(|e| ApiError::internal(format!("the work was not finished: {e}")))?
    };
    tokio::pin!(result);
    tokio::select! {
        biased;
        result = &mut result => return result,
        () = limit => {}
    }
    if turn.0.end() { Err(too_slow()) } else { result.await }
}

/// The maximum bracket nesting, regardless of syntax; also counts runs of YAML block sequences on a line (`- - -`).
fn nesting(text: &str) -> usize {
    let (mut open, mut deepest) = (0usize, 0);
    for b in text.bytes() {
        match b {
            b'[' | b'{' | b'(' => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' | b')' => open = open.saturating_sub(1),
            _ => {}
        }
    }
    // In YAML, each dash on a line opens a sequence within the one before.
    let dashes = |line: &str| line.split_ascii_whitespace().take_while(|w| matches!(*w, "-" | "?")).count();
    text.lines().map(dashes).fold(deepest, usize::max)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::mpsc::{Receiver, channel};

    use interflow_files::{EditedFile, FileAccess};

    use super::*;

    /// A text whose check lasts until the test ends it.
    struct SlowCheck {
        begun: std::sync::mpsc::Sender<()>,
        end: Receiver<()>,
    }

    fn save(path: &Path, check: SlowCheck) -> impl FnOnce(&EditTurn) -> Result<()> + Send + 'static {
        let check = move |_: &str| {
            check.begun.send(()).unwrap();
            let _ = check.end.recv();
            Ok(())
        };
        let file = EditedFile::new(path, FileAccess::Keep, check, |()| Ok(()));
        move |turn| file.replace(turn, "new".into(), |_| true).map_err(|e| edit_error("file", e, |e| e))
    }

    #[tokio::test]
    async fn a_text_that_is_checked_too_long_or_whose_client_disconnects_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let permits = Arc::new(Semaphore::new(1));
        // Every step is made by the test, not by time.
        for is_disconnected in [false, true] {
            let (begun, check) = channel();
            let (go_on, end) = channel();
            let (is_late, limit) = tokio::sync::oneshot::channel::<()>();
            let (work, permits_of_request) = (save(&path, SlowCheck { begun, end }), Arc::clone(&permits));
            let request = tokio::spawn(async move {
                let limit = async { drop(limit.await) };
                run_until(&permits_of_request, limit, ApiError::busy, work).await
            });
            tokio::task::spawn_blocking(move || check.recv()).await.unwrap().unwrap();
            if is_disconnected {
                request.abort();
                assert!(request.await.unwrap_err().is_cancelled());
            } else {
                is_late.send(()).unwrap();
                assert_eq!(request.await.unwrap().unwrap_err().into_details().kind, "busy");
            }
            go_on.send(()).unwrap();
            // The permit is free again when the work has ended.
            let _ended = permits.acquire().await.unwrap();
            assert!(!path.exists());
        }
    }

    #[tokio::test]
    async fn a_client_whose_text_is_being_written_is_told_the_result() {
        let permits = Arc::new(Semaphore::new(1));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let (begun, check) = channel();
        let (go_on, end) = channel();
        go_on.send(()).unwrap();
        let written = save(&path, SlowCheck { begun, end });
        let (wait, go_on) = channel::<()>();
        let work = move |turn: &EditTurn| {
            written(turn)?;
            let _ = go_on.recv();
            Ok("saved")
        };
        let (is_late, limit) = tokio::sync::oneshot::channel::<()>();
        let request = tokio::spawn(async move {
            let limit = async { drop(limit.await) };
            run_until(&permits, limit, ApiError::busy, work).await
        });
        tokio::task::spawn_blocking(move || check.recv()).await.unwrap().unwrap();
        while !path.exists() {
            tokio::task::yield_now().await;
        }
        is_late.send(()).unwrap();
        // The limit is over before the work ends.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        wait.send(()).unwrap();
        assert_eq!(request.await.unwrap().ok(), Some("saved"));
    }

    #[test]
    fn nesting_counts_brackets_that_are_open_at_once() {
        for (text, depth) in [
            ("", 0),
            ("[[[[", 4),
            ("[a](b){c}", 1),
            ("{\"a\": [[1], [2]]}", 3),
            ("]]]][", 1),
            ("a\n- - - - x\n- y", 4),
            ("? ? ? x", 3),
        ] {
            assert_eq!(nesting(text), depth, "{text}");
        }
    }
}
