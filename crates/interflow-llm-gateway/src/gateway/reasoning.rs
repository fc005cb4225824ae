//! Reasoning in requests that upstreams are sent in the client's own format: that of other providers is taken out, and
//! that which is bound to another history is left out by the provider.

use bytes::Bytes;
use interflow_llm::Provider;
use interflow_llm::translate::{
    BINDING_BETA, Keeps, LOSS_HEADER, Losses, WireFormat, leave_out_unfitting_thoughts, may_have_foreign_reasoning,
    without_foreign_reasoning,
};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::{Headers, Method, RequestHead, Result};

use super::LlmUpstream;
use crate::exchange::{LlmExchange, unless_unreadable};

/// What a response names as lost: reasoning of another provider.
pub(super) const LOST: &str = "thinking";
/// What a response names as lost: thoughts that are bound to another history.
pub(super) const UNBOUND: &str = "thinking.signature";

impl LlmUpstream {
    /// Which reasoning it may be sent in a request of this format.
    pub(super) fn keeps(&self, format: WireFormat) -> Keeps {
        let is_its_own = match format {
            WireFormat::Anthropic => {
                self.is_service("anthropic", "api.anthropic.com") || self.provider == Provider::Vertex
            }
            _ => self.is_openai(),
        };
        if is_its_own { Keeps::ItsOwn } else { Keeps::Unmarked }
    }

    /// OpenAI itself, or its models on Azure: other servers have members of their own.
    pub(super) fn is_openai(&self) -> bool {
        self.provider == Provider::Azure || self.is_service("openai", "api.openai.com")
    }
}

/// The body without reasoning of other providers, and if `is_unbound`, with the demand that the provider leave out what
/// does not fit; `None` if it stays as it is. A new body has no content coding.
pub(super) async fn fitted(
    exchange: &mut LlmExchange,
    upstream: &LlmUpstream,
    max_body: usize,
    head: &mut RequestHead,
    raw: &Bytes,
    is_unbound: bool,
) -> Result<Option<(Bytes, Losses)>> {
    let Some(format) = format_of(head) else { return Ok(None) };
    let request = unless_unreadable(exchange.request(&head.headers, raw, max_body).await)?;
    let Some(request) = request else { return Ok(None) };
    let keeps = upstream.keeps(format);
    let is_unbound = is_unbound && format == WireFormat::Anthropic;
    if !is_unbound && !may_have_foreign_reasoning(format, keeps, request.plain()) {
        return Ok(None);
    }
    let held = PROCESS_BUDGET.reserve(request.plain().len() as u64)?;
    let fit = request.read(move |body| {
        let mut losses = Losses::default();
        let mut fit = without_foreign_reasoning(format, keeps, body.plain());
        if fit.is_some() {
            losses.add(LOST);
        }
        if is_unbound && let Ok(mut body) = interflow_codec::json::parse(fit.as_deref().unwrap_or(body.plain())) {
            leave_out_unfitting_thoughts(format, &mut body);
            losses.add(UNBOUND);
            fit = Some(body.to_string().into_bytes());
        }
        Ok(fit.map(|fit| (fit, losses)))
    });
    Ok(fit.await.ok().flatten().map(|(body, losses)| {
        head.headers.remove("content-encoding");
        if is_unbound {
            ask_for_binding(&mut head.headers);
        }
        (held.attach_to(body), losses)
    }))
}

/// Adds the beta of the demand to those of the client.
pub(super) fn ask_for_binding(headers: &mut Headers) {
    let betas = headers.get_str("anthropic-beta").map(|own| format!("{own},")).unwrap_or_default();
    headers.remove("anthropic-beta");
    headers.append_unchecked(b"anthropic-beta", format!("{betas}{BINDING_BETA}").as_bytes());
}

/// Says in a response what its request was sent without.
pub(super) fn name_losses(headers: &mut Headers, losses: &Losses) {
    if !losses.is_empty() {
        headers.append_unchecked(LOSS_HEADER.as_bytes(), losses.to_string().as_bytes());
    }
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
        () if ends(&[":generateContent", ":streamGenerateContent"]) => Some(WireFormat::Gemini),
        () if ends(&["/interactions"]) => Some(WireFormat::Interactions),
        () if ends(&["/converse", "/converse-stream"]) => Some(WireFormat::Bedrock),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::LlmGateway;

    #[test]
    fn a_further_account_at_a_provider_is_the_provider_itself() {
        let config = json!({ "provider": {
            "second": { "url": "https://api.openai.com" },
            "claude": { "url": "https://api.anthropic.com", "kind": "anthropic" },
            "local": { "url": "http://127.0.0.1:8000" },
        } });
        let config = serde_json::from_value(config).unwrap();
        let table = LlmGateway::compile(&config, &|text: &str| Ok(text.to_owned())).unwrap();
        for (name, format, is_itself) in [
            ("second", WireFormat::OpenAiChat, true),
            ("openai", WireFormat::OpenAiChat, true),
            ("claude", WireFormat::Anthropic, true),
            ("local", WireFormat::OpenAiChat, false),
            ("groq", WireFormat::OpenAiChat, false),
        ] {
            let upstream = table.get(name).unwrap();
            assert_eq!(upstream.keeps(format) == Keeps::ItsOwn, is_itself, "{name}");
            let moves_tools = is_itself && format == WireFormat::OpenAiChat;
            assert_eq!(upstream.serves_responses(), moves_tools, "{name}");
            assert_eq!(upstream.count_path(WireFormat::OpenAiResponses, "m").is_some(), moves_tools, "{name}");
        }
    }
}
