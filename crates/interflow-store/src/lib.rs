//! Records flows to disk and reads them back: recorder, embedded store, retention, search and conversations.
#![forbid(unsafe_code)]

mod body_policy;
mod config;
mod conversations;
pub mod decoded_body;
mod error;
mod model;
mod originals;
mod overview;
mod recorder;
pub mod serde_repr;
mod store;
mod subject;

pub use config::{LargeBodies, OverflowPolicy, RecordConfig};
pub use conversations::{
    ConversationNote, ConversationOptions, ConversationRow, ConversationStore, ConversationSummary, ConversationTotal,
    ConversationUpdate, ExchangeRow, MessageNodeRow, TokenUsage, TotalsRange, call_text_matches, call_tokens,
    single_line,
};
pub use error::{Result, StoreError};
pub use model::{
    BodyRow, ClientRow, ClientTlsRow, ErrorRow, FlowKind, FlowRow, FlowState, FlowSummary, InterimRow, MessageRow,
    MissingReason, ProcessRow, RequestRow, ResponseRow, Sha256Digest, StaticLabel, TunnelRow, UpstreamRow,
    UpstreamTlsRow, media_type,
};
pub use originals::{OriginalRequestRow, OriginalResponseRow, OriginalRow};
pub use overview::{
    FlowFigures, MAX_BUCKETS, ModelFigures, ModelSeries, NamedFigures, NamedSeries, Overview, OverviewIndexing,
    OverviewOptions, OverviewSample, OverviewSeries, PreviousFigures, StatusFigures,
};
pub use recorder::StoreRecorder;
pub use store::{
    BodyReader, CheckReport, FlowAnnotation, FlowFilterFn, FlowStore, HeaderMasker, ListOptions, ListOrder, NewFlow,
    SearchProgress, SqliteStore, StoreEvent, StoreRecovery, StoreStats, Subscription,
};
