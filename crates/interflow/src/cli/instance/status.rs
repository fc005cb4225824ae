//! `interflow status`: whether an instance is running, where it listens, and what waits in it.

use std::fmt::Write as _;

use interflow_archive::text::size;
use interflow_host::data_dir::{DataDir, InstanceInfo};
use interflow_host::{InstanceApi, doctor, not_running, running_instances};
use interflow_store::InstanceRow;
use interflow_types::units::pluralize;
use serde_json::{Map, Value, json};

use crate::cli::operations::{OperationId, Operations as _};
use crate::cli::output::{FormatArgs, TextFormat, print_json, terminal_width, wrap_words};
use crate::{CliError, Result};

/// Prints the state of the running instance.
pub fn run(format: &FormatArgs<TextFormat>, home: &DataDir) -> Result<()> {
    let trusted = doctor::in_system_store(&home.ca().join("ca.pem"));
    let Some(instance) = home.running_instance() else {
        if format.is_json() {
            print_json(&json!({"running": false, "data_dir": home.path(), "ca_trusted": trusted}))?;
        }
        return Err(not_running(home));
    };
    // Without an admin port, only what the instance's file says is known.
    let (stats, fleet) = match InstanceApi::for_instance(home)? {
        // The instances come from the shared store, which may not answer while this instance does.
        Some(api) => {
            (api.call(&OperationId::Stats.call())?, api.call(&OperationId::ListInstances.call()).unwrap_or_default())
        }
        None => (Value::Null, Value::Null),
    };
    let mut status = as_json(&instance, &stats, home, trusted);
    if fleet["instances"].as_array().is_some_and(|list| !list.is_empty()) {
        status["instances"] = fleet["instances"].clone();
    }
    let wrap = |line: &str| wrap_words(line, 11, terminal_width()) + "\n";
    format.print(&status, || crate::in_commands(&as_text(&status)).lines().map(wrap).collect())
}

