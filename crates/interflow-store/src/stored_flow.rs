//! A flow as a store has it, its record and what its row holds of its bodies; and a flow with all its bytes in memory.

use std::ops::ControlFlow;

use bytes::Bytes;
use interflow_types::{CertificateChain, Direction};

use crate::model::{FlowRecord, MessageRecord};
use crate::store::segments::chunk_refs::{ChunkRef, SIDES, body_index};

/// Called now and then during long work, which it may stop.
pub type Watch<'a> = dyn FnMut() -> ControlFlow<()> + 'a;

/// Called for each flow with its row, until it stops that.
pub type EachStored<'a> = dyn FnMut(StoredFlow) -> ControlFlow<()> + 'a;

/// Called for each flow, until it stops that.
pub type EachFlow<'a> = dyn FnMut(FlowRecord) -> ControlFlow<()> + Send + 'a;

/// A recorded flow with its position in the order of recording.
pub struct StoredFlow {
    pub row: FlowRecord,
    pub position: i64,
    /// The parts of its bodies in segments of the embedded store.
    pub refs: [Vec<ChunkRef>; SIDES],
    /// Bodies, or the ends of bodies, that are in the row.
    pub inline: [Bytes; SIDES],
}

/// The bodies of a flow in the order of the store: those that were sent on, then those that were received, of edited ones.
pub const BODIES: [(Direction, bool); 4] = [
    (Direction::Request, false),
    (Direction::Response, false),
    (Direction::Request, true),
    (Direction::Response, true),
];

/// What is wanted of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowParts {
    Row,
    /// The bodies that were sent on, too.
    Bodies,
    /// All bodies and messages.
    All,
}

impl FlowParts {
    /// How many of [`BODIES`] are wanted.
    pub const fn bodies(self) -> usize {
        match self {
            Self::Row => 0,
            Self::Bodies => 2,
            Self::All => BODIES.len(),
        }
    }
}

/// A flow with what was read along with its row.
pub struct LoadedFlow {
    pub row: FlowRecord,
    /// Its position in the order of recording, if the store knows it without being asked.
    pub position: Option<u64>,
    pub parts: FlowParts,
    /// In the order of [`BODIES`], to where they are intact. Absent are those that are not wanted, or too long to be held.
    pub bodies: [Option<Bytes>; 4],
    /// All of them, if they are few and intact.
    pub messages: Option<Vec<MessageRecord>>,
}

impl LoadedFlow {
    /// A flow of which nothing was read.
    pub fn new(row: FlowRecord, parts: FlowParts) -> Self {
        Self { row, position: None, parts, bodies: Default::default(), messages: None }
    }

    /// The body that was sent on, if it was loaded, to where it is intact.
    pub fn body(&self, side: Direction) -> Option<&Bytes> {
        self.bodies.get(body_index(side))?.as_ref()
    }
}

/// A flow with all its data in memory, to be imported or exported.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowWithBodies {
    /// The record; body sizes are taken from it, the recorded bytes from the fields below.
    pub row: FlowRecord,
    /// The request's body, content coding kept.
    pub request_body: Bytes,
    /// The response's body, content coding kept.
    pub response_body: Bytes,
    /// The bodies of request and response as received, if the record says that they were edited.
    pub original_bodies: [Bytes; 2],
    /// The certificate chains shown to the client and by the origin. No format of archives has them.
    pub certificates: [Option<CertificateChain>; 2],
    pub messages: Vec<MessageRecord>,
}

impl FlowWithBodies {
    /// A flow without bytes.
    pub fn new(row: FlowRecord) -> Self {
        let (request_body, response_body, original_bodies, certificates, messages) = Default::default();
        Self { row, request_body, response_body, original_bodies, certificates, messages }
    }

    pub fn bytes(&self, direction: Direction) -> &Bytes {
        match direction {
            Direction::Request => &self.request_body,
            Direction::Response => &self.response_body,
        }
    }

    /// The bytes of its bodies and messages.
    pub fn content_bytes(&self) -> usize {
        let bodies = [&self.request_body, &self.response_body].into_iter().chain(&self.original_bodies);
        bodies.chain(self.messages.iter().map(|message| &message.payload)).map(Bytes::len).sum()
    }
}
