//! Speaking to origins: names, connections, pools, HTTP as a client.

pub mod dial;
pub mod dns;
pub mod http1;
pub mod http2;
pub mod pool;
pub mod proxy;
