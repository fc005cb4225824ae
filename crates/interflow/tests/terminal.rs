//! A running instance and its output: it goes on in full when nothing reads its log, and ends with its terminal.
#![cfg(target_os = "linux")]

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use interflow_testkit::{KilledOnDrop, Origin, Wire, client, until};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::Value;

const ADDRESSES: [&str; 6] = ["--listen-proxy", "0", "--listen-gateway", "0", "--listen-admin", "0"];

fn command(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command
        .args(&words[1..])
        .env("INTERFLOW_DATA_DIR", home)
        .env("NO_COLOR", "1")
        .current_dir(home)
        .stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_RECORD_DIR", "INTERFLOW_TOKEN", "INTERFLOW_LOG", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn interflow(home: &Path, words: &[&str]) -> Output {
    command(home, &[&[env!("CARGO_BIN_EXE_interflow")], words].concat()).output().unwrap()
}

#[track_caller]
fn ok(home: &Path, words: &[&str]) -> String {
    let output = interflow(home, words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// An instance; killed when dropped.
struct Running(KilledOnDrop);

impl Running {
    /// Starts it, with this before its command line.
    fn start(home: &Path, before: &[&str], more: &[&str], stdio: impl FnOnce(&mut Command)) -> (Self, SocketAddr) {
        let words = [before, &[env!("CARGO_BIN_EXE_interflow"), "run"], &ADDRESSES, more].concat();
        let mut command = command(home, &words);
        stdio(&mut command);
        let mut child = command.spawn().unwrap();
        // The command holds descriptors, which are those of the child alone from here on.
        drop(command);
        let info: Value = until("the instance does not start", || {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            serde_json::from_slice(&std::fs::read(home.join("instance.json")).ok()?).ok()
        });
        (Self(KilledOnDrop(child)), info["proxy"][0].as_str().unwrap().parse().unwrap())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.0.0)
    }
}

/// Both ends of a pseudo-terminal, which no child has.
fn terminal() -> (OwnedFd, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    (master, File::options().read(true).write(true).open(name).unwrap())
}

fn on_terminal(slave: &File) -> impl FnOnce(&mut Command) + use<> {
    let [stdin, stdout, stderr] = [(); 3].map(|()| slave.try_clone().unwrap());
    move |command| {
        command.stdin(stdin).stdout(stdout).stderr(stderr);
    }
}

#[tokio::test]
async fn nothing_ends_when_nothing_reads_the_log() {
    for more in [&[][..], &["-v"]] {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let (mut reader, writer) = std::io::pipe().unwrap();
        let (mut running, proxy) = Running::start(home, &[], more, |command| {
            command.stdout(writer.try_clone().unwrap()).stderr(writer);
        });
        // As `| head -1`.
        reader.read_exact(&mut [0]).unwrap();
        drop(reader);
        let gone = "http://127.0.0.1:1/";
        assert_eq!(client::get_through(proxy, gone).await.unwrap().status, 502, "{more:?}");
        assert!(ok(home, &["reload"]).starts_with("reloaded"));
        ok(home, &["config", "set", "log.level", "warn"]);
        std::fs::write(home.join("rules.yaml"), "rules:\n- when: {host: a.test}\n  then: {block: 418}\n").unwrap();
        until("the rule is not loaded", || ok(home, &["rules", "list"]).contains("a.test").then_some(()));
        assert_eq!(client::get_through(proxy, "http://a.test/").await.unwrap().status, 418);
        ok(home, &["stop"]);
        assert_eq!(running.0.0.wait().unwrap().code(), Some(0), "{more:?}");
    }
}

#[tokio::test]
async fn an_instance_ends_with_its_terminal() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let origin = Origin::http().start().await;
    let (master, slave) = terminal();
    let (mut running, proxy) = Running::start(home, &["setsid", "--ctty"], &[], on_terminal(&slave));
    drop(slave);
    assert_eq!(client::get_through(proxy, &origin.url("/")).await.unwrap().status, 200);
    // As long as the terminal is there, the signal means what it does elsewhere.
    std::fs::write(home.join("rules.yaml"), "rules:\n- name: new\n  when: {host: a.test}\n  then: {block: 418}\n")
        .unwrap();
    kill_process(running.pid(), Signal::HUP).unwrap();
    until("the rule is not loaded", || ok(home, &["rules", "list"]).contains("new").then_some(()));
    drop(master);
    assert_eq!(running.0.0.wait().unwrap().code(), Some(0), "gracefully");
    assert!(!home.join("instance.json").exists());
    assert_eq!(ok(home, &["flows", "count"]).trim(), "1");
}

