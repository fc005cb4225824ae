//! Instances and shells for the examples: a home directory of their own, no network but [`Internet`].

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value as Json;

use crate::internet::Internet;

pub const INTERFLOW: &str = env!("CARGO_BIN_EXE_interflow");

/// Variable that restricts the test of the `console` blocks to the pages whose path contains its value.
pub const PAGE: &str = "DOCS_PAGE";

/// A user's home directory with an environment in which `interflow` is on the path.
pub struct Home {
    folder: PathBuf,
    environment: Vec<(&'static str, String)>,
}

impl Home {
    pub fn new(folder: &Path, internet: &Internet) -> Self {
        fs::create_dir_all(folder).unwrap();
        // curl succeeds on a 404 by default; an example must really work.
        fs::write(folder.join(".curlrc"), "fail\nsilent\nshow-error\nmax-time = 60\n").unwrap();
        let bin = Path::new(INTERFLOW).parent().expect("the binary is in a folder");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
        let mut environment = vec![
            ("PATH", path),
            ("HOME", folder.display().to_string()),
            ("CURL_HOME", folder.display().to_string()),
            ("XDG_DATA_HOME", folder.join(".local/share").display().to_string()),
            ("NO_COLOR", "1".to_owned()),
            ("COLUMNS", "100".to_owned()),
        ];
        environment.extend(internet.environment());
        Self { folder: folder.to_owned(), environment }
    }

    fn bash(&self, script: &str, directory: &Path) -> Command {
        let mut command = Command::new("bash");
        command
            .args(["-eu", "-o", "pipefail", "-c", script])
            .current_dir(directory)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env_remove("INTERFLOW_DATA_DIR")
            .env_remove(PAGE)
            .stdin(Stdio::null());
        command
    }

    pub fn run(&self, script: &str, directory: &Path) -> Output {
        self.bash(script, directory).output().expect("bash starts")
    }

    /// Starts `interflow run` or `interflow demo` on free ports and waits until it listens.
    pub fn start(&self, script: &str, directory: &Path) -> Instance {
        let data = self.folder.join(".local/share/interflow");
        let _ = fs::remove_file(data.join("instance.json"));
        let log = directory.join("instance.log");
        let errors = fs::File::create(directory.join("instance.err")).unwrap();
        let any = "--listen-proxy 127.0.0.1:0 --listen-gateway 127.0.0.1:0 --listen-admin 127.0.0.1:0";
        let child = self
            .bash(&format!("exec {script} {any}"), directory)
            .stdout(fs::File::create(&log).unwrap())
            .stderr(errors)
            .spawn()
            .expect("bash starts");
        let mut instance = Instance { child, log, proxy: String::new(), gateway: String::new(), admin: String::new() };
        let announced = instance.announced(&data);
        let addr = |value: &Json| value.as_str().unwrap().parse::<SocketAddr>().unwrap().to_string();
        instance.proxy = addr(&announced["proxy"][0]);
        instance.gateway = addr(&announced["gateway"]);
        instance.admin = addr(&announced["admin"]);
        instance
    }
}

/// A running instance, stopped when dropped.
pub struct Instance {
    child: Child,
    log: PathBuf,
    proxy: String,
    gateway: String,
    admin: String,
}

impl Instance {
    /// Contents of `instance.json` once the instance serves.
    fn announced(&mut self, data: &Path) -> Json {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let text = fs::read_to_string(data.join("instance.json")).unwrap_or_default();
            if let Ok(announced) = serde_json::from_str(&text) {
                return announced;
            }
            let ended = self.child.try_wait().unwrap();
            let errors = fs::read_to_string(self.log.with_extension("err")).unwrap_or_default();
            assert!(
                ended.is_none() && Instant::now() < deadline,
                "the instance does not start ({ended:?}): {}{errors}",
                self.output()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it has printed so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// What it has printed, once that is as expected or after ten seconds: the banner follows `instance.json`.
    pub fn output_until(&self, is_expected: impl Fn(&str) -> bool) -> String {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let printed = self.output();
            if is_expected(&printed) || Instant::now() > deadline {
                return printed;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Replaces the documented addresses with those of this instance.
    pub fn translate(&self, script: &str) -> String {
        script
            .replace("127.0.0.1:7070", &self.proxy)
            .replace("127.0.0.1:7071", &self.gateway)
            .replace("127.0.0.1:7072", &self.admin)
            .replace("localhost:7070", &self.proxy)
            .replace("localhost:7071", &self.gateway)
            .replace("localhost:7072", &self.admin)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
