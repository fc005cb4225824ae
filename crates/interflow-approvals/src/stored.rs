//! The rules and secrets made at runtime: their files, and what a reload takes over from them.

use std::path::Path;
use std::sync::Arc;

use interflow_files::{EditError, EditTurn, EditedFile, FileAccess};
use serde::{Deserialize, Serialize};

use super::clock::now;
use super::config::{ApprovalsConfig, RuleSpec};
use super::optional_file::read_optional;
use super::rule_set::{ApprovalRule, RuleSource};
use super::secrets::{SecretVault, StoredSecret, VaultKey};
use super::{ApprovalState, Approvals, ApprovalsError, Result};

impl Approvals {
    /// Runs a change of what is stored on a blocking thread: it may wait for another process, and for the disk.
    ///
    /// # Errors
    /// Those of the change.
    pub async fn edit<T: Send + 'static>(
        self: &Arc<Self>,
        change: impl FnOnce(&Self, &EditTurn) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let this = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || change(&this, &EditTurn::unlimited())).await;
        done.unwrap_or_else(|e| Err(ApprovalsError::Io(format!("the change was not finished: {e}"))))
    }

    /// Changes the rules that the file has by now: it may have rules of another replica that no reload has taken over yet.
    pub(super) fn edit_rules<T>(
        &self,
        turn: &EditTurn,
        edit: impl FnOnce(&mut Vec<Arc<ApprovalRule>>) -> Result<T>,
    ) -> Result<T> {
        let path = self.home.join(&self.settings.load().file);
        let _alone = self.editing.lock();
        let check = |text: &str| parse_rules(&path, Some(text)).map_err(ApprovalsError::Io);
        let activate = |mut rules: Vec<Arc<ApprovalRule>>| {
            let mut state = self.state.lock();
            keep_unchanged(&mut rules, &state.made, ApprovalRule::is_same);
            state.made = rules;
            self.publish_change(state);
            Ok(())
        };
        let file = EditedFile::new(&path, FileAccess::Private, check, activate);
        let changed = file.edit(turn, |text| {
            let mut rules = parse_rules(&path, text).map_err(ApprovalsError::Io)?;
            let result = edit(&mut rules)?;
            let rules = rules.iter().map(|r| StoredRule { id: r.id.clone(), made: Some(r.made), rule: r.spec.clone() });
            let text = serde_json::to_string_pretty(&StoredRules { rules: rules.collect() });
            Ok((result, Some(text.map_err(|e| ApprovalsError::Io(e.to_string()))?)))
        });
        changed.map_err(|e| file_error(&path, e))
    }

    /// Changes the secrets that the file has by now, as [`edit_rules`](Self::edit_rules) does the rules.
    pub(super) fn edit_secrets<T>(
        &self,
        turn: &EditTurn,
        edit: impl FnOnce(&ApprovalState, &mut Vec<Arc<StoredSecret>>) -> Result<T>,
    ) -> Result<T> {
        let vault = SecretVault::new(self.home.join(&self.settings.load().secrets), self.vault_key.clone());
        let _alone = self.editing.lock();
        let parse = |text: Option<&str>| -> Result<Vec<_>, _> {
            Ok(vault.parse(text).map_err(ApprovalsError::Io)?.into_iter().map(Arc::new).collect())
        };
        let activate = |mut secrets: Vec<Arc<StoredSecret>>| {
            let mut state = self.state.lock();
            keep_unchanged(&mut secrets, &state.secrets, StoredSecret::is_same);
            state.secrets = secrets;
            self.publish_change(state);
            Ok(())
        };
        let check = |text: &str| parse(Some(text));
        let file = EditedFile::new(vault.path(), FileAccess::Private, check, activate);
        let changed = file.edit(turn, |text| {
            let mut secrets = parse(text)?;
            let result = {
                let state = self.state.lock();
                // Those that stay keep their sealed values, too.
                keep_unchanged(&mut secrets, &state.secrets, StoredSecret::is_same);
                edit(&state, &mut secrets)?
            };
            Ok((result, Some(vault.to_text(&secrets).map_err(ApprovalsError::Io)?)))
        });
        changed.map_err(|e| file_error(vault.path(), e))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRule {
    id: String,
    /// In seconds since the Unix epoch; missing in files of earlier versions.
    made: Option<u64>,
    rule: RuleSpec,
}

/// The file of rules.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredRules {
    rules: Vec<StoredRule>,
}

/// The rules in a text of the file; none if there is no file.
fn parse_rules(path: &Path, text: Option<&str>) -> Result<Vec<Arc<ApprovalRule>>, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let Some(text) = text else { return Ok(Vec::new()) };
    let stored: StoredRules = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
    // Files of earlier versions have no creation times; the file's own is the best guess.
    let written = std::fs::metadata(path).and_then(|m| m.modified()).ok();
    let written = written.and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok()).map_or_else(now, |d| d.as_secs());
    let rule = |k: StoredRule| {
        let mut rule = ApprovalRule::new(k.id.clone(), RuleSource::Global, k.rule)
            .map_err(|e| wrong(format!("rule {}: {e}", k.id)))?;
        rule.made = k.made.unwrap_or(written);
        Ok(Arc::new(rule))
    };
    stored.rules.into_iter().map(rule).collect()
}

pub(super) fn file_error(path: &Path, error: EditError<ApprovalsError>) -> ApprovalsError {
    match error.into_file_message() {
        Ok(message) => ApprovalsError::Io(format!("{} {message}", path.display())),
        Err(rejected) => rejected,
    }
}

pub(super) type StoredParts = (Vec<Arc<ApprovalRule>>, Vec<Arc<StoredSecret>>);

/// The rules and secrets that were made at runtime.
pub(super) fn read_files(config: &ApprovalsConfig, home: &Path, key: &VaultKey) -> Result<StoredParts, String> {
    let rules = home.join(&config.file);
    let made = parse_rules(&rules, read_optional(&rules)?.as_deref())?;
    let secrets = SecretVault::new(home.join(&config.secrets), key.clone()).read()?;
    Ok((made, secrets.into_iter().map(Arc::new).collect()))
}

impl ApprovalState {
    /// Takes over what the files have. What did not change keeps its counts.
    pub(super) fn replace_stored(&mut self, (mut made, mut secrets): StoredParts) {
        keep_unchanged(&mut made, &self.made, ApprovalRule::is_same);
        keep_unchanged(&mut secrets, &self.secrets, StoredSecret::is_same);
        (self.made, self.secrets) = (made, secrets);
    }
}

/// Replaces what did not change by what is active, which has counts.
fn keep_unchanged<T>(stored: &mut [Arc<T>], active: &[Arc<T>], is_same: impl Fn(&T, &T) -> bool) {
    for new in stored {
        if let Some(before) = active.iter().find(|before| is_same(before, new)) {
            *new = Arc::clone(before);
        }
    }
}
