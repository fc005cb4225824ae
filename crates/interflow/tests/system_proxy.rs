//! Setting and restoring the system's proxy with the built binary, on fake desktops whose commands are scripts that log
//! their calls.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use interflow_testkit::until;

/// Fake GNOME and KDE commands that store values in files; unset values are the desktop's defaults.
const GSETTINGS: &str = r#"file="gnome $2 $3"
case $1 in
  get) if test -f "$file"; then cat "$file"; else case $3 in mode) echo "'none'";; port) echo 0;; *) echo "''";; esac; fi;;
  set) echo "$4" > "$file";;
esac"#;
const KREADCONFIG: &str = r#"cat "kde $6" 2>/dev/null; exit 0"#;
const KWRITECONFIG: &str = r#"case "$7" in --delete) rm -f "kde $6";; *) echo "$7" > "kde $6";; esac"#;

/// A fake desktop and a data directory.
struct Machine(tempfile::TempDir);

impl Machine {
    fn new(commands: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(machine.path("bin")).unwrap();
        for (name, script) in commands {
            let file = machine.path("bin").join(name);
            let folder = machine.0.path().display().to_string();
            std::fs::write(&file, format!("#!/bin/sh\ncd '{folder}'\necho \"{name} $*\" >> calls\n{script}\n"))
                .unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn value(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok().map(|t| t.trim_end().to_owned())
    }

    fn set(&self, name: &str, value: &str) {
        std::fs::write(self.path(name), value).unwrap();
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
        // The scripts need a few system programs, but the real desktop's commands must not be found.
        let mut folders = vec![self.path("bin")];
        if std::fs::read_dir(self.path("bin")).unwrap().next().is_some() {
            folders.extend(["/usr/bin".into(), "/bin".into()]);
        }
        let path = std::env::join_paths(folders).unwrap();
        command.args(words).env("PATH", path).env("INTERFLOW_DATA_DIR", self.path("home")).stdin(Stdio::null());
        for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN"] {
            command.env_remove(name);
        }
        command
    }

    fn system_proxy(&self, words: &[&str]) -> Output {
        self.command(&[&["system-proxy"], words].concat()).output().unwrap()
    }

    /// `interflow run`, once `instance.json` exists.
    fn run(&self, words: &[&str]) -> Running {
        let anywhere = "127.0.0.1:0";
        let all =
            [&["run", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere], words]
                .concat();
        let log = std::fs::File::create(self.path("log")).unwrap();
        let mut child = self.command(&all).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let proxy = until("the instance has started", || {
            let log = || std::fs::read_to_string(self.path("log"));
            assert!(child.try_wait().unwrap().is_none(), "it does not start: {:?}", log());
            let text = std::fs::read_to_string(self.path("home/instance.json")).unwrap_or_default();
            let instance: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
            (instance["pid"] == child.id()).then(|| instance["proxy"][0].as_str().unwrap().to_owned())
        });
        Running { child, proxy }
    }
}

struct Running {
    child: Child,
    proxy: String,
}

impl Running {
    fn end(mut self, signal: &str) {
        assert!(Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap().success());
        self.child.wait().unwrap();
    }
}

const MODE: &str = "gnome org.gnome.system.proxy mode";
const HOST: &str = "gnome org.gnome.system.proxy.http host";
const PORT: &str = "gnome org.gnome.system.proxy.https port";

fn gnome() -> Machine {
    let machine = Machine::new(&[("gsettings", GSETTINGS)]);
    machine.set(HOST, "'proxy.corp'");
    machine.set(PORT, "3128");
    machine
}

#[test]
fn gnome_is_set_while_an_instance_runs_and_restored_when_it_stops() {
    let machine = gnome();
    let running = machine.run(&["--system-proxy"]);
    until("the mode", || (machine.value(MODE).as_deref() == Some("'manual'")).then_some(()));
    assert_eq!(machine.value(HOST).as_deref(), Some("'127.0.0.1'"));
    assert_eq!(machine.value(PORT).as_deref(), running.proxy.rsplit(':').next());
    let status = machine.system_proxy(&["status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains(&format!("set to {} by Interflow", running.proxy)));
    running.end("-TERM");
    let [mode, host, port] = [MODE, HOST, PORT].map(|name| machine.value(name).unwrap());
    assert_eq!([&*mode, &*host, &*port], ["'none'", "'proxy.corp'", "3128"]);
}

#[test]
fn settings_left_by_a_killed_instance_are_restored_at_the_next_start() {
    let machine = gnome();
    let running = machine.run(&["--system-proxy"]);
    until("the mode", || (machine.value(MODE).as_deref() == Some("'manual'")).then_some(()));
    running.end("-KILL");
    assert_eq!(machine.value(MODE).as_deref(), Some("'manual'"), "nobody was there to put it back");
    let running = machine.run(&[]);
    assert_eq!(machine.value(MODE).as_deref(), Some("'none'"));
    assert_eq!(machine.value(HOST).as_deref(), Some("'proxy.corp'"));
    running.end("-TERM");
}

#[test]
fn system_proxy_is_toggled_by_command_and_reset_when_the_instance_ends() {
    let machine = gnome();
    let refused = machine.system_proxy(&["on"]);
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && why.contains("no instance with a proxy port is running"), "{why}");
    let running = machine.run(&[]);
    assert!(machine.system_proxy(&["on"]).status.success());
    assert!(machine.system_proxy(&["on"]).status.success(), "twice is as good as once");
    assert_eq!(machine.value(MODE).as_deref(), Some("'manual'"));
    assert!(machine.system_proxy(&["off"]).status.success());
    assert_eq!(machine.value(MODE).as_deref(), Some("'none'"));
    assert!(machine.system_proxy(&["on"]).status.success());
    running.end("-TERM");
    assert_eq!(machine.value(HOST).as_deref(), Some("'proxy.corp'"));
}

#[test]
fn settings_changed_by_another_program_are_left_alone() {
    let machine = gnome();
    assert!(machine.system_proxy(&["on", "--proxy", "127.0.0.1:7070"]).status.success());
    machine.set(MODE, "'auto'");
    let off = machine.system_proxy(&["off"]);
    assert!(off.status.success() && String::from_utf8_lossy(&off.stdout).contains("changed by another program"));
    assert_eq!(machine.value(MODE).as_deref(), Some("'auto'"));
    assert_eq!(machine.value(HOST).as_deref(), Some("'proxy.corp'"));
}

#[test]
fn kde_is_notified_and_unset_values_are_removed_again() {
    let kde = [("kreadconfig6", KREADCONFIG), ("kwriteconfig6", KWRITECONFIG), ("dbus-send", "")];
    // Schemas of GNOME may be installed beside it.
    for gnome in ["exit 1", GSETTINGS] {
        let machine = Machine::new(&[&kde[..], &[("gsettings", gnome)]].concat());
        kde_is_notified(&machine);
    }
}

fn kde_is_notified(machine: &Machine) {
    machine.set("kde httpProxy", "http://proxy.corp 3128");
    assert!(machine.system_proxy(&["on", "--proxy", "[::]:7070"]).status.success());
    assert_eq!(machine.value("kde httpProxy").as_deref(), Some("http://[::1] 7070"));
    assert_eq!(machine.value("kde ProxyType").as_deref(), Some("1"));
    assert!(machine.system_proxy(&["off"]).status.success());
    assert_eq!(machine.value("kde httpProxy").as_deref(), Some("http://proxy.corp 3128"));
    assert_eq!((machine.value("kde ProxyType"), machine.value("kde httpsProxy")), (None, None));
    let calls = machine.value("calls").unwrap();
    assert_eq!(calls.lines().filter(|c| c.contains("reparseSlaveConfiguration")).count(), 2, "{calls}");
}

#[test]
fn a_start_without_a_desktop_fails_and_closes_the_store() {
    let machine = Machine::new(&[]);
    let anywhere = "127.0.0.1:0";
    let listen = ["run", "--listen-proxy", anywhere, "--listen-gateway", anywhere, "--listen-admin", anywhere];
    let failed = machine.command(&[&listen[..], &["--system-proxy"]].concat()).output().unwrap();
    assert!(!failed.status.success(), "{failed:?}");
    machine.run(&[]).end("-TERM");
    let log = std::fs::read_to_string(machine.path("log")).unwrap();
    assert!(!log.contains("not closed"), "{log}");
}

#[test]
fn missing_desktop_is_reported() {
    let machine = Machine::new(&[]);
    let on = machine.system_proxy(&["on", "--proxy", "127.0.0.1:7070"]);
    assert!(!on.status.success() && String::from_utf8_lossy(&on.stderr).contains("no desktop's proxy settings"));
    assert!(!machine.path("home/system-proxy.json").exists());
}

#[test]
fn failed_command_rolls_back_all_settings() {
    let failing =
        GSETTINGS.replace("set) echo", "set) test \"$3\" = mode && test \"$4\" = \"'manual'\" && exit 3; echo");
    let machine = Machine::new(&[("gsettings", &failing)]);
    machine.set(HOST, "'proxy.corp'");
    let on = machine.system_proxy(&["on", "--proxy", "127.0.0.1:7070"]);
    assert!(!on.status.success() && String::from_utf8_lossy(&on.stderr).contains("gsettings set"));
    assert_eq!(machine.value(HOST).as_deref(), Some("'proxy.corp'"));
    assert!(!machine.path("home/system-proxy.json").exists());
}
