//! Services over TLS: the middleware protocol at `wss://`, and messages posted to `https://`.

use std::sync::Arc;

use base64::Engine as _;
use futures_util::{SinkExt, StreamExt};
use interflow_testkit::{Origin, Reply, TestCa, Wire};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::Message;

use crate::default_rules_file::{Home, until};

/// A middleware behind TLS that tags each request and sends a greeting `until` its connection is closed.
async fn middleware(ca: &Arc<TestCa>) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ca.server(&["localhost"], &["http/1.1"]);
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let tls = Arc::clone(&tls);
            tokio::spawn(async move {
                let Ok(wire) = Wire::new(tcp).accept_tls(tls).await else { return };
                let Ok(mut ws) = tokio_tungstenite::accept_async(wire.patience(None)).await else { return };
                while let Some(Ok(Message::Text(text))) = ws.next().await {
                    let message: Value = serde_json::from_str(&text).unwrap();
                    let back = match message["type"].as_str() {
                        Some("hello") => json!({"type": "hello", "name": "far", "hooks": [{"type": "http-request"}]}),
                        _ if message["uri"] == "/die" => return,
                        _ => {
                            json!({"type": "decision", "id": message["id"], "action": "rewrite", "headers": {"X-Far": ["1"]}})
                        }
                    };
                    if ws.send(Message::text(back.to_string())).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_middleware_uses_verified_tls_and_its_failure_mode_is_configurable() {
    let home = Home::new().await;
    let ca = Arc::new(TestCa::new());
    let port = middleware(&ca).await;
    let pem = home.write("services.pem", ca.pem());
    let config = home.write("trusting.toml", &format!("[upstream]\nextra_ca = ['{pem}']\n"));
    for (on_failure, dead) in [("deny", 403), ("pass", 200)] {
        let rules = home.write(
            "r.yaml",
            &format!(
                "services: {{far: {{url: 'wss://localhost:{port}/mw', timeout: 5s, on_failure: {on_failure}}}}}\nrules: [{{then: {{call: far}}}}]"
            ),
        );
        let running = home.start_with(&["--config", &config, "--rules", &rules]);
        assert_eq!(running.get(&home.origin.url("/bytes/1")).await.status, 200);
        assert_eq!(home.origin.requests().last().unwrap().header("x-far"), Some("1"));
        assert_eq!(running.get(&home.origin.url("/die")).await.status, dead, "{on_failure}");
        // Interflow reconnects.
        until("the service again", async || {
            running.get(&home.origin.url("/bytes/1")).await.status == 200
                && home.origin.requests().last().unwrap().header("x-far") == Some("1")
        })
        .await;
    }
    // A service with an untrusted certificate is not used.
    let rules = home.write(
        "r.yaml",
        &format!(
            "services: {{far: {{url: 'wss://localhost:{port}/mw', timeout: 2s}}}}\nrules: [{{then: {{call: far}}}}]"
        ),
    );
    let running = home.start(&rules);
    assert_eq!(running.get(&home.origin.url("/bytes/1")).await.status, 403);
    assert!(home.log_has("certificate"));
}

#[tokio::test]
async fn messages_are_posted_over_verified_tls() {
    let home = Home::new().await;
    let service = Origin::https()
        .names(&["localhost"])
        .answering(|_| {
            let body = base64::engine::general_purpose::STANDARD.encode("by post");
            Reply::json(&json!({"action": "rewrite", "body": body}))
        })
        .start()
        .await;
    let pem = home.write("services.pem", service.ca().pem());
    let config = home.write("trusting.toml", &format!("[upstream]\nextra_ca = ['{pem}']\n"));
    let rules = home.write(
        "r.yaml",
        &format!(
            "services: {{far: {{post: 'https://localhost:{}/hook'}}}}\nrules: [{{when: 'path:/bytes', then: {{call: far}}}}]",
            service.port()
        ),
    );
    let running = home.start_with(&["--config", &config, "--rules", &rules]);
    assert_eq!(running.get(&home.origin.url("/bytes/3")).await.text(), "by post");
}
