//! Links with which users connect their accounts: of use once, to their user, and not to a reader of recordings.

use interflow_types::Timestamp;
use interflow_types::percent::encoded;
use serde_json::{Value, json};

use crate::accounts::{Browser, between, config, gate, key, keys, link_of, no_keys, start, who};
use crate::stateless::{ask_with, call, said};
use crate::{Gate, request};

/// The same link at another replica, or after a restart.
fn at(gate: &Gate, link: &str) -> String {
    format!("http://{}/mcp-accounts/link?token={}", gate.proxy.gateway(), token_of(link))
}

fn token_of(link: &str) -> &str {
    link.split("token=").nth(1).unwrap()
}

#[tokio::test]
async fn a_used_link_is_of_no_use_after_a_restart_or_at_another_replica() {
    let (folder, (origin, _rules)) = (tempfile::tempdir().unwrap(), start().await);
    let (file, keys) = (folder.path().join("accounts.json"), no_keys());
    let first = gate(&config(&origin, ""), &file, &keys).await;
    let replica = gate(&config(&origin, ""), &file, &keys).await;
    let [used, other] = [link_of(&first, &who(&first, "").await), link_of(&first, &who(&first, "").await)];
    // Accounts have times in seconds.
    let made = Timestamp::now().secs();
    while Timestamp::now().secs() == made {
        tokio::task::yield_now().await;
    }
    let mut browser = Browser::new(&first);
    let back = browser.allow(&used).await;
    assert_eq!(browser.send("GET", &back, "", "").await.status, 200);
    let restarted = gate(&config(&origin, ""), &file, &keys).await;
    for (gate, link) in [(&first, &used), (&first, &other), (&replica, &used), (&restarted, &used)] {
        let page = Browser::new(gate).send("GET", &at(gate, link), "", "").await;
        assert!(page.status == 410 && page.text().contains("was used"), "{}", page.text());
    }
    // A link for disconnecting leaves no account that is newer.
    assert_eq!(said(&who(&first, "").await), "access 2");
    assert!(first.service.remove_account("local", "crm").await.unwrap());
    let page = Browser::new(&restarted).send("GET", &at(&restarted, &used), "", "").await;
    assert_eq!(page.status, 410, "{}", page.text());
    // What was begun before is not finished after a restart, either.
    let link = link_of(&first, &who(&first, "").await);
    let mut browser = Browser::new(&first);
    let back = browser.allow(&link).await;
    let third = gate(&config(&origin, ""), &file, &keys).await;
    let mut other = Browser::new(&third);
    other.cookie =
        browser.cookie.replace(&first.proxy.gateway().port().to_string(), &third.proxy.gateway().port().to_string());
    let page = other
        .send("GET", &back.replace(&first.proxy.gateway().to_string(), &third.proxy.gateway().to_string()), "", "")
        .await;
    assert!(page.status == 400 && page.text().contains("has not begun"), "{}", page.text());
    assert!(first.service.accounts().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_recording_has_no_link_that_can_be_used() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let mut gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &no_keys()).await;
    let mut links = vec![link_of(&gate, &who(&gate, "").await)];
    gate.begin(json!({ "elicitation": { "url": {} } }), "").await;
    let body = gate.post(&request(7, "tools/call", &call("connect_account", json!({}))), "").await.json();
    let data = &body["error"]["data"]["elicitations"][0];
    links.push(data["url"].as_str().unwrap().to_owned());
    assert!(body["error"]["message"].as_str().unwrap().ends_with(&links[1]), "{body}");
    // As a text, once the account is connected.
    assert!(Browser::new(&gate).connect(&links[0]).await.contains("is connected"));
    let text = gate.call("connect_account", json!({})).await;
    links.push(text.split_whitespace().last().unwrap().to_owned());
    // On a stream, when a call needs more.
    assert_eq!(gate.names("tools/list", "tools").await, ["connect_account", "who"]);
    rules.lock().scope = "write";
    let mut params = call("who", json!({}));
    params["_meta"] = json!({ "progressToken": 1 });
    let message = gate.stream("POST", &request(8, "tools/call", &params).to_string()).await.next().await.unwrap();
    links.push(
        message["error"]["data"]["elicitations"][0]["url"].as_str().unwrap_or_else(|| panic!("{message}")).to_owned(),
    );
    let recorded = gate.recorded(6).await;
    for link in &links {
        assert!(token_of(link).len() > 100, "{link}");
        assert!(!recorded.contains(token_of(link)), "{link}: {recorded}");
    }
    assert_eq!(recorded.matches("/mcp-accounts/link?token=***").count(), 1 + 2 + 1 + 2, "{recorded}");
}

