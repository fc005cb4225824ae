//! Export, import, and searches with progress: all responses are streamed.

use std::io::{self, Write as _};
use std::marker::PhantomData;
use std::ops::ControlFlow;

use axum::Json;
use axum::body::Body;
use axum::response::Response;
use interflow_archive::pcapng::{PacketSides, PcapngOptions};
use interflow_archive::{
    self, ArchiveFormat, ExportOptions, FlowExporter, ImportError, ImportReport, StoreBodySource, for_each_readable,
};
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_query::Query;
use interflow_store::{FlowRecord, FlowStore, FlowSummary, FlowWithBodies};
use interflow_types::schema::JsonSchema;
use interflow_types::{FlowId, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::runtime::Handle;

use crate::api::blocking::{StreamWriter, read_upload, run_query, streamed_body};
use crate::api::input::{FlowIdPath, StrictJson, StrictQuery, flow_id, strict_query};
use crate::api::operations::context::OperationContext;
use crate::api::operations::handler::JsonLines;
use crate::api::untrusted_content;
use crate::error::{ApiError, Result};
use crate::identity::caller::{Caller, listed};
use crate::state::{AdminState, SharedState};

/// Imported flows that are stored together: at most so many, and about so many bytes of bodies.
const BATCH: usize = 256;
const BATCH_BYTES: usize = 4 << 20;
/// Flows examined between two progress reports of a search.
const PROGRESS_STEP: u64 = 2000;

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FormatParam {
    /// har (default of an export), jsonl, saz, fxzy, mitm, pcapng, parquet, curl, httpie, fetch, python, go, java, csharp,
    /// php, powershell, rust, html, raw, raw-request, raw-response or table.
    format: Option<String>,
    /// With pcapng: client (default), upstream or both.
    leg: Option<String>,
    /// With jsonl: edited requests and responses as they came in, too.
    originals: bool,
    /// With parquet: the recorded bodies, too.
    bodies: bool,
}

fn parse_format(name: Option<&str>) -> Result<Option<ArchiveFormat>> {
    let unknown = |e: interflow_archive::UnknownFormat| ApiError::bad_request(e.to_string());
    name.map(|name| name.parse().map_err(unknown)).transpose()
}

/// A format with the options of individual formats, as the client chose them.
#[derive(Clone, Copy)]
struct ChosenExport {
    format: ArchiveFormat,
    leg: PacketSides,
    originals: bool,
    bodies: bool,
}

impl ChosenExport {
    /// Without a format it is a HAR.
    fn new(format: Option<&str>, leg: Option<&str>, originals: bool, bodies: bool) -> Result<Self> {
        let format = parse_format(format)?.unwrap_or(ArchiveFormat::Har);
        let leg = leg.map(|leg| leg.parse().map_err(|why: String| ApiError::bad_request(why))).transpose()?;
        Ok(Self { format, leg: leg.unwrap_or_default(), originals, bodies })
    }

    fn exporter(self, pipe: &mut StreamWriter) -> io::Result<Box<dyn FlowExporter + '_>> {
        let packets = PcapngOptions { leg: self.leg, keylog: None };
        let options = ExportOptions { packets, originals: self.originals, bodies: self.bodies };
        interflow_archive::exporter_with(self.format, pipe, options)
    }

    fn response(self, name: &str, body: Body) -> Response {
        let extension = self.format.extensions().first().copied().unwrap_or("txt");
        untrusted_content::file_response(self.format.media_type(), &format!("{name}.{extension}"), body)
    }
}

pub async fn export_one(
    state: SharedState,
    FlowIdPath(id): FlowIdPath,
    StrictQuery(params): StrictQuery<FormatParam>,
) -> Result<Response> {
    let FormatParam { format, leg, originals, bodies } = params;
    let chosen = ChosenExport::new(format.as_deref(), leg.as_deref(), originals, bodies)?;
    // Looked up before the stream begins, so that an unknown id is an error response.
    let row = run_query(&state, move |store, _| Ok(store.get(id)?)).await?;
    export_rows(&state, chosen, &id.to_string(), vec![row])
}

