//! CONNECT, SOCKS5 and transparent tunnels: whether their TLS is intercepted or passed through.

pub(crate) mod connect;
pub(crate) mod intercept;
pub(crate) mod leaf_refusal;
pub mod pinning_bypass;