#[tokio::test]
async fn behind_a_reverse_proxy_no_client_is_a_user_of_this_machine() {
    let (folder, (origin, _rules)) = (tempfile::tempdir().unwrap(), start().await);
    let store = keys(folder.path(), &key("anna", ""));
    let gate = gate(&config(&origin, ""), &folder.path().join("accounts.json"), &store).await;
    let near = link_of(&gate, &who(&gate, "").await);
    assert!(Browser::new(&gate).connect(&near).await.contains("is connected"));
    let (can, near) = (json!({ "elicitation": { "url": {} } }), link_of_new(&gate, "").await);
    let annas = link_of(&gate, &who(&gate, "key-anna").await);
    for field in [
        "X-Forwarded-For: 192.0.2.1",
        "Forwarded: for=192.0.2.1",
        "X-Real-IP: 127.0.0.1",
        "Via: 1.1 proxy",
        "X-Forwarded-Host: a.test",
    ] {
        let field = format!("{field}\r\n");
        let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &can, &field).await.json();
        assert!(
            answer["error"]["message"].as_str().is_some_and(|text| text.contains("nothing says who this is")),
            "{answer}"
        );
        // Somebody elsewhere who has a link still has to show the key, or has to be here.
        for (link, why) in [(&near, "on the machine of the gateway"), (&annas, "not the key of the link")] {
            let mut browser = Browser::new(&gate);
            let page = browser.send("GET", link, &field, "").await.text();
            let form = format!(
                "token={}&action=connect&key=key-bob",
                encoded(&between(&page, "name=\"token\" value=\"", "\""))
            );
            let base = link.split("/mcp-accounts").next().unwrap();
            let page = browser
                .send("POST", &format!("{base}/mcp-accounts/link"), &format!("Origin: {base}\r\n{field}"), &form)
                .await;
            assert!(page.status == 403 && page.text().contains(why), "{}", page.text());
        }
    }
    // A session that was begun here is not used from elsewhere.
    let mut gate = gate;
    gate.begin(json!({}), "").await;
    let answer = gate.post(&request(7, "tools/list", &json!({})), "X-Forwarded-For: 192.0.2.1\r\n").await;
    assert_eq!(answer.status, 404, "{}", answer.text());
    assert_eq!(gate.names("tools/list", "tools").await, ["connect_account", "who"]);
}

/// A link that the tool gives.
async fn link_of_new(gate: &Gate, fields: &str) -> String {
    let answer = ask_with(gate, "tools/call", &call("connect_account", json!({})), &json!({}), fields).await.json();
    said(&answer["result"]).split_whitespace().last().unwrap().to_owned()
}

#[tokio::test]
async fn many_scopes_are_asked_for_and_too_many_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let tried = async |scopes: Vec<String>| {
        let (origin, rules) = start().await;
        let named = Value::from(scopes).to_string();
        let config =
            config(&origin, "").replace("'authorization_code'", &format!("'authorization_code', scopes = {named}"));
        let gate = gate(&config, &folder.path().join("accounts.json"), &no_keys()).await;
        let link = link_of(&gate, &who(&gate, "").await);
        let page =
            Browser::new(&gate).fill_in(&link, "action=connect", link.split("/mcp-accounts").next().unwrap()).await;
        if page.status != 200 {
            return page.text();
        }
        assert!(Browser::new(&gate).connect(&link_of(&gate, &who(&gate, "").await)).await.contains("is connected"));
        let scopes = rules.lock().tokens.values().next().unwrap().clone();
        gate.service.remove_account("local", "crm").await.unwrap();
        scopes
    };
    let many: Vec<_> = (0..120).map(|n| format!("https://www.example.com/auth/product-{n}.readonly")).collect();
    let granted = tried(many.clone()).await;
    assert!(many.iter().all(|scope| granted.split(' ').any(|own| own == scope)), "{granted}");
    let page = tried((0..120).map(|_| interflow_types::random_token()).collect()).await;
    assert!(page.contains("the operator has to name those") && page.contains("mcp.server.crm.oauth.scopes"), "{page}");
}
