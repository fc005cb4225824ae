//! The operation that a request performs, if its body names it: GraphQL and JSON-RPC (MCP and the Language Server
//! Protocol among them) use one path for everything. A gRPC path names its method already.

use interflow_store::{FlowRecord, FlowStore};
use interflow_types::Direction;
use serde_json::Value;

/// Larger bodies are not read: names come early, and a page of rows must load at once.
const MAX_BODY: u64 = 64 << 10;
/// Characters of a name that a row shows.
const MAX_NAME: usize = 80;

/// The operation of a recorded request; `None` if it has none, or its body is long, coded or not recorded.
pub(crate) fn operation_name(store: &dyn FlowStore, row: &FlowRecord) -> Option<String> {
    let request = row.request.as_ref()?;
    let size = request.body.size;
    let coded = request.headers.get("content-encoding").is_some();
    if request.method != "POST" || size == 0 || size > MAX_BODY || request.body.kept < size || coded {
        return None;
    }
    if !row.media_type(Direction::Request).is_some_and(|t| t.ends_with("json")) {
        return None;
    }
    let body = store.body(row.id, Direction::Request, 0..size).ok()?.read_all(size as usize).ok()?;
    from_json(&body)
}

fn from_json(body: &[u8]) -> Option<String> {
    let name = match serde_json::from_slice(body).ok()? {
        // A batch: its first operation, and how many follow.
        Value::Array(all) if all.len() > 1 => format!("{} +{}", from_object(all.first()?)?, all.len() - 1),
        Value::Array(all) => from_object(all.first()?)?,
        one => from_object(&one)?,
    };
    Some(name.chars().take(MAX_NAME).map(|c| if c.is_control() { ' ' } else { c }).collect())
}

fn from_object(request: &Value) -> Option<String> {
    let text = |name: &str| request.get(name).and_then(Value::as_str).filter(|t| !t.is_empty());
    if request.get("jsonrpc").is_some() {
        let method = text("method")?;
        // What an MCP client calls.
        let called = request.pointer("/params/name").and_then(Value::as_str);
        return Some(called.map_or_else(|| method.to_owned(), |name| format!("{method} {name}")));
    }
    match (text("operationName"), text("query").and_then(graphql_operation)) {
        // The document may define several operations; this names the one that is executed.
        (Some(name), Some(_)) => Some(name.to_owned()),
        // A persisted query has a hash in place of its text.
        (Some(name), None) if request.pointer("/extensions/persistedQuery").is_some() => Some(name.to_owned()),
        (None, found) => found.map(|(kind, name)| format!("{kind} {name}")),
        _ => None,
    }
}

/// Kind and name of the first operation of a GraphQL document; an anonymous operation has the name of its first field,
/// in braces.
fn graphql_operation(document: &str) -> Option<(&str, String)> {
    let mut rest = skip_ignored(document);
    let mut kind = "query";
    if !rest.starts_with('{') {
        let (word, after) = take_name(rest)?;
        match word {
            "query" | "mutation" | "subscription" => kind = word,
            // Fragments may come first; looking behind them takes a parser.
            "fragment" => return Some(("query", "…".to_owned())),
            _ => return None,
        }
        if let Some((name, _)) = take_name(skip_ignored(after)) {
            return Some((kind, name.to_owned()));
        }
        rest = after;
    }
    let fields = skip_ignored(rest.get(rest.find('{')? + 1..)?);
    take_name(fields).map(|(field, _)| (kind, format!("{{{field}}}")))
}

fn take_name(text: &str) -> Option<(&str, &str)> {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Skips white space, commas and comments.
fn skip_ignored(mut text: &str) -> &str {
    loop {
        text = text.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == '\u{feff}');
        if !text.starts_with('#') {
            return text;
        }
        text = text.find('\n').map_or("", |end| &text[end..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_are_named() {
        for (body, name) in [
            (r#"{"query": "query Orders($n: Int) { orders(first: $n) { id } }"}"#, "query Orders"),
            (r#"{"query": "mutation A { a } query B { b }", "operationName": "B"}"#, "B"),
            (r##"{"query": "# list\n{ orders { id } }", "operationName": null}"##, "query {orders}"),
            (r#"{"query": "subscription { added { id } }"}"#, "subscription {added}"),
            (r#"{"operationName": "Cart", "extensions": {"persistedQuery": {"version": 1}}}"#, "Cart"),
            (r#"[{"query": "{ a }"}, {"query": "{ b }"}]"#, "query {a} +1"),
            (
                r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search"}}"#,
                "tools/call search",
            ),
            (r#"{"jsonrpc": "2.0", "id": 1, "method": "eth_call", "params": [1]}"#, "eth_call"),
            (r#"{"jsonrpc": "2.0", "method": "a\u0007b"}"#, "a b"),
        ] {
            assert_eq!(from_json(body.as_bytes()).as_deref(), Some(name), "{body}");
        }
    }

    #[test]
    fn other_bodies_have_no_operation() {
        for body in [
            r#"{"query": "red shoes"}"#,
            r#"{"method": "GET"}"#,
            r#"{"operationName": "x"}"#,
            r#"{"jsonrpc": "2.0", "id": 1, "result": {}}"#,
            r#"{"query": 7}"#,
            "[]",
            "[1]",
            "{",
            "",
        ] {
            assert_eq!(from_json(body.as_bytes()), None, "{body}");
        }
    }
}
