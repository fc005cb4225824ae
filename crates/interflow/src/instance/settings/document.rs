//! Changes keys in the text of a configuration file. Comments, order and formatting of everything else stay.

use serde_json::Value as Json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Key, Table, TableLike, Value};

/// The text with these keys set, or removed where the value is null.
///
/// # Errors
/// The text is not TOML, or a key or a value cannot be in it.
pub fn edit<'a>(text: &str, changes: impl IntoIterator<Item = (&'a str, &'a Json)>) -> Result<String, String> {
    let mut text = text.to_owned();
    for (key, value) in changes {
        let path = Key::parse(key).map_err(|e| format!("`{key}` is not a key: {e}"))?;
        let path: Vec<&str> = path.iter().map(Key::get).collect();
        text = if value.is_null() { remove(&text, &path)? } else { set(&text, &path, value)? };
    }
    Ok(text)
}

fn document(text: &str) -> Result<DocumentMut, String> {
    text.parse().map_err(|e: toml_edit::TomlError| e.to_string())
}

fn set(text: &str, path: &[&str], value: &Json) -> Result<String, String> {
    let mut document = document(text)?;
    let (last, tables) = path.split_last().ok_or("a key is needed")?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for part in tables {
        let inner = table.entry(part).or_insert_with(|| {
            let mut created = Table::new();
            // Without a header of its own if it only holds other tables.
            created.set_implicit(true);
            Item::Table(created)
        });
        table = inner.as_table_like_mut().ok_or_else(|| format!("`{part}` is not a table"))?;
    }
    match (table.get_mut(last), tables_of(value)) {
        (Some(Item::ArrayOfTables(old)), Some(new)) => merge_tables(old, &new)?,
        (Some(item), _) => replace(item, value)?,
        // Inside of an inline table, only an inline value is possible.
        (None, Some(new)) if !tables.is_empty() && !is_inline(text, tables) => {
            let mut list = ArrayOfTables::new();
            merge_tables(&mut list, &new)?;
            table.insert(last, Item::ArrayOfTables(list));
        }
        (None, _) => drop(table.insert(last, Item::Value(toml_value(value)?))),
    }
    Ok(document.to_string())
}

/// The members of a list that has objects only.
fn tables_of(value: &Json) -> Option<Vec<&serde_json::Map<String, Json>>> {
    let list = value.as_array().filter(|list| !list.is_empty())?;
    list.iter().map(Json::as_object).collect()
}

fn is_inline(text: &str, path: &[&str]) -> bool {
    let Ok(document) = document(text) else { return false };
    let mut item = document.as_item();
    for part in path {
        let Some(inner) = item.get(part) else { return false };
        item = inner;
    }
    item.is_inline_table() || item.as_table().is_some_and(Table::is_dotted)
}

/// Replaces a value; a comment behind it stays, and so do those within a list.
fn replace(item: &mut Item, value: &Json) -> Result<(), String> {
    if let (Item::Value(Value::Array(old)), Json::Array(new)) = (&mut *item, value) {
        return merge_list(old, new);
    }
    let decor = item.as_value().map(|old| old.decor().clone());
    let mut new = toml_value(value)?;
    if let Some(decor) = decor {
        *new.decor_mut() = decor;
    }
    *item = Item::Value(new);
    Ok(())
}

fn merge_list(list: &mut Array, new: &[Json]) -> Result<(), String> {
    let mut old: Vec<Value> = list.iter().cloned().collect();
    let spread = old.iter().any(|v| prefix(v).contains('\n'));
    // Comments before an element belong to it; a new element has its indentation alone.
    let indent = old.first().map(|v| prefix(v).rsplit('\n').next().unwrap_or_default().to_owned()).unwrap_or_default();
    list.clear();
    for (at, value) in new.iter().enumerate() {
        let new_value = toml_value(value)?;
        let same = old.iter().position(|v| json_of(v).as_ref() == Some(value));
        let mut element = match same {
            Some(found) => old.remove(found),
            None if spread => new_value.decorated(format!("\n{indent}"), ""),
            None => new_value,
        };
        if !spread {
            element = element.decorated(if at == 0 { "" } else { " " }, "");
        }
        list.push_formatted(element);
    }
    Ok(())
}

/// A value as JSON, however it is written.
fn json_of(value: &Value) -> Option<Json> {
    let line = format!("v = {}", value.clone().decorated("", ""));
    toml::from_str::<serde_json::Map<String, Json>>(&line).ok()?.remove("v")
}

