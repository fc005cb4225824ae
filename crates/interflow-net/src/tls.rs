//! TLS on both legs.
