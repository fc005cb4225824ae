//! Rules: the active ones and how often each matched, validated changes, explanations, and held flows.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::Json;
use axum::extract::Path;
use axum::http::StatusCode;
use bytes::Bytes;
use interflow_files::{EditTurn, EditedFile, FileAccess, is_same_text};
use interflow_rules::explain::{self, RuleExplanation};
use interflow_rules::{
    ActiveRules, CompiledRule, FlowFixture, HeldFlow, HoldDecision, RuleFileSource, RuleLoadError, RuleProblem,
    RuleProgram, phase_names,
};
use interflow_store::{FlowRecord, FlowStore, HeaderMasker, MessageRecord, decoded_body};
use interflow_types::schema::JsonSchema;
use interflow_types::{
    ByteStr, ClientInfo, ClientProcess, ClientTls, Direction, Flow, HttpVersion, Method, RequestHead, ResponseHead,
    StreamMessage, Url,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::blocking::run_query;
use crate::api::edited::edits::{check_text, edit_error, save_text};
use crate::api::input::{FlowIdPath, StrictJson, StrictQuery};
use crate::error::{ApiError, Result, TextProblem};
use crate::identity::Rights;
use crate::identity::caller::{Caller, listed};
use crate::state::{AdminState, SharedState};

/// Maximum size of a body that rules are evaluated on.
const MAX_BODY: usize = 64 << 20;

pub(crate) fn active_rules(state: &AdminState) -> Result<&Arc<ActiveRules>> {
    state.rules.as_ref().ok_or_else(|| ApiError::unavailable("no_rules", "this instance has no rules"))
}

pub async fn list(state: SharedState) -> Result<Json<RulesView>> {
    Ok(Json(RulesView::of(&active_rules(&state)?.program())))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RulesView {
    rules: Vec<ActiveRule>,
    files: Vec<String>,
    notes: Vec<RuleProblem>,
}

#[derive(Serialize, JsonSchema)]
struct ActiveRule {
    name: String,
    file: String,
    line: usize,
    /// Its condition in one line.
    when: String,
    actions: Vec<RuleAction>,
    enabled: bool,
    /// How often it matched since it was loaded.
    matches: u64,
}

#[derive(Serialize, JsonSchema)]
struct RuleAction {
    name: &'static str,
    phase: &'static str,
}

impl RulesView {
    fn of(program: &RuleProgram) -> Self {
        let rule = |r: &CompiledRule| ActiveRule {
            name: r.name.clone(),
            file: r.file.clone(),
            line: r.line,
            when: r.cond.describe(),
            actions: r
                .actions
                .iter()
                .map(|(phase, action)| RuleAction { name: action.info().name, phase: phase_names::name(*phase) })
                .collect(),
            enabled: r.enabled,
            matches: r.matches(),
        };
        Self {
            rules: program.rules.iter().map(rule).collect(),
            files: program.files.iter().map(|f| f.display().to_string()).collect(),
            notes: program.notes.clone(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RuleSource {
    file: String,
    text: String,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleFileParam {
    /// The file, as the list of rules names it.
    file: String,
}

/// `GET /rules/source?file=…`: reads only files from the list of active rules, so no other file can be named.
pub async fn source(state: SharedState, StrictQuery(of): StrictQuery<RuleFileParam>) -> Result<Json<RuleSource>> {
    let program = active_rules(&state)?.program();
    let path = program.files.iter().find(|f| f.display().to_string() == of.file);
    let path = path.ok_or_else(|| not_editable(&program, &of.file))?;
    // Read from the disk: the file may have changed since it was activated.
    let source = RuleFileSource::read(path).map_err(|p| ApiError::internal(p.to_string()))?;
    Ok(Json(RuleSource { file: of.file, text: source.text }))
}

fn not_editable(program: &RuleProgram, file: &str) -> ApiError {
    let files: Vec<String> = program.files.iter().map(|f| f.display().to_string()).collect();
    ApiError::new(StatusCode::NOT_FOUND, "no_file", format!("{file} is not a configured rule file"))
        .with(|details| details.files = files)
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleTextInput {
    text: String,
    /// The file name that determines the format; otherwise YAML or TOML by the first line.
    name: Option<String>,
    /// The text that the change is based on: if the file has changed since, the request fails.
    base: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct CheckedRules {
    ok: bool,
    problems: Vec<RuleProblem>,
    rules: Option<RulesView>,
}

/// `POST /rules/check`: nothing is activated. An invalid text is a regular result, with every problem found.
pub async fn check(
    state: SharedState,
    caller: Caller,
    StrictJson(text): StrictJson<RuleTextInput>,
) -> Result<Json<CheckedRules>> {
    let rules = Arc::clone(active_rules(&state)?);
    let RuleTextInput { text, name, .. } = text;
    let source = RuleFileSource::from_text(name.as_deref().unwrap_or("rules"), text.clone());
    let may_use_host = caller.has(Rights::ADMINISTER);
    let work = move || {
        // Before files are read: what is wrong with them would show a part of them.
        let problems = if may_use_host { Vec::new() } else { rules.host_access(source.clone()).unwrap_or_default() };
        if !problems.is_empty() {
            let problems = problems.into_iter().map(|p| RuleProblem { message: needs_administer(&p), ..p }).collect();
            return Ok(Json(CheckedRules { ok: false, problems, rules: None }));
        }
        Ok(Json(match rules.check(vec![source]) {
            Ok(program) => CheckedRules { ok: true, problems: Vec::new(), rules: Some(RulesView::of(&program)) },
            Err(e) => CheckedRules { ok: false, problems: e.problems, rules: None },
        }))
    };
    check_text(&state, &text, work).await
}

fn needs_administer(problem: &RuleProblem) -> String {
    format!("{}, which needs the right administer", problem.message)
}

/// Rules that use files, programs or environment variables of this machine can do what the process can, so that they
/// need the right to administer.
///
/// # Errors
/// The caller lacks it, and the text has such a rule.
pub(crate) fn check_host_access(caller: &Caller, rules: &ActiveRules, name: &str, text: &str) -> Result<()> {
    if caller.has(Rights::ADMINISTER) {
        return Ok(());
    }
    // What cannot be parsed is refused with every problem found, and never becomes active.
    let uses = rules.host_access(RuleFileSource::from_text(name, text)).unwrap_or_default();
    let Some(first) = uses.first() else { return Ok(()) };
    let which = first.rule.as_ref().map_or_else(String::new, |rule| format!("rule `{rule}`: "));
    let message = format!("{}:{}: {which}{}", first.file, first.line, needs_administer(first));
    let remedy = "ask an admin to save it, in a rule file of its own if you want to go on editing this one";
    Err(ApiError::new(StatusCode::FORBIDDEN, "missing_right", message).remedy(remedy))
}

/// `PUT /rules/source?file=…`: validates the text with all other files, writes and activates it, or rejects it as a
/// whole.
pub async fn save(
    state: SharedState,
    caller: Caller,
    StrictQuery(of): StrictQuery<RuleFileParam>,
    StrictJson(text): StrictJson<RuleTextInput>,
) -> Result<Json<RulesView>> {
    let RuleTextInput { text, base, .. } = text;
    write_and_activate(&state, &caller, of.file, text, base).await
}

/// Validates, writes and activates the text of a rule file that still has the text `base`, or changes nothing.
pub(crate) async fn write_and_activate(
    state: &SharedState,
    caller: &Caller,
    file: String,
    text: String,
    base: Option<String>,
) -> Result<Json<RulesView>> {
    let rules = Arc::clone(active_rules(state)?);
    let (engine, checked) = (Arc::clone(&state.engine), text.clone());
    let (caller, saves) = (caller.clone(), Arc::clone(&state.rule_saves));
    let work = move |turn: &EditTurn| {
        check_host_access(&caller, &rules, &file, &text)?;
        // The files are compiled together: of two saves, the second one has what the first one wrote.
        let _one_at_a_time = saves.lock();
        // Before anything is made beside a file that is none of ours.
        if !rules.program().files.iter().any(|listed| listed == FilePath::new(&file)) {
            return Err(not_editable(&rules.program(), &file));
        }
        let check = |text: &str| {
            let program = rules.check_with_file(FilePath::new(&file), text).map_err(rejected_rules)?;
            let program = program.ok_or_else(|| not_editable(&rules.program(), &file))?;
            // Before it is written, so that the audit trail has it whatever becomes of the request.
            let names = program.rules.iter().filter(|r| r.file == file).map(|r| &r.name);
            caller.record_detail(json!({ "file": file, "rules": listed(names) }));
            Ok(program)
        };
        let activate = |program: Arc<RuleProgram>| {
            let view = RulesView::of(&program);
            rules.activate(program);
            // Plans were compiled with the old rules.
            engine.drop_plans();
            Ok(view)
        };
        let is_base = |now: Option<&str>| base.is_none_or(|base| is_same_text(now.unwrap_or_default(), &base));
        let edited = EditedFile::new(&file, FileAccess::Keep, check, activate);
        edited.replace(turn, text, is_base).map(Json).map_err(|e| edit_error(&file, e, |rejected| rejected))
    };
    save_text(state, &checked, work).await
}

pub(crate) fn rejected_rules(e: RuleLoadError) -> ApiError {
    ApiError::unprocessable("bad_rules", e.to_string())
        .with(|details| details.problems = e.problems.into_iter().map(TextProblem::Rule).collect())
}

pub async fn schema() -> Json<Value> {
    Json(interflow_rules::schema())
}

/// Why each rule did or did not match a flow.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ExplainedRules {
    flow: String,
    rules: Vec<RuleExplanation>,
}

/// `GET /rules/explain/{id}`: evaluates the active rules on the recorded flow, so their decision may differ from the
/// one at the time.
pub async fn explain_flow(state: SharedState, FlowIdPath(id): FlowIdPath) -> Result<Json<ExplainedRules>> {
    let program = active_rules(&state)?.program();
    let sample = run_query(&state, move |store, _| {
        let row = store.get(id)?;
        flow_fixture(store, &row).map_err(ApiError::bad_request)
    })
    .await?;
    Ok(Json(ExplainedRules { flow: id.to_string(), rules: explain::explain(&program, &sample) }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct HeldFlows {
    held: Vec<HeldFlow>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct DecidedFlow {
    held: HeldFlow,
}

pub async fn held_flows(state: SharedState, caller: Caller) -> Result<Json<HeldFlows>> {
    let mut held = active_rules(&state)?.runtime().holds.list();
    held.iter_mut().for_each(|flow| mask_held(&state, &caller, flow));
    Ok(Json(HeldFlows { held }))
}

/// Whether somebody may change a held flow, and so needs its URL and fields as they are.
pub(crate) fn may_change_held(caller: &Caller) -> bool {
    caller.has(Rights::OPERATE.and(Rights::READ_BODIES))
}

/// Nothing was recorded yet, so the masks of the recorder are applied here.
fn mask_held(state: &AdminState, caller: &Caller, held: &mut HeldFlow) {
    if !caller.has(Rights::READ_BODIES) {
        held.body = None;
    }
    if !may_change_held(caller) {
        let mask = HeaderMasker::from_config(&state.config()["record"]);
        held.headers = mask.mask_fields(&held.headers);
        held.url = mask.mask_url(&held.url);
    }
}

pub async fn decide(
    state: SharedState,
    caller: Caller,
    Path(number): Path<String>,
    StrictJson(decision): StrictJson<HoldDecision>,
) -> Result<Json<DecidedFlow>> {
    check_change(&caller, &decision)?;
    let number =
        number.parse().map_err(|_| ApiError::bad_request(format!("`{number}` is not a number of a held flow")))?;
    let held = active_rules(&state)?.runtime().holds.decide(number, decision);
    let mut held = held.map_err(|e| ApiError::new(StatusCode::NOT_FOUND, "not_held", e))?;
    mask_held(&state, &caller, &mut held);
    Ok(Json(DecidedFlow { held }))
}

/// A change could send the body to another origin, and so to who may not read it.
pub(crate) fn check_change(caller: &Caller, decision: &HoldDecision) -> Result<()> {
    if matches!(decision, HoldDecision::Change { .. }) { caller.require(Rights::READ_BODIES) } else { Ok(()) }
}

/// A recorded flow in the form in which rules are evaluated.
///
/// # Errors
/// The recorded head cannot be parsed, or a body cannot be read.
pub fn flow_fixture(store: &dyn FlowStore, row: &FlowRecord) -> Result<FlowFixture, String> {
    let process = row.client.process.as_ref();
    let client = ClientInfo {
        connection: row.client.connection,
        // Imported flows may have no addresses.
        peer: row.client.peer.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()),
        local: row.client.local.unwrap_or_else(|| ([0, 0, 0, 0], 0).into()),
        listener: Arc::clone(&row.client.listener),
        accepted: row.client.accepted,
        container: row.client.container.as_deref().map(Into::into),
        process: process.map(|p| Arc::new(ClientProcess { pid: p.pid, name: p.name.as_str().into() })),
    };
    // Facts that rules can ask for are copied from the row; the rest keeps its defaults.
    let mut flow = Flow::begin(client.into(), row.transport, row.scheme, row.authority.clone());
    flow.id = row.id;
    flow.user.clone_from(&row.user);
    flow.timings = row.timings;
    flow.parent = row.parent;
    flow.tags = row.tags.iter().map(|t| ByteStr::from(t.as_str())).collect();
    flow.client_tls = row.client.tls.as_ref().map(|t| {
        let [sni, alpn, ja3, ja4] = [&t.sni, &t.alpn, &t.ja3, &t.ja4].map(|text| text.as_deref().map(ByteStr::from));
        Arc::new(ClientTls { sni, alpn, ja3, ja4, ..ClientTls::default() })
    });
    let body = |side: Direction| -> Result<Bytes, String> {
        // A body that was not recorded counts as empty.
        let Some(known) = row.body(side).filter(|b| b.kept > 0) else { return Ok(Bytes::new()) };
        let reader = store.body(row.id, side, 0..known.kept).map_err(|e| e.to_string())?;
        let raw = reader.read_all(MAX_BODY).map_err(|e| e.to_string())?;
        // Rules see decoded bodies in the proxy, too.
        Ok(match row.headers(side) {
            Some(headers) => decoded_body::decode_body(headers, raw, MAX_BODY).bytes,
            None => raw,
        })
    };
    let version = |v: &str| match v {
        "HTTP/1.0" => HttpVersion::Http10,
        "HTTP/2" => HttpVersion::H2,
        _ => HttpVersion::Http11,
    };
    let request = row.request.as_ref().map(|r| {
        let method = Method::from_bytes(r.method.as_bytes()).map_err(|e| e.to_string())?;
        let url = Url { scheme: row.scheme, authority: row.authority.clone(), path: r.path.as_str().into() };
        let protocol = r.protocol.as_deref().map(ByteStr::from);
        Ok::<_, String>(RequestHead { method, url, version: version(&r.version), headers: r.headers.clone(), protocol })
    });
    let response = row.response.as_ref().map(|r| {
        let status = r.status.try_into().map_err(|_| format!("{} is not a status", r.status))?;
        Ok::<_, String>(ResponseHead {
            version: version(&r.version),
            headers: r.headers.clone(),
            ..ResponseHead::new(status)
        })
    });
    // The first messages are enough to explain rules about them.
    let messages = store.messages(row.id, 0..1000).map_err(|e| e.to_string())?.into_iter();
    let message =
        |m: MessageRecord| StreamMessage { direction: m.direction, kind: m.kind, payload: m.payload, at: m.at };
    Ok(FlowFixture {
        flow,
        request: request.transpose()?,
        request_body: body(Direction::Request)?,
        response: response.transpose()?,
        response_body: body(Direction::Response)?,
        messages: messages.map(message).collect(),
    })
}
