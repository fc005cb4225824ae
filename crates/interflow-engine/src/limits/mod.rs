//! Where limits and virtual keys join the corridor: a stage that checks the key of an LLM request, puts the provider's own
//! in its place, asks the counters for leave, and settles with them at the end.

mod call;
mod capacity;
mod credentials;
mod listing;
mod refusals;
mod slow_keys;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use interflow_flow::{
    Body, CollectError, Flow, Interest, NotRecorded, Phase, RequestHead, ResponseHead, Scope, Stage, StatusCode, Step,
    Transport, UsageLabel, Verdict,
};
use interflow_limits::{
    Asked, Estimate, Grant, KeyRefused, KeyRing, KeyStore, KeysConfig, Limits, OutOfScope, Subject, Tokens, VirtualKey,
};
use interflow_llm::{Exchange, Operation, Provider, Usage};
use parking_lot::Mutex;

use call::Called;
use capacity::Capacity;
use credentials::Shown;
use slow_keys::SlowKeyChecks;

/// How virtual keys are asked for, with the providers' keys that they stand for.
#[derive(Clone, Default)]
pub struct KeyRules {
    required: Option<bool>,
    header: String,
    provider: BTreeMap<String, String>,
}

impl KeyRules {
    /// By a config; the providers' keys are fetched from where they are.
    ///
    /// # Errors
    /// The key of the configuration, and why its value cannot be had.
    pub fn new(config: &KeysConfig) -> Result<Self, String> {
        let fetch = |(name, value): (&String, &String)| {
            let wrong = |why: &str| format!("keys.provider.{name}: {why}");
            let secret = interflow_limits::secret(value).map_err(|e| wrong(&e))?;
            if secret.is_empty() || secret.bytes().any(|b| b.is_ascii_control()) {
                return Err(wrong("it is empty, or holds a line break"));
            }
            Ok((name.to_ascii_lowercase(), secret))
        };
        let provider = config.provider.iter().map(fetch).collect::<Result<_, String>>()?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
        if config.header.is_empty() || !config.header.bytes().all(token) {
            return Err(format!("keys.header: `{}` is no header's name", config.header));
        }
        Ok(Self { required: config.required, header: config.header.clone(), provider })
    }

    /// Whether this request to a provider needs a virtual key. When the operator does not say, it does where the gateway adds
    /// a key of its own to what another machine sends.
    fn requires_key(&self, flow: &Flow, adds_key: bool) -> bool {
        let remote = |ip: std::net::IpAddr| !ip.to_canonical().is_loopback();
        let from_elsewhere = || remote(flow.client.peer.ip()) || remote(flow.client.local.ip());
        flow.transport == Transport::Gateway && self.required.unwrap_or_else(|| adds_key && from_elsewhere())
    }

    /// The key that a request came with.
    fn shown(&self, head: &RequestHead) -> Option<Shown> {
        let own = head.headers.get_str(&self.header).map(|key| Shown::Own(key.to_owned()));
        own.or_else(|| credentials::shown(head))
    }

    /// The provider's key for the first of these names that has one.
    fn key_for(&self, names: &[String]) -> Option<&str> {
        names.iter().find_map(|n| self.provider.get(n)).map(String::as_str)
    }
}

impl std::fmt::Debug for KeyRules {
    /// Without the providers' keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.provider.keys().collect();
        f.debug_struct("KeyRules").field("required", &self.required).field("provider", &names).finish()
    }
}

/// The stage.
pub struct LimitStage {
    keys: Arc<KeyStore>,
    rules: ArcSwap<KeyRules>,
    limits: Arc<Limits>,
    upstream_has_key: KeyHolder,
    capacity: Capacity,
    slow_keys: SlowKeyChecks,
}

/// Says whether the gateway's upstream of this name is given a key of its own on the way out.
pub type KeyHolder = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// What is known of a flow's key, for rooms behind this one and for audit lines.
#[derive(Clone, Debug, Default)]
pub struct KeyNote {
    /// The virtual key that it came with.
    pub key: Option<Arc<VirtualKey>>,
}

/// What the stage remembers of a flow until its end.
#[derive(Default)]
struct Held {
    status: Option<StatusCode>,
    grant: Mutex<Option<Grant>>,
}

/// The largest body that is looked into for its model.
const LARGEST_BODY: usize = 64 << 20;

