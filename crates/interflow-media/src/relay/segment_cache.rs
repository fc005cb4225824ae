//! Shared fetches with a bounded cache: concurrent requests for the same resource lead to one upstream request. Two
//! requests are the same if URL and all sent fields are equal.

use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hashlink::LinkedHashMap;
use interflow_types::{
    Body, BodyFrame, BoxFuture, Error, ErrorKind, Method, Response, ResponseHead, Result, StatusCode,
};
use parking_lot::Mutex;

use super::body_parts::chain_body;
use super::disk_cache::{CacheKey, CachedResponse, DiskCache};
use super::fetch::{FetchRequest, FetchedDocument, FetchedResponse, MediaFetcher};
use super::reader::SharedBodyReader;
use super::resume::{RetryPolicy, send_resumable};
use super::single_flight::{FetchHead, FetchStage, HeadWaiter, SharedFetch, register_waker};

/// Accounting overhead of an entry in bytes, which bounds the number of small entries.
const ENTRY_OVERHEAD: u64 = 1024;
/// How often expired entries are searched for, at most: the search locks the index.
const SWEEP_INTERVAL: Duration = Duration::from_secs(5);
/// How far the origin may be read ahead of the fastest reader when the memory is full, in bytes.
const MAX_READ_AHEAD: u64 = 1 << 20;

/// The kind of an entry, which determines its lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CachePolicy {
    /// A playlist or manifest: outdated after seconds, and not completed if its last reader leaves.
    Playlist,
    /// A segment, key or initialization section. Read to the end even if its client disconnects, for the next one.
    Segment,
    /// Any other document, fresh for this time.
    For(Duration),
}

/// The bounds of the cache. `memory` is the total size in bytes, 0 disables sharing; `entry` the size of one body in
/// bytes. Lifetimes count from the end of a body.
#[derive(Clone, Copy, Debug)]
pub struct CacheLimits {
    pub memory: u64,
    pub entry: u64,
    pub ttl: Duration,
    pub playlist_ttl: Duration,
    /// How interrupted bodies are resumed.
    pub patience: RetryPolicy,
}

/// A transformation of a response before it is shared (decryption, remuxing), performed once for all readers.
pub struct ResponseTransform {
    /// Identifies the transformation, including its key: two requests share a result only if it is equal.
    pub id: [u8; 32],
    /// Whether the client's range is requested from the origin; otherwise the whole resource is fetched and returned,
    /// because positions before and after the transformation differ.
    pub takes_ranges: bool,
    /// The transformation. Its errors are final, like those of the fetch: no untransformed body is delivered in its
    /// place.
    pub run: TransformFn,
}

/// Changes the head of a response and returns a new body.
pub type TransformFn = Box<dyn FnOnce(&mut ResponseHead, Body) -> Result<Body> + Send>;

/// The cache, cheap to clone. All clones share their entries.
#[derive(Clone)]
pub struct SegmentCache {
    fetch: Arc<MediaFetcher>,
    bounds: CacheLimits,
    store: Arc<Mutex<SegmentCacheState>>,
    disk: Option<Arc<DiskCache>>,
}

/// The index. Its lock is taken before that of a fetch's state, never the other way round.
#[derive(Default)]
struct SegmentCacheState {
    /// In order of insertion, which is also the order of eviction.
    flights: LinkedHashMap<CacheKey, Arc<SharedFetch>>,
    // Bodies and overhead of all entries; those of readers whose entry was evicted are not counted.
    bytes: u64,
    /// Time of the last removal of expired entries.
    swept: Option<Instant>,
}

impl SegmentCache {
    pub fn new(fetch: Arc<MediaFetcher>, bounds: CacheLimits) -> Self {
        Self { fetch, bounds, store: Arc::default(), disk: None }
    }

    pub fn with_disk(self, disk: Option<Arc<DiskCache>>) -> Self {
        Self { disk, ..self }
    }

    pub fn bytes(&self) -> u64 {
        self.store.lock().bytes
    }

