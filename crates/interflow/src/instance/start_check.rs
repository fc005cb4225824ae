//! Whether an instance could start: opens what a start opens. For `interflow config check`, and for the installed binary
//! that is to take over from a running instance.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use interflow_admin::check_access;
use interflow_archive::view::ProtoSchemas;
use interflow_files::resolve_secret_ref;
use interflow_host::data_dir::DataDir;
use interflow_llm_gateway::gateway::{LlmGateway, check_provider_names, check_redact_routes};
use interflow_net::ca::CertificateAuthority;
use interflow_proxy::config::InterceptConfig;
use interflow_types::secret_names::mask_urls;

use crate::components::{ComponentDeps, ComponentSet};
use crate::instance::config::InterflowConfig;
use crate::instance::log;
use crate::{CliError, Result, fleet};

/// A mistake that is found after parsing, with the key that it is about.
pub struct ConfigMistake {
    pub key: String,
    pub what: String,
}

impl From<String> for ConfigMistake {
    fn from(what: String) -> Self {
        Self { key: what.split(':').next().unwrap_or_default().to_owned(), what: mask_urls(&what) }
    }
}

/// Checks the values of a configuration, and the files that the proxy reads.
///
/// # Errors
/// It is invalid.
pub fn check_values(config: &InterflowConfig) -> Result<(), ConfigMistake> {
    let engine = config.engine();
    interflow_proxy::check(&engine)
        .and_then(|()| interflow_proxy::check_listeners(&engine, config.admin.listen))
        .map_err(|e| ConfigMistake { key: e.place.clone(), what: mask_urls(&e.to_string()) })?;
    #[cfg(feature = "media")]
    config.media.check().and_then(|()| crate::components::media::check_path(config))?;
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
    check_record_dir(&record_dir, &home)?;
    schemas(config, &home).map_err(|e| e.to_string())?;
    // Some components expect to be made within a runtime.
    let runtime = crate::runtime()?;
    let _inside = runtime.enter();
    ComponentSet::new(config, &home, &ComponentDeps::default()).map_err(|e| e.to_string())?;
    Ok(())
}

/// The schemas of gRPC messages that the configuration names.
///
/// # Errors
/// A file cannot be read.
pub fn schemas(config: &InterflowConfig, home: &DataDir) -> Result<ProtoSchemas> {
    let paths: Vec<PathBuf> = config.record.schemas.iter().map(|p| home.join(p)).collect();
    ProtoSchemas::load(&paths).map_err(|e| CliError::Failed(format!("record.schemas: {e}")))
}

/// The address that multicast DNS announces, of those that the proxy listens on.
///
/// # Errors
/// Other machines can reach none.
pub fn check_mdns(config: &InterflowConfig, listen: &[SocketAddr]) -> Result<Option<SocketAddr>, String> {
    if config.proxy.mdns_name.is_none() {
        return Ok(None);
    }
    let reached = listen.iter().find(|a| a.is_ipv4() && !a.ip().is_loopback());
    let what = "proxy.mdns_name: the proxy listens on no address that other machines can reach; for example, set proxy.listen to 0.0.0.0:7070";
    reached.copied().map(Some).ok_or_else(|| what.to_owned())
}

fn check_record_dir(dir: &Path, home: &DataDir) -> Result<(), String> {
    if dir.exists() {
        return dir.is_dir().then_some(()).ok_or(format!("record.dir: {} is not a directory", dir.display()));
    }
    // The data directory may be on a machine that only checks.
    let Some(parent) = dir.ancestors().find(|path| path.exists()).filter(|_| !dir.starts_with(home.path())) else {
        return Ok(());
    };
    let probe = parent.join(format!(".write-check-{}", std::process::id()));
    let made = std::fs::create_dir(&probe).and_then(|()| std::fs::remove_dir(&probe));
    made.map_err(|e| format!("record.dir: {} cannot be created: {e}", dir.display()))
}

/// The certificate and key of the configured CA, if there is one, and where they are from.
pub fn configured_ca(config: &InterceptConfig) -> Result<Option<(String, String, String)>, String> {
    let (Some(certificate), Some(key)) = (&config.ca_certificate, &config.ca_key) else { return Ok(None) };
    let read = |key: &str, text: &str| resolve_secret_ref(text).map_err(|e| format!("{key}: {e}"));
    let source = format!("{certificate} (intercept.ca_certificate, intercept.ca_key)");
    let (certificate, key) = (read("intercept.ca_certificate", certificate)?, read("intercept.ca_key", key)?);
    Ok(Some((certificate, key, source)))
}

fn check_ca(config: &InterflowConfig, home: &DataDir) -> Result<(), String> {
    let Some((certificate, key, source)) = configured_ca(&config.intercept)? else {
        return CertificateAuthority::check(&home.ca()).map_err(|e| e.to_string());
    };
    CertificateAuthority::check_pair(&certificate, &key, &source).map_err(|e| e.to_string())
}