impl LimitStage {
    /// A stage with these keys and limits.
    pub fn new(keys: Arc<KeyStore>, rules: KeyRules, limits: Arc<Limits>, upstream_has_key: KeyHolder) -> Self {
        let (capacity, slow_keys) = (Capacity::default(), SlowKeyChecks::default());
        Self { keys, rules: ArcSwap::from_pointee(rules), limits, upstream_has_key, capacity, slow_keys }
    }

    /// Puts other rules for keys in force.
    pub fn set(&self, rules: KeyRules) {
        self.rules.store(Arc::new(rules));
    }

    /// Bounds how many requests the gateway port serves at once; 0 for no bound.
    pub fn set_capacity(&self, max: usize) {
        self.capacity.set(max);
    }

    /// Whether the request may be served at all.
    fn admit(&self, ring: &KeyRing, flow: &mut Flow, head: &mut RequestHead) -> Result<(), Verdict> {
        self.check_key(ring, flow, head)?;
        let provider = flow.note::<Exchange>().map(|e| e.provider).unwrap_or_default();
        self.capacity.admit(flow, head).map_err(|refusal| refusals::answer(flow, provider, &refusal))
    }

    /// The key that the request came with, its place taken by the provider's own.
    fn check_key(&self, ring: &KeyRing, flow: &mut Flow, head: &mut RequestHead) -> Result<(), Verdict> {
        let rules = self.rules.load();
        let gateway = flow.transport == Transport::Gateway;
        let called = Called::of(flow, head);
        let shown = rules.shown(head);
        if flow.note::<NotRecorded>().is_some() {
            return self.check_filter_key(ring, flow, head, shown);
        }
        let Some(called) = called else {
            return match shown {
                Some(Shown::Provider(key)) if credentials::is_ours(&key) => Err(refusals::no_provider(flow)),
                Some(Shown::Own(_)) if gateway => Err(refusals::no_provider(flow)),
                _ => Ok(()),
            };
        };
        let required = rules.requires_key(flow, self.is_given_a_key(&called));
        let key = match &shown {
            None if required => {
                return Err(refusals::key(flow, called.call.provider, &KeyRefused::Missing));
            }
            None => return Ok(()),
            Some(Shown::Own(text)) => ring.find_now(text),
            Some(Shown::Provider(text)) => match ring.find_now(text) {
                // The provider's own key, which the owner lets clients bring along.
                Err(KeyRefused::Unknown) if !(credentials::is_ours(text) || required) => {
                    return Ok(());
                }
                found => found,
            },
        };
        let key = key.map_err(|why| refusals::key(flow, called.call.provider, &why))?;
        flow.note_mut::<KeyNote>().key = Some(Arc::clone(&key));
        let path = head.url.path_only();
        if let Err(why) = key.scope.allows_place(&called.name, path) {
            return Err(refusals::scope(flow, &called, &key, why));
        }
        // On the gateway another name can only be that of the connection's certificate, which may be a balancer's.
        if flow.user.is_none() || gateway {
            // Conversations of two keys are never one, whoever holds them.
            flow.user = Some(key.owner.clone().unwrap_or_else(|| Arc::clone(&key.id)));
        }
        flow.tag(format!("key:{}", key.id));
        head.headers.remove(&rules.header);
        let secret = rules.key_for(&called.key_names(flow));
        match (secret, &shown) {
            (Some(secret), _) => credentials::put(head, called.call.provider, secret),
            // A key beside the client's own credentials says who it is; those stay.
            (None, Some(Shown::Own(_))) => Ok(()),
            (None, _) if self.is_given_a_key(&called) || called.call.provider == Provider::Ollama => {
                credentials::take_out(head);
                Ok(())
            }
            (None, _) => return Err(refusals::no_key_held(flow, &called)),
        }
        .map_err(|()| refusals::no_key_held(flow, &called))
    }

    /// The key of a request, when it takes a while to find out which one it is.
    fn unchecked(&self, ring: &KeyRing, flow: &Flow, head: &RequestHead) -> Option<String> {
        if !ring.has_slow_keys() || flow.note::<NotRecorded>().is_none() && Called::of(flow, head).is_none() {
            return None;
        }
        let (Shown::Own(text) | Shown::Provider(text)) = self.rules.load().shown(head)?;
        ring.needs_check(&text).then_some(text)
    }

    fn is_given_a_key(&self, called: &Called) -> bool {
        called.route.as_deref().is_some_and(|name| (self.upstream_has_key)(name))
    }

