//! Records flows to disk and reads them back: recorder, embedded store, retention, search and conversations.
#![forbid(unsafe_code)]

mod body_policy;
mod config;
mod conversations;
pub mod decoded_body;
mod error;
mod flow_subject;
mod instances;
mod model;
mod originals;
mod overview;
mod recorder;
mod retention_clock;
pub mod serde_repr;
pub mod shared_state;
mod store;
mod stored_flow;
pub mod stored_form;
mod subject;

pub use config::{LargeBodies, OverflowPolicy, RecordConfig};
pub use conversations::{
    ConversationNote, ConversationOptions, ConversationRow, ConversationStore, ConversationSummary, ConversationTotal,
    ConversationUpdate, ExchangeRow, IndexLag, IndexProgress, MessageNodeRow, RecordedFlow, SharedIndex, TokenUsage,
    TotalsRange, UnindexedFlows, call_text_matches, call_tokens, single_line,
};
pub use error::{Result, StoreError};
pub use flow_subject::flow_matches;
pub use instances::{InstanceReport, InstanceRow};
pub use model::{
    BodyRecord, ClientRecord, ClientTlsRecord, ErrorRecord, FlowKind, FlowRecord, FlowState, FlowSummary,
    InterimRecord, MessageRecord, MissingReason, ProcessRecord, RequestRecord, ResponseRecord, Sha256Digest,
    StaticLabel, TunnelRecord, UpstreamRecord, UpstreamTlsRecord, media_type,
};
pub use originals::{OriginalRecord, OriginalRequestRecord, OriginalResponseRecord};
pub use overview::{
    FlowFigures, MAX_BUCKETS, ModelFigures, ModelSeries, NamedFigures, NamedSeries, Overview, OverviewIndexing,
    OverviewOptions, OverviewSample, OverviewSeries, PreviousFigures, StatusFigures,
};
pub use recorder::StoreRecorder;
pub use store::{
    BodyReader, CheckReport, FlowAnnotation, FlowFilterFn, FlowStore, HeaderMasker, ListOptions, ListOrder,
    MAX_EXAMINED, RecordingState, SearchProgress, SearchProgressFn, SharedStoreStats, SqliteStore, StoreEvent,
    StoreRecovery, StoreStats, Subscription,
};
pub use stored_flow::{BODIES, EachFlow, EachStored, FlowParts, FlowWithBodies, LoadedFlow, StoredFlow, Watch};
