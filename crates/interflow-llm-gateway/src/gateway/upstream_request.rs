//! The request as an upstream takes it: with its name of the model, and signed.

use std::ops::Range;

use bytes::Bytes;
use interflow_llm::{LlmCall, LlmRefusal, model_in_path, spans};
use interflow_types::budget::PROCESS_BUDGET;
use interflow_types::percent::encoded_as;
use interflow_types::{Body, RequestHead, Result, StatusCode};

use super::access_token::AccessToken;
use super::wire_format::MODEL_IN_PATH;
use super::{LlmUpstream, UpstreamTable, aws_signature};
use crate::exchange::{LlmExchange, ReadError, too_large, unless_unreadable};

/// The request as received. Each attempt makes its own request from it, because key, model and signature differ.
pub(super) struct OriginalRequest<'a> {
    pub exchange: &'a LlmCall,
    pub head: &'a RequestHead,
    pub raw: &'a Bytes,
    pub token: Option<&'a AccessToken>,
    /// Whether its credentials are meant for a host other than its target, and have to be removed.
    pub foreign: bool,
    /// Whether the provider is to leave out thoughts that are bound to another history.
    pub is_unbound: bool,
}

/// The model's name at an upstream, if it differs from the client's. A name taken over from the first upstream wins.
pub(super) fn upstream_model<'t>(
    table: &'t UpstreamTable,
    upstream: &'t LlmUpstream,
    exchange: &'t LlmCall,
) -> Option<&'t str> {
    exchange.renamed.as_deref().or_else(|| table.resolve_model(upstream, exchange.model.as_deref()?))
}

/// The mapped model name, if there is one and the body contains the model, rather than the path.
pub(super) fn model_in_body<'t>(
    table: &'t UpstreamTable,
    upstream: &'t LlmUpstream,
    exchange: &'t LlmCall,
    head: &RequestHead,
) -> Option<&'t str> {
    let name = upstream_model(table, upstream, exchange)?;
    model_in_path(exchange.provider, &head.url.path).is_none().then_some(name)
}

/// The body with the mapped model name. A body that cannot be parsed is forwarded unchanged; the provider reports
/// what is wrong with it.
pub(super) async fn rewrite_model(
    exchange: &mut LlmExchange,
    table: &UpstreamTable,
    head: &mut RequestHead,
    raw: Bytes,
    name: &str,
) -> Result<Bytes> {
    let read = async {
        let request = exchange.request(&head.headers, &raw, table.max_body).await?;
        let facts = request.facts(false).await?;
        Ok::<_, ReadError>((request, facts.model.clone()))
    };
    let Some((request, Some(range))) = unless_unreadable(read.await)? else { return Ok(raw) };
    let held = PROCESS_BUDGET.reserve(request.plain().len() as u64)?;
    head.headers.remove("content-encoding");
    Ok(held.attach_to(replace_model(request.plain(), range, name)))
}

/// The path with the mapped model name, if the path contains the model.
pub(super) fn rename_model_in_path(
    table: &UpstreamTable,
    upstream: &LlmUpstream,
    exchange: &LlmCall,
    path: &str,
) -> Option<String> {
    let name = upstream_model(table, upstream, exchange)?;
    let at = model_in_path(exchange.provider, path)?;
    let name = encoded_as(name, MODEL_IN_PATH);
    Some(format!("{}{name}{}", path.get(..at.start)?, path.get(at.end..)?))
}

/// A WebSocket event with the mapped model name; `None` if it needs no change.
pub(super) fn rename_model_in_event(table: &UpstreamTable, upstream: &LlmUpstream, event: &[u8]) -> Option<Vec<u8>> {
    if table.aliases.is_empty() && upstream.models.is_empty() {
        return None;
    }
    let range = spans::facts(event).ok()?.model?;
    let name = table.resolve_model(upstream, &spans::string_at(event, Some(range.clone()))?)?;
    Some(replace_model(event, range, name))
}

/// Only the name's bytes are replaced: everything else stays as the client sent it, so that prompt caches still
/// match.
fn replace_model(body: &[u8], at: Range<usize>, name: &str) -> Vec<u8> {
    let name = serde_json::Value::from(name).to_string();
    let inside = name.trim_matches('"').as_bytes();
    [body.get(..at.start).unwrap_or_default(), inside, body.get(at.end..).unwrap_or_default()].concat()
}

pub(super) fn sign(
    upstream: &LlmUpstream,
    token: Option<&AccessToken>,
    head: &mut RequestHead,
    body: &Body,
) -> Result<(), LlmRefusal> {
    let assumed = if let Some(AccessToken::Aws(credentials)) = token { Some(credentials) } else { None };
    let Some(credentials) = assumed.or(upstream.aws.as_ref()) else { return Ok(()) };
    let bytes: &[u8] = match body {
        Body::Empty => b"",
        Body::Full(bytes) => bytes,
        Body::Stream(_) => {
            let message = "a body that is not there as a whole cannot be signed: it is larger than llm.max_body";
            return Err(too_large(message));
        }
    };
    let region = upstream.region_for(&head.headers).unwrap_or_else(|| "us-east-1".into());
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let scope = aws_signature::SigningScope { service: aws_signature::BEDROCK, region: &region };
    aws_signature::sign(head, bytes, credentials, &scope, &time);
    Ok(())
}

/// Why a request that its client signed cannot be sent on.
pub(super) fn unsigned_error() -> LlmRefusal {
    let message = "the request was changed, so that its signature no longer holds: give the gateway credentials of its own with llm.provider.bedrock.access_key and secret_key";
    LlmRefusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "bedrock_sign_failed", message)
}
