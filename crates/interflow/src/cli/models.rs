//! `interflow models`: what models cost and take, by the catalog and the operator's own price list.

use std::sync::Arc;

use clap::Args;
use interflow_admin::OfflineDeps;
use interflow_host::data_dir::DataDir;
use serde_json::Value;

use super::operations::{OperationId, operations};
use super::output::{FormatArgs, TableFormat, format_rows, member, members, terminal_width, wrap_words};
use crate::Result;
use crate::components::conversations::price_list;
use crate::instance::config::InterflowConfig;

#[derive(Debug, Args)]
pub struct ModelsArgs {
    /// A model, as `gpt-6.1-sol` or `bedrock/us.anthropic.claude-opus-5-5`: shows all of it. Another text lists the models
    /// whose names contain it.
    #[arg(default_value = "")]
    name: String,
    /// Only models at this provider.
    #[arg(long, value_name = "NAME")]
    provider: Option<String>,
    #[command(flatten)]
    format: FormatArgs<TableFormat>,
}

/// Asks the running instance, which may have a newer catalog; while none runs, the price list of the configuration.
pub fn run(args: &ModelsArgs, config: &InterflowConfig, home: &DataDir) -> Result<()> {
    let open = || Ok(OfflineDeps { prices: Arc::new(price_list(config, home)?), ..OfflineDeps::default() });
    let call = OperationId::ListModels.call().query("query", &args.name).query("limit", usize::MAX);
    let listing = operations(config, home, open)?.call(&call.query_if("provider", args.provider.as_ref()))?;
    let named = &listing["named"];
    // A pattern of the own price list may match what is a part of many names.
    if named["prices"].is_array() || named.is_object() && listing["total"].as_u64() < Some(2) {
        let mut entry = named.clone();
        // A single price is the one that applies, unless that is of the own list.
        if let Some(members) = entry.as_object_mut().filter(|all| !all.contains_key("own")) {
            members.retain(|name, value| name != "prices" || value.as_array().is_none_or(|all| all.len() > 1));
        }
        return args.format.print(named, || wrapped(&outline(&entry), terminal_width().unwrap_or(usize::MAX)));
    }
    let listed: Vec<_> = members(&listing, "models").collect();
    if listed.is_empty() {
        let name = &args.name;
        return Err(format!("no model of the catalog has `{name}` in its name; quota.prices can add its price").into());
    }
    args.format.print(&listed, || table(&listed))
}

fn table(models: &[&Value]) -> String {
    let titles = ["NAME", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "CONTEXT", "ENDS", "OWN PRICE"];
    let cells = "name price.input price.output price.cache_read price.cache_write limits.input ends own";
    let cell = |model: &Value, path: &str| {
        path.split_once('.').map_or_else(|| member(model, path), |(section, name)| member(&model[section], name))
    };
    let row = |model: &&Value| cells.split(' ').map(|path| cell(model, path)).collect();
    format!(
        "{}dollars per million tokens\n`interflow models NAME` shows all prices\n",
        format_rows(&titles, models.iter().map(row), &["ENDS", "CACHE WRITE", "CACHE READ", "CONTEXT"])
    )
}

/// A value as an outline: a line for each member or item, indented below what it belongs to.
fn outline(value: &Value) -> String {
    let indented = |value: &Value| outline(value).lines().map(|line| format!("  {line}\n")).collect::<String>();
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| match value {
                Value::Object(_) | Value::Array(_) => format!("{name}:\n{}", indented(value)),
                _ => format!("{name}: {}", outline(value)),
            })
            .collect(),
        Value::Array(items) if items.iter().all(|item| !item.is_object()) => items.iter().map(outline).collect(),
        Value::Array(items) => items.iter().map(indented).collect(),
        Value::Null => "not known\n".to_owned(),
        Value::String(text) => format!("{text}\n"),
        other => format!("{other}\n"),
    }
}

/// The text with lines broken between words, and the rest indented further, where they are wider than this.
fn wrapped(text: &str, width: usize) -> String {
    let line = |line: &str| {
        let indent = line.len() - line.trim_start().len();
        let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
        wrap_words(&format!("{:indent$}{words}", ""), indent + 2, Some(width)) + "\n"
    };
    text.lines().filter(|line| !line.trim().is_empty()).map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::output::text_width;
    use super::*;

    #[test]
    fn an_outline_fits_the_terminal_and_loses_nothing() {
        let text = "name: m\nsent:\n  tools: a text of several words, a-word-that-is-too-long and more\n";
        assert_eq!(wrapped(text, usize::MAX), text);
        for width in 27..70 {
            let lines = wrapped(text, width);
            assert!(lines.lines().all(|line| text_width(line) <= width), "{width}: {lines}");
            assert!(lines.split_whitespace().eq(text.split_whitespace()), "{width}: {lines}");
            assert!(lines.lines().skip(3).all(|line| line.starts_with("    ")), "{width}: {lines}");
        }
    }

    #[test]
    fn an_outline_keeps_names_and_texts_as_they_are() {
        let model = json!({ "name": "mine/null-1", "price": { "input": null, "over": [{ "tokens": 9, "input": 2.5 }] },
            "translation": ["drops \"a\", {b}"], "takes": [] });
        let lines = ["name: mine/null-1", "price:", "  input: not known", "  over:", "      tokens: 9"];
        let more = ["      input: 2.5", "translation:", "  drops \"a\", {b}", "takes:"];
        assert_eq!(outline(&model).lines().collect::<Vec<_>>(), [&lines[..], &more].concat());
    }
}
