//! Scripts in Lua that look at a flow, change it, answer or deny: each run in a state of its own, with a bound on its
//! time and memory, and without files, processes or the network.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use interflow_flow::{Headers, Phase};
use mlua::{HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};

use crate::act::At;
use crate::act::held::Changes;
use crate::config::RulesConfig;
use crate::given::{Script, ScriptSource};
use crate::program::Program;

/// How many instructions run between two looks at the clock.
const STRIDE: u32 = 1000;

/// What scripts find beside the flow.
const PRELUDE: &str = "
function answer(a) a.kind = 'answer'; return a end
function deny(reason) return { kind = 'deny', reason = reason } end
function drop() return { kind = 'drop' } end
";

/// A script made ready.
#[derive(Debug)]
pub(crate) struct Compiled {
    name: String,
    code: String,
    limit: Duration,
    memory: usize,
}

/// What a script wants.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub changes: Changes,
    pub tags: Vec<String>,
    pub variables: Vec<(String, String)>,
    pub end: Option<End>,
}

/// How a script ends a flow.
#[derive(Debug)]
pub(crate) enum End {
    Answer { status: u16, headers: Vec<(String, String)>, body: Bytes },
    Deny(Option<String>),
    Drop,
}

impl Script {
    /// The script, read and found to be well formed.
    ///
    /// # Errors
    /// A file that cannot be read, or what is wrong with the script, with its line.
    pub(crate) fn ready(&self, config: &RulesConfig) -> Result<Arc<Compiled>, String> {
        if let Some(compiled) = self.compiled.get() {
            return Ok(Arc::clone(compiled));
        }
        let code = match &self.source {
            ScriptSource::Text(text) => text.clone(),
            ScriptSource::File(path) => std::fs::read_to_string(path)
                .map_err(|e| format!("the script {} cannot be read: {e}", path.display()))?,
        };
        let compiled = Compiled {
            name: self.name.clone(),
            code,
            limit: self.limit.unwrap_or(config.script_timeout).0,
            memory: usize::try_from(self.memory.unwrap_or(config.script_memory).0).unwrap_or(usize::MAX),
        };
        let lua = state(&compiled).map_err(|e| first_line(&e))?;
        lua.load(compiled.code.as_str())
            .set_name(format!("={}", compiled.name))
            .into_function()
            .map_err(|e| first_line(&e))?;
        Ok(Arc::clone(self.compiled.get_or_init(|| Arc::new(compiled))))
    }
}

/// A state without anything that reaches outside, or that could catch the end of its time.
fn state(compiled: &Compiled) -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8, LuaOptions::default())?;
    let globals = lua.globals();
    for name in ["dofile", "loadfile", "load", "require", "pcall", "xpcall", "collectgarbage"] {
        globals.set(name, Value::Nil)?;
    }
    lua.load(PRELUDE).set_name("=prelude").exec()?;
    lua.set_memory_limit(compiled.memory)?;
    Ok(lua)
}

fn first_line(e: &mlua::Error) -> String {
    let text = match e {
        mlua::Error::CallbackError { cause, .. } => cause.to_string(),
        other => other.to_string(),
    };
    let line = text.lines().next().unwrap_or_default();
    line.trim_start_matches("syntax error: ").trim_start_matches("runtime error: ").to_owned()
}

/// Runs a script on a flow.
///
/// # Errors
/// What went wrong, with the script's line; too long, too much memory.
pub(crate) fn run(compiled: &Compiled, at: &At<'_>, program: &Program) -> Result<Outcome, String> {
    let failed = |e: mlua::Error| match e {
        mlua::Error::MemoryError(_) => {
            format!("{}: it needs more than {} bytes of memory", compiled.name, compiled.memory)
        }
        other => first_line(&other),
    };
    let lua = state(compiled).map_err(failed)?;
    let deadline = Instant::now() + compiled.limit;
    let limit = compiled.limit;
    lua.set_hook(HookTriggers::new().every_nth_instruction(STRIDE), move |_, _| {
        if Instant::now() >= deadline {
            return Err(mlua::Error::runtime(format!("it ran longer than {limit:?}")));
        }
        Ok(VmState::Continue)
    })
    .map_err(failed)?;
    let tags = Arc::new(StdMutex::new(Vec::new()));
    let before = put(&lua, at, program, compiled, &tags).map_err(failed)?;
    let function =
        lua.load(compiled.code.as_str()).set_name(format!("={}", compiled.name)).into_function().map_err(failed)?;
    let back: Value = function.call(()).map_err(failed)?;
    let mut outcome = take(&lua, at, before).map_err(failed)?;
    outcome.tags = tags.lock().map(|t| t.clone()).unwrap_or_default();
    outcome.end = end(back).map_err(failed)?;
    Ok(outcome)
}

