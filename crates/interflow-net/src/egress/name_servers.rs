//! A client of name servers (RFC 1035), with the configuration of the system: its files `resolv.conf` and `hosts`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use std::{fs, io};

use interflow_codec::dns;
use interflow_types::random_bytes;
use tokio::time::timeout;

use super::dns_exchange::{query_tcp, query_udp};

const RESOLV_CONF: &str = "/etc/resolv.conf";
const HOSTS: &str = if cfg!(windows) { r"C:\Windows\System32\drivers\etc\hosts" } else { "/etc/hosts" };
/// Files whose change is a change of the configuration.
pub(super) const FILES: [&str; 2] = [RESOLV_CONF, HOSTS];
/// For how long an address of the hosts file may be cached. The file has no times.
const HOSTS_TTL: Duration = Duration::from_secs(60);
/// Record types.
const A: u16 = 1;
const AAAA: u16 = 28;

/// Why a lookup has no answer.
#[derive(Debug)]
pub(super) enum LookupFailure {
    /// The name does not exist; its zone limits for how long that may be cached (RFC 2308 5).
    NoSuchName(Option<Duration>),
    /// Servers failed, or the connections to them; the name may well exist.
    Server(String),
}

/// The addresses in an answer, and for how long they may be cached.
#[derive(Debug, Default)]
pub(super) struct DnsAnswer {
    pub addrs: Vec<IpAddr>,
    pub ttl: Duration,
}

impl DnsAnswer {
    /// Reads a response that is this many seconds old (RFC 8484 5.1).
    pub fn parse(message: &[u8], age: u32) -> Result<Self, LookupFailure> {
        let Some(records) = dns::parse_addresses(message) else {
            return Err(LookupFailure::Server("its response cannot be parsed".to_owned()));
        };
        let seconds = |ttl: u32| Duration::from_secs(ttl.saturating_sub(age).into());
        match records.code {
            0 => {
                let addrs = records.addresses.into_iter().map(|(addr, _)| addr).collect();
                Ok(Self { addrs, ttl: seconds(records.ttl) })
            }
            dns::NXDOMAIN => Err(LookupFailure::NoSuchName(records.negative_ttl.map(seconds))),
            code => Err(LookupFailure::Server(format!("it responded with the error code {code}"))),
        }
    }
}

/// Asks for the addresses of both families concurrently, for Happy Eyeballs.
pub(super) async fn look_up_both<F>(ask: impl Fn(u16) -> F) -> Result<DnsAnswer, LookupFailure>
where
    F: Future<Output = Result<DnsAnswer, LookupFailure>>,
{
    let (v6, v4) = match tokio::join!(ask(AAAA), ask(A)) {
        (Ok(v6), Ok(v4)) => (v6, v4),
        // One family is enough to connect; a failure counts only if the other has no address.
        (Ok(answer), Err(_)) | (Err(_), Ok(answer)) if !answer.addrs.is_empty() => return Ok(answer),
        (Err(failure), _) | (_, Err(failure)) => return Err(failure),
    };
    // An empty answer does not limit for how long the other may be cached.
    let ttl = match (v6.addrs.is_empty(), v4.addrs.is_empty()) {
        // Both are cached under one name, so the shorter TTL counts.
        (false, false) => v6.ttl.min(v4.ttl),
        (false, true) => v6.ttl,
        _ => v4.ttl,
    };
    Ok(DnsAnswer { addrs: v6.addrs.into_iter().chain(v4.addrs).collect(), ttl })
}

/// The hosts file, which takes precedence over DNS.
#[derive(Debug)]
pub(super) struct HostsFile(HashMap<String, Vec<IpAddr>>);

impl HostsFile {
    /// Empty if there is none.
    pub fn read() -> Self {
        Self::parse(&fs::read_to_string(HOSTS).unwrap_or_default())
    }

    fn parse(text: &str) -> Self {
        let mut hosts = HashMap::<String, Vec<IpAddr>>::new();
        for mut words in lines(text) {
            let Some(addr) = words.next().and_then(address) else { continue };
            words.for_each(|name| hosts.entry(name.to_ascii_lowercase()).or_default().push(addr));
        }
        Self(hosts)
    }

