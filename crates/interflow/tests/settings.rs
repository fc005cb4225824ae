//! Settings of the built binary: changed over the admin API and by `interflow config set`, against its configuration
//! file.

use std::io::Read as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Origin, client};
use serde_json::{Value, json};

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.args(words).env("INTERFLOW_DATA_DIR", home).env("NO_COLOR", "1").current_dir(home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "INTERFLOW_LOG", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

/// Exit code, stdout and stderr of a command.
fn run(home: &Path, words: &[&str]) -> (i32, String, String) {
    let output = interflow(home, words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

fn config(home: &Path) -> String {
    std::fs::read_to_string(home.join("interflow.toml")).unwrap_or_default()
}

/// A running instance; killed when dropped.
struct Running {
    child: Child,
    proxy: SocketAddr,
    admin: String,
    token: String,
}

impl Running {
    fn start(home: &Path, options: &[&str], vars: &[(&str, &str)]) -> Self {
        Self::start_command("run", home, options, vars)
    }

    fn start_command(command: &str, home: &Path, options: &[&str], vars: &[(&str, &str)]) -> Self {
        let words = [command, "--listen-proxy", "0", "--listen-gateway", "0", "--listen-admin", "0"];
        let log = std::fs::File::create(home.join("log")).unwrap();
        let mut command = interflow(home, &[&words, options].concat());
        let child = command.envs(vars.iter().copied()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let info = loop {
            let read = std::fs::read(home.join("instance.json")).unwrap_or_default();
            match serde_json::from_slice::<Value>(&read) {
                Ok(info) if info["pid"] == child.id() => break info,
                _ => assert!(Instant::now() < deadline, "{:?}", std::fs::read_to_string(home.join("log"))),
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let token = std::fs::read_to_string(home.join("admin.token")).unwrap().trim().to_owned();
        let admin = format!("http://{}/api/v1", info["admin"].as_str().unwrap());
        Self { child, proxy: info["proxy"][0].as_str().unwrap().parse().unwrap(), admin, token }
    }

    fn call(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, Value) {
        let agent: ureq::Agent = ureq::Agent::config_builder().proxy(None).http_status_as_error(false).build().into();
        let (url, bearer) = (format!("{}{path}", self.admin), format!("Bearer {}", self.token));
        let mut response = match (method, body) {
            ("GET", _) => agent.get(url).header("Authorization", bearer).call().unwrap(),
            (_, body) => {
                let request =
                    agent.post(url).header("Authorization", bearer).header("Content-Type", "application/json");
                request.send(body.map(ToString::to_string).unwrap_or_default()).unwrap()
            }
        };
        let text = response.body_mut().read_to_string().unwrap();
        (response.status().as_u16(), serde_json::from_str(&text).unwrap_or_default())
    }

    fn setting(&self, key: &str) -> Value {
        let (_, view) = self.call("GET", "/settings", None);
        view["settings"].as_array().unwrap().iter().find(|s| s["key"] == key).unwrap().clone()
    }

    /// Previews a change and makes it.
    fn set(&self, key: &str, value: &Value) -> (u16, Value) {
        let changes = json!([{ "key": key, "value": value }]);
        let (status, preview) = self.call("POST", "/settings/preview", Some(&json!({ "changes": changes })));
        if status != 200 {
            return (status, preview);
        }
        self.call("POST", "/settings", Some(&json!({ "base": preview["base"], "changes": changes })))
    }

    fn count(&self, query: &str) -> u64 {
        assert!(self.call("POST", "/flows/flush", None).0 < 300);
        self.call("GET", &format!("/flows/count?query={query}"), None).1["count"].as_u64().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn recording_is_turned_off_and_on_between_two_requests() {
    let home = tempfile::tempdir().unwrap();
    let origin = Origin::http().start().await;
    let running = Running::start(home.path(), &[], &[]);
    let send = async |path: &str| client::get_through(running.proxy, &origin.url(path)).await.unwrap();
    send("/before").await;
    let (status, done) = running.set("record.enabled", &json!(false));
    assert_eq!((status, &done["changes"][0]["effect"]), (200, &json!("now")), "{done}");
    assert_eq!(config(home.path()), "[record]\nenabled = false\n");
    send("/unseen").await;
    assert_eq!(running.set("record.enabled", &json!(true)).0, 200);
    send("/after").await;
    for (path, count) in [("/before", 1), ("/unseen", 0), ("/after", 1)] {
        assert_eq!(running.count(&format!("path:{path}")), count, "{path}");
    }
    drop(running);
    std::fs::remove_file(home.path().join("instance.json")).unwrap();
    // The file in the data directory is read at the next start, and recording can be turned on from off.
    std::fs::write(home.path().join("interflow.toml"), "[record]\nenabled = false\n").unwrap();
    let running = Running::start(home.path(), &[], &[]);
    let send = async |path: &str| client::get_through(running.proxy, &origin.url(path)).await.unwrap();
    send("/off-from-the-start").await;
    assert_eq!(running.set("record.enabled", &Value::Null).0, 200);
    send("/on").await;
    assert_eq!((running.count("path:/off-from-the-start"), running.count("path:/on")), (0, 1));
}

#[test]
#[cfg(feature = "demo")]
fn the_demo_has_settings_in_a_file_of_its_own() {
    let home = tempfile::tempdir().unwrap();
    let keep = home.path().to_str().unwrap();
    let running = Running::start_command("demo", home.path(), &["--keep", keep], &[]);
    let mode = running.setting("redact.proxied");
    assert_eq!((&mode["value"], &mode["source"]["kind"]), (&json!("redact"), &json!("file")), "{mode}");
    let (status, done) = running.set("record.bodies", &json!(false));
    assert_eq!((status, &done["changes"][0]["effect"]), (200, &json!("now")), "{done}");
    let written = std::fs::read_to_string(home.path().join("demo.toml")).unwrap();
    assert!(written.contains("# The demo's configuration") && written.contains("bodies = false"), "{written}");
    assert_eq!(running.setting("record.bodies")["active"], Value::Null, "it is in effect");
    // The demo's servers are still found after the reload.
    let (_, effective) = running.call("GET", "/config", None);
    let hosts = &effective["config"]["upstream"]["proxy"][0]["hosts"];
    assert!(hosts.as_array().unwrap().contains(&json!("shop.example")), "{effective}");
    assert_eq!(config(home.path()), "", "`interflow run` does not read it");
}

#[test]
fn options_and_variables_win_over_the_file() {
    let home = tempfile::tempdir().unwrap();
    let vars = [("INTERFLOW_INTERCEPT_MODE", "listed")];
    let running = Running::start(home.path(), &["--no-record"], &vars);
    let mode = running.setting("intercept.mode");
    assert_eq!(mode["source"], json!({"kind": "environment", "name": "INTERFLOW_INTERCEPT_MODE"}));
    assert_eq!(mode["value"], "listed");
    assert!(running.setting("record.enabled")["locked"].as_str().unwrap().contains("--no-record"));
    for key in ["intercept.mode", "record.enabled"] {
        let (status, refused) = running.set(key, &Value::Null);
        assert_eq!((status, &refused["error"]["kind"]), (409, &json!("overridden")), "{key}");
    }
    assert_eq!(config(home.path()), "");
}

#[test]
fn changes_are_refused_without_the_token_and_for_a_managed_file() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("interflow.toml"), "[admin]\nsettings = \"read-only\"\n").unwrap();
    let mut running = Running::start(home.path(), &[], &[]);
    let (status, refused) = running.set("record.bodies", &json!(false));
    assert_eq!((status, &refused["error"]["kind"]), (403, &json!("managed")), "{refused}");
    running.token = "wrong".repeat(8);
    assert_eq!(running.set("record.bodies", &json!(false)).0, 401);
    assert_eq!(config(home.path()), "[admin]\nsettings = \"read-only\"\n");
}

#[test]
fn a_configuration_that_a_component_refuses_is_not_written() {
    let home = tempfile::tempdir().unwrap();
    let running = Running::start(home.path(), &[], &[]);
    for (key, value, says) in [
        ("log.level", json!("louder=="), "log level"),
        ("upstream.proxy", json!([{"hosts": ["*"], "via": ["ftp://x"]}]), "its scheme is not http"),
        ("record.retention_age", json!("soon"), "is not a duration"),
    ] {
        let (status, refused) = running.set(key, &value);
        assert_eq!((status, &refused["error"]["kind"]), (422, &json!("invalid_config")), "{refused}");
        assert!(refused["error"]["message"].as_str().unwrap().contains(says), "{refused}");
    }
    assert!(!home.path().join("interflow.toml").exists());
}

#[test]
fn changes_are_in_the_audit_log() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("interflow.toml"), "[audit]\nenabled = true # always\n").unwrap();
    let running = Running::start(home.path(), &[], &[]);
    assert_eq!(running.set("intercept.exclude", &json!(["bank.test"])).0, 200);
    let deadline = Instant::now() + Duration::from_secs(20);
    let line: Value = loop {
        let text = std::fs::read_to_string(home.path().join("audit.jsonl")).unwrap_or_default();
        if let Some(line) = text.lines().next().and_then(|l| serde_json::from_str(l).ok()) {
            break line;
        }
        assert!(Instant::now() < deadline, "nothing is written");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert_eq!((&line["msg"], &line["client_ip"]), (&json!("settings"), &json!("127.0.0.1")));
    assert_eq!(line["changes"], json!([{"key": "intercept.exclude", "before": [], "after": ["bank.test"]}]));
    drop(running);
    let (code, out, err) = run(home.path(), &["audit", "verify", "audit.jsonl"]);
    assert_eq!(code, 0, "{out}{err}");
    assert!(config(home.path()).starts_with("[audit]\nenabled = true # always\n"));
}

#[test]
fn config_set_edits_the_file_and_a_running_instance_uses_it() {
    let home = tempfile::tempdir().unwrap();
    let (code, out, err) = run(home.path(), &["config", "set", "intercept.mode", "none"]);
    assert_eq!((code, out.as_str()), (0, "+ [intercept]\n+ mode = \"none\"\n"), "{err}");
    assert!(err.contains("interflow.toml is written"), "{err}");
    let running = Running::start(home.path(), &[], &[]);
    assert_eq!(running.setting("intercept.mode")["value"], "none");
    let (code, _, err) = run(home.path(), &["config", "set", "intercept.exclude", "['a.test']"]);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("the running instance uses it"), "{err}");
    assert_eq!(running.setting("intercept.exclude")["value"], json!(["a.test"]));
    let before = config(home.path());
    let (code, out, _) = run(home.path(), &["config", "set", "intercept.mode", "all", "--dry-run"]);
    assert_eq!((code, out.contains("+ mode = \"all\"")), (0, true), "{out}");
    for (words, says) in [
        (["config", "set", "intercept.mode", "al"], "did you mean `all`"),
        (["config", "set", "intercept.mod", "all"], "did you mean `mode`"),
        (["config", "set", "upstream.proxy", "[{hosts=['*'],via=['ftp://x']}]"], "its scheme is not http"),
    ] {
        let (code, _, err) = run(home.path(), &words);
        assert!(code != 0 && err.contains(says), "{words:?}: {err}");
    }
    assert_eq!(config(home.path()), before);
    assert_eq!(run(home.path(), &["config", "unset", "intercept.mode"]).0, 0);
    assert_eq!(run(home.path(), &["config", "get", "intercept.mode"]).1, "\"all\"\n");
    assert_eq!(run(home.path(), &["config", "get", "intercept.exclude"]).1, "[\n  \"a.test\"\n]\n");
    assert_eq!(run(home.path(), &["config", "get", "intercept.mod"]).0, 2);
}

#[test]
fn config_set_does_not_overwrite_a_change_that_another_process_makes_meanwhile() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("interflow.toml");
    std::fs::write(&path, "[record]\nbodies = true\n").unwrap();
    let other = interflow_files::FileLock::for_edit(&path).unwrap();
    let mut command = interflow(home.path(), &["config", "set", "record.bodies", "false"]);
    let mut command = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It prints what it is about to write, and waits for the lock.
    command.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    let theirs = "[record]\nbodies = true # ours\n";
    std::fs::write(&path, theirs).unwrap();
    drop(other);
    let output = command.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("was changed by someone else"), "{error}");
    assert_eq!(config(home.path()), theirs);
}

#[test]
fn the_file_of_a_data_directory_cannot_name_another_one() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("interflow.toml"), "# here\ndata_dir = \"/elsewhere\"\n").unwrap();
    let (code, _, err) = run(home.path(), &["flows", "list"]);
    assert!(code == 2 && err.contains("interflow.toml:2: `data_dir` cannot be set"), "{code} {err}");
}

