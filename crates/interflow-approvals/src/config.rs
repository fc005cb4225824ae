//! The `[approvals]` section of the configuration, and the rule format shared by configuration, API and command line.

use std::path::PathBuf;

use interflow_types::schema::JsonSchema;
use interflow_types::units::HumanDuration;
use interflow_types::{config_sections, labelled_enum};
use serde::{Deserialize, Serialize};

config_sections! {
    /// Outbound access control: by rules, by asking an operator, or unrestricted.
    pub struct ApprovalsConfig {
        /// What happens to a flow that no rule decides.
        pub mode: ApprovalMode = ApprovalMode::Observe,
        /// How long a flow waits for a decision before it is denied.
        pub timeout: HumanDuration = HumanDuration::from_secs(30),
        /// Pending requests at one time; further ones are denied at once.
        pub max_held: usize = 1000,
        /// The file of rules created at runtime, relative to the data directory.
        pub file: PathBuf = "approvals.json".into(),
        /// The file of secrets for placeholders, encrypted, relative to the data directory.
        pub secrets: PathBuf = "secrets.json".into(),
        /// The key that this file is encrypted with, `env:NAME` or `file:PATH`: 32 bytes as hexadecimal digits or Base64.
        /// All instances that share the file need the same. If unset, one beside the file. Read at the start.
        pub secrets_key: Option<String>,
        /// A command that prints this key, such as the client of a key management service, with its arguments. Run once at
        /// the start, for 30 seconds at most.
        pub secrets_key_command: Vec<String>,
        /// Built-in rule sets for known agents, package registries and code hosts: `npm`, `pypi`, `claude-code`;
        /// `interflow approvals presets` lists them. They count as the operator's rules.
        pub presets: Vec<String>,
        /// Show a desktop notification when a decision is pending.
        pub notify: bool,
        /// The operator's rules. The most specific match decides; of two equally specific ones, the one that denies.
        pub rule: Vec<RuleSpec>,
    }
}

labelled_enum! {
    /// What happens to a flow that no rule decides, and whether rules are enforced.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum ApprovalMode {
        /// Nothing waits and nothing is denied; flows that a rule would deny are tagged.
        #[default]
        Observe "observe",
        /// It waits until an operator decides.
        Ask "ask",
        /// It is denied.
        Enforce "enforce",
    }
}

/// A rule's decision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ApprovalAction {
    /// The flow may proceed.
    Allow,
    /// The flow is denied.
    #[default]
    Deny,
}

/// A rule. Empty fields match everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RuleSpec {
    /// The decision.
    pub action: ApprovalAction,
    /// Host patterns: `example.com` (this name only), `*.example.com` (its subdomains only), `.example.com` (both),
    /// addresses, networks (`10.0.0.0/8`), each with an optional `:port`. None: every host; an `allow` rule without any other
    /// condition must say so with `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Ports and port ranges: `443`, `8000-8999`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Methods: `GET`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub methods: Vec<String>,
    /// Globs over the path without its query: `/repos/*`. Such a rule applies only to requests that can be inspected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Users of the proxy. In names of users, agents, processes, containers and sessions, `*` matches any characters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Agents: the name that a session declares, or else the client's user, container or process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<String>,
    /// Processes of clients on this machine, by the names of their executables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<String>,
    /// Docker or Podman containers of clients, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<String>,
    /// Agent sessions, by id.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sessions: Vec<String>,
    /// Expiry, as RFC 3339: `2027-01-31T12:00:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// A description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl RuleSpec {
    /// Whether the rule applies to every request of every client.
    pub(crate) fn has_no_condition(&self) -> bool {
        // A list with a pattern for everything is as good as none.
        let is_any = |pattern: &String| pattern.contains('*') && pattern.bytes().all(|b| matches!(b, b'/' | b'*'));
        let limits = |list: &Vec<String>| !list.is_empty() && !list.iter().any(is_any);
        let lists =
            [&self.hosts, &self.ports, &self.users, &self.agents, &self.processes, &self.containers, &self.sessions];
        lists.into_iter().all(Vec::is_empty) && !limits(&self.methods) && !limits(&self.paths)
    }

    pub fn new(action: ApprovalAction) -> Self {
        Self { action, ..Self::default() }
    }
}

/// The registration of a client session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SessionSpec {
    /// The session's id, generated if unset. An existing session with this id is replaced.
    pub id: Option<String>,
    /// The agent's name, for rules and display.
    pub agent: Option<String>,
    /// Flows of this proxy user belong to the session.
    pub user: Option<String>,
    /// Flows from this address or network belong to the session.
    pub client: Option<String>,
    /// Flows of this process id belong to the session.
    pub pid: Option<u32>,
    /// Flows of this process name belong to the session.
    pub process: Option<String>,
    /// How long the session lives without a heartbeat; default 15m, at most a day.
    pub ttl: Option<HumanDuration>,
    /// Rules that expire with the session.
    pub rules: Vec<RuleSpec>,
    /// Secrets that expire with the session.
    pub secrets: Vec<SecretSpec>,
}

/// A secret and its placeholder.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SecretSpec {
    /// Its unique label.
    pub label: String,
    pub value: String,
    /// The only origins that it is sent to: a host pattern, with scheme and port unless they are https
    /// and 443: `api.example.com`, `*.example.com:8443`, `http://10.0.0.7:8080`. For this machine the port is
    /// required: `127.0.0.1:3000`.
    pub hosts: Vec<String>,
    /// The placeholder, generated if unset: at least 16 characters that need no escaping.
    pub placeholder: Option<String>,
    /// Whether it may be sent without TLS to hosts given without a scheme; otherwise only to this machine.
    pub plain_http: bool,
}

impl std::fmt::Debug for SecretSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretSpec").field("label", &self.label).field("hosts", &self.hosts).finish_non_exhaustive()
    }
}
