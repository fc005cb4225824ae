//! Finds the local process that opened a connection (Linux: `/proc`; macOS: the sockets of all processes).

use std::net::SocketAddr;
use std::sync::Arc;

use interflow_types::ClientProcess;
use parking_lot::Mutex;

/// Finds the processes of connections, trying recent results first. Blocks for some milliseconds, so it must run on a
/// blocking thread.
#[derive(Debug, Default)]
pub struct ProcessLookup {
    recent: Mutex<Vec<u32>>,
}

/// How many recent processes are remembered.
#[cfg(target_os = "linux")]
const MAX_RECENT: usize = 16;

impl ProcessLookup {
    /// The process that opened the connection from `peer` to `local` (as seen by the server); `None` if it is on
    /// another machine, has exited, or its files are not readable for this user.
    #[cfg(target_os = "linux")]
    pub fn lookup(&self, peer: SocketAddr, local: SocketAddr) -> Option<Arc<ClientProcess>> {
        // From the client's view: its local address is the peer here.
        let inode = system::inode(peer, local)?;
        let link_target = format!("socket:[{inode}]");
        let recent = self.recent.lock().clone();
        // A program opens many connections in a row, so the last ones are tried first.
        let pid = recent
            .into_iter()
            .find(|pid| system::owns_socket(*pid, &link_target))
            .or_else(|| system::find_owner(&link_target))?;
        let mut recent = self.recent.lock();
        recent.retain(|p| *p != pid);
        recent.insert(0, pid);
        recent.truncate(MAX_RECENT);
        Some(Arc::new(ClientProcess { pid, name: system::process_name(pid)?.into() }))
    }

    /// The process that opened the connection from `peer` to `local` (as seen by the server); `None` if it is on
    /// another machine, has exited, or its sockets are not visible to this user.
    #[cfg(not(target_os = "linux"))]
    pub fn lookup(&self, peer: SocketAddr, local: SocketAddr) -> Option<Arc<ClientProcess>> {
        // Only connections from this machine can belong to a process of it.
        if peer.ip().to_canonical() != local.ip().to_canonical() && !peer.ip().to_canonical().is_loopback() {
            return None;
        }
        // If several processes share an inherited socket, prefer the one found before, else the youngest.
        let mut holders = system::holders(peer);
        holders.sort_unstable_by_key(|p| p.pid);
        let mut recent = self.recent.lock();
        let position = holders.iter().position(|p| recent.contains(&p.pid)).unwrap_or(holders.len().saturating_sub(1));
        let process = (position < holders.len()).then(|| holders.swap_remove(position))?;
        *recent = vec![process.pid];
        Some(Arc::new(process))
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::fs;
    use std::net::SocketAddr;
    use std::os::unix::ffi::OsStrExt;

    use crate::ingress::original_dst::canonical;

    /// The inode of the socket with this local and remote address, from the client's view.
    pub fn inode(peer: SocketAddr, local: SocketAddr) -> Option<u64> {
        // The kernel writes addresses in its own byte order, so they are compared as text.
        let find = |table, written: fn(SocketAddr) -> SocketAddr| {
            find_inode(table, &format_table_address(written(peer)), &format_table_address(written(local)))
        };
        if canonical(peer).is_ipv4() && canonical(local).is_ipv4() {
            // A client may use IPv4 through an IPv6 socket.
            return find("/proc/net/tcp", canonical).or_else(|| find("/proc/net/tcp6", to_mapped));
        }
        find("/proc/net/tcp6", |addr| addr)
    }

    fn to_mapped(addr: SocketAddr) -> SocketAddr {
        match addr.ip() {
            std::net::IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
            std::net::IpAddr::V6(_) => addr,
        }
    }

    /// An address as formatted in the table: 4-byte words in native order, in hex, and the port.
    pub fn format_table_address(addr: SocketAddr) -> String {
        let octets = match addr.ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = octets.chunks_exact(4).map(|c| format!("{:08X}", u32::from_ne_bytes([c[0], c[1], c[2], c[3]])));
        format!("{}:{:04X}", words.collect::<String>(), addr.port())
    }

    fn find_inode(table: &str, own: &str, far: &str) -> Option<u64> {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let is_match = fields.next() == Some(own) && fields.next() == Some(far);
            // State, queues, timer, retransmits, uid and timeout are between the addresses and the inode.
            // Inode 0 means that no process holds the socket any more.
            if is_match { fields.nth(6)?.parse().ok().filter(|inode| *inode != 0) } else { None }
        })
    }

    pub fn owns_socket(pid: u32, wanted: &str) -> bool {
        // Processes of other users are not readable without privilege.
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files.flatten().any(|f| fs::read_link(f.path()).is_ok_and(|to| to.as_os_str().as_bytes() == wanted.as_bytes()))
    }

    pub fn find_owner(wanted: &str) -> Option<u32> {
        let all = fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        let mut all: Vec<u32> = all.collect();
        // The connecting process was most likely started recently.
        all.sort_unstable_by_key(|pid| std::cmp::Reverse(*pid));
        all.into_iter().find(|pid| owns_socket(*pid, wanted))
    }

    /// The executable's file name, or the process's own name.
    pub fn process_name(pid: u32) -> Option<String> {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let file = program.as_deref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
        file.or_else(|| fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|c| c.trim_end().to_owned()))
    }
}

#[cfg(target_os = "macos")]
mod system {
    use std::net::SocketAddr;
    use std::path::Path;

    use interflow_types::ClientProcess;
    use listeners::{Protocol, SocketState};

    /// The processes with a socket at this local address.
    pub fn holders(own: SocketAddr) -> Vec<ClientProcess> {
        let all = match listeners::get_all() {
            Ok(all) => all,
            Err(error) => {
                tracing::debug!(%error, "the sockets of this machine's processes cannot be seen");
                return Vec::new();
            }
        };
        let is_it = |l: &listeners::Listener| {
            l.protocol == Protocol::TCP
                && l.state != SocketState::Listen
                && l.socket.port() == own.port()
                && l.socket.ip().to_canonical() == own.ip().to_canonical()
        };
        let named = |p: listeners::Process| {
            let file = Path::new(&p.path).file_name().map(|n| n.to_string_lossy().into_owned());
            ClientProcess { pid: p.pid, name: file.unwrap_or(p.name).into() }
        };
        all.into_iter().filter(is_it).map(|l| named(l.process)).collect()
    }
}

#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod system {
    use std::net::SocketAddr;

    use interflow_types::ClientProcess;

    pub fn holders(_own: SocketAddr) -> Vec<ClientProcess> {
        Vec::new()
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn the_process_behind_a_connection_is_found() {
        let processes = ProcessLookup::default();
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(bind).await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            let process = processes.lookup(peer, stream.local_addr().unwrap()).expect("it is ourselves");
            assert_eq!(process.pid, std::process::id());
            assert!(process.name.as_str().starts_with("interflow_net"), "{}", process.name);
            drop(client);
        }
    }

    #[test]
    fn remote_connection_has_no_local_process() {
        let far = "192.0.2.1:1".parse().unwrap();
        assert!(ProcessLookup::default().lookup(far, "127.0.0.1:2".parse().unwrap()).is_none());
        assert_eq!(
            system::format_table_address("127.0.0.1:80".parse().unwrap()),
            format!("{:08X}:0050", u32::from_ne_bytes([127, 0, 0, 1]))
        );
    }
}
