//! Admission control for LLM requests: reserves quota before a request is sent and settles it against the actual usage
//! when it ends.
//!
//! What a request will use is not known in advance: the output depends on the model. An estimate is therefore taken
//! from all counters at once, so that concurrent requests cannot overrun a budget together, and replaced by the actual
//! usage at the end. An overestimate only delays others for the duration of the request; an underestimate leaves a
//! counter overdrawn, which later requests pay off.
//!
//! A request that states no maximum reserves a generous one. It is admitted if a budget has only a small part of that left,
//! or small budgets would admit none; but what it reserves beyond what is left keeps all others out until it is settled.
//! So a budget is exceeded by one request at most.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::ArcSwap;
use interflow_files::resolve_secret_ref;
use interflow_types::{CallUsage, ServiceTier, Timestamp, random_bytes};
use parking_lot::Mutex;

use crate::alerts::{AlertSender, AlertSettings, AlertStats};
use crate::config::{QuotaConfig, SharedQuotaConfig, UnpricedModels};
use crate::counter_store::{
    CounterLimit, CounterRequest, CounterSnapshot, CounterStore, CounterStoreError, MemoryCounterStore,
    SharedCounterStore, SharedStoreStatus,
};
use crate::prices::{PriceList, PriceListDates};
use crate::redis::{RedisConnector, RedisOptions, RedisServer};
use crate::reservation::{TakenCounters, run_commit};
use crate::rules::{QuotaRules, RequestAttributes, ServedModel, UsageAmount, UsageBounds};
use crate::spend::{SpendAccount, SpendLedger};
use crate::tags::TagSet;
use crate::usage::{DeploymentUsage, UsageSums, UsageTotals};

/// Bound on the rules that rejections are counted by: a reload may name others. Further ones are counted as `other`.
const MAX_REJECTION_ROWS: usize = 1000;

/// Output tokens that must be left of a budget for a request that states no maximum, for each choice; a rate reserves as
/// many.
const LEAST_OUTPUT: u64 = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LimitsError(pub String);

/// Upper bound of what a request will use, computed before it is sent: its input tokens, its `max_tokens` if set, and how
/// many choices it asks for (0 counts as 1). `needs_model`: it is billed by the price of a model, so that the cost of one
/// that names none is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsageEstimate {
    pub input: u64,
    pub max_output: Option<u64>,
    pub choices: u64,
    pub needs_model: bool,
    /// Whether its tokens are not counted: its cost is only known if it is free, or billed by characters.
    pub is_uncounted: bool,
    /// Characters of text to speech, and pictures that are asked for.
    pub characters: u64,
    pub images: u64,
    /// The level of service that is asked for, which may cost more.
    pub tier: Option<ServiceTier>,
}

/// Why a request was rejected. For a limit, `rule` and `counter` name what is exhausted, `who` is the party counted
/// (key, user, address, ...), and `wait` the earliest time at which a retry can succeed (`Retry-After`). `is_reserved`: it
/// is a budget that is not used up, but reserved by requests in progress.
#[derive(Clone, Debug, PartialEq)]
pub enum AdmissionRejection {
    Limit {
        rule: Arc<str>,
        counter: CounterLimit,
        who: Arc<str>,
        wait: Duration,
        is_reserved: bool,
    },
    /// A budget counts money, and a model that may serve the request, as `provider/model`, has no price; `None` if the
    /// request names no model.
    Unpriced {
        rule: Arc<str>,
        model: Option<String>,
    },
    /// The shared counter store is unreachable and `quota.shared.failure` is `closed`.
    Unavailable(CounterStoreError),
}

/// What the limits report to.
#[derive(Clone, Default)]
pub struct LimiterDeps {
    /// The ledger to which requests are added when they end.
    pub spend: Option<Arc<SpendLedger>>,
    /// What sends the alerts of `quota.alerts`.
    pub alerts: Option<Arc<AlertSender>>,
}

