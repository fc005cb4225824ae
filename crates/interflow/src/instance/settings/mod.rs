//! Settings: shows and changes the configuration file of the running instance, for the admin API and the web UI.

pub mod access;
pub mod catalog;
pub mod diff;
pub mod document;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_admin::SettingsAccess;
use interflow_admin::config_masking::mask_config;
use interflow_admin::settings::{
    AppliedSettings, ChangedSetting, Setting, SettingChange, SettingSource, SettingsEditor, SettingsError,
    SettingsPreview, SettingsView,
};
use interflow_files::{EditError, EditTurn, EditedFile, FileAccess};
use interflow_host::data_dir::existing;
use serde_json::{Value as Json, json};
use sha2::{Digest as _, Sha256};

use crate::instance::config::env::EnvOverrides;
use crate::instance::config::{InterflowConfig, key_position, load_text};
use crate::instance::reload::{ConfigControl, ReloadableKeys};
use catalog::{SETTABLE, SettableKey, pointer};

/// Checks a configuration as a reload does, without activating it.
pub type CheckFn = Arc<dyn Fn(&InterflowConfig) -> Result<(), String> + Send + Sync>;
/// Tells the audit log who changed what.
pub type AuditFn = Arc<dyn Fn(&str, &Json) + Send + Sync>;

/// What the editor needs of the instance.
pub struct EditorDeps {
    pub control: ConfigControl,
    pub reloadable: ReloadableKeys,
    pub check: CheckFn,
    pub audit: AuditFn,
}

/// The settings of a running instance.
#[derive(Clone)]
pub struct ConfigEditor(Arc<EditorState>);

struct EditorState {
    deps: EditorDeps,
    path: PathBuf,
}

/// A configuration that was read from a text.
struct ReadConfig {
    config: Json,
    overrides: EnvOverrides,
}

/// A change that was checked, and what to write.
struct CheckedChange {
    /// The file's text now; `None` if there is no file.
    old: Option<String>,
    new: String,
    changes: Vec<ChangedSetting>,
}

impl ConfigEditor {
    /// `None` if there is no place for a file.
    pub fn new(deps: EditorDeps) -> Option<Self> {
        let path = deps.control.file.path()?.to_owned();
        Some(Self(Arc::new(EditorState { deps, path })))
    }
}

impl SettingsEditor for ConfigEditor {
    fn view(&self) -> Result<SettingsView, SettingsError> {
        let this = &self.0;
        let text = this.read_file()?;
        let read = this.load(text.as_deref().unwrap_or_default())?;
        let locked = this.refusal(&read.config);
        let settings = this.settings(text.as_deref().unwrap_or_default(), &read);
        Ok(SettingsView { file: this.path.clone(), exists: text.is_some(), locked, settings })
    }

    fn preview(&self, changes: &[SettingChange]) -> Result<SettingsPreview, SettingsError> {
        let checked = self.0.check(self.0.read_file()?, changes)?;
        let old = checked.old.as_deref();
        Ok(SettingsPreview {
            file: self.0.path.clone(),
            base: identify(old),
            diff: diff::diff(old.unwrap_or_default(), &checked.new),
            changes: checked.changes,
        })
    }

    fn apply(
        &self,
        turn: &EditTurn,
        base: &str,
        changes: &[SettingChange],
        client: &str,
    ) -> Result<AppliedSettings, SettingsError> {
        let this = &self.0;
        let old = this.read_file()?;
        if identify(old.as_deref()) != base {
            return Err(this.changed_meanwhile());
        }
        let checked = this.check(old, changes)?;
        // A new file may get credentials of upstream proxies, so only its owner can read it.
        let access = if checked.old.is_some() { FileAccess::Keep } else { FileAccess::Private };
        // On this thread, so that a client that disconnects does not end it halfway.
        let reload = |()| tokio::runtime::Handle::current().block_on((this.deps.control.reload)());
        // The change was checked with what it does to single keys.
        let file = EditedFile::new(&this.path, access, |_| Ok(()), reload);
        // What was checked is what is written: a text that has changed since the check is another change's.
        let replaced = file.replace(turn, checked.new, |now| now == checked.old.as_deref());
        let reload = replaced.map_err(|e| this.edit_error(e))?;
        this.record(client, &checked.changes);
        Ok(AppliedSettings { file: this.path.clone(), changes: checked.changes, reload })
    }
}

impl EditorState {
    fn read_file(&self) -> Result<Option<String>, SettingsError> {
        if self.deps.control.file.is_stdin() {
            return Ok(None);
        }
        existing(&self.path, std::fs::read_to_string).map_err(SettingsError::Disk)
    }

