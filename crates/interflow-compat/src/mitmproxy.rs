//! Translation of mitmproxy's option strings into rules: `map_local`, `map_remote`, `modify_headers`, `modify_body`,
//! `block_list`, `ignore_hosts`, `stickycookie`, `stickyauth`, `anticache`, `anticomp`, `server_replay`.

use std::sync::LazyLock;

use interflow_query::{Expr, Key, Query, TermTest, TextPattern};
use interflow_rules::format::{build_regex, unknown_key_message};
use interflow_types::{Direction, data_file};
use serde_json::{Map, Value, json};

/// The supported options.
pub static SUPPORTED_OPTIONS: LazyLock<Vec<&str>> =
    LazyLock::new(|| options().filter(|[_, remedy]| remedy.is_empty()).map(|[option, _]| option).collect());

/// All options that are known, with what to do instead of one that does not become rules.
fn options() -> impl Iterator<Item = [&'static str; 2]> {
    data_file::records(include_str!("../data/mitmproxy_options.txt"))
}

/// The translation of an option.
#[derive(Debug, Default)]
pub struct ImportedRules {
    pub rules: Vec<Value>,
    /// What has no effect, or was not imported.
    pub notes: Vec<String>,
}

/// Translates one option with its values, as on mitmproxy's command line or in its `config.yaml`.
///
/// # Errors
/// An unknown option or an invalid value, with what was expected.
pub fn import_option(option: &str, specs: &[String]) -> Result<ImportedRules, String> {
    if !SUPPORTED_OPTIONS.contains(&option) {
        return Err(unknown_key_message("option", option, &SUPPORTED_OPTIONS));
    }
    let mut all = ImportedRules::default();
    match option {
        "modify_headers" => import_headers(specs, &mut all)?,
        "ignore_hosts" | "allow_hosts" => import_hosts(option, specs, &mut all)?,
        _ => {
            for spec in specs {
                let before = all.rules.len();
                import_spec(option, spec, &mut all)?;
                if all.rules.len() == before && !matches!(option, "anticache" | "anticomp") {
                    all.notes.push(no_effect_note(option, spec));
                }
            }
        }
    }
    all.rules = numbered(option, all.rules);
    Ok(all)
}

fn no_effect_note(option: &str, spec: &str) -> String {
    format!(
        "{option}: `{spec}` asks for what is not known when mitmproxy decides: it has no effect there, and none here"
    )
}

fn import_spec(option: &str, spec: &str, all: &mut ImportedRules) -> Result<(), String> {
    use Direction::{Request, Response};
    let rules = &mut all.rules;
    match option {
        "map_remote" => {
            let [filter, regex, to] = split_spec(spec, "|url-regex|replacement")?;
            let action = json!({ "map_remote": { "regex": translate_regex(&regex)?, "to": translate_groups(&to) } });
            rules.extend(rule_for_side(&filter, Request, action)?);
        }
        "map_local" => {
            let [filter, regex, path] = split_spec(spec, "|url-regex|path")?;
            let path = absolute(&path);
            let folder = std::path::Path::new(&path).is_dir();
            let mut path = path.replace('$', "$$");
            // The first group, if any, is looked up below the folder.
            if folder && build_regex(&regex, false)?.captures_len() > 1 {
                path = format!("{}/${{1}}", path.trim_end_matches('/'));
            }
            let action = json!({ "map_local": { "regex": translate_regex(&regex)?, "path": path } });
            rules.extend(rule_for_side(&filter, Request, action)?);
        }
        "modify_body" => {
            let [filter, regex, with] = split_spec(spec, "/regex/replacement")?;
            let with = from_file(&with)?.map_or_else(|| unescape_text(&with), Ok)?;
            let edit = json!({ "regex": format!("(?s){}", translate_regex(&unescape_regex(&regex))?), "with": translate_groups(&with) });
            rules.extend(rule_for_side(&filter, Request, json!({ "edit_request_body": edit.clone() }))?);
            rules.extend(rule_for_side(&filter, Response, json!({ "edit_response_body": edit }))?);
        }
        "block_list" => {
            let separator = spec.chars().next().ok_or("the value is empty: write it as :~d ads.test:404")?;
            let (filter, status) = spec[separator.len_utf8()..]
                .rsplit_once(separator)
                .ok_or("write it as :filter:status, for instance :~d ads.test:404")?;
            let code = status.trim().parse().ok().filter(|s| (100..=999u16).contains(s));
            let code = code.ok_or_else(|| format!("`{status}` is not a valid status"))?;
            rules.extend(rule_for_side(filter, Request, json!({ "block": code }))?);
        }
        "stickycookie" | "stickyauth" => {
            let action = if option == "stickycookie" { "sticky_cookie" } else { "sticky_auth" };
            rules.extend(rule_for_side(spec, Request, json!(action))?);
        }
        "server_replay" => rules.push(replay_rule(spec, &Map::new())?),
        _ => match spec.trim() {
            "" | "true" => rules.push(json!({ "then": [option] })),
            "false" => {}
            other => return Err(format!("`{other}`: write true or false")),
        },
    }
    Ok(())
}

