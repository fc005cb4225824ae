//! Writes flows in the newest version of the format. Facts without a place in it are stored in `metadata`.

use std::io::{self, Read, Write};

use interflow_types::{Direction, EntryKind, Headers, MessageKind, Scheme};
use uuid::Uuid;

use super::VERSION;
use super::extra_fields::MitmExtras;
use super::tnetstring::write::{bool, bytes, dict, int, list, null, seconds, text};
use crate::BodySource;
use interflow_store::{FlowKind, FlowRecord, FlowState, MessageRecord, RequestRecord, ResponseRecord};

/// Writes one flow.
///
/// # Errors
/// Its bytes cannot be read, or the file cannot be written.
pub fn write(out: &mut dyn Write, row: &FlowRecord, contents: &dyn BodySource) -> io::Result<()> {
    let row = &*crate::as_upgrade(row);
    let extras = MitmExtras::from_row(row);
    let replayed = extras.text("is_replay").or(row.parent.map(|_| "request"));
    // mitmproxy has one mark per flow: any tag sets its default one.
    let marked = extras.text("marked").unwrap_or(if row.tags.is_empty() { "" } else { ":default:" });
    let state = MessageState { row, contents };
    let mut members = vec![
        // Flow ids are 128 bits, like a UUID.
        ("id", text(&Uuid::from_u128(row.id.to_u128()).to_string())),
        ("client_conn", client(row)),
        ("server_conn", server(row)),
        ("error", error(row)),
        ("intercepted", bool(false)),
        ("is_replay", text_or_null(replayed)),
        ("marked", text(marked)),
        ("metadata", metadata(row)),
        ("comment", text(row.comment.as_deref().unwrap_or_default())),
        ("timestamp_created", time(row, None)),
        ("backup", null()),
        ("version", int(VERSION)),
    ];
    match &row.request {
        Some(request) => {
            members.push(("type", text("http")));
            members.push(("request", state.request(request)?));
            let response = row.response.as_ref().map(|r| state.response(r)).transpose()?;
            members.push(("response", response.unwrap_or_else(null)));
            let web_socket = row.kind == FlowKind::WebSocket;
            members.push(("websocket", if web_socket { state.messages()? } else { null() }));
        }
        None => {
            // Bytes of a tunnel that were recorded, or imported as messages.
            members.push(("type", text("tcp")));
            let messages = contents.messages(row)?.map(|m| {
                let m = m?;
                let sent = bool(m.direction == Direction::Request);
                Ok(list([sent, bytes(&m.payload), seconds(m.at.micros())]))
            });
            members.push(("messages", list(messages.collect::<io::Result<Vec<_>>>()?)));
        }
    }
    out.write_all(&dict(&members))
}

/// Tags, the user, and the real size of bodies that were not recorded completely.
fn metadata(row: &FlowRecord) -> Vec<u8> {
    let mut members = MitmExtras::from_row(row).metadata();
    if !row.tags.is_empty() {
        members.push(("tags", list(row.tags.iter().map(|t| text(t)))));
    }
    if let Some(user) = &row.user {
        members.push(("user", text(user)));
    }
    for (name, side) in [("request_size", Direction::Request), ("response_size", Direction::Response)] {
        if let Some(body) = row.body(side).filter(|b| b.missing.is_some()) {
            members.push((name, int(body.size as i64)));
        }
    }
    dict(&members)
}

/// A time since the beginning of the flow.
fn time(row: &FlowRecord, micros: Option<u64>) -> Vec<u8> {
    seconds(row.started.micros().saturating_add(micros.unwrap_or(0)))
}

fn error(row: &FlowRecord) -> Vec<u8> {
    let message = match (&row.error, row.state) {
        (Some(error), _) => format!("{}: {}", error.kind, error.message),
        (None, FlowState::Cut) => "cut: the recording ended before the flow did".to_owned(),
        _ => return null(),
    };
    dict(&[("msg", text(&message)), ("timestamp", time(row, row.timings.done))])
}

fn address(socket: Option<std::net::SocketAddr>) -> Vec<u8> {
    if let Some(s) = socket { list([text(&s.ip().to_canonical().to_string()), int(s.port().into())]) } else { null() }
}

fn text_or_null(value: Option<&str>) -> Vec<u8> {
    value.map_or_else(null, text)
}

/// Unique in the file: the number alone is unique only within a process.
fn connection_id(row: &FlowRecord, side: &str, number: u64) -> Vec<u8> {
    let millis = row.id.unix_millis() as u32;
    text(&format!("{millis:08x}-0000-4000-{side}-{:012x}", number & 0xffff_ffff_ffff))
}

