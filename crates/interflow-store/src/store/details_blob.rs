//! The `details` blob: all facts of a flow that have no column of their own.

use std::borrow::Cow;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use interflow_types::{FlowId, FlowTimings, Headers, Timestamp};

use crate::error::Result;
use crate::model::*;
use crate::originals::*;
use crate::store::segments::chunk_refs::{CERTIFICATES, SIDES};
use crate::store::segments::varint::{VarintReader, write_field, write_nested, write_number, write_varint};

/// Tags of the outermost fields. They are stored, so a tag is never reused or given another meaning.
mod tag {
    pub const CLIENT: u8 = 1;
    pub const UPSTREAM: u8 = 2;
    pub const REQUEST: u8 = 3;
    pub const INTERIM: u8 = 4;
    pub const RESPONSE: u8 = 5;
    pub const TIMINGS: u8 = 6;
    pub const ERROR: u8 = 7;
    pub const TUNNEL: u8 = 8;
    pub const COMMENT: u8 = 9;
    pub const PARENT: u8 = 10;
    pub const IMPORTED: u8 = 11;
    pub const INLINE_REQUEST: u8 = 12;
    pub const INLINE_RESPONSE: u8 = 13;
    pub const ARCHIVE: u8 = 14;
    pub const PASSTHROUGH: u8 = 15;
    pub const ORIGINAL_REQUEST: u8 = 16;
    pub const ORIGINAL_RESPONSE: u8 = 17;
    pub const INLINE_ORIGINAL_REQUEST: u8 = 18;
    pub const INLINE_ORIGINAL_RESPONSE: u8 = 19;
    pub const ATTEMPTS: u8 = 20;
    /// The tags of the inline body ends, by body index. Certificate chains have none.
    pub const INLINE: [u8; super::CERTIFICATES] =
        [INLINE_REQUEST, INLINE_RESPONSE, INLINE_ORIGINAL_REQUEST, INLINE_ORIGINAL_RESPONSE];
}

/// Writes the blob. `inline` are the ends of the bodies that are not part of a chunk.
pub fn encode(row: &FlowRecord, inline: [&[u8]; SIDES]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    write_nested(&mut out, tag::CLIENT, |o| client(o, &row.client));
    if let Some(u) = &row.upstream {
        write_nested(&mut out, tag::UPSTREAM, |o| upstream(o, u));
    }
    if let Some(r) = &row.request {
        write_nested(&mut out, tag::REQUEST, |o| {
            message_part(o, &r.headers, &r.trailers, &r.body);
            text(o, 10, r.protocol.as_deref());
        });
    }
    for i in &row.interim {
        write_nested(&mut out, tag::INTERIM, |o| {
            write_number(o, 1, i.status.into());
            write_nested(o, 2, |o| headers(o, &i.headers));
            // Headers are one field: a row has many, and most readers need none of them.
        });
    }
    if let Some(r) = &row.response {
        write_nested(&mut out, tag::RESPONSE, |o| response(o, r));
    }
    if let Some(original) = &row.original {
        originals(&mut out, original);
    }
    write_nested(&mut out, tag::TIMINGS, |o| timings(o, &row.timings));
    if let Some(e) = &row.error {
        write_nested(&mut out, tag::ERROR, |o| {
            write_field(o, 1, e.blame.as_bytes());
            write_field(o, 2, e.message.as_bytes());
        });
    }
    if let Some(t) = &row.tunnel {
        write_nested(&mut out, tag::TUNNEL, |o| {
            write_number(o, 1, t.sent);
            write_number(o, 2, t.received);
        });
    }
    text(&mut out, tag::PASSTHROUGH, row.passthrough.as_deref());
    // Absent fields take no space.
    text(&mut out, tag::COMMENT, row.comment.as_deref());
    if let Some(p) = row.parent {
        write_field(&mut out, tag::PARENT, &p.to_u128().to_be_bytes());
    }
    flag(&mut out, tag::IMPORTED, row.imported);
    if let Some(json) = row.archive.as_ref().and_then(|a| serde_json::to_vec(a).ok()) {
        write_field(&mut out, tag::ARCHIVE, &json);
    }
    if let Some(json) = Some(&row.attempts).filter(|all| !all.is_empty()).and_then(|all| serde_json::to_vec(all).ok()) {
        write_field(&mut out, tag::ATTEMPTS, &json);
    }
    for (t, bytes) in tag::INLINE.into_iter().zip(inline) {
        if !bytes.is_empty() {
            write_field(&mut out, t, bytes);
        }
    }
    out
}