/// `ignore_hosts` and `allow_hosts`: regexes on `host:port`, of which one must match.
fn import_hosts(option: &str, specs: &[String], all: &mut ImportedRules) -> Result<(), String> {
    let mut any = Vec::new();
    for spec in specs {
        let regex = translate_regex(spec)?;
        let test = TermTest::Text(TextPattern::Regex(interflow_query::RegexSource::new(&regex, true)));
        any.push(Query::from(Expr::term(Key::Authority, test)).to_string());
    }
    if any.is_empty() {
        return Ok(());
    }
    let when = if option == "ignore_hosts" { json!({ "any": any }) } else { json!({ "not": { "any": any } }) };
    all.rules.push(json!({ "when": when, "then": ["tunnel"] }));
    Ok(())
}

/// `modify_headers`: all named fields are removed first, then each value is added.
fn import_headers(specs: &[String], all: &mut ImportedRules) -> Result<(), String> {
    let mut read = Vec::new();
    for spec in specs {
        let [filter, name, value] = split_spec(spec, "/name/value")?;
        let text = from_file(&value)?.map(|text| text.trim_end().to_owned());
        let value = text.map_or_else(|| unescape_text(&value), Ok)?;
        read.push((spec, filter, unescape_text(&name)?, value));
    }
    let several = |name: &str| read.iter().filter(|(_, _, n, _)| n.eq_ignore_ascii_case(name)).count() > 1;
    let sides = [("request", Direction::Request), ("response", Direction::Response)];
    for first in [true, false] {
        for (spec, filter, name, value) in &read {
            let mut made = Vec::new();
            for (word, side) in sides {
                let text = value.replace("${", "$${");
                let action = match (first, several(name), value.is_empty()) {
                    (true, true, _) | (true, false, true) => json!({ format!("remove_{word}_header"): name }),
                    (true, false, false) => json!({ format!("set_{word}_header"): { name.clone(): text } }),
                    (false, true, false) => json!({ format!("add_{word}_header"): { name.clone(): text } }),
                    (false, ..) => continue,
                };
                made.extend(rule_for_side(filter, side, action)?);
            }
            if first && made.is_empty() {
                all.notes.push(no_effect_note("modify_headers", spec));
            }
            all.rules.extend(made);
        }
    }
    Ok(())
}

/// The rules of an option, each with a name as its first key.
fn numbered(option: &str, rules: Vec<Value>) -> Vec<Value> {
    let with_name = |(n, mut rule): (usize, Value)| {
        let name = ("name".to_owned(), format!("{option} {n}").into());
        [name].into_iter().chain(std::mem::take(rule.as_object_mut().expect("a rule is a map"))).collect()
    };
    (1..).zip(rules).map(with_name).collect()
}

type OptionValues = (String, Vec<String>);