/// The active limits and their counters. A reload replaces the configuration; counts and reservations in progress are
/// not affected.
pub struct UsageLimiter {
    state: ArcSwap<LimiterState>,
    memory: Arc<MemoryCounterStore>,
    redis: &'static dyn RedisConnector,
    usage: UsageTotals,
    rejected: Mutex<BTreeMap<(Arc<str>, &'static str), u64>>,
    next_lease: AtomicU64,
    /// Distinguishes this process's slot leases from those of other processes.
    process: u64,
    deps: LimiterDeps,
}

/// A parsed and compiled configuration that is not active yet. Preparing is separate from activating so that a reload
/// can check every component before it changes any of them.
pub struct PreparedLimits(Arc<LimiterState>);

struct LimiterState {
    config: QuotaConfig,
    rules: QuotaRules,
    prices: Arc<PriceList>,
    ledger: CounterBackend,
    alerts: Arc<AlertSettings>,
}

// Cloned into each configuration, so that a reload which does not touch the store keeps its counts.
#[derive(Clone)]
struct CounterBackend {
    store: Arc<dyn CounterStore>,
    /// The same store, if it is shared.
    shared: Option<Arc<SharedCounterStore>>,
}

impl UsageLimiter {
    /// Compiles a configuration; relative paths in it are resolved against `home`. `redis` connects to the server of counts
    /// that are shared.
    ///
    /// # Errors
    /// An invalid rule, price list, URL or certificate.
    pub fn with_deps(
        config: &QuotaConfig,
        home: &Path,
        redis: &'static dyn RedisConnector,
        deps: LimiterDeps,
    ) -> Result<Arc<Self>, LimitsError> {
        let memory = Arc::new(MemoryCounterStore::new(config.slot_lease.0));
        let state = LimiterState::new(config, home, &memory, redis, None)?;
        Ok(Arc::new(Self {
            state: ArcSwap::from_pointee(state),
            memory,
            redis,
            usage: UsageTotals::default(),
            rejected: Mutex::default(),
            next_lease: AtomicU64::new(1),
            process: u64::from_ne_bytes(random_bytes()),
            deps,
        }))
    }

    pub const fn spend_ledger(&self) -> Option<&Arc<SpendLedger>> {
        self.deps.spend.as_ref()
    }

    pub fn alert_stats(&self) -> AlertStats {
        self.deps.alerts.as_ref().map(|sender| sender.stats()).unwrap_or_default()
    }

    pub(crate) fn alert_settings(&self) -> Arc<AlertSettings> {
        Arc::clone(&self.state.load().alerts)
    }

    pub(crate) fn counter_store(&self) -> Arc<dyn CounterStore> {
        Arc::clone(&self.state.load().ledger.store)
    }

    /// Parses and compiles a new configuration without activating it. Files that it names are read now, so a missing
    /// file fails the reload and not a later request.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn prepare(&self, config: &QuotaConfig, home: &Path) -> Result<PreparedLimits, LimitsError> {
        LimiterState::new(config, home, &self.memory, self.redis, Some(&self.state.load()))
            .map(|s| PreparedLimits(Arc::new(s)))
    }

    /// Activates a prepared configuration; existing counts are kept. Reservations made under the old configuration
    /// settle in the store from which they took.
    pub fn activate(&self, prepared: PreparedLimits) {
        self.state.store(prepared.0);
    }