fn response(o: &mut Vec<u8>, r: &ResponseRecord) {
    message_part(o, &r.headers, &r.trailers, &r.body);
    write_field(o, 10, &r.reason);
    write_field(o, 11, r.version.as_bytes());
    write_number(o, 12, r.status.into());
}

fn originals(out: &mut Vec<u8>, original: &OriginalRecord) {
    if let Some(OriginalRequestRecord { url, head: r, body_edited }) = &original.request {
        write_nested(out, tag::ORIGINAL_REQUEST, |o| {
            message_part(o, &r.headers, &r.trailers, &r.body);
            text(o, 10, r.protocol.as_deref());
            write_field(o, 11, url.as_bytes());
            write_field(o, 12, r.method.as_bytes());
            write_field(o, 13, r.path.as_bytes());
            write_field(o, 14, r.version.as_bytes());
            flag(o, 15, *body_edited);
        });
    }
    if let Some(OriginalResponseRecord { head, body_edited }) = &original.response {
        write_nested(out, tag::ORIGINAL_RESPONSE, |o| {
            response(o, head);
            flag(o, 15, *body_edited);
        });
    }
}

fn read_original_request(input: VarintReader<'_>) -> Result<OriginalRequestRecord> {
    // A copy of the input is read twice: once for the common part, once for the rest.
    let mut head = RequestRecord::default();
    read_request(input, &mut head)?;
    let (mut url, mut body_edited, mut input) = (String::new(), false, input);
    while let Some((t, field)) = input.field()? {
        match t {
            11 => url = field.text(),
            12 => head.method = field.text(),
            13 => head.path = field.text(),
            14 => head.version = label(field),
            15 => body_edited = true,
            _ => {}
        }
    }
    Ok(OriginalRequestRecord { url, head, body_edited })
}

fn read_original_response(input: VarintReader<'_>) -> Result<OriginalResponseRecord> {
    let head = read_response(input)?;
    let (mut body_edited, mut input) = (false, input);
    while let Some((t, _)) = input.field()? {
        body_edited |= t == 15;
    }
    Ok(OriginalResponseRecord { head, body_edited })
}

/// Reads the blob into the row and returns the inline ends of the bodies. The row's columns must be filled in before:
/// `request` and `response` are present if the flow has them.
pub fn decode(blob: &[u8], row: &mut FlowRecord) -> Result<[Bytes; SIDES]> {
    let mut inline: [Bytes; SIDES] = Default::default();
    let mut input = VarintReader(blob);
    while let Some((t, field)) = input.field()? {
        match t {
            tag::CLIENT => read_client(field, &mut row.client)?,
            tag::UPSTREAM => row.upstream = Some(read_upstream(field)?),
            tag::REQUEST => {
                if let Some(r) = &mut row.request {
                    read_request(field, r)?;
                }
            }
            tag::INTERIM => row.interim.push(read_interim(field)?),
            tag::RESPONSE => row.response = Some(read_response(field)?),
            tag::TIMINGS => row.timings = read_timings(field)?,
            tag::ERROR => read_error(field, row)?,
            tag::TUNNEL => row.tunnel = Some(read_tunnel(field)?),
            tag::PASSTHROUGH => row.passthrough = Some(label(field)),
            tag::COMMENT => row.comment = Some(field.text()),
            tag::PARENT => {
                row.parent = <[u8; 16]>::try_from(field.0).ok().map(u128::from_be_bytes).map(FlowId::from_u128)
            }
            tag::IMPORTED => row.imported = true,
            tag::ARCHIVE => row.archive = serde_json::from_slice(field.0).ok().map(Arc::new),
            tag::ATTEMPTS => row.attempts = serde_json::from_slice(field.0).unwrap_or_default(),
            tag::ORIGINAL_REQUEST => {
                row.original.get_or_insert_default().request = Some(read_original_request(field)?);
            }
            tag::ORIGINAL_RESPONSE => {
                row.original.get_or_insert_default().response = Some(read_original_response(field)?);
            }
            t if tag::INLINE.contains(&t) => {
                let side = tag::INLINE.iter().position(|i| *i == t).unwrap_or_default();
                inline[side] = Bytes::copy_from_slice(field.0);
            }
            // A field of a newer version: skipped.
            _ => {}
        }
    }
    Ok(inline)
}

