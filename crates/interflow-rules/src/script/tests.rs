//! Patterns compared with Lua's own, and scripts that try to evade their budget.

use std::sync::Arc;
use std::time::Duration;

use interflow_types::units::HumanDuration;
use mlua::{Lua, MultiValue, StdLib, Value};
use proptest::prelude::*;

use super::budget::{ScriptBudget, ScriptLimits};
use super::pattern::LuaPatternMatcher;
use super::*;
use crate::actions::ActionContext;
use crate::compiled::program::RuleProgram;
use crate::params::ScriptParams;

const LIMITS: ScriptLimits = ScriptLimits { time: Duration::from_secs(60), instructions: 1_000_000, memory: 4 << 20 };

fn compiled(code: &str) -> CompiledScript {
    let bounds = store::ScriptStoreBounds { entries: 10, bytes: 10_000, ttl: Duration::from_secs(60) };
    CompiledScript { name: "script".into(), code: code.into(), limits: LIMITS, bounds }
}

fn snapshot() -> ScriptSnapshot {
    let mut sample = crate::FlowFixture::for_get("http://a.test/");
    let program = RuleProgram::from_sources(Vec::new(), &RulesConfig::default(), Arc::default()).unwrap();
    let at = ActionContext::new(&program, interflow_types::Phase::RequestHead, &mut sample.flow);
    ScriptSnapshot::from_context(&at)
}

/// Runs a script; also returns the steps it took.
fn attempt(code: &str) -> (Result<ScriptOutcome, String>, u64) {
    let budget = Arc::new(ScriptBudget::begin(LIMITS, Arc::default()));
    let asked = ScriptRun { compiled: Arc::new(compiled(code)), snapshot: snapshot(), store: Arc::default() };
    (asked.run(&budget), budget.used())
}

/// The value that a script assigns to `flow.vars.v`.
fn says(code: &str) -> String {
    let outcome = attempt(code).0.unwrap_or_else(|e| panic!("{code}: {e}"));
    outcome.variables.into_iter().find(|(n, _)| n == "v").map(|(_, v)| v).unwrap_or_default()
}

/// Two states: Lua's own library, and Interflow's.
struct Both {
    real: Lua,
    ours: Lua,
}

impl Both {
    fn new() -> Self {
        let new = || Lua::new_with(StdLib::STRING | StdLib::TABLE, mlua::LuaOptions::default()).unwrap();
        let (real, ours) = (new(), new());
        let inner = ours.create_table().unwrap();
        let limits = ScriptLimits { instructions: u64::MAX, ..LIMITS };
        strings::install(&ours, &inner, &Arc::new(ScriptBudget::begin(limits, Arc::default()))).unwrap();
        ours.load(include_str!("prelude.lua")).call::<()>(&inner).unwrap();
        Self { real, ours }
    }

    /// The results of a chunk in each of them; of errors only the message, without location and function.
    fn results(&self, code: &str, subject: &[u8], pattern: &[u8]) -> [Result<Vec<String>, String>; 2] {
        [&self.real, &self.ours].map(|lua| {
            let subject = lua.create_string(subject).unwrap();
            let pattern = lua.create_string(pattern).unwrap();
            let back: mlua::Result<MultiValue> = lua.load(code).set_name("=c").call((subject, pattern));
            back.map(|all| all.iter().map(shown).collect()).map_err(|e| {
                let mut cause = &e;
                while let mlua::Error::CallbackError { cause: inner, .. } = cause {
                    cause = inner;
                }
                let text = cause.to_string().lines().next().unwrap_or_default().to_owned();
                let text = text.trim_start_matches("runtime error: ").trim_start_matches("c:1: ").to_owned();
                text.split(" in pattern").next().unwrap_or_default().split(" in replacement").next().unwrap().to_owned()
            })
        })
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(s) => format!("{:?}", s.as_bytes().to_vec()),
        other => format!("{other:?}"),
    }
}

const CALLS: &[&str] = &[
    "local s, p = ...; return s:find(p)",
    "local s, p = ...; return s:find(p, 3)",
    "local s, p = ...; return s:find(p, -2)",
    "local s, p = ...; return s:find(p, 1, true)",
    "local s, p = ...; return s:match(p)",
    "local s, p = ...; return s:match(p, 2)",
    "local s, p = ...; return s:gsub(p, '<%0>')",
    "local s, p = ...; return s:gsub(p, '%1', 2)",
    "local s, p = ...; return s:gsub(p, function(a, b) return a == 'a' and 'X' or b end)",
    "local s, p = ...; return s:gsub(p, {a = 'A', b = 7, ['('] = false})",
    "local s, p = ...; local all = {} for a, b in s:gmatch(p) do all[#all + 1] = tostring(a) .. '|' .. tostring(b) end return table.concat(all, ';')",
    "local s, p = ...; local all = {} for a in s:gmatch(p, -3) do all[#all + 1] = tostring(a) end return table.concat(all, ';')",
];