    pub fn look_up(&self, name: &str) -> Option<DnsAnswer> {
        let addrs = self.0.get(name.trim_end_matches('.'))?.clone();
        Some(DnsAnswer { addrs, ttl: HOSTS_TTL })
    }
}

/// Name servers, and how they are asked.
#[derive(Debug)]
pub(super) struct NameServers {
    pub servers: Vec<SocketAddr>,
    /// Domains in which names are looked up, too.
    search: Vec<String>,
    /// Names of fewer dots are looked up in those domains first.
    min_dots: usize,
    /// How long one server may take to respond.
    timeout: Duration,
    hosts: HostsFile,
    /// The index of the server that responded last, which is asked first.
    preferred: AtomicUsize,
}

impl NameServers {
    pub fn new(servers: Vec<SocketAddr>) -> Self {
        Self {
            servers,
            search: Vec::new(),
            min_dots: 1,
            timeout: Duration::from_secs(5),
            hosts: HostsFile::read(),
            preferred: AtomicUsize::new(0),
        }
    }

    /// # Errors
    /// The file cannot be read, or has no name server.
    pub fn of_system() -> io::Result<Self> {
        let configured = Self::parse(&fs::read_to_string(RESOLV_CONF)?);
        let usable = Some(configured).filter(|configured| !configured.servers.is_empty());
        usable.ok_or_else(|| io::Error::other(format!("{RESOLV_CONF} has no name server")))
    }

    /// Parses a file `resolv.conf`; what is not understood is left out, as resolvers do.
    fn parse(text: &str) -> Self {
        let mut configured = Self::new(Vec::new());
        for mut words in lines(text) {
            match words.next() {
                Some("nameserver") => {
                    configured.servers.extend(words.next().and_then(address).map(|ip| SocketAddr::new(ip, 53)));
                }
                Some("domain" | "search") => {
                    configured.search = words.map(|domain| domain.trim_matches('.').to_owned()).collect();
                }
                Some("options") => words.filter_map(|option| option.split_once(':')).for_each(|(name, value)| {
                    match (name, value.parse()) {
                        ("ndots", Ok(dots)) => configured.min_dots = dots,
                        ("timeout", Ok(seconds)) => {
                            configured.timeout = Duration::from_secs(seconds.clamp(1, 30) as u64)
                        }
                        _ => {}
                    }
                }),
                _ => {}
            }
        }
        configured
    }

    /// The addresses of a name; none if it exists without any.
    pub async fn look_up(&self, name: &str) -> Result<DnsAnswer, LookupFailure> {
        if let Some(answer) = self.hosts.look_up(name) {
            return Ok(answer);
        }
        let mut last = Ok(DnsAnswer::default());
        for candidate in self.candidates(name) {
            last = match look_up_both(|kind| self.ask(&candidate, kind)).await {
                Ok(answer) if !answer.addrs.is_empty() => return Ok(answer),
                // Another domain will not be answered either.
                Err(LookupFailure::Server(why)) => return Err(LookupFailure::Server(why)),
                without => without,
            }
        }
        last
    }

    /// The name, and the name in each search domain, in the order in which they are tried.
    fn candidates(&self, name: &str) -> Vec<String> {
        let mut candidates = vec![name.to_owned()];
        if !name.ends_with('.') {
            candidates.extend(self.search.iter().map(|domain| format!("{name}.{domain}")));
            if name.matches('.').count() < self.min_dots {
                candidates.rotate_left(1);
            }
        }
        candidates
    }