    /// Maximum size of a shared body, in bytes; never more than half the memory, so that two fit.
    pub fn max_entry_bytes(&self) -> u64 {
        self.bounds.entry.min(self.bounds.memory / 2)
    }

    /// The response, shared with all identical requests. Cancel-safe: the fetch continues for others, and is aborted
    /// if there are none.
    ///
    /// # Errors
    /// As for [`MediaFetcher::send`].
    pub async fn get(&self, ask: FetchRequest, keep: CachePolicy) -> Result<FetchedResponse> {
        self.get_transformed(ask, keep, None).await
    }

    /// Like [`get`](Self::get) with a transformation. Transformed responses are never written to disk.
    ///
    /// # Errors
    /// As for [`MediaFetcher::send`], and errors of the transformation.
    pub async fn get_transformed(
        &self,
        ask: FetchRequest,
        keep: CachePolicy,
        work: Option<ResponseTransform>,
    ) -> Result<FetchedResponse> {
        if self.bounds.memory == 0 || ask.method != Method::GET {
            return apply_transform(self.fetch_unshared(ask).await?, work);
            // A range of a resource that is here completely needs no fetch of its own.
        }
        let key = key_for(&ask, work.as_ref());
        if let Some(part) = self.part_of_whole(&ask, work.as_ref()) {
            return Ok(part);
        }
        loop {
            // The waiter is registered before anything else can fail or be dropped, since the last one to leave
            // aborts the fetch.
            let (flight, is_leader) = self.join(key);
            let waiting = HeadWaiter::new(&flight);
            if is_leader {
                // In its own task, so that it continues for others if the first client disconnects.
                let (shared, led) = (self.clone(), Arc::clone(&flight));
                let led = flight.run(async move { shared.lead_fetch(key, led, ask, keep, work).await }).await;
                let early = |e| Error::new(ErrorKind::Internal, format!("a fetch for several ended early: {e}"));
                return led.map_err(early)?;
            }
            let outcome = flight.wait_for_head().await;
            drop(waiting);
            match outcome {
                FetchStage::Coming(s)
                | FetchStage::Whole(s, _)
                | FetchStage::Broken(s, ..)
                | FetchStage::TooLong(s) => return Ok(self.reader(&flight, s, ask, work.is_some())),
                FetchStage::Alone => return apply_transform(self.fetch_unshared(ask).await?, work),
                FetchStage::Failed(kind, text) => return Err(Error::new(kind, text)),
                // The leader's client and with it the fetch went away; this request may lead now.
                FetchStage::Left | FetchStage::Asked => {}
            }
        }
    }

    /// The complete body of a 200 response, shared as well.
    ///
    /// # Errors
    /// As for [`MediaFetcher::document`].
    pub async fn document(&self, ask: FetchRequest, keep: CachePolicy, cap: u64) -> Result<FetchedDocument> {
        self.document_within(ask, keep, (cap, "media.document_bytes")).await
    }

    /// Like [`document`](Self::document), naming the configuration key of the limit.
    ///
    /// # Errors
    /// As for [`MediaFetcher::document`].
    pub async fn document_within(
        &self,
        ask: FetchRequest,
        keep: CachePolicy,
        limit: (u64, &str),
    ) -> Result<FetchedDocument> {
        super::fetch::collect_within(self.get(ask, keep).await?, limit).await
    }

    /// Whether an identical request is in progress or cached.
    pub fn contains_request(&self, ask: &FetchRequest) -> bool {
        self.store.lock().flights.get(&key_of(ask)).is_some_and(|f| f.is_joinable())
    }

    async fn fetch_unshared(&self, ask: FetchRequest) -> Result<FetchedResponse> {
        send_resumable(&self.fetch, ask, self.bounds.patience).await
    }

