//! The loader of public sets of prompts, which the measurement of the guardrails uses.

#[path = "../examples/guardrail_accuracy/labelled.rs"]
mod labelled;

use interflow_llm::spans::TextPlace;
use labelled::{LabelledPrompt, PromptLabel, read_prompts};

fn entry(label: PromptLabel, text: &str) -> LabelledPrompt {
    LabelledPrompt { label, place: TextPlace::User, text: text.to_owned() }
}

#[test]
fn every_documented_format_is_read() {
    let jsonl = "{\"text\": \"a\", \"label\": \"injection\"}\n\n{\"prompt\": \"b\", \"label\": 0}\n";
    assert_eq!(
        read_prompts("x.jsonl", jsonl, None).unwrap(),
        [entry(PromptLabel::Injection, "a"), entry(PromptLabel::Benign, "b")]
    );
    let json = r#"[{"content": "a", "type": "jailbreak"}, {"text": "b", "label": true, "channel": "tool_output"}]"#;
    let read = read_prompts("x.json", json, None).unwrap();
    assert_eq!(read[0], entry(PromptLabel::Jailbreak, "a"));
    assert_eq!((read[1].label, read[1].place), (PromptLabel::Attack, TextPlace::ToolResult));
    let csv = "\u{feff}Text,label\r\n\"say \"\"hi\"\",\nthen stop\",1\r\nplain,legit\r\n";
    assert_eq!(
        read_prompts("x.CSV", csv, None).unwrap(),
        [entry(PromptLabel::Attack, "say \"hi\",\nthen stop"), entry(PromptLabel::Benign, "plain")]
    );
    let texts = read_prompts("x.json", r#"["a"]"#, Some(PromptLabel::Jailbreak)).unwrap();
    assert_eq!(texts, [entry(PromptLabel::Jailbreak, "a")]);
}

#[test]
fn what_cannot_be_read_is_named() {
    for (name, content, says) in [
        ("x.parquet", "", ".jsonl, .json or .csv"),
        ("x.jsonl", "{\"text\": \"a\", \"label\": 1}\n{", "x.jsonl: entry 2 is not JSON"),
        ("x.jsonl", "{\"text\": \"a\", \"label\": \"purple\"}", "x.jsonl: entry 1 has no known label"),
        ("x.jsonl", "{\"label\": 1}", "x.jsonl: entry 1 has no text"),
        ("x.json", "{}", "not an array"),
        ("x.csv", "text,label\n\"a,1\n", "a quoted field does not end"),
        ("x.json", r#"["a"]"#, "has no known label"),
    ] {
        let error = read_prompts(name, content, None).unwrap_err();
        assert!(error.contains(says), "{name}: {error}");
    }
}
