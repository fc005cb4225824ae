//! One script run: its Lua state, input and result.

use std::sync::{Arc, Mutex};

use bytes::Bytes;
use mlua::{Function, HookTriggers, Lua, LuaOptions, StdLib, Table, Value, VmState};

use super::budget::{BudgetExceeded, ScriptBudget};
use super::compiled::CompiledScript;
use super::outcome::{ScriptOutcome, ScriptVerdict};
use super::snapshot::{HeaderPairs, ScriptSnapshot};
use super::store::SharedScriptStore;
use super::{ScriptRun, json, modules, strings};
use crate::flow::external_changes::ExternalChanges;

/// Instructions between checks of the budget. Few, since one instruction may take time proportional to the script's
/// memory.
const BUDGET_STRIDE: u32 = 100;

/// Maximum number of tags, and of log lines, of one run; further ones are ignored.
const MAX_MARKS: usize = 64;

const PRELUDE: &str = include_str!("prelude.lua");

/// A Lua state without I/O, and without functions that could catch or evade the end of its budget.
fn new_lua_state(
    compiled: &CompiledScript,
    budget: &Arc<ScriptBudget>,
    store: &SharedScriptStore,
) -> mlua::Result<(Lua, Table)> {
    // No `io`, `os`, `package`, `debug` or `coroutine`.
    let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8, LuaOptions::default())?;
    let globals = lua.globals();
    for name in ["dofile", "loadfile", "load", "require", "pcall", "xpcall", "collectgarbage", "warn"] {
        globals.set(name, Value::Nil)?;
    }
    let inner = lua.create_table()?;
    strings::install(&lua, &inner, budget)?;
    lua.load(PRELUDE).set_name("=prelude").call::<()>(&inner)?;
    json::install(&lua, &inner.get("arrays")?, budget)?;
    modules::install(&lua, budget, store, compiled.bounds)?;
    lua.set_memory_limit(compiled.limits.memory)?;
    Ok((lua, inner))
}

fn load_function(lua: &Lua, compiled: &CompiledScript) -> mlua::Result<Function> {
    // A `__close` handler runs while the error of an exhausted budget unwinds, with the hook disabled, so nothing would
    // stop it. `setmetatable` rejects an existing `__close`; this rejects one that would be added later.
    if let Some(at) = compiled.code.find("__close") {
        let line = compiled.code[..at].matches('\n').count() + 1;
        let name = &compiled.name;
        return Err(mlua::Error::runtime(format!("{name}:{line}: '__close' is not available here: take it out")));
    }
    lua.load(compiled.code.as_str()).set_name(format!("={}", compiled.name)).into_function()
}

impl CompiledScript {
    /// Checks the syntax by loading the script without running it.
    ///
    /// # Errors
    /// The syntax error with its line.
    pub(super) fn check(&self) -> Result<(), String> {
        let budget = Arc::new(ScriptBudget::begin(self.limits, Arc::default()));
        let (lua, _) = new_lua_state(self, &budget, &Arc::default()).map_err(|e| self.explain(&e))?;
        load_function(&lua, self).map(drop).map_err(|e| self.explain(&e))
    }

    /// The error with the line of the script.
    fn explain(&self, e: &mlua::Error) -> String {
        let mut trace = String::new();
        let mut cause = e;
        while let mlua::Error::CallbackError { traceback, cause: inner } = cause {
            trace.clone_from(traceback);
            cause = inner;
        }
        let text = match cause {
            mlua::Error::MemoryError(_) => BudgetExceeded::Memory(self.limits.memory).to_string(),
            other => other.to_string(),
        };
        // An error from Lua carries the stack after its first line.
        let (line, stack) = text.split_once('\n').unwrap_or((&text, ""));
        trace.push_str(stack);
        let line = line.trim_start_matches("syntax error: ").trim_start_matches("runtime error: ");
        let line = line.strip_prefix("prelude:").and_then(|l| l.split_once(": ")).map_or(line, |(_, why)| why);
        // An error from a Rust function has no location.
        let mark = format!("{}:", self.name);
        let number = || {
            let behind = &trace[trace.find(&mark)? + mark.len()..];
            behind.split(|c: char| !c.is_ascii_digit()).next().filter(|n| !n.is_empty())
        };
        match (line.starts_with(&mark), number()) {
            (true, _) => line.to_owned(),
            (false, Some(n)) => format!("{mark}{n}: {line}"),
            (false, None) => format!("{mark} {line}"),
        }
    }
}

impl ScriptRun {
    /// Runs the script on the snapshot.
    ///
    /// # Errors
    /// A script error with its line, or an exhausted budget.
    pub(super) fn run(&self, budget: &Arc<ScriptBudget>) -> Result<ScriptOutcome, String> {
        self.run_in_new_state(budget).map_err(|e| self.compiled.explain(&e))
    }

