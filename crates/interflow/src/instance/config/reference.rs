//! Generates the configuration reference from the JSON Schema of the configuration.

use serde_json::Value as Json;

use super::InterflowConfig;

pub fn markdown() -> String {
    let schema = InterflowConfig::schema();
    let defaults = serde_json::to_value(InterflowConfig::default()).expect("a config is plain data");
    let mut page = String::from(
        "# Configuration reference\n\n\
         Made from the code by `interflow config reference`; do not edit.\n\n\
         One TOML file, given with `-c FILE`. Every key has a default. Each key has an environment variable that\n\
         overrides the file: `INTERFLOW_` and the path in capitals, such as `INTERFLOW_INTERCEPT_MODE=none`.\n",
    );
    section(&mut page, &schema, &schema, &defaults, "");
    page
}

fn section(page: &mut String, schema: &Json, root: &Json, defaults: &Json, path: &str) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let (tables, keys): (Vec<_>, Vec<_>) =
        // Keys of a section come before its subsections, as TOML requires.
        properties.iter().partition(|(_, s)| target(s, root)["properties"].is_object() && !s["type"].is_array());
    if !keys.is_empty() {
        if !path.is_empty() {
            page.push_str(&format!("\n## `[{path}]`\n\n"));
            page.push_str(&sentence(schema));
            page.push('\n');
        }
        page.push_str("\n| key | default | meaning |\n|---|---|---|\n");
        for (name, key) in keys {
            let default = default_of(&defaults[name]);
            page.push_str(&format!("| `{name}` | {default} | {} |\n", meaning(key, root)));
        }
        for (name, key) in properties {
            if let Some(item) = items(key, root) {
                list(page, item, root, &join(path, name));
            }
        }
    }
    for (name, table) in tables {
        section(page, target(table, root), root, &defaults[name], &join(path, name));
    }
}

/// A list of tables: `[[access.rule]]`. Its entries have no defaults.
fn list(page: &mut String, item: &Json, root: &Json, path: &str) {
    page.push_str(&format!("\n### `[[{path}]]`\n\n{}\n\n| key | meaning |\n|---|---|\n", sentence(item)));
    for (name, key) in item["properties"].as_object().into_iter().flatten() {
        page.push_str(&format!("| `{name}` | {} |\n", meaning(key, root)));
    }
}

pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.into() } else { format!("{path}.{name}") }
}

pub(super) fn target<'a>(schema: &'a Json, root: &'a Json) -> &'a Json {
    let direct = schema["$ref"].as_str().or_else(|| schema["anyOf"][0]["$ref"].as_str());
    direct.and_then(|r| root.pointer(r.strip_prefix('#')?)).unwrap_or(schema)
}

pub(super) fn items<'a>(schema: &'a Json, root: &'a Json) -> Option<&'a Json> {
    let item = target(schema.get("items")?, root);
    item["properties"].is_object().then_some(item)
}

pub(super) fn sentence(schema: &Json) -> String {
    schema["description"].as_str().unwrap_or_default().replace('\n', " ")
}

pub(super) fn meaning(schema: &Json, root: &Json) -> String {
    let mut text = sentence(schema);
    let values = target(schema, root);
    let names = |v: &Json| v["const"].as_str().or_else(|| v.as_str()).map(|s| format!("`{s}`"));
    let listed = values["oneOf"].as_array().or_else(|| values["enum"].as_array());
    let listed: Vec<_> = listed.into_iter().flatten().filter_map(names).collect();
    if !listed.is_empty() {
        text.push_str(&format!(" One of {}.", listed.join(", ")));
    }
    text.replace('|', "\\|").trim().to_owned()
}

fn default_of(value: &Json) -> String {
    match value {
        Json::Null => String::new(),
        other => format!("`{other}`").replace('|', "\\|"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The page describes the whole product.
    #[cfg(all(feature = "media", feature = "compat"))]
    #[test]
    fn docs_config_reference_is_up_to_date() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
        let there = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            there == markdown(),
            "docs/reference/configuration.md is stale: run `interflow config reference > docs/reference/configuration.md`"
        );
    }

    #[test]
    fn every_key_has_a_description() {
        for line in markdown().lines().filter(|l| l.starts_with("| `")) {
            assert!(!line.ends_with("|  |"), "no meaning: {line}");
        }
    }
}
