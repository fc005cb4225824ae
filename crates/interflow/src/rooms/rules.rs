//! The room of rules, as the binary builds and reloads it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use interflow_flow::CertificateFiles;
use interflow_record::EmbeddedStore;
use interflow_rules::{Rules, RulesConfig, Surroundings};

use super::{Archives, Change, LateEgress, Room};
use crate::config::Config;
use crate::home::Home;

/// The file of the data folder that holds the rules when the configuration names no file: the web UI writes into it.
const OWN: &str = "rules.yaml";
/// What stands in it at first.
const EMPTY: &str =
    "# Rules, asked from top to bottom. The web UI writes into this file; docs/rules.md tells what they can do.\n";

/// What the engine of this build can do, for rules.
pub struct Means;

impl interflow_rules::Means for Means {
    fn fingerprint(&self, like: &str) -> Result<(), String> {
        interflow_engine::check_fingerprint(like)
    }

    fn certificate(&self, files: &CertificateFiles) -> Result<(), String> {
        interflow_engine::check_certificate(files)
    }
}

/// The rules in force.
pub struct RuleRoom {
    rules: Arc<Rules>,
    own: PathBuf,
}

impl RuleRoom {
    /// Builds it.
    ///
    /// # Errors
    /// Everything that is wrong with the rule files.
    pub fn new(
        config: &Config,
        home: &Home,
        egress: &Arc<LateEgress>,
        store: Option<&Arc<EmbeddedStore>>,
    ) -> Result<Self, String> {
        let ca = std::fs::read_to_string(home.ca().join("ca.pem")).ok();
        let around = Surroundings::new(ca, Some(Arc::clone(egress) as _))
            .with_recordings(Arc::new(Archives::Running(store.cloned())))
            .with_means(Arc::new(Means))
            .with_opener(Arc::clone(egress) as _);
        let own = home.join(OWN);
        if config.rules.files.is_empty() && !own.exists() {
            // Without the file there are no rules, which is what it says.
            let _ = std::fs::write(&own, EMPTY);
        }
        let rules = Rules::new(&in_force(&config.rules, &own), Arc::new(around)).map_err(|e| e.to_string())?;
        say(&rules.program());
        Ok(Self { rules: Arc::new(rules), own })
    }

    /// The rules themselves.
    pub fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }
}

/// The section, with the data folder's own file where it names none.
fn in_force(config: &RulesConfig, own: &Path) -> RulesConfig {
    let mut config = config.clone();
    if config.files.is_empty() && own.exists() {
        config.files.push(own.to_owned());
    }
    config
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
        let mut all = in_force(&config.rules, &self.own).files;
        all.extend(self.rules.program().files.iter().cloned());
        all
    }

    fn prepare(&self, config: &Config) -> Result<Change, String> {
        let program = self.rules.prepare(&in_force(&config.rules, &self.own)).map_err(|e| e.to_string())?;
        let rules = Arc::clone(&self.rules);
        Ok(Box::new(move || {
            rules.put(program);
            say(&rules.program());
        }))
    }
}
