//! The environment of one table's runs: a folder, certificates, the nginx origin with its fixed bodies, the fake LLM provider.

use std::fmt::Write;
use std::fs;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use interflow_testkit::{Answer, TestCa, Wire, danger_client, pattern};

use crate::Result;
use crate::process::{Running, cores};

/// Folder, certificates and origins; stopped and removed when dropped.
pub struct Testbed {
    dir: tempfile::TempDir,
    pin: bool,
    http: SocketAddr,
    https: SocketAddr,
    llm: SocketAddr,
    /// The nginx origin.
    pub nginx: Option<Running>,
    /// The fake provider (TLS).
    pub provider: Option<Running>,
}

/// A process's role, for CPU pinning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Under measurement.
    Proxy,
    /// Generator or origin.
    Around,
}

impl Testbed {
    /// Makes the folder and the certificates.
    pub fn new(pin: bool) -> Result<Self> {
        let open = fs::Permissions::from_mode(0o755);
        let dir = tempfile::Builder::new().prefix("interflow-bench-").permissions(open).tempdir()?;
        let ca = TestCa::new();
        let hundred: Vec<String> = (0..=100).map(|i| format!("127.0.1.{i}")).collect();
        let mut names = vec!["localhost", "127.0.0.1", "::1"];
        names.extend(hundred.iter().map(String::as_str));
        let (cert, key) = ca.leaf_pem(&names);
        fs::write(dir.path().join("ca.pem"), ca.pem())?;
        fs::write(dir.path().join("leaf.pem"), &cert)?;
        fs::write(dir.path().join("leaf.key"), &key)?;
        fs::write(dir.path().join("leaf-and-key.pem"), cert + &key)?;
        let (http, https, llm) = (free_port()?, free_port()?, free_port()?);
        Ok(Self { dir, pin, http, https, llm, nginx: None, provider: None })
    }

    /// Starts nginx with so many different bodies of random bytes under `/r/0`, `/r/1` and so on.
    pub fn with_random_bodies(self, size: usize, count: usize) -> Result<Self> {
        fs::create_dir_all(self.path("www/r"))?;
        let mut random = fs::File::open("/dev/urandom")?;
        let mut body = vec![0; size];
        for n in 0..count {
            random.read_exact(&mut body)?;
            fs::write(self.path(&format!("www/r/{n}")), &body)?;
        }
        self.with_nginx(&[])
    }

    /// Starts nginx with these body sizes under `/b/SIZE`.
    pub fn with_nginx(mut self, sizes: &[usize]) -> Result<Self> {
        fs::create_dir_all(self.path("www/b"))?;
        for size in sizes {
            fs::write(self.body(*size), pattern(*size))?;
        }
        let config = self.path("origin.conf");
        fs::write(&config, self.nginx_config())?;
        let mut command = Command::new("nginx");
        command.arg("-p").arg(self.dir.path()).arg("-c").arg(&config).arg("-e").arg(self.path("origin-errors.log"));
        self.nginx = Some(self.start("origin", command, self.http, Role::Around)?);
        Ok(self)
    }

    /// Starts the fake provider with TLS.
    pub fn with_provider(self) -> Result<Self> {
        self.with_provider_watching(&[])
    }

    /// Like [`with_provider`](Self::with_provider); the provider counts the requests that contain one of these texts.
    pub fn with_provider_watching(mut self, markers: &[&str]) -> Result<Self> {
        let mut command = Command::new(beside_us("fake-llm")?);
        command.arg(self.llm.to_string()).arg(self.path("leaf.pem")).arg(self.path("leaf.key"));
        for marker in markers {
            command.arg("--watch").arg(marker);
        }
        self.provider = Some(self.start("provider", command, self.llm, Role::Around)?);
        Ok(self)
    }

    /// Starts a process in this testbed.
    pub fn start(&self, name: &str, command: Command, ready: SocketAddr, role: Role) -> Result<Running> {
        Running::start(name, self.placed(command, role), &self.path(&format!("{name}.log")), ready)
    }

