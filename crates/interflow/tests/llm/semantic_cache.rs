//! The semantic cache: what is answered by meaning, for whom, and what never is. The embedding provider maps each text to
//! a direction that the test chooses.

use interflow_testkit::{Answer, Origin, Reply};
use serde_json::{Value, json};

use crate::instance::{Home, Running};

const PATH: &str = "/openai/v1/chat/completions";

/// Texts with the word "reset" are close to one another, those with "refund" too; with "broken" there is no answer.
async fn embeddings() -> Origin {
    Origin::http()
        .answering(|request| {
            let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
            let text = body["input"].as_str().unwrap_or_default();
            let small = text.len() as f64 / 1000.0;
            let vector = match text {
                text if text.contains("broken") => return Reply::status(500).body("no"),
                text if text.contains("reset") => json!([1.0, small, 0.0]),
                text if text.contains("refund") => json!([0.0, small, 1.0]),
                _ => json!([0.0, 1.0, 0.0]),
            };
            Reply::json(&json!({ "data": [{ "index": 0, "embedding": vector }], "model": body["model"] }))
        })
        .start()
        .await
}

fn config(home: &Home, embeddings: &Origin, more: &str) -> String {
    format!(
        "[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-real\"\n[llm.provider.embed]\nurl = \"{}\"\napi_key = \"sk-embed\"\n\
         [llm.cache]\nstore = \"memory\"\n[llm.cache.semantic]\nprovider = \"embed\"\nmodel = \"small\"\n{more}\n",
        home.provider.url(""),
        embeddings.url("")
    )
}

fn chat(text: &str) -> Value {
    json!({ "model": "gpt-4o", "messages": [
        { "role": "system", "content": "Be brief." }, { "role": "user", "content": text },
    ] })
}

async fn ask(running: &Running, fields: &str, body: &Value) -> Answer {
    running.post(PATH, fields, &body.to_string()).await
}

fn cached(answer: &Answer) -> (&str, bool) {
    (answer.header("x-interflow-cache").unwrap_or("none"), answer.header("x-interflow-cache-similarity").is_some())
}

async fn metric(running: &Running, name: &str) -> f64 {
    let page = running.admin("GET", "/metrics", "").await.text();
    page.lines().find_map(|line| line.strip_prefix(&format!("{name} "))).map_or(0.0, |n| n.parse().unwrap())
}

async fn stored(running: &Running, n: f64) {
    running.until(async || metric(running, "interflow_llm_cache_semantic_entries").await >= n).await;
}

#[tokio::test]
async fn a_question_that_means_the_same_is_answered_with_the_response_to_the_first() {
    let (home, embed) = (Home::new().await, embeddings().await);
    let running = home.start(&config(&home, &embed, ""));
    let first = ask(&running, "", &chat("How do I reset my password?")).await;
    assert_eq!((first.status, cached(&first)), (200, ("MISS", false)), "{}", first.text());
    stored(&running, 1.0).await;
    let asked = embed.only_request();
    assert_eq!((asked.path(), asked.header("authorization")), ("/v1/embeddings", Some("Bearer sk-embed")));
    let sent: Value = serde_json::from_slice(&asked.body).unwrap();
    assert_eq!(sent, json!({ "model": "small", "input": "How do I reset my password?" }), "the last text alone");
    let second = ask(&running, "", &chat("How can I get a password reset?")).await;
    assert_eq!(cached(&second), ("HIT", true));
    assert_eq!((second.body.clone(), home.provider.requests().len()), (first.body.clone(), 1));
    let similarity: f64 = second.header("x-interflow-cache-similarity").unwrap().parse().unwrap();
    assert!((0.99..=1.0).contains(&similarity), "{similarity}");
    // An equal request is found without a question to the embedding provider.
    assert_eq!(cached(&ask(&running, "", &chat("How do I reset my password?")).await), ("HIT", false));
    assert_eq!(embed.served(), 2);
    assert_eq!(cached(&ask(&running, "", &chat("Where is my refund?")).await), ("MISS", false));
    assert_eq!(metric(&running, "interflow_llm_cache_semantic_hits_total{similarity=\"0.99\"}").await, 1.0);
    let list = async || running.admin("GET", "/api/v1/flows?query=tag:cache:semantic", "").await.text();
    running.until(async || list().await.matches("\"cache:semantic\"").count() == 1).await;
    running.stop();
}

