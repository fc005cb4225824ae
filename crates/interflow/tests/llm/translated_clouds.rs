//! What the clouds' APIs have of their own, reached by clients of other formats: Claude on Vertex AI, thought signatures
//! of Gemini, cache points of Bedrock, and counts of tokens.

use interflow_testkit::llm::CALL_SIGNATURE;
use interflow_testkit::{Answer, Origin, Reply};
use serde_json::{Value, json};

use crate::instance::{Home, Running};
use crate::translated_replies::Client::{self, Anthropic, Chat, Converse, Gemini, Interactions, Responses};
use crate::translated_replies::gemini as gemini_chunks;

async fn ask(running: &Running, upstream: &str, client: Client, body: &Value) -> Answer {
    let fields = if client == Anthropic { "anthropic-version: 2023-06-01\r\n" } else { "" };
    running.post(&format!("/{upstream}{}", client.path(false)), fields, &body.to_string()).await
}

/// Path and body of the last request that the provider got.
fn sent(home: &Home) -> (String, Value) {
    let request = home.provider.requests().pop().unwrap();
    (request.target.clone(), serde_json::from_slice(&request.body).unwrap())
}

fn cached() -> Value {
    json!({ "type": "ephemeral" })
}

/// A request of Anthropic's API with all that only this API has.
fn claude(stream: bool) -> Value {
    json!({
        "model": "claude-opus-4-5@20251101", "max_tokens": 100, "stream": stream, "top_k": 7,
        "system": [{ "type": "text", "text": "Be brief.", "cache_control": cached() }],
        "messages": [{ "role": "user", "content": [{ "type": "text", "text": "Hello", "cache_control": cached() }] }],
    })
}

#[tokio::test]
async fn claude_on_vertex_gets_the_clients_request_and_ambient_credentials() {
    let home = Home::new().await;
    let google = Origin::http()
        .answering(|_| Reply::json(&json!({ "access_token": "google-token", "expires_in": 3600 })))
        .start()
        .await;
    let url = home.provider.url("/~strict=1");
    let config = format!(
        "[llm.provider.vertex]\nurl = \"{url}\"\ncredentials = \"ambient\"\nproject = \"p\"\nregion = \"europe-west1\"\n\
         models = {{ opus = \"claude-opus-4-5@20251101\" }}\n"
    );
    let running = home.start_with_variables(&config, &[("GCE_METADATA_HOST", &google.authority())]);
    let place = "/v1/projects/p/locations/europe-west1/publishers";
    for (stream, verb) in [(false, "rawPredict"), (true, "streamRawPredict")] {
        let answer = ask(&running, "vertex", Anthropic, &claude(stream)).await;
        assert_eq!((answer.status, answer.header("x-interflow-translated")), (200, None), "{}", answer.text());
        assert!(!Anthropic.read(&answer, stream).text.is_empty());
        let (path, body) = sent(&home);
        assert!(path.ends_with(&format!("{place}/anthropic/models/claude-opus-4-5@20251101:{verb}")), "{path}");
        let mut expected = claude(stream);
        expected.as_object_mut().unwrap().shift_remove("model");
        expected["anthropic_version"] = "vertex-2023-10-16".into();
        assert_eq!(body, expected, "nothing else is changed");
        let request = home.provider.requests().pop().unwrap();
        assert_eq!(request.header("authorization"), Some("Bearer google-token"));
    }
    // Clients of other formats reach it as well; any other model is Google's.
    for (client, body) in [
        (Chat, json!({ "model": "opus", "messages": [{ "role": "user", "content": "Hello" }] })),
        (Responses, json!({ "model": "opus", "input": "Hello" })),
    ] {
        let answer = ask(&running, "vertex", client, &body).await;
        assert_eq!((answer.status, answer.header("x-interflow-translated")), (200, Some("anthropic")));
        assert!(sent(&home).0.ends_with("/anthropic/models/claude-opus-4-5@20251101:rawPredict"));
    }
    let gemini = json!({ "model": "gemini-2.5-pro", "messages": [{ "role": "user", "content": "Hello" }] });
    assert_eq!(ask(&running, "vertex", Chat, &gemini).await.status, 200);
    assert!(sent(&home).0.ends_with(&format!("{place}/google/models/gemini-2.5-pro:generateContent")));
    // Vertex's own count, and its own errors in the client's format.
    let count = json!({ "model": "opus", "messages": [{ "role": "user", "content": "Hello" }] }).to_string();
    let fields = "anthropic-version: 2023-06-01\r\n";
    let answer = running.post("/vertex/v1/messages/count_tokens", fields, &count).await;
    assert!(answer.status == 200 && answer.json()["input_tokens"].as_u64() > Some(0), "{}", answer.text());
    let (path, body) = sent(&home);
    assert!(path.ends_with("/anthropic/models/count-tokens:rawPredict"), "{path}");
    assert_eq!(body["model"], "claude-opus-4-5@20251101");
    running.stop();
}

