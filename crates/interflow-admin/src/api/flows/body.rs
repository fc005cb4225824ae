//! Bodies of recorded flows: byte ranges as sent, or rendered views.

use std::ops::Range;
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use interflow_archive::view::{self as written_form, BinaryKind, BodyContext, ProtoSchemas, TextKind, body_text};
use interflow_store::{BodyReader, BodyRecord, FlowRecord, FlowStore, MissingReason, decoded_body};
use interflow_types::schema::JsonSchema;
use interflow_types::{Direction, FlowId, Headers};
use serde::{Deserialize, Serialize};

use crate::api::blocking::{run_query, streamed_body};
use crate::api::input::{FlowSidePath, StrictQuery};
use crate::api::untrusted_content;
use crate::error::{ApiError, Result};
use crate::state::{AdminState, SharedState};

/// End of the window that a view may cover, in bytes of the decoded body.
const MAX_VIEW: u64 = 64 << 20;

/// Maximum expansion of incompressible data by a coding: headers, and a few bytes per block.
const CODING_SLACK: u64 = 1 << 20;

/// Set if more data follows what is returned.
const TRUNCATED: HeaderName = HeaderName::from_static("interflow-truncated");
/// Why the content coding could not be decoded.
const DECODE_ERROR: HeaderName = HeaderName::from_static("interflow-decode-error");
/// Why less was recorded than sent: `capped`, `dropped`, `lost`.
const MISSING: HeaderName = HeaderName::from_static("interflow-missing");
/// Bytes sent, recorded or not.
const SENT: HeaderName = HeaderName::from_static("interflow-sent");

/// The representation of a body.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum BodyView {
    /// The bytes as sent.
    #[default]
    Raw,
    /// With the content coding decoded.
    Decoded,
    /// As text; the JSON messages of gRPC and Connect streams one per line, AWS event streams as server-sent events.
    Text,
    /// A hex dump, sixteen bytes per line, content coding kept.
    Hex,
    /// Indented JSON.
    JsonPretty,
    /// Rendered according to its media type: JSON, XML, HTML, forms, multipart, GraphQL, playlists, gRPC, Connect,
    /// Protocol Buffers, MessagePack, CBOR, AWS event streams; other bodies as text.
    Pretty,
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct BodyParams {
    /// The representation of the body.
    view: BodyView,
    /// Where the view begins, in bytes of what it shows.
    offset: u64,
    /// How many bytes it shows; by default 1 MiB of a view, and everything of `raw`.
    limit: Option<u64>,
    /// Return the body as received, before it was edited.
    original: bool,
    /// The full name of the Protocol Buffers message, if neither head nor method implies it.
    message: Option<String>,
}

/// `GET /flows/{id}/{side}/body`
pub async fn body(
    state: SharedState,
    FlowSidePath(id, side): FlowSidePath,
    StrictQuery(params): StrictQuery<BodyParams>,
    headers: HeaderMap,
) -> Result<Response> {
    let mut row = run_query(&state, move |store, _| {
        let row = store.get(id)?;
        if row.body(side).is_none_or(|body| body.missing != Some(MissingReason::Elsewhere)) {
            return Ok(row);
        }
        // Its error names the replica, unless the flow has ended since.
        store.body(id, side, 0..0)?;
        Ok(store.get(id)?)
    })
    .await?;
    if params.original {
        if !row.is_edited(side) {
            let message = format!("the {} of flow {id} was not edited, or its original is not recorded", side.as_str());
            return Err(ApiError::not_found(message).remedy("ask without `original`"));
        }
        row = row.original_view();
    }
    // A tunnel has no bodies, and a flow without a response has no response body.
    let Some(known) = row.body(side).copied() else {
        let message = format!("flow {id} has no {}", side.as_str());
        return Err(ApiError::not_found(message));
    };
    let mut response = match params.view {
        BodyView::Raw => raw(&state, id, side, &known, &params, &headers)?,
        view => body_view(&state, row, side, known, view, &params).await?,
    };
    untrusted_content::set_header(&mut response, SENT, &known.size.to_string());
    if let Some(missing) = known.missing {
        untrusted_content::set_header(&mut response, MISSING, missing.as_str());
    }
    Ok(response)
}

fn read(
    store: &dyn FlowStore,
    id: FlowId,
    side: Direction,
    original: bool,
    range: Range<u64>,
) -> interflow_store::Result<BodyReader> {
    if original { store.original_body(id, side, range) } else { store.body(id, side, range) }
}

