//! Limits and virtual keys: a pass that checks the key of an LLM request, replaces it by the provider's key,
//! reserves usage, and settles the reservation at the end.

mod capacity;
mod llm_request;
mod model_list;
mod named_models;
mod rejections;
mod scope;
mod settlement;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use arc_swap::ArcSwap;
pub use interflow_limits::KeyContext;
use interflow_limits::{
    KeyRejection, KeyStore, KeyedEndpoint, KeysConfig, MCP_PROVIDER, RequestAttributes, TAGS_HEADER, TagSet,
    UsageEstimate, UsageLimiter, UsageReservation, VirtualKey, VirtualKeyRing, parse_tags,
};
use interflow_llm::event_stream::StreamFraming;
use interflow_llm::{LlmCall, Operation, Provider, provider, realtime, spans};
use interflow_types::{
    Body, BodyFuture, ByteStr, CallUsage, CollectError, EarlyExit, EntryKind, Flow, InjectedMessages, MaybeFuture,
    MessageVerdict, OutlivesClient, PlanScope, RequestHead, ResponseHead, StatusCode, StreamMessage, UsageLabel,
};
use parking_lot::Mutex;

use crate::credentials::{self, PresentedKey};
use crate::exchange::{self, response::whole};
use crate::gateway::{LlmGateway, StreamUsageWanted};
use capacity::Capacity;
use llm_request::LlmRequest;
pub(crate) use llm_request::estimated_by_length;
pub(crate) use settlement::{ChargedUsage, charged_usage};

/// Whether virtual keys are required, and the provider keys they stand for.
#[derive(Clone, Default)]
pub struct KeyRules {
    required: Option<bool>,
    header: String,
    provider: BTreeMap<String, String>,
}

impl KeyRules {
    /// From a configuration; resolves references to provider keys.
    ///
    /// # Errors
    /// Names the configuration key and why its value could not be resolved.
    pub fn new(config: &KeysConfig) -> Result<Self, String> {
        let fetch = |(name, value): (&String, &String)| {
            let wrong = |why: &str| format!("keys.provider.{name}: {why}");
            let secret = interflow_files::resolve_secret_ref(value).and_then(interflow_files::check_field_secret);
            Ok((name.to_ascii_lowercase(), secret.map_err(|e| wrong(&e))?))
        };
        let provider = config.provider.iter().map(fetch).collect::<Result<_, String>>()?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if config.header.is_empty() || !config.header.bytes().all(token) {
            return Err(format!("keys.header: `{}` is not a valid field name", config.header));
        }
        Ok(Self { required: config.require_virtual_key, header: config.header.clone(), provider })
    }

    /// Whether this request to a provider needs a virtual key. By default it does if the gateway adds its own
    /// provider key to a request from another machine: otherwise anyone who reaches the port could spend the
    /// operator's money.
    fn requires_key(&self, flow: &Flow, adds_key: bool) -> bool {
        // Both ends must be loopback for a request to count as local.
        let remote = |ip: std::net::IpAddr| !ip.to_canonical().is_loopback();
        let from_elsewhere = || remote(flow.client.peer.ip()) || remote(flow.client.local.ip());
        flow.transport == EntryKind::Gateway && self.required.unwrap_or_else(|| adds_key && from_elsewhere())
    }

    /// The key that the request carries: the gateway's own header wins over the places of the provider SDKs.
    fn presented(&self, head: &RequestHead) -> Option<PresentedKey> {
        self.own(head).or_else(|| credentials::presented_key(head))
    }

    /// As [`presented`](Self::presented), for endpoints that no provider's SDK calls.
    fn presented_in_fields(&self, head: &RequestHead) -> Option<PresentedKey> {
        self.own(head).or_else(|| credentials::presented_key_in_fields(head))
    }

    /// The key in the gateway's own header.
    fn own(&self, head: &RequestHead) -> Option<PresentedKey> {
        head.headers.get_str(&self.header).map(|key| PresentedKey::Own(key.to_owned()))
    }

    /// The provider key of the first of these names that has one; the names are ordered from the most specific.
    fn key_for(&self, names: &[String]) -> Option<&str> {
        names.iter().find_map(|n| self.provider.get(n)).map(String::as_str)
    }
}

