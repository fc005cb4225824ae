//! A real PostgreSQL server for tests: one per test process, and a database per test.
//!
//! The server comes from the system's `postgresql` package, which `make test` installs for root. Where it is missing,
//! [`PostgresServer::shared`] prints a note and returns `None`, and the test that needs it returns.
//!
//! A supervising shell ends the server and deletes its files once the test process is gone, however that ended: a static
//! is never dropped, and a killed process drops nothing.

use std::ffi::OsStr;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::TestCa;

/// The superuser of the server, who owns each test's database.
const USER: &str = "interflow";
const PASSWORD: &str = "testkit-secret";
/// How long starting or stopping may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Starts the server, and ends it with the signal that it reads, or when its input is closed by the end of the tests.
const SUPERVISOR: &str = r#"
folder=$1; shift
"$@" </dev/null >"$folder/log" 2>&1 &
server=$!
if read -r signal; then
    kill -"$signal" $server; wait $server
else
    # A test may have frozen it.
    kill -CONT $server 2>/dev/null
    # Until it is gone: a server that has just begun does not hear signals yet.
    while kill -QUIT $server 2>/dev/null; do sleep 0.1; done
    cd /; rm -rf "$folder"
fi"#;

/// A server with a folder of its own. Clients come over TCP on the loopback interface and need the password.
pub struct PostgresServer {
    programs: PathBuf,
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    account: Option<(u32, u32)>,
    supervisor: Mutex<Option<Child>>,
}

/// A new, empty database on a server; its owner is a superuser.
pub struct PostgresDatabase {
    server: Arc<PostgresServer>,
    name: String,
}

impl PostgresServer {
    /// The server that the tests of this process share: do not stop it. `None` where PostgreSQL is not installed.
    pub fn shared() -> Option<Arc<Self>> {
        static SHARED: OnceLock<Option<Arc<PostgresServer>>> = OnceLock::new();
        SHARED.get_or_init(Self::new).clone()
    }

    /// A server for a test that stops it or ends it abruptly. `None` where PostgreSQL is not installed.
    pub fn new() -> Option<Arc<Self>> {
        Self::with_settings(&[])
    }

    /// A server with TLS, whose certificate for these names is from this authority. The user [`CERTIFIED`](Self::CERTIFIED),
    /// once made, needs a client certificate from it.
    pub fn with_tls(ca: &TestCa, names: &[&str]) -> Option<Arc<Self>> {
        let (chain, key) = ca.leaf_pem(names);
        let settings = [
            ("ssl", "on"),
            ("ssl_cert_file", "server.crt"),
            ("ssl_key_file", "server.key"),
            ("ssl_ca_file", "clients.crt"),
        ];
        Self::launch(&settings, |data| {
            std::fs::write(data.join("server.crt"), &chain)?;
            std::fs::write(data.join("server.key"), &key)?;
            std::fs::write(data.join("clients.crt"), ca.pem())?;
            let rules = std::fs::read_to_string(data.join("pg_hba.conf"))?;
            let certified = Self::CERTIFIED;
            let first = format!("hostssl all {certified} 127.0.0.1/32 scram-sha-256 clientcert=verify-ca\n");
            std::fs::write(data.join("pg_hba.conf"), first + &rules)
        })
    }

    /// See [`with_tls`](Self::with_tls).
    pub const CERTIFIED: &str = "certified";

    /// Settings of a server that is measured. Unlike the defaults here, it loses nothing when its machine does, and its cache
    /// fits the tables.
    pub const DURABLE: [(&str, &str); 6] = [
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("shared_buffers", "1GB"),
        ("max_wal_size", "8GB"),
        ("checkpoint_timeout", "15min"),
        ("wal_compression", "on"),
    ];

    /// A server with further settings of `postgresql.conf`.
    pub fn with_settings(settings: &[(&str, &str)]) -> Option<Arc<Self>> {
        Self::launch(settings, |_| Ok(()))
    }

    fn launch(
        settings: &[(&str, &str)],
        prepare: impl FnOnce(&Path) -> std::io::Result<()>,
    ) -> Option<Arc<PostgresServer>> {
        let Some(programs) = find_programs() else {
            eprintln!("LEFT OUT: PostgreSQL is not installed; install `postgresql`, or run `make test` as root");
            return None;
        };
        let account = account_for_server();
        let folder = new_folder(account);
        let server = Self {
            programs,
            port: 0,
            settings: settings.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            account,
            supervisor: Mutex::new(None),
            folder,
        };
        server.initialize();
        prepare(&server.data()).expect("the server's folder can be written");
        server.hand_over_files();
        Some(Arc::new(server.on_free_port()))
    }

    fn on_free_port(mut self) -> Self {
        // Another process may take a free port before the server does.
        for attempt in 0.. {
            self.port = free_port();
            match self.try_start() {
                Ok(()) => break,
                Err(log) if attempt == 5 => panic!("PostgreSQL does not start: {log}"),
                Err(_) => {}
            }
        }
        self
    }

