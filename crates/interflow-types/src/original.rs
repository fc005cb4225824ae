//! Requests and responses as they came in, where they were edited here: kept for the recorder beside what went on.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;

use crate::{Body, BodyFrame, BodyStream, RequestHead, ResponseHead, Result};

/// The most bytes of an original body that wait for the recorder, when another stage reads the body before the recorder is
/// told of the flow.
const MAX_PENDING_BYTES: usize = 1 << 20;

/// A request or response before it was edited.
#[derive(Debug)]
pub struct OriginalMessage<H> {
    /// Its head.
    pub head: H,
    /// Its body, when that was edited too.
    pub body: Option<OriginalBody>,
}

/// The note on a flow that was edited: what came in. Made for edited flows only.
#[derive(Debug, Default)]
pub struct OriginalMessages {
    /// The request as it came from the client.
    pub request: Option<Box<OriginalMessage<RequestHead>>>,
    /// The response as it came from the origin.
    pub response: Option<Box<OriginalMessage<ResponseHead>>>,
}

/// The body of an [`OriginalMessage`].
#[derive(Debug)]
pub enum OriginalBody {
    /// All of it is here.
    Full(Bytes),
    /// It passes: its bytes are shown to whoever asks for them.
    Passing(Arc<OriginalBodyTap>),
}

impl OriginalBody {
    /// The original of a body that is about to be edited, and the body to edit in its place.
    pub fn from_body(body: Body) -> (Self, Body) {
        match body {
            Body::Empty => (Self::Full(Bytes::new()), Body::Empty),
            Body::Full(bytes) => (Self::Full(bytes.clone()), Body::Full(bytes)),
            body @ Body::Stream(_) => {
                let passing = Arc::new(OriginalBodyTap(Mutex::new(OriginalTapState::Nobody(Vec::new(), 0))));
                let seen = TappedOriginalBody { body, passing: Arc::clone(&passing) };
                (Self::Passing(passing), Body::stream(seen))
            }
        }
    }
}

/// The bytes of an original body that streams.
pub struct OriginalBodyTap(Mutex<OriginalTapState>);

enum OriginalTapState {
    /// What has passed so far, and its size.
    Nobody(Vec<Bytes>, usize),
    Somebody(Box<dyn FnMut(&Bytes) + Send>),
    /// Too much passed before anybody asked.
    Lost,
}

impl OriginalBodyTap {
    fn lock_state(&self) -> MutexGuard<'_, OriginalTapState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `see` what has passed and what passes from here on; false when too much has passed for it to be held.
    pub fn subscribe(&self, mut see: impl FnMut(&Bytes) + Send + 'static) -> bool {
        let mut taker = self.lock_state();
        match &*taker {
            OriginalTapState::Nobody(held, _) => held.iter().for_each(&mut see),
            OriginalTapState::Somebody(_) | OriginalTapState::Lost => return false,
        }
        *taker = OriginalTapState::Somebody(Box::new(see));
        true
    }

    fn publish(&self, bytes: &Bytes) {
        let mut taker = self.lock_state();
        match &mut *taker {
            OriginalTapState::Somebody(see) => see(bytes),
            OriginalTapState::Nobody(held, size) if *size + bytes.len() <= MAX_PENDING_BYTES => {
                *size += bytes.len();
                held.push(bytes.clone());
            }
            OriginalTapState::Nobody(..) => *taker = OriginalTapState::Lost,
            OriginalTapState::Lost => {}
        }
    }
}

impl std::fmt::Debug for OriginalBodyTap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passing")
    }
}

/// A body whose bytes are shown before they are edited.
struct TappedOriginalBody {
    body: Body,
    passing: Arc<OriginalBodyTap>,
}

impl BodyStream for TappedOriginalBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<BodyFrame>>> {
        let frame = std::task::ready!(self.body.poll_frame(cx));
        if let Some(Ok(BodyFrame::Data(bytes))) = &frame {
            self.passing.publish(bytes);
        }
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.body.remaining()
    }
}
