//! The rules and secrets made at runtime: their files, and what a reload takes over from them.

use std::path::Path;
use std::sync::Arc;

use interflow_files::{FileAccess, write_atomic};

use super::config::ApprovalsConfig;
use super::rule_set::ApprovalRule;
use super::rules_file::{StoredRule, StoredRules, read_rules};
use super::secrets::{SecretVault, StoredSecret, VaultKey};
use super::{ApprovalState, Approvals, ApprovalsError};

impl Approvals {
    pub(super) fn save_rules(&self, state: &ApprovalState) -> Result<(), ApprovalsError> {
        let made: Vec<_> = state
            .made
            .iter()
            .map(|r| StoredRule { id: r.id.clone(), made: Some(r.made), rule: r.spec.clone() })
            .collect();
        let text =
            serde_json::to_vec_pretty(&StoredRules { rules: made }).map_err(|e| ApprovalsError::Io(e.to_string()))?;
        let path = self.home.join(&self.settings.load().file);
        write_atomic(&path, &text, FileAccess::Private)
            .map_err(|e| ApprovalsError::Io(format!("{}: {e}", path.display())))
    }

    pub(super) fn save_secrets(&self, state: &ApprovalState) -> Result<(), ApprovalsError> {
        let vault = SecretVault::new(self.home.join(&self.settings.load().secrets), self.vault_key.clone());
        vault.write(&state.kept).map_err(ApprovalsError::Io)
    }
}

pub(super) type StoredParts = (Vec<Arc<ApprovalRule>>, Vec<Arc<StoredSecret>>);

/// The rules and secrets that were made at runtime.
pub(super) fn read_files(config: &ApprovalsConfig, home: &Path, key: &VaultKey) -> Result<StoredParts, String> {
    let made = read_rules(&home.join(&config.file))?;
    let kept = SecretVault::new(home.join(&config.secrets), key.clone()).read()?;
    Ok((made, kept.into_iter().map(Arc::new).collect()))
}

impl ApprovalState {
    /// Takes over what the files have. What did not change keeps its counts.
    pub(super) fn replace_stored(&mut self, mut made: Vec<Arc<ApprovalRule>>, mut kept: Vec<Arc<StoredSecret>>) {
        for rule in &mut made {
            if let Some(known) = self.made.iter().find(|known| known.id == rule.id && known.spec == rule.spec) {
                *rule = Arc::clone(known);
            }
        }
        for secret in &mut kept {
            if let Some(known) = self.kept.iter().find(|known| known.is_same(secret)) {
                *secret = Arc::clone(known);
            }
        }
        (self.made, self.kept) = (made, kept);
    }
}
