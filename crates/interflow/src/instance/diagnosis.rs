//! The checks of `interflow doctor` for this configuration, for the command and for the admin API.

use std::sync::Arc;

use interflow_admin::{DoctorFn, OperationId};
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{CheckedPorts, DoctorFinding, FindingState};

use interflow_limits::{KeyStore, RedisClient, RedisServer, budget_losses, redis_server};
use interflow_store::{InstanceRow, RecordStore};

use crate::components::{record_archive, record_store, separate_limits_warning};
use crate::instance::config::InterflowConfig;
use crate::instance::exposure;

pub fn findings(config: &InterflowConfig, home: &DataDir) -> Vec<DoctorFinding> {
    let bypassed = InstanceApi::for_instance(home).ok().flatten().and_then(|api| {
        let (method, path) = OperationId::ListBypassedClients.route();
        api.send(method, path, None).ok()
    });
    let mut findings = interflow_host::doctor::findings(&checked_ports(config, home), home, bypassed.as_ref());
    findings.extend(shared_store(config, home));
    findings.extend(embedded_retention(config, home));
    findings.extend(record_archive::finding(config, home));
    findings.extend(separate_limits(config, home));
    findings.extend(redis(config, home));
    findings
}

/// Whether the Redis server of the limits answers, and keeps budgets.
fn redis(config: &InterflowConfig, home: &DataDir) -> Vec<DoctorFinding> {
    let finding = |state, text| DoctorFinding { what: "Redis".into(), state, text };
    let info = match redis_server(&config.quota.shared, home.path()) {
        Ok(None) => return Vec::new(),
        Ok(Some(server)) => redis_info(&server),
        Err(e) => Err(e.to_string()),
    };
    let losses = match info {
        Ok(info) => budget_losses(&info),
        Err(e) => return vec![finding(FindingState::Bad, e)],
    };
    if losses.is_empty() {
        return vec![finding(FindingState::Good, "the server of the limits answers".into())];
    }
    let to_finding = |text| {
        finding(FindingState::Notice, format!("the server of the limits (quota.shared.redis) answers, but {text}"))
    };
    losses.into_iter().map(to_finding).collect()
}

fn redis_info(server: &RedisServer) -> Result<String, String> {
    let client = RedisClient::new(server, "the Redis server of the limits")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(client.info())
}

/// Whether the shared store answers, if one is configured, and what waits for it here.
fn shared_store(config: &InterflowConfig, home: &DataDir) -> Vec<DoctorFinding> {
    if config.record.store.is_none() {
        return Vec::new();
    }
    let finding = |state, text| DoctorFinding { what: "shared store".into(), state, text };
    let opened = record_store::open_read(config, home);
    let figures = opened.and_then(|store| {
        let figures = (store.stats()?, store.waiting_flows()?);
        let RecordStore::Shared(shared) = &store else { return Ok((figures, true, 0)) };
        Ok((figures, shared.has_text_index()?, shared.clock_ahead()? / 1000))
    });
    let ((stats, waiting), has_text_index, clock_ahead) = match figures {
        Ok(figures) => figures,
        Err(e) => return vec![finding(FindingState::Bad, e.to_string())],
    };
    if let Err(error) = record_store::try_objects(config) {
        return vec![finding(FindingState::Bad, error)];
    }
    let shared = stats.shared.unwrap_or_default();
    let retention = stats.retention_waits.map(|why| finding(FindingState::Notice, why));
    let mut findings = vec![match (shared.error, waiting) {
        (Some(error), _) => finding(FindingState::Bad, error),
        (None, 0) => finding(FindingState::Good, format!("{} answers", shared.address)),
        (None, n) => finding(FindingState::Notice, format!("{} answers; {n} flows wait here for it", shared.address)),
    }];
    if !has_text_index {
        let text = "parts of URLs are searched by reading all flows: the extension pg_trgm could not be made; an administrator \
                    of the database makes it (CREATE EXTENSION pg_trgm SCHEMA public) and the index (CREATE INDEX \
                    flows_url_trigrams ON flows USING gin(lower(url) gin_trgm_ops), with the search_path of the tables)";
        findings.push(finding(FindingState::Notice, text.into()));
    }
    if clock_ahead.abs() > InstanceRow::MAX_CLOCK_DIFFERENCE_MILLIS {
        let text = format!(
            "this machine's clock differs by {:+.1} s from that of the shared store: set it, for example by NTP",
            clock_ahead as f64 / 1000.0
        );
        findings.push(finding(FindingState::Bad, text));
    }
    findings.extend(retention);
    findings
}

