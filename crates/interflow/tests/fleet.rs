//! Replicas behind a load balancer (`scripts/fleet`): restarts and a rotation of the CA without a failed request, and limits that hold over
//! all of them.
//!
//! Needs python3, haproxy, redis-server and PostgreSQL, which `make test` installs where it can. Without one of them these tests print a note
//! and return.
#![cfg(unix)]

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, Wire, client, client_trusting, llm};
use serde_json::Value;

/// A running fleet of two replicas; ended when dropped.
struct Fleet {
    folder: tempfile::TempDir,
    state: Value,
}

impl Fleet {
    /// Starts one whose configuration has this text too; `None` where a server is missing.
    fn start(config: &str) -> Option<Arc<Self>> {
        let missing = ["python3", "haproxy", "redis-server", "initdb"].into_iter().find(|name| !is_installed(name));
        if let Some(name) = missing {
            eprintln!("LEFT OUT: {name} is not installed; install it, or run `make test` as root");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        // PostgreSQL's server may run as another user, who passes through to its own folder.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o711)).unwrap();
        let more = folder.path().join("more.toml");
        std::fs::write(&more, config).unwrap();
        // Dropped, and ended, whatever fails below.
        let mut fleet = Self { folder, state: Value::Null };
        let started = fleet.command(&["start", "--config", more.to_str().unwrap()]);
        assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
        fleet.state = serde_json::from_slice(&std::fs::read(fleet.path("fleet.json")).unwrap()).unwrap();
        Some(Arc::new(fleet))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("fleet").join(name)
    }

    fn command(&self, words: &[&str]) -> Output {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fleet");
        let mut command = Command::new("python3");
        command.arg(script).arg("--dir").arg(self.path("")).args(words).stdin(Stdio::null());
        command.env("INTERFLOW", env!("CARGO_BIN_EXE_interflow"));
        for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("INTERFLOW_")) {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    /// Runs the script while requests run.
    async fn script(self: &Arc<Self>, words: &'static [&'static str]) {
        let fleet = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || fleet.command(words)).await.unwrap();
        assert!(done.status.success(), "{words:?}: {}\n{}", String::from_utf8_lossy(&done.stderr), self.logs());
    }

