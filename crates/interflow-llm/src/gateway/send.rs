//! The last LLM stage, and the handler for upstreams with more than one try: keys put in, models renamed, requests signed,
//! breakers asked.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_flow::budget::HELD;
use interflow_flow::{
    Authority, Body, BoxFuture, ByteStr, Direction, Error, Flow, Handler, Interest, Kind, Message, Phase, Request,
    RequestHead, Response, ResponseHead, Result, Scope, Stage, StatusCode, Step, Transport, Verdict,
};

use super::token::{Source, Token};
use super::{Gateway, Table, Upstream, aws, renamed, upstream};
use crate::spans::MarkError;
use crate::{Exchange, Operation, Provider, Refusal, model_in_path, spans};
use interflow_wire::content_coding as coding;

/// The pause before the second attempt at one upstream; it doubles with every further one.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Makes a request ready for its upstream; stands behind all other stages.
pub struct Sender(pub Arc<Gateway>);

/// What the sender remembers of a flow.
#[derive(Default)]
struct Sent {
    upstream: Option<Arc<Upstream>>,
    token: Option<Token>,
    answered: bool,
}

impl Sender {
    /// The upstream of a flow that goes there straight.
    fn upstream(&self, flow: &Flow) -> Option<Arc<Upstream>> {
        let name = flow.note::<Exchange>()?.upstream.clone()?;
        let table = self.0.table();
        // Upstreams that may be tried again are asked by the handler, whose authority is our own.
        let straight = flow.authority != Authority::from(flow.client.local);
        table.get(&name).filter(|u| straight || !u.tries_again()).cloned()
    }

    /// Why a request in the shape of a cloud that nobody configured goes nowhere: without credentials, the gateway's or the
    /// client's, the cloud could only refuse it in words that lead astray.
    fn disabled(&self, flow: &Flow, head: &RequestHead) -> Option<Refusal> {
        let name = flow.note::<Exchange>().filter(|_| flow.transport == Transport::Gateway)?.upstream.clone()?;
        let table = self.0.table();
        let upstream = table.get(&name)?;
        (upstream.is_unconfigured() && !upstream::has_credentials(head)).then(|| upstream.disabled())
    }

    /// Whether a proxied request to Bedrock is signed with credentials that are fetched.
    fn signs_for_proxied(&self, flow: &Flow) -> bool {
        flow.transport != Transport::Gateway
            && flow.note::<Exchange>().is_some_and(|e| e.provider == Provider::Bedrock)
            && self.0.table().get("bedrock").is_some_and(|u| u.source.as_ref().is_some_and(Source::signs))
    }

    /// Signs a request that goes to Bedrock, once nothing of it changes any more.
    fn signed(
        &self,
        flow: &Flow,
        head: &mut RequestHead,
        upstream: Option<Arc<Upstream>>,
        body: Body,
    ) -> Result<Body, Verdict> {
        if flow.note::<Exchange>().is_none_or(|e| e.provider != Provider::Bedrock) {
            return Ok(body);
        }
        let signer = upstream.or_else(|| self.0.table().get("bedrock").cloned());
        let redacted = flow.tags.iter().any(|t| t == "redacted");
        let token = flow.note::<Sent>().and_then(|s| s.token.as_ref());
        let refused = match signer.as_deref() {
            Some(u) if u.signs() => match sign(u, token, head, &body) {
                Ok(()) => return Ok(body),
                Err(refusal) => refusal,
            },
            _ if aws::is_signed(head) && (redacted || flow.transport == Transport::Gateway) => unsigned(),
            _ => return Ok(body),
        };
        let response = refused.answer(Provider::Bedrock, flow);
        Err(Verdict::Answer(Box::new(response)))
    }
}

