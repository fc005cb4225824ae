//! The environment variables of OpenTelemetry and of the clouds' SDKs that the gateway reads.

use interflow_types::data_file;

/// A variable and what it is for.
pub type Variable = (&'static str, &'static str);

/// OpenTelemetry's, which are defaults for `[telemetry]`.
pub fn otel_variables() -> Vec<Variable> {
    variables(include_str!("../data/otel_variables.txt"))
}

/// The clouds', for providers with `credentials = "ambient"` or `profile`.
pub fn cloud_variables() -> Vec<Variable> {
    variables(include_str!("../data/cloud_variables.txt"))
}

fn variables(table: &'static str) -> Vec<Variable> {
    data_file::records(table).map(|[name, purpose]| (name, purpose)).collect()
}

/// Whether the variable is in one of the tables.
pub(crate) fn is_listed(name: &str) -> bool {
    otel_variables().iter().chain(&cloud_variables()).any(|(listed, _)| *listed == name)
}
