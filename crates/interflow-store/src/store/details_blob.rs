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
    pub const ARCHIVE: u8 = 14;
    pub const PASSTHROUGH: u8 = 15;
    pub const ORIGINAL_REQUEST: u8 = 16;
    pub const ORIGINAL_RESPONSE: u8 = 17;
    pub const ATTEMPTS: u8 = 20;
    /// The inline body ends, by body index. Certificate chains have none.
    pub const INLINE: [u8; super::CERTIFICATES] = [12, 13, 18, 19];
}

/// A value as a tagged field. What has no value takes no space.
trait BlobField {
    fn write(&self, out: &mut Vec<u8>, tag: u8);
    fn read(&mut self, field: VarintReader<'_>) -> Result<()>;
}

/// The fields of records with their tags, which are stored: a tag is never reused or given another meaning. Fields of
/// newer versions are skipped.
macro_rules! record_fields {
    ($($record:ty { $($tag:literal: $($field:ident).+),+ })+) => {$(
        impl BlobField for $record {
            fn write(&self, out: &mut Vec<u8>, tag: u8) {
                write_nested(out, tag, |out| { $(self.$($field).+.write(out, $tag);)+ });
            }

            fn read(&mut self, mut input: VarintReader<'_>) -> Result<()> {
                while let Some((tag, field)) = input.field()? {
                    match tag {
                        $($tag => self.$($field).+.read(field)?,)+
                        _ => {}
                    }
                }
                Ok(())
            }
        }
    )+};
}

record_fields! {
    ClientRecord {
        1: connection, 2: peer, 3: local, 4: accepted, 5: tls, 6: http2, 7: ja4h, 8: process, 9: container
    }
    ClientTlsRecord { 1: sni, 2: version, 3: cipher, 4: alpn_offered, 5: alpn, 6: ja3, 7: ja4 }
    ProcessRecord { 1: pid, 2: name }
    UpstreamRecord { 1: peer, 2: local, 3: via, 4: version, 5: connection, 6: reused, 7: tls }
    UpstreamTlsRecord { 1: version, 2: cipher, 3: alpn, 4: unverified, 5: resumed, 6: problem, 7: fingerprint }
    RequestRecord {
        1: headers, 2: trailers, 3: body.size, 4: body.kept, 5: body.missing, 6: body.head_sha256, 10: protocol
    }
    InterimRecord { 1: status, 2: headers }
    ResponseRecord {
        1: headers, 2: trailers, 3: body.size, 4: body.kept, 5: body.missing, 6: body.head_sha256, 10: reason,
        11: version, 12: status
    }
    OriginalRequestRecord {
        1: head.headers, 2: head.trailers, 3: head.body.size, 4: head.body.kept, 5: head.body.missing,
        6: head.body.head_sha256, 10: head.protocol, 11: url, 12: head.method, 13: head.path, 14: head.version,
        15: body_edited
    }
    OriginalResponseRecord {
        1: head.headers, 2: head.trailers, 3: head.body.size, 4: head.body.kept, 5: head.body.missing,
        6: head.body.head_sha256, 10: head.reason, 11: head.version, 12: head.status, 15: body_edited
    }
    FlowTimings {
        1: request_head, 2: request_body, 3: blocked, 4: dns, 5: connect, 6: tls, 7: request_sent, 8: first_byte,
        9: last_byte, 10: done
    }
    ErrorRecord { 1: blame, 2: message }
    TunnelRecord { 1: sent, 2: received }
}

/// Writes the blob. `inline` are the ends of the bodies that are not part of a chunk.
pub fn encode(row: &FlowRecord, inline: [&[u8]; SIDES]) -> Vec<u8> {
    let mut out = Vec::with_capacity(1024);
    row.client.write(&mut out, tag::CLIENT);
    row.upstream.write(&mut out, tag::UPSTREAM);
    row.request.write(&mut out, tag::REQUEST);
    row.interim.write(&mut out, tag::INTERIM);
    row.response.write(&mut out, tag::RESPONSE);
    if let Some(original) = &row.original {
        original.request.write(&mut out, tag::ORIGINAL_REQUEST);
        original.response.write(&mut out, tag::ORIGINAL_RESPONSE);
    }
    row.timings.write(&mut out, tag::TIMINGS);
    row.error.write(&mut out, tag::ERROR);
    row.tunnel.write(&mut out, tag::TUNNEL);
    row.passthrough.write(&mut out, tag::PASSTHROUGH);
    row.comment.write(&mut out, tag::COMMENT);
    if let Some(p) = row.parent {
        write_field(&mut out, tag::PARENT, &p.to_u128().to_be_bytes());
    }
    row.imported.write(&mut out, tag::IMPORTED);
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

/// Reads the blob into the row and returns the inline ends of the bodies. The row's columns must be filled in before:
/// `request` and `error` are present if the flow has them.
pub fn decode(blob: &[u8], row: &mut FlowRecord) -> Result<[Bytes; SIDES]> {
    let mut inline: [Bytes; SIDES] = Default::default();
    let mut input = VarintReader(blob);
    while let Some((t, field)) = input.field()? {
        match t {
            tag::CLIENT => row.client.read(field)?,
            tag::UPSTREAM => row.upstream.read(field)?,
            tag::REQUEST => row.request.as_mut().map_or(Ok(()), |r| r.read(field))?,
            tag::INTERIM => row.interim.read(field)?,
            // Its columns repeat what the blob has.
            tag::RESPONSE => row.response.insert(ResponseRecord::default()).read(field)?,
            tag::TIMINGS => row.timings.read(field)?,
            tag::ERROR => row.error.as_mut().map_or(Ok(()), |e| e.read(field))?,
            tag::TUNNEL => row.tunnel.read(field)?,
            tag::PASSTHROUGH => row.passthrough.read(field)?,
            tag::COMMENT => row.comment.read(field)?,
            tag::PARENT => {
                row.parent = <[u8; 16]>::try_from(field.0).ok().map(u128::from_be_bytes).map(FlowId::from_u128)
            }
            tag::IMPORTED => row.imported.read(field)?,
            tag::ARCHIVE => row.archive = serde_json::from_slice(field.0).ok().map(Arc::new),
            tag::ATTEMPTS => row.attempts = serde_json::from_slice(field.0).unwrap_or_default(),
            tag::ORIGINAL_REQUEST => row.original.get_or_insert_default().request.read(field)?,
            tag::ORIGINAL_RESPONSE => row.original.get_or_insert_default().response.read(field)?,
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

impl<T: BlobField + Default> BlobField for Option<T> {
    fn write(&self, out: &mut Vec<u8>, tag: u8) {
        if let Some(value) = self {
            value.write(out, tag);
        }
    }

    fn read(&mut self, field: VarintReader<'_>) -> Result<()> {
        self.insert(T::default()).read(field)
    }
}

/// One field for each item.
impl<T: BlobField + Default> BlobField for Vec<T> {
    fn write(&self, out: &mut Vec<u8>, tag: u8) {
        self.iter().for_each(|item| item.write(out, tag));
    }

    fn read(&mut self, field: VarintReader<'_>) -> Result<()> {
        let mut item = T::default();
        item.read(field)?;
        self.push(item);
        Ok(())
    }
}

/// Values whose field is written and read by an expression each.
macro_rules! blob_fields {
    ($($type:ty: |$value:ident, $out:ident, $tag:ident| $write:expr, |$field:ident| $read:expr;)+) => {$(
        impl BlobField for $type {
            fn write(&self, $out: &mut Vec<u8>, $tag: u8) {
                let $value = self;
                $write;
            }

            #[allow(unused_mut, reason = "some values are read from the bytes as they are")]
            fn read(&mut self, mut $field: VarintReader<'_>) -> Result<()> {
                *self = $read;
                Ok(())
            }
        }
    )+};
}

blob_fields! {
    u64: |n, out, tag| write_number(out, tag, *n), |field| field.number()?;
    u32: |n, out, tag| write_number(out, tag, u64::from(*n)), |field| field.number()?.try_into().unwrap_or_default();
    u16: |n, out, tag| write_number(out, tag, u64::from(*n)), |field| field.number()?.try_into().unwrap_or_default();
    bool: |on, out, tag| if *on { write_number(out, tag, 1) }, |_field| true;
    Timestamp: |at, out, tag| write_number(out, tag, at.micros()), |field| Timestamp::from_micros(field.number()?);
    String: |text, out, tag| write_field(out, tag, text.as_bytes()), |field| field.text();
    Arc<str>: |text, out, tag| write_field(out, tag, text.as_bytes()), |field| field.text().into();
    StaticLabel: |text, out, tag| write_field(out, tag, text.as_bytes()), |field| label(field);
    Bytes: |bytes, out, tag| write_field(out, tag, bytes), |field| Bytes::copy_from_slice(field.0);
    Headers: |h, out, tag| if !h.is_empty() { write_nested(out, tag, |out| headers(out, h)) }, |field| read_headers(field)?;
    Option<Sha256Digest>: |digest, out, tag| if let Some(Sha256Digest(digest)) = digest { write_field(out, tag, digest) },
        |field| <[u8; 32]>::try_from(field.0).ok().map(Sha256Digest);
    Option<MissingReason>: |missing, out, tag| if let Some(m) = missing { write_number(out, tag, missing_number(*m)) },
        |field| Some(missing_reason(field.number()?));
    Option<SocketAddr>: |address, out, tag| if let Some(a) = address { write_nested(out, tag, |out| write_address(out, *a)) },
        |field| read_address(field);
}

fn write_address(out: &mut Vec<u8>, address: SocketAddr) {
    out.extend_from_slice(&address.port().to_be_bytes());
    match address.ip() {
        IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
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

/// The reasons by their numbers, from 1, which are stored: new ones are added at the end.
const MISSING_REASONS: [MissingReason; 7] = {
    use MissingReason::*;
    [Capped, Dropped, Lost, Head, Decrypted, Secret, Elsewhere]
};

fn missing_number(reason: MissingReason) -> u64 {
    MISSING_REASONS.iter().position(|r| *r == reason).map_or(0, |i| i as u64 + 1)
}

/// `Lost` also for a reason that only a newer version knows.
fn missing_reason(number: u64) -> MissingReason {
    MISSING_REASONS.into_iter().find(|r| missing_number(*r) == number).unwrap_or(MissingReason::Lost)
}

fn label(field: VarintReader<'_>) -> StaticLabel {
    // The values that nearly every row has are not allocated.
    const USUAL: [&str; 10] =
        ["HTTP/1.1", "HTTP/2", "HTTP/1.0", "TLSv1.3", "TLSv1.2", "client", "upstream", "config", "internal", ""];
    let usual = USUAL.iter().find(|u| u.as_bytes() == field.0);
    usual.map_or_else(|| Cow::Owned(field.text()), |u| Cow::Borrowed(*u))
}

/// The name of the client's process, without reading the rest of the blob; `None` if it is unknown.
pub fn process_name(blob: &[u8]) -> Option<String> {
    let client = find_field(VarintReader(blob), tag::CLIENT)?;
    // The tags of `process` in a client record, and of `name` in a process record.
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