    /// The key of a request that redacts texts, in this process: needed when keys are, and never passed on.
    fn check_filter_key(
        &self,
        ring: &KeyRing,
        flow: &mut Flow,
        head: &RequestHead,
        shown: Option<Shown>,
    ) -> Result<(), Verdict> {
        let required = self.rules.load().required.unwrap_or(false);
        let found = match shown {
            None if required => Err(KeyRefused::Missing),
            None => return Ok(()),
            Some(Shown::Own(text) | Shown::Provider(text)) => match ring.find_now(&text) {
                Err(KeyRefused::Unknown) if !required && !credentials::is_ours(&text) => return Ok(()),
                found => found,
            },
        };
        let key = found.map_err(|why| refusals::key(flow, Provider::Unknown, &why))?;
        let allowed = key.scope.allows_place("filter", head.url.path_only());
        allowed.map_err(|why| refusals::filter_scope(flow, &key, why))?;
        flow.note_mut::<KeyNote>().key = Some(key);
        Ok(())
    }

    /// Asks the counters, once the model is known.
    async fn begin(&self, flow: &mut Flow, head: &RequestHead, body: Body) -> Result<Body, Verdict> {
        let Some(mut called) = Called::of(flow, head) else {
            return self.begin_room(flow).await.map(|()| body);
        };
        let key = flow.note::<KeyNote>().and_then(|n| n.key.clone());
        // Telemetry asks for no model and costs nothing.
        if called.call.operation == Operation::Telemetry {
            return Ok(body);
        }
        if called.call.operation == Operation::Lookup {
            let Some((key, model)) = key.zip(listing::one_model(head.url.path_only())) else { return Ok(body) };
            called.model = Some(model.into());
            let allowed = key.scope.allows_model(model).then_some(body);
            return allowed.ok_or_else(|| refusals::scope(flow, &called, &key, OutOfScope::Model));
        }
        let listed = key.as_ref().is_some_and(|k| !k.scope.models.is_empty());
        let limited = self.limits.has_rules() || key.as_ref().is_some_and(|k| k.limits.is_some());
        // A list of models is held against the body itself, whatever was noted of it.
        let known = called.model.is_some() && called.estimated > 0;
        let (body, asked) = match listed || limited && !known {
            false => (body, None),
            true => look_into(head, body).await.map_err(|e| match e {
                Unread::TooLarge => refusals::too_large(flow, &called),
                Unread::Broken(e) => Verdict::Deny(e),
            })?,
        };
        let unclear = !called.by_path && asked.as_ref().is_some_and(|a| a.unclear);
        if let Some(asked) = asked {
            called.add(asked);
        }
        if let Some(key) = &key {
            let model = called.model.as_deref().filter(|_| !unclear);
            let asked = Asked { provider: &called.name, model, path: head.url.path_only() };
            key.scope.allows(&asked).map_err(|why| refusals::scope(flow, &called, key, why))?;
        }
        let subject = Subject {
            key,
            user: flow.user.clone(),
            route: called.route.clone(),
            provider: Arc::clone(&called.name),
            model: called.model.clone(),
            client: flow.client.peer.ip(),
        };
        let estimate = Estimate { input: called.estimated, max_output: called.max_output };
        match self.limits.begin(subject, estimate).await {
            Ok(grant) => {
                *flow.note_mut::<Held>().grant.get_mut() = Some(grant);
                Ok(body)
            }
            Err(why) => Err(refusals::not_now(flow, called.call.provider, &why)),
        }
    }
}

impl LimitStage {
    /// Asks the counters about a request that a room answers itself.
    async fn begin_room(&self, flow: &mut Flow) -> Result<(), Verdict> {
        let Some(name) = flow.note::<UsageLabel>().and_then(|c| c.0).filter(|_| self.limits.has_rules()) else {
            return Ok(());
        };
        let subject = Subject {
            key: None,
            user: flow.user.clone(),
            route: None,
            provider: name.into(),
            model: None,
            client: flow.client.peer.ip(),
        };
        match self.limits.begin(subject, Estimate::default()).await {
            Ok(grant) => {
                *flow.note_mut::<Held>().grant.get_mut() = Some(grant);
                Ok(())
            }
            Err(why) => Err(refusals::not_now(flow, Provider::Unknown, &why)),
        }
    }
}

