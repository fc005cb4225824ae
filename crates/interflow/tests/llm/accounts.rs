//! Telemetry of LLM traffic: audit log, metrics, spans and admin API, none of which contain content.

use interflow_testkit::{Origin, Reply};
use serde_json::Value;

use crate::CHAT;
use crate::instance::Home;

const MARKER: &str = "planted.marker@firm.test";

#[tokio::test]
async fn audit_log_and_metrics_record_requests_but_never_message_text() {
    let home = Home::new().await;
    let key = home.keys(&["add", "--id", "k1", "--owner", "Ann", "--model", "gpt-4o"]).ok().trim().to_owned();
    let config = format!(
        "[audit]\nenabled = true\n[llm.provider.openai]\nurl = \"{}\"\napi_key = \"file:{}\"\n",
        home.provider.url(""),
        home.dir.path().join("provider.key").display()
    );
    std::fs::write(home.dir.path().join("provider.key"), "sk-real\n").unwrap();
    let running = home.start(&config);
    let fields = format!("Authorization: Bearer {key}\r\n");
    let ask = CHAT.replace("hello", &format!("write to {MARKER}"));
    let answer = running.post("/v1/chat/completions", &fields, &ask).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let sent = format!("{:?}", home.provider.only_request());
    assert!(sent.contains("sk-real") && !sent.contains("ifk_") && !sent.contains(MARKER), "{sent}");
    let refused = running.post("/v1/chat/completions", &fields, &ask.replace("gpt-4o", "o3")).await;
    assert_eq!(refused.status, 403);
    running.until(async || home.file("audit.jsonl").lines().count() == 2).await;
    let log = home.file("audit.jsonl");
    let lines: Vec<Value> = log.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    for (member, value) in [
        ("provider", Value::from("openai")),
        ("model", "gpt-4o".into()),
        ("key_id", "k1".into()),
        ("user", "Ann".into()),
        ("http_status", 200.into()),
        ("entity_count", 1.into()),
        ("entity_types", serde_json::json!(["email-address"])),
        ("policy_name", "default".into()),
    ] {
        assert_eq!(lines[0][member], value, "{member} in {}", lines[0]);
    }
    assert!(lines[0]["input_tokens"].as_u64() > Some(0) && lines[0]["dollars"].as_f64() > Some(0.0), "{}", lines[0]);
    assert_eq!((&lines[1]["error_code"], &lines[1]["http_status"]), (&"scope_denied_model".into(), &403.into()));
    let page = running.admin("GET", "/metrics", "").await.text();
    for line in [
        "interflow_llm_requests_total{provider=\"openai\",model=\"gpt-4o\",code=\"200\"} 1",
        "interflow_llm_requests_total{provider=\"openai\",model=\"o3\",code=\"403\"} 1",
        "interflow_llm_request_duration_seconds_count{provider=\"openai\",model=\"gpt-4o\"} 1",
        "interflow_llm_rejected_requests_total{code=\"scope_denied_model\"} 1",
        "interflow_llm_requests_in_flight 0",
        "interflow_llm_requests_in_flight_limit 0",
        "interflow_redaction_entities_total{type=\"email-address\",direction=\"request\"} 1",
        "interflow_redaction_duration_seconds_bucket{policy=\"default\",le=\"+Inf\"} 1",
        "# TYPE interflow_llm_unpriced_tokens_total counter",
        "# TYPE interflow_llm_upstream_errors_total counter",
        "interflow_audit_lost_lines_total 0",
    ] {
        assert!(page.contains(line), "{line}\n{page}");
    }
    let of_type = |name: &str| {
        let start = format!("interflow_llm_tokens_total{{provider=\"openai\",model=\"gpt-4o\",type=\"{name}\"}} ");
        page.lines().find_map(|line| line.strip_prefix(&start)).map_or(0, |n| n.parse::<u64>().unwrap())
    };
    let tokens = |member: &str| lines[0][member].as_u64().unwrap_or_default();
    assert_eq!(
        ["input", "output", "cache_read", "cache_write", "reasoning"].map(of_type).iter().sum::<u64>(),
        tokens("input_tokens") + tokens("output_tokens"),
        "each token has one type:\n{page}"
    );
    let cost = "interflow_llm_cost_usd_total{provider=\"openai\",model=\"gpt-4o\"} ";
    let cost: f64 = page.lines().find_map(|line| line.strip_prefix(cost)).expect("the cost").parse().unwrap();
    assert!((cost - lines[0]["dollars"].as_f64().unwrap()).abs() < 1e-6, "{cost}\n{page}");
    for text in [&log, &page] {
        assert!(!text.contains(MARKER) && !text.contains(&key) && !text.contains("sk-real"));
    }
    running.stop();
    let path = home.dir.path().join("audit.jsonl").display().to_string();
    assert!(home.say(&["audit", "verify", &path]).ok().contains("2 lines"));
    std::fs::write(&path, log.replace("\"k1\"", "\"k2\"")).unwrap();
    assert!(home.say(&["audit", "verify", &path]).fails(1).contains("line 1"));
}

