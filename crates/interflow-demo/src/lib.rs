//! The world of `interflow demo`: a shop, a bank, a video, a fake LLM provider, and the agents and clients that use them.
#![forbid(unsafe_code)]

mod agent;
pub mod client;
mod dialogue;
mod fake_model;
pub mod media_demo;
pub mod origin;
pub mod tls_demo;

use std::time::Duration;

/// Host names of the demo's traffic; all resolve to this machine.
pub const NAMES: [&str; 9] = [
    "shop.example",
    "cdn.example",
    "api.anthropic.com",
    "api.openai.com",
    "generativelanguage.googleapis.com",
    "llm.example",
    "ollama.example",
    WAREHOUSE,
    BANK,
];

pub const BANK: &str = "bank.example";

/// A host without an approval rule: requests to it are held.
pub const WAREHOUSE: &str = "warehouse";
pub const ROUND_PAUSE: Duration = Duration::from_secs(8);
