//! The rules and secrets made at runtime: their files, and what a reload takes over from them.

use std::path::Path;
use std::sync::Arc;

use interflow_files::{EditError, EditTurn, EditedFile, FileAccess};

use super::config::ApprovalsConfig;
use super::rule_set::ApprovalRule;
use super::rules_file::{StoredRule, StoredRules, parse_rules, read_rules};
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
            state.keep_counts(&mut rules);
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
            state.keep_uses(&mut secrets);
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
                state.keep_uses(&mut secrets);
                edit(&state, &mut secrets)?
            };
            Ok((result, Some(vault.to_text(&secrets).map_err(ApprovalsError::Io)?)))
        });
        changed.map_err(|e| file_error(vault.path(), e))
    }
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
    let made = read_rules(&home.join(&config.file))?;
    let secrets = SecretVault::new(home.join(&config.secrets), key.clone()).read()?;
    Ok((made, secrets.into_iter().map(Arc::new).collect()))
}

impl ApprovalState {
    /// Replaces rules that did not change by the active ones, which have counts.
    fn keep_counts(&self, made: &mut [Arc<ApprovalRule>]) {
        for rule in made {
            if let Some(before) = self.made.iter().find(|known| known.id == rule.id && known.spec == rule.spec) {
                *rule = Arc::clone(before);
            }
        }
    }

    /// As [`keep_counts`](Self::keep_counts), of secrets.
    fn keep_uses(&self, secrets: &mut Vec<Arc<StoredSecret>>) {
        for secret in secrets {
            if let Some(before) = self.secrets.iter().find(|before| before.is_same(secret)) {
                *secret = Arc::clone(before);
            }
        }
    }

    /// Takes over what the files have. What did not change keeps its counts.
    pub(super) fn replace_stored(&mut self, mut made: Vec<Arc<ApprovalRule>>, mut secrets: Vec<Arc<StoredSecret>>) {
        self.keep_counts(&mut made);
        self.keep_uses(&mut secrets);
        (self.made, self.secrets) = (made, secrets);
    }
}
