//! The exchange of one LLM call, attached to its flow: the request's body is collected, decoded, charged and parsed here and
//! nowhere else, and every stage works on the result.
//!
//! A stage that changes the body [replaces](replace) it, so that the next one decodes nothing. A body that changed in
//! another way (a rule) is recognised by its bytes, and read anew.

pub(crate) mod background;
mod request_body;
pub(crate) mod response;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use interflow_llm::LlmRefusal;
use interflow_llm::spans::multipart::has_readable_charset;
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Body, CollectError, EarlyExit, Error, Flow, Headers, RequestHead, StatusCode};

pub(crate) use interflow_redact::scan_capacity::{is_inline, off_worker};
pub(crate) use request_body::{
    BodyContent, BodyShape, MediumText, ReadError, RequestBody, bytes_of_file, check_encoding, is_binary_file, is_form,
    is_upload, mark_json, medium_text, part_text, text_of_file, text_of_medium, unless_unreadable, url_encoded,
    utf8_text,
};

/// The body to forward.
pub(crate) type BodyResult = std::result::Result<Body, EarlyExit>;

/// What the stages of a flow share about its LLM call.
#[derive(Clone, Default)]
pub(crate) struct LlmExchange {
    request: Option<Arc<RequestBody>>,
}

impl LlmExchange {
    /// What the stages know of a flow's call so far, for work that goes on without the flow.
    pub fn of(flow: &Flow) -> Self {
        flow.extension::<Self>().cloned().unwrap_or_default()
    }

    /// The decoded body of a request with this head, of at most `max` bytes; decoded now unless it was before.
    ///
    /// # Errors
    /// It cannot be decoded, or the memory budget is exhausted.
    pub async fn request(&mut self, headers: &Headers, raw: &Bytes, max: usize) -> Result<Arc<RequestBody>, ReadError> {
        if let Some(request) = self.request.as_ref().filter(|request| request.is_of(headers, raw)) {
            return Arc::clone(request).within(max);
        }
        let request = Arc::new(RequestBody::decode(headers, raw, max).await?);
        self.request = Some(Arc::clone(&request));
        Ok(request)
    }
}

/// How a pass takes the body of a request.
pub(crate) struct Pass {
    /// Its name in the tag of a body that it did not read: `NAME:unread`.
    pub name: &'static str,
    /// The section of the configuration that has its `max_body`.
    pub section: &'static str,
    pub max_body: usize,
    /// Whether a body that it cannot read is refused, rather than passed on with the tag.
    pub is_strict: bool,
}

impl Pass {
    /// Collects the body; `Err` has one that is too large or in a charset that is not read, and is tagged.
    ///
    /// # Errors
    /// The transfer failed, or a strict pass cannot take the body: then what `refuse` makes of that.
    pub async fn collect(
        &self,
        flow: &mut Flow,
        headers: &Headers,
        body: Body,
        refuse: impl FnOnce(&mut Flow, &LlmRefusal) -> EarlyExit,
    ) -> Result<Result<Bytes, Body>, EarlyExit> {
        let encoding = check_encoding(!has_readable_charset(headers.get_str("content-type").unwrap_or_default()));
        let body = match encoding {
            Err(_) => body,
            Ok(()) => match collect(flow, headers, body, (self.max_body, self.is_strict)).await {
                Ok((raw, _)) => return Ok(Ok(raw)),
                Err(CollectError::Broken(e)) => return Err(EarlyExit::Deny(e)),
                Err(CollectError::TooLarge(body)) => body,
            },
        };
        if !self.is_strict {
            self.tag_unread(flow);
            return Ok(Err(body));
        }
        let refusal = match encoding {
            Err(unread) => unread.into(),
            Ok(()) => too_large(format!("the body is larger than {} bytes ({}.max_body)", self.max_body, self.section)),
        };
        Err(refuse(flow, &refusal))
    }

    /// Says in the record that the pass did not read the body.
    pub fn tag_unread(&self, flow: &mut Flow) {
        flow.tag(format!("{}:unread", self.name));
    }
}

