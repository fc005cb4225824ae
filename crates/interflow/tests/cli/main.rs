//! The command line of the built binary: control of a running instance, exit codes, generated files, help topics, and
//! redaction by `exec`.

#[cfg(unix)]
mod instances;
mod messages;

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Origin, Wire, llm};
use serde_json::Value;

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).env("NO_COLOR", "1").current_dir(home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_RECORD_DIR", "INTERFLOW_TOKEN", "INTERFLOW_LOG", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

/// Exit code, stdout and stderr of a command.
fn run(home: &Path, words: &[&str]) -> (i32, String, String) {
    read(&interflow(home, words).output().unwrap())
}

fn read(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// Stdout of a command that must succeed.
#[track_caller]
fn ok(home: &Path, words: &[&str]) -> String {
    let (code, out, err) = run(home, words);
    assert_eq!(code, 0, "{words:?}: {out}{err}");
    out
}

/// Waits for a file that another process writes.
fn file(path: &Path) -> String {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(text) = std::fs::read_to_string(path) {
            return text.trim().to_owned();
        }
        assert!(Instant::now() < deadline, "{} is never written", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A running instance with the configuration file `c.toml`; killed when dropped.
struct Running {
    child: Child,
    info: Value,
}

impl Running {
    fn start(home: &Path, config: &str, more: &[&str]) -> Self {
        std::fs::write(home.join("c.toml"), config).unwrap();
        let words = ["run", "-c", "c.toml", "--listen-proxy", "0", "--listen-gateway", "0", "--listen-admin", "0"];
        let log = std::fs::File::create(home.join("log")).unwrap();
        let out = std::fs::File::create(home.join("out")).unwrap();
        let child = interflow(home, &[&words, more].concat()).stdout(out).stderr(log).spawn().unwrap();
        Self { child, info: serde_json::from_str(&file(&home.join("instance.json"))).unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn commands_that_need_an_instance_exit_with_3_without_one() {
    let home = tempfile::tempdir().unwrap();
    for words in [
        &["status"][..],
        &["reload"],
        &["stop"],
        &["open"],
        &["pending", "list"],
        &["sessions"],
        &["secrets", "list"],
        &["rules", "list"],
        &["approvals", "mode"],
        &["mcp", "--http"],
        &["ca", "retry"],
    ] {
        let (code, _, err) = run(home.path(), words);
        assert_eq!(code, 3, "{words:?}: {err}");
        assert!(err.contains("no instance is running"), "{words:?}: {err}");
    }
    let (code, out, _) = run(home.path(), &["status", "--json"]);
    let status: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &status["running"]), (3, &Value::Bool(false)));
}

#[test]
fn other_failures_have_the_documented_exit_codes() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("bad.toml"), "[proxi]\n").unwrap();
    for (code, words) in [
        (2, &["flows", "nonsense"][..]),
        (2, &["doctor", "-c", "bad.toml"]),
        (2, &["config", "check", "bad.toml"]),
        (1, &["flows", "list"]),
        (1, &["keys", "revoke", "nobody"]),
        (127, &["exec", "--", "/no/such/command"]),
    ] {
        let (found, _, err) = run(home.path(), words);
        assert_eq!(found, code, "{words:?}: {err}");
    }
}

#[test]
fn status_shows_a_running_instance() {
    let home = tempfile::tempdir().unwrap();
    let running = Running::start(home.path(), "", &[]);
    let text = ok(home.path(), &["status"]);
    assert!(text.starts_with("state      running (version "), "{text}");
    let proxy = running.info["proxy"][0].as_str().unwrap();
    for word in [proxy, "flows      0 (", " on disk)", "0 for approval, 0 held", "CA  "] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let status: Value = serde_json::from_str(&ok(home.path(), &["status", "--json"])).unwrap();
    assert_eq!(status["pid"], running.info["pid"]);
    assert_eq!(status["listeners"]["admin"], running.info["admin"]);
    assert_eq!((&status["flows"], &status["running"]), (&0.into(), &true.into()));
}

#[test]
fn reload_reports_files_restarts_and_refused_configurations() {
    let home = tempfile::tempdir().unwrap();
    let _running = Running::start(home.path(), "", &[]);
    std::fs::write(home.path().join("users"), "").unwrap();
    std::fs::write(home.path().join("c.toml"), "[auth]\nusers = \"users\"\n[log]\nformat = \"json\"\n").unwrap();
    let (code, out, err) = run(home.path(), &["reload"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.starts_with("reloaded\n  c.toml\n") && out.contains("users"), "{out}");
    assert!(err.contains("take effect at a restart: log"), "{err}");
    std::fs::write(home.path().join("c.toml"), "[proxy]\nvai = 1\n").unwrap();
    let (code, out, err) = run(home.path(), &["reload"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("c.toml:2:1") && err.contains("did you mean `via`?"), "{err}");
    assert!(err.contains("the previous one stays active"), "{err}");
}

#[cfg(unix)]
#[test]
fn stop_ends_the_running_instance() {
    let home = tempfile::tempdir().unwrap();
    let mut running = Running::start(home.path(), "", &[]);
    let said = ok(home.path(), &["stop"]);
    assert!(said.contains(&format!("stopped (process {})", running.info["pid"])), "{said}");
    assert_eq!(run(home.path(), &["status"]).0, 3);
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn token_prints_the_admin_token_of_the_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let token = ok(home.path(), &["token"]);
    assert_eq!(token.trim(), std::fs::read_to_string(home.path().join("admin.token")).unwrap().trim());
    assert!(token.trim().len() >= 32 && ok(home.path(), &["token"]) == token);
}

#[test]
fn quiet_and_verbose_set_the_log_level_of_run() {
    let home = tempfile::tempdir().unwrap();
    let log = |options: &[&str]| {
        let running = Running::start(home.path(), "", options);
        // A request that is refused is logged at DEBUG.
        let mut client = std::net::TcpStream::connect(running.info["proxy"][0].as_str().unwrap()).unwrap();
        client.write_all(b"no request\r\n\r\n").unwrap();
        let _ = client.read_to_end(&mut Vec::new());
        ok(home.path(), &["reload"]);
        drop(running);
        std::fs::remove_file(home.path().join("instance.json")).unwrap();
        let read = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap();
        (read("log"), read("out"))
    };
    let (quiet, banner) = log(&["-q"]);
    assert!(!quiet.contains("INFO") && banner.is_empty(), "{quiet}{banner}");
    let (normal, banner) = log(&[]);
    assert!(normal.contains("INFO") && !normal.contains("DEBUG") && banner.contains("proxy "), "{normal}{banner}");
    assert!(log(&["--log-level", "debug"]).0.contains("DEBUG"));
    assert!(log(&["-v"]).0.contains("DEBUG"));
    assert_eq!(run(home.path(), &["run", "-v", "-q"]).0, 2);
}

#[test]
fn the_annotated_configuration_is_valid_and_is_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let text = ok(home.path(), &["config", "init"]);
    assert!(text.contains("#[proxy]") && text.contains("#listen = "), "{text}");
    let mut check = interflow(home.path(), &["config", "check", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut check.stdin.take().unwrap(), text.as_bytes()).unwrap();
    assert!(check.wait().unwrap().success());
    ok(home.path(), &["config", "init", "new.toml"]);
    assert_eq!(std::fs::read_to_string(home.path().join("new.toml")).unwrap(), text);
    let (code, _, err) = run(home.path(), &["config", "init", "new.toml"]);
    assert!(code == 1 && err.contains("exists already"), "{err}");
    assert_eq!(ok(home.path(), &["config", "check", "new.toml"]), "new.toml: ok\n");
}

#[test]
fn relative_paths_of_a_configuration_file_start_from_its_directory() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (rules, key) = (home.path().join("mine.yaml"), home.path().join("key"));
    std::fs::write(&rules, "rules:\n- when: {host: a.test}\n  then: {block: 418}\n").unwrap();
    let config = home.path().join("interflow.toml");
    std::fs::write(&config, "[rules]\nfiles = ['mine.yaml']\n[redact]\nsecret = 'file:key'\n").unwrap();
    let config = config.display().to_string();
    let from_elsewhere = |words: &[&str], files: Option<&str>| {
        let mut command = interflow(home.path(), words);
        command.current_dir(elsewhere.path());
        files.map(|files| command.env("INTERFLOW_RULES_FILES", files));
        read(&command.output().unwrap())
    };
    for found in [&[][..], &["-c", &config]] {
        let words = |more: [&'static str; 2]| [found, &more].concat();
        let (code, _, err) = from_elsewhere(&words(["config", "check"]), None);
        assert!(code != 0 && err.contains(&format!("{} cannot be read", key.display())), "{err}");
    }
    std::fs::write(&key, "k".repeat(64)).unwrap();
    assert_eq!(from_elsewhere(&["config", "check"], None).0, 0);
    // What the environment names starts from the working directory.
    let (code, _, err) = from_elsewhere(&["config", "check"], Some("['mine.yaml']"));
    assert!(code != 0 && err.contains("mine.yaml"), "{err}");
    std::fs::remove_file(&rules).unwrap();
    let (code, _, err) = from_elsewhere(&["config", "check"], None);
    assert!(code != 0 && err.contains(&rules.display().to_string()), "{err}");
}

#[test]
fn models_have_the_price_that_is_charged_also_of_the_own_list_and_unknown_providers_are_named() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let prices = r#"{"prices": {"local/*": {"input": 0.5, "output": 1}, "bedrock/us.*": {"input": 9, "output": 9},
        "gpt-zeta": {"input": 3, "output": 4}}}"#;
    std::fs::write(home.join("prices.json"), prices).unwrap();
    std::fs::write(home.join("interflow.toml"), "[quota]\nprices = \"prices.json\"\n").unwrap();
    let show = |words: &[&str]| ok(home, &[&["models"], words].concat());
    let lines = |text: &str, expected: &[&str]| {
        for line in expected {
            assert!(text.lines().any(|l| l == *line), "no `{line}`: {text}");
        }
    };
    let all = [
        "name: openai/gpt-6.2-sol",
        "  input: 2.0",
        "  cache_write: not known",
        "      tokens: 272000",
        "    responses",
    ];
    let text = show(&["gpt-6.2-sol"]);
    lines(&text, &all);
    // It is the one that applies.
    assert!(!text.contains("prices:"), "{text}");
    lines(&show(&["gpt-zeta"]), &["name: gpt-zeta", "  input: 3.0", "own: gpt-zeta"]);
    lines(&show(&["whatever", "--provider", "local"]), &["name: local/whatever", "  input: 0.5", "own: local/*"]);
    let name = "us.anthropic.claude-opus-5-5";
    lines(&show(&[name, "--provider", "bedrock"]), &["  input: 9.0", "own: bedrock/us.*", "mode: chat"]);
    lines(&show(&["claude-opus-5-5"]), &["  tool_choice.forced: becomes auto", "  temperature: left out"]);
    let listed = show(&["loca"]);
    assert!(listed.starts_with("NAME ") && listed.contains("\nlocal/*  0.5 "), "{listed}");
    assert!(show(&["gpt-6.1", "--provider", "openai"]).contains("openai/gpt-6.1-sol    2.0    10.0"));
    for (provider, says) in
        [("opnai", "did you mean `openai`? (a provider of"), ("nope-at-all", "known providers are ")]
    {
        let (code, _, err) = run(home, &["models", "--provider", provider]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(&format!("unknown provider `{provider}`: {says}")), "{err}");
    }
    std::fs::write(home.join("prices.json"), prices.replace("\"gpt-zeta\"", "\"local/*\"")).unwrap();
    for words in [&["models", "x"][..], &["config", "check"]] {
        let (_, _, err) = run(home, words);
        assert!(err.contains("prices.json:2:9: duplicate key `local/*`"), "{words:?}: {err}");
    }
}

#[test]
fn config_check_names_place_and_remedy_of_each_mistake() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let rule = "[[quota.rule]]\nname = \"a\"\nallow = { concurrent = 1 }\n[[quota.rule]]\nname = \"b\"\n";
    for (text, says) in [
        (
            &*format!("{rule}allow = {{ money_per_day = -5 }}"),
            "6:11: quota.rule[1].allow.money_per_day: dollars from 0",
        ),
        (rule, "4:1: quota.rule[1]: it limits nothing"),
        ("[quota]\nunpriced = 1", "2:12: it is no text, but one of refuse, allow belongs here"),
        ("[quota]\nrule = {}", "2:8: it is a table, but a list belongs here: write [value, …], or [[section]]"),
        ("[quota.catalog]\nurl = \"https://x.test/c\"", "1:8: quota.catalog.key: it is missing"),
        ("[quota.catalog]\nurl = \"x\"", "2:1: quota.catalog.url: `x`"),
        ("[quota]\nslot_lease = \"1s\"\nslot_lease = \"2s\"", "3:1: duplicate key `slot_lease`"),
        ("[quota]\nslot_lease = \"1s\"\n[quota]\n", "3:2: duplicate key `quota`"),
        (
            "[[llm.guardrail]]\nkind = \"words\"",
            "1:1: it is a list, but a table belongs here: write [section] or [section.NAME]",
        ),
        ("workers = 5", "1:11: it is a number, but a table belongs here"),
        ("[workers]\ncount = -1", "2:9: it is a number, but a whole number from 0 belongs here"),
        ("[quota.alerts]\nthresholds = [300]", "2:15: it is a number, but a whole number from 0 to 255"),
        ("[limits]\nconnections = 1.5", "2:15: it is a number, but a whole number from 0 belongs here"),
        ("[record]\ndir = 5", "2:7: it is a number, but a text belongs here"),
        ("[rules]\nfiles = \"x.yaml\"", "2:9: it is a text, but a list belongs here: write [value, …]"),
        ("[intercept]\nmode = true", "2:8: it is no text, but one of "),
        ("[proxy]\nlisten = [\"nowhere\"]", "2:11: invalid socket address syntax: write an address with a port"),
        ("[proxy.tls]\ncertificate = \"c\"", "1:1: the key `key` is missing"),
        ("[log]\nlevel = \"loud\"", "2:1: log.level: unknown level `loud`: known levels are off, error"),
        ("[mcp.server.a]\n", "1:13: mcp.server.a.url: it is missing"),
        (
            "[llm.provider.a]\nkind = \"openia\"",
            "2:1: llm.provider.a.kind: unknown kind `openia`: did you mean `openai`?",
        ),
    ] {
        let path = home.join("c.toml");
        std::fs::write(&path, text).unwrap();
        let (code, out, err) = run(home, &["config", "check", "--values-only", "c.toml"]);
        assert!(code != 0 && err.contains(&format!("c.toml:{says}")), "{text}\n{out}{err}");
    }
}

#[test]
fn config_env_names_every_variable() {
    let home = tempfile::tempdir().unwrap();
    let names = ok(home.path(), &["config", "env"]);
    for name in ["INTERFLOW_DATA_DIR", "INTERFLOW_LOG", "INTERFLOW_INTERCEPT_MODE", "INTERFLOW_REDACT_PROXIED"] {
        assert!(names.lines().any(|l| l == name), "{name}: {names}");
    }
    let config: Value = serde_json::from_str(&ok(home.path(), &["config", "print", "--json"])).unwrap();
    assert_eq!(config["redact"]["proxied"], "flag");
}

#[test]
fn help_topics_and_commands_are_printed() {
    let home = tempfile::tempdir().unwrap();
    let query = ok(home.path(), &["help", "query"]);
    assert!(query.contains("Query language:") && query.lines().all(|l| l.chars().count() <= 90), "{query}");
    assert!(ok(home.path(), &["help", "exit-codes"]).contains("  3      The command needs a running instance"));
    assert!(ok(home.path(), &["help", "environment"]).contains("INTERFLOW_TOKEN"));
    assert!(ok(home.path(), &["help", "flows", "list"]).contains("Usage: interflow flows list"));
    let rules = ok(home.path(), &["help", "rules"]);
    assert!(rules.contains("Usage: interflow rules") && rules.lines().all(|l| l.chars().count() <= 100), "{rules}");
    for part in ["  append_file ", "(request) ", "  graphql ", "  flow.id "] {
        assert!(rules.contains(part), "{part}: {rules}");
    }
    let top = ok(home.path(), &["--help"]);
    assert!(top.contains("help query") && top.contains("completions"), "{top}");
    let (code, _, err) = run(home.path(), &["help", "nonsense"]);
    assert!(code == 2 && err.contains("no command or topic `nonsense`"), "{err}");
}

#[test]
fn completions_and_manual_pages_name_every_command() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = ok(home.path(), &["completions", shell]);
        assert!(script.contains("interflow") && script.contains("conversations"), "{shell}");
    }
    assert!(ok(home.path(), &["man"]).contains(".TH interflow"));
    ok(home.path(), &["man", "--dir", "man1"]);
    let page = std::fs::read_to_string(home.path().join("man1/interflow-flows-list.1")).unwrap();
    assert!(page.contains("\\-\\-reverse"), "{page}");
    assert!(home.path().join("man1/interflow.1").exists());
}

