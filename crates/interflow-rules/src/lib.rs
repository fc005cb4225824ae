//! Filters, actions and rule files.
#![forbid(unsafe_code)]
