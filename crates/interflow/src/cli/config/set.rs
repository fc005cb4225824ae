//! `interflow config get`, `set` and `unset`: single keys of the configuration file.

use std::path::Path;

use interflow_files::{EditError, EditTurn, EditedFile, FileAccess};
use interflow_host::data_dir::{DataDir, existing};
use serde_json::Value as Json;

use super::masked;
use crate::cli::operations::{InstanceApi, OperationId, Operations as _};
use crate::cli::output::{joined_values, print};
use crate::instance::config::{ConfigFile, InterflowConfig, key_position, load_text};
use crate::instance::settings::{access, catalog, diff, document};
use crate::instance::start_check::check_values;
use crate::{CliError, Result};

/// Prints the effective value of a key.
pub fn get(key: &str, config: &InterflowConfig) -> Result<()> {
    let config = masked(config)?;
    let exists = || catalog::schema_of(key, InterflowConfig::schema()).is_some();
    match config.pointer(&catalog::pointer(key)) {
        Some(value) => print(&format!("{value:#}\n")),
        // Keys without a value, such as optional ones, are not in the configuration.
        None if exists() => print("null\n"),
        None => return Err(unknown_key(key)),
    }
    Ok(())
}

fn unknown_key(key: &str) -> CliError {
    CliError::Usage(format!("`{key}` is not a key of the configuration; `interflow config reference` lists them"))
}

/// Sets a key in the file, or removes it.
pub fn set(file: &ConfigFile, data_dir: Option<&Path>, key: &str, value: Option<&str>, dry_run: bool) -> Result<()> {
    let no_file = || CliError::Usage("no configuration file: name one with -c FILE".into());
    let path = file.path().filter(|_| !file.is_stdin()).ok_or_else(no_file)?;
    let old = existing(path, std::fs::read_to_string)?;
    let text = old.as_deref().unwrap_or_default();
    let value = value.map_or(Json::Null, parse_value);
    let new = document::edit(text, [(key, &value)]).map_err(CliError::Usage)?;
    let (config, overrides) = load_text(&new, path)?;
    if value.is_null() && catalog::schema_of(key, InterflowConfig::schema()).is_none() {
        return Err(unknown_key(key));
    }
    check_values(&config).map_err(|mistake| {
        let position = key_position(&new, &mistake.key).map(|(line, column)| format!("{line}:{column}: "));
        CliError::Failed(format!("{}:{}{}", path.display(), position.unwrap_or_else(|| " ".into()), mistake.what))
    })?;
    print(&shown_diff(text, &new));
    if let Some((name, ..)) = overrides.values.iter().find(|(_, path, _)| path.join(".") == key) {
        crate::warn(&format!("the environment variable {name} overrides {key}"));
    }
    if dry_run || new == text {
        return Ok(());
    }
    write(path, old.as_deref(), &new, data_dir.or(config.data_dir.as_deref()))
}

/// A value as it is in a file, or a text without its quotes.
fn parse_value(text: &str) -> Json {
    let parsed = toml::from_str::<serde_json::Map<String, Json>>(&format!("v = {text}")).ok();
    let only = parsed.filter(|table| table.len() == 1).and_then(|mut table| table.remove("v"));
    only.unwrap_or_else(|| Json::String(text.to_owned()))
}

fn shown_diff(old: &str, new: &str) -> String {
    diff::diff(old, new).iter().map(|line| format!("{} {}\n", line.kind.as_str(), line.text)).collect()
}

/// Writes the file and lets a running instance read it; if that refuses it, the file gets its old text.
fn write(path: &Path, old: Option<&str>, new: &str, data_dir: Option<&Path>) -> Result<()> {
    if let Some(why) = access::write_refusal(path) {
        return Err(CliError::Failed(why));
    }
    if let Ok(home) = DataDir::find(data_dir)
        && path.parent() == Some(home.path())
    {
        home.create()?;
    }
    let access = if old.is_some() { FileAccess::Keep } else { FileAccess::Private };
    // The text was checked before it was shown.
    let file = EditedFile::new(path, access, |_| Ok(()), |()| reload(data_dir));
    let replaced = file.replace(&EditTurn::unlimited(), new.to_owned(), |now| now == old);
    let report = replaced.map_err(|error| match error {
        EditError::NotActivated { error, restored } => CliError::Failed(match restored {
            Ok(()) => format!("{error}; the file is as it was"),
            Err(e) => format!("{error}; {} cannot be restored: {e}", path.display()),
        }),
        other => match other.into_file_message() {
            Ok(message) => CliError::Failed(format!("{} {message}", path.display())),
            Err(rejected) => rejected,
        },
    })?;
    let Some(report) = report else {
        interflow_host::errln!("interflow: {} is written", path.display());
        return Ok(());
    };
    let files = report["files"].as_array().into_iter().flatten().filter_map(Json::as_str);
    if !files.map(Path::new).any(|read| is_same(read, path)) {
        interflow_host::errln!("interflow: {} is written", path.display());
        crate::warn("the running instance reads another file");
        return Ok(());
    }
    let restart = joined_values(&report, "restart");
    if restart.is_empty() {
        interflow_host::errln!("interflow: {} is written, and the running instance uses it", path.display());
    } else {
        let keys = restart.replace(' ', ", ");
        crate::warn(&format!("changes of these take effect at a restart: {keys}"));
    }
    Ok(())
}

/// Lets an instance that runs read the file; its report.
fn reload(data_dir: Option<&Path>) -> Result<Option<Json>> {
    let Ok(home) = DataDir::find(data_dir) else { return Ok(None) };
    let instance = InstanceApi::for_instance(&home).inspect_err(|e| crate::warn(&format!("not reloaded: {e}")));
    let Ok(Some(api)) = instance else { return Ok(None) };
    api.call(&OperationId::Reload.call()).map(Some)
}

fn is_same(a: &Path, b: &Path) -> bool {
    let whole = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    whole(a) == whole(b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_in_the_file_or_as_texts() {
        for (text, value) in [
            ("false", json!(false)),
            ("7", json!(7)),
            ("30d", json!("30d")),
            ("none", json!("none")),
            ("\"none\"", json!("none")),
            ("['a.test', \"b.test\"]", json!(["a.test", "b.test"])),
            ("[{ hosts = ['*'], via = [] }]", json!([{"hosts": ["*"], "via": []}])),
            ("1\nx = 2", json!("1\nx = 2")),
        ] {
            assert_eq!(parse_value(text), value);
        }
    }
}