/// The lengths of the inline ends of the bodies in a blob, which is not read otherwise.
pub fn inline_lengths(blob: &[u8]) -> Result<[u64; SIDES]> {
    let mut lengths = [0; SIDES];
    let mut input = VarintReader(blob);
    while let Some((t, field)) = input.field()? {
        if let Some(side) = tag::INLINE.iter().position(|i| *i == t) {
            lengths[side] = field.0.len() as u64;
        }
    }
    Ok(lengths)
}

/// The inline end of a body in a blob; empty if it has none.
pub fn inline_end(blob: &[u8], side: usize) -> &[u8] {
    let (mut end, mut input) = (&blob[..0], VarintReader(blob));
    while let Ok(Some((t, field))) = input.field() {
        if tag::INLINE.get(side) == Some(&t) {
            end = field.0;
        }
    }
    end
}

/// A copy of a blob with another inline end of a body.
pub fn with_inline(blob: &[u8], side: usize, bytes: &[u8]) -> Result<Vec<u8>> {
    let inline_tag = tag::INLINE.get(side).copied();
    let mut out = Vec::with_capacity(blob.len() + bytes.len() + 8);
    let mut input = VarintReader(blob);
    loop {
        let rest = input.0;
        let Some((t, _)) = input.field()? else { break };
        if Some(t) != inline_tag {
            out.extend_from_slice(&rest[..rest.len() - input.0.len()]);
        }
    }
    if let Some(t) = inline_tag.filter(|_| !bytes.is_empty()) {
        write_field(&mut out, t, bytes);
    }
    Ok(out)
}

fn text(o: &mut Vec<u8>, tag: u8, value: Option<&str>) {
    if let Some(v) = value {
        write_field(o, tag, v.as_bytes());
    }
}

fn flag(o: &mut Vec<u8>, tag: u8, on: bool) {
    if on {
        write_number(o, tag, 1);
    }
}

fn address(o: &mut Vec<u8>, tag: u8, a: Option<SocketAddr>) {
    if let Some(a) = a {
        write_nested(o, tag, |o| {
            o.extend_from_slice(&a.port().to_be_bytes());
            match a.ip() {
                IpAddr::V4(ip) => o.extend_from_slice(&ip.octets()),
                IpAddr::V6(ip) => o.extend_from_slice(&ip.octets()),
            }
        });
    }
}

fn read_address(field: VarintReader<'_>) -> Option<SocketAddr> {
    let (port, ip) = field.0.split_first_chunk::<2>()?;
    // The length of the address tells its family.
    let ip = match ip.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(ip).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(ip).ok()?),
    };
    Some(SocketAddr::new(ip, u16::from_be_bytes(*port)))
}

