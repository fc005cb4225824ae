//! The original destination of connections that the firewall redirects to the proxy.

use std::io;
use std::net::SocketAddr;

use interflow_types::{Authority, Error, ErrorKind, ErrorSource, Host, Result};
use tokio::net::TcpStream;

/// Where the client wanted to connect: `SO_ORIGINAL_DST` after a `REDIRECT`, the socket's local address after a
/// `TPROXY`.
///
/// # Errors
/// The connection was made directly to `listener`, or the system does not report a destination.
pub fn original_destination(stream: &TcpStream, listener: SocketAddr) -> Result<Authority> {
    let local = stream.local_addr().map_err(|e| unknown_destination(listener).with_source(e))?;
    // Under TPROXY the socket's local address is the original destination; under REDIRECT it is the listener's.
    let destination = match original_dst(stream, local) {
        // REDIRECT: the kernel remembers the address that the client connected to.
        Ok(destination) if canonical(destination) != canonical(local) => destination,
        // TPROXY: the ports differ, because the listener has another one than the origin.
        _ if local.port() != listener.port() => local,
        // Both are the same: the client connected to the listener itself, which would loop.
        Ok(_) => return Err(unknown_destination(listener)),
        Err(e) => return Err(unknown_destination(listener).with_source(e)),
    };
    let wanted = canonical(destination);
    Ok(Authority::new(Host::Ip(wanted.ip()), wanted.port()))
}

pub(super) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

#[cfg(target_os = "linux")]
fn original_dst(stream: &TcpStream, local: SocketAddr) -> io::Result<SocketAddr> {
    let socket = socket2::SockRef::from(stream);
    // An IPv4 connection on an IPv6 socket was redirected by the IPv4 tables.
    let wanted = if local.ip().to_canonical().is_ipv4() { socket.original_dst_v4() } else { socket.original_dst_v6() }?;
    wanted.as_socket().ok_or_else(|| io::Error::other("the original destination is not an internet address"))
}

#[cfg(not(target_os = "linux"))]
fn original_dst(_stream: &TcpStream, _local: SocketAddr) -> io::Result<SocketAddr> {
    Err(io::Error::from(io::ErrorKind::Unsupported))
}

fn unknown_destination(listener: SocketAddr) -> Error {
    let text = format!(
        "a connection came to {listener} that the firewall had not sent there: redirect to it with REDIRECT or TPROXY, \
         or use the proxy port"
    );
    Error::new(ErrorKind::Loop, text).with_error_source(ErrorSource::Client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn direct_connection_to_a_transparent_port_is_a_loop() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let _client = TcpStream::connect(addr).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let error = original_destination(&stream, addr).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Loop);
        assert!(error.message().contains(&addr.to_string()), "{error}");
    }
}
