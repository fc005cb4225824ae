//! Traffic rules: conditions and actions on flows. Rule files in TOML or YAML, and those of other programs whose
//! [`format`] is registered, are compiled to a [`RuleProgram`], which the stage [`ActiveRules`] specializes for the host of each plan.
//!
//! Modules from the outside in: `files` reads and compiles rule files, `matching` holds the conditions, `action` and
//! `params` the actions with their parameters, `compiled` the program, which `host_rules` executes with `actions`.
#![forbid(unsafe_code)]

pub mod action;
mod actions;
mod body;
mod compiled;
mod config;
mod disk;
mod error;
pub mod explain;
mod files;
mod flow;
pub mod format;
mod host_rules;
mod matching;
pub mod params;
mod script;
mod service;
pub mod simulate;
mod stage;
mod state;
mod text;

pub use compiled::expect::Expectation;
pub use compiled::phase_names;
pub use compiled::program::{CompiledRule, RuleProgram};
pub use config::{OnFailure, RulesConfig};
pub use error::{RuleLoadError, RuleProblem};
pub use files::private_files::PrivateFiles;
#[cfg(feature = "schema")]
pub use files::rule_file::generate_schema;
pub use files::rule_file::{RuleFile, schema};
pub use files::sources::{RuleFileFormat, RuleFileSource};
pub use flow::fixture::FlowFixture;
pub use matching::condition::ConditionExpr;
pub use service::{ExternalService, ServiceDef, ServiceTransport, TlsConnector};
pub use stage::ActiveRules;
pub use state::hold::{HeldFlow, HeldPart, HoldDecision, HoldQueue};
pub use state::recording::{RecordedExchange, RecordingSource};
pub use state::runtime::{RuleCapabilities, RuleRuntime};
pub use text::template::{TEMPLATE_FACTS, TEMPLATE_FAMILIES};
pub use text::url::parse_url;

/// A GET request, for tests.
pub fn test_get_request(url: &str) -> compiled::expect::TestRequest {
    compiled::expect::TestRequest { url: url.to_owned(), ..compiled::expect::TestRequest::default() }
}
