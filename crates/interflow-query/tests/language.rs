//! How queries are parsed, and the errors of queries that cannot be.

use std::collections::BTreeSet;

use interflow_query::{MAX_DEPTH, MAX_LENGTH, MAX_TERMS, Query};

fn canonical(text: &str) -> String {
    match Query::parse(text) {
        Ok(query) => query.to_string(),
        Err(error) => format!("error: {error}"),
    }
}

/// Each query and its normalized form, which must parse back to itself.
fn check(table: &[(&str, &str)]) {
    for (text, plain) in table {
        assert_eq!(canonical(text), *plain, "{text}");
        assert_eq!(Query::parse(plain).unwrap(), Query::parse(text).unwrap(), "{plain}");
    }
}

#[test]
fn operators_in_lower_case_are_words_and_said_to_be() {
    for (text, word) in [
        ("host:a or host:b", Some("or")),
        ("a and b", Some("and")),
        ("not status:200", Some("not")),
        ("(a or b) c", Some("or")),
        ("host:a OR host:b", None),
        ("host:a \"or\" host:b", None),
        ("\"a or b\" c", None),
        ("or", None),
        ("tag:or a", None),
        ("host:(a or b)", Some("or")),
        ("host:a Or host:b", Some("Or")),
        ("host:a AND \"not\"", None),
    ] {
        let hint = Query::parse(text).unwrap().hint().cloned();
        assert_eq!(Query::parse_strict(text).err(), hint, "{text}");
        let expected = word.map(|word| {
            let (at, upper) = (text.find(word).unwrap() + 1, word.to_uppercase());
            format!(
                "column {at}: `{word}` is searched as a word: write {upper} for the operator, or \"{word}\" if the word is \
                 meant"
            )
        });
        assert_eq!(hint.map(|h| h.to_string()), expected, "{text}");
    }
    assert_eq!(canonical("a or b"), "a \"or\" b");
    // In the tilde syntax, words are none of its operators.
    let hint = Query::parse_strict("~d a or ~d b").unwrap_err().to_string();
    assert!(hint.starts_with("column 6: `or` is searched") && hint.contains("write | for the operator"), "{hint}");
    assert!(Query::parse_strict("~d a | ~d b").is_ok() && Query::parse_strict("~d a \"or\" ~d b").is_ok());
}