fn prefix(value: &Value) -> &str {
    value.decor().prefix().and_then(|p| p.as_str()).unwrap_or_default()
}

/// Sets a list of tables; those that stay keep their text.
fn merge_tables(list: &mut ArrayOfTables, new: &[&serde_json::Map<String, Json>]) -> Result<(), String> {
    let mut old: Vec<Option<Table>> = list.iter().cloned().map(Some).collect();
    let position = old.first().and_then(|t| t.as_ref().and_then(Table::position));
    let same = |table: &Table, object: &serde_json::Map<String, Json>| {
        toml::from_str::<Json>(&table.to_string()).is_ok_and(|v| v.as_object() == Some(object))
    };
    let mut tables: Vec<Option<Table>> = Vec::new();
    for object in new {
        let index = old.iter().position(|t| t.as_ref().is_some_and(|t| same(t, object)));
        tables.push(index.and_then(|at| old[at].take()));
    }
    list.clear();
    for (at, (kept, object)) in tables.into_iter().zip(new).enumerate() {
        let mut table = kept.or_else(|| old.get_mut(at).and_then(Option::take)).unwrap_or_default();
        for (name, value) in *object {
            match table.get_mut(name) {
                Some(item) => replace(item, value)?,
                None => drop(table.insert(name, Item::Value(toml_value(value)?))),
            }
        }
        table.retain(|name, _| object.contains_key(name));
        // All in one place, in this order.
        table.set_position(position);
        list.push(table);
    }
    Ok(())
}

fn toml_value(value: &Json) -> Result<Value, String> {
    Ok(match value {
        Json::Null => return Err("null cannot be in a list or a table".into()),
        Json::Bool(b) => (*b).into(),
        Json::Number(n) => match n.as_i64() {
            Some(whole) => whole.into(),
            None => n.as_f64().ok_or_else(|| format!("{n} is too large"))?.into(),
        },
        Json::String(text) => text.as_str().into(),
        Json::Array(list) => Value::Array(list.iter().map(toml_value).collect::<Result<Array, _>>()?),
        Json::Object(map) => {
            let members = map.iter().map(|(name, v)| Ok::<_, String>((name.as_str(), toml_value(v)?)));
            Value::InlineTable(members.collect::<Result<_, _>>()?)
        }
    })
}

/// Removes a key with its line; comments above it stay.
fn remove(text: &str, path: &[&str]) -> Result<String, String> {
    if let Some(lines) = own_lines(text, path) {
        return Ok(format!("{}{}", &text[..lines.start], &text[lines.end..]));
    }
    let mut document = document(text)?;
    let (last, tables) = path.split_last().ok_or("a key is needed")?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for part in tables {
        let Some(inner) = table.get_mut(part).and_then(Item::as_table_like_mut) else { return Ok(text.to_owned()) };
        table = inner;
    }
    table.remove(last);
    Ok(document.to_string())
}

/// The lines of a key and its value, if nothing else but a comment is in them.
fn own_lines(text: &str, path: &[&str]) -> Option<std::ops::Range<usize>> {
    let parsed = DeTable::parse(text).ok()?;
    let mut table: &DeTable<'_> = parsed.get_ref();
    let (last, tables) = path.split_last()?;
    for part in tables {
        let DeValue::Table(inner) = member(table, part)?.1.get_ref() else { return None };
        table = inner;
    }
    let (name, value) = member(table, last)?;
    let start = text[..name.span().start].rfind('\n').map_or(0, |at| at + 1);
    let end = text[value.span().end..].find('\n').map_or(text.len(), |at| value.span().end + at + 1);
    // A header's key, such as that of a list of tables, is not at the beginning of its line.
    let before = text[start..name.span().start].trim();
    let dotted = tables.iter().map(|part| format!("{part}.")).collect::<String>();
    let after = text[value.span().end..end].trim();
    ((before.is_empty() || before == dotted) && (after.is_empty() || after.starts_with('#'))).then_some(start..end)
}

type Member<'a, 'i> = (&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>);

