//! `interflow import greyproxy`: imports Greyproxy's data and reports what was imported and what was skipped.

use std::collections::BTreeMap;
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use interflow_approvals::config::{RuleSpec, SecretSpec};
use interflow_approvals::{Approvals, default_hosts};
use interflow_archive::jsonl::JsonlWriter;
use interflow_archive::{ArchiveFormat, FlowExporter as _, ImportReport};
use interflow_compat::greyproxy::{GreyproxyDb, GreyproxyEndpoint, convert_rule, decrypt_credentials};
use interflow_conversations::conversations::endpoints::{EndpointOverride, EndpointOverrides, format_by_name};
use interflow_conversations::conversations::indexer::ConversationIndexer;
use interflow_files::EditTurn;
use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use interflow_host::pluralize::pluralize;
use interflow_store::RecordStore;
use interflow_types::Timestamp;
use serde_json::json;

use crate::cli::flows::{ProgressDisplay, StoreAccess};
use crate::components::record_store;
use crate::instance::config::InterflowConfig;
use crate::{CliError, components};

#[derive(Debug, Args)]
pub struct GreyproxyArgs {
    /// Greyproxy's database or data directory (`~/.local/share/greyproxy`).
    #[arg(value_name = "DB")]
    pub db: PathBuf,
    /// Key file of the credentials [default: `session.key` next to the database].
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Allow a credential to be sent to this host, if its label and value do not identify one (repeatable).
    #[arg(long = "host", value_name = "LABEL=HOST")]
    pub hosts: Vec<String>,
    /// Do not import recorded traffic.
    #[arg(long)]
    pub no_traffic: bool,
}

pub fn run(args: &GreyproxyArgs, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let path = if args.db.is_dir() { args.db.join("greyproxy.db") } else { args.db.clone() };
    let db = GreyproxyDb::open(&path)?;
    let hosts = parse_host_bindings(&args.hosts)?;
    home.create()?;
    let into = match InstanceApi::for_instance(home)? {
        Some(api) => RuleSink::Instance(api),
        None => RuleSink::Here(Box::new(Approvals::new(&config.approvals, home.path())?)),
    };
    let mut report = ImportSummary::default();
    rules(&db, &into, &mut report)?;
    credentials(&db, &path, args, &hosts, &into, &mut report)?;
    if args.no_traffic {
        report.add_skipped("recorded traffic (--no-traffic)");
    } else {
        endpoints(&db, config, home, &into, &mut report)?;
        traffic(&db, config, home, &into, &mut report)?;
    }
    let rest = db.rest().map_err(|e| unreadable(&e))?;
    for (n, what) in [
        (rest.conversations, "conversation: Interflow rebuilds them from the traffic"),
        (rest.pending, "pending request"),
        (rest.names, "name of an address"),
    ] {
        if n > 0 {
            let (word, why) = what.split_once(':').unwrap_or((what, ""));
            report.add_skipped(format!("{}{}{why}", pluralize(n, word), if why.is_empty() { "" } else { ":" }));
        }
    }
    report.add_skipped(
        "settings.json, CA and middlewares: see `interflow config reference`, `interflow ca`, rules with services",
    );
    report.print();
    Ok(())
}

fn unreadable(e: &dyn std::fmt::Display) -> CliError {
    CliError::Failed(format!("the database cannot be read: {e}"))
}

#[derive(Default)]
struct ImportSummary {
    taken: Vec<String>,
    left: Vec<String>,
}

impl ImportSummary {
    fn add_taken(&mut self, line: impl Into<String>) {
        self.taken.push(line.into());
    }

    fn add_skipped(&mut self, line: impl Into<String>) {
        self.left.push(line.into());
    }

    fn print(&self) {
        interflow_host::outln!("imported:");
        self.taken.iter().for_each(|line| interflow_host::outln!("  {line}"));
        interflow_host::outln!("skipped:");
        self.left.iter().for_each(|line| interflow_host::outln!("  {line}"));
    }
}

/// Destination of imported rules and secrets.
enum RuleSink {
    Instance(InstanceApi),
    Here(Box<Approvals>),
}

impl RuleSink {
    fn rule(&self, spec: RuleSpec) -> Result<(), String> {
        match self {
            Self::Here(approvals) => {
                approvals.add_rule(&EditTurn::unlimited(), spec).map(drop).map_err(|e| e.to_string())
            }
            Self::Instance(api) => api.post("/approvals/rules", &json!(spec)).map(drop).map_err(|e| e.to_string()),
        }
    }

