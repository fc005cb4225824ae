//! A flow as a store has it, its record and what its row holds of its bodies; and a flow with all its bytes in memory.

use std::ops::ControlFlow;

use bytes::Bytes;
use interflow_types::{CertificateChain, Direction};

use crate::model::{FlowRecord, MessageRecord};
use crate::store::segments::chunk_refs::{ChunkRef, SIDES};

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
}
