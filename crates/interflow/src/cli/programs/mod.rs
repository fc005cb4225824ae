//! Commands that run another program behind the proxy.

pub mod browser;
pub mod exec;
mod exec_choice;
mod proxy_session;
