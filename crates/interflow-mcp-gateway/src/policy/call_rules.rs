//! The rules of a server, and what they decide.

use std::collections::BTreeSet;

use interflow_codec::json::{JsonReader, JsonToken};
use interflow_limits::any_matches;
use serde_json::Value;

use super::argument_test::CompiledTest;
use super::readings::{Match, PathPatterns, any_looks_like};
use crate::config::{ArgumentTest, CallAction, CallRule, McpConfig, McpServerConfig};
use crate::protocol::list_kind::ListKind;

/// The compiled rules of a server.
pub(crate) struct CallRules {
    rules: Vec<CompiledRule>,
    default: CallAction,
}

struct CompiledRule {
    /// As it is named to clients and operators.
    label: String,
    action: CallAction,
    names: CallRule,
    resources: PathPatterns,
    tests: Vec<CompiledTest>,
}

impl CallRules {
    /// # Errors
    /// A rule is invalid; the message begins with its key.
    pub fn new(config: &McpServerConfig) -> Result<Self, String> {
        let rules = config.rules.iter().enumerate();
        let rules = rules.map(|(n, rule)| CompiledRule::new(n, rule).map_err(|why| format!("rules[{n}].{why}")));
        let rules = rules.collect::<Result<Vec<_>, _>>()?;
        for (n, rule) in rules.iter().enumerate() {
            if let Some(earlier) = rule.covering(&rules[..n]) {
                let earlier = earlier.iter().map(|n| format!("rules[{n}]")).collect::<Vec<_>>().join(" and ");
                let why = format!("every call that it names is decided by {earlier}");
                return Err(format!("rules[{n}]: it can never match, because {why}: move it up"));
            }
        }
        Ok(Self { rules, default: config.default_action })
    }

    /// What happens to a call, and the rule that decides. Arguments are an object; of a resource, with the member `uri`.
    pub fn decide(&self, kind: ListKind, name: &str, arguments: &Value) -> (CallAction, String) {
        let mut asked = None;
        for rule in &self.rules {
            let matches = rule.matches(kind, name, Some(arguments));
            let verdict = || (rule.action, rule.label.clone());
            match rule.action {
                CallAction::Allow | CallAction::Ask if matches.all => return asked.unwrap_or_else(verdict),
                CallAction::Deny if matches.any => return verdict(),
                // A person is asked, unless a rule further down denies.
                CallAction::Ask if matches.any => asked = asked.or_else(|| Some(verdict())),
                _ => {}
            }
        }
        let default = (self.default, "default_action".to_owned());
        asked.filter(|_| self.default != CallAction::Deny).unwrap_or(default)
    }

    /// Whether there are arguments with which it may be called. Of a template, URIs may be allowed that it does not show.
    pub fn may_call(&self, kind: ListKind, name: &str) -> bool {
        for rule in &self.rules {
            let Match { any, all } = rule.matches(kind, name, None);
            match rule.action {
                CallAction::Allow if all => return true,
                CallAction::Ask if any => return true,
                CallAction::Deny if any && rule.tests.is_empty() => return false,
                _ => {}
            }
        }
        let may_allow = |rule: &CompiledRule| rule.action != CallAction::Deny && !rule.names.resources.is_empty();
        self.default != CallAction::Deny || kind == ListKind::ResourceTemplates && self.rules.iter().any(may_allow)
    }
}

impl CompiledRule {
    fn new(n: usize, rule: &CallRule) -> Result<Self, String> {
        let can_match = |(name, test): &(&String, &ArgumentTest)| {
            name.trim_start_matches('/') == "uri" || matches!(test, ArgumentTest::Absent(true))
        };
        let is_of_resources = rule.tools.is_empty() && rule.prompts.is_empty() && !rule.resources.is_empty();
        if let Some((name, _)) = rule.arguments.iter().find(|test| is_of_resources && !can_match(test)) {
            return Err(format!(
                "arguments.{name}: it can never match, because resources have the argument `uri` only"
            ));
        }
        let tests = rule.arguments.iter().map(|(argument, test)| {
            CompiledTest::new(argument, test).map_err(|why| format!("arguments.{argument}: {why}"))
        });
        let mut names = rule.clone();
        if rule.tools.is_empty() && rule.prompts.is_empty() && rule.resources.is_empty() {
            let all = || vec!["**".to_owned()];
            (names.tools, names.prompts, names.resources) = (all(), all(), all());
        }
        let (action, label) = (rule.action, rule.name.clone().unwrap_or_else(|| format!("rules[{n}]")));
        let resources = PathPatterns::new(&names.resources).map_err(|why| format!("resources: {why}"))?;
        Ok(Self { label, action, tests: tests.collect::<Result<_, _>>()?, resources, names })
    }

