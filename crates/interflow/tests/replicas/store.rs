//! What each replica records, all show; a crash of one of them, of the database or of the bucket loses nothing.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use interflow_testkit::object_server::{ObjectServer, s3_error};
use interflow_testkit::{Ending, Origin, PostgresDatabase, PostgresServer, Reply, TestCa, Wire, client, until};
use serde_json::{Value, json};

use crate::replica::{Replica, interflow};

pub fn start(url: &str) -> Replica {
    start_with(url, "", Vec::new())
}

/// With further keys of `[record]`, and variables of the environment.
pub fn start_with(url: &str, more: &str, variables: Vec<(String, String)>) -> Replica {
    let config = format!("[admin]\npublic_metrics = true\n[record]\nstore = \"{url}\"\n{more}");
    Replica::start_in(tempfile::tempdir().unwrap(), &config, variables)
}

impl Replica {
    pub fn count(&self, query: &str) -> u64 {
        self.cli(&["flows", "count", query]).trim().parse().unwrap()
    }

    pub fn status(&self) -> Value {
        self.json(&["status", "--format", "json"])["shared_store"].clone()
    }
}

pub fn database() -> Option<PostgresDatabase> {
    // A server of its own: others share theirs, and this test stops it.
    Some(PostgresServer::new()?.database())
}

/// Sends requests one after the other through a proxy; all must be answered.
pub async fn send(proxy: SocketAddr, origin: &Origin, name: &str, requests: std::ops::Range<u32>) {
    for i in requests {
        let answer = client::get_through(proxy, &origin.url(&format!("/{name}/{i}"))).await.expect("answered");
        assert_eq!(answer.status, 200);
    }
}

