//! Properties of streams: however a reply is divided into events, what is masked is the same; and which texts a
//! guardrail looks at.

use std::sync::Arc;

use interflow_llm::event_stream::StreamFraming;
use interflow_llm::spans::{TextPlace, mark_body, multipart};
use interflow_llm::{
    GuardrailAction, GuardrailConfig, GuardrailDirection, GuardrailKind, GuardrailMessages, LlmConfig,
};
use interflow_types::{Direction, Error, ErrorKind, Flow, HttpClient, MaybeFuture, Request, ResponseFuture};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check::{CallFacts, CheckInput, CheckResult, Finding, Guardrail};
use super::evaluate::CheckJob;
use super::record::GuardrailRecord;
use super::settings::Guard;
use super::stream::{CollectRewriter, EditRewriter, MatchRewriter, StreamedTexts};
use super::texts::{TextEdit, body_edits, texts_of_form, texts_of_json};
use super::{GuardrailService, Reviewer};
use crate::exchange::response::event_rewriter::TextRewriter;
use crate::exchange::response::rewrite_step::rewrite_whole;
use crate::gateway::{GatewayDeps, LlmGateway};
use interflow_limits::{NoRedis, QuotaConfig, UsageLimiter};

struct Nowhere;

impl HttpClient for Nowhere {
    fn send(&self, _: Request) -> ResponseFuture<'_> {
        Box::pin(async { Err(Error::new(ErrorKind::Connect, "nowhere")) })
    }
}

fn service(guardrails: &[(&str, GuardrailConfig)]) -> Arc<GuardrailService> {
    let guardrail = guardrails.iter().map(|(name, config)| ((*name).to_owned(), config.clone())).collect();
    let config = LlmConfig { guardrail, ..LlmConfig::default() };
    let table = LlmGateway::compile(&config, &|_| Err("none".into())).unwrap();
    let client: Arc<dyn HttpClient> = Arc::new(Nowhere);
    let limits = UsageLimiter::with_deps(
        &QuotaConfig::default(),
        std::path::Path::new("."),
        &NoRedis,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    let deps = GatewayDeps {
        egress: Arc::clone(&client),
        unrecorded: Arc::clone(&client),
        metadata: Arc::clone(&client),
        limits,
        inspects_everywhere: Box::new(|_| false),
    };
    let gateway = LlmGateway::new(table, deps);
    let nobody: Reviewer = Box::new(|_, _, _| Box::pin(async { Err("there is no one to ask".to_owned()) }));
    GuardrailService::new(&config, std::path::Path::new("."), gateway, client, nobody).unwrap()
}

fn flow() -> Flow {
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let client = interflow_types::ClientInfo {
        connection: 1,
        peer: address,
        local: address,
        listener: "gateway".into(),
        accepted: interflow_types::Timestamp::now(),
        container: None,
        process: None,
    };
    let (scheme, authority) = (interflow_types::Scheme::Http, "a.test:80".parse().unwrap());
    Flow::begin(client.into(), interflow_types::EntryKind::Gateway, scheme, authority)
}

fn masking(patterns: &[&str]) -> GuardrailConfig {
    GuardrailConfig {
        kind: GuardrailKind::Regex,
        apply_to: GuardrailDirection::Output,
        action: GuardrailAction::Mask,
        patterns: patterns.iter().map(|p| (*p).to_owned()).collect(),
        mask: "<\"m\">".into(),
        ..GuardrailConfig::default()
    }
}

fn match_rewriter(service: &Arc<GuardrailService>) -> MatchRewriter {
    let guards: Vec<Arc<Guard>> = service.settings.load().guards().to_vec();
    MatchRewriter::new(Arc::clone(service), guards, GuardrailRecord::default(), None, 1 << 20)
}

/// A stream of a text in these fragments, as a reply and as a tool call's arguments.
fn stream(pieces: &[&str], as_arguments: bool) -> String {
    let event = |piece: &str| {
        let delta = match as_arguments {
            true => json!({"type": "input_json_delta", "partial_json": piece}),
            false => json!({"type": "text_delta", "text": piece}),
        };
        format!("data: {}\n\n", json!({"type": "content_block_delta", "index": 0, "delta": delta}))
    };
    let end = "data: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
    pieces.iter().map(|p| event(p)).collect::<String>() + end
}

fn text_of(stream: &[u8]) -> String {
    let text = std::str::from_utf8(stream).unwrap();
    let events = text.lines().filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("data: ")?).ok());
    events
        .map(|e| {
            format!(
                "{}{}",
                e["delta"]["text"].as_str().unwrap_or(""),
                e["delta"]["partial_json"].as_str().unwrap_or("")
            )
        })
        .collect()
}