fn member<'a, 'i>(table: &'a DeTable<'i>, name: &str) -> Option<Member<'a, 'i>> {
    table.iter().find(|(key, _)| key.get_ref().as_ref() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn changed(text: &str, key: &str, value: Json) -> String {
        edit(text, [(key, &value)]).unwrap()
    }

    #[test]
    fn a_value_is_replaced_where_it_is_and_everything_else_stays() {
        let text = "# ours\n[intercept] # TLS\nexclude = [\"a.test\"]\n  mode = \"none\"   # for now\n\n[record]\nbodies=true\n";
        assert_eq!(changed(text, "intercept.mode", json!("all")), text.replace("\"none\"", "\"all\""));
        assert_eq!(changed(text, "record.bodies", json!(false)), text.replace("bodies=true", "bodies=false"));
        assert_eq!(
            changed(text, "record.max_body", json!("1MiB")),
            text.replace("bodies=true\n", "bodies=true\nmax_body = \"1MiB\"\n")
        );
        assert_eq!(changed(text, "approvals.notify", json!(true)), format!("{text}\n[approvals]\nnotify = true\n"));
    }

    #[test]
    fn every_way_to_write_a_table_is_kept() {
        for (text, expected) in [
            ("", "[intercept]\nmode = \"all\"\n"),
            ("intercept.mode = 'none'\n", "intercept.mode = \"all\"\n"),
            ("intercept = { mode = 'none' } # short\n", "intercept = { mode = \"all\" } # short\n"),
            ("intercept.exclude = []\n", "intercept.exclude = []\nintercept.mode = \"all\"\n"),
            (
                "[intercept]\n# mode = \"all\"\n\n[record]\n",
                "[intercept]\nmode = \"all\"\n# mode = \"all\"\n\n[record]\n",
            ),
        ] {
            assert_eq!(changed(text, "intercept.mode", json!("all")), expected);
        }
    }

    #[test]
    fn lists_keep_their_form_and_comments() {
        let text = "[intercept]\nexclude = [\n  # the bank pins\n  \"bank.test\",\n  \"old.test\",\n]\n";
        assert_eq!(
            changed(text, "intercept.exclude", json!(["bank.test", "new.test"])),
            "[intercept]\nexclude = [\n  # the bank pins\n  \"bank.test\",\n  \"new.test\",\n]\n"
        );
        assert_eq!(
            changed("[intercept]\nexclude = [\"a\", 'b'] # both\n", "intercept.exclude", json!(["b", "c"])),
            "[intercept]\nexclude = ['b', \"c\"] # both\n"
        );
    }

    #[test]
    fn lists_of_tables_keep_the_entries_that_stay() {
        let text = "[upstream]\nno_proxy = []\n\n# the office\n[[upstream.proxy]]\nhosts = ['*.corp'] # ours\nvia = ['http://a:1']\n\n[[upstream.proxy]]\nhosts = ['*']\nvia = []\n\n[record]\n";
        let direct = json!({"hosts": ["*"], "via": []});
        let office = json!({"hosts": ["*.corp"], "via": ["http://b:2"]});
        assert_eq!(
            changed(text, "upstream.proxy", json!([office, direct])),
            text.replace("'http://a:1'", "\"http://b:2\"")
        );
        assert_eq!(
            changed(text, "upstream.proxy", json!([direct])),
            "[upstream]\nno_proxy = []\n\n[[upstream.proxy]]\nhosts = ['*']\nvia = []\n\n[record]\n"
        );
        let added = changed("[record]\n", "upstream.proxy", json!([direct]));
        assert_eq!(added, "[record]\n\n[[upstream.proxy]]\nhosts = [\"*\"]\nvia = []\n");
        assert_eq!(changed(text, "upstream.proxy", json!([])).matches("[[upstream.proxy]]").count(), 0);
    }

    #[test]
    fn a_removed_key_leaves_the_comments_above_it() {
        for (text, expected) in [
            ("[a]\n# why\nx = 1 # here\ny = 2\n", "[a]\n# why\ny = 2\n"),
            ("a.x = [\n  1,\n]\na.y = 2\n", "a.y = 2\n"),
            ("a = { x = 1, y = 2 }\n", "a = { y = 2 }\n"),
            ("[a]\ny = 2\n", "[a]\ny = 2\n"),
            ("b = 1\n", "b = 1\n"),
        ] {
            assert_eq!(changed(text, "a.x", Json::Null), expected);
        }
        let proxies = "[[upstream.proxy]]\nhosts = ['*']\nvia = []\n[record]\n";
        assert_eq!(changed(proxies, "upstream.proxy", Json::Null), "[record]\n");
    }

    #[test]
    fn what_cannot_be_written_is_refused() {
        for (text, key, value) in [
            ("x = = 1", "a.b", json!(1)),
            ("a = 1", "a.b", json!(1)),
            ("", "a..b", json!(1)),
            ("", "a.b", json!([null])),
        ] {
            assert!(edit(text, [(key, &value)]).is_err(), "{text} {key}");
        }
    }
}
