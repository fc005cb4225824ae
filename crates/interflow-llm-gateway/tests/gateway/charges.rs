//! A call that reached a provider is never free: attempts besides the one that answered, copies, and endpoints whose usage
//! no provider reports.

use std::sync::Arc;
use std::time::Duration;

use interflow_limits::{SpendLedger, SpendQuery, UsageSums};
use interflow_llm::LlmUpstreamConfig;
use interflow_redact::{RedactConfig, RedactMode};
use interflow_testkit::{Answer, Ending, Origin, Reply, Wire};
use serde_json::{Value, json};

use super::key_scopes::key;
use super::{Gate, sse};

const LONG: Duration = Duration::from_secs(600);

/// A gateway with the key `ifk_k`, these limits of it, and the route `smart` to the upstreams `a` and `b`.
async fn gate(origins: &[&Origin], route: Value, limits: &str) -> Gate {
    gate_with_ledger(origins, route, limits, None).await
}

async fn gate_with_ledger(origins: &[&Origin], route: Value, limits: &str, spend: Option<Arc<SpendLedger>>) -> Gate {
    Gate::with(origins[0], |parts| {
        parts.spend = spend;
        parts.redact = RedactConfig { gateway: RedactMode::Off, ..RedactConfig::default() };
        parts.keys = key("k", limits);
        for (name, origin) in ["a", "b"].into_iter().zip(origins) {
            let at = LlmUpstreamConfig { url: Some(origin.url("")), ..LlmUpstreamConfig::default() };
            parts.llm.provider.insert(name.into(), at);
        }
        if !route.is_null() {
            parts.llm.route.insert("smart".into(), serde_json::from_value(route).unwrap());
        }
    })
    .await
}

async fn post(gate: &Gate, path: &str, body: &Value) -> Answer {
    let fields = "Authorization: Bearer ifk_k\r\nContent-Type: application/json\r\n";
    gate.send("POST", path, fields, body.to_string().as_bytes()).await.unwrap()
}

/// A request whose text is estimated at 100 tokens, and a few more for its members.
fn chat(stream: bool) -> Value {
    json!({"model": "smart", "stream": stream, "max_tokens": 500,
        "messages": [{"role": "user", "content": "text".repeat(100)}]})
}

fn reply() -> Value {
    json!({"choices": [{"message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
}

/// The sums of all rows, once they are as expected.
async fn sums(gate: &Gate, is_settled: impl Fn(&UsageSums) -> bool) -> UsageSums {
    let sum = || {
        gate.limits.usage().rows().iter().fold(UsageSums::default(), |mut sum, row| {
            sum.requests += row.requests;
            sum.input_tokens += row.input_tokens;
            sum.output_tokens += row.output_tokens;
            sum
        })
    };
    super::support::until("the charge", || is_settled(&sum())).await;
    sum()
}

#[tokio::test]
async fn hedges_that_lose_and_attempts_that_fail_are_charged_their_input() {
    let silent = || Origin::http().answering(|_| Reply::json(&json!({})).delay(LONG));
    let cut = || {
        let begun = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"role": "assistant"}}]}));
        Origin::http().answering(move |_| {
            let reply = Reply::status(200).header("Content-Type", "text/event-stream");
            reply.pieces(vec![begun.clone().into()], Duration::ZERO).ending(Ending::Cut)
        })
    };
    let closes = || Origin::http().answering(|_| Reply::json(&json!({})).claim_length(500).ending(Ending::Cut));
    let rejects = || Origin::http().answering(|_| Reply::status(503));
    for (name, bad, is_stream, more, charged) in [
        ("a hedge that lost", silent(), false, json!({"hedge_after": "20ms"}), 1),
        ("an attempt that timed out", silent(), false, json!({"attempt_timeout": "50ms"}), 1),
        ("a stream that broke off", cut(), true, json!({}), 1),
        ("a reply that broke off", closes(), false, json!({}), 1),
        ("an attempt that was rejected", rejects(), false, json!({}), 0),
    ] {
        let event = json!({"choices": [{"index": 0, "delta": {"content": "hi"}}]});
        let end = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
        let good = Origin::http().answering(move |_| match is_stream {
            true => Reply::ok(sse(&[event.clone(), end.clone()])).header("Content-Type", "text/event-stream"),
            false => Reply::json(&reply()),
        });
        let (bad, good) = (bad.start().await, good.start().await);
        let mut route = json!({"deployments": [{"provider": "a"}, {"provider": "b", "priority": 1}], "timeout": "1h"});
        route.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let gate = gate(&[&bad, &good], route, "").await;
        let answer = post(&gate, "/v1/chat/completions", &chat(is_stream)).await;
        assert_eq!((answer.status, answer.header("x-interflow-deployment")), (200, Some("b")), "{name}");
        let sums = sums(&gate, |sums| sums.requests == 1).await;
        assert_eq!(sums.output_tokens, 3, "{name}");
        let besides = sums.input_tokens - 7;
        let flow = gate.proxy.flow().await;
        let of = |n: usize| flow.attempts.get(n).map(|a| (a.input_tokens.unwrap_or(0), a.output_tokens, a.estimated));
        assert_eq!(of(0).unwrap().0, besides, "{name}: {flow:#?}");
        assert_eq!(of(1), Some((7, Some(3), false)), "{name}: {flow:#?}");
        assert_eq!(flow.attempts.len(), 2, "{name}: {flow:#?}");
        assert!((100 * charged..=130 * charged).contains(&besides), "{name}: {besides}");
    }
}

