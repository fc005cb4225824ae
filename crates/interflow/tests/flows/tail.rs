//! `tail` prints completed flows, whichever process writes them.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn tail_prints_flows_as_they_end() {
    let home = Home::filled().await;
    let running = home.start();
    let tail = Following::new(home.command(&["flows", "tail", "-n", "1", "status:>=200", "-path:/hidden"]));
    assert!(tail.line().starts_with("ID"));
    assert!(tail.line().contains("/sse?count=3"), "one that has ended already");
    running.get("/hidden").await;
    running.get("/status/418").await;
    let line = tail.line();
    assert!(line.contains(" 418 ") && line.contains("/status/418"), "{line}");
    running.post("/echo", "", "x").await;
    assert!(tail.line().contains("POST"));
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_jsonl_lines_are_complete_flows() {
    let home = Home::new().await;
    let running = home.start();
    let tail = Following::new(home.command(&["flows", "tail", "--format", "jsonl", "-n", "0"]));
    // `tail` does not signal that it has started, and flows that completed before are not printed.
    let line = loop {
        running.get("/status/204").await;
        if let Ok(line) = tail.lines.recv_timeout(Duration::from_millis(300)) {
            break line;
        }
    };
    let flow: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&flow["response"]["status"], &flow["state"]), (&204.into(), &"complete".into()));
    assert!(flow["request"]["headers"].is_array());
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn tail_survives_instance_restarts() {
    let home = Home::new().await;
    let tail = Following::new(home.command(&["flows", "tail", "--format", "jsonl"]));
    for path in ["/status/201", "/status/202"] {
        let running = home.start();
        running.get(path).await;
        let flow: Value = serde_json::from_str(&tail.line()).unwrap();
        assert_eq!(flow["request"]["path"], path);
        running.stop();
    }
}
