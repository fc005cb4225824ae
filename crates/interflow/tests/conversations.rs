//! `interflow demo`, `conversations` and `mcp`, as a user runs them: one round of the demo's traffic through the real
//! binary, then a look at what was put together.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// The recording of one round of the demo, made once.
static HOME: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let home = tempfile::tempdir().expect("a temporary folder");
    let anywhere = "127.0.0.1:0";
    let keep = home.path().to_str().expect("UTF-8");
    let args = ["demo", "--rounds", "1", "--keep", keep, "--proxy", anywhere, "--admin", anywhere];
    let out = interflow(home.path(), &args, "");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    home
});

fn interflow(home: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interflow"))
        .args(args)
        .env("INTERFLOW_HOME", home)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// What a command on the demo's recording prints.
fn said(args: &[&str]) -> String {
    let out = interflow(HOME.path(), args, "");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn listed(args: &[&str]) -> Vec<Value> {
    let all = [&["conversations", "list", "--format", "jsonl"], args].concat();
    said(&all).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

#[test]
fn every_agent_of_the_demo_has_its_conversation() {
    let main = listed(&[]);
    let mut agents: Vec<&str> = main.iter().filter_map(|c| c["agent"].as_str()).collect();
    agents.sort_unstable();
    assert_eq!(agents, ["claude-code", "codex", "gemini-cli", "ollama", "openai-js", "openai-python", "openai-python"]);
    let coder = &listed(&["agent:claude-code"])[0];
    assert_eq!((coder["title"].as_str(), coder["turns"].as_u64()), (Some("Checkout total off by a cent"), Some(2)));
    assert!(coder["used"]["cost"].as_f64().is_some_and(|c| c > 0.0), "{coder}");
    assert!(coder["used"]["cache_read"].as_u64().is_some_and(|n| n > 0), "{coder}");
    let children = listed(&["--all", "agent:claude-code"]);
    assert_eq!(children.iter().filter(|c| c["parent"] == coder["id"]).count(), 2);
}

#[test]
fn a_conversation_is_shown_with_its_tools_and_written_as_documents() {
    let coder = listed(&["agent:claude-code"]).remove(0);
    let id = coder["id"].as_str().expect("an id");
    let text = said(&["conversations", "show", id, "--changes"]);
    for words in ["── turn 2 ──", "Grep src", "sub-agent", "41 passed; 1 failed", "three_dimes", "came from the cache"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let html = said(&["conversations", "export", &id[..8], "--format", "html"]);
    assert!(html.contains("List every caller") && !html.contains("<script"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("talks");
    said(&["conversations", "export", "-o", place.to_str().expect("UTF-8"), "--format", "markdown"]);
    assert_eq!(std::fs::read_dir(place).expect("the folder").count(), 7);
    let out = interflow(HOME.path(), &["conversations", "show", "nobody"], "");
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn anew_it_is_the_same() {
    let copy = tempfile::tempdir().expect("a temporary folder");
    let from = HOME.path().to_str().expect("UTF-8");
    let copied = Command::new("cp").args(["-a", &format!("{from}/."), copy.path().to_str().expect("UTF-8")]).status();
    assert!(copied.expect("cp").success());
    let show = |home: &Path| {
        let out = interflow(home, &["conversations", "export", "--format", "jsonl"], "");
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let before = show(copy.path());
    assert!(before.lines().count() > 30);
    let out = interflow(copy.path(), &["conversations", "rebuild"], "");
    assert!(String::from_utf8_lossy(&out.stdout).contains("exchanges read"), "{out:?}");
    assert_eq!(show(copy.path()), before);
}

#[test]
fn an_agent_reads_the_recording_over_mcp() {
    let call = |id: u32, name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let input = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        call(1, "search_flows", json!({"query": "path:/login"})),
        call(2, "list_conversations", json!({"query": "agent:codex"})),
        call(3, "read_conversation", json!({"id": "last", "max_chars": 200})),
    ];
    let input: String = input.iter().map(|m| format!("{m}\n")).collect();
    let out = interflow(HOME.path(), &["mcp"], &input);
    let answers: Vec<Value> =
        String::from_utf8_lossy(&out.stdout).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(answers.len(), 4, "{out:?}");
    let text = |n: usize| answers[n]["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
    let id = text(1).split(' ').next().expect("an id").to_owned();
    assert!(text(2).contains("gpt-5-codex") && text(3).starts_with("# "));
    let read = interflow(HOME.path(), &["mcp"], &format!("{}\n", call(9, "read_flow", json!({ "id": id }))));
    let read = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(read.contains("user=demo") && !read.contains("hunter2"), "{read}");
}
