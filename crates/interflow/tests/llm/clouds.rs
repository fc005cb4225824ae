//! Cloud upstreams: ambient credentials, and the errors if there are none.

use interflow_testkit::{Origin, Reply, Request};
use serde_json::json;

use crate::code;
use crate::instance::Home;

const VERTEX: &str = "/v1/projects/p/locations/l/publishers/google/models/m:generateContent";

/// Fake metadata services of all clouds on one address.
fn metadata(request: &Request) -> Reply {
    let keys = json!({"AccessKeyId": "ASIAPOD", "SecretAccessKey": "pod-secret", "Token": "pod-session"});
    match request.path() {
        "/pod" if request.header("authorization") == Some("pod-proof") => Reply::json(&keys),
        "/msi/token" => Reply::json(&json!({"access_token": "azure-token", "expires_in": "3600"})),
        path if path.ends_with("/default/token") => {
            Reply::json(&json!({"access_token": "google-token", "expires_in": 3600}))
        }
        _ => Reply::status(404),
    }
}

#[tokio::test]
async fn ambient_cloud_credentials_are_added_and_fetched_once() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::json(&json!({}))).start().await;
    let near = Origin::http().answering(metadata).start().await;
    let upstreams = ["bedrock", "azure", "vertex"]
        .map(|name| format!("[llm.provider.{name}]\nurl = \"{}\"\ncredentials = \"ambient\"\n", provider.url("")));
    let (pod, msi) = (near.url("/pod"), near.url("/msi/token"));
    let set = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", pod.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod-proof"),
        ("IDENTITY_ENDPOINT", &msi),
        ("IDENTITY_HEADER", "h"),
        ("GCE_METADATA_HOST", &near.authority()),
    ];
    let running = home.start_with_variables(&upstreams.concat(), &set);
    for (path, starts) in [
        ("/model/m/converse", "AWS4-HMAC-SHA256 Credential=ASIAPOD/"),
        ("/openai/deployments/d/chat/completions", "Bearer azure-token"),
        (VERTEX, "Bearer google-token"),
    ] {
        for _ in 0..2 {
            let answer = running.post(path, "Authorization: Bearer of-the-client\r\n", "{}").await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            let seen = provider.requests().pop().unwrap();
            assert!(seen.header("authorization").unwrap().starts_with(starts), "{path}: {seen:?}");
        }
    }
    let session: Vec<_> =
        provider.requests().iter().filter_map(|r| r.header("x-amz-security-token").map(str::to_owned)).collect();
    assert_eq!(session, ["pod-session", "pod-session"]);
    assert_eq!(near.served(), 3, "each is kept");
    running.stop();
    let kept = home.say(&["flows", "export", "--format", "har"]).ok();
    assert!(kept.contains("/model/m/converse"), "the requests themselves are there");
    for hidden in [near.authority().as_str(), "azure-token", "pod-secret"] {
        assert!(!kept.contains(hidden), "{hidden}: {kept}");
    }
}

#[tokio::test]
async fn metadata_requests_bypass_filter_and_proxy_and_refusals_are_reported() {
    let home = Home::new().await;
    let near = Origin::http().answering(|_| Reply::status(403).body("secret-of-metadata")).start().await;
    let nobody = Origin::nobody().await;
    let config = format!(
        "[access]\ndeny_private = true\n[[upstream.proxy]]\nhosts = [\"*\"]\nvia = [\"http://{nobody}\"]\n[llm.provider.bedrock]\ncredentials = \"ambient\"\n"
    );
    let running = home.start_with_variables(&config, &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", &near.url("/pod"))]);
    let answer = running.post("/model/m/converse", "", "{}").await;
    assert_eq!(near.served(), 1, "{answer:?}");
    let text = answer.text();
    assert_eq!(answer.status, 502, "{text}");
    assert!(text.contains("bedrock_auth_failed") && text.contains("403") && !text.contains("secret-of"), "{text}");
    // No other client may reach the same address.
    let path = format!("/ollama{}", "/api/chat");
    assert_eq!(running.post(&path, "", "{}").await.status, 403);
    running.stop();
}

#[tokio::test]
async fn an_unconfigured_cloud_reports_which_keys_to_set() {
    let home = Home::new().await;
    let nobody = Origin::nobody().await;
    // Nothing listens at the upstream address.
    let config = format!(
        "[[upstream.proxy]]\nhosts = [\"*\"]\nvia = [\"http://{nobody}\"]\n[llm.provider.openai]\nattempts = 1\n"
    );
    let running = home.start_with_variables(&config, &[]);
    for (path, said, key) in [
        ("/model/m/converse", "bedrock_disabled", "llm.provider.bedrock.access_key"),
        ("/bedrock/model/m/converse-stream", "bedrock_disabled", "ambient"),
        ("/openai/deployments/d/chat/completions", "azure_disabled", "llm.provider.azure.url"),
        (VERTEX, "vertex_disabled", "llm.provider.vertex.service_account"),
    ] {
        let answer = running.post(path, "", "{}").await;
        let text = answer.text();
        assert_eq!(answer.status, 404, "{path}: {text}");
        assert!(text.contains(said) && text.contains(key), "{path}: {text}");
        assert_eq!(answer.header("x-interflow-error"), Some(said));
    }
    // Requests with their own credentials are forwarded.
    let own = running.post(VERTEX, "Authorization: Bearer ya29.own\r\n", "{}").await;
    assert_eq!((own.status, code(&own).as_str()), (502, ""), "{own:?}");
    let signed = "Authorization: AWS4-HMAC-SHA256 Credential=AKIA/20250101/us-east-1/bedrock/aws4_request\r\n";
    let answer = running.post("/model/m/converse", signed, "{}").await;
    assert!(answer.text().contains("bedrock_sign_failed"), "its signature is for another host: {answer:?}");
    running.stop();
}