/// Whether the recording on this machine keeps old flows because the clock has jumped.
fn embedded_retention(config: &InterflowConfig, home: &DataDir) -> Option<DoctorFinding> {
    if config.record.store.is_some() {
        return None;
    }
    // A recording that cannot be read is reported by those who read it.
    let stats = record_store::open_read(config, home).ok()?.stats().ok()?;
    let text = stats.retention_waits?;
    Some(DoctorFinding { what: "recording".into(), state: FindingState::Notice, text })
}

/// Whether limits hold for each replica by itself.
fn separate_limits(config: &InterflowConfig, home: &DataDir) -> Option<DoctorFinding> {
    // A file that cannot be read keeps the instance from starting, which says so.
    let keys = KeyStore::read(&home.join(&config.keys.file)).unwrap_or_default();
    let text = separate_limits_warning(config, &keys)?;
    Some(DoctorFinding { what: "limits".into(), state: FindingState::Notice, text })
}

pub fn for_admin(config: &InterflowConfig, home: &DataDir) -> DoctorFn {
    let (config, home) = (config.clone(), home.clone());
    Arc::new(move || findings(&config, &home).into_iter().map(api_finding).collect())
}

fn api_finding(DoctorFinding { what, state, text }: DoctorFinding) -> interflow_admin::DoctorFinding {
    let state = match state {
        FindingState::Good => interflow_admin::FindingState::Good,
        FindingState::Notice => interflow_admin::FindingState::Notice,
        FindingState::Bad => interflow_admin::FindingState::Bad,
    };
    interflow_admin::DoctorFinding { what, state, text }
}

fn checked_ports(config: &InterflowConfig, home: &DataDir) -> CheckedPorts {
    if let Some(instance) = home.running_instance() {
        let warnings = exposure::warnings(config, &instance.proxy, instance.admin);
        return CheckedPorts::Running { instance, warnings };
    }
    let engine = config.engine();
    let proxy = engine.proxy.listen.iter().map(|a| ("proxy", *a));
    let gateway = engine.gateway.listen.iter().map(|a| ("gateway", *a));
    let admin = config.admin.listen.iter().map(|a| ("admin", *a));
    let listen = proxy.chain(gateway).chain(admin).collect();
    CheckedPorts::Configured { listen, warnings: exposure::config_warnings(config) }
}

#[cfg(test)]
mod tests {
    use interflow_host::data_dir::InstanceInfo;

    use super::*;

    #[test]
    fn ports_of_the_running_instance_are_checked_instead_of_the_configured_ones() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut config = InterflowConfig::default();
        config.proxy.listen = vec!["127.0.0.1:1".parse().unwrap()];
        assert!(matches!(checked_ports(&config, &home), CheckedPorts::Configured { listen, .. }
            if listen[0] == ("proxy", config.proxy.listen[0])));
        let instance = InstanceInfo {
            pid: std::process::id(),
            proxy: vec![proxy.local_addr().unwrap()],
            gateway: None,
            admin: None,
            dns: None,
            restart_refused: None,
        };
        let _announced = home.write_instance_file(&instance).unwrap();
        assert!(matches!(checked_ports(&config, &home), CheckedPorts::Running { instance: found, .. }
            if found.proxy == instance.proxy));
    }
}