#[tokio::test]
async fn flows_are_listed_in_either_order_and_in_every_format() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let script = "echo $http_proxy > part; mv part proxy; while [ ! -e over ]; do sleep 0.05; done";
    let child = interflow(home.path(), &["exec", "-q", "--", "sh", "-c", script]).spawn().unwrap();
    let proxy = proxy_of(home.path());
    for n in 1..=3 {
        interflow_testkit::client::get_through(proxy, &origin.url(&format!("/bytes/{n}"))).await.unwrap();
    }
    end(home.path(), child);
    let paths = |words: &[&str]| -> Vec<String> {
        let out = ok(home.path(), &[&["flows", "list"], words].concat());
        let flows: Vec<Value> = serde_json::from_str(&out).unwrap();
        flows.iter().map(|f| f["request"]["path"].as_str().unwrap_or_else(|| panic!("{f}")).to_owned()).collect()
    };
    let ascending = ["/bytes/1", "/bytes/2", "/bytes/3"];
    assert_eq!(paths(&["--json"]), ascending);
    assert_eq!(paths(&["-f", "json", "--all"]), ascending);
    let descending: Vec<_> = ascending.into_iter().rev().collect();
    for words in [&["-f", "json", "--reverse"][..], &["--json", "-r", "--all"], &["--json", "-r", "-n", "6000"]] {
        assert_eq!(paths(words), descending, "{words:?}");
    }
    assert_eq!(paths(&["--json", "-n", "2"]), ascending[1..]);
    assert_eq!(paths(&["--json", "host:nobody"]), [""; 0]);
    assert_eq!(ok(home.path(), &["flows", "list", "-f", "jsonl"]).lines().count(), 3);
    assert_eq!(ok(home.path(), &["flows", "count", "--json"]).split_whitespace().collect::<String>(), "{\"flows\":3}");
    let (code, _, err) = run(home.path(), &["flows", "list", "--format", "yaml"]);
    assert!(code == 2 && err.contains("possible values: table, json, jsonl"), "{err}");
}

