//! Fluxzy's filters as conditions of ours.

use std::sync::Arc;
use std::time::Duration;

use interflow_flow::Direction::{self, Request, Response};
use interflow_query::{Expr, Flag, Key, Number, Op, Query, Test};

use super::node::{Node, template};
use super::{Ledger, comments};
use crate::cond::Cond;
use crate::exec::Exec;
use crate::text::{Mode, Place, TextTest};

/// Every filter, by its `typeKind` without the ending, in lower case.
pub const KINDS: &[&str] = &[
    "any",
    "no",
    "host",
    "authority",
    "issecure",
    "ipingress",
    "ipegress",
    "filtercollection",
    "isself",
    "connection",
    "exec",
    "agentlabel",
    "agent",
    "processid",
    "processname",
    "absoluteuri",
    "path",
    "querystring",
    "method",
    "get",
    "post",
    "put",
    "patch",
    "delete",
    "requestheader",
    "hasauthorization",
    "hasauthorizationbearer",
    "hasanycookieonrequest",
    "hascookieonrequest",
    "formurlencodedrequest",
    "multipartdatarequest",
    "formrequest",
    "jsonrequest",
    "protobufrequest",
    "isgrpc",
    "iswebsocket",
    "h11trafficonly",
    "h2trafficonly",
    "hasrequestbody",
    "statuscode",
    "statuscodesuccess",
    "statuscoderedirection",
    "statuscodeclienterror",
    "statuscodeservererror",
    "networkerror",
    "responseheader",
    "contenttypexml",
    "cssstyle",
    "font",
    "htmlresponse",
    "image",
    "jsonresponse",
    "protobufresponse",
    "protobuf",
    "hassetcookieonresponse",
    "hascomment",
    "hastag",
    "commentsearch",
    "tagcontains",
    "searchtext",
];

/// How long a filter program may run: there it may block for ever.
const EXEC_LIMIT: Duration = Duration::from_secs(2);