fn headers(o: &mut Vec<u8>, h: &Headers) {
    for (name, value) in h {
        write_varint(o, name.len() as u64);
        o.extend_from_slice(name);
        write_varint(o, value.len() as u64);
        o.extend_from_slice(value);
    }
}

// Neither names nor values are validated: they were when they were recorded.
fn read_headers(mut field: VarintReader<'_>) -> Result<Headers> {
    let mut h = Headers::with_capacity(16, field.0.len());
    while !field.is_empty() {
        let name = field.bytes()?;
        h.append_unchecked(name, field.bytes()?);
    }
    Ok(h)
}

fn message_part(o: &mut Vec<u8>, h: &Headers, trailers: &Headers, body: &BodyRecord) {
    write_nested(o, 1, |o| headers(o, h));
    if !trailers.is_empty() {
        write_nested(o, 2, |o| headers(o, trailers));
    }
    write_number(o, 3, body.size);
    write_number(o, 4, body.kept);
    if let Some(m) = body.missing {
        write_number(o, 5, missing_number(m));
    }
    if let Some(Sha256Digest(digest)) = &body.head_sha256 {
        write_field(o, 6, digest);
    }
}

const fn missing_number(m: MissingReason) -> u64 {
    match m {
        MissingReason::Capped => 1,
        MissingReason::Dropped => 2,
        MissingReason::Lost => 3,
        MissingReason::Head => 4,
        MissingReason::Decrypted => 5,
        MissingReason::Secret => 6,
        MissingReason::Elsewhere => 7,
    }
}

/// Reads a field common to requests and responses; false if it is none of these.
fn read_part(
    tag: u8,
    mut field: VarintReader<'_>,
    h: &mut Headers,
    trailers: &mut Headers,
    body: &mut BodyRecord,
) -> Result<bool> {
    match tag {
        1 => *h = read_headers(field)?,
        2 => *trailers = read_headers(field)?,
        3 => body.size = field.number()?,
        4 => body.kept = field.number()?,
        5 => {
            body.missing = Some(match field.number()? {
                1 => MissingReason::Capped,
                2 => MissingReason::Dropped,
                4 => MissingReason::Head,
                5 => MissingReason::Decrypted,
                6 => MissingReason::Secret,
                7 => MissingReason::Elsewhere,
                // Also a reason that only a newer version knows.
                _ => MissingReason::Lost,
            });
        }
        6 => body.head_sha256 = <[u8; 32]>::try_from(field.0).ok().map(Sha256Digest),
        _ => return Ok(false),
    }
    Ok(true)
}

fn read_request(mut input: VarintReader<'_>, r: &mut RequestRecord) -> Result<()> {
    while let Some((t, field)) = input.field()? {
        if !read_part(t, field, &mut r.headers, &mut r.trailers, &mut r.body)? && t == 10 {
            r.protocol = Some(field.text());
        }
    }
    Ok(())
}

fn read_response(mut input: VarintReader<'_>) -> Result<ResponseRecord> {
    let mut r = ResponseRecord {
        status: 0,
        reason: Bytes::new(),
        version: Cow::Borrowed(""),
        headers: Headers::new(),
        trailers: Headers::new(),
        body: BodyRecord::default(),
    };
    while let Some((t, mut field)) = input.field()? {
        if !read_part(t, field, &mut r.headers, &mut r.trailers, &mut r.body)? {
            match t {
                10 => r.reason = Bytes::copy_from_slice(field.0),
                11 => r.version = label(field),
                12 => r.status = u16::try_from(field.number()?).unwrap_or_default(),
                _ => {}
            }
        }
    }
    Ok(r)
}

fn read_interim(mut input: VarintReader<'_>) -> Result<InterimRecord> {
    let mut i = InterimRecord { status: 0, headers: Headers::new() };
    while let Some((t, mut field)) = input.field()? {
        match t {
            1 => i.status = u16::try_from(field.number()?).unwrap_or_default(),
            2 => i.headers = read_headers(field)?,
            _ => {}
        }
    }
    Ok(i)
}

