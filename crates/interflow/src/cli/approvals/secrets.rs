//! `interflow secrets` and `interflow sessions`: secrets that replace placeholders, and the agent sessions that bring them.

use clap::Subcommand;
use interflow_host::data_dir::DataDir;
use interflow_types::units::pluralize;
use serde_json::{Value, json};

use crate::Result;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TableFormat, joined_values, member, members, print};

#[derive(Debug, Subcommand)]
pub enum SecretsCommand {
    /// List secrets without their values.
    List(FormatArgs<TableFormat>),
    /// Store a secret read from stdin; prints its placeholder.
    Add {
        /// Label of the secret.
        label: String,
        /// Origin that may receive it (repeatable): `api.example.com` (https, port 443), `api.example.com:8443`,
        /// `http://10.0.0.7:8080`. Local addresses need a port: `127.0.0.1:3000`.
        #[arg(long = "host", value_name = "HOST", required = true)]
        hosts: Vec<String>,
        /// Placeholder text [default: generated].
        #[arg(long)]
        placeholder: Option<String>,
        /// Allow hosts that are given without a scheme to receive it over plain HTTP.
        #[arg(long)]
        plain_http: bool,
    },
    /// Remove a secret.
    Remove {
        /// Label of the secret.
        label: String,
    },
}

pub fn run(command: SecretsCommand, home: &DataDir) -> Result<()> {
    let api = InstanceApi::require(home)?;
    match command {
        SecretsCommand::List(format) => {
            let response = api.call(&OperationId::ListSecrets.call())?;
            let line = |s: &Value| {
                let [label, placeholder, used] = ["label", "placeholder", "used"].map(|name| member(s, name));
                format!("{label:<16}  {placeholder}  to {}  ({used} used)\n", joined_values(s, "hosts"))
            };
            format.print(&response["secrets"], || members(&response, "secrets").map(line).collect())?;
        }
        SecretsCommand::Add { label, hosts, placeholder, plain_http } => {
            let value = std::io::read_to_string(std::io::stdin().lock()).map_err(|e| format!("standard input: {e}"))?;
            let value = value.trim_end_matches(['\r', '\n']);
            let mut secret = json!({"label": label, "value": value, "hosts": hosts, "plain_http": plain_http});
            if let Some(placeholder) = placeholder {
                secret["placeholder"] = placeholder.into();
            }
            let made = api.call(&OperationId::AddSecret.call().body(secret))?;
            let hosts = joined_values(&made, "hosts");
            interflow_host::errln!("the placeholder is replaced by the secret in requests to {hosts}");
            print(&format!("{}\n", member(&made, "placeholder")));
        }
        SecretsCommand::Remove { label } => drop(api.call(&OperationId::RemoveSecret.call().path(label))?),
    }
    Ok(())
}

/// Lists the agent sessions of the running instance.
pub fn sessions(format: &FormatArgs<TableFormat>, home: &DataDir) -> Result<()> {
    let response = InstanceApi::require(home)?.call(&OperationId::ListSessions.call())?;
    let line = |s: &Value| {
        let secrets = pluralize(s["secrets"].as_array().map_or(0, Vec::len) as u64, "secret");
        let rules = pluralize(s["rules"].as_u64().unwrap_or_default(), "rule");
        format!("{:<24}  {:<12}  {rules}  {secrets}\n", member(s, "id"), member(s, "agent"))
    };
    format.print(&response["sessions"], || members(&response, "sessions").map(line).collect())
}
