//! `interflow keys team` and `interflow keys organisation`.

use clap::{Args, Subcommand, ValueEnum};
use interflow_files::EditTurn;
use interflow_host::data_dir::DataDir;
use interflow_limits::{GroupChange, GroupLevel, KeyGroup, KeyStore, Quota, TagSet};
use serde_json::{Value, json};

use super::{QuotaArgs, day, found, limits, list, load_into_instance, parse_new_expiry, parse_tag_args};
use crate::cli::output::{FormatArgs, TableFormat, format_table};
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// Create one.
    #[command(visible_alias = "create")]
    Add(GroupSettingsArgs),
    /// Change settings; those that are not given stay.
    Change(GroupSettingsArgs),
    /// List them with state, models, limits and tags.
    List(FormatArgs<TableFormat>),
    /// Reject all its keys until it is enabled again.
    Disable(GroupIdArgs),
    /// Enable one that was disabled.
    Enable(GroupIdArgs),
    /// Remove one to which nothing belongs.
    Remove(GroupIdArgs),
}

#[derive(Debug, Args)]
pub struct GroupIdArgs {
    /// Its ID, as shown by `list`.
    id: String,
}

#[derive(Debug, Args)]
pub struct GroupSettingsArgs {
    /// ID used in limits, logs and reports.
    pub id: String,
    /// Organisation of a team; empty to remove it from its organisation.
    #[arg(long, value_name = "ID")]
    pub organisation: Option<String>,
    /// Description.
    #[arg(long)]
    pub note: Option<String>,
    /// Expiry: `30d`, `2027-01-31`, `2027-01-31T12:00:00Z` or `never`.
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Allow its keys only this model; `*` matches any characters (repeatable).
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
    /// Allow its keys only this MCP server, `SERVER`, or tool, `SERVER/TOOL` (repeatable).
    #[arg(long = "mcp", value_name = "SERVER/TOOL")]
    pub mcp: Vec<String>,
    /// Tag for reports of spending, which its keys inherit (repeatable).
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<String>,
    #[command(flatten)]
    pub limits: QuotaArgs,
    /// Remove what is there of these before the other options apply (repeatable).
    #[arg(long, value_name = "WHAT")]
    pub clear: Vec<Clear>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Clear {
    Models,
    Mcp,
    Tags,
    Limits,
}

pub fn run(command: GroupCommand, level: GroupLevel, store: &KeyStore, home: &DataDir) -> Result<String> {
    let (id, verb) = match command {
        GroupCommand::List(format) => return show(level, store, format.is_json()),
        GroupCommand::Add(args) => {
            let change = settings(&args, level, None)?;
            store.add_group(&EditTurn::unlimited(), level, &args.id, change).map_err(|e| e.to_string())?;
            (args.id, "created")
        }
        GroupCommand::Change(args) => {
            let ring = store.ring();
            let group = ring.group(level, &args.id).ok_or_else(|| no_such_group(level, &args.id))?;
            let change = settings(&args, level, Some(group))?;
            if change == GroupChange::default() {
                return Err(CliError::Usage("nothing to change: give the settings to change".into()));
            }
            apply(store, level, &args.id, change)?;
            (args.id, "changed")
        }
        GroupCommand::Disable(GroupIdArgs { id }) => (set_disabled(store, level, id, true)?, "disabled"),
        GroupCommand::Enable(GroupIdArgs { id }) => (set_disabled(store, level, id, false)?, "enabled"),
        GroupCommand::Remove(GroupIdArgs { id }) => {
            found(store.remove_group(&EditTurn::unlimited(), level, &id), || no_such_group(level, &id))?;
            (id, "removed")
        }
    };
    load_into_instance(home);
    Ok(format!("{level} {id} is {verb}\n"))
}

fn no_such_group(level: GroupLevel, id: &str) -> CliError {
    CliError::Failed(format!("no such {level}: {id}; see `interflow keys {level} list`"))
}

fn apply(store: &KeyStore, level: GroupLevel, id: &str, change: GroupChange) -> Result<()> {
    found(store.change_group(&EditTurn::unlimited(), level, id, change), || no_such_group(level, id))
}

/// Returns the ID.
fn set_disabled(store: &KeyStore, level: GroupLevel, id: String, disabled: bool) -> Result<String> {
    apply(store, level, &id, GroupChange { disabled: Some(disabled), ..GroupChange::default() })?;
    Ok(id)
}

/// The options as a change of a group that exists, or of a new one.
fn settings(args: &GroupSettingsArgs, level: GroupLevel, before: Option<&KeyGroup>) -> Result<GroupChange> {
    if level == GroupLevel::Organisation && args.organisation.is_some() {
        return Err(CliError::Usage("--organisation is for teams".into()));
    }
    let clears = |what: Clear| args.clear.contains(&what);
    let quota = args.limits.to_quota();
    let base = before.and_then(|group| group.limits.clone()).filter(|_| !clears(Clear::Limits)).unwrap_or_default();
    let limits = base.changed(quota.clone());
    limits.check().map_err(CliError::Usage)?;
    let tags = parse_tag_args(&args.tags)?;
    Ok(GroupChange {
        organisation: args.organisation.clone().map(|id| Some(id).filter(|id| !id.is_empty())),
        note: args.note.clone(),
        expires: args.expires.as_deref().map(parse_new_expiry).transpose()?,
        disabled: None,
        mcp: (!args.mcp.is_empty() || clears(Clear::Mcp)).then(|| args.mcp.clone()),
        models: (!args.models.is_empty() || clears(Clear::Models)).then(|| args.models.clone()),
        tags: (!tags.is_empty() || clears(Clear::Tags)).then_some(tags),
        limits: (quota != Quota::default() || clears(Clear::Limits)).then_some(limits),
    })
}

fn show(level: GroupLevel, store: &KeyStore, is_json: bool) -> Result<String> {
    let ring = store.ring();
    let groups: Vec<_> = ring.groups().iter().filter(|group| group.level == level).collect();
    if is_json {
        let with_state = |group: &KeyGroup| -> Result<Value> {
            let mut value = serde_json::to_value(group).map_err(|e| e.to_string())?;
            value["state"] = json!(group.state_now().as_str());
            Ok(value)
        };
        let groups = groups.into_iter().map(|group| with_state(group)).collect::<Result<Vec<_>, _>>()?;
        return Ok(serde_json::to_string_pretty(&groups).map_err(|e| e.to_string())? + "\n");
    }
    if groups.is_empty() {
        return Ok(format!(
            "no {level}s in {}; create one with `interflow keys {level} add ID`\n",
            store.path().display()
        ));
    }
    let mut rows =
        vec![["ID", "ORGANISATION", "STATE", "EXPIRES", "MODELS", "LIMITS", "TAGS"].map(str::to_owned).to_vec()];
    rows.extend(groups.iter().map(|group| {
        vec![
            group.id.to_string(),
            group.parent.as_ref().map_or_else(|| "-".into(), |parent| parent.id.to_string()),
            group.state_now().as_str().to_owned(),
            day(group.expires),
            list(&group.models),
            group.limits.as_ref().map_or_else(|| "-".into(), limits),
            format_tags(&group.tags),
        ]
    }));
    if level == GroupLevel::Organisation {
        rows.iter_mut().for_each(|row| drop(row.remove(1)));
    }
    Ok(format_table(&rows, &["TAGS", "EXPIRES", "MODELS"]))
}

fn format_tags(tags: &TagSet) -> String {
    if tags.is_empty() {
        return "-".into();
    }
    tags.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
}