fn client(row: &FlowRecord) -> Vec<u8> {
    let (client, tls) = (&row.client, row.client.tls.as_ref());
    // mitmproxy requires addresses.
    let none = "127.0.0.1:0".parse().ok();
    let begun = if client.accepted.micros() == 0 { row.started } else { client.accepted };
    let offers = tls.into_iter().flat_map(|t| &t.alpn_offered).map(|a| bytes(a.as_bytes()));
    dict(&[
        ("id", connection_id(row, "8000", client.connection)),
        ("peername", address(client.peer.or(none))),
        ("sockname", address(client.local.or(none))),
        ("transport_protocol", text(transport_protocol(tls.and_then(|t| t.version.as_deref())))),
        ("error", null()),
        ("tls", bool(tls.is_some())),
        ("certificate_list", MitmExtras::from_row(row).certificates("client_certificates")),
        ("alpn", tls.and_then(|t| t.alpn.as_deref()).map_or_else(null, |a| bytes(a.as_bytes()))),
        ("alpn_offers", list(offers)),
        ("cipher", text_or_null(tls.and_then(|t| t.cipher.as_deref()))),
        ("cipher_list", list([])),
        ("tls_version", text_or_null(tls.and_then(|t| t.version.as_deref()).and_then(tls_version))),
        ("sni", text_or_null(tls.and_then(|t| t.sni.as_deref()))),
        ("timestamp_start", seconds(begun.micros())),
        ("timestamp_end", null()),
        ("timestamp_tls_setup", if tls.is_some() { seconds(begun.micros()) } else { null() }),
        ("mitmcert", MitmExtras::from_row(row).certificate("mitmcert")),
        ("proxy_mode", text(if row.transport == EntryKind::Socks5 { "socks5" } else { "regular" })),
    ])
}

fn server(row: &FlowRecord) -> Vec<u8> {
    let upstream = row.upstream.as_ref();
    let tls = upstream.and_then(|u| u.tls.as_ref());
    let t = &row.timings;
    // Durations are contiguous from the end of the request head.
    let begun = t.request_head.unwrap_or(0).saturating_add(t.blocked.unwrap_or(0)).saturating_add(t.dns.unwrap_or(0));
    let tcp = t.connect.map(|c| begun.saturating_add(c));
    let secured = t.tls.map(|s| tcp.unwrap_or(begun).saturating_add(s));
    let when = |micros: Option<u64>| micros.map_or_else(null, |micros| time(row, Some(micros)));
    dict(&[
        ("id", connection_id(row, "9000", upstream.map_or(0, |u| u.connection))),
        ("address", list([text(&row.host()), int(row.authority.port.into())])),
        ("peername", address(upstream.and_then(|u| u.peer))),
        ("sockname", address(upstream.and_then(|u| u.local))),
        ("transport_protocol", text(transport_protocol(tls.and_then(|t| t.version.as_deref())))),
        ("error", null()),
        ("tls", bool(row.scheme == Scheme::Https)),
        ("certificate_list", MitmExtras::from_row(row).certificates("server_certificates")),
        ("alpn", tls.and_then(|t| t.alpn.as_deref()).map_or_else(null, |a| bytes(a.as_bytes()))),
        ("alpn_offers", list([])),
        ("cipher", text_or_null(tls.and_then(|t| t.cipher.as_deref()))),
        ("cipher_list", list([])),
        ("tls_version", text_or_null(tls.and_then(|t| t.version.as_deref()).and_then(tls_version))),
        ("sni", text_or_null(tls.is_some().then(|| row.host()).as_deref())),
        ("timestamp_start", when(upstream.map(|_| begun))),
        ("timestamp_end", null()),
        ("timestamp_tcp_setup", when(tcp)),
        ("timestamp_tls_setup", when(secured)),
        ("via", null()),
    ])
}

/// Whether a TLS version is that of QUIC.
fn is_quic(version: &str) -> bool {
    version.get(..4).is_some_and(|v| v.eq_ignore_ascii_case("quic"))
}

/// The transport protocol implied by a TLS version.
fn transport_protocol(version: Option<&str>) -> &'static str {
    let datagrams = |v: &str| is_quic(v) || v.starts_with("DTLS");
    if version.is_some_and(datagrams) { "udp" } else { "tcp" }
}

