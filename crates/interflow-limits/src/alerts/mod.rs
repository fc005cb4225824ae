//! Alerts by webhook when a budget reaches a part of its limit. Budgets are looked at after requests, never during them,
//! and each alert is sent once per budget and period: that is a counter, too, so it holds across restarts and replicas.

mod message;
mod webhook;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use interflow_files::resolve_secret_ref;
use interflow_types::{HttpClient, Timestamp, random_bytes};
use parking_lot::Mutex;

use crate::admission::UsageLimiter;
use crate::config::AlertsConfig;
use crate::counter_store::{CounterLimit, CounterRequest, CounterStore};
use crate::rules::RequestAttributes;
use message::BudgetAlert;
use webhook::Webhook;

/// How long changes of budgets are collected before they are looked at.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bound on budgets that wait to be looked at.
const MAX_PENDING: usize = 10_000;
/// Bound on alerts that are being posted, each for as long as its attempts last.
const MAX_POSTING: usize = 256;

/// Checked settings. The default sends nothing.
#[derive(Debug, Default)]
pub(crate) struct AlertSettings {
    webhooks: Vec<Arc<Webhook>>,
    thresholds: Vec<u8>,
}

impl AlertSettings {
    /// Whether there is anybody to alert.
    pub fn is_active(&self) -> bool {
        !self.webhooks.is_empty()
    }

    /// Resolves the references of a configuration.
    pub fn new(config: &AlertsConfig) -> Result<Self, String> {
        let mut thresholds = config.thresholds.clone();
        thresholds.sort_unstable();
        thresholds.dedup();
        let secret =
            config.secret.as_deref().map(resolve_secret_ref).transpose().map_err(|e| format!("secret: {e}"))?;
        if secret.as_ref().is_some_and(|secret| secret.trim().is_empty()) {
            return Err("secret: it is empty".into());
        }
        let secret: Option<Arc<str>> = secret.map(Into::into);
        let webhook = |(i, reference): (usize, &String)| {
            let wrong = |e: String| format!("webhooks[{i}]: {e}");
            let url = resolve_secret_ref(reference).map_err(wrong)?;
            Webhook::new(url.trim(), secret.clone()).map(Arc::new).map_err(wrong)
        };
        let webhooks = config.webhooks.iter().enumerate().map(webhook).collect::<Result<_, String>>()?;
        Ok(Self { webhooks, thresholds })
    }
}

/// What became of alerts since the start, counted by webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlertStats {
    pub sent: u64,
    /// Given up after several attempts.
    pub failed: u64,
    /// Not attempted, because too many were waiting.
    pub dropped: u64,
}

/// Looks at budgets after requests, and posts alerts.
pub struct AlertSender {
    client: Arc<dyn HttpClient>,
    /// Budgets that changed, by the names of their counters.
    pending: Mutex<HashMap<String, PendingCheck>>,
    is_scheduled: AtomicBool,
    /// Alerts that are known to be sent: they need not be looked up in the counter store again.
    sent: Mutex<HashSet<String>>,
    posting: AtomicUsize,
    counts: Mutex<AlertStats>,
}

#[derive(Clone, Debug)]
struct PendingCheck {
    budget: CounterRequest,
    /// Whether a request was rejected because of it.
    is_rejecting: bool,
    organisation: Option<Arc<str>>,
}

impl AlertSender {
    /// Posts with this client, which must not record.
    pub fn new(client: Arc<dyn HttpClient>) -> Arc<Self> {
        Arc::new(Self {
            client,
            pending: Mutex::default(),
            is_scheduled: AtomicBool::new(false),
            sent: Mutex::default(),
            posting: AtomicUsize::new(0),
            counts: Mutex::default(),
        })
    }

    pub fn stats(&self) -> AlertStats {
        *self.counts.lock()
    }

