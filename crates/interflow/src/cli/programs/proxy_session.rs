//! Runs a program behind the running instance, or behind a private one for its duration: `exec` and `browser`.

use std::net::SocketAddr;
use std::str::FromStr;

use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::exec::{ExecTraffic, ProxyLogin, print_summary};
use interflow_redact::{RedactConfig, RedactMode};
use interflow_store::{FlowStore, SqliteStore};
use interflow_types::Timestamp;
use serde_json::{Value, json};

use super::exec_choice::CHOICE_FILE;
use crate::cli::flows::open_for_reading;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::members;
use crate::instance::config::{InterflowConfig, LoadedConfig};
use crate::instance::{log, run};
use crate::{CliError, Result};

/// How a program runs behind the proxy.
pub struct ProxySession<'a> {
    /// Use an instance of its own even if one is running.
    pub private: bool,
    /// Why all prompts are redacted, if they are.
    pub redact: Option<RedactionCause>,
    pub insecure_upstream: bool,
    /// Print no summary.
    pub quiet: bool,
    /// User name of the program's flows.
    pub user: &'a str,
    /// The program cannot run without credentials. Otherwise a private instance issues none: all its flows are the
    /// program's.
    pub needs_login: bool,
    /// Stored secrets whose placeholders the program gets.
    pub secrets: &'a [SecretVariable],
}

/// What demands that all prompts of a program are redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedactionCause {
    /// `--redact`.
    Option,
    /// The choice made at the first `exec` of an agent.
    Choice,
}

/// The proxy that a program is to use.
pub struct ProxyAccess<'a> {
    /// At least one.
    pub addresses: Vec<SocketAddr>,
    pub login: Option<&'a ProxyLogin>,
    /// Environment variables with the placeholders of the secrets.
    pub variables: Vec<(String, String)>,
}

