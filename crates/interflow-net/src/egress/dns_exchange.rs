//! Exchanges of DNS messages with name servers, over UDP and TCP.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use interflow_codec::dns;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Uses a new socket per query, so that an attacker has to guess its port too (RFC 5452).
pub(crate) async fn query_udp(server: SocketAddr, query: &[u8], question: &dns::DnsQuestion) -> io::Result<Vec<u8>> {
    let any: IpAddr = if server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).await?;
    // A connected socket: the kernel drops datagrams from other addresses.
    socket.connect(server).await?;
    socket.send(query).await?;
    // As large as the asker's EDNS allows.
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let n = socket.recv(&mut buffer).await?;
        // Anything else is a late or forged response (RFC 5452); the right one may still follow.
        if dns::parse_question(&buffer[..n]).as_ref() == Some(question) {
            return Ok(buffer[..n].to_vec());
        }
    }
}

pub(crate) async fn query_tcp(server: SocketAddr, query: &[u8]) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(&length_prefixed(query)).await?;
    read_length_prefixed(&mut stream).await
}

/// A message with its length prefix (RFC 1035 4.2.2).
pub(crate) async fn read_length_prefixed(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    // At most 64 KiB, by the type of the prefix.
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}

pub(crate) fn length_prefixed(message: &[u8]) -> Vec<u8> {
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    [&length.to_be_bytes(), &message[..usize::from(length)]].concat()
}
