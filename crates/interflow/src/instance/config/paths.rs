//! Relative paths in a configuration file start from its directory, wherever the process was started. Those that the reference
//! describes as relative to the data directory are left as they are.

use std::path::Path;

use interflow_admin::config_masking::PATH_KEYS;
use toml::{Table, Value};

/// Makes the relative paths in what a file says those of its directory.
pub(super) fn resolve(config: &mut Table, directory: &Path) {
    let absolute = |text: &str| directory.join(text).to_string_lossy().into_owned();
    for (prefix, keys) in &*PATH_KEYS {
        for key in keys {
            let (section, rest) = key.split_once('.').unwrap_or((key, ""));
            let path: Vec<&str> = rest.split('.').filter(|part| !part.is_empty()).collect();
            let Some(value) = config.get_mut(section) else { continue };
            replace(value, &path, &|text| {
                let path = text.strip_prefix(prefix).filter(|path| !path.is_empty())?;
                Some(format!("{prefix}{}", absolute(path)))
            });
        }
    }
}

/// Replaces the texts at a path.
fn replace(value: &mut Value, path: &[&str], new: &dyn Fn(&str) -> Option<String>) {
    match (path, value) {
        ([], Value::String(text)) => {
            if let Some(new) = new(text) {
                *text = new;
            }
        }
        (["*", rest @ ..], Value::Array(list)) => list.iter_mut().for_each(|element| replace(element, rest, new)),
        (["*", rest @ ..], Value::Table(table)) => table.iter_mut().for_each(|(_, value)| replace(value, rest, new)),
        ([name, rest @ ..], Value::Table(table)) => {
            if let Some(value) = table.get_mut(*name) {
                replace(value, rest, new);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    #[cfg(feature = "media")]
    use serde_json::Value as Json;

    use super::*;
    #[cfg(feature = "media")]
    use crate::instance::config::InterflowConfig;

    #[test]
    fn relative_paths_start_from_the_directory_of_the_file() {
        let text = "data_dir = '/abs'\n[rules]\nfiles = ['a.yaml', '/b.yaml']\n[auth]\nusers = 'users'\n\
                    [llm.provider.x]\napi_key = 'file:key'\nurl = 'file:x'\n[keys.provider]\nopenai = 'file:/abs'\na = 'env:A'\n\
                    [record]\ndir = 'record'\n[[upstream.proxy]]\nvia = ['file:secrets/proxy', 'http://a.test']\n";
        let mut config: Table = toml::from_str(text).unwrap();
        resolve(&mut config, Path::new("/etc/x"));
        let shown = toml::to_string(&config).unwrap();
        for line in [
            "data_dir = \"/abs\"",
            "files = [\"/etc/x/a.yaml\", \"/b.yaml\"]",
            "users = \"/etc/x/users\"",
            "api_key = \"file:/etc/x/key\"",
            "url = \"file:x\"",
            "openai = \"file:/abs\"",
            "a = \"env:A\"",
            "dir = \"record\"",
            "via = [\"file:/etc/x/secrets/proxy\", \"http://a.test\"]",
        ] {
            assert!(shown.lines().any(|l| l == line), "{line}\n{shown}");
        }
    }

    /// Keys of the schema, with their descriptions.
    #[cfg(feature = "media")]
    fn keys(schema: &Json, root: &Json, path: &str, about: &str, found: &mut Vec<(String, String)>) {
        let about = if about.is_empty() { schema["description"].as_str().unwrap_or_default() } else { about };
        if let Some(pointer) = schema["$ref"].as_str().and_then(|r| r.strip_prefix('#')) {
            return keys(root.pointer(pointer).unwrap(), root, path, about, found);
        }
        let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if let Some(any) = schema["anyOf"].as_array() {
            any.iter().filter(|s| s["type"] != "null").for_each(|s| keys(s, root, path, about, found));
        } else if let Some(properties) = schema["properties"].as_object() {
            properties.iter().for_each(|(name, inner)| keys(inner, root, &join(name), "", found));
        } else if let Some(each) =
            ["items", "additionalProperties"].iter().find_map(|n| schema.get(n)).filter(|s| s.is_object())
        {
            keys(each, root, &join("*"), about, found);
        } else {
            found.push((path.to_owned(), about.to_owned()));
        }
    }

    #[cfg(feature = "media")]
    #[test]
    fn every_listed_key_exists_and_every_documented_secret_is_listed() {
        let schema = InterflowConfig::schema();
        let mut found = Vec::new();
        keys(schema, schema, "", "", &mut found);
        for key in PATH_KEYS.values().flatten() {
            assert!(found.iter().any(|(name, _)| name == key), "{key} is not a key");
        }
        for (key, _) in found.iter().filter(|(_, about)| about.contains("file:PATH")) {
            assert!(PATH_KEYS["file:"].contains(&key.as_str()), "{key} is missing");
        }
    }
}