    /// Admits a request or rejects it. The reservation is settled when the request ends.
    ///
    /// # Cancellation
    /// If the future is dropped while a shared store answers, what the store takes is given back.
    ///
    /// # Errors
    /// A limit is reached, or the counter store is unreachable and `quota.shared.failure` is `closed`.
    pub async fn admit(
        self: &Arc<Self>,
        subject: RequestAttributes,
        estimate: UsageEstimate,
    ) -> Result<UsageReservation, AdmissionRejection> {
        // One snapshot for the whole call: a reload in between must not mix the rules of one configuration with the
        // prices of another.
        let state = self.state.load_full();
        // A level that is not known counts as standard: the answer names the one that is charged.
        let asked = estimate.tier.filter(|tier| *tier != ServiceTier::Other);
        let tier = if estimate.is_uncounted { Some(ServiceTier::Other) } else { asked };
        let tokens_of = |each: u64| {
            let output = each.saturating_mul(estimate.choices.max(1));
            let UsageEstimate { input, characters, images, .. } = estimate;
            CallUsage { input, output, tier, characters, images, ..CallUsage::default() }
        };
        let most_output = estimate.max_output.unwrap_or(state.config.reserve_output);
        let least_output = estimate.max_output.unwrap_or(LEAST_OUTPUT).min(most_output);
        let tokens = tokens_of(most_output);
        let amount = |tokens: CallUsage| {
            let micros = state.prices.estimate(&subject, &tokens);
            UsageAmount { tokens: tokens.total(), micros }
        };
        let most = amount(tokens);
        let least = if least_output == most_output { most } else { amount(tokens_of(least_output)) };
        let bounds = UsageBounds { least, most };
        let asks: Arc<[CounterRequest]> = state.rules.counter_requests(&subject, bounds).into();
        if (tokens.total() > 0 || estimate.needs_model)
            && let Some(refusal) = state.unpriced(&asks, &subject, &tokens, estimate.needs_model)
        {
            return Err(self.reject(&subject, &asks, refusal));
        }
        // A request to which no counter applies never waits for the store.
        let held = match asks.is_empty() {
            true => None,
            false => {
                let lease = format!("{:016x}-{:x}", self.process, self.next_lease.fetch_add(1, Relaxed)).into();
                // The store is remembered with the reservation, so that it is settled there even if a reload changes it.
                match TakenCounters::take(Arc::clone(&state.ledger.store), Arc::clone(&asks), lease).await {
                    Ok(Ok(taken)) => Some(taken),
                    Ok(Err(refusal)) => {
                        let refusal = asks.get(refusal.index).map(|ask| AdmissionRejection::Limit {
                            rule: Arc::clone(&ask.rule),
                            counter: ask.counter,
                            who: Arc::clone(&ask.who),
                            wait: refusal.wait,
                            is_reserved: refusal.is_reserved,
                        });
                        let unknown = || CounterStoreError("the counters name one that was not asked".into());
                        let refusal = refusal.unwrap_or_else(|| AdmissionRejection::Unavailable(unknown()));
                        return Err(self.reject(&subject, &asks, refusal));
                    }
                    Err(e) => return Err(self.reject(&subject, &asks, AdmissionRejection::Unavailable(e))),
                }
            }
        };
        Ok(UsageReservation { limits: Arc::clone(self), subject, held: Some(held), estimated: tokens })
    }

    fn reject(
        self: &Arc<Self>,
        subject: &RequestAttributes,
        asks: &[CounterRequest],
        refusal: AdmissionRejection,
    ) -> AdmissionRejection {
        if let (Some(alerts), AdmissionRejection::Limit { rule, counter, is_reserved: false, .. }) =
            (&self.deps.alerts, &refusal)
        {
            let rejecting = asks.iter().position(|ask| ask.rule == *rule && ask.counter == *counter);
            alerts.record(self, asks, subject, rejecting);
        }
        self.count_rejection(&refusal);
        self.usage.record_rejection(subject);
        refusal
    }

    /// Adds a request of the operator's own to the ledger, such as the copy for a shadow deployment: no key pays it, and
    /// no budget counts it.
    pub fn record_operator_spend(&self, usage: &DeploymentUsage, tags: TagSet) {
        let Some(served) = &usage.served else { return };
        let subject = RequestAttributes {
            provider: Arc::clone(&served.provider),
            model: Some(Arc::clone(&served.model)),
            tags: Arc::new(tags),
            ..RequestAttributes::default()
        };
        let charge = self.state.load().prices.charge(&subject, usage);
        let sums = UsageSums::of(&usage.tokens, usage.is_estimated, charge.cost, 1);
        self.record_spend(&subject, usage, sums);
    }

    fn record_spend(&self, subject: &RequestAttributes, usage: &DeploymentUsage, sums: UsageSums) {
        // Failed requests cost nothing, and their models are whatever clients say.
        let Some(ledger) = self.deps.spend.as_ref().filter(|_| !usage.tokens.is_zero()) else { return };
        let served = usage.served.as_ref().or_else(|| subject.sole_deployment());
        let account = SpendAccount {
            key: subject.key.as_ref().map(|key| Arc::clone(&key.id)),
            user: subject.user().map(Into::into),
            team: subject.team().cloned(),
            organisation: subject.organisation().cloned(),
            provider: Arc::clone(served.map_or(&subject.provider, |s| &s.provider)),
            model: served.map(|s| Arc::clone(&s.model)).or_else(|| subject.model.clone()),
            tags: Arc::clone(&subject.tags),
        };
        ledger.record(account, sums);
    }

