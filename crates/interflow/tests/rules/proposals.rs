//! Rules that an agent proposes over MCP become active only when the operator applies them.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::json;

use super::*;

const RULES: &str = "rules:\n  - name: first\n    when: path:/first\n    then: { answer: { status: 201 } }\n";
const PROPOSED: &str = "rules:\n  - name: teapot\n    when: path:/tea\n    then: { answer: { status: 418 } }\n";

/// The text of the answer to a tool call of `interflow mcp --write`.
fn call(home: &Home, arguments: &serde_json::Value) -> String {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "propose_rule", "arguments": arguments}});
    let mut command = home.command(&["mcp", "--write"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    writeln!(child.stdin.take().unwrap(), "{message}").unwrap();
    let answer: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// Stdout of a command that must succeed.
#[track_caller]
fn ok(home: &Home, words: &[&str]) -> String {
    let said = home.run(words);
    assert_eq!(said.code, 0, "{said:?}");
    said.out
}

#[tokio::test(flavor = "multi_thread")]
async fn proposed_rules_are_active_once_the_operator_applies_them() {
    let home = Home::new().await;
    let rules = home.write("r.yaml", RULES);
    let running = home.start(&rules);
    let tea = home.origin.url("/tea");
    assert_ne!(running.get(&tea).await.status, 418);

    // Writes what was recorded.
    ok(&home, &["flows", "list"]);
    let refused = call(&home, &json!({"text": PROPOSED.replace("then", "than")}));
    assert!(refused.contains("than"), "{refused}");
    let said = call(&home, &json!({"text": PROPOSED, "reason": "tea \u{1b}[1mtime"}));
    assert!(said.contains("proposal 1 waits for the operator") && said.contains("/tea"), "{said}");
    assert_ne!(running.get(&tea).await.status, 418, "a proposal changes nothing");

    let listed = ok(&home, &["rules", "proposals"]);
    for text in ["proposal 1: tea [1mtime", "- name: teapot", "teapot GET http", "interflow rules apply 1"] {
        assert!(listed.contains(text), "{text}: {listed}");
    }
    ok(&home, &["rules", "apply", "1"]);
    assert_eq!(running.get(&tea).await.status, 418);
    assert_eq!(running.get(&home.origin.url("/first")).await.status, 201);
    assert!(ok(&home, &["rules", "proposals"]).contains("no rules are proposed"));

    call(&home, &json!({"text": PROPOSED}));
    ok(&home, &["rules", "dismiss", "2"]);
    assert_eq!(home.run(&["rules", "dismiss", "2"]).code, 1, "it is gone");
}