/// The options of a `config.yaml` that become rules, each with its values, except [`server_replay`]; and a note on each
/// option that is not imported.
///
/// # Errors
/// A text that is not a YAML map, or an invalid value.
pub fn config_options(text: &str) -> Result<(Vec<OptionValues>, Vec<String>), String> {
    let all: Map<String, Value> = interflow_codec::document::from_yaml(text).map_err(|e| e.to_string())?;
    let (mut found, mut notes) = (Vec::new(), Vec::new());
    for (option, value) in &all {
        // `server_replay` depends on other options of the file.
        if option.starts_with("server_replay") {
            continue;
        }
        if !SUPPORTED_OPTIONS.contains(&option.as_str()) {
            let remedy = options().find(|[o, _]| o == option).map_or("there is no rule for it", |[_, remedy]| remedy);
            notes.push(format!("{option}: not taken over: {remedy}"));
            continue;
        }
        let list = match value {
            Value::Null => continue,
            Value::Array(list) => list.as_slice(),
            one => std::slice::from_ref(one),
        };
        let plain = |v: &Value| match v {
            Value::String(s) => Ok(s.clone()),
            Value::Bool(b) => Ok(b.to_string()),
            other => Err(format!("{option}: `{other}` is not a valid value of this option: write a text")),
        };
        found.push((option.clone(), list.iter().map(plain).collect::<Result<_, _>>()?));
    }
    Ok((found, notes))
}

/// The rule for `server_replay` with its related options, from a whole `config.yaml`.
///
/// # Errors
/// A text that is not a YAML map, or an option with an invalid value.
pub fn server_replay(text: &str) -> Result<Vec<Value>, String> {
    let all: Map<String, Value> = interflow_codec::document::from_yaml(text).map_err(|e| e.to_string())?;
    let files: Vec<String> = match all.get("server_replay") {
        Some(Value::Array(list)) => list.iter().filter_map(|f| f.as_str().map(ToOwned::to_owned)).collect(),
        Some(Value::String(file)) => vec![file.clone()],
        _ => Vec::new(),
    };
    let rules: Result<Vec<Value>, String> = files.iter().map(|f| replay_rule(f, &all)).collect();
    Ok(numbered("server_replay", rules?))
}

/// One file of `server_replay` with its options. As in mitmproxy, requests that were not recorded go to the origin
/// unless `server_replay_extra` is set, and a response is served once unless `server_replay_reuse` or its older name is
/// set.
fn replay_rule(file: &str, options: &Map<String, Value>) -> Result<Value, String> {
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
    for (option, part) in [("ignore_host", "host"), ("ignore_port", "port"), ("ignore_content", "body")] {
        if flag(option, false)? {
            ignore.push(part.into());
        }
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

/// The rules as a rule file in YAML.
pub fn to_yaml(mut rules: Vec<Value>) -> String {
    let mut counts = std::collections::HashMap::new();
    for rule in &mut rules {
        let base = rule["name"].as_str().unwrap_or("rule").split(' ').next().unwrap_or("rule").to_owned();
        let n = counts.entry(base.clone()).and_modify(|n| *n += 1).or_insert(1);
        rule["name"] = format!("{base} {n}").into();
    }
    interflow_codec::document::to_yaml(&json!({ "rules": rules }))
}

/// A rule for this side; `None` if the filter can never match there.
fn rule_for_side(filter: &str, side: Direction, action: Value) -> Result<Option<Value>, String> {
    let filter = filter.trim();
    let then = json!([action]);
    if filter.is_empty() || filter == "." {
        return Ok(Some(json!({ "then": then })));
    }
    let query = Query::parse_tilde(filter).map_err(|e| format!("the filter `{filter}`, {e}"))?.simplified_at(side);
    Ok(match query.to_string() {
        _ if query.is_none() => None,
        all if all.is_empty() => Some(json!({ "then": then })),
        when => Some(json!({ "when": when, "then": then })),
    })
}

/// The path relative to the current directory, made absolute.
fn absolute(path: &str) -> String {
    let home = || path.strip_prefix("~/").map(|rest| std::env::home_dir().map(|home| home.join(rest)));
    let path = home().flatten().unwrap_or_else(|| path.into());
    std::path::absolute(&path).unwrap_or(path).display().to_string()
}

/// Python's escapes: `\x41`, `
/// `, `\\`. A backslash and a digit stay, since they name a group.
fn unescape_text(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&c, behind)) = rest.split_first() {
        rest = behind;
        if c != b'\\' {
            out.push(c);
            continue;
        }
        let Some((&sign, behind)) = rest.split_first() else { return Err(format!("`{text}` ends with a backslash")) };
        rest = behind;
        match sign {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'a' => out.push(7),
            b'b' => out.push(8),
            b'v' => out.push(11),
            b'f' => out.push(12),
            b'0' => out.push(0),
            b'\\' | b'\'' | b'"' => out.push(sign),
            b'x' => {
                let hex = rest.get(..2).and_then(|h| std::str::from_utf8(h).ok());
                let byte = hex.and_then(|h| u8::from_str_radix(h, 16).ok());
                out.push(byte.ok_or_else(|| format!("`{text}`: two hexadecimal digits stand behind \\x"))?);
                rest = &rest[2..];
            }
            other => out.extend([b'\\', other]),
        }
    }
    String::from_utf8(out)
        .map_err(|_| format!("`{text}` decodes to bytes that are not UTF-8, which a rule cannot contain"))
}