/// Flows in the database whose URL holds a text, and how many different URLs they have.
pub fn stored(database: &PostgresDatabase, text: &str) -> (u64, u64) {
    let sql = format!("SELECT count(*) || ' ' || count(DISTINCT url) FROM interflow.flows WHERE url LIKE '%{text}%'");
    let found = database.sql(&sql);
    let (all, distinct) = found.trim().split_once(' ').unwrap();
    (all.parse().unwrap(), distinct.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_show_the_flows_of_all_and_a_crash_loses_none() {
    let Some(database) = database() else { return };
    let large = "text ".repeat(20_000);
    let origin = Origin::http().answering(move |_| Reply::ok(large.clone())).start().await;
    let (one, mut two) = (start(&database.url()), start(&database.url()));

    // Each shows what the other recorded, bodies too.
    send(one.proxy, &origin, "one", 0..20).await;
    send(two.proxy, &origin, "two", 0..20).await;
    until("both replicas show all", || (one.count("") == 40 && two.count("") == 40).then_some(()));
    assert_eq!(one.count("path:/two status:200"), 20);
    assert!(two.cli(&["flows", "show", "last", "--format", "raw"]).contains("text text text"));

    // PostgreSQL crashes while requests go on: each is answered, and is in the record once.
    let server = database.server().clone();
    let (proxies, origin) = ([one.proxy, two.proxy], std::sync::Arc::new(origin));
    let traffic: Vec<_> = proxies
        .into_iter()
        .zip(["down-a", "down-b"])
        .map(|(proxy, name)| {
            let origin = origin.clone();
            tokio::spawn(async move { send(proxy, &origin, name, 0..150).await })
        })
        .collect();
    server.kill();
    for task in traffic {
        task.await.unwrap();
    }
    let waiting = until("the replica says what waits", || one.status()["error"].as_str().map(str::to_owned));
    assert!(waiting.contains("check that the server is up"), "{waiting}");
    let refused = one.command(&["flows", "list"]).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("the shared store") && !said.contains("testkit-secret"),
        "{said}"
    );

    // A replica is killed meanwhile, with flows on its disk only; it starts when the server is back.
    two.cli(&["flows", "stats"]);
    until("everything is on the disk", || (two.status()["waiting_flows"].as_u64()? >= 100).then_some(()));
    std::thread::sleep(Duration::from_millis(500));
    two.kill();
    server.start();
    two.run();
    until("every flow is in the database once", || {
        (stored(&database, "/down-a/") == (150, 150) && stored(&database, "/down-b/") == (150, 150)).then_some(())
    });
    assert_eq!(one.count("path:/down-b"), 150);
    until("nothing waits", || (two.status()["waiting_flows"].as_u64()? == 0).then_some(()));
    assert!(two.status()["error"].is_null());

    // Annotated at one, seen at the other; deleted at one, gone at both.
    let id = one.cli(&["flows", "list", "path:/two/7", "--format", "jsonl"]);
    let id = serde_json::from_str::<Value>(&id).unwrap()["id"].as_str().unwrap().to_owned();
    one.cli(&["flows", "tag", &id, "seen"]);
    assert_eq!(two.count("tag:seen"), 1);
    one.cli(&["flows", "prune", "path:/one", "--yes"]);
    assert_eq!((one.count("path:/one"), two.count("path:/one")), (0, 0));

    // Stopped, the command line still reads the shared store; and it can be copied away and back.
    two.stop();
    assert_eq!(two.count("path:/down"), 300);
    let text = two.cli(&["record", "copy", &database.url(), "copied"]);
    assert!(text.starts_with("320 flows copied"), "{text}");
    let again = two.cli(&["record", "copy", "copied", &database.url()]);
    assert!(again.starts_with("0 flows copied, 320 there already"), "{again}");
    let other = server.database();
    let away = two.cli(&["record", "copy", "copied", &other.url()]);
    assert!(away.starts_with("320 flows copied"), "{away}");
    assert_eq!(stored(&other, "/down-a/"), (150, 150));
}

/// Peak memory of a process, in bytes.
fn peak_memory(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_are_in_the_bucket_and_neither_its_faults_nor_a_crash_lose_a_flow() {
    let Some(database) = database() else { return };
    const FINE: u8 = 0;
    const OVERLOADED: u8 = 1;
    const SILENT: u8 = 2;
    let state = Arc::new(AtomicU8::new(FINE));
    let fault = Arc::clone(&state);
    let bucket = ObjectServer::with_faults(move |_| match fault.load(Ordering::SeqCst) {
        OVERLOADED => Some(s3_error(503, "SlowDown")),
        SILENT => Some(Reply::nothing(Ending::Stall)),
        _ => None,
    })
    .await;
    const LARGE: usize = 160 << 20;
    let origin = Origin::http().answering(|request| match request.target.ends_with("/large") {
        true => Reply::ok(
            (0..LARGE / 8)
                .flat_map(|i| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes())
                .collect::<Vec<_>>(),
        ),
        false => Reply::ok(format!("{} ", request.target).repeat(2_000)),
    });
    let origin = Arc::new(origin.start().await);
    let more = "objects = \"s3://bucket/traffic\"\nlarge_bodies = \"full\"\n";
    let replica = || start_with(&database.url(), more, bucket.variables());
    let (one, mut two) = (replica(), replica());

    // Each shows what the other recorded; bodies are in the bucket, and nowhere else.
    send(one.proxy, &origin, "one", 0..20).await;
    send(two.proxy, &origin, "two", 0..20).await;
    until("both replicas show all", || (one.count("") == 40 && two.count("") == 40).then_some(()));
    until("all are moved", || (stored(&database, "") == (40, 40)).then_some(()));
    assert!(one.cli(&["flows", "show", "last", "--format", "raw"]).contains("/two/19 /two/19"));
    assert_eq!(one.count("body:\"/two/7 /two/7 /two\""), 1);
    assert!(bucket.objects().keys().all(|name| name.starts_with("traffic/bodies/")));
    assert_eq!(database.sql("SELECT count(*) FROM interflow.bodies WHERE bytes IS NOT NULL").trim(), "0");
    assert_eq!(one.status()["objects"], "s3://bucket/traffic");

    // While it is overloaded, requests are answered and lists work; a replica says what waits, and is killed with it.
    state.store(OVERLOADED, Ordering::SeqCst);
    send(one.proxy, &origin, "busy-a", 0..40).await;
    send(two.proxy, &origin, "busy-b", 0..40).await;
    for replica in [&one, &two] {
        let error = until("the replica says what waits", || replica.status()["error"].as_str().map(str::to_owned));
        assert!(error.contains("record.objects: s3://bucket/traffic"), "{error}");
    }
    let doctor = one.command(&["doctor", "--json"]).output().unwrap();
    let findings: Value = serde_json::from_slice(&doctor.stdout).unwrap();
    let finding = findings.as_array().unwrap().iter().find(|f| f["what"] == "shared store").unwrap();
    assert!(
        finding["state"] == "bad" && finding["text"].as_str().unwrap().contains("s3://bucket/traffic"),
        "{finding}"
    );
    assert_eq!((one.count("path:/one"), two.count("path:/busy-b")), (20, 40));
    assert_eq!(stored(&database, "/busy-"), (0, 0));
    two.kill();
    state.store(SILENT, Ordering::SeqCst);
    two.run();
    send(two.proxy, &origin, "silent", 0..10).await;
    state.store(FINE, Ordering::SeqCst);
    for (name, flows) in [("/busy-a/", 40), ("/busy-b/", 40), ("/silent/", 10)] {
        until("every flow is in the database once", || (stored(&database, name) == (flows, flows)).then_some(()));
    }
    until("nothing waits", || (two.status()["waiting_flows"].as_u64()? == 0).then_some(()));
    assert!(two.status()["error"].is_null());
    assert_eq!(one.count("body:\"/silent/3 /silent/3\""), 1);

    // A large body passes through a memory that it would not fit into.
    let pid = one.pid();
    let before = peak_memory(pid);
    let large = client::get_through(one.proxy, &origin.url("/large")).await.unwrap();
    until("it is moved", || (stored(&database, "/large") == (1, 1)).then_some(()));
    let more = peak_memory(pid) - before;
    assert!(more < (LARGE as u64) * 2 / 3, "{} MiB more", more >> 20);
    let done = two.command(&["flows", "show", "last", "--format", "raw"]).output().unwrap();
    assert!(done.status.success() && done.stdout.ends_with(&large.body), "{} bytes", done.stdout.len());

    // Copied away with their bodies; deleted with their objects.
    let text = two.cli(&["record", "copy", &database.url(), "copied"]);
    assert!(text.starts_with("131 flows copied"), "{text}");
    let other = database.server().database();
    let elsewhere = "s3://bucket/copy";
    let away = two.cli(&["record", "copy", "copied", &other.url(), "--objects", elsewhere]);
    assert!(away.starts_with("131 flows copied"), "{away}");
    assert!(bucket.objects().keys().any(|name| name.starts_with("copy/bodies/")));
    one.cli(&["flows", "prune", "--all", "--yes"]);
    assert!(bucket.objects().keys().all(|name| name.starts_with("copy/")), "{:?}", bucket.objects().keys());
    assert_eq!(bucket.unfinished_uploads(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_of_bodies_that_cannot_be_used_ends_the_start_with_the_remedy() {
    let Some(database) = database() else { return };
    let bucket = ObjectServer::start().await;
    let url = database.url();
    let attempt = |keys: &str, is_found_by_check: bool, expected: &str| {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("c.toml"), format!("[record]\n{keys}\n")).unwrap();
        let any = "127.0.0.1:0";
        let start = ["run", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
        for words in [&start[..], &["config", "check"]] {
            let done = interflow(home.path(), words).envs(bucket.variables()).output().unwrap();
            let said = String::from_utf8_lossy(&done.stderr);
            if words[0] == "run" || is_found_by_check {
                assert!(!done.status.success() && said.contains(expected), "{keys}: {words:?}: {said}");
            } else {
                assert!(done.status.success(), "{keys}: {words:?}: {said}");
            }
            assert!(!said.contains("hush"), "{said}");
        }
    };
    attempt("objects = \"s3://bucket\"", true, "record.objects: set record.store too");
    for (objects, is_found_by_check, expected) in [
        ("ftp://x", true, "write s3://bucket/prefix"),
        ("s3://id:hush@bucket", true, "come from the environment"),
        ("s3://other", false, "the bucket does not exist"),
    ] {
        attempt(&format!("store = \"{url}\"\nobjects = \"{objects}\""), is_found_by_check, expected);
    }
    let replica = start_with(&url, "objects = \"s3://bucket\"\n", bucket.variables());
    let origin = Origin::http().answering(|_| Reply::ok("text ".repeat(2_000))).start().await;
    send(replica.proxy, &origin, "a", 0..1).await;
    until("it is moved", || (stored(&database, "/a/") == (1, 1)).then_some(()));
    attempt(&format!("store = \"{url}\""), false, "set record.objects = \"s3://bucket\"");
    attempt(&format!("store = \"{url}\"\nobjects = \"s3://bucket/else\""), false, "are in s3://bucket: set it to that");
}

/// Sends the next prompt of a conversation, with all that was said before.
async fn prompt(proxy: SocketAddr, provider: &Origin, history: &mut Vec<Value>) {
    history.push(json!({"role": "user", "content": format!("prompt {}", history.len())}));
    let body = json!({"model": "claude-x", "max_tokens": 50, "messages": history,
        "metadata": {"user_id": "u_session_one-of-many"}});
    let (url, body) = (provider.url("/v1/messages"), body.to_string());
    let head = format!(
        "POST {url} HTTP/1.1\r\nHost: {}\r\nX-Api-Key: k\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        provider.authority(),
        body.len()
    );
    let mut wire = Wire::connect(proxy).await.unwrap();
    wire.send(head + &body).await.unwrap();
    let answer = wire.answer().await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let reply: Value = serde_json::from_slice(&answer.body).unwrap();
    history.push(json!({"role": "assistant", "content": reply["content"]}));
}

/// How many calls each conversation has.
fn calls(replica: &Replica) -> Vec<u64> {
    let text = replica.cli(&["conversations", "list", "--format", "jsonl"]);
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.map(|row| row["used"]["exchanges"].as_u64().unwrap()).collect()
}

pub fn instances(replica: &Replica) -> Vec<Value> {
    replica.json(&["status", "--format", "json"])["instances"].as_array().cloned().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_over_replicas_is_one_conversation_though_the_one_that_indexes_is_killed() {
    let Some(database) = database() else { return };
    let (provider, _) = interflow_testkit::llm::start().await;
    let mut replicas = [start(&database.url()), start(&database.url())];
    let mut history = Vec::new();
    for turn in 0..6 {
        prompt(replicas[turn % 2].proxy, &provider, &mut history).await;
    }
    for replica in &replicas {
        until("one conversation has all calls", || (calls(replica) == [6]).then_some(()));
    }
    // Both are listed at both, with the same configuration; one of them indexes.
    let indexing = until("one replica indexes", || {
        let list = instances(&replicas[0]);
        let same = list.len() == 2 && list[0]["config_digest"] == list[1]["config_digest"];
        let own = list.iter().find(|i| i["indexes_conversations"] == true)?["own"] == true;
        same.then_some(usize::from(!own))
    });
    assert_eq!(instances(&replicas[1]).iter().filter(|i| i["own"] == true).count(), 1);

    // It is killed between two turns; the other one takes over.
    prompt(replicas[indexing].proxy, &provider, &mut history).await;
    until("the turn is on the disk", || (replicas[indexing].count("") >= 7).then_some(()));
    replicas[indexing].kill();
    let other = &replicas[1 - indexing];
    for _ in 0..2 {
        prompt(other.proxy, &provider, &mut history).await;
    }
    until("the other replica indexes", || {
        let indexes = instances(other).iter().any(|i| i["own"] == true && i["indexes_conversations"] == true);
        (indexes && calls(other).iter().sum::<u64>() >= 8).then_some(())
    });
    // What it still had on its disk takes its place when it is back.
    replicas[indexing].run();
    for replica in &replicas {
        until("one conversation has all calls", || (calls(replica) == [9]).then_some(()));
    }
    let before = replicas[0].cli(&["conversations", "show", "last", "--format", "json"]);
    replicas[0].stop();
    assert_eq!(replicas[0].cli(&["conversations", "show", "last", "--format", "json"]), before);
    until("a stopped replica leaves the list", || {
        (instances(&replicas[1]).iter().all(|i| i["silent"] == true || i["own"] == true)).then_some(())
    });
}

#[test]
fn a_store_that_cannot_be_used_ends_the_start_with_the_remedy() {
    let Some(database) = database() else { return };
    let attempt = |store: &str, expected: &str| {
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join("c.toml"), format!("[record]\nstore = \"{store}\"\n")).unwrap();
        let any = "127.0.0.1:0";
        let words = ["run", "--listen-proxy", any, "--listen-gateway", any, "--listen-admin", any];
        let done = interflow(home.path(), &words).output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(!done.status.success() && said.contains(expected), "{store}: {said}");
        assert!(!said.contains("testkit-secret") && !said.contains("wrong-secret"), "{said}");
    };
    let url = database.url();
    attempt("postgres://u@127.0.0.1:1/d", "check that the server is up");
    attempt(&database.url_for("interflow", "wrong-secret"), "check user and password in record.store");
    attempt(&url.replace(&format!("/{}", database.name()), "/nowhere"), "create it: CREATE DATABASE \"nowhere\"");
    attempt(&format!("{url}?sslmode=require"), "TLS");
    attempt("mysql://u:wrong-secret@h/d", "write it as postgres://USER:PASSWORD@HOST");
    attempt("env:INTERFLOW_NO_SUCH_STORE", "INTERFLOW_NO_SUCH_STORE is not set");
    database.sql("CREATE ROLE reader LOGIN PASSWORD 'plain'");
    attempt(&database.url_for("reader", "plain"), "GRANT CREATE ON DATABASE");
    // A schema that a newer build has left.
    let replica = start(&url);
    drop(replica);
    database.sql("INSERT INTO interflow.refinery_schema_history VALUES (99, 'later', '2030-01-01T00:00:00Z', '1')");
    // It is compatible, as that of the next release is: replicas of both run side by side.
    drop(start(&url));
    database.sql("UPDATE interflow.schema_compatibility SET oldest = 99");
    attempt(&url, "schema version 99");
}

/// Certificates for TLS with PostgreSQL, as files.
struct Certificates {
    dir: tempfile::TempDir,
    ca: TestCa,
}

impl Certificates {
    fn new() -> Self {
        let (dir, ca, other) = (tempfile::tempdir().unwrap(), TestCa::new(), TestCa::new());
        let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        write("ca.pem", ca.pem());
        write("other.pem", other.pem());
        for (name, ca) in [("client", &ca), ("stranger", &other)] {
            let (chain, key) = ca.leaf_pem(&["client.test"]);
            write(&format!("{name}.crt"), &chain);
            write(&format!("{name}.key"), &key);
        }
        Self { dir, ca }
    }

    /// Replaces `@NAME` by the path of a file.
    fn fill(&self, parameters: &str) -> String {
        parameters.replace('@', &format!("{}/", self.dir.path().display()))
    }
}

#[test]
fn tls_is_as_the_url_demands_it() {
    let files = Certificates::new();
    let Some(server) = PostgresServer::with_tls(&files.ca, &["localhost", "127.0.0.1"]) else { return };
    let database = server.database();
    let count = |url: &str, parameters: &str| {
        let home = tempfile::tempdir().unwrap();
        let url = format!("{url}?{}", files.fill(parameters));
        std::fs::write(home.path().join("c.toml"), format!("[record]\nstore = \"{url}\"\n")).unwrap();
        let done = interflow(home.path(), &["flows", "count", ""]).output().unwrap();
        match done.status.success() {
            true => Ok(String::from_utf8(done.stdout).unwrap().trim().to_owned()),
            false => Err(String::from_utf8(done.stderr).unwrap()),
        }
    };
    // The tables.
    let plain = database.url();
    drop(start(&format!("{plain}?sslmode=prefer")));
    let by_tls = || {
        database.sql("SELECT count(*) FROM pg_stat_ssl s JOIN pg_stat_activity USING (pid) WHERE NOT s.ssl AND client_addr IS NOT NULL")
    };
    for good in [
        "sslmode=disable",
        "sslmode=prefer",
        "sslmode=require",
        "sslmode=verify-ca&sslrootcert=@ca.pem",
        "sslmode=verify-full&sslrootcert=@ca.pem",
        "sslmode=require&sslrootcert=@ca.pem",
    ] {
        assert_eq!(count(&plain, good).as_deref(), Ok("0"), "{good}");
    }
    assert_eq!(by_tls(), "0");
    for (bad, said) in [
        ("sslmode=verify-full&sslrootcert=@other.pem", "certificate"),
        ("sslmode=verify-ca&sslrootcert=@other.pem", "certificate"),
        // The root decides, as in libpq.
        ("sslmode=require&sslrootcert=@other.pem", "certificate"),
        ("sslmode=verify-full&sslrootcert=@absent.pem", "absent.pem"),
        ("sslmode=verify-full", "certificate"),
    ] {
        let error = count(&plain, bad).unwrap_err();
        assert!(error.contains(said) && !error.contains("testkit-secret"), "{bad}: {error}");
    }

    // A user that needs a certificate.
    let user = PostgresServer::CERTIFIED;
    database.sql(&format!("CREATE ROLE {user} LOGIN PASSWORD 'p' SUPERUSER"));
    let certified = database.url_for(user, "p");
    let with = |name: &str| format!("sslmode=verify-full&sslrootcert=@ca.pem&sslcert=@{name}.crt&sslkey=@{name}.key");
    assert_eq!(count(&certified, &with("client")).as_deref(), Ok("0"));
    for bad in ["sslmode=verify-full&sslrootcert=@ca.pem".to_owned(), with("stranger")] {
        count(&certified, &bad).unwrap_err();
    }

    // A server with another name in its certificate.
    let Some(renamed) = PostgresServer::with_tls(&files.ca, &["db.test"]) else { return };
    let database = renamed.database();
    drop(start(&format!("{}?sslmode=disable", database.url())));
    assert_eq!(count(&database.url(), "sslmode=verify-ca&sslrootcert=@ca.pem").as_deref(), Ok("0"));
    let error = count(&database.url(), "sslmode=verify-full&sslrootcert=@ca.pem").unwrap_err();
    assert!(error.contains("certificate"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_cut_off_says_so_and_a_frozen_one_stops_nobody() {
    let Some(database) = database() else { return };
    let origin = Origin::http().answering(|_| Reply::ok("fine")).start().await;
    let (one, two) = (start(&database.url()), start(&database.url()));
    send(one.proxy, &origin, "one", 0..3).await;
    until("both show all", || (two.count("") == 3).then_some(()));
    let get = async |path: &str| one.send(one.admin, &format!("GET {path} HTTP/1.1\r\n"), "").await;
    let ready = async || get("/readyz").await;
    assert_eq!(&*ready().await.body, b"ok\n");
    let server = database.server().clone();
    server.freeze();
    send(one.proxy, &origin, "frozen", 0..3).await;
    let deadline = Instant::now() + Duration::from_secs(120);
    while !ready().await.body.starts_with(b"ok, but flows wait") {
        assert!(Instant::now() < deadline, "the replica does not say that it is cut off");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(ready().await.status, 200);
    // The figures of this replica do not wait for the server.
    let begun = Instant::now();
    let metrics = String::from_utf8(get("/metrics").await.body.to_vec()).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(metrics.contains("interflow_shared_store_up 0\n"), "{metrics}");
    assert!(metrics.contains("interflow_shared_store_waiting_flows 3\n"), "{metrics}");
    server.thaw();
    until("what waited is moved", || (stored(&database, "/frozen/") == (3, 3)).then_some(()));
    assert_eq!(&*ready().await.body, b"ok\n");

    // A process that is stopped where it is: the other one records and indexes.
    let pid = two.pid().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    send(one.proxy, &origin, "alone", 0..3).await;
    until("the other replica goes on", || (stored(&database, "/alone/") == (3, 3)).then_some(()));
    signal("-CONT");
    until("it follows", || (two.count("path:/alone") == 3).then_some(()));
    // Each has its own name, and both the same configuration.
    assert_eq!(instances(&one).len(), 2);
}