    /// What the instance would run with after a restart with this text.
    fn load(&self, text: &str) -> Result<ReadConfig, SettingsError> {
        let (mut config, overrides) = self.load_config(text)?;
        (self.deps.control.flags)(&mut config);
        let config = serde_json::to_value(&config).map_err(|e| SettingsError::Invalid(e.to_string()))?;
        Ok(ReadConfig { config, overrides })
    }

    fn load_config(&self, text: &str) -> Result<(InterflowConfig, EnvOverrides), SettingsError> {
        load_text(text, &self.path).map_err(|e| SettingsError::Invalid(e.to_string()))
    }

    /// Why nothing can be set.
    fn refusal(&self, config: &Json) -> Option<String> {
        if config["admin"]["settings"] == json!(SettingsAccess::ReadOnly) {
            return Some("admin.settings = \"read-only\" forbids changes over the API".into());
        }
        if self.deps.control.file.is_stdin() {
            return Some("the configuration was read from standard input".into());
        }
        access::write_refusal(&self.path)
    }

    fn settings(&self, text: &str, read: &ReadConfig) -> Vec<Setting> {
        let root = InterflowConfig::schema();
        let defaults = serde_json::to_value(InterflowConfig::default()).unwrap_or_default();
        let [mut configured, mut active] = [read.config.clone(), Json::clone(&self.deps.control.active.get())];
        mask_config(&mut configured);
        mask_config(&mut active);
        let member = |config: &Json, key: &str| config.pointer(&pointer(key)).cloned().unwrap_or_default();
        let setting = |k: &SettableKey| {
            let schema = catalog::schema_of(k.key, root).unwrap_or(&Json::Null);
            let (value, running) = (member(&configured, k.key), member(&active, k.key));
            let source = self.source(k.key, text, &read.overrides);
            Setting {
                key: k.key.into(),
                label: k.label.into(),
                group: k.group,
                description: catalog::description(schema, root),
                kind: k.kind,
                choices: catalog::choices(k.key, schema, root),
                default: member(&defaults, k.key),
                active: (running != value).then_some(running),
                locked: overridden(&source),
                value,
                source,
                effect: self.deps.reloadable.effect(k.key),
            }
        };
        SETTABLE.iter().map(setting).collect()
    }

    fn source(&self, key: &str, text: &str, overrides: &EnvOverrides) -> SettingSource {
        if let Some((_, option)) = self.deps.control.options.iter().find(|(pinned, _)| *pinned == key) {
            return SettingSource::Option { name: (*option).into() };
        }
        let is_key = |path: &[String]| path.join(".") == key;
        if let Some((name, ..)) = overrides.values.iter().find(|(_, path, _)| is_key(path)) {
            return SettingSource::Environment { name: name.clone() };
        }
        if key == "log.level" && std::env::var_os("INTERFLOW_LOG").is_some() {
            return SettingSource::Environment { name: "INTERFLOW_LOG".into() };
        }
        key_position(text, key).map_or(SettingSource::Default, |(line, _)| SettingSource::File { line })
    }

    /// Checks a change of the file's text; `None` if there is no file.
    fn check(&self, old: Option<String>, changes: &[SettingChange]) -> Result<CheckedChange, SettingsError> {
        let text = old.as_deref().unwrap_or_default();
        let before = self.load(text)?;
        if let Some(why) = self.refusal(&before.config) {
            return Err(SettingsError::Managed(why));
        }
        let mut values = Vec::new();
        for SettingChange { key, value } in changes {
            let settable = catalog::find(key).ok_or_else(|| {
                SettingsError::Unusable(format!("`{key}` cannot be set over the API: change it in the file"))
            })?;
            if let Some(why) = overridden(&self.source(key, text, &before.overrides)) {
                return Err(SettingsError::Overridden(format!("{key}: {why}")));
            }
            let now = before.config.pointer(&pointer(key)).cloned().unwrap_or_default();
            values.push((settable.key, unmask(value, &now).map_err(SettingsError::Unusable)?));
        }
        let new =
            document::edit(text, values.iter().map(|(key, value)| (*key, value))).map_err(SettingsError::Unusable)?;
        let (mut config, _) = self.load_config(&new)?;
        (self.deps.control.flags)(&mut config);
        (self.deps.check)(&config).map_err(|why| SettingsError::Invalid(with_place(&self.path, &new, &why)))?;
        let after = serde_json::to_value(&config).map_err(|e| SettingsError::Invalid(e.to_string()))?;
        let changes = self.changed(&values, &before.config, &after);
        if new == text {
            return Err(SettingsError::Unusable("nothing would change".into()));
        }
        Ok(CheckedChange { old, new, changes })
    }