impl ProxySession<'_> {
    /// Runs the program; its exit code becomes that of this process.
    pub fn run(
        &self,
        loaded: LoadedConfig,
        home: &DataDir,
        program: impl AsyncFnOnce(ProxyAccess<'_>) -> Result<u8>,
    ) -> Result<()> {
        let mut config = loaded.config;
        // Keep stdout and stderr clean for the program's own output.
        if config.log.level == "info" {
            config.log.level = "warn".into();
        }
        log::start(&config.log)?;
        let runtime = crate::runtime()?;
        let code = runtime.block_on(async {
            match home.running_instance() {
                Some(instance) if !self.private => self.with_instance(home, &instance, &config, program).await,
                _ => self.with_private_instance(config, home, program).await,
            }
        })?;
        if code == 0 { Ok(()) } else { Err(CliError::Child(code)) }
    }

    async fn with_private_instance(
        &self,
        mut config: InterflowConfig,
        home: &DataDir,
        program: impl AsyncFnOnce(ProxyAccess<'_>) -> Result<u8>,
    ) -> Result<u8> {
        config.make_private();
        // All clients belong to the program: certificate rejections are reported in the summary, never bypassed.
        config.intercept.pinning_failures = 0;
        if self.redact.is_some() {
            redact_everything(&mut config.redact);
        }
        config.upstream.danger_insecure |= self.insecure_upstream;
        let mut aside = None;
        let mut started = run::start(&config, home).await;
        // A store has a single writer: the running instance or another program's.
        if started.is_err() && SqliteStore::has_writer(&home.join(&config.record.dir)) {
            config.record.dir = format!("record-exec-{}", std::process::id()).into();
            aside = Some(home.join(&config.record.dir));
            started = run::start(&config, home).await;
        }
        let running = started?;
        let addresses = running.engine.proxy_addresses();
        let login = self
            .needs_login
            .then(|| ProxyLogin { user: self.user.to_owned(), password: running.engine.issue_credential(self.user) });
        let stored = running.components.approvals.approvals.secrets();
        let stored: Vec<_> = stored.iter().map(|s| (s.label.as_str(), s.placeholder.as_str())).collect();
        let began = Timestamp::now();
        // An error must not leave the store open.
        let code = match secret_variables(self.secrets, &stored) {
            Ok(variables) => program(ProxyAccess { addresses, login: login.as_ref(), variables }).await,
            Err(e) => Err(e),
        };
        running.engine.stop().await;
        let mut flows = 0;
        let store = running.store.as_ref();
        let mut traffic = ExecTraffic { began, user: None, aside: aside.as_deref(), suspended: None };
        if let Some(store) = store {
            let _ = store.flush();
            let stats = store.stats().ok();
            flows = stats.as_ref().map_or(1, |s| s.flows);
            traffic.suspended = stats.and_then(|s| s.suspended);
        }
        if code.is_ok() {
            self.summarise(store.map(|store| &***store as _), &traffic);
        }
        drop(running);
        if let Some(empty) = aside.filter(|_| flows == 0) {
            let _ = std::fs::remove_dir_all(empty);
        }
        code
    }

    async fn with_instance(
        &self,
        home: &DataDir,
        instance: &InstanceInfo,
        config: &InterflowConfig,
        program: impl AsyncFnOnce(ProxyAccess<'_>) -> Result<u8>,
    ) -> Result<u8> {
        let without_login = |e: CliError| {
            interflow_host::errln!("interflow: running the command without proxy credentials: {e}");
        };
        let needs_api = self.needs_login || self.redact.is_some() || !self.secrets.is_empty();
        let api = match InstanceApi::for_instance(home) {
            Err(e) if needs_api => return Err(e),
            connected => connected.map_err(without_login).ok().flatten(),
        };
        if let Some(cause) = self.redact {
            require_redaction(api.as_ref(), home, instance, cause)?;
        }
        let variables = self.placeholders(api.as_ref(), instance)?;
        let began = Timestamp::now();
        let credential = match api.as_ref().map_or(Ok(None), |api| ProgramCredential::issue(api, self.user)) {
            Ok(None) if self.needs_login => {
                return Err(CliError::Failed(format!(
                    "the running instance (process {}) has no admin port to get credentials from: add --private",
                    instance.pid
                )));
            }
            Err(e) if self.needs_login => return Err(e),
            issued => issued.map_err(without_login).ok().flatten(),
        };
        if instance.proxy.is_empty() {
            return Err("the running instance has no proxy port: set proxy.listen, or add --private".to_owned().into());
        }
        let login = credential.as_ref().map(|credential| &credential.login);
        let code = program(ProxyAccess { addresses: instance.proxy.clone(), login, variables }).await?;
        // Flows of other clients are not the command's.
        let user = login.map(|_| self.user);
        drop(credential);
        // Waits until the other process has written the last flows.
        if let Ok(store) = config.record.enabled.then(|| open_for_reading(config, home)).transpose() {
            let stats = api.as_ref().and_then(|api| api.call(&OperationId::Stats.call()).ok()).unwrap_or_default();
            let suspended = stats["store"]["suspended"].as_str().map(str::to_owned);
            let traffic = ExecTraffic { began, user, aside: None, suspended };
            self.summarise(store.as_ref().map(|store| &**store as _), &traffic);
        }
        Ok(code)
    }

    /// The variables of the secrets that the running instance stores.
    fn placeholders(&self, api: Option<&InstanceApi>, instance: &InstanceInfo) -> Result<Vec<(String, String)>> {
        if self.secrets.is_empty() {
            return Ok(Vec::new());
        }
        let api = api.ok_or_else(|| {
            format!("--secret: the running instance (process {}) has no admin port to ask: add --private", instance.pid)
        })?;
        let answer = api.call(&OperationId::ListSecrets.call())?;
        let stored: Vec<_> = members(&answer, "secrets")
            .map(|s| (s["label"].as_str().unwrap_or_default(), s["placeholder"].as_str().unwrap_or_default()))
            .collect();
        secret_variables(self.secrets, &stored)
    }

    fn summarise(&self, store: Option<&dyn FlowStore>, traffic: &ExecTraffic<'_>) {
        if !self.quiet {
            print_summary(store, traffic, &crate::command());
        }
    }
}

/// Temporary credentials for a program, issued by the running instance and revoked when dropped.
struct ProgramCredential<'a> {
    api: &'a InstanceApi,
    login: ProxyLogin,
}

impl<'a> ProgramCredential<'a> {
    fn issue(api: &'a InstanceApi, user: &str) -> Result<Option<Self>> {
        let issued = api.call(&OperationId::IssueCredential.call().body(json!({ "user": user })))?;
        let login = |p: &str| ProxyLogin { user: user.to_owned(), password: p.to_owned() };
        Ok(issued["password"].as_str().map(|p| Self { api, login: login(p) }))
    }
}

impl Drop for ProgramCredential<'_> {
    fn drop(&mut self) {
        let ProxyLogin { user, password } = &self.login;
        let revoke = OperationId::RevokeCredential.call().body(json!({ "user": user, "password": password }));
        // If the instance has stopped, the credentials are gone.
        let _ = self.api.call(&revoke);
    }
}

/// A stored secret whose placeholder becomes an environment variable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretVariable {
    variable: String,
    label: String,
}

impl FromStr for SecretVariable {
    type Err = String;

    /// `VARIABLE=LABEL`, or a label that is a variable's name too.
    fn from_str(text: &str) -> Result<Self, String> {
        let (variable, label) = text.split_once('=').unwrap_or((text, text));
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if variable.is_empty() || !variable.chars().all(word) || variable.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("{variable:?} is not the name of an environment variable; write VARIABLE={label}"));
        }
        Ok(Self { variable: variable.to_owned(), label: label.to_owned() })
    }
}

/// The variables of secrets, which are stored as labels with placeholders.
fn secret_variables(wanted: &[SecretVariable], stored: &[(&str, &str)]) -> Result<Vec<(String, String)>> {
    let variable = |w: &SecretVariable| match stored.iter().find(|(label, _)| *label == w.label) {
        Some((_, placeholder)) => Ok((w.variable.clone(), (*placeholder).to_owned())),
        None => Err(CliError::Usage(format!(
            "--secret: no secret has the label {:?}; `interflow secrets list` shows them, `interflow secrets add` stores one",
            w.label
        ))),
    };
    wanted.iter().map(variable).collect()
}

