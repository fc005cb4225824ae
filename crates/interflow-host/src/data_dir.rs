//! The data directory: its location, the admin token, and the running instance.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use interflow_files::{FileAccess, create_private_dir, optional, write_atomic};
use serde::{Deserialize, Serialize};

#[cfg(unix)]
use crate::data_dir_access;

#[derive(Debug, Clone)]
pub struct DataDir {
    path: PathBuf,
    is_read_only: bool,
}

/// A path as one argument of a POSIX shell.
pub fn shell_argument(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let text = absolute.display().to_string();
    let plain = text.chars().all(|c| c.is_alphanumeric() || "_@%+=:,./-".contains(c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Description of a running instance, read by other commands from `instance.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InstanceInfo {
    pub pid: u32,
    pub proxy: Vec<SocketAddr>,
    pub gateway: Option<SocketAddr>,
    pub admin: Option<SocketAddr>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<SocketAddr>,
    /// Why the last restart was refused, since when the instance has gone on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart_refused: Option<String>,
}

impl InstanceInfo {
    /// TCP listeners with their roles. The DNS listener is not among them.
    pub fn addresses(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let named = |name: &'static str| move |addr: &SocketAddr| (name, *addr);
        let proxies = self.proxy.iter().map(named("proxy"));
        proxies.chain(self.gateway.iter().map(named("gateway"))).chain(self.admin.iter().map(named("admin")))
    }

    /// Where to connect to it: its admin port, which is the last that closes, or else another of its TCP listeners.
    pub fn address(&self) -> Option<SocketAddr> {
        self.admin.or_else(|| self.addresses().next().map(|(_, address)| address)).map(connect_address)
    }

    /// Asks the process to stop, as a service manager does (SIGTERM).
    ///
    /// # Errors
    /// The process belongs to another user, or the system has no signals.
    pub fn terminate(&self) -> Result<(), String> {
        #[cfg(unix)]
        return self.signal(rustix::process::Signal::TERM);
        #[cfg(not(unix))]
        Err(format!("this system has no signals: end process {} with Ctrl-C or with its service manager", self.pid))
    }

    /// Asks the process to restart with the installed binary and the same listening sockets (SIGUSR2).
    ///
    /// # Errors
    /// The process belongs to another user, or the system has no signals.
    pub fn restart(&self) -> Result<(), String> {
        #[cfg(unix)]
        return self.signal(rustix::process::Signal::USR2);
        #[cfg(not(unix))]
        Err(format!("this system cannot pass sockets on: stop process {} and start Interflow again", self.pid))
    }

    /// Whether its process exists.
    pub fn is_alive(&self) -> bool {
        is_process_alive(self.pid)
    }

    #[cfg(unix)]
    fn signal(&self, signal: rustix::process::Signal) -> Result<(), String> {
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        let pid = pid.ok_or_else(|| format!("{} is not a process ID", self.pid))?;
        rustix::process::kill_process(pid, signal).map_err(|e| format!("process {} cannot be signalled: {e}", self.pid))
    }
}

impl DataDir {
    /// Returns the given directory, or `$XDG_DATA_HOME/interflow`, or the platform's default below the home directory.
    pub fn find(given: Option<&Path>) -> Result<Self, String> {
        let at = |path: PathBuf| Self { path, is_read_only: false };
        if let Some(path) = given {
            return Ok(at(path.to_owned()));
        }
        let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(data) = var("XDG_DATA_HOME").or_else(|| var("LOCALAPPDATA")) {
            return Ok(at(data.join("interflow")));
        }
        match var("HOME") {
            Some(home) if cfg!(target_os = "macos") => Ok(at(home.join("Library/Application Support/interflow"))),
            Some(home) => Ok(at(home.join(".local/share/interflow"))),
            None => {
                Err("no home directory: set INTERFLOW_DATA_DIR to a directory for the CA and the recordings".into())
            }
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same directory for a check of what a start would find: nothing is created in it, and a secret that does not
    /// exist yet is a passing one.
    pub fn read_only(&self) -> Self {
        Self { path: self.path.clone(), is_read_only: true }
    }

    pub const fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    /// `interflow`, with the option that selects this directory if commands would otherwise use another one. For a POSIX shell.
    pub fn command(&self) -> String {
        if self.is_default() {
            "interflow".to_owned()
        } else {
            format!("interflow --data-dir {}", shell_argument(self.path()))
        }
    }

    /// The text with this [`command`](Self::command) where it names one in backquotes.
    pub fn in_commands(&self, text: &str) -> String {
        text.replace("`interflow ", &format!("`{} ", self.command()))
    }

    /// Whether commands use it without an option.
    pub fn is_default(&self) -> bool {
        Self::find(None).is_ok_and(|default| default.path() == self.path())
    }

    /// Refuses a directory, or an `instance.json` in it, that this user cannot read: what is there must not seem absent.
    ///
    /// # Errors
    /// What cannot be read, and who can.
    pub fn check_readable<T>(&self, look: impl FnOnce(&Path) -> io::Result<T>) -> Result<(), String> {
        let found = existing(&self.instance_file(), look).map(drop);
        found.map_err(|e| format!("{e}; run this as the owner of {}", self.path.display()))
    }

    /// Creates the directory with mode 0700 if it does not exist. An existing directory keeps its mode: it may be shared
    /// deliberately, and each file that holds a secret is private.
    pub fn create(&self) -> Result<(), String> {
        if self.path.is_dir() {
            return Ok(());
        }
        create_private_dir(&self.path).map_err(|e| {
            format!(
                "cannot create the data directory {}: {e}; set INTERFLOW_DATA_DIR to another one",
                self.path.display()
            )
        })
    }

    /// Refuses a directory that other users can change, whose files start programs and hold secrets. What is only likely to
    /// be a mistake is warned about: the result.
    ///
    /// # Errors
    /// What others can do, with the remedy.
    pub fn check_access(&self) -> Result<Vec<String>, String> {
        #[cfg(unix)]
        {
            let problems = data_dir_access::find(&self.path);
            problems.refusal.map_or(Ok(problems.warnings), Err)
        }
        #[cfg(not(unix))]
        Ok(Vec::new())
    }

    pub fn ca(&self) -> PathBuf {
        self.path.join("ca")
    }

    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.path.join(path)
    }

    /// File of the admin token; `None` if `INTERFLOW_TOKEN` is set.
    pub fn admin_token_file(&self) -> Option<PathBuf> {
        let has_variable = std::env::var_os("INTERFLOW_TOKEN").is_some_and(|t| !t.is_empty());
        (!has_variable).then(|| self.path.join("admin.token"))
    }

    /// Reads the admin token, from `INTERFLOW_TOKEN` or its file; creates the file on first use.
    pub fn admin_token(&self) -> Result<String, String> {
        if let Ok(token) = std::env::var("INTERFLOW_TOKEN")
            && !token.is_empty()
        {
            return check_token_length(&token, "INTERFLOW_TOKEN");
        }
        let path = self.path.join("admin.token");
        // An empty file counts as none.
        if let Some(token) = existing(&path, fs::read_to_string)?.filter(|token| !token.trim().is_empty()) {
            return check_token_length(token.trim(), &path.display().to_string());
        }
        self.new_secret(&path)
    }

    fn new_secret(&self, path: &Path) -> Result<String, String> {
        let secret = interflow_types::random_token();
        if !self.is_read_only {
            self.create()?;
            write_private(path, secret.as_bytes())?;
        }
        Ok(secret)
    }

    /// Reads a secret from a file in the data directory; creates it with mode 0600 on first use.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn secret(&self, file: &str) -> Result<Vec<u8>, String> {
        let path = self.path.join(file);
        // One that is too short to be one of ours is replaced.
        if let Some(secret) = existing(&path, fs::read)?.filter(|secret| secret.len() >= 16) {
            return Ok(secret);
        }
        self.new_secret(&path).map(String::into_bytes)
    }

    fn instance_file(&self) -> PathBuf {
        self.path.join("instance.json")
    }

    /// Writes `instance.json` for other commands. Returns `None` if another instance already runs with this data
    /// directory.
    pub fn write_instance_file(&self, instance: &InstanceInfo) -> Result<Option<InstanceFileGuard>, String> {
        if self.running_instance().is_some_and(|other| other.pid != instance.pid) {
            return Ok(None);
        }
        let path = self.save_instance_file(instance)?;
        Ok(Some(InstanceFileGuard { path, pid: instance.pid }))
    }

    fn save_instance_file(&self, instance: &InstanceInfo) -> Result<PathBuf, String> {
        let path = self.instance_file();
        if path.is_symlink() {
            // It would be followed, to a file of another's choice.
            fs::remove_file(&path).map_err(|e| format!("{} is a link and cannot be removed: {e}", path.display()))?;
        }
        let text = serde_json::to_vec(instance).expect("an instance is plain data");
        write_private(&path, &text)?;
        Ok(path)
    }

    /// Whether this instance has not ended: its process exists, and it has not removed its file.
    pub fn has_not_ended(&self, instance: &InstanceInfo) -> bool {
        is_process_alive(instance.pid) && self.announced_instance().is_some_and(|i| i.pid == instance.pid)
    }

    /// Notes in `instance.json` why this instance does not restart.
    ///
    /// # Errors
    /// The file is that of another instance, or cannot be written.
    pub fn note_refused_restart(&self, pid: u32, reason: &str) -> Result<(), String> {
        let announced = self.announced_instance().filter(|instance| instance.pid == pid);
        let instance = announced.ok_or_else(|| format!("{} is not its own", self.instance_file().display()))?;
        let instance = InstanceInfo { restart_refused: Some(reason.to_owned()), ..instance };
        self.save_instance_file(&instance).map(drop)
    }

    /// When `instance.json` was written; `None` if there is none.
    pub fn instance_file_time(&self) -> Option<std::time::SystemTime> {
        fs::metadata(self.instance_file()).and_then(|m| m.modified()).ok()
    }

    /// What `instance.json` says, whether that instance still runs or not.
    pub fn announced_instance(&self) -> Option<InstanceInfo> {
        let file = self.instance_file();
        // One that another user left in a shared directory could have other commands signal a process of its choice, or send
        // it the admin token.
        #[cfg(unix)]
        if !data_dir_access::is_from_owner(&self.path, &file) {
            return None;
        }
        serde_json::from_slice(&fs::read(file).ok()?).ok()
    }

    /// The instance that is currently running with this data directory; `None` if the file is left over from one that
    /// crashed.
    pub fn running_instance(&self) -> Option<InstanceInfo> {
        let instance = self.announced_instance()?;
        let addr = instance.address()?;
        // Check the process first: another program may be listening on its port by now.
        let alive = is_process_alive(instance.pid)
            && std::net::TcpStream::connect_timeout(&addr, std::time::Duration::from_millis(300)).is_ok();
        alive.then_some(instance)
    }
}

/// What is read of a file; `None` if there is no such file.
///
/// # Errors
/// The file cannot be read.
pub fn existing<'p, T>(path: &'p Path, read: impl FnOnce(&'p Path) -> io::Result<T>) -> Result<Option<T>, String> {
    optional(read(path)).map_err(|e| format!("{} cannot be read: {e}", path.display()))
}

pub(crate) fn write_private(path: &Path, content: &[u8]) -> Result<(), String> {
    write_atomic(path, content, FileAccess::Private).map_err(|e| format!("{} cannot be written: {e}", path.display()))
}

/// Minimum length of an admin token, in characters.
const MIN_TOKEN: usize = 32;

/// Rejects tokens that are too short or not printable ASCII; `place` is the source to name in the error.
fn check_token_length(token: &str, place: &str) -> Result<String, String> {
    let visible = token.bytes().all(|b| b.is_ascii_graphic());
    match token.chars().count() {
        n if n >= MIN_TOKEN && visible => Ok(token.to_owned()),
        n if n >= MIN_TOKEN => Err(format!(
            "{place}: the admin token contains characters that are invalid in a header: use letters and digits"
        )),
        n => Err(format!(
            "{place}: the admin token has {n} characters, but needs at least {MIN_TOKEN}; `openssl rand -hex 32` generates one"
        )),
    }
}

/// Address for local connections to a listener: an unspecified address becomes loopback.
pub fn connect_address(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

/// Whether the process exists. Without permission to check, it is assumed to.
pub(crate) fn is_process_alive(pid: u32) -> bool {
    #[cfg(unix)]
    {
        let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
    }
    #[cfg(not(unix))]
    {
        let _ = pid;
        true
    }
}

/// Removes `instance.json` when dropped, unless another instance has replaced it.
#[derive(Debug)]
pub struct InstanceFileGuard {
    path: PathBuf,
    pid: u32,
}

impl Drop for InstanceFileGuard {
    fn drop(&mut self) {
        let current = fs::read(&self.path).ok().and_then(|t| serde_json::from_slice::<InstanceInfo>(&t).ok());
        if current.is_some_and(|i| i.pid == self.pid) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_listener_is_connected_to_over_loopback() {
        for (listens, reached) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1"), ("[::1]:1", "[::1]:1")]
        {
            assert_eq!(connect_address(listens.parse().unwrap()), reached.parse().unwrap());
        }
    }

    #[test]
    fn the_token_is_created_once_with_private_mode() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        home.create().unwrap();
        let token = home.admin_token().unwrap();
        assert!(token.len() >= 32);
        assert_eq!(home.admin_token().unwrap(), token);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(dir.path().join("admin.token")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }

    #[test]
    fn invalid_admin_token_is_refused_with_its_file_name() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        home.create().unwrap();
        let file = home.admin_token_file().unwrap();
        for (token, says) in
            [("x".repeat(31), "31 characters"), ("x y ".repeat(10), "letters and digits"), ("x".repeat(32), "")]
        {
            fs::write(&file, &token).unwrap();
            match home.admin_token() {
                Ok(read) => assert_eq!((read, says), (token, "")),
                Err(e) => assert!(!says.is_empty() && e.contains(says) && e.contains("admin.token"), "{e}"),
            }
        }
    }

    fn instance(pid: u32, listener: &std::net::TcpListener) -> InstanceInfo {
        InstanceInfo {
            pid,
            proxy: vec![listener.local_addr().unwrap()],
            gateway: None,
            admin: None,
            dns: None,
            restart_refused: None,
        }
    }

    #[test]
    fn an_instance_is_found_while_it_lives_and_listens() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let announced = home.write_instance_file(&instance(std::process::id(), &listener)).unwrap();
        assert_eq!(home.running_instance().map(|i| i.pid), Some(std::process::id()));
        drop(listener);
        assert!(home.running_instance().is_none());
        drop(announced);
        assert!(!home.instance_file().exists());
    }

    #[test]
    fn an_instance_without_a_proxy_port_is_found_by_its_admin_port() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let admin = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port_only = instance(std::process::id(), &admin);
        let info = InstanceInfo { admin: port_only.proxy.first().copied(), proxy: Vec::new(), ..port_only };
        let _announced = home.write_instance_file(&info).unwrap();
        assert_eq!(home.running_instance().map(|i| i.pid), Some(std::process::id()));
        drop(admin);
        assert!(home.running_instance().is_none());
    }

    #[test]
    fn what_cannot_be_read_is_not_reported_as_absent() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        home.check_readable(|file| fs::symlink_metadata(file)).unwrap();
        // As for a directory of another user, looking into a file fails with something else than "not found".
        fs::write(dir.path().join("file"), "").unwrap();
        let unreadable = DataDir::find(Some(&dir.path().join("file"))).unwrap();
        let error = crate::not_running(&unreadable).to_string();
        assert!(
            error.contains("instance.json cannot be read") && error.contains("run this as the owner of"),
            "{error}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn second_instance_does_not_overwrite_the_instance_file_of_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let home = DataDir::find(Some(dir.path())).unwrap();
        let [first, second] = [(); 2].map(|()| std::net::TcpListener::bind("127.0.0.1:0").unwrap());
        // The first instance is another live process: the parent.
        let parent = std::os::unix::process::parent_id();
        let mine = home.write_instance_file(&instance(parent, &first)).unwrap();
        let other = home.write_instance_file(&instance(std::process::id(), &second)).unwrap();
        assert!(mine.is_some() && other.is_none());
        drop(other);
        assert_eq!(home.running_instance().map(|i| i.pid), Some(parent));
        // An instance whose process has exited does not count, even if something listens on its port.
        std::mem::forget(mine);
        let mut gone = std::process::Command::new("true").spawn().unwrap();
        gone.wait().unwrap();
        std::fs::write(home.instance_file(), serde_json::to_vec(&instance(gone.id(), &first)).unwrap()).unwrap();
        assert!(
            home.running_instance().is_none()
                && home.write_instance_file(&instance(std::process::id(), &second)).unwrap().is_some()
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_place_of_the_instance_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (home, other) = (DataDir::find(Some(dir.path())).unwrap(), dir.path().join("other"));
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, home.instance_file()).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let _announced = home.write_instance_file(&instance(std::process::id(), &listener)).unwrap().unwrap();
        assert_eq!(fs::read_to_string(other).unwrap(), "precious");
        assert!(home.running_instance().is_some());
    }

    #[cfg(unix)]
    #[test]
    fn an_existing_directory_keeps_its_mode_and_a_new_one_is_private() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let home = DataDir::find(Some(&shared)).unwrap();
        home.create().unwrap();
        assert_eq!(mode(&shared), 0o1777);
        let fresh = DataDir::find(Some(&dir.path().join("a/b"))).unwrap();
        fresh.create().unwrap();
        assert_eq!(mode(fresh.path()), 0o700);
    }
}
