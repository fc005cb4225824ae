//! The operations of a GraphQL request (GraphQL over HTTP): of one request or a batch in JSON, of a form, of a document,
//! and of the query of a URL.

use std::sync::LazyLock;

use interflow_query::Tristate;
use interflow_types::Direction;

use crate::flow::view::FlowView;
use crate::text::json::JsonPath;
use crate::text::query_params::decode_pairs;

/// The paths of `operationName` and `query` in one request, and in a batch.
static PATHS: LazyLock<[JsonPath; 4]> = LazyLock::new(|| {
    ["$.operationName", "$.query", "$[*].operationName", "$[*].query"]
        .map(|path| JsonPath::parse(path).expect("a path"))
});

/// The paths that a condition on the operation of a GraphQL request reads.
pub(crate) fn graphql_paths() -> &'static [JsonPath; 4] {
    &PATHS
}

/// Calls `fits` with the names of the operations that the request may run, until it returns true: those in
/// `operationName`, or if that is absent, all in the document. Of a batch, every request counts.
pub(crate) fn evaluate_operations(view: &FlowView<'_>, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
    let query = view.request.and_then(|request| request.url.query()).unwrap_or_default();
    if in_pairs(query, fits) {
        return Tristate::Known(true);
    }
    let message = view.message.filter(|message| message.direction == Direction::Request);
    let content = match (message, view.body_of(Direction::Request)) {
        (Some(message), _) if !view.message_is_unread => &message.payload,
        (None, Some(body)) => body.text(),
        _ => return Tristate::NotYet,
    };
    let media = view.head_of(Direction::Request).and_then(|headers| headers.get_str("content-type"));
    let media = media.and_then(|media| media.split(';').next()).unwrap_or_default().trim();
    let text = String::from_utf8_lossy(content);
    if media.eq_ignore_ascii_case("application/graphql") {
        return Tristate::Known(in_document(&text, fits));
    }
    if media.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
        return Tristate::Known(in_pairs(&text, fits));
    }
    let is_batch = text.trim_start_matches('\u{feff}').trim_ascii_start().starts_with('[');
    let [one_name, one_document, names, documents] = graphql_paths();
    let mut named = false;
    let (name, document) = if is_batch { (names, documents) } else { (one_name, one_document) };
    let by_name = view.json(Direction::Request, name, &mut |name| {
        // Without a name, it is null or absent.
        let is_name = name != b"null";
        named |= is_name;
        is_name && fits(name)
    });
    if by_name.holds() || by_name == Tristate::NotYet || named && !is_batch {
        return by_name;
    }
    view.json(Direction::Request, document, &mut |document| in_document(&String::from_utf8_lossy(document), fits))
}

/// The operations of the parameters `operationName` and `query`, of a URL or a form.
fn in_pairs(pairs: &str, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let mut named = false;
    for (name, value) in decode_pairs(pairs) {
        if name == "operationName" && !value.is_empty() {
            named = true;
            if fits(value.as_bytes()) {
                return true;
            }
        }
    }
    !named && decode_pairs(pairs).any(|(name, value)| name == "query" && in_document(&value, fits))
}

/// What the next name in a document is.
#[derive(PartialEq, Eq)]
enum NextName {
    Keyword,
    /// Of an operation.
    Operation,
    /// Of a fragment, a type or a directive.
    Other,
}

/// The names of the operations in a document (GraphQL 2.3), as far as they have one.
fn in_document(document: &str, fits: &mut dyn FnMut(&[u8]) -> bool) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (mut rest, mut depth, mut next) = (document, 0_usize, NextName::Keyword);
    while let Some(first) = rest.chars().next() {
        let after = &rest[first.len_utf8()..];
        rest = match first {
            '#' => after.find(['\n', '\r']).map_or("", |end| &after[end..]),
            '"' => after_string(after),
            '{' | '(' | '[' => {
                (depth, next) = (depth + 1, NextName::Keyword);
                after
            }
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                after
            }
            '@' => {
                next = NextName::Other;
                after
            }
            c if is_name(c) => {
                let (name, after) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
                next = match (depth, next, name) {
                    (1.., ..) => NextName::Keyword,
                    (_, NextName::Operation, name) if fits(name.as_bytes()) => return true,
                    (_, NextName::Keyword, "query" | "mutation" | "subscription") => NextName::Operation,
                    (_, NextName::Keyword, "fragment" | "on") => NextName::Other,
                    _ => NextName::Keyword,
                };
                after
            }
            _ => after,
        };
    }
    false
}

/// What follows a string whose opening quote was read: a block string if two more follow.
fn after_string(text: &str) -> &str {
    if let Some(mut block) = text.strip_prefix("\"\"") {
        while let Some(at) = block.find("\"\"\"") {
            let is_escaped = block[..at].ends_with('\\');
            block = &block[at + 3..];
            if !is_escaped {
                return block;
            }
        }
        return "";
    }
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return &text[at + 1..],
            // A string ends at the end of its line.
            '\n' | '\r' => return &text[at..],
            _ => escaped = c == '\\' && !escaped,
        }
    }
    ""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_operations_are_read() {
        for (document, expected) in [
            ("query A { b }", vec!["A"]),
            ("{ query }", vec![]),
            ("query { mutation }", vec![]),
            ("#query X\nquery#y\n A { b }", vec!["A"]),
            (",,query,A{ b }", vec!["A"]),
            ("\u{feff}query A{ b }", vec!["A"]),
            ("fragment query on mutation { a } query A @x { b }", vec!["A"]),
            ("query A($q: [Int] = 1) { b } mutation B { c(d: \"}\") }", vec!["A", "B"]),
            ("query A { a(b: \"\"\" } \\\"\"\" } query X \"\"\") } subscription B { c }", vec!["A", "B"]),
            ("query @x B { c }", vec![]),
        ] {
            let mut names = Vec::new();
            in_document(document, &mut |name| {
                names.push(String::from_utf8_lossy(name).into_owned());
                false
            });
            assert_eq!(names, expected, "{document}");
        }
    }
}
