//! What commands say to someone who made a mistake: the shortest command that works, the name that was meant, the file that was asked for.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::process::Stdio;

use super::{HAR, interflow, ok, run};

const LISTEN: [&str; 3] = ["--listen-proxy", "--listen-gateway", "--listen-admin"];

#[test]
fn usage_and_the_banner_name_no_option_that_the_environment_sets() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    for words in [&["exec"][..], &["approvals", "rules", "add"], &["media", "link"]] {
        let (code, _, err) = run(home, words);
        let usage = err.lines().find(|line| line.starts_with("Usage:")).unwrap();
        assert!(code == 2 && !usage.contains("--data-dir"), "{err}");
    }
    let other = home.join("other").display().to_string();
    let (_, _, err) = run(home, &["exec", "--data-dir", &other]);
    assert!(err.contains("Usage: interflow exec --data-dir <DIR> <CMD>..."), "{err}");
    let named = format!("`interflow --data-dir {other} open`");
    for (option, open) in [(&[][..], "`interflow open`"), (&["--data-dir", &other], &named)] {
        let listen = LISTEN.iter().flat_map(|name| [*name, "0"]);
        let words: Vec<_> = option.iter().copied().chain(["run"]).chain(listen).collect();
        let mut child = interflow(home, &words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with("  admin ")).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(line.contains(open), "{line}");
    }
}

#[test]
fn a_port_in_use_is_said_once() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for role in LISTEN {
        let addresses = LISTEN.iter().flat_map(|name| [*name, if *name == role { address.as_str() } else { "0" }]);
        let words: Vec<_> = ["run"].into_iter().chain(addresses).collect();
        let (code, _, err) = run(home.path(), &words);
        assert!(code == 1 && err.contains(&address), "{role}: {err}");
        assert_eq!(err.matches("choose another").count(), 1, "{role}: {err}");
    }
}

#[test]
fn a_misspelled_host_and_a_file_that_cannot_be_written_are_named_as_they_were_meant() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::fs::write(home.join("a.har"), HAR).unwrap();
    ok(home, &["import", "har", "a.har"]);
    let (code, out, err) = run(home, &["flows", "list", "host:a.tset"]);
    assert!(code == 0 && !out.contains("a.test"), "{out}");
    assert!(err.contains("no flow matches; did you mean 'host:a.test'?"), "{err}");
    let missing = home.join("none/out.har").display().to_string();
    let (code, _, err) = run(home, &["flows", "export", "--format", "har", "-o", &missing]);
    assert!(code == 1 && err.contains(&missing) && !err.contains(".part"), "{err}");
}

#[cfg(feature = "demo")]
#[tokio::test]
async fn virtual_keys_work_with_the_providers_of_the_origins_which_need_no_key() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let key: serde_json::Value =
        serde_json::from_str(&ok(home, &["keys", "add", "--id", "ann", "--format", "json"])).unwrap();
    let key = key["key"].as_str().unwrap();
    let running = super::Running::start(home, "", &["--origins"]);
    let gateway: std::net::SocketAddr = running.info["gateway"].as_str().unwrap().parse().unwrap();
    let turn = r#"{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"two words"}]}"#;
    for (path, field, prefix) in [
        ("/openai/v1/chat/completions", "Authorization", "Bearer "),
        ("/anthropic/v1/messages", "x-api-key", ""),
        ("/groq/v1/chat/completions", "Authorization", "Bearer "),
    ] {
        let mut wire = interflow_testkit::Wire::connect(gateway).await.unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {gateway}\r\n{field}: {prefix}{key}\r\nContent-Type: application/json\r\n"
        );
        wire.send(format!("{head}Content-Length: {}\r\n\r\n{turn}", turn.len())).await.unwrap();
        let answer = wire.answer().await.unwrap();
        let body = String::from_utf8_lossy(&answer.body);
        assert!(answer.status == 200 && body.contains("two words"), "{path}: {} {body}", answer.status);
    }
}