impl std::fmt::Debug for KeyRules {
    /// Omits the provider keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.provider.keys().collect();
        f.debug_struct("KeyRules").field("required", &self.required).field("provider", &names).finish()
    }
}

/// The pass for limits and virtual keys. It checks the key of a request's head, reserves quota once the model is known, and
/// settles at the end.
pub struct LimitPass {
    keys: Arc<KeyStore>,
    rules: ArcSwap<KeyRules>,
    limits: Arc<UsageLimiter>,
    /// Knows to which upstreams it adds a key, and which models may serve a request, by which it is priced.
    gateway: Arc<LlmGateway>,
    capacity: Capacity,
}

/// State kept with a flow until it ends. `status` tells whether a provider answered, and how.
#[derive(Default)]
struct FlowReservation {
    status: Option<StatusCode>,
    reserved: Option<CallUsage>,
    /// Whether the provider answers before it generates, and so without usage.
    is_deferred: bool,
    /// Whether requests of its batch state no maximum of output tokens.
    has_unstated_maxima: bool,
    /// Of a WebSocket: the model named last that was admitted.
    socket_model: Option<ByteStr>,
    grant: Mutex<Option<UsageReservation>>,
}

impl FlowReservation {
    fn hold(&mut self, grant: UsageReservation) {
        self.reserved = Some(grant.estimated());
        *self.grant.get_mut() = Some(grant);
    }
}

/// How long the answer of a provider is awaited, for its usage, when its client has left.
const MAX_ABANDONED: Duration = Duration::from_secs(600);

/// The largest body that is parsed for its model. A larger one is rejected if a limit depends on it.
const MAX_INSPECTED_BODY: usize = 64 << 20;

impl LimitPass {
    /// At most `max_concurrent` requests pass at once on the gateway port; 0: no limit.
    pub fn new(
        keys: Arc<KeyStore>,
        rules: KeyRules,
        limits: Arc<UsageLimiter>,
        gateway: Arc<LlmGateway>,
        max_concurrent: usize,
    ) -> Self {
        let (rules, capacity) = (ArcSwap::from_pointee(rules), Capacity::new(max_concurrent));
        Self { keys, rules, limits, gateway, capacity }
    }

    /// Activates other rules, and another limit of concurrent requests, for the next request.
    pub fn activate(&self, rules: KeyRules, max_concurrent: usize) {
        self.rules.store(Arc::new(rules));
        self.capacity.limit(max_concurrent);
    }

    /// Whether a request carries a virtual key, valid or not, in a header field where keys are looked for.
    pub fn shows_virtual_key(&self, head: &RequestHead) -> bool {
        match self.rules.load().presented_in_fields(head) {
            Some(PresentedKey::Own(_)) => true,
            Some(PresentedKey::Provider(text)) => credentials::is_virtual_key(&text),
            None => false,
        }
    }

    /// Whether requests of clients of this scope may have a key or count against a limit.
    pub(crate) fn applies(&self, scope: &PlanScope<'_>) -> bool {
        // Virtual keys also appear in requests of the proxy port, to the hosts of providers.
        let is_keyed = || !self.keys.ring().keys().is_empty() && provider::is_own_host(&scope.authority.host);
        scope.transport == EntryKind::Gateway || is_keyed() || self.limits.has_rules()
    }

    pub(crate) fn request_head(&self, flow: &mut Flow, head: &mut RequestHead) -> Result<(), EarlyExit> {
        // The key is checked first, so that requests without a valid one take no capacity.
        self.check_key(&self.keys.ring(), flow, head)?;
        if credentials::has_misplaced_key(head) && LlmRequest::from_request(flow, head).is_some() {
            return Err(rejections::reject_misplaced_key(flow));
        }
        self.capacity.admit(flow, head).map_err(|refusal| rejections::refuse(flow, &refusal))
    }