    pub fn usage(&self) -> &UsageTotals {
        &self.usage
    }

    fn count_rejection(&self, rejection: &AdmissionRejection) {
        let (rule, counter) = match rejection {
            AdmissionRejection::Limit { rule, counter, .. } => (Arc::clone(rule), counter.as_str()),
            AdmissionRejection::Unpriced { rule, .. } => (Arc::clone(rule), "unpriced"),
            AdmissionRejection::Unavailable(_) => ("".into(), "unavailable"),
        };
        let mut rejected = self.rejected.lock();
        let full = rejected.len() >= MAX_REJECTION_ROWS && !rejected.contains_key(&(Arc::clone(&rule), counter));
        *rejected.entry((if full { "other".into() } else { rule }, counter)).or_default() += 1;
    }

    /// Requests rejected since the process started, by rule and counter. The rule is empty, and the counter
    /// `unavailable`, if the shared store could not be reached.
    pub fn rejections(&self) -> BTreeMap<(Arc<str>, &'static str), u64> {
        self.rejected.lock().clone()
    }

    /// Number of requests rejected since the process started.
    pub fn rejected_count(&self) -> u64 {
        self.rejected.lock().values().sum()
    }

    /// Health of the shared counter store, if one is configured.
    pub fn shared_status(&self) -> Option<SharedStoreStatus> {
        self.state.load().ledger.shared.as_ref().map(|shared| shared.status())
    }

    pub fn has_rules(&self) -> bool {
        !self.state.load().rules.is_empty()
    }

    pub fn config(&self) -> QuotaConfig {
        self.state.load().config.clone()
    }

    /// Current values of the counters that apply to such a request, without taking anything from them.
    ///
    /// # Errors
    /// The counter store is unreachable.
    pub async fn snapshot(&self, subject: &RequestAttributes) -> Result<Vec<CounterSnapshot>, CounterStoreError> {
        let state = self.state.load_full();
        let asks = state.rules.counter_requests(subject, UsageAmount::default());
        let levels = state.ledger.store.read(&asks).await?;
        Ok(asks.iter().zip(levels).map(|(ask, level)| counter_snapshot(ask, level.level)).collect())
    }

    /// The price list that applies now.
    pub fn prices(&self) -> Arc<PriceList> {
        Arc::clone(&self.state.load().prices)
    }

    /// The cost of a call that ends now, in millionths of a dollar; `None` if it is not known, which is not the same as a
    /// cost of zero.
    pub fn cost(&self, provider: &str, asked: Option<&str>, answered: Option<&str>, usage: &CallUsage) -> Option<u64> {
        self.state.load().prices.cost(provider, asked, answered, usage, Timestamp::now())
    }

    pub fn prices_as_of(&self) -> PriceListDates {
        self.state.load().prices.as_of()
    }

    pub fn memory_store(&self) -> &MemoryCounterStore {
        &self.memory
    }
}

fn counter_snapshot(ask: &CounterRequest, level: f64) -> CounterSnapshot {
    // Money is counted in millionths of a dollar, and displayed in dollars.
    let unit = if matches!(ask.counter, CounterLimit::MoneyBudget { .. }) { 1e6 } else { 1.0 };
    let (rule, who, limit) = (Arc::clone(&ask.rule), Arc::clone(&ask.who), ask.counter.capacity());
    CounterSnapshot { rule, who, counter: ask.counter.as_str(), used: level / unit, limit: limit / unit }
}

