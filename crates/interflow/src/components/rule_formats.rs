//! Rule files of other programs. Without the feature `compat` they are refused, with the name of the feature.

use std::sync::Arc;

use interflow_rules::format::RuleFormat;

/// The formats besides Interflow's own.
pub fn rule_formats() -> Vec<Arc<dyn RuleFormat>> {
    #[cfg(feature = "compat")]
    return interflow_compat::rule_formats();
    #[cfg(not(feature = "compat"))]
    return vec![Arc::new(refused::RefusedFormat)];
}

#[cfg(not(feature = "compat"))]
mod refused {
    use interflow_rules::format::{ConvertedRules, ParsedRuleFile, PathSegment, RuleFormat, any_rule_has_key};
    use serde_json::Value;

    use crate::instance::features;

    /// Files of another program, which this build cannot read.
    #[derive(Debug)]
    pub struct RefusedFormat;

    impl RuleFormat for RefusedFormat {
        fn detect(&self, document: &Value) -> bool {
            any_rule_has_key(document, &["filter", "action", "actions"])
        }

        fn convert(&self, _: &Value, file: &ParsedRuleFile) -> ConvertedRules {
            let message = format!("this is a rule file of another program: {}", features::missing("filter", "compat"));
            let problem = file.problem(&[PathSegment::Key("rules")], None, message);
            ConvertedRules { problems: vec![problem], ..ConvertedRules::default() }
        }
    }
}
