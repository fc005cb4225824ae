//! mitmproxy's specification strings as rules of ours: `map_local`, `map_remote`, `modify_headers`, `modify_body`,
//! `block_list`, `ignore_hosts`, `stickycookie`, `stickyauth`, `anticache`, `anticomp`, `server_replay`.

use interflow_query::Query;
use serde_json::{Map, Value, json};

/// The options that are understood.
pub const OPTIONS: &[&str] = &[
    "map_local",
    "map_remote",
    "modify_headers",
    "modify_body",
    "block_list",
    "ignore_hosts",
    "allow_hosts",
    "stickycookie",
    "stickyauth",
    "anticache",
    "anticomp",
    "server_replay",
];

/// One option with its value, as on mitmproxy's command line or in its `config.yaml`, as rules of ours.
///
/// # Errors
/// An option or value that is not understood, with what was expected.
pub fn import(option: &str, spec: &str) -> Result<Vec<Value>, String> {
    let rules = match option {
        "map_remote" => {
            let [filter, regex, to] = three(spec, "|url-regex|replacement")?;
            vec![rule(&asked(&filter), json!({ "map_remote": { "regex": python(&regex)?, "to": groups(&to) } }))?]
        }
        "map_local" => {
            let [filter, regex, path] = three(spec, "|url-regex|path")?;
            vec![rule(&asked(&filter), json!({ "map_local": { "regex": python(&regex)?, "path": path } }))?]
        }
        "modify_headers" => headers(spec)?,
        "modify_body" => {
            let [filter, regex, with] = three(spec, "/regex/replacement")?;
            let with = groups(&from_file(&with)?.unwrap_or(with));
            let edit = json!({ "regex": python(&regex)?, "with": with });
            let (request, response) = sides(&filter);
            let filter = without_side(&filter);
            let mut rules = Vec::new();
            if request {
                rules.push(rule(&filter, json!({ "edit_request_body": edit.clone() }))?);
            }
            if response {
                rules.push(rule(&filter, json!({ "edit_response_body": edit }))?);
            }
            rules
        }
        "block_list" => {
            let separator = spec.chars().next().ok_or("the value is empty: write it as :~d ads.test:404")?;
            let (filter, status) = spec[separator.len_utf8()..]
                .rsplit_once(separator)
                .ok_or("write it as :filter:status, for instance :~d ads.test:404")?;
            let code = status.trim().parse().ok().filter(|s| (100..=999u16).contains(s));
            let code = code.ok_or_else(|| format!("`{status}` is no status"))?;
            vec![rule(&asked(filter), json!({ "block": code }))?]
        }
        "ignore_hosts" | "allow_hosts" => {
            let regex = python(spec)?;
            crate::text::regex(&regex, true)?;
            // There it is found in `host:port`; here the port stands apart, so that an end for it is taken off.
            let host = regex.trim_end_matches(":443$").trim_end_matches(":443").trim_end_matches("(:443)?$").to_owned();
            let matcher = json!({ "host": { "regex": host, "ignore_case": true } });
            let when = if option == "ignore_hosts" { matcher } else { json!({ "not": matcher }) };
            vec![json!({ "when": when, "then": ["tunnel"] })]
        }
        "stickycookie" | "stickyauth" => {
            vec![rule(spec, json!(if option == "stickycookie" { "sticky_cookie" } else { "sticky_auth" }))?]
        }
        "anticache" | "anticomp" => match spec.trim() {
            "" | "true" => vec![json!({ "then": [option] })],
            "false" => Vec::new(),
            other => return Err(format!("`{other}`: write true or false")),
        },
        "server_replay" => vec![replay(spec, &Map::new())?],
        other => return Err(crate::error::unknown("option", other, OPTIONS)),
    };
    let name = |i: usize| format!("{option} {}", i + 1);
    Ok(rules.into_iter().enumerate().map(|(i, r)| named(r, &name(i))).collect())
}

fn named(rule: Value, name: &str) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), name.into());
    if let Value::Object(map) = rule {
        out.extend(map);
    }
    Value::Object(out)
}

