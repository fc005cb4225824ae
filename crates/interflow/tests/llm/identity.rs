//! Client identity: the policy of a key, and clients behind a reverse proxy.

use interflow_testkit::{Answer, Origin, Reply};
use serde_json::{Value, json};

use crate::instance::{Home, Running};
use crate::{CHAT, code};

fn keys_file(home: &Home, text: &str) {
    std::fs::write(home.dir.path().join("keys.toml"), text).unwrap();
}

const TOLD: &str = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"about Bluebird"}]}"#;

async fn tell(running: &Running, key: &str) -> Answer {
    running.post("/v1/chat/completions", &format!("Authorization: Bearer {key}\r\n"), TOLD).await
}

#[tokio::test]
async fn virtual_key_selects_the_redaction_policy() {
    let home = Home::new().await;
    std::fs::write(home.dir.path().join("strict.toml"), "always = [\"Bluebird\"]\n").unwrap();
    let config = format!(
        "[redact.policies]\nstrict = \"strict.toml\"\n[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk\"\n",
        home.provider.url("")
    );
    home.write_config(&config);
    let file = home.dir.path().join("config.toml").display().to_string();
    let add = |words: &[&str]| home.say(&[&["-c", &file, "keys", "add"], words].concat());
    let nowhere = add(&["--id", "x", "--policy", "lenient"]).fails(2);
    assert!(nowhere.contains("no policy lenient in redact.policies"), "{nowhere}");
    let strict = add(&["--id", "ann", "--policy", "strict"]).ok().trim().to_owned();
    let plain = add(&["--id", "bob"]).ok().trim().to_owned();
    let running = home.start(&config);
    let arrived = || String::from_utf8_lossy(&home.provider.requests().last().unwrap().body).into_owned();
    assert_eq!(tell(&running, &strict).await.status, 200);
    assert!(!arrived().contains("Bluebird"), "{}", arrived());
    assert_eq!(tell(&running, &plain).await.status, 200);
    assert!(arrived().contains("Bluebird"), "{}", arrived());
    let filtered = running.ask("POST", "/api/filter", &format!("X-Api-Key: {strict}\r\n"), "of Bluebird").await;
    assert!(filtered.status == 200 && !filtered.text().contains("Bluebird"), "{}", filtered.text());
    // The file is edited to refer to a missing policy, and read again with the next change.
    keys_file(&home, &home.file("keys.toml").replace("\"strict\"", "\"gone\""));
    assert_eq!(running.admin("POST", "/api/v1/keys", r#"{"id":"eve"}"#).await.status, 200);
    let sent = home.provider.requests().len();
    let refused = tell(&running, &strict).await;
    assert_eq!((refused.status, code(&refused).as_str()), (500, "unknown_policy"), "{}", refused.text());
    assert_eq!(home.provider.requests().len(), sent, "nothing goes on without its policy");
    assert_eq!(tell(&running, &plain).await.status, 200);
    running.stop();
    let refused = home.refuses_to_start(&config);
    assert!(refused.contains("the key `ann` uses the policy `gone`, which is not in redact.policies"), "{refused}");
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_are_limited_and_recorded_by_their_own_addresses() {
    let home = Home::new().await;
    let running = home.start(&format!(
        "[gateway]\ntrusted_proxies = [\"127.0.0.1/32\"]\n[[quota.rule]]\nname = \"each\"\ncount_by = \"client\"\nallow = {{ requests = \"1/h\" }}\n[llm.provider.openai]\nurl = \"{}\"\n",
        home.provider.url("")
    ));
    for (from, status) in [("9.9.9.9", 200), ("8.8.8.8", 200), ("8.8.8.8, 9.9.9.9", 429), ("9.9.9.9, 7.7.7.7", 200)] {
        let fields = format!("X-Forwarded-For: {from}\r\nAuthorization: Bearer sk-own\r\n");
        assert_eq!(running.post("/v1/chat/completions", &fields, CHAT).await.status, status, "{from}");
    }
    running.stop();
    let recorded = home.say(&["flows", "list", "--format", "jsonl"]).ok();
    for client in ["9.9.9.9", "8.8.8.8", "7.7.7.7"] {
        assert!(recorded.contains(client), "{client}: {recorded}");
    }
}

#[tokio::test]
async fn remote_client_behind_a_local_trusted_proxy_is_not_treated_as_local() {
    let home = Home::new().await;
    let running = home.start(&format!(
        "[gateway]\ntrusted_proxies = [\"127.0.0.1/32\"]\n[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-gate\"\n",
        home.provider.url("")
    ));
    let remote = running.post("/v1/chat/completions", "X-Forwarded-For: 9.9.9.9\r\n", CHAT).await;
    assert_eq!((remote.status, code(&remote).as_str()), (401, "missing_api_key"));
    assert_eq!(running.post("/v1/chat/completions", "", CHAT).await.status, 200);
    running.stop();
}

#[tokio::test]
async fn a_key_works_once_the_command_that_creates_it_returns_and_no_longer_after_its_revocation() {
    let home = Home::new().await;
    let config = format!("[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk\"\n", home.provider.url(""));
    home.write_config(&config);
    let file = home.dir.path().join("config.toml").display().to_string();
    // With a key in the file, requests need one.
    home.say(&["-c", &file, "keys", "create", "--id", "first"]).ok();
    let running = home.start(&config);
    for i in 0..3 {
        let id = format!("k{i}");
        let key = home.say(&["-c", &file, "keys", "create", "--id", &id]).ok().trim().to_owned();
        assert_eq!(tell(&running, &key).await.status, 200, "{id}");
        home.say(&["-c", &file, "keys", "revoke", &id]).ok();
        assert_eq!(tell(&running, &key).await.status, 401, "{id}");
    }
    // An account that the owner of a key has connected at an MCP server goes with the key.
    let accounts = home.dir.path().join("mcp-accounts.json");
    let account = json!({ "user": "key:first", "server": "crm", "connected": u32::MAX, "sealed": "" });
    std::fs::write(&accounts, json!({ "grants": [account] }).to_string()).unwrap();
    home.say(&["-c", &file, "keys", "revoke", "first"]).ok();
    let is_kept = || std::fs::read_to_string(&accounts).unwrap().contains("key:first");
    for _ in 0..500 {
        if is_kept() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    }
    assert!(!is_kept());
    running.stop();
}

#[tokio::test]
async fn a_response_id_of_another_key_does_not_lead_to_its_originals() {
    let first = std::sync::Mutex::new(None::<String>);
    let provider = Origin::http()
        .answering(move |request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let said = body["input"].as_str().unwrap_or_default().to_owned();
            let text = first.lock().unwrap().get_or_insert(said).clone();
            let content = json!([{ "type": "output_text", "text": text }]);
            Reply::json(&json!({ "id": "resp_7", "object": "response", "model": "m", "status": "completed",
                "output": [{ "type": "message", "role": "assistant", "content": content }] }))
        })
        .start()
        .await;
    let home = Home::new().await;
    let keys = ["ann", "bob"].map(|id| home.keys(&["add", "--id", id, "--owner", "team"]).ok().trim().to_owned());
    let running =
        home.start(&format!("[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-real\"\n", provider.url("")));
    let send = async |fields: &str, input: &str, previous: Option<&str>| {
        let body = json!({ "model": "m", "input": input, "previous_response_id": previous }).to_string();
        running.post("/openai/v1/responses", fields, &body).await
    };
    let ask = async |fields: &str, input: &str, previous: Option<&str>| {
        let answer = send(fields, input, previous).await;
        answer.json()["output"][0]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    };
    let [ann, bob] = keys.each_ref().map(|key| format!("Authorization: Bearer {key}\r\n"));
    let said = "I am anna.berg@firm.com";
    assert_eq!(ask(&ann, said, None).await, said);
    running.until(async || ask(&ann, "who am I?", Some("resp_7")).await == said).await;
    let other = send(&bob, "who am I?", Some("resp_7")).await;
    assert_eq!((other.status, &other.json()["error"]["code"]), (404, &json!("previous_response_not_found")));
    // The same key in the field of another SDK.
    assert_eq!(ask(&format!("x-api-key: {}\r\n", keys[0]), "who am I?", Some("resp_7")).await, said);
    running.stop();
}
