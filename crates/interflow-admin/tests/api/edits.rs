//! Files that several clients and processes edit.

use serde_json::json;

use super::identity::trail;
use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn of_two_saves_at_once_one_is_refused_and_the_other_stays() {
    let it = Instance::start().await;
    let file = it.json("/privacy/policies").await["policies"][0]["file"].as_str().unwrap().to_owned();
    let source = format!("/privacy/policies/source?file={file}");
    let base = it.json(&source).await["text"].as_str().unwrap().to_owned();
    let texts = ["name = \"one\"\n", "name = \"two\"\n"];
    let save = async |text: &str| {
        let body = json!({ "text": text, "base": base }).to_string();
        it.call("PUT", &source, &[("Content-Type", "application/json")], body.as_bytes()).await
    };
    // Both have read the file before either writes it.
    let other = interflow_files::FileLock::for_edit(file.as_ref()).unwrap();
    let release = async {
        tokio::task::yield_now().await;
        drop(other);
    };
    let (one, two, ()) = tokio::join!(save(texts[0]), save(texts[1]), release);
    let refused = if one.status == 200 { &two } else { &one };
    assert_eq!((one.status + two.status, kind(refused).as_str()), (200 + 409, "changed_meanwhile"));
    let winner = texts[usize::from(one.status != 200)];
    assert_eq!(std::fs::read_to_string(&file).unwrap(), winner);
    let active = it.json("/privacy/policies").await["policies"][0]["name"].clone();
    assert!(winner.contains(active.as_str().unwrap()), "{active}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_while_another_process_has_the_file_changes_nothing() {
    let it = Instance::start().await;
    let other = interflow_files::FileLock::for_edit(&it._dir.path().join("approvals.json")).unwrap();
    let (host, body) = (it.admin.to_string(), json!({"action": "allow", "hosts": ["gone.test"]}).to_string());
    let request = format!(
        "POST /api/v1/approvals/rules HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // The request has ended when its line is in the trail. One whose client leaves before it was read has none.
    while trail(&it, "approvals").await.is_empty() {
        let mut wire = Wire::connect(it.admin).await.unwrap();
        wire.send(request.clone()).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        drop(wire);
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    drop(other);
    let added = it.post("/approvals/rules", json!({"action": "allow", "hosts": ["api.test"]})).await;
    assert_eq!(added.status, 200, "{}", added.text());
    let rules = it.json("/approvals/rules").await["rules"].to_string();
    assert!(rules.contains("api.test") && !rules.contains("gone.test"), "{rules}");
}
