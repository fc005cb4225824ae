//! Tests the examples in README.md, docs/ and deploy/: every `toml` block must be a valid configuration, every `sh` block
//! that starts with `# run` must work against a running instance, and every link must resolve.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use interflow_testkit::{Origin, TestCa};
use serde_json::Value as Json;

const INTERFLOW: &str = env!("CARGO_BIN_EXE_interflow");

struct Block {
    page: String,
    line: usize,
    language: String,
    text: String,
}

impl Block {
    fn place(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }
}

#[test]
fn every_toml_block_is_a_valid_configuration() {
    let folder = tempfile::tempdir().unwrap();
    named_files(folder.path());
    let blocks: Vec<_> = blocks().into_iter().filter(|b| b.language == "toml").collect();
    assert!(blocks.len() >= 5, "only {} blocks of toml were found", blocks.len());
    for block in blocks {
        check(folder.path(), &block.text, &block.place());
    }
}

#[test]
fn the_configurations_in_deploy_are_valid() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::read_to_string(root().join("deploy/interflow.toml")).unwrap();
    check(folder.path(), &file, "deploy/interflow.toml");
    let values = fs::read_to_string(root().join("deploy/helm/interflow/values.yaml")).unwrap();
    let (_, block) = values.split_once("\nconfig: |\n").expect("the chart's values hold a configuration");
    let chart: Vec<_> = block.lines().take_while(|l| l.is_empty() || l.starts_with("  ")).map(str::trim).collect();
    assert!(chart.len() > 3, "the chart's configuration is empty");
    check(folder.path(), &chart.join("\n"), "deploy/helm/interflow/values.yaml");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_runnable_block_works() {
    let ca = std::sync::Arc::new(TestCa::new());
    let names = ["example.com", "localhost"];
    let (plain, tls) =
        tokio::join!(Origin::http().start(), Origin::https().names(&names).ca(std::sync::Arc::clone(&ca)).start());
    let folder = tempfile::tempdir().unwrap();
    let instance = Instance::start(folder.path(), &ca, &tls);
    let blocks: Vec<_> = blocks().into_iter().filter(|b| b.language == "sh" && b.text.starts_with("# run\n")).collect();
    assert!(blocks.len() >= 5, "only {} blocks to run were found", blocks.len());
    for block in blocks {
        let before = plain.served() + tls.served();
        let script = instance.translate(&block.text, &plain, &tls);
        let output = instance.run(&script);
        assert!(output.status.success(), "{}: {}\n{script}", block.place(), said(&output));
        let asks = script.matches("curl ").count() > 0 && script.contains("example.com:");
        assert!(!asks || plain.served() + tls.served() > before, "{}: nothing reached the origin", block.place());
    }
}

#[test]
fn every_link_target_exists() {
    let mut broken = Vec::new();
    for (page, text) in pages() {
        let folder = root().join(&page).parent().expect("a page lies in a folder").to_owned();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") && !folder.join(file).exists() {
                broken.push(format!("{page}: {target}"));
            }
        }
    }
    assert!(broken.is_empty(), "these links lead nowhere: {broken:#?}");
}

/// An instance for the examples, stopped when dropped.
struct Instance {
    child: Child,
    home: PathBuf,
    folder: PathBuf,
    proxy: String,
    gateway: String,
    admin: String,
}

impl Instance {
    fn start(folder: &Path, ca: &TestCa, api: &Origin) -> Self {
        let home = folder.join(".local/share/interflow");
        fs::write(folder.join("origin-ca.pem"), ca.pem()).unwrap();
        let config = format!(
            "[upstream]\nextra_ca = [\"{}\"]\nhosts = {{ \"example.com\" = [\"127.0.0.1\"] }}\n\
             [[gateway.route]]\npath = \"/api\"\nto = \"https://example.com:{}\"\nstrip_path = true\n",
            folder.join("origin-ca.pem").display(),
            api.port(),
        );
        fs::write(folder.join("instance.toml"), config).unwrap();
        let log = fs::File::create(folder.join("log")).unwrap();
        let child = Command::new(INTERFLOW)
            .arg("-c")
            .arg(folder.join("instance.toml"))
            .args([
                "run",
                "--listen-proxy",
                "127.0.0.1:0",
                "--listen-gateway",
                "127.0.0.1:0",
                "--listen-admin",
                "127.0.0.1:0",
            ])
            .envs(home_of(folder))
            .env_remove("INTERFLOW_DATA_DIR")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut instance = Self {
            child,
            home,
            folder: folder.to_owned(),
            proxy: String::new(),
            gateway: String::new(),
            admin: String::new(),
        };
        let announced = instance.announced();
        let addr = |value: &Json| value.as_str().unwrap().parse::<SocketAddr>().unwrap().to_string();
        instance.proxy = addr(&announced["proxy"][0]);
        instance.gateway = addr(&announced["gateway"]);
        instance.admin = addr(&announced["admin"]);
        instance
    }