#[tokio::test]
async fn streamed_response_findings_are_audited_and_unpriced_models_counted() {
    let home = Home::new().await;
    let config = format!(
        "[audit]\nenabled = true\n[redact]\nresponses = \"flag\"\nurl = \"pass\"\n[llm.provider.openai]\nurl = \"{}\"\n",
        home.provider.url("")
    );
    let running = home.start(&config);
    let ask = CHAT.replace("gpt-4o", "house-model").replacen(
        '{',
        "{\"stream\":true,\"stream_options\":{\"include_usage\":true},",
        1,
    );
    let path = format!("/v1/chat/completions?chunks=9&text=ask+{MARKER}+for+it");
    let answer = running.post(&path, "Authorization: Bearer k\r\n", &ask).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    running.until(async || home.file("audit.jsonl").lines().count() == 1).await;
    let log = home.file("audit.jsonl");
    let line: Value = serde_json::from_str(&log).unwrap();
    assert_eq!(line["outbound_entity_count"], 1, "{line}");
    assert_eq!(line["dollars"], Value::Null, "{line}");
    let first_token = "interflow_llm_time_to_first_token_seconds_count{provider=\"openai\",model=\"house-model\"} 1\n";
    // Counted after the line of the audit log is written.
    running.until(async || running.admin("GET", "/metrics", "").await.text().contains(first_token)).await;
    let found = "interflow_redaction_entities_total{type=\"email-address\",direction=\"response\"} 1\n";
    running.until(async || running.admin("GET", "/metrics", "").await.text().contains(found)).await;
    let page = running.admin("GET", "/metrics", "").await.text();
    let unpriced = "interflow_llm_unpriced_tokens_total{provider=\"openai\",model=\"house-model\"}";
    assert!(page.contains(unpriced), "{line}\n{page}");
    assert!(!log.contains(MARKER) && !page.contains(MARKER));
}

#[tokio::test]
async fn configured_prices_override_the_built_in_ones() {
    let home = Home::new().await;
    let prices = r#"{"prices": {"house-*": {"input": 1000, "output": 0}}}"#;
    std::fs::write(home.dir.path().join("prices.json"), prices).unwrap();
    let config = format!(
        "[audit]\nenabled = true\n[quota]\nprices = \"{}\"\n[llm.provider.openai]\nurl = \"{}\"\n",
        home.dir.path().join("prices.json").display(),
        home.provider.url("")
    );
    let running = home.start(&config);
    let ask = CHAT.replace("gpt-4o", "house-model");
    assert_eq!(running.post("/v1/chat/completions", "Authorization: Bearer k\r\n", &ask).await.status, 200);
    running.until(async || home.file("audit.jsonl").lines().count() == 1).await;
    let line: Value = serde_json::from_str(&home.file("audit.jsonl")).unwrap();
    let (dollars, tokens) = (line["dollars"].as_f64().unwrap(), line["input_tokens"].as_f64().unwrap());
    assert!(tokens > 0.0 && (dollars * 1_000.0 - tokens).abs() < 1e-6, "a thousand tokens cost a dollar: {line}");
    running.stop();
}

#[tokio::test]
async fn a_log_truncated_at_either_end_is_reported() {
    let home = Home::new().await;
    let config = format!("[audit]\nenabled = true\n[llm.provider.openai]\nurl = \"{}\"\n", home.provider.url(""));
    let running = home.start(&config);
    for _ in 0..3 {
        assert_eq!(running.post("/v1/chat/completions", "Authorization: Bearer k\r\n", CHAT).await.status, 200);
    }
    running.until(async || home.file("audit.jsonl").lines().count() == 3).await;
    running.stop();
    let path = home.dir.path().join("audit.jsonl");
    let verify = || home.say(&["audit", "verify", &path.display().to_string()]);
    assert!(verify().ok().contains("3 lines, the hash chain is intact"));
    let whole = home.file("audit.jsonl");
    let lines: Vec<&str> = whole.lines().collect();
    for (left, says) in [(&lines[1..], "the beginning was cut off"), (&lines[..2], "the end is missing")] {
        std::fs::write(&path, left.iter().map(|l| format!("{l}\n")).collect::<String>()).unwrap();
        let said = verify().fails(1);
        assert!(said.contains(says), "{said}");
    }
    // Without the file that says where the log ended, it may have ended later.
    std::fs::remove_file(home.dir.path().join("audit.jsonl.head")).unwrap();
    let said = verify().fails(1);
    assert!(said.contains("the end cannot be verified") && said.contains("--without-head"), "{said}");
    let accepted = home.say(&["audit", "verify", "--without-head", &path.display().to_string()]);
    assert!(accepted.ok().contains("2 lines, the hash chain is intact"));
}

