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
    let (mut inside, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = inside,
            b'"' => inside = !inside,
            _ if inside => {}
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