impl Stage for LimitStage {
    fn name(&self) -> &'static str {
        "limits"
    }

    fn interest(&self, scope: &Scope<'_>) -> Interest {
        let gateway = scope.transport == Transport::Gateway;
        let keyed = !self.keys.ring().keys().is_empty() && call::is_providers_own(&scope.authority.host);
        let limited = self.limits.has_rules();
        if !scope.intercepted || scope.transport == Transport::Internal || !(gateway || keyed || limited) {
            return Interest::NONE;
        }
        let all = Interest::of(Phase::RequestHead).and(Phase::RequestBody).and(Phase::ResponseHead).and(Phase::Done);
        if self.keys.ring().lists_models() { all.and(Phase::ResponseBody) } else { all }
    }

    /// Keys and quotas are checked by what requests say.
    fn needs_inspection(&self, scope: &Scope<'_>) -> bool {
        self.interest(scope) != Interest::NONE
    }

    fn request_head<'a>(&'a self, flow: &'a mut Flow, head: &'a mut RequestHead) -> Step<'a, Verdict> {
        let ring = self.keys.ring();
        let Some(shown) = self.unchecked(&ring, flow, head) else {
            return Step::Now(self.admit(&ring, flow, head).err().unwrap_or(Verdict::Continue));
        };
        Step::later(async move {
            if self.slow_keys.check(Arc::clone(&ring), shown, flow.client.peer.ip()).await.is_err() {
                let provider = Called::of(flow, head).map_or(Provider::Unknown, |called| called.call.provider);
                return refusals::too_many_keys(flow, provider);
            }
            self.admit(&ring, flow, head).err().unwrap_or(Verdict::Continue)
        })
    }

    fn request_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        head: &'a mut RequestHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        Step::later(self.begin(flow, head, body))
    }

    fn response_head<'a>(
        &'a self,
        flow: &'a mut Flow,
        _request: &'a RequestHead,
        head: &'a mut ResponseHead,
    ) -> Step<'a, Verdict> {
        flow.note_mut::<Held>().status = Some(head.status);
        Step::Now(Verdict::Continue)
    }

    fn response_body<'a>(
        &'a self,
        flow: &'a mut Flow,
        request: &'a RequestHead,
        head: &'a mut ResponseHead,
        body: Body,
    ) -> Step<'a, Result<Body, Verdict>> {
        let key = flow.note::<KeyNote>().and_then(|n| n.key.clone()).filter(|k| !k.scope.models.is_empty());
        let looked = |e: &Exchange| e.operation == Operation::Lookup && listing::lists_models(request);
        let (Some(key), Some(exchange)) = (key, flow.note::<Exchange>().filter(|e| looked(e))) else {
            return Step::Now(Ok(body));
        };
        let provider = exchange.provider;
        if !head.status.is_success() || body.is_empty() {
            return Step::Now(Ok(body));
        }
        Step::later(async move {
            let narrowed = listing::narrowed(head, body, &key.scope).await;
            narrowed.map_err(|refusal| refusals::answer(flow, provider, &refusal))
        })
    }

    fn done(&self, flow: &Flow) {
        let Some(held) = flow.note::<Held>() else { return };
        let Some(grant) = held.grant.lock().take() else { return };
        let settled = flow.note::<Exchange>().map(Exchange::settled).unwrap_or_default();
        match (settled.usage, held.status) {
            (Some(usage), _) => grant.settle_as(&tokens(&usage), settled.model.as_deref()),
            // What was answered without a count is taken to have cost what was estimated.
            (None, Some(status)) if status.is_success() => drop(grant),
            (None, _) => grant.settle(&Tokens::default()),
        }
    }
}

const fn tokens(usage: &Usage) -> Tokens {
    Tokens { input: usage.input, output: usage.output, cache_read: usage.cache_read, cache_write: usage.cache_write }
}

enum Unread {
    TooLarge,
    Broken(interflow_flow::Error),
}

/// What the body asks for; the body itself goes on unchanged.
async fn look_into(head: &RequestHead, body: Body) -> Result<(Body, Option<call::Wanted>), Unread> {
    match body.collect(LARGEST_BODY).await {
        Ok((bytes, trailers)) => {
            let wanted = call::wanted(&head.headers, &bytes).await;
            Ok((call::whole(bytes, trailers), Some(wanted)))
        }
        Err(CollectError::TooLarge(_)) => Err(Unread::TooLarge),
        Err(CollectError::Broken(e)) => Err(Unread::Broken(e)),
    }
}
