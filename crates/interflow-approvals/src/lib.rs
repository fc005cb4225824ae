//! Outbound access control: access modes, rules, requests that wait for a decision, secrets for placeholders, agent sessions.
#![forbid(unsafe_code)]

pub mod approvals;
