//! Capture, store, retention, search and the archive formats.
#![forbid(unsafe_code)]

mod model;
pub(crate) mod serial;

pub use model::{
    BodyRow, ClientRow, ClientTlsRow, ErrorRow, FlowKind, FlowRow, FlowState, FlowSummary, InterimRow, Label,
    MessageRow, Missing, RequestRow, ResponseRow, TunnelRow, UpstreamRow, UpstreamTlsRow, media_type,
};
