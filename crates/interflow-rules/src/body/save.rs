//! Saves a body to a file on a separate thread, so that a slow disk does not delay traffic.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use bytes::Bytes;
use interflow_types::{Body, BodyFrame};

/// Chunks queued for the disk.
const QUEUE_CHUNKS: usize = 256;

/// Returns the same body and writes its data to the file. If the disk falls too far behind, the file is abandoned with
/// a warning.
pub(crate) fn tee_to_file(body: Body, path: PathBuf) -> Body {
    let (to, from) = sync_channel(QUEUE_CHUNKS);
    let shown = path.display().to_string();
    let started = std::thread::Builder::new().name("save-body".into()).spawn(move || write_chunks(path, &from));
    if let Err(e) = started {
        tracing::error!("the body for {shown} is not saved: {e}");
        return body;
    }
    let mut to: Option<SyncSender<Bytes>> = Some(to);
    body.inspect(move |frame| match frame {
        Some(Ok(BodyFrame::Data(data))) => {
            if let Some(sender) = &to
                && let Err(TrySendError::Full(_)) = sender.try_send(data.clone())
            {
                tracing::error!("the disk is too slow: {shown} is cut off");
                to = None;
            }
        }
        Some(Ok(BodyFrame::Trailers(_))) => {}
        Some(Err(_)) | None => to = None,
    })
}

fn write_chunks(path: PathBuf, from: &Receiver<Bytes>) {
    let result = (|| {
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut file = File::create(&path)?;
        for chunk in from {
            file.write_all(&chunk)?;
        }
        file.flush()
    })();
    if let Err(e) = result {
        tracing::error!("the body for {} is not saved: {e}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_passes_is_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b.bin");
        let body = tee_to_file(Body::from(Bytes::from_static(b"hello")), path.clone());
        assert_eq!(&body.collect(9).await.unwrap().0[..], b"hello");
        for _ in 0..500 {
            if std::fs::read(&path).is_ok_and(|b| b == b"hello") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        panic!("the file was not written");
    }
}
