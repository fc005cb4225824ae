//! Table `fleet`: replicas that share one recording in PostgreSQL. What it costs a replica and the database, how many flows
//! a second get there, how late they are, how fast they are found, and whether any is lost while servers fail.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use interflow_testkit::{PostgresDatabase, PostgresServer};

use crate::Result;
use crate::load::spec::{Check, Exchange, Pace, Spec, Via};
use crate::measure::{Run, measure};
use crate::peers::Arm;
use crate::process::{Running, tree_cpu};
use crate::report::median_of;
use crate::tables::{Case, Effort, Kind, Row, Session, Table, figures_row as row, fixed_body};
use crate::testbed::{Role, Testbed, beside_us, free_port};

/// Bytes of a body, and how many different ones the origin has. They do not compress, as media and encrypted bodies do not.
const BODY: usize = 8192;
const BODIES: usize = 256;
/// Concurrent requests of a closed loop.
const CLIENTS: usize = 16;
/// How long flows may take to get into the database after the load.
const DELIVERY: Duration = Duration::from_secs(300);
/// Requests of each kind whose median is the latency of a query.
const QUERIES: usize = 15;

pub fn table(effort: &Effort) -> Result<Table> {
    let testbed = Testbed::new(effort.pin)?.with_random_bodies(BODY, BODIES)?;
    let server = PostgresServer::with_settings(&PostgresServer::DURABLE)
        .ok_or("PostgreSQL is not installed: apt-get install postgresql")?;
    let mut session = Session::new("fleet", "replicas that record into one PostgreSQL", &testbed, Vec::new(), effort);
    session.table.versions.insert("postgresql".into(), server.version());
    let fleet = FleetBench { testbed: &testbed, server, effort };
    recording(&mut session, &fleet);
    for replicas in [1, 2, 4] {
        ingest(&mut session, &fleet, replicas);
    }
    drain(&mut session, &fleet);
    faults(&mut session, &fleet);
    let flows: &[u64] = if effort.full { &[1_000_000, 10_000_000] } else { &[100_000] };
    for flows in flows {
        queries(&mut session, &fleet, *flows);
    }
    Ok(session.finish())
}

struct FleetBench<'a> {
    testbed: &'a Testbed,
    server: Arc<PostgresServer>,
    effort: &'a Effort,
}

/// Where a replica records.
#[derive(Clone, Copy)]
enum Record<'a> {
    Nothing,
    Embedded,
    Shared(&'a PostgresDatabase),
}

struct Replica {
    arm: Arm,
    proxy: SocketAddr,
    admin: SocketAddr,
    home: std::path::PathBuf,
}

