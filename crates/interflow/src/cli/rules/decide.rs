//! Commands that query a running instance: active rules and held flows.

use interflow_host::InstanceApi;
use interflow_host::data_dir::DataDir;
use serde_json::{Map, Value, json};

use super::{DecideArgs, FormatArgs, files};
use crate::CliError;
use crate::cli::flows::print_json;

fn instance(home: &DataDir) -> Result<InstanceApi, CliError> {
    let none = "no instance is running with this data directory: start one with `interflow run --rules FILE`";
    InstanceApi::for_instance(home)?.ok_or_else(|| CliError::Failed(none.into()))
}

/// `rules list` without files.
pub fn active_rules(format: &FormatArgs, home: &DataDir) -> Result<(), CliError> {
    let answer = instance(home)?.get("/rules")?;
    if format.json() {
        return print_json(&answer);
    }
    files::table(answer["rules"].as_array().map(Vec::as_slice).unwrap_or_default());
    Ok(())
}

/// `rules held`
pub fn held_flows(format: &FormatArgs, home: &DataDir) -> Result<(), CliError> {
    let answer = instance(home)?.get("/rules/held")?;
    if format.json() {
        return print_json(&answer);
    }
    let all = answer["held"].as_array().cloned().unwrap_or_default();
    if all.is_empty() {
        anstream::println!("nothing is held");
    }
    for h in all {
        let text = |key: &str| h[key].as_str().unwrap_or_default().to_owned();
        let status = h["status"].as_u64().map(|s| format!(" -> {s}")).unwrap_or_default();
        anstream::println!(
            "{}  {} {}{status}  {} by rule {}",
            h["id"],
            text("method"),
            text("url"),
            text("what"),
            text("rule")
        );
        if let Some(note) = h["note"].as_str() {
            anstream::println!("    {note}");
        }
    }
    Ok(())
}

/// `rules decide`
pub fn decide(args: &DecideArgs, home: &DataDir) -> Result<(), CliError> {
    let mut decision = Map::new();
    decision.insert("action".into(), args.action.as_str().into());
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            decision.insert(key.into(), value);
        }
    };
    put("method", args.method.clone().map(Into::into));
    put("url", args.url.clone().map(Into::into));
    put("status", args.status.map(Into::into));
    put("body", args.body.clone().map(Into::into));
    put("reason", args.reason.clone().map(Into::into));
    if args.action == "answer" && args.status.is_none() {
        put("status", Some(200.into()));
    }
    let headers: Vec<Value> = args
        .headers
        .iter()
        .map(|h| {
            let (name, value) = h.split_once(':').unwrap_or((h, ""));
            json!([name.trim(), value.trim()])
        })
        .collect();
    put("headers", (!headers.is_empty()).then(|| headers.into()));
    let answer = instance(home)?.post(&format!("/rules/held/{}", args.number), &Value::Object(decision))?;
    anstream::println!("decided: {} {}", args.action, answer["held"]["url"].as_str().unwrap_or_default());
    Ok(())
}