#[tokio::test]
async fn a_response_of_a_wrong_type_or_an_unknown_coding_is_charged_what_was_delivered() {
    let whole = |text: &str| json!({"choices": [{"message": {"role": "assistant", "content": text}}]});
    let delta = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let end = json!({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}});
    let words = "word".repeat(200);
    for (body, fields, output) in [
        (reply().to_string().into_bytes(), ("Content-Type", "text/event-stream"), 3..=3),
        (reply().to_string().into_bytes(), ("Content-Type", "application/octet-stream"), 3..=3),
        (sse(&[delta("hi"), end.clone()]), ("Content-Type", "text/plain"), 3..=3),
        (sse(&[delta("hi"), end]), ("Content-Type", "application/json"), 3..=3),
        (sse(&[delta(&words)]), ("Content-Type", "application/octet-stream"), 200..=200),
        (whole(&words).to_string().into_bytes(), ("Content-Type", "audio/mpeg"), 200..=200),
        (whole(&words).to_string().into_bytes(), ("Content-Encoding", "x-new"), 200..=240),
        (whole("hi").to_string().into_bytes(), ("Content-Encoding", "gzip"), 10..=40),
    ] {
        for route in [Value::Null, json!({"deployments": [{"provider": "a"}]})] {
            let sent = body.clone();
            let origin = Origin::http().answering(move |_| Reply::ok(sent.clone()).header(fields.0, fields.1));
            let origin = origin.start().await;
            let gate = gate(&[&origin], route.clone(), "limits = { tokens_per_day = 100000 }").await;
            post(&gate, "/openai/v1/chat/completions", &json!({"model": "smart", "messages": []})).await;
            let sums = sums(&gate, |sums| sums.requests == 1).await;
            assert!(output.contains(&sums.output_tokens), "{fields:?} {route}: {sums:?}");
        }
    }
}

#[tokio::test]
async fn a_reply_that_cannot_be_translated_is_charged_its_input() {
    let coded = || Reply::json(&reply()).header("Content-Encoding", "x-new");
    let text = || Reply::ok("no JSON").header("Content-Type", "text/plain");
    let marked = || Reply::ok([b"\xef\xbb\xbf", reply().to_string().as_bytes()].concat());
    let rejected = || Reply::status(400).body(json!({"error": {"message": "no"}}).to_string());
    let answers: [(fn() -> Reply, _, _); 4] =
        [(coded, 502, 100..130), (text, 502, 100..130), (marked, 200, 7..8), (rejected, 400, 0..1)];
    for (answer, status, input) in answers {
        let origin = Origin::http().answering(move |_| answer()).start().await;
        let gate = gate(&[&origin], Value::Null, "limits = { tokens_per_day = 100000 }").await;
        let got = post(&gate, "/openai/v1/messages", &chat(false)).await;
        assert_eq!(got.status, status, "{}", got.text());
        let sums = sums(&gate, |sums| sums.requests == 1).await;
        assert!(input.contains(&sums.input_tokens), "{status}: {sums:?}");
    }
}