    /// Joins the fetch in progress or the cached response for this key, or creates a new fetch; the flag says that
    /// the caller leads it.
    fn join(&self, key: CacheKey) -> (Arc<SharedFetch>, bool) {
        let mut store = self.store.lock();
        if let Some(flight) = store.flights.get(&key).filter(|f| f.is_joinable()) {
            return (Arc::clone(flight), false);
        }
        store.forget(&key);
        store.sweep(Instant::now());
        let flight = Arc::<SharedFetch>::default();
        store.flights.insert(key, Arc::clone(&flight));
        store.bytes += ENTRY_OVERHEAD;
        (flight, true)
    }

    /// The leader's task: disk, else origin, then transformation; publishes the head, and leaves the body to the task
    /// that fills the cache.
    async fn lead_fetch(
        &self,
        key: CacheKey,
        flight: Arc<SharedFetch>,
        ask: FetchRequest,
        keep: CachePolicy,
        work: Option<ResponseTransform>,
    ) -> Result<FetchedResponse> {
        // However this ends, waiting requests must be notified.
        let mut guard = FetchLeader { store: &self.store, key, flight: &flight, end: Some(FetchStage::Left) };
        let disk = self.disk.as_ref().filter(|_| keep == CachePolicy::Segment && !ask.is_secret);
        if let Some(disk) = disk.filter(|_| work.is_none())
            && let Some(CachedResponse { url, head, body }) = disk.get(key).await
        {
            guard.end = None;
            let started = Arc::new(FetchHead { url, head, cookies: ask.cookies.clone() });
            self.fill(key, &flight, &started, body);
            return Ok(self.reader(&flight, started, ask, false));
        }
        // If the original is cached or to be cached, the transformation starts from it.
        let from_shared = work.is_some() && (disk.is_some() || self.contains_request(&ask));
        let fetched = match from_shared {
            true => self.get_untransformed(ask.clone(), keep).await,
            false => self.fetch_unshared(ask.clone()).await,
        };
        let fetched = fetched.map_err(|e| guard.fail(e))?;
        let status = fetched.response.head.status;
        // A transformed body that turned out too long could not be continued by its readers, so its length must be
        // known.
        let fits = match (fetched.response.body.remaining(), &work) {
            // An unknown length may still be shared without a transformation: its readers can continue alone.
            (Some(length), _) => length <= self.max_entry_bytes(),
            (None, work) => work.is_none(),
        };
        let is_worked = work.is_some();
        let fetched = apply_transform(fetched, work).map_err(|e| guard.fail(e))?;
        // Errors are not shared either: they may concern this client only, and must not be repeated from a cache.
        if !fits || !matches!(status, StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            guard.end = Some(FetchStage::Alone);
            return Ok(fetched);
        }
        guard.end = None;
        let FetchedResponse { url, response: Response { head, body }, cookies } = fetched;
        let started = Arc::new(FetchHead { url, head, cookies });
        flight.update(|s| s.stage = FetchStage::Coming(Arc::clone(&started)));
        let fetched = self.reader(&flight, Arc::clone(&started), ask, is_worked);
        let pump = CacheFillTask {
            store: Arc::clone(&self.store),
            key,
            flight: Arc::clone(&flight),
            bounds: self.bounds,
            keep,
            disk: disk.filter(|_| !is_worked).cloned(),
            // A transformation may enlarge a body: transport streams have more headers.
            longest: if is_worked { self.max_entry_bytes() * 2 } else { self.max_entry_bytes() },
        };
        tokio::spawn(pump.run(body, started));
        Ok(fetched)
    }

