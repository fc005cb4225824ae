//! Which process of this machine a connection comes from (Linux: `/proc`).

use std::net::SocketAddr;
use std::sync::Arc;

use interflow_flow::Process;
use parking_lot::Mutex;

/// Looks for the processes behind connections; those found last are looked at first. Blocks for some milliseconds, so it
/// belongs on a thread that may.
#[derive(Debug, Default)]
pub struct Processes {
    recent: Mutex<Vec<u32>>,
}

/// How many processes are remembered.
const RECENT: usize = 16;

impl Processes {
    /// The process that opened the connection from `peer` to `local`, both as we see them; `None` when it is on another
    /// machine, has gone, or belongs to somebody whose files we may not see.
    pub fn of(&self, peer: SocketAddr, local: SocketAddr) -> Option<Arc<Process>> {
        let inode = linux::inode(peer, local)?;
        let wanted = format!("socket:[{inode}]");
        let recent = self.recent.lock().clone();
        let pid = recent.into_iter().find(|pid| linux::holds(*pid, &wanted)).or_else(|| linux::find(&wanted))?;
        let mut recent = self.recent.lock();
        recent.retain(|p| *p != pid);
        recent.insert(0, pid);
        recent.truncate(RECENT);
        Some(Arc::new(Process { pid, name: linux::name(pid)?.into() }))
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::net::SocketAddr;
    use std::os::unix::ffi::OsStrExt;

    /// The inode of the socket whose own end is `peer` and whose far end is `local`.
    pub fn inode(peer: SocketAddr, local: SocketAddr) -> Option<u64> {
        let mapped = peer.is_ipv6() || local.is_ipv6();
        let plain = [(peer, local)].map(|(a, b)| (canonical(a), canonical(b)))[0];
        if plain.0.is_ipv4() && plain.1.is_ipv4() {
            let found = search("/proc/net/tcp", &written(plain.0), &written(plain.1));
            // A client with an IPv6 socket may speak IPv4 through it.
            return found
                .or_else(|| search("/proc/net/tcp6", &written(to_mapped(plain.0)), &written(to_mapped(plain.1))));
        }
        if mapped { search("/proc/net/tcp6", &written(peer), &written(local)) } else { None }
    }

    fn canonical(addr: SocketAddr) -> SocketAddr {
        SocketAddr::new(addr.ip().to_canonical(), addr.port())
    }

    fn to_mapped(addr: SocketAddr) -> SocketAddr {
        match addr.ip() {
            std::net::IpAddr::V4(ip) => SocketAddr::new(ip.to_ipv6_mapped().into(), addr.port()),
            std::net::IpAddr::V6(_) => addr,
        }
    }

    /// An address as the table writes it: words of four bytes in the machine's order, in hex, and the port.
    pub fn written(addr: SocketAddr) -> String {
        let octets = match addr.ip() {
            std::net::IpAddr::V4(ip) => ip.octets().to_vec(),
            std::net::IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words = octets.chunks_exact(4).map(|c| format!("{:08X}", u32::from_ne_bytes([c[0], c[1], c[2], c[3]])));
        format!("{}:{:04X}", words.collect::<String>(), addr.port())
    }

    fn search(table: &str, own: &str, far: &str) -> Option<u64> {
        let text = fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| {
            let mut fields = line.split_ascii_whitespace().skip(1);
            let found = fields.next() == Some(own) && fields.next() == Some(far);
            // State, queues, timer, retransmits, uid and timeout stand between the addresses and the inode.
            if found { fields.nth(6)?.parse().ok().filter(|inode| *inode != 0) } else { None }
        })
    }

    pub fn holds(pid: u32, wanted: &str) -> bool {
        let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        files.flatten().any(|f| fs::read_link(f.path()).is_ok_and(|to| to.as_os_str().as_bytes() == wanted.as_bytes()))
    }

    pub fn find(wanted: &str) -> Option<u32> {
        let all = fs::read_dir("/proc").ok()?.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        let mut all: Vec<u32> = all.collect();
        // Who connects now was most likely started lately.
        all.sort_unstable_by_key(|pid| std::cmp::Reverse(*pid));
        all.into_iter().find(|pid| holds(*pid, wanted))
    }

    /// The program's file name, or what the process calls itself.
    pub fn name(pid: u32) -> Option<String> {
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let file = program.as_deref().and_then(|p| p.file_name()).map(|n| n.to_string_lossy().into_owned());
        file.or_else(|| fs::read_to_string(format!("/proc/{pid}/comm")).ok().map(|c| c.trim_end().to_owned()))
    }
}

#[cfg(not(target_os = "linux"))]
mod linux {
    use std::net::SocketAddr;

    pub fn inode(_peer: SocketAddr, _local: SocketAddr) -> Option<u64> {
        None
    }

    pub fn holds(_pid: u32, _wanted: &str) -> bool {
        false
    }

    pub fn find(_wanted: &str) -> Option<u32> {
        None
    }

    pub fn name(_pid: u32) -> Option<String> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn the_process_behind_a_connection_is_found() {
        let processes = Processes::default();
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(bind).await.unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (stream, peer) = listener.accept().await.unwrap();
            let found = processes.of(peer, stream.local_addr().unwrap()).expect("it is ourselves");
            assert_eq!(found.pid, std::process::id());
            assert!(found.name.as_str().starts_with("interflow_net"), "{}", found.name);
            drop(client);
        }
    }

    #[test]
    fn a_connection_of_nobody_here_has_no_process() {
        let far = "192.0.2.1:1".parse().unwrap();
        assert!(Processes::default().of(far, "127.0.0.1:2".parse().unwrap()).is_none());
        assert_eq!(
            linux::written("127.0.0.1:80".parse().unwrap()),
            format!("{:08X}:0050", u32::from_ne_bytes([127, 0, 0, 1]))
        );
    }
}
