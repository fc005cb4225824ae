//! Upstream proxies: HTTP CONNECT and SOCKS5 from the client's side.
