//! Conversations: where the LLM room, which understands exchanges, and the recording, which keeps them, are joined.
//!
//! [`read`] makes exchanges of recorded flows, [`live`] shows them to the assembler as flows end and keeps what it finds,
//! [`open`] lays a kept conversation out for reading.

pub mod endpoints;
pub mod export;
pub mod live;
pub mod open;
mod otel;
pub mod read;
mod rows;
mod weight;

pub use rows::Pricing;

#[cfg(test)]
mod tests;
