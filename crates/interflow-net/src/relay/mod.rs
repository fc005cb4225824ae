//! Tunnels: bytes both ways until both sides have ended.
