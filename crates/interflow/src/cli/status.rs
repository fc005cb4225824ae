//! `interflow status`: whether an instance is running, where it listens, and what waits in it.

use std::fmt::Write as _;

use clap::Args;
use interflow_archive::text::size;
use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::{InstanceApi, doctor};
use serde_json::{Value, json};

use super::output::{FormatArgs, TextFormat, print, print_json};
use crate::CliError;

#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    format: FormatArgs<TextFormat>,
}

/// Prints the state of the running instance.
pub fn run(args: &StatusArgs, home: &DataDir) -> Result<(), CliError> {
    let trusted = doctor::in_system_store(&home.ca().join("ca.pem"));
    let Some(instance) = home.running_instance() else {
        if args.format.is_json() {
            print_json(&json!({"running": false, "data_dir": home.path(), "ca_trusted": trusted}))?;
        }
        return Err(CliError::NotRunning(format!(
            "no instance is running with the data directory {}",
            home.path().display()
        )));
    };
    // Without an admin port, only what the instance's file says is known.
    let stats = match InstanceApi::for_instance(home)? {
        Some(api) => api.get("/stats")?,
        None => Value::Null,
    };
    let status = as_json(&instance, &stats, home, trusted);
    if args.format.is_json() {
        return print_json(&status);
    }
    print(&as_text(&status));
    Ok(())
}

fn as_json(instance: &InstanceInfo, stats: &Value, home: &DataDir, trusted: Option<bool>) -> Value {
    let micros = stats["uptime"].as_u64();
    json!({
        "running": true,
        "pid": instance.pid,
        "version": stats["version"],
        "uptime_seconds": micros.map(|n| n / 1_000_000),
        "draining": stats["draining"],
        "data_dir": home.path(),
        "listeners": {
            "proxy": instance.proxy, "gateway": instance.gateway, "admin": instance.admin,
            "greyproxy": instance.greyproxy, "dns": instance.dns,
        },
        "flows": stats["store"]["flows"],
        "recorded_bytes": stats["store"]["segment_bytes"],
        "pending": {"approvals": stats["held"]["approvals"], "rules": stats["held"]["rules"]},
        "ca_trusted": trusted,
    })
}

fn as_text(status: &Value) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<10} {value}").expect("writing to a String cannot fail");
    };
    let version = status["version"].as_str().map(|v| format!("version {v}, ")).unwrap_or_default();
    let uptime = status["uptime_seconds"].as_u64().map(|s| format!(", for {}", duration(s))).unwrap_or_default();
    let state = if status["draining"] == true { "stopping" } else { "running" };
    line("state", format!("{state} ({version}process {}{uptime})", status["pid"]));
    line("data", status["data_dir"].as_str().unwrap_or_default().to_owned());
    for (name, address) in status["listeners"].as_object().into_iter().flatten() {
        let addresses: Vec<&str> = match address {
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            one => one.as_str().into_iter().collect(),
        };
        if !addresses.is_empty() {
            line(name, addresses.join("  "));
        }
    }
    match (status["flows"].as_u64(), status["recorded_bytes"].as_u64()) {
        (Some(flows), Some(bytes)) => line("flows", format!("{flows} ({})", size(bytes))),
        _ if status["version"].is_null() => line("flows", "unknown: the instance has no admin port".into()),
        _ => line("flows", "not recorded".into()),
    }
    let pending = &status["pending"];
    if let (Some(approvals), Some(rules)) = (pending["approvals"].as_u64(), pending["rules"].as_u64()) {
        let more = if approvals + rules > 0 { "; `interflow pending list` shows them" } else { "" };
        line("pending", format!("{approvals} for approval, {rules} held by rules{more}"));
    }
    line(
        "CA",
        match status["ca_trusted"].as_bool() {
            Some(true) => "trusted by the system",
            Some(false) => "not trusted by the system; `interflow ca install` installs it",
            None => "the system's trust store cannot be read",
        }
        .into(),
    );
    text
}

/// `2d 3h`, `3h 20m`, `20m 5s`, `5s`.
fn duration(total: u64) -> String {
    match total {
        0..60 => format!("{total}s"),
        60..3600 => format!("{}m {}s", total / 60, total % 60),
        3600..86_400 => format!("{}h {}m", total / 3600, total % 3600 / 60),
        _ => format!("{}d {}h", total / 86_400, total % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_has_two_units() {
        assert_eq!([5, 65, 7_260, 90_000_000].map(duration), ["5s", "1m 5s", "2h 1m", "1041d 16h"].map(str::to_owned));
    }

    #[test]
    fn status_without_an_admin_port_says_what_is_unknown() {
        let text = as_text(&json!({
            "pid": 7, "data_dir": "/d", "listeners": {"proxy": ["127.0.0.1:1", "[::1]:1"], "admin": null},
            "version": null, "ca_trusted": false,
        }));
        assert!(
            text.starts_with("state      running (process 7)\ndata       /d\nproxy      127.0.0.1:1  [::1]:1\n"),
            "{text}"
        );
        assert!(text.contains("no admin port") && text.contains("ca install") && !text.contains("pending"), "{text}");
    }
}
