//! `interflow keys`: creates, lists, changes, rotates, disables and revokes virtual keys. A running instance has loaded a
//! change when the command returns.

mod groups;
mod parquet;
mod spend;

use clap::{Args, Subcommand};
use interflow_files::EditTurn;
use interflow_host::data_dir::DataDir;
use interflow_limits::{
    GroupLevel, KeyChange, KeyFileError, KeyScope, KeyStore, NewVirtualKey, Quota, RateLimit, TagSet, VirtualKey,
    parse_tags, parse_timestamp,
};
use interflow_types::units::HumanDuration;
use jiff::Timestamp;
use serde_json::json;

use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TableFormat, TextFormat, format_table, print};
use crate::instance::config::InterflowConfig;
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum KeysCommand {
    /// Create a key. It is printed once and stored as a hash.
    #[command(visible_alias = "create")]
    Add(Box<KeyAddArgs>),
    /// List keys with owner, scope, limits and state.
    List(FormatArgs<TableFormat>),
    /// Change the team, expiry or tags of a key.
    Change(KeyChangeArgs),
    /// Replace a key by a new one with the same ID, limits and usage. It is printed once; the old one is rejected.
    Rotate {
        /// Key ID, as shown by `keys list`.
        id: String,
        /// How long the old one stays valid, too: `24h`.
        #[arg(long, value_name = "DURATION")]
        overlap: Option<HumanDuration>,
    },
    /// Reject a key until it is enabled again.
    Disable(KeyIdArgs),
    /// Enable a key that was disabled.
    Enable(KeyIdArgs),
    /// Revoke a key immediately and for ever.
    Revoke(KeyIdArgs),
    /// Manage teams: limits, models and tags of several keys together.
    #[command(subcommand)]
    Team(groups::GroupCommand),
    /// Manage organisations: limits, models and tags of several teams together.
    #[command(subcommand)]
    Organisation(groups::GroupCommand),
    /// Report spending by key, team, tag and other columns.
    Spend(spend::SpendArgs),
}

#[derive(Debug, Args)]
pub struct KeyAddArgs {
    /// Key ID used in limits, logs and audit lines [default: generated].
    #[arg(long)]
    pub id: Option<String>,
    /// Owner of the key; counts as the user of its requests.
    #[arg(long)]
    pub owner: Option<String>,
    /// Description.
    #[arg(long)]
    pub note: Option<String>,
    /// Expiry: `30d`, `2027-01-31` or `2027-01-31T12:00:00Z`.
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Allow only this provider; `*` matches any characters (repeatable).
    #[arg(long = "provider", value_name = "NAME")]
    pub providers: Vec<String>,
    /// Allow only this model (repeatable).
    #[arg(long = "model", value_name = "NAME")]
    pub models: Vec<String>,
    /// Allow only this path (repeatable).
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<String>,
    /// Allow only this MCP server, `SERVER`, or tool, `SERVER/TOOL` (repeatable).
    #[arg(long = "mcp", value_name = "SERVER/TOOL")]
    pub mcp: Vec<String>,
    /// Redaction policy for its requests: a name in `redact.policies`.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    #[command(flatten)]
    pub limits: QuotaArgs,
    /// Team of the key: its limits, models and tags apply, too.
    #[arg(long, value_name = "ID")]
    pub team: Option<String>,
    /// Tag for reports of spending, as `name=value` (repeatable).
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<String>,
    #[command(flatten)]
    pub format: FormatArgs<TextFormat>,
}

