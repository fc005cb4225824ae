//! JSON for scripts: parsed directly into Lua tables, so that the run's memory limit applies, and written from them.

use std::sync::Arc;

use mlua::{Lua, LuaString, Result, Table, Value};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess};

use super::budget::{HeldMemory, ScriptBudget};

/// Maximum nesting depth of values to encode; decoding has the limit of `serde_json`.
const MAX_DEPTH: usize = 128;

/// Creates the table `json`: `decode`, `encode`, `array`, `null`.
pub(crate) fn install(lua: &Lua, arrays: &Table, budget: &Arc<ScriptBudget>) -> Result<()> {
    let json = lua.create_table()?;
    json.set("null", Value::NULL)?;
    let (a, b) = (arrays.clone(), Arc::clone(budget));
    let decode = lua.create_function(move |lua, text: LuaString| {
        let bytes = text.as_bytes();
        b.spend_bytes(bytes.len())?;
        let mut d = serde_json::Deserializer::from_slice(&bytes);
        let read = LuaJsonReader { lua, arrays: &a, budget: &b }.deserialize(&mut d).and_then(|v| d.end().map(|()| v));
        // An exhausted budget is reported as such, not as a JSON error.
        b.spend(0)?;
        Ok(read.map_or_else(|e| (Value::Nil, Some(e.to_string())), |value| (value, None)))
    })?;
    json.set("decode", decode)?;
    let (a, b) = (arrays.clone(), Arc::clone(budget));
    let encode = lua.create_function(move |lua, value: Value| {
        let mut writer =
            LuaJsonWriter { arrays: &a, budget: &b, held: HeldMemory::new(&b), out: Vec::new(), counted: 0 };
        writer.value(&value, 0)?;
        lua.create_string(&writer.out)
    })?;
    json.set("encode", encode)?;
    let a = arrays.clone();
    let array = lua.create_function(move |lua, table: Option<Table>| {
        let table = table.map_or_else(|| lua.create_table(), Ok)?;
        a.raw_set(&table, true)?;
        Ok(table)
    })?;
    json.set("array", array)?;
    lua.globals().set("json", json)
}

/// Builds Lua values while parsing, without a JSON document in between that would escape the memory limit.
struct LuaJsonReader<'a> {
    lua: &'a Lua,
    arrays: &'a Table,
    budget: &'a ScriptBudget,
}

impl LuaJsonReader<'_> {
    fn reborrow(&self) -> Self {
        Self { ..*self }
    }

    fn spend_step<E: de::Error>(&self) -> std::result::Result<(), E> {
        self.budget.spend(4).map_err(E::custom)
    }
}

impl<'de> DeserializeSeed<'de> for LuaJsonReader<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, d: D) -> std::result::Result<Value, D::Error> {
        d.deserialize_any(self)
    }
}

impl<'de> de::Visitor<'de> for LuaJsonReader<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }
    fn visit_unit<E: de::Error>(self) -> std::result::Result<Value, E> {
        Ok(Value::NULL)
    }
    fn visit_bool<E: de::Error>(self, b: bool) -> std::result::Result<Value, E> {
        Ok(Value::Boolean(b))
    }
    fn visit_i64<E: de::Error>(self, n: i64) -> std::result::Result<Value, E> {
        Ok(Value::Integer(n))
    }
    fn visit_u64<E: de::Error>(self, n: u64) -> std::result::Result<Value, E> {
        // Lua integers have 64 bits with sign; larger ones lose precision.
        Ok(i64::try_from(n).map_or(Value::Number(n as f64), Value::Integer))
    }
    fn visit_f64<E: de::Error>(self, n: f64) -> std::result::Result<Value, E> {
        Ok(Value::Number(n))
    }
    fn visit_str<E: de::Error>(self, s: &str) -> std::result::Result<Value, E> {
        self.spend_step()?;
        self.lua.create_string(s).map(Value::String).map_err(E::custom)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> std::result::Result<Value, A::Error> {
        let table = self.lua.create_table().map_err(de::Error::custom)?;
        // Remembered as a list, so that an empty one is not encoded as `{}`.
        self.arrays.raw_set(&table, true).map_err(de::Error::custom)?;
        let mut n = 0;
        while let Some(value) = seq.next_element_seed(self.reborrow())? {
            self.spend_step()?;
            n += 1;
            table.raw_set(n, value).map_err(de::Error::custom)?;
        }
        Ok(Value::Table(table))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Value, A::Error> {
        let table = self.lua.create_table().map_err(de::Error::custom)?;
        while let Some(name) = map.next_key::<String>()? {
            self.spend_step()?;
            let value = map.next_value_seed(self.reborrow())?;
            table.raw_set(name, value).map_err(de::Error::custom)?;
        }
        Ok(Value::Table(table))
    }
}

/// Writes Lua values. The text is outside Lua's memory and counted as it grows.
struct LuaJsonWriter<'a> {
    arrays: &'a Table,
    budget: &'a ScriptBudget,
    held: HeldMemory<'a>,
    out: Vec<u8>,
    counted: usize,
}

impl LuaJsonWriter<'_> {
    fn text(&mut self, text: &str) -> Result<()> {
        serde_json::to_writer(&mut self.out, text).map_err(mlua::Error::external)
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(mlua::Error::runtime(format!("json.encode: values are nested deeper than {MAX_DEPTH}")));
        }
        self.budget.spend(4)?;
        self.held.grow(self.out.len() - self.counted)?;
        self.counted = self.out.len();
        match value {
            Value::Boolean(b) => self.out.extend_from_slice(b.to_string().as_bytes()),
            Value::Integer(n) => self.out.extend_from_slice(n.to_string().as_bytes()),
            Value::Number(n) if n.is_finite() => {
                serde_json::to_writer(&mut self.out, n).map_err(mlua::Error::external)?;
            }
            Value::String(s) => {
                self.budget.spend_bytes(s.as_bytes().len())?;
                self.text(&s.to_string_lossy())?;
            }
            Value::Table(t) => return self.table(t, depth),
            v if v.is_null() || v.is_nil() => self.out.extend_from_slice(b"null"),
            other => {
                let kind = other.type_name();
                return Err(mlua::Error::runtime(format!(
                    "json.encode: a {kind} or infinite number is not valid JSON"
                )));
            }
        }
        Ok(())
    }

    fn table(&mut self, table: &Table, depth: usize) -> Result<()> {
        let len = table.raw_len();
        if len > 0 || self.arrays.raw_get::<Option<bool>>(table)? == Some(true) {
            self.out.push(b'[');
            for i in 1..=len {
                if i > 1 {
                    self.out.push(b',');
                }
                self.value(&table.raw_get(i)?, depth + 1)?;
            }
            self.out.push(b']');
            return Ok(());
        }
        // Lua tables are unordered: names are sorted so that the output is deterministic.
        let mut names: Vec<LuaString> = Vec::new();
        for pair in table.pairs::<Value, Value>() {
            self.budget.spend(8)?;
            self.held.grow(size_of::<LuaString>())?;
            match pair?.0 {
                Value::String(name) => names.push(name),
                other => {
                    let kind = other.type_name();
                    return Err(mlua::Error::runtime(format!("json.encode: a {kind} cannot be a member name")));
                }
            }
        }
        names.sort_by_cached_key(|name| name.as_bytes().to_vec());
        self.out.push(b'{');
        for (i, name) in names.iter().enumerate() {
            if i > 0 {
                self.out.push(b',');
            }
            self.text(&name.to_string_lossy())?;
            self.out.push(b':');
            self.value(&table.raw_get(name)?, depth + 1)?;
        }
        self.out.push(b'}');
        Ok(())
    }
}
