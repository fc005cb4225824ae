//! Object storage against folders, and against an S3 server that fails in the ways that real ones do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use interflow_fleet::objects::{ObjectAccess, ObjectError, ObjectStorage, ObjectUrl};
use interflow_net::egress::{StandaloneClient, StandaloneOptions};
use interflow_testkit::object_server::{ObjectServer, s3_error};
use interflow_testkit::{Ending, Origin, Reply};
use interflow_types::{HttpClient, Request, ResponseFuture};

fn access(variables: Vec<(String, String)>) -> ObjectAccess {
    let options = StandaloneOptions { timeout: Duration::from_millis(300), ..StandaloneOptions::default() };
    let client = Arc::new(StandaloneClient::new(options).unwrap());
    ObjectAccess { client, variables, retry_for: Duration::from_secs(5) }
}

fn open(url: &str, variables: Vec<(String, String)>) -> ObjectStorage {
    ObjectStorage::open(&url.parse().unwrap(), &access(variables)).unwrap()
}

/// What every kind of storage has to do.
async fn stores_objects(storage: &ObjectStorage) {
    storage.check().await.unwrap();
    assert_eq!(storage.list("").await.unwrap(), [], "the check leaves nothing behind");
    storage.put("date=2026-01-01/a b.bin", Bytes::from_static(b"hello")).await.unwrap();
    storage.put("date=2026-01-02/b", Bytes::from_static(b"")).await.unwrap();
    storage.put("c", Bytes::from_static(b"old")).await.unwrap();
    storage.put("c", Bytes::from_static(b"new")).await.unwrap();
    assert_eq!(storage.get("date=2026-01-01/a b.bin").await.unwrap(), "hello");
    assert_eq!(storage.get_range("date=2026-01-01/a b.bin", 1..3).await.unwrap(), "el");
    assert_eq!(storage.get("c").await.unwrap(), "new");
    assert_eq!((storage.size("c").await.unwrap(), storage.size("d").await.unwrap()), (Some(3), None));
    let names = |entries: Vec<interflow_fleet::objects::ObjectEntry>| {
        entries.into_iter().map(|e| (e.name, e.bytes)).collect::<Vec<_>>()
    };
    let all = names(storage.list("").await.unwrap());
    assert_eq!(
        all,
        [("c".into(), 3), ("date=2026-01-01/a b.bin".into(), 5), ("date=2026-01-02/b".into(), 0)] as [(String, u64); 3]
    );
    assert_eq!(names(storage.list("date=2026-01-02").await.unwrap()), [("date=2026-01-02/b".to_owned(), 0)]);
    assert!(storage.get("d").await.unwrap_err().is_not_found());
    storage.delete("d").await.unwrap();
    storage.delete_all(vec!["c".into(), "d".into(), "date=2026-01-02/b".into()]).await.unwrap();
    assert_eq!(names(storage.list("").await.unwrap()), [("date=2026-01-01/a b.bin".to_owned(), 5)]);

    // 20 MiB: more than two parts.
    let folder = tempfile::tempdir().unwrap();
    let (big, back) = (folder.path().join("big"), folder.path().join("back"));
    let bytes: Vec<u8> = (0..20 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&big, &bytes).unwrap();
    storage.put_file("big", &big).await.unwrap();
    assert_eq!(storage.get_to_file("big", &back).await.unwrap(), bytes.len() as u64);
    assert!(std::fs::read(&back).unwrap() == bytes, "the parts are in order");

    // From a stream, likewise; a source that fails leaves nothing.
    let bytes = Bytes::from(bytes);
    let stream = |bytes: &Bytes, fails: bool| {
        let pieces: Vec<_> =
            (0..bytes.len()).step_by(300_000).map(|at| bytes.slice(at..bytes.len().min(at + 300_000))).collect();
        let end = fails.then(|| Err(std::io::Error::other("the source failed")));
        futures_util::stream::iter(pieces.into_iter().map(Ok).chain(end))
    };
    for (name, length) in [("empty", 0), ("short", 700_000), ("long", bytes.len())] {
        let sent = bytes.slice(..length);
        storage.put_stream(name, stream(&sent, false), length as u64).await.unwrap();
        assert!(storage.get(name).await.unwrap() == sent, "{name}");
        storage.delete(name).await.unwrap();
        let error = storage.put_stream(name, stream(&sent, true), length as u64).await.unwrap_err();
        assert!(error.to_string().contains("the source failed"), "{error}");
        assert_eq!(storage.size(name).await.unwrap(), None, "{name}");
    }
}

