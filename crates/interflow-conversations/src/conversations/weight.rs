//! Estimates the memory of parsed JSON from its text.

/// Bytes per object: the value and its table of members.
const OBJECT: u64 = 320;
/// Bytes per member: its name, and its share of a table that may be larger than its members.
const MEMBER: u64 = 140;
/// Bytes per element, in a list whose capacity may exceed its length.
const ELEMENT: u64 = 110;

/// An estimate of the bytes that the parsed tree takes, rather too high than too low. The conversation's own
/// representation is moved out of the tree.
pub(super) fn of_tree(json: &[u8]) -> u64 {
    // One pass over the text without parsing: structural characters outside of strings are counted.
    let (mut objects, mut members, mut elements) = (0_u64, 0_u64, 0_u64);
    let mut at = 0;
    while let Some(byte) = json.get(at) {
        at += 1;
        match byte {
            b'"' => at = string_end(json, at),
            b'{' => objects += 1,
            b':' => members += 1,
            b',' | b'[' => elements += 1,
            _ => {}
        }
    }
    // Commas separate members as well as elements.
    let elements = elements.saturating_sub(members.saturating_sub(objects));
    json.len() as u64 + objects * OBJECT + members * MEMBER + elements * ELEMENT
}

/// Where the string ends that begins at `at`; most of a text is in strings, which are thus skipped.
fn string_end(json: &[u8], mut at: usize) -> usize {
    while let Some(n) = memchr::memchr2(b'"', b'\\', json.get(at..).unwrap_or_default()) {
        if json[at + n] == b'"' {
            return at + n + 1;
        }
        at += n + 2;
    }
    json.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_estimate_counts_json_nesting_but_not_string_content() {
        let text = br#"{"a":"{[,:\\\"{[,:"}"#;
        assert_eq!(of_tree(text), text.len() as u64 + OBJECT + MEMBER);
        let list = br#"[{},1,"x",{"a":1,"b":2}]"#;
        assert_eq!(of_tree(list), list.len() as u64 + 2 * OBJECT + 2 * MEMBER + 5 * ELEMENT);
    }
}
