//! Binds listeners, and accepts connections despite transient errors.

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::time::{Duration, Instant};

use interflow_types::{Error, ErrorKind, ErrorSource, Result};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::{TcpListener, TcpStream};

#[derive(Clone, Copy, Debug)]
pub struct ListenOptions {
    /// The address; port 0 lets the system choose.
    pub addr: SocketAddr,
    /// The most connections waiting to be accepted; the system may allow fewer.
    pub backlog: u32,
    /// Accepts connections to foreign addresses too (Linux: `TPROXY`), if the process has the privilege
    /// `CAP_NET_ADMIN`.
    pub transparent: bool,
}

impl ListenOptions {
    /// For one socket at this address, with a backlog of 4096. Linux caps the backlog at `net.core.somaxconn`.
    pub const fn new(addr: SocketAddr) -> Self {
        Self { addr, backlog: 4096, transparent: false }
    }
}

/// Binds an address.
///
/// # Errors
/// The address is in use, not this machine's, or not permitted; the message says which, and how to solve it.
pub fn bind(options: &ListenOptions) -> Result<StdListener> {
    try_bind(options, false).map_err(|e| bind_error(options.addr, e))
}

/// Binds an address for several workers, each with a listener; all have the port that the system chose for the first.
///
/// On Linux each has a socket of its own (`SO_REUSEPORT`), and the system distributes connections among them. Elsewhere
/// that option does not distribute, or does not exist: the workers accept from one socket.
///
/// # Errors
/// As for [`bind`].
pub fn bind_for_workers(options: &ListenOptions, workers: usize) -> Result<Vec<StdListener>> {
    if workers < 2 || !cfg!(target_os = "linux") {
        let first = bind(options)?;
        let others = (1..workers).map(|_| first.try_clone()).collect::<io::Result<Vec<_>>>();
        let others = others.map_err(|e| bind_error(options.addr, e))?;
        return Ok(std::iter::once(first).chain(others).collect());
    }
    // Another program's socket with SO_REUSEPORT would silently share the port: bind without it first.
    if options.addr.port() != 0 {
        drop(bind(options)?);
    }
    let mut options = *options;
    (0..workers)
        .map(|_| {
            let listener = try_bind(&options, true)?;
            options.addr = listener.local_addr()?;
            Ok(listener)
        })
        .collect::<io::Result<_>>()
        .map_err(|e| bind_error(options.addr, e))
}

pub(super) fn bind_error(addr: SocketAddr, e: io::Error) -> Error {
    let message = match e.kind() {
        io::ErrorKind::AddrInUse => {
            format!("{addr} is in use: stop the program that listens there, or choose another port")
        }
        io::ErrorKind::PermissionDenied => {
            format!("listening on {addr} is not permitted: ports below 1024 need a privilege; choose a higher one")
        }
        io::ErrorKind::AddrNotAvailable => format!("{addr} is not an address of this machine"),
        _ => format!("could not listen on {addr}"),
    };
    Error::new(ErrorKind::Internal, message).with_error_source(ErrorSource::Config).with_source(e)
}

fn try_bind(options: &ListenOptions, share: bool) -> io::Result<StdListener> {
    let socket = Socket::new(Domain::for_address(options.addr), Type::STREAM, Some(Protocol::TCP))?;
    // A restart must not wait until old connections have left TIME_WAIT. (On Windows it need not, and the option would let
    // another program take the port.)
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    #[cfg(target_os = "linux")]
    socket.set_reuse_port(share)?;
    #[cfg(not(target_os = "linux"))]
    let _ = share;
    if options.transparent {
        allow_foreign_addresses(&socket, options.addr);
    }
    socket.set_nonblocking(true)?;
    socket.bind(&options.addr.into())?;
    socket.listen(i32::try_from(options.backlog).unwrap_or(i32::MAX))?;
    Ok(socket.into())
}

/// Without the privilege (`CAP_NET_ADMIN`), connections can still be redirected with REDIRECT.
fn allow_foreign_addresses(socket: &Socket, addr: SocketAddr) {
    #[cfg(target_os = "linux")]
    {
        let set = if addr.is_ipv4() { socket.set_ip_transparent_v4(true) } else { socket.set_ip_transparent_v6(true) };
        if let Err(e) = set {
            tracing::debug!("{addr} takes connections by REDIRECT only, not by TPROXY: {e}");
            // Not an error: REDIRECT needs no privilege, and is what most setups use.
        }
    }

    #[cfg(not(target_os = "linux"))]
    let _ = (socket, addr);
}

/// A bound listener on a worker's runtime.
pub struct ClientListener(TcpListener);

impl ClientListener {
    /// Registers a bound socket with the current runtime.
    ///
    /// # Errors
    /// The runtime refuses it.
    pub fn from_std(listener: StdListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener).map(Self)
    }

    /// The address, with the port that the system chose.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Accepts the next connection and sets `TCP_NODELAY`. Never fails: if the system is out of descriptors or memory
    /// it retries with increasing delays, and logs that once every ten seconds. Cancel-safe.
    pub async fn accept(&self) -> (TcpStream, SocketAddr) {
        // Grows while nothing can be accepted; the next call starts from the beginning again.
        let mut pause = Duration::from_millis(5);
        let mut last_warning: Option<Instant> = None;
        loop {
            match self.0.accept().await {
                Ok((tcp, peer)) => {
                    // A socket that was reset already refuses the option; its first read returns the error.
                    let _ = tcp.set_nodelay(true);
                    return (tcp, peer);
                }
                // The queued connection is gone; the next one may be fine.
                Err(e) if is_connection_error(&e) => {}
                Err(e) => {
                    if last_warning.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                        last_warning = Some(Instant::now());
                        tracing::warn!(error = %e, "no connection can be accepted now; trying again");
                    }
                    // Out of descriptors or memory. The listener stays readable, so retrying at once would be a busy
                    // loop.
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
            }
        }
    }
}

/// Whether the error is about the connection to accept, which is gone, and not about the listener.
fn is_connection_error(e: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(e.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
        || matches!(e.raw_os_error(), Some(libc::EPERM | libc::EPROTO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn any_port() -> ListenOptions {
        ListenOptions::new("127.0.0.1:0".parse().unwrap())
    }

    #[tokio::test]
    async fn connections_are_accepted_on_the_port_that_the_system_chose() {
        let listener = ClientListener::from_std(bind(&any_port()).unwrap()).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, peer) = listener.accept().await;
        assert_eq!(peer, client.local_addr().unwrap());
        assert!(server.nodelay().unwrap());
        client.write_all(b"x").await.unwrap();
        assert_eq!(server.read_u8().await.unwrap(), b'x');
    }

    #[test]
    fn address_in_use_is_reported_with_its_port() {
        let first = bind(&any_port()).unwrap();
        let error = bind(&ListenOptions::new(first.local_addr().unwrap())).unwrap_err();
        let port = first.local_addr().unwrap().port().to_string();
        assert!(error.message().contains(&port) && error.message().contains("in use"), "{error}");
        assert_eq!(error.error_source(), ErrorSource::Config);
    }

    #[test]
    fn workers_may_share_an_address() {
        let listeners = bind_for_workers(&any_port(), 3).unwrap();
        let addr = listeners[0].local_addr().unwrap();
        assert_eq!(listeners.len(), 3);
        assert!(listeners.iter().all(|l| l.local_addr().unwrap() == addr));
        // Nobody else may.
        bind_for_workers(&ListenOptions::new(addr), 2).unwrap_err();
    }
}