#[tokio::test]
async fn a_folder_stores_objects() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("not/there yet");
    let url = format!("file://{}", place.display().to_string().replace(' ', "%20"));
    stores_objects(&open(&url, Vec::new())).await;
    assert!(place.join("big").is_file());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o700, "traffic is private");
    }
}

#[tokio::test]
async fn a_bucket_stores_objects_below_its_prefix() {
    let server = ObjectServer::start().await;
    stores_objects(&open("s3://bucket/some/prefix", server.variables())).await;
    let names: Vec<_> = server.objects().into_keys().collect();
    assert_eq!(names, ["some/prefix/big", "some/prefix/date=2026-01-01/a b.bin"]);
    assert_eq!(server.unfinished_uploads(), 0);
}

/// Waits until something holds; false if it does not.
async fn becomes(holds: impl Fn() -> bool) -> bool {
    for _ in 0..3000 {
        if holds() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

#[tokio::test]
async fn an_upload_that_nobody_waits_for_any_more_leaves_no_parts() {
    let server = ObjectServer::start().await;
    let storage = open("s3://bucket", server.variables());
    // More than one part, and then nothing for ever.
    let piece = || Ok(Bytes::from(vec![7; 1 << 20]));
    let bytes = futures_util::stream::iter(std::iter::repeat_with(piece).take(20));
    let bytes = futures_util::StreamExt::chain(bytes, futures_util::stream::pending());
    let mut upload = Box::pin(storage.put_stream("a", bytes, 100 << 20));
    tokio::select! {
        done = &mut upload => panic!("{done:?}"),
        begun = becomes(|| server.unfinished_uploads() > 0) => assert!(begun, "no upload begins"),
    }
    drop(upload);
    assert!(becomes(|| server.unfinished_uploads() == 0).await, "its parts stay");
    assert_eq!(storage.size("a").await.unwrap(), None);
}

#[tokio::test]
async fn server_side_encryption_is_asked_for() {
    let server = ObjectServer::start().await;
    let url = "s3://bucket?server_side_encryption=aws:kms&sse_kms_key_id=key";
    open(url, server.variables()).put("a", Bytes::from_static(b"a")).await.unwrap();
    let put = server.origin.only_request();
    assert_eq!(put.header("x-amz-server-side-encryption"), Some("aws:kms"));
    assert_eq!(put.header("x-amz-server-side-encryption-aws-kms-key-id"), Some("key"));
}

#[tokio::test]
async fn overload_timeouts_and_broken_connections_are_repeated() {
    for fault in ["503", "slow", "cut"] {
        let failures = AtomicUsize::new(2);
        let server = ObjectServer::with_faults(move |_| {
            failures.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).ok()?;
            Some(match fault {
                "503" => s3_error(503, "SlowDown"),
                "slow" => Reply::nothing(Ending::Stall),
                _ => Reply::nothing(Ending::Cut),
            })
        })
        .await;
        let storage = open("s3://bucket", server.variables());
        storage.put("a", Bytes::from_static(b"a")).await.unwrap_or_else(|e| panic!("{fault}: {e}"));
        assert_eq!(server.objects()["a"], "a", "{fault}");
    }
}

#[tokio::test]
async fn an_outage_is_transient_and_a_refusal_names_its_remedy() {
    let refused = |status: u16, code: &'static str| move |_: &interflow_testkit::Request| Some(s3_error(status, code));
    for (status, code, remedy) in [
        (404, "NoSuchBucket", "bucket does not exist"),
        (403, "AccessDenied", "s3:PutObject"),
        (403, "RequestTimeTooSkewed", "synchronise the clock"),
        (403, "InvalidAccessKeyId", "credentials are wrong"),
        (403, "SignatureDoesNotMatch", "credentials are wrong"),
        (400, "ExpiredToken", "AWS_SESSION_TOKEN"),
        (301, "PermanentRedirect", "another region"),
        (400, "AuthorizationHeaderMalformed", "another region"),
    ] {
        let server = ObjectServer::with_faults(refused(status, code)).await;
        let error = open("s3://bucket/p", server.variables()).check().await.unwrap_err();
        assert!(matches!(error, ObjectError::Refused { .. }), "{code}: {error}");
        let text = error.to_string();
        assert!(text.contains(remedy) && text.contains("s3://bucket/p"), "{code}: {text}");
        assert!(!error.is_transient(), "{code}");
    }
    let down = format!("http://{}", Origin::nobody().await);
    let variables = [("AWS_ENDPOINT_URL", &*down), ("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "hush")];
    let variables = variables.map(|(n, v)| (n.to_owned(), v.to_owned())).to_vec();
    let access = ObjectAccess { retry_for: Duration::from_millis(100), ..access(variables) };
    let storage = ObjectStorage::open(&"s3://bucket".parse().unwrap(), &access).unwrap();
    let error = storage.check().await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(!error.to_string().contains("hush"), "{error}");
}

#[tokio::test]
async fn the_region_that_the_storage_names_is_passed_on() {
    let server = ObjectServer::with_faults(|_| {
        let body = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>";
        Some(Reply::status(400).body(body))
    })
    .await;
    let error = open("s3://bucket", server.variables()).check().await.unwrap_err().to_string();
    assert!(error.contains("AWS_REGION=eu-west-3"), "{error}");
}

#[tokio::test]
async fn the_rights_that_are_missing_are_found_by_the_check() {
    for method in ["PUT", "GET", "DELETE"] {
        let server = ObjectServer::with_faults(move |r| {
            // Objects are deleted by a list of them.
            let is_it = r.method == method || (method == "DELETE" && r.target.contains("?delete"));
            is_it.then(|| s3_error(403, "AccessDenied"))
        })
        .await;
        let error = open("s3://bucket", server.variables()).check().await.unwrap_err().to_string();
        assert!(error.contains("lack a right"), "{method}: {error}");
    }
}

/// The client of a machine that is in no cloud.
struct NoCloud;

impl HttpClient for NoCloud {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        assert_eq!(request.head.url.to_string(), "http://169.254.169.254/", "nothing else is asked");
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn missing_credentials_are_named_although_the_metadata_service_never_answers() {
    let access = ObjectAccess { client: Arc::new(NoCloud), ..access(vec![("AWS_REGION".into(), "eu-west-1".into())]) };
    let storage = ObjectStorage::open(&"s3://bucket".parse().unwrap(), &access).unwrap();
    let error = storage.check().await.unwrap_err();
    assert!(!error.is_transient() && error.to_string().contains("AWS_ACCESS_KEY_ID"), "{error}");
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let url: ObjectUrl = format!("file://{}/below", file.path().display()).parse().unwrap();
    let Err(error) = ObjectStorage::open(&url, &access(Vec::new())) else { panic!("a folder below a file") };
    assert!(error.to_string().contains("cannot be created"), "{error}");
}

#[tokio::test]
async fn wrong_settings_are_refused_and_empty_ones_ignored() {
    let server = ObjectServer::start().await;
    let refused = |change: (&str, &str)| {
        let variables = server.variables().into_iter().filter(|(name, _)| name != change.0);
        let variables = variables.chain([(change.0.to_owned(), change.1.to_owned())]).collect();
        ObjectStorage::open(&"s3://bucket".parse().unwrap(), &access(variables)).err().map(|e| e.to_string())
    };
    let endpoint = refused(("AWS_ENDPOINT_URL", "user:hush@minio:9000")).unwrap();
    assert!(endpoint.contains("`AWS_ENDPOINT_URL` is not a URL") && !endpoint.contains("hush"), "{endpoint}");
    assert!(refused(("AWS_SECRET_ACCESS_KEY", "")).unwrap().contains("set AWS_ACCESS_KEY_ID and"));
    let variables: Vec<_> = server.variables().into_iter().chain([("AWS_REGION".into(), String::new())]).collect();
    open("s3://bucket", variables).check().await.unwrap();
}

#[test]
fn threads_without_a_runtime_wait() {
    let folder = tempfile::tempdir().unwrap();
    let storage = open(&format!("file://{}", folder.path().display()), Vec::new());
    storage.wait(storage.put("a", Bytes::from_static(b"a"))).unwrap();
    assert_eq!(storage.wait(storage.get("a")).unwrap(), "a");
}
