//! Advertises the proxy on the local network if the operator configures it: multicast DNS (RFC 6762) with service
//! discovery (RFC 6763), over IPv4.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use hickory_resolver::proto::op::{Message, MessageType, OpCode, Query};
use hickory_resolver::proto::rr::rdata::{A, PTR, SRV, TXT};
use hickory_resolver::proto::rr::{DNSClass, Name, RData, Record, RecordType};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::task::JoinHandle;

/// The service type of the proxy.
pub const SERVICE_TYPE: &str = "_interflow._tcp.local.";
/// The name that enumerates all services of a network (RFC 6763 9).
const ALL_SERVICES: &str = "_services._dns-sd._udp.local.";
const MULTICAST_GROUP: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(224, 0, 0, 251)), 5353);
/// The TTL of records, in seconds (RFC 6762 10).
const RECORD_TTL: u32 = 120;
/// The TTL for queries from ports other than 5353 (RFC 6762 6.7).
const LEGACY_RECORD_TTL: u32 = 10;
/// The top bit of a class: cache-flush in responses, unicast-response in queries (RFC 6762 18).
const TOP_BIT: u16 = 0x8000;

#[derive(Clone, Debug)]
pub struct MdnsService {
    /// The instance name, for people; at most 63 bytes.
    pub name: String,
    /// The port of the SRV record.
    pub port: u16,
    /// TXT entries, `key=value`.
    pub facts: Vec<String>,
}

#[derive(Debug)]
pub struct MdnsRegistration {
    task: JoinHandle<()>,
    goodbye: Option<Vec<u8>>,
}

impl Drop for MdnsRegistration {
    fn drop(&mut self) {
        // First, so that no announcement follows the goodbye.
        self.task.abort();
        // A TTL of 0 tells caches to forget the records (RFC 6762 10.1).
        if let (Some(goodbye), Ok(socket)) = (&self.goodbye, UdpSocket::bind("0.0.0.0:0")) {
            // There is nobody to report a failure to.
            let _ = socket.send_to(goodbye, MULTICAST_GROUP);
        }
    }
}

/// Advertises a service and answers queries for it, on the current runtime.
///
/// # Errors
/// An invalid name, or a network without multicast.
pub fn register(announcement: &MdnsService) -> io::Result<MdnsRegistration> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    // Other responders on this machine use the port as well.
    socket.set_reuse_address(true)?;
    #[cfg(unix)]
    socket.set_reuse_port(true)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, MULTICAST_GROUP.port())).into())?;
    socket.join_multicast_v4(&Ipv4Addr::new(224, 0, 0, 251), &Ipv4Addr::UNSPECIFIED)?;
    // RFC 6762 11: lets receivers recognise packets from beyond the link.
    socket.set_multicast_ttl_v4(255)?;
    socket.set_nonblocking(true)?;
    let responder = MdnsResponder::new(announcement)?;
    let goodbye = responder.announcement(own_address(MULTICAST_GROUP), 0).to_vec().ok();
    let socket = tokio::net::UdpSocket::from_std(socket.into())?;
    Ok(MdnsRegistration { task: tokio::spawn(run(socket, responder, Some(MULTICAST_GROUP))), goodbye })
}

/// Announces twice, a second apart (RFC 6762 8.3), and answers queries.
async fn run(socket: tokio::net::UdpSocket, responder: MdnsResponder, group: Option<SocketAddr>) {
    // The largest mDNS packet (RFC 6762 17).
    let mut buffer = vec![0; 9000];
    let mut left = if group.is_some() { 2 } else { 0 };
    let mut next = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            _ = next.tick(), if left > 0 => {
                left -= 1;
                if let (Some(group), Ok(bytes)) = (group, responder.announcement(own_address(MULTICAST_GROUP), RECORD_TTL).to_vec()) {
                    let _ = socket.send_to(&bytes, group).await;
                }
            }
            came = socket.recv_from(&mut buffer) => match came {
                Ok((n, from)) => {
                    // Packets that are not queries for this service are the majority on most networks.
                    let Some((answer, alone)) = responder.answer(&buffer[..n], from) else { continue };
                    let to = if alone { from } else { group.unwrap_or(from) };
                    let _ = socket.send_to(&answer, to).await;
                }
                // Some systems report the failure of an earlier send here.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            },
        }
    }
}

