//! Saves a body to a file beside the traffic: a slow disk does not delay it, and only a few threads wait for the disk.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use bytes::Bytes;
use interflow_types::{Body, BodyFrame};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::disk;
use crate::files::private_files::PrivateFiles;

/// Chunks of one body queued for the disk.
const QUEUE_CHUNKS: usize = 256;

/// How many threads write at once, in the whole process.
const WRITERS: usize = 8;

static SLOTS: Semaphore = Semaphore::const_new(WRITERS);

/// Returns the same body and writes its data to the file. If the disk falls too far behind, the file is abandoned with
/// a warning.
pub(crate) fn tee_to_file(body: Body, path: PathBuf, private: PrivateFiles) -> Body {
    let (to, from) = channel(QUEUE_CHUNKS);
    let path_text = path.display().to_string();
    tokio::spawn(async move {
        let file_name = path.display().to_string();
        if let Err(e) = write_chunks(path, private, from).await {
            tracing::error!("the body for {file_name} is not saved: {e}");
        }
    });
    let mut to: Option<Sender<Bytes>> = Some(to);
    body.inspect(move |frame| match frame {
        Some(Ok(BodyFrame::Data(data))) => {
            if let Some(sender) = &to
                && let Err(TrySendError::Full(_)) = sender.try_send(data.clone())
            {
                tracing::error!("the disk is too slow: {path_text} is cut off");
                to = None;
            }
        }
        Some(Ok(BodyFrame::Trailers(_))) => {}
        Some(Err(_)) | None => to = None,
    })
}

async fn write_chunks(path: PathBuf, private: PrivateFiles, mut from: Receiver<Bytes>) -> io::Result<()> {
    let mut file = on_disk(move || {
        private.check_write(&path)?;
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        File::create(&path)
    })
    .await?;
    let mut chunks = Vec::new();
    while from.recv_many(&mut chunks, QUEUE_CHUNKS).await > 0 {
        let chunks = std::mem::take(&mut chunks);
        file = on_disk(move || {
            for chunk in chunks {
                file.write_all(&chunk)?;
            }
            Ok(file)
        })
        .await?;
    }
    Ok(())
}

/// Runs on one of the writing threads. No thread is held while a body has nothing to write.
async fn on_disk<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    disk::run_on(&SLOTS, work).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    async fn is_written(path: &Path) -> bool {
        for _ in 0..2000 {
            if std::fs::read(path).is_ok_and(|b| b == b"hello") {
                return true;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        false
    }

    async fn save(path: PathBuf) {
        let body = tee_to_file(Body::from(Bytes::from_static(b"hello")), path, PrivateFiles::default());
        assert_eq!(&body.collect(9).await.unwrap().0[..], b"hello");
    }

    #[tokio::test]
    async fn body_is_copied_to_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.bin");
        save(path.clone()).await;
        assert!(is_written(&path).await);
    }

    #[cfg(unix)]
    #[tokio::test]
    async fn many_bodies_for_a_disk_that_hangs_pass_and_take_few_threads() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for _ in 0..3 * WRITERS {
            save(pipe.clone()).await;
        }
        let taken = async {
            while SLOTS.available_permits() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), taken).await.expect("each slot is taken");
        // The disk is back.
        let reader = tokio::task::spawn_blocking({
            let pipe = pipe.clone();
            move || File::open(pipe)
        });
        let _reader = reader.await.unwrap().unwrap();
        let path = dir.path().join("after.bin");
        save(path.clone()).await;
        assert!(is_written(&path).await);
    }
}