impl Stage for Sender {
    fn name(&self) -> &'static str {
        "llm-send"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        match scope.transport {
            Transport::Gateway => {
                let whole = Interest::of(Phase::RequestHead).and(Phase::RequestBody).and(Phase::ResponseHead);
                whole.and(Phase::Message).and(Phase::Done)
            }
            // A client's own signature does not hold for a body that was redacted.
            _ if is_bedrock(scope) => Interest::of(Phase::RequestBody),
            _ => Interest::NONE,
        }
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        if let Some(refusal) = self.disabled(flow, head) {
            flow.tag(format!("refused:{}", refusal.code));
            return Step::Now(Verdict::Answer(Box::new(refusal.answer(provider_of(flow), flow))));
        }
        let Some(upstream) = self.upstream(flow) else { return Step::Now(Verdict::Continue) };
        let now = Instant::now();
        if !upstream.breaker.allows(now) {
            let wait = Some(Duration::from_secs(upstream.breaker.retry_after(now)));
            let response =
                Refusal { retry_after: wait, ..circuit_open(&upstream.name) }.answer(upstream.provider, flow);
            return Step::Now(Verdict::Answer(Box::new(response)));
        }
        if upstream.source.is_none() {
            upstream.authorize(head, None);
            flow.note_mut::<Sent>().upstream = Some(upstream);
            return Step::Now(Verdict::Continue);
        }
        Step::later(async move {
            match upstream.token(self.0.token_egress()).await {
                Ok(token) => {
                    upstream.authorize(head, token.as_ref());
                    let sent = flow.note_mut::<Sent>();
                    (sent.upstream, sent.token) = (Some(upstream), token);
                    Verdict::Continue
                }
                Err(refusal) => Verdict::Answer(Box::new(refusal.answer(upstream.provider, flow))),
            }
        })
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let Some(exchange) = flow.note::<Exchange>() else { return Step::Now(Ok(body)) };
        let upstream = flow.note::<Sent>().and_then(|s| s.upstream.clone());
        let table = self.0.table();
        if let Some(path) = upstream.as_deref().and_then(|u| path_renamed(&table, u, exchange, &head.url.path)) {
            head.url.path = path.into();
        }
        let name = upstream.as_deref().and_then(|u| name_in_body(&table, u, exchange, head)).map(str::to_owned);
        match (name, body) {
            (Some(name), Body::Full(raw)) => Step::later(async move {
                let body = with_model(&table, head, raw, &name).await.map_err(Verdict::Deny)?;
                self.signed(flow, head, upstream, Body::from(body))
            }),
            // A client of the proxy port, for whose request no token was asked for yet.
            (_, body) if upstream.is_none() && self.signs_for_proxied(flow) => Step::later(async move {
                let signer = self.0.table().get("bedrock").cloned();
                if let Some(signer) = &signer {
                    let token = signer.token(self.0.token_egress()).await;
                    flow.note_mut::<Sent>().token =
                        token.map_err(|refusal| Verdict::Answer(Box::new(refusal.answer(signer.provider, flow))))?;
                }
                self.signed(flow, head, signer, body)
            }),
            (_, body) => Step::Now(self.signed(flow, head, upstream, body)),
        }
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> Step<'a, Verdict> {
        let sent = flow.note_mut::<Sent>();
        sent.answered = true;
        if let Some(upstream) = &sent.upstream {
            upstream.breaker.note(!head.status.is_server_error(), Instant::now());
        }
        Step::Now(Verdict::Continue)
    }

    fn follows(&self, flow: &Flow) -> bool {
        flow.note::<Exchange>().is_some_and(|e| e.operation == Operation::Realtime)
    }

    fn guards_origin(&self) -> bool {
        true
    }

    fn message<'a>(&'a self, flow: &'a mut Flow, message: &'a mut Message) -> Step<'a, Verdict> {
        if message.direction == Direction::Request
            && let Some(upstream) = flow.note::<Sent>().and_then(|s| s.upstream.as_deref())
            && let Some(renamed) = model_renamed(&self.0.table(), upstream, &message.payload)
        {
            message.payload = renamed.into();
        }
        Step::Now(Verdict::Continue)
    }

    fn done(&self, flow: &Flow) {
        let Some(sent) = flow.note::<Sent>().filter(|s| !s.answered) else { return };
        // A client that went away says nothing of the upstream, but its probe is over.
        if let Some(upstream) = &sent.upstream {
            upstream.breaker.note(flow.upstream.is_some(), Instant::now());
        }
    }
}

fn provider_of(flow: &Flow) -> Provider {
    flow.note::<Exchange>().map_or(Provider::Unknown, |e| e.provider)
}