    fn run_in_new_state(&self, budget: &Arc<ScriptBudget>) -> mlua::Result<ScriptOutcome> {
        let Self { compiled, snapshot, store } = self;
        let (lua, inner) = new_lua_state(compiled, budget, store)?;
        let counted = Arc::clone(budget);
        lua.set_hook(HookTriggers::new().every_nth_instruction(BUDGET_STRIDE), move |lua, _| {
            counted.spend(u64::from(BUDGET_STRIDE)).map(|()| VmState::Continue).map_err(|spent| {
                let traceback = lua.traceback(None, 0).map(|t| t.to_string_lossy()).unwrap_or_default();
                mlua::Error::CallbackError { traceback, cause: Arc::new(spent.into()) }
            })
        })?;
        let tags = Arc::new(Mutex::new(Vec::new()));
        self.populate_globals(&lua, &inner, &tags)?;
        let back: Value = load_function(&lua, compiled)?.call(())?;
        let mut outcome = collect_outcome(&lua, &inner, snapshot)?;
        outcome.tags = tags.lock().map(|t| t.clone()).unwrap_or_default();
        outcome.end = read_verdict(&inner, back)?;
        Ok(outcome)
    }

    fn populate_globals(&self, lua: &Lua, inner: &Table, tags: &Arc<Mutex<Vec<String>>>) -> mlua::Result<()> {
        let Self { compiled, snapshot, .. } = self;
        let globals = lua.globals();
        globals.set("phase", crate::compiled::phase_names::name(snapshot.phase))?;
        let flow = lua.create_table()?;
        flow.set("id", snapshot.id.to_string())?;
        flow.set("host", snapshot.host.as_str())?;
        flow.set("port", snapshot.port)?;
        flow.set("scheme", snapshot.scheme)?;
        flow.set("client", snapshot.client.as_str())?;
        flow.set("user", snapshot.user.as_deref())?;
        let vars = lua.create_table()?;
        for (n, v) in &snapshot.variables {
            vars.set(n.as_str(), v.as_str())?;
        }
        flow.set("vars", vars)?;
        globals.set("flow", flow)?;
        let body = |side: &str| match snapshot.body.as_ref().filter(|_| snapshot.changeable_side() == side) {
            Some(body) => lua.create_string(body).map(Some),
            None => Ok(None),
        };
        if let Some(request) = &snapshot.request {
            let table = lua.create_table()?;
            table.set("method", request.method.as_str())?;
            table.set("url", request.url.as_str())?;
            table.set("path", request.path.as_str())?;
            table.set("headers", headers_table(lua, inner, &request.headers)?)?;
            table.set("body", body("request")?)?;
            globals.set("request", table)?;
        }
        if let Some((status, fields)) = &snapshot.response {
            let table = lua.create_table()?;
            table.set("status", *status)?;
            table.set("headers", headers_table(lua, inner, fields)?)?;
            table.set("body", body("response")?)?;
            globals.set("response", table)?;
        }
        if let Some(from) = snapshot.message {
            let table = lua.create_table()?;
            table.set("from", from)?;
            table.set("body", body("message")?)?;
            globals.set("message", table)?;
        }
        let script_tags = Arc::clone(tags);
        let tag = lua.create_function(move |_, tag: String| {
            if let Ok(mut all) = script_tags.lock()
                && all.len() < MAX_MARKS
            {
                all.push(tag);
            }
            Ok(())
        })?;
        globals.set("tag", tag)?;
        let (name, id) = (compiled.name.clone(), snapshot.id);
        let lines = std::sync::atomic::AtomicUsize::new(0);
        let log = lua.create_function(move |_, text: mlua::LuaString| {
            if lines.fetch_add(1, std::sync::atomic::Ordering::Relaxed) < MAX_MARKS {
                tracing::info!(flow = %id, script = name, "{}", text.to_string_lossy());
            }
            Ok(())
        })?;
        globals.set("log", log.clone())?;
        globals.set("print", log)
    }
}

/// A table of header fields, as the prelude defines it.
fn headers_table(lua: &Lua, inner: &Table, fields: &[(String, Vec<u8>)]) -> mlua::Result<Table> {
    let list = lua.create_table()?;
    for (name, value) in fields {
        let (name, value) = (lua.create_string(name)?, lua.create_string(value)?);
        list.raw_push(lua.create_sequence_from([name, value])?)?;
    }
    inner.get::<Function>("headers")?.call(list)
}

