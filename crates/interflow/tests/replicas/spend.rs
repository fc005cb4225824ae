//! Spending of two replicas: reports add up both, and an outage of the database loses nothing.

use std::process::Output;
use std::time::{Duration, Instant};

use interflow_testkit::{Answer, Origin, PostgresDatabase, PostgresServer, llm, until};

use crate::replica::{PATIENCE, Replica};

const CHAT: &str = r#"{"model":"gpt-4o","max_tokens":50,"messages":[{"role":"user","content":"hello"}]}"#;

/// The configuration of a replica; `store` is a line of `[record]`, or empty.
fn config(name: &str, store: &str, provider: &Origin) -> String {
    format!(
        "[record]\n{store}\n[fleet]\nname = {name:?}\n[quota]\nprices = \"prices.json\"\n[keys]\nrequire_virtual_key = true\n\
         [keys.provider]\nlocalhost = \"sk-real\"\n[[gateway.route]]\npath = \"/\"\nto = {:?}\n",
        provider.url("")
    )
}

fn start(name: &str, store: &str, provider: &Origin) -> Replica {
    let home = tempfile::tempdir().unwrap();
    let prices = r#"{"prices": {"gpt-4o": {"input": 1000, "output": 0}}}"#;
    std::fs::write(home.path().join("prices.json"), prices).unwrap();
    Replica::start_in(home, &config(name, store, provider), Vec::new())
}

impl Replica {
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
        self.api(&self.admin_token(), "GET", "/spend?by=key", "").await
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

/// What `keys spend` prints, whether the replica runs or not.
fn spend_command(replica: &Replica) -> Output {
    replica.command(&["keys", "spend"]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
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
    let mut a = start("a", "", &provider);
    let key = a.cli(&["keys", "add", "--id", "ann"]).trim().to_owned();
    a.chat(&key, 2).await;
    a.stop();
    assert!(!text(&spend_command(&a).stdout).contains("all replicas"));
    a.write("c.toml", &config("a", &store, &provider));
    a.run();
    let b = start("b", &store, &provider);
    a.chat(&key, 3).await;
    b.chat(&key, 4).await;
    for replica in [&a, &b] {
        replica.until_requests(9).await;
    }
    let printed = text(&spend_command(&b).stdout);
    assert!(printed.contains("ann    9 ") && printed.contains("These are the sums of all replicas."), "{printed}");

    // While the database is away, requests are served, and a report fails rather than show one replica's sums.
    server.stop();
    a.chat(&key, 5).await;
    let begun = Instant::now();
    b.chat(&key, 1).await;
    assert!(begun.elapsed() < PATIENCE, "nothing waits for the database: {:?}", begun.elapsed());
    let refused = a.spend().await;
    assert_eq!((refused.status, &refused.json()["error"]["kind"]), (503, &"shared_store".into()), "{refused:?}");
    let said = spend_command(&a);
    assert!(!said.status.success() && text(&said.stderr).contains("spend of all replicas cannot be read"), "{said:?}");
    // One replica is killed with what it has in files only.
    until("the sums wait in a file", || {
        let files = std::fs::read_dir(a.home.path().join("spend/waiting")).ok()?;
        let mut texts = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
        texts.find(|text| text.contains("\"requests\":8,"))
    });
    a.kill();
    server.start();
    b.until_requests(10).await;
    // A command sends what an ended process left, and so would its next start.
    let printed = text(&spend_command(&a).stdout);
    assert!(printed.contains("ann    15 "), "{printed}");
    a.run();
    a.chat(&key, 1).await;
    for replica in [&a, &b] {
        replica.until_requests(16).await;
    }
    // Of a process that ends in good order, nothing is left to send.
    a.chat(&key, 1).await;
    a.stop();
    assert_eq!(std::fs::read_dir(a.home.path().join("spend/waiting")).unwrap().count(), 1, "the file of today");
    b.until_requests(17).await;
    assert_eq!(database.sql("SELECT sum(requests) FROM interflow.spend").trim(), "17");
}

#[tokio::test(flavor = "multi_thread")]
async fn sums_are_kept_for_the_configured_time() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let provider = llm::start().await.0;
    let mut replica = start("a", &store_line(&database), &provider);
    database.sql(
        "INSERT INTO interflow.spend SELECT current_date - d, 'w', decode(md5(d::text), 'hex'), '{\"provider\":\"x\"}', \
         1, 0, 0, 0, 0, 0, 0 FROM unnest(ARRAY[10, 799, 802, 2000]) AS d",
    );
    replica.stop();
    replica.run();
    until("old sums are removed", || {
        (database.sql("SELECT count(*) FROM interflow.spend").trim() == "2").then_some(())
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_without_redis_are_reported_as_those_of_each_replica() {
    let Some(server) = PostgresServer::shared() else { return };
    let database = server.database();
    let provider = llm::start().await.0;
    let replica = start("a", &store_line(&database), &provider);
    let warning = "hold for each replica by itself";
    let doctor = || text(&replica.command(&["doctor"]).output().unwrap().stdout);
    assert!(!replica.log().contains(warning) && !doctor().contains(warning), "nothing is limited");
    replica.cli(&["keys", "add", "--id", "bob", "--requests", "5/m"]);
    until("the log says so", || replica.log().contains(warning).then_some(()));
    let found = doctor();
    assert!(found.contains("note  limits: limits and budgets of virtual keys") && found.contains("redis"), "{found}");
    let config = replica.file("c.toml");
    let rule = "[[quota.rule]]\nname = \"all\"\nallow = { requests = \"5/m\" }\n";
    let checked = |text_of_file: String| {
        replica.write("c.toml", &text_of_file);
        let done = replica.command(&["config", "check"]).output().unwrap();
        assert!(done.status.success(), "{done:?}");
        text(&done.stderr)
    };
    assert!(checked(format!("{config}{rule}")).contains("limits and budgets of quota.rule hold for each replica"));
    let redis = "[quota.shared]\nredis = \"redis://127.0.0.1:1\"\n";
    assert!(!checked(format!("{config}{rule}{redis}")).contains(warning));
    assert!(!checked(format!("{config}{rule}").replace("store = ", "dir = \"record\" # ")).contains(warning));
}
