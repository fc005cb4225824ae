//! Sans-io codecs for what crosses the wire: HTTP/1, ClientHello, SOCKS5, PROXY protocol, SSE, WebSocket, gRPC, AWS event stream.
