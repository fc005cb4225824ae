//! Imports the HTTP exchanges of a packet capture: plain ones, and those in TLS whose secrets are in the file.

use std::io::Read;
use std::net::SocketAddr;

use bytes::Bytes;
use interflow_types::{Authority, EntryKind, FlowTimings, Host, Scheme, Timestamp};

use super::http1_stream::{MessageSpan, requests, responses};
use super::http2_import;
use super::http2_stream::is_http2;
use super::reader::{CaptureItem, CaptureReader, TcpStream};
use super::tls_reader::{SessionSecrets, decrypt, is_tls};
use crate::import_support::{self, ImportSink, clean_text, shorten};
use crate::{FlowSink, FlowWithBodies, ImportError, ImportReport, har};
use interflow_store::{FlowRow, InterimRow, MissingReason, UpstreamRow};

/// Imports the flows of a capture.
///
/// # Errors
/// A file that is not pcapng or is truncated, after the complete connections.
pub(crate) fn import(file: impl Read, sink: FlowSink<'_>) -> Result<ImportReport, ImportError> {
    let mut intake = ImportSink::new(sink);
    let mut secrets = SessionSecrets::default();
    let mut reader = CaptureReader::new(file);
    let mut stored = Ok(());
    let read = reader.run(&mut |item| {
        match item {
            CaptureItem::Secrets(lines) => secrets.add(&lines),
            CaptureItem::Connection(connection) => {
                let view =
                    ConnectionView { ends: connection.ends, target: None, scheme: Scheme::Http, is_tunnel: false };
                let [client, server] = &connection.streams;
                stored = view.import(client, server, &secrets, &mut intake);
                if stored.is_err() {
                    // Ends the reading; the error itself is returned below.
                    return Err(std::io::Error::other("the flow could not be stored"));
                }
            }
        }
        Ok(())
    });
    stored?;
    match read {
        Ok(()) => Ok(intake.report),
        Err(e) if e.kind() == std::io::ErrorKind::InvalidData => Err(intake.malformed("the capture", e.to_string())),
        Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(intake.malformed("the capture", "it is truncated; what was whole before it is imported"))
        }
        Err(e) => Err(intake.failed(e)),
    }
}

/// What is known of a connection, or of what it carries.
pub(super) struct ConnectionView {
    pub ends: [SocketAddr; 2],
    /// The target of the tunnel or the TLS session.
    pub target: Option<Authority>,
    pub scheme: Scheme,
    /// Whether a client asked for it with CONNECT.
    is_tunnel: bool,
}

impl ConnectionView {
    pub fn place(&self) -> String {
        format!("connection {} to {}", self.ends[0], self.ends[1])
    }

    /// The row of an exchange that began at `started`, in microseconds; `parts` tell it from others of the connection.
    pub fn row(
        &self,
        parts: &[&[u8]],
        started: u64,
        scheme: Scheme,
        authority: Authority,
        version: &'static str,
    ) -> FlowRow {
        let place = format!("{} {}", self.ends[0], self.ends[1]);
        let started = Timestamp::from_micros(started);
        let id = import_support::stable_id(started, &[&[b"pcapng", place.as_bytes()], parts].concat());
        let transport = if scheme == Scheme::Https { EntryKind::Connect } else { EntryKind::Absolute };
        let mut row = FlowRow::new(id, started, transport, scheme, authority);
        row.client.peer = Some(self.ends[0]);
        // The other end of a tunnel is a proxy.
        if !self.is_tunnel {
            row.upstream =
                Some(UpstreamRow { peer: Some(self.ends[1]), version: version.into(), ..UpstreamRow::default() });
        }
        row
    }

    fn import(
        &self,
        client: &TcpStream,
        server: &TcpStream,
        secrets: &SessionSecrets,
        intake: &mut ImportSink<'_>,
    ) -> Result<(), ImportError> {
        if is_tls(&client.bytes) {
            return match decrypt(client, server, secrets) {
                Ok(session) => {
                    let target = self.target.clone().or_else(|| {
                        let name = session.server_name.as_deref()?;
                        Some(Authority::new(Host::parse(name).ok()?, self.ends[1].port()))
                    });
                    if let Some(problem) = session.problem {
                        intake.report.skip(format!("{}: {problem}", self.place()));
                    }
                    let inner = Self { ends: self.ends, target, scheme: Scheme::Https, is_tunnel: self.is_tunnel };
                    inner.import(&session.client, &session.server, secrets, intake)
                }
                Err(problem) => {
                    intake.report.skip(format!("{}: {problem}", self.place()));
                    Ok(())
                }
            };
        }
        if is_http2(&client.bytes) {
            return http2_import::import(self, client, server, intake);
        }
        let asked = requests(&client.bytes);
        if asked.is_empty() {
            intake.report.skip(format!(
                "{}: it carries no HTTP/1 or HTTP/2, or its beginning is not in the capture",
                self.place()
            ));
            return Ok(());
        }
        let methods: Vec<&[u8]> = asked.iter().map(|m| m.method(&client.bytes)).collect();
        let answers = responses(&server.bytes, &methods);
        for (index, request) in asked.iter().enumerate() {
            let answer = answers.finals.get(index);
            if request.method(&client.bytes) == b"CONNECT" && answer.is_some_and(|a| a.is_success(&server.bytes)) {
                let inner = [rest(client, request.end), rest(server, answer.map_or(0, |a| a.end))];
                let target = request.target(&client.bytes).and_then(|t| Authority::parse(t, Some(443)).ok());
                let tunnel = Self { ends: self.ends, target, scheme: Scheme::Http, is_tunnel: true };
                return tunnel.import(&inner[0], &inner[1], secrets, intake);
            }
            let mut notes = Vec::new();
            let interim = answers.interim.iter().filter(|(at, _)| *at == index).map(|(_, span)| span);
            let flow = self.flow((client, request), (server, answer), interim, &mut notes);
            intake.push(&self.place(), flow, notes)?;
        }
        Ok(())
    }