#[test]
fn an_instance_under_nohup_outlives_its_terminal() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let (master, slave) = terminal();
    let before = ["setsid", "--ctty", "nohup"];
    let (mut running, _) = Running::start(home, &before, &[], on_terminal(&slave));
    drop((slave, master));
    // The signal of the terminal was sent when it was closed; it, or one of these, comes when the files are watched.
    until("no reload is logged", || {
        kill_process(running.pid(), Signal::HUP).unwrap();
        std::fs::read_to_string(home.join("nohup.out")).is_ok_and(|log| log.contains("reloaded")).then_some(())
    });
    assert!(ok(home, &["reload"]).starts_with("reloaded"));
    ok(home, &["stop"]);
    assert_eq!(running.0.0.wait().unwrap().code(), Some(0));
}

/// What a command writes to a terminal of this many columns, without colours.
fn shown(home: &Path, columns: u16, words: &[&str]) -> String {
    let (master, slave) = terminal();
    tcsetwinsize(&master, Winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let mut command = command(home, &[&[env!("CARGO_BIN_EXE_interflow")], words].concat());
    command.env_remove("COLUMNS").stderr(Stdio::piped());
    command.stdout(slave.try_clone().unwrap());
    let mut child = command.spawn().unwrap();
    drop((command, slave));
    let mut text = Vec::new();
    // Its end is an error: the other side of the terminal was closed.
    let _ = File::from(master).read_to_end(&mut text);
    assert!(child.wait().unwrap().success(), "{words:?}");
    String::from_utf8(text).unwrap().replace('\r', "")
}

/// Columns of a line on a terminal.
fn columns(line: &str) -> usize {
    line.chars().map(|c| if ('\u{2e80}'..'\u{fffd}').contains(&c) || c > '\u{ffff}' { 2 } else { 1 }).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_fit_a_narrow_terminal_whatever_is_in_them() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let origin = Origin::http().start().await;
    std::fs::write(
        home.join("rules.yaml"),
        format!("rules:\n- name: {}\n  when: {{path: /held}}\n  then: hold\n", "long ".repeat(30)),
    )
    .unwrap();
    let (_running, proxy) = Running::start(home, &[], &[], |command| {
        command.stdout(Stdio::null()).stderr(Stdio::null());
    });
    let wide = "%E6%97%A5".repeat(60);
    for path in
        ["/", "/\u{65e5}\u{672c}\u{8a9e}", &format!("/{wide}"), &format!("/{}", "long".repeat(500)), "/%1b]0;x%07"]
    {
        let _ = client::get_through(proxy, &origin.url(path)).await;
    }
    client::get_through(proxy, "http://127.0.0.1:1/").await.unwrap();
    let held = origin.url(&format!("/held?{}", "q".repeat(300)));
    // It waits as long as the test takes.
    let mut wire = Wire::connect(proxy).await.unwrap();
    wire.send(format!("GET {held} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")).await.unwrap();
    until("nothing is held", || ok(home, &["pending", "list"]).contains("/held").then_some(()));
    ok(home, &["keys", "add", "--owner", &"\u{6f22}\u{5b57}".repeat(30), "--model", "claude-opus-5-5,gpt-6-luna"]);
    ok(home, &["tokens", "create", "--name", &"name".repeat(24), "--role", "viewer"]);
    let hosts = (0..20).map(|n| format!("host-{n}.example")).collect::<Vec<_>>();
    let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
    ok(home, &[&["approvals", "rules", "add", "allow"][..], &hosts].concat());
    for words in [
        &["flows", "list"][..],
        &["pending", "list"],
        &["approvals", "rules", "list"],
        &["approvals", "presets"],
        &["rules", "list"],
        &["rules", "list", "--actions"],
        &["keys", "list"],
        &["tokens", "list"],
        &["models"],
        &["audit", "list"],
    ] {
        for width in [60, 80] {
            let text = shown(home, width, words);
            assert!(text.lines().count() > 0, "{words:?}");
            for line in text.lines() {
                assert!(columns(line) <= usize::from(width), "{words:?} at {width}: {} {line}", columns(line));
                assert!(!line.contains(['\u{1b}', '\u{7}']), "{words:?}: {line:?}");
            }
        }
    }
    let list = shown(home, 80, &["flows", "list"]);
    assert!(list.contains('\u{65e5}') || list.contains("%E6"), "{list}");
    let pending = shown(home, 80, &["pending", "list"]);
    assert!(pending.contains("held by lo") && pending.trim_end().ends_with('\u{2026}'), "{pending}");
    assert!(ok(home, &["flows", "list"]).contains(&"long".repeat(500)), "a pipe gets the whole");
}
