//! HTTP exchanges: the request pipeline, hop-by-hop handling, upgrades, WebSocket and gRPC messages.

pub(crate) mod body_preview;
pub(crate) mod error_response;
pub(crate) mod expect_continue;
pub(crate) mod grpc;
pub(crate) mod hop_by_hop;
pub(crate) mod loop_detection;
pub(crate) mod messages;
mod outlive;
pub(crate) mod pipeline;
pub(crate) mod response;
pub(crate) mod upgrade;
pub(crate) mod websocket_messages;
