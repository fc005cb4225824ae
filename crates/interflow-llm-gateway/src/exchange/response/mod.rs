//! The response of an exchange.
//!
//! A stream is one body, [`ResponseStream`], from the stage that first reads its events on: every later stage adds a step to
//! it instead of a wrapper around it. It is decoded and divided into events once, each event is parsed once
//! ([`ParsedEvent`](interflow_llm::parsed_event::ParsedEvent)) and goes through the steps in the order in which they were
//! added, and what no step changes is sent as it came. Observers of bytes in between, such as the recorder, are steps, too.
//!
//! A response that is not a stream is read by [`WholeResponse`](whole::WholeResponse): a stage that does not change it keeps
//! what it read for the next.

pub(crate) mod abort;
pub(crate) mod body_copy;
pub(crate) mod event_rewriter;
pub(crate) mod rewrite_step;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod whole;
