//! The checks of `interflow doctor` for what goes beyond this machine.

use interflow_fleet::RedisClient;
use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{DoctorFinding, FindingState};
use interflow_limits::{RedisServer, budget_losses, redis_server};
use interflow_store::{FlowStore as _, InstanceRow, Result};

use crate::components::record_store::RecordStore;
use crate::fleet::access::{read_store, try_objects};
use crate::instance::config::InterflowConfig;

/// Whether the Redis server of the limits answers, and keeps budgets.
pub fn redis_findings(config: &InterflowConfig, home: &DataDir) -> Vec<DoctorFinding> {
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

fn redis_info(server: &RedisServer) -> std::result::Result<String, String> {
    let client = RedisClient::new(server, "the Redis server of the limits")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
    runtime.block_on(client.info())
}

/// Whether the shared store answers, if one is configured, and what waits for it here.
pub fn store_findings(config: &InterflowConfig, home: &DataDir) -> Vec<DoctorFinding> {
    if config.record.store.is_none() {
        return Vec::new();
    }
    let finding = |state, text| DoctorFinding { what: "shared store".into(), state, text };
    let figures = || -> Result<_> {
        let RecordStore::Shared(store) = read_store(config, home)? else { return Ok(None) };
        Ok(Some((store.stats()?, store.waiting_flows()?, store.has_text_index()?, store.clock_ahead()? / 1000)))
    };
    let (stats, waiting, has_text_index, clock_ahead) = match figures() {
        Ok(Some(figures)) => figures,
        Ok(None) => return Vec::new(),
        Err(e) => return vec![finding(FindingState::Bad, e.to_string())],
    };
    if let Err(error) = try_objects(config) {
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
