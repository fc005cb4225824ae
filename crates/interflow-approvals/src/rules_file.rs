//! The file of rules created at runtime.

use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::clock::now;
use super::config::RuleSpec;
use super::rule_set::{ApprovalRule, RuleSource};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredRule {
    pub id: String,
    /// In seconds since the Unix epoch; missing in files of earlier versions.
    #[serde(default)]
    pub made: Option<u64>,
    pub rule: RuleSpec,
}

#[derive(Serialize, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct StoredRules {
    pub rules: Vec<StoredRule>,
}

/// The rules in a text of the file; none if there is no file.
pub(super) fn parse_rules(path: &Path, text: Option<&str>) -> Result<Vec<Arc<ApprovalRule>>, String> {
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
