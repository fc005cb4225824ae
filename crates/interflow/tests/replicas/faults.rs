//! Faults of the shared store and of replicas: what was answered to clients is in the record once, or counted as dropped.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use interflow_testkit::{Origin, PostgresDatabase, PostgresServer, Reply, Wire, client, until};

use crate::replica::Replica;
use crate::store::{database, start, start_with, stored};

/// Clients that send one request after the other until they are stopped.
struct Load {
    over: Arc<AtomicBool>,
    /// The path and the time of every answer.
    answered: Arc<Mutex<Vec<(String, Instant)>>>,
    clients: Vec<tokio::task::JoinHandle<()>>,
}

impl Load {
    /// Starts this many clients; without `may_fail`, every request must be answered.
    fn start(proxy: SocketAddr, origin: &Origin, name: &'static str, clients: usize, may_fail: bool) -> Self {
        let (over, answered) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let clients = (0..clients).map(|client| {
            let (over, answered, base) = (Arc::clone(&over), Arc::clone(&answered), origin.url(""));
            tokio::spawn(async move {
                for i in 0.. {
                    if over.load(SeqCst) {
                        return;
                    }
                    let path = format!("/{name}/{client}-{i}");
                    match client::get_through(proxy, &format!("{base}{path}")).await {
                        Ok(answer) if answer.status == 200 => answered.lock().unwrap().push((path, Instant::now())),
                        failed => {
                            assert!(may_fail, "{failed:?}");
                            return;
                        }
                    }
                }
            })
        });
        let clients = clients.collect();
        Self { over, answered, clients }
    }

    fn count(&self) -> usize {
        self.answered.lock().unwrap().len()
    }

    /// Waits for more answers.
    fn more(&self, answers: usize) {
        let expected = self.count() + answers;
        until("requests are answered", || (self.count() >= expected).then_some(()));
    }

    /// Ends the clients once what they asked is answered; returns what was answered.
    async fn end(self) -> Vec<(String, Instant)> {
        self.over.store(true, SeqCst);
        for client in self.clients {
            tokio::time::timeout(Duration::from_secs(60), client).await.expect("answered").unwrap();
        }
        std::mem::take(&mut *self.answered.lock().unwrap())
    }
}

async fn metric(replica: &Replica, name: &str) -> f64 {
    let text = replica.send(replica.admin, "GET /metrics HTTP/1.1\r\n", "").await.text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} in {text}")).parse().unwrap()
}

