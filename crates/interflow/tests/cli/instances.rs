//! Which instance a command means that names no data directory, and Interflow as a service of a user.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Running, file, interflow, ok, read, run};

/// A command of someone whose home directory is this, without a data directory of its own choice.
fn at_home(home: &Path, words: &[&str]) -> Command {
    let mut command = interflow(home, words);
    command
        .env_remove("INTERFLOW_DATA_DIR")
        .env_remove("XDG_DATA_HOME")
        .env_remove("XDG_RUNTIME_DIR")
        .env("HOME", home);
    command
}

/// An instance with a data directory of its own in this home; killed when dropped.
struct Elsewhere(Child, Value, String);

impl Elsewhere {
    fn start(home: &Path, name: &str, more: &[&str]) -> Self {
        let data = home.join(name).display().to_string();
        let any = ["run", "--listen-proxy", "0", "--listen-gateway", "0", "--listen-admin", "0"];
        let mut command = at_home(home, &[&["--data-dir", &data][..], &any, more].concat());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let info = serde_json::from_str(&file(&Path::new(&data).join("instance.json"))).unwrap();
        // It is registered after that.
        let registered = home.join(".local/share/interflow-instances").join(child.id().to_string());
        assert_eq!(file(&registered), data);
        Self(child, info, data)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn commands_find_the_only_running_instance_and_list_several() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let run = |words: &[&str]| read(&at_home(home, words).output().unwrap());
    let first = Elsewhere::start(home, "first", &[]);
    let registry = home.join(".local/share/interflow-instances");
    let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&registry).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
    let (code, out, err) = run(&["status"]);
    assert!(code == 0 && out.contains(&first.2) && err.contains("using the instance"), "{out}{err}");
    // Commands in messages name the directory, and those of scripts read only their own output.
    let (code, out, err) = run(&["exec", "--", "true"]);
    assert!(code == 0 && out.is_empty() && err.contains(&format!("data directory {}", first.2)), "{err}");
    assert!(!home.join(".local/share/interflow").exists(), "no private instance was started");
    let (code, _, err) = run(&["flows", "show", "last-1x", "--format", "har"]);
    assert!(code == 1 && err.contains("no "), "{err}");
    for words in [&["reload"][..], &["flows", "list"], &["pending", "list"], &["open", "--print"]] {
        let (code, out, err) = run(words);
        assert_eq!(code, 0, "{words:?}: {out}{err}");
    }
    let second = Elsewhere::start(home, "second", &[]);
    for words in [&["reload"][..], &["exec", "--", "true"], &["flows", "list"]] {
        let (code, _, err) = run(words);
        assert!(code == 2 && err.contains("several instances run"), "{words:?}: {err}");
        for instance in [&first, &second] {
            assert!(err.contains(&format!("interflow --data-dir {} …", instance.2)), "{words:?}: {err}");
        }
    }
    // What works on the files of a data directory stays with the default one, and names the others.
    let here = home.join(".local/share/interflow").display().to_string();
    for words in [
        &["keys", "add"][..],
        &["keys", "list"],
        &["tokens", "create", "--name", "ci", "--role", "viewer"],
        &["config", "set", "log.level", "debug"],
        &["ca", "show"],
        &["audit", "list"],
        &["flows", "stats"],
    ] {
        let (_, _, err) = run(words);
        let said = format!("interflow: this is the data directory {here}; other instances run:\n");
        assert!(err.starts_with(&said) && err.contains(&second.2), "{words:?}: {err}");
        let (_, _, err) = run(&[&["--data-dir", &here][..], words].concat());
        assert!(!err.contains("other instances"), "{words:?}: {err}");
    }
    assert!(std::fs::exists(home.join(".local/share/interflow/keys.toml")).unwrap());
    for words in [&["rules", "check", "-"][..], &["config", "env"], &["help", "keys"]] {
        assert!(!run(words).2.contains("instances run"), "{words:?}");
    }
    let (code, _, err) = run(&["rules", "list"]);
    assert!(code == 2 && err.contains("several instances run"), "{err}");
    // A recording in the default directory is read without being asked, with a word about the others.
    std::fs::create_dir_all(home.join(".local/share/interflow/record")).unwrap();
    let (_, _, err) = run(&["flows", "list"]);
    assert!(err.contains("this is the recording in") && err.contains(&second.2), "{err}");
    // An instance that was killed is not listed.
    drop(second);
    let (code, out, _) = run(&["status", "--json"]);
    assert!(code == 0 && out.contains(&first.2), "{out}");
    assert_eq!(std::fs::read_dir(&registry).unwrap().count(), 1);
    let (code, _, err) = run(&["stop"]);
    assert_eq!((code, std::fs::read_dir(&registry).unwrap().count()), (0, 0), "{err}");
}

