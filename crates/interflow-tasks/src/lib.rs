//! What several requests share and none of them owns: tokens that are fetched once for all callers, child processes that
//! speak in lines, queues of reports that are delivered in the background, and caches.
#![forbid(unsafe_code)]

mod abort_on_drop;
mod backoff;
mod cached_token;
mod http_post;
mod line_process;
mod lines;
pub mod own_request;
mod sink_queue;
mod weighed_cache;

pub use abort_on_drop::AbortOnDrop;
pub use backoff::Backoff;
pub use cached_token::{CachedToken, FetchedToken, TokenPolicy};
pub use http_post::{HttpPost, HttpSink, PostFormat, PostMessage, PostPolicy};
pub use line_process::{EndReason, ErrorOutput, LineProcess, ProcessExit, ProcessSpec};
pub use lines::{LineError, LineReader, LineWriter};
pub use sink_queue::{Sink, SinkBatch, SinkCounts, SinkQueue, SinkWorker};
pub use weighed_cache::WeighedCache;