#[derive(Debug, Args)]
pub struct QuotaArgs {
    /// Request rate limit: `60/m`.
    #[arg(long, value_name = "RATE")]
    pub requests: Option<RateLimit>,
    /// Token rate limit, input and output: `100000/m`.
    #[arg(long, value_name = "RATE")]
    pub tokens: Option<RateLimit>,
    /// Maximum concurrent requests.
    #[arg(long, value_name = "N")]
    pub concurrent: Option<u32>,
    /// Token budget per day (UTC).
    #[arg(long, value_name = "N")]
    pub tokens_per_day: Option<u64>,
    /// Token budget per calendar month (UTC).
    #[arg(long, value_name = "N")]
    pub tokens_per_month: Option<u64>,
    /// Budget per day in USD (UTC).
    #[arg(long, value_name = "DOLLARS")]
    pub money_per_day: Option<f64>,
    /// Budget per calendar month in USD (UTC).
    #[arg(long, value_name = "DOLLARS")]
    pub money_per_month: Option<f64>,
}

impl QuotaArgs {
    fn to_quota(&self) -> Quota {
        Quota {
            requests: self.requests,
            burst: None,
            tokens: self.tokens,
            concurrent: self.concurrent,
            tokens_per_day: self.tokens_per_day,
            tokens_per_month: self.tokens_per_month,
            money_per_day: self.money_per_day,
            money_per_month: self.money_per_month,
        }
    }
}

#[derive(Debug, Args)]
pub struct KeyIdArgs {
    /// Key ID, as shown by `keys list`.
    id: String,
}

#[derive(Debug, Args)]
pub struct KeyChangeArgs {
    /// Key ID, as shown by `keys list`.
    pub id: String,
    /// Team of the key; empty to remove it from its team.
    #[arg(long, value_name = "ID")]
    pub team: Option<String>,
    /// Expiry: `30d`, `2027-01-31`, `2027-01-31T12:00:00Z` or `never`.
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Tag, in place of those it has (repeatable); empty to remove them.
    #[arg(long = "tag", value_name = "NAME=VALUE")]
    pub tags: Vec<String>,
}

pub fn run(command: KeysCommand, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    home.create()?;
    let store = KeyStore::open(home.join(&config.keys.file)).map_err(|e| e.to_string())?;
    let text = match command {
        KeysCommand::Add(args) => add(*args, &store, config, home)?,
        KeysCommand::List(format) if format.is_json() => {
            let keys: Vec<_> = store.ring().keys().iter().map(|k| as_json(k)).collect();
            serde_json::to_string_pretty(&keys).map_err(|e| e.to_string())? + "\n"
        }
        KeysCommand::List(_) => table(&store),
        KeysCommand::Change(args) => change(args, &store, home)?,
        KeysCommand::Rotate { id, overlap } => {
            let overlap = overlap.map(|overlap| overlap.0);
            let secret = store
                .rotate(&EditTurn::unlimited(), &id, overlap)
                .map_err(|e| e.to_string())?
                .ok_or_else(|| no_such_key(&id))?;
            load_into_instance(home);
            let ring = store.ring();
            let until = ring.keys().iter().find(|k| *k.id == *id).and_then(|k| k.previous_until);
            let old = until.map_or_else(|| "rejected".to_owned(), |until| format!("valid until {until}"));
            interflow_host::errln!("{id} has a new key; it is shown only once, and the old one is {old}");
            format!("{}\n", secret.reveal())
        }
        KeysCommand::Disable(KeyIdArgs { id }) => set_disabled(&store, home, &id, true)?,
        KeysCommand::Enable(KeyIdArgs { id }) => set_disabled(&store, home, &id, false)?,
        KeysCommand::Revoke(KeyIdArgs { id }) => {
            found(store.revoke(&EditTurn::unlimited(), &id), || no_such_key(&id))?;
            load_into_instance(home);
            format!("{id} is revoked\n")
        }
        KeysCommand::Team(command) => groups::run(command, GroupLevel::Team, &store, home)?,
        KeysCommand::Organisation(command) => groups::run(command, GroupLevel::Organisation, &store, home)?,
        KeysCommand::Spend(args) => match spend::run(&args, config, home)? {
            Some(text) => text,
            None => return Ok(()),
        },
    };
    print(&text);
    Ok(())
}