#[test]
fn a_file_that_was_used_and_is_gone_leaves_the_former_configuration_active() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    std::fs::write(home.join("interflow.toml"), "[intercept]\nmode = \"none\"\n").unwrap();
    let running = Running::start(home, &[], &[]);
    for name in ["interflow.toml", "rules.yaml"] {
        std::fs::rename(home.join(name), home.join("away")).unwrap();
        let (code, _, err) = run(home, &["reload"]);
        assert!(code == 1 && err.contains(name) && err.contains("the previous one stays active"), "{name}: {err}");
        if name == "interflow.toml" {
            assert_eq!(running.setting("intercept.mode")["active"], "none");
            let (code, _, err) = run(home, &["restart"]);
            assert!(code == 1 && err.contains("interflow.toml is missing"), "{err}");
        }
        std::fs::rename(home.join("away"), home.join(name)).unwrap();
        assert_eq!(run(home, &["reload"]).0, 0, "{name}");
    }
}

#[test]
fn a_printed_configuration_has_no_secrets_and_is_refused_without_them() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let text = "[media]\napi_password = \"MEDIA-PW\"\n[record]\nstore = \"postgres://u:PG-PW@h/d\"\n\
                [[upstream.proxy]]\nhosts = [\"*\"]\nvia = [\"http://a:VIA-PW@h:1\"]\n\
                [mcp.server.x]\nurl = \"https://h.test/mcp?api_key=MCP-PW\"\n";
    std::fs::write(home.join("interflow.toml"), text).unwrap();
    for words in [&["config", "print"][..], &["run", "--print-config"], &["config", "print", "--json"]] {
        let (code, out, err) = run(home, words);
        assert!(code == 0 && out.contains("***@h") && !out.contains("-PW"), "{out}{err}");
        if words.len() == 2 {
            let sections: Vec<_> = ["[log]", "[proxy]", "[admin]", "[timeouts]"].map(|s| out.find(s).unwrap()).to_vec();
            assert!(sections.is_sorted(), "they are in the order of the reference: {out}");
            std::fs::write(home.join("printed.toml"), out).unwrap();
        }
    }
    let (code, _, err) = run(home, &["-c", "printed.toml", "config", "check", "--values-only"]);
    assert!(code != 0 && err.contains("`***` stands for a secret") && err.contains("env:NAME"), "{err}");
}

