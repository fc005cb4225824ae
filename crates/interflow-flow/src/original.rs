//! Requests and responses as they came in, where they were edited here: kept for the recorder beside what went on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{Body, BodyStream, Frame, RequestHead, ResponseHead, Result};

/// The most bytes of an original body that wait for the recorder, when another stage reads the body before the recorder is
/// told of the flow.
const MOST_WAITING: usize = 1 << 20;

/// A request or response before it was edited.
#[derive(Debug)]
pub struct Original<H> {
    /// Its head.
    pub head: H,
    /// Its body, when that was edited too.
    pub body: Option<OriginalBody>,
}

/// The note on a flow that was edited: what came in. Made for edited flows only.
#[derive(Debug, Default)]
pub struct Originals {
    /// The request as it came from the client.
    pub request: Option<Box<Original<RequestHead>>>,
    /// The response as it came from the origin.
    pub response: Option<Box<Original<ResponseHead>>>,
}

/// The body of an [`Original`].
#[derive(Debug)]
pub enum OriginalBody {
    /// All of it is here.
    Full(Bytes),
    /// It passes: its bytes are shown to whoever asks for them.
    Passing(Arc<Passing>),
}

impl OriginalBody {
    /// The original of a body that is about to be edited, and the body to edit in its place.
    pub fn of(body: Body) -> (Self, Body) {
        match body {
            Body::Empty => (Self::Full(Bytes::new()), Body::Empty),
            Body::Full(bytes) => (Self::Full(bytes.clone()), Body::Full(bytes)),
            body @ Body::Stream(_) => {
                let passing = Arc::new(Passing(Mutex::new(Taker::Nobody(Vec::new(), 0))));
                let seen = Seen { body, passing: Arc::clone(&passing) };
                (Self::Passing(passing), Body::stream(seen))
            }
        }
    }
}

/// The bytes of an original body that streams.
pub struct Passing(Mutex<Taker>);

enum Taker {
    /// What has passed so far, and its size.
    Nobody(Vec<Bytes>, usize),
    Somebody(Box<dyn FnMut(&Bytes) + Send>),
    /// Too much passed before anybody asked.
    Lost,
}

impl Passing {
    fn taker(&self) -> MutexGuard<'_, Taker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `see` what has passed and what passes from here on; false when too much has passed for it to be held.
    pub fn show(&self, mut see: impl FnMut(&Bytes) + Send + 'static) -> bool {
        let mut taker = self.taker();
        match &*taker {
            Taker::Nobody(held, _) => held.iter().for_each(&mut see),
            Taker::Somebody(_) | Taker::Lost => return false,
        }
        *taker = Taker::Somebody(Box::new(see));
        true
    }

    fn pass(&self, bytes: &Bytes) {
        let mut taker = self.taker();
        match &mut *taker {
            Taker::Somebody(see) => see(bytes),
            Taker::Nobody(held, size) if *size + bytes.len() <= MOST_WAITING => {
                *size += bytes.len();
                held.push(bytes.clone());
            }
            Taker::Nobody(..) => *taker = Taker::Lost,
            Taker::Lost => {}
        }
    }
}

impl std::fmt::Debug for Passing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passing")
    }
}

/// A body whose bytes are shown before they are edited.
struct Seen {
    body: Body,
    passing: Arc<Passing>,
}

impl BodyStream for Seen {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame>>> {
        let frame = std::task::ready!(self.body.poll_frame(cx));
        if let Some(Ok(Frame::Data(bytes))) = &frame {
            self.passing.pass(bytes);
        }
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}
