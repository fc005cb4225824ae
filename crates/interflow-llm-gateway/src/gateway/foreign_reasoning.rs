//! Takes reasoning of other providers out of requests that upstreams are sent in the client's own format.

use bytes::Bytes;
use interflow_llm::Provider;
use interflow_llm::translate::{Keeps, LOSS_HEADER, WireFormat, may_have_foreign_reasoning, without_foreign_reasoning};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Headers, Method, RequestHead, Result};

use super::LlmUpstream;
use crate::exchange::{LlmExchange, ReadError};

/// What a response names as lost.
pub(super) const LOST: &str = "thinking";

impl LlmUpstream {
    /// Which reasoning it may be sent in a request of this format.
    pub(super) fn keeps(&self, format: WireFormat) -> Keeps {
        let is_its_own = match format {
            WireFormat::Anthropic => self.name == "anthropic" || self.provider == Provider::Vertex,
            _ => self.is_openai(),
        };
        if is_its_own { Keeps::ItsOwn } else { Keeps::Unmarked }
    }

    /// OpenAI itself, or its models on Azure: other servers have members of their own.
    pub(super) fn is_openai(&self) -> bool {
        self.provider == Provider::Azure || self.name == "openai"
    }
}

/// The body without reasoning of other providers; `None` if it has none. A new body has no content coding.
pub(super) async fn taken_out(
    exchange: &mut LlmExchange,
    upstream: &LlmUpstream,
    max_body: usize,
    head: &mut RequestHead,
    raw: &Bytes,
) -> Result<Option<Bytes>> {
    let Some(format) = format_of(head) else { return Ok(None) };
    let request = match exchange.request(&head.headers, raw, max_body).await {
        Ok(request) => request,
        Err(ReadError::Overloaded(e)) => return Err(e),
        Err(_) => return Ok(None),
    };
    let keeps = upstream.keeps(format);
    if !may_have_foreign_reasoning(format, keeps, request.plain()) {
        return Ok(None);
    }
    let held = PROCESS_BUDGET.reserve(request.plain().len() as u64)?;
    let clean = request.read(move |body| Ok(without_foreign_reasoning(format, keeps, body.plain()))).await;
    Ok(clean.ok().flatten().map(|body| {
        head.headers.remove("content-encoding");
        held.attach_to(body)
    }))
}

/// Says in a response that reasoning was taken out of the request.
pub(super) fn name_loss(headers: &mut Headers) {
    headers.append_unchecked(LOSS_HEADER.as_bytes(), LOST.as_bytes());
}

/// The format of a request at an upstream, by the end of its path: Azure has deployments before it.
fn format_of(head: &RequestHead) -> Option<WireFormat> {
    let path = head.url.path.split('?').next().unwrap_or_default();
    let ends = |endings: &[&str]| endings.iter().any(|ending| path.ends_with(ending));
    match () {
        () if head.method != Method::POST => None,
        () if ends(&["/messages", "/messages/count_tokens"]) => Some(WireFormat::Anthropic),
        () if ends(&["/chat/completions"]) => Some(WireFormat::OpenAiChat),
        () if ends(&["/responses", "/responses/input_tokens", "/responses/compact"]) => {
            Some(WireFormat::OpenAiResponses)
        }
        () => None,
    }
}
