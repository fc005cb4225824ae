//! The admin side: REST and WebSocket API, metrics, health and the embedded web UI.