    fn changed(&self, values: &[(&'static str, Json)], before: &Json, after: &Json) -> Vec<ChangedSetting> {
        let masked = |config: &Json| {
            let mut config = config.clone();
            mask_config(&mut config);
            config
        };
        let (shown_before, shown_after) = (masked(before), masked(after));
        let member = |config: &Json, key: &str| config.pointer(&pointer(key)).cloned().unwrap_or_default();
        let changed = values.iter().filter(|(key, _)| member(before, key) != member(after, key));
        let view = |(key, _): &(&'static str, Json)| ChangedSetting {
            key: (*key).into(),
            before: member(&shown_before, key),
            after: member(&shown_after, key),
            effect: self.deps.reloadable.effect(key),
        };
        changed.map(view).collect()
    }

    fn changed_meanwhile(&self) -> SettingsError {
        SettingsError::ChangedMeanwhile(format!("{} was changed by someone else in the meantime", self.path.display()))
    }

    fn edit_error(&self, error: EditError<String>) -> SettingsError {
        match error {
            EditError::ChangedMeanwhile => self.changed_meanwhile(),
            EditError::NotActivated { error, restored } => match restored {
                Ok(()) => SettingsError::Invalid(format!("{error}; the file is as it was")),
                Err(e) => SettingsError::Disk(format!("{error}; {} cannot be restored: {e}", self.path.display())),
            },
            other => match other.into_file_message() {
                Ok(message) => SettingsError::Disk(format!("{} {message}", self.path.display())),
                Err(rejected) => SettingsError::Invalid(rejected),
            },
        }
    }

    fn record(&self, client: &str, changes: &[ChangedSetting]) {
        for change in changes {
            tracing::info!(client, "{} set from {} to {}", change.key, change.before, change.after);
        }
        let member = |c: &ChangedSetting| json!({ "key": c.key, "before": c.before, "after": c.after });
        (self.deps.audit)(client, &changes.iter().map(member).collect());
    }
}

/// Why a key that has this source cannot be set in the file.
fn overridden(source: &SettingSource) -> Option<String> {
    match source {
        SettingSource::Option { name } => Some(format!("the option {name} determines it")),
        SettingSource::Environment { name } => Some(format!("the environment variable {name} determines it")),
        SettingSource::Default | SettingSource::File { .. } => None,
    }
}

/// Identifies a text of the file.
fn identify(text: Option<&str>) -> String {
    text.map_or_else(|| "none".to_owned(), |text| hex::encode(Sha256::digest(text)))
}

/// The error of a key with its line, if the text has it.
fn with_place(path: &Path, text: &str, why: &str) -> String {
    let key = why.split(": ").next().unwrap_or_default();
    let Some((line, column)) = key_position(text, key) else { return why.to_owned() };
    format!("{}:{line}:{column}: {why}", path.display())
}

/// Puts back credentials that were shown masked: a text with a mask stands for the configured one that is shown so, and of
/// several, each time for the next.
fn unmask(value: &Json, now: &Json) -> Result<Json, String> {
    let mut masked = now.clone();
    mask_config(&mut masked);
    let mut secrets = Vec::new();
    collect(now, &masked, &mut secrets);
    let mut rotated = secrets.clone();
    let unmasked = fill(value, &mut rotated);
    // With as many as were shown, the first is in its place again.
    let first = |list: &[(String, String)], shown: &str| list.iter().find(|(other, _)| other == shown).cloned();
    match secrets.iter().find(|(shown, _)| first(&secrets, shown) != first(&rotated, shown)) {
        Some((shown, _)) => Err(format!("{shown}: several have these masked credentials; write out those that stay")),
        None => Ok(unmasked),
    }
}

/// The texts that are shown masked, with what they are.
fn collect(open: &Json, shown: &Json, known: &mut Vec<(String, String)>) {
    match (open, shown) {
        (Json::String(open), Json::String(shown)) if open != shown => known.push((shown.clone(), open.clone())),
        (Json::Array(a), Json::Array(b)) => a.iter().zip(b).for_each(|(a, b)| collect(a, b, known)),
        (Json::Object(a), Json::Object(b)) => a.values().zip(b.values()).for_each(|(a, b)| collect(a, b, known)),
        _ => {}
    }
}

fn fill(value: &Json, secrets: &mut Vec<(String, String)>) -> Json {
    match value {
        Json::String(text) => {
            let Some(at) = secrets.iter().position(|(shown, _)| shown == text) else { return value.clone() };
            let secret = secrets.remove(at);
            secrets.push(secret.clone());
            Json::String(secret.1)
        }
        Json::Array(list) => list.iter().map(|v| fill(v, secrets)).collect(),
        Json::Object(map) => map.iter().map(|(name, v)| (name.clone(), fill(v, secrets))).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