/// The options of a `config.yaml` that become rules, one pair for each value; [`server_replay`] stands by itself.
///
/// # Errors
/// A text that is no YAML map.
pub fn options(text: &str) -> Result<Vec<(String, String)>, String> {
    let all: std::collections::BTreeMap<String, serde_yaml_ng::Value> =
        serde_yaml_ng::from_str(text).map_err(|e| e.to_string())?;
    let plain = |v: &serde_yaml_ng::Value| match v {
        serde_yaml_ng::Value::String(s) => Some(s.clone()),
        serde_yaml_ng::Value::Bool(b) => Some(b.to_string()),
        _ => None,
    };
    let mut found = Vec::new();
    // Of `server_replay` the other options of the file are asked as well.
    let alone = |option: &str| OPTIONS.contains(&option) && option != "server_replay";
    for (option, value) in all.iter().filter(|(o, _)| alone(o)) {
        match value {
            serde_yaml_ng::Value::Sequence(list) => {
                found.extend(list.iter().filter_map(plain).map(|v| (option.clone(), v)))
            }
            value => found.extend(plain(value).map(|v| (option.clone(), v))),
        }
    }
    Ok(found)
}

/// The rule for `server_replay` with the options that go with it, from a whole `config.yaml`.
///
/// # Errors
/// A text that is no YAML map, or an option with a value that it cannot have.
pub fn server_replay(text: &str) -> Result<Vec<Value>, String> {
    let all: Map<String, Value> = serde_yaml_ng::from_str(text).map_err(|e| e.to_string())?;
    let files: Vec<String> = match all.get("server_replay") {
        Some(Value::Array(list)) => list.iter().filter_map(|f| f.as_str().map(ToOwned::to_owned)).collect(),
        Some(Value::String(file)) => vec![file.clone()],
        _ => Vec::new(),
    };
    let rules: Result<Vec<Value>, String> = files.iter().map(|f| replay(f, &all)).collect();
    Ok(rules?.into_iter().enumerate().map(|(i, r)| named(r, &format!("server_replay {}", i + 1))).collect())
}

/// One file of `server_replay`, with mitmproxy's options about it. Without `server_replay_extra` what is not recorded goes on,
/// as there; an answer is given once, unless `server_replay_reuse` or its older name says otherwise.
fn replay(file: &str, options: &Map<String, Value>) -> Result<Value, String> {
    let option = |name: &str| options.get(&format!("server_replay_{name}"));
    let flag = |name: &str, absent: bool| match option(name) {
        None | Some(Value::Null) => Ok(absent),
        Some(Value::Bool(b)) => Ok(*b),
        Some(other) => Err(format!("server_replay_{name}: `{other}`: write true or false")),
    };
    let list = |name: &str| match option(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) if list.iter().all(Value::is_string) => Ok(list.clone()),
        Some(other) => Err(format!("server_replay_{name}: `{other}`: write a list of names")),
    };
    let mut ignore = list("ignore_params")?;
    for part in ["host", "port"] {
        if flag(&format!("ignore_{part}"), false)? {
            ignore.push(part.into());
        }
    }
    if flag("ignore_content", false)? {
        ignore.push("body".into());
    }
    let extra = match option("extra").and_then(Value::as_str) {
        _ if flag("kill_extra", false)? => json!("abort"),
        None | Some("forward") => json!("forward"),
        Some("kill") => json!("abort"),
        Some(status) => match status.parse::<u16>() {
            Ok(status) => json!(status),
            Err(_) => return Err(format!("server_replay_extra: `{status}`: write forward, kill, or a status")),
        },
    };
    let mut all = json!({ "file": file, "extra": extra, "refresh": flag("refresh", true)? });
    if flag("reuse", false)? || flag("nopop", false)? {
        all["reuse"] = true.into();
    }
    for (key, names) in
        [("ignore", ignore), ("ignore_form", list("ignore_payload_params")?), ("headers", list("use_headers")?)]
    {
        if !names.is_empty() {
            all[key] = names.into();
        }
    }
    Ok(json!({ "then": [{ "replay": all }] }))
}

/// The imported rules as a rule file in YAML.
pub fn to_yaml(mut rules: Vec<Value>) -> String {
    let mut seen = std::collections::HashMap::new();
    for rule in &mut rules {
        let base = rule["name"].as_str().unwrap_or("rule").split(' ').next().unwrap_or("rule").to_owned();
        let n = seen.entry(base.clone()).and_modify(|n| *n += 1).or_insert(1);
        rule["name"] = format!("{base} {n}").into();
    }
    serde_yaml_ng::to_string(&json!({ "rules": rules })).unwrap_or_default()
}

fn rule(filter: &str, action: Value) -> Result<Value, String> {
    let filter = filter.trim();
    let then = json!([action]);
    if filter.is_empty() || matches!(filter, "." | "~all") {
        return Ok(json!({ "then": then }));
    }
    let query = Query::parse(filter).map_err(|e| format!("the filter `{filter}`, {e}"))?;
    Ok(json!({ "when": query.to_string(), "then": then }))
}

