//! Joins two changes of a shared setting that were made from the same revision at two replicas, so that neither is lost.
//!
//! Keys and approval rules are joined entry by entry, other texts line by line. Where both sides changed the same thing,
//! there is no result.

use std::ops::Range;

use serde_json::{Map, Value as Json};
use similar::{Algorithm, DiffOp, capture_diff_slices};
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use crate::instance::config::SharedSetting;

/// The three texts of a merge.
#[derive(Clone, Copy)]
struct Sides<T> {
    base: T,
    theirs: T,
    ours: T,
}

/// The text with the changes of both sides; `None` where they contradict each other, or a text cannot be parsed.
pub(super) fn merge(name: &str, base: &[u8], theirs: &[u8], ours: &[u8]) -> Option<Vec<u8>> {
    let text = |bytes| std::str::from_utf8(bytes).ok();
    let sides = Sides { base: text(base)?, theirs: text(theirs)?, ours: text(ours)? };
    let merged = if [SharedSetting::Approvals, SharedSetting::Secrets].map(SharedSetting::as_str).contains(&name) {
        merge_json_text(sides)
    } else if name == SharedSetting::Keys.as_str() {
        merge_keys(sides)
    } else {
        merge_lines(sides)
    };
    merged.map(String::into_bytes)
}

fn merge_json_text(sides: Sides<&str>) -> Option<String> {
    let parse = |text: &str| serde_json::from_str::<Json>(text).ok();
    let (base, theirs, ours) = (parse(sides.base)?, parse(sides.theirs)?, parse(sides.ours)?);
    let merged = merge_json(Sides { base: Some(&base), theirs: Some(&theirs), ours: Some(&ours) })??;
    serde_json::to_string_pretty(&merged).ok()
}

/// The merged value, which may be its absence; `None` for a contradiction.
fn merge_json(sides: Sides<Option<&Json>>) -> Option<Option<Json>> {
    let Sides { base, theirs, ours } = sides;
    if ours == base || ours == theirs {
        return Some(theirs.cloned());
    }
    if theirs == base {
        return Some(ours.cloned());
    }
    match (base, theirs?, ours?) {
        (Some(Json::Object(base)), Json::Object(theirs), Json::Object(ours)) => {
            merge_fields(Sides { base, theirs, ours }).map(|fields| Some(Json::Object(fields)))
        }
        (Some(Json::Array(base)), Json::Array(theirs), Json::Array(ours)) => {
            let by_id = Sides { base: entries(base)?, theirs: entries(theirs)?, ours: entries(ours)? };
            let merged = merge_fields(Sides { base: &by_id.base, theirs: &by_id.theirs, ours: &by_id.ours })?;
            // In the order of the other side, with what was added here behind it.
            let order = by_id.theirs.keys().chain(by_id.ours.keys().filter(|id| !by_id.theirs.contains_key(*id)));
            Some(Some(Json::Array(order.filter_map(|id| merged.get(id).cloned()).collect())))
        }
        _ => None,
    }
}

fn merge_fields(sides: Sides<&Map<String, Json>>) -> Option<Map<String, Json>> {
    let names = sides.theirs.keys().chain(sides.ours.keys().filter(|name| !sides.theirs.contains_key(*name)));
    let mut merged = Map::new();
    for name in names {
        let value = merge_json(Sides {
            base: sides.base.get(name),
            theirs: sides.theirs.get(name),
            ours: sides.ours.get(name),
        })?;
        merged.extend(value.map(|value| (name.clone(), value)));
    }
    Some(merged)
}

/// Entries by their `id`, or by the `label` of secrets; `None` if one has neither, or two have the same.
fn entries(array: &[Json]) -> Option<Map<String, Json>> {
    let mut entries = Map::new();
    for entry in array {
        let name = entry.get("id").or_else(|| entry.get("label"))?;
        if entries.insert(name.as_str()?.to_owned(), entry.clone()).is_some() {
            return None;
        }
    }
    Some(entries)
}

/// Merges keys files: entries by their id, and fields within an entry. Comments of both sides stay with their entries.
fn merge_keys(sides: Sides<&str>) -> Option<String> {
    let parse = |text: &str| text.parse::<DocumentMut>().ok();
    let (base, mut merged, ours) = (parse(sides.base)?, parse(sides.theirs)?, parse(sides.ours)?);
    for level in ["organisation", "team", "key"] {
        let none = ArrayOfTables::new();
        let tables = |document: &DocumentMut| -> Option<ArrayOfTables> {
            if let Some(item) = document.get(level) { item.as_array_of_tables().cloned() } else { Some(none.clone()) }
        };
        let joined = merge_tables(Sides { base: tables(&base)?, theirs: tables(&merged)?, ours: tables(&ours)? })?;
        if !joined.is_empty() {
            merged.insert(level, Item::ArrayOfTables(joined));
        } else {
            merged.remove(level);
        }
    }
    Some(merged.to_string())
}