fn export_rows(state: &AdminState, chosen: ChosenExport, name: &str, rows: Vec<FlowRecord>) -> Result<Response> {
    let (store, permit) = (state.records.store()?, state.records.transfer()?);
    let body = streamed_body(permit, move |pipe| {
        let mut exporter = chosen.exporter(pipe)?;
        rows.iter().try_for_each(|row| exporter.flow(row, &StoreBodySource(&*store)))?;
        exporter.finish()
    });
    Ok(chosen.response(name, body))
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct FlowExportParams {
    /// The query; every flow when it is empty.
    query: String,
    /// har (default of an export), jsonl, saz, fxzy, mitm, pcapng, parquet, curl, httpie, fetch, python, go, java, csharp,
    /// php, powershell, rust, html, raw, raw-request, raw-response or table.
    format: Option<String>,
    /// With pcapng: client (default), upstream or both.
    leg: Option<String>,
    /// With jsonl: edited requests and responses as they came in, too.
    originals: bool,
    /// With parquet: the recorded bodies, too.
    bodies: bool,
}

pub async fn export(state: SharedState, StrictQuery(params): StrictQuery<FlowExportParams>) -> Result<Response> {
    let FlowExportParams { query, format, leg, originals, bodies } = params;
    let chosen = ChosenExport::new(format.as_deref(), leg.as_deref(), originals, bodies)?;
    let query = strict_query(&query)?;
    let (store, permit) = (state.records.store()?, state.records.transfer()?);
    let body = streamed_body(permit, move |pipe| export_matching(&*store, query, chosen, pipe));
    Ok(chosen.response("flows", body))
}

fn export_matching(
    store: &dyn FlowStore,
    query: Query,
    chosen: ChosenExport,
    pipe: &mut StreamWriter,
) -> io::Result<()> {
    let watch = pipe.cancel_check();
    let mut exporter = chosen.exporter(pipe)?;
    let parts = chosen.format.parts(chosen.bodies);
    // Damaged bodies are exported as missing instead of ending the export.
    let exported = for_each_readable(store, query, parts, &watch, &mut |row, contents| exporter.flow(row, contents));
    exported.map_err(io::Error::other)?.1?;
    exporter.finish()
}

/// Flows to export, and how.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportSelectionInput {
    ids: Vec<String>,
    /// As for `GET /export`: har by default.
    format: Option<String>,
    /// As for `GET /export`: the side whose packets pcapng shows.
    leg: Option<String>,
    /// As for `GET /export`: with jsonl, the received versions too.
    #[serde(default)]
    originals: bool,
    /// As for `GET /export`: with parquet, the recorded bodies too.
    #[serde(default)]
    bodies: bool,
}

pub async fn export_by_ids(
    state: SharedState,
    caller: Caller,
    StrictJson(picked): StrictJson<ExportSelectionInput>,
) -> Result<Response> {
    let chosen = ChosenExport::new(picked.format.as_deref(), picked.leg.as_deref(), picked.originals, picked.bodies)?;
    let ids: Vec<FlowId> = picked.ids.iter().map(|t| flow_id(t)).collect::<Result<_>>()?;
    caller.record_detail(json!({ "flows": listed(&ids), "bodies": picked.bodies, "originals": picked.originals }));
    // Looked up in advance, so that an unknown id yields an error instead of a partial file.
    let rows: Vec<FlowRecord> =
        run_query(&state, move |store, _| ids.iter().map(|id| Ok(store.get(*id)?)).collect::<Result<_>>()).await?;
    export_rows(&state, chosen, "flows", rows)
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ImportResult {
    imported: u64,
    /// Flows whose id was recorded already; they are left unchanged.
    present: u64,
    /// Entries that could not be read.
    skipped: u64,
    /// Why, of the first of them.
    reasons: Vec<String>,
}

/// `POST /import`: flows are stored while the upload is read. After an error, those before it stay, and the error
/// says how many.
pub async fn import(
    context: OperationContext,
    StrictQuery(params): StrictQuery<FormatParam>,
    body: Body,
) -> Result<Json<ImportResult>> {
    let format = parse_format(params.format.as_deref())?;
    let records = context.records();
    let (store, permit) = (records.store()?, records.transfer()?);
    // A shared store has positions of its own for imported flows.
    let indexer = context.instance().ok().and_then(|state| state.conversations.clone());
    let indexer = indexer.filter(|_| store.shared_index().is_none());
    read_upload(permit, body, records.max_upload, move |upload| {
        let (flows, calls) = (Vec::new(), Vec::new());
        let mut batch = ImportBatch { store: &*store, indexer, flows, calls, bytes: 0, imported: 0, present: 0 };
        let read = interflow_archive::import(format, upload, &mut |flow| batch.add(flow));
        // What was read before an error is stored and indexed, too.
        let rest = batch.store().map_err(|source| ImportError::Io { source, report: ImportReport::default() });
        if let Some(indexer) = batch.indexer.as_ref().filter(|_| batch.imported > 0 && !batch.calls.is_empty())
            && let Err(error) = Handle::current().block_on(indexer.add_imported(batch.calls))
        {
            tracing::warn!(%error, "imported LLM calls are not indexed: `interflow conversations rebuild` does that");
        }
        let report = read.and_then(|report| rest.map(|()| report)).map_err(|e| e.after(batch.imported))?;
        let (imported, present) = (batch.imported, batch.present);
        Ok(Json(ImportResult { imported, present, skipped: report.skips, reasons: report.skipped }))
    })
    .await
}

/// Flows of an import that are stored together.
struct ImportBatch<'s> {
    store: &'s dyn FlowStore,
    indexer: Option<IndexerHandle>,
    flows: Vec<FlowWithBodies>,
    /// Stored flows that may contain LLM calls, for the indexer.
    calls: Vec<FlowId>,
    bytes: usize,
    /// How many flows were stored, and how many were there already.
    imported: u64,
    present: u64,
}

