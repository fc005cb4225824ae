//! A DNS forwarder over UDP and TCP: queries are forwarded byte for byte, and a hook observes which names have which
//! addresses.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use interflow_codec::dns::{self, AddressRecords};
use interflow_types::{Error, ErrorKind};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::egress::dns_exchange::{length_prefixed, query_tcp, query_udp, read_length_prefixed};

/// The largest query over UDP.
const MAX_UDP_BYTES: usize = 4096;
/// The most queries on one TCP connection.
const MAX_QUERIES_PER_CONNECTION: usize = 1000;
/// How long a TCP connection may be idle (RFC 7766 6.2.3 leaves this open).
const TCP_IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often to retry finding a port that is free for both UDP and TCP.
const MAX_BIND_ATTEMPTS: usize = 16;

/// Called with the addresses in every response.
pub type DnsAnswerHook = Arc<dyn Fn(&AddressRecords) + Send + Sync>;

/// Options of the forwarder: the upstream servers in order of preference, the timeout for each, and the most concurrent
/// queries (TCP connections count as one); excess ones are dropped, as DNS clients expect.
#[derive(Clone, Debug)]
pub struct DnsOptions {
    pub servers: Vec<SocketAddr>,
    pub timeout: Duration,
    pub most: usize,
}

#[derive(Debug)]
pub struct DnsListener {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl DnsListener {
    /// Binds UDP and TCP to one port.
    ///
    /// # Errors
    /// The port is in use or not permitted.
    pub async fn bind(addr: SocketAddr) -> Result<Self, Error> {
        let cannot = |e: io::Error| {
            Error::new(
                ErrorKind::Internal,
                format!("the DNS port cannot listen on {addr}: {e}; choose another with dns.listen"),
            )
        };
        let mut last = None;
        for _ in 0..MAX_BIND_ATTEMPTS {
            // TCP first: with port 0, the system chooses among free TCP ports.
            let tcp = TcpListener::bind(addr).await.map_err(cannot)?;
            match UdpSocket::bind(tcp.local_addr().map_err(cannot)?).await {
                Ok(udp) => return Ok(Self { udp, tcp }),
                // The system chose a TCP port that is taken for UDP; try another.
                Err(e) if addr.port() == 0 => last = Some(e),
                Err(e) => return Err(cannot(e)),
            }
        }
        Err(cannot(last.unwrap_or_else(|| io::ErrorKind::AddrInUse.into())))
    }