/// Redacts all proxied requests. Exceptions keep their policies, but none may exclude requests.
fn redact_everything(config: &mut RedactConfig) {
    config.proxied = RedactMode::Redact;
    for route in &mut config.route {
        route.mode = route.mode.map(|_| RedactMode::Redact);
    }
}

/// Checks that a running instance redacts every proxied request. It cannot be changed for one command alone: clients that
/// send no credentials cannot be told from those of other programs, and their requests would leave unredacted.
fn require_redaction(
    api: Option<&InstanceApi>,
    home: &DataDir,
    instance: &InstanceInfo,
    cause: RedactionCause,
) -> Result<()> {
    if redacts_proxied(&active_policies(api)?) {
        return Ok(());
    }
    let cause = match cause {
        RedactionCause::Option => "--redact".to_owned(),
        RedactionCause::Choice => {
            format!(
                "prompts are redacted by the choice in {} (--flag-only overrides it)",
                home.join(CHOICE_FILE).display()
            )
        }
    };
    Err(CliError::Usage(format!(
        "{cause}: the running instance (process {}) does not redact all proxied LLM requests, and cannot do so for one \
         command alone; add --private to run the command behind an instance of its own, or set redact.proxied = \
         \"redact\" in the configuration of the running one",
        instance.pid
    )))
}

/// Whether an instance runs that redacts every proxied request.
pub fn instance_redacts(home: &DataDir) -> bool {
    let active = InstanceApi::for_instance(home).and_then(|api| active_policies(api.as_ref()));
    active.is_ok_and(|active| redacts_proxied(&active))
}

/// The routes of the running instance; null if it has no admin port.
fn active_policies(api: Option<&InstanceApi>) -> Result<Value> {
    api.map_or(Ok(Value::Null), |api| api.call(&OperationId::ListPolicies.call()))
}

/// Whether the routes of `GET /privacy/policies` redact every proxied request.
fn redacts_proxied(active: &Value) -> bool {
    let routes = active["routes"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_redact = |route: &Value| route["mode"] == "redact";
    let proxied = |route: &&Value| route["exception"].is_null() && route["name"] != "gateway";
    let exceptions = routes.iter().filter(|r| !r["exception"].is_null());
    routes.iter().find(proxied).is_some_and(is_redact)
        && exceptions.clone().all(|r| r["mode"].is_null() || is_redact(r))
}

#[cfg(test)]
mod tests {
    use interflow_redact::RedactRoute;
    use serde_json::json;

    use super::*;

    #[test]
    fn no_exception_excludes_requests_of_a_command_that_is_redacted() {
        let route = |mode| RedactRoute { mode, ..RedactRoute::default() };
        let mut config = RedactConfig {
            route: vec![route(Some(RedactMode::Off)), route(Some(RedactMode::Flag)), route(None)],
            ..RedactConfig::default()
        };
        redact_everything(&mut config);
        assert_eq!(config.proxied, RedactMode::Redact);
        let modes: Vec<_> = config.route.iter().map(|r| r.mode).collect();
        assert_eq!(modes, [Some(RedactMode::Redact), Some(RedactMode::Redact), None]);
    }

    #[test]
    fn secrets_become_variables() {
        let stored = [("github", "INTERFLOW_1"), ("TOKEN", "INTERFLOW_2")];
        let variables = |words: &[&str]| {
            let wanted: Vec<SecretVariable> = words.iter().map(|w| w.parse().unwrap()).collect();
            secret_variables(&wanted, &stored)
        };
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let both = variables(&["GH_TOKEN=github", "TOKEN"]).unwrap();
        assert_eq!(both, [pair("GH_TOKEN", "INTERFLOW_1"), pair("TOKEN", "INTERFLOW_2")]);
        let missing = variables(&["GITLAB"]).unwrap_err().to_string();
        assert!(missing.contains("\"GITLAB\"") && missing.contains("interflow secrets add"), "{missing}");
        for bad in ["my-key", "=github", "1A=github", ""] {
            assert!(bad.parse::<SecretVariable>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_instance_redacts_only_if_no_route_may_exclude_a_proxied_request() {
        let routes = |proxied: &str, exception: Value| {
            json!({"routes": [
                {"name": "intercepted", "mode": "off", "exception": {"path": "/v1"}}, {"name": "gateway", "mode": "off"},
                {"name": "intercepted", "mode": proxied, "exception": null}, exception,
            ]})
        };
        let harmless = json!({"name": "route 2", "mode": null, "exception": {"path": "/x"}});
        let mut active = routes("redact", harmless.clone());
        assert!(!redacts_proxied(&active), "an exception excludes requests");
        active["routes"].as_array_mut().unwrap().remove(0);
        assert!(redacts_proxied(&active));
        let mut flagged = routes("flag", harmless);
        flagged["routes"].as_array_mut().unwrap().remove(0);
        assert!(!redacts_proxied(&flagged));
        assert!(!redacts_proxied(&Value::Null), "without an admin port nothing is known");
    }
}
