//! CONNECT, SOCKS5 and transparent tunnels: whether their TLS is intercepted or passed through.

pub(crate) mod connect;
pub(crate) mod intercept;
pub(crate) mod leaf_refusal;
pub(crate) mod passthrough;
pub mod pinning_bypass;
pub(crate) mod socks;
pub(crate) mod transparent;