#[test]
fn patterns_behave_as_in_lua() {
    let both = Both::new();
    for (subject, pattern) in [
        ("hello world", "o"),
        ("hello", "(h)(.-)(l+)"),
        ("key = value", "^(%w+)%s*=%s*(%w+)$"),
        ("f(a(b)c)d", "%b()"),
        ("THE (quick) fox", "%f[%a]%a+%f[%A]"),
        ("abc", "()b()"),
        ("abab", "(ab)%1"),
        ("x^y", "^"),
        ("aaa", "a-"),
        ("aaa", "a-$"),
        ("", ""),
        ("abc", ""),
        ("a.b", "%."),
        ("a-b]c", "[]-]"),
        ("a]b", "[^]]"),
        ("a%b", "[%%]"),
        ("a\0b", "%z"),
        ("a\0b", "[\0-\x02]"),
        ("abc", "["),
        ("abc", "[a"),
        ("abc", "[a%"),
        ("abc", "%"),
        ("abc", "(a"),
        ("abc", "a)"),
        ("abc", "%1"),
        ("abc", "(a)%2"),
        ("abc", "%b"),
        ("abc", "%bx"),
        ("abc", "%f"),
        ("abc", "%fa"),
        ("abc", "()%1"),
        ("a b  c", "%s+"),
        ("x", "x*?"),
        ("tab\there", "%c"),
        ("ÄÖ", "[\u{c4}-]"),
        ("a,b,,c", "([^,]*)"),
        ("aXb", "%u"),
        ("0x1F", "%x+"),
        ("!?", "%p%P?"),
        ("é", "%g"),
        ("$100", "%$(%d+)"),
        ("a$b", "a$b"),
        ("ab", "^^a"),
        ("((((", "(((((((((((((((((((((((((((((((((()"),
        ("a\n", ".$"),
        ("[[]]", "%[(.-)%]"),
        ("-", "[a-]"),
        ("b", "[%a-z]"),
        ("k=v; k2=v2", "(%w+)=(%w+)"),
    ] {
        for call in CALLS {
            let [real, ours] = both.results(call, subject.as_bytes(), pattern.as_bytes());
            assert_eq!(ours, real, "{call} with {subject:?} and {pattern:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn random_patterns_behave_as_in_lua(
        subject in "[ab(). %\n]{0,12}",
        parts in proptest::collection::vec(
            prop_oneof![
                Just("a"), Just("b"), Just("."), Just("%a"), Just("%W"), Just("%s"), Just("[ab]"), Just("[^a]"), Just("[a-]"),
                Just("%("), Just("%)"), Just("("), Just(")"), Just("()"), Just("*"), Just("+"), Just("-"), Just("?"),
                Just("^"), Just("$"), Just("%1"), Just("%b()"), Just("%f[a]"), Just("%"), Just("["), Just("]"),
            ],
            0..7,
        ),
    ) {
        let both = Both::new();
        let pattern = parts.concat();
        for call in CALLS {
            let [real, ours] = both.results(call, subject.as_bytes(), pattern.as_bytes());
            prop_assert_eq!(ours, real, "{} with {:?} and {:?}", call, subject, pattern);
        }
    }
}

#[test]
fn pattern_matching_stops_at_its_instruction_budget() {
    let budget = ScriptBudget::begin(ScriptLimits { instructions: 10_000, ..LIMITS }, Arc::default());
    let (subject, pattern) = ("a".repeat(80), "a*".repeat(20) + "b");
    let found = LuaPatternMatcher::new(subject.as_bytes(), pattern.as_bytes(), &budget).match_at(0);
    assert!(
        matches!(found, Err(pattern::LuaPatternError::Spent(budget::BudgetExceeded::Instructions(10_000)))),
        "{found:?}"
    );
    assert!(budget.used() < 11_000);
}

#[test]
fn library_calls_of_a_script_respect_its_budget() {
    for (code, why) in [
        ("return ('a'):rep(80):match(('a*'):rep(20) .. 'b')", "instructions"),
        ("return ('a'):rep(80):find(('a*'):rep(20) .. 'b')", "instructions"),
        ("return ('a'):rep(80):gsub(('a*'):rep(20) .. 'b', '')", "instructions"),
        ("for x in ('a'):rep(80):gmatch(('a*'):rep(20) .. 'b') do end", "instructions"),
        ("return (' '):rep(400000):match('^%s*(.-)%s*$x')", "instructions"),
        ("local s = (' '):rep(400000) .. 'x'; return s:find('%s-y')", "instructions"),
        ("local s = ('['):rep(100000); return ('x'):rep(1000):match('[' .. s .. ']-y')", "instructions"),
        ("return ('('):rep(4000):find('%b()%b()')", "instructions|"),
        ("for i = 1, 9e9 do end", "instructions"),
        ("local s = ('x'):rep(1e6) for i = 1, 1e6 do s:upper() end", "instructions"),
        ("local s = ('x'):rep(1e6) for i = 1, 1e6 do hash.sha256(s) end", "instructions"),
        ("local s = ('ab'):rep(5e5) for i = 1, 1e6 do s:find('abc', 1, true) end", "instructions"),
        ("table.move({}, 1, math.maxinteger - 1, 2)", "instructions"),
        ("table.sort(setmetatable({}, {__len = function() return 1 << 50 end}))", "instructions|compare"),
        ("table.insert(setmetatable({}, {__len = function() return 1 << 50 end}), 1, 1)", "without a metatable"),
        ("table.concat(setmetatable({}, {__index = function() return '' end}), '', 1, 1 << 50)", "without a metatable"),
        ("setmetatable({}, {__gc = function() while true do end end})", "__gc"),
        (
            "local x <close> = setmetatable({}, {__close = function() while true do end end}) while true do end",
            "__close",
        ),
        (
            "local m = {} local x <close> = setmetatable({}, m) m.__close = function() while true do end end while true do end",
            "__close",
        ),
        ("local m = {} local o = setmetatable({}, m) m['__close'] = print for i in next, {}, nil, o do end", "__close"),
        ("local function f() return (('a'):gsub('a', f)) end f()", ""),
        ("local s = ('a'):rep(100) local function f() return (s:gsub('a', f)) end f()", ""),
        ("local t = {} for i = 1, 1e9 do t[i] = {i} end", "memory|instructions"),
        (
            "local t = {} for i = 1, 1e4 do t[i] = ('x'):rep(100) end json.encode({t, t, t, t, t})",
            "memory|instructions",
        ),
        ("return ('x'):rep(1 << 40)", "memory"),
        ("return ('x'):rep(1 << 60, 'yyyyyyyyyyyyyyyyy')", "large"),
        ("local s = ('x'):rep(1e6) return s:gsub('x', s)", "memory"),
        ("local s = ('x'):rep(3e6) return url.encode(s) .. base64.encode(s)", "memory"),
        ("local t = {} t.t = t; json.encode(t)", "nested deeper"),
        ("error('mine')", "mine"),
    ] {
        let (ran, used) = attempt(code);
        let error = ran.expect_err(code);
        assert!(why.split('|').any(|w| w.is_empty() || error.contains(w)), "{code}: {error}");
        // Lua gives no line when it is out of memory.
        let placed = error.starts_with("script:1:") || error.starts_with("script: ") && error.contains("memory");
        assert!(placed, "{code}: {error}");
        assert!(used < 2 * LIMITS.instructions, "{code}: {used} steps");
    }
    let (ran, _) = attempt("return (''):rep(1 << 60)");
    assert!(ran.is_ok());
}

#[test]
fn script_errors_contain_the_line_number() {
    for (code, place) in [
        ("\n\nlocal x = nil\nreturn x.y", "script:4: "),
        ("\nreturn ('x'):match('[')", "script:2: malformed pattern (missing ']')"),
        ("local function f()\n  store.set('k', {})\nend\nf()", "script:2: store.set: a table"),
        ("\nwhile true do end", "script:2: it used more than 1000000 instructions"),
    ] {
        let error = attempt(code).0.unwrap_err();
        assert!(error.starts_with(place), "{code}: {error}");
    }
}

#[test]
fn names_of_fields_are_sent_as_the_script_wrote_them() {
    let code = "local h = request.headers; h['x-a'] = '1'; h['X-A'] = {'2', '3'}; h:add('X-Bc', h['x-A'])";
    let [method, url, path, base] = ["GET", "http://a.test/", "/", "http://a.test"].map(str::to_owned);
    let request = RequestSnapshot { method, url, path, base, headers: vec![("x-a".to_owned(), b"0".to_vec())] };
    let snapshot = ScriptSnapshot { request: Some(request), ..snapshot() };
    let run = ScriptRun { compiled: Arc::new(compiled(code)), snapshot, store: Arc::default() };
    let fields = run.run(&Arc::new(ScriptBudget::begin(LIMITS, Arc::default()))).unwrap().changes.fields;
    let fields: Vec<_> = fields.iter().map(|(name, values)| (&**name, values.concat())).collect();
    assert_eq!(fields, [("X-A", b"23".to_vec()), ("X-Bc", b"2".to_vec())]);
}

#[test]
fn script_modules_match_published_results() {
    for (code, said) in [
        ("hash.sha256('abc')", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ("hash.sha1('abc')", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        ("hash.md5('abc', 'base64')", "kAFQmDzST7DWlj99KOF/cg=="),
        ("#hash.sha512('abc', 'raw')", "64"),
        // RFC 4231, test case 2; RFC 2202, test case 2.
        (
            "hmac.sha256('Jefe', 'what do ya want for nothing?')",
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        ),
        ("hmac.sha1('Jefe', 'what do ya want for nothing?')", "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79"),
        ("base64.encode('\\0\\255a') .. base64.url_encode('\\251\\255')", "AP9h-_8"),
        (
            "base64.decode('YWI=') .. base64.decode('YWI') .. #base64.decode('-_8') .. tostring(base64.decode('!'))",
            "abab2nil",
        ),
        ("url.encode('a b&ü') .. url.decode('%41%zz')", "a%20b%26%C3%BCA%zz"),
        (
            "url.parse('https://h.test:8443/p?q=1#f').port .. url.parse('http://h.test/p?q').query .. tostring(url.parse('x'))",
            "8443qnil",
        ),
        ("(function() local q = url.query('a=1&a=2+3&b') return q[2][1] .. q[2][2] .. q[3][1] .. #q end)()", "a2 3b3"),
        ("time.iso(784111777) .. ' ' .. time.http(784111777)", "1994-11-06T08:49:37Z Sun, 06 Nov 1994 08:49:37 GMT"),
        (
            "time.parse('Sun, 06 Nov 1994 08:49:37 GMT') .. ' ' .. time.parse('1994-11-06T08:49:37.5Z') .. tostring(time.parse('soon'))",
            "784111777.0 784111777.5nil",
        ),
        ("time.now() > 784111777", "true"),
        (
            "json.encode(json.decode('{\"b\":[1,2.5,null,true,[],{}],\"a\":\"\\\\u00fc\"}'))",
            "{\"a\":\"ü\",\"b\":[1,2.5,null,true,[],{}]}",
        ),
        (
            "(function() local v, e = json.decode('[1') return tostring(v) .. e end)()",
            "nilEOF while parsing a list at line 1 column 2",
        ),
        ("json.encode{json.array(), {}, json.null, x = nil}", "[[],{},null]"),
        (
            "(function() local t = json.decode('[3,1,2]') table.sort(t) table.insert(t, 4) return table.concat(t, ',') end)()",
            "1,2,3,4",
        ),
        (
            "(function() local t = {5, 3, 9, 1} table.sort(t, function(a, b) return a > b end) return table.concat(t, ' ') end)()",
            "9 5 3 1",
        ),
        (
            "table.concat(table.move({1, 2, 3}, 1, 3, 2), ',') .. table.concat(table.move({1, 2, 3}, 2, 3, 1), ',')",
            "1,1,2,32,3,3",
        ),
        (
            "(function() store.set('k', 'x') store.add('n', 2) return store.get('k') .. store.add('n', 3) .. tostring(store.get('none')) end)()",
            "x5nil",
        ),
    ] {
        assert_eq!(says(&format!("flow.vars.v = {code}")), said, "{code}");
    }
}

#[tokio::test]
async fn cancelled_script_run_releases_its_slot() {
    let config = RulesConfig { script_threads: 1, script_instructions: u64::MAX, ..RulesConfig::default() };
    let program = RuleProgram::from_sources(Vec::new(), &config, Arc::default()).unwrap();
    let script = |code: &str| {
        let mut script: ScriptParams = serde_json::from_value(code.into()).unwrap();
        script.limit = Some(HumanDuration::from_secs(600));
        let mut sample = crate::FlowFixture::for_get("http://a.test/");
        let at = ActionContext::new(&program, interflow_types::Phase::RequestHead, &mut sample.flow);
        ScriptRun::new(script.compile(&config).unwrap(), &at)
    };
    let endless = program.scripts.run(script("while true do end"));
    assert!(tokio::time::timeout(Duration::from_millis(20), endless).await.is_err());
    program.scripts.run(script("return 1")).await.unwrap();
}
