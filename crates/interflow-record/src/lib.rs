//! Capture, store, retention, search and the archive formats.
#![forbid(unsafe_code)]

mod config;
pub mod content;
mod conversations;
mod error;
pub mod formats;
mod heads;
mod model;
mod originals;
mod recorder;
pub(crate) mod serial;
mod store;
mod subject;
pub mod view;

pub use config::{LargeBodies, Overflow, RecordConfig};
pub use conversations::{
    ConversationOptions, ConversationRow, Conversations, ExchangeRow, Findings, Listed, NodeRow, Total, Used,
    in_a_line, text_of_calls, tokens_of_calls,
};
pub use error::{Result, StoreError};
pub use model::{
    BodyRow, ClientRow, ClientTlsRow, Digest, ErrorRow, FlowKind, FlowRow, FlowState, FlowSummary, InterimRow, Label,
    MessageRow, Missing, ProcessRow, RequestRow, ResponseRow, TunnelRow, UpstreamRow, UpstreamTlsRow, media_type,
};
pub use originals::{OriginalRequestRow, OriginalResponseRow, OriginalRow};
pub use recorder::StoreRecorder;
pub use store::{
    Annotation, BodyReader, CheckReport, EmbeddedStore, Event, HeadMask, ListOptions, NewFlow, Order, Progress,
    Recovery, Store, StoreStats, Subscription, Wanted,
};