    /// The command pinned to the cores of its role, if pinning is enabled.
    pub fn placed(&self, command: Command, role: Role) -> Command {
        let cores = cores();
        if !self.pin || cores < 2 {
            return command;
        }
        let mut placed = Command::new("taskset");
        placed.arg("-c").arg(match role {
            Role::Proxy => (cores - 1).to_string(),
            Role::Around => format!("0-{}", cores - 2),
        });
        placed.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => placed.env(name, value),
                None => placed.env_remove(name),
            };
        }
        placed
    }

    /// What the fake provider counted.
    ///
    /// # Errors
    /// When it does not answer with JSON.
    pub fn provider_stats(&self) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(&ask(self.llm, "GET /stats", &[], &[])?.body)?)
    }

    /// A file or folder of the testbed.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The file behind `/b/SIZE`.
    pub fn body(&self, size: usize) -> PathBuf {
        self.path(&format!("www/b/{size}"))
    }

    /// nginx's plain address.
    pub fn http(&self) -> SocketAddr {
        self.http
    }

    /// nginx's TLS address.
    pub fn https(&self) -> SocketAddr {
        self.https
    }

    /// The provider's TLS address.
    pub fn llm(&self) -> SocketAddr {
        self.llm
    }

    fn nginx_config(&self) -> String {
        let mut listen = String::new();
        for (addr, more) in [(self.http, ""), (self.https, " ssl http2")] {
            let _ = writeln!(listen, "    listen 0.0.0.0:{}{more} reuseport backlog=16384;", addr.port());
            if Path::new("/proc/net/if_inet6").exists() {
                let _ = writeln!(listen, "    listen [::1]:{}{more} reuseport backlog=16384;", addr.port());
            }
        }
        let dir = self.dir.path().display();
        format!(
            "user root;\ndaemon off;\nworker_processes 2;\npid {dir}/origin.pid;\n\
             events {{ worker_connections 18000; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  tcp_nodelay on;\n  keepalive_timeout 600;\n\
             \x20 keepalive_requests 1000000000;\n  http2_max_concurrent_streams 1000;\n\
             \x20 open_file_cache max=1000 inactive=600s;\n  open_file_cache_valid 600s;\n\
             \x20 client_body_temp_path {dir}/t1;\n  proxy_temp_path {dir}/t2;\n  fastcgi_temp_path {dir}/t3;\n\
             \x20 uwsgi_temp_path {dir}/t4;\n  scgi_temp_path {dir}/t5;\n\
             \x20 server {{\n{listen}    ssl_certificate {dir}/leaf.pem;\n    ssl_certificate_key {dir}/leaf.key;\n\
             \x20   ssl_session_cache shared:s:10m;\n    root {dir}/www;\n    default_type application/octet-stream;\n  }}\n}}\n"
        )
    }
}

/// A loopback address whose port was free a moment ago.
pub fn free_port() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// One request (`METHOD PATH`) to a TLS server of this machine, outside of any load.
///
/// # Errors
/// When there is no answer.
pub fn ask(addr: SocketAddr, request: &str, fields: &[&str], body: &[u8]) -> Result<Answer> {
    let mut head = format!("{request} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n", body.len());
    fields.iter().for_each(|field| head.extend([field, "\r\n"]));
    head.push_str("\r\n");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        let tls = Arc::new(danger_client(&["http/1.1"]));
        let mut wire = Wire::connect(addr).await?.into_tls("localhost", tls).await?;
        wire.send([head.as_bytes(), body].concat()).await?;
        wire.answer().await
    });
    Ok(answer?)
}

/// How many connections a proxy of one process can carry here: each takes two descriptors.
pub fn connection_cap() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1 << 20);
    usize::try_from(limit).unwrap_or(1 << 20).saturating_sub(200) / 2
}

/// A binary of this workspace, built next to the harness, [as it is installed](installed).
pub fn beside_us(name: &str) -> Result<PathBuf> {
    let built = std::env::current_exe()?.with_file_name(name);
    if built.exists() {
        installed(&built)
    } else {
        Err(format!("{} is missing; build it first", built.display()).into())
    }
}

/// A copy of a program that was built here, written in one go as an installed one is. The linker's own file lies in small
/// pieces in the page cache; running it takes up to a fourth more processor time.
pub fn installed(built: &Path) -> Result<PathBuf> {
    let (folder, name) = built.parent().zip(built.file_name()).ok_or("a program has a name")?;
    let copy = folder.join("installed").join(name);
    let written = |file: &Path| fs::metadata(file).and_then(|file| file.modified()).ok();
    if written(&copy) < written(built) {
        fs::create_dir_all(folder.join("installed"))?;
        // One that runs cannot be written, but replaced.
        let fresh = copy.with_extension("new");
        fs::copy(built, &fresh)?;
        fs::rename(&fresh, &copy)?;
    }
    Ok(copy)
}

/// Where peers are installed: `$XDG_CACHE_HOME/interflow-bench`, else `~/.cache/interflow-bench`.
pub fn cache() -> Result<PathBuf> {
    let base = match std::env::var_os("XDG_CACHE_HOME") {
        Some(dir) => PathBuf::from(dir),
        None => PathBuf::from(std::env::var_os("HOME").ok_or("neither XDG_CACHE_HOME nor HOME is set")?).join(".cache"),
    };
    let dir = base.join("interflow-bench");
    fs::create_dir_all(&dir)?;
    Ok(dir)
}
