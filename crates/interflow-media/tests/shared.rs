//! Shared fetches: upstream requests when clients join, disconnect early, or nothing arrives.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use interflow_media::relay::address::parse;
use interflow_media::relay::resume::RetryPolicy;
use interflow_media::relay::segment_cache::CacheLimits;
use interflow_media::relay::{CachePolicy, CookieJar, FetchRequest, MediaFetcher, SegmentCache};
use interflow_types::{
    Body, BodyFrame, BodyStream, Error, ErrorKind, Headers, HttpClient, Method, Request, Response, ResponseFuture,
    StatusCode,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// An origin that responds on demand, and counts requests and completed readers.
struct Gated {
    gate: Semaphore,
    asked: AtomicUsize,
    answered: AtomicUsize,
    fails: bool,
}

impl HttpClient for Gated {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            self.asked.fetch_add(1, SeqCst);
            self.gate.acquire().await.expect("the gate is never closed").forget();
            self.answered.fetch_add(1, SeqCst);
            if self.fails {
                return Err(Error::new(ErrorKind::Connect, "nobody is there"));
            }
            Ok(Response::full(StatusCode::OK, "video/mp2t", "a segment"))
        })
    }
}

fn origin(fails: bool) -> (Arc<Gated>, SegmentCache) {
    let asked = (AtomicUsize::new(0), AtomicUsize::new(0));
    let origin = Arc::new(Gated { gate: Semaphore::new(0), asked: asked.0, answered: asked.1, fails });
    let client = Arc::clone(&origin) as Arc<dyn HttpClient>;
    let fetch = Arc::new(MediaFetcher::new(Arc::clone(&client), client, 3));
    let bounds = CacheLimits {
        memory: 1 << 20,
        entry: 1 << 20,
        ttl: Duration::from_secs(60),
        playlist_ttl: Duration::from_secs(60),
        patience: RetryPolicy { attempts: 0, delay: Duration::ZERO },
    };
    (origin, SegmentCache::new(fetch, bounds))
}

type Seen = Result<String, ErrorKind>;

fn viewer(shared: &SegmentCache, keep: CachePolicy) -> JoinHandle<Seen> {
    let shared = shared.clone();
    tokio::spawn(async move {
        let url = parse("http://origin.test/s.ts").expect("a well-formed address").url;
        let (headers, cookies) = (Headers::new(), CookieJar::default());
        let ask = FetchRequest { method: Method::GET, url, headers, scope: None, is_secret: false, cookies };
        let fetched = shared.get(ask, keep).await.map_err(|e| e.kind())?;
        let body: Body = fetched.response.body;
        let (bytes, _) = body.collect(100).await.expect("it is short");
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    })
}

/// Lets all tasks run that can make progress.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn shared_fetch_survives_its_first_client() {
    for keep in [CachePolicy::Segment, CachePolicy::Playlist] {
        let (origin, shared) = origin(false);
        let first = viewer(&shared, keep);
        settle().await;
        let others: Vec<_> = (0..9).map(|_| viewer(&shared, keep)).collect();
        settle().await;
        first.abort();
        settle().await;
        origin.gate.add_permits(100);
        for other in others {
            assert_eq!(other.await.unwrap(), Ok("a segment".to_owned()));
        }
        assert_eq!(viewer(&shared, keep).await.unwrap(), Ok("a segment".to_owned()));
        assert_eq!(origin.asked.load(SeqCst), 1, "{keep:?}");
    }
}

#[tokio::test]
async fn fetch_is_cancelled_when_all_clients_disconnect() {
    let (origin, shared) = origin(false);
    let viewers = [viewer(&shared, CachePolicy::Segment), viewer(&shared, CachePolicy::Segment)];
    settle().await;
    viewers.iter().for_each(JoinHandle::abort);
    settle().await;
    origin.gate.add_permits(1);
    settle().await;
    assert_eq!((origin.asked.load(SeqCst), origin.answered.load(SeqCst)), (1, 0), "nobody waits for this answer");
    assert_eq!(viewer(&shared, CachePolicy::Segment).await.unwrap(), Ok("a segment".to_owned()));
    assert_eq!((origin.asked.load(SeqCst), origin.answered.load(SeqCst)), (2, 1));
}

#[tokio::test]
async fn a_failure_is_reported_to_all_waiters_and_not_cached() {
    let (origin, shared) = origin(true);
    let viewers: Vec<_> = (0..20).map(|_| viewer(&shared, CachePolicy::Segment)).collect();
    settle().await;
    origin.gate.add_permits(100);
    for viewer in viewers {
        assert_eq!(viewer.await.unwrap(), Err(ErrorKind::Connect));
    }
    assert_eq!(origin.asked.load(SeqCst), 1);
    assert_eq!(viewer(&shared, CachePolicy::Segment).await.unwrap(), Err(ErrorKind::Connect));
    assert_eq!(origin.asked.load(SeqCst), 2);
}

/// Chunks of 64 KiB, numbered from 1, without a length, and again from the beginning for every request.
struct Live(AtomicUsize);

impl HttpClient for Live {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        self.0.fetch_add(1, SeqCst);
        Box::pin(async {
            let chunks = (1..=40).map(|n| Ok(BodyFrame::Data(vec![n; 64 << 10].into()))).collect::<Vec<_>>();
            let mut response = Response::full(StatusCode::OK, "video/mp2t", "");
            response.head.headers.remove("content-length");
            response.body = Body::stream(Chunks(chunks.into_iter()));
            Ok(response)
        })
    }
}

struct Chunks(std::vec::IntoIter<interflow_types::Result<BodyFrame>>);

impl BodyStream for Chunks {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<interflow_types::Result<BodyFrame>>> {
        Poll::Ready(self.0.next())
    }
}

#[tokio::test]
async fn a_live_stream_that_is_too_long_to_be_shared_goes_on_where_it_was() {
    let origin = Arc::new(Live(AtomicUsize::new(0)));
    let client = Arc::clone(&origin) as Arc<dyn HttpClient>;
    let patience = RetryPolicy { attempts: 0, delay: Duration::ZERO };
    let ttl = Duration::from_secs(60);
    let bounds = CacheLimits { memory: 1 << 20, entry: 512 << 10, ttl, playlist_ttl: ttl, patience };
    let shared = SegmentCache::new(Arc::new(MediaFetcher::new(Arc::clone(&client), client, 3)), bounds);
    let url = parse("http://origin.test/live.ts").expect("a well-formed address").url;
    let (headers, cookies) = (Headers::new(), CookieJar::default());
    let ask = FetchRequest { method: Method::GET, url, headers, scope: None, is_secret: false, cookies };
    let fetched = shared.get(ask, CachePolicy::Playlist).await.expect("a response");
    let (bytes, _) = fetched.response.body.collect(4 << 20).await.expect("all of it");
    let firsts: Vec<u8> = bytes.chunks(64 << 10).map(|chunk| chunk[0]).collect();
    assert_eq!((firsts, origin.0.load(SeqCst)), ((1..=40).collect(), 1));
}
