//! `interflow pending`: everything that waits for a decision in the running instance, in one queue: requests that await
//! approval, and flows held by rules.

use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use interflow_host::data_dir::DataDir;
use interflow_types::Timestamp;
use interflow_types::units::{HumanDuration, pluralize};
use serde_json::{Map, Value, json};

use super::mode_line;
use crate::cli::flows::read_body_argument;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TableFormat, clock, fit, member, members, print, terminal_width, text_width};
use crate::{CliError, Result};

#[derive(Debug, Subcommand)]
pub enum PendingCommand {
    /// List pending requests: those that await approval and those held by rules.
    List {
        /// Keep running and print the list again whenever it changes.
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        format: FormatArgs<TableFormat>,
    },
    /// Allow a pending request, optionally creating a rule.
    Allow(ResolutionArgs),
    /// Deny a pending request, optionally creating a rule.
    Deny(DenyArgs),
    /// Allow a pending request with changes. A request that awaits approval can only be given another body.
    Edit(EditArgs),
    /// Answer a request held by a rule in place of the origin.
    Answer(AnswerArgs),
    /// Drop a message held by a rule; the connection stays open.
    Drop {
        #[arg(help = RULE_ID)]
        id: String,
    },
}

/// Columns of a request that are never cut for what is behind it.
const MIN_PLACE: usize = 24;

/// How a pending request is selected on the command line.
const ID: &str = "ID shown by `pending list`: `3`, or `rule-5` if a rule holds it; with `@` and more if several replicas share the recording";
const ID_OR_ALL: &str = "ID shown by `pending list`: `3`, or `rule-5` if a rule holds it; or `all`";
const RULE_ID: &str = "ID shown by `pending list`: `rule-5`";

#[derive(Debug, Args)]
pub struct ResolutionArgs {
    #[arg(help = ID_OR_ALL)]
    pub id: String,
    /// Requests that the decision applies to; all but `once` create a rule.
    #[arg(long, value_enum, default_value_t = ScopeArg::Once)]
    pub scope: ScopeArg,
    /// Lifetime of the rule: 30m, 7d [default: permanent]. Ignored for `once`.
    #[arg(long = "for", value_name = "TIME")]
    pub lasting: Option<HumanDuration>,
    /// Apply to every client, not only to the user, program or session that sent the request.
    #[arg(long)]
    pub everyone: bool,
}

#[derive(Debug, Args)]
pub struct DenyArgs {
    #[command(flatten)]
    pub resolution: ResolutionArgs,
    /// Reason that the client is told. Only for a request held by a rule.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["scope", "lasting", "everyone"])]
    pub reason: Option<String>,
}

#[derive(Debug, Args)]
pub struct EditArgs {
    #[arg(help = ID)]
    pub id: String,
    /// Replace the method.
    #[arg(long)]
    pub method: Option<String>,
    /// Replace the URL.
    #[arg(long)]
    pub url: Option<String>,
    /// Replace the status of a held response.
    #[arg(long)]
    pub status: Option<u16>,
    #[command(flatten)]
    pub content: ContentArgs,
}

#[derive(Debug, Args)]
pub struct AnswerArgs {
    #[arg(help = RULE_ID)]
    pub id: String,
    /// Status of the response.
    #[arg(long, default_value_t = 200)]
    pub status: u16,
    #[command(flatten)]
    pub content: ContentArgs,
}

#[derive(Debug, Args)]
pub struct ContentArgs {
    /// Header: `Name: value` sets it, `Name:` removes it (repeatable).
    #[arg(short = 'H', long = "header", value_name = "FIELD")]
    pub headers: Vec<String>,
    /// Replace the body: text, `@FILE`, or `@-` for stdin.
    #[arg(long, value_name = "TEXT")]
    pub body: Option<String>,
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
    /// The host and all its subdomains, on any port.
    Subdomains,
}

pub fn run(command: PendingCommand, home: &DataDir) -> Result<()> {
    let api = InstanceApi::require(home)?;
    match command {
        PendingCommand::List { follow, format } => list(&api, follow, &format),
        PendingCommand::Allow(args) => resolve(&api, "allow", &args, None),
        PendingCommand::Deny(args) => resolve(&api, "deny", &args.resolution, args.reason.as_deref()),
        PendingCommand::Edit(args) => edit(&api, &args),
        PendingCommand::Answer(args) => answer(&api, &args),
        PendingCommand::Drop { id } => {
            require_rule_hold(&id, "only a message held by a rule can be dropped")?;
            decide(&api, &id, &json!({"action": "drop"}))
        }
    }
}

fn list(api: &InstanceApi, follow: bool, format: &FormatArgs<TableFormat>) -> Result<()> {
    let mut pending = api.call(&OperationId::ListPending.call())?;
    loop {
        let mut state = api.call(&OperationId::ListApprovals.call())?;
        state["pending"] = pending["pending"].take();
        format.print(&state, || table(&state, terminal_width()))?;
        if !follow {
            return Ok(());
        }
        let version = member(&pending, "version");
        while member(&pending, "version") == version {
            pending = api.call(&OperationId::ListPending.call().query("after", &version).query("wait", "30s"))?;
        }
    }
}