fn merge_tables(sides: Sides<ArrayOfTables>) -> Option<ArrayOfTables> {
    let Sides { base, theirs, ours } = sides;
    let find = |tables: &ArrayOfTables, id: &str| tables.iter().find(|table| id_of(table) == Some(id)).cloned();
    let mut merged = ArrayOfTables::new();
    for table in &theirs {
        let id = id_of(table)?;
        match (find(&base, id), find(&ours, id)) {
            (None, None) => merged.push(table.clone()),
            (Some(before), None) if is_same(&before, table) => {}
            (_, None) => return None,
            (before, Some(here)) => merged.push(merge_table(&before.unwrap_or_default(), table, &here)?),
        }
    }
    for table in &ours {
        let id = id_of(table)?;
        if find(&theirs, id).is_some() {
            continue;
        }
        match find(&base, id) {
            None => {
                let mut added = table.clone();
                // Its place in the other text means nothing here: without it, it is behind the others.
                added.set_position(None);
                merged.push(added);
            }
            Some(before) if is_same(&before, table) => {}
            Some(_) => return None,
        }
    }
    Some(merged)
}

fn merge_table(base: &Table, theirs: &Table, ours: &Table) -> Option<Table> {
    let mut merged = theirs.clone();
    let names = base.iter().chain(ours.iter()).map(|(name, _)| name.to_owned());
    for name in names {
        let [before, there, here] = [base, theirs, ours].map(|table| table.get(&name).map(shown));
        if here == before || here == there {
            continue;
        }
        if there != before {
            return None;
        }
        match ours.get(&name) {
            Some(item) => drop(merged.insert(&name, item.clone())),
            None => drop(merged.remove(&name)),
        }
    }
    Some(merged)
}

fn id_of(table: &Table) -> Option<&str> {
    table.get("id")?.as_str()
}

/// A value without the white space and comments around it.
fn shown(item: &Item) -> String {
    item.to_string().trim().to_owned()
}

fn is_same(a: &Table, b: &Table) -> bool {
    a.len() == b.len() && a.iter().all(|(name, item)| b.get(name).map(shown) == Some(shown(item)))
}

/// Lines that replace a range of the base's lines.
#[derive(PartialEq)]
struct Hunk<'a> {
    range: Range<usize>,
    lines: Vec<&'a str>,
}

fn merge_lines(sides: Sides<&str>) -> Option<String> {
    let lines = |text| str::split_inclusive(text, '\n').collect::<Vec<_>>();
    let (base, theirs, ours) = (lines(sides.base), lines(sides.theirs), lines(sides.ours));
    let mut hunks = hunks(&base, &theirs);
    for hunk in self::hunks(&base, &ours) {
        // Changes that touch each other are taken for changes of the same thing.
        match hunks.iter().find(|other| other.range.start <= hunk.range.end && hunk.range.start <= other.range.end) {
            Some(other) if *other == hunk => {}
            Some(_) => return None,
            None => hunks.push(hunk),
        }
    }
    hunks.sort_by_key(|hunk| hunk.range.start);
    let (mut merged, mut at) = (String::new(), 0);
    for hunk in hunks {
        merged.extend(base.get(at..hunk.range.start)?.iter().copied());
        merged.extend(hunk.lines);
        at = hunk.range.end;
    }
    merged.extend(base.get(at..)?.iter().copied());
    Some(merged)
}