    /// Checks the request's key, and replaces it by the provider's. Every path either removes a virtual key or
    /// rejects the request.
    fn check_key(&self, ring: &VirtualKeyRing, flow: &mut Flow, head: &mut RequestHead) -> Result<(), EarlyExit> {
        let rules = self.rules.load();
        let gateway = flow.transport == EntryKind::Gateway;
        let called = LlmRequest::from_request(flow, head);
        let presented = rules.presented(head);
        if let Some(KeyedEndpoint { provider: Some(name), uses_credentials }) = flow.extension().copied() {
            return check_endpoint_key(&rules, ring, flow, head, name, uses_credentials);
        }
        let Some(called) = called else {
            // A virtual key is a secret between the client and this gateway, of no use at an unknown provider, which would
            // learn it.
            let is_shown = gateway && matches!(presented, Some(PresentedKey::Own(_))) || has_virtual_key(head);
            return if is_shown { Err(rejections::reject_unknown_provider(flow)) } else { Ok(()) };
        };
        let mut tags = TagSet::new();
        if let Some(text) = head.headers.get_str(TAGS_HEADER) {
            tags = parse_tags(text).map_err(|why| rejections::reject_tags(flow, &why))?;
            // They are for this gateway.
            head.headers.remove(TAGS_HEADER);
        }
        if !tags.is_empty() {
            flow.extension_mut::<KeyContext>().tags = Arc::new(tags.clone());
            tags.iter().map(|(name, value)| format!("{name}={value}")).for_each(|tag| flow.tag(tag));
        }
        let required = rules.requires_key(flow, self.gateway_adds_key(&called));
        let key = find_key(ring, presented.as_ref(), required);
        let Some(key) = key.map_err(|why| rejections::reject_key(flow, &why))? else {
            return Ok(());
        };
        // The operator's tags win: a client cannot have another project pay.
        tags.extend(key.tags.iter().map(|(name, value)| (name.clone(), value.clone())));
        *flow.extension_mut() = KeyContext { key: Some(Arc::clone(&key)), tags: Arc::new(tags) };
        scope::allowed_path(&key, &called.name, called.route.as_deref(), head.url.path_only())
            .map_err(|why| rejections::reject_scope(flow, &called, &key, why, None))?;
        identify_user(flow, &key);
        // The virtual key never leaves Interflow.
        head.headers.remove(&rules.header);
        let secret = rules.key_for(&called.key_names(flow));
        match (secret, &presented) {
            (Some(secret), _) => credentials::set_provider_key(head, called.call.provider, secret),
            // A virtual key beside the client's own credentials only identifies it; the credentials stay.
            (None, Some(PresentedKey::Own(_))) if !has_virtual_key(head) => Ok(()),
            (None, _) if self.gateway_adds_key(&called) || called.call.provider == Provider::Ollama => {
                credentials::remove_credentials(head);
                Ok(())
            }
            (None, _) => return Err(rejections::reject_missing_provider_key(flow, &called)),
        }
        .map_err(|()| rejections::reject_missing_provider_key(flow, &called))
    }

    fn gateway_adds_key(&self, called: &LlmRequest) -> bool {
        called.route.as_deref().is_some_and(|name| self.gateway.holds_key_of(name))
    }