fn table(state: &Value, terminal: Option<usize>) -> String {
    let mut text = format!("mode {}\n", mode_line(state));
    let now = Timestamp::now().micros();
    for held in members(state, "pending") {
        let PendingLine { id, left, waiting, who, place, behind } = PendingLine::from_json(held, now);
        let before = format!("{id:>6}  {:>5} left  {waiting} waiting  {who}  ", clock(left));
        // What holds it stays visible behind a long URL.
        let rest = terminal.map(|width| width.saturating_sub(text_width(&format!("{before}{behind}"))));
        let place = rest.map_or_else(|| place.clone(), |width| fit(&place, width.max(MIN_PLACE)));
        text.push_str(&format!("{before}{place}{behind}\n"));
    }
    if state["pending"].as_array().is_none_or(Vec::is_empty) {
        text.push_str("nothing is pending\n");
    }
    text.chars().filter(|c| *c == '\n' || !c.is_control()).collect()
}

/// What lists show of a pending request.
pub struct PendingLine {
    /// The ID by which it is decided.
    pub id: String,
    /// Seconds until it times out.
    pub left: u64,
    /// Flows that wait for the decision.
    pub waiting: String,
    pub who: String,
    pub place: String,
    /// The rule that holds it, its note, and the replica that holds it if several share the recording.
    pub behind: String,
}

impl PendingLine {
    /// `now` is in microseconds.
    pub fn from_json(held: &Value, now: u64) -> Self {
        let left = Duration::from_micros(held["until"].as_u64().unwrap_or(now).saturating_sub(now)).as_secs();
        let place = match (held["status"].as_u64(), &*member(held, "method")) {
            (Some(status), method) => format!("{method} {} answered {status}", member(held, "url")),
            (None, "") => format!("{} {}", member(held, "what"), member(held, "url")),
            (None, method) => format!("{method} {}", member(held, "url")),
        };
        let client = &held["client"];
        let who = [member(client, "user"), member(client, "process"), member(client, "address")];
        let mut behind = match (held["rule"].as_str(), held["note"].as_str()) {
            (Some(rule), Some(note)) => format!("  held by {rule}: {note}"),
            (Some(rule), None) => format!("  held by {rule}"),
            (None, Some(note)) => format!("  {note}"),
            (None, None) => String::new(),
        };
        behind.extend(held["replica"].as_str().map(|name| format!("  at {name}")));
        let id = member(held, "id");
        Self {
            id: id.strip_prefix("approval-").unwrap_or(&id).to_owned(),
            left,
            waiting: member(held, "waiting"),
            who: who.into_iter().find(|w| !w.is_empty()).unwrap_or_default(),
            place,
            behind,
        }
    }
}

fn resolve(api: &InstanceApi, action: &str, args: &ResolutionArgs, reason: Option<&str>) -> Result<()> {
    let scope = args.scope.to_possible_value().map(|v| v.get_name().replace('-', "_"));
    let mut approval = json!({"action": action, "scope": scope, "everyone": args.everyone});
    if let Some(lasting) = args.lasting {
        approval["for"] = json!(lasting);
    }
    let mut hold = json!({"action": action});
    if let Some(reason) = reason {
        hold["reason"] = reason.into();
    }
    if args.id == "all" {
        let (mut is_any_decided, mut failure) = (false, None);
        for pending in members(&api.call(&OperationId::ListPending.call())?, "pending") {
            let id = member(pending, "id");
            // A rule created for an earlier request may already have decided this one.
            let decided = decide(api, &id, if is_rule_hold(&id) { &hold } else { &approval });
            failure = decided.map(|()| is_any_decided = true).err().or(failure);
        }
        return failure.filter(|_| !is_any_decided).map_or(Ok(()), Err);
    }
    check_id(&args.id)?;
    if is_rule_hold(&args.id) {
        if args.scope != ScopeArg::Once {
            let why = format!("{} is held by a rule and can only be decided once; change the rule instead", args.id);
            return Err(CliError::Usage(why));
        }
        return decide(api, &args.id, &hold);
    }
    if reason.is_some() {
        return Err(CliError::Usage(format!("--reason: {} awaits approval; only rules give reasons", args.id)));
    }
    decide(api, &args.id, &approval)
}

