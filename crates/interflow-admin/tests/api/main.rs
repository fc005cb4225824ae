//! The admin API over real connections: a proxy, a store in a temporary folder, an origin, and a client that sends
//! exactly the fields given by a test.

mod access_control;
mod approvals;
mod archives;
mod bodies;
mod compose;
mod conversations;
mod documented;
mod edits;
mod events;
mod flows;
mod identity;
mod issuer;
mod overview;
mod privacy;
mod replay;
mod rule_rights;
mod secrets;
mod setup;

use std::net::SocketAddr;
use std::sync::Arc;

use interflow_admin::{ActiveConfig, AdminConfig, AdminDeps, AdminServer};
use interflow_approvals::config::ApprovalsConfig;
use interflow_approvals::{Approvals, ApprovalsStage};
use interflow_conversations::conversations::indexer::IndexerHandle;
use interflow_proxy::config::{GatewayConfig, ProxyConfig, ProxyServerConfig, WorkersConfig};
use interflow_proxy::{CertificateAuthority, ProxyServer, ServerDeps};
use interflow_rules::{ActiveRules, PrivateFiles, RuleRuntime, RulesConfig};
use interflow_store::{FlowStore, RecordConfig, SqliteStore};
use interflow_testkit::{Answer, Origin, OriginBuilder, Wire, client};
use interflow_types::units::HumanDuration;
use interflow_types::{
    Authority, ClientInfo, EntryKind, Flow, FlowOutcome, FlowRecording, HttpVersion, Recorder, RequestHead,
    ResponseHead, Scheme, Stage, StatusCode, Timestamp, Url,
};
use serde_json::Value;

const TOKEN: &str = "a-token-of-the-test";

/// A running instance with an origin behind it.
struct Instance {
    _dir: tempfile::TempDir,
    engine: Arc<ProxyServer>,
    store: Option<Arc<SqliteStore>>,
    admin: SocketAddr,
    origin: Origin,
}

/// Options of an instance.
#[derive(Default)]
struct Setup {
    unrecorded: bool,
    events_patience: Option<HumanDuration>,
    insecure_proxy: Option<String>,
    /// Whether there is a rule file, `rules.yaml` in the data directory.
    has_rules: bool,
    options: Option<AdminConfig>,
}

impl Instance {
    async fn start() -> Self {
        Self::with(Origin::http(), Setup::default()).await
    }

    async fn answering(origin: OriginBuilder) -> Self {
        Self::with(origin, Setup::default()).await
    }

    async fn with(origin: OriginBuilder, setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let store = (!setup.unrecorded)
            .then(|| Arc::new(SqliteStore::open(&dir.path().join("record"), &RecordConfig::default()).unwrap()));
        let mut config = ProxyServerConfig {
            proxy: ProxyConfig { listen: vec![anywhere], ..ProxyConfig::default() },
            gateway: GatewayConfig { listen: Vec::new(), ..GatewayConfig::default() },
            workers: WorkersConfig { count: 1, cpu_affinity: false },
            ..ProxyServerConfig::default()
        };
        for name in ["held.test", "other.test"] {
            config.upstream.hosts.insert(name.into(), vec![anywhere.ip()]);
        }
        if let Some(via) = setup.insecure_proxy {
            let rule = interflow_proxy::config::UpstreamProxyRule { hosts: vec!["never.test".into()], via: vec![via] };
            config.upstream.proxy.push(rule);
        }
        let listener = tokio::net::TcpListener::bind(anywhere).await.unwrap();
        let approvals = Arc::new(Approvals::new(&ApprovalsConfig::default(), dir.path()).unwrap());
        let rules = setup.has_rules.then(|| rules_in(dir.path()));
        let rule_stages = rules.iter().flat_map(|rules| [rules.request_stage(), rules.response_stage()]);
        let approvals_stage: Arc<dyn Stage> = Arc::new(ApprovalsStage::new(Arc::clone(&approvals)));
        let parts = ServerDeps {
            ca: Arc::new(CertificateAuthority::open_or_create(&dir.path().join("ca")).unwrap()),
            recorder: store.as_ref().map(|s| Arc::new(s.recorder().unwrap()) as Arc<dyn Recorder>),
            stages: std::iter::once(approvals_stage).chain(rule_stages).collect(),
            mounts: Vec::new(),
            own: vec![listener.local_addr().unwrap()],
            sockets: Default::default(),
            local: Default::default(),
        };
        let engine = ProxyServer::start(config, parts).unwrap();
        let reshaped = Arc::downgrade(&engine);
        approvals.on_interest_change(move || reshaped.upgrade().iter().for_each(|e| e.reload(e.config()).unwrap()));
        let admin = listener.local_addr().unwrap();
        let mut options = setup.options.unwrap_or_default();
        options.events_write_timeout = setup.events_patience.unwrap_or(options.events_write_timeout);
        let egress = Arc::new(engine.local_client().clone());
        let redaction =
            interflow_llm_gateway::redaction::RedactionService::new(&Default::default(), dir.path(), [7; 32], egress)
                .unwrap();
        let active = ActiveConfig::default();
        active.replace(serde_json::json!({"record": {"enabled": true}, "vault": {"passphrase": "hunter2"}}));
        let parts = AdminDeps {
            conversations: store
                .clone()
                .map(|s| IndexerHandle::start(s as _, Arc::new(|_, _, _, _| Some(0.5))).unwrap()),
            rules,
            engine: Arc::clone(&engine),
            store: store.clone().map(|s| s as Arc<dyn FlowStore>),
            config: active,
            token: TOKEN.to_owned(),
            data_dir: dir.path().to_owned(),
            command: "interflow --data-dir /d".to_owned(),
            shared: None,
            token_file: Some(dir.path().join("admin.token")),
            redaction: Some(redaction),
            limits: None,
            schemas: Arc::default(),
            approvals: Some(Arc::clone(&approvals)),
            fleet_pending: None,
            doctor: Some(Arc::new(|| {
                let (what, text) = ("clock".to_owned(), "plausible".to_owned());
                vec![interflow_admin::DoctorFinding { what, state: interflow_admin::FindingState::Good, text }]
            })),
            llm: None,
            mcp: None,
            #[cfg(feature = "media")]
            media: None,
            archive: None,
            setup: Some(setup::machine()),
            reload: None,
            settings: None,
            shared_settings: None,
            metrics: Vec::new(),
        };
        let side = AdminServer::new(&options, listener, parts).unwrap();
        tokio::spawn(side.serve(std::future::pending()));
        Self { _dir: dir, engine, store, admin, origin: origin.start().await }
    }

