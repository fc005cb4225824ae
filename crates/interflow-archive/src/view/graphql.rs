//! GraphQL requests: the query as written, or formatted if it is on one line, followed by its variables.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

/// A request as clients send it (GraphQL over HTTP, 5.1).
#[derive(Deserialize)]
struct GraphQlRequest {
    query: String,
    #[serde(default, rename = "operationName")]
    operation_name: Option<String>,
    variables: Option<Value>,
    extensions: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum GraphQlRequests {
    One(GraphQlRequest),
    Many(Vec<GraphQlRequest>),
}

impl GraphQlRequests {
    fn into_list(self) -> Vec<GraphQlRequest> {
        match self {
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        }
    }
}

/// Whether JSON is a GraphQL request. The name `query` alone is not enough, so its text must look like a query too.
pub(super) fn is_request(body: &[u8]) -> bool {
    let read = || interflow_codec::json::parse::<GraphQlRequests>(body).ok().map(GraphQlRequests::into_list);
    // Most JSON is rejected by a search in its beginning, without parsing.
    let looks_so = memchr::memmem::find(&body[..body.len().min(4096)], b"\"query\"").is_some();
    looks_so && read().is_some_and(|list| !list.is_empty() && list.iter().all(|r| is_query(&r.query)))
}

fn is_query(text: &str) -> bool {
    let text = text.trim_start();
    let words = ["query", "mutation", "subscription", "fragment", "#"];
    text.contains('{') && (text.starts_with('{') || words.iter().any(|w| text.starts_with(w)))
}

/// Formats a request; text that is not JSON is taken as the query itself.
pub(super) fn format_request(text: &str) -> String {
    let Ok(requests) = serde_json::from_str::<GraphQlRequests>(text) else { return format_query(text) };
    let mut out = String::new();
    for request in requests.into_list() {
        if let Some(name) = &request.operation_name {
            let _ = writeln!(out, "# operation {name}");
        }
        out.push_str(&format_query(&request.query));
        for (what, value) in [("variables", &request.variables), ("extensions", &request.extensions)] {
            if let Some(value) = value.as_ref().filter(|v| !v.is_null()) {
                let _ = writeln!(out, "\n# {what}\n{value:#}");
            }
        }
        out.push('\n');
    }
    out
}

/// A query with line breaks is left unchanged.
fn format_query(query: &str) -> String {
    if query.trim().contains('\n') {
        return format!("{}\n", query.trim());
    }
    let mut out = String::new();
    let (mut depth, mut brackets, mut quoted) = (0_usize, 0_usize, false);
    let line = |out: &mut String, depth: usize| {
        while out.ends_with(' ') {
            out.pop();
        }
        out.push('\n');
        super::indent(out, depth.min(40));
    };
    for c in query.trim().chars() {
        match c {
            // Braces within strings and arguments do not nest.
            '"' => quoted = !quoted,
            _ if quoted => {}
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets = brackets.saturating_sub(1),
            '{' if brackets == 0 => {
                depth += 1;
                out.push(c);
                line(&mut out, depth);
                continue;
            }
            '}' if brackets == 0 => {
                depth = depth.saturating_sub(1);
                line(&mut out, depth);
                out.push(c);
                if depth > 0 {
                    line(&mut out, depth);
                }
                continue;
            }
            ' ' if out.ends_with([' ', '\n']) => continue,
            _ => {}
        }
        out.push(c);
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_line_graphql_query_is_formatted_with_its_variables() {
        let text = r#"{"operationName":"Me","query":"query Me($id: ID!) { user(id: $id, f: {a: 1}) { name } }","variables":{"id":"7"}}"#;
        let shown = format_request(text);
        assert!(
            shown.starts_with("# operation Me\nquery Me($id: ID!) {\n  user(id: $id, f: {a: 1}) {\n    name\n  }"),
            "{shown}"
        );
        assert!(shown.contains("# variables\n{\n  \"id\": \"7\"\n}"), "{shown}");
    }

    #[test]
    fn multiline_graphql_queries_keep_their_layout_and_batches_are_listed() {
        let text = r#"[{"query":"{\n  a\n}"},{"query":"{ b }"}]"#;
        assert!(is_request(text.as_bytes()));
        let shown = format_request(text);
        assert!(shown.contains("{\n  a\n}") && shown.contains("{\n  b\n}"), "{shown}");
    }

    #[test]
    fn other_json_is_not_a_graphql_request() {
        for other in [r#"{"query":"shoes"}"#, r#"{"query":{"match":{}}}"#, "[]", "{", r#"{"q":1}"#] {
            assert!(!is_request(other.as_bytes()), "{other}");
        }
    }
}
