//! Renders bodies for display: Protocol Buffers, gRPC, gRPC-Web, Connect and MessagePack, with configured schemas or from
//! the wire format alone; AWS event streams; and text formats that are easier to read when reformatted.

pub mod body_text;
mod cbor;
mod event_stream;
mod form;
mod graphql;
mod grpc;
mod json;
mod markup;
mod msgpack;
mod playlist;
mod protobuf;
mod schemas;
mod text_views;
mod value_tree;

use interflow_types::{Direction, Headers};

pub use json::json;
pub use schemas::{ProtoSchemaError, ProtoSchemas};
pub use text_views::{TextKind, format_text};

/// A binary format that can be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BinaryKind {
    /// Length-prefixed messages (gRPC over HTTP/2, Connect's streams) containing Protocol Buffers or JSON.
    Grpc,
    /// The same in base64 (gRPC-Web).
    GrpcWebText,
    Protobuf,
    /// A sequence of values.
    MessagePack,
    /// A sequence of items (RFC 8949, RFC 8742).
    Cbor,
    /// `application/vnd.amazon.eventstream`.
    EventStream,
}

impl BinaryKind {
    /// Determined by the media type. Several types are common for the same format.
    pub fn from_headers(headers: &Headers) -> Option<Self> {
        let media = interflow_store::media_type(headers)?;
        let sub = media.strip_prefix("application/")?;
        Some(match sub {
            _ if sub.starts_with("grpc-web-text") => Self::GrpcWebText,
            "grpc" | "grpc-web" | "grpc+proto" | "grpc-web+proto" | "grpc+json" | "grpc-web+json" => Self::Grpc,
            "protobuf" | "x-protobuf" | "vnd.google.protobuf" | "x-google-protobuf" => Self::Protobuf,
            "msgpack" | "x-msgpack" | "vnd.msgpack" => Self::MessagePack,
            _ if sub.ends_with("+msgpack") => Self::MessagePack,
            "cbor" | "cbor-seq" | "senml+cbor" => Self::Cbor,
            _ if sub.ends_with("+cbor") || sub.ends_with("+cbor-seq") => Self::Cbor,
            // Connect's streams have the frames of gRPC; its single messages have none.
            "connect+proto" | "connect+json" => Self::Grpc,
            "vnd.amazon.eventstream" => Self::EventStream,
            "proto" => Self::Protobuf,
            _ if sub.ends_with("+proto") || sub.ends_with("+protobuf") => Self::Protobuf,
            _ => return None,
        })
    }
}

/// Facts about a body besides its bytes.
#[derive(Clone, Copy)]
pub struct BodyContext<'a> {
    pub headers: &'a Headers,
    /// The path of the request; for gRPC it names the method.
    pub path: &'a str,
    pub direction: Direction,
    /// The full name of its message, if given explicitly.
    pub message: Option<&'a str>,
}

impl BodyContext<'_> {
    /// The full name of the message: given explicitly, by the head (`application/x-protobuf; messageType="a.B"`), or by
    /// the method.
    fn message_name(&self, schemas: &ProtoSchemas) -> Option<String> {
        let message = self.message.map(str::to_owned).or_else(|| {
            let value = self.headers.get_str("content-type")?;
            let mut parameters = value.split(';').skip(1).filter_map(|p| p.trim().split_once('='));
            let named = parameters.find(|(n, _)| ["messagetype", "proto"].contains(&n.to_ascii_lowercase().as_str()));
            named.map(|(_, v)| v.trim_matches('"').to_owned())
        });
        message.or_else(|| schemas.message_of_method(self.path, self.direction))
    }
}

/// Renders a body whose content coding was removed, to about `cap` bytes of text at most.
///
/// # Errors
/// The body is malformed; the error gives the position.
pub fn pretty(
    kind: BinaryKind,
    place: &BodyContext<'_>,
    body: &[u8],
    schemas: &ProtoSchemas,
    cap: usize,
) -> Result<String, String> {
    let view = MessageView { place, schemas, cap };
    match kind {
        BinaryKind::Protobuf => {
            let mut out = String::new();
            view.message(&mut out, body)?;
            Ok(out)
        }
        BinaryKind::Grpc => grpc::pretty(&view, body),
        BinaryKind::GrpcWebText => grpc::pretty(&view, &grpc::from_text(body)?),
        BinaryKind::MessagePack => msgpack::pretty(body, cap),
        BinaryKind::Cbor => cbor::pretty(body, cap),
        BinaryKind::EventStream => event_stream::server_sent_events(body, cap),
    }
}

