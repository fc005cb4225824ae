//! Changes a held request, response or message in the operator's editor.

use std::path::Path;

use interflow_files::{FileAccess, write_atomic};
use interflow_host::data_dir::DataDir;
use serde_json::{Map, Value, json};
use tokio::process::Command;

use super::command::TopCommand;
use crate::cli::output::{member, members};

/// Maximum size of what the editor leaves, in bytes: the admin API takes no larger decision.
const MAX_EDITED: u64 = 8 << 20;

/// What to change, as `GET /pending` gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditRequest(pub Value);

impl EditRequest {
    /// Lets the operator change it; `None` if nothing was changed. The terminal belongs to the editor meanwhile.
    ///
    /// # Errors
    /// The editor fails, or what it leaves cannot be understood or sent.
    pub async fn run(&self, home: &DataDir) -> Result<Option<TopCommand>, String> {
        let Self(item) = self;
        let path = home.join(format!("edit-{}.http", std::process::id()));
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        write_atomic(&path, text_of(item).as_bytes(), FileAccess::Private).map_err(failed)?;
        let edited = match run_editor(&path).await {
            Ok(()) => read(&path).map_err(failed),
            Err(why) => Err(why),
        };
        let _ = std::fs::remove_file(&path);
        let decision = changes(item, &edited?)?;
        Ok(decision.map(|decision| TopCommand::Change { id: member(item, "id"), decision }))
    }
}

fn read(path: &Path) -> std::io::Result<String> {
    if std::fs::metadata(path)?.len() > MAX_EDITED {
        return Err(std::io::Error::other(format!("more than {} MiB", MAX_EDITED >> 20)));
    }
    std::fs::read_to_string(path)
}

/// Runs the editor that `VISUAL` or `EDITOR` names, which may have arguments.
async fn run_editor(path: &Path) -> Result<(), String> {
    let named = ["VISUAL", "EDITOR"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.trim().is_empty()));
    let named = named.unwrap_or_else(|| if cfg!(windows) { "notepad" } else { "vi" }.to_owned());
    let mut words = named.split_whitespace();
    let program = words.next().unwrap_or_default();
    let status = Command::new(program).args(words).arg(path).status().await;
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the editor `{named}` failed ({status}): nothing was changed")),
        Err(e) => Err(format!("the editor `{named}` cannot be started: {e}; set EDITOR")),
    }
}

/// The message as a text: the first line, the fields, an empty line, the body. Of a message of a stream, the body alone.
fn text_of(item: &Value) -> String {
    let body = item["body"].as_str().unwrap_or_default();
    if member(item, "what") == "message" {
        return body.to_owned();
    }
    let fields: String =
        members(item, "headers").map(|f| format!("{}: {}\n", one_line(&f[0]), one_line(&f[1]))).collect();
    let note = if item["body"].is_null() { "# The body is not shown, and stays as it is.\n" } else { "" };
    format!("{note}{}\n{fields}\n{body}", first_line(item))
}

fn first_line(item: &Value) -> String {
    match member(item, "what").as_str() {
        "response" => format!("HTTP {}", member(item, "status")),
        _ => format!("{} {}", member(item, "method"), member(item, "url")),
    }
}

/// The value of a field in one line, as it must be.
fn one_line(value: &Value) -> String {
    value.as_str().unwrap_or_default().replace(['\r', '\n'], " ")
}

/// The decision that makes of the message what the operator wrote; `None` if that is the same. Only changes are sent, so
/// that everything else stays as it came.
///
/// # Errors
/// What is wrong in the text.
fn changes(item: &Value, edited: &str) -> Result<Option<Value>, String> {
    let edited = edited.replace("\r\n", "\n");
    let mut decision = Map::new();
    let body = if member(item, "what") == "message" {
        edited.as_str()
    } else {
        let lines = edited.trim_start_matches('\n');
        let lines = lines.strip_prefix('#').map_or(lines, |note| note.split_once('\n').map_or("", |(_, rest)| rest));
        let (head, body) = lines.split_once("\n\n").unwrap_or((lines.trim_end(), ""));
        if head.is_empty() {
            return Err("the text was empty: nothing was changed".into());
        }
        let (first, fields) = head.split_once('\n').unwrap_or((head, ""));
        change_first_line(item, first, &mut decision)?;
        let fields = changed_fields(item, fields)?;
        if !fields.is_empty() {
            decision.insert("headers".into(), fields.into());
        }
        body
    };
    if let Some(now) = item["body"].as_str() {
        // Editors end a text with a line break.
        let body = if now.ends_with('\n') { body } else { body.strip_suffix('\n').unwrap_or(body) };
        if body != now {
            decision.insert("body".into(), body.into());
        }
    }
    if decision.is_empty() {
        return Ok(None);
    }
    decision.insert("action".into(), "change".into());
    Ok(Some(Value::Object(decision)))
}