/// The local address used to reach another one.
fn own_address(other: SocketAddr) -> Ipv4Addr {
    // Connecting a UDP socket sends nothing: it only makes the kernel choose a route.
    let reached = UdpSocket::bind("0.0.0.0:0").and_then(|s| s.connect(other).and_then(|()| s.local_addr()));
    match reached.map(|a| a.ip()) {
        Ok(IpAddr::V4(ip)) => ip,
        _ => Ipv4Addr::LOCALHOST,
    }
}

/// Holds the records of the service.
struct MdnsResponder {
    service: Name,
    all: Name,
    instance: Name,
    host: Name,
    port: u16,
    facts: Vec<String>,
}

impl MdnsResponder {
    fn new(announcement: &MdnsService) -> io::Result<Self> {
        let invalid = |e| {
            io::Error::new(io::ErrorKind::InvalidInput, format!("`{}` is not a valid name: {e}", announcement.name))
        };
        let service = Name::from_ascii(SERVICE_TYPE).map_err(io::Error::other)?;
        let label = Name::from_labels([announcement.name.as_bytes()]).map_err(invalid)?;
        Ok(Self {
            instance: label.append_domain(&service).map_err(invalid)?,
            // With the process id, so that two instances on a machine do not claim one name.
            host: Name::from_ascii(format!("interflow-{}.local.", std::process::id())).map_err(io::Error::other)?,
            all: Name::from_ascii(ALL_SERVICES).map_err(io::Error::other)?,
            service,
            port: announcement.port,
            facts: announcement.facts.clone(),
        })
    }

    fn records(&self, own: Ipv4Addr, ttl: u32) -> [Record; 5] {
        let unique = |name: &Name, data| {
            let mut record = Record::from_rdata(name.clone(), ttl, data);
            // These records are unique, so the cache-flush bit is set.
            // RFC 6762 6.7: not in responses to legacy resolvers, which do not know the bit.
            if ttl != LEGACY_RECORD_TTL {
                record.dns_class = DNSClass::from(TOP_BIT | 1);
            }
            record
        };
        [
            Record::from_rdata(self.service.clone(), ttl, RData::PTR(PTR(self.instance.clone()))),
            Record::from_rdata(self.all.clone(), ttl, RData::PTR(PTR(self.service.clone()))),
            unique(&self.instance, RData::SRV(SRV::new(0, 0, self.port, self.host.clone()))),
            unique(&self.instance, RData::TXT(TXT::new(self.facts.clone()))),
            unique(&self.host, RData::A(A(own))),
        ]
    }

    fn announcement(&self, own: Ipv4Addr, ttl: u32) -> Message {
        // RFC 6762 18.1: the ID of multicast messages is zero.
        let mut message = Message::response(0, OpCode::Query);
        message.metadata.authoritative = true;
        message.add_answers(self.records(own, ttl));
        message
    }

    /// The response to a packet, and whether it is sent by unicast; `None` if the packet is not a query for this
    /// service.
    fn answer(&self, packet: &[u8], from: SocketAddr) -> Option<(Vec<u8>, bool)> {
        let asked = Message::from_vec(packet).ok()?;
        if asked.metadata.message_type != MessageType::Query || asked.metadata.op_code != OpCode::Query {
            return None;
        }
        let legacy = from.port() != MULTICAST_GROUP.port();
        let ttl = if legacy { LEGACY_RECORD_TTL } else { RECORD_TTL };
        let (answers, others): (Vec<Record>, Vec<Record>) = self
            // The address on the network of the client, which may not be the one of the default route.
            .records(own_address(from), ttl)
            .into_iter()
            .partition(|r| asked.queries.iter().any(|q| matches_query(q, r)));
        if answers.is_empty() {
            return None;
        }
        let mut message = Message::response(if legacy { asked.metadata.id } else { 0 }, OpCode::Query);
        message.metadata.authoritative = true;
        // A legacy resolver matches responses by ID and question, as in unicast DNS (RFC 6762 6.7).
        if legacy {
            message.add_queries(asked.queries.iter().cloned());
        }
        message.add_answers(answers);
        message.add_additionals(others);
        // By unicast only if every question asks for it.
        let alone = legacy || asked.queries.iter().all(|q| u16::from(q.query_class()) & TOP_BIT != 0);
        message.to_vec().ok().map(|bytes| (bytes, alone))
    }
}

