//! `interflow import greyproxy`: takes over what Greyproxy kept, and says what was taken and what was not.

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use interflow_engine::approvals::config::{Action, RuleSpec, SecretSpec};
use interflow_engine::approvals::{Approvals, open_of_greyproxy, wellknown};
use interflow_engine::conversations::endpoints::{Endpoint, Endpoints, decoded};
use interflow_engine::conversations::live::Keeper;
use interflow_flow::Timestamp;
use interflow_record::formats::greyproxy::{GreyproxyDb, GreyproxyEndpoint, GreyproxyRule};
use interflow_record::formats::jsonl::JsonlWriter;
use interflow_record::formats::{Exporter as _, ImportReport};
use interflow_record::{EmbeddedStore, Store as _};
use serde_json::{Value, json};

use crate::Failure;
use crate::config::Config;
use crate::counted::counted;
use crate::flows::{Api, Progress, Writing};
use crate::home::Home;
use crate::rooms;

/// What can be taken over.
#[derive(Debug, Subcommand)]
pub enum ImportCommand {
    /// Take over Greyproxy's database: rules, credentials, recorded traffic, and conversations made of it. Nothing in it is
    /// changed; what is there already is left as it is.
    Greyproxy(GreyproxyArgs),
}

/// What is taken over from where.
#[derive(Debug, Args)]
pub struct GreyproxyArgs {
    /// Its database, or its data folder: `~/.local/share/greyproxy`.
    #[arg(value_name = "DB")]
    pub db: PathBuf,
    /// The key of its credentials; `session.key` beside the database when it is not given.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// A host that a credential may be sent to, where its label and value do not tell (repeat for several).
    #[arg(long = "host", value_name = "LABEL=HOST")]
    pub hosts: Vec<String>,
    /// Leave its recorded traffic.
    #[arg(long)]
    pub no_traffic: bool,
}

/// Does it.
pub fn run(command: &ImportCommand, config: &Config, home: &Home) -> Result<(), Failure> {
    let ImportCommand::Greyproxy(args) = command;
    let path = if args.db.is_dir() { args.db.join("greyproxy.db") } else { args.db.clone() };
    let db = GreyproxyDb::open(&path)?;
    let hosts = bound(&args.hosts)?;
    home.create()?;
    let into = match Api::of(home)? {
        Some(api) => Keeping::Instance(api),
        None => Keeping::Here(Box::new(Approvals::new(&config.approvals, home.path())?)),
    };
    let mut report = Report::default();
    rules(&db, &into, &mut report)?;
    credentials(&db, &path, args, &hosts, &into, &mut report)?;
    if args.no_traffic {
        report.not("its recorded traffic, by your wish");
    } else {
        endpoints(&db, config, home, &into, &mut report)?;
        traffic(&db, config, home, &into, &mut report)?;
    }
    let rest = db.rest().map_err(|e| unreadable(&e))?;
    for (n, what) in [
        (rest.conversations, "conversation that it put together: Interflow's are made of the traffic"),
        (rest.pending, "pending request"),
        (rest.names, "name of an address"),
    ] {
        if n > 0 {
            let (word, why) = what.split_once(':').unwrap_or((what, ""));
            report.not(format!("{}{}{why}", counted(n, word), if why.is_empty() { "" } else { ":" }));
        }
    }
    report.not(
        "settings.json, its CA, middlewares: see `interflow config reference`, `interflow ca`, rules with services",
    );
    report.print();
    Ok(())
}

fn unreadable(e: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("the database cannot be read: {e}"))
}

/// What was taken, what was there, what was not.
#[derive(Default)]
struct Report {
    taken: Vec<String>,
    left: Vec<String>,
}

impl Report {
    fn took(&mut self, line: impl Into<String>) {
        self.taken.push(line.into());
    }

    fn not(&mut self, line: impl Into<String>) {
        self.left.push(line.into());
    }

