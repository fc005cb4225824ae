//! The room of rules, as the binary builds and reloads it.

use std::path::PathBuf;
use std::sync::Arc;

use interflow_rules::{Rules, RulesConfig, Surroundings};

use super::{Change, LateEgress, Room};
use crate::config::Config;
use crate::home::Home;

/// The rules in force.
pub struct RuleRoom {
    rules: Arc<Rules>,
}

impl RuleRoom {
    /// Builds it.
    ///
    /// # Errors
    /// Everything that is wrong with the rule files.
    pub fn new(config: &Config, home: &Home, egress: &Arc<LateEgress>) -> Result<Self, String> {
        let ca = std::fs::read_to_string(home.ca().join("ca.pem")).ok();
        let around = Surroundings::new(ca, Some(Arc::clone(egress) as _));
        let rules = Rules::new(&config.rules, Arc::new(around)).map_err(|e| e.to_string())?;
        say(&rules.program());
        Ok(Self { rules: Arc::new(rules) })
    }

    /// The rules themselves.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }
}

fn say(program: &interflow_rules::Program) {
    if !program.rules.is_empty() {
        tracing::info!("{} rules are in force", program.rules.len());
    }
    for note in &program.notes {
        tracing::warn!("{note}");
    }
}

impl Room for RuleRoom {
    fn files(&self, config: &Config) -> Vec<PathBuf> {
        let RulesConfig { files, .. } = &config.rules;
        let mut all = files.clone();
        all.extend(self.rules.program().files.iter().cloned());
        all
    }

    fn prepare(&self, config: &Config) -> Result<Change, String> {
        let program = self.rules.prepare(&config.rules).map_err(|e| e.to_string())?;
        let rules = Arc::clone(&self.rules);
        Ok(Box::new(move || {
            say(&program);
            rules.put(program);
        }))
    }
}
