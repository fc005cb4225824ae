//! Reports this process to the others that record to the shared store, every few seconds.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use interflow_admin::AdminState;
use interflow_proxy::ProxyServer;
use interflow_store::InstanceReport;
use interflow_types::Timestamp;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::task::AbortHandle;

use crate::components::record_store::RecordStore;
use crate::instance::config::InterflowConfig;
use crate::instance::exposure;

const INTERVAL: Duration = Duration::from_secs(5);
/// Bytes of the digest of a configuration that are shown.
const DIGEST_LEN: usize = 6;
/// Keys that differ between replicas of one configuration.
const OWN_KEYS: [(&str, &[&str]); 6] = [
    ("proxy", &["listen", "mdns_name"]),
    ("gateway", &["listen"]),
    ("admin", &["listen", "hosts"]),
    ("dns", &["listen"]),
    ("record", &["dir"]),
    ("fleet", &["name"]),
];

/// Ends when dropped.
pub struct Heartbeat(AbortHandle);

impl Drop for Heartbeat {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Heartbeat {
    /// `admin` is where the API listens, and what knows the configuration as reloads change it.
    pub fn start(
        store: &Arc<RecordStore>,
        engine: &Arc<ProxyServer>,
        admin: Option<(SocketAddr, Arc<AdminState>)>,
        config: &InterflowConfig,
    ) -> Self {
        let (store, engine) = (Arc::clone(store), Arc::clone(engine));
        let initial = serde_json::to_value(config).unwrap_or_default();
        let started = Timestamp::now();
        let (address, admin) = admin.unzip();
        let address = address.or_else(|| engine.proxy_addresses().first().copied());
        let task = tokio::spawn(async move {
            let mut is_warned = false;
            let mut ticks = tokio::time::interval(INTERVAL);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let figures = engine.snapshot();
                let report = InstanceReport {
                    version: env!("CARGO_PKG_VERSION").into(),
                    address: address.map(|a| exposure::for_others(a).to_string()).unwrap_or_default(),
                    config_digest: digest(
                        admin.as_ref().map_or_else(|| initial.clone(), |a| Value::clone(&a.config())),
                    ),
                    started,
                    open_flows: figures.active.max(0).unsigned_abs(),
                    connections: figures.connections_open,
                };
                let store = Arc::clone(&store);
                // A store that does not answer is reported by the shipper.
                let clock = tokio::task::spawn_blocking(move || {
                    store.report_instance(report)?;
                    store.instances()
                });
                let Ok(Ok(instances)) = clock.await else { continue };
                if let Some(own) = instances.iter().find(|i| i.own && i.has_wrong_clock()).filter(|_| !is_warned) {
                    is_warned = true;
                    tracing::warn!(
                        "this machine's clock differs by {:+.1} s from that of the shared store: flows are listed, found and \
                         deleted by wrong times; set it, for example by NTP",
                        own.clock_ahead_millis as f64 / 1000.0
                    );
                }
            }
        });
        Self(task.abort_handle())
    }
}

/// Equal for replicas with the same configuration, whatever addresses and folders each of them has.
fn digest(mut config: Value) -> String {
    for (section, keys) in OWN_KEYS {
        if let Some(section) = config.get_mut(section).and_then(Value::as_object_mut) {
            keys.iter().for_each(|key| drop(section.remove(*key)));
        }
    }
    hex::encode(&Sha256::digest(config.to_string())[..DIGEST_LEN])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn digests_differ_by_what_is_configured_and_not_by_where() {
        let config = |port: u16, age: &str| {
            json!({"proxy": {"listen": [format!("127.0.0.1:{port}")]}, "record": {"dir": port.to_string(), "retention_age": age},
            "admin": {"hosts": [format!("replica-{port}.pods")]}, "fleet": {"name": format!("replica-{port}")}})
        };
        assert_eq!(digest(config(1, "7d")), digest(config(2, "7d")));
        assert_ne!(digest(config(1, "7d")), digest(config(1, "8d")));
        assert_eq!(digest(json!({})).len(), 2 * DIGEST_LEN);
    }
}
