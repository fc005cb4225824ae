//! The modules available to scripts: `base64`, `hash`, `hmac`, `time`, `url` and `store`. `json` has a file of its own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use hmac::Mac;
use jiff::Timestamp;
use mlua::{Function, Lua, LuaString, Result, Table, Value};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use sha2::Digest;

use super::budget::{HeldMemory, ScriptBudget};
use super::store::{ScriptStoreBounds, SharedScriptStore, StoredScriptValue};

/// Installs the modules.
pub(crate) fn install(
    lua: &Lua,
    budget: &Arc<ScriptBudget>,
    store: &SharedScriptStore,
    bounds: ScriptStoreBounds,
) -> Result<()> {
    let globals = lua.globals();
    globals.set("base64", base64_table(lua, budget)?)?;
    globals.set("hash", hash_table(lua, budget)?)?;
    globals.set("hmac", hmac_table(lua, budget)?)?;
    globals.set("time", time_table(lua)?)?;
    globals.set("url", url_table(lua, budget)?)?;
    globals.set("store", store_table(lua, store, bounds)?)
}

/// A function from bytes to bytes; its work and result count towards the budget.
fn bytes_function(
    lua: &Lua,
    budget: &Arc<ScriptBudget>,
    f: impl Fn(&[u8]) -> Option<Vec<u8>> + Send + 'static,
) -> Result<Function> {
    budget.function(lua, move |lua, s: LuaString, budget| {
        let bytes = s.as_bytes();
        budget.spend_bytes(bytes.len())?;
        let mut held = HeldMemory::new(budget);
        // No function here produces more than three bytes per input byte.
        held.grow(bytes.len() * 3)?;
        f(&bytes).map(|out| lua.create_string(&out)).transpose()
    })
}

fn base64_table(lua: &Lua, budget: &Arc<ScriptBudget>) -> Result<Table> {
    // Both alphabets, with or without padding.
    let decode = |b: &[u8]| {
        let plain: Vec<u8> = b
            .iter()
            .filter(|c| !c.is_ascii_whitespace())
            .map(|c| match c {
                b'-' => b'+',
                b'_' => b'/',
                c => *c,
            })
            .collect();
        let end = plain.iter().rposition(|c| *c != b'=').map_or(0, |i| i + 1);
        STANDARD_NO_PAD.decode(&plain[..end]).ok()
    };
    lua.create_table_from([
        ("encode", bytes_function(lua, budget, |b| Some(STANDARD.encode(b).into_bytes()))?),
        ("url_encode", bytes_function(lua, budget, |b| Some(URL_SAFE_NO_PAD.encode(b).into_bytes()))?),
        ("decode", bytes_function(lua, budget, decode)?),
    ])
}

/// A digest as `hex` (default), `base64` or `raw`.
fn encode_digest(lua: &Lua, digest: &[u8], form: Option<LuaString>) -> Result<LuaString> {
    let form = form.as_ref().map(|f| f.to_string_lossy());
    match form.as_deref() {
        None | Some("hex") => lua.create_string(hex::encode(digest)),
        Some("base64") => lua.create_string(STANDARD.encode(digest)),
        Some("raw") => lua.create_string(digest),
        Some(other) => Err(mlua::Error::runtime(format!("`{other}` is not a digest format: hex, base64 or raw"))),
    }
}

type DigestFn = fn(&[u8]) -> Vec<u8>;

/// A digest of a text (the second argument) under a key.
type KeyedDigestFn = fn(&[u8], &[u8]) -> Vec<u8>;

fn hash_table(lua: &Lua, budget: &Arc<ScriptBudget>) -> Result<Table> {
    let table = lua.create_table()?;
    let functions: [(&str, DigestFn); 4] = [
        ("sha256", |b| sha2::Sha256::digest(b).to_vec()),
        ("sha512", |b| sha2::Sha512::digest(b).to_vec()),
        ("sha1", |b| sha1::Sha1::digest(b).to_vec()),
        ("md5", |b| md5::Md5::digest(b).to_vec()),
    ];
    for (name, f) in functions {
        let function = budget.function(lua, move |lua, (s, form): (LuaString, Option<LuaString>), budget| {
            let bytes = s.as_bytes();
            budget.spend_bytes(bytes.len())?;
            encode_digest(lua, &f(&bytes), form)
        })?;
        table.set(name, function)?;
    }
    Ok(table)
}