fn matches_query(query: &Query, record: &Record) -> bool {
    let kind = query.query_type();
    (kind == record.record_type() || kind == RecordType::ANY) && query.name() == &record.name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn announcement() -> MdnsService {
        MdnsService { name: "Interflow on desk.7".into(), port: 7070, facts: vec!["type=http".into()] }
    }

    /// Queries a responder on loopback; `None` if it does not respond.
    async fn ask(questions: &[(&str, RecordType)]) -> Option<Message> {
        let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let addr = socket.local_addr().unwrap();
        let task = tokio::spawn(run(socket, MdnsResponder::new(&announcement()).unwrap(), None));
        let client = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let mut message = Message::query();
        message.metadata.id = 7;
        for (name, kind) in questions {
            message.add_query(Query::query(Name::from_utf8(name).unwrap(), *kind));
        }
        // Invalid messages are ignored.
        client.send_to(b"junk", addr).await.unwrap();
        client.send_to(&message.to_vec().unwrap(), addr).await.unwrap();
        let mut buffer = [0; 9000];
        let came = tokio::time::timeout(Duration::from_millis(500), client.recv_from(&mut buffer)).await;
        task.abort();
        came.ok().map(|came| Message::from_vec(&buffer[..came.unwrap().0]).unwrap())
    }

    #[tokio::test]
    async fn a_query_returns_name_port_txt_and_address() {
        let response = ask(&[(SERVICE_TYPE, RecordType::PTR)]).await.unwrap();
        assert_eq!((response.metadata.id, response.metadata.authoritative, response.queries.len()), (7, true, 1));
        let records: Vec<String> =
            response.answers.iter().chain(&response.additionals).map(|r| r.data.to_string()).collect();
        let has = |part: &str| records.iter().any(|s| s.contains(part));
        assert!(has("desk\\.7._interflow._tcp.local.") && has(" 7070 interflow-") && has("type=http"), "{records:?}");
        assert!(has("127.0.0.1"), "the address that the querier can reach: {records:?}");
        assert!(response.answers.iter().all(|r| r.ttl == LEGACY_RECORD_TTL));
        let all = ask(&[(ALL_SERVICES, RecordType::PTR)]).await.unwrap();
        assert_eq!(all.answers[0].data.to_string(), SERVICE_TYPE);
    }

    #[tokio::test]
    async fn queries_for_other_services_are_ignored() {
        assert!(ask(&[("_ipp._tcp.local.", RecordType::PTR), (SERVICE_TYPE, RecordType::TXT)]).await.is_none());
    }

    #[test]
    fn announcements_are_complete_and_withdrawn_with_ttl_zero() {
        let responder = MdnsResponder::new(&announcement()).unwrap();
        let mut question = Message::query();
        question.add_query(Query::query(responder.service.clone(), RecordType::PTR));
        let (bytes, alone) = responder.answer(&question.to_vec().unwrap(), MULTICAST_GROUP).unwrap();
        assert!(!alone && Message::from_vec(&bytes).unwrap().queries.is_empty());
        assert!(responder.answer(&bytes, MULTICAST_GROUP).is_none(), "a response is not a query");
        let goodbye = responder.announcement(Ipv4Addr::LOCALHOST, 0);
        assert!(goodbye.answers.len() == 5 && goodbye.answers.iter().all(|r| r.ttl == 0));
        assert!(MdnsResponder::new(&MdnsService { name: "x".repeat(64), ..announcement() }).is_err());
    }
}
