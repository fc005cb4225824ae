//! `interflow approvals`: approval rules, presets and the approval mode of the running instance.

pub mod pending;
pub mod secrets;

use clap::{Args, Subcommand, ValueEnum};
use interflow_approvals::presets;
use interflow_host::data_dir::DataDir;
use interflow_types::Timestamp;
use interflow_types::units::{HumanDuration, pluralize};
use serde::Serialize;
use serde_json::{Value, json};

use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{
    FormatArgs, TableFormat, clock, joined_values, member, members, print, print_json, print_rows,
};
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List, add and remove approval rules.
    #[command(subcommand)]
    Rules(ApprovalRulesCommand),
    /// Show or set the approval mode.
    Mode {
        /// Mode to set [default: show the active one].
        #[arg(value_enum)]
        mode: Option<ModeArg>,
        /// Duration, such as 15m [default: until it is set back, or without a shared store until the instance stops].
        #[arg(long = "for", value_name = "TIME", requires = "mode")]
        lasting: Option<HumanDuration>,
    },
    /// Suggest rules that allow the recorded traffic.
    Suggest {
        /// Query that selects the flows: `time:-7d host:example.com`.
        query: Vec<String>,
        /// Create the suggested rules.
        #[arg(long)]
        apply: bool,
        #[command(flatten)]
        format: FormatArgs<TableFormat>,
    },
    /// List the built-in rule presets or show one. `approvals.presets` in the configuration enables them.
    Presets {
        /// Name of a preset.
        name: Option<String>,
        #[command(flatten)]
        format: FormatArgs<TableFormat>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ModeArg {
    /// Allow every request and record what a rule would deny.
    Observe,
    /// Hold requests that no rule decides until someone decides.
    Ask,
    /// Deny requests that no rule allows.
    Enforce,
    /// Restore the configured mode.
    Config,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalRulesCommand {
    /// List rules.
    List(FormatArgs<TableFormat>),
    /// Add a rule: `add allow '*.example.com' --method GET`.
    Add(Box<ApprovalRuleAddArgs>),
    /// Remove a rule that was created at runtime.
    Remove {
        /// Rule ID.
        id: String,
    },
}

#[derive(Debug, Args, Serialize)]
pub struct ApprovalRuleAddArgs {
    /// Action for matching requests.
    #[arg(value_parser = ["allow", "deny"])]
    pub action: String,
    /// Host patterns: names (`*.example.com`: subdomains), addresses, networks, or `'*'` for every host.
    #[arg(required = true)]
    pub hosts: Vec<String>,
    /// Port or port range (repeatable) [default: all].
    #[arg(long = "port", value_name = "PORT")]
    pub ports: Vec<String>,
    /// HTTP method (repeatable).
    #[arg(long = "method", value_name = "METHOD")]
    pub methods: Vec<String>,
    /// Path glob: `/repos/*` (repeatable).
    #[arg(long = "path", value_name = "GLOB")]
    pub paths: Vec<String>,
    /// Proxy user (repeatable).
    #[arg(long = "user", value_name = "NAME")]
    pub users: Vec<String>,
    /// Agent name (repeatable).
    #[arg(long = "agent", value_name = "NAME")]
    pub agents: Vec<String>,
    /// Name of a local program (repeatable).
    #[arg(long = "process", value_name = "NAME")]
    pub processes: Vec<String>,
    /// Expiry time (RFC 3339).
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Description of the rule.
    #[arg(long)]
    pub note: Option<String>,
}

/// Runs one of the commands. Only presets need no running instance.
pub fn run(command: ApprovalsCommand, home: impl Fn() -> Result<DataDir>) -> Result<()> {
    let api = || InstanceApi::require(&home()?);
    match command {
        ApprovalsCommand::Rules(command) => rules(&api()?, command),
        ApprovalsCommand::Mode { mode, lasting } => set_mode(&api()?, mode, lasting),
        ApprovalsCommand::Suggest { query, apply, format } => {
            suggest(&api()?, &query.join(" "), apply, format.is_json())
        }
        ApprovalsCommand::Presets { name, format } => presets(name.as_deref(), &format),
    }
}

/// Lists the presets or shows one.
fn presets(name: Option<&str>, format: &FormatArgs<TableFormat>) -> Result<()> {
    let chosen: Vec<&presets::RulePreset> = match name {
        Some(name) => vec![presets::find(name).map_err(CliError::Usage)?],
        None => presets::all().iter().collect(),
    };
    let any = |list: &[String], all: &str| if list.is_empty() { all.to_owned() } else { list.join(" ") };
    let text = |preset: &&presets::RulePreset| {
        let rules = preset.rules.iter().filter(|_| name.is_some()).map(|rule| {
            let (methods, paths) = (any(&rule.methods, "any method"), any(&rule.paths, ""));
            format!("    allow  {methods:<14} {} {paths}\n", rule.hosts.join(" "))
        });
        format!("{:<18}  {}\n{}", preset.name, preset.about, rules.collect::<String>())
    };
    format.print(&chosen, || chosen.iter().map(text).collect())
}

/// Formats the active mode and its expiry.
pub fn mode_line(state: &Value) -> String {
    let mode = member(state, "mode");
    if state["mode_is_configured"] != false {
        return mode;
    }
    let Some(until) = state["mode_until"].as_i64() else {
        return format!(
            "{mode} (until the instance stops, or, with a shared store, until it is set again; \
             `interflow approvals mode config` restores the configured mode)"
        );
    };
    let remaining = (until - Timestamp::now().micros() as i64).max(0) as u64 / 1_000_000;
    let at = jiff::Timestamp::from_microsecond(until).unwrap_or_default();
    let at = at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string();
    format!("{mode} until {at} ({} left)", clock(remaining))
}

fn rules(api: &InstanceApi, command: ApprovalRulesCommand) -> Result<()> {
    match command {
        ApprovalRulesCommand::List(format) => {
            let response = api.call(&OperationId::ListApprovalRules.call())?;
            let lines = || members(&response, "rules").map(|rule| rule_line(rule) + "\n").collect();
            format.print(&response["rules"], lines)?;
        }
        ApprovalRulesCommand::Add(args) => {
            let mut rule = serde_json::to_value(*args).map_err(|e| e.to_string())?;
            if let Some(members) = rule.as_object_mut() {
                members.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|list| !list.is_empty()));
            }
            let made = api.call(&OperationId::AddApprovalRule.call().body(rule))?;
            print(&format!("{}\n", rule_line(&made)));
        }
        ApprovalRulesCommand::Remove { id } => {
            api.call(&OperationId::RemoveApprovalRule.call().path(&id))?;
            print(&format!("{id} is removed\n"));
        }
    }
    Ok(())
}

