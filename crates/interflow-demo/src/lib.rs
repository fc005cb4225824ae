//! The world of `interflow demo`: a shop, a bank, a video, a fake LLM provider, and the agents and clients that use them.
#![forbid(unsafe_code)]

mod agent;
pub mod client;
mod dialogue;
mod fake_model;
pub mod media_demo;
pub mod origins;
pub mod round;

use std::time::Duration;

pub const SHOP: &str = "shop.example";
pub const CDN: &str = "cdn.example";
pub const BANK: &str = "bank.example";

/// A host without an approval rule: requests to it are held.
pub const WAREHOUSE: &str = "warehouse";
pub const ROUND_PAUSE: Duration = Duration::from_secs(8);
