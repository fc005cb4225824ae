//! Connecting: Happy Eyeballs (RFC 8305) and the chain of upstream proxies.