    /// The untransformed response; boxed because it is requested within another request.
    fn get_untransformed(&self, ask: FetchRequest, keep: CachePolicy) -> BoxFuture<'_, Result<FetchedResponse>> {
        Box::pin(self.get(ask, keep))
    }

    /// Completes a shared fetch with a cached response.
    fn fill(&self, key: CacheKey, flight: &Arc<SharedFetch>, started: &Arc<FetchHead>, body: Bytes) {
        let length = body.len() as u64;
        let mut store = self.store.lock();
        if store.flights.get(&key).is_some_and(|f| Arc::ptr_eq(f, flight)) {
            store.bytes += length;
        }
        flight.update(|s| {
            s.length = length;
            s.chunks = if body.is_empty() { Vec::new() } else { vec![body] };
            s.stage = FetchStage::Whole(Arc::clone(started), Instant::now() + self.bounds.ttl);
        });
        store.shrink(self.bounds.memory);
    }

    fn reader(
        &self,
        flight: &Arc<SharedFetch>,
        started: Arc<FetchHead>,
        ask: FetchRequest,
        is_worked: bool,
    ) -> FetchedResponse {
        let total = content_length(&started.head);
        let reader = SharedBodyReader::new(Arc::clone(flight), Arc::clone(&self.fetch), ask, total, is_worked);
        let response = Response { head: started.head.clone(), body: Body::stream(reader) };
        FetchedResponse { url: started.url.clone(), response, cookies: started.cookies.clone() }
    }

    /// A range of a completely cached response, so that seeking in a cached file needs no fetch.
    fn part_of_whole(&self, ask: &FetchRequest, work: Option<&ResponseTransform>) -> Option<FetchedResponse> {
        let range = ask.headers.get_str("range")?.strip_prefix("bytes=")?;
        let (first, last) = range.split_once('-').filter(|(_, last)| !last.contains(','))?;
        let first: u64 = first.trim().parse().ok()?;
        let mut whole = ask.clone();
        whole.headers.remove("range");
        whole.headers.remove("if-range");
        let flight = Arc::clone(self.store.lock().flights.get(&key_for(&whole, work))?);
        let state = flight.state.lock();
        let FetchStage::Whole(started, until) = &state.stage else { return None };
        let same = ask.headers.get("if-range").is_none_or(|v| started.head.headers.get("etag") == Some(v));
        if Instant::now() >= *until || started.head.status != StatusCode::OK || first >= state.length || !same {
            return None;
        }
        let last = last.trim().parse().map_or(state.length - 1, |l: u64| l.min(state.length - 1));
        // `last` before `first` is not a valid range (RFC 9110 14.1.1), and is left to the origin.
        let body = slice(&state.chunks, first, last.checked_sub(first)? + 1);
        let mut head = ResponseHead { status: StatusCode::PARTIAL_CONTENT, ..started.head.clone() };
        head.reason = Bytes::from_static(b"Partial Content");
        let _ = head.headers.set("Content-Range", format!("bytes {first}-{last}/{}", state.length));
        let _ = head.headers.set("Content-Length", body.len().to_string());
        let response = Response { head, body: Body::from(body) };
        Some(FetchedResponse { url: started.url.clone(), response, cookies: started.cookies.clone() })
    }
}

/// The total length of a body, if its head declares it.
fn content_length(head: &ResponseHead) -> Option<u64> {
    if head.headers.contains("content-encoding") {
        return None;
    }
    head.headers.get_str("content-length").and_then(|l| l.trim().parse().ok())
}

/// Bytes of a chunk list, without copying if they are within one chunk.
fn slice(chunks: &[Bytes], first: u64, length: u64) -> Bytes {
    let mut skip = usize::try_from(first).unwrap_or(usize::MAX);
    let mut remaining = usize::try_from(length).unwrap_or(usize::MAX);
    let mut parts = Vec::new();
    for chunk in chunks {
        let from = skip.min(chunk.len());
        let to = from.saturating_add(remaining).min(chunk.len());
        (skip, remaining) = (skip - from, remaining - (to - from));
        if to > from {
            parts.push(chunk.slice(from..to));
        }
    }
    if parts.len() == 1 { parts.remove(0) } else { parts.concat().into() }
}

