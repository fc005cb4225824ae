//! `interflow models`: what models cost and take, by the catalog and the operator's own price list.

use clap::Args;
use interflow_host::data_dir::DataDir;
use interflow_limits::PriceList;
use interflow_models::Catalog;
use interflow_types::Timestamp;
use serde_json::{Value, json};

use super::output::{FormatArgs, TableFormat, format_table, member};
use crate::CliError;
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

pub fn run(args: &ModelsArgs, config: &InterflowConfig, home: &DataDir) -> Result<(), CliError> {
    let (prices, catalog) = (price_list(config, home)?, interflow_models::current());
    if let Some((provider, name)) = one(&catalog, args.provider.as_deref(), &args.name) {
        let shown = shown(&catalog, &prices, &provider, &name);
        return args.format.print(&shown, || outline(&shown));
    }
    let prefix = args.provider.as_ref().map(|provider| format!("{provider}/"));
    let names = catalog.names(&args.name).filter(|name| prefix.as_ref().is_none_or(|p| name.starts_with(p)));
    let of = |name: &str| shown(&catalog, &prices, name.split('/').next().unwrap_or_default(), name);
    let listed: Vec<Value> = names.map(of).collect();
    if listed.is_empty() {
        return Err(
            format!("no model of the catalog has `{}` in its name; quota.prices can add its price", args.name).into()
        );
    }
    args.format.print(&listed, || table(&listed))
}

/// The provider that a name means, and the name of the model in the catalog.
fn one(catalog: &Catalog, provider: Option<&str>, name: &str) -> Option<(String, String)> {
    let (provider, name) = provider.map_or_else(|| name.split_once('/').unwrap_or(("", name)), |p| (p, name));
    Some((provider.to_owned(), catalog.model(provider, name)?.name.clone()))
}

/// A model with the price that applies now.
fn shown(catalog: &Catalog, prices: &PriceList, provider: &str, name: &str) -> Value {
    let model = name.split_once('/').map(|(_, model)| model);
    let price = prices.for_call(provider, model, None, Timestamp::now());
    let mut shown = json!({ "name": name, "price": price });
    if let (Some(members), Some(Value::Object(record))) = (shown.as_object_mut(), catalog.record(name)) {
        members.extend(record);
    }
    shown
}

fn table(models: &[Value]) -> String {
    let head = ["NAME", "INPUT", "OUTPUT", "CACHE READ", "CACHE WRITE", "CONTEXT", "ENDS"].map(str::to_owned).to_vec();
    let row = |model: &Value| {
        let price = ["input", "output", "cache_read", "cache_write"].map(|unit| member(&model["price"], unit));
        [&[member(model, "name")], &price[..], &[member(&model["limits"], "input"), member(model, "ends")]].concat()
    };
    let rows: Vec<_> = [head].into_iter().chain(models.iter().map(row)).collect();
    format!(
        "{}dollars per million tokens; `interflow models NAME` shows all prices\n",
        format_table(&rows, &["ENDS", "CACHE WRITE", "CACHE READ", "CONTEXT"])
    )
}

/// A value as an outline: its JSON without the marks.
fn outline(value: &Value) -> String {
    let text = format!("{value:#}").replace("null", "not known");
    let lines = text.lines().map(|line| line.replace(['"', '{', '}', '[', ']', ','], ""));
    lines
        .filter(|line| !line.trim().is_empty())
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(&line).trim_end()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_shown_with_every_part_of_its_price_and_a_text_lists_models() {
        let catalog = interflow_models::current();
        let prices = PriceList::default();
        let (provider, name) = one(&catalog, None, "gpt-6.2-sol").unwrap();
        let text = outline(&shown(&catalog, &prices, &provider, &name));
        for line in [
            "name: openai/gpt-6.2-sol",
            "  input: 2.0",
            "  cache_write: not known",
            "      tokens: 272000",
            "    responses",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}: {text}");
        }
        let (_, name) = one(&catalog, Some("azure"), "gpt-4o").unwrap();
        assert_eq!((name.as_str(), one(&catalog, None, "gpt-6")), ("azure/gpt-4o", None));
        let own = PriceList::with_overrides(r#"{"prices": {"gpt-4o": {"input": 7, "output": 8}}}"#).unwrap();
        let text = table(&[shown(&catalog, &own, "openai", &name)]);
        assert!(text.contains("azure/gpt-4o  7.0") && text.contains("NAME"), "{text}");
    }
}