    /// Asks one server after the other, in a second round over TCP: datagrams may be lost, or not let through.
    async fn ask(&self, name: &str, kind: u16) -> Result<DnsAnswer, LookupFailure> {
        let query = dns::write_query(u16::from_ne_bytes(random_bytes()), name, kind);
        let Some((query, question)) = query.and_then(|query| dns::parse_question(&query).map(|q| (query, q))) else {
            return Err(LookupFailure::Server("it is not a DNS name".to_owned()));
        };
        let mut failure = "no name server is configured".to_owned();
        let first = self.preferred.load(Relaxed);
        for over_tcp in [false, true] {
            for index in (0..self.servers.len()).map(|n| (first + n) % self.servers.len()) {
                let server = self.servers[index];
                let exchange = async {
                    if !over_tcp
                        && let Ok(answer) = query_udp(server, &query, &question).await
                        && !dns::is_truncated(&answer)
                    {
                        return Ok(answer);
                    }
                    query_tcp(server, &query).await
                };
                let answer = match timeout(self.timeout, exchange).await {
                    Ok(Ok(answer)) => DnsAnswer::parse(&answer, 0),
                    Ok(Err(e)) => Err(LookupFailure::Server(e.to_string())),
                    Err(_) => Err(LookupFailure::Server("no answer in time".to_owned())),
                };
                match answer {
                    Err(LookupFailure::Server(why)) => failure = format!("name server {server}: {why}"),
                    answer => {
                        self.preferred.store(index, Relaxed);
                        return answer;
                    }
                }
            }
        }
        Err(LookupFailure::Server(failure))
    }
}

/// The words of each line, without comments.
fn lines(text: &str) -> impl Iterator<Item = impl Iterator<Item = &str>> {
    text.lines().map(|line| line.split(['#', ';']).next().unwrap_or_default().split_whitespace())
}

/// An address, whose zone is left out.
fn address(text: &str) -> Option<IpAddr> {
    text.split('%').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, UdpSocket};

    use super::super::dns_exchange::{length_prefixed, read_length_prefixed};
    use super::*;

    #[test]
    fn the_systems_files_are_read_as_resolvers_do() {
        let text = "# made by hand\nsearch corp.test. lab.test\nnameserver 192.0.2.1\nnameserver fe80::1%eth0 ; second\n\
                    nameserver nonsense\noptions ndots:2 timeout:3 rotate\n";
        let configured = NameServers::parse(text);
        let servers: Vec<String> = configured.servers.iter().map(ToString::to_string).collect();
        assert_eq!(servers, ["192.0.2.1:53", "[fe80::1]:53"]);
        assert_eq!(configured.timeout, Duration::from_secs(3));
        assert_eq!(configured.candidates("db.eu"), ["db.eu.corp.test", "db.eu.lab.test", "db.eu"]);
        assert_eq!(configured.candidates("a.b.test"), ["a.b.test", "a.b.test.corp.test", "a.b.test.lab.test"]);
        assert_eq!(configured.candidates("db."), ["db."]);
        let hosts = HostsFile::parse("192.0.2.7\tShop.test shop # ours\n2001:db8::7 shop\nx y\n");
        let addrs = |name: &str| hosts.look_up(name).map(|answer| answer.addrs.len());
        assert_eq!((addrs("shop.test."), addrs("shop"), addrs("y")), (Some(1), Some(2), None));
    }

    /// Responds over UDP with the truncated question, over TCP with the address 192.0.2.7.
    async fn truncating_server() -> SocketAddr {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(addr).await.unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            while let Ok((n, peer)) = udp.recv_from(&mut buffer).await {
                buffer[2] = 0x83;
                udp.send_to(&buffer[..n], peer).await.unwrap();
            }
        });
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = tcp.accept().await {
                let mut message = read_length_prefixed(&mut stream).await.unwrap();
                message[2] = 0x81;
                if message[message.len() - 3] == A as u8 {
                    message[7] = 1;
                    message.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7]);
                }
                stream.write_all(&length_prefixed(&message)).await.unwrap();
            }
        });
        addr
    }

    #[tokio::test]
    async fn a_truncated_answer_is_asked_for_over_tcp_and_a_dead_server_skipped() {
        let dead = UdpSocket::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let alive = truncating_server().await;
        let servers = NameServers::new(vec![dead, alive]);
        let answer = servers.look_up("shop.test").await.unwrap();
        assert_eq!((answer.addrs, answer.ttl), (vec![IpAddr::from([192, 0, 2, 7])], Duration::from_secs(60)));
        assert_eq!(servers.preferred.load(Relaxed), 1, "the next lookup begins with the server that is alive");
        let failure = NameServers::new(vec![dead]).look_up("shop.test").await;
        assert!(matches!(failure, Err(LookupFailure::Server(why)) if why.contains(&dead.to_string())));
    }
}