    /// The bound address.
    ///
    /// # Errors
    /// The system does not report it.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// Serves until the future is dropped. Never ends by itself.
    pub async fn serve(self, options: DnsOptions, on_response: DnsAnswerHook) {
        // One place per UDP query and per TCP connection.
        let forwarder = Arc::new(ForwarderState {
            places: Semaphore::new(options.most),
            udp: Arc::new(self.udp),
            options,
            on_response,
        });
        tokio::join!(serve_udp(&forwarder), serve_tcp(&forwarder, self.tcp));
    }
}

struct ForwarderState {
    udp: Arc<UdpSocket>,
    options: DnsOptions,
    places: Semaphore,
    on_response: DnsAnswerHook,
}

// The buffer is copied per query, so that one can serve all.
async fn serve_udp(desk: &Arc<ForwarderState>) {
    let mut buffer = vec![0; MAX_UDP_BYTES];
    loop {
        let (n, peer) = match desk.udp.recv_from(&mut buffer).await {
            Ok(got) => got,
            Err(e) => {
                // On some systems, sending to a client that has gone returns an error (ICMP).
                tracing::debug!("DNS: {e}");
                tokio::time::sleep(Duration::from_millis(5)).await;
                continue;
            }
        };
        let (query, desk) = (buffer[..n].to_vec(), Arc::clone(desk));
        tokio::spawn(async move {
            // Dropped silently, as DNS clients expect from an overloaded server: they try again.
            let Ok(_place) = desk.places.try_acquire() else { return };
            if let Some(answer) = desk.forward(&query, false).await {
                let _ = desk.udp.send_to(&answer, peer).await;
            }
        });
    }
}

async fn serve_tcp(forwarder: &Arc<ForwarderState>, tcp: TcpListener) {
    loop {
        match tcp.accept().await {
            Ok((stream, _)) => {
                let forwarder = Arc::clone(forwarder);
                tokio::spawn(async move {
                    // The stream is closed at once.
                    let Ok(_place) = forwarder.places.try_acquire() else { return };
                    let _ = forwarder.serve_connection(stream).await;
                });
            }
            Err(e) => {
                tracing::debug!("DNS: {e}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

impl ForwarderState {
    /// Serves the queries of one connection in order (RFC 7766).
    async fn serve_connection(&self, mut stream: TcpStream) -> io::Result<()> {
        for _ in 0..MAX_QUERIES_PER_CONNECTION {
            // An error, also a timeout, ends the connection.
            let query = timeout(TCP_IDLE_TIMEOUT, read_length_prefixed(&mut stream)).await??;
            let Some(answer) = self.forward(&query, true).await else { return Ok(()) };
            timeout(TCP_IDLE_TIMEOUT, stream.write_all(&length_prefixed(&answer))).await??;
        }
        Ok(())
    }

    /// The response of the first server that responds; `None` if the query cannot be parsed.
    async fn forward(&self, query: &[u8], over_tcp: bool) -> Option<Vec<u8>> {
        let question = dns::parse_question(query)?;
        for server in &self.options.servers {
            let exchange = async {
                if over_tcp { query_tcp(*server, query).await } else { query_udp(*server, query, &question).await }
            };
            match timeout(self.options.timeout, exchange).await {
                Ok(Ok(answer)) => {
                    // The hook is given only answers to the question that was exchange; the client gets the message
                    // unchanged.
                    if let Some(records) = dns::parse_addresses(&answer).filter(|a| a.question == question) {
                        (self.on_response)(&records);
                    }
                    return Some(answer);
                }
                Ok(Err(e)) => tracing::debug!(%server, "DNS: {e}"),
                Err(_) => tracing::debug!(%server, "DNS: no answer in time"),
            }
        }
        // All servers failed: the client learns it now instead of waiting for its own timeout.
        dns::error_response(query, dns::SERVFAIL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    fn query(id: u16, name: &str) -> Vec<u8> {
        let labels: Vec<u8> = name.split('.').flat_map(|l| [&[l.len() as u8], l.as_bytes()].concat()).collect();
        [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0], &labels, &[0, 0, 1, 0, 1]].concat()
    }

    /// The response 192.0.2.7 to any query.
    fn answered(query: &[u8]) -> Vec<u8> {
        let mut out = query.to_vec();
        (out[2], out[7]) = (0x81, 1);
        out.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
        out
    }

    /// A server for both transports, which sends a forged response first.
    async fn server() -> SocketAddr {
        let DnsListener { udp, tcp } = DnsListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = tcp.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (n, peer) = udp.recv_from(&mut buffer).await.unwrap();
                let mut forged = answered(&buffer[..n]);
                forged[0] ^= 1;
                udp.send_to(&forged, peer).await.unwrap();
                udp.send_to(&answered(&buffer[..n]), peer).await.unwrap();
            }
        });
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let asked = read_length_prefixed(&mut stream).await.unwrap();
                stream.write_all(&length_prefixed(&answered(&asked))).await.unwrap();
            }
        });
        addr
    }

    async fn port(servers: Vec<SocketAddr>) -> (SocketAddr, Arc<Mutex<Vec<AddressRecords>>>) {
        let port = DnsListener::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let addr = port.local_addr().unwrap();
        let observed = Arc::new(Mutex::new(Vec::new()));
        let options = DnsOptions { servers, timeout: Duration::from_millis(300), most: 64 };
        let keep = Arc::clone(&observed);
        tokio::spawn(port.serve(options, Arc::new(move |a: &AddressRecords| keep.lock().push(a.clone()))));
        (addr, observed)
    }

    async fn ask(port: SocketAddr, query: &[u8]) -> Vec<u8> {
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.send_to(query, port).await.unwrap();
        let mut buffer = [0; 512];
        let n = timeout(Duration::from_secs(5), client.recv(&mut buffer)).await.unwrap().unwrap();
        buffer[..n].to_vec()
    }

    #[tokio::test]
    async fn queries_are_forwarded_and_responses_observed() {
        let (port, observed) = port(vec![server().await]).await;
        let query = query(7, "Api.shop.test");
        assert_eq!(ask(port, &query).await, answered(&query));
        let mut stream = TcpStream::connect(port).await.unwrap();
        for _ in 0..2 {
            stream.write_all(&length_prefixed(&query)).await.unwrap();
            assert_eq!(read_length_prefixed(&mut stream).await.unwrap(), answered(&query));
        }
        let observed = observed.lock();
        assert_eq!(observed.len(), 3);
        assert_eq!((&*observed[0].question.name, observed[0].addresses[0].1), ("api.shop.test", 60));
    }

    #[tokio::test]
    async fn a_silent_server_is_skipped_and_no_response_is_servfail() {
        let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let (both, observed) = port(vec![silent.local_addr().unwrap(), server().await]).await;
        let asked = query(9, "a.test");
        assert_eq!(ask(both, &asked).await, answered(&asked));
        assert_eq!(observed.lock().len(), 1);
        let (none, observed) = port(vec![silent.local_addr().unwrap()]).await;
        let said = ask(none, &asked).await;
        assert_eq!((said[0], said[1], said[3] & 0x0f), (0, 9, dns::SERVFAIL));
        assert!(observed.lock().is_empty());
    }
}
