//! Provider wire shapes, one canonical message model, conversations, usage and cost.
#![forbid(unsafe_code)]
