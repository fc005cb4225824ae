//! Paths that a request must not reach: those without a model for a key that is restricted to models, and those that the
//! name of a model would make of another.

use crate::instance::Home;

#[tokio::test]
async fn a_key_for_models_reaches_no_path_that_names_none() {
    let home = Home::new().await;
    let add = |id: &str, more: &[&str]| home.keys(&[&["add", "--id", id, "--model", "fake-small"], more].concat()).ok();
    let (narrow, wide) = (add("narrow", &[]), add("wide", &["--path", "/v1/files*", "--path", "/v1/chat/*"]));
    let url = home.provider.url("");
    let config = format!(
        "[keys]\nrequire_virtual_key = true\n[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-real\"\n",
        url.trim_end_matches('/')
    );
    let running = home.start(&config);
    let of = |key: &str| format!("Authorization: Bearer {}\r\n", key.trim());
    for (method, path) in [
        ("GET", "/openai/v1/files"),
        ("GET", "/openai/v1/files/file-1/content"),
        ("DELETE", "/openai/v1/files/file-1"),
        ("GET", "/openai/v1/responses/resp_1"),
        ("GET", "/openai/v1/organization/admin_api_keys"),
        ("DELETE", "/openai/v1/models/fake-small"),
        ("GET", "/openai/v1/models/fake-large"),
        ("POST", "/openai/v1/responses/resp_1/cancel"),
    ] {
        let answer = running.ask(method, path, &of(&narrow), "").await;
        assert_eq!(answer.status, 403, "{method} {path}: {answer:?}");
    }
    assert!(home.provider.requests().is_empty());
    let list = running.ask("GET", "/openai/v1/models", &of(&narrow), "").await;
    assert_eq!(list.json()["data"].as_array().unwrap().len(), 1, "{list:?}");
    // The provider of this test has no files.
    assert_eq!(running.ask("GET", "/openai/v1/files", &of(&wide), "").await.status, 404);
    assert_eq!(running.ask("GET", "/openai/v1/responses/resp_1", &of(&wide), "").await.status, 403);
    running.stop();
}

#[tokio::test]
async fn names_of_models_that_would_change_the_path_are_refused() {
    let home = Home::new().await;
    let url = home.provider.url("");
    let url = url.trim_end_matches('/');
    let config = format!(
        "[llm.provider.bed]\nkind = \"bedrock\"\nurl = \"{url}\"\naccess_key = \"A\"\nsecret_key = \"s\"\n\
         [llm.provider.google]\nkind = \"gemini\"\nurl = \"{url}\"\napi_key = \"k\"\n\
         [llm.provider.blue]\nkind = \"azure\"\nurl = \"{url}\"\napi_key = \"k\"\napi_version = \"2024-10-21\"\n\
         [llm.provider.openai]\nurl = \"{url}\"\napi_key = \"k\"\nfallback = [\"blue\"]\n"
    );
    let running = home.start(&config);
    for upstream in ["bed", "google"] {
        for model in ["..", ".", "", "a/../b", "../x", "a//b", "/a", "a/", "a\\\\..\\\\b"] {
            let body = format!("{{\"model\":\"{model}\",\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}]}}");
            let answer = running.post(&format!("/{upstream}/v1/chat/completions"), "", &body).await;
            assert_eq!(answer.status, 400, "{upstream} {model}: {answer:?}");
        }
    }
    for path in [
        "/bed/model/%2E%2E/converse",
        "/bed/model/..%2Fx/converse",
        "/bed/model/a%2F..%2Fb/converse",
        "/bed/model/%2e/invoke",
        "/google/v1beta/models/..:generateContent",
        "/google/v1beta/models/x%2F..%2Fy:generateContent",
        "/blue/openai/deployments/%2e%2E%2Fa/chat/completions",
    ] {
        let answer = running.post(path, "", r#"{"messages":[{"role":"user","content":"x"}]}"#).await;
        assert_eq!(answer.status, 400, "{path}: {answer:?}");
    }
    assert!(home.provider.requests().is_empty());
    let arn =
        r#"{"model":"arn:aws:bedrock:us-east-1:1:inference-profile/x","messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(running.post("/bed/v1/chat/completions", "", arn).await.status, 200);
    running.stop();
}
