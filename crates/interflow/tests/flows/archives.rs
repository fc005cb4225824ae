//! `export` and `import`, with and without a running instance.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn exports_can_be_imported_with_and_without_a_running_instance() {
    let home = Home::filled().await;
    for (name, start) in [("all.har", "{"), ("all.jsonl", "{\"interflow\"")] {
        let file = home.path(name);
        let said = home.flows(&["export", "-o", &file]);
        assert!(said.err.contains("4 flows to"), "{said:?}");
        assert!(home.origin_file(name).starts_with(start), "{name}");
        assert!(!home.dir.path().join(format!("{name}.part")).exists());

        let other = Home::new().await;
        assert!(other.flows(&["import", &file]).ok().contains("4 flows imported"));
        assert_eq!(other.flows(&["count", "body:needle"]).ok().trim(), "1");
        let running = other.start();
        let again = other.flows(&["import", &file]).ok();
        assert!(again.contains("0 flows imported, 4 already present"), "{name}: {again}");
        running.stop();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exports_are_written_to_standard_output() {
    let home = Home::filled().await;
    let har: Value = serde_json::from_str(&home.flows(&["export", "status:404"]).ok()).unwrap();
    assert_eq!(har["log"]["entries"].as_array().unwrap().len(), 1);
    let curl = home.flows(&["export", "--format", "curl", "method:POST"]).ok();
    assert!(curl.starts_with("curl ") && curl.contains("needle"), "{curl}");
    assert_eq!(lines(&home.flows(&["export", "--format", "jsonl"]).ok()).len(), 4);
    assert_eq!(home.flows(&["export", "--format", "curl", "-o", "-", "method:POST"]).ok(), curl);
    home.flows(&["export", "--format", "pdf"]).fails(2);
    let nowhere = home.flows(&["export", "-o", "/nowhere/at/all.har"]).fails(1);
    assert!(nowhere.contains("/nowhere/at/all.har"), "{nowhere}");
}

#[tokio::test(flavor = "multi_thread")]
async fn compressed_file_extensions_select_the_compression() {
    let home = Home::filled().await;
    for (name, magic) in
        [("all.har.gz", &[0x1f, 0x8b][..]), ("all.jsonl.gz", &[0x1f, 0x8b]), ("all.zhar", &[0x78, 0x9c])]
    {
        let file = home.path(name);
        assert!(home.flows(&["export", "-o", &file]).err.contains("4 flows to"), "{name}");
        assert!(std::fs::read(&file).unwrap().starts_with(magic), "{name}");
        let other = Home::new().await;
        assert!(other.flows(&["import", &file]).ok().contains("4 flows imported"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_archive_is_named_and_other_files_are_imported() {
    let home = Home::filled().await;
    let (good, bad) = (home.path("good.jsonl"), home.path("bad.har"));
    home.flows(&["export", "-o", &good]).ok();
    std::fs::write(&bad, "this is no archive").unwrap();
    let other = Home::new().await;
    let said = other.flows(&["import", &bad, "/nowhere.har", &good]);
    assert!(said.out.contains("4 flows imported"), "{said:?}");
    let complaint = said.fails(1);
    assert!(complaint.contains("bad.har") && complaint.contains("/nowhere.har"), "{complaint}");
    let piped = answered(other.command(&["flows", "import", "-"]), &home.origin_file("good.jsonl")).ok();
    assert!(piped.contains("4 already present"), "{piped}");
}