#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("text"), "To ann@example.com.\n").unwrap();
    for words in [
        &["config", "print"][..],
        &["config", "schema"],
        &["config", "reference"],
        &["config", "env"],
        &["config", "get", "intercept.mode"],
        &["token"],
        &["help", "query"],
        &["media", "url", "http://a.test/x", "--base", "http://g.test/media"],
        &["ca", "show"],
        &["redact", "text"],
    ] {
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = interflow(home.path(), words).stdout(full).output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && err.contains("output failed: "), "{words:?}: {err}");
    }
}

#[cfg(unix)]
#[test]
fn commands_do_not_wait_for_an_instance_that_is_suspended() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let running = Running::start(home, &[], &[]);
    let signal = |name: &str| {
        let pid = running.child.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    signal("-STOP");
    for words in [&["status"][..], &["reload"], &["pending", "list"], &["tokens", "list"], &["stop"], &["restart"]] {
        let begun = Instant::now();
        let (code, _, err) = run(home, words);
        assert!(code == 1 && err.contains("does not answer within 5 s"), "{words:?}: {err}");
        assert_eq!(err.contains("the signal was sent"), ["stop", "restart"].contains(&words[0]), "{err}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{words:?}");
    }
    // What follows the instance waits for it.
    let mut tail = interflow(home, &["flows", "tail"]).stdout(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_secs(7));
    let ended = tail.try_wait().unwrap();
    tail.kill().unwrap();
    signal("-CONT");
    assert_eq!(ended, None);
}

