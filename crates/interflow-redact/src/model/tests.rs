//! A real model of one layer, which `bench/pii/ner/tiny.py` writes: it knows a few made-up words.

use std::path::PathBuf;

use super::*;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/model")
}

fn config() -> ModelConfig {
    let sum =
        |name: &str| hex::encode(Sha256::digest(std::fs::read(folder().join(name)).expect("a file of the model")));
    ModelConfig {
        path: folder(),
        sha256: ["model.onnx", "tokenizer.json", "config.json"].map(|n| (n.to_owned(), sum(n))).into(),
        labels: [("ADDR".to_owned(), "street-address".to_owned())].into(),
        // The model has 64 positions.
        window: 64,
        threads: 1,
        ..ModelConfig::default()
    }
}

fn error(config: &ModelConfig) -> String {
    EntityModel::load(config, Path::new("/")).expect_err("it must not load").to_string()
}

#[test]
fn a_file_with_another_checksum_is_not_loaded() {
    for name in ["model.onnx", "tokenizer.json", "config.json"] {
        let mut wrong = config();
        wrong.sha256.insert(name.into(), "00".repeat(32));
        let said = error(&wrong);
        assert!(
            said.contains("redact.model.sha256") && said.contains(name) && said.contains(&config().sha256[name]),
            "{said}"
        );
        wrong.sha256.remove(name);
        assert!(error(&wrong).contains(&format!("no entry for {name}")));
    }
}

#[test]
fn what_cannot_be_used_is_named_with_its_key() {
    type Change = fn(&mut ModelConfig);
    let cases: [(Change, &str); 7] = [
        (|c| c.path = PathBuf::new(), "redact.model.path"),
        (|c| c.path = "/nowhere".into(), "redact.model.path: /nowhere/tokenizer.json"),
        (|c| c.file = "../model.onnx".into(), "redact.model.file"),
        (|c| c.window = 8, "redact.model.window"),
        (|c| c.overlap = 200, "redact.model.overlap"),
        (|c| c.labels.clear(), "redact.model.labels.ADDR"),
        (|c| c.timeout.0 = std::time::Duration::ZERO, "redact.model.timeout"),
    ];
    for (change, said) in cases {
        let mut wrong = config();
        change(&mut wrong);
        assert!(error(&wrong).contains(said), "{}", error(&wrong));
    }
}

#[test]
fn windows_overlap_and_each_word_is_decided_once() {
    let words = (0..50).map(|n| wordpiece::Word { bytes: n * 3..n * 3 + 2, pieces: n * 2..n * 2 + 2 }).collect();
    let list = WordList { words, ids: vec![0; 100] };
    for (size, overlap) in [(14, 4), (14, 0), (200, 20), (2, 1), (1, 0)] {
        let all = windows(&list, size, overlap);
        let mut next = 0;
        for window in &all {
            assert!(window.decides.start == next && window.words.start <= next, "{size} {overlap}: {all:?}");
            assert!(window.decides.end <= window.words.end && window.words.len() * 2 <= size.max(2), "{all:?}");
            next = window.decides.end;
        }
        assert_eq!(next, 50, "{size} {overlap}: {all:?}");
    }
    assert_eq!(windows(&list, 14, 4)[1], Window { words: 5..12, decides: 6..11 });
}

#[cfg(not(feature = "ner"))]
#[test]
fn a_build_without_models_says_so() {
    let said = error(&config());
    assert!(said.contains("--features ner") && said.contains("[redact.model]"), "{said}");
}

#[cfg(feature = "ner")]
mod with_a_model {
    use std::time::Duration;

    use interflow_types::units::{ByteSize, HumanDuration};

    use super::*;
    use crate::{AdditionalDetectors, Kind, Policy, RedactionSession, Redactor};

    fn model(change: fn(&mut ModelConfig)) -> Arc<EntityModel> {
        let mut config = config();
        change(&mut config);
        Arc::new(EntityModel::load(&config, Path::new("/")).expect("the model of the tests"))
    }

