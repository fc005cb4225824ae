//! What readers of other programs' rule files are made of: the trait of a format, and the parts of rules that it builds.

pub use crate::compiled::action_phase::phase_for;
pub use crate::files::rule_format::{ConvertedRule, ConvertedRules, RuleFormat, any_rule_has_key};
pub use crate::files::sources::{ParsedRuleFile, PathSegment};
pub use crate::flow::exec_run::ExecCondition;
pub use crate::matching::regex_limits::build_regex;
pub use crate::matching::text_predicate::{MatchMode, TextField, TextPredicate};
pub use crate::text::string_list::OneOrManyStrings;
pub use crate::text::template::{ReplacementTemplate, TextTemplate};
pub use interflow_query::unknown_key_message;