#[tokio::test]
async fn a_copy_for_a_shadow_is_counted_where_its_answer_states_no_usage() {
    let good = Origin::http().answering(|_| Reply::json(&reply())).start().await;
    let words = json!({"choices": [{"message": {"role": "assistant", "content": "word".repeat(200)}}]});
    for (answers, output) in [(true, 200), (false, 0)] {
        let words = words.clone();
        let shadow = Origin::http().answering(move |_| match answers {
            true => Reply::json(&words),
            false => Reply::status(200).ending(Ending::Cut),
        });
        let shadow = shadow.start().await;
        let route =
            json!({"deployments": [{"provider": "a"}], "shadow": {"provider": "b", "model": "s", "share": 1.0}});
        let folder = tempfile::tempdir().unwrap();
        let ledger = SpendLedger::open(folder.path().into(), LONG);
        let gate = gate_with_ledger(&[&good, &shadow], route, "", Some(Arc::clone(&ledger))).await;
        assert_eq!(post(&gate, "/v1/chat/completions", &chat(false)).await.status, 200);
        let query = SpendQuery::parse(Some("model"), None, None).unwrap();
        let row = || {
            let rows = ledger.report(&query).unwrap().rows;
            rows.into_iter().find(|row| row.group.get("model").is_some_and(|model| model == "s")).map(|row| row.sums)
        };
        super::support::until("the copy", || row().is_some()).await;
        let sums = row().unwrap();
        assert_eq!((sums.requests, sums.estimated, sums.output_tokens), (1, 1, output));
        assert!((100..130).contains(&sums.input_tokens), "{sums:?}");
    }
}

#[tokio::test]
async fn endpoints_without_a_price_are_tagged_and_counted() {
    let origin = Origin::http().answering(|_| Reply::json(&json!({"id": "job", "status": "queued"}))).start().await;
    let text = "text".repeat(100);
    let item =
        |config: Value| json!({"request": {"contents": [{"parts": [{"text": text}]}], "generationConfig": config}});
    let batch = |config: Value| json!({"batch": {"input_config": {"requests": {"requests": [item(config)]}}}});
    let gemini = "/gemini/v1beta/models/g-2:batchGenerateContent";
    for (path, body, is_tagged, output) in [
        ("/openai/v1/videos", json!({"model": "sora-2", "prompt": text}), true, 0),
        ("/openai/v1/fine_tuning/jobs", json!({"model": "m", "training_file": text}), true, 0),
        (
            "/openai/v1/threads/runs",
            json!({"assistant_id": "a", "thread": text, "max_completion_tokens": 400}),
            false,
            400,
        ),
        ("/openai/v1/threads/t_1/runs", json!({"assistant_id": "a", "instructions": text}), false, 32_000),
        ("/openai/v1/batches", json!({"input_file_id": text}), true, 0),
        (gemini, batch(json!({})), true, 32_000),
        (gemini, batch(json!({"maxOutputTokens": 50})), false, 50),
        (
            "/openai/v1/chat/completions",
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": text}]}),
            false,
            0,
        ),
    ] {
        // A key without limits, and one with: its budget does not reach the files of batches.
        for limits in ["", "limits = { tokens_per_day = 100000 }\npaths = [\"*\"]"] {
            // Without limits, a batch is not read for the maxima of its requests.
            let is_unread = limits.is_empty() && path == gemini;
            let (is_tagged, output) = if is_unread { (true, 0) } else { (is_tagged, output) };
            let gate = gate(&[&origin], Value::Null, limits).await;
            let answer = post(&gate, path, &body).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            let tags = gate.proxy.flow().await.tags;
            assert_eq!(tags.iter().any(|tag| tag == "unaccounted"), is_tagged, "{path} {tags:?}");
            let sums = sums(&gate, |sums| sums.requests == 1).await;
            assert_eq!((sums.requests, sums.output_tokens), (1, output), "{path} {limits}");
            assert!((100..200).contains(&sums.input_tokens), "{path} {limits}: {sums:?}");
        }
    }
}

#[tokio::test]
async fn speech_and_pictures_that_are_not_counted_have_an_unknown_cost() {
    let audio = || Reply::status(200).header("Content-Type", "audio/mpeg").body("ID3");
    let origin = Origin::http().answering(move |_| audio()).start().await;
    for (path, model) in [("audio/speech", "gpt-4o-mini-tts"), ("images/generations", "dall-e-3")] {
        let text = json!({"model": model, "voice": "alloy", "input": "hello", "prompt": "hello"});
        let path = format!("/openai/v1/{path}");
        let free = gate(&[&origin], Value::Null, "").await;
        assert_eq!(post(&free, &path, &text).await.status, 200);
        sums(&free, |sums| sums.requests == 1).await;
        let unpriced: u64 = free.limits.usage().rows().iter().map(|row| row.unpriced).sum();
        assert_eq!(unpriced, 1, "{model}");
        let limited = gate(&[&origin], Value::Null, "limits = { money_per_day = 50.0 }").await;
        assert_eq!(post(&limited, &path, &text).await.status, 403, "{model}");
    }
}