fn raw(
    state: &AdminState,
    id: FlowId,
    side: Direction,
    known: &BodyRecord,
    params: &BodyParams,
    headers: &HeaderMap,
) -> Result<Response> {
    let store = state.records.store()?;
    let permit = state.records.transfer()?;
    let range = headers.get(header::RANGE).and_then(|v| v.to_str().ok());
    let chosen = match range.map(|r| parse_range(r, known.kept)) {
        Some(ByteRange::Part(part)) => Some(part),
        Some(ByteRange::Beyond) => return Ok(range_not_satisfiable(known.kept)),
        Some(ByteRange::Whole) | None => None,
    };
    // A range takes precedence over `offset` and `limit`.
    let end = params.limit.map_or(known.kept, |l| params.offset.saturating_add(l).min(known.kept));
    let window = chosen.clone().unwrap_or(params.offset.min(end)..end);
    let (wanted, original) = (window.clone(), params.original);
    let body = streamed_body(permit, move |pipe| {
        let mut reader = read(&*store, id, side, original, wanted).map_err(std::io::Error::other)?;
        std::io::copy(&mut reader, pipe).map(drop)
    });
    let status = if chosen.is_some() { StatusCode::PARTIAL_CONTENT } else { StatusCode::OK };
    let mut response = untrusted_content::raw_response(status, &format!("{id}-{}.bin", side.as_str()), body);
    untrusted_content::set_header(&mut response, header::ACCEPT_RANGES, "bytes");
    // Known in advance, so a transfer that is cut short is recognised by its client.
    untrusted_content::set_header(&mut response, header::CONTENT_LENGTH, &(window.end - window.start).to_string());
    if chosen.is_some() {
        let content_range = format!("bytes {}-{}/{}", window.start, window.end - 1, known.kept);
        untrusted_content::set_header(&mut response, header::CONTENT_RANGE, &content_range);
    } else if window.end < known.kept {
        untrusted_content::set_header(&mut response, TRUNCATED, "true");
    }
    Ok(response)
}

/// RFC 9110 section 15.5.17: the field tells the client the length.
fn range_not_satisfiable(kept: u64) -> Response {
    let mut response = untrusted_content::text_response("");
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    untrusted_content::set_header(&mut response, header::CONTENT_RANGE, &format!("bytes */{kept}"));
    response
}

#[derive(Debug, PartialEq, Eq)]
enum ByteRange {
    Part(Range<u64>),
    /// The range is not satisfiable.
    Beyond,
    /// Invalid or multiple ranges: the complete body is a valid response (RFC 9110 14.2).
    Whole,
}

fn parse_range(field: &str, len: u64) -> ByteRange {
    // Other units than bytes are ignored, as RFC 9110 section 14.2 allows.
    let Some((first, last)) = field.trim().strip_prefix("bytes=").and_then(|r| r.split_once('-')) else {
        return ByteRange::Whole;
    };
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let part = match (first.trim(), last.trim()) {
        // A suffix range: the last `n` bytes.
        ("", suffix) => number(suffix).map(|n| len.saturating_sub(n)..len),
        (first, "") => number(first).map(|first| first..len),
        (first, last) => number(first)
            .zip(number(last))
            .filter(|(first, last)| first <= last)
            .map(|(first, last)| first..last.saturating_add(1).min(len)),
    };
    match part {
        // An empty range at or after the end cannot be satisfied.
        Some(part) if part.is_empty() => ByteRange::Beyond,
        part => part.map_or(ByteRange::Whole, ByteRange::Part),
    }
}

async fn body_view(
    state: &AdminState,
    row: FlowRecord,
    side: Direction,
    known: BodyRecord,
    view: BodyView,
    params: &BodyParams,
) -> Result<Response> {
    let limit = params.limit.unwrap_or(1 << 20);
    let end = params.offset.saturating_add(limit);
    // The end counts, not the size: decoding always starts at the beginning of the body.
    if end > MAX_VIEW {
        return Err(ApiError::bad_request(format!("a view shows at most the first {MAX_VIEW} bytes"))
            .remedy("take the raw body in ranges"));
    }
    let (start, end) = (params.offset as usize, end as usize);
    let empty = Headers::new();
    let (schemas, message, original) = (Arc::clone(&state.schemas), params.message.clone(), params.original);
    run_query(state, move |store, _| {
        let headers = row.headers(side).unwrap_or(&empty);
        let window = match view {
            // A hex dump shows what was sent, so its content coding is kept and nothing before the window is read.
            BodyView::Hex => BodyWindow::plain(store, &row, (side, original), known, start, end)?,
            _ => BodyWindow::decoded(store, &row, (side, original), headers, start, end)?,
        };
        let mut response = match view {
            BodyView::Raw | BodyView::Decoded => {
                let name = format!("{}-{}.decoded.bin", row.id, side.as_str());
                untrusted_content::raw_response(StatusCode::OK, &name, window.bytes.into())
            }
            BodyView::Text => {
                // A window that begins inside has lost the frames.
                let unframed = (start == 0).then(|| written_form::unframed_text(headers, &window.bytes, MAX_PRETTY));
                let text = unframed.flatten().unwrap_or_else(|| body_text::text(headers, &window.bytes));
                untrusted_content::text_response(text)
            }
            BodyView::Hex => untrusted_content::text_response(body_text::hex(start as u64, &window.bytes)),
            BodyView::JsonPretty => untrusted_content::text_response(pretty(&window)?),
            BodyView::Pretty => {
                untrusted_content::text_response(structured_view(&row, side, &window, message.as_deref(), &schemas)?)
            }
        };
        if window.truncated {
            untrusted_content::set_header(&mut response, TRUNCATED, "true");
        }
        if let Some(error) = &window.error {
            // A field value must not contain control characters.
            let error = error.replace(|c: char| !(' '..='~').contains(&c), "?");
            untrusted_content::set_header(&mut response, DECODE_ERROR, &error);
        }
        Ok(response)
    })
    .await
}

