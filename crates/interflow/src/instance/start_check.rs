//! Whether an instance could start: opens what a start opens. For `interflow config check`, and for the installed binary
//! that is to take over from a running instance.

use interflow_admin::check_access;
use interflow_host::data_dir::DataDir;
use interflow_llm_gateway::gateway::{LlmGateway, check_provider_names, check_redact_routes};
use interflow_net::ca::CertificateAuthority;

use crate::components::{ComponentDeps, ComponentSet};
use crate::fleet;
use crate::instance::config::InterflowConfig;
use crate::instance::{log, run};

/// A mistake that is found after parsing, with the key that it is about.
pub struct ConfigMistake {
    pub key: String,
    pub what: String,
}

impl From<String> for ConfigMistake {
    fn from(what: String) -> Self {
        Self { key: what.split(':').next().unwrap_or_default().to_owned(), what }
    }
}

/// Checks the values of a configuration, and the files that the proxy reads.
///
/// # Errors
/// It is invalid.
pub fn check_values(config: &InterflowConfig) -> Result<(), ConfigMistake> {
    interflow_proxy::check(&config.engine())
        .map_err(|e| ConfigMistake { key: e.place.clone(), what: e.to_string() })?;
    #[cfg(feature = "media")]
    config.media.check().map_err(|e| e.to_string())?;
    log::check(&config.log)?;
    config.quota.check()?;
    config.mcp.check()?;
    config.fleet.check(&config.approvals)?;
    config.admin.oidc.iter().try_for_each(|oidc| oidc.check())?;
    fleet::check(config)?;
    // A secret may be missing here that is there where it runs.
    LlmGateway::compile(&config.llm, &|text| Ok(text.to_owned())).map_err(|e| e.to_string())?;
    check_redact_routes(&config.redact, &config.llm)?;
    check_provider_names(&config.quota.rule, &config.llm)?;
    Ok(())
}

/// Opens what a start with this configuration opens, but for ports, the recording, and what is behind a network. Nothing
/// is changed, and nothing is locked.
///
/// # Errors
/// The first thing that keeps an instance from starting.
pub fn check(config: &InterflowConfig, home: &DataDir) -> Result<(), ConfigMistake> {
    check_values(config)?;
    let home = home.read_only();
    check_ca(config, &home)?;
    let is_shared = fleet::shared_address(config).map_err(|e| e.to_string())?.is_some();
    home.admin_token()?;
    if config.admin.listen.is_some() {
        check_access(&config.admin, home.path(), is_shared)?;
    }
    let record_dir = home.join(&config.record.dir);
    if record_dir.exists() && !record_dir.is_dir() {
        return Err(format!("record.dir: {} is not a directory", record_dir.display()).into());
    }
    run::schemas(config, &home).map_err(|e| e.to_string())?;
    // Some components expect to be made within a runtime.
    let runtime = crate::runtime()?;
    let _inside = runtime.enter();
    ComponentSet::new(config, &home, &ComponentDeps::default()).map_err(|e| e.to_string())?;
    Ok(())
}

fn check_ca(config: &InterflowConfig, home: &DataDir) -> Result<(), String> {
    let Some((certificate, key, source)) = run::configured_ca(&config.intercept)? else {
        return CertificateAuthority::check(&home.ca()).map_err(|e| e.to_string());
    };
    CertificateAuthority::check_pair(&certificate, &key, &source).map_err(|e| e.to_string())
}
