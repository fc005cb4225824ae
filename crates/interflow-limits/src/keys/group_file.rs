//! Teams and organisations in the keys file: `[[team]]` and `[[organisation]]` beside `[[key]]`.

use std::sync::Arc;

use jiff::Timestamp;
use toml_edit::{Array, Item, Table, value};

use super::key_file::{
    KeyFileError, KeyResult, append_table, change_common, check_expiry, edit_table, parse_document, parse_keys,
    set_text,
};
use super::{GroupLevel, KeyGroup};
use crate::rules::Quota;
use crate::tags::TagSet;

/// What to set of a team or an organisation. What is `None` stays as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupChange {
    /// The organisation of a team; `Some(None)` removes it from its organisation.
    pub organisation: Option<Option<String>>,
    pub note: Option<String>,
    /// The expiry; `Some(None)` removes it.
    pub expires: Option<Option<Timestamp>>,
    pub disabled: Option<bool>,
    pub models: Option<Vec<String>>,
    pub mcp: Option<Vec<String>>,
    pub tags: Option<TagSet>,
    /// All limits together; those that are unset are removed.
    pub limits: Option<Quota>,
}

pub(super) fn add_group(text: &mut String, level: GroupLevel, id: &str, settings: GroupChange) -> KeyResult<()> {
    check_expiry(settings.expires.flatten(), Timestamp::now())?;
    let mut table = Table::new();
    table["id"] = value(id);
    apply(&mut table, settings);
    append_table(text, level.as_str(), table)
}

pub(super) fn change_group(text: &mut String, level: GroupLevel, id: &str, change: GroupChange) -> KeyResult<bool> {
    edit_table(text, level.as_str(), id, |table| {
        apply(table, change);
        Ok(())
    })
}

fn apply(table: &mut Table, change: GroupChange) {
    if let Some(organisation) = change.organisation {
        set_text(table, "organisation", organisation);
    }
    if let Some(note) = change.note {
        set_text(table, "note", Some(note).filter(|note| !note.is_empty()));
    }
    change_common(table, change.disabled, change.expires, change.tags);
    for (name, list) in [("models", change.models), ("mcp", change.mcp)] {
        match list {
            Some(list) if list.is_empty() => drop(table.remove(name)),
            Some(list) => table[name] = value(list.into_iter().collect::<Array>()),
            None => {}
        }
    }
    match change.limits.map(|limits| limits.to_table()) {
        Some(Some(limits)) => table["limits"] = value(limits),
        Some(None) => drop(table.remove("limits")),
        None => {}
    }
}

pub(super) fn remove_group(text: &mut String, level: GroupLevel, id: &str) -> KeyResult<bool> {
    let parsed = parse_keys(text)?;
    let key =
        parsed.keys.iter().find(|k| level == GroupLevel::Team && k.key.team.as_ref().is_some_and(|t| *t.id == *id));
    if let Some(key) = key {
        let key = &key.key.id;
        return Err(KeyFileError(format!(
            "the key `{key}` belongs to the {level} `{id}`: move it first with `interflow keys change {key} --team …`"
        )));
    }
    let belongs =
        |g: &&Arc<KeyGroup>| g.parent.as_ref().is_some_and(|parent| parent.level == level && *parent.id == *id);
    if let Some(team) = parsed.groups.iter().find(belongs) {
        let team = &team.id;
        return Err(KeyFileError(format!(
            "the team `{team}` belongs to the {level} `{id}`: move it first with `interflow keys team change {team} --organisation …`"
        )));
    }
    let mut document = parse_document(text)?;
    let Some(list) = document.get_mut(level.as_str()).and_then(Item::as_array_of_tables_mut) else { return Ok(false) };
    let before = list.len();
    list.retain(|table| table.get("id").and_then(Item::as_str) != Some(id));
    let is_removed = list.len() < before;
    if list.is_empty() {
        document.remove(level.as_str());
    }
    *text = document.to_string();
    Ok(is_removed)
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
