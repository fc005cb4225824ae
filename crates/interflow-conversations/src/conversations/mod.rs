//! Conversations: where the LLM room, which understands exchanges, and the recording, which keeps them, are joined.
//!
//! [`read`] makes exchanges of recorded flows, [`live`] shows them to the assembler as flows end and keeps what it finds,
//! [`open`] lays a kept conversation out for reading.

pub mod endpoints;
pub mod export;
pub mod from_recording;
pub mod indexer;
pub mod load;
mod mapping;
mod otel;
mod weight;

pub use mapping::CallPricing;

#[cfg(test)]
mod tests;