/// Fails if what was to be changed does not exist.
fn found(is_found: Result<bool, KeyFileError>, missing: impl Fn() -> CliError) -> Result<()> {
    is_found.map_err(|e| e.to_string())?.then_some(()).ok_or_else(missing)
}

fn no_such_key(id: &str) -> CliError {
    CliError::Failed(format!("no such key: {id}; see `interflow keys list`"))
}

fn set_disabled(store: &KeyStore, home: &DataDir, id: &str, disabled: bool) -> Result<String> {
    let change = KeyChange { disabled: Some(disabled), ..KeyChange::default() };
    apply(store, home, id, change)?;
    Ok(format!("{id} is {}\n", if disabled { "disabled" } else { "enabled" }))
}

fn change(args: KeyChangeArgs, store: &KeyStore, home: &DataDir) -> Result<String> {
    let change = KeyChange {
        disabled: None,
        expires: args.expires.as_deref().map(parse_new_expiry).transpose()?,
        team: args.team.map(|id| Some(id).filter(|id| !id.is_empty())),
        tags: (!args.tags.is_empty()).then(|| parse_tag_args(&args.tags)).transpose()?,
    };
    if change == KeyChange::default() {
        return Err(CliError::Usage("nothing to change: give --team, --expires or --tag".into()));
    }
    apply(store, home, &args.id, change)?;
    Ok(format!("{} is changed\n", args.id))
}

fn apply(store: &KeyStore, home: &DataDir, id: &str, change: KeyChange) -> Result<()> {
    found(store.change(&EditTurn::unlimited(), id, change), || no_such_key(id))?;
    load_into_instance(home);
    Ok(())
}

/// Tags given on the command line, each as `name=value`.
fn parse_tag_args(tags: &[String]) -> Result<TagSet> {
    parse_tags(&tags.join(",")).map_err(|e| CliError::Usage(format!("--tag: {e}")))
}

/// An expiry, or `never`.
fn parse_new_expiry(text: &str) -> Result<Option<Timestamp>> {
    match text {
        "never" => Ok(None),
        text => parse_expiry(text).map(Some).map_err(CliError::Usage),
    }
}

/// Lets a running instance load the keys file now rather than when it next looks for changes.
fn load_into_instance(home: &DataDir) {
    let reloaded =
        InstanceApi::for_instance(home).and_then(|api| api.map(|a| a.call(&OperationId::Reload.call())).transpose());
    if let Err(e) = reloaded {
        interflow_host::errln!("warning: the keys file is written, but the running instance did not load it: {e}");
    }
}

fn add(args: KeyAddArgs, store: &KeyStore, config: &InterflowConfig, home: &DataDir) -> Result<String> {
    if let Some(name) = args.policy.as_ref().filter(|name| !config.redact.has_policy(name)) {
        return Err(CliError::Usage(format!("no policy {name} in redact.policies: add its file there first")));
    }
    let limits = args.limits.to_quota();
    limits.check().map_err(CliError::Usage)?;
    let new = NewVirtualKey {
        id: args.id.unwrap_or_default(),
        owner: args.owner,
        note: args.note,
        expires: args.expires.as_deref().map(parse_expiry).transpose().map_err(CliError::Usage)?,
        scope: KeyScope { providers: args.providers, models: args.models, paths: args.paths, mcp: args.mcp },
        policy: args.policy,
        limits,
        team: args.team,
        tags: parse_tag_args(&args.tags)?,
    };
    let (secret, id) = store.add(&EditTurn::unlimited(), new).map_err(|e| e.to_string())?;
    load_into_instance(home);
    if args.format.is_json() {
        return Ok(json!({ "id": id, "key": secret.reveal() }).to_string() + "\n");
    }
    let file = store.path();
    interflow_host::errln!("created key {id}; it is shown only once and stored as a hash in {}", file.display());
    Ok(format!("{}\n", secret.reveal()))
}

