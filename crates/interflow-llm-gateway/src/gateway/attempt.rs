//! One attempt at a deployment: the client's request as this upstream takes it, and what became of it.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Waker};
use std::time::Instant;

use bytes::Bytes;
use interflow_codec::content_coding as coding;
use interflow_types::{
    Attempt, AttemptHandle, AttemptState, Attempts, Body, ByteStr, CallUsage, Error, ErrorKind, Flow, Method, Request,
    RequestHead, Response, ResponseHead, Result, Scheme, StatusCode, Url,
};

use super::credential_mask::SentCredentials;
use super::routing::{
    ActiveRequest, AttemptLimits, Deployment, HoldFailure, HoldLimits, Pin, ResponseOwner, Route, hold_until_content,
    retry_after,
};
use super::served::served_model;
use super::translation::{FORMAT_HEADER, Translated, Translation};
use super::upstream_error::{MAX_ERROR_TIME, error_code, read_error};
use super::upstream_request::{
    OriginalRequest, model_in_body, rename_model_in_path, rewrite_model, sign, unsigned_error, upstream_model,
};
use super::{LlmGateway, LlmUpstream, UpstreamTable, aws_signature, reasoning, token_count};
use crate::credentials::remove_credentials;
use crate::exchange::LlmExchange;
use interflow_limits::ServedModel;
use interflow_llm::event_stream::ResponseForm;
use interflow_llm::translate::{
    Losses, WireFormat, is_bound_elsewhere, may_have_signed_thoughts, without_call_signatures,
};
use interflow_llm::{LlmCall, LlmRefusal, Operation, error_status};
use serde_json::json;

/// The result of the attempts so far: what the client gets if no attempt succeeds.
pub(super) enum LastFailure {
    None,
    Failed(Error),
    Refused(LlmRefusal),
    Answered(Response, AttemptHandle),
}

/// The later of two failures, unless it is less informative: a response beats an error, and an error a refusal of the
/// gateway's own.
pub(super) fn prefer_failure(before: LastFailure, now: LastFailure) -> LastFailure {
    match (before, now) {
        (answered @ LastFailure::Answered(..), LastFailure::Failed(_) | LastFailure::Refused(_)) => answered,
        (LastFailure::Failed(e), LastFailure::Refused(_)) => LastFailure::Failed(e),
        (before, now) => {
            before.discard();
            now
        }
    }
}

/// Longest text of a provider's error that is passed on, in characters.
const MAX_ERROR_LENGTH: usize = 500;

impl LastFailure {
    /// Reads a response that the client does not get: its code says why the attempt failed. What has not arrived by now is
    /// read in the background.
    pub fn discard(self) {
        let Self::Answered(Response { head, body }, attempt) = self else { return };
        let mut reading = Box::pin(async move {
            let error = read_error(&head.headers, body, Instant::now() + MAX_ERROR_TIME).await;
            if let Some(code) = error_code(&error) {
                attempt.explain(code);
            }
        });
        if reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
            tokio::spawn(reading);
        }
    }
}

/// A client's request with all that its attempts need.
#[derive(Clone)]
pub(super) struct RoutedRequest {
    pub gateway: Arc<LlmGateway>,
    pub table: Arc<UpstreamTable>,
    pub route: Arc<Route>,
    /// The upstream that the client addressed.
    pub upstream: Arc<LlmUpstream>,
    pub call: LlmCall,
    pub head: RequestHead,
    pub raw: Bytes,
    /// Whether thoughts in its history are bound to another.
    pub is_unbound: bool,
    pub owner: ResponseOwner,
    pub translation: Translation,
}

/// A request that is ready to be sent.
pub(super) struct PreparedAttempt {
    request: Request,
    format: Option<WireFormat>,
    losses: Losses,
    form: ResponseForm,
    /// Whether the response is a model's reply, which may turn out to be an error.
    is_reply: bool,
    is_hedge: bool,
}

/// When an attempt has to have succeeded.
pub(super) struct SendLimits {
    pub attempt: AttemptLimits,
    pub form: ResponseForm,
    /// Of all attempts together.
    pub deadline: Instant,
    /// Whether the response is held until it is known to be no error.
    pub holds: bool,
}

/// How a request to a deployment is recorded.
pub(super) enum RecordedAs {
    /// In the client's flow.
    Attempt(AttemptHandle),
    /// As a flow with these tags.
    Copy(Vec<ByteStr>),
}

/// What became of an attempt. While it is kept, the request counts as in progress.
pub(super) struct AttemptOutcome {
    pub handle: AttemptHandle,
    /// The deployment, by its index in the route.
    pub index: usize,
    pub result: Result<Response>,
    format: Option<WireFormat>,
    losses: Losses,
    active: ActiveRequest,
}