#[cfg(unix)]
#[test]
fn an_instance_is_stopped_without_the_admin_token() {
    let home = tempfile::tempdir().unwrap();
    let _running = Running::start(home.path(), &[], &[]);
    let output = interflow(home.path(), &["stop"]).env("INTERFLOW_TOKEN", "short").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_finest_log_does_not_hold_the_admin_token() {
    let home = tempfile::tempdir().unwrap();
    let running = Running::start(home.path(), &[], &[]);
    let mut exec = interflow(home.path(), &["exec", "--", "true"]);
    let output = exec.env("INTERFLOW_LOG", "trace").output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !err.contains(&running.token), "{err}");
}

#[test]
fn what_no_start_accepts_is_refused_when_it_is_set() {
    let home = tempfile::tempdir().unwrap();
    for (key, value, says) in [
        ("timeouts.connect", "0s", "timeouts.connect: 0 leaves no time"),
        ("media.path", "/openai", "media.path: `/openai`"),
        ("media.path", "/groq", "media.path: `/groq`"),
        ("media.path", "/upload", "media.path: `/upload`"),
        ("media.path", "/", "media.path: `/`"),
    ] {
        let (code, _, err) = run(home.path(), &["config", "set", key, value]);
        assert!(code != 0 && err.contains(says) && config(home.path()).is_empty(), "{key}: {err}");
    }
    // Media endpoints that are turned off are in no one's way.
    assert_eq!(run(home.path(), &["config", "set", "media.enabled", "false"]).0, 0);
    assert_eq!(run(home.path(), &["config", "set", "media.path", "/openai"]).0, 0);
    // Another address may be given at the start.
    assert_eq!(run(home.path(), &["config", "set", "proxy.mdns_name", "x"]).0, 0);
    let (code, _, err) = run(home.path(), &["config", "check"]);
    assert!(code == 0 && err.contains("no address that other machines can reach"), "{err}");
    if cfg!(target_os = "linux") {
        std::fs::write(home.path().join("interflow.toml"), "[record]\ndir = \"/proc/x\"\n").unwrap();
        let (code, _, err) = run(home.path(), &["config", "check"]);
        assert!(code != 0 && err.contains("/proc/x cannot be created"), "{err}");
    }
}
