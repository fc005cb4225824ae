//! The proxy core from outside: a real server, real origins and real clients in one process, on loopback.

mod access;
mod auth;
mod client_identity;
mod endpoints;
mod errors;
mod fingerprints;
mod forward;
mod grpc;
mod http2;
mod impersonation;
mod interception;
mod life;
mod local_client;
mod nested;
mod passthrough;
mod reverse;
mod revocation;
mod smuggling;
mod stages;
mod streams;
mod support;
mod tunnels;
mod upstream;
mod websocket;
mod withheld;
mod workers;
