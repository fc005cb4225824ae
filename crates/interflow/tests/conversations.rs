//! End-to-end tests of `interflow demo`, `conversations` and `mcp`: one round of demo traffic through the real binary.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};

/// The recording of one round of the demo, shared by the tests.
static HOME: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let home = tempfile::tempdir().expect("a temporary folder");
    let anywhere = "127.0.0.1:0";
    let keep = home.path().to_str().expect("UTF-8");
    let args = ["demo", "--rounds", "1", "--keep", keep, "--listen-proxy", anywhere, "--listen-admin", anywhere];
    let out = interflow(home.path(), &args, "");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    home
});

fn interflow(home: &Path, args: &[&str], input: &str) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_interflow"))
        .args(args)
        .env("INTERFLOW_DATA_DIR", home)
        .env("NO_COLOR", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Output of a command on the demo's recording.
fn said(args: &[&str]) -> String {
    let out = interflow(HOME.path(), args, "");
    assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

fn listed(args: &[&str]) -> Vec<Value> {
    let all = [&["conversations", "list", "--format", "jsonl"], args].concat();
    said(&all).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect()
}

#[test]
fn the_demo_has_traffic_of_every_kind() {
    for query in [
        "is:intercepted host:bank.example -is:error status:201 ja4:t13*",
        "is:websocket",
        "is:tunnel -is:error",
        "transport:socks5 status:200",
        "is:sse",
        "is:grpc",
        "is:redacted",
        "is:error",
        "tag:rule-matched",
        "model:*",
        "status:302",
        "resp.type:application/msgpack",
        "resp.type:application/x-protobuf",
        "resp.type:application/dash+xml",
        "resp.type:application/vnd.apple.mpegurl",
        "resp.type:image/gif",
        "req.type:multipart/form-data",
        "path:/graphql",
        "listener:gateway path:/media status:200 resp.type:video/mp4",
        "host:cdn.example path:/film.mp4 status:200",
    ] {
        let found = said(&["flows", "list", "--format", "jsonl", query]);
        assert!(!found.trim().is_empty(), "nothing fits {query}");
    }
}

#[test]
fn every_agent_of_the_demo_has_its_conversation() {
    let main = listed(&[]);
    let mut agents: Vec<&str> = main.iter().filter_map(|c| c["agent"].as_str()).collect();
    agents.sort_unstable();
    assert_eq!(agents, ["claude-code", "codex", "gemini-cli", "ollama", "openai-js", "openai-python", "openai-python"]);
    let coder = &listed(&["agent:claude-code"])[0];
    assert_eq!(
        (coder["title"].as_str(), coder["turns"].as_u64()),
        (Some("Checkout off by a cent for some carts"), Some(2))
    );
    assert!(coder["used"]["cost"].as_f64().is_some_and(|c| c > 0.0), "{coder}");
    assert!(coder["used"]["cache_read"].as_u64().is_some_and(|n| n > 0), "{coder}");
    let children = listed(&["--all", "agent:claude-code"]);
    assert_eq!(children.iter().filter(|c| c["parent"] == coder["id"]).count(), 2);
}

#[test]
fn an_empty_list_says_so_beside_the_output() {
    let out = interflow(HOME.path(), &["conversations", "list", "agent:nobody"], "");
    assert_eq!((out.stdout.as_slice(), out.status.code()), (&b""[..], Some(0)));
    assert_eq!(String::from_utf8_lossy(&out.stderr), "interflow: no conversation matches\n");
    let out = interflow(HOME.path(), &["conversations", "list", "agent:nobody", "--format", "json"], "");
    assert_eq!((out.stdout.trim_ascii(), out.stderr.as_slice()), (&b"[]"[..], &b""[..]), "programs get data alone");
}

#[test]
fn conversation_is_shown_with_tools_and_exported_as_documents() {
    let coder = listed(&["agent:claude-code"]).remove(0);
    let id = coder["id"].as_str().expect("an id");
    let text = said(&["conversations", "show", id, "--changes"]);
    for words in ["── turn 2 ──", "Grep src", "sub-agent", "41 passed; 1 failed", "three_dimes", "came from the cache"]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    let html = said(&["conversations", "export", &id[..8], "--format", "html"]);
    assert!(html.contains("List every caller") && !html.contains("<script"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().join("talks");
    said(&["conversations", "export", "-o", place.to_str().expect("UTF-8"), "--format", "markdown"]);
    assert_eq!(std::fs::read_dir(place).expect("the folder").count(), 7);
    // A directory is one also for a single conversation.
    for place in [folder.path().join("one/"), folder.path().to_owned()] {
        said(&["conversations", "export", id, "-o", place.to_str().expect("UTF-8")]);
        assert!(place.join(format!("{id}.md")).is_file(), "{}", place.display());
    }
    let out = interflow(HOME.path(), &["conversations", "show", "nobody"], "");
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn conversations_are_searched_tagged_and_commented() {
    let copy = tempfile::tempdir().expect("a temporary folder");
    let from = HOME.path().to_str().expect("UTF-8");
    let copied = Command::new("cp").args(["-a", &format!("{from}/."), copy.path().to_str().expect("UTF-8")]).status();
    assert!(copied.expect("cp").success());
    let run = |args: &[&str]| {
        let out = interflow(copy.path(), &[&["conversations"], args].concat(), "");
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (_, found) = run(&["search", "THREE_dimes", "agent:claude-code"]);
    assert!(found.contains("three_dimes"), "{found}");
    assert_eq!(run(&["search", "no such words"]), (Some(0), String::new()));
    let id = listed(&["agent:claude-code"]).remove(0)["id"].as_str().expect("an id").to_owned();
    assert_eq!(run(&["tag", &id, "regression", "--comment", "slow since Monday"]).0, Some(0));
    assert!(run(&["list", "tag:regression"]).1.contains("[regression]"));
    assert!(run(&["show", &id]).1.contains("note  [regression] slow since Monday"));
    assert_eq!(run(&["tag", &id, "regression", "--remove", "--comment", ""]).0, Some(0));
    assert_eq!(run(&["list", "tag:regression"]).1, "");
    assert_eq!(run(&["tag", &id]).0, Some(2));
    assert_eq!(run(&["tag", &id, "x", "--message", &"0".repeat(32)]).0, Some(1));
}

#[test]
fn a_rebuild_gives_the_same_conversations() {
    let copy = tempfile::tempdir().expect("a temporary folder");
    let from = HOME.path().to_str().expect("UTF-8");
    let copied = Command::new("cp").args(["-a", &format!("{from}/."), copy.path().to_str().expect("UTF-8")]).status();
    assert!(copied.expect("cp").success());
    let show = |home: &Path| {
        let out = interflow(home, &["conversations", "export", "--format", "jsonl"], "");
        String::from_utf8(out.stdout).expect("UTF-8")
    };
    let before = show(copy.path());
    assert!(before.lines().count() > 30);
    let out = interflow(copy.path(), &["conversations", "rebuild"], "");
    assert!(String::from_utf8_lossy(&out.stdout).contains("exchanges read"), "{out:?}");
    assert_eq!(show(copy.path()), before);
}

/// A trace collector that accepts everything and returns the received requests.
fn collector(status: &'static str) -> (String, std::sync::mpsc::Receiver<String>) {
    use std::io::Read as _;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut got = Vec::new();
            let mut piece = [0; 65536];
            loop {
                let n = stream.read(&mut piece).unwrap_or_default();
                got.extend_from_slice(&piece[..n]);
                let text = String::from_utf8_lossy(&got).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length =
                    head.lines().find_map(|l| l.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
                if n == 0 || body.len() >= length.unwrap_or(0usize) {
                    let _ = tell.send(text);
                    break;
                }
            }
            let _ = write!(
                stream,
                "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
            );
        }
    });
    (url, told)
}

/// Sends the conversations of an agent to a collector; returns the head of its request, and the spans.
fn collected_spans() -> (String, Vec<Value>) {
    let (url, told) = collector("200 OK");
    said(&["conversations", "export", "agent:claude-code", "--otlp", &url]);
    let request = told.recv_timeout(std::time::Duration::from_secs(30)).expect("a request");
    let (head, body) = request.split_once("\r\n\r\n").expect("a body");
    let body: Value = serde_json::from_str(body).expect("JSON");
    let spans = body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().expect("spans").clone();
    (head.to_owned(), spans)
}

fn attribute(span: &Value, key: &str) -> Option<Value> {
    span["attributes"].as_array().into_iter().flatten().find(|a| a["key"] == key).map(|a| a["value"].clone())
}

#[test]
fn conversations_are_sent_to_a_collector_as_json_traces() {
    let (head, spans) = collected_spans();
    assert!(head.starts_with("POST /v1/traces "), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: application/json"), "{head}");
    for name in ["invoke_agent claude-code", "execute_tool Task", "execute_tool Bash"] {
        assert!(spans.iter().any(|s| s["name"] == name), "{name}");
    }
}

#[test]
fn spans_of_calls_have_tokens_and_those_of_tools_arguments_and_results() {
    let (_, spans) = collected_spans();
    let chat = spans.iter().find(|s| s["name"].as_str().is_some_and(|n| n.starts_with("chat "))).expect("a call");
    assert!(attribute(chat, "gen_ai.usage.input_tokens").is_some(), "{chat}");
    let tool = spans.iter().find(|s| s["name"] == "execute_tool Bash").expect("a tool");
    assert!(attribute(tool, "gen_ai.tool.call.arguments").is_some_and(|v| v.to_string().contains("cargo test")));
    assert!(attribute(tool, "gen_ai.tool.call.result").is_some());
}

#[test]
fn a_collector_that_refuses_or_is_not_there_is_reported() {
    let (url, _told) = collector("503 Service Unavailable");
    let out = interflow(HOME.path(), &["conversations", "export", "agent:claude-code", "--otlp", &url], "");
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("503"), "{out:?}");
    let out = interflow(HOME.path(), &["conversations", "export", "--otlp", "http://127.0.0.1:1"], "");
    assert_eq!(out.status.code(), Some(1), "nobody listens");
}

#[test]
fn mcp_client_can_read_the_recording() {
    let call = |id: u32, name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let input = [
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}),
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        call(1, "search_flows", json!({"query": "path:/login"})),
        call(2, "list_conversations", json!({"query": "agent:codex"})),
        call(3, "read_conversation", json!({"id": "last", "max_chars": 200})),
    ];
    let input: String = input.iter().map(|m| format!("{m}\n")).collect();
    let out = interflow(HOME.path(), &["mcp"], &input);
    let answers: Vec<Value> =
        String::from_utf8_lossy(&out.stdout).lines().map(|l| serde_json::from_str(l).expect("JSON")).collect();
    assert_eq!(answers.len(), 4, "{out:?}");
    let text = |n: usize| answers[n]["result"]["content"][0]["text"].as_str().expect("a text").to_owned();
    let id = text(1).split(' ').next().expect("an id").to_owned();
    assert!(text(2).contains("gpt-6.1-sol") && text(3).starts_with("# "));
    let read = interflow(HOME.path(), &["mcp"], &format!("{}\n", call(9, "read_flow", json!({ "id": id }))));
    let read = String::from_utf8_lossy(&read.stdout).into_owned();
    assert!(read.contains("user=demo") && !read.contains("hunter2"), "{read}");
}

#[test]
fn the_demo_holds_a_request_until_a_decision() {
    let home = tempfile::tempdir().expect("a temporary folder");
    let anywhere = "127.0.0.1:0";
    let keep = home.path().to_str().expect("UTF-8");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_interflow"))
        .args(["demo", "--keep", keep, "--listen-proxy", anywhere, "--listen-admin", anywhere])
        .env("INTERFLOW_DATA_DIR", home.path())
        .stdout(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let pending = |args: &[&str]| interflow(home.path(), &[&["pending"], args].concat(), "");
    let until = |words: &str, args: &[&str]| {
        let patience = std::time::Instant::now();
        loop {
            let out = String::from_utf8_lossy(&pending(args).stdout).into_owned();
            if out.contains(words) {
                return out;
            }
            assert!(patience.elapsed().as_secs() < 60, "{words} is not there: {out}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    };
    let held: Value = serde_json::from_str(&until("warehouse", &["list", "--format", "json"])).expect("JSON");
    let held = &held["pending"][0];
    assert_eq!(
        (&held["host"], &held["method"], held["url"].as_str().expect("a URL").ends_with("/reservations")),
        (&json!("warehouse"), &json!("POST"), true)
    );
    let viewer = interflow(home.path(), &["tokens", "create", "--name", "v", "--role", "viewer"], "");
    let viewer = String::from_utf8_lossy(&viewer.stdout).trim().to_owned();
    let mut refused = Command::new(env!("CARGO_BIN_EXE_interflow"));
    refused.args(["pending", "allow", "all"]).env("INTERFLOW_DATA_DIR", home.path()).env("INTERFLOW_TOKEN", viewer);
    let refused = refused.output().expect("the binary runs");
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(pending(&["allow", held["id"].as_str().expect("an id")]).status.success());
    let flows = |query: &str| {
        let out = interflow(home.path(), &["flows", "list", "--format", "jsonl", query], "");
        String::from_utf8_lossy(&out.stdout).lines().count()
    };
    let patience = std::time::Instant::now();
    while flows("host:warehouse status:201") == 0 {
        assert!(patience.elapsed().as_secs() < 60, "what was allowed goes on");
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    let _ = demo.kill();
    let _ = demo.wait();
}

/// An instance with an empty data directory and one rule, and its proxy and admin addresses.
struct Instance {
    home: tempfile::TempDir,
    child: std::process::Child,
}

impl Instance {
    fn start(config: &str) -> Self {
        let home = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(home.path().join("interflow.toml"), config).expect("the configuration");
        std::fs::write(home.path().join("rules.yaml"), "rules: [{name: marks, when: 'path:/', then: [{tag: seen}]}]\n")
            .expect("the rules");
        let file = home.path().join("interflow.toml");
        let any = "127.0.0.1:0";
        let child = Command::new(env!("CARGO_BIN_EXE_interflow"))
            .args([
                "run",
                "-c",
                file.to_str().expect("UTF-8"),
                "--listen-proxy",
                any,
                "--listen-gateway",
                any,
                "--listen-admin",
                any,
            ])
            .env("INTERFLOW_DATA_DIR", home.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let it = Self { home, child };
        let patience = std::time::Instant::now();
        while !interflow(it.home.path(), &["approvals", "mode"], "").status.success() {
            assert!(patience.elapsed().as_secs() < 60, "it does not start");
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        it
    }

    fn running(&self) -> Value {
        let told = std::fs::read_to_string(self.home.path().join("instance.json")).expect("it is announced");
        serde_json::from_str(&told).expect("JSON")
    }

    fn said(&self, args: &[&str], input: &str) -> String {
        let out = interflow(self.home.path(), args, input);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("UTF-8")
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one request and reads the whole response.
fn spoken(to: &str, text: &str) -> String {
    use std::io::Read as _;
    let mut stream = std::net::TcpStream::connect(to).expect("it listens");
    stream.write_all(text.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    answer
}

/// An instance that allows MCP to write, with a recorded flow, which failed.
struct McpInstance {
    it: Instance,
    admin: String,
    flow: String,
}

fn tool_call(name: &str, arguments: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}})
}

/// The text that a tool returned.
fn tool_text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

impl McpInstance {
    fn start() -> Self {
        let it = Instance::start("[admin]\nmcp_writes = true\n");
        let at = it.running();
        let admin = at["admin"].as_str().expect("an address").to_owned();
        let proxy = at["proxy"][0].as_str().expect("an address");
        let closed = "http://127.0.0.1:9/";
        spoken(proxy, &format!("GET {closed} HTTP/1.1\r\nHost: 127.0.0.1:9\r\nConnection: close\r\n\r\n"));
        let patience = std::time::Instant::now();
        let flow = loop {
            let out = it.said(&["flows", "list", "--format", "jsonl"], "");
            if let Some(line) = out.lines().find(|l| !l.contains("\"open\"")) {
                let row: Value = serde_json::from_str(line).expect("JSON");
                break row["id"].as_str().expect("an id").to_owned();
            }
            assert!(patience.elapsed().as_secs() < 60, "it is not recorded");
        };
        Self { it, admin, flow }
    }

    fn annotate(&self) -> Value {
        tool_call("annotate_flow", json!({"id": self.flow, "add_tags": ["odd"], "comment": "look here"}))
    }

    fn explain(&self) -> Value {
        tool_call("explain_rules", json!({"id": self.flow}))
    }

    fn replay(&self) -> Value {
        tool_call("replay_flow", json!({"id": self.flow, "headers": ["X-Again: 1"]}))
    }

    /// Sends a message to a command that serves MCP.
    fn to_command(&self, args: &[&str], message: &Value) -> Value {
        serde_json::from_str(&self.it.said(args, &format!("{message}\n"))).expect("JSON")
    }

    /// Sends a message over HTTP.
    fn post(&self, message: &Value, fields: &str) -> String {
        let (admin, body) = (&self.admin, message.to_string());
        let token = std::fs::read_to_string(self.it.home.path().join("admin.token")).unwrap_or_default();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {admin}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\n",
            token.trim()
        );
        let rest = format!("{fields}Content-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
        spoken(admin, &(head + &rest))
    }
}

#[test]
fn mcp_only_reads_unless_it_may_write() {
    let mcp = McpInstance::start();
    assert_eq!(mcp.to_command(&["mcp"], &mcp.annotate())["error"]["code"], -32602);
    assert_eq!(mcp.to_command(&["mcp"], &mcp.replay())["error"]["code"], -32602);
    let explained = mcp.to_command(&["mcp"], &mcp.explain());
    assert!(tool_text(&explained).contains("marks"), "{explained}");
}

#[test]
fn mcp_that_may_write_annotates_flows() {
    let mcp = McpInstance::start();
    assert!(tool_text(&mcp.to_command(&["mcp", "--write"], &mcp.annotate())).contains("odd"));
    let shown = mcp.it.said(&["flows", "show", &mcp.flow, "--format", "json"], "");
    assert!(shown.contains("look here") && shown.contains("\"odd\""), "{shown}");
    let wrong = tool_call("annotate_flow", json!({"id": mcp.flow, "add_tags": "no list"}));
    let wrong = mcp.to_command(&["mcp", "--write"], &wrong);
    assert_eq!(wrong["result"]["isError"], true, "{wrong}");
}

#[test]
fn mcp_that_may_write_replays_flows_and_reports_failures() {
    let mcp = McpInstance::start();
    let again = tool_text(&mcp.to_command(&["mcp", "--write"], &mcp.replay()));
    assert!(again.contains("sent again as flow") && again.contains("it failed"), "{again}");
}

#[test]
fn mcp_over_http_speaks_every_version_of_the_protocol() {
    let mcp = McpInstance::start();
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let greeting =
            json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": version}});
        assert!(mcp.post(&greeting, "").contains(&format!("\"protocolVersion\":\"{version}\"")), "{version}");
        assert!(mcp.post(&mcp.explain(), &format!("MCP-Protocol-Version: {version}\r\n")).contains("marks"));
    }
    assert!(mcp.post(&mcp.explain(), "MCP-Protocol-Version: 1999-01-01\r\n").starts_with("HTTP/1.1 400"));
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert!(mcp.post(&initialized, "").starts_with("HTTP/1.1 202"));
}

#[test]
fn mcp_without_sessions_is_spoken_over_http_and_on_standard_streams() {
    let mcp = McpInstance::start();
    let version = "2026-07-28";
    let stateless = |mut message: Value| {
        message["params"]["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientCapabilities": {}
        });
        message
    };
    let fields = |method: &str, name: &str| {
        format!("MCP-Protocol-Version: {version}\r\nMcp-Method: {method}\r\nMcp-Name: {name}\r\n")
    };
    let discover = stateless(json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover"}));
    let found = mcp.post(&discover, &fields("server/discover", ""));
    assert!(found.contains("\"supportedVersions\":[\"2026-07-28\"") && found.contains("\"ttlMs\""), "{found}");
    let explain = stateless(mcp.explain());
    let tool = explain["params"]["name"].as_str().expect("a name").to_owned();
    let answer = mcp.post(&explain, &fields("tools/call", &tool));
    assert!(answer.contains("marks") && answer.contains("\"resultType\":\"complete\""), "{answer}");
    for (message, fields, status, code) in [
        (&explain, fields("tools/call", "another"), 400, -32020),
        (&mcp.explain(), fields("tools/call", &tool), 400, -32602),
        (&stateless(json!({"id": 1, "method": "ping"})), fields("ping", ""), 404, -32601),
    ] {
        let refused = mcp.post(message, &fields);
        let expected = (format!("HTTP/1.1 {status}"), format!("\"code\":{code}"));
        assert!(refused.starts_with(&expected.0) && refused.contains(&expected.1), "{refused}");
    }
    let found = mcp.to_command(&["mcp"], &discover);
    assert_eq!(found["result"]["supportedVersions"][0], version, "{found}");
}

#[test]
fn mcp_over_http_writes_if_the_configuration_allows_it() {
    let mcp = McpInstance::start();
    let annotate = tool_call("annotate_flow", json!({"id": mcp.flow, "comment": "by HTTP"}));
    assert!(mcp.post(&annotate, "").contains("by HTTP"));
    assert!(mcp.post(&mcp.replay(), "").contains("sent again as flow"));
}

#[test]
fn mcp_over_http_requires_the_token() {
    let it = Instance::start("");
    let admin = it.running()["admin"].as_str().expect("an address").to_owned();
    let head = format!("POST /mcp HTTP/1.1\r\nHost: {admin}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
    assert!(spoken(&admin, &head).starts_with("HTTP/1.1 401"));
}
