//! AWS event streams, in which Bedrock streams: as server-sent events, which are text and have the same parts.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use interflow_codec::aws_event_stream::{EventStreamMessage, next_message};

use super::push_bounded;

/// Maximum size of a message that is displayed, in bytes. AWS allows 16 MiB.
const MAX_MESSAGE: usize = 16 << 20;

/// Writes the events of a body, which may break off, to about `cap` bytes.
///
/// # Errors
/// The position where the body stops being an event stream, if nothing could be displayed.
pub(super) fn server_sent_events(body: &[u8], cap: usize) -> Result<String, String> {
    let mut rest = BytesMut::from(body);
    let mut out = String::new();
    while !rest.is_empty() && out.len() < cap {
        let at = body.len() - rest.len();
        match next_message(&mut rest, MAX_MESSAGE) {
            Ok(Some(next)) => event(&mut out, &next, cap),
            Ok(None) => {
                let _ = writeln!(out, ": byte {at}: an event breaks off; {} bytes of it are here", rest.len());
                break;
            }
            Err(e) if at == 0 => return Err(format!("byte 0: {e}")),
            Err(e) => {
                let _ = writeln!(out, ": byte {at}: {e}");
                break;
            }
        }
    }
    Ok(out)
}

fn event(out: &mut String, message: &EventStreamMessage, cap: usize) {
    // An error has a type of its own instead of that of an event.
    let names = [":event-type", ":exception-type", ":error-code"];
    if let Some(name) = names.iter().find_map(|name| message.header_str(name)) {
        let _ = writeln!(out, "event: {}", name.replace(['\r', '\n'], " "));
    }
    let wrapped = unwrapped(&message.payload);
    let payload = String::from_utf8_lossy(wrapped.as_deref().unwrap_or(&message.payload));
    for line in payload.lines() {
        push_bounded(out, &format!("data: {line}"), cap);
    }
    out.push('\n');
}

/// The model's own event in `{"bytes": "…"}`, as `InvokeModelWithResponseStream` wraps it.
fn unwrapped(payload: &[u8]) -> Option<Vec<u8>> {
    let value: serde_json::Value = interflow_codec::json::parse(payload).ok()?;
    let bytes = value.get("bytes")?.as_str()?;
    STANDARD.decode(bytes).ok().filter(|inner| std::str::from_utf8(inner).is_ok())
}

#[cfg(test)]
mod tests {
    use interflow_codec::aws_event_stream::{HeaderValue, write_message};

    use super::*;

    fn written(name: &str, value: &str, payload: &str) -> Vec<u8> {
        let mut out = Vec::new();
        write_message(&mut out, &[(name.into(), HeaderValue::String(value.into()))], payload.as_bytes()).unwrap();
        out
    }

    #[test]
    fn events_have_their_type_and_the_payload_of_the_model() {
        let delta = r#"{"contentBlockIndex":0,"delta":{"text":"Hi"}}"#;
        let wrapped = format!(r#"{{"bytes":"{}","p":"abc"}}"#, STANDARD.encode(r#"{"type":"ping"}"#));
        let body = [
            written(":event-type", "contentBlockDelta", delta),
            written(":event-type", "chunk", &wrapped),
            written(":exception-type", "throttlingException", "slow\ndown"),
        ]
        .concat();
        let expected = format!(
            "event: contentBlockDelta\ndata: {delta}\n\nevent: chunk\ndata: {{\"type\":\"ping\"}}\n\n\
             event: throttlingException\ndata: slow\ndata: down\n\n"
        );
        assert_eq!(server_sent_events(&body, 1 << 16).unwrap(), expected);
        let short = server_sent_events(&body, 40).unwrap();
        assert!(short.len() < 60 && !short.contains("chunk"), "{short}");
    }

    #[test]
    fn damage_is_reported_after_the_intact_events() {
        let whole = written(":event-type", "a", "{}");
        let cut = [&whole[..], &whole[..20]].concat();
        let shown = server_sent_events(&cut, 1 << 16).unwrap();
        assert!(shown.starts_with("event: a\ndata: {}\n\n: byte ") && shown.contains("20 bytes of it"), "{shown}");
        let mut damaged = [&whole[..], &whole[..]].concat();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(server_sent_events(&damaged, 1 << 16).unwrap().contains("checksum"));
        assert!(server_sent_events(b"{\"message\":\"denied\"}", 1 << 16).unwrap_err().contains("byte 0"));
    }
}
