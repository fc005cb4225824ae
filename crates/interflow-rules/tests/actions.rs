//! Each action separately: a rule, a flow, and the expected result, one row each.

use std::sync::Arc;

use interflow_rules::{FlowFixture, RuleFileSource, RuleProgram, RuleRuntime, RulesConfig, simulate};

async fn check(name: &str, text: &str) {
    let source = RuleFileSource::from_text("row.yaml", text);
    let program = RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::new(RuleRuntime::default()))
        .unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(!program.tests.is_empty(), "{name}: no test");
    for test in &program.tests {
        let wrong = simulate::check_expectation(&program, test).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(wrong.is_empty(), "{name}: {wrong:?}");
    }
}

macro_rules! rows {
    ($($name:ident: $text:literal;)*) => {
        $(#[tokio::test]
        async fn $name() {
            check(stringify!($name), $text).await;
        })*

        /// The name of every row.
        const ROWS: &[&str] = &[$(stringify!($name)),*];
    };
}

rows! {
    a_final_dot_evades_no_rule: "
        rules: [{when: 'host:shop.test path:/x*', then: block}, {when: {url: 'http://shop.test/y*'}, then: block}, {when: 'host:10.0.0.1', then: block}]
        tests:
        - {request: {url: http://shop.test./x}, expect: {denied: true}}
        - {request: {url: http://shop.test./y}, expect: {denied: true}}
        - {request: {url: 'http://SHOP.test./x1'}, expect: {denied: true}}
        - {request: {url: 'http://[::ffff:10.0.0.1]/'}, expect: {denied: true}}
        - {request: {url: http://shop.test./z}, expect: {denied: false}}";
    the_unspecified_address_evades_no_rule_for_this_machine: "
        rules: [{when: {host: 127.0.0.1}, then: block}, {when: {host: ['::1', a.test]}, then: block}]
        tests:
        - {request: {url: http://0.0.0.0/}, expect: {denied: true}}
        - {request: {url: 'http://[::]/'}, expect: {denied: true}}
        - {request: {url: http://0.0.0.1/}, expect: {denied: false}}";
    a_rule_is_found_by_what_an_earlier_one_made_of_the_request: "
        rules:
        - {name: a, when: 'path:/old', then: {set_path: /new}}
        - {name: b, when: 'path:/new', then: block}
        - {when: 'path:/x', then: {set_path: /y}}
        - {when: 'path:/y', then: {set_path: /z}}
        tests:
        - {request: {url: http://a/old}, expect: {matched: [a, b], denied: true}}
        - {request: {url: http://a/x}, expect: {request: {url: http://a/z}}}";
    conditions_wait_for_the_values_of_their_templates: "
        rules:
        - {name: fronted, when: {not: {host: '${req.header.x-host}'}}, then: {tag: fronted}}
        - {name: told, when: {path: {contains: '${req.body}'}}, then: block}
        - {name: echo, when: {response_body: {contains: '${req.body}'}}, then: {set_response_header: {X-Echo: yes}}}
        - {name: late, when: {path: '${resp.header.location}'}, then: {set_status: 508}}
        tests:
        - {request: {method: POST, url: http://a/x, headers: {X-Host: a}, body: needle}, expect: {not_matched: [fronted, told, echo, late]}}
        - {request: {method: POST, url: http://a/x, headers: {X-Host: b}, body: needle}, expect: {matched: [fronted]}}
        - {request: {method: POST, url: http://a/needles, body: needle}, expect: {matched: [told], denied: true}}
        - {request: {method: POST, url: http://a/x, body: needle}, response: {body: a needle}, expect: {response: {headers: {X-Echo: 'yes'}}}}
        - {request: {method: POST, url: http://a/x, body: needle}, response: {headers: {Location: /x}}, expect: {response: {status: 508}}}";
    a_rule_decides_once_for_the_response_and_its_messages: "
        rules: [{when: {every: 2}, then: [{set_response_header: {X-A: '1'}}, drop_message]}]
        tests:
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\n\"}, expect: {tags: [edited], response: {headers: {X-A: '1'}, body: ''}}}
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\n\"}, expect: {response: {without: [X-A], body: \"data: x\\n\\n\"}}}";
    messages_wait_for_actions_that_take_time: "
        rules: [{when: {message: a}, then: [{delay: 1ms}, drop_message]}, {when: {message: b}, then: [{hold: {timeout: 1ms, pass: true}}, drop_message]}]
        tests:
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: a\\n\\ndata: b\\n\\ndata: x\\n\\n\"}, expect: {response: {body: \"data: x\\n\\n\"}}}";
    messages_are_judged_by_the_body_of_their_request: "
        rules:
        - {name: json, when: {json: {$.model: m}}, then: {edit_message: {find: x, with: y}}}
        - {name: text, when: {message: z}, then: {edit_message: '${req.body}'}}
        tests:
        - {request: {method: POST, url: http://a/, body: '{\"model\":\"m\"}'}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\ndata: z\\n\\n\"}, expect: {tags: [rule-matched, edited], response: {body: \"data: y\\n\\ndata: {\\\"model\\\":\\\"m\\\"}\\n\\n\"}}}
        - {request: {method: POST, url: http://a/, body: '{\"model\":\"n\"}'}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\n\"}, expect: {response: {body: \"data: x\\n\\n\"}}}
        - {request: {method: POST, url: http://a/, headers: {Content-Type: application/grpc}, body: '{\"model\":\"m\"}'}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\n\"}, expect: {response: {body: \"data: x\\n\\n\"}}}";
    add_request_header: "
        rules: [{then: {add_request_header: {X-A: '1', X-B: '${method} ${path}'}}}]
        tests: [{request: {url: http://a/p?q, headers: {X-A: '0'}}, expect: {request: {headers: {X-A: '0', X-B: GET /p}}}}]";
    set_request_header: "
        rules: [{then: {set_request_header: {X-A: '${previous}+1'}}}]
        tests: [{request: {url: http://a/, headers: {X-A: '0'}}, expect: {request: {headers: {X-A: 0+1}}}}]";
    update_request_header: "
        rules: [{then: {update_request_header: {X-A: new, X-B: new}}}]
        tests: [{request: {url: http://a/, headers: {X-A: '0'}}, expect: {request: {headers: {X-A: new}, without: [X-B]}}}]";
    remove_request_header: "
        rules: [{then: {remove_request_header: [X-A, Sec-*]}}]
        tests: [{request: {url: http://a/, headers: {X-A: '0', Sec-Fetch: x, Accept: y}}, expect: {request: {headers: {Accept: y}, without: [X-A, Sec-Fetch]}}}]";
    replace_request_header: "
        rules: [{then: {replace_request_header: {name: Accept, regex: '(\\w+)/xml', with: '$1/json'}}}]
        tests: [{request: {url: http://a/, headers: {Accept: 'text/xml, app/xml'}}, expect: {request: {headers: {Accept: 'text/json, app/json'}}}}]";
    set_method: "
        rules: [{then: {set_method: PUT}}]
        tests: [{request: {url: http://a/}, expect: {request: {method: PUT}}}]";
    set_path: "
        rules: [{then: {set_path: '/new${target} x'}}]
        tests: [{request: {url: http://a/p?q=1}, expect: {request: {url: 'http://a/new/p?q=1%20x'}}}]";
    set_url: "
        rules: [{then: {set_url: 'https://b.test/x'}}]
        tests: [{request: {url: http://a/}, expect: {request: {url: 'https://b.test/x', headers: {Host: b.test}}}}]";
    set_query: "
        rules: [{then: {set_query: {page: 2, q: 'a b'}}}]
        tests: [{request: {url: 'http://a/p?page=1&x'}, expect: {request: {url: 'http://a/p?page=2&x&q=a%20b'}}}]";
    remove_query: "
        rules: [{then: {remove_query: [utm, x]}}]
        tests: [{request: {url: 'http://a/p?utm=1&y=2&x'}, expect: {request: {url: 'http://a/p?y=2'}}}]";
    set_request_cookie: "
        rules: [{then: {set_request_cookie: {sid: '9'}}}]
        tests: [{request: {url: http://a/, headers: {Cookie: a=1; sid=2}}, expect: {request: {headers: {Cookie: a=1; sid=9}}}}]";
    remove_request_cookie: "
        rules: [{then: {remove_request_cookie: sid}}]
        tests: [{request: {url: http://a/, headers: {Cookie: a=1; sid=2}}, expect: {request: {headers: {Cookie: a=1}}}}]";
    basic_auth: "
        rules: [{then: {basic_auth: {user: ann, password: x}}}]
        tests: [{request: {url: http://a/}, expect: {request: {headers: {Authorization: 'Basic YW5uOng='}}}}]";
    bearer_token: "
        rules: [{then: {bearer_token: 't-${host}'}}]
        tests: [{request: {url: http://a/}, expect: {request: {headers: {Authorization: 'Bearer t-a'}}}}]";
    map_remote: "
        rules: [{name: base, when: 'host:a', then: {map_remote: 'http://localhost:9000/v2'}}, {name: regex, when: 'host:b', then: {map_remote: {regex: '^http://b/(\\w+)/', to: 'https://$1.c.test/', keep_host: true}}}, {name: all, when: 'host:c', then: {map_remote: {regex: v1, to: v2}}}]
        tests:
        - {request: {url: http://a/p?q}, expect: {request: {url: 'http://localhost:9000/v2/p?q', headers: {Host: 'localhost:9000'}}}}
        - {request: {url: http://b/x/y}, expect: {request: {url: 'https://x.c.test/y', headers: {Host: b}}}}
        - {request: {url: http://c/v1/v1}, expect: {request: {url: 'http://c/v2/v2'}}}
        - {request: {url: http://b/}, expect: {request: {url: 'http://b/'}}}";
    anticache: "
        rules: [{then: anticache}]
        tests: [{request: {url: http://a/, headers: {If-None-Match: x}}, response: {headers: {ETag: x, Expires: never}}, expect: {request: {without: [If-None-Match]}, response: {headers: {Cache-Control: no-store}, without: [ETag, Expires]}}}]";
    anticomp: "
        rules: [{then: anticomp}]
        tests: [{request: {url: http://a/, headers: {Accept-Encoding: gzip}}, expect: {request: {headers: {Accept-Encoding: identity}}}}]";
    sticky_cookie: "
        rules: [{then: sticky_cookie}]
        tests:
        - {request: {url: http://s.test/}, response: {headers: {Set-Cookie: sid=1; Path=/}}, expect: {request: {without: [Cookie]}}}
        - {request: {url: http://s.test/x}, expect: {request: {headers: {Cookie: sid=1}}}}
        - {request: {url: http://other.test/x}, expect: {request: {without: [Cookie]}}}";
    sticky_auth: "
        rules: [{then: sticky_auth}]
        tests:
        - {request: {url: http://s.test/, headers: {Authorization: Basic x}}}
        - {request: {url: http://s.test/x}, expect: {request: {headers: {Authorization: Basic x}}}}";
    save_session: "
        rules: [{when: 'path:/login', then: {save_session: {headers: [X-Token]}}}, {when: '-path:/login', then: apply_session}]
        tests:
        - {request: {url: http://s.test/login}, response: {headers: {Set-Cookie: sid=1; Domain=s.test, X-Token: t}}}
        - {request: {url: http://s.test/x, headers: {Cookie: a=1}}, expect: {request: {headers: {Cookie: a=1; sid=1, X-Token: t}}}}";
    apply_session: "
        rules: [{when: 'path:/login', then: save_session}, {when: '-path:/login', then: {apply_session: {merge: false, domain: s.test}}}]
        tests:
        - {request: {url: http://s.test/login}, response: {headers: {Set-Cookie: sid=1}}}
        - {request: {url: http://other.test/x, headers: {Cookie: a=1}}, expect: {request: {headers: {Cookie: sid=1}}}}";
    clear_session: "
        rules: [{when: 'path:/login', then: save_session}, {when: 'path:/out', then: {clear_session: {domain: s.test}}}, {when: 'path:/x', then: apply_session}]
        tests:
        - {request: {url: http://s.test/login}, response: {headers: {Set-Cookie: sid=1}}}
        - {request: {url: http://s.test/out}}
        - {request: {url: http://s.test/x}, expect: {request: {without: [Cookie]}}}";
    answer: "
        rules:
        - {name: json, when: 'path:/j', then: {answer: {status: 201, json: {a: '${method}'}, headers: {X-A: b}}}}
        - {name: late, when: 'status:500', then: {answer: {body: fine}}}
        - {name: bytes, when: 'path:/b', then: {answer: {base64: aGk=, content_type: text/x}}}
        tests:
        - {request: {url: http://a/j}, expect: {answered: true, matched: [json], response: {status: 201, body: '{\"a\":\"GET\"}', headers: {Content-Type: application/json, X-A: b}}}}
        - {request: {url: http://a/}, response: {status: 500}, expect: {answered: true, response: {status: 200, body: fine}}}
        - {request: {url: http://a/b}, expect: {response: {body: hi, headers: {Content-Type: text/x}}}}
        - {request: {url: http://a/}, expect: {answered: false, not_matched: [json, late]}}";
    block: "
        rules: [{when: 'path:/x', then: block}, {when: 'path:/y', then: {block: {status: 404, message: 'no ${path}'}}}, {when: 'path:/z', then: {block: 444}}]
        tests:
        - {request: {url: http://a/x}, expect: {denied: true}}
        - {request: {url: http://a/y}, expect: {answered: true, response: {status: 404, body: no /y}}}
        - {request: {url: http://a/z}, expect: {denied: true}}";
    redirect: "
        rules: [{then: {redirect: {to: 'https://b${target}', status: 308}}}]
        tests: [{request: {url: http://a/x?y}, expect: {answered: true, response: {status: 308, headers: {Location: 'https://b/x?y'}}}}]";
    abort: "
        rules: [{then: abort}]
        tests: [{request: {url: http://a/}, expect: {denied: true}}]";
    add_response_header: "
        rules: [{then: {add_response_header: {X-A: '${status}'}}}]
        tests: [{request: {url: http://a/}, response: {status: 404}, expect: {response: {headers: {X-A: '404'}}}}]";
    set_response_header: "
        rules: [{then: {set_response_header: {Server: x}}}]
        tests: [{request: {url: http://a/}, response: {headers: {Server: nginx}}, expect: {response: {headers: {Server: x}}}}]";
    update_response_header: "
        rules: [{then: {update_response_header: {Server: '${previous}!', X-B: y}}}]
        tests: [{request: {url: http://a/}, response: {headers: {Server: nginx}}, expect: {response: {headers: {Server: nginx!}, without: [X-B]}}}]";
    remove_response_header: "
        rules: [{then: {remove_response_header: Server}}]
        tests: [{request: {url: http://a/}, response: {headers: {Server: nginx}}, expect: {response: {without: [Server]}}}]";
    replace_response_header: "
        rules: [{then: {replace_response_header: {name: Location, regex: '^https', with: http}}}]
        tests: [{request: {url: http://a/}, response: {headers: {Location: 'https://b/'}}, expect: {response: {headers: {Location: 'http://b/'}}}}]";
    set_status: "
        rules: [{when: 'status:404', then: {set_status: 200}}]
        tests: [{request: {url: http://a/}, response: {status: 404}, expect: {response: {status: 200}}}]";
    set_response_cookie: "
        rules: [{then: {set_response_cookie: {name: a, value: 'b;c', path: /, max_age: 5, http_only: true, secure: true, same_site: Lax}}}]
        tests: [{request: {url: http://a/}, expect: {response: {headers: {Set-Cookie: a=bc; Path=/; Max-Age=5; HttpOnly; Secure; SameSite=Lax}}}}]";
    remove_response_cookie: "
        rules: [{then: {remove_response_cookie: sid}}]
        tests: [{request: {url: http://a/}, expect: {response: {headers: {Set-Cookie: 'sid=; Path=/; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT'}}}}]";
    edit_request_body: "
        rules:
        - {when: 'path:/f', then: {edit_request_body: {find: cat, with: 'dog ${method}'}}}
        - {when: 'path:/r', then: {edit_request_body: {regex: '(\\d+)', with: '<$1>'}}}
        - {when: 'path:/j', then: [{edit_request_body: {json_set: {$.a: 2, $.b: '${path}'}}}, {edit_request_body: {json_remove: $.c}}, {edit_request_body: {json_patch: [{op: add, path: /d, value: 3}]}}]}
        - {when: 'path:/s', then: {edit_request_body: new}}
        tests:
        - {request: {method: POST, url: http://a/f, body: a cat, headers: {Content-Length: '5'}}, expect: {request: {body: a dog POST, without: [Content-Length]}}}
        - {request: {method: POST, url: http://a/r, body: 1 and 22}, expect: {request: {body: <1> and <22>}}}
        - {request: {method: POST, url: http://a/j, body: '{\"a\":1,\"c\":1}'}, expect: {request: {body: '{\"a\":2,\"b\":\"/j\",\"d\":3}'}}}
        - {request: {method: POST, url: http://a/s, body: old}, expect: {request: {body: new}}}
        - {request: {method: POST, url: http://a/j, body: no json}, expect: {denied: true, tags: [rule_failed]}}";
    edit_response_body: "
        rules: [{when: 'resp.body:secret', then: [{edit_response_body: {find: secret, with: '***'}}, {set_response_header: {X-Edited: yes}}]}]
        tests:
        - {request: {url: http://a/}, response: {body: a secret}, expect: {response: {body: 'a ***', headers: {X-Edited: 'yes'}}}}
        - {request: {url: http://a/}, response: {body: nothing}, expect: {response: {body: nothing, without: [X-Edited]}}}
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: a secret\\n\\n\"}, expect: {response: {body: \"data: a ***\\n\\n\"}}}";
    inject_html: "
        rules: [{then: {inject_html: '<i>${host}</i>'}}]
        tests:
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/html}, body: <head></head>}, expect: {response: {body: '<head><i>a</i></head>'}}}
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/plain}, body: <head></head>}, expect: {response: {body: <head></head>}}}";
    edit_message: "
        rules: [{when: 'body:hello', then: {edit_message: {find: hello, with: bye}}}]
        tests:
        - {request: {url: http://a/}, message: hello you, expect: {message: bye you}}
        - {request: {url: http://a/}, message: other, expect: {message: other}}
        - {request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: hello\\n\\ndata: x\\n\\n\"}, expect: {response: {body: \"data: bye\\n\\ndata: x\\n\\n\"}}}";
    drop_message: "
        rules: [{when: {message: {contains: ad}, from: server}, then: drop_message}]
        tests: [{request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\ndata: ad\\n\\ndata: y\\n\\n\"}, expect: {response: {body: \"data: x\\n\\ndata: y\\n\\n\"}}}]";
    inject_message: "
        rules: [{when: {message: {contains: ad}, from: server}, then: {inject_message: 'behind ${message}'}}]
        tests: [{request: {url: http://a/}, response: {headers: {Content-Type: text/event-stream}, body: \"data: x\\n\\ndata: ad\\n\\ndata: y\\n\\n\"}, expect: {response: {body: \"data: x\\n\\ndata: ad\\n\\ndata: behind ad\\n\\ndata: y\\n\\n\"}}}]";
    truncate_response: "
        rules: [{then: {truncate_response: 3B}}]
        tests: [{request: {url: http://a/}, response: {body: abcdef}, expect: {response: {body: abc}}}]";
    reset_response: "
        rules: [{then: {reset_response: 2}}]
        tests: [{request: {url: http://a/}, response: {body: abcdef}, expect: {response: {body: ab}}}]";
    reset_request: "
        rules: [{then: {reset_request: {after: 2}}}]
        tests: [{request: {method: POST, url: http://a/, body: abcdef}, expect: {request: {body: ab}}}]";
    corrupt_response: "
        rules: [{then: {corrupt_response: 3}}]
        tests: [{request: {url: http://a/}, response: {body: abcdef}, expect: {response: {body: abbdeg}}}]";
    tag: "
        rules: [{when: 'method:GET', then: {tag: 'seen-${host}'}}]
        tests: [{request: {url: http://a/}, expect: {tags: [seen-a, rule-matched]}}]";
    comment: "
        rules: [{then: {comment: 'odd ${host}'}}]
        tests: [{request: {url: http://a/}, expect: {tags: ['comment:odd a']}}]";
    colour: "
        rules: [{then: {colour: red}}]
        tests: [{request: {url: http://a/}, expect: {tags: ['colour:red']}}]";
    set_variable: "
        variables: {base: x}
        rules: [{then: {set_variable: {v: '${var.base}-${path}'}}}, {then: {add_request_header: {X-V: '${var.v}'}}}]
        tests: [{request: {url: http://a/p}, expect: {request: {headers: {X-V: x-/p}}}}]";
    capture: "
        rules:
        - {when: {path: {regex: '^/user/(?<id>\\d+)'}}, then: {add_request_header: {X-Id: '${var.id}'}}}
        - {when: 'resp.header:location', then: [{capture: {name: to, from: '${resp.header.location}', regex: '//([^/]+)'}}, {add_response_header: {X-To: '${var.to}'}}]}
        - {when: 'method:POST', then: [{capture: {name: m, request_json: $.model}}, {add_request_header: {X-M: '${var.m}'}, }]}
        - {when: 'query:/^page=(?<page>\\d+)/', then: {add_request_header: {X-Page: '${var.page}'}}}
        tests:
        - {request: {method: POST, url: http://a/, body: '{\"model\":\"m1\"}'}, expect: {request: {headers: {X-M: m1}}}}
        - {request: {url: http://a/user/42/x}, expect: {request: {headers: {X-Id: '42'}}}}
        - {request: {url: 'http://a/x?page=7'}, expect: {request: {headers: {X-Page: '7'}}}}
        - {request: {url: http://a/}, response: {headers: {Location: 'http://b.test/x'}}, expect: {response: {headers: {X-To: b.test}}}}";
    delay: "
        rules: [{then: {delay: {time: 5ms, jitter: 2ms}}}, {then: {tag: later}}]
        tests: [{request: {url: http://a/}, expect: {tags: [later]}}]";
    throttle: "
        rules: [{then: {throttle: 1MB}}]
        tests: [{request: {method: POST, url: http://a/, body: up}, response: {body: down}, expect: {request: {body: up}, response: {body: down}}}]";
    stop: "
        rules: [{when: 'path:/x', then: stop}, {name: second, then: {add_request_header: {X-A: '1'}}}]
        tests:
        - {request: {url: http://a/x}, expect: {not_matched: [second], request: {without: [X-A]}}}
        - {request: {url: http://a/y}, expect: {matched: [second]}}";
    log: "
        rules: [{then: {log: 'a line for ${url}'}}]
        tests: [{request: {url: http://a/}, expect: {tags: [rule-matched]}}]";
    print: "
        rules: [{phase: done, then: {print: '${method} ${url} ${status}'}}]
        tests: [{request: {url: http://a/}}]";
    print_error: "
        rules: [{then: {print_error: '${url}'}}]
        tests: [{request: {url: http://a/}}]";
    nothing: "
        rules: [{name: n, then: nothing}]
        tests: [{request: {url: http://a/}, expect: {matched: [n]}}]";
}

/// A program with one rule.
fn program(rule: &str) -> Arc<RuleProgram> {
    let source = RuleFileSource::from_text("row.yaml", format!("rules: [{{then: {rule}}}]"));
    RuleProgram::from_sources(
        vec![source],
        &RulesConfig::default(),
        Arc::new(RuleRuntime::new(Some("PEM".into()), None)),
    )
    .unwrap_or_else(|e| panic!("{rule}: {e}"))
}

async fn way(rule: &str, url: &str) -> interflow_types::UpstreamOverrides {
    let sample = simulate::fixture_from(&interflow_rules::test_get_request(url), &Default::default()).unwrap();
    simulate::run(&program(rule), sample).await.overrides
}

#[tokio::test]
async fn upstream_actions_set_route_overrides() {
    use interflow_types::HttpVersion;
    let url = "https://x.a.test/";
    assert_eq!(way("{upstream_proxy: {via: 'http://p:1', bypass: [b.test]}}", url).await.via.unwrap(), ["http://p:1"]);
    assert_eq!(way("{upstream_proxy: {via: 'http://p:1', bypass: [.a.test]}}", url).await.via, None);
    let exact = way("{upstream_proxy: {via: 'http://p:1', bypass: [a.test]}}", url).await.via;
    assert!(exact.is_some(), "a bare name does not include its subdomains");
    assert_eq!(way("direct", url).await.via, Some(Vec::new()));
    assert_eq!(way("{http_version: 1.1}", url).await.version, Some(HttpVersion::Http11));
    assert_eq!(way("{http_version: 2}", url).await.version, Some(HttpVersion::H2));
    assert_eq!(way("{connect_to: ':8443'}", url).await.dial.unwrap().to_string(), "x.a.test:8443");
    assert_eq!(way("{tls_version: 1.2}", url).await.tls_version, Some(interflow_types::TlsVersion::Tls12));
    assert_eq!(way("{dns_over_https: quad9}", url).await.dns_over_https.as_deref(), Some("quad9"));
    assert!(way("danger_skip_tls_verify", url).await.danger_skip_verify);
    assert!(way("own_connection", url).await.own_connection);
    for like in ["mirror", "Firefox", "none", "ja3:771,4865-49195,0-10-11-13-23-43-51,29,0"] {
        assert_eq!(way(&format!("{{impersonate: '{like}'}}"), url).await.fingerprint.as_deref(), Some(like));
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.pem");
    std::fs::write(&file, "x").unwrap();
    let rule = format!("{{client_certificate: {{certificate: '{0}', key: '{0}'}}}}", file.display());
    let files = interflow_types::CertificateFiles::new(file.clone(), Some(file), None);
    assert_eq!(way(&rule, url).await.client_certificate, Some(files));
}

#[tokio::test]
async fn tunnel_and_intercept_actions_set_the_tunnel_mode() {
    for (rule, tunnel) in [("tunnel", true), ("intercept", false)] {
        let sample =
            simulate::fixture_from(&interflow_rules::test_get_request("https://a/"), &Default::default()).unwrap();
        assert_eq!(simulate::run(&program(rule), sample).await.tunnel, Some(tunnel));
    }
}

#[test]
fn values_that_cannot_be_sent_are_refused_when_rules_are_read() {
    for (rule, why) in [
        ("set_status: 42", "42 is not a final status code: 200 to 999"),
        ("set_status: 101", "101 is not a final status code"),
        ("set_status: 1000", "1000 is not a final status code"),
        ("set_status: ok", "`ok` is not a status code: 200 to 999"),
        ("set_method: 'GE T'", "`GE T` is not a method of a request: write one word"),
        ("set_method: CONNECT", "`CONNECT` is not a method of a request"),
        ("set_url: 'ftp://x/'", "write it as https://host/path"),
        ("set_request_header: {X-A: \"a\\r\\nb\"}", "`X-A: a\\r\\nb` cannot be sent: a header value may not hold CR"),
        ("add_response_header: {X-A: \"a\\n\"}", "may not hold CR"),
        ("update_response_header: {'X(A': a}", "a header name may only hold"),
        ("set_request_cookie: {a: 'b; c'}", "a cookie holds no semicolon"),
        ("bearer_token: \"a\\n\"", "may not hold CR"),
        ("redirect: \"https://a/\\n\"", "may not hold CR"),
        ("answer: {headers: {X-A: \"a\\0\"}}", "may not hold CR"),
        ("answer: {content_type: \"a\\n\"}", "may not hold CR"),
        ("block: {message: a, content_type: \"a\\n\"}", "may not hold CR"),
    ] {
        let source = RuleFileSource::from_text("row.yaml", format!("rules:\n- name: one\n  then:\n    {rule}\n"));
        let read = RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::new(RuleRuntime::default()));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(why) && error.contains("row.yaml:"), "{rule}: {error}");
    }
    program("{set_status: '${query.status}'}");
    program("{set_status: ' 299 '}");
}

#[tokio::test]
async fn held_flow_continues_as_decided() {
    use interflow_rules::HoldDecision;
    let cases = [
        (r#"{"action":"continue"}"#, "GET http://a/ -> 200 body"),
        (r#"{"action":"deny","reason":"no"}"#, "denied"),
        (r#"{"action":"drop"}"#, "dropped"),
        (r#"{"action":"answer","status":418,"body":"tea"}"#, "answered 418 tea"),
        (
            r#"{"action":"change","method":"PUT","url":"http://b/x","headers":[["X-A","1"]],"body":"new"}"#,
            "PUT http://b/x -> 200 body",
        ),
    ];
    for (decision, outcome) in cases {
        let program = program("[{hold: {note: look}}]");
        let told = serde_json::from_value(serde_json::json!({"body": "body"})).unwrap();
        let sample = simulate::fixture_from(&interflow_rules::test_get_request("http://a/"), &told).unwrap();
        let holds = Arc::clone(&program.holds());
        let waiting = tokio::spawn(async move { simulate::run(&program, sample).await });
        while holds.list().is_empty() {
            tokio::task::yield_now().await;
        }
        let decision: HoldDecision = serde_json::from_str(decision).unwrap();
        holds.decide(holds.list()[0].id, decision.clone()).unwrap();
        let trial = waiting.await.unwrap();
        let shown = match (&trial.denied, trial.answered, &trial.request, &trial.response) {
            (Some(e), ..) => e.kind().as_str().to_owned(),
            (_, true, _, Some((head, body))) => {
                format!("answered {} {}", head.status.as_u16(), String::from_utf8_lossy(body))
            }
            (_, _, Some((request, sent)), Some((head, body))) => {
                if let HoldDecision::Change { .. } = decision {
                    assert_eq!(&sent[..], b"new");
                    assert_eq!(request.headers.get_str("x-a"), Some("1"));
                }
                format!(
                    "{} {} -> {} {}",
                    request.method,
                    request.url,
                    head.status.as_u16(),
                    String::from_utf8_lossy(body)
                )
            }
            _ => "nothing".into(),
        };
        assert_eq!(shown, outcome);
        assert!(trial.tags.contains(&"held".to_owned()));
    }
    let nobody = program("[{hold: {timeout: 5ms}}]");
    let sample =
        || simulate::fixture_from(&interflow_rules::test_get_request("http://a/"), &Default::default()).unwrap();
    assert!(simulate::run(&nobody, sample()).await.denied.unwrap().to_string().contains("not decided"));
    let passing = program("[{hold: {timeout: 5ms, pass: true}}]");
    assert!(simulate::run(&passing, sample()).await.denied.is_none());
}

/// Runs a flow that a rule holds, with this decision.
async fn decided(rules: &str, sample: FlowFixture, decision: &str) -> simulate::Simulation {
    let program = program(rules);
    let holds = Arc::clone(&program.holds());
    let waiting = tokio::spawn(async move { simulate::run(&program, sample).await });
    while holds.list().is_empty() {
        tokio::task::yield_now().await;
    }
    holds.decide(holds.list()[0].id, serde_json::from_str(decision).unwrap()).unwrap();
    waiting.await.unwrap()
}

#[tokio::test]
async fn answer_to_a_connect_hold_responds_to_requests_and_denies_tunnels() {
    let (rules, answer) = ("[{hold: {}}], phase: connect", r#"{"action":"answer","status":418,"body":"tea"}"#);
    for (url, answered) in [("http://a/", true), ("https://a/", false)] {
        let request = interflow_rules::test_get_request(url);
        let sample = simulate::fixture_from(&request, &Default::default()).unwrap();
        let trial = decided(rules, sample, answer).await;
        assert_eq!((trial.answered, trial.denied.is_some()), (answered, !answered), "{url}");
        assert!(trial.request.is_none(), "{url}: nothing is sent");
        if answered {
            assert_eq!(&trial.response.unwrap().1[..], b"tea");
        }
    }
}

#[tokio::test]
async fn answer_to_a_held_message_denies_the_stream() {
    let sample =
        FlowFixture::for_request("GET", "http://a/").unwrap().with_message(interflow_types::Direction::Request, "x");
    let trial = decided("[{hold: {}}], phase: message", sample, r#"{"action":"answer","status":418,"body":""}"#).await;
    assert!(trial.denied.is_some() && trial.messages.is_empty());
}

#[tokio::test]
async fn request_facts_are_still_available_at_the_response() {
    let asks = r#"
    - {name: head, when: {request_body: {contains: '"a":1'}}, then: {set_response_header: {X-Head: '1'}}}
    - {name: json, when: {json: {'$.a': '1'}, status: 200}, then: {set_response_header: {X-Json: '1'}}}
    - {name: body, when: 'req.body:"a" resp.body:told', then: {edit_response_body: {find: told, with: 'told ${req.body}'}}}
    - {name: sized, when: 'req.size:>3 status:200', then: {set_response_header: {X-Sized: '1'}}}
    - {name: done, when: {request_body: {contains: a}}, phase: done, then: {print_error: 'asked ${req.body}'}}
    - {name: other, when: {request_body: {contains: nothing}}, then: {set_response_header: {X-Other: '1'}}}"#;
    let source = RuleFileSource::from_text("r.yaml", format!("rules:{asks}\n"));
    let program =
        RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::new(RuleRuntime::default())).unwrap();
    let asked =
        serde_json::from_value(serde_json::json!({"method": "POST", "url": "http://a/", "body": "{\"a\":1}"})).unwrap();
    let told = serde_json::from_value(serde_json::json!({"body": "told"})).unwrap();
    let trial = simulate::run(&program, simulate::fixture_from(&asked, &told).unwrap()).await;
    assert_eq!(trial.matched, ["head", "json", "body", "sized", "done"]);
    assert_eq!(trial.response.unwrap().1, "told {\"a\":1}");
}

#[tokio::test]
async fn failed_edit_follows_on_failure_and_names_its_rule() {
    let rules = "rules: [{name: patch, then: {edit_response_body: {json_set: {'$.a': 1}}}}]";
    for pass in [false, true] {
        let config = serde_json::json!({"on_failure": if pass { "pass" } else { "deny" }});
        let config: RulesConfig = serde_json::from_value(config).unwrap();
        let around = Arc::new(RuleRuntime::default());
        let program =
            RuleProgram::from_sources(vec![RuleFileSource::from_text("r.yaml", rules)], &config, around).unwrap();
        let told = serde_json::from_value(serde_json::json!({"body": "<html>"})).unwrap();
        let trial = simulate::run(
            &program,
            simulate::fixture_from(&interflow_rules::test_get_request("http://a/"), &told).unwrap(),
        )
        .await;
        assert!(trial.tags.contains(&"rule_failed".to_owned()));
        if pass {
            assert_eq!(trial.response.unwrap().1, "<html>");
        } else {
            let denied = trial.denied.unwrap().to_string();
            assert!(denied.starts_with("rule `patch`: the JSON of this body cannot be changed: "), "{denied}");
        }
    }
}

#[tokio::test]
async fn rules_can_match_fingerprints_and_errors() {
    let rules = "rules:
    - {name: h, when: 'ja4h:ge11', then: {tag: h}}
    - {name: h2, when: 'akamai:1:65536', then: {tag: h2}}
    - {name: failed, when: 'is:error error:connect', then: {print_error: x}}
    - {name: fine, when: '-is:error', phase: done, then: {print_error: x}}
";
    let source = RuleFileSource::from_text("r.yaml", rules);
    let program =
        RuleProgram::from_sources(vec![source], &RulesConfig::default(), Arc::new(RuleRuntime::default())).unwrap();
    for failed in [false, true] {
        let mut sample =
            simulate::fixture_from(&interflow_rules::test_get_request("http://a/"), &Default::default()).unwrap();
        sample.flow.ja4h = Some("ge11nn010000".into());
        sample.flow.client_http2 = Some("1:65536|0|0|m,p,a,s".into());
        sample.flow.error_kind = failed.then_some(interflow_types::ErrorKind::Connect);
        let trial = simulate::run(&program, sample).await;
        assert_eq!(trial.matched, ["h", "h2", if failed { "failed" } else { "fine" }]);
    }
}

#[test]
fn every_action_has_a_test_row() {
    let elsewhere = [
        "upstream_proxy",
        "direct",
        "http_version",
        "connect_to",
        "dns_over_https",
        "tls_version",
        "serve_http1",
        "show_certificate",
        "danger_skip_tls_verify",
        "own_connection",
        "impersonate",
        "client_certificate",
        "replay",
        "call",
        "script",
        "tunnel",
        "intercept",
        "map_local",
        "serve_ca",
        "append_file",
        "save_response_body",
        "hold",
    ];
    for action in interflow_rules::action::ACTIONS {
        assert!(ROWS.contains(&action.name) || elsewhere.contains(&action.name), "{} has no test", action.name);
    }
}

#[tokio::test]
async fn path_rules_match_every_equivalent_spelling_of_a_path() {
    let blocked = |rule: &str, path: &str, status: &str| {
        format!("rules: [{rule}]\ntests: [{{request: {{url: 'http://a{path}'}}, expect: {status}}}]")
    };
    for path in [
        "/admin/x",
        "/pub/..;/admin/x",
        "/pub/%2e%2e/admin/x",
        "/pub/%5c..%5cadmin/x",
        "//admin/x?q=1",
        "/%61dmin/x",
        "/%61dmin/%c0/../x",
        "/%61dmin/x%00",
        "/%61dmin/%2525252525",
    ] {
        for when in ["path:/admin/*", "{path: '/admin/*'}", "{url: 'http://a/admin/*'}", "path:/admin/* host:a"] {
            for action in ["block", "{answer: {status: 403}}"] {
                let rule = format!(
                    "{{name: r, when: {}, then: {action}}}",
                    when.replace("path:/admin/* host:a", "'path:/admin/* host:a'")
                );
                check(path, &blocked(&rule, path, "{matched: [r]}")).await;
            }
        }
    }
    // A rule that exempts a request from later rules matches only a path that every origin interprets the same way.
    let rules = "{name: pass, when: 'path:/pub/*', then: stop}, {name: rest, then: block}";
    for (path, passes) in [
        ("/pub/x", true),
        ("/pub/a%20b", true),
        ("/pub/..;/admin", false),
        ("/pub/%2e%2e/admin", false),
        ("/pub/%00", false),
        ("/pub/%c0", false),
    ] {
        let expect =
            if passes { "{matched: [pass], not_matched: [rest]}" } else { "{not_matched: [pass], matched: [rest]}" };
        check(path, &blocked(rules, path, expect)).await;
    }
    // To some origins, a path ends at a null character.
    check("null", &blocked("{name: r, when: 'path:/admin', then: block}", "/admin%00.png", "{matched: [r]}")).await;
    // A rule that does not control access sees the path as written.
    let tags = "{name: t, when: 'path:/admin', then: {tag: t}}";
    check("tag", &blocked(tags, "/%61dmin", "{not_matched: [t]}")).await;
}

#[tokio::test]
async fn connect_phase_effects_apply_to_requests_in_the_tunnel() {
    for (name, text) in [
        (
            "marks",
            "rules: [{name: r, when: 'host:a', then: [{tag: 't-${host}'}, {comment: c}, {colour: red}]}]
             tests: [{request: {url: 'https://a/'}, expect: {matched: [r], tags: [t-a, 'comment:c', 'colour:red']}},
                     {request: {url: 'http://a/'}, expect: {matched: [r], tags: [t-a, 'comment:c', 'colour:red']}}]",
        ),
        (
            "variables",
            "rules: [{when: 'host:a', then: {set_variable: {x: '${host}!'}}}, {then: {set_request_header: {X-Var: '${var.x}'}}}]
             tests: [{request: {url: 'https://a/'}, expect: {request: {headers: {X-Var: a!}}}}]",
        ),
        (
            "stop",
            "rules: [{when: 'host:a', then: [{tag: first}, stop]}, {name: second, then: {tag: second}}]
             tests: [{request: {url: 'https://a/'}, expect: {not_matched: [second], tags: [first]}},
                     {request: {url: 'http://a/'}, expect: {not_matched: [second], tags: [first]}},
                     {request: {url: 'https://b/'}, expect: {matched: [second]}}]",
        ),
        (
            "first",
            "rules: [{when: {host: a, first: 1}, then: {tag: once}}]
             tests: [{request: {url: 'https://a/'}, expect: {tags: [once]}}]",
        ),
        (
            "both",
            "rules: [{when: 'host:a', then: [{tag: t}, {set_request_header: {X: y}}]}]
             tests: [{request: {url: 'https://a/'}, expect: {tags: [t], request: {headers: {X: y}}}}]",
        ),
        (
            "intercept",
            "rules: [{when: 'host:a', then: [intercept]}, {when: 'host:a', then: {tag: t}}]
             tests: [{request: {url: 'https://a/'}, expect: {tags: [t]}}]",
        ),
    ] {
        check(name, &text.replace("\n             tests:", "\ntests:")).await;
    }
    // A tunnel without inspection has its own annotations, and no rule of the request runs.
    let text = "rules: [{then: [{tag: t}, tunnel]}, {name: head, then: {set_request_header: {X: y}}}]";
    let program = RuleProgram::from_sources(
        vec![RuleFileSource::from_text("r.yaml", text)],
        &RulesConfig::default(),
        Arc::default(),
    );
    let trial = simulate::run(&program.unwrap(), interflow_rules::FlowFixture::for_get("https://a/")).await;
    assert!(trial.tunnel == Some(true) && trial.tags.contains(&"t".to_owned()), "{trial:?}");
    assert!(!trial.matched.contains(&"head".to_owned()));
}
