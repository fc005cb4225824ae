//! JSON with new whitespace.

use serde::de::IgnoredAny;

/// JSON indented by two spaces. Only whitespace between tokens changes: numbers, escapes and duplicate names stay as
/// written. Several concatenated values (JSON lines) become several blocks.
///
/// # Errors
/// The position of the syntax error.
pub fn json(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| format!("byte {} is not UTF-8", e.valid_up_to()))?;
    let text = text.trim_start_matches('\u{feff}');
    // Checked as a whole first: `with_indents` relies on valid JSON.
    let mut values = 0;
    for value in serde_json::Deserializer::from_str(text).into_iter::<IgnoredAny>() {
        value.map_err(|e| e.to_string())?;
        values += 1;
    }
    if values == 0 { Err("it is empty".into()) } else { Ok(with_indents(text)) }
}

/// Writes the tokens of valid JSON with new whitespace.
fn with_indents(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    let mut depth = 0_usize;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                let mut escaped = false;
                let mut end = at + 1;
                for (i, c) in chars.by_ref() {
                    end = i + 1;
                    // Only unescaped quotes end a string.
                    match c {
                        _ if escaped => escaped = false,
                        '\\' => escaped = true,
                        '"' => break,
                        _ => end = i + c.len_utf8(),
                    }
                }
                out.push_str(&text[at..end]);
            }
            '{' | '[' => {
                out.push(c);
                // Empty lists and objects stay on one line.
                while chars.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
                if let Some((_, close)) = chars.next_if(|(_, c)| matches!(c, '}' | ']')) {
                    out.push(close);
                    end_of_value(&mut out, depth);
                } else {
                    depth += 1;
                    line(&mut out, depth);
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
                end_of_value(&mut out, depth);
            }
            ',' => {
                out.push(c);
                line(&mut out, depth);
            }
            ':' => out.push_str(": "),
            c if c.is_ascii_whitespace() => {
                // Between concatenated top-level values.
                if depth == 0 && !out.is_empty() && !out.ends_with('\n') {
                    out.push('\n');
                }
            }
            c => out.push(c),
        }
    }
    out
}

fn end_of_value(out: &mut String, depth: usize) {
    if depth == 0 {
        out.push('\n');
    }
}

/// Maximum indentation depth: otherwise the output would grow with the square of the nesting depth.
const MAX_INDENT: usize = 64;

fn line(out: &mut String, depth: usize) {
    out.push('\n');
    super::indent(out, depth.min(MAX_INDENT));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_view_preserves_tokens() {
        let text = r#"{"a":1.0000000000000000001,"a":[],"b":[1,{"c":"x\"},{\u00e9 é"}],"d":{ } , "e" : -0.0e5}"#;
        let shown = json(text.as_bytes()).unwrap();
        let expected = "{\n  \"a\": 1.0000000000000000001,\n  \"a\": [],\n  \"b\": [\n    1,\n    {\n      \"c\": \"x\\\"},{\\u00e9 é\"\n    }\n  ],\n  \"d\": {},\n  \"e\": -0.0e5\n}\n";
        assert_eq!(shown, expected);
        assert_eq!(json(shown.as_bytes()).unwrap(), shown, "what is indented stays so");
    }

    #[test]
    fn json_lines_are_formatted_as_separate_documents() {
        assert_eq!(json(b"{\"a\":1}\n{\"b\":2}\n").unwrap(), "{\n  \"a\": 1\n}\n{\n  \"b\": 2\n}\n");
        assert_eq!(json(b"1 2").unwrap(), "1\n2");
    }

    #[test]
    fn invalid_json_is_refused_with_its_position() {
        for (bad, why) in [(&b"{\"a\":}"[..], "line 1 column 6"), (b"", "empty"), (b"\xff", "byte 0"), (b"{", "EOF")] {
            assert!(json(bad).unwrap_err().contains(why), "{bad:?}: {:?}", json(bad));
        }
        assert!(json("[".repeat(100_000).as_bytes()).is_err(), "depth is bounded");
    }
}