/// Reads a filter.
pub(super) fn read(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Cond {
    let Some(kind) = node.kind(ledger, "filter") else { return Cond::Always(false) };
    let inverted = node.flag(ledger, "inverted", false);
    let Some(cond) = one(ledger, node, &kind) else {
        ledger.problem(node, crate::error::unknown("filter", &kind, KINDS));
        return Cond::Always(false);
    };
    node.report_unknown(ledger);
    if inverted { cond.not() } else { cond }
}

fn one(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Cond> {
    Some(match kind {
        "any" => Cond::Always(true),
        "no" => Cond::Always(false),
        "issecure" => query("scheme:https"),
        "filtercollection" => collection(ledger, node),
        "isself" => Cond::OwnAddress,
        "connection" => Cond::Connection(node.number(ledger, "connectionId").unwrap_or_default()),
        "exec" => exec(ledger, node),
        "agent" | "processid" | "processname" => process(ledger, node, kind),
        "authority" => {
            let host = text(ledger, node, Place::Host, Mode::Exact);
            let port = node.number(ledger, "port").unwrap_or_default();
            Cond::and(vec![number(Key::Port, port), host])
        }
        "host" => text(ledger, node, Place::Host, Mode::Exact),
        "ipingress" => text(ledger, node, Place::ClientIp, Mode::Contains),
        "ipegress" => text(ledger, node, Place::UpstreamIp, Mode::Contains),
        "agentlabel" => {
            ledger.note(node, "Fluxzy knows the agent only with --parse-ua; here it is always known");
            text(ledger, node, Place::Agent, Mode::Contains)
        }
        "networkerror" => {
            ledger.note(node, "Fluxzy tests for its status 528, which it never sends under --use-502; here a 528 of an origin counts for every action, and an error of Interflow's own for those that can run when the flow has ended: stdOut, stdErr, fileAppend");
            ledger.errors.seen = true;
            let told = number(Key::Status, 528);
            if ledger.errors.count {
                Cond::or(vec![told, query("error:/^(dns|connect|upstream|bad_response|pool_timeout)/")])
            } else {
                told
            }
        }
        "hascomment" | "hastag" | "commentsearch" | "tagcontains" | "searchtext" => view_only(ledger, node, kind),
        _ => return request(ledger, node, kind).or_else(|| response(ledger, node, kind)),
    })
}

fn request(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Cond> {
    Some(match kind {
        "absoluteuri" => text(ledger, node, Place::Url, Mode::Exact),
        "path" => text(ledger, node, Place::Target, Mode::Exact),
        "querystring" => {
            let name = node.text_of("name").filter(|n| !n.is_empty());
            text(ledger, node, Place::Param(name), Mode::Exact)
        }
        "method" => text(ledger, node, Place::Method, Mode::Exact),
        "get" | "post" | "put" | "patch" | "delete" => fixed(Place::Method, Mode::Exact, kind),
        "requestheader" => {
            let name = header(ledger, node);
            text(ledger, node, Place::Header(Request, name), Mode::Exact)
        }
        "hasauthorization" => present(Place::Header(Request, "Authorization".into())),
        "hasauthorizationbearer" => fixed(Place::Header(Request, "Authorization".into()), Mode::Prefix, "bearer"),
        "hasanycookieonrequest" => present(Place::Header(Request, "Cookie".into())),
        "hascookieonrequest" => {
            let name = name(ledger, node);
            text(ledger, node, Place::Cookie(name), Mode::Contains)
        }
        "formurlencodedrequest" => media(Request, "urlencoded"),
        "multipartdatarequest" => media(Request, "multipart"),
        "formrequest" => Cond::or(vec![media(Request, "urlencoded"), media(Request, "multipart")]),
        "jsonrequest" => media(Request, "json"),
        "protobufrequest" => media(Request, "protobuf"),
        "isgrpc" => fixed(Place::MediaType(Request), Mode::Prefix, "application/grpc"),
        "iswebsocket" => Cond::flag(Flag::Websocket),
        "h11trafficonly" | "h2trafficonly" => {
            ledger.note(node, "Fluxzy tests the upstream's version, which it does not know yet when most actions run; here the client's counts too");
            query(if kind == "h11trafficonly" { "version:1.1" } else { "version:2" })
        }
        "hasrequestbody" => {
            ledger.note(
                node,
                "in Fluxzy this can never hold in a live rule; here it does once the request's head is known",
            );
            Cond::HasBody(Request)
        }
        _ => return None,
    })
}

fn response(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Option<Cond> {
    Some(match kind {
        "statuscode" => {
            let codes: Vec<u64> = node
                .get("statusCodes")
                .map(|n| n.items())
                .unwrap_or_default()
                .iter()
                .filter_map(|n| n.text()?.parse().ok())
                .collect();
            if codes.is_empty() {
                ledger.note(node, "`statusCodes` is empty, so that it never holds");
            }
            Cond::or(codes.into_iter().map(|c| number(Key::Status, c)).collect())
        }
        "statuscodesuccess" => query("status:2xx"),
        "statuscoderedirection" => query("status:3xx"),
        "statuscodeclienterror" => query("status:4xx"),
        "statuscodeservererror" => query("status:5xx"),
        "responseheader" => {
            let name = header(ledger, node);
            text(ledger, node, Place::Header(Response, name), Mode::Exact)
        }
        "contenttypexml" => media(Response, "xml"),
        "cssstyle" => media(Response, "css"),
        "font" => media(Response, "font"),
        "htmlresponse" => media(Response, "text/html"),
        "image" => media(Response, "image"),
        "jsonresponse" => media(Response, "json"),
        "protobufresponse" => media(Response, "protobuf"),
        "protobuf" => Cond::or(vec![media(Request, "protobuf"), media(Response, "protobuf")]),
        "hassetcookieonresponse" => {
            ledger.note(node, "Fluxzy compares the pattern with the cookie's name instead of its value; here it is the value, as its pages say");
            let name = node.text_of("name").filter(|n| !n.is_empty());
            text(ledger, node, Place::SetCookie(name), Mode::Contains)
        }
        _ => return None,
    })
}

/// Filters that Fluxzy has for its window only: live rules there never see them hold.
fn view_only(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Cond {
    ledger.note(node, "in Fluxzy this is for viewing only and never holds in a live rule; here it does");
    match kind {
        "hascomment" => comments(TextTest::fixed(Mode::Prefix, "comment:", false).expect("a prefix is no regex")),
        "hastag" => present(Place::OwnerTag),
        "commentsearch" => {
            let mode = operation(ledger, node, Mode::Contains);
            let pattern = node.text_of("pattern").unwrap_or_default();
            let pattern = match mode {
                Mode::Contains => format!("^comment:(?s:.*){}", regex::escape(&pattern)),
                Mode::Exact => format!("^comment:{}$", regex::escape(&pattern)),
                Mode::Prefix => format!("^comment:{}", regex::escape(&pattern)),
                Mode::Suffix => format!("^comment:(?s:.*){}$", regex::escape(&pattern)),
                Mode::Regex => format!("^comment:(?s:.*?)(?:{pattern})"),
            };
            let sensitive = node.flag(ledger, "caseSensitive", false);
            match TextTest::fixed(Mode::Regex, &pattern, !sensitive) {
                Ok(test) => comments(test),
                Err(e) => {
                    ledger.problem(node, e);
                    Cond::Always(false)
                }
            }
        }
        "tagcontains" => {
            let tag = node
                .get("tag")
                .map(|t| t.text().or_else(|| t.text_of("value")).unwrap_or_default())
                .unwrap_or_default();
            fixed(Place::Tag, Mode::Exact, &tag)
        }
        _ => search_text(ledger, node),
    }
}

fn search_text(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Cond {
    let pattern = node.text_of("pattern").unwrap_or_default();
    let sensitive = node.flag(ledger, "caseSensitive", true);
    let mut parts = Vec::new();
    let line = |side: Direction| {
        let source = format!("{}{}", if sensitive { "" } else { "(?i)" }, regex::escape(&pattern).replace('/', "\\/"));
        let key = if side == Request { "req.header" } else { "resp.header" };
        Query::parse(&format!("{key}:/{source}/")).map(Cond::query)
    };
    for (key, default, side) in [("searchInRequestHeader", true, Request), ("searchInResponseHeader", true, Response)] {
        if node.flag(ledger, key, default) {
            match line(side) {
                Ok(cond) => parts.push(cond),
                Err(e) => ledger.problem(node, e.to_string()),
            }
        }
    }
    if node.flag(ledger, "searchInRequestHeader", true) {
        parts.extend(TextTest::fixed(Mode::Contains, &pattern, !sensitive).map(|t| Cond::Text(Place::Url, t)));
    }
    for (key, side) in [("searchInRequestBody", Request), ("searchInResponseBody", Response)] {
        if node.flag(ledger, key, false) {
            parts.extend(
                TextTest::fixed(Mode::Contains, &pattern, !sensitive).map(|t| Cond::Text(Place::Body(side), t)),
            );
        }
    }
    Cond::or(parts)
}

fn collection(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Cond {
    let children: Vec<Cond> =
        node.get("children").map(|c| c.items()).unwrap_or_default().iter().map(|c| read(ledger, c)).collect();
    match node.text_of("operation").unwrap_or_else(|| "or".into()).to_ascii_lowercase().as_str() {
        "and" => Cond::and(children),
        "or" => Cond::or(children),
        other => {
            ledger.problem(node, crate::error::unknown("operation", other, &["and", "or"]));
            Cond::Always(false)
        }
    }
}

fn exec(ledger: &mut Ledger<'_>, node: &Node<'_>) -> Cond {
    ledger.note(node, "the program blocks Fluxzy's thread without a limit; here it may run for 2 seconds, and counts as no match then");
    let program = node.needed(ledger, "filename");
    let arguments = node.get("arguments").map(|n| {
        let words = match n.text() {
            Some(line) => split(&line),
            None => n.items().iter().filter_map(Node::text).collect(),
        };
        words.iter().map(|w| template(ledger, &n, w)).collect()
    });
    let head_in_env = node.flag(ledger, "writeHeaderToEnv", false);
    Cond::Exec(Arc::new(Exec { program, arguments: arguments.unwrap_or_default(), head_in_env, limit: EXEC_LIMIT }))
}

/// A command line's words, with quotes.
fn split(line: &str) -> Vec<String> {
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

fn process(ledger: &mut Ledger<'_>, node: &Node<'_>, kind: &str) -> Cond {
    if kind != "agent" {
        ledger.note(
            node,
            "processes are looked for with `proxy.processes = true`, as Fluxzy needs --enable-process-tracking",
        );
    }
    match kind {
        "processid" => {
            let id = node.number(ledger, "processId").unwrap_or_default();
            Cond::Process { ids: vec![id], names: Vec::new() }
        }
        "processname" => {
            let names = node.get("processNames").map(|n| n.items()).unwrap_or_default();
            let plain = |n: String| n.to_ascii_lowercase().trim_end_matches(".exe").to_owned();
            Cond::Process { ids: Vec::new(), names: names.iter().filter_map(Node::text).map(plain).collect() }
        }
        _ => {
            let agent = node.get("agent");
            let label = agent.and_then(|a| a.text().or_else(|| a.text_of("friendlyName")));
            ledger.note(node, "an agent object is made by Fluxzy's window; here its `friendlyName` is compared with the agent's label");
            fixed(Place::Agent, Mode::Exact, &label.unwrap_or_default())
        }
    }
}

fn name(ledger: &mut Ledger<'_>, node: &Node<'_>) -> String {
    needed(ledger, node, "name")
}

fn needed(ledger: &mut Ledger<'_>, node: &Node<'_>, key: &str) -> String {
    node.text_of(key).unwrap_or_else(|| {
        ledger.problem(node, format!("`{key}` is missing"));
        String::new()
    })
}

fn header(ledger: &mut Ledger<'_>, node: &Node<'_>) -> String {
    let name = needed(ledger, node, "headerName");
    const HIDDEN: [&str; 7] =
        ["connection", "keep-alive", "proxy-authenticate", "trailer", "upgrade", "alt-svc", "expect"];
    if HIDDEN.contains(&name.to_ascii_lowercase().as_str()) {
        ledger.note(node, format!("Fluxzy never sees the field {name}; here it is seen as far as it passes the proxy"));
    }
    name
}

fn query(text: &str) -> Cond {
    Cond::query(Query::parse(text).expect("queries written here are well formed"))
}

fn number(key: Key, n: u64) -> Cond {
    Cond::query(Query::from(Expr::term(key, Test::Number(Number::Compare(Op::Eq, n)))))
}

fn present(place: Place) -> Cond {
    Cond::Text(place, TextTest::Present)
}

fn fixed(place: Place, mode: Mode, text: &str) -> Cond {
    TextTest::fixed(mode, text, true).map_or(Cond::Always(false), |t| Cond::Text(place, t))
}

fn media(side: Direction, part: &str) -> Cond {
    fixed(Place::MediaType(side), Mode::Contains, part)
}

/// The operation of a string filter; `effective` is what Fluxzy really does without one.
fn operation(ledger: &mut Ledger<'_>, node: &Node<'_>, effective: Mode) -> Mode {
    let Some(text) = node.text_of("operation") else {
        let kind = node.text_of("typeKind").unwrap_or_default().to_ascii_lowercase();
        let documented = ["absoluteuri", "path", "requestheader", "responseheader"];
        if documented.contains(&kind.strip_suffix("filter").unwrap_or(&kind)) {
            ledger.note(node, "without `operation` Fluxzy compares the whole text, though its pages say `contains`; so it is here: write the operation you mean");
        }
        return effective;
    };
    match text.to_ascii_lowercase().as_str() {
        "exact" => Mode::Exact,
        "contains" => Mode::Contains,
        "startswith" => Mode::Prefix,
        "endswith" => Mode::Suffix,
        "regex" => Mode::Regex,
        other => {
            let known = ["exact", "contains", "startsWith", "endsWith", "regex"];
            ledger.problem(node, crate::error::unknown("operation", other, &known));
            effective
        }
    }
}

/// A string filter.
fn text(ledger: &mut Ledger<'_>, node: &Node<'_>, place: Place, effective: Mode) -> Cond {
    let mode = operation(ledger, node, effective);
    let sensitive = node.flag(ledger, "caseSensitive", false);
    let pattern = node.template(ledger, "pattern").unwrap_or_default();
    match TextTest::new(mode, pattern, !sensitive) {
        Ok(test) => Cond::Text(place, test),
        Err(e) => {
            ledger.problem(node, e);
            Cond::Always(false)
        }
    }
}
