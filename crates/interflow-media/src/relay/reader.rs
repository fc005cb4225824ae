//! Readers of shared bodies: each at its own pace, including bodies that turn out too long to be shared.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use interflow_types::{Body, BodyFrame, BodyStream, BoxFuture, Error, ErrorKind, Response, Result};

use super::fetch::{FetchRequest, FetchedResponse, MediaFetcher};
use super::resume::content_range;
use super::single_flight::{FetchStage, SharedFetch, register_waker};

/// One reader of a shared fetch. It takes the chunks from `index` on, and `at` is its position in bytes. Dropping it
/// wakes the task that fills the cache, which may have lost its last reader.
pub(super) struct SharedBodyReader {
    flight: Arc<SharedFetch>,
    fetch: Arc<MediaFetcher>,
    ask: FetchRequest,
    index: usize,
    at: u64,
    total: Option<u64>,
    rest: ReaderSource,
    /// The shared body is transformed, so that positions in it are none of the origin's resource, and the rest cannot
    /// be requested.
    is_worked: bool,
}

/// How the rest is requested: from the reader's position, or, since a range of the client's own cannot be shifted
/// without parsing it, by repeating that range and dropping what was delivered.
#[derive(Clone, Copy, PartialEq)]
enum RetryRange {
    FromHere,
    SameRange,
}

/// `Shared` until the body turns out too long; then `Asked`, then `Own`, and never back.
enum ReaderSource {
    Shared,
    /// From the origin, for this reader alone: the body is too long to be shared.
    Asked(BoxFuture<'static, Result<FetchedResponse>>, RetryRange),
    /// The rest, and how many bytes of it were already delivered, to be skipped.
    Own(Body, u64),
}

impl BodyStream for SharedBodyReader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        loop {
            match &mut self.rest {
                ReaderSource::Shared => match std::task::ready!(self.poll_shared(cx)) {
                    Some(answer) => return Poll::Ready(answer),
                    None => self.request_rest(),
                },
                ReaderSource::Asked(asked, again) => {
                    let again = *again;
                    let fetched = std::task::ready!(asked.as_mut().poll(cx))?;
                    let Response { head, body } = fetched.response;
                    // An origin that ignores `Range` answers with the whole, which is used from the reader's position
                    // on.
                    let first = match again {
                        RetryRange::FromHere => content_range(&head).map_or(0, |(first, _)| first),
                        RetryRange::SameRange => 0,
                    };
                    // Beginning after the reader's position would leave a gap.
                    if !head.status.is_success() || first > self.at {
                        let text = "the origin does not give the rest of what is too long to be shared";
                        return Poll::Ready(Some(Err(Error::new(ErrorKind::UpstreamClosed, text))));
                    }
                    self.rest = ReaderSource::Own(body, self.at - first);
                }
                ReaderSource::Own(body, skip) => match std::task::ready!(body.poll_frame(cx)) {
                    Some(Ok(BodyFrame::Data(mut data))) => {
                        let skipped = (*skip).min(data.len() as u64);
                        *skip -= skipped;
                        bytes::Buf::advance(&mut data, skipped as usize);
                        if !data.is_empty() {
                            self.at += data.len() as u64;
                            return Poll::Ready(Some(Ok(BodyFrame::Data(data))));
                        }
                    }
                    other => return Poll::Ready(other),
                },
            }
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.total.map(|t| t.saturating_sub(self.at))
    }
}

impl SharedBodyReader {
    /// A reader at the start. `ask` is the request, `total` the length of the body.
    pub(super) fn new(
        flight: Arc<SharedFetch>,
        fetch: Arc<MediaFetcher>,
        ask: FetchRequest,
        total: Option<u64>,
        is_worked: bool,
    ) -> Self {
        flight.state.lock().readers += 1;
        Self { flight, fetch, ask, index: 0, at: 0, total, rest: ReaderSource::Shared, is_worked }
    }

    /// The next frame of the shared body; `None` inside if the reader must continue alone. The chunks are shared, so
    /// a reader costs no memory of its own.
    fn poll_shared(&mut self, cx: &Context<'_>) -> Poll<Option<Option<Result<BodyFrame>>>> {
        let mut state = self.flight.state.lock();
        if let Some(chunk) = state.chunks.get(self.index).cloned() {
            self.index += 1;
            self.at += chunk.len() as u64;
            if self.at > state.read {
                state.read = self.at;
                // This reader is now the fastest: the filling task may wait for it.
                std::mem::take(&mut state.wakers).into_iter().for_each(Waker::wake);
            }
            return Poll::Ready(Some(Some(Ok(BodyFrame::Data(chunk)))));
        }
        match &state.stage {
            FetchStage::Whole(..) => Poll::Ready(Some(None)),
            FetchStage::Broken(_, kind, text) => Poll::Ready(Some(Some(Err(Error::new(*kind, text.clone()))))),
            FetchStage::TooLong(_) if self.is_worked => {
                let text = "a segment grew larger than what is shared (media.cache.entry)";
                Poll::Ready(Some(Some(Err(Error::new(ErrorKind::BadResponse, text)))))
            }
            FetchStage::TooLong(_) => Poll::Ready(None),
            FetchStage::Asked
            | FetchStage::Left
            | FetchStage::Alone
            | FetchStage::Failed(..)
            | FetchStage::Coming(_) => {
                register_waker(&mut state.wakers, cx);
                Poll::Pending
            }
        }
    }

    /// Continues for this reader alone: with what is left of the shared body, which a live origin would not repeat, or with
    /// a request for the rest.
    fn request_rest(&mut self) {
        if let Some(rest) = self.flight.state.lock().rest.take() {
            self.rest = ReaderSource::Own(rest, 0);
            return;
        }
        let (fetch, mut ask) = (Arc::clone(&self.fetch), self.ask.clone());
        let again = if ask.headers.contains("range") { RetryRange::SameRange } else { RetryRange::FromHere };
        if again == RetryRange::FromHere {
            let _ = ask.headers.set("Range", format!("bytes={}-", self.at));
        }
        self.rest = ReaderSource::Asked(Box::pin(async move { fetch.send(ask).await }), again);
    }
}

impl Drop for SharedBodyReader {
    fn drop(&mut self) {
        self.flight.update(|s| s.readers -= 1);
    }
}