#[test]
fn a_start_names_the_instance_that_is_in_its_way() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let run = |words: &[&str]| read(&at_home(home, words).output().unwrap());
    let first = Elsewhere::start(home, "first", &[]);
    let pid = format!("process {}", first.1["pid"]);
    let (code, _, err) = run(&["--data-dir", &first.2, "run", "--listen-proxy", "0"]);
    assert!(code == 1 && err.starts_with("interflow: an instance already runs") && err.contains(&pid), "{err}");
    let stop = format!("`interflow --data-dir {} stop`", first.2);
    assert!(err.contains(&stop) && err.contains(first.1["admin"].as_str().unwrap()) && err.contains(" for "), "{err}");
    for (option, key) in [("--listen-proxy", &first.1["proxy"][0]), ("--listen-admin", &first.1["admin"])] {
        let mut words = vec!["run"];
        for listener in ["--listen-proxy", "--listen-gateway", "--listen-admin"] {
            words.extend([listener, if listener == option { key.as_str().unwrap() } else { "0" }]);
        }
        let (code, _, err) = run(&words);
        assert!(
            code == 1 && err.contains("Another instance has this address") && err.contains(&pid),
            "{option}: {err}"
        );
    }
}

#[test]
fn the_service_is_installed_shown_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let bin = home.join("bin");
    std::fs::create_dir(&bin).unwrap();
    let run = |words: &[&str]| read(&at_home(home, words).env("PATH", &bin).output().unwrap());
    let (code, _, err) = run(&["service", "install"]);
    assert!(code == 1 && err.contains("systemd") && err.contains("`interflow run`"), "{err}");
    let script = "#!/bin/sh\ncd \"$HOME\"\necho \"$@\" >> calls\ncase \"$*\" in\n*is-active*) [ -e active ] ;;\n\
                  *enable*) [ ! -e broken ] && : > active ;;\n*disable*) /bin/rm active ;;\nesac\n";
    std::fs::write(bin.join("systemctl"), script).unwrap();
    std::fs::set_permissions(bin.join("systemctl"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let unit = home.join(".config/systemd/user/interflow.service");
    let (code, out, _) = run(&["service", "status"]);
    assert!(code == 3 && out.contains("installed  false"), "{out}");
    let data = home.join("a b").display().to_string();
    let install =
        ["--data-dir", &data, "service", "install", "--", "--listen-proxy", "7080", "--rules", "r.yaml", "-c=c.toml"];
    let (code, _, err) = run(&["service", "install", "--", "--bogus"]);
    assert!(code == 2 && err.contains("--bogus") && !unit.exists(), "{err}");
    // What the service manager refuses leaves nothing behind.
    std::fs::write(home.join("broken"), "").unwrap();
    let (code, _, err) = run(&install);
    assert!(code == 1 && err.contains("systemctl") && !unit.exists(), "{err}");
    std::fs::remove_file(home.join("broken")).unwrap();
    let (code, out, err) = run(&install);
    assert!(code == 0 && out.contains("interflow.service is written"), "{out}{err}");
    let here = home.display();
    let start = format!(
        "ExecStart=\"{}\" \"--data-dir\" \"{data}\" \"run\" \"--listen-proxy\" \"7080\" \"--rules\" \"{here}/r.yaml\" \"-c={here}/c.toml\"",
        env!("CARGO_BIN_EXE_interflow")
    );
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(text.lines().any(|line| line == start), "{text}");
    assert_eq!(run(&["service", "status"]).0, 0);
    assert_eq!(run(&install).0, 0, "it may be installed again");
    let (code, _, err) = run(&["service", "install"]);
    assert!(code == 1 && err.contains("`interflow service uninstall`") && err.contains(&data), "{err}");
    assert_eq!(std::fs::read_to_string(&unit).unwrap(), text, "another one stays as it is");
    let (code, out, _) = run(&["service", "uninstall"]);
    assert!(code == 0 && out.contains(&data), "{out}");
    assert!(!unit.exists());
    // Options with their values in one word.
    let words = ["service", "install", "--", &format!("--data-dir={data}"), "-cc.toml"];
    assert_eq!(run(&words).0, 0);
    let text = std::fs::read_to_string(&unit).unwrap();
    assert!(text.contains(&format!("\"--data-dir={data}\" \"-c{here}/c.toml\"")), "{text}");
    let (code, out, _) = run(&["service", "uninstall"]);
    assert!(code == 0 && out.contains(&data), "{out}");
    let calls = std::fs::read_to_string(home.join("calls")).unwrap();
    assert!(calls.ends_with("--user disable --now interflow\n") && calls.contains("--user daemon-reload\n"), "{calls}");
    // A unit of another origin is left alone.
    std::fs::write(&unit, "[Unit]\n").unwrap();
    for words in [&["service", "install"][..], &["service", "uninstall"]] {
        let (code, _, err) = run(words);
        assert!(code == 1 && err.contains("not written by Interflow"), "{words:?}: {err}");
    }
}

#[test]
fn a_broken_configuration_does_not_keep_commands_from_the_running_instance() {
    let home = tempfile::tempdir().unwrap();
    let mut running = Running::start(home.path(), "", &[]);
    std::fs::write(home.path().join("interflow.toml"), "oops\n").unwrap();
    for words in [&["status"][..], &["pending", "list"], &["token"], &["stop"]] {
        let (code, out, err) = run(home.path(), words);
        assert_eq!(code, 0, "{words:?}: {out}{err}");
        assert!(err.contains("interflow.toml:1") && err.contains("is invalid and ignored"), "{words:?}: {err}");
    }
    assert!(running.child.wait().unwrap().success());
    assert_eq!(run(home.path(), &["run"]).0, 2, "what the configuration says is needed to start");
}

#[test]
fn an_instance_without_a_proxy_port_obeys_commands() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("c.toml"), "[proxy]\nlisten = []\n").unwrap();
    let mut run_command =
        interflow(home.path(), &["run", "-c", "c.toml", "--listen-gateway", "0", "--listen-admin", "0"]);
    let out = std::fs::File::create(home.path().join("out")).unwrap();
    let child = run_command.stdout(out).stderr(Stdio::null()).spawn().unwrap();
    let info = serde_json::from_str(&file(&home.path().join("instance.json"))).unwrap();
    let mut running = Running { child, info };
    let text = ok(home.path(), &["status"]);
    assert!(text.contains("admin ") && !text.contains("proxy "), "{text}");
    let banner = std::fs::read_to_string(home.path().join("out")).unwrap();
    assert!(!banner.contains("  proxy"), "{banner}");
    let (code, _, err) = run(home.path(), &["exec", "--", "true"]);
    assert!(code == 1 && err.contains("has no proxy port") && err.contains("--private"), "{err}");
    ok(home.path(), &["stop"]);
    assert!(running.child.wait().unwrap().success());
}

#[test]
fn listeners_that_exclude_each_other_are_refused_before_the_start() {
    let home = tempfile::tempdir().unwrap();
    for (proxy, admin, is_valid) in [
        ("127.0.0.1:7570", "127.0.0.1:7570", false),
        ("0.0.0.0:7570", "127.0.0.1:7570", false),
        ("127.0.0.1:7570", "0.0.0.0:7570", false),
        ("127.0.0.1:7570", "127.0.0.2:7570", true),
        ("127.0.0.1:0", "127.0.0.1:0", true),
    ] {
        let config = format!("[proxy]\nlisten = [\"{proxy}\"]\n[admin]\nlisten = \"{admin}\"\n");
        std::fs::write(home.path().join("interflow.toml"), config).unwrap();
        let (code, out, err) = run(home.path(), &["config", "check"]);
        assert_eq!(code == 0, is_valid, "{proxy} {admin}: {out}{err}");
        if !is_valid {
            assert!(err.contains("admin.listen: proxy.listen listens on"), "{err}");
            let (code, _, err) = run(home.path(), &["run"]);
            assert!(code == 2 && err.contains("admin.listen: proxy.listen listens on"), "{code}: {err}");
        }
    }
}
