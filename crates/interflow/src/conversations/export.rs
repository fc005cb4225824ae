//! `interflow conversations export`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use interflow_engine::conversations::export::{self, Form};
use interflow_engine::conversations::open;
use interflow_query::Query;
use interflow_record::{ConversationOptions, Store};

use super::{ExportArgs, written};
use crate::Failure;
use crate::flows::Progress;

/// Conversations taken from the store at a time.
const PAGE: usize = 100;

/// Writes the chosen conversations.
pub fn export(store: &dyn Store, args: &ExportArgs) -> Result<(), Failure> {
    let form = form(args)?;
    let ids = chosen(store, args)?;
    if let Some(url) = &args.otlp {
        return send(store, &ids, form, url);
    }
    let several = ids.len() > 1 && !matches!(form, Form::Jsonl | Form::Otel);
    match &args.output {
        Some(folder) if several => {
            fs::create_dir_all(folder).map_err(|e| failed(folder, &e))?;
            let mut progress = Progress::new("writing");
            for (n, id) in ids.iter().enumerate() {
                let file = folder.join(format!("{id}.{}", form.file().0));
                let mut out = File::create(&file).map_err(|e| failed(&file, &e))?;
                one(store, id, form, &mut out)?;
                progress.at(n as u64 + 1, ids.len() as u64);
            }
            written(writeln!(anstream::stderr(), "{} conversations in {}", ids.len(), folder.display()))
        }
        None if several && form == Form::Html => {
            Err(Failure::Usage(format!("{} conversations are {} pages: give a folder with -o", ids.len(), ids.len())))
        }
        Some(file) => {
            let mut out = io::BufWriter::new(File::create(file).map_err(|e| failed(file, &e))?);
            ids.iter().try_for_each(|id| one(store, id, form, &mut out))?;
            out.flush().map_err(|e| failed(file, &e))
        }
        None => {
            let mut out = io::stdout().lock();
            ids.iter().try_for_each(|id| one(store, id, form, &mut out))
        }
    }
}

fn form(args: &ExportArgs) -> Result<Form, Failure> {
    if args.format.is_none() && args.otlp.is_some() {
        return Ok(Form::Otel);
    }
    let ending = args.output.as_ref().and_then(|p| p.extension()).and_then(|e| e.to_str());
    match (args.format, ending) {
        (Some(form), _) => Ok(form),
        (None, Some("htm")) => Ok(Form::Html),
        (None, Some(ending)) => ending.parse().map_err(Failure::Usage),
        (None, None) => Ok(Form::Markdown),
    }
}

/// The ids of what is to be written, the oldest first: one that is named, or those of a query.
fn chosen(store: &dyn Store, args: &ExportArgs) -> Result<Vec<String>, Failure> {
    if let [word] = &args.query[..]
        && let Some(id) = open::find(store, word)?
    {
        return Ok(vec![id]);
    }
    let text = args.query.join(" ");
    let query = Query::parse(&text).map_err(|e| Failure::Usage(e.show(&text)))?;
    let mut ids: Vec<String> = Vec::new();
    loop {
        let options = ConversationOptions {
            query: query.clone(),
            after: ids.last().cloned(),
            limit: PAGE,
            ..ConversationOptions::default()
        };
        let page = store.conversations(&options)?;
        let full = page.len() == PAGE;
        ids.extend(page.into_iter().map(|l| l.row.id));
        if !full {
            break;
        }
    }
    if ids.is_empty() {
        return Err(Failure::Failed("no conversation is selected".into()));
    }
    ids.reverse();
    Ok(ids)
}

/// Hands each conversation to a collector (OTLP over HTTP).
fn send(store: &dyn Store, ids: &[String], form: Form, url: &str) -> Result<(), Failure> {
    if form != Form::Otel {
        return Err(Failure::Usage("--otlp goes with the form otel".to_owned()));
    }
    let url = if url.contains("/v1/") { url.to_owned() } else { format!("{}/v1/traces", url.trim_end_matches('/')) };
    let wrong = |why: String| Failure::Failed(format!("the collector {url}: {why}"));
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = config.timeout_global(Some(std::time::Duration::from_secs(30))).build().into();
    let mut progress = Progress::new("sending");
    for (n, id) in ids.iter().enumerate() {
        let Some(tree) = export::tree(store, id)? else { continue };
        let body = export::write(&tree, Form::Otel);
        let answer = agent.post(&url).header("Content-Type", "application/json").send(body);
        match answer.map_err(|e| wrong(e.to_string()))?.status() {
            status if status.is_success() => progress.at(n as u64 + 1, ids.len() as u64),
            status => return Err(wrong(format!("it answered {status}"))),
        }
    }
    written(writeln!(anstream::stderr(), "{} conversations sent to {url}", ids.len()))
}

fn one(store: &dyn Store, id: &str, form: Form, out: &mut impl Write) -> Result<(), Failure> {
    let Some(tree) = export::tree(store, id)? else { return Ok(()) };
    written(out.write_all(export::write(&tree, form).as_bytes()))
}

fn failed(path: &Path, error: &io::Error) -> Failure {
    Failure::Failed(format!("{}: {error}", path.display()))
}
