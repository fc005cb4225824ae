//! Messages edited by rules are recorded both as received and as sent; unedited ones are recorded once. Redacted values
//! and secrets behind placeholders are never recorded.

use interflow_testkit::{Answer, Wire};
use serde_json::{Value, json};

use crate::default_rules_file::{Api, Home, Running, until};

const EDITS: &str = r#"
rules:
- name: request
  when: 'path:/echo'
  then:
  - {set_request_header: {X-Tag: new}}
  - {edit_request_body: {find: alpha, with: beta}}
- name: response
  when: 'path:/echo'
  then:
  - {set_response_header: {Content-Type: text/new}}
  - {edit_response_body: {find: beta, with: gamma}}
- name: nothing
  when: 'path:/same'
  then:
  - {set_request_header: {X-Tag: old}}
  - {edit_request_body: {find: nowhere, with: beta}}
"#;

async fn post(running: &Running, url: &str, fields: &str, body: &str) -> Answer {
    let mut wire = Wire::connect(running.proxy).await.unwrap();
    let n = body.len();
    wire.send(format!(
        "POST {url} HTTP/1.1\r\nHost: a.test\r\nX-Tag: old\r\nContent-Length: {n}\r\n{fields}\r\n{body}"
    ))
    .await
    .unwrap();
    wire.answer().await.unwrap()
}

/// IDs of the flows that match a query, once this many have completed.
async fn flows(home: &Home, query: &str, n: usize) -> Vec<String> {
    until("the flows", async || {
        home.run(&["flows", "count", &format!("-is:open {query}")]).out.trim() == n.to_string()
    })
    .await;
    let listed = home.run(&["flows", "list", "--format", "jsonl", query]).out;
    listed.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["id"].as_str().unwrap().to_owned()).collect()
}

fn api(home: &Home, running: &Running) -> Api {
    let token = std::fs::read_to_string(home.path("admin.token")).unwrap().trim().to_owned();
    Api { admin: running.admin, token }
}

/// Whether any file of the recording contains the text.
fn recorded(home: &Home, text: &str) -> bool {
    let mut folders = vec![home.path("record")];
    let mut found = false;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            match entry.path().is_dir() {
                true => folders.push(entry.path()),
                false => {
                    let bytes = std::fs::read(entry.path()).unwrap_or_default();
                    found |= bytes.windows(text.len()).any(|w| w == text.as_bytes());
                }
            }
        }
    }
    found
}

/// A recorded flow whose request and response were edited.
struct Edited {
    home: Home,
    running: Running,
    /// What the client sent.
    body: String,
    id: String,
}

impl Edited {
    /// Sends a body that the rules edit to an origin that echoes it.
    async fn with(body: &str) -> Self {
        let home = Home::new().await;
        let running = home.start(&home.write("r.yaml", EDITS));
        let got = post(&running, &home.origin.url("/echo"), "Content-Type: text/old\r\n", body).await;
        assert_eq!(got.text(), body.replace("alpha", "gamma"));
        let sent = home.origin.only_request();
        assert_eq!((sent.header("x-tag"), &sent.body[..]), (Some("new"), body.replace("alpha", "beta").as_bytes()));
        let id = flows(&home, "tag:edited", 1).await.remove(0);
        Self { home, running, body: body.to_owned(), id }
    }

    /// A short body, and one that is recorded in chunks.
    async fn each() -> [Self; 2] {
        [Self::with("the alpha").await, Self::with(&"alpha and so on ".repeat(20_000)).await]
    }

    async fn api(&self, path: &str) -> String {
        let path = format!("/api/v1/flows/{}{path}", self.id);
        api(&self.home, &self.running).ask("GET", &path, "").await.text()
    }