    fn print(&self) {
        anstream::println!("taken over:");
        self.taken.iter().for_each(|line| anstream::println!("  {line}"));
        anstream::println!("not taken over:");
        self.left.iter().for_each(|line| anstream::println!("  {line}"));
    }
}

/// Who keeps rules and secrets.
enum Keeping {
    Instance(Api),
    Here(Box<Approvals>),
}

impl Keeping {
    fn rule(&self, spec: RuleSpec) -> Result<(), String> {
        match self {
            Self::Here(approvals) => approvals.add_rule(spec).map(drop).map_err(|e| e.to_string()),
            Self::Instance(api) => api.post("/approvals/rules", &json!(spec)).map(drop).map_err(told),
        }
    }

    fn secret(&self, spec: SecretSpec) -> Result<(), String> {
        match self {
            Self::Here(approvals) => approvals.add_secret(spec).map(drop).map_err(|e| e.to_string()),
            Self::Instance(api) => api.post("/secrets", &json!(spec)).map(drop).map_err(told),
        }
    }

    /// Placeholders of secrets that are kept already.
    fn placeholders(&self) -> Result<Vec<String>, Failure> {
        Ok(match self {
            Self::Here(approvals) => approvals.secrets().into_iter().map(|s| s.placeholder).collect(),
            Self::Instance(api) => {
                let found = api.get("/secrets")?;
                let all = found["secrets"].as_array().into_iter().flatten();
                all.filter_map(|s| s["placeholder"].as_str().map(str::to_owned)).collect()
            }
        })
    }
}

fn told(failure: Failure) -> String {
    match failure {
        Failure::Failed(why) | Failure::Usage(why) => why,
        Failure::Child(code) => format!("exit code {code}"),
    }
}

/// `LABEL=HOST`, gathered by label.
fn bound(given: &[String]) -> Result<BTreeMap<String, Vec<String>>, Failure> {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in given {
        let (label, host) =
            text.split_once('=').ok_or_else(|| Failure::Usage(format!("--host {text}: write it as LABEL=HOST")))?;
        hosts.entry(label.to_owned()).or_default().push(host.to_owned());
    }
    Ok(hosts)
}

fn rules(db: &GreyproxyDb, into: &Keeping, report: &mut Report) -> Result<(), Failure> {
    let now = Timestamp::now();
    let (mut taken, mut over, mut of_sessions) = (0, 0, 0);
    for rule in db.rules().map_err(|e| unreadable(&e))? {
        if rule.expires.is_some_and(|at| at <= now) {
            over += 1;
        } else if rule.session.is_some() {
            of_sessions += 1;
        } else {
            match ours(&rule).and_then(|spec| into.rule(spec)) {
                Ok(()) => taken += 1,
                Err(why) => report.not(format!("rule {}: {why}", rule.id)),
            }
        }
    }
    report.took(counted(taken, "rule"));
    for (n, why) in [(over, "that had ended"), (of_sessions, "of a session, which its agent brings again")] {
        if n > 0 {
            report.not(format!("{} {why}", counted(n, "rule")));
        }
    }
    Ok(())
}