async fn origin() -> Origin {
    Origin::http().answering(|_| Reply::ok("x".repeat(8000))).start().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_follow_a_failover_to_the_standby() {
    let Some(primary) = PostgresServer::new() else { return };
    let (database, origin) = (primary.database(), origin().await);
    let standby = primary.standby();
    let ports = [primary.port(), standby.port()].map(|port| format!("127.0.0.1:{port}"));
    let url = database.url().replace(&ports[0], &ports.join(","));
    let replicas = [start(&format!("{url}?target_session_attrs=read-write")), start(&url)];
    let load = replicas.each_ref().map(|replica| Load::start(replica.proxy, &origin, "failover", 1, false));
    load.iter().for_each(|load| load.more(50));
    primary.kill();
    // Meanwhile, the standby refuses writes.
    load.iter().for_each(|load| load.more(50));
    let said = until("a replica says why flows wait", || replicas[0].status()["error"].as_str().map(str::to_owned));
    assert!(said.contains(&ports.join(",")) && !said.contains("testkit-secret"), "{said}");
    standby.promote();
    load.iter().for_each(|load| load.more(50));
    let mut answered = 0;
    for load in load {
        answered += load.end().await.len() as u64;
    }
    let promoted = standby.existing_database(database.name());
    // The paths of both replicas are the same.
    until("every flow is in the promoted database once", || {
        (stored(&promoted, "/failover/").0 == answered).then_some(())
    });
    for replica in &replicas {
        assert_eq!(replica.count("path:/failover"), answered, "read from the promoted one");
        until("nothing waits", || (replica.status()["waiting_flows"].as_u64()? == 0).then_some(()));
        assert!(replica.status()["error"].is_null());
    }
    let ids = promoted.sql("SELECT count(DISTINCT id), count(DISTINCT position) FROM interflow.flows");
    assert_eq!(ids, format!("{answered}|{answered}"));
}

const SMALL_SPOOL: &str = "spool_max_bytes = \"256KiB\"\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_makes_clients_wait_and_loses_nothing() {
    let Some(database) = database() else { return };
    let origin = origin().await;
    let more = format!("{SMALL_SPOOL}overflow = \"wait\"\n");
    let replica = start_with(&database.url(), &more, Vec::new());
    let load = Load::start(replica.proxy, &origin, "full", 4, false);
    load.more(20);
    database.server().kill();
    let waiting_since = Mutex::new((load.count(), Instant::now()));
    until("clients wait", || {
        let mut seen = waiting_since.lock().unwrap();
        if load.count() != seen.0 {
            *seen = (load.count(), Instant::now());
        }
        (seen.1.elapsed() > Duration::from_secs(2)).then_some(())
    });
    assert!(replica.status()["waiting_bytes"].as_u64().unwrap() >= 256 << 10, "{}", replica.status());
    assert!(metric(&replica, "interflow_recorder_backpressure_seconds_total").await > 0.5);
    database.server().start();
    load.more(100);
    let answered = load.end().await.len() as u64;
    until("every flow is in the database once", || (stored(&database, "/full/") == (answered, answered)).then_some(()));
    assert_eq!(metric(&replica, "interflow_recorder_dropped_flows_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_spool_drops_and_counts_flows_where_the_operator_wants_that() {
    let Some(database) = database() else { return };
    let origin = origin().await;
    let more = format!("{SMALL_SPOOL}overflow = \"drop\"\n");
    let replica = start_with(&database.url(), &more, Vec::new());
    let load = Load::start(replica.proxy, &origin, "drop", 4, false);
    load.more(20);
    database.server().kill();
    let dropped = "interflow_recorder_dropped_flows_total";
    let deadline = Instant::now() + Duration::from_secs(60);
    while metric(&replica, dropped).await < 50.0 {
        assert!(Instant::now() < deadline, "nothing is dropped");
        load.more(20);
    }
    database.server().start();
    until("there is room again", || (replica.status()["waiting_flows"].as_u64()? < 20).then_some(()));
    load.more(20);
    let answered = load.end().await.len() as u64;
    let dropped = metric(&replica, dropped).await as u64;
    until("every flow is recorded once or counted", || {
        let (flows, distinct) = stored(&database, "/drop/");
        (flows == distinct && flows + dropped == answered).then_some(())
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_that_writes_in_batches_loses_only_the_last_one() {
    let Some(database) = database() else { return };
    let (answered, lost, oldest) = kill_under_load(&database, "synchronous = false\n").await;
    println!("{lost} of {answered} answered flows are lost, the oldest answered {oldest:?} before");
    // 20 ms, and what a busy machine takes to let the writer run.
    assert!(oldest < Duration::from_secs(5), "{oldest:?}");
    assert!(lost < answered / 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_loses_no_request_that_was_answered() {
    let Some(database) = database() else { return };
    for _ in 0..3 {
        let (answered, lost, oldest) = kill_under_load(&database, "").await;
        assert!(lost == 0, "{lost} of {answered} answered flows are lost, the oldest answered {oldest:?} before");
        database.sql("TRUNCATE interflow.flows");
    }
}

/// The address of a server that sends back what it receives.
async fn echo() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((mut io, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = io.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_replica_loses_no_websocket_and_no_tunnel_that_was_open() {
    let Some(database) = database() else { return };
    let origin = Origin::http().start().await;
    let echo = echo().await;
    let mut replica = start_with(&database.url(), "", Vec::new());
    let mut open = Vec::new();
    for i in 0..20 {
        let mut wire = Wire::connect(replica.proxy).await.unwrap();
        let host = origin.authority();
        let upgrade = format!(
            "GET {} HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            origin.url(&format!("/ws?{i}"))
        );
        wire.send(upgrade).await.unwrap();
        assert_eq!(wire.answer().await.unwrap().status, 101);
        // Neither TLS nor HTTP, so that it is passed through.
        let mut tunnel = client::connect_tunnel(replica.proxy, &echo, None).await.unwrap();
        tunnel.send(b"\0echo").await.unwrap();
        assert_eq!(&tunnel.exactly(5).await.unwrap()[..], b"\0echo");
        open.push((wire, tunnel));
    }
    replica.kill();
    replica.run();
    let counts =
        "SELECT count(*) FILTER (WHERE status = 101), count(*) FILTER (WHERE method IS NULL) FROM interflow.flows";
    until("what was open is moved", || (database.sql(counts).trim() == "20|20").then_some(()));
}

/// Kills a replica that answers requests, and starts it again. Returns how many were answered, how many of these are not
/// recorded, and how long before the end the oldest of those was answered.
async fn kill_under_load(database: &PostgresDatabase, more: &str) -> (usize, usize, Duration) {
    let origin = origin().await;
    let mut replica = start_with(&database.url(), more, Vec::new());
    let load = Load::start(replica.proxy, &origin, "killed", 4, true);
    load.more(400);
    let killed = Instant::now();
    replica.kill();
    let answered = load.end().await;
    replica.run();
    until("what was on the disk is moved", || (replica.status()["waiting_flows"].as_u64()? == 0).then_some(()));
    let (flows, distinct) = stored(database, "/killed/");
    assert_eq!(flows, distinct, "none twice");
    let urls = database.sql("SELECT path FROM interflow.flows WHERE url LIKE '%/killed/%'");
    let recorded: HashSet<&str> = urls.lines().collect();
    let lost: Vec<_> = answered.iter().filter(|(path, _)| !recorded.contains(&**path)).collect();
    let oldest = lost.iter().map(|(_, at)| killed.saturating_duration_since(*at)).max().unwrap_or_default();
    (answered.len(), lost.len(), oldest)
}
