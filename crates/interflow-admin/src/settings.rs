//! Settings: what of the configuration can be set over the API, as the binary, which owns the configuration file, hands
//! it in.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_files::EditTurn;
use interflow_store::shared_state::SettingsStore;
use interflow_types::labelled_enum;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::reload::ReloadReport;

/// The settings of an instance.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingsView {
    /// The configuration file.
    pub file: PathBuf,
    /// Whether it exists; a first change creates it.
    pub exists: bool,
    /// Why nothing can be set; absent if changes are possible.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<String>,
    pub settings: Vec<Setting>,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Setting {
    /// Its path in the file, such as `intercept.mode`.
    pub key: String,
    pub label: String,
    pub group: SettingGroup,
    /// What it does, in Markdown.
    pub description: String,
    pub kind: SettingKind,
    /// The values of a choice.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<SettingChoice>,
    /// What is configured, with credentials masked.
    pub value: Value,
    pub default: Value,
    /// What the instance runs with until it is restarted, if that is something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active: Option<Value>,
    pub source: SettingSource,
    pub effect: SettingEffect,
    /// Why it cannot be set; absent if it can.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<String>,
}

/// Where a setting is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SettingGroup {
    Interception,
    Recording,
    Privacy,
    Upstream,
    Notifications,
    Logging,
}

/// The form of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SettingKind {
    /// `true` or `false`.
    Switch,
    Choice,
    Text,
    Number,
    /// A size such as `64KiB`.
    Size,
    /// A duration such as `30s`.
    Duration,
    /// A list of texts.
    List,
    /// A list of objects with the lists `hosts` and `via`.
    Proxies,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingChoice {
    pub value: String,
    pub description: String,
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum SettingSource {
    Default,
    File {
        line: usize,
    },
    /// An environment variable, which overrides the file.
    Environment {
        name: String,
    },
    /// An option of the command line, which overrides all else.
    Option {
        name: String,
    },
}

/// When a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SettingEffect {
    /// For the next request or connection.
    Now,
    Restart,
}

/// A setting to change.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SettingChange {
    pub key: String,
    /// Its new value, as in the file; null removes the key, so that the default applies.
    #[serde(default)]
    pub value: Value,
}

/// What changes would do.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SettingsPreview {
    pub file: PathBuf,
    /// Identifies the text that the changes are based on; to be sent with them.
    pub base: String,
    /// The lines of the file that change, with their surroundings; secrets are masked.
    pub diff: Vec<SettingsDiffLine>,
    pub changes: Vec<ChangedSetting>,
}

/// A line of a difference between two texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SettingsDiffLine {
    pub kind: SettingsDiffKind,
    /// Its number in the file; in the new text for an added line. Absent for a gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    pub text: String,
}

labelled_enum! {
    // Labelled by what precedes such a line in a diff.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
    #[serde(rename_all = "lowercase")]
    pub enum SettingsDiffKind {
        Same " ",
        Removed "-",
        Added "+",
        /// Lines that are left out.
        Gap "…",
    }
}

/// A setting before and after a change, with credentials masked.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ChangedSetting {
    pub key: String,
    pub before: Value,
    pub after: Value,
    pub effect: SettingEffect,
}

/// What changes did.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct AppliedSettings {
    pub file: PathBuf,
    pub changes: Vec<ChangedSetting>,
    pub reload: ReloadReport,
}

/// Why settings were not changed. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingsError {
    /// The file is not to be changed here.
    Managed(String),
    /// A key is determined by something that overrides the file.
    Overridden(String),
    /// A key is not one of those that can be set, or a value cannot be written to the file.
    Unusable(String),
    /// The configuration would be invalid.
    Invalid(String),
    /// The file is not the one that the changes are based on.
    ChangedMeanwhile(String),
    /// The file cannot be read or written.
    Disk(String),
}

/// The settings that replicas share, with their revisions.
pub struct SharedSettings {
    pub store: Arc<dyn SettingsStore>,
    /// Which are shared.
    pub names: Vec<String>,
    /// This replica, in the authors of revisions.
    pub replica: String,
    /// The lines in which two texts differ, with their surroundings.
    pub diff: fn(&str, &str) -> Vec<SettingsDiffLine>,
}

/// Shows and changes the configuration file. Methods block on the disk.
pub trait SettingsEditor: Send + Sync {
    /// # Errors
    /// The file is not valid TOML any more.
    fn view(&self) -> Result<SettingsView, SettingsError>;

    /// Validates changes as a reload would, without making them.
    ///
    /// # Errors
    /// They are not possible.
    fn preview(&self, changes: &[SettingChange]) -> Result<SettingsPreview, SettingsError>;

    /// Writes changes to the file and reloads; if the reload fails, the file is restored. `base` is that of the preview,
    /// `client` the address of who asks, for the audit log. Runs on a blocking thread of the runtime that reloads.
    ///
    /// # Errors
    /// Nothing has changed.
    fn apply(
        &self,
        turn: &EditTurn,
        base: &str,
        changes: &[SettingChange],
        client: &str,
    ) -> Result<AppliedSettings, SettingsError>;
}