/// What was given to the script, to see what it changed.
struct Before {
    headers: Vec<(String, String)>,
    body: Option<Bytes>,
    variables: Vec<(String, String)>,
}

fn put(
    lua: &Lua,
    at: &At<'_>,
    program: &Program,
    compiled: &Compiled,
    tags: &Arc<StdMutex<Vec<String>>>,
) -> mlua::Result<Before> {
    let view = at.view(program);
    let globals = lua.globals();
    globals.set("phase", crate::phases::name(at.phase))?;
    let flow = lua.create_table()?;
    flow.set("id", view.flow.id.to_string())?;
    flow.set("host", view.with_host(ToOwned::to_owned))?;
    flow.set("port", view.flow.authority.port)?;
    flow.set("scheme", view.scheme().as_str())?;
    flow.set("client", view.flow.client.peer.ip().to_canonical().to_string())?;
    flow.set("user", view.flow.user.as_deref())?;
    let vars = lua.create_table()?;
    let variables: Vec<(String, String)> = view
        .flow
        .note::<crate::state::RuleState>()
        .map(|s| s.variables().map(|(n, v)| (n.to_owned(), v.to_owned())).collect())
        .unwrap_or_default();
    for (n, v) in &variables {
        vars.set(n.as_str(), v.as_str())?;
    }
    flow.set("vars", vars)?;
    globals.set("flow", flow)?;
    let mut headers = Vec::new();
    if let Some(request) = view.request {
        let table = lua.create_table()?;
        table.set("method", request.method.as_str())?;
        table.set("url", view.url())?;
        table.set("path", request.url.path.as_str())?;
        let (fields, list) = fields(lua, &request.headers)?;
        table.set("headers", fields)?;
        if at.phase < Phase::ResponseHead {
            headers = list;
        }
        if at.phase == Phase::RequestBody
            && let Some(body) = &at.body
        {
            table.set("body", lua.create_string(body)?)?;
        }
        globals.set("request", table)?;
    }
    if let Some(response) = view.response {
        let table = lua.create_table()?;
        table.set("status", response.status.as_u16())?;
        let (fields, list) = fields(lua, &response.headers)?;
        table.set("headers", fields)?;
        headers = list;
        if let Some(body) = at.body.as_ref().filter(|_| at.phase == Phase::ResponseBody) {
            table.set("body", lua.create_string(body)?)?;
        }
        globals.set("response", table)?;
    }
    let mut body = at.body.clone();
    if let Some(message) = view.message {
        let table = lua.create_table()?;
        table.set("from", if message.direction == interflow_flow::Direction::Request { "client" } else { "server" })?;
        table.set("body", lua.create_string(&message.payload)?)?;
        globals.set("message", table)?;
        body = Some(message.payload.clone());
    }
    let kept = Arc::clone(tags);
    globals.set(
        "tag",
        lua.create_function(move |_, tag: String| {
            if let Ok(mut all) = kept.lock()
                && all.len() < 64
            {
                all.push(tag);
            }
            Ok(())
        })?,
    )?;
    let (name, id) = (compiled.name.clone(), view.flow.id);
    let log = lua.create_function(move |_, text: String| {
        tracing::info!(flow = %id, script = name, "{text}");
        Ok(())
    })?;
    globals.set("log", log.clone())?;
    globals.set("print", log)?;
    Ok(Before { headers, body, variables })
}