    /// The earlier rules that together decide every call that this one names; `None` if it has a call of its own.
    fn covering(&self, earlier: &[Self]) -> Option<BTreeSet<usize>> {
        let names = &self.names;
        let by = |covers: &dyn Fn(&Self) -> bool| earlier.iter().position(|rule| rule.decides(self) && covers(rule));
        let tools = names.tools.iter().map(|name| by(&|rule| any_matches(&rule.names.tools, name)));
        let prompts = names.prompts.iter().map(|name| by(&|rule| any_matches(&rule.names.prompts, name)));
        let resources = names.resources.iter().map(|uri| by(&|rule| rule.resources.covers(uri)));
        tools.chain(prompts).chain(resources).collect()
    }

    /// Whether it decides, of the calls that both name, all that a later rule could.
    fn decides(&self, later: &Self) -> bool {
        // A call that only looks like one that it allows is left to those that deny.
        let is_total = self.action == CallAction::Deny || later.action == CallAction::Allow;
        let (own, others) = (&self.names.arguments, &later.names.arguments);
        own.is_empty() || is_total && own.iter().all(|(name, test)| others.get(name) == Some(test))
    }

    /// Whether the rule matches; without arguments, whether it does with some.
    fn matches(&self, kind: ListKind, name: &str, arguments: Option<&Value>) -> Match {
        let names = &self.names;
        let by_name =
            |patterns: &[String]| Match { any: any_looks_like(patterns, name), all: any_matches(patterns, name) };
        let mut matches = match kind {
            ListKind::Tools => by_name(&names.tools),
            ListKind::Prompts => by_name(&names.prompts),
            _ if names.resources.is_empty() => Match { any: false, all: false },
            ListKind::Resources | ListKind::ResourceTemplates => self.resources.matches(name),
        };
        for test in &self.tests {
            let Some(arguments) = arguments.filter(|_| matches.any) else { break };
            let Match { any, all } = test.matches(arguments);
            matches = Match { any: matches.any && any, all: matches.all && all };
        }
        matches
    }
}

impl McpConfig {
    /// What is decided on a call of a tool, whatever the client's key, and the part of the configuration that decides.
    ///
    /// # Errors
    /// There is no such server, or the arguments are invalid JSON.
    pub fn explain_call(&self, server: &str, tool: &str, arguments: &str) -> Result<String, String> {
        let config = self.server.get(server).ok_or_else(|| format!("there is no MCP server `{server}`"))?;
        let arguments = serde_json::from_str(arguments).map_err(|e| format!("the arguments are invalid JSON: {e}"))?;
        let (action, rule) = CallRules::new(config)?.decide(ListKind::Tools, tool, &arguments);
        let (action, rule) = match action {
            _ if !config.offers_tool(tool) => (CallAction::Deny, "tools and deny_tools".to_owned()),
            CallAction::Allow if any_looks_like(&config.approve, tool) => (CallAction::Ask, "approve".to_owned()),
            _ => (action, rule),
        };
        Ok(format!("{}: {rule} of mcp.server.{server}", format!("{action:?}").to_lowercase()))
    }
}

impl McpServerConfig {
    /// Whether clients may use a tool, as far as its name alone decides.
    pub(crate) fn offers_tool(&self, tool: &str) -> bool {
        (self.tools.is_empty() || any_matches(&self.tools, tool)) && !any_looks_like(&self.deny_tools, tool)
    }
}

