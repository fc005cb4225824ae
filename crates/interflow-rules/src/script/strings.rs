//! Replacements for the functions of Lua's `string` library that could run without bound: search, replacement and
//! repetition, each within the run's budget.

use std::sync::Arc;

use mlua::{Lua, LuaString, MultiValue, Result, Table, Value};

use super::budget::{BudgetExceeded, HeldMemory, ScriptBudget};
use super::pattern::{LuaPatternError, LuaPatternMatcher, PatternCapture};

impl From<LuaPatternError> for mlua::Error {
    fn from(e: LuaPatternError) -> Self {
        match e {
            LuaPatternError::Malformed(message) => Self::runtime(message),
            LuaPatternError::Spent(spent) => spent.into(),
        }
    }
}

impl From<BudgetExceeded> for mlua::Error {
    fn from(spent: BudgetExceeded) -> Self {
        Self::external(spent)
    }
}

/// Installs the functions in `string`, and those that the prelude uses in `inner`.
pub(crate) fn install(lua: &Lua, inner: &Table, budget: &Arc<ScriptBudget>) -> Result<()> {
    let string: Table = lua.globals().get("string")?;
    // Byte code cannot be loaded anyway.
    string.set("dump", Value::Nil)?;
    string.set("find", budget.function(lua, |lua, args, b| find(lua, args, b, true))?)?;
    string.set("match", budget.function(lua, |lua, args, b| find(lua, args, b, false))?)?;
    // Without a frame in between: it calls functions of the script, which may call it again.
    let b = Arc::clone(budget);
    string.set("gsub", lua.create_function(move |lua, args| gsub(lua, args, &b))?)?;
    string.set("rep", budget.function(lua, repeat)?)?;
    inner.set("next_match", budget.function(lua, next_match)?)?;
    for name in ["upper", "lower", "reverse"] {
        let real: mlua::Function = string.get(name)?;
        let counted = budget.function(lua, move |_, s: LuaString, budget| {
            budget.spend_bytes(s.as_bytes().len())?;
            real.call::<LuaString>(s)
        })?;
        string.set(name, counted)?;
    }
    Ok(())
}

/// Converts a position from 1, or from the end if negative, to an index from 0.
fn start_index(position: i64, len: usize) -> usize {
    match position {
        1.. => usize::try_from(position - 1).unwrap_or(usize::MAX),
        0 => 0,
        _ => usize::try_from(position.unsigned_abs()).map_or(0, |back| len.saturating_sub(back)),
    }
}

fn capture_value(lua: &Lua, capture: PatternCapture, subject: &[u8]) -> Result<Value> {
    Ok(match capture {
        PatternCapture::Range(a, b) => Value::String(lua.create_string(&subject[a..b])?),
        PatternCapture::Position(at) => Value::Integer(at as i64),
    })
}

/// The captures of a match, or the whole match if there are none.
fn captures(lua: &Lua, m: &LuaPatternMatcher<'_>, subject: &[u8], whole: Option<(usize, usize)>) -> Result<MultiValue> {
    let n = if m.captures() == 0 && whole.is_some() { 1 } else { m.captures() };
    let (a, b) = whole.unwrap_or_default();
    (0..n).map(|i| capture_value(lua, m.capture(i, a, b)?, subject)).collect()
}

type FindArgs = (LuaString, LuaString, Option<i64>, Value);

fn find(lua: &Lua, (s, p, init, plain): FindArgs, budget: &ScriptBudget, positions: bool) -> Result<MultiValue> {
    let (s, p) = (s.as_bytes(), p.as_bytes());
    let (s, p): (&[u8], &[u8]) = (&s, &p);
    let nothing = || Ok(MultiValue::from_iter([Value::Nil]));
    let from = start_index(init.unwrap_or(1), s.len());
    if from > s.len() {
        return nothing();
    }
    let plain = !matches!(plain, Value::Nil | Value::Boolean(false));
    // Without special characters the search needs no pattern matcher.
    if positions && (plain || !p.iter().any(|c| b"^$*+?.([%-".contains(c))) {
        budget.spend_bytes(s.len() - from + p.len())?;
        let Some(at) = memchr::memmem::find(&s[from..], p) else { return nothing() };
        let at = from + at;
        return Ok([at + 1, at + p.len()].into_iter().map(|n| Value::Integer(n as i64)).collect());
    }
    let (anchored, p) = p.strip_prefix(b"^").map_or((false, p), |rest| (true, rest));
    let mut m = LuaPatternMatcher::new(s, p, budget);
    let last = if anchored { from } else { s.len() };
    for at in from..=last {
        let Some(end) = m.match_at(at)? else { continue };
        if !positions {
            return captures(lua, &m, s, Some((at, end)));
        }
        let mut all: MultiValue = [at + 1, end].into_iter().map(|n| Value::Integer(n as i64)).collect();
        all.extend(captures(lua, &m, s, None)?);
        return Ok(all);
    }
    nothing()
}

/// One step of `gmatch`: the first match at or after `from` that does not end where the last one did. Returns its end
/// and its captures.
fn next_match(
    lua: &Lua,
    (s, p, from, last): (LuaString, LuaString, i64, Option<usize>),
    budget: &ScriptBudget,
) -> Result<MultiValue> {
    let (s, p) = (s.as_bytes(), p.as_bytes());
    let mut m = LuaPatternMatcher::new(&s, &p, budget);
    for at in start_index(from, s.len())..=s.len() {
        let Some(end) = m.match_at(at)?.filter(|end| Some(*end) != last) else { continue };
        let mut all = captures(lua, &m, &s, Some((at, end)))?;
        all.push_front(Value::Integer(end as i64));
        return Ok(all);
    }
    Ok(MultiValue::new())
}

