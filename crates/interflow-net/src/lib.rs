//! Network I/O: accepting connections (ingress), connecting to origins (egress), tunnels (relay), TLS, and the CA.
#![deny(unsafe_code)]

// An API-compatible fork with more control over what a client sends first.
#[cfg(feature = "impersonate")]
extern crate http2 as h2;

#[macro_use]
mod options;

pub mod ca;
mod deadline_timer;
pub mod descriptors;
pub mod egress;
mod h2_stream;
mod http2_control;
mod http2_fields;
pub mod ingress;
pub mod io;
pub mod relay;
#[cfg(target_os = "linux")]
pub mod text_pages;
pub mod tls;
