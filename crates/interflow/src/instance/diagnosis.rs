//! The checks of `interflow doctor` for this configuration, for the command and for the admin API.

use std::sync::Arc;

use interflow_admin::{DoctorFn, OperationId};
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_host::doctor::{CheckedPorts, DoctorFinding, FindingState};

use interflow_limits::KeyStore;
use interflow_types::Timestamp;

use crate::components::{catalog, separate_limits_warning};
use crate::fleet;
use crate::instance::config::InterflowConfig;
use crate::instance::exposure;

pub fn findings(config: &InterflowConfig, home: &DataDir) -> Vec<DoctorFinding> {
    let bypassed = InstanceApi::for_instance(home).ok().flatten().and_then(|api| {
        let (method, path) = OperationId::ListBypassedClients.route();
        api.send(method, path, None).ok()
    });
    let mut findings = interflow_host::doctor::findings(&checked_ports(config, home), home, bypassed.as_ref());
    findings.extend(fleet::store_findings(config, home));
    findings.extend(embedded_retention(config, home));
    findings.extend(fleet::archive_finding(config, home));
    findings.extend(separate_limits(config, home));
    findings.extend(fleet::redis_findings(config, home));
    findings.push(model_catalog(config, home));
    findings
}

/// Whether the recording on this machine keeps old flows because the clock has jumped.
fn embedded_retention(config: &InterflowConfig, home: &DataDir) -> Option<DoctorFinding> {
    if config.record.store.is_some() {
        return None;
    }
    // A recording that cannot be read is reported by those who read it.
    let stats = fleet::read_store(config, home).ok()?.stats().ok()?;
    let text = stats.retention_waits?;
    Some(DoctorFinding { what: "recording".into(), state: FindingState::Notice, text })
}

/// How old the prices are. Only those that are fetched should be new.
fn model_catalog(config: &InterflowConfig, home: &DataDir) -> DoctorFinding {
    let week_ago = Timestamp::from_secs(Timestamp::now().secs().saturating_sub(7 * 86_400));
    let is_fetched = config.quota.catalog.url.is_some();
    let (state, text) = match catalog::load(&config.quota.catalog, home) {
        Err(e) => (FindingState::Bad, e),
        Ok(_) if is_fetched && interflow_models::current().header().as_of < interflow_models::day(week_ago) => {
            (FindingState::Notice, "more than a week old, though quota.catalog.url is set: see the log".to_owned())
        }
        Ok(_) => (FindingState::Good, if is_fetched { "fetched" } else { "built in" }.to_owned()),
    };
    let text = format!("catalog as of {}: {text}", interflow_models::current().header().as_of);
    DoctorFinding { what: "models".into(), state, text }
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
    Arc::new(move || findings(&config, &home).into_iter().map(|finding| api_finding(&home, finding)).collect())
}

fn api_finding(home: &DataDir, DoctorFinding { what, state, text }: DoctorFinding) -> interflow_admin::DoctorFinding {
    let state = match state {
        FindingState::Good => interflow_admin::FindingState::Good,
        FindingState::Notice => interflow_admin::FindingState::Notice,
        FindingState::Bad => interflow_admin::FindingState::Bad,
    };
    interflow_admin::DoctorFinding { what, state, text: home.in_commands(&text) }
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
    fn the_age_of_prices_is_told_and_matters_only_where_newer_ones_are_fetched() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let mut config = InterflowConfig::default();
        let finding = model_catalog(&config, &home);
        assert_eq!(finding.state, FindingState::Good);
        assert!(
            finding.text.starts_with("catalog as of 20") && finding.text.ends_with(": built in"),
            "{}",
            finding.text
        );
        config.quota.catalog.url = Some("https://mirror.test/".into());
        assert_eq!(model_catalog(&config, &home).state, FindingState::Bad, "it has no key");
    }

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
