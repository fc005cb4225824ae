//! Teams and organisations: nested budgets and models, tags, spending, rotation with overlap, alerts.

use interflow_testkit::{Origin, Reply};
use serde_json::Value;

use crate::instance::{Home, Running};
use crate::{CHAT, chat, code};

const PROVIDER: &str = "[keys.provider]\nlocalhost = \"sk-real\"\n";

fn message(answer: &interflow_testkit::Answer) -> String {
    answer.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
}

/// Prices of a thousand dollars per million tokens of input: each request costs some cents, whatever its length.
fn priced(home: &Home) -> String {
    let path = home.dir.path().join("prices.json");
    std::fs::write(&path, r#"{"prices": {"gpt-4o": {"input": 1000, "output": 0}}}"#).unwrap();
    format!("[quota]\nprices = \"{}\"\n", path.display())
}

async fn spend(running: &Running, by: &str) -> Value {
    running.admin("GET", &format!("/api/v1/spend?by={by}"), "").await.json()
}

#[tokio::test]
async fn a_request_needs_the_consent_of_key_team_and_organisation() {
    let home = Home::new().await;
    home.keys(&["organisation", "add", "acme", "--model", "gpt-*"]).ok();
    home.keys(&["team", "add", "search", "--organisation", "acme", "--requests", "3/h"]).ok();
    let ann = home.keys(&["add", "--id", "ann", "--team", "search"]).ok().trim().to_owned();
    let bob = home.keys(&["add", "--id", "bob", "--team", "search"]).ok().trim().to_owned();
    let running = home.start(PROVIDER);
    let fields = format!("Authorization: Bearer {ann}\r\n");
    let other = running.post("/v1/chat/completions", &fields, &CHAT.replace("gpt-4o", "o3")).await;
    assert_eq!((other.status, code(&other).as_str()), (403, "scope_denied_model"));
    assert!(message(&other).contains("the organisation acme does not allow this model: o3"), "{}", message(&other));
    // Three requests of the team together.
    for (key, status) in [(&ann, 200), (&bob, 200), (&ann, 200), (&bob, 429)] {
        let answer = chat(&running, key).await;
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 429 {
            assert!(message(&answer).contains("too many requests for the team search"), "{}", message(&answer));
        }
    }
    home.keys(&["organisation", "disable", "acme"]).ok();
    let answer = chat(&running, &ann).await;
    assert_eq!((answer.status, code(&answer).as_str()), (401, "invalid_api_key"));
    assert!(message(&answer).contains("interflow keys organisation enable acme"), "{}", message(&answer));
    home.keys(&["organisation", "enable", "acme"]).ok();
    home.keys(&["change", "ann", "--team", ""]).ok();
    assert_eq!(chat(&running, &ann).await.status, 200, "without its team the key has no limit");
    running.stop();
    let listed = home.keys(&["team", "list"]).ok();
    assert!(listed.contains("search  acme          active  never    all     requests=3/h  -"), "{listed}");
    assert!(home.keys(&["team", "remove", "search"]).fails(1).contains("the key `bob` belongs to the team"));
    assert!(home.keys(&["team", "add", "x", "--organisation", "none"]).fails(1).contains("no [[organisation]]"));
}

#[tokio::test]
async fn a_teams_budget_is_shared_by_its_keys_and_survives_a_restart() {
    let home = Home::new().await;
    home.keys(&["team", "add", "search", "--money-per-month", "0.5"]).ok();
    let keys = ["ann", "bob"].map(|id| home.keys(&["add", "--id", id, "--team", "search"]).ok().trim().to_owned());
    let config = priced(&home) + PROVIDER;
    let running = home.start(&config);
    let mut sent = 0;
    let refused = loop {
        let answer = chat(&running, &keys[sent % 2]).await;
        if answer.status != 200 {
            break answer;
        }
        sent += 1;
        assert!(sent < 1_000, "the budget is never used up");
    };
    assert!(sent > 1, "both keys were served");
    assert_eq!((refused.status, code(&refused).as_str()), (429, "monthly_quota_exceeded"));
    assert!(message(&refused).contains("the monthly budget of $0.50 is used up for the team search"), "{refused:?}");
    running.stop();
    let running = home.start(&config);
    for key in &keys {
        assert_eq!(chat(&running, key).await.status, 429, "after a restart");
    }
    let metrics = running.admin("GET", "/metrics", "").await.text();
    let name = "interflow_budget_used_ratio{level=\"team\",name=\"search\",counter=\"money_per_month\"} ";
    let ratio: f64 = metrics.lines().find_map(|l| l.strip_prefix(name)).expect("the ratio").parse().unwrap();
    // What the last request cost is known when it has ended: the budget may be exceeded by one request.
    assert!((0.5..=1.0 + 1.0 / sent as f64).contains(&ratio), "{ratio} after {sent} requests");
    let team = running.admin("GET", "/api/v1/teams", "").await.json()["teams"][0].clone();
    assert_eq!((&team["id"], &team["keys"], &team["state"]), (&"search".into(), &2.into(), &"active".into()));
    let change = running.admin("PATCH", "/api/v1/teams/search", r#"{"limits":{"money_per_month":50}}"#).await;
    assert_eq!(change.status, 204, "{change:?}");
    assert_eq!(chat(&running, &keys[0]).await.status, 200, "the operator raised the budget");
    running.stop();
}

#[tokio::test]
async fn tags_come_from_keys_and_clients_and_are_not_sent_upstream() {
    let home = Home::new().await;
    home.keys(&["organisation", "add", "acme", "--tag", "cost=17"]).ok();
    home.keys(&["team", "add", "search", "--organisation", "acme"]).ok();
    let ann = home.keys(&["add", "--id", "ann", "--team", "search", "--tag", "env=prod"]).ok().trim().to_owned();
    let rule =
        "[[quota.rule]]\nname = \"projects\"\ncount_by = \"tag\"\ntag = \"project\"\nallow = { requests = \"1/h\" }\n";
    let running = home.start(&format!("{}{rule}{PROVIDER}", priced(&home)));
    let ask = async |tags: &str| {
        let fields = format!("Authorization: Bearer {ann}\r\nX-Interflow-Tags: {tags}\r\n");
        running.post("/v1/chat/completions", &fields, CHAT).await
    };
    // The client cannot have another cost centre pay.
    assert_eq!(ask("project=x, env=test, cost=0").await.status, 200);
    let seen = format!("{:?}", home.provider.only_request()).to_lowercase();
    assert!(!seen.contains("x-interflow-tags") && !seen.contains("project"), "{seen}");
    let again = ask("project=x").await;
    assert_eq!((again.status, code(&again).as_str()), (429, "rate_limit_exceeded"));
    assert_eq!(ask("project=y").await.status, 200);
    let bad = ask("Project").await;
    assert_eq!((bad.status, code(&bad).as_str()), (400, "invalid_tags"));
    assert!(message(&bad).contains("write name=value"), "{bad:?}");
    running.until(async || spend(&running, "key").await["total"]["requests"] == 2).await;
    let report = spend(&running, "tag").await;
    let mut tags: Vec<_> =
        report["rows"].as_array().unwrap().iter().map(|r| r["group"]["tag"].as_str().unwrap()).collect();
    tags.sort_unstable();
    assert_eq!(tags, ["cost=17", "env=prod", "project=x", "project=y"]);
    let both = spend(&running, "organisation,team").await;
    assert_eq!(both["rows"][0]["group"], serde_json::json!({"organisation": "acme", "team": "search"}));
    assert!(both["rows"][0]["dollars"].as_f64() > Some(0.0), "{both}");
    let csv = home.keys(&["spend", "--by", "tag:project", "--format", "csv"]).ok();
    assert_eq!(csv.lines().count(), 3, "{csv}");
    running.stop();
    // The ledger outlives the instance and the recording.
    let table = home.keys(&["spend", "--by", "team,model"]).ok();
    assert!(table.contains("search  gpt-4o  2 ") && table.contains("TOTAL"), "{table}");
    let file = home.dir.path().join("spend.parquet").display().to_string();
    home.keys(&["spend", "--by", "team,model", "--format", "parquet", "--output", &file]).ok();
    let bytes = std::fs::read(&file).unwrap();
    // The format begins and ends with its name; values of one row are not compressed.
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    assert!([&b"search"[..], b"gpt-4o", b"input_tokens"].iter().all(|t| bytes.windows(t.len()).any(|w| w == *t)));
    assert!(home.keys(&["spend", "--format", "parquet"]).fails(2).contains("--output"));
    assert!(home.keys(&["spend", "--by", "colour"]).fails(2).contains("`colour` is not one of"));
}

#[tokio::test]
async fn a_rotated_key_has_two_valid_secrets_during_the_overlap() {
    let home = Home::new().await;
    let first = home.keys(&["add", "--id", "ann"]).ok().trim().to_owned();
    let running = home.start(PROVIDER);
    let second = home.keys(&["rotate", "ann", "--overlap", "24h"]).ok().trim().to_owned();
    for key in [&first, &second] {
        assert_eq!(chat(&running, key).await.status, 200);
    }
    assert!(home.keys(&["list"]).ok().contains("OLD KEY UNTIL"));
    let listed = running.admin("GET", "/api/v1/keys", "").await.json();
    assert!(listed["keys"][0]["previous_until"].is_string(), "{listed}");
    let third = running.admin("POST", "/api/v1/keys/ann/rotate", r#"{"overlap":"1h"}"#).await.json();
    assert_eq!(chat(&running, &first).await.status, 401, "only the last one overlaps");
    assert_eq!(chat(&running, &second).await.status, 200);
    assert_eq!(chat(&running, third["key"].as_str().unwrap()).await.status, 200);
    // Without an overlap all earlier secrets end.
    assert_eq!(running.admin("POST", "/api/v1/keys/ann/rotate", "").await.status, 200);
    assert_eq!(chat(&running, third["key"].as_str().unwrap()).await.status, 401);
    running.stop();
}

#[tokio::test]
async fn alerts_are_posted_once_and_signed() {
    let home = Home::new().await;
    home.keys(&["team", "add", "search", "--tokens-per-month", "100000"]).ok();
    let ann = home.keys(&["add", "--team", "search"]).ok().trim().to_owned();
    let hook = Origin::http().answering(|_| Reply::ok("")).start().await;
    std::fs::write(home.dir.path().join("hook.url"), hook.url("/services/T0/secret")).unwrap();
    std::fs::write(home.dir.path().join("hook.secret"), "shared").unwrap();
    let at = |name: &str| home.dir.path().join(name).display().to_string();
    let (url, secret) = (at("hook.url"), at("hook.secret"));
    let alerts = |percent| {
        format!(
            "[quota.alerts]\nwebhooks = [\"file:{url}\"]\nthresholds = [{percent}]\nsecret = \"file:{secret}\"\n{PROVIDER}"
        )
    };
    // Half a percent of the budget is less than a request uses of a budget of 100 tokens.
    let running = home.start(&alerts("1, 80"));
    home.keys(&["team", "change", "search", "--tokens-per-month", "1500"]).ok();
    assert_eq!(chat(&running, &ann).await.status, 200);
    running.until(async || !hook.requests().is_empty()).await;
    let post = hook.only_request();
    assert_eq!(post.path(), "/services/T0/secret");
    assert!(
        post.header("x-interflow-signature").is_some_and(|s| s.starts_with("sha256=") && s.len() == 71),
        "{post:?}"
    );
    let body: Value = serde_json::from_slice(&post.body).unwrap();
    for (member, value) in [
        ("level", Value::from("team")),
        ("name", "search".into()),
        ("budget", "tokens_per_month".into()),
        ("threshold", 1.into()),
        ("limit", 1500.0.into()),
        ("unit", "tokens".into()),
    ] {
        assert_eq!(body[member], value, "{member} in {body}");
    }
    assert!(body["text"].as_str().unwrap().contains("the team search has used"), "{body}");
    running
        .until(async || {
            let page = running.admin("GET", "/metrics", "").await.text();
            page.contains("interflow_budget_alerts_total{outcome=\"sent\"} 1")
        })
        .await;
    let shown = running.admin("GET", "/api/v1/config", "").await.text();
    assert!(!shown.contains("/services/T0"), "{shown}");
    running.stop();
    // Another limit is another budget; the one that was announced is not announced again.
    let running = home.start(&alerts("1"));
    assert_eq!(chat(&running, &ann).await.status, 200);
    home.keys(&["team", "change", "search", "--tokens-per-month", "1600"]).ok();
    assert_eq!(chat(&running, &ann).await.status, 200);
    running.until(async || hook.requests().len() > 1).await;
    let limits: Vec<f64> = hook
        .requests()
        .iter()
        .map(|post| serde_json::from_slice::<Value>(&post.body).unwrap()["limit"].as_f64().unwrap())
        .collect();
    assert_eq!(limits, [1500.0, 1600.0]);
    running.stop();
    let said = home.refuses_to_start("[quota.alerts]\nwebhooks = [\"hooks.example.com\"]\n");
    assert!(said.contains("quota.alerts.webhooks[0]: it has no scheme"), "{said}");
}

#[tokio::test]
async fn routes_are_priced_by_the_deployment_and_shadows_cost_the_operator() {
    let home = Home::new().await;
    let path = home.dir.path().join("prices.json");
    // The name of the route has a price of its own, which nobody pays.
    let prices = r#"{"prices": {"smart": {"input": 100000, "output": 100000}, "a/real": {"input": 1000, "output": 0}, "b/new": {"input": 2000, "output": 0}}}"#;
    std::fs::write(&path, prices).unwrap();
    let ann = home.keys(&["add", "--id", "ann", "--money-per-day", "3"]).ok().trim().to_owned();
    let url = home.provider.url("");
    let config = format!(
        "[quota]\nprices = \"{}\"\n[llm.provider.a]\nurl = \"{url}\"\nkind = \"openai\"\napi_key = \"sk-a\"\n\
         [llm.provider.b]\nurl = \"{url}\"\nkind = \"openai\"\napi_key = \"sk-b\"\n\
         [llm.route.smart]\ndeployments = [{{ provider = \"a\", model = \"real\" }}]\n\
         shadow = {{ provider = \"b\", model = \"new\", share = 1 }}\n",
        path.display()
    );
    let running = home.start(&config);
    let fields = format!("Authorization: Bearer {ann}\r\n");
    let answer = running.post("/a/v1/chat/completions", &fields, &CHAT.replace("gpt-4o", "smart")).await;
    assert_eq!(answer.status, 200, "by the price of its name it would not fit the budget: {answer:?}");
    running.until(async || spend(&running, "key").await["total"]["requests"] == 2).await;
    let report = spend(&running, "key,provider,model,tag").await;
    let row = |provider: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|r| r["group"]["provider"] == provider).cloned().unwrap_or_default()
    };
    let (real, shadow) = (row("a"), row("b"));
    assert_eq!(real["group"], serde_json::json!({"key": "ann", "provider": "a", "model": "real"}), "{report}");
    assert_eq!(
        shadow["group"],
        serde_json::json!({"provider": "b", "model": "new", "tag": "shadow=b/new"}),
        "{report}"
    );
    let dollars = |row: &Value| row["dollars"].as_f64().unwrap() / row["input_tokens"].as_f64().unwrap() * 1e6;
    assert!((dollars(&real) - 1000.0).abs() < 1e-6 && (dollars(&shadow) - 2000.0).abs() < 1e-6, "{report}");
    let limits = running.admin("GET", "/api/v1/limits", "").await.json();
    let used = limits["counters"][0]["used"].as_f64().unwrap();
    assert!((used - real["dollars"].as_f64().unwrap()).abs() < 1e-9, "the shadow is not on the key's budget: {limits}");
    running.stop();
}