/// The same for a regex on bytes, which understands most escapes itself.
fn unescape_regex(regex: &str) -> String {
    let mut out = String::new();
    let mut chars = regex.chars().peekable();
    while let Some(c) = chars.next() {
        out.push(c);
        if c != '\\' {
            continue;
        }
        match chars.next() {
            // Two backslashes are one to the regex.
            Some('\\') => {}
            Some('x') => {
                let hex: String = chars.clone().take(2).collect();
                if u8::from_str_radix(&hex, 16).is_ok_and(|b| b >= 0x80) {
                    out.pop();
                    out.push_str(&format!("(?-u:\\x{hex})"));
                    chars.nth(1);
                } else {
                    out.push('x');
                }
            }
            next => out.extend(next),
        }
    }
    out
}

/// Splits `/filter/a/b` or `/a/b` at its first character.
fn split_spec(spec: &str, form: &str) -> Result<[String; 3], String> {
    let separator = spec.chars().next().ok_or_else(|| format!("the value is empty: write it as {form}"))?;
    let rest = &spec[separator.len_utf8()..];
    let parts: Vec<&str> = rest.splitn(3, separator).collect();
    match parts[..] {
        [a, b] => Ok([String::new(), a.to_owned(), b.to_owned()]),
        [a, b, c] => Ok([a.to_owned(), b.to_owned(), c.to_owned()]),
        _ => Err(format!("`{spec}` has too few parts: write it as {form}, its first character between the parts")),
    }
}

/// Translates the few spellings in which Python's regex syntax differs.
fn translate_regex(regex: &str) -> Result<String, String> {
    let regex = regex.replace("(?P=", "(?P_back_reference=");
    build_regex(&regex, false)?;
    Ok(regex)
}