    /// The body of each side, as it was received and as it was sent.
    fn bodies(&self) -> [(&'static str, String, String); 2] {
        [("request", "alpha", "beta"), ("response", "beta", "gamma")]
            .map(|(side, came, went)| (side, self.body.replace("alpha", came), self.body.replace("alpha", went)))
    }

    /// The lines of an export with these options.
    fn exported(&self, options: &[&str]) -> String {
        let (file, one) = (self.archive(), format!("id:{}", self.id));
        let said = self.home.run(&[&["flows", "export", "-o", &file, &one], options].concat());
        assert_eq!(said.code, 0, "{said:?}");
        std::fs::read_to_string(&file).unwrap()
    }

    fn archive(&self) -> String {
        self.home.path("edited.jsonl").to_string_lossy().into_owned()
    }
}

#[tokio::test]
async fn heads_edited_by_rules_are_shown_as_received_and_as_sent() {
    for edited in Edited::each().await {
        let flow: Value = serde_json::from_str(&edited.api("").await).unwrap();
        let has =
            |part: &Value, name: &str, value: &str| part["headers"].as_array().unwrap().contains(&json!([name, value]));
        assert!(has(&flow["request"], "X-Tag", "new") && has(&flow["original"]["request"], "X-Tag", "old"), "{flow}");
        assert!(has(&flow["response"], "Content-Type", "text/new"), "{flow}");
        assert!(has(&flow["original"]["response"], "Content-Type", "text/old"), "{flow}");
        let size = edited.body.len();
        assert_eq!(flow["original"]["request"]["body"], json!({"size": size, "kept": size}));
    }
}

#[tokio::test]
async fn bodies_edited_by_rules_are_returned_as_received_and_as_sent() {
    for edited in Edited::each().await {
        for (side, came, went) in edited.bodies() {
            assert_eq!(edited.api(&format!("/{side}/body?original=true")).await, came, "{side}");
            let text = edited.api(&format!("/{side}/body?original=true&view=text")).await;
            assert_eq!(text.len(), came.len(), "{side}");
            assert_eq!(edited.api(&format!("/{side}/body")).await, went, "{side}");
        }
    }
}

#[tokio::test]
async fn commands_show_edited_messages_as_received_and_as_sent() {
    for Edited { home, id, .. } in &Edited::each().await {
        let (sent, came) = (home.run(&["flows", "show", id]).out, home.run(&["flows", "show", id, "--original"]).out);
        assert!(
            sent.contains("X-Tag: new") && sent.contains("the request with its body, the response with its body"),
            "{sent}"
        );
        assert!(came.contains("X-Tag: old") && came.contains("Content-Type: text/old"), "{came}");
    }
}

#[tokio::test]
async fn commands_show_edited_bodies_as_received_and_as_sent() {
    for edited in Edited::each().await {
        let show = |words: &[&str]| edited.home.run(&[&["flows", "show", &edited.id, "--body"], words].concat()).out;
        for (side, came, went) in edited.bodies() {
            assert_eq!(show(&[side, "--original"]), came, "{side}");
            assert_eq!(show(&[side]), went, "{side}");
        }
        let checked = edited.home.run(&["flows", "check"]);
        assert!(checked.code == 0, "{checked:?}");
    }
}

#[tokio::test]
async fn originals_are_exported_only_on_request() {
    let edited = Edited::with("the alpha").await;
    assert!(!edited.exported(&[]).contains("alpha"));
    assert!(edited.exported(&["--originals"]).contains("alpha"));
    let har = edited.home.run(&["flows", "export", "--format", "har", "--originals"]);
    assert!(har.code == 2 && har.err.contains("--originals requires the format jsonl"), "{har:?}");
}

#[tokio::test]
async fn exported_originals_are_imported() {
    let edited = Edited::with("the alpha").await;
    edited.exported(&["--originals"]);
    let other = Home::new().await;
    assert_eq!(other.run(&["flows", "import", &edited.archive()]).code, 0);
    for (side, came, _) in edited.bodies() {
        let shown = other.run(&["flows", "show", &edited.id, "--original", "--body", side]);
        assert_eq!(shown.out, came, "{side}: {}", shown.err);
    }
}

#[tokio::test]
async fn unedited_messages_are_recorded_once() {
    let home = Home::new().await;
    let running = home.start(&home.write("r.yaml", EDITS));
    assert_eq!(post(&running, &home.origin.url("/same"), "", "the alpha").await.status, 200);
    assert_eq!(running.get(&home.origin.url("/bytes/5")).await.status, 200);
    let api = api(&home, &running);
    for id in flows(&home, "", 2).await {
        let flow = api.ask("GET", &format!("/api/v1/flows/{id}"), "").await.text();
        assert!(!flow.contains("\"original\"") && !flow.contains("\"edited\""), "{flow}");
        let original = api.ask("GET", &format!("/api/v1/flows/{id}/request/body?original=true"), "").await;
        assert!(original.status == 404 && original.text().contains("was not edited"), "{}", original.text());
        let said = home.run(&["flows", "show", &id, "--original"]);
        assert!(said.code == 1 && said.err.contains("has no original"), "{said:?}");
    }
}

#[tokio::test]
async fn recorded_originals_do_not_contain_redacted_values() {
    const SSN: &str = "536-22-8726";
    let home = Home::new().await;
    let rules = home.write(
        "r.yaml",
        "rules:\n- when: 'path:/v1/*'\n  then:\n  - {set_request_header: {X-Tag: new}}\n  - {edit_request_body: {find: alpha, with: beta}}\n  - {set_response_header: {X-Back: '1'}}\n",
    );
    let config = home.write("config.toml", "[redact]\nproxied = \"redact\"\n\n[record]\ncompress = false\n");
    let running = home.start_with(&["--rules", &rules, "--config", &config]);
    let body = json!({"model": "m", "messages": [{"role": "user", "content": format!("alpha, my SSN is {SSN}")}]});
    post(&running, &home.origin.url("/v1/chat/completions"), "Content-Type: application/json\r\n", &body.to_string())
        .await;
    let sent = home.origin.requests().pop().unwrap();
    let sent_body = String::from_utf8_lossy(&sent.body).into_owned();
    assert!(
        sent.header("x-tag") == Some("new") && sent_body.contains("beta") && !sent_body.contains(SSN),
        "{sent_body}"
    );
    let id = flows(&home, "tag:redacted", 1).await.remove(0);
    let flow = home.run(&["flows", "show", &id, "--format", "json"]).out;
    assert!(!flow.contains("\"original\""), "{flow}");
    assert!(
        recorded(&home, "chat/completions") && !recorded(&home, SSN),
        "the recording holds what redaction took out"
    );
}

#[tokio::test]
async fn recorded_originals_do_not_contain_injected_secrets() {
    const REAL: &str = "real-secret-9f8e7d6c5b4a";
    let home = Home::new().await;
    let rules = home.write("r.yaml", EDITS);
    let config = home.write("config.toml", "[record]\ncompress = false\n");
    let running = home.start_with(&["--rules", &rules, "--config", &config]);
    let hosts = [home.origin.url("")];
    let secret = json!({"label": "api", "value": REAL, "hosts": hosts}).to_string();
    let made = api(&home, &running).ask("POST", "/api/v1/secrets", &secret).await.text();
    let made: Value = serde_json::from_str(&made).unwrap();
    let placeholder = made["placeholder"].as_str().unwrap_or_else(|| panic!("{made}"));
    let got = post(&running, &home.origin.url("/echo"), "", &format!("alpha {placeholder}")).await.text();
    assert_eq!(got, format!("gamma {placeholder}"));
    let sent = home.origin.requests().pop().unwrap();
    assert_eq!(sent.body, format!("beta {REAL}").as_bytes());
    let id = flows(&home, "tag:edited", 1).await.remove(0);
    let original = |side: &str| home.run(&["flows", "show", &id, "--original", "--body", side]).out;
    assert_eq!(
        (original("request"), original("response")),
        (format!("alpha {placeholder}"), format!("beta {placeholder}"))
    );
    assert!(recorded(&home, placeholder) && !recorded(&home, REAL), "the recording holds the secret");
}