/// The names known to mitmproxy, which rejects a file with any other.
fn tls_version(version: &str) -> Option<&'static str> {
    const KNOWN: [&str; 8] = ["SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3", "DTLSv0.9", "DTLSv1", "DTLSv1.2"];
    if is_quic(version) {
        return Some("QUICv1");
    }
    // Names differ in case, spaces and the letter: `TLS 1.2`, `TLSv1.2`.
    let plain = |text: &str| text.to_ascii_lowercase().replace([' ', 'v'], "");
    let (wanted, short) = (plain(version), plain(version.strip_suffix(".0").unwrap_or(version)));
    KNOWN.into_iter().find(|k| plain(k) == wanted || plain(k) == short)
}

fn fields(headers: &Headers) -> Vec<u8> {
    list(headers.iter().map(|(n, v)| list([bytes(n), bytes(v)])))
}

fn trailers(headers: &Headers) -> Vec<u8> {
    if headers.is_empty() { null() } else { fields(headers) }
}

/// mitmproxy writes `HTTP/2` as `HTTP/2.0`.
fn version(version: &str) -> Vec<u8> {
    bytes(match version {
        "HTTP/2" => b"HTTP/2.0",
        other => other.as_bytes(),
    })
}

/// The parts of a flow that have contents.
struct MessageState<'a> {
    row: &'a FlowRecord,
    contents: &'a dyn BodySource,
}

impl MessageState<'_> {
    fn body(&self, side: Direction) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        self.contents.body(self.row, side)?.read_to_end(&mut body)?;
        Ok(bytes(&body))
    }

    fn request(&self, request: &RequestRecord) -> io::Result<Vec<u8>> {
        let (row, t) = (self.row, &self.row.timings);
        Ok(dict(&[
            ("host", text(&row.host())),
            ("port", int(row.authority.port.into())),
            ("method", bytes(request.method.as_bytes())),
            ("scheme", bytes(row.scheme.as_str().as_bytes())),
            ("authority", bytes(b"")),
            ("path", bytes(request.path.as_bytes())),
            ("http_version", version(&request.version)),
            ("headers", fields(&request.headers)),
            ("content", self.body(Direction::Request)?),
            ("trailers", trailers(&request.trailers)),
            ("timestamp_start", time(row, None)),
            ("timestamp_end", time(row, t.request_body.or(t.request_sent).or(t.request_head))),
        ]))
    }

    fn response(&self, response: &ResponseRecord) -> io::Result<Vec<u8>> {
        let (row, t) = (self.row, &self.row.timings);
        Ok(dict(&[
            ("http_version", version(&response.version)),
            ("status_code", int(response.status.into())),
            ("reason", bytes(&response.reason)),
            ("headers", fields(&response.headers)),
            ("content", self.body(Direction::Response)?),
            ("trailers", trailers(&response.trailers)),
            ("timestamp_start", time(row, t.first_byte.or(t.done))),
            ("timestamp_end", time(row, t.last_byte.or(t.done))),
        ]))
    }

    /// Text and binary messages; the close of a WebSocket is stored separately. Pings have no place in the format.
    fn messages(&self) -> io::Result<Vec<u8>> {
        let (mut all, mut close): (Vec<Vec<u8>>, Option<MessageRecord>) = (Vec::new(), None);
        for message in self.contents.messages(self.row)? {
            let message = message?;
            let opcode = match message.kind {
                MessageKind::Text => 1,
                MessageKind::Binary => 2,
                MessageKind::Close => {
                    // The first close decides; the answer to it says the same.
                    close.get_or_insert(message);
                    continue;
                }
                _ => continue,
            };
            let (sent, at) = (bool(message.direction == Direction::Request), seconds(message.at.micros()));
            all.push(list([int(opcode), sent, bytes(&message.payload), at, bool(false), bool(false)]));
        }
        let payload = close.as_ref().map(|c| &c.payload[..]).unwrap_or_default();
        // A close frame begins with its code (RFC 6455 section 5.5.1).
        let code = payload.first_chunk::<2>().map(|c| int(u16::from_be_bytes(*c).into()));
        let reason = close.as_ref().map(|_| text(&String::from_utf8_lossy(payload.get(2..).unwrap_or_default())));
        Ok(dict(&[
            ("messages", list(all)),
            ("closed_by_client", close.as_ref().map_or_else(null, |c| bool(c.direction == Direction::Request))),
            ("close_code", code.unwrap_or_else(null)),
            ("close_reason", reason.unwrap_or_else(null)),
            ("timestamp_end", time(self.row, self.row.timings.done)),
        ]))
    }
}