/// The text of a scalar value; `None` for tables and functions.
fn as_bytes(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(s) => Some(s.as_bytes().to_vec()),
        Value::Integer(n) => Some(n.to_string().into_bytes()),
        Value::Number(n) => Some(n.to_string().into_bytes()),
        Value::Boolean(b) => Some(b.to_string().into_bytes()),
        _ => None,
    }
}

fn as_string(value: &Value) -> Option<String> {
    as_bytes(value).map(|t| String::from_utf8_lossy(&t).into_owned())
}

/// The fields of a headers table, with names as the script wrote them.
fn read_fields(inner: &Table, headers: Value) -> mlua::Result<HeaderPairs> {
    let list: Table = inner.get::<Function>("fields")?.call(headers)?;
    let mut all = HeaderPairs::new();
    for pair in list.sequence_values::<Table>() {
        let pair = pair?;
        let (name, value, written): (Value, Value, Value) = (pair.raw_get(1)?, pair.raw_get(2)?, pair.raw_get(3)?);
        all.extend(as_string(&written).or_else(|| as_string(&name)).zip(as_bytes(&value)));
    }
    Ok(all)
}

/// Each name whose values changed, with all its values; empty for a removed field.
fn changed_fields(before: &[(String, Vec<u8>)], now: &HeaderPairs) -> Vec<(String, Vec<Vec<u8>>)> {
    let values = |list: &[(String, Vec<u8>)], name: &str| -> Vec<Vec<u8>> {
        list.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.clone()).collect()
    };
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in now.iter().chain(before) {
        if !names.iter().any(|n| n.eq_ignore_ascii_case(name)) {
            names.push(name);
        }
    }
    names
        .into_iter()
        .map(|name| (name, values(now, name)))
        .filter(|(name, new)| values(before, name) != *new)
        .map(|(name, new)| (name.to_owned(), new))
        .collect()
}

/// Collects the changes of the script, by comparing its tables with the snapshot.
fn collect_outcome(lua: &Lua, inner: &Table, snapshot: &ScriptSnapshot) -> mlua::Result<ScriptOutcome> {
    let globals = lua.globals();
    let mut changes = ExternalChanges::default();
    let side = snapshot.changeable_side();
    if let Value::Table(table) = globals.get::<Value>(side)? {
        if let (Some(request), "request") = (&snapshot.request, side) {
            let method = as_string(&table.get("method")?);
            changes.method = method.filter(|m| *m != request.method);
            let url = as_string(&table.get("url")?).filter(|u| *u != request.url);
            // A new URL prevails over a new path.
            let path = as_string(&table.get("path")?).filter(|p| *p != request.path);
            changes.url =
                url.or_else(|| path.map(|p| format!("{}{}", request.base, crate::text::query_params::encode_path(&p))));
        }
        if let (Some((before, _)), "response") = (&snapshot.response, side) {
            let status = as_string(&table.get("status")?).and_then(|s| s.parse().ok());
            changes.status = status.filter(|s: &u16| s != before);
        }
        if side != "message"
            && let now @ Value::Table(_) = table.get::<Value>("headers")?
        {
            changes.fields = changed_fields(snapshot.headers(), &read_fields(inner, now)?);
        }
        let body = as_bytes(&table.get("body")?).map(Bytes::from);
        changes.body = body.filter(|b| snapshot.body.as_ref() != Some(b));
    }
    let mut variables = Vec::new();
    if let Value::Table(flow) = globals.get::<Value>("flow")?
        && let Value::Table(vars) = flow.get::<Value>("vars")?
    {
        for pair in vars.pairs::<Value, Value>() {
            let (name, value) = pair?;
            variables.extend(as_string(&name).zip(as_string(&value)).filter(|p| !snapshot.variables.contains(p)));
        }
    }
    Ok(ScriptOutcome { changes, variables, ..ScriptOutcome::default() })
}

/// What the script returned; anything but a table of the verdict functions means to continue.
fn read_verdict(inner: &Table, back: Value) -> mlua::Result<Option<ScriptVerdict>> {
    let Value::Table(table) = back else { return Ok(None) };
    let kind = as_string(&table.get("kind")?).unwrap_or_default();
    Ok(match kind.as_str() {
        "deny" => Some(ScriptVerdict::Deny(as_string(&table.get("reason")?))),
        "drop" => Some(ScriptVerdict::Drop),
        "answer" => {
            let status = as_string(&table.get("status")?).and_then(|s| s.parse().ok()).unwrap_or(200);
            let headers = read_fields(inner, table.get("headers")?)?;
            let body = as_bytes(&table.get("body")?).unwrap_or_default().into();
            Some(ScriptVerdict::Answer { status, headers, body })
        }
        _ => None,
    })
}
