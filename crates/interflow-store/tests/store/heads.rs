//! Media and large bodies are recorded as heads.

use interflow_store::*;
use interflow_types::{DecryptedMedia, Direction, SecretBodies};
use sha2::Digest as _;

use super::*;

/// Records a response of this type with a declared length; returns its row.
fn recorded(
    config: &RecordConfig,
    kind: &str,
    body: &[u8],
    clear: bool,
) -> (tempfile::TempDir, SqliteStore, FlowRecord) {
    let (dir, store) = store(config);
    let mut flow = flow("media.test");
    let recorder = store.recorder().unwrap();
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    if clear {
        flow.extension_mut::<DecryptedMedia>();
    }
    let mut head = response(200);
    head.headers = [("Content-Type", kind), ("Content-Length", &body.len().to_string())].into_iter().collect();
    capture.response(&flow, &head);
    feed(&mut *capture, Direction::Response, body);
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let row = store.get(flow.id).unwrap();
    (dir, store, row)
}

both_stores!(heads_of_media_are_where_they_stay);

fn heads_of_media_are_where_they_stay(kind: &StoreKind) {
    let store = kind.open(&RecordConfig::default());
    let (flow, body) = (flow("media.test"), noise(2 << 20, 9));
    let recorder = store.recorder().unwrap();
    let mut capture = recorder.begin(&flow, Some(&request(&flow, "GET", "/"))).unwrap();
    let mut head = response(200);
    head.headers = [("Content-Type", "video/mp4"), ("Content-Length", &body.len().to_string())].into_iter().collect();
    capture.response(&flow, &head);
    feed(&mut *capture, Direction::Response, &body);
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let known = store.get(flow.id).unwrap().response.unwrap().body;
    assert_eq!((known.size, known.kept, known.missing), (2 << 20, 64 << 10, Some(MissingReason::Head)));
    let digest: [u8; 32] = sha2::Sha256::digest(&body[..64 << 10]).into();
    assert_eq!(known.head_sha256, Some(Sha256Digest(digest)));
    let read = store.body(flow.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
    assert_eq!(read, body[..64 << 10]);
}

#[test]
fn media_body_is_recorded_as_size_prefix_and_prefix_hash() {
    let body = noise(7 << 20, 1);
    for kind in ["video/mp2t", "video/mp4", "application/octet-stream"] {
        let (dir, store, row) = recorded(&RecordConfig::default(), kind, &body, false);
        let known = row.response.as_ref().unwrap().body;
        assert_eq!((known.size, known.kept, known.missing), (7 << 20, 64 << 10, Some(MissingReason::Head)), "{kind}");
        let digest: [u8; 32] = sha2::Sha256::digest(&body[..64 << 10]).into();
        assert_eq!(known.head_sha256, Some(Sha256Digest(digest)));
        let read = store.body(row.id, Direction::Response, 0..u64::MAX).unwrap().read_all(usize::MAX).unwrap();
        assert_eq!(read, body[..64 << 10]);
        assert!(disk(&dir.path().join("segments")) < 100_000);
        let json = serde_json::to_string(&row).unwrap();
        assert!(
            json.contains(&Sha256Digest(digest).to_string())
                && serde_json::from_str::<FlowRecord>(&json).unwrap() == row
        );
    }
}

#[test]
fn text_and_configured_full_bodies_are_recorded_whole() {
    let body = noise(3 << 20, 2);
    let full = RecordConfig { large_bodies: LargeBodies::Full, ..RecordConfig::default() };
    for (config, kind) in [(&RecordConfig::default(), "application/json"), (&full, "video/mp4"), (&full, "")] {
        let (_dir, _store, row) = recorded(config, kind, &body, false);
        assert_eq!(row.response.unwrap().body, BodyRecord::whole(3 << 20), "{kind}");
    }
    let (_dir, _store, row) = recorded(&RecordConfig::default(), "video/mp4", &body[..64 << 10], false);
    assert_eq!(row.response.unwrap().body, BodyRecord::whole(64 << 10), "a body no longer than a head is whole");
}

#[test]
fn decrypted_media_is_recorded_only_if_enabled() {
    let body = noise(200_000, 3);
    let (dir, _store, row) = recorded(&RecordConfig::default(), "video/mp4", &body, true);
    assert_eq!(row.response.unwrap().body, BodyRecord::partial(200_000, 0, Some(MissingReason::Decrypted)));
    assert!(disk(&dir.path().join("segments")) < 1000);
    let full = RecordConfig { large_bodies: LargeBodies::Full, ..RecordConfig::default() };
    let (_dir, _store, row) = recorded(&full, "video/mp4", &body, true);
    assert_eq!(row.response.unwrap().body.kept, 0, "the other key does not ask for it");
    let named = RecordConfig { decrypted_media: true, ..full };
    let (_dir, _store, row) = recorded(&named, "video/mp4", &body, true);
    assert_eq!(row.response.unwrap().body, BodyRecord::whole(200_000));
}

#[test]
fn secret_bodies_are_recorded_as_their_sizes_in_every_configuration() {
    let all = RecordConfig { large_bodies: LargeBodies::Full, decrypted_media: true, ..RecordConfig::default() };
    let secret = |size| BodyRecord::partial(size, 0, Some(MissingReason::Secret));
    // Marked before the request, or once the response is known.
    for early in [true, false] {
        let (_dir, store) = store(&all);
        let recorder = store.recorder().unwrap();
        let mut flow = flow("keys.test");
        if early {
            flow.extension_mut::<SecretBodies>();
        }
        let mut capture = recorder.begin(&flow, Some(&request(&flow, "POST", "/licence"))).unwrap();
        feed(&mut *capture, Direction::Request, b"challenge");
        flow.extension_mut::<SecretBodies>();
        capture.response(&flow, &response(200));
        feed(&mut *capture, Direction::Response, &[7; 16]);
        capture.finish(&flow, FlowOutcome::Complete);
        store.flush().unwrap();
        let row = store.get(flow.id).unwrap();
        assert_eq!(row.request.unwrap().body, if early { secret(9) } else { BodyRecord::whole(9) });
        assert_eq!(row.response.unwrap().body, secret(16));
    }
}

#[test]
fn upload_is_recorded_as_a_prefix_and_counted_bytes_need_no_queue() {
    let (_dir, store) = store(&RecordConfig::default());
    let recorder = store.recorder().unwrap();
    let flow = flow("upload.test");
    let mut head = request(&flow, "PUT", "/film.mp4");
    head.headers = [("Content-Type", "video/mp4"), ("Content-Length", "33554432")].into_iter().collect();
    let mut capture = recorder.begin(&flow, Some(&head)).unwrap();
    feed(&mut *capture, Direction::Request, &noise(1 << 20, 4));
    store.flush().unwrap();
    for _ in 0..31 {
        feed(&mut *capture, Direction::Request, &noise(1 << 20, 5));
        // One update per MiB, so that the growing size of a running flow is visible.
        assert!(store.stats().unwrap().queue_bytes < 1000);
    }
    capture.response(&flow, &response(200));
    capture.finish(&flow, FlowOutcome::Complete);
    store.flush().unwrap();
    let body = store.get(flow.id).unwrap().request.unwrap().body;
    assert_eq!((body.size, body.kept, body.missing), (32 << 20, 64 << 10, Some(MissingReason::Head)));
    assert!(body.head_sha256.is_some());
}