fn rewrite<P: TextRewriter>(stream: &str, rewriter: P) -> Vec<u8> {
    rewrite_whole(StreamFraming::Sse, [stream.as_bytes()], rewriter).map_err(|e| e.message).unwrap()
}

fn pieces<'t>(text: &'t str, cuts: &[prop::sample::Index]) -> Vec<&'t str> {
    let mut at: Vec<usize> = cuts.iter().map(|c| text.floor_char_boundary(c.index(text.len() + 1))).collect();
    at.extend([0, text.len()]);
    at.sort_unstable();
    at.windows(2).map(|w| &text[w[0]..w[1]]).collect()
}

/// Texts of words, some of which match, with quotes, line breaks and characters of several bytes.
fn texts() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        Just("ID-12345"),
        Just("ID-1"),
        Just("ID-"),
        Just("I"),
        Just("falcon"),
        Just("falconer"),
        Just("\"q\""),
        Just("é😀"),
        Just("\n"),
        Just(" "),
        Just("x\\y"),
        Just("ok"),
    ];
    prop::collection::vec(word, 0..12).prop_map(|words| words.concat())
}

proptest! {
    #[test]
    fn fragments_do_not_change_what_is_masked(text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10)) {
        let service = service(&[("g", masking(&[r"ID-\d+", r"\bfalcon\b"]))]);
        let expected = regex::Regex::new(r"ID-\d+|\bfalcon\b").unwrap().replace_all(&text, "<\"m\">").into_owned();
        let streamed = rewrite(&stream(&pieces(&text, &cuts), false), match_rewriter(&service));
        prop_assert_eq!(text_of(&streamed), expected);
        // Arguments are JSON, in which the same texts are values.
        let arguments = json!({"a": text}).to_string();
        let streamed = text_of(&rewrite(&stream(&pieces(&arguments, &cuts), true), match_rewriter(&service)));
        let value: Value = serde_json::from_str(&streamed).unwrap();
        let expected = regex::Regex::new(r"ID-\d+|\bfalcon\b").unwrap().replace_all(&text, "<\"m\">").into_owned();
        prop_assert_eq!(value["a"].as_str().unwrap(), expected);
    }

    #[test]
    fn edits_of_a_held_stream_are_those_of_its_text(text in texts(), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>()) {
        for as_arguments in [false, true] {
            let whole = if as_arguments { json!({"a": text}).to_string() } else { text.clone() };
            let stream = stream(&pieces(&whole, &cuts), as_arguments);
            let collected = StreamedTexts::default();
            let unchanged = rewrite(&stream, CollectRewriter::new(collected.clone()));
            prop_assert_eq!(text_of(&unchanged), whole.clone());
            let Some(seen) = collected.take().into_iter().next() else { continue };
            let at = |i: &prop::sample::Index| seen.text.floor_char_boundary(i.index(seen.text.len() + 1));
            let range = at(&from).min(at(&to))..at(&from).max(at(&to));
            if range.is_empty() || as_arguments && seen.text[range.clone()].contains(['"', '{', '}', ':']) {
                continue;
            }
            let edit = TextEdit { text: 0, range: range.clone(), with: "MASK".into() };
            let edited = text_of(&rewrite(&stream, EditRewriter::new(vec![edit])));
            let mut expected = seen.text.clone();
            expected.replace_range(range, "MASK");
            match as_arguments {
                false => prop_assert_eq!(edited, expected),
                // Compared without their escapes.
                true => prop_assert_eq!(super::escapes::decode(&edited).into_owned(), expected),
            }
        }
    }
}