impl FleetBench<'_> {
    fn start(&self, name: &str, record: Record<'_>) -> Result<Replica> {
        self.start_with(name, record, "")
    }

    /// With more lines of the section `[record]`.
    fn start_with(&self, name: &str, record: Record<'_>, more: &str) -> Result<Replica> {
        let (proxy, gateway, admin) = (free_port()?, free_port()?, free_port()?);
        let home = self.testbed.path(name);
        fs::create_dir_all(&home)?;
        let mut config =
            "[admin]\npublic_metrics = true\n[proxy]\ndrain_timeout = \"5s\"\n[record]\n".to_owned() + more;
        match record {
            Record::Nothing => config.push_str("enabled = false\n"),
            Record::Embedded => {}
            Record::Shared(database) => {
                config.push_str(&format!("store = {:?}\n[fleet]\nname = {name:?}\n", database.url()))
            }
        }
        let file = home.join("fleet.toml");
        fs::write(&file, config)?;
        let mut command = Command::new(beside_us("interflow")?);
        command.arg("run").arg("--config").arg(&file);
        for (listener, addr) in [("--listen-proxy", proxy), ("--listen-gateway", gateway), ("--listen-admin", admin)] {
            command.arg(listener).arg(addr.to_string());
        }
        command.env("INTERFLOW_DATA_DIR", &home);
        let running = self.testbed.start(name, command, proxy, Role::Proxy)?;
        let arm = Arm {
            name: name.into(),
            version: String::new(),
            plain: Some(Via::Absolute(proxy)),
            tls: None,
            gateway: None,
            anywhere: true,
            running: Some(running),
        };
        // The proxy listens before everything else is there.
        let until = Instant::now() + Duration::from_secs(30);
        while !get(admin, "/readyz", None).is_ok_and(|(status, _)| status == 200) {
            if Instant::now() > until {
                return Err(format!("{name} is not ready").into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Replica { arm, proxy, admin, home })
    }

    fn spec(&self, proxy: SocketAddr, pace: Pace, seconds: f64) -> Spec {
        let authority = format!("localhost:{}", self.testbed.http().port());
        let exchange = |n: usize| Exchange {
            authority: authority.clone(),
            path: format!("/r/{n}"),
            body: None,
            headers: Vec::new(),
            check: Check::File(self.testbed.path(&format!("www/r/{n}"))),
        };
        let one = fixed_body(self.testbed, self.effort, Via::Absolute(proxy), false, BODY, CLIENTS);
        Spec { exchanges: (0..BODIES).map(exchange).collect(), pace, warm_up: 0.3, seconds, ..one }
    }

    fn load(&self, replica: &Replica, pace: Pace, seconds: f64) -> Result<Run> {
        let spec = self.spec(replica.proxy, pace, seconds);
        let run = measure(self.testbed, &replica.arm, self.testbed.nginx.as_ref(), &spec)?;
        match &run.outcome {
            outcome if outcome.errors > 0 || outcome.ok == 0 => {
                let message = outcome.messages.first().map_or("no answer", String::as_str);
                Err(format!("{} errors beside {} answers: {message}", outcome.errors, outcome.ok).into())
            }
            _ => Ok(run),
        }
    }

    fn database_cpu(&self) -> Duration {
        self.server.process().map(tree_cpu).unwrap_or_default()
    }
}

impl Replica {
    fn cpu(&self) -> Duration {
        self.arm.running.as_ref().map(Running::cpu).unwrap_or_default()
    }

    fn peak_kib(&self) -> u64 {
        self.arm.running.as_ref().map_or(0, |running| running.memory().peak)
    }

    /// A metric without labels; 0 if there is none.
    fn metric(&self, name: &str) -> Result<f64> {
        let (_, page) = get(self.admin, "/metrics", None)?;
        let value = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        Ok(value.unwrap_or_default())
    }

    /// Waits until everything that was answered is recorded, and in the database.
    fn settle(&self, answered: u64) -> Result<()> {
        let until = Instant::now() + DELIVERY;
        loop {
            let recorded = self.metric("interflow_recorder_flows_total")?;
            if recorded >= answered as f64 && self.metric("interflow_shared_store_waiting_flows")? == 0.0 {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("{recorded} of {answered} flows are recorded after {DELIVERY:?}").into());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn token(&self) -> Result<String> {
        Ok(fs::read_to_string(self.home.join("admin.token"))?.trim().to_owned())
    }
}

/// What recording costs: nothing recorded, into the embedded store, into PostgreSQL.
fn recording(session: &mut Session<'_>, fleet: &FleetBench<'_>) {
    const NAME: &str = "recording";
    if !fleet.effort.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let seconds = fleet.effort.seconds.max(2.0);
    let mut samples: BTreeMap<&str, Vec<[f64; 7]>> = BTreeMap::new();
    let arms =
        ["no recording", "embedded store", "embedded store, synchronous", "PostgreSQL", "PostgreSQL, synchronous"];
    let mut failures = BTreeMap::new();
    for round in 0..fleet.effort.repeats {
        for arm in arms {
            match record_once(fleet, arm, round, seconds) {
                Ok(sample) => samples.entry(arm).or_default().push(sample),
                Err(e) => drop(failures.insert(arm, e.to_string())),
            }
        }
    }
    let middle = |arm: &str, at: usize| median_of(samples.get(arm).into_iter().flatten().map(|s| s[at]));
    let alone = middle("no recording", 0);
    let embedded = middle("embedded store", 0);
    let rows = arms.map(|arm| {
        let cpu = middle(arm, 0);
        let figures = [
            ("replica CPU us/request", cpu, 1),
            ("of the embedded store's", cpu / embedded, 2),
            ("its recording alone", (cpu - alone) / (embedded - alone), 2),
            ("PostgreSQL CPU us/flow", middle(arm, 1), 1),
            ("requests/s", middle(arm, 2), 0),
            ("p50 us", middle(arm, 6), 0),
            ("bytes per flow in PostgreSQL", middle(arm, 3), 0),
            ("lag p99 ms", middle(arm, 4), 0),
            ("replica peak MB", middle(arm, 5), 0),
        ];
        row(arm, failures.get(arm), &figures)
    });
    let what = format!(
        "GETs of {BODIES} different bodies of 8 KiB that do not compress, {CLIENTS} connections. CPU is counted until all flows are stored. \
         Synchronous: the end of a response waits until its flow is on the replica's disk. \
         The embedded store keeps equal bodies once, PostgreSQL each of them. The lag is from the end of a flow to its transaction"
    );
    push(session, NAME, &what, rows.into());
}

fn record_once(fleet: &FleetBench<'_>, arm: &str, round: usize, seconds: f64) -> Result<[f64; 7]> {
    let database = fleet.server.database();
    let record = match arm {
        "no recording" => Record::Nothing,
        stores if stores.starts_with("embedded store") => Record::Embedded,
        _ => Record::Shared(&database),
    };
    let more = format!("synchronous = {}\n", arm.ends_with("synchronous"));
    let replica = fleet.start_with(&format!("{}-{round}", arm.replace([' ', ','], "-")), record, &more)?;
    let before = (replica.cpu(), fleet.database_cpu());
    let run = fleet.load(&replica, Pace::Closed(CLIENTS), seconds)?;
    let answered = run.outcome.answered;
    if !matches!(record, Record::Nothing) {
        replica.settle(answered)?;
    }
    let per = |spent: Duration| spent.as_secs_f64() * 1e6 / answered as f64;
    let (cpu, server) = (per(replica.cpu() - before.0), per(fleet.database_cpu() - before.1));
    let (mut bytes, mut lag) = (0.0, 0.0);
    if let Record::Shared(database) = record {
        check_stored(database, answered)?;
        bytes = number(database, TABLE_BYTES)? / answered as f64;
        lag = number(database, LAG_P99)?;
    }
    let server = if bytes > 0.0 { server } else { 0.0 };
    let outcome = &run.outcome;
    Ok([cpu, server, outcome.rate(), bytes, lag, replica.peak_kib() as f64 / 1024.0, outcome.total.p50])
}

const TABLE_BYTES: &str = "SELECT sum(pg_total_relation_size(inhrelid)) FROM pg_inherits \
     WHERE inhparent IN ('interflow.flows'::regclass, 'interflow.bodies'::regclass, 'interflow.messages'::regclass)";
/// Milliseconds from the end of a flow to the transaction that stores it.
const LAG_P99: &str = "SELECT percentile_cont(0.99) WITHIN GROUP (ORDER BY (stored - started - coalesce(duration, 0)) / 1000.0) \
     FROM interflow.flows";

/// Fails unless every answered request is in the database, once.
fn check_stored(database: &PostgresDatabase, answered: u64) -> Result<u64> {
    // The metrics are up to half a second old.
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let stored = number(database, "SELECT count(*) FROM interflow.flows")? as u64;
        // A request that was cut off by the end of a run is a flow, too.
        if stored >= answered {
            return Ok(stored);
        }
        if Instant::now() > until {
            return Err(format!("{answered} answered, {stored} stored").into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn number(database: &PostgresDatabase, sql: &str) -> Result<f64> {
    Ok(database.sql(sql).trim().parse()?)
}

/// As many flows as replicas can record at once, until they are in the database.
fn ingest(session: &mut Session<'_>, fleet: &FleetBench<'_>, replicas: usize) {
    let name = format!("{replicas} replica{}", if replicas == 1 { "" } else { "s" });
    if !fleet.effort.wants(&name) {
        return;
    }
    eprintln!("  {name}");
    let seconds = fleet.effort.seconds.max(4.0);
    let row = measured_row(&name, ingest_once(fleet, replicas, seconds).map(Vec::from));
    let what = format!(
        "A closed loop of {CLIENTS} connections on each replica for {seconds} s; flows per second until the last one is in the database. \
         Generator, origin, replicas and PostgreSQL share the machine"
    );
    push(session, &name, &what, vec![row]);
}

fn ingest_once(fleet: &FleetBench<'_>, replicas: usize, seconds: f64) -> Result<[(&'static str, f64, usize); 6]> {
    let database = fleet.server.database();
    let all = (0..replicas)
        .map(|n| fleet.start(&format!("ingest-{replicas}-{n}"), Record::Shared(&database)))
        .collect::<Result<Vec<_>>>()?;
    let cpu = |all: &[Replica]| all.iter().map(Replica::cpu).sum::<Duration>();
    let (began, before, server) = (Instant::now(), cpu(&all), fleet.database_cpu());
    let runs: Vec<Result<Run>> = std::thread::scope(|scope| {
        let load = |replica| {
            scope.spawn(move || fleet.load(replica, Pace::Closed(CLIENTS), seconds).map_err(|e| e.to_string()))
        };
        let started: Vec<_> = all.iter().map(load).collect();
        started.into_iter().map(|t| t.join().map_err(|_| "the generator failed")?.map_err(Into::into)).collect()
    });
    let mut answered = 0;
    for (replica, run) in all.iter().zip(runs) {
        let run = run?;
        replica.settle(run.outcome.answered)?;
        answered += run.outcome.answered;
    }
    let (took, stored) = (began.elapsed().as_secs_f64(), check_stored(&database, answered)? as f64);
    let (spent, server) = (cpu(&all) - before, fleet.database_cpu() - server);
    Ok([
        ("flows/s into PostgreSQL", stored / took, 0),
        ("flows per CPU second of the replicas", stored / spent.as_secs_f64(), 0),
        ("of PostgreSQL", stored / server.as_secs_f64(), 0),
        ("requests answered", answered as f64, 0),
        ("lost", (answered as f64 - stored).max(0.0), 0),
        ("lag p99 ms", number(&database, LAG_P99)?, 0),
    ])
}

/// How fast flows that waited get into the database when it answers again, with nothing else to do for the machine.
fn drain(session: &mut Session<'_>, fleet: &FleetBench<'_>) {
    const NAME: &str = "after an outage";
    if !fleet.effort.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let row = measured_row("1 replica", drain_once(fleet).map(Vec::from));
    let what = "Flows that were recorded while PostgreSQL was stopped, from its start until the last one is stored. The machine has nothing else to do";
    push(session, NAME, what, vec![row]);
}

fn drain_once(fleet: &FleetBench<'_>) -> Result<[(&'static str, f64, usize); 5]> {
    let database = fleet.server.database();
    let replica = fleet.start("drain", Record::Shared(&database))?;
    fleet.server.stop();
    let mut answered = 0;
    let recorded = (|| {
        while answered < fleet.effort.flows.min(200_000) {
            answered += fleet.load(&replica, Pace::Closed(CLIENTS), 5.0)?.outcome.answered;
        }
        replica.metric("interflow_shared_store_waiting_flows")
    })();
    fleet.server.start();
    let begun = recorded?;
    let (before, server) = (replica.cpu(), fleet.database_cpu());
    let stored = || number(&database, "SELECT count(*) FROM interflow.flows");
    // The pause between attempts is not part of the rate.
    while stored()? == 0.0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    let (began, first) = (Instant::now(), stored()?);
    replica.settle(answered)?;
    let took = began.elapsed().as_secs_f64();
    let all = check_stored(&database, answered)? as f64;
    Ok([
        ("flows waiting", begun, 0),
        ("flows/s into PostgreSQL", (all - first) / took, 0),
        ("replica CPU us/flow", (replica.cpu() - before).as_secs_f64() * 1e6 / all, 1),
        ("PostgreSQL CPU us/flow", (fleet.database_cpu() - server).as_secs_f64() * 1e6 / all, 1),
        ("lost", (answered as f64 - all).max(0.0), 0),
    ])
}

/// Failures while requests arrive at a fixed rate: none may fail, and each is recorded once.
fn faults(session: &mut Session<'_>, fleet: &FleetBench<'_>) {
    const NAME: &str = "faults";
    if !fleet.effort.wants(NAME) {
        return;
    }
    eprintln!("  {NAME}");
    let rows = [("PostgreSQL crashes and restarts", true), ("the replica restarts (SIGUSR2)", false)];
    let rows = rows.map(|(name, crash)| measured_row(name, fault_once(fleet, crash).map(Vec::from)));
    push(session, NAME, "500 requests per second for 8 seconds; the fault comes after 2 seconds", rows.into());
}

fn fault_once(fleet: &FleetBench<'_>, crash: bool) -> Result<[(&'static str, f64, usize); 4]> {
    let database = fleet.server.database();
    let replica = fleet.start(if crash { "crash" } else { "restart" }, Record::Shared(&database))?;
    let run = std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let spec = fleet.spec(replica.proxy, Pace::Open(500.0), 8.0);
            measure(fleet.testbed, &replica.arm, fleet.testbed.nginx.as_ref(), &spec).map_err(|e| e.to_string())
        });
        std::thread::sleep(Duration::from_secs(2));
        if crash {
            fleet.server.kill();
            std::thread::sleep(Duration::from_secs(1));
            fleet.server.start();
        } else {
            let mut restart = Command::new(beside_us("interflow")?);
            let output = restart.arg("restart").env("INTERFLOW_DATA_DIR", &replica.home).output()?;
            if !output.status.success() {
                return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
            }
        }
        load.join().map_err(|_| "the generator failed")?.map_err(crate::Error::from)
    })?;
    let outcome = &run.outcome;
    // Of a replica that restarted, the counters have begun anew.
    let until = Instant::now() + DELIVERY;
    while (number(&database, "SELECT count(*) FROM interflow.flows")? as u64) < outcome.answered
        && Instant::now() < until
    {
        std::thread::sleep(Duration::from_millis(200));
    }
    let stored = number(&database, "SELECT count(*) FROM interflow.flows")?;
    Ok([
        ("answered", outcome.answered as f64, 0),
        ("failed requests", outcome.errors as f64, 0),
        ("lost flows", (outcome.answered as f64 - stored).max(0.0), 0),
        ("p99 ms", outcome.total.p99 / 1000.0, 1),
    ])
}

