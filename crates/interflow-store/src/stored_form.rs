//! The stored form of flows, bodies and conversations, for a store that keeps them elsewhere: the fleet's. Both stores share
//! encodings and arithmetic, so that what is moved from one to the other need not be read.

pub use crate::conversations::NoteOf;
pub use crate::flow_subject::{FlowContents, FlowSubject, MAX_SEARCHED_BODY};
pub use crate::model::{signed, url_of};
pub use crate::retention_clock::RetentionClock;
pub use crate::store::conversation_rows::{EXCHANGE, compress_text, decompress_text};
pub use crate::store::details_blob;
pub use crate::store::overview::{Accumulator, FlowColumns, LlmAccumulator, Span, TextNumbers};
pub use crate::store::rows::{host, kind_of, state_of, version};
pub use crate::store::segments::batch_chunks::BatchChunks;
pub use crate::store::segments::chunk_refs;
pub use crate::store::segments::compress::{Compressor, decompress};
pub use crate::store::spool::{ReadSpooledFn, SpoolTotals, SpooledRow};
pub use crate::store::upkeep::damage::is_of_row;
pub use crate::subject::{flow_column, flow_flag};