fn label(field: VarintReader<'_>) -> StaticLabel {
    // The values that nearly every row has are not allocated.
    const USUAL: [&str; 10] =
        ["HTTP/1.1", "HTTP/2", "HTTP/1.0", "TLSv1.3", "TLSv1.2", "client", "upstream", "config", "internal", ""];
    match USUAL.iter().find(|u| u.as_bytes() == field.0) {
        Some(u) => Cow::Borrowed(u),
        None => Cow::Owned(field.text()),
    }
}

fn client(o: &mut Vec<u8>, c: &ClientRecord) {
    write_number(o, 1, c.connection);
    address(o, 2, c.peer);
    address(o, 3, c.local);
    write_number(o, 4, c.accepted.micros());
    if let Some(t) = &c.tls {
        write_nested(o, 5, |o| {
            text(o, 1, t.sni.as_deref());
            text(o, 2, t.version.as_deref());
            text(o, 3, t.cipher.as_deref());
            for a in &t.alpn_offered {
                write_field(o, 4, a.as_bytes());
            }
            text(o, 5, t.alpn.as_deref());
            text(o, 6, t.ja3.as_deref());
            text(o, 7, t.ja4.as_deref());
        });
    }
    text(o, 6, c.http2.as_deref());
    text(o, 7, c.ja4h.as_deref());
    if let Some(p) = &c.process {
        write_nested(o, 8, |o| {
            write_number(o, 1, u64::from(p.pid));
            write_field(o, 2, p.name.as_bytes());
        });
    }
    text(o, 9, c.container.as_deref());
}

fn read_client(mut input: VarintReader<'_>, c: &mut ClientRecord) -> Result<()> {
    while let Some((t, mut field)) = input.field()? {
        match t {
            1 => c.connection = field.number()?,
            2 => c.peer = read_address(field),
            3 => c.local = read_address(field),
            4 => c.accepted = Timestamp::from_micros(field.number()?),
            5 => c.tls = Some(read_client_tls(field)?),
            6 => c.http2 = Some(field.text()),
            7 => c.ja4h = Some(field.text()),
            8 => c.process = Some(read_process(field)?),
            9 => c.container = Some(field.text()),
            _ => {}
        }
    }
    Ok(())
}

fn read_process(mut input: VarintReader<'_>) -> Result<ProcessRecord> {
    let mut process = ProcessRecord::default();
    while let Some((t, mut field)) = input.field()? {
        match t {
            1 => process.pid = u32::try_from(field.number()?).unwrap_or_default(),
            2 => process.name = field.text(),
            _ => {}
        }
    }
    Ok(process)
}

/// The name of the client's process, without reading the rest of the blob; `None` if it is unknown.
pub fn process_name(blob: &[u8]) -> Option<String> {
    let client = find_field(VarintReader(blob), tag::CLIENT)?;
    // The tags that `client` writes.
    let process = find_field(client, 8)?;
    Some(find_field(process, 2)?.text())
}