#[test]
fn a_disguised_word_is_masked_in_a_stream_however_it_is_divided() {
    let words = GuardrailConfig {
        kind: GuardrailKind::Words,
        words: vec!["Project Falcon".into(), "geheim".into()],
        patterns: Vec::new(),
        ..masking(&[])
    };
    let service = service(&[("g", words)]);
    for text in ["on Pro\u{200b}ject\u{ad} ｆalcon, ok", "on project-f\u{430}lcon, ok", "on ge\u{301}h\u{336}eim, ok"]
    {
        for step in [1, 2, 3, 5, 100] {
            let chars: Vec<char> = text.chars().collect();
            let pieces: Vec<String> = chars.chunks(step).map(|piece| piece.iter().collect()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            let streamed = text_of(&rewrite(&stream(&pieces, false), match_rewriter(&service)));
            assert_eq!(streamed, "on <\"m\">, ok", "{text} in pieces of {step}");
        }
    }
    // Without an end, it is not waited for.
    let endless = format!("Project{} and more", "\u{200b}".repeat(10_000));
    let streamed = rewrite(&stream(&[&endless], false), match_rewriter(&service));
    assert_eq!(text_of(&streamed), endless);
}

#[test]
fn a_word_split_between_two_parts_of_a_message_is_found_and_masked_in_both() {
    let part = |text: &str| json!({"type": "text", "text": text});
    let body = |first: &str, second: &str| {
        json!({"messages": [{"role": "user", "content": [part(first), part(second)]}, {"role": "user", "content": "con"}]})
            .to_string()
    };
    let config = GuardrailConfig { kind: GuardrailKind::Words, words: vec!["Project Falcon".into()], ..masking(&[]) };
    let service = service(&[("g", config)]);
    let found = |first: &str, second: &str| {
        let body = body(first, second);
        let texts = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
        let guard = Arc::clone(&service.settings.load().guards()[0]);
        let (facts, selected) = (CallFacts::default(), guard.select(Direction::Request, &texts));
        let MaybeFuture::Ready(found) = guard.check.check(guard.input(Direction::Request, &facts, &texts, &selected))
        else {
            panic!("it waits")
        };
        let text = |finding: &Finding| texts[finding.text].text[finding.range.clone()].to_owned();
        found.unwrap().iter().map(text).collect::<Vec<_>>()
    };
    assert_eq!(found("my project", "falcon flies"), ["project", "falcon"]);
    assert_eq!(found("my project fal", "con flies"), ["project fal", "con"]);
    assert_eq!(found("my project", "is a falcon"), [""; 0]);
    assert_eq!(found("nothing", "project fal"), [""; 0], "another message");
}

#[test]
fn texts_of_a_stream_that_nothing_checks_are_reported() {
    let config = GuardrailConfig { action: GuardrailAction::Flag, ..masking(&["x"]) };
    for (max, is_unread) in [(1_000, false), (4, true)] {
        let service = service(&[("g", config.clone())]);
        let guards: Vec<Arc<Guard>> = service.settings.load().guards().to_vec();
        let mut flow = flow();
        let (send, mut receive) = tokio::sync::oneshot::channel();
        let rewriter = MatchRewriter::new(service, guards, GuardrailRecord::of(&mut flow), Some(send), max);
        rewrite(&stream(&["abc", "def"], false), rewriter);
        let (texts, _) = receive.try_recv().unwrap();
        assert_eq!(texts[0].text, if is_unread { "abc" } else { "abcdef" });
        GuardrailRecord::tag(&mut flow);
        assert_eq!(flow.tags.iter().any(|tag| *tag == "guardrail:unread"), is_unread);
    }
}

/// A check that goes on until it is told to stop.
struct Endless(std::sync::mpsc::Sender<&'static str>);

impl Guardrail for Endless {
    fn check<'a>(&'a self, _: CheckInput<'a>) -> MaybeFuture<'a, CheckResult> {
        self.0.send("began").unwrap();
        while !interflow_redact::is_stop_requested() {
            std::thread::yield_now();
        }
        self.0.send("stopped").unwrap();
        MaybeFuture::Ready(Ok(Vec::new()))
    }
}

#[tokio::test]
async fn a_check_that_nobody_waits_for_stops_and_holds_its_capacity_until_then() {
    let (told, hear) = std::sync::mpsc::channel();
    let config = masking(&["x"]);
    let service = service(&[("g", config.clone())]);
    let guard = Arc::new(Guard { name: "endless".into(), config, check: Box::new(Endless(told)) });
    let texts = Arc::new(vec![super::texts::whole_text(&"x".repeat(16 << 20), TextPlace::User)]);
    let job = CheckJob { direction: Direction::Request, facts: Arc::default(), texts, _held: Arc::default() };
    let running = tokio::spawn(async move { job.run(&service, &[guard]).await.len() });
    let hear = tokio::task::spawn_blocking(move || (hear.recv(), hear)).await.unwrap();
    assert_eq!(hear.0, Ok("began"));
    let mut other = Box::pin(interflow_redact::scan_capacity::reserve(1));
    assert!(futures_util::poll!(&mut other).is_pending(), "the check has all of the capacity");
    running.abort();
    drop(other.await);
    assert_eq!(hear.1.try_recv(), Ok("stopped"));
}

#[test]
fn nothing_is_held_back_that_cannot_be_part_of_a_match() {
    let service = service(&[("g", masking(&[r"ID-\d+"]))]);
    let mut rewriter = match_rewriter(&service);
    let kind = interflow_llm::spans::SpanKind::Text;
    let mut push = |raw: &str| rewriter.rewrite_piece(1, raw, &kind).map_err(|e| e.message).unwrap();
    assert_eq!(push("hello "), None, "as it came");
    assert_eq!(push("see I"), Some("see ".into()));
    assert_eq!(push("t is"), Some("It is".into()));
    assert_eq!(push(" ID-4"), Some(" ".into()));
    assert_eq!(push("2, "), Some("<\\\"m\\\">, ".into()));
    assert!(!rewriter.has_buffered(1));
}

#[test]
fn a_match_longer_than_the_window_does_not_hold_the_stream_for_ever() {
    let mut config = masking(&["x+"]);
    config.window = interflow_types::units::ByteSize(8);
    let service = service(&[("g", config)]);
    let long = "x".repeat(5000);
    let streamed = text_of(&rewrite(&stream(&pieces(&long, &[]), false), match_rewriter(&service)));
    assert!(!streamed.contains('x') && streamed.contains("<\"m\">"), "{streamed}");
}

#[test]
fn places_and_history_select_texts() {
    let body = json!({
        "system": "s",
        "messages": [
            {"role": "user", "content": "old"}, {"role": "assistant", "content": "reply"},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": "result"}]}]
    })
    .to_string();
    let texts = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
    let selected = |config: GuardrailConfig| {
        let service = service(&[("g", config)]);
        let guard = service.settings.load().guards()[0].select(Direction::Request, &texts);
        guard.into_iter().map(|i| texts[i].text.clone()).collect::<Vec<_>>()
    };
    let words = GuardrailConfig { kind: GuardrailKind::Words, words: vec!["x".into()], ..GuardrailConfig::default() };
    let latest = GuardrailConfig { messages: GuardrailMessages::Latest, ..words.clone() };
    let results = GuardrailConfig { places: vec![interflow_llm::spans::TextPlace::ToolResult], ..words.clone() };
    assert_eq!(selected(words), ["s", "old", "reply", "result"]);
    assert_eq!(selected(latest), ["s", "result"]);
    assert_eq!(selected(results), ["result"]);
    assert_eq!(selected(GuardrailConfig::default()), ["old", "result"], "injection: not what the operator wrote");
}

#[test]
fn a_text_with_an_invalid_byte_is_read_all_the_same() {
    let body = b"{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"\xffBlue Heron\"}]}";
    let texts = texts_of_json(body, &mark_body(body, true).unwrap());
    assert!(texts.iter().any(|text| text.text.ends_with("Blue Heron")));
    let form = b"--b\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n\xffBlue Heron\r\n\
        --b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"f\"\r\n\r\n\xff text\r\n\
        --b\r\nContent-Disposition: form-data; name=\"g\"; filename=\"g\"\r\n\r\n\xff\0\x01 image\r\n\
        --b\r\nContent-Disposition: form-data; name=\"h\"; filename=\"h.txt\"\r\n\r\nw\0i\0d\0e\0\r\n--b--\r\n";
    let texts = texts_of_form(form, &multipart::parse(form, "b").unwrap()).unwrap();
    let has = |end: &str| texts.iter().any(|text| text.text.ends_with(end));
    assert!(has(" text") && !has(" image"));
    let wide = texts.iter().position(|text| text.text == "wide").expect("UTF-16 is read");
    let edit = TextEdit { text: wide, range: 0..4, with: "x".into() };
    assert!(body_edits(form, &texts, vec![edit]).is_err(), "what is found in it cannot be replaced");
    let file = json!({"type": "base64", "media_type": "text/csv", "data": "dwBpAGQAZQAgAHcAaQBkAGUAIAB3AGkAZABlACAAdwBpAGQAZQAgAHcAaQBkAGUAIAB3AGkAZABlACAAdwBpAGQAZQAgAHcAaQBkAGUAIAA="});
    let body = json!({"messages": [{"role": "user", "content": [{"type": "document", "source": file}]}]}).to_string();
    let of_json = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
    assert!(of_json.iter().any(|text| text.text.starts_with("wide wide")), "{of_json:?}");
    let at = texts.iter().position(|text| text.text.ends_with("Blue Heron")).unwrap();
    let edit = TextEdit { text: at, range: 0..3, with: "x".into() };
    assert!(body_edits(form, &texts, vec![edit]).is_err(), "what is found in it cannot be replaced");
}

fn words(word: &str, more: GuardrailConfig) -> GuardrailConfig {
    GuardrailConfig {
        kind: GuardrailKind::Words,
        words: vec![word.into()],
        apply_to: GuardrailDirection::Input,
        action: GuardrailAction::Block,
        ..more
    }
}

#[test]
fn a_guardrail_of_a_provider_applies_to_what_may_be_sent_there() {
    let of_mistral = GuardrailConfig { providers: vec!["mistral".into()], ..GuardrailConfig::default() };
    let service = service(&[("g", words("x", of_mistral))]);
    let call = interflow_llm::LlmCall {
        upstream: Some("openai".into()),
        others: vec!["mistral".into()],
        ..Default::default()
    };
    assert_eq!(service.settings.load().for_flow(&flow(), &call).input.len(), 1);
}

#[test]
fn a_text_file_in_base64_is_read_however_it_is_written() {
    for data in [r"Pz8\/Pz8\/Qmx1ZSBIZXJvbg==", r"Pz8/Pz8/Qmx1\nZSBIZXJvbg==", "Pz8_Pz8_Pz8_Qmx1ZSBIZXJvbg"] {
        let body = format!(
            r#"{{"messages":[{{"role":"user","content":[{{"type":"document","source":{{"type":"base64","media_type":"text/plain","data":"{data}"}}}}]}}]}}"#
        );
        let texts = texts_of_json(body.as_bytes(), &mark_body(body.as_bytes(), true).unwrap());
        assert!(texts.iter().any(|text| text.text.ends_with("Blue Heron")), "{data}: {texts:?}");
    }
}

#[tokio::test]
async fn a_text_beside_a_media_type_is_checked() {
    let service = service(&[("g", words("Falcon", GuardrailConfig::default()))]);
    let guard = service.of_mcp_call(&mut flow(), "notes").unwrap();
    let result = json!({"structuredContent": {"mimeType": "text/plain", "data": "about Falcon"}}).to_string();
    assert!(guard.check_result(result).await.is_err());
    let image = json!({"content": [{"type": "image", "mimeType": "image/png", "data": "Falcon=="}]}).to_string();
    assert!(guard.check_result(image).await.is_ok());
}