/// `/filter/a/b` or `/a/b`, cut at its first character.
fn three(spec: &str, form: &str) -> Result<[String; 3], String> {
    let separator = spec.chars().next().ok_or_else(|| format!("the value is empty: write it as {form}"))?;
    let rest = &spec[separator.len_utf8()..];
    let parts: Vec<&str> = rest.splitn(3, separator).collect();
    match parts[..] {
        [a, b] => Ok([String::new(), a.to_owned(), b.to_owned()]),
        [a, b, c] => Ok([a.to_owned(), b.to_owned(), c.to_owned()]),
        _ => Err(format!("`{spec}` has too few parts: write it as {form}, its first character between the parts")),
    }
}

/// Python's regex in our syntax: the few spellings that differ.
fn python(regex: &str) -> Result<String, String> {
    let regex = regex.replace("(?P=", "(?P_back_reference=");
    crate::text::regex(&regex, false)?;
    Ok(regex)
}

/// `\1` and `\g<name>` as `$1` and `${group.name}`; a `$` of the text stays one.
fn groups(text: &str) -> String {
    let mut out = String::new();
    // What stands for a variable or a group here is plain text there.
    let mut text = text.replace("${", "$${");
    for digit in '0'..='9' {
        text = text.replace(&format!("${digit}"), &format!("$${digit}"));
    }
    let mut rest = text.as_str();
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let behind = &rest[at + 1..];
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            out.push_str(&format!("${{{}}}", &behind[..digits]));
            rest = &behind[digits..];
        } else if let Some((name, after)) = behind.strip_prefix("g<").and_then(|b| b.split_once('>')) {
            let number = name.bytes().all(|b| b.is_ascii_digit());
            out.push_str(&if number { format!("${{{name}}}") } else { format!("${{group.{name}}}") });
            rest = after;
        } else {
            let (plain, skip) = match behind.chars().next() {
                Some('n') => ('\n', 1),
                Some('t') => ('\t', 1),
                Some(c) => (c, c.len_utf8()),
                None => ('\\', 0),
            };
            out.push(plain);
            rest = &behind[skip..];
        }
    }
    out.push_str(rest);
    out
}

/// `@file` as the text of that file.
fn from_file(text: &str) -> Result<Option<String>, String> {
    let Some(path) = text.strip_prefix('@') else { return Ok(None) };
    std::fs::read_to_string(path).map(Some).map_err(|e| format!("{path} cannot be read: {e}"))
}

/// Which sides a filter leaves: `~q` is for requests, `~s` for responses.
fn sides(filter: &str) -> (bool, bool) {
    let has =
        |atom: &str| filter.split(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '&' | '|')).any(|w| w == atom);
    match (has("~q"), has("~s")) {
        (true, false) => (true, false),
        (false, true) => (false, true),
        _ => (true, true),
    }
}

fn headers(spec: &str) -> Result<Vec<Value>, String> {
    let [filter, name, value] = three(spec, "/name/value")?;
    let value = from_file(&value)?.map_or(value, |v| v.trim_end().to_owned());
    let (request, response) = sides(&filter);
    let filter = without_side(&filter);
    let mut rules = Vec::new();
    for (wanted, side) in [(request, "request"), (response, "response")] {
        if wanted {
            let action = if value.is_empty() {
                json!({ format!("remove_{side}_header"): name })
            } else {
                json!({ format!("set_{side}_header"): { name.clone(): value.replace("${", "$${") } })
            };
            rules.push(rule(&filter, action)?);
        }
    }
    Ok(rules)
}

/// The filter without `~q` or `~s`, which the choice of action says already. Where they are one side of an `|`, they stay.
fn without_side(filter: &str) -> String {
    if filter.contains(['|', '(', '"', '\'']) {
        return filter.to_owned();
    }
    let spaced = filter.replace('&', " ");
    let words: Vec<&str> = spaced.split_whitespace().filter(|w| !matches!(*w, "~q" | "~s")).collect();
    if words.len() == spaced.split_whitespace().count() { filter.to_owned() } else { words.join(" ") }
}