    /// Reserves usage, once the model is known. The body is returned unchanged.
    pub(crate) async fn reserve(&self, flow: &mut Flow, head: &RequestHead, body: Body) -> Result<Body, EarlyExit> {
        let Some(mut called) = LlmRequest::from_request(flow, head) else {
            return self.reserve_local(flow).await.map(|()| body);
        };
        let KeyContext { key, tags } = flow.extension::<KeyContext>().cloned().unwrap_or_default();
        let operation = called.call.operation;
        if operation.is_incidental() || operation == Operation::Lookup {
            let Some(key) = &key else { return Ok(body) };
            let allowed = match operation {
                Operation::Lookup => scope::check_lookup(key, &mut called, head),
                // It must not use up a quota of requests either.
                operation => scope::check_incidental(key, operation, head),
            };
            return match allowed {
                Ok(()) => Ok(body),
                Err((why, group)) => Err(rejections::reject_scope(flow, &called, key, why, group.as_deref())),
            };
        }
        let listed = key.as_ref().is_some_and(|k| k.restricts_models());
        let limited = self.limits.has_rules() || key.as_ref().is_some_and(|k| k.has_limits());
        // If the scope has a list of models, the body itself is checked, whatever the extension says.
        let is_deferrable =
            matches!(operation, Operation::Responses | Operation::Batches | Operation::Jobs | Operation::Other);
        let is_read = called.model.is_some() && called.estimated > 0 && !is_deferrable;
        // The body is read only if a scope, a limit or a reservation that is charged depends on what it requests.
        let starts_run = provider::starts_run(head.url.path_only());
        let (body, requested) = match listed || limited && !is_read || starts_run {
            false => (body, None),
            true => read_requested_usage(flow, head, body).await.map_err(|e| match e {
                CollectError::TooLarge(_) => rejections::reject_too_large(flow),
                CollectError::Broken(e) => EarlyExit::Deny(e),
            })?,
        };
        let is_unclear = requested.as_ref().is_some_and(|r| r.unclear);
        let named = requested.map(|requested| called.merge_usage(requested)).unwrap_or_default();
        if limited && called.is_max_output_invalid && !operation.is_free() {
            return Err(rejections::reject_max_tokens(flow));
        }
        if let Some(key) = &key {
            scope::check_call(key, &mut called, head, &named, is_unclear)
                .map_err(|(why, group)| rejections::reject_scope(flow, &called, key, why, group.as_deref()))?;
        }
        let deployments_of = |call| self.gateway.deployments_of(call, called.model.as_deref());
        let deployments = match operation {
            Operation::Batches => named.models_of_batch(&called.name),
            _ => flow.extension().map(deployments_of).unwrap_or_default(),
        };
        let subject = RequestAttributes {
            key,
            user: flow.user.clone(),
            route: called.route.clone(),
            provider: Arc::clone(&called.name),
            model: called.model.clone(),
            client: flow.client.peer.ip(),
            tags,
            deployments,
        };
        if called.estimated == 0 && !operation.is_free() {
            // Its body was not read, or could not be.
            let length = head.headers.get_str("content-length").and_then(|text| text.parse().ok());
            called.estimated = length.map_or(0, |length| estimated_by_length(&head.headers, length));
        }
        let unstated = named.unstated_maxima();
        if unstated > 0 {
            let reserve = self.limits.config().reserve_output.saturating_mul(unstated);
            called.max_output = Some(called.max_output.unwrap_or_default().saturating_add(reserve));
        }
        let needs_model = called.needs_model(subject.key.as_deref(), head.url.path_only());
        let estimate = UsageEstimate { needs_model, ..called.usage_estimate() };
        // Other usage need not be asked for.
        flow.extension_mut::<StreamUsageWanted>().0 = limited || subject.key.is_some();
        // Reserved by estimate now, and settled with the actual usage when the flow ends.
        let admitted = self.limits.admit(subject, estimate).await;
        let grant = admitted.map_err(|why| rejections::reject_limit(flow, &why))?;
        let is_slot_only = grant.is_slot_only();
        let held = flow.extension_mut::<FlowReservation>();
        held.hold(grant);
        let is_batch = operation == Operation::Batches && !named.items.is_empty();
        held.is_deferred = named.is_background || is_batch || starts_run;
        held.has_unstated_maxima = unstated > 0;
        held.socket_model = called.model.as_deref().map(ByteStr::from);
        if !is_slot_only && settlement::outlives_client(flow) {
            flow.extension_mut::<OutlivesClient>().limit = Some(MAX_ABANDONED);
        }
        Ok(body)
    }