fn edit(api: &InstanceApi, args: &EditArgs) -> Result<()> {
    check_id(&args.id)?;
    let mut changes = content(&args.content)?;
    changes.extend(args.method.as_ref().map(|m| ("method".to_owned(), m.as_str().into())));
    changes.extend(args.url.as_ref().map(|u| ("url".to_owned(), u.as_str().into())));
    changes.extend(args.status.map(|s| ("status".to_owned(), s.into())));
    if changes.is_empty() {
        return Err(CliError::Usage("no change given: use --method, --url, --status, -H or --body".into()));
    }
    if is_rule_hold(&args.id) {
        changes.insert("action".into(), "change".into());
    } else {
        if let Some((name, _)) = changes.iter().find(|(name, _)| *name != "body") {
            let id = &args.id;
            return Err(CliError::Usage(format!(
                "{id} awaits approval: only its body can be replaced, not its {name}"
            )));
        }
        changes.insert("action".into(), "allow".into());
        changes.insert("scope".into(), "once".into());
    }
    decide(api, &args.id, &Value::Object(changes))
}

fn answer(api: &InstanceApi, args: &AnswerArgs) -> Result<()> {
    require_rule_hold(&args.id, "only a request held by a rule can be answered")?;
    let mut response = content(&args.content)?;
    response.insert("action".into(), "answer".into());
    response.insert("status".into(), args.status.into());
    decide(api, &args.id, &Value::Object(response))
}

fn content(args: &ContentArgs) -> Result<Map<String, Value>> {
    let mut content = Map::new();
    if !args.headers.is_empty() {
        let field = |text: &String| {
            let (name, value) = text.split_once(':').unwrap_or((text, ""));
            json!([name.trim(), value.trim()])
        };
        content.insert("headers".into(), args.headers.iter().map(field).collect());
    }
    if let Some(body) = &args.body {
        let bytes = read_body_argument(body)?;
        let text = std::str::from_utf8(&bytes).map_err(|e| format!("--body: only text can be given: {e}"))?;
        content.insert("body".into(), text.into());
    }
    Ok(content)
}

fn is_rule_hold(id: &str) -> bool {
    id.starts_with("rule-")
}

fn check_id(id: &str) -> Result<()> {
    // Behind the number is the process that holds it, where several replicas share the recording.
    let number = id.split_once('@').map_or(id, |(number, _)| number);
    let number = number.strip_prefix("rule-").or(number.strip_prefix("approval-")).unwrap_or(number);
    let wrong = |_| CliError::Usage(format!("`{id}` is not the ID of a pending request; see `pending list`"));
    number.parse::<u64>().map(drop).map_err(wrong)
}

fn require_rule_hold(id: &str, why: &str) -> Result<()> {
    check_id(id)?;
    if is_rule_hold(id) { Ok(()) } else { Err(CliError::Usage(format!("{id} awaits approval: {why}"))) }
}

fn decide(api: &InstanceApi, id: &str, decision: &Value) -> Result<()> {
    let done = api.call(&OperationId::DecidePending.call().path(id).body(decision.clone()))?;
    let rule = done["rule"]["id"].as_str().map(|id| format!(", rule {id}")).unwrap_or_default();
    let flows = pluralize(done["flows"].as_u64().unwrap_or_default(), "flow");
    print(&format!("{id}: {}, {flows}{rule}\n", member(decision, "action")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_may_name_where_a_request_is_held() {
        for (id, is_one) in
            [("3", true), ("rule-5@8c2f01aa", true), ("approval-3@8c2f01aa", true), ("@8c2f01aa", false)]
        {
            assert_eq!(check_id(id).is_ok(), is_one, "{id}");
        }
    }

    #[test]
    fn pending_requests_are_formatted_in_one_line() {
        let state = json!({"mode": "ask", "pending": [
            {"id": "approval-3", "kind": "approval", "what": "request", "url": "https://a.test/x\u{1b}[1m?q=1", "method": "GET",
             "client": {"process": "curl", "address": "127.0.0.1"}, "waiting": 2, "until": 0},
            {"id": "approval-4", "kind": "approval", "what": "tunnel", "url": "b.test:22",
             "client": {"address": "192.0.2.1"}, "waiting": 1, "until": 0},
            {"id": "rule-5", "kind": "rule", "what": "response", "url": "http://c.test/", "method": "GET", "status": 200,
             "rule": "look", "note": "why", "client": {"address": "192.0.2.1"}, "waiting": 1, "until": 0},
            {"id": "approval-6@8c2f01aa", "replica": "gateway-2", "kind": "approval", "what": "tunnel", "url": "d.test:22",
             "client": {"address": "192.0.2.1"}, "waiting": 1, "until": 0},
        ]});
        assert_eq!(
            table(&state, None),
            "mode ask\n     3   0:00 left  2 waiting  curl  GET https://a.test/x[1m?q=1\n     4   0:00 left  1 waiting  \
             192.0.2.1  tunnel b.test:22\nrule-5   0:00 left  1 waiting  192.0.2.1  GET http://c.test/ answered 200  held by look: why\n\
             6@8c2f01aa   0:00 left  1 waiting  192.0.2.1  tunnel d.test:22  at gateway-2\n"
        );
        let narrow = table(&state, Some(60));
        assert!(narrow.contains("GET http://c.test/ answ…  held by look: why"), "{narrow}");
        assert_eq!(table(&json!({"mode": "observe", "pending": []}), None), "mode observe\nnothing is pending\n");
    }
}