fn is_bedrock(scope: &Scope<'_>) -> bool {
    scope.authority.host.name().is_some_and(|h| h.starts_with("bedrock-runtime."))
}

fn circuit_open(name: &str) -> Refusal {
    let message = format!("the upstream {name} failed several times in a row and is left alone for a while");
    Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "circuit_open", "upstream_unavailable", message)
}

fn unsigned() -> Refusal {
    let message = "the request was changed, so that its signature no longer holds: give the gateway credentials of its own with llm.upstream.bedrock.access_key and secret_key";
    Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_error", "bedrock_sign_failed", message)
}

fn sign(upstream: &Upstream, token: Option<&Token>, head: &mut RequestHead, body: &Body) -> Result<(), Refusal> {
    let assumed = match token {
        Some(Token::Aws(credentials)) => Some(credentials),
        _ => None,
    };
    let Some(credentials) = assumed.or(upstream.aws.as_ref()) else { return Ok(()) };
    let bytes: &[u8] = match body {
        Body::Empty => b"",
        Body::Full(bytes) => bytes,
        Body::Stream(_) => {
            let message = "a body that is not there as a whole cannot be signed: it is larger than llm.max_body";
            return Err(Refusal::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "payload_too_large",
                "request_body_too_large",
                message,
            ));
        }
    };
    let region = upstream.region_for(&head.headers).unwrap_or_else(|| "us-east-1".into());
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    aws::sign(head, bytes, credentials, &aws::Scope { service: aws::BEDROCK, region: &region }, &time);
    Ok(())
}

/// The model's other name, when it has one and stands in the body.
fn name_in_body<'t>(
    table: &'t Table,
    upstream: &'t Upstream,
    exchange: &'t Exchange,
    head: &RequestHead,
) -> Option<&'t str> {
    let name = name_of(table, upstream, exchange)?;
    model_in_path(exchange.provider, &head.url.path).is_none().then_some(name)
}

/// The body with the model's other name. One that cannot be read goes on as it came.
async fn with_model(table: &Table, head: &mut RequestHead, raw: Bytes, name: &str) -> Result<Bytes> {
    let plain = match coding::decode_held(&head.headers, &raw, table.max_body as u64).await {
        Ok(plain) => plain,
        Err(e) => return coding::overloaded(&e).map_or(Ok(raw), Err),
    };
    let body = plain.as_ref().unwrap_or(&raw);
    let range = match spans::facts_held(body).await.map(|facts| facts.model) {
        Ok(Some(range)) => range,
        Ok(None) | Err(MarkError::Json(_)) => return Ok(raw),
        Err(MarkError::Overloaded(e)) => return Err(e),
    };
    let held = HELD.reserve(body.len() as u64)?;
    head.headers.remove("content-encoding");
    Ok(held.hold(put_name(body, range, name)))
}

/// The path with the model's other name, where paths name it and it has one.
fn path_renamed(table: &Table, upstream: &Upstream, exchange: &Exchange, path: &str) -> Option<String> {
    let name = name_of(table, upstream, exchange)?;
    let at = model_in_path(exchange.provider, path)?;
    let mut out = path.get(..at.start)?.to_owned();
    for byte in name.bytes() {
        if byte == b'@' { out.push('@') } else { aws::encode(byte, &mut out) }
    }
    out.push_str(path.get(at.end..)?);
    Some(out)
}

/// An event with the model's other name; `None` when it names none that has one.
fn model_renamed(table: &Table, upstream: &Upstream, event: &[u8]) -> Option<Vec<u8>> {
    if table.aliases.is_empty() && upstream.models.is_empty() {
        return None;
    }
    let range = spans::facts(event).ok()?.model?;
    let name = renamed(table, upstream, std::str::from_utf8(event.get(range.clone())?).ok()?)?;
    Some(put_name(event, range, name))
}

fn put_name(body: &[u8], at: Range<usize>, name: &str) -> Vec<u8> {
    let name = serde_json::Value::from(name).to_string();
    let inside = name.trim_matches('"').as_bytes();
    [body.get(..at.start).unwrap_or_default(), inside, body.get(at.end..).unwrap_or_default()].concat()
}

