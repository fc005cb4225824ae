//! What several requests share and none of them owns: tokens that are fetched once for all callers, and child processes
//! that speak in lines.
#![forbid(unsafe_code)]

mod backoff;
mod cached_token;
mod line_process;
mod lines;

pub use backoff::Backoff;
pub use cached_token::{CachedToken, FetchedToken, TokenPolicy};
pub use line_process::{ErrorOutput, LineProcess, ProcessExit, ProcessSpec};
pub use lines::{LineError, LineReader, LineWriter};
