//! Translation of Fluxzy's filters into conditions.

use std::sync::Arc;
use std::sync::LazyLock;
use std::time::Duration;

use interflow_query::{CompareOp, Expr, Key, NumberTest, Query, TermTest};
use interflow_rules::ConditionExpr;
use interflow_rules::format::{ExecCondition, MatchMode, TextField, TextPredicate, unknown_key_message};
use interflow_types::Direction::{self, Request, Response};
use interflow_types::data_file;

use super::node::{FluxzyNode, template};

static TABLE: &str = include_str!("../../data/fluxzy_filters.txt");

/// Every filter by its `typeKind` without the suffix, in lower case.
pub static KINDS: LazyLock<Vec<&str>> = LazyLock::new(|| data_file::records(TABLE).map(|[kind, _]| kind).collect());

/// Time limit of a filter program; Fluxzy itself has none.
const EXEC_LIMIT: Duration = Duration::from_secs(2);

pub(super) fn read(node: &FluxzyNode<'_>) -> ConditionExpr {
    let Some(kind) = node.kind("filter") else { return ConditionExpr::Always(false) };
    let inverted = node.bool_value("inverted", false);
    let Some(cond) = convert_filter(node, &kind) else {
        return never(node, unknown_key_message("filter", &kind, &KINDS));
    };
    node.report_unknown();
    node.note_of_kind(TABLE, &kind);
    if inverted { cond.not() } else { cond }
}

fn convert_filter(node: &FluxzyNode<'_>, kind: &str) -> Option<ConditionExpr> {
    let fixed =
        data_file::records::<3>(TABLE).find(|[known, ..]| *known == kind).filter(|[.., meaning]| !meaning.is_empty());
    if let Some([_, _, meaning]) = fixed {
        return Some(match meaning.split_once(' ') {
            Some(("request", part)) => media_type_filter(Request, part),
            Some((_, part)) => media_type_filter(Response, part),
            None => query_filter(meaning),
        });
    }
    Some(match kind {
        "any" => ConditionExpr::Always(true),
        "no" => ConditionExpr::Always(false),
        "filtercollection" => collection(node),
        "isself" => ConditionExpr::OwnAddress,
        "connection" => ConditionExpr::Connection(node.number("connectionId").unwrap_or_default()),
        "exec" => exec(node),
        "agent" | "processid" | "processname" => process(node, kind),
        "authority" => {
            let host = string_filter(node, TextField::Host, MatchMode::Exact);
            let port = node.number("port").unwrap_or_default();
            ConditionExpr::and(vec![number_filter(Key::Port, port), host])
        }
        "networkerror" => {
            node.log.borrow_mut().errors.seen = true;
            let status = number_filter(Key::Status, 528);
            if node.log.borrow().errors.count {
                let own = query_filter("error:/^(dns|connect|upstream|bad_response|pool_timeout)/");
                ConditionExpr::or(vec![status, own])
            } else {
                status
            }
        }
        "hascomment" | "hastag" | "commentsearch" | "tagcontains" | "searchtext" => view_only(node, kind),
        _ => return string_field_filter(node, kind).or_else(|| message_filter(node, kind)),
    })
}

/// A filter that compares the text of one field.
fn string_field_filter(node: &FluxzyNode<'_>, kind: &str) -> Option<ConditionExpr> {
    use MatchMode::{Contains, Exact};
    let name = || node.text_of("name").filter(|n| !n.is_empty());
    let (field, effective) = match kind {
        "host" => (TextField::Host, Exact),
        "ipingress" => (TextField::ClientIp, Contains),
        "ipegress" => (TextField::UpstreamIp, Contains),
        "agentlabel" => (TextField::Agent, Contains),
        "absoluteuri" => (TextField::Url, Exact),
        "path" => (TextField::Target, Exact),
        "querystring" => (TextField::Param(name()), Exact),
        "method" => (TextField::Method, Exact),
        "requestheader" => (TextField::Header(Request, header(node)), Exact),
        "responseheader" => (TextField::Header(Response, header(node)), Exact),
        "hascookieonrequest" => (TextField::Cookie(required_text(node, "name")), Contains),
        "hassetcookieonresponse" => (TextField::SetCookie(name()), Contains),
        _ => return None,
    };
    Some(string_filter(node, field, effective))
}

