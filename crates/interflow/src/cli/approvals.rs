//! `interflow approvals`: pending requests, approval rules and the approval mode of the running instance.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use interflow_approvals::approvals::presets;
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_host::pluralize::pluralize;
use interflow_types::units::HumanDuration;
use interflow_types::{Timestamp, percent};
use serde_json::{Map, Value, json};

use crate::CliError;

#[derive(Debug, Subcommand)]
pub enum ApprovalsCommand {
    /// List pending requests: those that await approval and those held by rules.
    List {
        /// Keep running and print the list again whenever it changes.
        #[arg(long)]
        follow: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Allow a pending request, optionally creating a rule.
    Allow(ResolutionArgs),
    /// Deny a pending request, optionally creating a rule.
    Deny(ResolutionArgs),
    /// List, add and remove approval rules.
    #[command(subcommand)]
    Rules(ApprovalRulesCommand),
    /// Show or set the approval mode.
    Mode {
        /// observe, ask or enforce; `config` restores the configured mode.
        mode: Option<String>,
        /// Duration, e.g. 15m [default: until the instance stops].
        #[arg(long = "for", value_name = "TIME")]
        lasting: Option<HumanDuration>,
    },
    /// Suggest rules that allow the recorded traffic.
    Suggest {
        /// Query that selects the flows: `time:-7d host:example.com`.
        query: Vec<String>,
        /// Create the suggested rules.
        #[arg(long)]
        apply: bool,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// List the built-in rule presets or show one. `approvals.presets` in the configuration enables them.
    Presets {
        /// Name of a preset.
        name: Option<String>,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct ResolutionArgs {
    /// ID shown by `approvals list` (`3`, or `rule-5` for a flow held by a rule), or `all`.
    pub id: String,
    /// Scope of the decision.
    #[arg(long, value_enum, default_value_t = ScopeArg::Once)]
    pub scope: ScopeArg,
    /// Lifetime of the rule: 30m, 7d [default: permanent]. Ignored for `once`.
    #[arg(long = "for", value_name = "TIME")]
    pub lasting: Option<HumanDuration>,
    /// Apply to every client, not only to the user, program or session that sent the request.
    #[arg(long)]
    pub everyone: bool,
    /// Replace the request body with this text file (`-` for stdin). Applies once, and only if `approvals list --json`
    /// shows a body.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["scope", "lasting", "everyone"])]
    pub body: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ScopeArg {
    /// This pending request only.
    Once,
    /// This method and path.
    Path,
    /// This host and port.
    Host,
    /// This host on any port.
    AnyPort,
    /// All subdomains of the host's domain.
    Subdomains,
}

#[derive(Debug, Subcommand)]
pub enum ApprovalRulesCommand {
    /// List rules.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Add a rule: `add allow '*.example.com' --method GET`.
    Add(Box<ApprovalRuleAddArgs>),
    /// Remove a rule that was created at runtime.
    Remove {
        /// Rule ID.
        id: String,
    },
}

#[derive(Debug, Args)]
pub struct ApprovalRuleAddArgs {
    /// allow or deny.
    #[arg(value_parser = ["allow", "deny"])]
    pub action: String,
    /// Host patterns: names (`*.example.com`: subdomains), addresses or networks.
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

/// The API of the running instance; secrets, sessions and pending requests exist nowhere else.
pub fn running_instance(home: &DataDir) -> Result<InstanceApi, CliError> {
    let none = "no instance is running with this data directory; start one with `interflow run`";
    InstanceApi::for_instance(home)?.ok_or_else(|| CliError::Failed(none.to_owned()))
}

pub fn run(command: ApprovalsCommand, home: &DataDir) -> Result<(), CliError> {
    let api = running_instance(home)?;
    match command {
        ApprovalsCommand::List { follow, json } => list(&api, follow, json),
        ApprovalsCommand::Allow(args) => resolve(&api, "allow", &args),
        ApprovalsCommand::Deny(args) => resolve(&api, "deny", &args),
        ApprovalsCommand::Rules(command) => rules(&api, command),
        ApprovalsCommand::Mode { mode, lasting } => set_mode(&api, mode.as_deref(), lasting),
        ApprovalsCommand::Suggest { query, apply, json } => suggest(&api, &query.join(" "), apply, json),
        ApprovalsCommand::Presets { name, json } => presets(name.as_deref(), json),
    }
}

/// Lists the presets or shows one. Does not need a running instance.
pub fn presets(name: Option<&str>, as_json: bool) -> Result<(), CliError> {
    let chosen: Vec<&presets::RulePreset> = match name {
        Some(name) => vec![presets::find(name).map_err(CliError::Usage)?],
        None => presets::all().iter().collect(),
    };
    if as_json {
        print_json(&json!(chosen));
        return Ok(());
    }
    for preset in chosen {
        print(&format!("{:<18}  {}\n", preset.name, preset.about));
        for rule in preset.rules.iter().filter(|_| name.is_some()) {
            let any = |list: &[String], all: &str| if list.is_empty() { all.to_owned() } else { list.join(" ") };
            let paths = any(&rule.paths, "");
            print(&format!("    allow  {:<12} {} {paths}\n", any(&rule.methods, "any method"), rule.hosts.join(" ")));
        }
    }
    Ok(())
}

/// Write errors are ignored: the reader may have closed the pipe (`head`).
pub fn print(text: &str) {
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

pub fn print_json(value: &Value) {
    print(&format!("{value:#}\n"));
}

/// A JSON member as text without control characters.
pub fn member(value: &Value, name: &str) -> String {
    let text = match &value[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    text.chars().filter(|c| !c.is_control()).collect()
}

pub fn members<'v>(value: &'v Value, name: &str) -> impl Iterator<Item = &'v Value> {
    value[name].as_array().into_iter().flatten()
}

pub fn joined_values(value: &Value, name: &str) -> String {
    members(value, name).filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
}

fn list(api: &InstanceApi, follow: bool, as_json: bool) -> Result<(), CliError> {
    let mut pending = api.get("/pending")?;
    loop {
        let mut state = api.get("/approvals")?;
        state["pending"] = pending["pending"].take();
        if as_json {
            print_json(&state);
        } else {
            print(&table(&state));
        }
        if !follow {
            return Ok(());
        }
        let version = member(&pending, "version");
        while member(&pending, "version") == version {
            pending = api.get(&format!("/pending?after={version}&wait=30s"))?;
        }
    }
}

fn table(state: &Value) -> String {
    let mut text = format!("mode {}\n", mode_line(state));
    let now = Timestamp::now().micros();
    for held in members(state, "pending") {
        let left = Duration::from_micros(held["until"].as_u64().unwrap_or(now).saturating_sub(now)).as_secs();
        let place = match (held["status"].as_u64(), &*member(held, "method")) {
            (Some(status), method) => format!("{method} {} answered {status}", member(held, "url")),
            (None, "") => format!("{} {}", member(held, "what"), member(held, "url")),
            (None, method) => format!("{method} {}", member(held, "url")),
        };
        let client = &held["client"];
        let who = [member(client, "user"), member(client, "process"), member(client, "address")];
        let who = who.into_iter().find(|w| !w.is_empty()).unwrap_or_default();
        let by = held["rule"].as_str().map(|rule| format!("  held by {rule}")).unwrap_or_default();
        let id = member(held, "id");
        let id = id.strip_prefix("approval-").unwrap_or(&id);
        let (waiting, left) = (member(held, "waiting"), clock(left));
        text.push_str(&format!("{id:>6}  {left:>5} left  {waiting} waiting  {who}  {place}{by}\n"));
    }
    if state["pending"].as_array().is_none_or(Vec::is_empty) {
        text.push_str("nothing is held\n");
    }
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

/// Formats seconds as `minutes:seconds`.
fn clock(seconds: u64) -> String {
    format!("{}:{:02}", seconds / 60, seconds % 60)
}

/// Formats the active mode and its expiry.
fn mode_line(state: &Value) -> String {
    let mode = member(state, "mode");
    if state["mode_is_configured"] != false {
        return mode;
    }
    let Some(until) = state["mode_until"].as_i64() else {
        return format!(
            "{mode} (until the instance stops; `interflow approvals mode config` restores the configured mode)"
        );
    };
    let left = (until - Timestamp::now().micros() as i64).max(0) as u64 / 1_000_000;
    let at = jiff::Timestamp::from_microsecond(until).unwrap_or_default();
    let at = at.to_zoned(jiff::tz::TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S").to_string();
    format!("{mode} until {at} ({} left)", clock(left))
}

fn resolve(api: &InstanceApi, action: &str, args: &ResolutionArgs) -> Result<(), CliError> {
    let ids: Vec<String> = if args.id == "all" {
        members(&api.get("/pending")?, "pending").map(|h| member(h, "id")).collect()
    } else {
        let number = args.id.strip_prefix("rule-").or(args.id.strip_prefix("approval-")).unwrap_or(&args.id);
        number
            .parse::<u64>()
            .map_err(|_| CliError::Usage(format!("`{}` is not the ID of a pending request", args.id)))?;
        vec![args.id.clone()]
    };
    let scope = args.scope.to_possible_value().map(|v| v.get_name().replace('-', "_"));
    let mut input = json!({"action": action, "scope": scope, "everyone": args.everyone});
    if let Some(lasting) = args.lasting {
        input["for"] = json!(lasting);
    }
    if let Some(file) = &args.body {
        if action != "allow" || args.id == "all" {
            return Err(CliError::Usage(
                "--body applies to a single allowed request: `approvals allow 3 --body FILE`".to_owned(),
            ));
        }
        input["body"] = json!(read_body(file)?);
    }
    for id in ids {
        let input = if id.starts_with("rule-") {
            if args.scope != ScopeArg::Once {
                let why = format!("{id} is held by a rule file and can only be decided once; change the rule instead");
                return Err(CliError::Usage(why));
            }
            match &args.body {
                Some(_) => json!({"action": action, "body": input["body"]}),
                None => json!({"action": action}),
            }
        } else {
            input.clone()
        };
        match api.post(&format!("/pending/{id}"), &input) {
            Ok(done) => {
                let rule = done["rule"]["id"].as_str().map(|id| format!(", rule {id}")).unwrap_or_default();
                print(&format!(
                    "{id}: {action}, {}{rule}\n",
                    pluralize(done["flows"].as_u64().unwrap_or_default(), "flow")
                ));
            }
            // A rule created for an earlier request may already have decided this one.
            Err(_) if args.id == "all" => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Reads the replacement body from a file or standard input.
fn read_body(file: &Path) -> Result<String, CliError> {
    let read = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin().lock())
    } else {
        std::fs::read_to_string(file)
    };
    read.map_err(|e| CliError::Failed(format!("{} cannot be read as text: {e}", file.display())))
}

fn rules(api: &InstanceApi, command: ApprovalRulesCommand) -> Result<(), CliError> {
    match command {
        ApprovalRulesCommand::List { json: true } => print_json(&api.get("/approvals/rules")?["rules"]),
        ApprovalRulesCommand::List { json: false } => {
            members(&api.get("/approvals/rules")?, "rules").for_each(|rule| print(&format!("{}\n", rule_line(rule))));
        }
        ApprovalRulesCommand::Add(args) => {
            let mut rule = Map::new();
            rule.insert("action".into(), args.action.into());
            let lists = [
                ("hosts", args.hosts),
                ("ports", args.ports),
                ("methods", args.methods),
                ("paths", args.paths),
                ("users", args.users),
                ("agents", args.agents),
                ("processes", args.processes),
            ];
            rule.extend(lists.into_iter().filter(|(_, l)| !l.is_empty()).map(|(name, l)| (name.to_owned(), json!(l))));
            let texts = [("until", args.until), ("note", args.note)];
            rule.extend(texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text?.into()))));
            let made = api.post("/approvals/rules", &Value::Object(rule))?;
            print(&format!("{}\n", rule_line(&made)));
        }
        ApprovalRulesCommand::Remove { id } => {
            drop(api.delete(&format!("/approvals/rules/{}", percent::encoded(&id)))?)
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
    let said = lists.into_iter().map(|(name, word)| (joined_values(rule, name), word)).filter(|(w, _)| !w.is_empty());
    let said: Vec<String> = said.map(|(words, word)| format!("{word}{words}")).collect();
    let said = if said.is_empty() { "everything".to_owned() } else { said.join(", ") };
    let until = rule["until"].as_str().map(|u| format!(", until {u}")).unwrap_or_default();
    let note = rule["note"].as_str().map(|n| format!("  # {n}")).unwrap_or_default();
    let line = format!(
        "{:<16}  {:<7}  {:<5}  {said}{until}  ({} used){note}",
        member(rule, "id"),
        member(rule, "source"),
        member(rule, "action"),
        member(rule, "used")
    );
    line.chars().filter(|c| !c.is_control()).collect()
}

fn set_mode(api: &InstanceApi, mode: Option<&str>, lasting: Option<HumanDuration>) -> Result<(), CliError> {
    let Some(mode) = mode else {
        print(&format!("{}\n", mode_line(&api.get("/approvals")?)));
        return Ok(());
    };
    let mut input = json!({"mode": if mode == "config" { Value::Null } else { mode.into() }});
    if let Some(lasting) = lasting {
        input["for"] = json!(lasting);
    }
    print(&format!("{}\n", mode_line(&api.post("/approvals/mode", &input)?)));
    Ok(())
}

fn suggest(api: &InstanceApi, query: &str, apply: bool, as_json: bool) -> Result<(), CliError> {
    let found = api.get(&format!("/approvals/suggestions?query={}", percent::encoded(query)))?;
    if as_json {
        print_json(&found["suggestions"]);
    }
    for suggested in members(&found, "suggestions") {
        if apply {
            api.post("/approvals/rules", &suggested["rule"])?;
        }
        if !as_json {
            let rule = &suggested["rule"];
            let (hosts, ports) = (joined_values(rule, "hosts"), joined_values(rule, "ports"));
            let line = format!(
                "{:>7} flows  allow {hosts}:{ports}  {}\n",
                member(suggested, "flows"),
                joined_values(rule, "methods")
            );
            print(&line);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pending_requests_are_formatted_in_one_line() {
        let state = json!({"mode": "ask", "pending": [
            {"id": "approval-3", "kind": "approval", "what": "request", "url": "https://a.test/x\u{1b}[1m?q=1", "method": "GET",
             "client": {"process": "curl", "address": "127.0.0.1"}, "waiting": 2, "until": 0},
            {"id": "approval-4", "kind": "approval", "what": "tunnel", "url": "b.test:22",
             "client": {"address": "192.0.2.1"}, "waiting": 1, "until": 0},
            {"id": "rule-5", "kind": "rule", "what": "response", "url": "http://c.test/", "method": "GET", "status": 200,
             "rule": "look", "client": {"address": "192.0.2.1"}, "waiting": 1, "until": 0},
        ]});
        assert_eq!(
            table(&state),
            "mode ask\n     3   0:00 left  2 waiting  curl  GET https://a.test/x[1m?q=1\n     4   0:00 left  1 waiting  \
             192.0.2.1  tunnel b.test:22\nrule-5   0:00 left  1 waiting  192.0.2.1  GET http://c.test/ answered 200  held by look\n"
        );
        assert_eq!(table(&json!({"mode": "observe", "pending": []})), "mode observe\nnothing is held\n");
    }

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