/// How many bytes a body may have to be read, and whether it must be.
pub(crate) type BodyLimit = (usize, bool);

/// Collects a body of at most `max` bytes, and its trailers. One that the exchange holds is charged already.
///
/// # Errors
/// As [`Body::collect_held`].
pub(crate) async fn collect(
    flow: &Flow,
    headers: &Headers,
    body: Body,
    (max, must_be_read): BodyLimit,
) -> Result<(Bytes, Option<Headers>), CollectError> {
    if let Body::Full(raw) = &body
        && raw.len() <= max
        && let Some(request) = flow.extension::<LlmExchange>().and_then(|exchange| exchange.request.as_ref())
        && request.has_bytes(raw)
    {
        return Ok((request.raw().clone(), None));
    }
    body.collect_held(headers, max, must_be_read).await
}

/// The decoded body, if a stage read these bytes before.
pub(crate) fn current(flow: &Flow, headers: &Headers, raw: &Bytes) -> Option<Arc<RequestBody>> {
    let request = flow.extension::<LlmExchange>()?.request.as_ref()?;
    request.is_of(headers, raw).then(|| Arc::clone(request))
}

/// The decoded body of a flow's request: see [`LlmExchange::request`].
///
/// # Errors
/// It cannot be decoded.
pub(crate) async fn request_body(
    flow: &mut Flow,
    headers: &Headers,
    raw: &Bytes,
    max: usize,
) -> Result<Arc<RequestBody>, ReadError> {
    flow.extension_mut::<LlmExchange>().request(headers, raw, max).await
}

/// Makes a body that was read before its call was known that of the exchange.
pub(crate) fn attach(flow: &mut Flow, request: Arc<RequestBody>) {
    flow.extension_mut::<LlmExchange>().request = Some(request);
}

/// Forgets the body: no stage reads it any more.
pub(crate) fn release(flow: &mut Flow) {
    if flow.extension::<LlmExchange>().is_some() {
        flow.extension_mut::<LlmExchange>().request = None;
    }
}

/// Replaces the body, and removes the fields that describe the old one: coding and digests. The length is set when the
/// request is sent.
///
/// # Errors
/// The memory budget is exhausted.
pub(crate) fn replace(flow: &mut Flow, head: &mut RequestHead, output: Vec<u8>) -> Result<Body, LlmRefusal> {
    for name in ["content-encoding", "content-md5", "digest", "content-digest", "x-amz-content-sha256"] {
        head.headers.remove(name);
    }
    let bytes = PROCESS_BUDGET.reserve_bytes(Bytes::from(output)).map_err(|e| overloaded(&e))?;
    attach(flow, Arc::new(RequestBody::plain_text(&head.headers, bytes.clone())));
    Ok(Body::from(bytes))
}

/// Asks for a response without content coding, so that it can be inspected; most providers comply. The others'
/// responses are decoded.
pub(crate) fn request_identity_encoding(head: &mut RequestHead) {
    head.headers.remove("accept-encoding");
    head.headers.append_unchecked(b"Accept-Encoding", b"identity");
}

/// The process's memory budget is used up: 503, and worth a retry.
pub(crate) fn overloaded(e: &Error) -> LlmRefusal {
    for_now(LlmRefusal::new(StatusCode::SERVICE_UNAVAILABLE, "capacity", "overloaded", e.message()))
}

/// A refusal that is worth a retry soon.
pub(crate) fn for_now(refusal: LlmRefusal) -> LlmRefusal {
    LlmRefusal { retry_after: Some(Duration::from_secs(1)), ..refusal }
}

pub(crate) fn too_large(message: impl Into<String>) -> LlmRefusal {
    LlmRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large", "request_body_too_large", message)
}

pub(crate) fn bad_request(code: &'static str, message: impl Into<String>) -> LlmRefusal {
    LlmRefusal::new(StatusCode::BAD_REQUEST, "invalid_request", code, message)
}