/// Another filter on the request or the response.
fn message_filter(node: &FluxzyNode<'_>, kind: &str) -> Option<ConditionExpr> {
    Some(match kind {
        "get" | "post" | "put" | "patch" | "delete" => text_filter(TextField::Method, MatchMode::Exact, kind),
        "hasauthorization" => presence_filter(TextField::Header(Request, "Authorization".into())),
        "hasauthorizationbearer" => {
            text_filter(TextField::Header(Request, "Authorization".into()), MatchMode::Prefix, "bearer")
        }
        "hasanycookieonrequest" => presence_filter(TextField::Header(Request, "Cookie".into())),
        "formrequest" => {
            ConditionExpr::or(vec![media_type_filter(Request, "urlencoded"), media_type_filter(Request, "multipart")])
        }
        "isgrpc" => text_filter(TextField::MediaType(Request), MatchMode::Prefix, "application/grpc"),
        "hasrequestbody" => ConditionExpr::HasBody(Request),
        "statuscode" => {
            let codes = node.items_of("statusCodes");
            if codes.is_empty() {
                node.note("`statusCodes` is empty, so that it never holds");
            }
            let code = |n: &FluxzyNode<'_>| {
                let text = n.text().unwrap_or_default();
                text.parse().ok().or_else(|| n.refuse(format!("`{text}` is not a status code, such as 404")))
            };
            let codes: Vec<u64> = codes.iter().filter_map(code).collect();
            ConditionExpr::or(codes.into_iter().map(|c| number_filter(Key::Status, c)).collect())
        }
        "protobuf" => {
            ConditionExpr::or(vec![media_type_filter(Request, "protobuf"), media_type_filter(Response, "protobuf")])
        }
        _ => return None,
    })
}

/// Filters that Fluxzy only uses in its UI: in live rules they never match.
fn view_only(node: &FluxzyNode<'_>, kind: &str) -> ConditionExpr {
    match kind {
        "hascomment" => text_filter(TextField::Tag, MatchMode::Prefix, "comment:"),
        "hastag" => presence_filter(TextField::OwnerTag),
        "commentsearch" => {
            let mode = operation(node, MatchMode::Contains);
            let pattern = node.text_of("pattern").unwrap_or_default();
            let pattern = match mode {
                MatchMode::Contains => format!("^comment:(?s:.*){}", regex::escape(&pattern)),
                MatchMode::Exact => format!("^comment:{}$", regex::escape(&pattern)),
                MatchMode::Prefix => format!("^comment:{}", regex::escape(&pattern)),
                MatchMode::Suffix => format!("^comment:(?s:.*){}$", regex::escape(&pattern)),
                MatchMode::Regex => format!("^comment:(?s:.*?)(?:{pattern})"),
            };
            let sensitive = node.bool_value("caseSensitive", false);
            TextPredicate::fixed(MatchMode::Regex, &pattern, !sensitive)
                .map_or_else(|e| never(node, e), |test| ConditionExpr::Text(TextField::Tag, test))
        }
        "tagcontains" => text_filter(TextField::Tag, MatchMode::Exact, &node.tag()),
        _ => search_text(node),
    }
}

fn search_text(node: &FluxzyNode<'_>) -> ConditionExpr {
    let pattern = node.text_of("pattern").unwrap_or_default();
    let sensitive = node.bool_value("caseSensitive", true);
    let mut parts = Vec::new();
    let line = |side: Direction| {
        let source = format!("{}{}", if sensitive { "" } else { "(?i)" }, regex::escape(&pattern).replace('/', "\\/"));
        let key = if side == Request { "req.header" } else { "resp.header" };
        Query::parse(&format!("{key}:/{source}/")).map(ConditionExpr::query)
    };
    for (key, side) in [("searchInRequestHeader", Request), ("searchInResponseHeader", Response)] {
        if node.bool_value(key, true) {
            match line(side) {
                Ok(cond) => parts.push(cond),
                Err(e) => node.problem(e.to_string()),
            }
        }
    }
    for (key, default, field) in [
        ("searchInRequestHeader", true, TextField::Url),
        ("searchInRequestBody", false, TextField::Body(Request)),
        ("searchInResponseBody", false, TextField::Body(Response)),
    ] {
        if node.bool_value(key, default) {
            let test = TextPredicate::fixed(MatchMode::Contains, &pattern, !sensitive);
            parts.extend(test.map(|test| ConditionExpr::Text(field, test)));
        }
    }
    ConditionExpr::or(parts)
}

fn collection(node: &FluxzyNode<'_>) -> ConditionExpr {
    let children: Vec<ConditionExpr> = node.items_of("children").iter().map(|c| read(c)).collect();
    match node.text_of("operation").unwrap_or_else(|| "or".into()).to_ascii_lowercase().as_str() {
        "and" => ConditionExpr::and(children),
        "or" => ConditionExpr::or(children),
        other => never(node, unknown_key_message("operation", other, &["and", "or"])),
    }
}

