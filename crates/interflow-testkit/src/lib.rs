//! Origins, fake providers and clients for tests and benches.
//!
//! A test starts what it needs in one readable line each, on port 0 of the loopback interface:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
//! use interflow_testkit::{Origin, Wire};
//!
//! let origin = Origin::http().start().await;
//! let mut client = Wire::connect(origin.addr()).await?;
//! client.send(format!("GET /bytes/5 HTTP/1.1\r\nHost: {}\r\n\r\n", origin.authority())).await?;
//! assert_eq!(client.answer().await?.body.len(), 5);
//! assert_eq!(origin.requests()[0].path(), "/bytes/5");
//! # Ok(()) }
//! ```
//!
//! - [`Origin`]: an HTTP/1 and HTTP/2 server (plain or TLS) that answers by path as [`site`] describes or as a closure says, or a raw
//!   TCP server that follows a [`Script`]. It records what it received; a malformed request or a panicking closure fails the test
//!   when the origin is dropped.
//! - [`Wire`]: a client (and server) connection with exact control over the bytes; [`client`] opens tunnels by CONNECT and SOCKS5;
//!   [`H2Client`] speaks HTTP/2.
//! - [`client_info`] is a client of a proxy, for what records flows; [`cpu`] measures what that costs.
//! - Certificates come from [`TestCa`].
//! - [`llm`] is a fake LLM provider, [`oidc`] a fake OpenID Connect issuer, [`object_server`] an S3 server with faults on
//!   demand; [`PostgresServer`] is a real PostgreSQL.
#![forbid(unsafe_code)]

pub mod client;
pub mod cpu;
pub mod docs;
pub mod json_schema;
pub mod llm;
mod message;
pub mod object_server;
pub mod oidc;
mod origin;
mod polling;
#[cfg(unix)]
mod postgres;
mod reply;
mod script;
mod serve;
pub mod site;
mod stalling;
mod tls;
mod wire;

/// The signature algorithms of the fake issuer.
pub use jsonwebtoken::Algorithm as SigningAlgorithm;

pub use client::{H2Client, ProxyLogin, client_info};
pub use message::{Answer, Framing, Request};
pub use origin::{Origin, OriginBuilder};
pub use polling::{KilledOnDrop, until};
#[cfg(unix)]
pub use postgres::{PostgresDatabase, PostgresServer};
pub use reply::{Ending, Reply};
/// The client's TLS configuration, for [`Wire::into_tls`].
pub use rustls::ClientConfig as TlsClientConfig;
pub use script::Script;
pub use site::pattern;
pub use stalling::StallingService;
pub use tls::{TestCa, client_showing, client_trusting, danger_client};
pub use wire::{Io, Wire};
