//! Writes values as YAML in block style.

use serde_json::Value;

/// Serializes a value as a document, keeping the order of members.
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    write_value(value, 0, &mut out);
    out
}

/// Writes the lines of a collection; the indent of the first line has been written.
fn write_block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(map) => {
            for (i, (name, value)) in map.iter().enumerate() {
                if i > 0 {
                    write_indent(indent, out);
                }
                write_text(name, out);
                out.push(':');
                write_member(value, indent, out);
            }
        }
        Value::Array(list) => {
            for (i, value) in list.iter().enumerate() {
                if i > 0 {
                    write_indent(indent, out);
                }
                out.push_str("- ");
                // The first member follows `- ` on the same line.
                write_value(value, indent + 2, out);
            }
        }
        flat => write_inline(flat, out),
    }
}

fn write_member(value: &Value, indent: usize, out: &mut String) {
    if is_block(value) {
        out.push('\n');
        write_indent(indent + 2, out);
    } else {
        out.push(' ');
    }
    write_value(value, indent + 2, out);
}

/// Writes a value to the end of its line.
fn write_value(value: &Value, indent: usize, out: &mut String) {
    if is_block(value) {
        write_block(value, indent, out);
    } else {
        write_inline(value, out);
        out.push('\n');
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(map) => !map.is_empty(),
        Value::Array(list) => !list.is_empty(),
        _ => false,
    }
}

fn write_indent(n: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', n));
}

fn write_inline(value: &Value, out: &mut String) {
    match value {
        Value::String(s) => write_text(s, out),
        // Empty collections, numbers, booleans and null are the same in JSON and YAML.
        other => out.push_str(&other.to_string()),
    }
}

/// Writes a plain scalar if it cannot be misread, else a double-quoted one as in JSON.
fn write_text(s: &str, out: &mut String) {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ' ' | '+' | ':');
    // A leading letter or slash excludes numbers, dates and special characters.
    let starts = s.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/');
    // Words that YAML 1.1 or 1.2 parsers read as other types.
    let other = ["true", "false", "null", "yes", "no", "on", "off", "y", "n"];
    // A colon before a space would make the text a key.
    let is_key = s.contains(": ") || s.ends_with([' ', ':']);
    if starts && !is_key && s.chars().all(plain) && !other.contains(&s.to_ascii_lowercase().as_str()) {
        out.push_str(s);
    } else {
        out.push_str(&Value::from(s).to_string());
    }
}
