//! Sans-io codecs for wire formats: HTTP/1, ClientHello, SOCKS5, PROXY protocol, DNS, SSE, WebSocket, gRPC, AWS event
//! stream, JSON and content codings; YAML and TOML of files, Prometheus's text format, and JSON Schemas as reference tables.
//!
//! Nothing here reads a socket or a clock. Every parser is given bytes, returns what it parsed or that it needs more,
//! and buffers no more than its limits allow.
#![forbid(unsafe_code)]

pub mod aws_event_stream;
pub mod client_hello;
pub mod content_coding;
mod cursor;
pub mod dns;
pub mod document;
pub mod fingerprint;
pub mod grpc;
pub mod h1;
pub mod hpack;
pub mod html;
pub mod http2_frame;
pub mod http2_preface;
pub mod ja4h;
pub mod json;
pub mod prometheus;
pub mod proxy_protocol;
pub mod socks5;
pub mod sse;
pub mod websocket;

pub use client_hello::ClientHello;
pub use ja4h::ja4h;
