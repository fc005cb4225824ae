//! The page "Intercept": what clients need, the QR code, and browsers on this machine.

use interflow_admin::{MachineSetup, SetupFacts};
use serde_json::json;

use super::*;

/// A machine with one browser, which starts only under the name `works`.
pub fn machine() -> MachineSetup {
    let facts = SetupFacts {
        command: "interflow --data-dir /d".into(),
        run_command: "interflow --data-dir /d run -c /etc/i.toml".into(),
        proxy: "127.0.0.1:7070".parse().unwrap(),
        gateway: None,
        lan_proxy: Some("192.0.2.7:7070".parse().unwrap()),
        os: "linux".into(),
        ca_file: "/data/ca/ca.pem".into(),
        ca_bundle: "/data/trust/bundle.pem".into(),
        browsers: vec!["works".into(), "fails".into()],
    };
    MachineSetup {
        facts: Arc::new(move || Ok(facts.clone())),
        start_browser: Arc::new(|name| {
            Box::pin(async move { if name == "works" { Ok(()) } else { Err("it needs a display".to_owned()) } })
        }),
    }
}

#[tokio::test]
async fn the_setup_names_the_page_for_phones_and_draws_its_address() {
    let it = Instance::start().await;
    let setup = it.json("/setup").await;
    assert_eq!((&setup["phone_page"], &setup["local"]), (&json!("http://192.0.2.7:7070/setup"), &json!(true)));
    let code = it.get("/setup/qr").await;
    assert_eq!(code.header("content-type"), Some("image/svg+xml"));
    assert!(code.text().contains("<svg") && code.text().contains("<path"), "{}", code.text());
}

#[tokio::test]
async fn a_browser_is_started_by_the_name_of_an_installed_one_and_only_from_this_machine() {
    let it = Instance::start().await;
    assert_eq!(it.post("/browsers", json!({"browser": "works"})).await.status, 204);
    assert_eq!(it.post("/browsers", json!({})).await.status, 204, "the preferred one");
    let failed = it.post("/browsers", json!({"browser": "fails"})).await;
    assert!(failed.status == 422 && failed.text().contains("it needs a display"), "{}", failed.text());
    assert_eq!(it.post("/browsers", json!({"browser": "/bin/sh"})).await.status, 400);
    for field in ["X-Forwarded-For", "Forwarded", "Via"] {
        let fields = [("Content-Type", "application/json"), (field, "192.0.2.9")];
        let far = it.call("POST", "/browsers", &fields, b"{\"browser\":\"works\"}").await;
        assert!(far.status == 403 && far.text().contains("interflow browser"), "{}", far.text());
    }
    let unauthorised = [("Host", it.admin.to_string())];
    let fields: Vec<_> = unauthorised.iter().map(|(n, v)| (*n, v.as_str())).collect();
    assert_eq!(it.plain("POST", "/api/v1/browsers", &fields, b"{}").await.status, 401);
}