/// Whether an object in a JSON text has a name twice: of its values, servers use one or the other.
pub(crate) fn repeats_names(json: &str, value: &Value) -> bool {
    let count = |json: &str| {
        let mut reader = JsonReader::new(json.as_bytes());
        let tokens = std::iter::from_fn(|| reader.next_token().ok().flatten());
        tokens.filter(|token| matches!(token, JsonToken::Name(_))).count()
    };
    count(json) != count(&value.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn rules(toml: &str) -> CallRules {
        CallRules::new(&toml::from_str(toml).unwrap()).unwrap_or_else(|e| panic!("{toml}: {e}"))
    }

    fn action(rules: &CallRules, tool: &str, arguments: &str) -> CallAction {
        rules.decide(ListKind::Tools, tool, &serde_json::from_str(arguments).unwrap()).0
    }

    /// What a test decides with each action of its rule: whether it is allowed, asked about, or denied.
    fn decides(test: &str, argument: &str) -> (bool, bool, bool) {
        let holds = |is: &str, other: &str, action_then: CallAction| {
            let rules = rules(&format!(
                "default_action = '{other}'\n[[rules]]\naction = '{is}'\narguments = {{ a = {{ {test} }} }}"
            ));
            action(&rules, "t", argument) == action_then
        };
        (
            holds("allow", "deny", CallAction::Allow),
            holds("ask", "allow", CallAction::Ask),
            holds("deny", "allow", CallAction::Deny),
        )
    }

    #[test]
    fn allow_needs_every_reading_and_ask_and_deny_need_one() {
        let (yes, no, unsure) = ((true, true, true), (false, false, false), (false, true, true));
        for (test, arguments, expected) in [
            ("equals = 'main'", r#"{"a":"main"}"#, yes),
            ("equals = 'main'", r#"{"a":"m\u0061in"}"#, yes),
            ("equals = 'main'", r#"{"a":"MAIN"}"#, unsure),
            ("equals = 'main'", r#"{"a":"ｍａｉｎ"}"#, unsure),
            ("equals = 'main'", r#"{"a":"mаin"}"#, unsure),
            ("equals = 'main'", r#"{"a":"mai\u200bn"}"#, unsure),
            ("equals = 'main'", r#"{"a":" main "}"#, unsure),
            ("equals = 'main'", r#"{"a":"%6dain"}"#, unsure),
            ("equals = 'main'", r#"{"a":"%256dain"}"#, unsure),
            ("equals = 'main'", r#"{"a":["main"]}"#, unsure),
            ("equals = 'main'", r#"{"a":[["x",{"y":"main"}]]}"#, unsure),
            ("equals = 'main'", r#"{"a":{"main":1}}"#, unsure),
            ("equals = 'main'", r#"{"a":"[\"main\"]"}"#, unsure),
            ("equals = 'main'", r#"{"A":"main"}"#, unsure),
            ("equals = 'main'", r#"{"a":"main","A":"x"}"#, unsure),
            ("equals = 'main'", r#"{"\u0430":"main"}"#, unsure),
            ("equals = 'main'", r#"{"a":"x","ａ":"main"}"#, unsure),
            ("equals = 'main'", r#"{"b":"main"}"#, no),
            ("equals = 'main'", r#"{"a":"maine"}"#, no),
            ("equals = 'main'", r#"{"a":null}"#, no),
            ("equals = 5", r#"{"a":5}"#, yes),
            ("equals = 5", r#"{"a":5.0}"#, yes),
            ("equals = 5", r#"{"a":"5"}"#, unsure),
            ("equals = 5", r#"{"a":"0x5"}"#, unsure),
            ("equals = 5", r#"{"a":6}"#, no),
            ("equals = true", r#"{"a":true}"#, yes),
            ("equals = true", r#"{"a":"true"}"#, unsure),
            ("equals = true", r#"{"a":1}"#, unsure),
            ("equals = true", r#"{"a":false}"#, no),
            ("one_of = ['x', 'y']", r#"{"a":"y"}"#, yes),
            ("one_of = ['x', 'y']", r#"{"a":"z"}"#, no),
            ("range = { max = 100 }", r#"{"a":100}"#, yes),
            ("range = { max = 100 }", r#"{"a":1e2}"#, yes),
            ("range = { max = 100 }", r#"{"a":-1e300}"#, yes),
            ("range = { max = 100 }", r#"{"a":101}"#, no),
            ("range = { max = 100 }", r#"{"a":"99"}"#, unsure),
            ("range = { max = 100 }", r#"{"a":"101"}"#, no),
            ("range = { min = 100 }", r#"{"a":"1_000"}"#, unsure),
            ("range = { min = 100 }", r#"{"a":"１０００"}"#, unsure),
            ("range = { min = 100 }", r#"{"a":"NaN"}"#, unsure),
            ("range = { min = 100 }", r#"{"a":[1000]}"#, unsure),
            ("range = { min = 100 }", r#"{"a":"[1000]"}"#, unsure),
            ("range = { min = 100 }", r#"{"a":true}"#, unsure),
            ("range = { min = 100 }", r#"{"a":"99.5"}"#, no),
            ("range = { min = 1, max = 5 }", r#"{"a":3}"#, yes),
            ("glob = ['*@firm.test']", r#"{"a":"ann@firm.test"}"#, yes),
            ("glob = ['*@firm.test']", r#"{"a":"ann@FIRM.test"}"#, unsure),
            ("glob = ['*@firm.test']", r#"{"a":"ann@firm.test.evil"}"#, no),
            ("glob = ['*@firm.test']", r#"{"a":["ann@firm.test","eve@evil"]}"#, unsure),
            ("regex = 'drop\\s+table'", r#"{"a":"x; DROP  TABLE y"}"#, unsure),
            ("regex = 'drop\\s+table'", r#"{"a":"drop table"}"#, yes),
            ("regex = '[a-z]+'", r#"{"a":"ok\nrm"}"#, unsure),
            ("regex = '[a-z]+|x'", r#"{"a":"abc!"}"#, unsure),
            ("absent = true", r#"{}"#, yes),
            ("absent = true", r#"{"a":null}"#, unsure),
            ("absent = true", r#"{"A":1}"#, unsure),
            ("absent = true", r#"{"a":1}"#, no),
            ("absent = false", r#"{"a":1}"#, yes),
            ("absent = false", r#"{"A":1}"#, unsure),
            ("absent = false", r#"{"b":1}"#, no),
        ] {
            let test = test.replace('\'', "\"").replace("\\s", "\\\\s");
            assert_eq!(decides(&test, arguments), expected, "{test} {arguments}");
        }
    }

    #[test]
    fn paths_and_hosts_are_compared_resolved() {
        let (yes, no, unsure) = ((true, true, true), (false, false, false), (false, true, true));
        let cases: [(&str, &[&str], _); 14] = [
            ("path = ['/srv/**']", &["/srv/a", "/srv/a/../b", "/srv//a", "/srv/./a", "/srv/a%20b"], yes),
            (
                "path = ['/srv/**']",
                &[
                    "/SRV/a",
                    "/x/../srv/a",
                    "srv/a",
                    "srv/a://b",
                    "/%73rv/a",
                    "/\u{0455}rv/a",
                    "file:///srv/a",
                    "file://h/srv/a",
                ],
                unsure,
            ),
            (
                "path = ['/srv/**']",
                &[
                    "/srv/../etc/a",
                    "/srv/..%2fetc/a",
                    "/srv/%2e%2e/etc",
                    "/srv/%252e%252e/x",
                    "/srv/..;/etc",
                    "/srv/\u{ff0e}\u{ff0e}/etc",
                    "/srv/a\u{ff0f}..\u{ff0f}..\u{ff0f}etc/x",
                    "/srv/%EF%BC%8F%EF%BC%8E./..%EF%BC%8Fetc",
                ],
                unsure,
            ),
            ("path = ['/srv/**']", &["/srv\\..\\..\\etc", "/etc/passwd", "/srvx/a", "/w", "etc/srv/a"], no),
            (
                "path = ['/etc/**']",
                &[
                    "/etc",
                    "/srv/../etc/passwd",
                    "../../../etc/passwd",
                    "../passwd",
                    "../a://../passwd",
                    "x/%2e%2e/passwd",
                    "x/\u{ff0e}\u{ff0e}/passwd",
                    ".//etc/x",
                    "etc/passwd",
                    "~/x",
                    "$HOME/x",
                    "/a\0b",
                    "/%c0%ae/x",
                    "file:/etc/x",
                    "/ETC/passwd",
                    "/%2565tc/x",
                    "/\u{ff45}tc/x",
                    "//etc/x",
                    "/./etc/x",
                ],
                unsure,
            ),
            (
                "path = ['/srv/**/.env']",
                &[
                    "/srv/.env/",
                    "/srv/.env//",
                    "/srv/./.env/./",
                    "/srv/.env%2f",
                    "/srv/.env\\",
                    "/srv/a/.env/.",
                    "/srv/.ENV/",
                ],
                unsure,
            ),
            (
                "path = ['/srv/**/.env', 'file:///srv/**/.env']",
                &[
                    "file:///srv/.env?x",
                    "file:///srv/.env#x",
                    "file:///srv/.env/?x",
                    "file:///srv/.env?/../../a",
                    "file:///srv/.env%2f#x",
                    "FILE:/srv/.env?x",
                    "file:\\\\\\srv\\.env",
                    "file:srv/.env",
                    "file://localhost/srv/.env/",
                ],
                unsure,
            ),
            ("path = ['/srv/*.txt']", &["/srv/a.txt"], yes),
            ("path = ['/srv/*.txt']", &["/srv/a/b.txt"], unsure),
            ("path = ['src/**']", &["src/a", "./src/a"], yes),
            ("path = ['src/**']", &["src/../../src/a", "/src/a", "../src/a"], unsure),
            (
                "host = ['*.firm.test', '10.0.0.0/8']",
                &["https://a.firm.test/x", "A.firm.test:80", "http://10.1.1.1", "167837953"],
                yes,
            ),
            (
                "host = ['*.firm.test']",
                &[
                    "https://a.firm.test@evil.test/",
                    "https://evil.test\\@a.firm.test",
                    "https:a.firm.test",
                    "https:///a.firm.test",
                    "https://a.firm.t\u{435}st/",
                    " https://a.firm.test",
                    "https://evil%2etest/",
                    "https://a.firm.test:99999",
                ],
                unsure,
            ),
            (
                "host = ['*.firm.test', '127.0.0.0/8']",
                &["https://evil.test/?a.firm.test", "firm.test.evil", "http://128.0.0.1"],
                no,
            ),
        ];
        for (test, values, expected) in cases {
            for value in values {
                let arguments = json!({ "a": value }).to_string();
                assert_eq!(decides(&test.replace('\'', "\""), &arguments), expected, "{test} {value:?}");
            }
        }
        for local in [
            "http://2130706433/",
            "http://0x7f.1",
            "http://0177.0.0.1",
            "http://[::ffff:127.0.0.1]",
            "::1",
            "http://0/",
        ] {
            let arguments = json!({ "a": local }).to_string();
            assert_eq!(decides(r#"host = ["127.0.0.0/8", "::1"]"#, &arguments), yes, "{local}");
        }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = rules(
            r#"
            default_action = "deny"
            rules = [
                { name = "secrets", action = "deny", arguments = { path = { path = ["/srv/secret/**"] } } },
                { action = "allow", tools = ["read_*"], arguments = { path = { path = ["/srv/**"] }, "/options/*/n" = { range = { max = 3 } } } },
                { action = "ask", tools = ["write_file"], arguments = { path = { path = ["/srv/**"] } } },
                { action = "allow", tools = ["list"] },
                { action = "deny", tools = ["never"] },
                { action = "allow", resources = ["file:///srv/**"], prompts = ["p*"] },
            ]"#,
        );
        for (tool, arguments, expected, rule) in [
            ("read_file", r#"{"path":"/srv/a","options":[{"n":3},{"n":1}]}"#, CallAction::Allow, "rules[1]"),
            ("read_file", r#"{"path":"/srv/a","options":[{"n":3},{"n":4}]}"#, CallAction::Deny, "default_action"),
            ("read_file", r#"{"path":"/srv/a","options":[]}"#, CallAction::Deny, "default_action"),
            ("read_file", r#"{"path":"/srv/SECRET/a","options":[{"n":1}]}"#, CallAction::Deny, "secrets"),
            ("READ_file", r#"{"path":"/srv/a","options":[{"n":1}]}"#, CallAction::Deny, "default_action"),
            ("write_file", r#"{"path":"/srv/a"}"#, CallAction::Ask, "rules[2]"),
            // What may be asked about is denied by the default, as long as it may be something else.
            ("write_file", r#"{"path":"/srv/../etc/a"}"#, CallAction::Deny, "default_action"),
            ("list", "{}", CallAction::Allow, "rules[3]"),
        ] {
            let (action, name) = rules.decide(ListKind::Tools, tool, &serde_json::from_str(arguments).unwrap());
            assert_eq!((action, name.as_str()), (expected, rule), "{tool} {arguments}");
        }
        let may = |kind, name| rules.may_call(kind, name);
        for (tool, may_call) in
            [("read_x", true), ("write_file", true), ("list", true), ("never", false), ("other", false)]
        {
            assert_eq!(may(ListKind::Tools, tool), may_call, "{tool}");
        }
        assert!(may(ListKind::Prompts, "pp") && !may(ListKind::Prompts, "q"));
        assert!(may(ListKind::Resources, "file:///srv/a") && !may(ListKind::Resources, "file:///srv/../etc"));
        assert!(may(ListKind::ResourceTemplates, "file:///{path}") && !may(ListKind::Resources, "file:///{path}"));
    }

    #[test]
    fn the_uri_of_a_file_is_denied_in_every_spelling() {
        let rules = rules("rules = [{ action = 'deny', resources = ['file:///etc/**', 'file:///srv/.env'] }]");
        let decide = |uri: &str| rules.decide(ListKind::Resources, uri, &json!({ "uri": uri })).0;
        for uri in [
            "file:///etc/passwd",
            "file://localhost/etc/passwd",
            "file://127.0.0.1/etc/passwd",
            "file:\\\\\\etc\\passwd",
            "file:etc/passwd",
            "FILE:/etc/passwd",
            "file:///srv/.env?a",
            "file:///srv/.env#a",
            "file:///srv/.env/",
            "file://localhost/srv/.env/?a#b",
        ] {
            assert_eq!(decide(uri), CallAction::Deny, "{uri}");
        }
        for uri in ["file:///srv/.envx", "file:///srv/etc", "https://localhost/etc/passwd"] {
            assert_eq!(decide(uri), CallAction::Allow, "{uri}");
        }
    }

    #[test]
    fn a_rule_that_earlier_ones_decide_wholly_is_refused() {
        let covered = |rules: &str| {
            let config = toml::from_str(&format!("rules = [{rules}]")).unwrap();
            let error = CallRules::new(&config).err().unwrap_or_default();
            error.strip_suffix(": move it up").map(|error| error.replace("it can never match, because ", ""))
        };
        let by =
            |rule: usize, others: &str| Some(format!("rules[{rule}]: every call that it names is decided by {others}"));
        for (rules, expected) in [
            ("{ action = 'allow' }, { action = 'deny', tools = ['rm'] }", by(1, "rules[0]")),
            ("{ action = 'allow', tools = ['*'] }, { action = 'deny', tools = ['rm'] }", by(1, "rules[0]")),
            ("{ action = 'allow', tools = ['*'] }, { action = 'deny', tools = ['rm'], prompts = ['x'] }", None),
            ("{ action = 'allow', tools = ['*'] }, { action = 'deny' }", None),
            (
                "{ action = 'ask', tools = ['git_*'] }, { action = 'deny', tools = ['git_push*', 'git_rm'] }",
                by(1, "rules[0]"),
            ),
            ("{ action = 'ask', tools = ['git_push'] }, { action = 'deny', tools = ['git_*'] }", None),
            (
                "{ action = 'deny', tools = ['a'] }, { action = 'ask', tools = ['b'] }, { action = 'allow', tools = ['b', 'a'] }",
                by(2, "rules[0] and rules[1]"),
            ),
            (
                "{ action = 'allow', tools = ['*'], arguments = { a = { equals = 1 } } }, { action = 'deny', tools = ['rm'] }",
                None,
            ),
            (
                "{ action = 'deny', arguments = { a = { equals = 1 } } }, { action = 'ask', arguments = { a = { equals = 1 }, b = { equals = 2 } } }",
                by(1, "rules[0]"),
            ),
            // What only looks like 1 is left to the second.
            (
                "{ action = 'allow', arguments = { a = { equals = 1 } } }, { action = 'deny', arguments = { a = { equals = 1 } } }",
                None,
            ),
            (
                "{ action = 'allow', resources = ['/srv/**'] }, { action = 'deny', resources = ['/srv/x/*.key'] }",
                by(1, "rules[0]"),
            ),
            (
                "{ action = 'allow', resources = ['/srv/**'] }, { action = 'deny', resources = ['/srv/**/x', '/srv/a/**'] }",
                by(1, "rules[0]"),
            ),
            ("{ action = 'allow', resources = ['/srv/*'] }, { action = 'deny', resources = ['/srv/**'] }", None),
            ("{ action = 'allow', resources = ['/srv/*/*'] }, { action = 'deny', resources = ['/srv/**'] }", None),
            ("{ action = 'allow', resources = ['/srv/?'] }, { action = 'deny', resources = ['/srv/*'] }", None),
        ] {
            assert_eq!(covered(rules), expected, "{rules}");
        }
    }

    #[test]
    fn what_is_invalid_is_named_with_its_key() {
        for (rule, says) in [
            ("arguments = { a = { equals = [1] } }", "rules[0].arguments.a: a value is"),
            ("arguments = { '/a/b' = { regex = '(' } }", "rules[0].arguments./a/b: regex parse error"),
            ("arguments = { a = { path = ['/a/../b'] } }", "rules[0].arguments.a: `/a/../b` is not plain"),
            ("arguments = { a = { host = ['https://a'] } }", "rules[0].arguments.a: `https://a` is not"),
            ("resources = ['[']", "rules[0].resources: `[` is not a glob"),
            ("arguments = { a = { range = { min = 2, max = 1 } } }", "rules[0].arguments.a: no number is in it"),
            ("arguments = { a = { range = {} } }", "rules[0].arguments.a: a range has"),
            ("arguments = { a = { regex = '' } }", "rules[0].arguments.a: an empty expression"),
            ("arguments = { '' = { equals = 1 } }", "rules[0].arguments.: an argument has a name"),
            ("resources = ['a'], arguments = { id = { equals = 1 } }", "rules[0].arguments.id: it can never match"),
        ] {
            let config = toml::from_str(&format!("rules = [{{ action = 'deny', {rule} }}]")).unwrap();
            let error = CallRules::new(&config).err().unwrap_or_default();
            assert!(error.starts_with(says), "{rule}: {error}");
        }
    }

    #[test]
    fn a_list_that_is_empty_is_refused_where_it_is() {
        let test = |test: &str| format!("arguments = {{ a = {{ {test} = [] }} }}");
        let tests = ["glob", "one_of", "path", "host"].map(test);
        let names = ["tools = []", "prompts = []", "resources = []", "arguments = {}"].map(str::to_owned);
        for list in tests.iter().chain(&names) {
            let error = toml::from_str::<McpServerConfig>(&format!("rules = [{{ action = 'allow', {list} }}]"));
            let error = error.err().map(|e| e.to_string()).unwrap_or_default();
            assert!(error.contains("it is empty: write what belongs in it"), "{list}: {error}");
        }
    }

    #[test]
    fn every_item_of_a_list_needs_the_member_that_is_tested() {
        let decided = |test: &str, arguments: &str| {
            let decides = |is: &str, other: &str| {
                action(
                    &rules(&format!(
                        "default_action = '{other}'\n[[rules]]\naction = '{is}'\narguments = {{ '/files/*/path' = {{ {test} }} }}"
                    )),
                    "t",
                    arguments,
                )
            };
            (decides("allow", "deny") == CallAction::Allow, decides("deny", "allow") == CallAction::Deny)
        };
        let (in_srv, is_absent, is_present) = ("path = ['/srv/**']", "absent = true", "absent = false");
        for (test, arguments, expected) in [
            (in_srv, r#"{"files":[{"path":"/srv/a"},{"path":"/srv/b"}]}"#, (true, true)),
            (in_srv, r#"{"files":[{"path":"/srv/a"},{"mode":1}]}"#, (false, true)),
            (in_srv, r#"{"files":[{"path":"/srv/a"},"/etc/passwd"]}"#, (false, true)),
            (in_srv, r#"{"files":{"x":{"path":"/srv/a"},"y":{}}}"#, (false, true)),
            (in_srv, r#"{"files":[]}"#, (false, false)),
            (is_present, r#"{"files":[{"path":"a"},{"path":"b"}]}"#, (true, true)),
            (is_present, r#"{"files":[{"path":"a"},{}]}"#, (false, true)),
            (is_absent, r#"{"files":[{"path":"a"},{}]}"#, (false, true)),
            (is_absent, r#"{"files":[{},{}]}"#, (true, true)),
            (is_absent, r#"{"files":[{"path":"a"}]}"#, (false, false)),
        ] {
            assert_eq!(decided(test, arguments), expected, "{test} {arguments}");
        }
    }

    #[test]
    fn a_name_that_an_object_repeats_is_noticed() {
        for (json, repeats) in [
            (r#"{"a":1,"b":{"a":2},"c":[{"a":1},{"a":2}]}"#, false),
            (r#"{"a":1,"\u0061":2}"#, true),
            (r#"{"x":[{"a":1,"b":[],"a":2}]}"#, true),
            ("{}", false),
        ] {
            assert_eq!(repeats_names(json, &serde_json::from_str(json).unwrap()), repeats, "{json}");
        }
    }
}