    /// Contents of `instance.json` once the instance serves.
    fn announced(&mut self) -> Json {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = fs::read_to_string(self.home.join("instance.json")).unwrap_or_default();
            if let Ok(announced) = serde_json::from_str(&text) {
                return announced;
            }
            let ended = self.child.try_wait().unwrap();
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < deadline, "the instance does not start ({ended:?}): {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Replaces the documented addresses with those of this test.
    fn translate(&self, script: &str, plain: &Origin, tls: &Origin) -> String {
        script
            .replace("127.0.0.1:7070", &self.proxy)
            .replace("127.0.0.1:7071", &self.gateway)
            .replace("127.0.0.1:7072", &self.admin)
            .replace("http://example.com/", &format!("http://example.com:{}/", plain.port()))
            .replace("https://example.com/", &format!("https://example.com:{}/", tls.port()))
    }

    fn run(&self, script: &str) -> Output {
        let bin = Path::new(INTERFLOW).parent().expect("the binary lies in a folder");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let scratch = tempfile::tempdir_in(&self.folder).unwrap();
        Command::new("bash")
            .args(["-eu", "-o", "pipefail", "-c", script])
            .current_dir(scratch.path())
            .env("PATH", path)
            .envs(home_of(&self.folder))
            .env_remove("INTERFLOW_DATA_DIR")
            // curl succeeds on a 404 by default; an example must really work.
            .env("CURL_HOME", self.curl_settings())
            .output()
            .expect("bash starts")
    }

    fn curl_settings(&self) -> &Path {
        fs::write(self.folder.join(".curlrc"), "fail\nsilent\nshow-error\nmax-time = 60\n").unwrap();
        &self.folder
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Environment variables that place the data directory where the pages expect it.
fn home_of(folder: &Path) -> [(&'static str, PathBuf); 2] {
    [("HOME", folder.to_owned()), ("XDG_DATA_HOME", folder.join(".local/share"))]
}

/// Fails unless `interflow config check` accepts the block.
fn check(folder: &Path, config: &str, place: &str) {
    fs::write(folder.join("interflow.toml"), config).unwrap();
    let output = Command::new(INTERFLOW)
        .args(["-c", "interflow.toml", "config", "check"])
        .current_dir(folder)
        .env("INTERFLOW_DATA_DIR", folder.join("home"))
        .env("COMPANY_PROXY", "http://user:password@127.0.0.1:3128")
        .output()
        .unwrap();
    assert!(output.status.success(), "{place}: {}\n{config}", said(&output));
}

/// Creates the files that the documented configurations refer to.
fn named_files(folder: &Path) {
    let ca = TestCa::new();
    let (chain, key) = ca.leaf_pem(&["proxy.example.com"]);
    for (name, text) in [
        ("company-ca.pem", ca.pem()),
        ("proxy.pem", &chain),
        ("proxy-key.pem", &key),
        ("clients-ca.pem", ca.pem()),
        ("client.pem", &chain),
        ("client-key.pem", &key),
        ("users", "alice:$2y$04$abcdefghijklmnopqrstuu5UF8N2tHXwDqz9n0k9G5nDyoQCFyeiG\n"),
    ] {
        fs::write(folder.join(name), text).unwrap();
    }
}

fn said(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{}\n{out}{err}", output.status)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All documentation pages, as paths relative to the root.
fn pages() -> Vec<(String, String)> {
    let mut names: Vec<String> =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(str::to_owned).into();
    let docs = fs::read_dir(root().join("docs")).unwrap().flatten();
    names.extend(docs.map(|e| format!("docs/{}", e.file_name().to_string_lossy())).filter(|n| n.ends_with(".md")));
    names.sort();
    let read = |name: String| {
        let text = fs::read_to_string(root().join(&name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        (name, text)
    };
    names.into_iter().map(read).collect()
}

/// Every fenced block of every page.
fn blocks() -> Vec<Block> {
    let mut found = Vec::new();
    for (page, text) in pages() {
        let mut open: Option<Block> = None;
        for (number, line) in text.lines().enumerate() {
            match (&mut open, line.strip_prefix("```")) {
                (None, Some(language)) => {
                    let language = language.trim().to_owned();
                    open = Some(Block { page: page.clone(), line: number + 1, language, text: String::new() });
                }
                (Some(_), Some(_)) => found.extend(open.take()),
                (Some(block), None) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{page}: a block is not closed");
    }
    found
}