#[tokio::test]
async fn speech_is_charged_by_character_and_pictures_by_piece() {
    let origin = Origin::http().answering(|request| match request.path().contains("speech") {
        true => Reply::status(200).header("Content-Type", "audio/mpeg").body("ID3"),
        false => Reply::json(&json!({"created": 1, "data": [{"b64_json": "AA"}, {"b64_json": "AA"}]})),
    });
    let origin = origin.start().await;
    for (path, model, cost) in
        [("audio/speech", "tts-1", 5.0 * 1.5e-5), ("images/generations", "imagen-3.0-generate-001", 2.0 * 0.04)]
    {
        let body = json!({"model": model, "voice": "alloy", "input": "héllo", "prompt": "hello", "n": 2});
        let gate = gate(&[&origin], Value::Null, "limits = { money_per_day = 50.0 }").await;
        let answer = post(&gate, &format!("/openai/v1/{path}"), &body).await;
        assert_eq!(answer.status, 200, "{model}: {}", answer.text());
        sums(&gate, |sums| sums.requests == 1).await;
        let rows = gate.limits.usage().rows();
        let (dollars, unpriced) = rows.iter().fold((0.0, 0), |sum, row| (sum.0 + row.dollars, sum.1 + row.unpriced));
        assert!((dollars - cost).abs() < 2e-6 && unpriced == 0, "{model}: {rows:?}");
    }
    // Fewer than the budget holds.
    let gate = gate(&[&origin], Value::Null, "limits = { money_per_day = 0.05 }").await;
    let body = json!({"model": "imagen-3.0-generate-001", "prompt": "hello", "n": 2});
    assert_eq!(post(&gate, "/openai/v1/images/generations", &body).await.status, 429);
}

#[tokio::test]
async fn a_level_of_service_in_the_head_of_a_response_has_its_price() {
    let usage = json!({"promptTokenCount": 1_000_000, "candidatesTokenCount": 0});
    let body = json!({"candidates": [{"content": {"parts": [{"text": "x"}]}}], "usageMetadata": usage});
    let own =
        ("/gemini/v1beta/models/gemini-3.6-flash:generateContent", json!({"contents": [{"parts": [{"text": "x"}]}]}));
    let route = json!({"deployments": [{"provider": "gemini", "model": "gemini-3.6-flash"}]});
    for (path, request) in [own, ("/v1/chat/completions", chat(false)), ("/v1/chat/completions", chat(true))] {
        let mut costs = Vec::new();
        for tier in ["", "flex"] {
            let body = body.clone();
            let origin = Origin::http().answering(move |_| Reply::json(&body).header("x-gemini-service-tier", tier));
            let origin = origin.start().await;
            let gate = gate(&[&origin], route.clone(), "").await;
            let answer = post(&gate, path, &request).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            sums(&gate, |sums| sums.requests == 1).await;
            costs.push(gate.limits.usage().rows().iter().map(|row| row.dollars).sum::<f64>());
        }
        assert!(costs[0] > 0.0 && (costs[1] - costs[0] / 2.0).abs() < 1e-9, "{path}: {costs:?}");
    }
}

#[tokio::test]
async fn a_search_without_tokens_is_charged_and_recorded() {
    let answer = json!({"results": [], "meta": {"billed_units": {"search_units": 3}}});
    let origin = Origin::http().answering(move |_| Reply::json(&answer)).start().await;
    let dir = tempfile::tempdir().unwrap();
    let ledger = SpendLedger::open(dir.path().into(), LONG);
    let gate = gate_with_ledger(&[&origin], Value::Null, "", Some(Arc::clone(&ledger))).await;
    let body = json!({"model": "rerank-v3.5", "query": "x", "documents": ["y"]});
    assert_eq!(post(&gate, "/cohere/v2/rerank", &body).await.status, 200);
    sums(&gate, |sums| sums.requests == 1).await;
    let dollars: f64 = gate.limits.usage().rows().iter().map(|row| row.dollars).sum();
    assert!((dollars - 0.006).abs() < 1e-9, "{dollars}");
    let query = SpendQuery::parse(Some("model"), None, None).unwrap();
    let report = ledger.report(&query).unwrap().to_csv();
    assert!(report.contains("rerank-v3.5"), "{report}");
}