#[tokio::test]
async fn spans_are_exported_and_continue_the_clients_trace() {
    let home = Home::new().await;
    let collector = Origin::http().answering(|_| Reply::ok("{}")).start().await;
    let config = format!(
        "[telemetry]\nendpoint = \"{}\"\ninterval = \"50ms\"\n[llm.provider.openai]\nurl = \"{}\"\n",
        collector.url(""),
        home.provider.url("")
    );
    let running = home.start(&config);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let fields = format!("Authorization: Bearer sk\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-01\r\n");
    assert_eq!(running.post("/v1/chat/completions", &fields, CHAT).await.status, 200);
    running.until(async || !collector.requests().is_empty()).await;
    let sent = collector.only_request();
    assert_eq!(sent.path(), "/v1/traces");
    let body: Value = serde_json::from_slice(&sent.body).unwrap();
    let span = &body["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
    assert_eq!((span["traceId"].as_str(), span["parentSpanId"].as_str()), (Some(trace), Some("00f067aa0ba902b7")));
    assert_eq!(span["name"], "chat gpt-4o");
    let text = span["attributes"].to_string();
    assert!(text.contains("gen_ai.usage.input_tokens") && text.contains("gen_ai.provider.name"), "{text}");
    assert!(!body.to_string().contains("hello"));
    let upstream = home.provider.only_request();
    let told = upstream.header("traceparent").unwrap();
    assert!(told.contains(trace) && told.contains(span["spanId"].as_str().unwrap()), "{told}");
    running.stop();
}

#[tokio::test]
async fn opentelemetry_variables_configure_the_collector() {
    let home = Home::new().await;
    let collector = Origin::http().answering(|_| Reply::ok("{}")).start().await;
    let config =
        format!("[telemetry]\ninterval = \"50ms\"\n[llm.provider.openai]\nurl = \"{}\"\n", home.provider.url(""));
    let url = collector.url("/spans");
    let set = [
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_HEADERS", "x-team=hush%2C1"),
        ("OTEL_SERVICE_NAME", "gate-7"),
        ("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test"),
        ("OTEL_TRACES_SAMPLER", "parentbased_always_on"),
    ];
    let running = home.start_with_variables(&config, &set);
    // An unsampled client trace stays unsampled; the next one is exported.
    for (trace, flags) in [("4bf92f3577b34da6a3ce929d0e0e4736", "00"), ("5bf92f3577b34da6a3ce929d0e0e4736", "01")] {
        let fields = format!("Authorization: Bearer sk\r\ntraceparent: 00-{trace}-00f067aa0ba902b7-{flags}\r\n");
        assert_eq!(running.post("/v1/chat/completions", &fields, CHAT).await.status, 200);
        assert!(home.provider.requests().last().unwrap().header("traceparent").unwrap().ends_with(flags));
    }
    running.until(async || !collector.requests().is_empty()).await;
    let sent = collector.only_request();
    assert_eq!((sent.path(), sent.header("x-team")), ("/spans", Some("hush,1")));
    let text = String::from_utf8_lossy(&sent.body).into_owned();
    for part in ["gate-7", "deployment.environment", "5bf92f3577b34da6a3ce929d0e0e4736"] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{text}");
    assert!(!running.admin("GET", "/api/v1/config", "").await.text().contains("hush"));
    running.stop();
}

#[tokio::test]
async fn keys_and_limits_are_shown_and_changed_over_the_admin_api() {
    let home = Home::new().await;
    let running = home.start(
        "[[quota.rule]]\nname = \"day\"\ncount_by = \"key\"\nallow = { tokens_per_day = 5000 }\n[keys.provider]\nlocalhost = \"sk-real\"\n",
    );
    let made = running.admin("POST", "/api/v1/keys", r#"{"id":"k9","owner":"Bo","limits":{"requests":"9/h"}}"#).await;
    assert_eq!(made.status, 200, "{made:?}");
    let key = made.json()["key"].as_str().unwrap().to_owned();
    let fields = format!("Authorization: Bearer {key}\r\n");
    assert_eq!(running.post("/v1/chat/completions", &fields, CHAT).await.status, 200);
    let listed = running.admin("GET", "/api/v1/keys", "").await.json();
    assert_eq!((&listed["keys"][0]["id"], &listed["keys"][0]["state"]), (&"k9".into(), &"active".into()));
    assert!(!listed.to_string().contains(&key));
    running.until(async || running.admin("GET", "/api/v1/limits", "").await.json()["usage"][0]["requests"] == 1).await;
    let limits = running.admin("GET", "/api/v1/limits", "").await.json();
    let counter = |name: &str| {
        let all = limits["counters"].as_array().unwrap();
        all.iter().find(|c| c["counter"] == name && c["who"] == "k9").cloned().unwrap_or_default()
    };
    assert!(counter("tokens_per_day")["used"].as_f64() > Some(0.0), "{limits}");
    assert_eq!(counter("requests")["limit"], 9.0);
    let config = running.admin("GET", "/api/v1/config", "").await.text();
    assert!(!config.contains("sk-real"), "{config}");
    assert_eq!(running.admin("DELETE", "/api/v1/keys/k9", "").await.status, 204);
    assert_eq!(running.post("/v1/chat/completions", &fields, CHAT).await.status, 401);
    assert_eq!(running.admin("DELETE", "/api/v1/keys/nobody", "").await.status, 404);
    assert_eq!(running.admin("POST", "/api/v1/keys", r#"{"limits":{"concurrent":0}}"#).await.status, 400);
    running.stop();
}
