//! Finds a client's Docker or Podman container, by its address on a container network or by its process's control
//! group.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use interflow_types::ByteStr;
use parking_lot::Mutex;
use serde_json::Value;

const CACHE_TTL: Duration = Duration::from_secs(30);
/// How soon the list is fetched again when a client is not on it: a container may just have started.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Container names, queried from the engines' sockets. One list serves all clients until `CACHE_TTL` is over.
#[derive(Debug, Default)]
pub(crate) struct ContainerLookup {
    known: Mutex<ContainerNames>,
}

#[derive(Debug, Default)]
struct ContainerNames {
    at: Option<Instant>,
    by_address: HashMap<IpAddr, ByteStr>,
    by_id: HashMap<String, ByteStr>,
}

impl ContainerLookup {
    /// The name of the container with this address, or of the one that the process `pid` runs in. Blocks on the
    /// sockets of the engines: call it from a blocking thread.
    pub fn name_for(&self, sockets: &[PathBuf], peer: IpAddr, pid: Option<u32>) -> Option<ByteStr> {
        let peer = peer.to_canonical();
        let id = pid.and_then(container_of_process);
        // A loopback address tells nothing about the container: only the process does.
        if peer.is_loopback() && id.is_none() {
            return None;
        }
        // Held during the query, so that concurrent connections wait for one list rather than fetch one each.
        let mut names = self.known.lock();
        // A container may have started since the list was fetched: an unknown client causes another query, but at
        // most one per `RETRY_INTERVAL`.
        for wait in [CACHE_TTL, RETRY_INTERVAL] {
            if names.at.is_none_or(|at| at.elapsed() >= wait) {
                *names = query_sockets(sockets);
            }
            // The id is exact; addresses are reused by containers on different networks.
            let named = id.as_ref().and_then(|id| names.by_id.get(id)).or_else(|| names.by_address.get(&peer));
            if named.is_some() {
                return named.cloned();
            }
        }
        // The process runs in a container, although its engine does not list it.
        id.map(|id| id[..12].into())
    }
}

pub(crate) fn default_sockets() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_RUNTIME_DIR").map(|d| PathBuf::from(d).join("podman/podman.sock"));
    ["/var/run/docker.sock", "/run/podman/podman.sock"].into_iter().map(PathBuf::from).chain(user).collect()
}