#[test]
fn operator_precedence_is_as_documented() {
    check(&[
        ("", ""),
        ("  ", ""),
        ("*", ""),
        ("a b c", "a b c"),
        ("a AND b", "a b"),
        ("a && b & c", "a b c"),
        ("a b OR c d", "(a b) OR (c d)"),
        ("a (b OR c) d", "a (b OR c) d"),
        ("a || b | c", "a OR b OR c"),
        ("-a", "-a"),
        ("NOT a b", "-a b"),
        ("NOT (a b)", "-(a b)"),
        ("NOT NOT a", "a"),
        ("!a --b", "-a b"),
        ("-(a OR -b)", "-(a OR -b)"),
        ("((a))", "a"),
        ("a * b", "a b"),
        ("a OR *", ""),
        ("-*", "-*"),
        ("and or not", r#""and" "or" "not""#),
    ]);
}

#[test]
fn texts_globs_and_regexes_are_distinguished() {
    check(&[
        ("refund", "refund"),
        ("\"no refund\"", "\"no refund\""),
        (r#""say \"hi\" \\ \d""#, r#""say \"hi\" \\ \\d""#),
        ("\"AND\"", "\"AND\""),
        ("http://a/b?c", "\"http://a/b?c\""),
        ("12:30", "\"12:30\""),
        (r"a\ b", "\"a b\""),
        (r"body:\d+", r#"body:"\\d+""#),
        (r"\*", "\"*\""),
        ("a**b", "a*b"),
        (r"/err(or)?\ x/i", r"/err(or)?\ x/i"),
        ("resp.body:/a b/", "resp.body:/a b/"),
        (r"user:\/*/", r"user:\/*/"),
        ("path:/a path:/", "path:\"/a\" path:\"/\""),
        (r"/a\/b/", r"/a\/b/"),
        ("/v1/messages", "\"/v1/messages\""),
        ("path:/v1/*", "path:/v1/*"),
        ("path:/health", "path:\"/health\""),
        ("path:\"/v1/\"", "path:\"/v1/\""),
        ("path:/v1/", "path:/v1/"),
        ("(path:/v1/)", "path:/v1/"),
        ("host:*.openai.com", "host:*.openai.com"),
        ("url:=http://x/", "url:=\"http://x/\""),
        ("method:!=GET", "-method:=GET"),
        ("comment:*", "comment:*"),
    ]);
}

#[test]
fn keys_take_their_kinds_of_values() {
    check(&[
        ("Status:4XX CODE:200", "status:4xx status:200"),
        ("status:!=200", "-status:200"),
        ("status:400..499", "status:400..499"),
        ("dur:>2s took:<=1500us", "dur:>2s dur:<=1500us"),
        ("size:>1MB resp.size:0", "size:>1MB resp.size:0"),
        ("time:>2026-01-01", "time:>2026-01-01"),
        ("time:<-1h -time:-2d", "time:<-1h -time:-2d"),
        ("is:WebSocket", "is:websocket"),
        ("scheme:wss version:h2 transport:socks", "scheme:https version:HTTP/2 transport:socks5"),
        ("version:HTTP/*", "version:HTTP/*"),
        ("client:10.1.2.3/8", "client:10.0.0.0/8"),
        ("client:[::1] client:10.0.*", "client:::1 client:10.0.*"),
        ("client:::ffff:10.0.0.1", "client:10.0.0.1"),
        ("host:localhost:8080", "host:localhost port:8080"),
        ("host:[::1]:443", "host:\"::1\" port:443"),
        ("host:[2001:DB8::0:1]", "host:\"2001:db8::1\""),
        ("host:*:443", "host:* port:443"),
        ("header:x-api-key", "header:x-api-key"),
        ("headers.X-Api-Key:abc", "header.x-api-key:abc"),
        ("req.header.accept:*", "req.header.accept:*"),
        ("request.headers.a.b:c", "req.header.a.b:c"),
    ]);
    check(&[
        ("status:(200 OR 404)", "status:200 OR status:404"),
        ("host:(a.b OR *.c) -is:(open OR error)", "(host:a.b OR host:*.c) -(is:open OR is:error)"),
        ("status:(-404 -405)", "-status:404 -status:405"),
        ("time:(-1h OR 2026-01-01)", "time:-1h OR time:2026-01-01"),
    ]);
}

#[test]
fn words_of_the_table_are_values() {
    check(&[
        ("type:sse", "is:sse"),
        ("Type:WS -resp.type:websocket", "is:websocket -is:websocket"),
        ("type:hls", "type:mpegurl"),
        ("method:tunnel", "is:tunnel"),
        ("status:ERR", "is:error"),
        ("status:cut", "is:cut"),
        ("is:llm is:starred is:ws", "model:* tag:starred is:websocket"),
        ("time:today", "time:today"),
        ("type:\"sse\"", "type:\"sse\""),
        ("method:=TUNNEL", "method:=\"TUNNEL\""),
        ("req.type:sse", "req.type:sse"),
    ]);
}

#[test]
fn several_values_are_written_with_commas() {
    check(&[
        ("status:200,201", "status:200 OR status:201"),
        ("status:ERR,5xx,>=600 host:a.b", "(is:error OR status:5xx OR status:>=600) host:a.b"),
        ("-method:GET,POST", "-(method:GET OR method:POST)"),
        ("status:!=200,404", "-(status:200 OR status:404)"),
        ("host:*.a.com:443,b.com", "(host:*.a.com port:443) OR host:b.com"),
        ("host:(a.b,c.d OR e.f)", "host:a.b OR host:c.d OR host:e.f"),
        ("is:sse,ws", "is:sse OR is:websocket"),
        ("tag:a,b", "tag:a OR tag:b"),
        // Texts that may contain a comma are not split.
        ("path:/a,b", "path:\"/a,b\""),
        (r#"tag:"a,b""#, "tag:\"a,b\""),
        ("method:=a,b", "method:=\"a,b\""),
        (r"model:a\,b", "model:\"a,b\""),
    ]);
    assert_eq!(
        canonical("status:200,"),
        "error: column 12: a value is missing after 'status:': write it without a space, as in status:4xx"
    );
    let many = format!("status:{}", vec!["1"; MAX_TERMS + 1].join(","));
    assert!(canonical(&many).contains("more than"), "{many}");
}

#[test]
fn a_host_without_a_dot_is_a_part_of_the_name_in_searches_only() {
    check(&[
        ("host:shop", "host:*shop*"),
        ("host:shop,bank", "host:*shop* OR host:*bank*"),
        ("host:shop:8080", "host:*shop* port:8080"),
        ("host:localhost:8080", "host:localhost port:8080"),
        ("host:=shop", "host:=\"shop\""),
        ("host:\"shop\"", "host:\"shop\""),
        ("host:shop.test", "host:shop.test"),
        ("host:localhost", "host:localhost"),
    ]);
    for (text, plain) in [("host:shop", "host:\"shop\""), ("host:shop:8080", "host:\"shop\" port:8080")] {
        let rule = Query::parse_strict(text).unwrap();
        assert_eq!(rule.to_string(), plain);
        assert_eq!(Query::parse_strict(plain).unwrap(), rule);
    }
}

#[test]
fn exact_values_are_read_as_their_key_reads_values() {
    check(&[
        ("version:!=h2", "-version:HTTP/2"),
        ("version:=\"1.1\"", "version:HTTP/1.1"),
        ("scheme:!=wss", "-scheme:https"),
        ("transport:!=socks transport:=PROXY", "-transport:socks5 transport:absolute"),
        ("host:=a.test:8443", "host:=a.test port:8443"),
        ("host:!=a.test:8443", "-(host:=a.test port:8443)"),
        ("host:=shop:8080", "host:=\"shop\" port:8080"),
        ("host:=[2001:DB8::0:1]", "host:=\"2001:db8::1\""),
        ("host:=[::1]:443", "host:=\"::1\" port:443"),
        ("host:=\"a.test:8443\"", "host:=\"a.test:8443\""),
        ("client:!=10.1.2.3/8", "-client:10.0.0.0/8"),
    ]);
    for (text, says) in [
        ("version:!=h4", "unknown value 'h4': the values are HTTP/1.0"),
        ("scheme:=htp", "unknown value 'htp': did you mean 'http'?"),
        ("version:=HTTP*", "'=' compares the exact text"),
        ("host:=*:443", "'=' compares the exact text"),
    ] {
        assert!(canonical(text).contains(says), "{}", canonical(text));
    }
}

#[test]
fn a_search_without_results_gets_a_better_query() {
    for (text, better) in [
        ("status>=400", Some("status:>=400")),
        ("host=shop method:GET", Some("host:shop method:GET")),
        ("header:server=demo", Some("header.server:demo")),
        ("dur>2s -status=200", Some("dur:>2s -status:200")),
        ("host:a.b or host:c.d", Some("host:a.b OR host:c.d")),
        ("status>=400 or code==200", Some("status:>=400 OR status:200")),
        ("host:shop.test", Some("host:*shop.test*")),
        ("user:=ali é", Some("user:*ali* é")),
        ("host:(a.b OR c.d)", None),
        ("-host:a.b", None),
        ("\"status>=400\"", None),
        ("status>=abc", None),
        ("page=2", None),
        ("status:404", None),
        ("", None),
    ] {
        assert_eq!(Query::parse(text).unwrap().did_you_mean(text, &BTreeSet::new()).as_deref(), better, "{text}");
    }
}

#[test]
fn a_search_without_results_gets_the_recorded_host_with_a_similar_name() {
    let hosts = ["api.openai.com", "example.com", "shop.example"].map(str::to_owned).into();
    for (text, better) in [
        ("host:exmaple.com", Some("host:example.com")),
        ("host:=Exmaple.com path:/a", Some("host:example.com path:/a")),
        ("host:shop.exmaple OR host:b.test", Some("host:shop.example OR host:*b.test*")),
        ("status>=400 host:exmaple.com", Some("status:>=400 host:exmaple.com")),
        // The host is there: something else does not match.
        ("host:example.com", Some("host:*example.com*")),
        ("host:openai", None),
        ("host:elsewhere.test", Some("host:*elsewhere.test*")),
        ("-host:exmaple.com", None),
    ] {
        assert_eq!(Query::parse(text).unwrap().did_you_mean(text, &hosts).as_deref(), better, "{text}");
    }
}

#[test]
fn mitmproxy_filters_are_parsed() {
    check(&[
        ("~m POST & ~d api | !(~c 404)", "(method:/POST/i host:/api/i) OR -status:404"),
        ("~q", "-is:answered"),
        ("~s ~e", "is:answered is:error"),
        ("!~websocket", "-is:websocket"),
        ("(~tcp | ~http)", "is:tunnel OR is:http OR is:websocket"),
        (
            "~a | ~b x y",
            "(resp.type:/^(text\\/javascript|(application|text)\\/(x-)?javascript|text\\/css|image\\/|application\\/x-shockwave-flash|(application\\/(x-)?)?font)/i OR body:/x/i) url:/y/i",
        ),
        ("~all", ""),
        ("~udp", "-*"),
        ("~bq a ~bs b", "req.body:/a/i resp.body:/b/i"),
        ("~h 'x: y' ~hq a ~hs b", "header:/x: y/i req.header:/a/i resp.header:/b/i"),
        ("~t a ~tq b ~ts c", "type:/a/i req.type:/b/i resp.type:/c/i"),
        ("~u \"a\\\"b\\d\"", "url:/a\"b\\d/i"),
        ("~src 10. ~dst :443", "client:/10./i authority:/:443/i"),
        // Only in bodies does a dot match line breaks.
        ("~b a.b ~u a.b", "body:/(?s)a.b/i url:/a.b/i"),
        ("~comment x ~marker y ~meta z", "comment:/x/i tag:/y/i (tag:/z/i OR comment:/z/i)"),
        ("~marked ~replay ~replayq ~replays", "tag:* is:replay is:replay tag:server-replay"),
        ("foo & ~m POST", "url:/foo/i method:/POST/i"),
        ("~d example.com|example.org", "host:/example.com|example.org/i"),
    ]);
}

#[test]
fn errors_have_column_cause_and_remedy() {
    for (text, error) in [
        ("stats:200", "column 1: unknown key 'stats': did you mean 'status'?"),
        ("a websocket:x", "column 3: unknown key 'websocket': did you mean 'is:websocket'?"),
        (
            "localhost:80",
            "column 1: unknown key 'localhost': put the term in quotes to search for its text; the keys are in the help",
        ),
        (
            "status:abc",
            "column 8: 'abc' does not fit 'status': expected a status code such as 404, or a class such as 4xx",
        ),
        (
            "é dur:>2",
            "column 7: '>2' does not fit 'dur': expected a duration with its unit, such as 2s, 500ms, 80us, 1.5m or 1h",
        ),
        ("size:>1XB", "column 6: '>1XB' does not fit 'size': expected bytes such as 512, 64KiB or 1.5MB"),
        ("is:lllm", "column 4: unknown flag 'lllm': did you mean 'is:llm'?"),
        ("is:4xx", "column 4: unknown flag '4xx': did you mean 'status:4xx'?"),
        ("is:websoket", "column 4: unknown flag 'websoket': did you mean 'is:websocket'?"),
        ("scheme:htp", "column 8: unknown value 'htp': did you mean 'http'?"),
        (
            "transport:zzz",
            "column 11: unknown value 'zzz': the values are absolute, connect, socks5, transparent, reverse, gateway, internal",
        ),
        (
            "client:example.com",
            "column 8: 'example.com' does not fit 'client': expected an address (10.0.0.7), a network (10.0.0.0/8) or a glob (10.0.*)",
        ),
        ("host: a", "column 6: a value is missing after 'host:': write it without a space, as in host:*.openai.com"),
        ("(a OR b", "column 1: this '(' is not closed: add ')'"),
        ("a)", "column 2: a ')' without its '(': remove it, or quote the text that contains it"),
        ("()", "column 2: a term is expected before ')': add one, such as host:example.com"),
        ("a OR", "column 5: the query ends where a term is expected: add one, such as host:example.com"),
        (
            "OR a",
            "column 1: a term is expected before the operator: add one, or put the word in quotes to search for it",
        ),
        ("a - b", "column 4: a term is missing after the sign: write -term without a space"),
        ("\"abc", "column 1: this quote is not closed: add a quote at the end"),
        ("\"a\"b", "column 4: a space is missing after the quote: write \\\" for a quote inside the text"),
        ("a\"b", "column 2: a quote in the middle of a text: put the whole text in quotes"),
        ("f(x)", "column 2: a '(' in the middle of a text: put the text in quotes, or a space before it"),
        ("path:>x", "column 6: 'path' is a text and has no order: put the value in quotes if it begins with that sign"),
        (
            "host:=a*",
            "column 7: '=' compares the exact text, without wildcards: remove the '=' or write \\* for a star",
        ),
        ("body:/a(/", "column 6: the regex is malformed (unclosed group): quote a text that is not a regex"),
        (
            "host:a ~m POST",
            "column 8: mitmproxy's '~m' is used among other terms: write the whole query in one syntax, or quote the text to search for it",
        ),
        ("~x", "column 1: mitmproxy has no '~x': did you mean '~a'?"),
        ("~m", "column 3: '~m' needs a text after it: put it in quotes if it has spaces or parentheses"),
        ("~c abc", "column 4: 'abc' is not a status code: write a number, as in ~c 404"),
        ("~d 'a", "column 4: this quote is not closed: add a quote at the end"),
        ("(~d a", "column 1: this '(' is not closed: add ')'"),
        ("~d a | ", "column 8: a term is expected here: add one, such as ~d example.com"),
    ] {
        assert_eq!(canonical(text), format!("error: {error}"), "{text}");
    }
}

#[test]
fn queries_are_bounded() {
    let nested = |n: usize| format!("{}a{}", "(".repeat(n), ")".repeat(n));
    assert!(Query::parse(&nested(MAX_DEPTH)).is_ok());
    for bad in [
        nested(MAX_DEPTH + 1),
        nested(100_000)[..MAX_LENGTH].to_owned(),
        format!("~all & {}~q{}", "(".repeat(MAX_DEPTH + 1), ")".repeat(MAX_DEPTH + 1)),
        "a ".repeat(MAX_TERMS + 1),
        "~q ".repeat(MAX_TERMS + 1),
        "a".repeat(MAX_LENGTH + 1),
        format!("/{}/", "(a{1000}){1000}"),
    ] {
        assert!(Query::parse(&bad).is_err(), "{}", &bad[..bad.len().min(40)]);
    }
    assert!(Query::parse(&"-".repeat(MAX_LENGTH)).is_err());
    assert!(Query::parse(&format!("{}a", "-".repeat(MAX_LENGTH - 1))).is_ok());
}