/// A rule in our words.
fn ours(rule: &GreyproxyRule) -> Result<RuleSpec, String> {
    let action = match rule.action.as_str() {
        "allow" => Action::Allow,
        "deny" => Action::Deny,
        other => return Err(format!("`{other}` is no action")),
    };
    let parts = |text: &str| -> Vec<String> {
        let all: Vec<String> = text.split(',').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
        if all.iter().any(|p| p == "*") { Vec::new() } else { all }
    };
    if rule.container.starts_with("unknown-") {
        return Err(format!(
            "it is for {}, a client without a name; write it with `processes` or `users`",
            rule.container
        ));
    }
    let mut spec = RuleSpec::new(action);
    spec.agents = parts(&rule.container);
    spec.hosts = parts(&rule.destination);
    spec.ports = parts(&rule.port);
    spec.until = rule.expires.map(|at| {
        let at = i64::try_from(at.micros()).ok().and_then(|m| jiff::Timestamp::from_microsecond(m).ok());
        at.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    spec.note = rule.notes.clone().filter(|n| !n.is_empty());
    Ok(spec)
}

/// A credential that could be read.
struct Opened {
    label: String,
    placeholder: String,
    value: String,
}

fn credentials(
    db: &GreyproxyDb,
    path: &Path,
    args: &GreyproxyArgs,
    hosts: &BTreeMap<String, Vec<String>>,
    into: &Keeping,
    report: &mut Report,
) -> Result<(), Failure> {
    let key_file = args.key.clone().unwrap_or_else(|| path.with_file_name("session.key"));
    let key = std::fs::read(&key_file).ok();
    let (opened, sealed) = open_all(db, key.as_deref())?;
    if sealed > 0 {
        let why = if key.is_some() { "does not open them" } else { "is not there" };
        report.not(format!("{}: {} {why}", counted(sealed, "credential"), key_file.display()));
    }
    let present = into.placeholders()?;
    let (mut taken, mut there) = (0, 0);
    for credential in opened {
        if present.contains(&credential.placeholder) {
            there += 1;
            continue;
        }
        let label = credential.label.clone();
        let given = hosts.get(&label).cloned().unwrap_or_else(|| wellknown::hosts_of(&label, &credential.value));
        if given.is_empty() {
            report.not(format!(
                "the credential {label}: nothing tells which hosts it is for; say it with --host {label}=HOST"
            ));
            continue;
        }
        let spec = SecretSpec {
            label: credential.label,
            value: credential.value,
            hosts: given,
            placeholder: Some(credential.placeholder),
            plain_http: false,
        };
        match into.secret(spec) {
            Ok(()) => taken += 1,
            Err(why) => report.not(format!("the credential {label}: {why}")),
        }
    }
    let again = if there > 0 { format!(", {there} there already") } else { String::new() };
    report.took(format!("{} with their placeholders, each bound to its hosts{again}", counted(taken, "credential")));
    Ok(())
}

/// The credentials that the key opens, of sessions that live too; how many it does not open.
fn open_all(db: &GreyproxyDb, key: Option<&[u8]>) -> Result<(Vec<Opened>, u64), Failure> {
    let open = |sealed: &[u8]| key.and_then(|key| open_of_greyproxy(key, sealed));
    let (mut opened, mut closed) = (Vec::new(), 0);
    for credential in db.credentials().map_err(|e| unreadable(&e))? {
        match open(&credential.sealed) {
            Some(value) => opened.push(Opened { label: credential.label, placeholder: credential.placeholder, value }),
            None => closed += 1,
        }
    }
    let now = Timestamp::now();
    for session in db.sessions().map_err(|e| unreadable(&e))? {
        if session.expires.is_some_and(|at| at <= now) {
            continue;
        }
        let mappings =
            open(&session.sealed).and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(&text).ok());
        let Some(mappings) = mappings else {
            closed += 1;
            continue;
        };
        let labels: Value = serde_json::from_str(&session.labels).unwrap_or_default();
        for (placeholder, value) in mappings {
            let label = labels[&placeholder].as_str().unwrap_or(&placeholder).to_owned();
            let taken = opened.iter().any(|o| o.label == label);
            let label = if taken { format!("{label}@{}", session.id) } else { label };
            opened.push(Opened { label, placeholder, value });
        }
    }
    Ok((opened, closed))
}

/// What its owner says of endpoints goes before the traffic that is read by it.
fn endpoints(
    db: &GreyproxyDb,
    config: &Config,
    home: &Home,
    into: &Keeping,
    report: &mut Report,
) -> Result<(), Failure> {
    let found = db.endpoints().map_err(|e| unreadable(&e))?;
    if found.is_empty() {
        return Ok(());
    }
    let mut list: Vec<Endpoint> = match into {
        Keeping::Instance(api) => serde_json::from_value(api.get("/conversations/endpoints")?["endpoints"].take())
            .map_err(|e| Failure::Failed(e.to_string()))?,
        Keeping::Here(_) => Endpoints::of(&store(config, home)?)?.list().to_vec(),
    };
    let mut taken = 0;
    for e in found {
        let Some(shape) = decoded(&e.decoder) else {
            report.not(format!("the endpoint rule for {}{}: there is no decoder `{}`", e.host, e.path, e.decoder));
            continue;
        };
        let id = Endpoint::next_id(&list);
        let GreyproxyEndpoint { host, path, method, priority, enabled, .. } = e;
        let new = Endpoint { id, host, path, method, shape, priority, enabled };
        taken += 1;
        if !list.iter().any(|old| Endpoint { id, ..old.clone() } == new) {
            list.push(new);
        }
    }
    match into {
        Keeping::Instance(api) => drop(api.put("/conversations/endpoints", &json!({"endpoints": list}))?),
        Keeping::Here(_) => Endpoints::new(list).map_err(Failure::Failed)?.keep(&store(config, home)?)?,
    }
    report.took(counted(taken, "endpoint rule"));
    Ok(())
}

fn store(config: &Config, home: &Home) -> Result<EmbeddedStore, Failure> {
    Ok(EmbeddedStore::open(&home.join(&config.record.dir), &config.record)?)
}

fn traffic(db: &GreyproxyDb, config: &Config, home: &Home, into: &Keeping, report: &mut Report) -> Result<(), Failure> {
    let mut progress = Progress::new("importing");
    let mut n = 0;
    let (flows, present, read) = match into {
        Keeping::Instance(_) => {
            let wrong = |e: std::io::Error| Failure::Failed(format!("a temporary file: {e}"));
            let mut spool = tempfile::tempfile().map_err(wrong)?;
            let mut lines = JsonlWriter::new(std::io::BufWriter::new(&mut spool), false);
            let read = db.flows(&mut |flow| {
                n += 1;
                progress.at(n, 0);
                lines.flow(&flow.row, &flow)
            });
            lines.finish().map_err(wrong)?;
            drop(lines);
            spool.flush().and_then(|()| spool.rewind()).map_err(wrong)?;
            let done = Writing::open(config, home)?.import(spool)?;
            (done.imported, done.present, read)
        }
        Keeping::Here(_) => {
            let store = store(config, home)?;
            let (mut new, mut present) = (0, 0);
            let read = db.flows(&mut |flow| {
                n += 1;
                progress.at(n, 0);
                let is_new = store.insert(flow.into()).map_err(std::io::Error::other)?;
                *(if is_new { &mut new } else { &mut present }) += 1;
                Ok(())
            });
            store.flush()?;
            (new, present, read)
        }
    };
    let read: ImportReport = read.map_err(|e| Failure::Failed(e.to_string()))?;
    let again = if present > 0 { format!(", {present} there already") } else { String::new() };
    report.took(format!("{} of recorded traffic (tag:greyproxy){again}", counted(flows, "flow")));
    if read.skips > 0 {
        report.not(format!("{} of its tables, or parts of them:", counted(read.skips, "row")));
        read.skipped.iter().for_each(|reason| report.not(format!("  {reason}")));
    }
    let exchanges = rebuild(config, home, into)?;
    report.took(format!("conversations, put together anew from {}", counted(exchanges, "exchange")));
    Ok(())
}

/// Puts conversations together anew; how many exchanges there were.
fn rebuild(config: &Config, home: &Home, into: &Keeping) -> Result<u64, Failure> {
    match into {
        Keeping::Instance(api) => {
            Ok(api.post("/conversations/rebuild", &json!({}))?["exchanges"].as_u64().unwrap_or_default())
        }
        Keeping::Here(_) => {
            let pricing = rooms::conversations::pricing(config, home)?;
            let store = store(config, home)?;
            let mut progress = Progress::new("reading exchanges");
            Ok(Keeper::new(&store, pricing).rebuild(&mut |n| progress.at(n, 0))?)
        }
    }
}