    fn found<'t>(model: &EntityModel, text: &'t str) -> Vec<(Kind, &'t str)> {
        model.find(text).expect("findings").iter().map(|f| (f.kind, &text[f.start..f.end])).collect()
    }

    #[test]
    fn the_model_finds_its_words_wherever_they_are() {
        let text = "\u{1F600} Qwvzyx Olvik wrote to Br\u{e9}lkano in tarnovia, zeltlane yy.";
        let expected = [
            (Kind::Person, "Qwvzyx Olvik"),
            (Kind::Organization, "Br\u{e9}lkano"),
            (Kind::Location, "tarnovia"),
            (Kind::StreetAddress, "zeltlane yy"),
        ];
        assert_eq!(found(&model(|_| ()), text), expected);
        let long = format!("{} {text}", "the office of ".repeat(300));
        let all = found(&model(|c| (c.window, c.overlap) = (20, 6)), &long);
        assert_eq!(all.iter().filter(|f| f.1 != "office").copied().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_threshold_decides_what_counts() {
        assert_eq!(found(&model(|_| ()), "halv"), [(Kind::Person, "halv")]);
        assert_eq!(found(&model(|c| c.threshold = 90), "halv"), []);
    }

    #[test]
    fn a_model_that_does_not_fit_its_labels_is_not_loaded() {
        let scratch = tempfile::tempdir().expect("a folder");
        for name in ["model.onnx", "tokenizer.json"] {
            std::fs::copy(folder().join(name), scratch.path().join(name)).expect("a copy");
        }
        let card = br#"{"id2label":{"0":"O","1":"PER"}}"#;
        std::fs::write(scratch.path().join("config.json"), card).expect("a file");
        let mut wrong = ModelConfig { path: scratch.path().into(), labels: [].into(), ..config() };
        wrong.sha256.insert("config.json".into(), hex::encode(Sha256::digest(card)));
        assert!(error(&wrong).contains("9 outputs, and config.json lists 2 labels"), "{}", error(&wrong));
        std::fs::write(scratch.path().join("model.onnx"), b"no model").expect("a file");
        wrong.sha256.insert("model.onnx".into(), hex::encode(Sha256::digest(b"no model")));
        assert!(error(&wrong).contains("model.onnx: it cannot be loaded"), "{}", error(&wrong));
    }

    #[test]
    fn a_window_that_the_model_cannot_run_shows_at_the_start() {
        let said = error(&ModelConfig { window: 65, ..config() });
        assert!(said.contains("a window of 65 tokens (redact.model.window)"), "{said}");
    }

    /// What is redacted in a text with the model, and without.
    fn redacted(policy: &str, text: &str) -> [String; 2] {
        let model = model(|_| ());
        let redactor = Redactor::new(Policy::parse(policy).expect("a policy"));
        [true, false].map(|with| {
            let mut session = RedactionSession::one_way();
            if with {
                session.model = ModelFindings::for_text(text, model.find(text).expect("findings"));
            }
            redactor.redact_text(text, &mut session).expect("redacted").output.unwrap_or_else(|| text.to_owned())
        })
    }

    #[test]
    fn names_that_only_the_model_knows_are_redacted_under_the_policy() {
        let text = "everyone likes tarnovia there, see zeltlane yy";
        let [with, without] = redacted("", text);
        assert_eq!(without, text);
        assert!(!with.contains("tarnovia") && !with.contains("zeltlane") && with.contains("location"), "{with}");
        assert_eq!(redacted("except = ['location', 'street-address']", text)[0], text);
        assert!(redacted("confidence = 99", text)[0].contains("tarnovia"));
    }

    #[test]
    fn the_weights_outweigh_a_model_that_is_wrong() {
        // To the model, every `office` is an organisation.
        let text = "She opened the office in the morning.";
        let [with, without] = redacted("", text);
        assert_eq!((with.as_str(), without.as_str()), (text, text));
    }

    #[test]
    fn a_cached_text_is_not_confused_with_the_same_text_without_a_model() {
        let text = format!("everyone likes tarnovia there. {}", "nothing happens here ".repeat(20));
        let cache = Arc::new(FindingCache::new(100).expect("a cache"));
        let redactor = Redactor::default().with_cache(cache);
        let mut session = RedactionSession::one_way();
        assert_eq!(redactor.redact_text(&text, &mut session).expect("redacted").output, None);
        session.model = ModelFindings::for_text(&text, model(|_| ()).find(&text).expect("findings"));
        assert!(redactor.redact_text(&text, &mut session).expect("redacted").output.is_some());
    }

    #[tokio::test]
    async fn texts_are_found_together_and_cached() {
        let model = model(|_| ());
        let texts = ["qwvzyx", "nobody here", "qwvzyx", "12 34"];
        let findings = model.find_all(&texts).await.expect("findings");
        assert_eq!(findings.findings_in("qwvzyx").map(|f| f.len()), Some(1));
        assert_eq!(findings.findings_in("nobody here").map(|f| f.len()), Some(0));
        assert!(findings.findings_in("12 34").is_none());
        assert_eq!(model.cache.len(), 2);
        // What is cached needs neither a turn nor time.
        let _turn = Arc::clone(&model.turn).acquire_owned().await.expect("a turn");
        assert_eq!(model.find_all(&texts).await.expect("findings").0.len(), 2);
    }

    #[tokio::test]
    async fn a_failure_is_an_error_or_leaves_the_text_to_the_rules() {
        let too_long: fn(&mut ModelConfig) = |c| c.max_text = ByteSize(4);
        let late: fn(&mut ModelConfig) = |c| c.timeout = HumanDuration(Duration::from_nanos(1));
        for (change, said) in [(too_long, "redact.model.max_text"), (late, "redact.model.timeout")] {
            let closed = model(change).find_all(&["qwvzyx"]).await.expect_err("a failure").to_string();
            assert!(closed.contains(said), "{closed}");
            let mut config = config();
            change(&mut config);
            config.failure = BackendFailure::Open;
            let open = Arc::new(EntityModel::load(&config, Path::new("/")).expect("the model of the tests"));
            assert!(open.find_all(&["qwvzyx"]).await.expect("no findings").findings_in("qwvzyx").is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_the_model_keeps_nobody_from_other_scans() {
        let model = model(|_| ());
        let turn = Arc::clone(&model.turn).acquire_owned().await.expect("a turn");
        let texts = ["qwvzyx ".repeat(2 << 20)];
        let waiting = AdditionalDetectors { model: Some(model), services: None };
        let mut waiting = Box::pin(waiting.find_all(&texts));
        assert!(futures_util::poll!(&mut waiting).is_pending());
        let scan = tokio::time::timeout(Duration::from_secs(1), crate::scan::scan_capacity::reserve(8 << 20)).await;
        assert!(scan.is_ok(), "the capacity is free");
        drop((waiting, turn));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_its_turn_no_longer_than_the_time_limit() {
        let model = model(|_| ());
        let _turn = Arc::clone(&model.turn).acquire_owned().await.expect("a turn");
        let said = model.find_all(&["qwvzyx"]).await.expect_err("no turn").to_string();
        assert!(said.contains("not done within 10s"), "{said}");
    }
}