impl RoutedRequest {
    /// Whether it may be sent to this deployment: earlier stages may have removed upstreams, for which it is not
    /// suitable.
    pub fn suits(&self, deployment: &Deployment) -> bool {
        let name = &deployment.upstream.name;
        *name == self.upstream.name || self.call.others.iter().any(|other| other.as_str() == name)
    }

    /// What the request would cost at a deployment, by its estimate, in millionths of a dollar.
    pub fn cost(&self, deployment: &Deployment) -> Option<u64> {
        let model = deployment.model.as_deref().or(self.call.model.as_deref())?;
        let output = self.call.max_output.unwrap_or(1_000).min(4_000);
        let tokens = CallUsage { input: self.call.estimated_input.max(1), output, ..CallUsage::default() };
        self.gateway.limits().prices().estimate_at(&deployment.upstream.name, model, &tokens)
    }

    /// The request for this deployment. The inner error means that it cannot be made: there are no credentials, no URL
    /// for the path, no translation. Another deployment may still serve it.
    ///
    /// # Errors
    /// A failure of the gateway's own, or none of this was possible in time (`until`), or within the time of one attempt.
    pub async fn prepare(&mut self, deployment: &Deployment, until: Instant) -> Result<Translated<PreparedAttempt>> {
        let until = deployment.limits.response_until(Instant::now(), false, until);
        // A token may have to be fetched, from an endpoint that does not answer.
        tokio::time::timeout_at(until.into(), self.prepare_unbounded(deployment)).await.unwrap_or_else(|_| {
            let name = &deployment.upstream.name;
            let why = format!("the request for the upstream {name} was not ready in time: its credentials are missing");
            Err(Error::new(ErrorKind::UpstreamTimeout, why))
        })
    }