/// The container id in a process's control groups (Linux): 64 hexadecimal digits in Docker and Podman.
fn container_of_process(pid: u32) -> Option<String> {
    container_id(&std::fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

fn container_id(cgroup: &str) -> Option<String> {
    // The last match: within one path, that is the innermost group.
    let mut words = cgroup.split(|c: char| !c.is_ascii_hexdigit());
    words.rfind(|w| w.len() == 64).map(str::to_ascii_lowercase)
}

fn query_sockets(sockets: &[PathBuf]) -> ContainerNames {
    let mut names = ContainerNames { at: Some(Instant::now()), ..ContainerNames::default() };
    for socket in sockets {
        match list_containers(socket) {
            Ok(list) => list.as_array().into_iter().flatten().for_each(|c| names.add(c)),
            Err(e) => tracing::debug!("containers: {}: {e}", socket.display()),
            // An engine that is not installed or not running is normal, hence no warning.
        }
    }
    names
}

impl ContainerNames {
    fn add(&mut self, container: &Value) {
        // Docker prefixes names with a slash.
        let name = container["Names"][0].as_str().map(|n| n.trim_start_matches('/')).filter(|n| !n.is_empty());
        let Some(name) = name.map(ByteStr::from) else { return };
        if let Some(id) = container["Id"].as_str() {
            self.by_id.insert(id.to_ascii_lowercase(), name.clone());
        }
        let networks = container["NetworkSettings"]["Networks"].as_object();
        for network in networks.into_iter().flat_map(|n| n.values()) {
            for key in ["IPAddress", "GlobalIPv6Address"] {
                if let Some(ip) = network[key].as_str().and_then(|ip| ip.parse::<IpAddr>().ok()) {
                    self.by_address.insert(ip, name.clone());
                }
            }
        }
    }
}

/// The running containers, by Docker's API, which Podman supports too.
#[cfg(unix)]
fn list_containers(socket: &std::path::Path) -> std::io::Result<Value> {
    use std::io::{Error, Read as _, Write as _};
    const SOCKET_TIMEOUT: Duration = Duration::from_secs(2);
    const MAX_RESPONSE_BYTES: u64 = 16 << 20;
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    // HTTP/1.0: the response is delimited by the end of the connection, never chunked.
    stream.write_all(b"GET /containers/json HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut answer)?;
    let end = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(|| Error::other("not an HTTP response"))?;
    let status = answer.split(|b| *b == b' ').nth(1).unwrap_or_default();
    if status != b"200" {
        return Err(Error::other(format!("status {}", String::from_utf8_lossy(status))));
    }
    serde_json::from_slice(&answer[end + 4..]).map_err(Error::other)
}

#[cfg(not(unix))]
fn list_containers(_: &std::path::Path) -> std::io::Result<Value> {
    Err(std::io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    const ID: &str = "4f5e6d7c8b9a00112233445566778899aabbccddeeff00112233445566778899";

    /// A fake engine that lists one container, and the number of its requests.
    fn engine(dir: &std::path::Path, status: &'static str) -> (PathBuf, Arc<AtomicUsize>) {
        let path = dir.join(format!("{}.sock", status.len()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut head = [0; 512];
                let n = stream.read(&mut head).unwrap();
                assert!(head[..n].starts_with(b"GET /containers/json "));
                counter.fetch_add(1, Relaxed);
                let body = format!(
                    r#"[{{"Id": "{ID}", "Names": ["/agent-7"], "NetworkSettings": {{"Networks":
                    {{"bridge": {{"IPAddress": "172.17.0.2", "GlobalIPv6Address": "fd00::2"}}}}}}}}, {{"Names": []}}]"#
                );
                let _ = write!(stream, "HTTP/1.0 {status}\r\nContent-Type: application/json\r\n\r\n{body}");
            }
        });
        (path, requests)
    }

    #[test]
    fn container_is_found_by_client_address_and_the_list_is_cached() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, asked) = engine(dir.path(), "200 OK");
        let sockets = [dir.path().join("none.sock"), socket];
        let containers = ContainerLookup::default();
        for ip in ["172.17.0.2", "::ffff:172.17.0.2", "fd00::2"] {
            let name = containers.name_for(&sockets, ip.parse().unwrap(), None);
            assert_eq!(name.as_deref(), Some("agent-7"), "{ip}");
        }
        assert_eq!(containers.name_for(&sockets, "172.17.0.9".parse().unwrap(), None), None);
        assert_eq!(containers.name_for(&sockets, "127.0.0.1".parse().unwrap(), None), None);
        assert_eq!(asked.load(Relaxed), 1, "a stranger does not make it ask again at once");
    }

    #[test]
    fn a_failing_container_engine_yields_no_name() {
        let dir = tempfile::tempdir().unwrap();
        let (socket, _) = engine(dir.path(), "500 Internal Server Error");
        assert_eq!(ContainerLookup::default().name_for(&[socket], "172.17.0.2".parse().unwrap(), None), None);
    }

    #[test]
    fn container_id_is_parsed_from_the_cgroup() {
        for (cgroup, id) in [
            (format!("0::/system.slice/docker-{ID}.scope\n"), Some(ID)),
            (format!("12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"), Some(ID)),
            (format!("0::/user.slice/user-1000.slice/libpod-{ID}.scope/container\n"), Some(ID)),
            ("0::/user.slice/session-1.scope\n".to_owned(), None),
        ] {
            assert_eq!(container_id(&cgroup).as_deref(), id, "{cgroup}");
        }
    }
}