fn change_first_line(item: &Value, line: &str, decision: &mut Map<String, Value>) -> Result<(), String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if member(item, "what") == "response" {
        let status = words.get(1).and_then(|s| s.parse::<u16>().ok()).filter(|s| (100..1000).contains(s));
        let status = status.ok_or_else(|| format!("`{line}` has no status: write HTTP 200"))?;
        if member(item, "status") != status.to_string() {
            decision.insert("status".into(), status.into());
        }
        return Ok(());
    }
    let [method, url] = words[..] else {
        return Err(format!("`{line}` is not a method and URL: write GET http://host/path"));
    };
    for (name, value) in [("method", method), ("url", url)] {
        if member(item, name) != value {
            decision.insert(name.into(), value.into());
        }
    }
    Ok(())
}

/// The fields to set, and, with an empty value, those to remove.
fn changed_fields(item: &Value, text: &str) -> Result<Vec<Value>, String> {
    let mut now: Vec<(String, String)> = Vec::new();
    for line in text.lines().filter(|l| !l.trim().is_empty()) {
        let (name, value) =
            line.split_once(':').ok_or_else(|| format!("`{line}` is not a header field: write Name: value"))?;
        now.push((name.trim().to_owned(), value.trim().to_owned()));
    }
    let before: Vec<(String, String)> =
        members(item, "headers").map(|f| (one_line(&f[0]), one_line(&f[1]).trim().to_owned())).collect();
    let values = |fields: &[(String, String)], name: &str| {
        let of_name = fields.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        of_name.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    let mut changed: Vec<Value> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in before.iter().chain(&now) {
        if names.iter().any(|s| s.eq_ignore_ascii_case(name)) {
            continue;
        }
        names.push(name);
        let values_now = values(&now, name);
        if values_now == values(&before, name) {
            continue;
        }
        match &values_now[..] {
            [] => changed.push(json!([name, ""])),
            [value] => changed.push(json!([name, value])),
            _ => return Err(format!("the field {name} is repeated: a field that is changed has one value")),
        }
    }
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> Value {
        json!({
            "id": "rule-1", "what": "request", "method": "POST", "url": "http://shop.test/orders",
            "headers": [["Host", "shop.test"], ["Accept", "a"], ["Accept", "b"], ["X-Old", "1"]], "body": "{\"a\":1}",
        })
    }

    #[test]
    fn only_what_was_changed_is_sent() {
        let text = text_of(&request());
        assert_eq!(text, "POST http://shop.test/orders\nHost: shop.test\nAccept: a\nAccept: b\nX-Old: 1\n\n{\"a\":1}");
        assert_eq!(changes(&request(), &text), Ok(None));
        // As editors leave it.
        assert_eq!(changes(&request(), &format!("{}\n", text.replace('\n', "\r\n"))), Ok(None));
        let edited = text.replace("POST", "PUT").replace("X-Old: 1", "x-new:2").replace("\"a\":1", "\"a\":2");
        let expected = json!({
            "action": "change", "method": "PUT", "headers": [["X-Old", ""], ["x-new", "2"]], "body": "{\"a\":2}",
        });
        assert_eq!(changes(&request(), &edited), Ok(Some(expected)));
        let emptied = text.split("\n\n").next().unwrap();
        assert_eq!(changes(&request(), emptied), Ok(Some(json!({"action": "change", "body": ""}))));
    }

    #[test]
    fn a_body_that_is_not_shown_stays() {
        let mut item = request();
        item["body"] = Value::Null;
        let text = text_of(&item);
        assert!(text.starts_with("# The body is not shown"), "{text}");
        assert_eq!(changes(&item, &text), Ok(None));
        let changed = changes(&item, &text.replace("/orders", "/cart")).unwrap().unwrap();
        assert_eq!(changed, json!({"action": "change", "url": "http://shop.test/cart"}));
    }

    #[test]
    fn responses_and_messages_have_their_own_forms() {
        let response = json!({"what": "response", "status": 200, "headers": [], "body": "x\n"});
        assert_eq!(text_of(&response), "HTTP 200\n\nx\n");
        let changed = changes(&response, "HTTP 503\n\nx\n").unwrap();
        assert_eq!(changed, Some(json!({"action": "change", "status": 503})));
        let message = json!({"what": "message", "method": "GET", "url": "ws://a/", "headers": [], "body": "hi"});
        assert_eq!((text_of(&message).as_str(), changes(&message, "hi\n")), ("hi", Ok(None)));
        assert_eq!(changes(&message, "ho\n"), Ok(Some(json!({"action": "change", "body": "ho"}))));
    }

    #[test]
    fn what_cannot_be_understood_changes_nothing() {
        for (text, why) in [
            ("", "empty"),
            ("POST\nHost: a\n\n", "method and URL"),
            ("POST http://shop.test/orders\nHost\n\n", "is not a header field"),
            ("POST http://shop.test/orders\nHost: a\nHost: b\n\n", "repeated"),
        ] {
            assert!(changes(&request(), text).unwrap_err().contains(why), "{text:?}");
        }
        let response = json!({"what": "response", "status": 200, "headers": [], "body": ""});
        assert!(changes(&response, "HTTP fine\n\n").unwrap_err().contains("no status"));
    }
}