    /// Checks the model of a client's event, which the detector has read. An event that is refused is answered with an error
    /// event; the connection stays open.
    pub(crate) fn admit_event(&self, flow: &mut Flow, message: &StreamMessage) -> MessageVerdict {
        let Some((call, held)) = flow.extension::<LlmCall>().zip(flow.extension::<FlowReservation>()) else {
            return MessageVerdict::Continue;
        };
        let (provider, asked) = (call.provider, call.model.clone());
        let deployments = self.gateway.deployments_of(call, asked.as_deref());
        let needs_model = !realtime::may_lack_model(provider, &message.payload);
        let model = asked.as_deref().map(Arc::from);
        let admit = |grant: &UsageReservation| {
            grant.admit_model((model, deployments), needs_model)?;
            let model = realtime::transcription_model(&message.payload);
            model.map_or(Ok(()), |model| grant.admit_model((Some(model.as_str().into()), Vec::new()), true))
        };
        let Some(Err(why)) = held.grant.lock().as_ref().map(admit) else {
            flow.extension_mut::<FlowReservation>().socket_model = asked;
            return MessageVerdict::Continue;
        };
        let refusal = rejections::admission_refusal(flow, &why);
        drop(rejections::refuse(flow, &refusal));
        let before = flow.extension_mut::<FlowReservation>().socket_model.clone();
        let call = flow.extension_mut::<LlmCall>();
        call.model = before;
        // It is not sent, and so not charged.
        let input = spans::facts(&message.payload).map_or(0, |facts| facts.estimated_tokens());
        call.estimated_input = call.estimated_input.saturating_sub(input);
        let event = refusal.to_event(provider, StreamFraming::Messages, flow.id);
        flow.extension_mut::<InjectedMessages>().reply.push(event.into());
        MessageVerdict::Drop
    }

    /// Reserves usage for a request that a component answers itself.
    async fn reserve_local(&self, flow: &mut Flow) -> Result<(), EarlyExit> {
        let Some(name) = flow.extension::<UsageLabel>().and_then(|c| c.0).filter(|_| self.limits.has_rules()) else {
            return Ok(());
        };
        let (user, client) = (flow.user.clone(), flow.client.peer.ip());
        let subject = RequestAttributes { user, provider: name.into(), client, ..RequestAttributes::default() };
        self.reserve_requests(flow, subject).await
    }

    /// Counts a call of the MCP gateway as a request of its key and user.
    ///
    /// # Errors
    /// A limit is reached.
    pub async fn admit_mcp_call(&self, flow: &mut Flow) -> Result<(), EarlyExit> {
        let KeyContext { key, tags } = flow.extension::<KeyContext>().cloned().unwrap_or_default();
        let (user, client) = (flow.user.clone(), flow.client.peer.ip());
        let provider = MCP_PROVIDER.into();
        let subject = RequestAttributes { key, user, provider, client, tags, ..RequestAttributes::default() };
        self.reserve_requests(flow, subject).await
    }

    /// Reserves a request that uses no tokens.
    async fn reserve_requests(&self, flow: &mut Flow, subject: RequestAttributes) -> Result<(), EarlyExit> {
        let estimate = UsageEstimate { max_output: Some(0), ..UsageEstimate::default() };
        let admitted = self.limits.admit(subject, estimate).await;
        let grant = admitted.map_err(|why| rejections::reject_limit(flow, &why))?;
        flow.extension_mut::<FlowReservation>().hold(grant);
        Ok(())
    }

    pub(crate) fn response_head(&self, flow: &mut Flow, head: &ResponseHead) {
        flow.extension_mut::<FlowReservation>().status = Some(head.status);
    }

    /// Removes from a list of models what the key does not allow.
    pub(crate) fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> BodyFuture<'a> {
        let key = flow.extension::<KeyContext>().and_then(|n| n.key.clone()).filter(|k| k.restricts_models());
        let looked = |e: &LlmCall| e.operation == Operation::Lookup && model_list::lists_models(request);
        let is_listed = flow.extension::<LlmCall>().is_some_and(looked) && head.status.is_success() && !body.is_empty();
        let Some(key) = key.filter(|_| is_listed) else { return MaybeFuture::Ready(Ok(body)) };
        MaybeFuture::pending(async move {
            let read = whole::read(&head.headers, body, (model_list::MAX_LIST_BYTES, true)).await?;
            model_list::filter_response(head, read, &key).map_err(|refusal| rejections::refuse(flow, &refusal))
        })
    }

    /// What is charged by an estimate is not in the recorded response: conversations take it from the tag.
    pub(crate) fn finish(&self, flow: &mut Flow) {
        let is_realtime = |call: &LlmCall| call.operation == Operation::Realtime;
        if flow.extension::<LlmCall>().is_none_or(is_realtime) {
            return;
        }
        if flow.extension::<OutlivesClient>().is_some_and(|outlives| outlives.is_abandoned.load(Relaxed)) {
            flow.tag("client-left");
        }
        if settlement::is_unaccounted(flow) {
            flow.tag("unaccounted");
        }
        if let Some(ChargedUsage { usage, .. }) = charged_usage(flow).filter(|charged| charged.is_estimated) {
            flow.tag(format!("estimated:{}+{}", usage.input, usage.output));
        }
        settlement::record_usage(flow, &self.limits);
    }
}