fn hunks<'a>(base: &[&str], side: &[&'a str]) -> Vec<Hunk<'a>> {
    let mut hunks: Vec<Hunk<'a>> = Vec::new();
    for op in capture_diff_slices(Algorithm::Myers, base, side) {
        if matches!(op, DiffOp::Equal { .. }) {
            continue;
        }
        let lines = side.get(op.new_range()).unwrap_or_default();
        match hunks.last_mut().filter(|last| last.range.end == op.old_range().start) {
            Some(last) => {
                last.range.end = op.old_range().end;
                last.lines.extend(lines);
            }
            None => hunks.push(Hunk { range: op.old_range(), lines: lines.to_vec() }),
        }
    }
    hunks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(name: &str, base: &str, theirs: &str, ours: &str) -> Option<String> {
        merge(name, base.as_bytes(), theirs.as_bytes(), ours.as_bytes()).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_key_added_at_one_replica_and_one_revoked_at_another_are_both_kept() {
        let key = |id: &str, more: &str| format!("[[key]]\nid = \"{id}\"\nhash = \"x\"\n{more}");
        let base = format!("# Keys of the team.\n{}", key("a", ""));
        let theirs = format!("{base}\n{}", key("b", "note = \"new\"\n"));
        let ours = format!("# Keys of the team.\n{}", key("a", "revoked = \"2026-11-24T00:00:00Z\"\n"));
        let both = merged("keys", &base, &theirs, &ours).unwrap();
        let document = both.parse::<DocumentMut>().unwrap();
        let keys = document["key"].as_array_of_tables().unwrap();
        assert_eq!(keys.len(), 2, "{both}");
        assert!(
            keys.get(0).unwrap().contains_key("revoked") && !keys.get(1).unwrap().contains_key("revoked"),
            "{both}"
        );
        assert!(both.starts_with("# Keys of the team."), "{both}");
        // Both added one.
        let mine = format!("{base}\n{}", key("c", ""));
        let three = merged("keys", &base, &theirs, &mine).unwrap();
        assert_eq!(three.matches("[[key]]").count(), 3, "{three}");
        assert!(three.contains("note = \"new\"") && three.contains("\"c\""), "{three}");
        // Of an empty file.
        let first = merged("keys", "", &key("a", ""), &key("b", "")).unwrap();
        assert_eq!(first.matches("[[key]]").count(), 2, "{first}");
        // Removed at one, unchanged at the other; and changed at the other.
        assert_eq!(merged("keys", &theirs, &base, &theirs).as_deref(), Some(&*base));
        let changed = theirs.replace("new", "other");
        assert_eq!(merged("keys", &theirs, &base, &changed), None);
        assert_eq!(
            merged("keys", &theirs, &theirs.replace("new", "first"), &changed),
            None,
            "the same field of one key"
        );
    }

    #[test]
    fn approval_rules_are_merged_by_their_id() {
        let rules = |ids: &[(&str, &str)]| {
            let rules: Vec<_> = ids.iter().map(|(id, host)| serde_json::json!({ "id": id, "host": host })).collect();
            serde_json::json!({ "rules": rules }).to_string()
        };
        let base = rules(&[("1", "a.test"), ("2", "b.test")]);
        let theirs = rules(&[("1", "a.test"), ("2", "b.test"), ("3", "c.test")]);
        let ours = rules(&[("2", "b2.test"), ("4", "d.test")]);
        let both: Json = serde_json::from_str(&merged("approvals", &base, &theirs, &ours).unwrap()).unwrap();
        let expected: Json =
            serde_json::from_str(&rules(&[("2", "b2.test"), ("3", "c.test"), ("4", "d.test")])).unwrap();
        assert_eq!(both, expected);
        assert_eq!(merged("approvals", &base, &rules(&[("1", "x.test")]), &rules(&[("1", "y.test")])), None);
    }

    #[test]
    fn texts_are_merged_where_their_changes_do_not_touch() {
        let base = "a\nb\nc\nd\ne\n";
        assert_eq!(merged("rules", base, "a\nB\nc\nd\ne\n", "a\nb\nc\nD\ne\n").as_deref(), Some("a\nB\nc\nD\ne\n"));
        assert_eq!(merged("rules", base, "b\nc\nd\ne\n", "a\nb\nc\nd\ne\nf\n").as_deref(), Some("b\nc\nd\ne\nf\n"));
        assert_eq!(merged("rules", base, "a\nx\nc\nd\ne\n", "a\nx\nc\nd\ne\n").as_deref(), Some("a\nx\nc\nd\ne\n"));
        for (theirs, ours) in [("a\nx\nc\nd\ne\n", "a\ny\nc\nd\ne\n"), ("a\nb\nc\nd\ne\nx\n", "a\nb\nc\nd\ne\ny\n")] {
            assert_eq!(merged("rules", base, theirs, ours), None);
        }
    }

    #[test]
    fn secrets_are_merged_by_their_label() {
        let file = |secrets: &[(&str, &str)]| {
            let secrets: Vec<_> = secrets
                .iter()
                .map(|(label, sealed)| serde_json::json!({ "label": label, "hosts": [], "nonce": sealed, "sealed": sealed }))
                .collect();
            serde_json::json!({ "secrets": secrets }).to_string()
        };
        let base = file(&[("one", "a"), ("two", "b")]);
        let both =
            merged("secrets", &base, &file(&[("one", "a"), ("two", "b"), ("three", "c")]), &file(&[("two", "x")]));
        let parse = |text: &str| serde_json::from_str::<Json>(text).unwrap();
        assert_eq!(parse(&both.unwrap()), parse(&file(&[("two", "x"), ("three", "c")])));
        // Both gave the same one another value, or added one of the same label.
        assert_eq!(
            merged("secrets", &base, &file(&[("one", "x"), ("two", "b")]), &file(&[("one", "y"), ("two", "b")])),
            None
        );
        assert_eq!(merged("secrets", &file(&[]), &file(&[("new", "x")]), &file(&[("new", "y")])), None);
    }
}
