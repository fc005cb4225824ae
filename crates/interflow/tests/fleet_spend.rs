//! Spending of two replicas with one PostgreSQL: reports add up both, and an outage of the database loses nothing.
#![cfg(unix)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, PostgresDatabase, PostgresServer, Wire, llm};
use serde_json::Value;

/// Longer than anything takes on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

const CHAT: &str = r#"{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}"#;

/// One replica with a data folder of its own, ended when dropped.
struct Replica {
    home: tempfile::TempDir,
    child: Child,
    gateway: SocketAddr,
    admin: SocketAddr,
}

impl Replica {
    fn start(name: &str, store: &str, provider: &Origin) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), name, store, provider)
    }

    /// `store` is a line of `[record]`, or empty.
    fn start_in(home: tempfile::TempDir, name: &str, store: &str, provider: &Origin) -> Self {
        let any = "127.0.0.1:0";
        std::fs::write(home.path().join("prices.json"), r#"{"prices": {"gpt-4o": {"input": 1000, "output": 0}}}"#)
            .unwrap();
        let config = format!(
            "[proxy]\nlisten = [\"{any}\"]\n[gateway]\nlisten = [\"{any}\"]\n[admin]\nlisten = \"{any}\"\n[record]\n{store}\n\
             [fleet]\nname = {name:?}\n[quota]\nprices = {:?}\n[keys]\nrequire_virtual_key = true\n[keys.provider]\nlocalhost = \"sk-real\"\n\
             [[gateway.route]]\npath = \"/\"\nto = {:?}\n",
            home.path().join("prices.json").display().to_string(),
            provider.url("")
        );
        std::fs::write(home.path().join("c.toml"), config).unwrap();
        let _ = std::fs::remove_file(home.path().join("instance.json"));
        let log = std::fs::File::create(home.path().join("log")).unwrap();
        let mut child = interflow(home.path(), &["run"]).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let info: Value = until("the replica starts", || {
            let log = || std::fs::read_to_string(home.path().join("log")).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "{}", log());
            serde_json::from_slice(&std::fs::read(home.path().join("instance.json")).ok()?).ok()
        });
        let address = |name: &str| info[name].as_str().unwrap().parse().unwrap();
        Self { gateway: address("gateway"), admin: address("admin"), home, child }
    }

    /// Ends the process as a crash does.
    fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.home, tempfile::tempdir().unwrap())
    }

    /// Ends the process in good order.
    fn stop(mut self) -> tempfile::TempDir {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
        std::mem::replace(&mut self.home, tempfile::tempdir().unwrap())
    }

    async fn send(&self, to: SocketAddr, head: &str, body: &str) -> Answer {
        let mut wire = Wire::connect(to).await.unwrap().patience(Some(PATIENCE));
        let length = body.len();
        wire.send(format!("{head}Host: {to}\r\nContent-Length: {length}\r\n\r\n{body}")).await.unwrap();
        wire.answer().await.unwrap()
    }

    /// Sends requests to the model, one after another.
    async fn chat(&self, key: &str, times: usize) {
        for _ in 0..times {
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nContent-Type: application/json\r\nAuthorization: Bearer {key}\r\n"
            );
            let deadline = Instant::now() + PATIENCE;
            loop {
                let answer = self.send(self.gateway, &head, CHAT).await;
                if answer.status == 200 {
                    break;
                }
                // The key has not come from the other replica yet.
                assert!(answer.status == 401 && Instant::now() < deadline, "{answer:?}");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }

    async fn spend(&self) -> Answer {
        let token = std::fs::read_to_string(self.home.path().join("admin.token")).unwrap();
        let head = format!("GET /api/v1/spend?by=key HTTP/1.1\r\nAuthorization: Bearer {}\r\n", token.trim());
        self.send(self.admin, &head, "").await
    }

    /// Waits until the report of this replica has this many requests of the key `ann`.
    async fn until_requests(&self, requests: u64) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = self.spend().await;
            assert!(Instant::now() < deadline, "{requests} requests: {answer:?}");
            if answer.status == 200 && answer.json()["total"]["requests"] == requests {
                let report = answer.json();
                assert_eq!(
                    (&report["all_replicas"], &report["rows"][0]["group"]["key"]),
                    (&true.into(), &"ann".into())
                );
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn interflow(home: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interflow"));
    command.arg("--config").arg(home.join("c.toml")).args(words).env("INTERFLOW_DATA_DIR", home).stdin(Stdio::null());
    for name in ["INTERFLOW_CONFIG", "INTERFLOW_TOKEN", "CLICOLOR_FORCE"] {
        command.env_remove(name);
    }
    command
}

fn spend_command(home: &Path) -> Output {
    interflow(home, &["keys", "spend"]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn until<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = seen() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn new_key(home: &Path) -> String {
    let made = interflow(home, &["keys", "add", "--id", "ann"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    text(&made.stdout).trim().to_owned()
}

fn store_line(database: &PostgresDatabase) -> String {
    format!("store = {:?}", database.url())
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_add_up_both_replicas_through_an_outage_and_restarts() {
    let Some(server) = PostgresServer::new() else { return };
    let database = server.database();
    let (store, provider) = (store_line(&database), llm::start().await.0);
    // The first one served requests before there was a database.
    let local = Replica::start("a", "", &provider);
    let key = new_key(local.home.path());
    local.chat(&key, 2).await;
    let home = local.stop();
    assert!(!text(&spend_command(home.path()).stdout).contains("all replicas"));
    let a = Replica::start_in(home, "a", &store, &provider);
    let b = Replica::start("b", &store, &provider);
    a.chat(&key, 3).await;
    b.chat(&key, 4).await;
    for replica in [&a, &b] {
        replica.until_requests(9).await;
    }
    let printed = text(&spend_command(b.home.path()).stdout);
    assert!(printed.contains("ann    9 ") && printed.contains("These are the sums of all replicas."), "{printed}");

    // While the database is away, requests are served, and a report fails rather than show one replica's sums.
    server.stop();
    a.chat(&key, 5).await;
    let begun = Instant::now();
    b.chat(&key, 1).await;
    assert!(begun.elapsed() < PATIENCE, "nothing waits for the database: {:?}", begun.elapsed());
    let refused = a.spend().await;
    assert_eq!((refused.status, &refused.json()["error"]["kind"]), (503, &"shared_store".into()), "{refused:?}");
    let said = spend_command(a.home.path());
    assert!(!said.status.success() && text(&said.stderr).contains("spend of all replicas cannot be read"), "{said:?}");
    // One replica is killed with what it has in files only.
    until("the sums wait in a file", || {
        let files = std::fs::read_dir(a.home.path().join("spend/waiting")).ok()?;
        let mut texts = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
        texts.find(|text| text.contains("\"requests\":8,"))
    });
    let home = a.kill();
    server.start();
    b.until_requests(10).await;
    // A command sends what an ended process left, and so would its next start.
    let printed = text(&spend_command(home.path()).stdout);
    assert!(printed.contains("ann    15 "), "{printed}");
    let a = Replica::start_in(home, "a", &store, &provider);
    a.chat(&key, 1).await;
    for replica in [&a, &b] {
        replica.until_requests(16).await;
    }
    // Of a process that ends in good order, nothing is left to send.
    a.chat(&key, 1).await;
    let home = a.stop();
    assert_eq!(std::fs::read_dir(home.path().join("spend/waiting")).unwrap().count(), 1, "the file of today");
    b.until_requests(17).await;
    assert_eq!(database.sql("SELECT sum(requests) FROM interflow.spend").trim(), "17");
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_kept_for_the_configured_time() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let provider = llm::start().await.0;
    let first = Replica::start("a", &store_line(&database), &provider);
    database.sql(
        "INSERT INTO interflow.spend SELECT current_date - d, 'w', decode(md5(d::text), 'hex'), '{\"provider\":\"x\"}', \
         1, 0, 0, 0, 0, 0, 0 FROM unnest(ARRAY[10, 799, 802, 2000]) AS d",
    );
    let home = first.stop();
    let again = Replica::start_in(home, "a", &store_line(&database), &provider);
    until("old sums are removed", || {
        (database.sql("SELECT count(*) FROM interflow.spend").trim() == "2").then_some(())
    });
    drop(again);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_without_redis_are_reported_as_those_of_each_replica() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let provider = llm::start().await.0;
    let replica = Replica::start("a", &store_line(&database), &provider);
    let home = replica.home.path();
    let log = || std::fs::read_to_string(home.join("log")).unwrap();
    let warning = "hold for each replica by itself";
    let doctor = || text(&interflow(home, &["doctor"]).output().unwrap().stdout);
    assert!(!log().contains(warning) && !doctor().contains(warning), "nothing is limited");
    let made = interflow(home, &["keys", "add", "--id", "bob", "--requests", "5/m"]).output().unwrap();
    assert!(made.status.success(), "{}", text(&made.stderr));
    until("the log says so", || log().contains(warning).then_some(()));
    let found = doctor();
    assert!(found.contains("note  limits: limits and budgets of virtual keys") && found.contains("redis"), "{found}");
    let path = home.join("c.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    let rule = "[[quota.rule]]\nname = \"all\"\nallow = { requests = \"5/m\" }\n";
    let checked = |text_of_file: String| {
        std::fs::write(&path, text_of_file).unwrap();
        let done = interflow(home, &["config", "check"]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        text(&done.stderr)
    };
    assert!(checked(format!("{config}{rule}")).contains("limits and budgets of quota.rule hold for each replica"));
    let redis = "[quota.shared]\nredis = \"redis://127.0.0.1:1\"\n";
    assert!(!checked(format!("{config}{rule}{redis}")).contains(warning));
    assert!(!checked(format!("{config}{rule}").replace("store = ", "dir = \"record\" # ")).contains(warning));
}