/// Lists and filters through the API over many flows.
fn queries(session: &mut Session<'_>, fleet: &FleetBench<'_>, flows: u64) {
    let name = format!("{} flows", grouped(flows));
    if !fleet.effort.wants(&name) {
        return;
    }
    eprintln!("  {name}");
    let row = measured_row("median of the API's answers", query_once(fleet, flows));
    let what = format!(
        "{QUERIES} requests to `/api/v1/flows?limit=100` for each filter, from the second on. The flows are copies of recorded ones with other ids, \
         over 20 days, 1,000 hosts and 10 statuses"
    );
    push(session, &name, &what, vec![row]);
}

fn query_once(fleet: &FleetBench<'_>, flows: u64) -> Result<Vec<(&'static str, f64, usize)>> {
    let database = fleet.server.database();
    let replica = fleet.start(&format!("query-{flows}"), Record::Shared(&database))?;
    replica.settle(fleet.load(&replica, Pace::Closed(4), 1.0)?.outcome.answered)?;
    multiply(&database, flows)?;
    let bytes = number(&database, TABLE_BYTES)?;
    let token = replica.token()?;
    let mut figures = Vec::new();
    for (label, query) in [
        ("first rows, ms", ""),
        ("host:, ms", "host%3Ahost-500.test"),
        ("status:, ms", "status%3A503"),
        ("method: and status:, ms", "method%3AGET%20status%3A404"),
        ("url:, ms", "url%3Aitem-777777"),
    ] {
        let mut times = Vec::new();
        for _ in 0..QUERIES {
            let began = Instant::now();
            let (status, text) = get(replica.admin, &format!("/api/v1/flows?limit=100&query={query}"), Some(&token))?;
            if status != 200 {
                return Err(format!("{query}: {status} {text}").into());
            }
            times.push(began.elapsed().as_secs_f64() * 1000.0);
        }
        figures.push((label, median_of(times.into_iter().skip(1)), 1));
    }
    figures.push(("GB in PostgreSQL", bytes / 1e9, 2));
    Ok(figures)
}