/// Translates `\1` and `\g<name>` to `$1` and `${group.name}`, and escapes `$`.
fn translate_groups(text: &str) -> String {
    let mut out = String::new();
    // `${` is plain text in mitmproxy.
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

/// Reads `@file`.
fn from_file(text: &str) -> Result<Option<String>, String> {
    let Some(path) = text.strip_prefix('@') else { return Ok(None) };
    std::fs::read_to_string(path).map(Some).map_err(|e| format!("{path} cannot be read: {e}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use interflow_rules::{
        FlowFixture, RuleFileSource, RuleProgram, RuleRuntime, RulesConfig, simulate, test_get_request,
    };

    use super::*;

    fn program(option: &str, spec: &str) -> Arc<RuleProgram> {
        several(option, &[spec])
    }

    fn several(option: &str, specs: &[&str]) -> Arc<RuleProgram> {
        let specs: Vec<String> = specs.iter().map(|s| (*s).to_owned()).collect();
        let made = import_option(option, &specs).unwrap_or_else(|e| panic!("{option} {specs:?}: {e}"));
        let yaml = to_yaml(made.rules);
        RuleProgram::from_sources(
            vec![RuleFileSource::from_text("i.yaml", &*yaml)],
            &RulesConfig::default(),
            Arc::new(RuleRuntime::default()),
        )
        .unwrap_or_else(|e| panic!("{e}\n{yaml}"))
    }

    async fn run(option: &str, spec: &str, url: &str) -> simulate::Simulation {
        let response = serde_json::from_value(json!({ "body": "a cat", "headers": { "Server": "x" } })).unwrap();
        simulate::run(&program(option, spec), simulate::fixture_from(&test_get_request(url), &response).unwrap()).await
    }

    #[tokio::test]
    async fn mitmproxy_specifications_behave_as_in_mitmproxy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.json"), "{}").unwrap();
        let folder = dir.path().display();
        for (option, spec, url, outcome) in [
            ("map_remote", r"|http://a.test/(\w+)/|http://b.test/\1-", "http://a.test/x/y", "GET http://b.test/x-y"),
            ("map_remote", "|/v1|/v2", "http://a.test/v1/v1", "GET http://a.test/v2/v2"),
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
            ("ignore_hosts", r"^a\.test:443$", "https://a.test/", "tunnel"),
            ("ignore_hosts", r"^a\.test:443$", "https://a.test:8443/", "200 a cat"),
            ("ignore_hosts", r"^a\.test:443$", "https://a.test.evil/", "200 a cat"),
            ("ignore_hosts", r"a\.test:(443|8443)$", "https://a.test:8443/", "tunnel"),
            ("ignore_hosts", r"a\.test:(443|8443)$", "https://a.test:9443/", "200 a cat"),
            // A filter without an operator is a regex on the URL.
            ("block_list", "/!jpg/418", "http://a.test/x.png", "418 I'm a teapot"),
            ("block_list", "/!jpg/418", "http://a.test/x.jpg", "200 a cat"),
            ("block_list", "/cat/418", "http://a.test/", "200 a cat"),
            // A filter on the response does not match yet when the request is decided.
            ("block_list", ":~c 200:418", "http://a.test/", "200 a cat"),
            ("block_list", ":!~c 200:418", "http://a.test/", "418 I'm a teapot"),
            ("block_list", ":~t html | ~d a.test:418", "http://a.test/", "418 I'm a teapot"),
            ("block_list", ":~dst a.test.80:418", "http://a.test/", "418 I'm a teapot"),
            ("block_list", ":~http:418", "http://a.test/", "418 I'm a teapot"),
            ("map_remote", r"|~hq nothing|http://a.test|http://b.test", "http://a.test/x", "GET http://a.test/x"),
            ("map_local", &format!("|http://a.test/(.*)/other|{folder}"), "http://a.test/a.json/other", "200 {}"),
            ("modify_body", r"/\x63at/d\x6fg", "http://a.test/", "200 a dog"),
            ("modify_body", r"/c(a)t/\\1", "http://a.test/", "200 a a"),
            ("modify_body", "/~c 404/cat/dog", "http://a.test/", "200 a cat"),
            ("modify_body", "/~c 200/cat/dog", "http://a.test/", "200 a dog"),
        ] {
            let t = run(option, spec, url).await;
            let response =
                t.response.as_ref().map(|(h, b)| format!("{} {}", h.status.as_u16(), String::from_utf8_lossy(b)));
            let actual = match (&t.request, t.denied.is_some(), t.tunnel) {
                (_, true, _) => "denied".to_owned(),
                (_, _, Some(true)) => "tunnel".to_owned(),
                (Some((h, _)), ..) if option == "map_remote" => format!("{} {}", h.method, h.url),
                _ => response.unwrap_or_default(),
            };
            assert_eq!(actual, outcome, "{option} {spec}");
        }
    }

    #[tokio::test]
    async fn headers_are_set_and_removed_on_both_sides() {
        let t = run("modify_headers", "/~q/X-A/1", "http://a.test/").await;
        let (request, response) = (t.request.unwrap().0, t.response.unwrap().0);
        assert_eq!((request.headers.get_str("x-a"), response.headers.get_str("x-a")), (Some("1"), None));
        let t = run("modify_body", "|~q ~d a.test|x|y", "http://a.test/").await;
        assert_eq!(t.matched, ["modify_body 1"]);
        let t = run("modify_headers", "/~d a.test/Server/", "http://a.test/").await;
        assert!(!t.response.unwrap().0.headers.contains("server"));
    }

    #[tokio::test]
    async fn repeated_header_options_are_all_sent() {
        let p = several(
            "modify_headers",
            &["/~s/Server/one", "/X-Other/1", "/~s/server/two", "/~d none.test/Server/three"],
        );
        let response = serde_json::from_value(json!({ "headers": { "Server": "x" } })).unwrap();
        let t =
            simulate::run(&p, simulate::fixture_from(&test_get_request("http://a.test/"), &response).unwrap()).await;
        let head = t.response.unwrap().0;
        let all: Vec<_> = head.headers.get_all("server").map(|v| String::from_utf8_lossy(v).into_owned()).collect();
        assert_eq!((all, head.headers.get_str("x-other")), (vec!["one".to_owned(), "two".to_owned()], Some("1")));
    }

    #[tokio::test]
    async fn host_allowed_by_any_of_several_options_is_allowed() {
        let p = several("allow_hosts", &[r"a\.test", r"b\.test:443"]);
        for (url, tunnel) in [("https://a.test/", None), ("https://b.test/", None), ("https://b.test:1/", Some(true))] {
            let t = simulate::run(&p, FlowFixture::for_get(url)).await;
            assert_eq!(t.tunnel, tunnel, "{url}");
        }
    }

    #[test]
    fn every_imported_specification_loads() {
        for (option, spec) in [
            ("stickycookie", ".*"),
            ("stickyauth", ".*"),
            ("modify_headers", "/foo/bar/x"),
            ("modify_headers", "/~c 404/X-A/1"),
            ("modify_headers", "/~t json/X-A/1"),
            ("modify_headers", "/~e | ~websocket | ~hs x/X-A/1"),
            ("map_remote", "|~t json|a|b"),
            ("stickycookie", "~c 200"),
            ("block_list", "/~udp/418"),
        ] {
            program(option, spec);
        }
        let nothing = import_option("block_list", &["/~c 404/418".to_owned()]).unwrap();
        assert!(nothing.rules.is_empty() && nothing.notes[0].contains("no effect"), "{nothing:?}");
    }

    #[test]
    fn unsupported_options_are_reported_with_an_alternative() {
        let (found, notes) = config_options("mode: [socks5]\nssl_insecure: true\nscripts: [a.py]\nanticache: true\nmodify_headers:\n- /A/1\n- /A/2\nweb_port: 8081\n").unwrap();
        assert_eq!(
            found,
            [
                ("anticache".to_owned(), vec!["true".to_owned()]),
                ("modify_headers".to_owned(), vec!["/A/1".to_owned(), "/A/2".to_owned()]),
            ]
        );
        for option in ["mode: ", "ssl_insecure: ", "scripts: ", "web_port: "] {
            assert_eq!(notes.iter().filter(|n| n.starts_with(option)).count(), 1, "{notes:?}");
        }
        assert!(config_options("block_list: 7").unwrap_err().contains("block_list"));
    }

    #[test]
    fn flag_options_become_rules_and_invalid_ones_are_refused() {
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
            ("block_list", ":~d a:many", "not a valid status"),
            ("block_list", ":~d a:99", "not a valid status"),
            ("modify_headers", "/~zz x/A/b", "filter"),
        ] {
            let error = import_option(option, &[spec.to_owned()]).unwrap_err();
            assert!(error.contains(part), "{option} {spec}: {error}");
        }
    }
}