/// The text in the frames of a body, to about `cap` bytes: JSON messages of gRPC and Connect, one per line; AWS event
/// streams as server-sent events. `None` for other bodies, and for those that are not what their head says.
pub fn unframed_text(headers: &Headers, body: &[u8], cap: usize) -> Option<String> {
    match BinaryKind::from_headers(headers)? {
        BinaryKind::Grpc => grpc::json_lines(headers, body, cap),
        BinaryKind::EventStream => event_stream::server_sent_events(body, cap).ok(),
        _ => None,
    }
}

/// How Protocol Buffers messages are shown.
struct MessageView<'a> {
    place: &'a BodyContext<'a>,
    schemas: &'a ProtoSchemas,
    cap: usize,
}

impl MessageView<'_> {
    /// One message: by its schema if that is known and matches, else from the wire format alone.
    fn message(&self, out: &mut String, bytes: &[u8]) -> Result<(), String> {
        if let Some(name) = self.place.message_name(self.schemas) {
            match self.schemas.text(&name, bytes) {
                Some(Ok(text)) => {
                    out.push_str(&format!("# {name}\n"));
                    push_bounded(out, &text, self.cap);
                    return Ok(());
                }
                // The schema does not fit, so the bytes are shown as they are.
                Some(Err(why)) => out.push_str(&format!("# these bytes are no {name}: {why}\n")),
                None if self.place.message.is_some() => return Err(format!("no schema names a message '{name}'")),
                None => {}
            }
        }
        protobuf::write(out, bytes, self.cap)
    }
}

/// Maximum size of a body that is rendered, in bytes. Callers cut longer ones before.
pub const MAX_BODY: usize = 64 << 20;

/// Appends text up to the cap, and notes if there was more.
fn push_bounded(out: &mut String, text: &str, cap: usize) {
    let capacity = cap.saturating_sub(out.len());
    if text.len() <= capacity {
        out.push_str(text);
        if !out.ends_with('\n') {
            out.push('\n');
        }
        return;
    }
    out.push_str(&text[..text.floor_char_boundary(capacity)]);
    out.push_str("\n…\n");
}

/// Two spaces for each level.
fn indent(out: &mut String, depth: usize) {
    (0..depth).for_each(|_| out.push_str("  "));
}

/// A quoted text with control characters escaped.
fn quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    out.push('"');
}

/// The bytes in hex, truncated if there are many.
fn digits(out: &mut String, bytes: &[u8]) {
    use std::fmt::Write as _;
    const MAX_SHOWN_BYTES: usize = 64;
    out.push_str("0x");
    out.push_str(&hex::encode(&bytes[..bytes.len().min(MAX_SHOWN_BYTES)]));
    if bytes.len() > MAX_SHOWN_BYTES {
        let _ = write!(out, "… ({} bytes)", bytes.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_detected_by_media_type() {
        for (value, kind) in [
            ("application/grpc", Some(BinaryKind::Grpc)),
            ("application/grpc+proto", Some(BinaryKind::Grpc)),
            ("application/grpc-web+proto", Some(BinaryKind::Grpc)),
            ("application/grpc-web-text+proto", Some(BinaryKind::GrpcWebText)),
            ("application/grpc+json", Some(BinaryKind::Grpc)),
            ("application/connect+json", Some(BinaryKind::Grpc)),
            ("application/vnd.amazon.eventstream", Some(BinaryKind::EventStream)),
            ("Application/X-Protobuf; charset=x", Some(BinaryKind::Protobuf)),
            ("application/vnd.acme+proto", Some(BinaryKind::Protobuf)),
            ("application/msgpack", Some(BinaryKind::MessagePack)),
            ("application/vnd.acme+msgpack", Some(BinaryKind::MessagePack)),
            ("application/cbor", Some(BinaryKind::Cbor)),
            ("application/vnd.acme+cbor", Some(BinaryKind::Cbor)),
            ("application/connect+proto", Some(BinaryKind::Grpc)),
            ("application/proto", Some(BinaryKind::Protobuf)),
            ("application/json", None),
            ("text/plain", None),
        ] {
            let headers: Headers = [("Content-Type", value)].into_iter().collect();
            assert_eq!(BinaryKind::from_headers(&headers), kind, "{value}");
        }
    }
}