    fn flow<'m>(
        &self,
        (client, request): (&TcpStream, &MessageSpan),
        (server, answer): (&TcpStream, Option<&MessageSpan>),
        interim: impl Iterator<Item = &'m MessageSpan>,
        notes: &mut Vec<String>,
    ) -> Result<FlowWithBodies, String> {
        let message = import_support::message(&client.bytes[request.start..request.end], notes)?;
        let [method, target, version] = message.line.map(|w| clean_text(&String::from_utf8_lossy(w)));
        let (scheme, authority, path) = if target.contains("://") {
            har::parse_url(&target).map_err(|why| format!("{why}: {}", shorten(&target)))?
        } else {
            let named = message
                .headers
                .get_str("host")
                .and_then(|h| Authority::parse(h, Some(self.scheme.default_port())).ok());
            let authority = named.or_else(|| self.target.clone());
            (
                self.scheme,
                authority.unwrap_or_else(|| Authority::new(Host::Ip(self.ends[1].ip()), self.ends[1].port())),
                target.clone(),
            )
        };
        let started = client.time_at(request.start);
        let since = |time: u64| Some(time.saturating_sub(started));
        let position = (request.start as u64).to_le_bytes();
        let parts = [&position[..], &client.bytes[request.start..request.head_end]];
        let mut row = self.row(&parts, started, scheme, authority, "HTTP/1.1");
        if target.contains("://") {
            row.upstream = None;
        }
        row.timings = FlowTimings {
            request_head: since(client.time_at(request.head_end - 1)),
            request_body: since(client.time_at(request.end - 1)),
            ..FlowTimings::default()
        };
        let mut flow = FlowWithBodies::new(row);
        let mut head = import_support::request(&method, &path, &version, message.headers, &message.body);
        head.trailers = message.trailers;
        mark_cut(&mut head.body, request);
        flow.row.request = Some(head);
        flow.request_body = Bytes::from(message.body.into_owned());
        for span in interim {
            let message = import_support::message(&server.bytes[span.start..span.end], notes)?;
            flow.row.interim.push(InterimRow { status: status(message.line[1])?, headers: message.headers });
        }
        if let Some(span) = answer {
            let message = import_support::message(&server.bytes[span.start..span.end], notes)?;
            let [version, code, reason] = message.line;
            let version = String::from_utf8_lossy(version);
            let mut head = import_support::response(status(code)?, reason, &version, message.headers, &message.body);
            head.trailers = message.trailers;
            mark_cut(&mut head.body, span);
            flow.row.response = Some(head);
            flow.response_body = Bytes::from(message.body.into_owned());
            let last = since(server.time_at(span.end - 1));
            flow.row.timings.first_byte = since(server.time_at(span.start));
            (flow.row.timings.last_byte, flow.row.timings.done) = (last, last);
        }
        import_support::set_complete(&mut flow);
        Ok(flow)
    }
}

/// The part of a stream from a position on.
fn rest(stream: &TcpStream, from: usize) -> TcpStream {
    let from = from.min(stream.bytes.len());
    let mut marks = vec![(0, stream.time_at(from))];
    marks.extend(stream.marks.iter().filter(|(at, _)| *at > from).map(|(at, time)| (at - from, *time)));
    TcpStream::from_parts(stream.bytes[from..].to_vec(), marks)
}

fn mark_cut(body: &mut interflow_store::BodyRow, span: &MessageSpan) {
    if let Some(missing) = span.missing {
        body.size += missing as u64;
        body.missing = Some(MissingReason::Lost);
    }
}

pub(super) fn status(code: &[u8]) -> Result<u16, String> {
    let code = std::str::from_utf8(code).ok().and_then(|c| c.parse().ok());
    code.filter(|c| (100..1000).contains(c)).ok_or_else(|| "the response has no status".to_owned())
}
