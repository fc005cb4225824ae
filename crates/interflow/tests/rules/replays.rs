//! Responses from recordings: flows of this instance, and archives of each format.

use interflow_testkit::{Origin, Reply};

use crate::default_rules_file::{Home, until};

#[tokio::test]
async fn recorded_flows_and_archives_are_replayed_for_a_missing_origin() {
    let home = Home::new().await;
    let count = std::sync::atomic::AtomicUsize::new(0);
    let origin = Origin::http()
        .answering(move |r| {
            let n = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let body = format!("{} {n} {}", r.path(), String::from_utf8_lossy(&r.body));
            Reply::ok(body).header("X-Real", "yes")
        })
        .start()
        .await;
    let none = home.write("none.yaml", "rules: []");
    let url = origin.url("/a?x=1");
    {
        let running = home.start(&none);
        for _ in 0..2 {
            assert_eq!(running.get(&url).await.header("x-real"), Some("yes"));
        }
        until("both flows", async || home.run(&["flows", "count", "-is:open"]).out.trim() == "2").await;
    }
    let mut sources = vec!["flows: 'path:/a is:http'".to_owned()];
    for format in ["har", "jsonl", "saz", "fxzy", "mitm"] {
        let file = home.own_file(&format!("kept.{format}")).display().to_string();
        let said = home.run(&["flows", "export", "--format", format, "-o", &file]);
        assert_eq!(said.code, 0, "{said:?}");
        sources.push(format!("file: '{file}'"));
    }
    drop(origin);
    for source in sources {
        let rules = home.write("r.yaml", &format!("rules: [{{then: {{replay: {{{source}, extra: 404}}}}}}]"));
        let checked = home.run(&["rules", "check", &rules]);
        assert_eq!(checked.code, 0, "{source}: {checked:?}");
        let running = home.start(&rules);
        for n in 0..2 {
            let answer = running.get(&url).await;
            assert_eq!((answer.status, answer.text()), (200, format!("/a {n} ")), "{source}");
            assert_eq!(answer.header("x-real"), Some("yes"), "{source}");
        }
        let answer = running.get(&url).await;
        assert_eq!(answer.status, 404, "{source}: each answer is given once");
        drop(running);
    }
}

#[tokio::test]
async fn mitmproxy_replay_options_are_imported() {
    let home = Home::new().await;
    // The imported rule is loaded, so its recording must exist.
    let entry = r#"{"startedDateTime":"2026-01-01T00:00:00Z","time":1,"request":{"method":"GET","url":"http://a.test/","httpVersion":"HTTP/1.1","headers":[],"queryString":[],"cookies":[],"headersSize":-1,"bodySize":0},"response":{"status":200,"statusText":"OK","httpVersion":"HTTP/1.1","headers":[],"cookies":[],"content":{"size":1,"mimeType":"text/plain","text":"a"},"redirectURL":"","headersSize":-1,"bodySize":1},"cache":{},"timings":{"send":0,"wait":1,"receive":0}}"#;
    let har = format!(r#"{{"log":{{"version":"1.2","creator":{{"name":"t","version":"1"}},"entries":[{entry}]}}}}"#);
    let kept = home.write("kept.har", &har);
    let options = "server_replay_extra: '204'\nserver_replay_reuse: true\nserver_replay_refresh: false\n\
         server_replay_ignore_host: true\nserver_replay_ignore_content: true\nserver_replay_ignore_params: [stamp]\n\
         server_replay_ignore_payload_params: [token]\nserver_replay_use_headers: [X-Tenant]\nanticache: true\n";
    let config = home.write("config.yaml", &format!("server_replay: ['{kept}']\n{options}"));
    let said = home.run(&["import", "mitmproxy", &config]);
    for part in [
        "kept.har",
        "extra: 204",
        "reuse: true",
        "refresh: false",
        "- stamp",
        "- host",
        "- body",
        "- token",
        "- X-Tenant",
        "anticache",
    ] {
        assert!(said.out.contains(part), "{part}: {said:?}");
    }
    let killed = home.write("killed.yaml", &format!("server_replay: ['{kept}']\nserver_replay_kill_extra: true\n"));
    assert!(home.run(&["import", "mitmproxy", &killed]).out.contains("extra: abort"));
    let wrong = home.write("wrong.yaml", "server_replay: [a.flow]\nserver_replay_extra: maybe\n");
    let said = home.run(&["import", "mitmproxy", &wrong]);
    assert!(said.code == 1 && said.err.contains("write forward, kill, or a status"), "{said:?}");
    let missing = home.write("missing.yaml", "server_replay: [none.har]\n");
    let said = home.run(&["import", "mitmproxy", &missing]);
    assert!(said.code == 1 && said.err.contains("server_replay cannot be imported"), "{said:?}");
}

#[tokio::test]
async fn invalid_replay_archive_is_refused_with_its_position() {
    let home = Home::new().await;
    let cut = home.write("cut.har", "{\"log\": {\"entries\": [{");
    let rules = home.write("r.yaml", &format!("rules: [{{then: {{replay: '{cut}'}}}}]"));
    let said = home.run(&["rules", "check", &rules]);
    assert!(said.code == 1 && said.err.contains("r.yaml:1:") && said.err.contains("cut.har"), "{said:?}");
    let both = home.write("both.yaml", "rules: [{then: {replay: {file: a.har, flows: 'host:a'}}}]");
    let said = home.run(&["rules", "check", &both]);
    assert!(said.code == 1 && said.err.contains("one of `file` and `flows`"), "{said:?}");
}
