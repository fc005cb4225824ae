//! Asks for the usage of Chat Completions streams, which their API reports only on demand, and hides the report from
//! clients that did not ask.

use std::ops::Range;

use interflow_codec::json;
use interflow_llm::event_stream::{ResponseForm, StreamFraming};
use interflow_llm::parsed_event::ParsedEvent;
use interflow_llm::{LlmCall, Operation, Provider};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Body, EntryKind, Error, ErrorKind, Flow, RequestHead, ResponseHead, Result};
use serde_json::Value;

use crate::exchange::response::abort::StreamAbort;
use crate::exchange::response::stream::{self, AbortCause, EventStep, StreamEnd, StreamRest};
use crate::exchange::{off_worker, request_identity_encoding};

/// Whether a flow's usage is paid for: it has a key, or limits are configured.
#[derive(Debug, Default)]
pub(crate) struct StreamUsageWanted(pub bool);

/// Whether the client of a flow did not ask for the usage that its request now asks for.
#[derive(Debug, Default)]
struct HidesUsage(bool);

/// Whether usage may have to be asked for: a stream of OpenAI's API at the gateway, whose usage is paid for. Mistral
/// reports usage anyway, and refuses members that it does not know.
pub(super) fn applies(flow: &Flow, head: &RequestHead, body: &Body) -> bool {
    let is_chat = |call: &LlmCall| {
        call.stream
            && call.operation == Operation::Chat
            && matches!(call.provider, Provider::OpenAi | Provider::Azure)
            && head.url.path_only().ends_with("/chat/completions")
    };
    matches!(body, Body::Full(_))
        && flow.transport == EntryKind::Gateway
        && flow.extension::<StreamUsageWanted>().is_some_and(|wanted| wanted.0)
        && flow.extension::<LlmCall>().is_some_and(is_chat)
        && !head.headers.contains("content-encoding")
}

/// The body with the demand for usage, unless the client makes it. One that cannot be read is not changed.
pub(super) async fn ask(flow: &mut Flow, head: &mut RequestHead, body: Body) -> Result<Body> {
    let Body::Full(raw) = body else { return Ok(body) };
    let held = PROCESS_BUDGET.reserve(raw.len() as u64)?;
    let read = raw.clone();
    let Some(Some(asking)) = off_worker(raw.len(), move || with_demand(&read)).await else {
        return Ok(Body::Full(raw));
    };
    flow.extension_mut::<HidesUsage>().0 = true;
    // Events can only be left out of a stream without a content coding.
    request_identity_encoding(head);
    Ok(Body::from(held.attach_to(asking)))
}

/// Whether the report is hidden from the client of a flow.
pub(crate) fn hides(flow: &Flow) -> bool {
    flow.extension::<HidesUsage>().is_some_and(|hides| hides.0)
}

/// The response without the report, if its client did not ask.
pub(super) fn hide(flow: &Flow, head: &mut ResponseHead, mut body: Body) -> Body {
    let is_plain = !head.headers.contains("content-encoding");
    let expected = ResponseForm::default().framing(&head.headers);
    let is_sse = stream::known_framing(&mut body, &head.headers, expected).0 == StreamFraming::Sse;
    if !hides(flow) || !is_plain || !is_sse {
        return body;
    }
    // A body without a content coding needs no decoder, so that this cannot fail.
    stream::rewrite(body, &mut head.headers, StreamFraming::Sse, u64::MAX, UsageFilter, StreamFraming::Sse)
        .unwrap_or_default()
}

