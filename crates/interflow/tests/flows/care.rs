//! `prune`, `check`, `stats`, `tag`, with and without a running instance.

use super::*;

fn count(home: &Home, query: &str) -> String {
    home.flows(&["count", query]).ok().trim().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn pruning_needs_a_selection_and_a_confirmation() {
    let home = Home::filled().await;
    assert!(home.flows(&["prune"]).fails(2).contains("no flows selected"));
    home.flows(&["prune", "--all", "status:404"]).fails(2);
    home.flows(&["prune", "--older", "soon"]).fails(2);
    for answer in ["n\n", "", "\n"] {
        let said = answered(home.command(&["flows", "prune", "--all"]), answer);
        assert!(said.err.contains("4 flows will be deleted"), "{said:?}");
        said.fails(1);
        assert_eq!(count(&home, ""), "4");
    }
    assert!(answered(home.command(&["flows", "prune", "status:404"]), "y\n").ok().contains("1 flow deleted"));
    assert!(home.flows(&["prune", "--older", "7d", "-y"]).err.contains("no flow matches"));
    assert_eq!(count(&home, ""), "3");
    assert!(home.flows(&["prune", "body:needle", "-y"]).ok().contains("1 flow deleted"));
    assert!(home.flows(&["prune", "--older", "0s", "-y"]).ok().contains("2 flows deleted"));
    assert_eq!(count(&home, ""), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn prune_and_tag_are_delegated_to_the_running_instance() {
    let home = Home::filled().await;
    let running = home.start();
    home.flows(&["tag", "last", "slow", "odd", "--comment", "look here"]).ok();
    assert_eq!(count(&home, "tag:slow comment:look"), "1");
    assert!(home.flows(&["prune", "status:404", "-y"]).ok().contains("1 flow deleted"));
    assert!(home.flows(&["prune", "--older", "0s", "-y"]).ok().contains("3 flows deleted"));
    running.get("/status/204").await;
    running.until_recorded(1);
    assert!(home.flows(&["prune", "--all", "-y"]).ok().contains("1 flow deleted"));
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn tags_are_added_and_removed() {
    let home = Home::filled().await;
    home.flows(&["tag", "last-1", "a", "b"]).ok();
    home.flows(&["tag", "last-1", "a", "--remove"]).ok();
    assert_eq!((count(&home, "tag:a"), count(&home, "tag:b")), ("0".into(), "1".into()));
    assert!(home.flows(&["list", "tag:b"]).ok().lines().last().unwrap().ends_with(" b"));
    home.flows(&["tag", "last"]).fails(2);
    home.flows(&["tag", "last", "a\nb"]).fails(2);
}

#[tokio::test(flavor = "multi_thread")]
async fn check_verifies_a_store_and_reports_damage() {
    let home = Home::new().await;
    let running = home.start();
    running.get("/bytes/200000").await;
    running.until_recorded(1);
    running.stop();
    let sound = home.flows(&["check"]).ok();
    assert!(sound.contains("1 flow,") && sound.contains("verified"), "{sound}");
    let segments = home.dir.path().join("record/segments");
    let file = std::fs::read_dir(segments).unwrap().map(|e| e.unwrap().path()).next().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    std::fs::write(&file, bytes).unwrap();
    let said = home.flows(&["check"]);
    assert!(!said.out.is_empty(), "{said:?}");
    assert!(said.fails(1).contains("problem"));
    let json = home.flows(&["check", "--json"]);
    assert!(serde_json::from_str::<Value>(&json.out).unwrap()["problem_count"].as_u64() > Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn stats_come_from_the_store_and_from_the_running_instance() {
    let home = Home::filled().await;
    let resting = home.flows(&["stats"]).ok();
    assert!(resting.lines().any(|l| l.starts_with("flows") && l.ends_with(" 4")), "{resting}");
    let running = home.start();
    let live = home.flows(&["stats"]).ok();
    assert!(live.contains("queue bytes"), "{live}");
    let json: Value = serde_json::from_str(&home.flows(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(json["store"]["flows"], 4);
    running.stop();
    let json: Value = serde_json::from_str(&home.flows(&["stats", "--json"]).ok()).unwrap();
    assert_eq!(json["flows"], 4);
}
