//! Listening sockets that outlive a process: those of a service manager (systemd's socket activation, `sd_listen_fds(3)`),
//! or of the process that ran before, and those kept for the process that runs next. While no process accepts,
//! connections wait in the socket's queue; none is refused.

use std::net::{SocketAddr, TcpListener as StdListener};
#[cfg(unix)]
use std::os::fd::{AsRawFd as _, OwnedFd};
#[cfg(unix)]
use std::sync::OnceLock;

#[cfg(unix)]
use interflow_types::ErrorSource;
use interflow_types::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::listen::{self, ListenOptions};

/// The descriptors by which sockets are passed on, from 3 on (`sd_listen_fds(3)`), held until the process ends. A
/// successor replaces the process while its threads still run: one that closed a descriptor of its own would otherwise
/// close a socket that has just got this number.
#[cfg(unix)]
static RESERVED: OnceLock<Vec<OwnedFd>> = OnceLock::new();
/// How many are reserved.
#[cfg(unix)]
const RESERVED_DESCRIPTORS: i32 = 64;

/// A listening socket and what listens on it: `proxy`, `gateway`, `admin`; a service manager may give any name.
pub struct ListenSocket {
    pub name: String,
    pub listener: StdListener,
}

impl ListenSocket {
    fn duplicate(name: &str, listener: &StdListener) -> Result<Self> {
        let listener = listener
            .try_clone()
            .map_err(|e| Error::new(ErrorKind::Internal, "a listening socket cannot be duplicated").with_source(e))?;
        Ok(Self { name: name.to_owned(), listener })
    }

    /// Whether it is the socket for this listener. With port 0, the port that the previous process had is kept.
    fn is_for(&self, name: &str, wanted: SocketAddr) -> bool {
        self.listener
            .local_addr()
            .is_ok_and(|addr| addr == wanted || (wanted.port() == 0 && addr.ip() == wanted.ip() && self.name == name))
    }
}

/// Binds listeners, with inherited sockets where there are any.
#[derive(Default)]
pub struct ListenSockets {
    inherited: Mutex<Vec<ListenSocket>>,
    /// Clones of what was bound, if a successor may take it over.
    kept: Option<Mutex<Vec<ListenSocket>>>,
}

