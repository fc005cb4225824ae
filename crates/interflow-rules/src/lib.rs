//! Traffic rules: conditions and actions on flows. Rule files in TOML or YAML, and Fluxzy's YAML, are compiled to a
//! [`RuleProgram`], which the stage [`ActiveRules`] specializes for the host of each plan.
//!
//! Modules from the outside in: `sources` and `rule_file` read files, `matchers` and `condition` are the conditions,
//! `action` and `params` the actions with their parameters, `program` compiles both, `host_rules` executes them.
#![forbid(unsafe_code)]

pub mod action;
mod action_phase;
mod action_templates;
mod actions;
mod body;
mod compiler;
mod condition;
mod config;
mod cookies;
mod dates;
mod error;
mod exec;
mod exec_run;
mod expect;
pub mod explain;
mod external_changes;
mod fault_injection;
mod fixture;
mod flow_state;
mod fluxzy;
mod hold;
mod host_matcher;
mod host_rules;
mod index;
mod json;
mod matchers;
pub mod mitmproxy;
pub mod params;
mod path_checks;
mod path_mode;
mod patterns;
pub mod phase_names;
mod program;
mod query_params;
mod recording;
mod regex_limits;
mod render;
mod replay;
mod rule_file;
mod runtime;
mod script;
mod service;
mod sessions;
pub mod simulate;
mod sources;
mod stage;
mod static_files;
mod string_list;
mod template;
mod text_predicate;
mod url;
mod verdict;
mod view;

pub use condition::ConditionExpr;
pub use config::{OnFailure, RulesConfig};
pub use error::{RuleLoadError, RuleProblem};
pub use expect::Expectation;
pub use fixture::FlowFixture;
pub use fluxzy::{ACTION_KINDS, FILTER_KINDS};
pub use hold::{HeldFlow, HeldPart, HoldDecision, HoldQueue};
pub use program::{CompiledRule, RuleProgram};
pub use recording::{RecordedExchange, RecordingSource};
pub use rule_file::{RuleFile, schema};
pub use runtime::{RuleCapabilities, RuleRuntime};
pub use service::{ExternalService, ServiceDef, ServiceTransport, TlsConnector};
pub use sources::{RuleFileFormat, RuleFileSource};
pub use stage::ActiveRules;
pub use template::TEMPLATE_FACTS;
pub use url::parse_url;

/// A GET request, for tests.
pub fn test_get_request(url: &str) -> expect::TestRequest {
    expect::TestRequest { url: url.to_owned(), ..expect::TestRequest::default() }
}
