//! The `[approvals]` section of the config, and the rule as people write it: there, through the API, on the command line.

use std::path::PathBuf;

use interflow_types::units::HumanDuration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What may be reached: by rules, by asking somebody, or by all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalsConfig {
    /// What happens to a flow that no rule decides.
    pub mode: ApprovalMode,
    /// How long a flow is held for an answer before it is denied.
    pub timeout: HumanDuration,
    /// Questions that may be open at the same time; more are denied at once.
    pub max_held: usize,
    /// Where rules made while running are kept; relative to the data folder.
    pub file: PathBuf,
    /// Where secrets for placeholders are kept, encrypted; relative to the data folder.
    pub secrets: PathBuf,
    /// Rules that come with Interflow for known agents, registries and hosts of code: `npm`, `pypi`, `claude-code`;
    /// `interflow approvals presets` lists them. They count as rules of the owner.
    pub presets: Vec<String>,
    /// Tell the desktop when somebody has to be asked.
    pub notify: bool,
    /// Rules of the owner. The most specific one decides, and of two alike the one that denies.
    pub rule: Vec<RuleSpec>,
}

impl Default for ApprovalsConfig {
    fn default() -> Self {
        Self {
            mode: ApprovalMode::Observe,
            timeout: HumanDuration::from_secs(30),
            max_held: 1000,
            file: "approvals.json".into(),
            secrets: "secrets.json".into(),
            presets: Vec::new(),
            notify: false,
            rule: Vec::new(),
        }
    }
}

/// What happens to a flow that no rule decides, and whether rules bind at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalMode {
    /// Nothing is held and nothing denied; what a rule would deny is marked.
    #[default]
    Observe,
    /// It is held until somebody decides.
    Ask,
    /// It is denied.
    Enforce,
}

impl ApprovalMode {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Observe => "observe",
            Self::Ask => "ask",
            Self::Enforce => "enforce",
        }
    }
}

/// What a rule says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalAction {
    /// It may pass.
    Allow,
    /// It may not.
    Deny,
}

/// A rule. What is empty matches everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// What it says.
    pub action: ApprovalAction,
    /// Hosts: names, globs (`*.example.com` matches names of any depth below), addresses, networks (`10.0.0.0/8`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Ports and ranges of them: `443`, `8000-8999`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Methods: `GET`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Globs over the path without its query: `/repos/*`. Such a rule only holds for requests that can be seen.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Users of the proxy. In names of users, agents, programs, containers and sessions, `*` stands for any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Agents: the name that a session gives itself; without one, the client's user, container or program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Programs of clients on this machine, by their file names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Docker or Podman containers of clients, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Sessions by their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// Until when it holds, as RFC 3339: `2027-01-31T12:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl RuleSpec {
    /// A rule that matches everything.
    pub const fn new(action: ApprovalAction) -> Self {
        Self {
            action,
            hosts: Vec::new(),
            ports: Vec::new(),
            methods: Vec::new(),
            paths: Vec::new(),
            users: Vec::new(),
            agents: Vec::new(),
            processes: Vec::new(),
            containers: Vec::new(),
            sessions: Vec::new(),
            until: None,
            note: None,
        }
    }
}

/// A client's session as it is announced.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSpec {
    /// Its id; one is made when it is not given. One that is there already is replaced.
    pub id: Option<String>,
    /// The agent's name, for rules and people.
    pub agent: Option<String>,
    /// Flows of this user of the proxy belong to it.
    pub user: Option<String>,
    /// Flows from this address or network belong to it.
    pub client: Option<String>,
    /// Flows of this process belong to it.
    pub pid: Option<u32>,
    /// Flows of this program belong to it.
    pub process: Option<String>,
    /// How long it lives without a heartbeat; 15m when not given, at most a day.
    pub ttl: Option<HumanDuration>,
    /// Rules that live as long as it does.
    pub rules: Vec<RuleSpec>,
    /// Secrets that live as long as it does.
    pub secrets: Vec<SecretSpec>,
}

/// A secret that a placeholder stands for.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SecretSpec {
    /// What people call it; unique.
    pub label: String,
    /// The secret.
    pub value: String,
    /// The only origins that it is sent to: a host (name, glob, address), with a scheme and a port where they are not https
    /// and 443: `api.example.com`, `*.example.com:8443`, `http://10.0.0.7:8080`. This machine needs the port:
    /// `127.0.0.1:3000`.
    pub hosts: Vec<String>,
    /// The text that stands for it; one is made when it is not given. At least 16 characters that need no escaping.
    pub placeholder: Option<String>,
    /// Whether it may go out without TLS to hosts that were written without a scheme; otherwise that is done to this machine
    /// only.
    pub plain_http: bool,
}

impl std::fmt::Debug for SecretSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretSpec").field("label", &self.label).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}