#[tokio::test]
async fn what_differs_beside_the_text_or_in_numbers_is_asked_anew() {
    let (home, embed) = (Home::new().await, embeddings().await);
    let running = home.start(&config(&home, &embed, ""));
    let question = "How do I reset 2 passwords?";
    assert_eq!(cached(&ask(&running, "", &chat(question)).await).0, "MISS");
    stored(&running, 1.0).await;
    let same = "How can I reset 2 passwords?";
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut body = chat(same);
        change(&mut body);
        body
    };
    let picture =
        json!([{ "type": "text", "text": same }, { "type": "image_url", "image_url": { "url": "https://a/b" } }]);
    let others = [
        chat("How can I reset 3 passwords?"),
        chat("How can I not reset 2 passwords?"),
        changed(&|body| body["model"] = "gpt-5".into()),
        changed(&|body| body["temperature"] = 1.into()),
        changed(&|body| body["messages"][0]["content"] = "Be verbose.".into()),
        changed(&|body| body["messages"][1]["content"] = picture.clone()),
        changed(&|body| {
            let turn = json!({ "role": "assistant", "content": "Which one?" });
            let last = body["messages"][1].clone();
            body["messages"] = json!([body["messages"][0], { "role": "user", "content": "Hi" }, turn, last]);
        }),
    ];
    for (i, body) in others.iter().enumerate() {
        assert_eq!(cached(&ask(&running, "", body).await), ("MISS", false), "{i}: {body}");
    }
    // Of another client, and one that wants no stored response.
    let key = "Authorization: Bearer of-another\r\n";
    assert_eq!(cached(&ask(&running, key, &chat(same)).await), ("MISS", false));
    assert_eq!(cached(&ask(&running, "Cache-Control: no-cache\r\n", &chat(same)).await), ("MISS", false));
    assert_eq!(cached(&ask(&running, "", &chat("How may I reset 2 passwords?")).await), ("HIT", true));
    assert_eq!(metric(&running, "interflow_llm_cache_semantic_guarded_total").await, 2.0);
    assert!(metric(&running, "interflow_llm_cache_semantic_ineligible_total").await >= 1.0);
    running.stop();
}

#[tokio::test]
async fn redacted_texts_are_never_compared_and_a_failing_provider_is_only_a_miss() {
    let (home, embed) = (Home::new().await, embeddings().await);
    let running = home.start(&config(&home, &embed, "guard = false\nthreshold = 0.5"));
    let secret = chat("How do I reset the password of anna.berg@firm.com?");
    assert_eq!(cached(&ask(&running, "", &secret).await).0, "MISS");
    for placeholder in ["EMAIL_vjqr2dzw", "EMAIL_kqz4mmw2"] {
        let again = chat(&format!("How do I reset the password of {placeholder}?"));
        assert_eq!(cached(&ask(&running, "", &again).await).0, "MISS");
    }
    assert_eq!(embed.served(), 0, "no embedding of a text with placeholders");
    for _ in 0..2 {
        let answer = ask(&running, "", &chat("reset of what is broken")).await;
        assert_eq!(answer.status, 200);
    }
    assert!(metric(&running, "interflow_llm_cache_semantic_errors_total").await >= 1.0);
    // Without the guard, numbers do not matter.
    assert_eq!(cached(&ask(&running, "", &chat("reset 2")).await).0, "MISS");
    stored(&running, 1.0).await;
    assert_eq!(cached(&ask(&running, "", &chat("reset 3")).await), ("HIT", true));
    running.stop();
}

#[tokio::test]
async fn a_slow_embedding_provider_does_not_delay_every_request() {
    let home = Home::new().await;
    let slow = Origin::http().answering(|_| Reply::ok("").delay(std::time::Duration::from_secs(600))).start().await;
    let running = home.start(&config(&home, &slow, "timeout = \"50ms\""));
    for text in ["one question", "another question", "a last question"] {
        assert_eq!(cached(&ask(&running, "", &chat(text)).await), ("MISS", false));
    }
    assert_eq!(metric(&running, "interflow_llm_cache_semantic_errors_total").await, 3.0);
    assert_eq!(slow.requests().len(), 1, "it is left alone after it took too long");
    running.stop();
}

/// The embedding provider is an upstream of the request like a fallback.
#[tokio::test]
async fn what_one_provider_may_read_is_redacted_for_the_embedding_provider() {
    let (home, embed) = (Home::new().await, embeddings().await);
    let trusted = format!(
        "[llm.provider.trusted]\nurl = \"{}\"\napi_key = \"k\"\n[[redact.route]]\nupstream = \"trusted\"\nmode = \"off\"\n",
        home.provider.url("")
    );
    let running = home.start(&format!("{}{trusted}", config(&home, &embed, "")));
    let secret = chat("How do I reset the password of anna.berg@firm.com?");
    let answer = running.post("/trusted/v1/chat/completions", "", &secret.to_string()).await;
    assert_eq!(cached(&answer).0, "MISS");
    let sent = String::from_utf8_lossy(&home.provider.only_request().body).into_owned();
    assert!(!sent.contains("anna.berg") && embed.served() == 0, "{sent}");
    running.stop();
}

#[tokio::test]
async fn a_semantic_cache_that_cannot_work_is_reported_at_startup() {
    let (home, embed) = (Home::new().await, embeddings().await);
    for (more, says) in [
        ("threshold = 0.2", "llm.cache.semantic.threshold: 0.2 is not between 0.5 and 1"),
        ("max_entries = 0", "llm.cache.semantic.max_entries"),
    ] {
        let said = home.refuses_to_start(&config(&home, &embed, more));
        assert!(said.contains(says), "{says}: {said}");
    }
    let unknown = config(&home, &embed, "").replace("provider = \"embed\"", "provider = \"nobody\"");
    assert!(home.refuses_to_start(&unknown).contains("llm.cache.semantic.provider: there is no provider `nobody`"));
}