fn pretty(window: &BodyWindow) -> Result<String> {
    let not_json = |why: String| ApiError::unprocessable("not_json", why);
    if window.truncated {
        return Err(not_json("the body exceeds the limit, and truncated JSON is invalid".into()));
    }
    written_form::json(&window.bytes).map_err(|e| not_json(format!("the body is not valid JSON: {e}")))
}

/// A body rendered by its media type; as text if it is not valid for the type.
fn structured_view(
    row: &FlowRecord,
    side: Direction,
    window: &BodyWindow,
    message: Option<&str>,
    schemas: &ProtoSchemas,
) -> Result<String> {
    let empty = Headers::new();
    let headers = row.headers(side).unwrap_or(&empty);
    let path = row.request.as_ref().map_or("", |r| r.path.as_str());
    let context = BodyContext { headers, path, direction: side, message };
    // Naming a message implies that the body is one.
    let Some(kind) = BinaryKind::from_headers(headers).or(message.map(|_| BinaryKind::Protobuf)) else {
        let text = || body_text::text(headers, &window.bytes);
        return Ok(match TextKind::detect(headers, &window.bytes) {
            Some(kind) => written_form::format_text(kind, headers, &window.bytes, &text(), MAX_PRETTY),
            None => written_form::json(&window.bytes).unwrap_or_else(|_| text()),
        });
    };
    written_form::pretty(kind, &context, &window.bytes, schemas, MAX_PRETTY)
        // An error of a Connect stream, or of AWS, is JSON without frames.
        .or_else(|why| written_form::json(&window.bytes).map_err(|_| why))
        .map_err(|why| ApiError::unprocessable("not_readable", why))
}

/// Maximum size of a rendered body, in bytes.
const MAX_PRETTY: usize = 8 << 20;

struct BodyWindow {
    bytes: Bytes,
    truncated: bool,
    error: Option<String>,
}

impl BodyWindow {
    fn plain(
        store: &dyn FlowStore,
        row: &FlowRecord,
        (side, original): (Direction, bool),
        known: BodyRecord,
        start: usize,
        end: usize,
    ) -> Result<Self> {
        let bytes = read(store, row.id, side, original, start as u64..end as u64)?.read_all(end)?;
        Ok(Self { bytes, truncated: known.kept > end as u64, error: None })
    }

    /// Decoding starts at the beginning; the encoded input is bounded by the possible output.
    fn decoded(
        store: &dyn FlowStore,
        row: &FlowRecord,
        (side, original): (Direction, bool),
        headers: &Headers,
        start: usize,
        end: usize,
    ) -> Result<Self> {
        let sent = end as u64 + CODING_SLACK;
        let bytes = read(store, row.id, side, original, 0..sent)?.read_all(sent as usize)?;
        let decoded = decoded_body::decode_body(headers, bytes, end);
        let bytes = decoded.bytes.slice(start.min(decoded.bytes.len())..);
        Ok(Self { bytes, truncated: decoded.truncated, error: decoded.error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_headers_are_parsed_as_in_rfc_9110() {
        use ByteRange::*;
        for (field, expected) in [
            ("bytes=0-9", Part(0..10)),
            ("bytes=5-", Part(5..100)),
            ("bytes=-7", Part(93..100)),
            ("bytes=-700", Part(0..100)),
            ("bytes=90-1000", Part(90..100)),
            ("bytes=99-99", Part(99..100)),
            ("bytes=100-", Beyond),
            ("bytes=-0", Beyond),
            ("bytes=0-18446744073709551615", Part(0..100)),
            ("bytes=9-5", Whole),
            ("bytes=a-b", Whole),
            ("bytes=0-1,4-5", Whole),
            ("lines=1-2", Whole),
            ("bytes", Whole),
        ] {
            assert_eq!(parse_range(field, 100), expected, "{field}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Beyond);
    }
}