/// Answers every request with the same refusal.
pub(super) struct Refuses {
    provider: Provider,
    refusal: Refusal,
}

impl Refuses {
    pub fn new(provider: Provider, refusal: Refusal) -> Self {
        Self { provider, refusal }
    }
}

impl Handler for Refuses {
    fn serve<'a>(&'a self, flow: &'a mut Flow, _request: Request) -> BoxFuture<'a, Result<Response>> {
        let response = self.refusal.answer(self.provider, flow);
        Box::pin(std::future::ready(Ok(response)))
    }
}

/// Sends a request to an upstream, and to those behind it, until one answers.
pub(super) struct Serving {
    pub gateway: Arc<Gateway>,
    pub upstream: Arc<Upstream>,
}

impl Handler for Serving {
    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(self.run(flow, request))
    }
}

/// What came of the attempts until now.
enum Last {
    None,
    /// The breaker of this upstream is open, for so many seconds.
    Open(String, u64),
    Failed(Error),
    Refused(Refusal),
    Answered(Response),
}

/// A request as it came.
struct Asked<'a> {
    exchange: &'a Exchange,
    head: &'a RequestHead,
    raw: &'a Bytes,
    token: Option<&'a Token>,
    /// Whether its credentials are meant for another host than the one that it goes to.
    foreign: bool,
}

impl Serving {
    async fn run(&self, flow: &mut Flow, request: Request) -> Result<Response> {
        let table = self.gateway.table();
        let Request { head, body } = request;
        let (raw, _) = body.collect(table.max_body).await.map_err(|e| match e {
            interflow_flow::CollectError::Broken(e) => e,
            interflow_flow::CollectError::TooLarge(_) => {
                let message =
                    "a request that may have to be repeated is held in memory; this one is larger than llm.max_body";
                Error::new(Kind::BodyTooLarge, message)
            }
        })?;
        let exchange = flow.note::<Exchange>().cloned().unwrap_or_default();
        let deadline = Instant::now() + self.upstream.budget;
        let mut last = Last::None;
        // Rooms before us may have struck some off, for which what goes out is not fit.
        let others = exchange.others.iter().filter_map(|name| table.get(name).cloned());
        let first = exchange.model.as_deref().and_then(|m| renamed(&table, &self.upstream, m));
        for upstream in std::iter::once(Arc::clone(&self.upstream)).chain(others) {
            for attempt in 0..self.upstream.attempts {
                if attempt > 0 {
                    pause(attempt, deadline).await;
                }
                if Instant::now() >= deadline {
                    break;
                }
                let now = Instant::now();
                if !upstream.breaker.allows(now) {
                    last = keep(last, Last::Open(upstream.name.clone(), upstream.breaker.retry_after(now)));
                    break;
                }
                let token = match upstream.token(self.gateway.token_egress()).await {
                    Ok(token) => token,
                    Err(refusal) => {
                        last = keep(last, Last::Refused(refusal));
                        break;
                    }
                };
                let foreign = !upstream.is_at_host_of(&self.upstream);
                let exchange = named_for(&table, &upstream, &exchange, first);
                let asked = Asked { exchange: &exchange, head: &head, raw: &raw, token: token.as_ref(), foreign };
                let Some(request) = Self::request(&table, &upstream, &asked).await? else { break };
                let sent = self.send(&upstream, request, deadline).await;
                if let Last::Answered(response) = &sent
                    && !self.upstream.retry_on.contains(&response.head.status.as_u16())
                {
                    flow.tag(format!("upstream:{}", upstream.name));
                    let Last::Answered(response) = sent else { break };
                    return Ok(response);
                }
                last = keep(last, sent);
            }
        }
        self.give_up(flow, last)
    }

