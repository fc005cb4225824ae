//! The configuration reference from the JSON Schema of the configuration.

use interflow_testkit::json_schema::{self, Property, cell, code, default_text, resolve};
use serde_json::Value as Json;

use crate::instance::config::InterflowConfig;

/// The page for this schema of the configuration.
fn markdown(schema: &Json) -> String {
    let defaults = serde_json::to_value(InterflowConfig::default()).expect("a config is plain data");
    let mut page = String::from(
        "# Configuration reference\n\n\
         <!-- Generated from the code by `make docs`; do not edit. -->\n\n\
         The configuration is one TOML file, given with `-c FILE`. Every key has a default, unless it is marked as required.\n\
         Each key of a section has an environment variable that overrides the file: `INTERFLOW_` and its path in capitals, such as\n\
         `INTERFLOW_INTERCEPT_MODE=none`. A list or a table is given as TOML: `INTERFLOW_PROXY_LISTEN='[\"[::]:7070\"]'`.\n\
         [Environment variables](environment.md) lists all that Interflow reads.\n\n\
         A *duration* is a number with its unit, such as `500ms`, `30s`, `5m`, `2h` or `7d`; a *size* is such as `4096`, `64KiB`, `10MB`\n\
         or `2GiB`.\n",
    );
    Reference { page: &mut page, root: schema }.table(schema, &defaults, "", Table::Section);
    page
}

/// What kind of table a heading stands for.
#[derive(Clone, Copy, PartialEq)]
enum Table {
    Section,
    /// An entry of a list, a value of a map, or a table inside one: without environment variables.
    Entry,
}

struct Reference<'a> {
    page: &'a mut String,
    root: &'a Json,
}

impl Reference<'_> {
    /// The keys of a table, then its lists and maps of tables, then its subtables, as TOML requires.
    fn table(&mut self, schema: &Json, defaults: &Json, path: &str, kind: Table) {
        let (root, all) = (self.root, json_schema::properties(schema, self.root));
        let inner = |p: &Property<'_>| resolve(&schema["properties"][p.name], root);
        let (tables, keys): (Vec<_>, Vec<_>) = all.into_iter().partition(|p| inner(p)["properties"].is_object());
        if !keys.is_empty() {
            self.keys(&keys, defaults, path, kind);
        }
        for key in &keys {
            let (schema, path) = (&schema["properties"][key.name], join(path, key.name));
            if let Some(item) = items(schema, root) {
                self.heading(3, &format!("[[{path}]]"), item);
                self.table(item, &Json::Null, &path, Table::Entry);
            } else if let Some(value) = map_values(schema, root) {
                let path = join(&path, "NAME");
                self.heading(3, &format!("[{path}]"), value);
                self.table(value, &Json::Null, &path, Table::Entry);
            }
        }
        for table in &tables {
            let (schema, path) = (&schema["properties"][table.name], join(path, table.name));
            let level = if kind == Table::Section { 2 } else { 4 };
            self.heading(level, &format!("[{path}]"), schema);
            self.table(resolve(schema, root), &defaults[table.name], &path, kind);
        }
    }

    fn heading(&mut self, level: usize, name: &str, schema: &Json) {
        let about =
            Some(sentence(schema)).filter(|s| !s.is_empty()).unwrap_or_else(|| sentence(resolve(schema, self.root)));
        let about = if about.is_empty() { String::new() } else { format!("\n{about}\n") };
        self.page.push_str(&format!("\n{} `{name}`\n{about}", "#".repeat(level)));
    }

    fn keys(&mut self, keys: &[Property<'_>], defaults: &Json, path: &str, kind: Table) {
        if kind == Table::Section && !path.is_empty() {
            let prefix = path.replace('.', "_").to_uppercase();
            self.page.push_str(&format!("\nEnvironment variables: `INTERFLOW_{prefix}_` and the key in capitals.\n"));
        }
        self.page.push_str("\n| key | type | default | meaning |\n|---|---|---|---|\n");
        for Property { name, type_name, default, required, description } in keys {
            let default = match defaults.get(name) {
                Some(value) => default_text(value),
                None => default.clone(),
            };
            let default = match default.is_empty() {
                true if *required && defaults.is_null() => "required".to_owned(),
                true => String::new(),
                false => code(&default),
            };
            let row = [cell(type_name), default, cell(description)].join(" | ");
            self.page.push_str(&format!("| `{name}` | {row} |\n"));
        }
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

/// The schema of a list's entries, if they are tables.
pub(super) fn items<'a>(schema: &'a Json, root: &'a Json) -> Option<&'a Json> {
    let item = resolve(schema.get("items")?, root);
    item["properties"].is_object().then_some(item)
}

/// The schema of a map's values, if they are tables.
pub(super) fn map_values<'a>(schema: &'a Json, root: &'a Json) -> Option<&'a Json> {
    let value = resolve(resolve(schema, root).get("additionalProperties")?, root);
    value["properties"].is_object().then_some(value)
}

pub(super) fn sentence(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

pub(super) fn meaning(schema: &Json, root: &Json) -> String {
    let mut text = sentence(schema);
    let values = resolve(schema, root);
    let names = |v: &Json| v["const"].as_str().or_else(|| v.as_str()).map(|s| format!("`{s}`"));
    let listed = values["oneOf"].as_array().or_else(|| values["enum"].as_array());
    let listed: Vec<_> = listed.into_iter().flatten().filter_map(names).collect();
    if !listed.is_empty() {
        text.push_str(&format!(" One of {}.", listed.join(", ")));
    }
    text.replace('|', "\\|").trim().to_owned()
}

/// The page describes the whole product.
#[cfg(all(feature = "media", feature = "compat"))]
#[test]
fn docs_config_reference_is_up_to_date() {
    let schema = InterflowConfig::generate_schema();
    interflow_testkit::docs::check_schema("config.json", &schema);
    interflow_testkit::docs::check_reference_page("configuration.md", &markdown(&schema));
}

/// Every key that the schema has anywhere, also in lists, in maps and in tables inside them.
#[test]
fn every_key_of_every_table_is_listed() {
    let schema = InterflowConfig::schema();
    let tables = schema["$defs"].as_object().into_iter().flatten().map(|(_, def)| def).chain([schema]);
    let keys: Vec<&String> = tables.filter_map(|t| t["properties"].as_object()).flat_map(|p| p.keys()).collect();
    let page = markdown(schema);
    let missing = keys.iter().filter(|key| {
        let (row, table) = (format!("| `{key}` |"), format!("{key}]`"));
        !page.lines().any(|l| l.starts_with(&row) || l.starts_with('#') && l.ends_with(&table))
    });
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&&String>::new());
    assert!(keys.len() > 300, "only {} keys", keys.len());
    for heading in ["[llm.provider.NAME]", "[quota.rule.allow]", "[[redact.backend]]"] {
        assert!(page.contains(&format!("# `{heading}`")), "{heading}");
    }
}

#[test]
fn every_key_has_a_description() {
    for line in markdown(InterflowConfig::schema()).lines().filter(|l| l.starts_with("| `")) {
        assert!(!line.ends_with("|  |"), "no meaning: {line}");
    }
}