fn apply_transform(fetched: FetchedResponse, work: Option<ResponseTransform>) -> Result<FetchedResponse> {
    let Some(work) = work else { return Ok(fetched) };
    let FetchedResponse { url, response: Response { mut head, mut body }, cookies } = fetched;
    if head.status.is_success() {
        if interflow_codec::content_coding::has_content_coding(&head.headers) {
            let text = "the segment came with a content coding, though none was asked for, and cannot be worked on";
            return Err(Error::new(ErrorKind::BadResponse, text));
        }
        body = (work.run)(&mut head, body)?;
    }
    Ok(FetchedResponse { url, response: Response { head, body }, cookies })
}

/// The key of a request, and of its transformation if there is one: transformed and original responses are separate
/// entries.
fn key_for(ask: &FetchRequest, work: Option<&ResponseTransform>) -> CacheKey {
    let key = key_of(ask);
    work.map_or(key, |work| *blake3::Hasher::new().update(&key).update(&work.id).finalize().as_bytes())
}

/// The identity of a request: method, URL, all sent fields, and its link's scope. Fields are sorted and their names
/// folded, because their order and case mean nothing.
pub fn key_of(ask: &FetchRequest) -> CacheKey {
    let mut hasher = blake3::Hasher::new();
    hasher.update(ask.method.as_str().as_bytes()).update(b"\n").update(ask.url.to_string().as_bytes());
    let mut fields: Vec<(Vec<u8>, &[u8])> = ask.headers.iter().map(|(n, v)| (n.to_ascii_lowercase(), v)).collect();
    fields.sort();
    for (name, value) in fields {
        hasher.update(b"\n").update(&name).update(b":").update(value);
    }
    if !ask.cookies.is_empty() {
        hasher.update(b"\ncookies ").update(ask.cookies.to_text().as_bytes());
    }
    if let Some(scope) = &ask.scope {
        for host in &scope.hosts {
            hasher.update(b"\nscope ").update(host.as_bytes());
        }
    }
    *hasher.finalize().as_bytes()
}

impl SegmentCacheState {
    /// Removes an entry and its bytes from the accounts.
    fn forget(&mut self, key: &CacheKey) {
        if let Some(flight) = self.flights.remove(key) {
            self.bytes = self.bytes.saturating_sub(flight.state.lock().length + ENTRY_OVERHEAD);
        }
    }

    /// Removes a shared fetch, unless another one has replaced it.
    fn forget_if_same(&mut self, key: &CacheKey, flight: &Arc<SharedFetch>) {
        if self.flights.get(key).is_some_and(|f| Arc::ptr_eq(f, flight)) {
            self.forget(key);
        }
    }

    /// Removes expired entries, at most every [`SWEEP_INTERVAL`], since it looks at all of them with the index
    /// locked.
    fn sweep(&mut self, now: Instant) {
        if self.swept.is_some_and(|at| now.duration_since(at) < SWEEP_INTERVAL) {
            return;
        }
        self.swept = Some(now);
        let is_over = |f: &SharedFetch| matches!(&f.state.lock().stage, FetchStage::Whole(_, until) if *until <= now);
        let over: Vec<CacheKey> = self.flights.iter().filter(|(_, f)| is_over(f)).map(|(k, _)| *k).collect();
        over.iter().for_each(|key| self.forget(key));
    }

    /// Evicts complete entries, oldest first. Those in progress are skipped: their readers would keep the memory
    /// anyway.
    fn shrink(&mut self, memory: u64) {
        let is_whole = |flight: &SharedFetch| matches!(flight.state.lock().stage, FetchStage::Whole(..));
        while self.bytes > memory {
            let oldest = self.flights.iter().find(|(_, flight)| is_whole(flight)).map(|(key, _)| *key);
            let Some(oldest) = oldest else { return };
            self.forget(&oldest);
        }
    }
}

/// Notifies waiting requests if the fetch ends without a result, also if its task is aborted or panics.
struct FetchLeader<'a> {
    store: &'a Mutex<SegmentCacheState>,
    key: CacheKey,
    flight: &'a Arc<SharedFetch>,
    /// The result to publish; `None` if the fetch succeeded.
    end: Option<FetchStage>,
}

