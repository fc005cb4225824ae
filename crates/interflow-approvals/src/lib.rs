//! Outbound access control: modes, rules, pending requests, secrets for placeholders, agent sessions.
#![forbid(unsafe_code)]

pub mod approvals;
