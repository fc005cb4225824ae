//! A configuration of Interflow that is made from another program's.

use serde_json::Value as Yaml;
use toml::{Table, Value};

/// The converted configuration, and notes on what must be done manually.
#[derive(Debug)]
pub struct ImportedConfig {
    /// Configuration as TOML.
    pub text: String,
    /// Client keys in the format of the keys file, if there are any.
    pub keys: Option<String>,
    /// Notes, one sentence each.
    pub notes: Vec<String>,
}

/// The text of a setting, which YAML may have read as a number or a boolean.
pub(crate) fn scalar_text(value: &Yaml) -> Option<String> {
    match value {
        Yaml::String(text) => Some(text.clone()),
        Yaml::Number(_) | Yaml::Bool(_) => Some(value.to_string()),
        _ => None,
    }
}

/// Inserts a value that there is.
pub(crate) fn insert_some(table: &mut Table, key: &str, value: Option<impl Into<Value>>) {
    table.extend(value.map(|value| (key.to_owned(), value.into())));
}

/// A table or list, if it is not empty.
pub(crate) fn non_empty(value: impl Into<Value>) -> Option<Value> {
    Some(value.into()).filter(|value| match value {
        Value::Table(table) => !table.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => true,
    })
}

#[derive(Default)]
pub(crate) struct ConfigDraft {
    config: Table,
    pub notes: Vec<String>,
}

impl ConfigDraft {
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        self.section(section).insert(key.into(), value.into());
    }

    /// Sets a value that there is.
    pub fn set_some(&mut self, section: &str, key: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.set(section, key, value);
        }
    }

    fn section(&mut self, name: &str) -> &mut Table {
        let section = self.config.entry(name).or_insert_with(|| Table::new().into());
        section.as_table_mut().expect("sections are tables")
    }

    /// Adds to a list that holds each value once.
    pub fn push(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let value = value.into();
        let list = self.section(section).entry(key).or_insert(Value::Array(Vec::new()));
        if let Value::Array(list) = list
            && !list.contains(&value)
        {
            list.push(value);
        }
    }

    /// # Errors
    /// The configuration cannot be written as TOML.
    pub fn finish(self, keys: Option<String>) -> Result<ImportedConfig, String> {
        let text = toml::to_string_pretty(&self.config).map_err(|e| e.to_string())?;
        Ok(ImportedConfig { text, keys, notes: self.notes })
    }
}
