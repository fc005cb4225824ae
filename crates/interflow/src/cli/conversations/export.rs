//! `interflow conversations export`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use interflow_conversations::conversations::export::{self, ExportFormat};
use interflow_conversations::conversations::load;
use interflow_conversations::conversations::tree::load_tree;
use interflow_store::{ConversationOptions, FlowStore};
use interflow_types::units::pluralize;

use super::ConversationExportArgs;
use crate::cli::flows::ProgressDisplay;
use crate::cli::flows::open::parse_query;
use crate::cli::output::ignore_broken_pipe;
use crate::{CliError, Result};

/// Conversations per page.
const PAGE: usize = 100;

pub fn export(store: &dyn FlowStore, args: &ConversationExportArgs) -> Result<()> {
    let form = form(args)?;
    let ids = selected_ids(store, args)?;
    if let Some(url) = &args.otlp {
        return send(store, &ids, form, url);
    }
    let several = ids.len() > 1 && !matches!(form, ExportFormat::Jsonl | ExportFormat::Otel);
    match &args.output {
        Some(dir) if several || is_directory(dir) => {
            fs::create_dir_all(dir).map_err(|e| failed(dir, &e))?;
            let mut progress = ProgressDisplay::new("writing");
            for (n, id) in ids.iter().enumerate() {
                let file = dir.join(format!("{id}.{}", form.file().0));
                let mut out = File::create(&file).map_err(|e| failed(&file, &e))?;
                export_one(store, id, form, &mut out)?;
                progress.update(n as u64 + 1, ids.len() as u64);
            }
            report(&ids, &format!("in {}", dir.display()))
        }
        None if several && form == ExportFormat::Html => {
            let n = ids.len();
            Err(CliError::Usage(format!("{n} conversations make {n} pages: give a directory with -o")))
        }
        Some(file) => {
            let mut out = io::BufWriter::new(File::create(file).map_err(|e| failed(file, &e))?);
            ids.iter().try_for_each(|id| export_one(store, id, form, &mut out))?;
            out.flush().map_err(|e| failed(file, &e))
        }
        None => {
            let mut out = interflow_host::terminal::data_stdout();
            ids.iter().try_for_each(|id| export_one(store, id, form, &mut out))
        }
    }
}

fn form(args: &ConversationExportArgs) -> Result<ExportFormat> {
    if args.format.is_none() && args.otlp.is_some() {
        return Ok(ExportFormat::Otel);
    }
    let file = args.output.as_ref().filter(|p| !is_directory(p));
    let ending = file.and_then(|p| p.extension()).and_then(|e| e.to_str());
    match (args.format, ending) {
        (Some(form), _) => Ok(form),
        (None, Some("htm")) => Ok(ExportFormat::Html),
        (None, Some(ending)) => ending.parse().map_err(CliError::Usage),
        (None, None) => Ok(ExportFormat::Markdown),
    }
}

/// Whether an output names a directory: it is one, or ends as one.
fn is_directory(path: &Path) -> bool {
    path.is_dir() || path.as_os_str().to_string_lossy().ends_with(std::path::is_separator)
}

/// IDs of the conversations to export, oldest first.
fn selected_ids(store: &dyn FlowStore, args: &ConversationExportArgs) -> Result<Vec<String>> {
    if let [word] = &args.query[..]
        && let Some(id) = load::find_conversation(store, word)?
    {
        return Ok(vec![id]);
    }
    let query = parse_query(&args.query.join(" "))?;
    let mut options = ConversationOptions { query, limit: PAGE, ..ConversationOptions::default() };
    let mut ids: Vec<String> = Vec::new();
    loop {
        let page = store.conversations(&options)?;
        options.after = page.last().filter(|_| page.len() == PAGE).map(|l| l.row.cursor());
        ids.extend(page.into_iter().map(|l| l.row.id));
        if options.after.is_none() {
            break;
        }
    }
    if ids.is_empty() {
        return Err(CliError::Failed("no conversation matches".into()));
    }
    ids.reverse();
    Ok(ids)
}

/// Sends each conversation to a collector (OTLP over HTTP).
fn send(store: &dyn FlowStore, ids: &[String], form: ExportFormat, url: &str) -> Result<()> {
    if form != ExportFormat::Otel {
        return Err(CliError::Usage("--otlp requires --format otel".to_owned()));
    }
    let url = if url.contains("/v1/") { url.to_owned() } else { format!("{}/v1/traces", url.trim_end_matches('/')) };
    let wrong = |why: String| CliError::Failed(format!("the collector {url}: {why}"));
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = config.timeout_global(Some(std::time::Duration::from_secs(30))).build().into();
    let mut progress = ProgressDisplay::new("sending");
    for (n, id) in ids.iter().enumerate() {
        let Some(tree) = load_tree(store, id)? else { continue };
        let body = export::write(&tree, ExportFormat::Otel);
        let answer = agent.post(&url).header("Content-Type", "application/json").send(body);
        match answer.map_err(|e| wrong(e.to_string()))?.status() {
            status if status.is_success() => progress.update(n as u64 + 1, ids.len() as u64),
            status => return Err(wrong(format!("it answered {status}"))),
        }
    }
    report(ids, &format!("sent to {url}"))
}

/// Says on stderr what became of the conversations.
fn report(ids: &[String], what: &str) -> Result<()> {
    let conversations = pluralize(ids.len() as u64, "conversation");
    ignore_broken_pipe(writeln!(interflow_host::terminal::stderr(), "{conversations} {what}"))
}

fn export_one(store: &dyn FlowStore, id: &str, form: ExportFormat, out: &mut impl Write) -> Result<()> {
    let Some(tree) = load_tree(store, id)? else { return Ok(()) };
    ignore_broken_pipe(out.write_all(export::write(&tree, form).as_bytes()))
}

fn failed(path: &Path, error: &io::Error) -> CliError {
    CliError::Failed(format!("{}: {error}", path.display()))
}
