//! Limits: how many connections there may be, from one client and in all, and how fast new ones are taken.
#![forbid(unsafe_code)]

mod connections;
mod rate;

pub use connections::{ConnectionLimits, Connections, Permit, Refused};
pub use rate::TokenBucket;