    /// A standby of this server, with the same databases. From here on, what this server commits is on the standby too.
    ///
    /// # Panics
    /// If it does not start, or does not follow.
    pub fn standby(&self) -> Arc<Self> {
        let folder = new_folder(self.account);
        let data = folder.join("data");
        let data = data.to_str().expect("the temporary folder has a name of Unicode");
        self.client("pg_basebackup", &["--pgdata", data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync"]);
        let standby = Self {
            programs: self.programs.clone(),
            folder,
            port: 0,
            settings: self.settings.clone(),
            account: self.account,
            supervisor: Mutex::new(None),
        };
        let standby = standby.on_free_port();
        self.sql("postgres", "ALTER SYSTEM SET synchronous_standby_names = '*'");
        self.sql("postgres", "SELECT pg_reload_conf()");
        let until = Instant::now() + PATIENCE;
        while self.sql("postgres", "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") != "1" {
            assert!(Instant::now() < until, "the standby does not follow");
            std::thread::sleep(Duration::from_millis(20));
        }
        Arc::new(standby)
    }

    /// Makes a standby the primary.
    ///
    /// # Panics
    /// If it is none.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t", "the standby was promoted");
    }

    /// Runs SQL in a database, and returns its rows as text: a line per row, `|` between columns.
    fn sql(&self, database: &str, sql: &str) -> String {
        let output = self.client("psql", &["--dbname", database, "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", sql]);
        String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
    }

    /// The port on 127.0.0.1, which stays the same when the server is started again.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The id of the server's main process, while it runs.
    pub fn process(&self) -> Option<u32> {
        std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?.lines().next()?.parse().ok()
    }

    /// `postgres (PostgreSQL) 15.18`.
    pub fn version(&self) -> String {
        let output = succeed(self.command("postgres").arg("--version"));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Makes a new database.
    ///
    /// # Panics
    /// If the server does not run.
    pub fn database(self: &Arc<Self>) -> PostgresDatabase {
        static NEXT: AtomicUsize = AtomicUsize::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.client("createdb", &[&name]);
        PostgresDatabase { server: Arc::clone(self), name }
    }

    /// A database that the server has already.
    pub fn existing_database(self: &Arc<Self>, name: &str) -> PostgresDatabase {
        PostgresDatabase { server: Arc::clone(self), name: name.to_owned() }
    }

    /// Ends the server as an operator does: open connections are ended, transactions rolled back, files written.
    pub fn stop(&self) {
        self.end("INT");
    }

    /// Ends the server at once, as a crash does: it recovers from its log when it is started again.
    pub fn kill(&self) {
        self.end("QUIT");
    }

    /// Stops all processes of the server where they are, as a machine that hangs does: connections stay open, and nothing
    /// answers.
    pub fn freeze(&self) {
        self.signal_all("STOP");
    }

    /// Lets a frozen server go on.
    pub fn thaw(&self) {
        self.signal_all("CONT");
    }

    fn signal_all(&self, signal: &str) {
        let Some(server) = self.process() else { return };
        // The server first, so that it starts no further process meanwhile. One that has just ended needs no signal.
        let each = format!("for each in $(ps -o pid= --ppid {server}); do kill -{signal} $each 2>/dev/null || :; done");
        let script = format!("kill -{signal} {server} && {each}");
        succeed(Command::new("/bin/sh").args(["-c", &script]));
    }

    /// Starts a stopped server with the same data, on the same port.
    ///
    /// # Panics
    /// If it does not start.
    pub fn start(&self) {
        if let Err(log) = self.try_start() {
            panic!("PostgreSQL does not start again: {log}");
        }
    }

    fn initialize(&self) {
        let password = self.folder.join("password");
        std::fs::write(&password, PASSWORD).expect("the server's folder can be written");
        self.hand_over_files();
        let mut command = self.command("initdb");
        command.arg("--pgdata").arg(self.data()).arg("--pwfile").arg(&password);
        command.args(["--username", USER, "--auth-local=trust", "--auth-host=scram-sha-256", "--no-sync"]);
        command.args(["--encoding=UTF8", "--locale=C.UTF-8"]);
        succeed(&mut command);
    }

    fn try_start(&self) -> Result<(), String> {
        let mut command = Command::new("/bin/sh");
        self.as_account(&mut command);
        command.args(["-c", SUPERVISOR, "supervisor"]).arg(&self.folder).arg(self.programs.join("postgres"));
        command.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        command.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        // Files need not survive a crash of the machine; what was committed survives one of the server.
        for setting in ["fsync=off", "full_page_writes=off", "max_connections=300", "shared_buffers=32MB"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        let log = self.folder.join("log");
        let _ = std::fs::remove_file(&log);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("there is a shell");
        let until = Instant::now() + PATIENCE;
        loop {
            let ready = self.client_command("pg_isready").args(["--quiet", "--dbname=postgres"]).status();
            if ready.is_ok_and(|status| status.success()) {
                break;
            }
            let log = std::fs::read_to_string(&log).unwrap_or_default();
            let ended = log.contains("FATAL") && !self.data().join("postmaster.pid").exists();
            if ended || Instant::now() > until {
                write_signal(&mut child, "KILL");
                return Err(log);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        *self.supervisor() = Some(child);
        Ok(())
    }

    fn end(&self, signal: &str) {
        if let Some(mut child) = self.supervisor().take() {
            self.thaw();
            write_signal(&mut child, signal);
        }
    }

    fn supervisor(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.supervisor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Runs a client program of PostgreSQL over the server's socket, which needs no password.
    fn client(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = self.client_command(program);
        succeed(command.args(arguments))
    }

    fn client_command(&self, program: &str) -> Command {
        let mut command = self.command(program);
        command.arg("--host").arg(&self.folder).args(["--port", &self.port.to_string(), "--username", USER]);
        command
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.programs.join(program));
        self.as_account(&mut command);
        command
    }

    fn as_account(&self, command: &mut Command) {
        // PG… variables of whoever runs the tests must not lead to another server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        command.env("LC_ALL", "C.UTF-8").current_dir(&self.folder);
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
    }

    /// Gives the server's account the files that the test has written; a key must not be readable by others.
    fn hand_over_files(&self) {
        let Some((uid, gid)) = self.account else { return };
        for folder in [self.folder.clone(), self.data()] {
            for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                let _ = chown(entry.path(), Some(uid), Some(gid));
            }
        }
        let _ = std::fs::set_permissions(self.data().join("server.key"), std::fs::Permissions::from_mode(0o600));
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.end("QUIT");
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl PostgresDatabase {
    /// `postgres://user:password@127.0.0.1:port/name`.
    pub fn url(&self) -> String {
        self.url_for(USER, PASSWORD)
    }

    /// The URL for another user, or with another password.
    pub fn url_for(&self, user: &str, password: &str) -> String {
        format!("postgres://{user}:{password}@127.0.0.1:{}/{}", self.server.port, self.name)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn server(&self) -> &Arc<PostgresServer> {
        &self.server
    }

    /// Runs SQL beside the code under test, and returns its rows as text: a line per row, `|` between columns.
    ///
    /// # Panics
    /// If the server refuses it.
    pub fn sql(&self, sql: &str) -> String {
        self.server.sql(&self.name, sql)
    }
}

/// The folder of the server's programs: next to what PATH leads to, or where Debian has them, the newest first.
fn find_programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("postgres"));
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut installed: Vec<_> = versions.map(|version| version.path().join("bin/postgres")).collect();
    installed.sort_by_key(|path| std::cmp::Reverse(version_in(path)));
    let programs = in_path.chain(installed).filter_map(|program| program.canonicalize().ok());
    let complete = |folder: &Path| ["initdb", "postgres", "psql"].iter().all(|name| folder.join(name).exists());
    programs.filter_map(|program| Some(program.parent()?.to_owned())).find(|folder| complete(folder))
}

fn version_in(path: &Path) -> Option<u32> {
    path.iter().rev().nth(2).and_then(OsStr::to_str)?.parse().ok()
}

/// PostgreSQL refuses to run as root: for root, the account `postgres` of the package, or else `nobody`.
fn account_for_server() -> Option<(u32, u32)> {
    let probe = Command::new("id").arg("-u").output().expect("there is `id`");
    if probe.stdout.trim_ascii() != b"0" {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let find = |name: &str| {
        let mut fields = accounts.lines().map(|line| line.split(':')).find(|f| f.clone().next() == Some(name))?;
        Some((fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    find("postgres").or_else(|| find("nobody")).or(Some((65534, 65534)))
}

/// A folder of the server's account. Short, since the path of a Unix socket has at most 107 bytes.
fn new_folder(account: Option<(u32, u32)>) -> PathBuf {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    loop {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("interflow-pg-{}-{number}", std::process::id()));
        match std::fs::create_dir(&folder) {
            Ok(()) => {
                if let Some((uid, gid)) = account {
                    chown(&folder, Some(uid), Some(gid)).expect("root may give files away");
                }
                return folder;
            }
            // Left by a process with the same number that could not delete it.
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => panic!("{}: {e}", folder.display()),
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("there is a free port");
    listener.local_addr().expect("it is bound").port()
}

fn write_signal(child: &mut Child, signal: &str) {
    if let Some(mut input) = child.stdin.take() {
        let _ = writeln!(input, "{signal}");
    }
    let _ = child.wait();
}

fn succeed(command: &mut Command) -> Output {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}
