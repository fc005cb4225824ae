//! `interflow flows replay`: through the running instance, or a temporary proxy server if none is running.

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use interflow_archive::replay::{RequestEdits, masked_fields};
use interflow_archive::text::size;
use interflow_host::data_dir::DataDir;
use interflow_store::{FlowRecord, FlowStore};
use interflow_types::{Body, BodyFrame, Direction, Error, Request};
use serde_json::{Value, json};

use super::{ReplayArgs, open};
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{ignore_broken_pipe, print_json};
use crate::instance::config::InterflowConfig;
use crate::instance::{log, run};
use crate::{CliError, Result};

/// Replays the request and prints the response.
pub fn replay(args: &ReplayArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let body = args.body.as_deref().map(read_body_argument).transpose()?;
    let usage = |e: interflow_archive::replay::ReplayError| CliError::Usage(e.to_string());
    let edits =
        RequestEdits::parse(args.method.as_deref(), args.url.as_deref(), &args.headers, body.clone()).map_err(usage)?;
    let store = open::open_for_reading(config, home)?;
    let row = open::find(&*store, &args.id)?;
    let outcome = match InstanceApi::for_instance(home)? {
        Some(api) => {
            let body = body.map(|body| json!({"base64": STANDARD.encode(body)}));
            let input = json!({"headers": args.headers, "method": args.method, "url": args.url, "body": body});
            api.call(&OperationId::ReplayFlow.call().path(row.id).body(input))?
        }
        None => {
            let request = prepare(&*store, &row, &edits)?;
            drop(store);
            replay_locally(request, &row, args, config, home)?
        }
    };
    print_outcome(&outcome, args.format.is_json())
}

/// Body from text or from a file.
pub fn read_body_argument(text: &str) -> Result<Bytes> {
    let Some(path) = text.strip_prefix('@') else { return Ok(Bytes::copy_from_slice(text.as_bytes())) };
    let read = if path == "-" {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map(Bytes::from).map_err(|e| CliError::Failed(format!("{path} cannot be read: {e}")))
}

fn prepare(store: &dyn FlowStore, row: &FlowRecord, edits: &RequestEdits) -> Result<Request> {
    let size = row.body(Direction::Request).map_or(0, |b| b.kept);
    let body = match edits.body {
        Some(_) => Bytes::new(),
        None => store.body(row.id, Direction::Request, 0..size)?.read_all(usize::MAX)?,
    };
    edits.apply(row, body).map_err(|e| CliError::Failed(e.to_string()))
}

/// A temporary proxy server on a free loopback port, for one request.
fn replay_locally(
    request: Request,
    row: &FlowRecord,
    args: &ReplayArgs,
    config: &InterflowConfig,
    home: &DataDir,
) -> Result<Value> {
    let mut config = config.clone();
    if config.log.level == "info" {
        config.log.level = "warn".into();
    }
    log::start(&config.log)?;
    config.make_private();
    config.record.enabled = true;
    config.upstream.danger_insecure |= args.danger_insecure_upstream;
    let runtime = crate::runtime()?;
    runtime.block_on(async {
        let running = run::start(&config, home).await?;
        let (id, sent) = running.engine.send(request, Some(row.id)).await;
        let mut outcome =
            json!({"id": id.to_string(), "parent": row.id.to_string(), "omitted": omitted_fields(row, args)});
        let failed = |e: &Error| json!({"kind": e.kind().as_str(), "message": e.to_string()});
        match sent {
            Ok(response) => {
                let (status, version) = (response.head.status.as_u16(), response.head.version.as_str());
                let read = drain_body(response.body).await;
                let (size, complete) = (read.as_ref().copied().unwrap_or_default(), read.is_ok());
                outcome["response"] = json!({"status": status, "version": version, "size": size, "complete": complete});
                if let Err(e) = read {
                    outcome["error"] = failed(&e);
                }
            }
            Err(e) => outcome["error"] = failed(&e),
        }
        Ok(outcome)
    })
}

/// What was masked when recorded and is not set on the command line.
fn omitted_fields(row: &FlowRecord, args: &ReplayArgs) -> Vec<String> {
    let name_of = |header: &String| header.split([':', ';']).next().unwrap_or_default().trim().to_owned();
    let set: Vec<String> = args.headers.iter().map(name_of).collect();
    let is_set = |name: &String| set.contains(name) || args.url.is_some() && name.starts_with('?');
    masked_fields(row).into_iter().filter(|name| !is_set(name)).collect()
}

async fn drain_body(mut body: Body) -> Result<u64, Error> {
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        if let BodyFrame::Data(data) = frame? {
            size += data.len() as u64;
        }
    }
    Ok(size)
}

fn print_outcome(outcome: &Value, json: bool) -> Result<()> {
    let omitted: Vec<&str> = outcome["omitted"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !omitted.is_empty() {
        let names = omitted.join(", ");
        interflow_host::errln!("interflow: masked when recorded and so not sent: {names}; set them with -H or --url");
    }
    let id = outcome["id"].as_str().unwrap_or_default();
    if json {
        print_json(outcome)?;
    } else if let Some(response) = outcome["response"].as_object() {
        let bytes = size(response["size"].as_u64().unwrap_or_default());
        let whole = if response["complete"] == true { "" } else { ", not to its end" };
        let (version, status) = (response["version"].as_str().unwrap_or_default(), &response["status"]);
        ignore_broken_pipe(writeln!(interflow_host::terminal::stdout(), "{id}  {version} {status}, {bytes}{whole}"))?;
    }
    let error = outcome["error"]["message"].as_str();
    error.map_or(Ok(()), |message| Err(CliError::Failed(format!("flow {id}: {message}"))))
}