    /// Sends a GET through the proxy; the flow is in the store afterwards.
    async fn through(&self, path: &str) -> Answer {
        let answer = client::get_through(self.engine.proxy_addresses()[0], &self.origin.url(path)).await.unwrap();
        self.settle().await;
        answer
    }

    /// Sends a request with a body through the proxy.
    async fn post_through(&self, path: &str, fields: &str, body: &str) -> Answer {
        let mut wire = Wire::connect(self.engine.proxy_addresses()[0]).await.unwrap();
        let (url, host, n) = (self.origin.url(path), self.origin.authority(), body.len());
        let head = format!("POST {url} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {n}\r\n{fields}\r\n");
        wire.send(head + body).await.unwrap();
        let answer = wire.answer().await.unwrap();
        self.settle().await;
        answer
    }

    /// Waits until no flow is open and everything is written.
    async fn settle(&self) {
        let store = self.store.as_ref().expect("this instance records");
        for _ in 0..200 {
            store.flush().unwrap();
            if store.stats().unwrap().open_flows == 0 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("a flow does not end");
    }

    /// A request to the admin side with exactly these fields in addition to the framing.
    async fn plain(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut wire = Wire::connect(self.admin).await.unwrap();
        let mut head = format!("{method} {path} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        wire.send([head.as_bytes(), b"\r\n", body].concat()).await.unwrap();
        wire.answer_to(method).await.unwrap()
    }

    /// Like `plain`, with the host and the bearer token.
    async fn call(&self, method: &str, path: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let (host, bearer) = (self.admin.to_string(), format!("Bearer {TOKEN}"));
        let mut all = vec![("Host", host.as_str()), ("Authorization", bearer.as_str())];
        all.extend(fields);
        self.plain(method, &format!("/api/v1{path}"), &all, body).await
    }

    async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], b"").await
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()
    }

    async fn post(&self, path: &str, body: Value) -> Answer {
        self.call("POST", path, &[("Content-Type", "application/json")], body.to_string().as_bytes()).await
    }

    /// The ids of all flows, latest first.
    async fn ids(&self) -> Vec<String> {
        let page = self.json("/flows").await;
        page["flows"].as_array().unwrap().iter().map(|f| f["id"].as_str().unwrap().to_owned()).collect()
    }

    /// A flow that begins now, recorded as the request pipeline would.
    fn begin(&self, path: &str) -> (Flow, Box<dyn FlowRecording>) {
        let flow = Flow::begin(a_client(), EntryKind::Connect, Scheme::Https, "live.test:443".parse().unwrap());
        let store = self.store.as_ref().unwrap();
        let recorder = store.recorder().unwrap();
        // Wait while the recorder is behind.
        let capture = loop {
            match recorder.begin(&flow, Some(&a_head(&flow.authority, path))) {
                Some(capture) => break capture,
                None => store.flush().unwrap(),
            }
        };
        (flow, capture)
    }

    /// A whole flow.
    fn record(&self, path: &str) -> Flow {
        let (flow, mut capture) = self.begin(path);
        capture.response(&flow, &ResponseHead::new(StatusCode::NO_CONTENT));
        capture.finish(&flow, FlowOutcome::Complete);
        flow
    }
}

/// Rules of a file in the data directory, whose other files are private.
fn rules_in(dir: &std::path::Path) -> Arc<ActiveRules> {
    let file = dir.join("rules.yaml");
    std::fs::write(&file, "rules: []\n").unwrap();
    let private = PrivateFiles::new(dir, [dir.join("ca"), dir.join("record")]);
    let runtime = RuleRuntime::new(None, None).with_private_files(private);
    let config = RulesConfig { files: vec![file], ..RulesConfig::default() };
    Arc::new(ActiveRules::new(&config, Arc::new(runtime)).unwrap())
}

fn a_client() -> Arc<ClientInfo> {
    Arc::new(ClientInfo {
        connection: 1,
        peer: "127.0.0.1:9".parse().unwrap(),
        local: "127.0.0.1:9".parse().unwrap(),
        listener: "proxy".into(),
        accepted: Timestamp::now(),
        container: None,
        process: None,
    })
}

fn a_head(authority: &Authority, path: &str) -> RequestHead {
    RequestHead {
        method: interflow_types::Method::GET,
        url: Url { scheme: Scheme::Https, authority: authority.clone(), path: path.into() },
        version: HttpVersion::Http11,
        headers: [("Host", "live.test"), ("X-Trace", "abc")].into_iter().collect(),
        protocol: None,
    }
}

/// The error kind of a response.
fn kind(answer: &Answer) -> String {
    let json = answer.json();
    assert!(json["error"]["message"].as_str().is_some_and(|m| !m.is_empty()), "{json}");
    json["error"]["kind"].as_str().unwrap().to_owned()
}
