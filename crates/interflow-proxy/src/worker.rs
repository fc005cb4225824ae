//! Workers: one thread with its own runtime, listeners and pools each, so that they share no lock on the hot path.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use interflow_codec::client_hello::ClientHello;
use interflow_limits::{ClientConnectionPermit, ConnectionRejection};
use interflow_net::ingress::{self, ClientListener, ClientProtocol, SniffTimeouts};
use interflow_net::io::IoStream;
use interflow_net::tls::{self, Alpn, ServerTls};
use interflow_types::{
    ByteStr, ClientInfo, ClientProcess, ClientTls, EntryKind, Error, ErrorKind, Host, Result, Timestamp,
};
use tokio::net::TcpStream;

use crate::config::ProxyServerConfig;
use crate::downstream::connection::{ClientConnection, ConnectionKind};
use crate::downstream::container_lookup;
use crate::state::{ActiveConfig, ListenerRole, ProxyWorker};
use crate::tunnel::{socks, transparent};

impl ProxyWorker {
    /// Accepts connections until shutdown.
    pub async fn accept(self: Arc<Self>, listener: ClientListener, role: ListenerRole) {
        let name: Arc<str> = role.as_str().into();
        let Ok(local) = listener.local_addr() else { return };
        loop {
            let (stream, peer) = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.drain.drained() => return,
            };
            // The last file descriptors are reserved for recording and the admin port, so they must not serve
            // traffic.
            if interflow_net::descriptors::is_reserved(&stream) {
                self.counters.connection_rejected(None);
                if let Some(kept) = self.shared.no_descriptor.suppressed_if_due() {
                    tracing::warn!(
                        refused_since = kept,
                        "a connection was refused: no file descriptors are left; raise the process's limit on open files"
                    );
                }
                // Dropping the stream closes it; there is no descriptor to spare for an answer.
                continue;
            }
            match self.shared.connections.admit(peer.ip()) {
                Ok(permit) => {
                    self.counters.connections.fetch_add(1, Ordering::Relaxed);
                    let worker = Arc::clone(&self);
                    // The permit lives as long as the connection's task.
                    tokio::spawn(worker.serve(stream, peer, local, (role, Arc::clone(&name)), permit));
                }
                Err(refused) => {
                    self.counters.connection_rejected(Some(refused));
                    tracing::debug!(%peer, "connection refused: {refused}");
                    reject_over_limit(stream, refused);
                }
            }
        }
    }

    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        local: SocketAddr,
        (role, listener): (ListenerRole, Arc<str>),
        _permit: ClientConnectionPermit,
    ) {
        let config = self.active_config();
        // Read now: the socket is wrapped below, and its original destination would be out of reach.
        let wanted = (role == ListenerRole::Transparent).then(|| ingress::original_destination(&stream, local));
        let mut client = ClientInfo {
            connection: self.shared.next_connection.fetch_add(1, Ordering::Relaxed),
            peer,
            local: stream.local_addr().unwrap_or(local),
            listener,
            accepted: Timestamp::now(),
            container: None,
            process: None,
        };
        let mut io = IoStream::from(stream);
        let from = peer.ip().to_canonical();
        // Compared with the real peer, before the header replaces it.
        if config.settings.config.proxy.proxy_protocol_trusted.iter().any(|net| net.contains(&from)) {
            match Box::pin(ingress::read_proxy_header(io, config.settings.config.timeouts.header_timeout.0)).await {
                Ok((header, rest)) => {
                    if let Some(header) = header {
                        client.peer = header.source;
                        client.local = header.destination;
                    }
                    io = rest;
                }
                Err(e) => {
                    self.warn_missing_proxy_header(&client, &e);
                    return self.count_end(&client, &e);
                    // Fails closed: without the header, the client's address would be the load balancer's.
                }
            }
        }
        if config.settings.config.proxy.processes && client.peer.ip().to_canonical().is_loopback() {
            client.process = Box::pin(self.process_of(&client)).await;
        }
        if config.settings.config.proxy.containers {
            client.container = self.container_of(&config.settings.config, &client).await;
        }
        let client = Arc::new(client);
        let ended = match (role, wanted) {
            (_, Some(Ok(wanted))) => {
                // As on the proxy port, except that the destination comes from the firewall.
                let conn = ClientConnection::new(Arc::clone(&self), Arc::clone(&client), ConnectionKind::Proxy, None);
                // Boxed, as everything rare: its future would enlarge that of every connection.
                Box::pin(transparent::serve_transparent(&conn, config, io, EntryKind::Transparent, wanted)).await;
                Ok(Ok(()))
            }
            (_, Some(Err(e))) => {
                tracing::warn!(peer = %client.peer, "{e}");
                Err(e)
            }
            (ListenerRole::Reverse(port), None) => {
                Box::pin(transparent::serve_reverse(&self, &client, config, io, port)).await.map(Ok)
            }
            (_, None) => self.serve_protocol(&config, io, &client, role, None).await,
        };
        match ended {
            Ok(served) => self.log_end(&client, served),
            Err(e) => self.count_end(&client, &e),
        }
    }

    /// The client process behind a connection from this machine. Blocking, since it scans the tables of the system.
    async fn process_of(&self, client: &ClientInfo) -> Option<Arc<ClientProcess>> {
        let (shared, peer, local) = (Arc::clone(&self.shared), client.peer, client.local);
        tokio::task::spawn_blocking(move || shared.processes.lookup(peer, local)).await.ok().flatten()
    }

    /// The container of a client. For a client on loopback, its process is looked up first.
    async fn container_of(&self, config: &ProxyServerConfig, client: &ClientInfo) -> Option<ByteStr> {
        let mut sockets = config.proxy.container_sockets.clone();
        if sockets.is_empty() {
            sockets = container_lookup::default_sockets();
        }
        let (shared, peer, local) = (Arc::clone(&self.shared), client.peer, client.local);
        let process = client.process.clone();
        let find = move || {
            let local_process = || peer.ip().to_canonical().is_loopback().then(|| shared.processes.lookup(peer, local));
            let pid = process.or_else(|| local_process().flatten()).map(|p| p.pid);
            shared.containers.name_for(&sockets, peer.ip(), pid)
        };
        tokio::task::spawn_blocking(find).await.ok().flatten()
    }

    /// Detects the client's protocol and serves it. The outer error means that it could not be detected, the inner
    /// one how serving ended, which flows have already reported.
    async fn serve_protocol(
        self: &Arc<Self>,
        config: &Arc<ActiveConfig>,
        io: IoStream,
        client: &Arc<ClientInfo>,
        role: ListenerRole,
        tls: Option<Arc<ClientTls>>,
    ) -> Result<Result<()>> {
        let is_gateway = role == ListenerRole::Gateway;
        let options = config.settings.http_options(is_gateway);
        let entry = || if is_gateway { ConnectionKind::Gateway } else { ConnectionKind::Proxy };
        let conn = |tls| Arc::new(ClientConnection::new(Arc::clone(self), Arc::clone(client), entry(), tls));
        // ALPN has settled the protocol.
        if tls.as_ref().is_some_and(|t| t.alpn.as_deref() == Some("h2")) {
            return Ok(Box::pin(ingress::serve_http2(io, &options, self.drain.clone(), conn(tls))).await);
        }
        let expect = SniffTimeouts {
            first: options.idle_timeout,
            rest: options.head_timeout,
            place: ingress::SniffContext::Port,
        };
        // Boxed, like the other rare futures here, to keep that of a plain connection small.
        let (detected, io) = Box::pin(ingress::sniff(io, expect)).await?;
        match detected {
            ClientProtocol::Http2 => {
                Ok(Box::pin(ingress::serve_http2(io, &options, self.drain.clone(), conn(tls))).await)
            }
            ClientProtocol::Socks5 if role == ListenerRole::Proxy => {
                Box::pin(socks::serve_socks(&conn(tls), Arc::clone(config), io)).await.map(Ok)
            }
            ClientProtocol::Socks4 if role == ListenerRole::Proxy => {
                Box::pin(ingress::socks5::reject_version4(io)).await.map(Ok)
            }
            // TLS within TLS on a port is not unwrapped again.
            ClientProtocol::Tls(hello) if tls.is_none() => {
                let port_tls = if is_gateway { &config.port_tls.gateway } else { &config.port_tls.proxy };
                // Issued by Interflow's CA, for development only.
                let own = || self.own_tls(config, client, role, &hello);
                let Some(port_tls) = port_tls.clone().or_else(own) else {
                    return Err(Error::new(
                        ErrorKind::UnknownProtocol,
                        "the client uses TLS on a port without TLS: configure it to use http://, or set proxy.tls, gateway.tls or gateway.tls_self_signed",
                    ));
                };
                let timeout = config.settings.config.timeouts.handshake.0;
                let (io, agreed) = Box::pin(tls::accept_tls(io, &port_tls, timeout)).await?;
                // Once more, for the protocol inside TLS.
                Box::pin(self.serve_protocol(config, io, client, role, Some(Arc::new(agreed)))).await
            }
            ClientProtocol::Closed | ClientProtocol::Timeout => Ok(Ok(())),
            // Anything else gets its 400 from the HTTP/1 driver.
            ClientProtocol::Http1
            | ClientProtocol::NestedConnect(_)
            | ClientProtocol::Tls(_)
            | ClientProtocol::Unknown
            | ClientProtocol::Socks4
            | ClientProtocol::Socks5 => Ok(ingress::serve_http1(io, &options, self.drain.clone(), conn(tls)).await),
        }
    }

    /// TLS of the gateway port by Interflow's CA: for the SNI if it is one of the gateway's names, else for the local
    /// address.
    fn own_tls(
        &self,
        config: &ActiveConfig,
        client: &ClientInfo,
        role: ListenerRole,
        hello: &ClientHello,
    ) -> Option<Arc<ServerTls>> {
        if role != ListenerRole::Gateway || !config.settings.config.gateway.tls_self_signed {
            return None;
        }
        let named = hello.server_name.as_deref().and_then(|name| Host::parse(name).ok());
        // A name from SNI is attacker-controlled: only known ones get a certificate.
        let known_host = named.filter(|host| config.settings.web_pages.is_known_host(host));
        let host = known_host.unwrap_or_else(|| Host::Ip(client.local.ip().to_canonical()));
        Some(self.ca.server_tls(&host, Alpn::Both))
    }

    /// Logs why connections of a load balancer without the expected header are refused: to clients the proxy would
    /// just seem dead.
    fn warn_missing_proxy_header(&self, client: &ClientInfo, error: &Error) {
        // A connection closed without data is a port probe.
        if error.kind() == ErrorKind::ClientGone {
            return;
        }
        if let Some(more) = self.shared.no_header.suppressed_if_due() {
            tracing::warn!(
                peer = %client.peer,
                more,
                "a connection was closed: {error}. Its address is in proxy.proxy_protocol_trusted, so it must begin with a PROXY protocol header: configure the load balancer to send one (send-proxy-v2), or remove the address"
            );
        }
    }

    /// As [`log_end`](Self::log_end), for errors that no flow has counted.
    fn count_end(&self, client: &ClientInfo, error: &Error) {
        self.counters.error(error);
        tracing::debug!(peer = %client.peer, kind = error.kind().as_str(), "connection ended: {error}");
    }
}

/// Tells a client beyond a limit why it is refused, in HTTP, which most clients speak.
fn reject_over_limit(stream: TcpStream, refused: ConnectionRejection) {
    let Ok(mut stream) = stream.into_std() else { return };
    let text = format!("{refused}\n");
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nRetry-After: 1\r\n\
         X-Interflow-Error: {}\r\nConnection: close\r\n\r\n{text}",
        text.len(),
        ErrorKind::Limited.as_str()
    );
    // The socket is non-blocking: a client that cannot take these bytes at once gets none.
    let _ = stream.write_all(answer.as_bytes());
    // Half-close: the client can still read the answer.
    let _ = stream.shutdown(Shutdown::Write);
    // Unread data would turn the close into a reset, and the client would lose the response.
    let _ = stream.read(&mut [0; 8192]);
}
