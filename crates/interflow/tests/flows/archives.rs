//! `export` and `import`, with and without a running instance.

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

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
async fn parquet_is_exported_with_and_without_bodies() {
    let home = Home::filled().await;
    let exported = |args: &[&str]| {
        let file = home.path("flows.parquet");
        let said = home.flows(&[&["export", "-o", &file], args].concat());
        assert!(said.err.contains("4 flows to"), "{said:?}");
        SerializedFileReader::new(std::fs::File::open(&file).unwrap()).unwrap()
    };
    let bodies = |file: &SerializedFileReader<std::fs::File>| {
        let rows = file.get_row_iter(None).unwrap().map(Result::unwrap);
        let columns =
            rows.flat_map(|row| row.get_column_iter().map(|(n, v)| (n.clone(), v.clone())).collect::<Vec<_>>());
        columns.filter(|(name, value)| name.ends_with("_body") && *value != Field::Null).count()
    };
    let (without, with) = (exported(&[]), exported(&["--bodies"]));
    assert_eq!((without.metadata().file_metadata().num_rows(), bodies(&without)), (4, 0));
    assert!(bodies(&with) > 0);
    home.flows(&["export", "--format", "har", "--bodies"]).fails(2);
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
    let (good, bad, packets) = (home.path("good.jsonl"), home.path("bad.har"), home.path("packets.pcapng"));
    home.flows(&["export", "-o", &good]).ok();
    home.flows(&["export", "-o", &packets]).ok();
    std::fs::write(&bad, "this is not an archive").unwrap();
    let other = Home::new().await;
    let said = other.flows(&["import", &bad, "/nowhere.har", &packets, &good]);
    assert!(said.out.contains("4 flows imported"), "{said:?}");
    let complaint = said.fails(1);
    assert!(complaint.contains("bad.har") && complaint.contains("/nowhere.har"), "{complaint}");
    assert!(complaint.contains("'pcapng' can be exported but not imported"), "{complaint}");
    let piped = answered(other.command(&["flows", "import", "-"]), &home.origin_file("good.jsonl")).ok();
    assert!(piped.contains("4 already present"), "{piped}");
}

#[tokio::test]
async fn an_export_of_no_flows_is_refused_and_replaces_nothing() {
    let home = Home::filled().await;
    for name in ["x.saz", "x.fxzy", "x.mitm", "x.har", "x.jsonl", "x.pcapng"] {
        let file = home.path(name);
        std::fs::write(&file, "before").unwrap();
        let said = home.flows(&["export", "-o", &file, "host:nobody.test"]).fails(1);
        assert!(said.contains("no flow matches the query: nothing was written"), "{said}");
        assert_eq!(home.origin_file(name), "before", "{name}");
    }
}

#[tokio::test]
async fn the_name_of_a_flow_in_place_of_a_query_is_explained() {
    let home = Home::filled().await;
    for words in [&["export", "last"][..], &["list", "last-2"], &["count", "last"], &["prune", "-y", "last"]] {
        let said = home.flows(words).fails(2);
        assert!(said.contains("names a flow") && said.contains("flows show last"), "{said}");
    }
    assert_eq!(home.flows(&["count"]).ok().trim(), "4", "nothing was deleted");
    assert_eq!(home.flows(&["count", "\"last\""]).ok().trim(), "0", "as a text it is a query");
    let har: Value = serde_json::from_str(&home.flows(&["show", "last", "--format", "har"]).ok()).unwrap();
    assert_eq!(har["log"]["entries"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn a_flow_is_shown_as_soon_as_its_response_has_arrived() {
    let home = Home::new().await;
    let running = home.start();
    for i in 0..10 {
        running.get(&format!("/status/204?turn={i}")).await;
        let last = home.flows(&["show", "last"]).ok();
        assert!(last.contains(&format!("turn={i}")), "turn {i}: {last}");
    }
}