fn gsub(
    lua: &Lua,
    (s, p, with, most): (LuaString, LuaString, Value, Option<i64>),
    budget: &ScriptBudget,
) -> Result<(LuaString, i64)> {
    let with = match with {
        Value::Integer(_) | Value::Number(_) => {
            Value::String(lua.coerce_string(with)?.ok_or_else(|| bad_argument(""))?)
        }
        Value::String(_) | Value::Table(_) | Value::Function(_) => with,
        other => return Err(bad_argument(other.type_name())),
    };
    let (text, pattern) = (s.as_bytes(), p.as_bytes());
    let (src, pattern): (&[u8], &[u8]) = (&text, &pattern);
    let (anchored, pattern) = pattern.strip_prefix(b"^").map_or((false, pattern), |rest| (true, rest));
    let most = most.unwrap_or(i64::MAX);
    let mut m = LuaPatternMatcher::new(src, pattern, budget);
    let mut out = ReplacementOutput { bytes: Vec::new(), held: HeldMemory::new(budget) };
    let (mut at, mut last, mut n) = (0, None, 0);
    while n < most {
        match m.match_at(at)?.filter(|end| Some(*end) != last) {
            Some(end) => {
                n += 1;
                push_replacement(lua, &m, src, (at, end), &with, &mut out)?;
                at = end;
                last = Some(end);
            }
            None if at < src.len() => {
                out.push_bytes(&src[at..=at])?;
                at += 1;
            }
            None => break,
        }
        if anchored {
            break;
        }
    }
    if n == 0 {
        drop(text);
        return Ok((s, 0));
    }
    out.push_bytes(&src[at..])?;
    Ok((lua.create_string(&out.bytes)?, n))
}

fn bad_argument(kind: &str) -> mlua::Error {
    mlua::Error::runtime(format!("bad argument #3 to 'gsub' (string/function/table expected, got {kind})"))
}

/// The output of a replacement so far, counted as the script's memory.
struct ReplacementOutput<'b> {
    bytes: Vec<u8>,
    held: HeldMemory<'b>,
}

impl ReplacementOutput<'_> {
    fn push_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        let before = self.bytes.capacity();
        if before - self.bytes.len() < bytes.len() {
            // Accounts for the growth before it happens.
            self.held.grow((before + bytes.len()).max(64))?;
            self.bytes.reserve_exact((before + bytes.len()).max(64) - self.bytes.len());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }
}

/// Appends the replacement of one match.
fn push_replacement(
    lua: &Lua,
    m: &LuaPatternMatcher<'_>,
    src: &[u8],
    (start, end): (usize, usize),
    with: &Value,
    out: &mut ReplacementOutput<'_>,
) -> Result<()> {
    let new: Value = match with {
        Value::Function(f) => f.call(captures(lua, m, src, Some((start, end)))?)?,
        Value::Table(t) => t.get(capture_value(lua, m.capture(0, start, end)?, src)?)?,
        Value::String(text) => return expand_replacement(m, src, (start, end), &text.as_bytes(), out),
        _ => Value::Nil,
    };
    match new {
        Value::Nil | Value::Boolean(false) => out.push_bytes(&src[start..end]),
        Value::String(text) => out.push_bytes(&text.as_bytes()),
        Value::Integer(_) | Value::Number(_) => match lua.coerce_string(new)? {
            Some(text) => out.push_bytes(&text.as_bytes()),
            None => Ok(()),
        },
        other => {
            let kind = other.type_name();
            Err(mlua::Error::runtime(format!("invalid replacement value (a {kind})")))
        }
    }
}

/// Expands `%0` to `%9`.
fn expand_replacement(
    m: &LuaPatternMatcher<'_>,
    src: &[u8],
    (start, end): (usize, usize),
    text: &[u8],
    out: &mut ReplacementOutput<'_>,
) -> Result<()> {
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.push_bytes(&rest[..at])?;
        let sign = rest.get(at + 1).copied();
        match sign {
            Some(b'%') => out.push_bytes(b"%")?,
            Some(b'0') => out.push_bytes(&src[start..end])?,
            Some(digit @ b'1'..=b'9') => match m.capture(usize::from(digit - b'1'), start, end) {
                Ok(PatternCapture::Range(a, b)) => out.push_bytes(&src[a..b])?,
                Ok(PatternCapture::Position(n)) => out.push_bytes(n.to_string().as_bytes())?,
                Err(LuaPatternError::Malformed(e)) => {
                    return Err(mlua::Error::runtime(format!("{e} in replacement string")));
                }
                Err(e) => return Err(e.into()),
            },
            _ => return Err(mlua::Error::runtime("invalid use of '%' in replacement string")),
        }
        rest = &rest[at + 2..];
    }
    out.push_bytes(rest)
}

fn repeat(lua: &Lua, (s, n, sep): (LuaString, i64, Option<LuaString>), budget: &ScriptBudget) -> Result<LuaString> {
    let s = s.as_bytes();
    let sep = sep.as_ref().map(LuaString::as_bytes);
    let sep: &[u8] = sep.as_deref().unwrap_or_default();
    let Some(n) = usize::try_from(n).ok().filter(|n| *n > 0 && s.len() + sep.len() > 0) else {
        return lua.create_string("");
    };
    let total = s.len().checked_mul(n).zip(sep.len().checked_mul(n - 1)).and_then(|(a, b)| a.checked_add(b));
    let total = total.ok_or_else(|| mlua::Error::runtime("resulting string too large"))?;
    let mut held = HeldMemory::new(budget);
    held.grow(total)?;
    budget.spend_bytes(total)?;
    let mut out = Vec::with_capacity(total);
    for i in 0..n {
        if i > 0 {
            out.extend_from_slice(sep);
        }
        out.extend_from_slice(&s);
    }
    lua.create_string(&out)
}
