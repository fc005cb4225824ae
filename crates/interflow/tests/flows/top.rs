//! `interflow top` in a pseudo-terminal: what the screen shows, and what keys do.

use std::fs::File;
use std::io::Read as _;
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use std::thread::JoinHandle;
use std::time::Instant;

use super::*;

const COLUMNS: usize = 80;
const ROWS: usize = 24;

/// `interflow top` in a terminal of 80 columns and 24 rows.
struct Top {
    child: Child,
    terminal: File,
    /// Everything that it wrote.
    written: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Top {
    fn start(home: &Home, words: &[&str]) -> Self {
        Self::start_with(home, words, "false")
    }

    fn start_with_editor(home: &Home, editor: &str) -> Self {
        Self::start_with(home, &[], editor)
    }

    fn start_with(home: &Home, words: &[&str], editor: &str) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let (ws_row, ws_col) = (ROWS as u16, COLUMNS as u16);
        tcsetwinsize(&terminal, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let side = || Stdio::from(File::options().read(true).write(true).open(&name).unwrap());
        let child = home
            .command(&[&["top"], words].concat())
            .env("TERM", "xterm")
            .env_remove("VISUAL")
            .env("EDITOR", editor)
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let terminal = File::from(terminal);
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let (mut input, sink) = (terminal.try_clone().unwrap(), Arc::clone(&written));
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // An error is its end: the other side of the terminal was closed.
            while let Ok(n @ 1..) = input.read(&mut bytes) {
                sink.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        Self { child, terminal, written, reader: Some(reader) }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// Waits until the screen satisfies this; returns it.
    #[track_caller]
    fn until(&self, what: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let screen = screen(&self.text());
            if what(&screen) {
                return screen;
            }
            assert!(Instant::now() < deadline, "never shown:\n{screen}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    #[track_caller]
    fn until_shown(&self, text: &str) -> String {
        self.until(|screen| screen.contains(text))
    }

    /// Waits for its end; returns the exit code and what it left on the main screen.
    #[track_caller]
    fn ended(&mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        // All that it wrote has been read only when the other side of the terminal is closed.
        self.reader.take().expect("it ends once").join().unwrap();
        let text = self.text();
        let Some((_, rest)) = text.rsplit_once("\u{1b}[?1049l") else {
            panic!("the screen was not given back: {text:?}")
        };
        (code, rest.to_owned())
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A GET request to the admin API of the running instance.
async fn api(home: &Home, path: &str) -> Value {
    let instance: Value = serde_json::from_str(&home.origin_file("instance.json")).unwrap();
    let (admin, token) = (instance["admin"].as_str().unwrap(), home.origin_file("admin.token"));
    let mut wire = Wire::connect(admin.parse::<SocketAddr>().unwrap()).await.unwrap();
    let fields = format!("Host: {admin}\r\nAuthorization: Bearer {}\r\nConnection: close", token.trim());
    wire.send(format!("GET /api/v1{path} HTTP/1.1\r\n{fields}\r\n\r\n")).await.unwrap();
    serde_json::from_str(&wire.answer().await.unwrap().text()).unwrap()
}

/// What a terminal shows after these bytes: cursor movements and clearing are followed, styles are not.
fn screen(written: &str) -> String {
    let mut cells = vec![vec![' '; COLUMNS]; ROWS];
    let (mut x, mut y) = (0, 0);
    let mut chars = written.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' if chars.next_if_eq(&'[').is_some() => {
                let mut arguments = String::new();
                let end = loop {
                    match chars.next() {
                        Some(c @ '@'..='~') => break c,
                        Some(c) => arguments.push(c),
                        None => break ' ',
                    }
                };
                match end {
                    'H' => {
                        let mut numbers = arguments.split(';').map(|n| n.parse::<usize>().unwrap_or(1) - 1);
                        (y, x) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
                    }
                    'J' => cells = vec![vec![' '; COLUMNS]; ROWS],
                    _ => {}
                }
            }
            // An operating system command, up to the bell.
            '\u{1b}' => while chars.next().is_some_and(|c| c != '\u{7}') {},
            c => {
                if let Some(cell) = cells.get_mut(y).and_then(|row| row.get_mut(x)) {
                    *cell = c;
                }
                x += 1;
            }
        }
    }
    cells.iter().map(|row| row.iter().collect::<String>().trim_end().to_owned() + "\n").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn top_shows_flows_as_they_happen_filters_and_opens_them() {
    let home = Home::filled().await;
    let running = home.start();
    let mut top = Top::start(&home, &[]);
    let shown = top.until_shown("/sse?count=3");
    assert!(shown.contains("HOST AND PATH") && shown.contains(" 404 ") && shown.contains("all flows"), "{shown}");
    running.get("/status/418").await;
    top.until(|screen| screen.contains("/status/418") && screen.contains(" 418 "));

    top.press("/status:x");
    top.until(|screen| screen.contains("column 8"));
    top.press("\u{7f}404");
    top.until(|screen| !screen.contains("column 8"));
    top.press("\r");
    let shown = top.until(|screen| !screen.contains("/status/418") && screen.contains("/status/404"));
    assert!(shown.contains("1 shown"), "{shown}");

    // A flow outside the filter does not appear, one within it does.
    running.get("/status/418?b").await;
    running.get("/status/404?b").await;
    let shown = top.until_shown("/status/404?b");
    assert!(!shown.contains("418"), "{shown}");

    top.press("/\u{15}method:POST\r");
    top.until(|screen| screen.contains("/echo") && !screen.contains("404"));
    top.press("\r2");
    let shown = top.until_shown("\"b\": \"needle\"");
    assert!(shown.contains("POST /echo HTTP/1.1") && shown.contains("Content-Type: application/json"), "{shown}");
    top.press("4");
    top.until_shown("first byte");
    top.press("y");
    top.until_shown("copied as curl");
    top.press("q");
    let (code, rest) = top.ended();
    assert_eq!(code, Some(0));
    assert!(top.text().contains("\u{1b}]52;c;") && rest.contains("curl") && rest.contains("/echo"), "{rest}");
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_decides_pending_requests() {
    let home = Home::new().await;
    // A host name, because local addresses need no approval.
    let config = "[approvals]\nmode = \"ask\"\n[upstream]\nhosts = { \"held.test\" = [\"127.0.0.1\"] }\n";
    std::fs::write(home.path("c.toml"), config).unwrap();
    let running = home.start_with(&["-c", &home.path("c.toml")]);
    let mut top = Top::start(&home, &[]);
    top.until_shown("all flows");
    for (key, status) in [("a", 204), ("d", 403)] {
        let (proxy, url) = (running.proxy, format!("http://held.test:{}/status/204", home.origin.port()));
        let client = tokio::spawn(async move { client::get_through(proxy, &url).await.unwrap().status });
        top.until_shown("1 held");
        top.press("h");
        top.until(|screen| screen.contains("1 pending") && screen.contains("GET http://held.test"));
        top.press(key);
        assert_eq!(client.await.unwrap(), status);
        top.until(|screen| screen.contains("nothing is pending") && !screen.contains("held"));
        top.press("h");
        top.until_shown("HOST AND PATH");
    }
    // A signal gives the terminal back as well.
    assert!(Command::new("kill").args(["-TERM", &top.child.id().to_string()]).status().unwrap().success());
    assert_eq!(top.ended().0, Some(0));
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_holds_requests_like_a_flow_and_changes_them_in_the_editor() {
    let home = Home::new().await;
    let running = home.start();
    let mut top = Top::start_with_editor(&home, "sed -i -e s/first/second/ -e s#^Accept:.*#X-Added:1#");
    running.get("/status/201").await;
    top.until_shown("/status/201");
    running.post("/echo?n=1", "Accept: a\r\n", "the first body").await;
    top.until_shown("/echo?n=1");
    top.press("B");
    // What is said may be cut by the width of the screen.
    top.until_shown("added to ");
    let rules = api(&home, "/rules").await;
    assert!(rules["rules"][0]["when"].as_str().unwrap().contains("/echo"), "{rules}");

    // The query is not a part of it, another path is not held.
    running.get("/status/202").await;
    let (proxy, url) = (running.proxy, home.origin.url("/echo?n=2"));
    let client = tokio::spawn(async move {
        let fields = "Accept: a\r\nContent-Type: text/plain\r\nConnection: close\r\n";
        let mut wire = Wire::connect(proxy).await.unwrap();
        let host = url.trim_start_matches("http://").split('/').next().unwrap();
        let body = "the first body";
        let length = body.len();
        wire.send(format!("POST {url} HTTP/1.1\r\nHost: {host}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"))
            .await
            .unwrap();
        wire.answer().await.unwrap().text()
    });
    top.press("h");
    top.until(|screen| screen.contains("1 pending") && screen.contains("the first body"));
    top.press("e");
    let answer = client.await.unwrap();
    assert!(answer.contains("the second body"), "{answer}");
    top.until(|screen| screen.contains("nothing is pending") && screen.contains("changed, and continues"));
    let held = api(&home, "/flows?query=path:/echo&limit=1").await;
    let flow = api(&home, &format!("/flows/{}", held["flows"][0]["id"].as_str().unwrap())).await;
    let fields = flow["request"]["headers"].to_string();
    assert!(fields.contains("X-Added") && !fields.contains("\"Accept\""), "{fields}");

    top.press("h");
    top.until(|screen| screen.contains("HOST AND PATH") && screen.contains("/echo?n=2"));
    top.press("GB");
    top.until_shown("removed from ");
    assert_eq!(api(&home, "/rules").await["rules"].as_array().map(Vec::len), Some(0));
    top.press("q");
    assert_eq!(top.ended().0, Some(0));
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_waits_for_the_next_instance_when_its_own_has_gone() {
    let home = Home::new().await;
    let running = home.start();
    let mut top = Top::start(&home, &[]);
    running.get("/status/201").await;
    top.until_shown("/status/201");
    running.stop();
    top.until_shown("instance gone");
    let running = home.start();
    top.until(|screen| !screen.contains("instance gone"));
    running.get("/status/202").await;
    top.until(|screen| screen.contains("/status/201") && screen.contains("/status/202"));
    top.press("p");
    top.until_shown("paused");
    running.get("/status/203").await;
    top.press("p");
    top.until_shown("/status/203");
    top.press("q");
    assert_eq!(top.ended().0, Some(0));
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn control_characters_of_peers_never_reach_the_terminal() {
    let home = Home::new().await;
    let running = home.start();
    let mut top = Top::start(&home, &[]);
    top.until_shown("all flows");
    // ESC and the eight-bit CSI, in a body and in the query of a URL.
    let body = format!("{}\nbe\u{1b}]0;owned\u{7}low\u{9b}5n", "plain text ".repeat(20));
    running.post("/echo?\u{9b}31m", "Content-Type: text/plain\r\n", &body).await;
    top.until_shown("/echo");
    top.press("\r2");
    let shown = top.until_shown("]0;owned");
    assert!(shown.contains("be\\u{1b}]0;owned\\u{7}low"), "{shown}");
    assert!(!top.text().contains(['\u{7}', '\u{9b}']) && !top.text().contains("\u{1b}]0"), "{:?}", top.text());
    top.press("q");
    assert_eq!(top.ended().0, Some(0));
    running.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn top_needs_a_terminal_and_an_instance() {
    let home = Home::new().await;
    let said: Said = home.command(&["top"]).stdin(Stdio::null()).output().unwrap().into();
    assert!(said.fails(2).contains("not a terminal"));
    let mut top = Top::start(&home, &[]);
    assert_eq!(top.child.wait().unwrap().code(), Some(3), "{}", top.text());
}