    async fn prepare_unbounded(&mut self, deployment: &Deployment) -> Result<Translated<PreparedAttempt>> {
        let upstream = &deployment.upstream;
        let token = match upstream.token(self.gateway.token_egress()).await {
            Ok(token) => token,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let exchange = self.call_at(deployment);
        let foreign = !upstream.is_same_host(&self.upstream);
        let (head, raw) = (&self.head, &self.raw);
        let (token, is_unbound) = (token.as_ref(), self.is_unbound);
        let original = OriginalRequest { exchange: &exchange, head, raw, token, foreign, is_unbound };
        let model = upstream_model(&self.table, upstream, &exchange).or(exchange.model.as_deref());
        let format = match self.translation.needed_for(upstream, model) {
            Ok(format) => format,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let format = match format {
            Some(format) if self.translation.is_accepted(upstream, format, &original).await? => None,
            format => format,
        };
        let format = self.translation.moved_to_responses(upstream, format, model, &original).await?;
        let prepared = match format {
            Some(format) => self.translation.request(&self.table, upstream, format, &original).await?,
            None => untranslated(self.translation.shared.clone(), &self.table, upstream, &original).await?,
        };
        let form = LlmCall { provider: upstream.provider, ..exchange }.response_form();
        // Other objects, such as a failed batch, have an error of their own and are good responses.
        let is_reply = form.is_reply && self.head.method == Method::POST;
        let attempt = |(request, losses)| PreparedAttempt { request, format, losses, form, is_reply, is_hedge: false };
        Ok(prepared.map(attempt))
    }

    /// The answer to a client that asks for a number of tokens which this deployment's API cannot count.
    pub fn estimate(&self, deployment: &Deployment) -> Option<Response> {
        let upstream = &deployment.upstream;
        let format = self.translation.needed_for(upstream, self.call.model.as_deref()).ok().flatten()?;
        let estimates = self.translation.has_to_estimate(upstream, format);
        estimates.then(|| token_count::response(self.call.provider, self.call.estimated_input.max(1), "estimate"))
    }

    /// The model that a deployment serves the request with.
    pub fn served_model(&self, deployment: &Deployment) -> Option<ServedModel> {
        served_model(&self.table, &self.upstream, deployment, self.call.model.as_deref())
    }

    /// Whether a response refuses thoughts of the history because they are bound to another. Its body is read for that.
    pub async fn refuses_thoughts(&self, outcome: &mut AttemptOutcome, deadline: Instant) -> bool {
        let Ok(Response { head, body }) = &mut outcome.result else { return false };
        if self.is_unbound || head.status != StatusCode::BAD_REQUEST || !may_have_signed_thoughts(&self.raw) {
            return false;
        }
        let error = read_error(&head.headers, std::mem::take(body), deadline).await;
        coding::strip_stale_headers(&mut head.headers);
        let is_refused = is_bound_elsewhere(&error);
        *body = Body::from(error);
        is_refused
    }

    /// What to remember of a response: which deployment can continue it, and for whom.
    fn pin(&self, deployment: &Deployment) -> Option<Pin> {
        let is_limited = self.route.deployments.len() > 1 || self.owner.shares(&deployment.upstream);
        let upstream = deployment.upstream.name.as_str().into();
        let pin = || Pin { deployment: deployment.name.clone(), upstream, owner: self.owner.clone() };
        (is_limited && self.call.operation == Operation::Responses).then(pin)
    }

    /// The deployment of the response that this request continues, and its id.
    pub fn pinned(&self) -> Option<(ByteStr, Pin)> {
        let id = self.call.continues.clone().filter(|_| self.call.operation == Operation::Responses)?;
        let pin = self.gateway.pins.get(&id)?;
        Some((id, pin))
    }

    /// The body without its content coding.
    pub async fn plain_body(&self) -> Bytes {
        let mut exchange = self.translation.shared.clone();
        let request = exchange.request(&self.head.headers, &self.raw, self.table.max_body).await;
        request.map_or_else(|_| self.raw.clone(), |request| request.plain().clone())
    }

    /// The call as presented to a deployment. One without a name for the client's model is sent the one of the upstream
    /// that the client addressed.
    fn call_at(&self, deployment: &Deployment) -> LlmCall {
        let (table, upstream) = (&self.table, &deployment.upstream);
        let renamed = |name: &str| LlmCall { renamed: Some(name.into()), ..self.call.clone() };
        if let Some(model) = deployment.model.as_deref() {
            return renamed(model);
        }
        let model = self.call.model.as_deref();
        let first = model.and_then(|model| table.resolve_model(&self.upstream, model));
        match (model, first) {
            (Some(model), Some(first)) if table.resolve_model(upstream, model).is_none() => {
                renamed(table.resolve_model(upstream, first).unwrap_or(first))
            }
            _ => self.call.clone(),
        }
    }

    /// A response that is to be retried, or an error, as the client would get it. The time until `deadline` is that of
    /// the attempts after it, too.
    pub async fn failure(&mut self, outcome: AttemptOutcome, deadline: Instant) -> Result<LastFailure> {
        Ok(match outcome.result {
            Ok(response) => {
                let response = match outcome.format {
                    Some(format) => self.translation.response(format, response, outcome.losses, deadline).await?,
                    None => response,
                };
                LastFailure::Answered(response, outcome.handle)
            }
            Err(e) => LastFailure::Failed(e),
        })
    }

    /// Has the URL that a file is to be sent to (Google's resumable uploads) lead to this gateway: the file would pass it by.
    fn lead_upload_here(&self, flow: &Flow, index: usize, head: &mut ResponseHead) {
        let Some(url) = head.headers.get_str("x-goog-upload-url").map(str::to_owned) else { return };
        head.headers.remove("x-goog-upload-url");
        let upstream = &self.route.deployments[index].upstream;
        let there = Url::of_service(&url).ok().and_then(|url| upstream.path_within(&url));
        if let Some((path, host)) = there.zip(self.head.headers.get_str("host")) {
            let is_tls = flow.client_tls.is_some() || self.head.headers.get_str("x-forwarded-proto") == Some("https");
            let scheme = if is_tls { Scheme::Https } else { Scheme::Http };
            let here = format!("{scheme}://{host}/{}{path}", upstream.name);
            head.headers.append_unchecked(b"X-Goog-Upload-URL", here.as_bytes());
        }
    }

    /// The response for the client.
    pub async fn answer(&mut self, flow: &mut Flow, outcome: AttemptOutcome, deadline: Instant) -> Result<Response> {
        let AttemptOutcome { handle, index, result, format, losses, active } = outcome;
        handle.adopt(flow);
        let pin = self.pin(&self.route.deployments[index]);
        let mut response = result?;
        // A provider must not say it of its own response.
        response.head.headers.remove(FORMAT_HEADER);
        if response.head.status.is_success() {
            response.body = active.follow(response.body);
            if let Some(pin) = pin.filter(|_| format.is_none()) {
                let max = self.table.response_pins;
                response.body = self.gateway.pins.follow(&response.head.headers, response.body, pin, max);
            }
        }
        match format {
            Some(format) => {
                if !self.translation.is_own(format) {
                    flow.tag(format!("translated:{}", format.as_str()));
                }
                self.translation.response(format, response, losses, deadline).await
            }
            None => {
                reasoning::name_losses(&mut response.head.headers, &losses);
                self.lead_upload_here(flow, index, &mut response.head);
                if token_count::is_asked(&self.call, &self.head) && token_count::has_no_endpoint(response.head.status) {
                    let Response { head, body } = &mut response;
                    let error = std::mem::replace(body, Body::Empty);
                    *body = token_count::estimate_instead(&self.call, head, error, deadline).await;
                }
                Ok(response)
            }
        }
    }
}

impl AttemptOutcome {
    /// Says in the record what became of it. What `is_answer` is what the client gets.
    pub fn settle(&self, is_answer: bool) {
        let state = if is_answer { AttemptState::Served } else { AttemptState::Failed };
        self.handle.settle(state, self.result.as_ref().err().map(Error::kind));
    }

    pub fn is_timeout(&self) -> bool {
        self.result.as_ref().is_err_and(|e| e.kind() == ErrorKind::UpstreamTimeout)
    }
}

impl PreparedAttempt {
    /// Its entry in the client's flow, which it is sent for now.
    pub fn record(&self, deployment: &Deployment, model: Option<String>, flow: &mut Flow) -> AttemptHandle {
        let url = &self.request.head.url;
        let attempt = Attempt {
            provider: deployment.upstream.name.clone(),
            deployment: deployment.name.to_string(),
            model,
            host: url.authority.to_host_header(url.scheme),
            path: url.path_only().to_owned(),
            hedge: self.is_hedge,
            started: flow.clock.micros(),
            ..Attempt::default()
        };
        flow.extension_mut::<Attempts>().begin(attempt)
    }

    /// Sends the request. Its result goes to the deployment's health, timeouts included. Dropping the future cancels
    /// the request.
    pub async fn send(
        self,
        gateway: &LlmGateway,
        route: &Route,
        index: usize,
        handle: AttemptHandle,
        deadline: Instant,
    ) -> AttemptOutcome {
        let deployment = &route.deployments[index];
        let Self { request, format, losses, form, is_reply, .. } = self;
        let limits = SendLimits { attempt: deployment.limits, form, deadline, holds: is_reply };
        let recorded = RecordedAs::Attempt(handle.clone());
        let (active, result) = send(gateway, route, deployment, request, recorded, limits).await;
        AttemptOutcome { handle, index, result, format, losses, active }
    }

    /// The same, to be sent beside one that is slow.
    pub fn into_hedge(self) -> Self {
        Self { is_hedge: true, ..self }
    }

    pub fn into_request(self) -> Request {
        self.request
    }
}

/// Sends a request to a deployment and records the result.
pub(super) async fn send(
    gateway: &LlmGateway,
    route: &Route,
    deployment: &Deployment,
    request: Request,
    recorded: RecordedAs,
    limits: SendLimits,
) -> (ActiveRequest, Result<Response>) {
    let active = ActiveRequest::begin(&deployment.stats);
    let pending = PendingResult { deployment, is_known: false };
    let (now, SendLimits { attempt, form, deadline, holds }) = (Instant::now(), limits);
    let name = &deployment.upstream.name;
    let credentials = SentCredentials::of(&request.head.headers);
    let late =
        |what: &str| Error::new(ErrorKind::UpstreamTimeout, format!("the upstream {name} did not {what} in time"));
    let until = attempt.response_until(now, form.is_stream, deadline);
    let sent = match recorded {
        RecordedAs::Attempt(handle) => gateway.egress().send_attempt(request, handle, until),
        RecordedAs::Copy(tags) => gateway.egress().send_until(request, tags, until),
    };
    // The client records the limit; it need not know of one.
    let sent = tokio::time::timeout_at(until.into(), sent).await;
    let mut result = sent.unwrap_or_else(|_| Err(late("answer")));
    if let Ok(response) = result {
        result = match holds && response.head.status.is_success() {
            true => {
                let first_token_until = attempt.first_token_until(now, form.is_stream, deadline);
                let limits = HoldLimits { first_token_until, deadline };
                let held = hold_until_content(response, form, limits).await;
                held.or_else(|failure| match failure {
                    HoldFailure::Late => Err(late("begin its reply")),
                    HoldFailure::Failed(why) => {
                        let why = credentials.masked(&why, MAX_ERROR_LENGTH);
                        let error = format!("the upstream {name} reported an error: {why}");
                        late_status(&why).ok_or_else(|| Error::new(ErrorKind::BadResponse, error))
                    }
                })
            }
            false => Ok(response),
        };
    }
    if result.as_ref().is_err_and(|e| e.kind() == ErrorKind::UpstreamTimeout) {
        deployment.stats.timeouts.fetch_add(1, Relaxed);
    }
    if let Err(e) = &result {
        tracing::info!("the upstream {name} failed: {e}");
    }
    pending.record(route, &result);
    (active, result)
}

/// The response that a provider would have given, had it known the error before it answered with success.
fn late_status(error: &str) -> Option<Response> {
    let status = error_status(error).and_then(|status| StatusCode::from_u16(status).ok())?;
    let (kind, message) = error.split_once(": ").unwrap_or((error, error));
    let body = json!({ "type": "error", "error": { "type": kind, "code": kind, "message": message } });
    Some(Response::full(status, "application/json", body.to_string()))
}

/// An attempt whose result is not known yet. If it is dropped, the request was cancelled, which says nothing about the
/// deployment.
struct PendingResult<'d> {
    deployment: &'d Deployment,
    is_known: bool,
}

impl PendingResult<'_> {
    fn record(mut self, route: &Route, result: &Result<Response>) {
        self.is_known = true;
        let (Deployment { health, stats, .. }, now) = (self.deployment, Instant::now());
        let good = result.as_ref().is_ok_and(|response| match route.is_configured {
            true => !route.retry_on.contains(&response.head.status.as_u16()),
            false => !response.head.status.is_server_error(),
        });
        let mut is_cooling = health.record_result(good, now);
        if !good {
            stats.errors.fetch_add(1, Relaxed);
        }
        // A provider that says when to return is left alone until then, without waiting for further failures.
        let wait = result.as_ref().ok().filter(|_| !good && route.is_configured);
        if let Some(wait) = wait.and_then(|response| retry_after(&response.head.headers)).filter(|w| !w.is_zero()) {
            is_cooling |= health.leave_alone(wait.min(route.max_retry_after), now);
        }
        if is_cooling {
            stats.cooldowns.fetch_add(1, Relaxed);
        }
    }
}

