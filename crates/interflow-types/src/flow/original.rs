//! The unedited versions of requests and responses that a stage edits, for the recorder.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::{Body, BodyFrame, RequestHead, ResponseHead};

/// The most bytes of an original body that are buffered if another stage reads the body before recording begins.
const MAX_PENDING_BYTES: usize = 1 << 20;

/// A request or response before it was edited. The body is kept apart, because it may still be streaming.
#[derive(Debug)]
pub struct OriginalMessage<H> {
    pub head: H,
    /// Its body, if that was edited too.
    pub body: Option<OriginalBody>,
}

/// An extension of edited flows: the messages as received.
#[derive(Debug, Default)]
pub struct OriginalMessages {
    /// The request as received from the client.
    pub request: Option<Box<OriginalMessage<RequestHead>>>,
    /// The response as received from the origin.
    pub response: Option<Box<OriginalMessage<ResponseHead>>>,
}

#[derive(Debug)]
pub enum OriginalBody {
    Full(Bytes),
    /// A body that streams; subscribe to receive its bytes.
    Passing(Arc<OriginalBodyTap>),
}

impl OriginalBody {
    /// Splits a body that is about to be edited into its original and the body to edit.
    pub fn from_body(body: Body) -> (Self, Body) {
        match body {
            // Nothing can be recorded of an empty body, but it is known to be complete.
            Body::Empty => (Self::Full(Bytes::new()), Body::Empty),
            Body::Full(bytes) => (Self::Full(bytes.clone()), Body::Full(bytes)),
            body @ Body::Stream(_) => {
                // Buffered until the recorder subscribes, within the bound.
                let passing = Arc::new(OriginalBodyTap(Mutex::new(OriginalTapState::Nobody(Vec::new(), 0))));
                let tap = Arc::clone(&passing);
                let body = body.inspect(move |frame| {
                    if let Some(Ok(BodyFrame::Data(bytes))) = frame {
                        tap.publish(bytes);
                    }
                });
                (Self::Passing(passing), body)
            }
        }
    }
}

/// Gives access to the bytes of an original body while it streams.
pub struct OriginalBodyTap(Mutex<OriginalTapState>);

enum OriginalTapState {
    /// No subscriber yet: the chunks so far, and their total size.
    Nobody(Vec<Bytes>, usize),
    Somebody(Box<dyn FnMut(&Bytes) + Send>),
    /// More than [`MAX_PENDING_BYTES`] streamed before anyone subscribed.
    Lost,
}

impl OriginalBodyTap {
    fn lock_state(&self) -> MutexGuard<'_, OriginalTapState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `see` with the chunks so far and with every later one; returns false if too much had streamed to be
    /// buffered.
    pub fn subscribe(&self, mut see: impl FnMut(&Bytes) + Send + 'static) -> bool {
        let mut taker = self.lock_state();
        match &*taker {
            OriginalTapState::Nobody(held, _) => held.iter().for_each(&mut see),
            // There is one recorder; a second subscription would miss the beginning.
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
            // The beginning is dropped too: half a body would be taken for the whole.
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