impl ImportBatch<'_> {
    fn add(&mut self, flow: FlowWithBodies) -> io::Result<()> {
        self.bytes += flow.content_bytes();
        self.flows.push(flow);
        if self.flows.len() < BATCH && self.bytes < BATCH_BYTES { Ok(()) } else { self.store() }
    }

    fn store(&mut self) -> io::Result<()> {
        let flows = std::mem::take(&mut self.flows);
        let may_hold_call = |row| self.indexer.as_ref().is_some_and(|indexer| indexer.may_hold_call(row));
        let calls: Vec<_> = flows.iter().filter(|flow| may_hold_call(&flow.row)).map(|flow| flow.row.id).collect();
        let count = flows.len() as u64;
        self.bytes = 0;
        if flows.is_empty() {
            return Ok(());
        }
        let new = self.store.insert_all(flows).map_err(io::Error::other)?;
        self.imported += new;
        self.present += count - new;
        self.calls.extend(calls);
        Ok(())
    }
}

#[derive(Deserialize, Default, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SearchParams {
    /// The query; every flow when it is empty.
    query: String,
    /// Stop after so many; 1000 by default.
    limit: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum SearchLine {
    Progress {
        /// Flows examined so far.
        examined: u64,
        found: u64,
        total: u64,
    },
    Flow(Box<FlowSummary>),
    /// The last line. If it is missing, the search was cut short.
    Done {
        found: u64,
        /// Whether every flow was examined; false if the limit was reached.
        complete: bool,
    },
}

/// `GET /search`: JSON lines, in the order in which flows are found.
pub async fn search(
    state: SharedState,
    StrictQuery(params): StrictQuery<SearchParams>,
) -> Result<JsonLines<SearchLine>> {
    let query = strict_query(&params.query)?;
    let (store, permit) = (state.records.store()?, state.records.transfer()?);
    let limit = params.limit.unwrap_or(1000).max(1);
    let body = streamed_body(permit, move |pipe| stream_search(&*store, &query, limit, pipe));
    Ok(JsonLines(untrusted_content::file_response("application/x-ndjson", "search.ndjson", body), PhantomData))
}

fn stream_search(store: &dyn FlowStore, query: &Query, limit: u64, pipe: &mut StreamWriter) -> io::Result<()> {
    let watch = pipe.cancel_check();
    // The reports come from several threads; only this thread writes to the client, before the next match.
    let latest = parking_lot::Mutex::new((0_u64, None));
    let (mut matches, mut failed) = (0, None);
    let now = Timestamp::now();
    let outcome = store.search(
        query,
        &|progress| {
            let mut latest = latest.lock();
            if progress.looked >= latest.0 + PROGRESS_STEP {
                *latest = (progress.looked, Some(progress));
            }
            watch()
        },
        &mut |row| {
            let progress = latest.lock().1.take();
            let written = progress.map_or(Ok(()), |p| {
                write_line(pipe, &SearchLine::Progress { examined: p.looked, found: p.found, total: p.total })
            });
            if let Err(e) = written.and_then(|()| write_line(pipe, &SearchLine::Flow(Box::new(row.summary(now))))) {
                failed = Some(e);
                return ControlFlow::Break(());
            }
            matches += 1;
            if matches >= limit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        },
    );
    // The failure to write explains the break better than what the search returns.
    if let Some(e) = failed {
        return Err(e);
    }
    outcome.map_err(io::Error::other)?;
    write_line(pipe, &SearchLine::Done { found: matches, complete: matches < limit })
}

/// Writes a line and flushes it, so that the client sees each match at once.
fn write_line(pipe: &mut StreamWriter, line: &SearchLine) -> io::Result<()> {
    serde_json::to_writer(&mut *pipe, line)?;
    pipe.write_all(b"\n")?;
    pipe.flush()
}
