//! Makes flows from the streams of a recorded HTTP/2 connection.

use bytes::Bytes;
use interflow_types::{Authority, ErrorKind, FlowTimings, Headers, Host, Scheme};

use super::http2_stream::{HeaderBlock, Http2Stream, StreamHalf, read};
use super::import::{ConnectionView, status};
use super::reader::TcpStream;
use crate::import_support::{self, ImportSink, clean_text, field, shorten};
use crate::{FlowWithBodies, ImportError};
use interflow_store::{BodyRow, ErrorRow, InterimRow, MissingReason};

const VERSION: &str = "HTTP/2";

/// Imports every stream with a request.
pub(super) fn import(
    view: &ConnectionView,
    client: &TcpStream,
    server: &TcpStream,
    intake: &mut ImportSink<'_>,
) -> Result<(), ImportError> {
    let connection = read(client, server);
    for problem in connection.problems {
        intake.report.skip(format!("{}: {problem}", view.place()));
    }
    for (number, stream) in connection.streams {
        let mut notes = Vec::new();
        let flow = flow(view, number, stream, &mut notes);
        intake.push(&format!("{}, stream {number}", view.place()), flow, notes)?;
    }
    Ok(())
}

fn flow(
    view: &ConnectionView,
    number: u32,
    stream: Http2Stream,
    notes: &mut Vec<String>,
) -> Result<FlowWithBodies, String> {
    let Http2Stream { mut request, mut response } = stream;
    let mut blocks = std::mem::take(&mut request.blocks).into_iter();
    let head = blocks.next().ok_or("its request is not in the capture")?;
    let text = |name| head.pseudo(name).map(|value| clean_text(&String::from_utf8_lossy(value)));
    let method = text(":method").ok_or("its request has no method")?;
    let scheme = text(":scheme").and_then(|s| Scheme::parse(&s)).unwrap_or(view.scheme);
    let named = text(":authority");
    let authority = named.as_deref().map(|name| {
        Authority::parse(name, Some(scheme.default_port())).map_err(|_| format!("no authority: {}", shorten(name)))
    });
    let authority = match authority.transpose()? {
        Some(authority) => authority,
        None => view.target.clone().unwrap_or_else(|| Authority::new(Host::Ip(view.ends[1].ip()), view.ends[1].port())),
    };
    // A CONNECT has none.
    let path = text(":path").unwrap_or_else(|| authority.to_string());
    let place = number.to_le_bytes();
    let mut row = view.row(&[&place, method.as_bytes(), path.as_bytes()], head.began, scheme, authority, VERSION);
    let since = |time: u64| Some(time.saturating_sub(head.began));
    row.timings = FlowTimings { request_head: since(head.ended), request_body: since(request.last), ..row.timings };
    if let Some(error) = reset_error(&request, &response) {
        row.error = Some(error);
    }
    let mut flow = FlowWithBodies::new(row);
    let mut fields = Headers::new();
    if let Some(name) = named.filter(|_| !head.fields.iter().any(|(n, _)| **n == *b"host")) {
        field(&mut fields, b"Host", name.as_bytes(), notes);
    }
    add_fields(&mut fields, &head, notes);
    let mut asked = import_support::request(&method, &path, VERSION, fields, &request.body);
    asked.protocol = text(":protocol");
    asked.trailers = trailers(blocks, notes);
    mark_cut(&mut asked.body, &request, &asked.headers);
    flow.row.request = Some(asked);
    flow.request_body = Bytes::from(request.body);
    let mut blocks = std::mem::take(&mut response.blocks).into_iter();
    flow.row.timings.first_byte = blocks.as_slice().first().and_then(|b| since(b.began));
    while let Some(block) = blocks.next() {
        let status = status(block.pseudo(":status").unwrap_or_default())?;
        let mut fields = Headers::new();
        add_fields(&mut fields, &block, notes);
        if status < 200 {
            flow.row.interim.push(InterimRow { status, headers: fields });
            continue;
        }
        let mut answer = import_support::response(status, b"", VERSION, fields, &response.body);
        answer.trailers = trailers(blocks, notes);
        mark_cut(&mut answer.body, &response, &answer.headers);
        flow.row.response = Some(answer);
        flow.response_body = Bytes::from(response.body);
        let last = since(response.last);
        (flow.row.timings.last_byte, flow.row.timings.done) = (last, last);
        break;
    }
    import_support::set_complete(&mut flow);
    Ok(flow)
}

/// The regular fields of a head. Cookies that were split for compression are joined (RFC 9113 8.2.3), as they are in recorded
/// flows.
fn add_fields(headers: &mut Headers, block: &HeaderBlock, notes: &mut Vec<String>) {
    let cookies: Vec<&[u8]> = block.fields.iter().filter(|(n, _)| **n == *b"cookie").map(|(_, v)| &**v).collect();
    let mut joined = Some(cookies.join(&b"; "[..])).filter(|_| !cookies.is_empty());
    for (name, value) in &block.fields {
        if **name != *b"cookie" {
            field(headers, name, value, notes);
        } else if let Some(cookies) = joined.take() {
            field(headers, name, &cookies, notes);
        }
    }
}

fn trailers(blocks: impl Iterator<Item = HeaderBlock>, notes: &mut Vec<String>) -> Headers {
    let mut trailers = Headers::new();
    blocks.for_each(|block| add_fields(&mut trailers, &block, notes));
    trailers
}

fn mark_cut(body: &mut BodyRow, half: &StreamHalf, headers: &Headers) {
    if half.is_complete {
        return;
    }
    let announced = headers.get_str("content-length").and_then(|l| l.trim().parse::<u64>().ok());
    // How much is missing may not be known; that something is, is.
    body.size = announced.unwrap_or(0).max(body.size + 1);
    body.missing = Some(MissingReason::Lost);
}

/// A reset that ended the exchange. One with the code 0 behind a complete response only tells the client not to send more.
fn reset_error(request: &StreamHalf, response: &StreamHalf) -> Option<ErrorRow> {
    if response.is_complete {
        return None;
    }
    let (kind, blame, from, code) = match (request.reset, response.reset) {
        (_, Some(code)) => (ErrorKind::UpstreamClosed, "upstream", "server", code),
        (Some(code), None) => (ErrorKind::ClientGone, "client", "client", code),
        (None, None) => return None,
    };
    let message = format!("the {from} reset the stream with the error code {code}");
    Some(ErrorRow { kind: kind.as_str().into(), blame: blame.into(), message })
}
