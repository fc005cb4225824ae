//! Accepting, dialling and speaking: ingress, egress, relay and the certificate authority.
#![deny(unsafe_code)]

pub mod ca;
pub mod egress;
mod h2_stream;
pub mod ingress;
pub mod io;
pub mod relay;
pub mod tls;
