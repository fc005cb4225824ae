//! HTTP/1 on a connection. The framing must be consistent in the file too: if the recorded head and body do not match,
//! the connection ends after them.

use std::io::{self, Write};

use interflow_types::{Direction, Headers};

use super::Interface;
use super::connection::{MessageTiming, PacketConnection};
use super::sides::FlowSide;
use crate::{frames, raw};
use interflow_store::{FlowKind, FlowRecord};

/// A CONNECT request with its successful response. Before TLS, so outside of records.
pub(super) fn connect(connection: &mut PacketConnection, out: &mut dyn Write, authority: &str) -> io::Result<()> {
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    connection.tcp.send(out, Direction::Request, connection.at, request.as_bytes())?;
    connection.tcp.send(out, Direction::Response, connection.at, b"HTTP/1.1 200 Connection established\r\n\r\n")
}

/// A request, its interim responses and its response, and the messages after an upgrade.
pub(super) fn exchange(connection: &mut PacketConnection, out: &mut dyn Write, flow: &FlowSide<'_>) -> io::Result<()> {
    let mut row = flow.row.clone();
    reframe(&mut row, flow.side, connection);
    let flow = FlowSide { row: &row, ..*flow };
    message(connection, out, &flow, Direction::Request)?;
    for interim in &row.interim {
        let mut head = format!("HTTP/1.1 {} \r\n", interim.status).into_bytes();
        interim.headers.write_to(&mut head);
        head.extend_from_slice(b"\r\n");
        connection.send(out, Direction::Response, &head)?;
    }
    message(connection, out, &flow, Direction::Response)?;
    if row.kind == FlowKind::WebSocket {
        connection.over = true;
        messages(connection, out, &flow)?;
    }
    Ok(())
}

fn message(
    connection: &mut PacketConnection,
    out: &mut dyn Write,
    flow: &FlowSide<'_>,
    direction: Direction,
) -> io::Result<()> {
    let mut pipe = connection.packet_sink(out, direction, MessageTiming::from_row(flow.row, direction));
    raw::write_side(&mut pipe, flow.row, flow.contents, direction)?;
    pipe.flush()
}

/// WebSocket messages as frames; imported tunnel data as bytes.
pub(super) fn messages(connection: &mut PacketConnection, out: &mut dyn Write, flow: &FlowSide<'_>) -> io::Result<()> {
    for message in flow.contents.messages(flow.row)? {
        let message = message?;
        connection.at = message.at.micros();
        if flow.row.kind == FlowKind::Tunnel {
            connection.send(out, message.direction, &message.payload)?;
        } else if let Some(frame) = frames::encode(&message) {
            connection.send(out, message.direction, &frame)?;
        }
    }
    Ok(())
}

/// Adapts the heads to this side, and notes whether another exchange can follow.
fn reframe(row: &mut FlowRecord, side: Interface, connection: &mut PacketConnection) {
    let url = row.url();
    let via = row.upstream.as_ref().is_some_and(|u| u.via.is_some());
    // Requests to a proxy in plain HTTP have the absolute form (RFC 9112 section 3.2.2).
    let absolute = !connection.ends.tls
        && match side {
            Interface::Client => row.transport == interflow_types::EntryKind::Absolute && row.client.local.is_some(),
            Interface::Upstream => via,
        };
    let mut no_body = false;
    if let Some(request) = &mut row.request {
        no_body = request.method == "HEAD";
        request.version = http1_version(&request.version);
        if absolute && request.path != "*" {
            request.path = url;
        }
        // HTTP/1.1 requires the field; HTTP/2 had it as `:authority`.
        if !request.headers.contains("host") {
            let mut headers = Headers::new();
            headers.append_unchecked(b"Host", row.authority.to_host_header(row.scheme).as_bytes());
            request.headers.iter().for_each(|(n, v)| headers.append_unchecked(n, v));
            request.headers = headers;
        }
        match framing(&request.headers, request.body.kept) {
            RecordedFraming::Holds => {}
            RecordedFraming::None if !request.trailers.is_empty() => chunk(&mut request.headers),
            RecordedFraming::None if request.body.kept == 0 => {}
            RecordedFraming::None => {
                request.headers.append_unchecked(b"Content-Length", request.body.kept.to_string().as_bytes());
            }
            // Readers would look for the missing bytes in the next exchange.
            RecordedFraming::Broken => connection.over = true,
        }
    }
    let Some(response) = &mut row.response else {
        connection.over = true;
        return;
    };
    response.version = http1_version(&response.version);
    // Such responses have no body whatever their head says (RFC 9112 section 6.3).
    no_body |= matches!(response.status, 100..200 | 204 | 304);
    if !no_body && !response.trailers.is_empty() && response.version == "HTTP/1.1" {
        chunk(&mut response.headers);
    }
    let holds = framing(&response.headers, response.body.kept) == RecordedFraming::Holds;
    connection.over |= !(no_body || holds) || response.headers.has_token("connection", "close");
}

/// Only chunks have trailers (RFC 9112 7.1.2); the transfer coding is a field of the connection, and not recorded.
fn chunk(headers: &mut Headers) {
    headers.remove("content-length");
    headers.set("Transfer-Encoding", "chunked").expect("a valid field");
}

fn http1_version(version: &interflow_store::StaticLabel) -> interflow_store::StaticLabel {
    if version.starts_with("HTTP/1.") { version.clone() } else { "HTTP/1.1".into() }
}

/// Whether a head matches the recorded body.
#[derive(Debug, PartialEq, Eq)]
enum RecordedFraming {
    /// The head delimits the body correctly.
    Holds,
    None,
    /// The head declares another length than was recorded, for example because the body was cut off.
    Broken,
}

fn framing(headers: &Headers, kept: u64) -> RecordedFraming {
    // The writer encodes the chunks anew.
    if headers.has_token("transfer-encoding", "chunked") {
        return RecordedFraming::Holds;
    }
    match headers.get_str("content-length").map(|l| l.trim().parse::<u64>()) {
        None => RecordedFraming::None,
        Some(Ok(told)) if told == kept => RecordedFraming::Holds,
        Some(_) => RecordedFraming::Broken,
    }
}