/// The filter of an option that is only ever asked about requests.
fn asked(filter: &str) -> String {
    if sides(filter) == (true, false) { without_side(filter) } else { filter.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Program, RulesConfig, Source, Surroundings, trial};

    fn program(option: &str, spec: &str) -> Arc<Program> {
        let yaml = to_yaml(import(option, spec).unwrap_or_else(|e| panic!("{option} {spec}: {e}")));
        Program::from_sources(
            vec![Source::text("i.yaml", &*yaml)],
            &RulesConfig::default(),
            Arc::new(Surroundings::default()),
        )
        .unwrap_or_else(|e| panic!("{e}\n{yaml}"))
    }

    async fn run(option: &str, spec: &str, url: &str) -> trial::Trial {
        let told = serde_json::from_value(json!({ "body": "a cat", "headers": { "Server": "x" } })).unwrap();
        trial::run(&program(option, spec), trial::sample(&crate::trial_asked(url), &told).unwrap()).await
    }

    #[tokio::test]
    async fn specifications_do_what_they_do_there() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.json"), "{}").unwrap();
        let folder = dir.path().display();
        for (option, spec, url, outcome) in [
            ("map_remote", r"|http://a.test/(\w+)/|http://b.test/\1-", "http://a.test/x/y", "GET http://b.test/x-y"),
            ("map_remote", r"|~m POST|http://a.test|http://b.test", "http://a.test/x", "GET http://a.test/x"),
            ("map_local", &format!("|http://a.test/static|{folder}"), "http://a.test/static/a.json", "200 {}"),
            ("map_local", &format!("|a.test/x|{folder}/a.json"), "http://a.test/x", "200 {}"),
            ("modify_body", "/~s/c(a)t/d\\1g", "http://a.test/", "200 a dag"),
            ("modify_body", ":cat:dog", "http://a.test/", "200 a dog"),
            ("modify_body", "|~s ~d a.test|cat|dog", "http://a.test/", "200 a dog"),
            ("modify_body", "|~s & ~u nowhere|cat|dog", "http://a.test/", "200 a cat"),
            ("modify_body", "/cat/$5 and ${x}", "http://a.test/", "200 a $5 and ${x}"),
            ("map_remote", r"|~q & ~m GET|http://a.test|http://b.test", "http://a.test/x", "GET http://b.test/x"),
            ("block_list", ":~q ~d a.test:404", "http://a.test/", "404 Not Found"),
            ("block_list", ":~d a.test:404", "http://a.test/", "404 Not Found"),
            ("block_list", ":~d a.test:444", "http://a.test/", "denied"),
            ("block_list", ":~d b.test:404", "http://a.test/", "200 a cat"),
            ("ignore_hosts", r"^(.+\.)?a\.test:443$", "https://a.test/", "tunnel"),
            ("allow_hosts", r"a\.test", "https://b.test/", "tunnel"),
        ] {
            let t = run(option, spec, url).await;
            let response =
                t.response.as_ref().map(|(h, b)| format!("{} {}", h.status.as_u16(), String::from_utf8_lossy(b)));
            let shown = match (&t.request, t.denied.is_some(), t.tunnel) {
                (_, true, _) => "denied".to_owned(),
                (_, _, Some(true)) => "tunnel".to_owned(),
                (Some((h, _)), ..) if option == "map_remote" => format!("{} {}", h.method, h.url),
                _ => response.unwrap_or_default(),
            };
            assert_eq!(shown, outcome, "{option} {spec}");
        }
    }

    #[tokio::test]
    async fn headers_are_set_and_taken_out_on_both_sides() {
        let t = run("modify_headers", "/~q/X-A/1", "http://a.test/").await;
        let (request, response) = (t.request.unwrap().0, t.response.unwrap().0);
        assert_eq!((request.headers.get_str("x-a"), response.headers.get_str("x-a")), (Some("1"), None));
        let t = run("modify_body", "|~q ~d a.test|x|y", "http://a.test/").await;
        assert_eq!(t.matched, ["modify_body 1"]);
        let t = run("modify_headers", "/~d a.test/Server/", "http://a.test/").await;
        assert!(!t.response.unwrap().0.headers.contains("server"));
    }

    #[test]
    fn switches_become_rules_and_nonsense_is_refused() {
        for (option, spec, rules) in [
            ("anticache", "true", 1),
            ("anticomp", "", 1),
            ("anticache", "false", 0),
            ("stickycookie", "~d a.test", 1),
            ("stickyauth", ".", 1),
        ] {
            assert_eq!(program(option, spec).rules.len(), rules, "{option}");
        }
        for (option, spec, part) in [
            ("map_rmote", "|a|b", "did you mean `map_remote`?"),
            ("map_remote", "|a", "too few parts"),
            ("map_remote", "", "empty"),
            ("map_remote", "|(?=x)|b", "look-around"),
            ("block_list", ":~d a:many", "no status"),
            ("block_list", ":~d a:99", "no status"),
            ("modify_headers", "/~zz x/A/b", "filter"),
        ] {
            let error = import(option, spec).unwrap_err();
            assert!(error.contains(part), "{option} {spec}: {error}");
        }
    }
}
