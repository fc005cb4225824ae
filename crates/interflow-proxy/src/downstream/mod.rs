//! The client side: connections, authentication and access rules, pages that Interflow serves itself.

pub mod access;
pub(crate) mod builtin_pages;
pub(crate) mod connection;
pub(crate) mod container_lookup;
pub(crate) mod dispatch;
pub(crate) mod gateway;
pub(crate) mod resolve;
mod setup_page;