    fn give_up(&self, flow: &mut Flow, last: Last) -> Result<Response> {
        let refusal = match last {
            Last::Answered(response) => return Ok(response),
            Last::Open(name, wait) => Refusal { retry_after: Some(Duration::from_secs(wait)), ..circuit_open(&name) },
            Last::Refused(refusal) => refusal,
            Last::Failed(e) if e.kind() == Kind::UpstreamTimeout => {
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "provider_error", "timeout", e.to_string())
            }
            Last::Failed(e) => Refusal::new(
                StatusCode::BAD_GATEWAY,
                "provider_error",
                "unreachable",
                format!("no upstream answered: {e}"),
            ),
            Last::None => {
                let message = "no upstream could be asked in time (llm.upstream.NAME.budget)";
                Refusal::new(StatusCode::GATEWAY_TIMEOUT, "provider_error", "timeout", message)
            }
        };
        flow.tag(format!("refused:{}", refusal.code));
        Ok(refusal.answer(self.upstream.provider, flow))
    }

    /// The request as this upstream gets it; `None` when it has no place.
    async fn request(table: &Table, upstream: &Upstream, asked: &Asked<'_>) -> Result<Option<Request>> {
        let Asked { exchange, head, raw, token, foreign } = *asked;
        let url = table
            .find(&head.url.path, head.headers.contains("anthropic-version"))
            .and_then(|door| upstream.url(door.rest, &head.headers));
        let Some(url) = url else { return Ok(None) };
        let mut head = head.clone();
        head.url = url;
        if let Some(path) = path_renamed(table, upstream, exchange, &head.url.path) {
            head.url.path = path.into();
        }
        head.headers.remove("host");
        if foreign {
            upstream::take_out_credentials(&mut head);
        }
        upstream.authorize(&mut head, token);
        let raw = raw.clone();
        let body = match name_in_body(table, upstream, exchange, &head) {
            Some(name) => Body::from(with_model(table, &mut head, raw, name).await?),
            None => Body::from(raw),
        };
        if upstream.signs() && sign(upstream, token, &mut head, &body).is_err() {
            return Ok(None);
        }
        Ok(Some(Request { head, body }))
    }

    async fn send(&self, upstream: &Upstream, request: Request, deadline: Instant) -> Last {
        let left = deadline.saturating_duration_since(Instant::now());
        let name = ByteStr::from(upstream.name.as_str());
        let late = || Error::new(Kind::UpstreamTimeout, format!("the upstream {name} did not answer in time"));
        let sent =
            tokio::time::timeout(left, self.gateway.egress().send(request)).await.unwrap_or_else(|_| Err(late()));
        match sent {
            Ok(response) => {
                upstream.breaker.note(!response.head.status.is_server_error(), Instant::now());
                Last::Answered(response)
            }
            Err(e) => {
                upstream.breaker.note(false, Instant::now());
                tracing::info!("the upstream {name} failed: {e}");
                Last::Failed(e)
            }
        }
    }
}

/// The exchange as an upstream sees it: one that has no name for the client's model is asked for the one that the first
/// upstream gives it.
fn named_for<'e>(table: &Table, upstream: &Upstream, exchange: &'e Exchange, first: Option<&str>) -> Cow<'e, Exchange> {
    match (exchange.model.as_deref(), first) {
        (Some(model), Some(first)) if renamed(table, upstream, model).is_none() => {
            let name = renamed(table, upstream, first).unwrap_or(first);
            Cow::Owned(Exchange { renamed: Some(name.into()), ..exchange.clone() })
        }
        _ => Cow::Borrowed(exchange),
    }
}

/// The name that a model has at an upstream, where it is not the client's.
fn name_of<'t>(table: &'t Table, upstream: &'t Upstream, exchange: &'t Exchange) -> Option<&'t str> {
    exchange.renamed.as_deref().or_else(|| renamed(table, upstream, exchange.model.as_deref()?))
}

/// Of two outcomes the later one, unless it tells less.
fn keep(before: Last, now: Last) -> Last {
    match (before, now) {
        (Last::Answered(response), Last::Open(..) | Last::Failed(_) | Last::Refused(_)) => Last::Answered(response),
        (Last::Failed(e), Last::Open(..) | Last::Refused(_)) => Last::Failed(e),
        (_, now) => now,
    }
}

async fn pause(attempt: u32, deadline: Instant) {
    let pause = FIRST_PAUSE * 2u32.saturating_pow((attempt - 1).min(6));
    tokio::time::sleep(pause.min(deadline.saturating_duration_since(Instant::now()))).await;
}