/// Fills the tables with copies of a recorded flow. The indexes are those of the migration.
fn multiply(database: &PostgresDatabase, flows: u64) -> Result<()> {
    const STEP: u64 = 500_000;
    const DAYS: u64 = 20;
    for day in 0..DAYS {
        // As the retention task makes them.
        database.sql(&format!(
            "DO $$ DECLARE day bigint := (extract(epoch FROM now())::bigint / 86400 - {day}); name text := to_char(to_timestamp(day * 86400) AT TIME ZONE 'UTC', 'YYYYMMDD'); \
             low text := lpad(to_hex(day * 86400000), 12, '0'); high text := lpad(to_hex((day + 1) * 86400000), 12, '0'); t text; \
             BEGIN FOREACH t IN ARRAY ARRAY['flows', 'bodies', 'messages'] LOOP \
             EXECUTE format('CREATE TABLE IF NOT EXISTS interflow.%s_%s PARTITION OF interflow.%s FOR VALUES FROM (%L) TO (%L)', \
             t, name, t, (low || repeat('0', 20))::uuid, (high || repeat('0', 20))::uuid); END LOOP; END $$"
        ));
    }
    let columns = database.sql(
        "SELECT string_agg(quote_ident(attname), ',' ORDER BY attnum) FROM pg_attribute WHERE attrelid = 'interflow.flows'::regclass \
         AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('id', 'position', 'started', 'host', 'status', 'url', 'path')",
    );
    let span = DAYS * 86_400_000;
    for first in (0..flows).step_by(STEP as usize) {
        let last = (first + STEP).min(flows) - 1;
        database.sql(&format!(
            "SET synchronous_commit = off; INSERT INTO interflow.flows(id, started, host, status, url, path, {columns}) \
             SELECT (lpad(to_hex(at), 12, '0') || lpad(to_hex(n), 20, '0'))::uuid, at * 1000, 'host-' || n % 1000 || '.test', \
             (ARRAY[200,200,200,200,200,200,301,404,500,503])[1 + n % 10], 'http://host-' || n % 1000 || '.test/item-' || n, '/item-' || n, {columns} \
             FROM (SELECT n, (extract(epoch FROM now()) * 1000)::bigint - {span} + 3600000 + n * ({span} - 7200000) / {flows} AS at \
             FROM generate_series({first}::bigint, {last}::bigint) n) made, (SELECT * FROM interflow.flows ORDER BY id LIMIT 1) flow"
        ));
    }
    database.sql("ANALYZE interflow.flows");
    check_stored(database, flows).map(drop)
}

fn push(session: &mut Session<'_>, name: &str, what: &str, rows: Vec<Row>) {
    for row in &rows {
        eprintln!("    {}", crate::report::line(Kind::Figures, row));
    }
    let what = what.to_owned();
    session.table.cases.push(Case { name: name.into(), what, kind: Kind::Figures, rows, apart: None });
}

/// A row of what was measured, or of why it was not.
fn measured_row(arm: &str, measured: Result<Vec<(&str, f64, usize)>>) -> Row {
    match measured {
        Ok(figures) => row(arm, None, &figures),
        Err(e) => row(arm, Some(&e.to_string()), &[]),
    }
}

fn grouped(flows: u64) -> String {
    match flows {
        n if n % 1_000_000 == 0 => format!("{} million", n / 1_000_000),
        n => n.to_string(),
    }
}

/// Status and text of a GET to the admin port.
fn get(addr: SocketAddr, path: &str, token: Option<&str>) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(120)))?;
    let login = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {addr}\r\n{login}Accept-Encoding: identity\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no head")?;
    let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or("no status")?;
    Ok((status, body.to_owned()))
}