#[tokio::test]
async fn a_maximum_that_is_no_number_of_tokens_is_refused_where_a_limit_applies() {
    let origin = Origin::http().answering(|_| Reply::json(&reply())).start().await;
    let budget = gate(&[&origin], Value::Null, "limits = { tokens_per_day = 1000000 }").await;
    let chat = |limit: Value| json!({"model": "m", "max_tokens": limit, "messages": []});
    for (limit, status) in [
        (json!(-1), 400),
        (json!(-0.5), 400),
        (json!(1.5), 400),
        (json!(1e30), 400),
        (json!("-7"), 400),
        (json!("many"), 400),
        (json!(true), 400),
        (json!(50), 200),
        (json!(50.0), 200),
        (json!("50"), 200),
        (Value::Null, 200),
    ] {
        let answer = post(&budget, "/openai/v1/chat/completions", &chat(limit.clone())).await;
        assert_eq!(answer.status, status, "{limit}: {}", answer.text());
        assert_eq!(answer.text().contains("invalid_max_tokens"), status == 400, "{limit}");
    }
    let item = json!({"params": {"model": "claude-opus-4-5", "max_tokens": -5, "messages": []}});
    let nested = json!({"contents": [], "generationConfig": {"maxOutputTokens": -1}});
    let own = json!({"model": "m", "metadata": {"max_tokens": "none"}, "messages": []});
    let unlimited = json!({"model": "m", "options": {"num_predict": -1}, "messages": []});
    for (path, body, status) in [
        ("/anthropic/v1/messages/batches", json!({"requests": [item]}), 400),
        ("/gemini/v1beta/models/g:generateContent", nested, 400),
        ("/openai/v1/chat/completions", own, 200),
        ("/ollama/api/chat", unlimited, 200),
    ] {
        let answer = post(&budget, path, &body).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
    }
    // Without a limit, the provider judges.
    let free = gate(&[&origin], Value::Null, "").await;
    assert_eq!(post(&free, "/openai/v1/chat/completions", &chat(json!(-1))).await.status, 200);
}

#[tokio::test]
async fn an_answer_is_read_to_its_end_for_its_usage_when_its_client_has_left() {
    // The proxy sends the request itself, or the route handler does, which passes on whole replies only; the client leaves
    // before the response, or while its body comes.
    let route = json!({"deployments": [{"provider": "a"}]});
    for (route, begins) in [(Value::Null, false), (Value::Null, true), (route, false)] {
        let answer = reply().to_string();
        let (first, rest) = (answer[..9].to_owned(), answer[9..].to_owned());
        let origin = Origin::http().answering(move |_| match begins {
            false => Reply::json(&reply()).delay(Duration::from_millis(200)),
            true => Reply::status(200)
                .header("Content-Type", "application/json")
                .pieces(vec![first.clone().into(), rest.clone().into()], Duration::from_millis(200)),
        });
        let origin = origin.start().await;
        let gate = gate(&[&origin], route.clone(), "limits = { tokens_per_day = 100000 }").await;
        let body = chat(false).to_string();
        let mut wire = Wire::connect(gate.proxy.gateway()).await.unwrap();
        let n = body.len();
        let fields = "Authorization: Bearer ifk_k\r\nContent-Type: application/json\r\n";
        let head = format!("POST /a/v1/chat/completions HTTP/1.1\r\nHost: g\r\nContent-Length: {n}\r\n{fields}\r\n");
        wire.send(head + &body).await.unwrap();
        match begins {
            true => drop(wire.some().await.unwrap()),
            false => super::support::until("the request", || !origin.requests().is_empty()).await,
        }
        drop(wire);
        let sums = sums(&gate, |sums| sums.requests == 1).await;
        assert_eq!((sums.input_tokens, sums.output_tokens), (7, 3), "{route} {begins}");
        let flow = gate.proxy.flow().await;
        assert!(flow.tags.iter().any(|tag| tag == "client-left"), "{route} {begins}: {flow:#?}");
    }
}