impl LimiterState {
    fn new(
        config: &QuotaConfig,
        home: &Path,
        memory: &Arc<MemoryCounterStore>,
        redis: &dyn RedisConnector,
        before: Option<&Self>,
    ) -> Result<Self, LimitsError> {
        config.check().map_err(LimitsError)?;
        let rules = QuotaRules::new(&config.rule).map_err(LimitsError)?;
        let own = config.prices.as_ref().map(|path| PriceList::from_file(&home.join(path)));
        let prices = own.transpose().map_err(LimitsError)?.unwrap_or_default();
        // Reused if nothing about it changed, so that a reload does not lose counts or connections.
        let ledger = match before {
            Some(b) if b.config.shared == config.shared && b.config.slot_lease == config.slot_lease => b.ledger.clone(),
            _ => counter_backend(config, home, memory, redis)?,
        };
        let alerts = AlertSettings::new(&config.alerts).map_err(|e| LimitsError(format!("quota.alerts.{e}")))?;
        Ok(Self { config: config.clone(), rules, prices: Arc::new(prices), ledger, alerts: Arc::new(alerts) })
    }

    fn unpriced(
        &self,
        asks: &[CounterRequest],
        of: &RequestAttributes,
        tokens: &CallUsage,
        needs: bool,
    ) -> Option<AdmissionRejection> {
        let refuses = self.config.unpriced == UnpricedModels::Refuse;
        let ask = asks.iter().find(|ask| refuses && matches!(ask.counter, CounterLimit::MoneyBudget { .. }))?;
        let model = self.prices.unpriced(of, tokens, needs)?;
        Some(AdmissionRejection::Unpriced { rule: Arc::clone(&ask.rule), model })
    }
}

fn counter_backend(
    config: &QuotaConfig,
    home: &Path,
    memory: &Arc<MemoryCounterStore>,
    redis: &dyn RedisConnector,
) -> Result<CounterBackend, LimitsError> {
    let shared = &config.shared;
    let Some(server) = redis_server(shared, home)? else {
        return Ok(CounterBackend { store: Arc::clone(memory) as _, shared: None });
    };
    let (lease, prefix) = (config.slot_lease.0, shared.prefix.clone());
    let opened = redis.counters(RedisOptions { server, prefix, lease, heartbeat: shared.heartbeat.0 });
    let opened = opened.map_err(|e| LimitsError(format!("quota.shared.redis: {e}; write it as redis://host:6379")))?;
    // Used only while Redis is unreachable and the failure mode is `local`. Separate from the process's own store,
    // whose budgets are written to the budget file.
    let local = MemoryCounterStore::new(lease);
    let store = Arc::new(SharedCounterStore::new(opened, local, shared.failure));
    Ok(CounterBackend { store: Arc::clone(&store) as _, shared: Some(store) })
}

/// The server of the shared counts, if there is one; its files are read.
///
/// # Errors
/// The key of a file that cannot be read, or of a secret that is not set.
pub fn redis_server(shared: &SharedQuotaConfig, home: &Path) -> Result<Option<RedisServer>, LimitsError> {
    let SharedQuotaConfig { redis, timeout, ca, certificate, key, .. } = shared;
    let Some(url) = redis else { return Ok(None) };
    let identity = match (certificate, key) {
        (Some(c), Some(k)) => {
            Some((read_file(&home.join(c), "quota.shared.certificate")?, read_file(&home.join(k), "quota.shared.key")?))
        }
        (None, None) => None,
        _ => return Err(LimitsError("quota.shared: certificate and key belong together".into())),
    };
    Ok(Some(RedisServer {
        url: resolve_secret_ref(url).map_err(|e| LimitsError(format!("quota.shared.redis: {e}")))?,
        timeout: timeout.0,
        ca: ca.as_ref().map(|p| read_file(&home.join(p), "quota.shared.ca")).transpose()?,
        identity,
    }))
}

fn read_file(path: &Path, key: &str) -> Result<Vec<u8>, LimitsError> {
    std::fs::read(path).map_err(|e| LimitsError(format!("{key}: {} cannot be read: {e}", path.display())))
}

/// Permission to send one request. If dropped without `commit_all`, the estimate is charged: a request that failed
/// halfway has most likely been billed by the provider.
pub struct UsageReservation {
    limits: Arc<UsageLimiter>,
    subject: RequestAttributes,
    /// `None` once it was settled; without counters if none apply.
    held: Option<Option<TakenCounters>>,
    estimated: CallUsage,
}

