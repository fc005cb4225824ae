//! Upstream selection: model aliases, fallbacks that receive neither another upstream's credentials nor unsuitable
//! requests, and keys limited to some models.

use interflow_testkit::{Origin, Reply, Request};
use serde_json::{Value, json};

use crate::instance::Home;
use crate::{CHAT, code};

const SSN: &str = "123-45-6789";

/// A provider that always fails, and one that always succeeds.
async fn failing_and_good() -> (Origin, Origin) {
    let failing = Origin::http().answering(|_| Reply::status(500).body("{}")).start().await;
    let good = Origin::http().answering(|_| Reply::json(&json!({"choices": []}))).start().await;
    (failing, good)
}

#[tokio::test]
async fn model_alias_is_written_where_the_provider_expects_it() {
    let home = Home::new().await;
    let provider = Origin::http().answering(|_| Reply::json(&json!({}))).start().await;
    let names = ["openai", "gemini", "vertex", "azure"];
    let upstreams: String =
        names.map(|n| format!("[llm.provider.{n}]\nurl = \"{}\"\nATTEMPTS", provider.url(""))).concat();
    let bedrock = format!(
        "[llm.provider.bedrock]\nurl = \"{}\"\naccess_key = \"A\"\nsecret_key = \"s\"\nATTEMPTS",
        provider.url("")
    );
    let aliases = "[llm.aliases]\nfast = \"gpt-5-mini\"\ngem = \"gemini-2.5-flash\"\nneb = \"amazon.nova:0\"\n";
    for attempts in ["", "attempts = 2\n"] {
        let running = home.start(&format!("{aliases}{upstreams}{bedrock}").replace("ATTEMPTS", attempts));
        for (path, body, arrives) in [
            ("/openai/v1/chat/completions", r#"{"model":"fast"}"#, r#"{"model":"gpt-5-mini"}"#),
            ("/gemini/v1beta/models/gem:generateContent", r#"{"model":"fast"}"#, "/v1beta/models/gemini-2.5-flash:"),
            (
                "/vertex/v1/projects/p/locations/l/publishers/google/models/gem:streamGenerateContent?alt=sse",
                "{}",
                "/publishers/google/models/gemini-2.5-flash:streamGenerateContent?alt=sse",
            ),
            (
                "/azure/openai/deployments/fast/chat/completions",
                "{}",
                "/openai/deployments/gpt-5-mini/chat/completions",
            ),
            ("/bedrock/model/neb/converse", "{}", "/model/amazon.nova%3A0/converse"),
        ] {
            assert_eq!(running.post(path, "", body).await.status, 200, "{path}");
            let seen = provider.requests().pop().unwrap();
            let there = format!("{} {}", seen.target, String::from_utf8_lossy(&seen.body));
            assert!(there.contains(arrives), "{path} {attempts}: {there}");
        }
        running.stop();
    }
}

#[tokio::test]
async fn fallback_on_another_host_does_not_get_the_first_upstreams_credentials() {
    let home = Home::new().await;
    let (failing, good) = failing_and_good().await;
    let running = home.start(&format!(
        "[keys.provider]\nopenai = \"sk-real\"\n[llm.provider.openai]\nurl = \"{0}\"\nfallback = [\"beside\", \"other\"]\n\
         [llm.provider.beside]\nurl = \"{0}/v2\"\n[llm.provider.other]\nurl = \"{1}\"\n",
        failing.url(""),
        good.url("")
    ));
    let key = home.keys(&["add"]).ok().trim().to_owned();
    running
        .until(async || {
            let fields = format!("Authorization: Bearer {key}\r\n");
            running.post("/openai/v1/chat/completions", &fields, CHAT).await.status == 200
        })
        .await;
    let own = running.post("/openai/v1/chat/completions?key=sk-own", "Authorization: Bearer sk-own\r\n", CHAT).await;
    assert_eq!(own.status, 200);
    let (first, second) = (format!("{:?}", failing.requests()), format!("{:?}", good.requests()));
    assert!(first.contains("/v2/v1/chat") && first.contains("sk-real") && first.contains("sk-own"), "{first}");
    assert!(!second.contains("sk-real") && !second.contains("sk-own"), "{second}");
    running.stop();
}

#[tokio::test]
async fn redaction_exemption_of_an_upstream_does_not_apply_to_its_fallbacks() {
    for (exempt, answered) in [("mode = \"off\"", 200), ("mode = \"flag\"", 200), ("policy = \"lax.toml\"", 500)] {
        let home = Home::new().await;
        std::fs::write(home.dir.path().join("lax.toml"), "kinds = [\"email-address\"]\n").unwrap();
        let (failing, good) = failing_and_good().await;
        let running = home.start(&format!(
            "[[redact.route]]\nupstream = \"local\"\n{exempt}\n[llm.provider.local]\nurl = \"{}\"\nfallback = [\"openai\"]\n\
             [llm.provider.openai]\nurl = \"{}\"\n",
            failing.url(""),
            good.url("")
        ));
        let ask = CHAT.replace("hello", SSN);
        let answer = running.post("/local/v1/chat/completions", "", &ask).await;
        assert_eq!(answer.status, answered, "{exempt}: {answer:?}");
        assert!(!format!("{:?}", good.requests()).contains(SSN), "{exempt}");
        running.stop();
    }
}

fn lists(request: &Request) -> Reply {
    Reply::json(&match request.path() {
        "/v1beta/models" => json!({"models": [{"name": "models/gemini-2.5-pro"}, {"name": "models/gemini-2.5-flash"}]}),
        "/api/tags" => json!({"models": [{"name": "qwen:1b", "model": "qwen:1b"}, {"name": "gpt-4o:8b"}]}),
        "/v1/models" => json!({"data": [{"id": "o3"}, {"id": "gpt-4o"}, {"id": "claude-opus-4"}], "first_id": "o3"}),
        _ => json!({}),
    })
}

#[tokio::test]
async fn model_restricted_key_can_list_and_use_only_its_models() {
    let home = Home::new().await;
    let provider = Origin::http().answering(lists).start().await;
    let names = ["openai", "anthropic", "gemini", "azure", "ollama"];
    let upstreams = names.map(|n| format!("[llm.provider.{n}]\nurl = \"{}\"\napi_key = \"sk\"\n", provider.url("")));
    let key = home.keys(&["add", "--model", "gpt-4o*", "--model", "gemini-2.5-flash"]).ok().trim().to_owned();
    let running = home.start(&upstreams.concat());
    let fields = format!("Authorization: Bearer {key}\r\n");
    for (path, member, seen) in [
        ("/openai/v1/models", "data", json!([{"id": "gpt-4o"}])),
        ("/v1/models", "data", json!([{"id": "gpt-4o"}])),
        ("/anthropic/v1/models", "data", json!([{"id": "gpt-4o"}])),
        ("/gemini/v1beta/models?pageSize=9", "models", json!([{"name": "models/gemini-2.5-flash"}])),
        ("/ollama/api/tags", "models", json!([{"name": "gpt-4o:8b"}])),
    ] {
        let told: Value = running.ask("GET", path, &fields, "").await.json();
        assert_eq!(told[member], seen, "{path}: {told}");
    }
    for (path, status) in [("/openai/v1/models/gpt-4o", 200), ("/openai/v1/models/o3", 403)] {
        assert_eq!(running.ask("GET", path, &fields, "").await.status, status, "{path}");
    }
    // The provider is selected by path; so is the model list.
    for (path, model, status) in [
        ("/gemini/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-flash", 403),
        ("/gemini/v1beta/models/gemini-2.5-flash:generateContent", "gemini-2.5-pro", 200),
        ("/azure/openai/deployments/dear/chat/completions", "gpt-4o", 403),
    ] {
        let answer = running.post(path, &fields, &json!({"model": model, "contents": []}).to_string()).await;
        assert_eq!(answer.status, status, "{path}: {answer:?}");
    }
    let in_query = format!("/gemini/v1beta/models/gemini-2.5-flash:generateContent?key={key}");
    assert_eq!(running.post(&in_query, "", "{}").await.status, 200);
    assert!(!format!("{:?}", provider.requests()).contains(&key));
    let page = running.post("/openai/v1/chat/completions", &fields, r#"{"model":"o3"}"#).await;
    assert_eq!((page.status, code(&page).as_str()), (403, "scope_denied_model"));
    running.stop();
}