#[tokio::test]
async fn a_request_that_names_no_model_is_refused_where_money_is_counted_if_it_is_billed() {
    let origin = Origin::http().answering(|_| Reply::json(&json!({"id": "x"}))).start().await;
    let gate = gate(&[&origin], Value::Null, "limits = { money_per_day = 5.0 }").await;
    let turn = json!([{"role": "user", "content": "x"}]);
    for (path, body) in [
        ("/openai/v1/images/generations", json!({"prompt": "x"})),
        ("/openai/v1/chat/completions", json!({"messages": turn})),
        ("/openai/v1/chat/completions", json!({"model": null, "messages": turn})),
        ("/openai/v1/chat/completions", json!({"model": ["gpt-4o"], "messages": turn})),
        ("/anthropic/v1/messages", json!({"max_tokens": 9, "messages": turn})),
        ("/anthropic/v1/sessions", json!({"agent": "a", "environment_id": "e"})),
        ("/openai/v1/responses", json!({"input": "x"})),
        ("/openai/v1/responses", json!({"prompt": {"id": "pmpt_1"}})),
        ("/openai/v1/videos", json!({"prompt": "x"})),
        ("/openai/v1/realtime/client_secrets", json!({"session": {"type": "realtime"}})),
        ("/openai/v1/embeddings", json!({"input": "x"})),
        ("/openai/v1/threads/t_1/runs", json!({"assistant_id": "a"})),
    ] {
        let refused = post(&gate, path, &body).await;
        let text = refused.text();
        assert_eq!(refused.status, 403, "{path} {body}: {text}");
        for part in ["the request names no model", "name one in `model`", "quota.unpriced"] {
            assert!(text.contains(part), "{path}: {text}");
        }
    }
    for model in [Value::Null, json!("gemini-2.5-flash")] {
        let body = json!({"agent": "a", "model": model, "input": "x"});
        let refused = post(&gate, "/gemini/v1beta/interactions", &body).await;
        assert!(refused.status == 403 && refused.text().contains("model_unpriced"), "{body}: {}", refused.text());
    }
    let form = |model: &str| {
        format!(
            "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\n\r\nRIFF\r\n{model}--b--\r\n"
        )
    };
    let model = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\ngpt-4o-transcribe\r\n";
    let fields = "Authorization: Bearer ifk_k\r\nContent-Type: multipart/form-data; boundary=b\r\n";
    for (model, status) in [("", 403), (model, 200)] {
        let form = form(model);
        let answer = gate.send("POST", "/openai/v1/audio/transcriptions", fields, form.as_bytes()).await.unwrap();
        assert_eq!(answer.status, status, "{model}: {}", answer.text());
    }
    let session = "--b\r\nContent-Disposition: form-data; name=\"session\"\r\n\r\n{\"type\":\"realtime\",\"model\":\"gpt-realtime\"}\r\n--b--\r\n";
    let answer = gate.send("POST", "/openai/v1/realtime/calls", fields, session.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 200, "{}", answer.text());
    for (method, path, body) in [
        ("GET", "/openai/v1/models", ""),
        ("GET", "/anthropic/v1/sessions", ""),
        ("DELETE", "/openai/v1/responses/resp_1", ""),
        ("POST", "/anthropic/v1/sessions/s_1/archive", "{}"),
        ("POST", "/openai/v1/responses/resp_1/cancel", "{}"),
        ("POST", "/openai/v1/moderations", r#"{"input": "x"}"#),
        ("POST", "/openai/v1/responses/input_tokens", r#"{"input": "x"}"#),
        ("POST", "/openai/v1/uploads", r#"{"filename": "x"}"#),
        ("POST", "/openai/v1/vector_stores", r#"{"name": "x"}"#),
        ("POST", "/openai/v1/threads", "{}"),
        ("POST", "/openai/v1/realtime/client_secrets", r#"{"session": {"type": "realtime", "model": "gpt-realtime"}}"#),
        ("POST", "/gemini/v1beta/models/gemini-2.5-flash:generateContent", r#"{"contents": []}"#),
        ("POST", "/openai/v1/chat/completions", r#"{"model": "gpt-4o", "messages": []}"#),
    ] {
        let fields = "Authorization: Bearer ifk_k\r\nContent-Type: application/json\r\n";
        let answer = gate.send(method, path, fields, body.as_bytes()).await.unwrap();
        assert_eq!(answer.status, 200, "{method} {path}: {}", answer.text());
    }
}
