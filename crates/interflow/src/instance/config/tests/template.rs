//! The annotated configuration file, made from the same definitions as the reference: every section and key with
//! its description and default, commented out.

use interflow_testkit::json_schema::resolve;
use serde_json::Value as Json;

use crate::instance::config::InterflowConfig;
use crate::instance::config::load::parse;
use crate::instance::config::tests::reference::{items, join, map_values, meaning, sentence};

/// Maximum width of a comment, in characters.
const WIDTH: usize = 100;

/// The file. All of it is comments, so it is valid as it is, and equal to the defaults.
fn annotated() -> String {
    let schema = InterflowConfig::schema();
    let defaults = serde_json::to_value(InterflowConfig::default()).expect("a config is plain data");
    let mut file = String::from(
        "# Interflow's configuration. Every key has a default, shown here commented out: remove the `#` before a key (and\n\
         # before the `[section]` above it) to change it. `interflow config check FILE` validates the file.\n",
    );
    section(&mut file, schema, schema, &defaults, "");
    file
}

fn section(file: &mut String, schema: &Json, root: &Json, defaults: &Json, path: &str) {
    let Some(properties) = schema["properties"].as_object() else { return };
    let (tables, keys): (Vec<_>, Vec<_>) =
        properties.iter().partition(|(_, s)| resolve(s, root)["properties"].is_object());
    if !keys.is_empty() {
        if !path.is_empty() {
            file.push('\n');
            comment(file, &sentence(schema));
            file.push_str(&format!("#[{path}]\n"));
        }
        let is_plain = |key: &Json| items(key, root).is_none() && map_values(key, root).is_none();
        for (name, key) in keys.iter().filter(|(_, key)| is_plain(key)) {
            setting(file, name, key, root, &defaults[name.as_str()]);
        }
        for (name, key) in &keys {
            let path = join(path, name);
            let entry = items(key, root).map(|item| (format!("[[{path}]]"), item));
            let entry = entry.or_else(|| Some((format!("[{path}.NAME]"), map_values(key, root)?)));
            if let Some((heading, item)) = entry {
                file.push('\n');
                comment(file, &sentence(key));
                file.push_str(&format!("#{heading}\n"));
                for (name, key) in item["properties"].as_object().into_iter().flatten() {
                    setting(file, name, key, root, &key["default"]);
                }
            }
        }
    }
    for (name, table) in tables {
        section(file, resolve(table, root), root, &defaults[name.as_str()], &join(path, name));
    }
}

/// A key with its description; `#key =` without a value if it has no default.
fn setting(file: &mut String, name: &str, key: &Json, root: &Json, default: &Json) {
    comment(file, &meaning(key, root));
    let value = toml_value(default).map(|v| format!(" {v}")).unwrap_or_default();
    file.push_str(&format!("#{name} ={value}\n"));
}

fn comment(file: &mut String, text: &str) {
    let mut width = 0;
    for word in text.replace("\\|", "|").split_whitespace() {
        let length = word.chars().count();
        if width == 0 || width + 1 + length > WIDTH {
            file.push_str(if width == 0 { "# " } else { "\n# " });
            width = 2;
        } else {
            file.push(' ');
            width += 1;
        }
        file.push_str(word);
        width += length;
    }
    if width > 0 {
        file.push('\n');
    }
}

/// The value as TOML in one line; `None` if there is none.
fn toml_value(value: &Json) -> Option<String> {
    match value {
        Json::Null => None,
        other => {
            let value: toml::Value = serde_json::from_value(other.clone()).ok()?;
            Some(value.to_string())
        }
    }
}

/// The keys and sections of the file, with the `#` before them removed.
fn uncommented() -> String {
    let code = |l: &&str| l.starts_with('#') && !l.starts_with("# ");
    annotated().lines().filter(code).map(|l| &l[1..]).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_annotated_file_is_valid_and_equals_the_defaults() {
    assert_eq!(parse(&annotated(), "c.toml", None, &[]), Ok(InterflowConfig::default()));
}

#[test]
fn every_default_of_the_annotated_file_is_accepted_when_it_is_uncommented() {
    // Optional tables and lists of tables need keys that have no default.
    let (mut in_list, mut section, mut text) = (false, None, Vec::new());
    let lines = uncommented();
    for line in lines.lines() {
        if line.starts_with('[') {
            in_list = line.starts_with("[[") || line.ends_with(".NAME]");
            section = Some(line);
        } else if !in_list && !line.ends_with('=') {
            text.extend(section.take());
            text.push(line);
        }
    }
    assert!(text.len() > 150, "{}", text.len());
    assert_eq!(parse(&text.join("\n"), "c.toml", None, &[]), Ok(InterflowConfig::default()));
}

#[test]
fn every_section_of_the_configuration_is_in_the_annotated_file() {
    let file = annotated();
    for section in
        ["[proxy]", "[gateway]", "[redact]", "[record]", "[[access.rule]]", "[approvals]", "[llm.provider.NAME]"]
    {
        assert!(file.lines().any(|l| l == format!("#{section}")), "{section}");
    }
    for line in file.lines() {
        assert!(line.is_empty() || line.starts_with('#'), "{line}");
    }
}

/// The file describes the whole product.
#[cfg(all(feature = "media", feature = "compat"))]
#[test]
fn the_annotated_file_among_the_reference_is_current() {
    interflow_testkit::docs::check_reference_page("interflow.toml", &annotated());
}