    fn secret(&self, spec: SecretSpec) -> Result<(), String> {
        match self {
            Self::Here(approvals) => {
                approvals.add_secret(&EditTurn::unlimited(), spec).map(drop).map_err(|e| e.to_string())
            }
            Self::Instance(api) => api.post("/secrets", &json!(spec)).map(drop).map_err(|e| e.to_string()),
        }
    }

    /// Placeholders of existing secrets.
    fn placeholders(&self) -> Result<Vec<String>, CliError> {
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

/// Groups `LABEL=HOST` options by label.
fn parse_host_bindings(given: &[String]) -> Result<BTreeMap<String, Vec<String>>, CliError> {
    let mut hosts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for text in given {
        let (label, host) =
            text.split_once('=').ok_or_else(|| CliError::Usage(format!("--host {text}: write it as LABEL=HOST")))?;
        hosts.entry(label.to_owned()).or_default().push(host.to_owned());
    }
    Ok(hosts)
}

fn rules(db: &GreyproxyDb, into: &RuleSink, report: &mut ImportSummary) -> Result<(), CliError> {
    let now = Timestamp::now();
    let (mut taken, mut over, mut of_sessions) = (0, 0, 0);
    for rule in db.rules().map_err(|e| unreadable(&e))? {
        if rule.expires.is_some_and(|at| at <= now) {
            over += 1;
        } else if rule.session.is_some() {
            of_sessions += 1;
        } else {
            match convert_rule(&rule).and_then(|spec| into.rule(spec)) {
                Ok(()) => taken += 1,
                Err(why) => report.add_skipped(format!("rule {}: {why}", rule.id)),
            }
        }
    }
    report.add_taken(pluralize(taken, "rule"));
    for (n, why) in [(over, "that had expired"), (of_sessions, "of a session; its agent creates it again")] {
        if n > 0 {
            report.add_skipped(format!("{} {why}", pluralize(n, "rule")));
        }
    }
    Ok(())
}

fn credentials(
    db: &GreyproxyDb,
    path: &Path,
    args: &GreyproxyArgs,
    hosts: &BTreeMap<String, Vec<String>>,
    into: &RuleSink,
    report: &mut ImportSummary,
) -> Result<(), CliError> {
    let key_file = args.key.clone().unwrap_or_else(|| path.with_file_name("session.key"));
    let key = std::fs::read(&key_file).ok();
    let (opened, sealed) = decrypt_credentials(db, key.as_deref()).map_err(|e| unreadable(&e))?;
    if sealed > 0 {
        let why = if key.is_some() { "does not decrypt them" } else { "does not exist" };
        report.add_skipped(format!("{}: {} {why}", pluralize(sealed, "credential"), key_file.display()));
    }
    let present = into.placeholders()?;
    let (mut taken, mut there) = (0, 0);
    for credential in opened {
        if present.contains(&credential.placeholder) {
            there += 1;
            continue;
        }
        let label = credential.label.clone();
        let given =
            hosts.get(&label).cloned().unwrap_or_else(|| default_hosts::default_hosts(&label, &credential.value));
        if given.is_empty() {
            report.add_skipped(format!(
                "the credential {label}: its hosts are unknown; name them with --host {label}=HOST"
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
            Err(why) => report.add_skipped(format!("the credential {label}: {why}")),
        }
    }
    let again = if there > 0 { format!(", {there} already present") } else { String::new() };
    report.add_taken(format!(
        "{} with their placeholders, each bound to its hosts{again}",
        pluralize(taken, "credential")
    ));
    Ok(())
}

/// Imports endpoint overrides before the traffic, because they determine how it is parsed.
fn endpoints(
    db: &GreyproxyDb,
    config: &InterflowConfig,
    home: &DataDir,
    into: &RuleSink,
    report: &mut ImportSummary,
) -> Result<(), CliError> {
    let found = db.endpoints().map_err(|e| unreadable(&e))?;
    if found.is_empty() {
        return Ok(());
    }
    let mut list: Vec<EndpointOverride> = match into {
        RuleSink::Instance(api) => serde_json::from_value(api.get("/conversations/endpoints")?["endpoints"].take())
            .map_err(|e| CliError::Failed(e.to_string()))?,
        RuleSink::Here(_) => EndpointOverrides::load(&*store(config, home)?)?.list().to_vec(),
    };
    let mut taken = 0;
    for e in found {
        let Some(shape) = format_by_name(&e.decoder) else {
            report.add_skipped(format!(
                "the endpoint rule for {}{}: there is no decoder `{}`",
                e.host, e.path, e.decoder
            ));
            continue;
        };
        let id = EndpointOverride::next_id(&list);
        let GreyproxyEndpoint { host, path, method, priority, enabled, .. } = e;
        let new = EndpointOverride { id, host, path, method, shape, priority, enabled };
        taken += 1;
        if !list.iter().any(|old| EndpointOverride { id, ..old.clone() } == new) {
            list.push(new);
        }
    }
    match into {
        RuleSink::Instance(api) => drop(api.put("/conversations/endpoints", &json!({"endpoints": list}))?),
        RuleSink::Here(_) => EndpointOverrides::new(list).map_err(CliError::Failed)?.save(&*store(config, home)?)?,
    }
    report.add_taken(pluralize(taken, "endpoint rule"));
    Ok(())
}

fn store(config: &InterflowConfig, home: &DataDir) -> Result<RecordStore, CliError> {
    Ok(record_store::open(config, home)?)
}

fn traffic(
    db: &GreyproxyDb,
    config: &InterflowConfig,
    home: &DataDir,
    into: &RuleSink,
    report: &mut ImportSummary,
) -> Result<(), CliError> {
    let mut progress = ProgressDisplay::new("importing");
    let mut n = 0;
    let (flows, present, read) = match into {
        RuleSink::Instance(_) => {
            let wrong = |e: std::io::Error| CliError::Failed(format!("a temporary file: {e}"));
            let mut spool = tempfile::tempfile().map_err(wrong)?;
            let mut lines = JsonlWriter::new(std::io::BufWriter::new(&mut spool), false);
            let read = db.flows(&mut |flow| {
                n += 1;
                progress.update(n, 0);
                lines.flow(&flow.row, &flow)
            });
            lines.finish().map_err(wrong)?;
            drop(lines);
            spool.flush().and_then(|()| spool.rewind()).map_err(wrong)?;
            let done = StoreAccess::open(config, home)?.import(spool, Some(ArchiveFormat::Jsonl))?;
            (done.imported, done.present, read)
        }
        RuleSink::Here(_) => {
            let store = store(config, home)?;
            let (mut new, mut present) = (0, 0);
            let read = db.flows(&mut |flow| {
                n += 1;
                progress.update(n, 0);
                let is_new = store.insert(flow.into()).map_err(std::io::Error::other)?;
                *(if is_new { &mut new } else { &mut present }) += 1;
                Ok(())
            });
            store.flush()?;
            (new, present, read)
        }
    };
    let read: ImportReport = read.map_err(|e| CliError::Failed(e.to_string()))?;
    let again = if present > 0 { format!(", {present} already present") } else { String::new() };
    report.add_taken(format!("{} of recorded traffic (tag:greyproxy){again}", pluralize(flows, "flow")));
    if read.skips > 0 {
        report.add_skipped(format!("{} of its tables, or parts of them:", pluralize(read.skips, "row")));
        read.skipped.iter().for_each(|reason| report.add_skipped(format!("  {reason}")));
    }
    let exchanges = rebuild(config, home, into)?;
    report.add_taken(format!("conversations, rebuilt from {}", pluralize(exchanges, "exchange")));
    Ok(())
}

/// Rebuilds conversations; returns the number of exchanges.
fn rebuild(config: &InterflowConfig, home: &DataDir, into: &RuleSink) -> Result<u64, CliError> {
    match into {
        RuleSink::Instance(api) => {
            Ok(api.post("/conversations/rebuild", &json!({}))?["exchanges"].as_u64().unwrap_or_default())
        }
        RuleSink::Here(_) => {
            let pricing = components::conversations::pricing(config, home)?;
            let store = store(config, home)?;
            let mut progress = ProgressDisplay::new("reading exchanges");
            Ok(ConversationIndexer::new(&*store, pricing).rebuild(&mut |n| progress.update(n, 0))?)
        }
    }
}