impl FetchLeader<'_> {
    fn fail(&mut self, error: Error) -> Error {
        self.end = Some(FetchStage::Failed(error.kind(), error.message().to_owned()));
        error
    }
}

impl Drop for FetchLeader<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            // First the index, so that a request that starts over finds no entry and leads a new fetch.
            self.store.lock().forget_if_same(&self.key, self.flight);
            self.flight.update(|s| s.stage = end);
        }
    }
}

/// Reads the origin's body for all readers, and decides when to stop.
struct CacheFillTask {
    store: Arc<Mutex<SegmentCacheState>>,
    key: CacheKey,
    flight: Arc<SharedFetch>,
    bounds: CacheLimits,
    keep: CachePolicy,
    disk: Option<Arc<DiskCache>>,
    longest: u64,
}

impl CacheFillTask {
    async fn run(self, mut body: Body, started: Arc<FetchHead>) {
        loop {
            self.wait_for_readers().await;
            match body.frame().await {
                Some(Ok(BodyFrame::Data(data))) => {
                    let length = data.len() as u64;
                    let total = self.flight.state.lock().length + length;
                    if total > self.longest {
                        self.store.lock().forget_if_same(&self.key, &self.flight);
                        return self.flight.update(|s| {
                            s.rest = Some(chain_body(data, body, None));
                            s.stage = FetchStage::TooLong(started);
                        });
                    }
                    {
                        let mut store = self.store.lock();
                        // If the entry was evicted meanwhile, the bytes belong to the readers alone.
                        if store.flights.get(&self.key).is_some_and(|f| Arc::ptr_eq(f, &self.flight)) {
                            store.bytes += length;
                        }
                        self.flight.update(|s| {
                            s.length = total;
                            s.chunks.push(data);
                        });
                        store.shrink(self.bounds.memory);
                    }
                    // A playlist is not read later, since it will be outdated; a segment is completed for the next
                    // client.
                    if self.flight.state.lock().readers == 0 && self.keep != CachePolicy::Segment {
                        return self
                            .give_up(started, &Error::new(ErrorKind::ClientGone, "no client waits for it any more"));
                    }
                }
                Some(Ok(BodyFrame::Trailers(_))) => {}
                Some(Err(e)) => return self.give_up(started, &e),
                None => return self.finish_whole(started),
            }
        }
    }

    /// While the memory is full, the origin is read at the pace of the fastest reader. Slower ones do not hold it back:
    /// they would let one stalled client stop all others.
    async fn wait_for_readers(&self) {
        std::future::poll_fn(|cx| {
            let full = self.store.lock().bytes >= self.bounds.memory;
            let mut state = self.flight.state.lock();
            if full && state.readers > 0 && state.length.saturating_sub(state.read) > MAX_READ_AHEAD {
                register_waker(&mut state.wakers, cx);
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }

    /// Ends the fetch with an error. The entry is removed first, so that no new request joins a broken body.
    fn give_up(&self, started: Arc<FetchHead>, error: &Error) {
        self.store.lock().forget_if_same(&self.key, &self.flight);
        self.flight.update(|s| s.stage = FetchStage::Broken(started, error.kind(), error.message().to_owned()));
    }

    fn finish_whole(&self, started: Arc<FetchHead>) {
        let ttl = match self.keep {
            CachePolicy::Playlist => self.bounds.playlist_ttl,
            CachePolicy::Segment => self.bounds.ttl,
            CachePolicy::For(ttl) => ttl,
        };
        let ttl = if started.head.headers.has_token("cache-control", "no-store") { Duration::ZERO } else { ttl };
        let until = Instant::now() + ttl;
        if let Some(disk) = self.disk.as_ref().filter(|_| !ttl.is_zero()) {
            let chunks = self.flight.state.lock().chunks.clone();
            disk.store(self.key, &started.url, &started.head, chunks);
        }
        self.flight.update(|s| s.stage = FetchStage::Whole(started, until));
    }
}
