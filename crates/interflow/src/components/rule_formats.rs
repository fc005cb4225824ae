//! Rule files of other programs. Without the feature `compat` they are refused, with the name of the feature.

use std::sync::Arc;

use interflow_rules::format::RuleFormat;

/// The formats besides Interflow's own.
#[cfg(feature = "compat")]
pub fn rule_formats() -> Vec<Arc<dyn RuleFormat>> {
    vec![Arc::new(interflow_compat::fluxzy::FluxzyFormat)]
}

#[cfg(not(feature = "compat"))]
pub fn rule_formats() -> Vec<Arc<dyn RuleFormat>> {
    vec![Arc::new(refused::FluxzyRefused)]
}

#[cfg(not(feature = "compat"))]
mod refused {
    use interflow_rules::format::{ConvertedRules, ParsedRuleFile, PathSegment, RuleFormat, any_rule_has_key};
    use serde_json::Value;

    use crate::instance::features;

    /// Fluxzy's files, which this build cannot read.
    #[derive(Debug)]
    pub struct FluxzyRefused;

    impl RuleFormat for FluxzyRefused {
        fn detect(&self, document: &Value) -> bool {
            any_rule_has_key(document, &["filter", "action", "actions"])
        }

        fn convert(&self, _: &Value, file: &ParsedRuleFile) -> ConvertedRules {
            let message = format!("this is a rule file of Fluxzy's: {}", features::missing("fluxzy", "compat"));
            let problem = file.problem(&[PathSegment::Key("rules")], None, message);
            ConvertedRules { problems: vec![problem], ..ConvertedRules::default() }
        }
    }
}