/// Parses a timestamp, a date or a duration from now.
fn parse_expiry(text: &str) -> Result<Timestamp, String> {
    match text.parse::<HumanDuration>() {
        Ok(span) => {
            let micros = i64::try_from(span.0.as_micros()).unwrap_or(i64::MAX);
            Timestamp::now()
                .as_microsecond()
                .checked_add(micros)
                .and_then(|at| Timestamp::from_microsecond(at).ok())
                .ok_or_else(|| format!("`{text}` is too far in the future"))
        }
        Err(_) => parse_timestamp(text).map_err(|e| format!("{e}, or for how long: 90d")),
    }
}

fn as_json(key: &VirtualKey) -> serde_json::Value {
    let mut value = serde_json::to_value(key).unwrap_or_default();
    value["state"] = key.state(Timestamp::now()).as_str().into();
    value
}

fn table(store: &KeyStore) -> String {
    let ring = store.ring();
    if ring.keys().is_empty() {
        return format!("no keys in {}; create one with `interflow keys add --owner NAME`\n", store.path().display());
    }
    let now = Timestamp::now();
    let header = ["ID", "OWNER", "STATE", "EXPIRES", "PROVIDERS", "MODELS", "LIMITS"].map(str::to_owned);
    let mut rows = vec![header.to_vec()];
    rows.extend(ring.keys().iter().map(|k| {
        vec![
            k.id.to_string(),
            k.owner.as_deref().unwrap_or("-").to_owned(),
            k.state(now).as_str().to_owned(),
            day(k.expires),
            list(&k.scope.providers),
            list(&k.scope.models),
            k.limits.as_ref().map_or_else(|| "-".into(), limits),
        ]
    }));
    // Columns that most files do not need.
    if ring.keys().iter().any(|k| !k.scope.mcp.is_empty()) {
        insert_column(&mut rows, 6, "MCP", ring.keys().iter().map(|k| list(&k.scope.mcp)));
    }
    if ring.keys().iter().any(|k| k.team.is_some()) {
        let teams = ring.keys().iter().map(|k| k.team.as_ref().map_or("-", |team| &*team.id));
        insert_column(&mut rows, 2, "TEAM", teams.map(str::to_owned));
    }
    if ring.keys().iter().any(|k| k.previous_until.is_some_and(|end| end > now)) {
        let ends = ring.keys().iter().map(|k| k.previous_until.filter(|end| *end > now));
        let ends = ends.map(|end| end.map_or_else(|| "-".into(), |end| end.to_string()));
        insert_column(&mut rows, 4, "OLD KEY UNTIL", ends);
    }
    format_table(&rows, &["OLD KEY UNTIL", "MCP", "PROVIDERS", "MODELS", "EXPIRES", "TEAM"])
}

fn insert_column(rows: &mut [Vec<String>], at: usize, name: &str, values: impl Iterator<Item = String>) {
    for (row, value) in rows.iter_mut().zip(std::iter::once(name.to_owned()).chain(values)) {
        row.insert(at.min(row.len()), value);
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "all".to_owned() } else { names.join(",") }
}

fn day(time: Option<Timestamp>) -> String {
    time.map_or_else(|| "never".into(), |t| t.to_string()[..10].to_owned())
}

fn limits(quota: &Quota) -> String {
    let value = serde_json::to_value(quota).unwrap_or_default();
    let members = value.as_object().into_iter().flatten();
    members
        .map(|(n, v)| format!("{n}={}", v.as_str().map_or_else(|| v.to_string(), str::to_owned)))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_expiry_is_a_date_or_a_duration() {
        assert_eq!(parse_expiry("2027-01-31").unwrap().to_string(), "2027-01-31T00:00:00Z");
        let soon = parse_expiry("1d").unwrap().as_second() - Timestamp::now().as_second();
        assert!((86_399..=86_401).contains(&soon), "{soon}");
        for bad in ["tomorrow", "", "30"] {
            assert!(parse_expiry(bad).is_err(), "{bad}");
        }
    }
}