impl Drop for PendingResult<'_> {
    fn drop(&mut self) {
        if !self.is_known {
            self.deployment.health.abandon_request();
        }
    }
}

/// The request for an upstream with the client's API. The inner error means that it has no URL for the path, or that the
/// request cannot be signed.
async fn untranslated(
    mut shared: LlmExchange,
    table: &UpstreamTable,
    upstream: &LlmUpstream,
    original: &OriginalRequest<'_>,
) -> Result<Translated<(Request, Losses)>> {
    let OriginalRequest { exchange, head, raw, token, foreign, is_unbound } = *original;
    let model = upstream_model(table, upstream, exchange).or(exchange.model.as_deref());
    if let Some(Err(refusal)) = model.map(|model| upstream.check_model(model)) {
        return Ok(Err(refusal));
    }
    let url = table.find_route(&head.url.path, head.headers.contains("anthropic-version")).and_then(|route| {
        let path = upstream.path_from(&route.upstream, route.rest, model);
        upstream.url(&path, &head.headers)
    });
    let Some(url) = url else {
        let message = format!("the upstream {} has no counterpart of {}", upstream.name, head.url.path);
        return Ok(Err(LlmRefusal::new(StatusCode::NOT_FOUND, "not_found_error", "unsupported_path", message)));
    };
    let mut head = head.clone();
    head.url = url;
    if let Some(path) = rename_model_in_path(table, upstream, exchange, &head.url.path) {
        head.url.path = path.into();
    }
    head.headers.remove("host");
    // The client's credentials are for the host that it addressed, and must not get to another.
    if foreign {
        remove_credentials(&mut head);
    }
    upstream.authorize(&mut head, token);
    // Ids of calls that a deployment of Gemini made are too long for other APIs.
    let is_plain = !head.headers.contains("content-encoding");
    let raw = match without_call_signatures(raw) {
        Cow::Owned(plain) if is_plain => plain.into(),
        _ => raw.clone(),
    };
    let fit = reasoning::fitted(&mut shared, upstream, table.max_body, &mut head, &raw, is_unbound).await?;
    let (raw, losses) = fit.unwrap_or_else(|| (raw, Losses::default()));
    let body = match model_in_body(table, upstream, exchange, &head) {
        Some(name) => Body::from(rewrite_model(&mut shared, table, &mut head, raw, name).await?),
        None => Body::from(raw),
    };
    match upstream.signs() {
        true => Ok(sign(upstream, token, &mut head, &body).map(|()| (Request { head, body }, losses))),
        false if aws_signature::is_signed(&head) => Ok(Err(unsigned_error())),
        false => Ok(Ok((Request { head, body }, losses))),
    }
}