/// Settles what a flow that has ended reserved.
pub(crate) fn settle(flow: &Flow) {
    let Some(held) = flow.extension::<FlowReservation>() else { return };
    let Some(grant) = held.grant.lock().take() else { return };
    grant.commit_all(&settlement::deployment_usages(flow));
}

/// Whether a virtual key is where the SDKs of providers put theirs.
fn has_virtual_key(head: &RequestHead) -> bool {
    credentials::client_keys(head).any(|key| credentials::is_virtual_key(&key))
}

/// The virtual key that was presented; `None` if there is none, and it is not required.
fn find_key(
    ring: &VirtualKeyRing,
    presented: Option<&PresentedKey>,
    is_required: bool,
) -> Result<Option<Arc<VirtualKey>>, KeyRejection> {
    match presented {
        None if is_required => Err(KeyRejection::Missing),
        None => Ok(None),
        Some(PresentedKey::Own(text)) => ring.find_now(text).map(Some),
        Some(PresentedKey::Provider(text)) => match ring.find_now(text) {
            // The client's own credentials, which the operator allows.
            Err(KeyRejection::Unknown) if !(is_required || credentials::is_virtual_key(text)) => Ok(None),
            other => other.map(Some),
        },
    }
}

/// Checks the key of a request to an endpoint that this process serves, and removes it. Where the endpoint
/// `uses_credentials` of the operator, a key is required as at a provider's.
fn check_endpoint_key(
    rules: &KeyRules,
    ring: &VirtualKeyRing,
    flow: &mut Flow,
    head: &mut RequestHead,
    name: &str,
    uses_credentials: bool,
) -> Result<(), EarlyExit> {
    let required = rules.requires_key(flow, uses_credentials);
    let key = find_key(ring, rules.presented_in_fields(head).as_ref(), required);
    let Some(key) = key.map_err(|why| rejections::reject_key(flow, &why))? else {
        return Ok(());
    };
    scope::allowed_path(&key, name, None, head.url.path_only())
        .map_err(|why| rejections::reject_endpoint_scope(flow, &key, why))?;
    identify_user(flow, &key);
    head.headers.remove(&rules.header);
    credentials::remove_credentials(head);
    *flow.extension_mut() = KeyContext { tags: Arc::new(key.tags.clone()), key: Some(key) };
    Ok(())
}

/// Sets the user of a request by its key.
fn identify_user(flow: &mut Flow, key: &VirtualKey) {
    // On the gateway, another name can only be that of the connection's certificate, which may be a load balancer's.
    if flow.user.is_none() || flow.transport == EntryKind::Gateway {
        // Conversations of two keys are never merged, even if they have the same owner.
        flow.user = Some(key.owner.clone().unwrap_or_else(|| Arc::clone(&key.id)));
    }
    flow.tag(format!("key:{}", key.id));
    if let Some(team) = &key.team {
        flow.tag(format!("team:{}", team.id));
    }
}

/// Parses the usage that the body requests; the body is forwarded unchanged, trailers included.
async fn read_requested_usage(
    flow: &mut Flow,
    head: &RequestHead,
    body: Body,
) -> Result<(Body, Option<llm_request::RequestedUsage>), CollectError> {
    let (bytes, trailers) = exchange::collect(flow, &head.headers, body, (MAX_INSPECTED_BODY, true)).await?;
    let request = exchange::request_body(flow, &head.headers, &bytes, MAX_INSPECTED_BODY).await.ok();
    let requested = llm_request::requested_usage(&head.headers, bytes.len(), request).await;
    Ok((Body::with_trailers(bytes, trailers), Some(requested)))
}