impl ListenSockets {
    /// Takes the sockets that the environment names (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`), and keeps all
    /// sockets for a successor. To be called once, before other files are opened and threads are started.
    ///
    /// # Errors
    /// One of them is not a listening TCP socket; too few files may be open.
    #[cfg(unix)]
    pub fn from_environment() -> Result<Self> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut fds = listenfd::ListenFd::from_env();
        let mut names = names.split(':').map(ToOwned::to_owned).chain(std::iter::repeat(String::new()));
        let mut inherited = Vec::new();
        let cannot_reserve =
            |e: std::io::Error| Error::new(ErrorKind::Internal, "descriptors cannot be reserved").with_source(e);
        // No file: a root folder of its own need not have /dev/null.
        let spare = || std::os::unix::net::UnixDatagram::unbound().map_err(cannot_reserve);
        let mut reserved = Vec::new();
        for index in 0..fds.len() {
            let name = names.next().unwrap_or_default();
            let failed = |e: std::io::Error| {
                let text = format!(
                    "the inherited socket {index} ({name:?}) is not a listening TCP socket (ListenStream= in a socket unit)"
                );
                Error::new(ErrorKind::Internal, text).with_error_source(ErrorSource::Config).with_source(e)
            };
            let Some(listener) = fds.take_tcp_listener(index).map_err(failed)? else { continue };
            // Under another number, and closed in programs that are started later.
            let mut socket = OwnedFd::from(listener);
            let listener = StdListener::from(socket.try_clone().map_err(failed)?);
            rustix::io::dup2(spare()?, &mut socket).map_err(|e| failed(e.into()))?;
            rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC).map_err(|e| failed(e.into()))?;
            reserved.push(socket);
            listener.set_nonblocking(true).map_err(failed)?;
            inherited.push(ListenSocket { name, listener });
        }
        // The system gives the lowest number that is free.
        loop {
            let socket = OwnedFd::from(spare()?);
            if socket.as_raw_fd() >= 3 + RESERVED_DESCRIPTORS {
                break;
            }
            reserved.push(socket);
        }
        let _ = RESERVED.set(reserved);
        Ok(Self { inherited: Mutex::new(inherited), kept: Some(Mutex::default()) })
    }

    /// Binds an address, or takes the inherited socket for it.
    ///
    /// # Errors
    /// As for [`listen::bind`].
    pub fn bind(&self, name: &str, options: &ListenOptions) -> Result<StdListener> {
        let mut inherited = self.take(name, options.addr);
        let listener = if inherited.is_empty() { listen::bind(options)? } else { inherited.swap_remove(0) };
        self.keep(name, std::slice::from_ref(&listener))?;
        Ok(listener)
    }

    /// Binds an address for workers, as [`listen::bind_for_workers`], or takes the inherited sockets for it: there are more
    /// of them than workers if the previous process had more workers. All must be accepted from.
    ///
    /// # Errors
    /// As for [`listen::bind_for_workers`].
    pub fn bind_for_workers(&self, name: &str, options: &ListenOptions, workers: usize) -> Result<Vec<StdListener>> {
        let mut listeners = self.take(name, options.addr);
        if listeners.is_empty() {
            listeners = listen::bind_for_workers(options, workers)?;
            self.keep(name, &listeners)?;
            return Ok(listeners);
        }
        self.keep(name, &listeners)?;
        // Of sockets that are fewer than workers, several accept from each.
        let sockets = listeners.len();
        for worker in sockets..workers {
            let shared = listeners[worker % sockets].try_clone().map_err(|e| listen::bind_error(options.addr, e))?;
            listeners.push(shared);
        }
        Ok(listeners)
    }

    fn take(&self, name: &str, addr: SocketAddr) -> Vec<StdListener> {
        self.inherited.lock().extract_if(.., |socket| socket.is_for(name, addr)).map(|s| s.listener).collect()
    }

    fn keep(&self, name: &str, listeners: &[StdListener]) -> Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        for listener in listeners {
            kept.lock().push(ListenSocket::duplicate(name, listener)?);
        }
        Ok(())
    }

    /// What a successor would take over, which stays open here.
    ///
    /// # Errors
    /// Too many files are open.
    pub fn shared(&self) -> Result<Vec<ListenSocket>> {
        let Some(kept) = &self.kept else { return Ok(Vec::new()) };
        kept.lock().iter().map(|socket| ListenSocket::duplicate(&socket.name, &socket.listener)).collect()
    }

    /// Closes inherited sockets that no listener took, so that their clients are refused; returns their addresses.
    pub fn close_unused(&self) -> Vec<SocketAddr> {
        self.inherited.lock().drain(..).filter_map(|socket| socket.listener.local_addr().ok()).collect()
    }

    /// Ends the keeping: from here on a listener that is dropped closes its port.
    pub fn close_kept(&self) {
        drop(self.kept());
    }

    /// What a successor takes over.
    pub fn kept(&self) -> Vec<ListenSocket> {
        self.kept.as_ref().map(|kept| std::mem::take(&mut *kept.lock())).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(port: u16) -> ListenOptions {
        ListenOptions::new(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    /// What a process leaves to the next one.
    fn succeeding(before: &ListenSockets) -> ListenSockets {
        ListenSockets { inherited: Mutex::new(before.kept()), kept: Some(Mutex::default()) }
    }

    fn keeping() -> ListenSockets {
        ListenSockets { kept: Some(Mutex::default()), ..ListenSockets::default() }
    }

    #[test]
    fn a_successor_has_the_same_sockets_even_if_the_system_chose_the_ports() {
        for workers in [1, 2, 3] {
            let before = keeping();
            let addr = before.bind_for_workers("proxy", &options(0), 2).unwrap()[0].local_addr().unwrap();
            let admin = before.bind("admin", &options(0)).unwrap().local_addr().unwrap();
            // Nobody accepts, and nobody is refused.
            let _waiting = std::net::TcpStream::connect(addr).unwrap();
            let after = succeeding(&before);
            let taken = after.bind_for_workers("proxy", &options(0), workers).unwrap();
            assert!(taken.iter().all(|l| l.local_addr().unwrap() == addr));
            assert!(taken.len() >= workers, "every worker has a listener");
            let accepted = taken.iter().filter_map(|l| l.accept().ok()).count();
            assert_eq!(accepted, 1, "the connection that waited, with {workers} workers");
            let taken = after.bind("admin", &options(admin.port())).unwrap();
            assert_eq!(taken.local_addr().unwrap(), admin);
            assert!(after.close_unused().is_empty());
        }
    }

    #[test]
    fn a_kept_socket_is_open_until_it_is_given_up() {
        let sockets = keeping();
        let addr = sockets.bind("admin", &options(0)).unwrap().local_addr().unwrap();
        assert!(std::net::TcpStream::connect(addr).is_ok());
        sockets.close_kept();
        assert!(std::net::TcpStream::connect(addr).is_err());
    }

    #[test]
    fn sockets_for_no_listener_are_named_and_closed() {
        let before = keeping();
        let addr = before.bind("old", &options(0)).unwrap().local_addr().unwrap();
        let after = succeeding(&before);
        drop(after.bind("proxy", &options(0)).unwrap());
        assert_eq!(after.close_unused(), [addr]);
        assert!(std::net::TcpStream::connect(addr).is_err());
    }
}
