//! Messages of HTTP: heads, header fields, bodies, and the traits that send and serve them.

pub mod authority;
pub mod body;
pub mod forwarded;
pub mod headers;
pub mod http_client;
pub mod message;
pub mod mount;
pub mod request_id;
pub mod requested_range;