fn proxy_of(home: &Path) -> SocketAddr {
    let url = file(&home.join("proxy"));
    url.trim_start_matches("http://").rsplit('@').next().unwrap().trim_end_matches('/').parse().unwrap()
}

fn end(home: &Path, child: Child) -> String {
    std::fs::write(home.join("over"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    for name in ["over", "proxy"] {
        let _ = std::fs::remove_file(home.join(name));
    }
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A social security number that no test text contains by chance.
const SSN: &str = "536-22-8123";

/// Sends a prompt with personal data through `exec`; returns what the provider received and the summary.
async fn prompt_through_exec(home: &Path, options: &[&str]) -> (String, String) {
    let (provider, _) = llm::start().await;
    let script = "echo $http_proxy > part; mv part proxy; while [ ! -e over ]; do sleep 0.05; done";
    let words = [&["exec"], options, &["--", "sh", "-c", script]].concat();
    let child = interflow(home, &words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut wire = Wire::connect(proxy_of(home)).await.unwrap();
    let body = format!(r#"{{"model":"gpt-4o","messages":[{{"role":"user","content":"Her SSN is {SSN}."}}]}}"#);
    let (host, url) = (provider.authority(), provider.url("/v1/chat/completions"));
    wire.send(format!(
        "POST {url} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer sk-x\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await
    .unwrap();
    assert_eq!(wire.answer().await.unwrap().status, 200);
    let summary = end(home, child);
    (String::from_utf8_lossy(&provider.only_request().body).into_owned(), summary)
}

#[tokio::test]
async fn exec_redacts_prompts_only_if_told_to_and_warns_otherwise() {
    let home = tempfile::tempdir().unwrap();
    let (received, summary) = prompt_through_exec(home.path(), &[]).await;
    assert!(received.contains(SSN), "{received}");
    assert!(summary.contains("1 prompt left with 1 finding unredacted (ssn)"), "{summary}");
    assert!(summary.contains("`interflow exec --redact`"), "{summary}");
    let (received, summary) = prompt_through_exec(home.path(), &["--redact"]).await;
    assert!(!received.contains(SSN) && received.contains("Her SSN is "), "{received}");
    assert!(summary.contains("1 flow") && !summary.contains("unredacted"), "{summary}");
    // An exception of the configuration excludes nothing either.
    std::fs::write(home.path().join("c.toml"), "[[redact.route]]\npath = \"/v1\"\nmode = \"off\"\n").unwrap();
    let (received, _) = prompt_through_exec(home.path(), &["-c", "c.toml", "--redact"]).await;
    assert!(!received.contains(SSN), "{received}");
    // The recording holds the redacted form.
    assert!(ok(home.path(), &["flows", "show", "last"]).contains("Her SSN is "));
    assert!(!ok(home.path(), &["flows", "show", "last"]).contains(SSN));
}

#[tokio::test]
async fn exec_redact_is_refused_by_an_instance_that_only_flags() {
    let home = tempfile::tempdir().unwrap();
    {
        let _running = Running::start(home.path(), "", &[]);
        let (code, _, err) = run(home.path(), &["exec", "--redact", "--", "touch", "ran"]);
        assert_eq!(code, 2, "{err}");
        assert!(err.contains("--private") && err.contains("redact.proxied"), "{err}");
        assert!(!home.path().join("ran").exists(), "the command ran unredacted");
        let (received, _) = prompt_through_exec(home.path(), &["--redact", "--private"]).await;
        assert!(!received.contains(SSN), "{received}");
    }
    std::fs::remove_file(home.path().join("instance.json")).unwrap();
    let _running = Running::start(home.path(), "[redact]\nproxied = \"redact\"\n", &[]);
    let (received, _) = prompt_through_exec(home.path(), &["--redact"]).await;
    assert!(!received.contains(SSN), "{received}");
}

/// One flow to `a.test`.
const HAR: &str = r#"{"log":{"version":"1.2","creator":{"name":"t","version":"1"},"entries":[{"startedDateTime":"2026-01-01T00:00:00Z","time":1,"request":{"method":"GET","url":"http://a.test/","httpVersion":"HTTP/1.1","headers":[],"queryString":[],"cookies":[],"headersSize":-1,"bodySize":0},"response":{"status":200,"statusText":"OK","httpVersion":"HTTP/1.1","headers":[],"cookies":[],"content":{"size":1,"mimeType":"text/plain","text":"a"},"redirectURL":"","headersSize":-1,"bodySize":1},"cache":{},"timings":{"send":0,"wait":1,"receive":0}}]}}"#;

#[test]
fn archives_of_other_programs_are_imported_in_one_place() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("a.har"), HAR).unwrap();
    assert!(ok(home.path(), &["import", "har", "a.har"]).contains("1 flow imported"));
    let (code, _, err) = run(home.path(), &["import", "fiddler", "a.har"]);
    assert!(code == 1 && err.contains("a.har"), "{err}");
    let (code, _, err) = run(home.path(), &["import", "fluxzy", "rules.yaml"]);
    assert!(code == 2 && err.contains("--rules rules.yaml"), "{err}");
    let rules = ok(home.path(), &["import", "mitmproxy", "--set", "anticache", "--set", "block_list=/~d ads.test/444"]);
    assert!(rules.contains("anticache") && rules.contains("ads.test"), "{rules}");
}

/// Runs `interflow` on a terminal of its own, with these lines typed; returns what appeared on it.
#[cfg(target_os = "linux")]
fn on_a_terminal(home: &Path, words: &str, typed: &str) -> String {
    let line = format!("{} {words}", env!("CARGO_BIN_EXE_interflow"));
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--echo", "never", "--command", &line, "/dev/null"]).current_dir(home);
    command.env("INTERFLOW_DATA_DIR", home).env("NO_COLOR", "1").env_remove("INTERFLOW_CONFIG");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script(1) of util-linux");
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), typed.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[cfg(target_os = "linux")]
#[test]
fn the_first_exec_of_an_agent_on_a_terminal_asks_once_what_is_done_with_prompts() {
    const QUESTION: &str = "What is done with them?";
    let home = tempfile::tempdir().unwrap();
    let agent = home.path().join("claude");
    std::fs::write(&agent, "#!/bin/sh\necho it ran\n").unwrap();
    std::fs::set_permissions(&agent, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let stored = || std::fs::read_to_string(home.path().join("exec-prompts")).unwrap_or_default();
    // Nobody can answer, nothing is asked for another program, and an option is an answer.
    let (code, out, err) = run(home.path(), &["exec", "--", "./claude"]);
    assert!(code == 0 && out.contains("it ran") && !err.contains(QUESTION), "{err}");
    for words in ["exec -- echo it ran", "exec --flag-only -- ./claude", "exec --redact -- ./claude"] {
        let shown = on_a_terminal(home.path(), words, "");
        assert!(shown.contains("it ran") && !shown.contains(QUESTION), "{words}: {shown}");
    }
    std::fs::write(home.path().join("c.toml"), "[redact]\nproxied = \"flag\"\n").unwrap();
    let shown = on_a_terminal(home.path(), "-c c.toml exec -- ./claude", "");
    assert!(shown.contains("it ran") && !shown.contains(QUESTION), "the configuration answers: {shown}");
    // No answer is asked again; an answer is kept.
    let shown = on_a_terminal(home.path(), "exec -- ./claude", "\n");
    assert!(shown.contains(QUESTION) && shown.contains("no choice was made") && stored().is_empty(), "{shown}");
    let shown = on_a_terminal(home.path(), "exec -- ./claude", "2\n");
    assert!(shown.contains(QUESTION) && shown.contains("it ran"), "{shown}");
    assert_eq!(stored(), "redact\n");
    let shown = on_a_terminal(home.path(), "exec -- ./claude", "");
    assert!(shown.contains("it ran") && !shown.contains(QUESTION), "{shown}");
    // The choice holds without a terminal too: an instance that only flags is refused.
    let _running = Running::start(home.path(), "", &[]);
    let (code, _, err) = run(home.path(), &["exec", "--", "./claude"]);
    assert!(code == 2 && err.contains("exec-prompts") && err.contains("--flag-only"), "{err}");
    assert_eq!(run(home.path(), &["exec", "--flag-only", "--", "./claude"]).0, 0);
}

#[test]
fn variables_of_kubernetes_are_ignored_and_unknown_ones_are_named_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    // Those of a Service `interflow` and a Service `interflow-admin` in the pod's namespace.
    let services = [
        ("INTERFLOW_SERVICE_HOST", "10.0.0.1"),
        ("INTERFLOW_SERVICE_PORT", "7070"),
        ("INTERFLOW_SERVICE_PORT_HTTP_GATEWAY", "7071"),
        ("INTERFLOW_PORT", "tcp://10.0.0.1:7070"),
        ("INTERFLOW_PORT_7070_TCP", "tcp://10.0.0.1:7070"),
        ("INTERFLOW_PORT_7070_TCP_PORT", "7070"),
        ("INTERFLOW_ADMIN_SERVICE_HOST", "10.0.0.2"),
        ("INTERFLOW_ADMIN_PORT", "tcp://10.0.0.2:7072"),
        ("INTERFLOW_ADMIN_PORT_7072_TCP_ADDR", "10.0.0.2"),
    ];
    let words = ["run", "--listen-proxy", "0", "--listen-gateway", "0", "--listen-admin", "0"];
    let log = std::fs::File::create(home.path().join("log")).unwrap();
    let mut command = interflow(home.path(), &words);
    command.envs(services).env("INTERFLOW_TEAM", "search").stdout(Stdio::null()).stderr(log);
    let child = command.spawn().unwrap();
    let running = Running { child, info: serde_json::from_str(&file(&home.path().join("instance.json"))).unwrap() };
    let said = std::fs::read_to_string(home.path().join("log")).unwrap();
    assert!(said.contains("INTERFLOW_TEAM is not a configuration key and is ignored"), "{said}");
    for (name, _) in services {
        assert!(!said.contains(name), "{name}: {said}");
    }
    assert!(running.info["admin"].as_str().unwrap().starts_with("127.0.0.1:"), "{}", running.info);
}

#[cfg(unix)]
#[test]
fn the_shell_reads_the_variables_of_any_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let odd = home.path().join("a b'c");
    std::fs::create_dir(&odd).unwrap();
    let lines = ok(&odd, &["ca", "trust-env"]);
    let script = format!("{lines}\nprintf %s \"$SSL_CERT_FILE\"");
    let (code, out, err) = read(&Command::new("sh").args(["-c", &script]).output().unwrap());
    assert!(code == 0 && Path::new(&out).starts_with(&odd), "{out}{err}");
}

#[test]
fn the_ca_of_the_configuration_takes_the_place_of_the_one_in_the_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let own = ok(home.path(), &["ca", "export"]);
    // It needs no data directory, and no configuration.
    let mut create = interflow(home.path(), &["ca", "create", "shared"]);
    create.env("INTERFLOW_DATA_DIR", "/dev/null/none").env("INTERFLOW_CONFIG", "/dev/null/none.toml");
    assert_eq!(read(&create.output().unwrap()).0, 0);
    let (code, _, err) = run(home.path(), &["ca", "create", "shared"]);
    assert!(code == 1 && err.contains("there is a CA in shared already"), "{err}");
    let shared = std::fs::read_to_string(home.path().join("shared/ca.pem")).unwrap();
    let halves = ["ca_certificate = \"file:shared/ca.pem\"\n", "ca_key = \"file:shared/ca.key\"\n"];
    {
        let _running = Running::start(home.path(), &format!("[intercept]\n{}{}", halves[0], halves[1]), &[]);
        assert_ne!(shared, own);
        assert_eq!(ok(home.path(), &["ca", "export"]), shared);
    }
    // Half of a CA, a key in the configuration itself, and files that are missing.
    for (text, why) in [
        (halves[0], "intercept.ca_key: it is needed, since intercept.ca_certificate is set"),
        (halves[1], "intercept.ca_certificate: it is needed"),
        ("ca_certificate = \"env:A\"\nca_key = \"secret\"\n", "intercept.ca_key: it must be file:PATH or env:NAME"),
    ] {
        std::fs::write(home.path().join("c.toml"), format!("[intercept]\n{text}")).unwrap();
        let (code, _, err) = run(home.path(), &["-c", "c.toml", "config", "check"]);
        assert!(code == 1 && err.contains(why), "{err}");
    }
    std::fs::write(home.path().join("c.toml"), "[intercept]\nca_certificate = \"file:no\"\nca_key = \"file:no\"\n")
        .unwrap();
    let (code, _, err) = run(home.path(), &["-c", "c.toml", "run"]);
    assert!(code != 0 && err.contains("intercept.ca_certificate: no cannot be read"), "{err}");
    // Another one, which clients trust already.
    ok(home.path(), &["ca", "create", "next"]);
    ok(home.path(), &["ca", "rotate", "--from", "next", "--yes"]);
    assert_eq!(ok(home.path(), &["ca", "export"]), std::fs::read_to_string(home.path().join("next/ca.pem")).unwrap());
    assert!(ok(home.path(), &["ca", "rotate", "--from", "next", "--yes"]).contains("nothing was changed"));
}

/// What commands print that change the recording, tokens, conversations and reports of spending.
fn changes_of(home: &Path) -> Vec<String> {
    let head = r#""httpVersion":"HTTP/1.1","headers":[],"cookies":[],"headersSize":-1,"bodySize":0"#;
    let har = format!(
        r#"{{"log":{{"version":"1.2","creator":{{"name":"t","version":"1"}},"entries":[{{"startedDateTime":"2026-01-31T12:00:00Z",
        "time":1,"request":{{"method":"GET","url":"http://a.test/x","queryString":[],{head}}},"response":{{"status":204,
        "statusText":"","content":{{"size":0,"mimeType":""}},"redirectURL":"",{head}}},"cache":{{}},
        "timings":{{"send":0,"wait":1,"receive":0}}}}]}}}}"#
    );
    std::fs::write(home.join("one.har"), har).unwrap();
    let token = ok(home, &["tokens", "create", "--name", "ci", "--role", "viewer", "--expires", "never", "--json"]);
    let token: Value = serde_json::from_str(&token).unwrap();
    let id = token["token"]["id"].as_str().unwrap();
    let all = [
        &["tokens", "list"][..],
        &["tokens", "revoke", id],
        &["tokens", "list"],
        &["flows", "import", "one.har"],
        &["flows", "tag", "last", "slow", "--comment", "look"],
        &["flows", "count", "tag:slow host:a.test"],
        &["conversations", "rebuild"],
        &["keys", "spend", "--by", "day", "--since", "2026-01", "--until", "2026-02"],
        &["flows", "prune", "tag:slow", "--yes"],
        &["flows", "count"],
    ];
    all.map(|words| ok(home, words).replace(id, "ID")).to_vec()
}

#[test]
fn commands_do_the_same_without_an_instance_as_through_a_running_one() {
    let (alone, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let without = changes_of(alone.path());
    let _running = Running::start(beside.path(), "", &[]);
    assert_eq!(without, changes_of(beside.path()));
    let [listed, revoked, none, imported, _, tagged, .., pruned, left] = &without[..] else { panic!("{without:?}") };
    assert!(listed.contains("ci") && revoked == "ID is revoked\n" && none.starts_with("no tokens"), "{without:?}");
    assert!(imported.contains("1 flow imported") && pruned == "1 flow deleted\n", "{without:?}");
    assert_eq!((tagged.trim(), left.trim()), ("1", "0"));
}

#[test]
fn a_command_that_is_inside_another_is_suggested_with_its_path() {
    let home = tempfile::tempdir().unwrap();
    for (words, tip) in [
        (&["replay", "last"][..], "'flows replay'"),
        (&["--data-dir", "x", "prune"], "'flows prune'"),
        (&["relaod"], "'reload'"),
        (&["flows", "lst"], "'list'"),
    ] {
        let (code, _, err) = run(home.path(), words);
        assert!(code == 2 && err.contains(tip), "{words:?}: {err}");
    }
}
