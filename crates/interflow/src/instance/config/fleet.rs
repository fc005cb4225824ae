//! The `[fleet]` section: what replicas that use one shared store have in common.

use interflow_approvals::config::ApprovalsConfig;
use interflow_net::ca::machine_name;
use interflow_types::labelled_enum;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

/// Replicas that share a store (`record.store`), and the settings that they share with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(crate = "interflow_types::schema::schemars")]
#[serde(deny_unknown_fields, default)]
pub struct FleetConfig {
    /// The name of this replica, unique in the fleet. If unset, the name of the machine: in Kubernetes, that of the pod.
    pub name: Option<String>,
    /// Settings that all replicas share: a change at one of them takes effect at all. `secrets` needs
    /// `approvals.secrets_key` or `approvals.secrets_key_command`.
    pub share: Vec<SharedSetting>,
    /// Whether requests that wait for a decision are seen and decided at every replica. While they wait, their heads and
    /// short bodies are in the database.
    pub share_pending: bool,
}

impl Default for FleetConfig {
    fn default() -> Self {
        use SharedSetting::*;
        Self { name: None, share: vec![Approvals, Keys, Policy, Rules], share_pending: true }
    }
}

impl FleetConfig {
    /// # Errors
    /// Names the key that is wrong.
    pub fn check(&self, approvals: &ApprovalsConfig) -> Result<(), String> {
        let has_key = approvals.secrets_key.is_some() || !approvals.secrets_key_command.is_empty();
        if self.share.contains(&SharedSetting::Secrets) && !has_key {
            return Err(
                "fleet.share: `secrets` needs approvals.secrets_key or approvals.secrets_key_command, the same at \
                        every replica: without it, each encrypts with a key of its own"
                    .to_owned(),
            );
        }
        if self.name.as_deref().is_some_and(|name| name.trim().is_empty() || name.len() > 200) {
            return Err("fleet.name: a name has 1 to 200 characters".to_owned());
        }
        Ok(())
    }

    pub fn replica_name(&self) -> String {
        self.name.clone().unwrap_or_else(machine_name)
    }
}

labelled_enum! {
    /// A setting that replicas can share.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
    #[schemars(crate = "interflow_types::schema::schemars")]
    #[serde(rename_all = "lowercase")]
    pub enum SharedSetting {
        /// Approval rules made at runtime (`approvals.file`).
        Approvals "approvals",
        /// Virtual keys, teams and organisations (`keys.file`).
        Keys "keys",
        /// The redaction policy of the web UI (`policy.toml`).
        Policy "policy",
        /// The rules of the web UI (`rules.yaml`).
        Rules "rules",
        /// Secrets for placeholders, encrypted (`approvals.secrets`).
        Secrets "secrets",
    }
}