impl UsageReservation {
    pub fn subject(&self) -> &RequestAttributes {
        &self.subject
    }

    pub fn estimated(&self) -> CallUsage {
        self.estimated
    }

    /// Whether an event of a WebSocket may use the model that it names, which these deployments serve.
    ///
    /// # Errors
    /// A budget counts money, and the model has no price; or none is named, and `needs_model`.
    pub fn admit_model(
        &self,
        (model, deployments): (Option<Arc<str>>, Vec<ServedModel>),
        needs_model: bool,
    ) -> Result<(), AdmissionRejection> {
        let Some(taken) = self.held.as_ref().and_then(Option::as_ref) else { return Ok(()) };
        // Of each kind one token: what an event uses is not known.
        let tokens = CallUsage { input: 1, output: 1, ..CallUsage::default() };
        let subject = RequestAttributes { model, deployments, ..self.subject.clone() };
        let refusal = self.limits.state.load().unpriced(taken.asks(), &subject, &tokens, needs_model);
        refusal.map_or(Ok(()), |refusal| Err(self.limits.reject(&subject, taken.asks(), refusal)))
    }

    /// Whether it holds a place of limited concurrency and no usage is limited: then it ends with its client, so that the
    /// place is free again.
    pub fn is_slot_only(&self) -> bool {
        self.held.as_ref().and_then(Option::as_ref).is_some_and(|taken| {
            let has = |is_kind: fn(&CounterLimit) -> bool| taken.asks().iter().any(|ask| is_kind(&ask.counter));
            has(|counter| matches!(counter, CounterLimit::Slots { .. }))
                && !has(|counter| !matches!(counter, CounterLimit::Slots { .. } | CounterLimit::Requests { .. }))
        })
    }

    /// Ends the request and charges what deployments actually used: first the one that counts as the request, then those
    /// that were sent it besides. Returns at once; a shared store is updated in a background task.
    pub fn commit_all(mut self, usages: &[DeploymentUsage]) {
        self.finish(usages);
    }

    fn finish(&mut self, usages: &[DeploymentUsage]) {
        // Settled once: `Drop` runs after `commit_all` too.
        let Some(held) = self.held.take() else { return };
        let (limits, subject) = (&self.limits, &self.subject);
        let state = limits.state.load();
        let mut used = UsageAmount::default();
        for (i, usage) in usages.iter().enumerate() {
            let charge = state.prices.charge(subject, usage);
            // Requests are counted, of which further deployments are none.
            let sums = UsageSums::of(&usage.tokens, usage.is_estimated, charge.cost, u64::from(i == 0));
            limits.usage.record_usage(subject, usage, &sums);
            limits.record_spend(subject, usage, sums);
            used.tokens = used.tokens.saturating_add(usage.tokens.total());
            used.micros = used.micros.saturating_add(charge.micros);
        }
        let Some(taken) = held else { return };
        let costs: Vec<u64> = taken.asks().iter().map(|a| counter_cost(&a.counter, used)).collect();
        let alerts = limits.deps.alerts.as_ref().filter(|_| limits.alert_settings().is_active());
        let alerts = alerts.map(|sender| (Arc::clone(sender), Arc::clone(limits), subject.clone()));
        run_commit(async move {
            let asks = Arc::clone(taken.asks());
            if let Err(e) = taken.settle(&costs).await {
                tracing::warn!("limits: the usage of a request was not settled, its estimate is kept: {e}");
            } else if let Some((alerts, limits, subject)) = alerts {
                alerts.record(&limits, &asks, &subject, None);
            }
        });
    }
}

impl Drop for UsageReservation {
    fn drop(&mut self) {
        let tokens = self.estimated;
        self.finish(&[DeploymentUsage { tokens, is_estimated: true, ..DeploymentUsage::default() }]);
    }
}

const fn counter_cost(counter: &CounterLimit, used: UsageAmount) -> u64 {
    match counter {
        CounterLimit::Requests { .. } | CounterLimit::Slots { .. } => 1,
        CounterLimit::Tokens { .. } | CounterLimit::TokenBudget { .. } => used.tokens,
        CounterLimit::MoneyBudget { .. } => used.micros,
    }
}

#[cfg(test)]
mod tests;
