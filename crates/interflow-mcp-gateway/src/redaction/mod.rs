//! Redaction of arguments, which clients send, and of results, which servers send.

pub(crate) mod restoring;
pub(crate) mod results;
pub(crate) mod values;
