//! Object storage: buckets of S3 (and servers that speak its protocol), Google Cloud Storage and Azure, and folders.
//!
//! An [`ObjectUrl`] names a place, an [`ObjectStorage`] reads and writes there. Requests are sent through an
//! [`HttpClient`](interflow_types::HttpClient) that the caller hands in, so that TLS and connections are Interflow's own.
//! Credentials come from the environment, by the names that each cloud's own tools use.
#![forbid(unsafe_code)]

mod connector;
mod error;
mod providers;
mod storage;
mod url;

pub use error::{ObjectError, Result};
pub use storage::{ObjectAccess, ObjectEntry, ObjectStorage};
pub use url::{ObjectScheme, ObjectUrl};