/// Fields by name in lower case; the first of several of one name.
fn fields(lua: &Lua, headers: &Headers) -> mlua::Result<(Table, Vec<(String, String)>)> {
    let table = lua.create_table()?;
    let mut list: Vec<(String, String)> = Vec::new();
    for (name, value) in headers {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if list.iter().any(|(n, _)| *n == name) {
            continue;
        }
        let value = String::from_utf8_lossy(value).into_owned();
        table.set(name.as_str(), value.as_str())?;
        list.push((name, value));
    }
    Ok((table, list))
}

fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(s) => Some(s.as_bytes().to_vec()),
        Value::Integer(n) => Some(n.to_string().into_bytes()),
        Value::Number(n) => Some(n.to_string().into_bytes()),
        Value::Boolean(b) => Some(b.to_string().into_bytes()),
        _ => None,
    }
}

fn string(value: &Value) -> Option<String> {
    text(value).map(|t| String::from_utf8_lossy(&t).into_owned())
}

/// What the script changed.
fn take(lua: &Lua, at: &At<'_>, before: Before) -> mlua::Result<Outcome> {
    let globals = lua.globals();
    let mut changes = Changes::default();
    let side = if at.message.is_some() {
        "message"
    } else if at.phase >= Phase::ResponseHead {
        "response"
    } else {
        "request"
    };
    if let Value::Table(table) = globals.get::<Value>(side)? {
        if let (Some(request), "request") = (at.request(), side) {
            let method = string(&table.get("method")?);
            changes.method = method.filter(|m| m != request.method.as_str());
            let url = string(&table.get("url")?).filter(|u| *u != request.url.to_string());
            let path = string(&table.get("path")?).filter(|p| *p != request.url.path.as_str());
            changes.url = url.or_else(|| {
                path.map(|p| {
                    let url = &request.url;
                    format!("{}://{}{}", url.scheme, url.authority.host_field(url.scheme), crate::params::path(&p))
                })
            });
        }
        if let (Some(response), "response") = (at.response.as_ref(), side) {
            let status = string(&table.get("status")?).and_then(|s| s.parse().ok());
            changes.status = status.filter(|s: &u16| *s != response.status.as_u16());
        }
        if let Value::Table(fields) = table.get::<Value>("headers")? {
            let mut now: Vec<(String, String)> = Vec::new();
            for pair in fields.pairs::<Value, Value>() {
                let (name, value) = pair?;
                now.extend(string(&name).zip(string(&value)).map(|(n, v)| (n.to_ascii_lowercase(), v)));
            }
            let gone = before.headers.iter().filter(|(n, _)| !now.iter().any(|(m, _)| m == n));
            let gone: Vec<(String, String)> = gone.map(|(n, _)| (n.clone(), String::new())).collect();
            changes.headers = now.into_iter().filter(|pair| !before.headers.contains(pair)).collect();
            changes.headers.extend(gone);
        }
        let body = text(&table.get("body")?).map(Bytes::from);
        changes.body = body.filter(|b| before.body.as_ref() != Some(b));
    }
    let mut variables = Vec::new();
    if let Value::Table(flow) = globals.get::<Value>("flow")?
        && let Value::Table(vars) = flow.get::<Value>("vars")?
    {
        for pair in vars.pairs::<Value, Value>() {
            let (name, value) = pair?;
            variables.extend(string(&name).zip(string(&value)).filter(|p| !before.variables.contains(p)));
        }
    }
    Ok(Outcome { changes, variables, ..Outcome::default() })
}

fn end(back: Value) -> mlua::Result<Option<End>> {
    let Value::Table(table) = back else { return Ok(None) };
    let kind = string(&table.get("kind")?).unwrap_or_default();
    Ok(match kind.as_str() {
        "deny" => Some(End::Deny(string(&table.get("reason")?))),
        "drop" => Some(End::Drop),
        "answer" => {
            let status = string(&table.get("status")?).and_then(|s| s.parse().ok()).unwrap_or(200);
            let mut headers = Vec::new();
            if let Value::Table(fields) = table.get::<Value>("headers")? {
                for pair in fields.pairs::<Value, Value>() {
                    let (name, value) = pair?;
                    headers.extend(string(&name).zip(string(&value)));
                }
            }
            let body = text(&table.get("body")?).unwrap_or_default().into();
            Some(End::Answer { status, headers, body })
        }
        _ => None,
    })
}