/// A question, a call of a tool with this id, and its result.
fn with_result(client: Client, call: &(String, String, Value)) -> Value {
    let (id, name, input) = call;
    let text = input.to_string();
    let schema = json!({ "type": "object", "properties": { "city": { "type": "string" } } });
    match client {
        Chat => json!({
            "model": "gemini-3-pro", "tools": [{ "type": "function", "function": { "name": name, "parameters": schema } }],
            "messages": [
                { "role": "user", "content": "Weather?" },
                { "role": "assistant", "tool_calls": [{ "id": id, "type": "function", "function": { "name": name, "arguments": text } }] },
                { "role": "tool", "tool_call_id": id, "content": "rain" },
            ],
        }),
        Responses => json!({
            "model": "gemini-3-pro", "tools": [{ "type": "function", "name": name, "parameters": schema }],
            "input": [
                { "role": "user", "content": "Weather?" },
                { "type": "function_call", "call_id": id, "name": name, "arguments": text },
                { "type": "function_call_output", "call_id": id, "output": "rain" },
            ],
        }),
        Anthropic => json!({
            "model": "gemini-3-pro", "max_tokens": 100, "tools": [{ "name": name, "input_schema": schema }],
            "messages": [
                { "role": "user", "content": "Weather?" },
                { "role": "assistant", "content": [{ "type": "tool_use", "id": id, "name": name, "input": input }] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": id, "content": "rain" }] },
            ],
        }),
        Interactions => json!({
            "model": "gemini-3-pro", "tools": [{ "type": "function", "name": name, "parameters": schema }],
            "input": [
                { "type": "user_input", "content": "Weather?" },
                { "type": "function_call", "id": id, "name": name, "arguments": input },
                { "type": "function_result", "call_id": id, "name": name, "result": "rain" },
            ],
        }),
        Gemini | Converse => panic!("not a client of this test"),
    }
}

#[tokio::test]
async fn thought_signatures_return_to_gemini_with_the_calls_of_every_client() {
    let home = Home::new().await;
    let url = |knobs: &str| home.provider.url(&format!("/~strict=1{knobs}"));
    let running = home.start(&format!(
        "[llm.provider.gem]\nkind = \"gemini\"\nformat = \"gemini\"\nurl = \"{}\"\napi_key = \"k\"\n\
         [llm.provider.chat]\nformat = \"openai_chat\"\nurl = \"{}\"\napi_key = \"k\"\n\
         [llm.provider.claude]\nkind = \"anthropic\"\nurl = \"{}\"\napi_key = \"k\"\n\
         [llm.route.own]\ndeployments = [{{ provider = \"chat\" }}]\n",
        url("&tool=weather&calls=2&signed=1"),
        url(""),
        url(""),
    ));
    for client in [Chat, Responses, Anthropic, Interactions] {
        for stream in [false, true] {
            let call = (String::from("call_1"), "weather".to_owned(), json!({ "city": "Paris", "days": 3 }));
            let mut first = with_result(client, &call);
            first["stream"] = stream.into();
            let answer = ask(&running, "gem", client, &first).await;
            let calls = client.read(&answer, stream).calls;
            assert_eq!(calls.len(), 2, "{}", answer.text());
            let fits = |id: &str| id.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
            assert!(calls.iter().all(|c| fits(&c.0)), "{calls:?}");
            let again = with_result(client, &calls[0]);
            let answer = ask(&running, "gem", client, &again).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            let part = &sent(&home).1["contents"][1]["parts"][0];
            assert_eq!(part["thoughtSignature"], CALL_SIGNATURE, "{client:?} {stream}: {part}");
            // The second call came without one.
            let answer = ask(&running, "gem", client, &with_result(client, &calls[1])).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert_eq!(
                sent(&home).1["contents"][1]["parts"][0]["thoughtSignature"],
                "skip_thought_signature_validator"
            );
            // Other APIs get an id that they accept, translated or not.
            let other = if client == Anthropic { "chat" } else { "claude" };
            let answer = ask(&running, other, client, &again).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
            assert!(!sent(&home).1.to_string().contains("__thought__"));
            if client == Chat {
                let mut own = again.clone();
                own["model"] = "own".into();
                let answer = ask(&running, "chat", client, &own).await;
                assert_eq!(answer.status, 200, "{}", answer.text());
                assert!(!sent(&home).1.to_string().contains("__thought__"));
            }
        }
    }
    running.stop();
}

#[tokio::test]
async fn cache_control_becomes_cache_points_of_bedrock() {
    let home = Home::new().await;
    let url = home.provider.url("/~strict=1");
    let running = home.start(&format!(
        "[llm.provider.bed]\nkind = \"bedrock\"\nurl = \"{url}\"\naccess_key = \"A\"\nsecret_key = \"s\"\n"
    ));
    let ask = async |model: &str| {
        let long = json!({ "type": "ephemeral", "ttl": "1h" });
        let body = json!({
            "model": model, "max_tokens": 100,
            "system": [
                { "type": "text", "text": "Rules.", "cache_control": long },
                { "type": "text", "text": "Today." },
            ],
            "tools": [{ "name": "f", "input_schema": { "type": "object" }, "cache_control": cached() }],
            "messages": [
                { "role": "user", "content": "Hello" },
                { "role": "assistant", "content": [{ "type": "text", "text": "Yes?", "cache_control": cached() }] },
                { "role": "user", "content": [
                    { "type": "text", "text": "A" }, { "type": "text", "text": "B", "cache_control": cached() },
                ] },
            ],
        });
        let answer = ask(&running, "bed", Anthropic, &body).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        (answer.header("x-interflow-translation-loss").map(str::to_owned), sent(&home).1)
    };
    let point = json!({ "cachePoint": { "type": "default" } });
    let (lost, body) = ask("eu.anthropic.claude-sonnet-4-5-20250929-v1:0").await;
    assert_eq!(lost, None);
    assert_eq!(
        body["system"],
        json!([{ "text": "Rules." }, { "cachePoint": { "type": "default", "ttl": "1h" } }, { "text": "Today." }])
    );
    assert_eq!(body["toolConfig"]["tools"][1], point);
    assert_eq!(body["messages"][1]["content"], json!([{ "text": "Yes?" }, point]));
    assert_eq!(body["messages"][2]["content"], json!([{ "text": "A" }, { "text": "B" }, point]));
    // Models that would refuse them, in whole or in part.
    let (lost, body) = ask("amazon.nova-pro-v1:0").await;
    assert_eq!(lost.as_deref(), Some("cache_control"));
    assert!(
        body["toolConfig"]["tools"].as_array().unwrap().len() == 1 && body["system"][1].get("cachePoint").is_some()
    );
    let (lost, body) = ask("meta.llama3-70b-instruct-v1:0").await;
    assert_eq!(lost.as_deref(), Some("cache_control"));
    assert!(!body.to_string().contains("cachePoint") && body["system"] == json!([{ "text": "Rules.\n\nToday." }]));
    running.stop();
}

#[tokio::test]
async fn tokens_are_counted_by_the_upstream_or_estimated_and_marked() {
    let home = Home::new().await;
    let url = home.provider.url("/~strict=1");
    let upstreams = [
        ("claude", "anthropic", "api_key = \"k\""),
        ("gem", "gemini", "api_key = \"k\""),
        ("vtx", "vertex", "api_key = \"k\"\nproject = \"p\""),
        ("bed", "bedrock", "access_key = \"A\"\nsecret_key = \"s\""),
        ("coh", "cohere", "api_key = \"k\""),
        ("openai", "openai", "api_key = \"k\""),
        ("vllm", "openai", "api_key = \"k\""),
    ];
    let config: String = upstreams
        .iter()
        .map(|(name, kind, rest)| format!("[llm.provider.{name}]\nkind = \"{kind}\"\nurl = \"{url}\"\n{rest}\n"))
        .collect();
    let running = home.start(&config);
    let body = json!({
        "model": "m", "system": "Be brief.", "tools": [{ "name": "f", "input_schema": { "type": "object" } }],
        "tool_choice": { "type": "any" }, "messages": [{ "role": "user", "content": "How many tokens are these words?" }],
    })
    .to_string();
    for (upstream, path, source) in [
        ("claude", "/v1/messages/count_tokens", None),
        ("gem", "/v1beta/models/m:countTokens", Some("exact")),
        ("vtx", "/v1/projects/p/locations/global/publishers/google/models/m:countTokens", Some("exact")),
        ("bed", "/model/m/count-tokens", Some("exact")),
        ("coh", "", Some("estimate")),
        ("openai", "/v1/responses/input_tokens", Some("exact")),
        ("vllm", "", Some("estimate")),
    ] {
        let before = home.provider.requests().len();
        let fields = "anthropic-version: 2023-06-01\r\n";
        let answer = running.post(&format!("/{upstream}/v1/messages/count_tokens"), fields, &body).await;
        assert_eq!(answer.status, 200, "{upstream}: {}", answer.text());
        assert_eq!(answer.header("x-interflow-token-count"), source, "{upstream}");
        assert!(answer.json()["input_tokens"].as_u64() > Some(5), "{upstream}: {}", answer.text());
        let asked = home.provider.requests().len() - before;
        assert_eq!(asked, usize::from(!path.is_empty()), "{upstream}");
        if !path.is_empty() {
            assert!(sent(&home).0.ends_with(path), "{upstream}: {}", sent(&home).0);
        }
    }
    running.stop();
}

#[tokio::test]
async fn a_model_in_a_path_leads_to_its_route_with_a_key_where_the_api_has_it() {
    let home = Home::new().await;
    let key = home.keys(&["add", "--id", "ann", "--owner", "Ann"]).ok().trim().to_owned();
    let (broken, good) = (home.provider.url("/~strict=1&status=500"), home.provider.url("/~strict=1"));
    let running = home.start(&format!(
        "[keys]\nrequire_virtual_key = true\n[llm.provider.first]\nurl = \"{broken}\"\napi_key = \"k\"\n\
         [llm.provider.second]\nformat = \"anthropic\"\nurl = \"{good}\"\napi_key = \"other\"\n\
         [llm.route.smart]\ndeployments = [{{ provider = \"first\" }}, {{ provider = \"second\", model = \"claude\" }}]\n"
    ));
    let gemini = json!({ "contents": [{ "parts": [{ "text": "Hello" }] }] });
    let converse = json!({ "messages": [{ "role": "user", "content": [{ "text": "Hello" }] }] });
    let interaction = json!({ "model": "smart", "input": "Hello" });
    let (google, bearer) = (format!("x-goog-api-key: {key}\r\n"), format!("Authorization: Bearer {key}\r\n"));
    let in_query = format!("/v1beta/models/smart:generateContent?key={key}");
    for (client, stream, path, fields, body) in [
        (Gemini, false, "/v1/models/smart:generateContent", &google, &gemini),
        (Gemini, true, "/v1beta/models/smart:streamGenerateContent?alt=sse", &google, &gemini),
        (Gemini, false, in_query.as_str(), &String::new(), &gemini),
        (Interactions, false, "/v1/interactions", &google, &interaction),
        (Converse, false, "/model/smart/converse", &bearer, &converse),
        (Converse, true, "/model/smart/converse-stream", &bearer, &converse),
    ] {
        let answer = running.post(path, fields, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        assert!(client.read(&answer, stream).text.starts_with("The quick"), "{path}");
        assert_eq!(answer.header("x-interflow-deployment"), Some("second/claude"), "{path}");
        let request = home.provider.requests().pop().unwrap();
        assert_eq!(request.header("x-api-key"), Some("other"), "{path}");
        assert!(!format!("{request:?}").contains("ifk_"), "{path}");
        assert_eq!(sent(&home).1["model"], "claude", "{path}");
    }
    // The path decides, not a member of the body that the API does not have.
    let sly = json!({ "model": "other", "contents": [{ "parts": [{ "text": "Hello" }] }] });
    let answer = running.post("/second/v1beta/models/cheap:generateContent", &google, &sly.to_string()).await;
    assert_eq!((answer.status, &sent(&home).1["model"]), (200, &json!("cheap")));
    // Without `alt=sse` a stream is one list.
    let answer = running.post("/v1beta/models/smart:streamGenerateContent", &google, &gemini.to_string()).await;
    let chunks: Vec<Value> = serde_json::from_slice(&answer.body).expect("a list");
    assert!(chunks.len() > 1 && gemini_chunks(&chunks).text.starts_with("The quick"), "{chunks:?}");
    // A signature of AWS is no key.
    let signature = "Authorization: AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/bedrock/aws4_request\r\n";
    let refused = running.post("/model/smart/converse", signature, &converse.to_string()).await;
    assert_eq!((refused.status, refused.header("x-amzn-errortype")), (401, Some("AccessDeniedException")));
    let refused = running.post("/v1beta/models/smart:generateContent", "", &gemini.to_string()).await;
    assert_eq!((refused.status, refused.json()["error"]["status"].as_str()), (401, Some("UNAUTHENTICATED")));
    running.stop();
}