    /// The last lines that the replicas logged.
    fn logs(&self) -> String {
        let last = |replica: &str| {
            let text = std::fs::read_to_string(self.path(&format!("{replica}.log"))).unwrap_or_default();
            let lines: Vec<_> = text.lines().rev().take(15).collect();
            format!("{replica}:\n{}\n", lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
        };
        ["replica-1", "replica-2"].map(last).concat()
    }

    /// A port of the balancer.
    fn address(&self, name: &str) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.state[name].as_u64().unwrap() as u16))
    }

    /// How many flows the shared recording has.
    async fn recorded(&self) -> u64 {
        let answer = self.admin(self.address("admin"), "/api/v1/flows/count").await;
        answer.json()["count"].as_u64().unwrap()
    }

    /// As [`recorded`](Self::recorded), when all of these are there: the last are delivered a moment after they are answered.
    async fn recorded_at_last(&self, expected: u64) -> u64 {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let recorded = self.recorded().await;
            if recorded >= expected || Instant::now() > deadline {
                return recorded;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// How many requests each replica served since its start.
    async fn served(&self) -> Vec<f64> {
        let mut counts = Vec::new();
        for replica in self.state["replicas"].as_array().unwrap() {
            let port = replica["admin"].as_u64().unwrap() as u16;
            let metrics = self.admin(SocketAddr::from(([127, 0, 0, 1], port)), "/metrics").await.text();
            let samples = metrics.lines().filter(|line| line.starts_with("interflow_http_requests_total{"));
            counts.push(samples.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum());
        }
        counts
    }

    /// Waits until both replicas have had requests.
    async fn until_served(&self) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.served().await.contains(&0.0) {
            assert!(Instant::now() < deadline, "a replica has no requests");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn admin(&self, address: SocketAddr, path: &str) -> Answer {
        let token = self.state["token"].as_str().unwrap();
        let mut wire = Wire::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n\r\n");
        wire.send(head).await.unwrap();
        let answer = wire.answer().await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.command(&["stop"]);
    }
}

fn is_installed(name: &str) -> bool {
    let found =
        std::env::var_os("PATH").is_some_and(|path| std::env::split_paths(&path).any(|f| f.join(name).exists()));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    found
        || Path::new("/usr/sbin").join(name).exists()
        || versions.map(|v| v.path().join("bin")).any(|f| f.join(name).exists())
}

/// Runs four clients until `work` has ended, each with one request after the other; returns how many were answered.
async fn under_load<C, F>(client: C, work: impl Future<Output = ()>) -> u64
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = ()> + Send,
{
    let over = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let (over, client) = (Arc::clone(&over), client.clone());
            tokio::spawn(async move {
                let mut answered = 0;
                while !over.load(Relaxed) {
                    client().await;
                    answered += 1;
                }
                answered
            })
        })
        .collect();
    work.await;
    over.store(true, Relaxed);
    let mut answered = 0;
    for client in clients {
        answered += client.await.unwrap();
    }
    answered
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_while_replicas_are_restarted_one_after_the_other() {
    let origin = Origin::http().start().await;
    let route = format!("[[gateway.route]]\npath = \"/\"\nto = \"{}\"\n", origin.url(""));
    let Some(fleet) = Fleet::start(&route) else { return };
    let (proxy, gateway, url) = (fleet.address("proxy"), fleet.address("gateway"), origin.url("/"));
    let client = move || {
        let url = url.clone();
        async move {
            assert_eq!(client::get_through(proxy, &url).await.expect("the proxy answers").status, 200);
            let mut wire = Wire::connect(gateway).await.unwrap();
            wire.send(format!("GET / HTTP/1.1\r\nHost: {gateway}\r\n\r\n")).await.unwrap();
            assert_eq!(wire.answer().await.expect("the gateway answers").status, 200);
        }
    };
    let answered = under_load(client, async {
        // A new process counts from 0.
        fleet.until_served().await;
        // The process becomes another binary; then a new process takes over the data of the former.
        for words in [&["restart", "1"], &["restart", "2"], &["replace", "1"], &["replace", "2"]] {
            fleet.script(words).await;
        }
    })
    .await;
    let recorded = fleet.recorded_at_last(2 * answered).await;
    assert_eq!(recorded, 2 * answered, "each flow is recorded once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flows_wait_in_the_replicas_while_postgresql_is_away() {
    let origin = Origin::http().start().await;
    let Some(fleet) = Fleet::start("") else { return };
    let (proxy, url) = (fleet.address("proxy"), origin.url("/"));
    let so_far = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&so_far);
    let client = move || {
        let (url, counter) = (url.clone(), Arc::clone(&counter));
        async move {
            assert_eq!(client::get_through(proxy, &url).await.expect("the proxy answers").status, 200);
            counter.fetch_add(1, Relaxed);
        }
    };
    let answered = under_load(client, async {
        fleet.script(&["outage", "begin"]).await;
        let (before, deadline) = (so_far.load(Relaxed), Instant::now() + Duration::from_secs(60));
        while so_far.load(Relaxed) < before + 200 {
            assert!(Instant::now() < deadline, "requests do not wait for the record");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        fleet.script(&["outage", "end"]).await;
    })
    .await;
    assert_eq!(fleet.recorded_at_last(answered).await, answered, "each flow is recorded once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_ca_of_a_fleet_is_rotated_without_a_failed_handshake() {
    let origin = Origin::https().names(&["origin.test"]).start().await;
    let folder = tempfile::tempdir().unwrap();
    let trusted = folder.path().join("origin.pem");
    std::fs::write(&trusted, origin.ca().pem()).unwrap();
    let Some(fleet) = Fleet::start(&format!(
        "[upstream]\nextra_ca = [{trusted:?}]\n[upstream.hosts]\n\"origin.test\" = [\"127.0.0.1\"]\n"
    )) else {
        return;
    };
    let next = folder.path().join("next");
    let created = Command::new(env!("CARGO_BIN_EXE_interflow")).args(["ca", "create"]).arg(&next).output().unwrap();
    assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stderr));
    let old = std::fs::read_to_string(fleet.path("ca/ca.pem")).unwrap();
    let new = std::fs::read_to_string(next.join("ca.pem")).unwrap();
    let (proxy, authority) = (fleet.address("proxy"), format!("origin.test:{}", origin.port()));
    let get = |pem: String| {
        let authority = authority.clone();
        move || {
            let (authority, config) = (authority.clone(), client_trusting(&pem, &["http/1.1"]));
            async move {
                let tunnel = client::connect_tunnel(proxy, &authority, None).await?;
                let mut wire = tunnel.into_tls("origin.test", config).await?;
                wire.send(format!("GET / HTTP/1.1\r\nHost: {authority}\r\n\r\n")).await?;
                wire.answer().await.map(|answer| answer.status)
            }
        }
    };
    // Clients trust both; the files of the Secret change, and the replicas are replaced.
    let both = get(format!("{old}{new}"));
    let answered = under_load(
        move || {
            let request = both();
            async move { assert_eq!(request.await.expect("the CA is one of the two"), 200) }
        },
        async {
            for name in ["ca.pem", "ca.key"] {
                std::fs::copy(next.join(name), fleet.path("ca").join(name)).unwrap();
            }
            fleet.script(&["replace", "1"]).await;
            fleet.script(&["replace", "2"]).await;
        },
    )
    .await;
    assert!(answered > 0);
    assert_eq!(get(new)().await.unwrap(), 200, "a client that trusts the new one alone");
    let refused = get(old)().await.expect_err("the old one signs nothing any more");
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_limit_is_held_over_both_replicas() {
    const BURST: u64 = 1000;
    const PER_SECOND: f64 = 50.0;
    let provider = llm::start().await.0;
    let Some(fleet) = Fleet::start(&format!(
        "[llm.provider.openai]\nurl = \"{}\"\napi_key = \"sk-test\"\n\
         [[quota.rule]]\nname = \"all\"\n[quota.rule.allow]\nrequests = \"50/s\"\nburst = {BURST}\n",
        provider.url("")
    )) else {
        return;
    };
    let gateway = fleet.address("gateway");
    let (admitted, rejected) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let body = r#"{"model":"gpt-4o","messages":[{"role":"user","content":"hello"}]}"#;
    let request = format!(
        "POST /openai/v1/chat/completions HTTP/1.1\r\nHost: {gateway}\r\nContent-Type: application/json\r\n\
         Authorization: Bearer sk-client\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let (yes, no) = (Arc::clone(&admitted), Arc::clone(&rejected));
    let client = move || {
        let (yes, no, request) = (Arc::clone(&yes), Arc::clone(&no), request.clone());
        async move {
            let mut wire = Wire::connect(gateway).await.unwrap();
            wire.send(request).await.unwrap();
            let answer = wire.answer().await.unwrap();
            match answer.status {
                200 => yes.fetch_add(1, Relaxed),
                429 => no.fetch_add(1, Relaxed),
                status => panic!("{status}: {}", answer.text()),
            };
        }
    };
    let began = Instant::now();
    let (seen, deadline) = (Arc::clone(&rejected), began + Duration::from_secs(60));
    under_load(client, async {
        // Until the limit has been met for long enough that a replica with a count of its own would show.
        while seen.load(Relaxed) < BURST {
            assert!(Instant::now() < deadline, "the limit never holds");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let allowed = BURST as f64 + PER_SECOND * began.elapsed().as_secs_f64();
    let admitted = admitted.load(Relaxed) as f64;
    // Replicas that count for themselves would admit twice as many. How many of the later ones are asked for in time depends on the machine.
    assert!((BURST as f64..=1.01 * allowed).contains(&admitted), "{admitted} of {BURST} to {allowed} were admitted");
    let served = fleet.served().await;
    assert!(served.iter().all(|n| *n > allowed / 10.0), "both replicas had their part: {served:?}");
}