fn find_field(mut input: VarintReader<'_>, wanted: u8) -> Option<VarintReader<'_>> {
    loop {
        match input.field() {
            Ok(Some((t, field))) if t == wanted => return Some(field),
            Ok(Some(_)) => {}
            _ => return None,
        }
    }
}

fn read_client_tls(mut input: VarintReader<'_>) -> Result<ClientTlsRecord> {
    let mut tls = ClientTlsRecord::default();
    while let Some((t, field)) = input.field()? {
        match t {
            1 => tls.sni = Some(field.text()),
            2 => tls.version = Some(label(field)),
            3 => tls.cipher = Some(field.text()),
            4 => tls.alpn_offered.push(field.text()),
            5 => tls.alpn = Some(field.text()),
            6 => tls.ja3 = Some(field.text()),
            7 => tls.ja4 = Some(field.text()),
            _ => {}
        }
    }
    Ok(tls)
}

fn upstream(o: &mut Vec<u8>, u: &UpstreamRecord) {
    address(o, 1, u.peer);
    address(o, 2, u.local);
    text(o, 3, u.via.as_deref());
    write_field(o, 4, u.version.as_bytes());
    write_number(o, 5, u.connection);
    flag(o, 6, u.reused);
    if let Some(t) = &u.tls {
        write_nested(o, 7, |o| {
            text(o, 1, t.version.as_deref());
            text(o, 2, t.cipher.as_deref());
            text(o, 3, t.alpn.as_deref());
            flag(o, 4, t.unverified);
            flag(o, 5, t.resumed);
            text(o, 6, t.problem.as_deref());
            text(o, 7, t.fingerprint.as_deref());
        });
    }
}

fn read_upstream(mut input: VarintReader<'_>) -> Result<UpstreamRecord> {
    let mut u = UpstreamRecord::default();
    while let Some((t, mut field)) = input.field()? {
        match t {
            1 => u.peer = read_address(field),
            2 => u.local = read_address(field),
            3 => u.via = Some(field.text().into()),
            4 => u.version = label(field),
            5 => u.connection = field.number()?,
            6 => u.reused = true,
            7 => u.tls = Some(read_upstream_tls(field)?),
            _ => {}
        }
    }
    Ok(u)
}

fn read_upstream_tls(mut input: VarintReader<'_>) -> Result<UpstreamTlsRecord> {
    let mut tls = UpstreamTlsRecord::default();
    while let Some((t, field)) = input.field()? {
        match t {
            1 => tls.version = Some(label(field)),
            2 => tls.cipher = Some(field.text()),
            3 => tls.alpn = Some(field.text()),
            4 => tls.unverified = true,
            5 => tls.resumed = true,
            6 => tls.problem = Some(field.text()),
            7 => tls.fingerprint = Some(field.text()),
            _ => {}
        }
    }
    Ok(tls)
}

fn timing_fields(t: &mut FlowTimings) -> [&mut Option<u64>; 10] {
    [
        &mut t.request_head,
        &mut t.request_body,
        &mut t.blocked,
        &mut t.dns,
        &mut t.connect,
        &mut t.tls,
        &mut t.request_sent,
        &mut t.first_byte,
        &mut t.last_byte,
        &mut t.done,
    ]
}

fn timings(o: &mut Vec<u8>, t: &FlowTimings) {
    let mut t = *t;
    // The position is the tag, so the order of the array must not change.
    for (i, moment) in timing_fields(&mut t).into_iter().enumerate() {
        if let Some(us) = *moment {
            write_number(o, i as u8 + 1, us);
        }
    }
}

fn read_timings(mut input: VarintReader<'_>) -> Result<FlowTimings> {
    let mut t = FlowTimings::default();
    while let Some((tag, mut field)) = input.field()? {
        // Tag 0 does not exist; the subtraction wraps to an index that is out of range.
        if let Some(moment) = timing_fields(&mut t).into_iter().nth((tag as usize).wrapping_sub(1)) {
            *moment = Some(field.number()?);
        }
    }
    Ok(t)
}

fn read_error(mut input: VarintReader<'_>, row: &mut FlowRecord) -> Result<()> {
    let Some(error) = &mut row.error else { return Ok(()) };
    while let Some((t, field)) = input.field()? {
        match t {
            1 => error.blame = label(field),
            2 => error.message = field.text(),
            _ => {}
        }
    }
    Ok(())
}

fn read_tunnel(mut input: VarintReader<'_>) -> Result<TunnelRecord> {
    let mut tunnel = TunnelRecord::default();
    while let Some((t, mut field)) = input.field()? {
        match t {
            1 => tunnel.sent = field.number()?,
            2 => tunnel.received = field.number()?,
            _ => {}
        }
    }
    Ok(tunnel)
}
