//! The keys file: TOML that people may edit, and that `interflow keys` edits without losing their comments.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Deserialize;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use super::secret::KeyDigest;
use super::{GroupLevel, KeyGroup, KeyScope, PlaintextKey, VirtualKey};
use crate::rules::Quota;
use crate::tags::{TagSet, check_tags, merged};

/// Why a keys file is invalid, with the line or the key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyFileError(pub(super) String);

pub(super) type KeyResult<T> = Result<T, KeyFileError>;

/// Parameters of a new key. An empty `id` is replaced by a generated one; `owner` is the user or team to which it is
/// issued; `limits` apply to this key alone.
#[derive(Clone, Debug, Default)]
pub struct NewVirtualKey {
    pub id: String,
    pub owner: Option<String>,
    pub note: Option<String>,
    pub expires: Option<Timestamp>,
    pub scope: KeyScope,
    /// The redaction policy of its requests, by its name in `redact.policies`.
    pub policy: Option<String>,
    pub limits: Quota,
    /// The id of its team.
    pub team: Option<String>,
    pub tags: TagSet,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KeyFileContents {
    organisation: Vec<toml::Spanned<GroupEntry>>,
    team: Vec<toml::Spanned<GroupEntry>>,
    key: Vec<toml::Spanned<KeyFileEntry>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct KeyFileEntry {
    id: String,
    hash: String,
    owner: Option<String>,
    note: Option<String>,
    created: Option<String>,
    expires: Option<String>,
    revoked: Option<String>,
    disabled: bool,
    providers: Vec<String>,
    models: Vec<String>,
    paths: Vec<String>,
    mcp: Vec<String>,
    policy: Option<String>,
    limits: Option<Quota>,
    team: Option<String>,
    tags: TagSet,
    previous_hash: Option<String>,
    previous_until: Option<String>,
}

/// A parsed file.
#[derive(Debug)]
pub(super) struct ParsedKeys {
    /// Organisations, then teams.
    pub groups: Vec<Arc<KeyGroup>>,
    pub keys: Vec<ParsedKey>,
}

#[derive(Debug)]
pub(super) struct ParsedKey {
    pub hash: KeyDigest,
    /// The hash of the secret before the last rotation, and until when it is valid.
    pub previous: Option<(KeyDigest, Timestamp)>,
    pub key: VirtualKey,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct GroupEntry {
    id: String,
    organisation: Option<String>,
    note: Option<String>,
    expires: Option<String>,
    disabled: bool,
    models: Vec<String>,
    mcp: Vec<String>,
    tags: TagSet,
    limits: Option<Quota>,
}

/// Organisations, then teams.
fn parse_groups(
    text: &str,
    organisations: Vec<toml::Spanned<GroupEntry>>,
    teams: Vec<toml::Spanned<GroupEntry>>,
) -> KeyResult<Vec<Arc<KeyGroup>>> {
    let mut groups: Vec<Arc<KeyGroup>> = Vec::with_capacity(organisations.len() + teams.len());
    for (level, entries) in [(GroupLevel::Organisation, organisations), (GroupLevel::Team, teams)] {
        let mut ids = HashSet::new();
        for entry in entries {
            let line = line_of(text, &entry);
            let entry = entry.into_inner();
            let id = entry.id.clone();
            let wrong = |why: &str| KeyFileError(format!("line {line}: the {level} `{id}`: {why}"));
            let group = parse_group(level, entry, &groups).map_err(|why| wrong(&why))?;
            if !ids.insert(Arc::clone(&group.id)) {
                return Err(wrong(&format!("there is another {level} of this id")));
            }
            groups.push(Arc::new(group));
        }
    }
    Ok(groups)
}

/// The group that an entry names, if it names one.
fn named_group(groups: &[Arc<KeyGroup>], level: GroupLevel, id: Option<&str>) -> Result<Option<Arc<KeyGroup>>, String> {
    let Some(id) = id else { return Ok(None) };
    let found = groups.iter().find(|g| g.level == level && *g.id == *id);
    found.cloned().map(Some).ok_or_else(|| format!("{level}: there is no [[{level}]] with the id `{id}`"))
}

fn parse_group(level: GroupLevel, e: GroupEntry, groups: &[Arc<KeyGroup>]) -> Result<KeyGroup, String> {
    check_common(&e.id, e.limits.as_ref(), &e.tags)?;
    if level == GroupLevel::Organisation && e.organisation.is_some() {
        return Err("organisation: only teams belong to one".into());
    }
    let parent = named_group(groups, GroupLevel::Organisation, e.organisation.as_deref())?;
    Ok(KeyGroup {
        level,
        id: e.id.into(),
        note: e.note,
        expires: parse_time("expires", e.expires.as_deref())?,
        disabled: e.disabled,
        models: e.models,
        mcp: e.mcp,
        tags: parent.as_ref().map_or_else(|| e.tags.clone(), |parent| merged(&parent.tags, &e.tags)),
        limits: e.limits,
        parent,
    })
}

pub(super) fn parse_keys(text: &str) -> KeyResult<ParsedKeys> {
    let file: KeyFileContents = toml::from_str(text).map_err(|e| KeyFileError(e.to_string()))?;
    let groups = parse_groups(text, file.organisation, file.team)?;
    let (mut ids, mut hashes) = (HashSet::new(), HashSet::new());
    let mut keys = Vec::with_capacity(file.key.len());
    for entry in file.key {
        let line = line_of(text, &entry);
        let entry = entry.into_inner();
        let id = entry.id.clone();
        let wrong = |why: &str| KeyFileError(format!("line {line}: the key `{id}`: {why}"));
        let parsed = parse_key(entry, &groups).map_err(|why| wrong(&why))?;
        if !ids.insert(Arc::clone(&parsed.key.id)) {
            return Err(wrong("there is another key of this id"));
        }
        for hash in std::iter::once(&parsed.hash).chain(parsed.previous.iter().map(|(hash, _)| hash)) {
            if !hashes.insert(*hash) {
                return Err(wrong("another key has the same hash"));
            }
        }
        keys.push(parsed);
    }
    Ok(ParsedKeys { groups, keys })
}

/// `toml` reports byte offsets; people look for lines.
pub(super) fn line_of<T>(text: &str, entry: &toml::Spanned<T>) -> usize {
    text.get(..entry.span().start).unwrap_or_default().matches('\n').count() + 1
}

/// Checks what keys and groups have in common.
fn check_common(id: &str, limits: Option<&Quota>, tags: &TagSet) -> Result<(), String> {
    if id.is_empty() || id.len() > 128 || id.chars().any(char::is_control) {
        return Err("id: 1 to 128 printable characters are needed".into());
    }
    limits.map_or(Ok(()), Quota::check).map_err(|why| format!("limits: {why}"))?;
    check_tags(tags).map_err(|why| format!("tags: {why}"))
}

pub(super) fn parse_time(name: &str, text: Option<&str>) -> Result<Option<Timestamp>, String> {
    text.map(|text| parse_timestamp(text).map_err(|why| format!("{name}: {why}"))).transpose()
}

fn parse_key(e: KeyFileEntry, groups: &[Arc<KeyGroup>]) -> Result<ParsedKey, String> {
    let hash = KeyDigest::parse(&e.hash)?;
    check_common(&e.id, e.limits.as_ref(), &e.tags)?;
    if e.policy.as_ref().is_some_and(|name| name.is_empty()) {
        return Err("policy: the name of a policy is needed".into());
    }
    let previous_until = parse_time("previous_until", e.previous_until.as_deref())?;
    let previous = match (e.previous_hash, previous_until) {
        (Some(hash), Some(until)) => {
            Some((KeyDigest::parse(&hash).map_err(|why| format!("previous_hash: {why}"))?, until))
        }
        (None, None) => None,
        _ => return Err("previous_hash and previous_until belong together".into()),
    };
    let team = named_group(groups, GroupLevel::Team, e.team.as_deref())?;
    let key = VirtualKey {
        id: e.id.into(),
        owner: e.owner.map(Into::into),
        note: e.note,
        created: parse_time("created", e.created.as_deref())?,
        expires: parse_time("expires", e.expires.as_deref())?,
        revoked: parse_time("revoked", e.revoked.as_deref())?,
        disabled: e.disabled,
        scope: KeyScope { providers: e.providers, models: e.models, paths: e.paths, mcp: e.mcp },
        policy: e.policy.map(Into::into),
        limits: e.limits,
        tags: team.as_ref().map_or_else(|| e.tags.clone(), |team| merged(&team.tags, &e.tags)),
        team,
        previous_until,
    };
    Ok(ParsedKey { hash, previous, key })
}

/// Parses RFC 3339, or a date, which means its first second in UTC.
///
/// # Errors
/// A description of the expected format.
pub fn parse_timestamp(text: &str) -> Result<Timestamp, String> {
    let whole = if text.len() == 10 { format!("{text}T00:00:00Z") } else { text.to_owned() };
    whole.parse().map_err(|_| format!("`{text}` is not a date or time: write 2027-01-31 or 2027-01-31T12:00:00Z"))
}

/// Appends a new key to the text of a keys file and returns the key in plain text; it cannot be recovered later. The
/// text is left as it was if anything fails.
///
/// # Errors
/// The file does not parse, the id is taken, or the key would have expired.
pub fn add_key(text: &mut String, new: NewVirtualKey, now: Timestamp) -> KeyResult<PlaintextKey> {
    check_expiry(new.expires, now)?;
    let secret = PlaintextKey::generate();
    let digest = KeyDigest::from_key(secret.reveal());
    append_table(text, "key", key_table(new, &digest, now))?;
    Ok(secret)
}

/// Refuses an expiry in the past for what is created, which could never be used.
pub(super) fn check_expiry(expires: Option<Timestamp>, now: Timestamp) -> KeyResult<()> {
    let Some(past) = expires.filter(|end| *end <= now).map(to_the_second) else { return Ok(()) };
    Err(KeyFileError(format!("the expiry {past} is in the past: give a later one, or for how long (90d), or none")))
}

fn key_table(new: NewVirtualKey, digest: &KeyDigest, now: Timestamp) -> Table {
    // Eight hex digits of the hash: short enough to read, and the file's check for duplicate ids catches a collision.
    let made_up = || digest.to_string()[7..15].to_owned();
    let mut t = Table::new();
    t["id"] = value(if new.id.is_empty() { made_up() } else { new.id });
    t["hash"] = value(digest.to_string());
    for (name, text) in [("owner", new.owner), ("team", new.team), ("note", new.note), ("policy", new.policy)] {
        set_text(&mut t, name, text);
    }
    t["created"] = value(to_the_second(now));
    set_expiry(&mut t, new.expires);
    let KeyScope { providers, models, paths, mcp } = new.scope;
    for (name, list) in [("providers", providers), ("models", models), ("paths", paths), ("mcp", mcp)] {
        if !list.is_empty() {
            t[name] = value(list.into_iter().collect::<toml_edit::Array>());
        }
    }
    if let Some(limits) = new.limits.to_table() {
        t["limits"] = value(limits);
    }
    set_tags(&mut t, new.tags);
    t
}

/// Replaces the tags; none removes them.
fn set_tags(table: &mut Table, tags: TagSet) {
    match tags.is_empty() {
        true => drop(table.remove("tags")),
        false => table["tags"] = value(tags.into_iter().collect::<toml_edit::InlineTable>()),
    }
}

/// Sets a text, or removes it.
pub(super) fn set_text(table: &mut Table, name: &str, text: Option<String>) {
    match text {
        Some(text) => table[name] = value(text),
        None => drop(table.remove(name)),
    }
}

fn set_expiry(table: &mut Table, expires: Option<Timestamp>) {
    set_text(table, "expires", expires.map(to_the_second));
}

/// Changes what keys, teams and organisations have in common.
pub(super) fn change_common(
    table: &mut Table,
    disabled: Option<bool>,
    expires: Option<Option<Timestamp>>,
    tags: Option<TagSet>,
) {
    if let Some(disabled) = disabled {
        if disabled { table["disabled"] = value(true) } else { drop(table.remove("disabled")) }
    }
    if let Some(expires) = expires {
        set_expiry(table, expires);
    }
    if let Some(tags) = tags {
        set_tags(table, tags);
    }
}

/// Marks a key as revoked. Returns whether the key exists; the date of a key that is already revoked does not change.
/// The entry stays in the file, so that its id cannot be issued to somebody else and audit records remain explicable.
///
/// # Errors
/// The file does not parse.
pub fn revoke_key(text: &mut String, id: &str, now: Timestamp) -> KeyResult<bool> {
    edit_table(text, "key", id, |key| {
        if !key.contains_key("revoked") {
            key["revoked"] = value(to_the_second(now));
        }
        Ok(())
    })
}

/// What may be changed of a key after it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyChange {
    /// Whether it is rejected until it is enabled again.
    pub disabled: Option<bool>,
    /// Its expiry; `Some(None)` removes it.
    pub expires: Option<Option<Timestamp>>,
    /// The id of its team; `Some(None)` removes it from its team.
    pub team: Option<Option<String>>,
    /// Its own tags, in place of those it has.
    pub tags: Option<TagSet>,
}

/// Changes a key. Returns whether it exists.
///
/// # Errors
/// The file does not parse, or the key was revoked, which is final.
pub fn change_key(text: &mut String, id: &str, change: KeyChange) -> KeyResult<bool> {
    edit_table(text, "key", id, |key| {
        refuse_revoked(key, id)?;
        if let Some(team) = change.team {
            set_text(key, "team", team);
        }
        change_common(key, change.disabled, change.expires, change.tags);
        Ok(())
    })
}

/// Replaces the secret of a key, whose id, limits and counters stay. The old one is valid until `overlap_until`, and
/// otherwise rejected from then on; one that was replaced before is rejected in any case. Returns the new key in plain
/// text, or `None` if there is no such key.
///
/// # Errors
/// The file does not parse, or the key was revoked.
pub fn rotate_key(text: &mut String, id: &str, overlap_until: Option<Timestamp>) -> KeyResult<Option<PlaintextKey>> {
    let secret = PlaintextKey::generate();
    let digest = KeyDigest::from_key(secret.reveal());
    let done = edit_table(text, "key", id, |key| {
        refuse_revoked(key, id)?;
        let old = key.get("hash").and_then(Item::as_str).map(str::to_owned);
        set_text(key, "previous_hash", old.filter(|_| overlap_until.is_some()));
        set_text(key, "previous_until", overlap_until.map(to_the_second));
        key["hash"] = value(digest.to_string());
        Ok(())
    })?;
    Ok(done.then_some(secret))
}

fn refuse_revoked(key: &Table, id: &str) -> KeyResult<()> {
    match key.contains_key("revoked") {
        true => Err(KeyFileError(format!("the key `{id}` was revoked, which is final: make another one"))),
        false => Ok(()),
    }
}

/// As people write dates.
pub(super) fn to_the_second(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

pub(super) fn parse_document(text: &str) -> KeyResult<DocumentMut> {
    text.parse().map_err(|e: toml_edit::TomlError| KeyFileError(e.to_string()))
}

/// Appends a table to a list. The text is left as it was if anything fails.
pub(super) fn append_table(text: &mut String, list: &str, table: Table) -> KeyResult<()> {
    let mut document = parse_document(text)?;
    let tables = document.entry(list).or_insert_with(|| Item::ArrayOfTables(ArrayOfTables::new()));
    let tables = tables.as_array_of_tables_mut();
    tables.ok_or_else(|| KeyFileError(format!("`{list}` is not a list of [[{list}]]")))?.push(table);
    let changed = document.to_string();
    // What was written must parse again; otherwise the gateway would refuse the whole file at its next start.
    parse_keys(&changed)?;
    *text = changed;
    Ok(())
}

/// Edits a table of a list by its `id`. Returns whether there is one with it.
pub(super) fn edit_table(
    text: &mut String,
    list: &str,
    id: &str,
    edit: impl FnOnce(&mut Table) -> KeyResult<()>,
) -> KeyResult<bool> {
    parse_keys(text)?;
    let mut document = parse_document(text)?;
    let tables = document.get_mut(list).and_then(Item::as_array_of_tables_mut);
    let Some(table) = tables.and_then(|t| t.iter_mut().find(|t| t.get("id").and_then(Item::as_str) == Some(id))) else {
        return Ok(false);
    };
    edit(table)?;
    *text = document.to_string();
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn invalid_key_file_is_refused_with_its_position() {
        for (text, says) in [
            ("[[key]]\nid = 'a'\nhash = 'md5:1'\n".to_owned(), "line 1: the key `a`: its hash"),
            (format!("\n[[key]]\nid = 'a'\nhash = '{HASH}'\nexpires = 'soon'"), "line 2: the key `a`: expires: `soon`"),
            (format!("[[key]]\nid = 'a'\nhash = '{HASH}'\nmodel = ['x']"), "unknown field `model`"),
            (
                format!("[[key]]\nid = 'a'\nhash = '{HASH}'\n[[key]]\nid = 'b'\nhash = '{HASH}'"),
                "line 4: the key `b`: another",
            ),
            ("[[key]]\nid = ".to_owned(), "line 2"),
            (format!("[[key]]\nid = 'a'\nhash = '{HASH}'\nlimits = {{ requests = '5' }}"), "5"),
        ] {
            let e = parse_keys(&text).unwrap_err().to_string();
            assert!(e.contains(says), "{text}\n{e}");
        }
    }

    #[test]
    fn adding_a_key_preserves_comments_and_other_keys() {
        let mut text = format!("# mine\n[[key]]\nid = 'a' # first\nhash = '{HASH}'\n");
        let now = parse_timestamp("2026-01-01").unwrap();
        let new = NewVirtualKey {
            id: "b".into(),
            owner: Some("Ann".into()),
            expires: Some(parse_timestamp("2027-01-31").unwrap()),
            scope: KeyScope { models: vec!["gpt-5*".into()], ..KeyScope::default() },
            policy: Some("strict".into()),
            limits: Quota { requests: Some("60/m".parse().unwrap()), money_per_day: Some(2.5), ..Quota::default() },
            ..NewVirtualKey::default()
        };
        add_key(&mut text, new.clone(), now).unwrap();
        assert!(text.starts_with("# mine\n[[key]]\nid = 'a' # first\n"), "{text}");
        let parsed = parse_keys(&text).unwrap();
        let b = &parsed.keys[1].key;
        assert_eq!((b.owner.as_deref(), b.limits.as_ref()), (Some("Ann"), Some(&new.limits)));
        assert_eq!(b.expires, new.expires);
        assert_eq!(b.policy.as_deref(), Some("strict"));
        assert_eq!(b.scope, new.scope);
        assert!(add_key(&mut text, new.clone(), now).unwrap_err().to_string().contains("another key of this id"));
        assert!(!revoke_key(&mut text, "c", now).unwrap());
        assert!(
            revoke_key(&mut text, "b", now).unwrap()
                && revoke_key(&mut text, "b", parse_timestamp("2028-01-01").unwrap()).unwrap()
        );
        assert_eq!(parse_keys(&text).unwrap().keys[1].key.revoked, Some(now));
    }

    #[test]
    fn a_key_or_a_team_that_has_expired_is_not_created() {
        let (mut text, now) = (String::new(), parse_timestamp("2026-01-01").unwrap());
        let ended = NewVirtualKey { expires: Some(now), ..NewVirtualKey::default() };
        let why = add_key(&mut text, ended, now).unwrap_err().to_string();
        assert!(why.contains("2026-01-01T00:00:00Z is in the past") && why.contains("90d"), "{why}");
        let ended = super::super::GroupChange { expires: Some(Some(now)), ..Default::default() };
        let level = super::super::GroupLevel::Team;
        assert!(super::super::group_file::add_group(&mut text, level, "a", ended).is_err() && text.is_empty());
    }
}
