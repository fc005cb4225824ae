//! `interflow llm`: the LLM gateway of the running instance.

use clap::Subcommand;
use interflow_host::data_dir::DataDir;
use serde_json::Value;

use super::output::{FormatArgs, TableFormat, format_table, member, members};
use crate::Result;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};

#[derive(Debug, Subcommand)]
pub enum LlmCommand {
    /// List the routes of models to deployments, with the state of each deployment.
    Routes(FormatArgs<TableFormat>),
}

pub fn run(command: LlmCommand, home: &DataDir) -> Result<()> {
    let LlmCommand::Routes(format) = command;
    let routes = InstanceApi::require(home)?.call(&OperationId::ListLlmRoutes.call())?;
    format.print(&routes, || table(&routes))
}

const HEAD: [&str; 8] = ["ROUTE", "DEPLOYMENT", "STATE", "BUSY", "LATENCY", "REQUESTS", "ERRORS", "USED"];

fn table(routes: &Value) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for route in members(routes, "routes") {
        let fallbacks = if route["configured"] == true { "" } else { " (fallbacks)" };
        for deployment in members(route, "deployments") {
            rows.push(vec![
                member(route, "name") + fallbacks,
                member(deployment, "name"),
                state(deployment),
                member(deployment, "busy"),
                deployment["latency_ms"].as_f64().map_or_else(|| "-".into(), |ms| format!("{ms:.0} ms")),
                member(deployment, "requests"),
                member(deployment, "errors"),
                usage(deployment),
            ]);
        }
    }
    if rows.len() == 1 {
        return "no routes; [llm.route.NAME] in the configuration makes one\n".to_owned();
    }
    format_table(&rows, &["BUSY", "USED", "LATENCY", "ERRORS"])
}

fn state(deployment: &Value) -> String {
    let cooling = deployment["cooling_down_for"].as_u64().map(|seconds| format!("cooling down, {seconds} s"));
    cooling.unwrap_or_else(|| member(deployment, "state"))
}

/// When the deployment is used.
fn usage(deployment: &Value) -> String {
    match &*member(deployment, "role") {
        "deployment" => format!("priority {}, weight {}", deployment["priority"], deployment["weight"]),
        role => role.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_deployment_is_a_row_with_its_state() {
        let deployment = json!({
            "name": "openai/gpt-5", "role": "deployment", "weight": 3, "priority": 0, "state": "cooling-down",
            "cooling_down_for": 12, "busy": 1, "latency_ms": 812.4, "requests": 40, "errors": 3,
        });
        let text = table(&json!({"routes": [{"name": "smart", "configured": true, "deployments": [deployment]}]}));
        let row = text.lines().nth(1).unwrap();
        for cell in ["smart", "openai/gpt-5", "cooling down, 12 s", "812 ms", "priority 0, weight 3"] {
            assert!(row.contains(cell), "{cell}: {text}");
        }
        assert!(table(&json!({"routes": []})).contains("[llm.route.NAME]"));
    }
}