    /// Remembers the budgets of a request for the next look at them. `rejecting`: the one that rejected it.
    pub(crate) fn record(
        self: &Arc<Self>,
        limits: &Arc<UsageLimiter>,
        asks: &[CounterRequest],
        subject: &RequestAttributes,
        rejecting: Option<usize>,
    ) {
        if !limits.alert_settings().is_active() {
            return;
        }
        let budgets = asks.iter().enumerate().filter(|(_, ask)| ask.counter.period().is_some());
        let mut pending = self.pending.lock();
        for (i, budget) in budgets {
            let name = budget.name();
            if pending.len() >= MAX_PENDING && !pending.contains_key(&name) {
                self.counts.lock().dropped += 1;
                continue;
            }
            let organisation = (&*budget.rule == "team").then(|| subject.organisation().cloned()).flatten();
            let is_rejecting = rejecting == Some(i) || pending.get(&name).is_some_and(|before| before.is_rejecting);
            pending.insert(name, PendingCheck { budget: budget.clone(), is_rejecting, organisation });
        }
        if pending.is_empty() || self.is_scheduled.swap(true, Relaxed) {
            return;
        }
        drop(pending);
        // Without a runtime, as at shutdown, the next request looks at them.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            self.is_scheduled.store(false, Relaxed);
            return;
        };
        let (sender, limits) = (Arc::clone(self), Arc::clone(limits));
        runtime.spawn(async move {
            tokio::time::sleep(CHECK_INTERVAL).await;
            // Before the look, so that a budget that changes during it is looked at again.
            sender.is_scheduled.store(false, Relaxed);
            sender.check(&limits).await;
        });
    }

    /// Sends the alerts of the budgets that changed.
    async fn check(self: &Arc<Self>, limits: &UsageLimiter) {
        let pending: Vec<PendingCheck> = std::mem::take(&mut *self.pending.lock()).into_values().collect();
        let budgets: Vec<CounterRequest> = pending.iter().map(|check| check.budget.clone()).collect();
        let store = limits.counter_store();
        let levels = match store.read(&budgets).await {
            Ok(levels) => levels,
            Err(e) => return tracing::warn!("limits: budgets were not looked at for alerts: {e}"),
        };
        let settings = limits.alert_settings();
        for (check, level) in pending.into_iter().zip(levels) {
            // What requests in progress have reserved is mostly given back.
            let used = level.level - level.reserved;
            for &threshold in &settings.thresholds {
                let is_reached = used * 100.0 >= f64::from(threshold) * check.budget.counter.capacity()
                    || check.is_rejecting && threshold == 100;
                if is_reached && self.is_first(&*store, &check.budget, threshold).await {
                    self.post_to_all(&settings, &check, threshold, used);
                }
            }
        }
    }

    /// Whether this alert was not sent yet in the budget's period, by any process. It counts as sent from then on.
    async fn is_first(&self, store: &dyn CounterStore, budget: &CounterRequest, threshold: u8) -> bool {
        let Some(period) = budget.counter.period() else { return false };
        let (number, _) = period.period_at(Timestamp::now().micros() / 1_000_000);
        // A changed limit is another budget.
        let limit = budget.counter.capacity();
        let who = format!("{}:{}:{limit}:{}", budget.rule, budget.counter.as_str(), budget.who);
        let once = CounterRequest {
            rule: format!("alert-{threshold}").into(),
            who: who.into(),
            counter: CounterLimit::TokenBudget { max: 1, period },
            cost: 1,
            least: 1,
        };
        let name = format!("{number} {}", once.name());
        if self.sent.lock().contains(&name) {
            return false;
        }
        // Each has a lease of its own: a shared store admits a lease that it knows without counting it again.
        let lease = format!("alert-{:032x}", u128::from_ne_bytes(random_bytes()));
        let is_first = match store.take(&[once], &lease).await {
            Ok(taken) => taken.is_ok(),
            Err(e) => {
                tracing::warn!("limits: an alert could not be counted, and is not sent yet: {e}");
                return false;
            }
        };
        let mut sent = self.sent.lock();
        if sent.len() >= MAX_PENDING {
            sent.clear();
        }
        sent.insert(name);
        is_first
    }

    fn post_to_all(self: &Arc<Self>, settings: &AlertSettings, check: &PendingCheck, threshold: u8, used: f64) {
        let alert = BudgetAlert::new(check, threshold, used, Timestamp::now());
        tracing::warn!("{}", alert.text());
        let body = Bytes::from(alert.to_json());
        for webhook in &settings.webhooks {
            if self.posting.fetch_add(1, Relaxed) >= MAX_POSTING {
                self.posting.fetch_sub(1, Relaxed);
                self.counts.lock().dropped += 1;
                continue;
            }
            let (sender, webhook, body) = (Arc::clone(self), Arc::clone(webhook), body.clone());
            tokio::spawn(async move {
                match webhook.post(&*sender.client, &body).await {
                    Ok(()) => sender.counts.lock().sent += 1,
                    Err(e) => {
                        tracing::error!("limits: a budget alert was not delivered to {}: {e}", webhook.host());
                        sender.counts.lock().failed += 1;
                    }
                };
                sender.posting.fetch_sub(1, Relaxed);
            });
        }
    }
}

#[cfg(test)]
mod tests;
