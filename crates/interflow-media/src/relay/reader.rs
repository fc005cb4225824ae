//! Readers of shared bodies: each at its own pace, each to the end, also of what turns out too long to be shared.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use interflow_flow::{Body, BodyStream, BoxFuture, Error, Frame, Kind, Response, Result};

use super::fetch::{Ask, Fetch, Fetched};
use super::flight::{Flight, Stage, wait};
use super::resume::content_range;

/// One reader of a flight.
pub(super) struct Reader {
    flight: Arc<Flight>,
    fetch: Arc<Fetch>,
    ask: Ask,
    index: usize,
    at: u64,
    total: Option<u64>,
    rest: Rest,
    /// What is shared is not what the origin gives, so nothing of it can be asked for there.
    is_worked: bool,
}

/// How the rest is asked for.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    /// From where the reader is.
    FromHere,
    /// The same range once more, from its beginning.
    SameRange,
}

/// Where a reader's bytes come from.
enum Rest {
    Shared,
    /// From the origin, for this reader alone: the thing is too long to be shared.
    Asked(BoxFuture<'static, Result<Fetched>>, Again),
    /// The rest itself, and how many bytes of it are here already.
    Own(Body, u64),
}

impl BodyStream for Reader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        loop {
            match &mut self.rest {
                Rest::Shared => match std::task::ready!(self.poll_shared(cx)) {
                    Some(answer) => return Poll::Ready(answer),
                    None => self.ask_for_the_rest(),
                },
                Rest::Asked(asked, again) => {
                    let again = *again;
                    let fetched = match std::task::ready!(asked.as_mut().poll(cx)) {
                        Ok(fetched) => fetched,
                        Err(e) => return Poll::Ready(Some(Err(e))),
                    };
                    let Response { head, body } = fetched.response;
                    let first = match again {
                        Again::FromHere => content_range(&head).map_or(0, |(first, _)| first),
                        Again::SameRange => 0,
                    };
                    if !head.status.is_success() || first > self.at {
                        let text = "the origin does not give the rest of what is too long to be shared";
                        return Poll::Ready(Some(Err(Error::new(Kind::UpstreamClosed, text))));
                    }
                    self.rest = Rest::Own(body, self.at - first);
                }
                Rest::Own(body, skip) => match std::task::ready!(body.poll_frame(cx)) {
                    Some(Ok(Frame::Data(mut data))) => {
                        let known = (*skip).min(data.len() as u64);
                        *skip -= known;
                        bytes::Buf::advance(&mut data, known as usize);
                        if !data.is_empty() {
                            self.at += data.len() as u64;
                            return Poll::Ready(Some(Ok(Frame::Data(data))));
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

impl Reader {
    /// A reader at the beginning. `ask` is what was asked, `total` how long the body is.
    pub(super) fn new(flight: Arc<Flight>, fetch: Arc<Fetch>, ask: Ask, total: Option<u64>, is_worked: bool) -> Self {
        flight.state.lock().readers += 1;
        Self { flight, fetch, ask, index: 0, at: 0, total, rest: Rest::Shared, is_worked }
    }

    /// The next frame of the shared body; `None` inside when it is to be had alone from here on.
    fn poll_shared(&mut self, cx: &Context<'_>) -> Poll<Option<Option<Result<Frame>>>> {
        let mut state = self.flight.state.lock();
        if let Some(chunk) = state.chunks.get(self.index).cloned() {
            self.index += 1;
            self.at += chunk.len() as u64;
            if self.at > state.read {
                state.read = self.at;
                std::mem::take(&mut state.wakers).into_iter().for_each(Waker::wake);
            }
            return Poll::Ready(Some(Some(Ok(Frame::Data(chunk)))));
        }
        match &state.stage {
            Stage::Whole(..) => Poll::Ready(Some(None)),
            Stage::Broken(_, kind, text) => Poll::Ready(Some(Some(Err(Error::new(*kind, text.clone()))))),
            Stage::TooLong(_) if self.is_worked => {
                let text = "a segment grew larger than what is shared (media.cache.entry)";
                Poll::Ready(Some(Some(Err(Error::new(Kind::BadResponse, text)))))
            }
            Stage::TooLong(_) => Poll::Ready(None),
            Stage::Asked | Stage::Left | Stage::Alone | Stage::Failed(..) | Stage::Coming(_) => {
                wait(&mut state.wakers, cx);
                Poll::Pending
            }
        }
    }

    fn ask_for_the_rest(&mut self) {
        let (fetch, mut ask) = (Arc::clone(&self.fetch), self.ask.clone());
        let again = if ask.headers.contains("range") { Again::SameRange } else { Again::FromHere };
        if again == Again::FromHere {
            let _ = ask.headers.set("Range", format!("bytes={}-", self.at));
        }
        self.rest = Rest::Asked(Box::pin(async move { fetch.send(ask).await }), again);
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.flight.step(|s| s.readers -= 1);
    }
}