fn rule_line(rule: &Value) -> String {
    let lists = [
        ("hosts", ""),
        ("ports", "port "),
        ("methods", ""),
        ("paths", ""),
        ("users", "user "),
        ("agents", "agent "),
        ("processes", "process "),
        ("sessions", "session "),
    ];
    let conditions =
        lists.into_iter().map(|(name, word)| (joined_values(rule, name), word)).filter(|(w, _)| !w.is_empty());
    let conditions: Vec<String> = conditions.map(|(words, word)| format!("{word}{words}")).collect();
    let conditions = if conditions.is_empty() { "everything".to_owned() } else { conditions.join(", ") };
    let until = rule["until"].as_str().map(|u| format!(", until {u}")).unwrap_or_default();
    let note = rule["note"].as_str().map(|n| format!("  # {n}")).unwrap_or_default();
    let [id, source, action, used] = ["id", "source", "action", "used"].map(|name| member(rule, name));
    let line = format!("{id:<16}  {source:<7}  {action:<5}  {conditions}{until}  ({used} used){note}");
    line.chars().filter(|c| !c.is_control()).collect()
}

fn set_mode(api: &InstanceApi, mode: Option<ModeArg>, lasting: Option<HumanDuration>) -> Result<()> {
    let Some(mode) = mode else {
        print(&format!("{}\n", mode_line(&api.call(&OperationId::ListApprovals.call())?)));
        return Ok(());
    };
    // The configured mode has no name.
    let name = mode.to_possible_value().filter(|_| mode != ModeArg::Config);
    let mut input = json!({"mode": name.map(|mode| mode.get_name().to_owned())});
    if let Some(lasting) = lasting {
        input["for"] = json!(lasting);
    }
    print(&format!("{}\n", mode_line(&api.call(&OperationId::SetApprovalMode.call().body(input))?)));
    Ok(())
}

fn suggest(api: &InstanceApi, query: &str, apply: bool, as_json: bool) -> Result<()> {
    let response = api.call(&OperationId::ApprovalSuggestions.call().query("query", query))?;
    if as_json {
        print_json(&response["suggestions"])?;
    }
    for suggested in members(&response, "suggestions") {
        if apply {
            api.call(&OperationId::AddApprovalRule.call().body(suggested["rule"].clone()))?;
        }
        if !as_json {
            let rule = &suggested["rule"];
            let [hosts, ports, methods] = ["hosts", "ports", "methods"].map(|name| joined_values(rule, name));
            let flows = pluralize(suggested["flows"].as_u64().unwrap_or_default(), "flow");
            print_rows(&format!("{flows:>13}  allow {hosts}:{ports}  {methods}\n"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temporary_mode_shows_its_expiry() {
        let until = Timestamp::now().micros() + 15 * 60 * 1_000_000 + 500_000;
        let line = mode_line(&json!({"mode": "ask", "mode_until": until, "mode_is_configured": false}));
        assert!(line.starts_with("ask until 2") && line.ends_with("(15:00 left)"), "{line}");
        assert!(mode_line(&json!({"mode": "ask", "mode_until": null, "mode_is_configured": false})).contains("stops"));
        assert_eq!(mode_line(&json!({"mode": "ask", "mode_until": null, "mode_is_configured": true})), "ask");
    }

    #[test]
    fn rule_is_formatted_in_one_line() {
        let rule = json!({"id": "r1", "source": "global", "action": "deny", "hosts": ["*.x.test", "y"], "methods": ["GET"],
            "used": 7, "note": "why", "until": "2027-01-01T00:00:00Z"});
        let expected = "r1                global   deny   *.x.test y, GET, until 2027-01-01T00:00:00Z  (7 used)  # why";
        assert_eq!(rule_line(&rule), expected);
        assert!(rule_line(&json!({"id": "a", "action": "allow"})).contains("everything"));
    }
}