fn exec(node: &FluxzyNode<'_>) -> ConditionExpr {
    let program = node.required_template("filename");
    let arguments = node.get("arguments").map(|n| {
        let words = match n.text() {
            Some(line) => split_command_line(&line),
            None => n.items().iter().filter_map(FluxzyNode::text).collect(),
        };
        words.iter().map(|w| template(&n, w)).collect()
    });
    let arguments = arguments.unwrap_or_default();
    let head_in_env = node.bool_value("writeHeaderToEnv", false);
    ConditionExpr::Exec(Arc::new(ExecCondition { program, arguments, head_in_env, limit: EXEC_LIMIT }))
}

/// Splits a command line with quotes.
fn split_command_line(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn process(node: &FluxzyNode<'_>, kind: &str) -> ConditionExpr {
    if kind != "agent" {
        node.note("processes are looked for with `proxy.processes = true`, as Fluxzy needs --enable-process-tracking");
    }
    match kind {
        "processid" => {
            let id = node.number("processId").unwrap_or_default();
            ConditionExpr::Process { ids: vec![id], names: Vec::new() }
        }
        "processname" => {
            let names = node.items_of("processNames");
            let plain = |n: String| n.to_ascii_lowercase().trim_end_matches(".exe").to_owned();
            let names = names.iter().filter_map(FluxzyNode::text).map(plain).collect();
            ConditionExpr::Process { ids: Vec::new(), names }
        }
        _ => {
            let agent = node.get("agent");
            let label = agent.and_then(|a| a.text().or_else(|| a.text_of("friendlyName")));
            node.note("an agent object is made by Fluxzy's window; here its `friendlyName` is compared with the agent's label");
            text_filter(TextField::Agent, MatchMode::Exact, &label.unwrap_or_default())
        }
    }
}

fn required_text(node: &FluxzyNode<'_>, key: &str) -> String {
    node.text_of(key).or_else(|| node.refuse(format!("`{key}` is missing"))).unwrap_or_default()
}

fn header(node: &FluxzyNode<'_>) -> String {
    let name = required_text(node, "headerName");
    const HIDDEN: [&str; 7] =
        ["connection", "keep-alive", "proxy-authenticate", "trailer", "upgrade", "alt-svc", "expect"];
    if HIDDEN.contains(&name.to_ascii_lowercase().as_str()) {
        node.note(format!("Fluxzy never sees the field {name}; here it is seen as far as it passes the proxy"));
    }
    name
}

/// Reports an error in a filter, which then never holds.
fn never(node: &FluxzyNode<'_>, message: String) -> ConditionExpr {
    node.problem(message);
    ConditionExpr::Always(false)
}

fn query_filter(text: &str) -> ConditionExpr {
    ConditionExpr::query(Query::parse(text).expect("queries written here are well formed"))
}

fn number_filter(key: Key, n: u64) -> ConditionExpr {
    ConditionExpr::query(Query::from(Expr::term(key, TermTest::Number(NumberTest::Compare(CompareOp::Eq, n)))))
}

fn presence_filter(field: TextField) -> ConditionExpr {
    ConditionExpr::Text(field, TextPredicate::Present)
}

fn text_filter(field: TextField, mode: MatchMode, text: &str) -> ConditionExpr {
    TextPredicate::fixed(mode, text, true).map_or(ConditionExpr::Always(false), |t| ConditionExpr::Text(field, t))
}

fn media_type_filter(side: Direction, part: &str) -> ConditionExpr {
    text_filter(TextField::MediaType(side), MatchMode::Contains, part)
}

/// The operation of a string filter; `effective` is Fluxzy's actual default.
fn operation(node: &FluxzyNode<'_>, effective: MatchMode) -> MatchMode {
    let Some(text) = node.text_of("operation") else {
        let kind = node.text_of("typeKind").unwrap_or_default().to_ascii_lowercase();
        let documented = ["absoluteuri", "path", "requestheader", "responseheader"];
        if documented.contains(&kind.strip_suffix("filter").unwrap_or(&kind)) {
            node.note("without `operation` Fluxzy compares the whole text, though its pages say `contains`; so it is here: write the operation you mean");
        }
        return effective;
    };
    match text.to_ascii_lowercase().as_str() {
        "exact" => MatchMode::Exact,
        "contains" => MatchMode::Contains,
        "startswith" => MatchMode::Prefix,
        "endswith" => MatchMode::Suffix,
        "regex" => MatchMode::Regex,
        other => {
            let operations = ["exact", "contains", "startsWith", "endsWith", "regex"];
            node.problem(unknown_key_message("operation", other, &operations));
            effective
        }
    }
}

fn string_filter(node: &FluxzyNode<'_>, field: TextField, effective: MatchMode) -> ConditionExpr {
    let mode = operation(node, effective);
    let sensitive = node.bool_value("caseSensitive", false);
    let pattern = node.template("pattern").unwrap_or_default();
    TextPredicate::new(mode, pattern, !sensitive)
        .map_or_else(|e| never(node, e), |test| ConditionExpr::Text(field, test))
}
