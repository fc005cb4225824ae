//! One LLM exchange: what its stages read of it, once for all of them.

pub(crate) mod response;