fn compute_mac<M: Mac + hmac::KeyInit>(key: &[u8], text: &[u8]) -> Vec<u8> {
    // HMAC accepts keys of any length, so this does not fail.
    let Ok(mut mac) = M::new_from_slice(key) else { return Vec::new() };
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hmac_table(lua: &Lua, budget: &Arc<ScriptBudget>) -> Result<Table> {
    let table = lua.create_table()?;
    let functions: [(&str, KeyedDigestFn); 4] = [
        ("sha256", compute_mac::<hmac::Hmac<sha2::Sha256>>),
        ("sha512", compute_mac::<hmac::Hmac<sha2::Sha512>>),
        ("sha1", compute_mac::<hmac::Hmac<sha1::Sha1>>),
        ("md5", compute_mac::<hmac::Hmac<md5::Md5>>),
    ];
    for (name, f) in functions {
        type Args = (LuaString, LuaString, Option<LuaString>);
        let function = budget.function(lua, move |lua, (key, s, form): Args, budget| {
            let (key, bytes) = (key.as_bytes(), s.as_bytes());
            budget.spend_bytes(key.len() + bytes.len())?;
            encode_digest(lua, &f(&key, &bytes), form)
        })?;
        table.set(name, function)?;
    }
    Ok(table)
}

fn timestamp_from(seconds: Option<f64>) -> Result<Timestamp> {
    let Some(seconds) = seconds else { return Ok(Timestamp::now()) };
    let bad = || mlua::Error::runtime("the time is out of range: write seconds since 1970");
    let micros = seconds * 1e6;
    if !micros.is_finite() || micros.abs() > 9e18 {
        return Err(bad());
    }
    Timestamp::from_microsecond(micros as i64).map_err(|_| bad())
}

fn time_table(lua: &Lua) -> Result<Table> {
    let http = |_: &Lua, at| Ok(crate::text::dates::format_http_date(timestamp_from(at)?.as_second()));
    let parse = lua.create_function(|_, text: LuaString| {
        let text = text.to_string_lossy();
        let http = || crate::text::dates::parse_http_date(&text).map(|s| s as f64);
        Ok(text.parse::<Timestamp>().ok().map(|t| t.as_microsecond() as f64 / 1e6).or_else(http))
    })?;
    lua.create_table_from([
        ("now", lua.create_function(|_, ()| Ok(Timestamp::now().as_microsecond() as f64 / 1e6))?),
        ("iso", lua.create_function(|_, at: Option<f64>| Ok(timestamp_from(at)?.to_string()))?),
        ("http", lua.create_function(http)?),
        ("parse", parse),
    ])
}

/// Everything but RFC 3986's unreserved characters (2.3).
const URL_ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn url_table(lua: &Lua, budget: &Arc<ScriptBudget>) -> Result<Table> {
    let encode = |b: &[u8]| Some(percent_encode(b, URL_ESCAPED).to_string().into_bytes());
    let parse = budget.function(lua, |lua, text: LuaString, budget| {
        let text = text.to_string_lossy();
        budget.spend_bytes(text.len())?;
        let Ok(url) = crate::text::url::parse_url(&text) else { return Ok(None) };
        let parts = lua.create_table()?;
        let (path, query) = url.path.split_once('?').map_or((url.path.as_str(), None), |(p, q)| (p, Some(q)));
        parts.set("scheme", url.scheme.as_str())?;
        parts.set("host", url.authority.host.to_string())?;
        parts.set("port", url.authority.port)?;
        parts.set("path", path)?;
        parts.set("query", query)?;
        parts.set("fragment", text.split_once('#').map(|(_, f)| f))?;
        Ok(Some(parts))
    })?;
    let query = budget.function(lua, |lua, text: LuaString, budget| {
        let bytes = text.as_bytes();
        budget.spend_bytes(bytes.len())?;
        let all = lua.create_table()?;
        for part in bytes.split(|c| *c == b'&').filter(|p| !p.is_empty()) {
            budget.spend(4)?;
            let (name, value) =
                part.iter().position(|c| *c == b'=').map_or((part, &[][..]), |at| (&part[..at], &part[at + 1..]));
            let plain = |b: &[u8]| {
                let spaced: Vec<u8> = b.iter().map(|c| if *c == b'+' { b' ' } else { *c }).collect();
                lua.create_string(percent_decode(&spaced).collect::<Vec<u8>>())
            };
            all.raw_push(lua.create_sequence_from([plain(name)?, plain(value)?])?)?;
        }
        Ok(all)
    })?;
    lua.create_table_from([
        ("encode", bytes_function(lua, budget, encode)?),
        ("decode", bytes_function(lua, budget, |b| Some(percent_decode(b).collect()))?),
        ("parse", parse),
        ("query", query),
    ])
}

fn store_table(lua: &Lua, store: &SharedScriptStore, bounds: ScriptStoreBounds) -> Result<Table> {
    let ttl = |seconds: Option<f64>| {
        let ttl = seconds.map(Duration::try_from_secs_f64).transpose();
        ttl.map_err(|_| mlua::Error::runtime("a time to live is a number of seconds"))
    };
    let s = Arc::clone(store);
    let get = lua.create_function(move |lua, key: LuaString| {
        // Unlocked before Lua allocates: its collector may run a finalizer that uses the store.
        let stored = s.lock().get(&key.as_bytes(), Instant::now());
        Ok(match stored {
            None => Value::Nil,
            Some(StoredScriptValue::Boolean(b)) => Value::Boolean(b),
            Some(StoredScriptValue::Integer(n)) => Value::Integer(n),
            Some(StoredScriptValue::Number(n)) => Value::Number(n),
            Some(StoredScriptValue::Text(t)) => Value::String(lua.create_string(&t)?),
        })
    })?;
    let s = Arc::clone(store);
    let set = lua.create_function(move |_, (key, value, seconds): (LuaString, Value, Option<f64>)| {
        let value = match value {
            Value::Nil => {
                s.lock().delete(&key.as_bytes());
                return Ok(());
            }
            Value::Boolean(b) => StoredScriptValue::Boolean(b),
            Value::Integer(n) => StoredScriptValue::Integer(n),
            Value::Number(n) => StoredScriptValue::Number(n),
            Value::String(t) => StoredScriptValue::Text(t.as_bytes().to_vec()),
            other => {
                let kind = other.type_name();
                return Err(mlua::Error::runtime(format!("store.set: a {kind} cannot be kept: write it as JSON")));
            }
        };
        s.lock().set(&key.as_bytes(), value, ttl(seconds)?, bounds, Instant::now()).map_err(mlua::Error::runtime)
    })?;
    let s = Arc::clone(store);
    let add = lua.create_function(move |_, (key, n, seconds): (LuaString, i64, Option<f64>)| {
        s.lock().add(&key.as_bytes(), n, ttl(seconds)?, bounds, Instant::now()).map_err(mlua::Error::runtime)
    })?;
    let s = Arc::clone(store);
    let delete = lua.create_function(move |_, key: LuaString| Ok(s.lock().delete(&key.as_bytes())))?;
    lua.create_table_from([("get", get), ("set", set), ("add", add), ("delete", delete)])
}