fn as_json(instance: &InstanceInfo, stats: &Value, home: &DataDir, trusted: Option<bool>) -> Value {
    let bytes = ["segment_bytes", "database_bytes"].map(|name| stats["store"][name].as_u64());
    json!({
        "running": true,
        "pid": instance.pid,
        "version": stats["version"],
        "uptime_seconds": stats["uptime"].as_u64().map(|micros| micros / 1_000_000),
        "draining": stats["draining"],
        "data_dir": home.path(),
        "listeners": {
            "proxy": instance.proxy, "gateway": instance.gateway, "admin": instance.admin,
            "dns": instance.dns,
        },
        "flows": stats["store"]["flows"],
        "recorded_bytes": bytes.into_iter().sum::<Option<u64>>(),
        "suspended": stats["store"]["suspended"],
        "shared_store": stats["store"]["shared"],
        "archive": stats["archive"],
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
        (Some(flows), Some(bytes)) => line("flows", format!("{flows} ({} on disk)", size(bytes))),
        _ if status["version"].is_null() => line("flows", "unknown: the instance has no admin port".into()),
        _ => line("flows", "not recorded".into()),
    }
    if let Some(why) = status["suspended"].as_str() {
        line("recording", format!("suspended, new flows are lost: {why}"));
    }
    if let Some(shared) = status["shared_store"].as_object() {
        let count = |name: &str| shared.get(name).and_then(Value::as_u64).unwrap_or_default();
        line("store", shared.get("address").and_then(Value::as_str).unwrap_or_default().to_owned());
        if let Some(objects) = shared.get("objects").and_then(Value::as_str) {
            line("bodies", objects.to_owned());
        }
        let since = duration(count("waiting_seconds"));
        line(
            "waiting",
            match (count("waiting_flows"), shared.get("error").and_then(Value::as_str)) {
                (flows, Some(error)) => format!("{flows} flows, the oldest for {since}: {error}"),
                (0, None) => "nothing: every flow is in the shared store".into(),
                (flows, None) => format!("{flows} flows, the oldest for {since}"),
            },
        );
    }
    if let Some(archive) = status["archive"].as_object() {
        line("archive", archive_line(archive));
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
    for (n, instance) in status["instances"].as_array().into_iter().flatten().enumerate() {
        line(if n == 0 { "instances" } else { "" }, instance_line(instance));
    }
    text
}

fn archive_line(archive: &Map<String, Value>) -> String {
    let url = archive["place"].as_str().unwrap_or_default();
    match (archive["last_error"].as_str(), archive["archived_to"].as_u64()) {
        (Some(error), _) => format!("failing: {error}"),
        (None, None) => format!("{url}, nothing yet"),
        (None, Some(to)) => {
            let to = jiff::Timestamp::from_microsecond(to as i64).map(|t| format!("{t:.0}")).unwrap_or_default();
            let by =
                archive.get("replica").and_then(Value::as_str).map_or(String::new(), |name| format!(", by {name}"));
            format!("{url}, {} up to {to}{by}", pluralize(archive["flows"].as_u64().unwrap_or(0), "flow"))
        }
    }
}

/// One process that records to the shared store.
fn instance_line(instance: &Value) -> String {
    let text = |key: &str| instance[key].as_str().unwrap_or_default();
    let mut line = format!("{}  {}  {}", text("name"), text("address"), text("version"));
    for (key, name) in [("open_flows", "open"), ("waiting_flows", "waiting")] {
        let _ = write!(line, "  {} {name}", instance[key]);
    }
    let _ = write!(line, "  configuration {}", text("config_digest"));
    if instance["own"] == true {
        line.push_str("  (this one)");
    }
    if instance["archives"] == true {
        line.push_str("  archives");
    }
    if instance["silent"] == true {
        let last_seen = instance["seen"].as_u64().and_then(|micros| i64::try_from(micros).ok());
        let last_seen = last_seen.and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
        let _ = write!(line, "  SILENT since {:.0}", last_seen.unwrap_or_default());
    }
    let ahead = instance["clock_ahead_millis"].as_i64().unwrap_or_default();
    if ahead.abs() > InstanceRow::MAX_CLOCK_DIFFERENCE_MILLIS {
        let _ = write!(line, "  CLOCK {:+.1} s, set it right", ahead as f64 / 1000.0);
    }
    line
}

/// `2d 3h`, `3h 20m`, `20m 5s`, `5s`.
pub fn duration(total: u64) -> String {
    match total {
        0..60 => format!("{total}s"),
        60..3600 => format!("{}m {}s", total / 60, total % 60),
        3600..86_400 => format!("{}h {}m", total / 3600, total % 3600 / 60),
        _ => format!("{}d {}h", total / 86_400, total % 86_400 / 3600),
    }
}

/// The error of a start, with the instance that runs with this data directory already, if there is one.
pub fn name_other(error: CliError, home: &DataDir) -> CliError {
    let CliError::Failed(why) = &error else { return error };
    let Some(other) = home.running_instance() else {
        let with_address = |(_, instance): &(DataDir, InstanceInfo)| {
            let mut words = why.split([' ', ';']).map(|word| word.trim_end_matches(':'));
            words.any(|word| instance.addresses().any(|(_, address)| address.to_string() == word))
        };
        let default = DataDir::find(None).ok().and_then(|home| Some((home.clone(), home.running_instance()?)));
        let Some(other) = default.into_iter().chain(running_instances::running()).find(with_address) else {
            return error;
        };
        return CliError::Failed(format!(
            "{why}\nAnother instance has this address:\n{}",
            running_instances::list(&[other])
        ));
    };
    let addresses: Vec<_> = other.addresses().map(|(name, address)| format!("{name} {address}")).collect();
    let since = home.instance_file_time().and_then(|at| at.elapsed().ok());
    let since = since.map(|for_| format!(" for {}", duration(for_.as_secs()))).unwrap_or_default();
    CliError::Failed(format!(
        "an instance already runs with this data directory: process {}{since}, {}\n`interflow open` shows it and `interflow stop` \
         ends it; a second one needs a --data-dir and listen addresses of its own\n({why})",
        other.pid,
        addresses.join(", "),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_has_two_units() {
        assert_eq!([5, 65, 7_260, 90_000_000].map(duration), ["5s", "1m 5s", "2h 1m", "1041d 16h"].map(str::to_owned));
    }

    #[test]
    fn instances_are_listed_with_what_is_wrong_with_them() {
        let text = as_text(&json!({
            "pid": 7, "data_dir": "/d", "listeners": {}, "version": "1.0", "ca_trusted": true, "instances": [
                {"name": "a-1", "address": "10.0.0.1:7071", "version": "1.0", "open_flows": 3, "waiting_flows": 0,
                    "config_digest": "c0ffee", "own": true, "silent": false, "clock_ahead_millis": 150},
                {"name": "b-2", "address": "10.0.0.2:7071", "version": "0.9", "open_flows": 0, "waiting_flows": 12,
                    "config_digest": "decade", "silent": true, "seen": 1_767_225_600_000_000_u64, "clock_ahead_millis": -90000},
            ],
        }));
        assert!(
            text.contains("instances  a-1  10.0.0.1:7071  1.0  3 open  0 waiting  configuration c0ffee  (this one)\n"),
            "{text}"
        );
        assert!(text.contains("  SILENT since 2026-01-01T00:00:00Z  CLOCK -90.0 s, set it right\n"), "{text}");
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