/// The body with `stream_options.include_usage`; `None` if it has it, cannot be read, or is not an object with members.
fn with_demand(body: &[u8]) -> Option<Vec<u8>> {
    // Where the first member of an object begins, and the value of this one.
    let member = |within: Range<usize>, wanted: &str| {
        let (mut first, mut found) = (None, None);
        let read = json::children(body, within, |name, value| {
            first = first.or(name.as_ref().map(|name| name.start - 1));
            if name.and_then(|name| body.get(name)) == Some(wanted.as_bytes()) {
                found = Some(value);
            }
        });
        read.ok().map(|()| (first, found))
    };
    let (at, text) = match member(0..body.len(), "stream_options")? {
        (first, None) => (first?..first?, r#""stream_options":{"include_usage":true},"#),
        (_, Some(options)) if body.get(options.start) != Some(&b'{') => (options, r#"{"include_usage":true}"#),
        (_, Some(options)) => match member(options.clone(), "include_usage")? {
            (_, Some(asked)) if body.get(asked.clone()) == Some(b"true") => return None,
            (_, Some(asked)) => (asked, "true"),
            (Some(first), None) => (first..first, r#""include_usage":true,"#),
            (None, None) => (options, r#"{"include_usage":true}"#),
        },
    };
    Some([body.get(..at.start)?, text.as_bytes(), body.get(at.end..)?].concat())
}

/// Leaves out the event that only reports usage.
struct UsageFilter;

impl EventStep for UsageFilter {
    fn event(&mut self, event: ParsedEvent, out: &mut Vec<ParsedEvent>) -> Result<(), StreamAbort> {
        if !only_reports_usage(&event.event().data) {
            out.push(event);
        }
        Ok(())
    }

    fn finish(&mut self, rest: Option<ParsedEvent>, _out: &mut Vec<ParsedEvent>) -> StreamRest {
        Ok(rest.filter(|event| !only_reports_usage(&event.event().data)))
    }

    fn abort(&mut self, cause: AbortCause, _is_begun: bool, _out: &mut Vec<ParsedEvent>) -> StreamEnd {
        let cut = cause.into_abort().map(|halt| Error::new(ErrorKind::BadResponse, halt.message));
        StreamEnd::Failed(cut.unwrap_or_else(|e| e))
    }
}

/// Whether an event has no choices, but usage. Azure's first event has no choices either.
fn only_reports_usage(data: &[u8]) -> bool {
    // Most events have choices, and are not parsed.
    if memchr::memmem::find(data, b"\"usage\"").is_none() || memchr::memmem::find(data, b"\"delta\"").is_some() {
        return false;
    }
    let Ok(event) = json::parse::<Value>(data) else { return false };
    event["usage"].is_object() && event["choices"].as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use interflow_types::{BodyFrame, Headers};

    use super::*;

    #[test]
    fn usage_is_demanded_once_and_nothing_else_changes() {
        for (body, expected) in [
            (
                r#"{"model":"m","stream":true}"#,
                Some(r#"{"stream_options":{"include_usage":true},"model":"m","stream":true}"#),
            ),
            (r#"{ "stream_options": null, "n":1.0}"#, Some(r#"{ "stream_options": {"include_usage":true}, "n":1.0}"#)),
            (r#"{"stream_options":{},"a":1}"#, Some(r#"{"stream_options":{"include_usage":true},"a":1}"#)),
            (
                r#"{"stream_options":{"include_obfuscation":false}}"#,
                Some(r#"{"stream_options":{"include_usage":true,"include_obfuscation":false}}"#),
            ),
            (
                r#"{"stream_options":{"include_usage":false,"x":{"include_usage":true}}}"#,
                Some(r#"{"stream_options":{"include_usage":true,"x":{"include_usage":true}}}"#),
            ),
            (r#"{"stream_options":{"x":1,"include_usage":true}}"#, None),
            (
                r#"{"messages":[{"stream_options":{"include_usage":true}}]}"#,
                Some(
                    r#"{"stream_options":{"include_usage":true},"messages":[{"stream_options":{"include_usage":true}}]}"#,
                ),
            ),
            ("{}", None),
            ("[]", None),
            (r#"{"model":"#, None),
        ] {
            let changed = with_demand(body.as_bytes()).map(|changed| String::from_utf8(changed).unwrap());
            assert_eq!(changed.as_deref(), expected, "{body}");
        }
    }

    #[tokio::test]
    async fn only_the_report_is_left_out_of_a_stream() {
        let kept = [
            "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n",
            ": comment\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"say \\\"usage\\\"\"}}],\"usage\":null}\n\n",
            "data: {\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":1}}\n\n",
            "data: [DONE]\n\n",
        ];
        let report = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\n\n";
        let raw = [&kept[..4].concat(), report, kept[4]].concat();
        for size in [1, 7, raw.len()] {
            let frames = raw.as_bytes().chunks(size).map(|part| Ok(BodyFrame::Data(Bytes::copy_from_slice(part))));
            let body = Body::replay(frames.collect(), Body::Empty);
            let body = stream::rewrite(
                body,
                &mut Headers::new(),
                StreamFraming::Sse,
                u64::MAX,
                UsageFilter,
                StreamFraming::Sse,
            );
            let (left, _) = body.unwrap().collect(1 << 20).await.unwrap();
            assert_eq!(String::from_utf8_lossy(&left), kept.concat(), "{size}");
        }
    }
}
