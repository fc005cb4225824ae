//! `splice(2)`: moves bytes from one socket to another through a kernel pipe, without copying them to user space.
//!
//! A pipe belongs to one direction of one tunnel and is filled only when it is empty. So no tunnel can see another's
//! bytes, and `EAGAIN` while filling always means that the socket has no data, never that the pipe is full. The
//! caller cannot distinguish the two, and mistaking one for the other ends in a busy loop or a stall.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes requested per call. A pipe of 1 MiB was measured to save nothing more over loopback, and an unprivileged
/// user may have only 64 MiB of pipes in total.
const PIPE_CAPACITY: usize = 256 * 1024;

/// A pipe and the number of bytes in it.
pub(super) struct SplicePipe {
    read: OwnedFd,
    write: OwnedFd,
    pub(super) held: usize,
    capacity: usize,
}

impl SplicePipe {
    /// A pipe of [`PIPE_CAPACITY`] if the system allows it, else of the default size.
    pub(super) fn new() -> io::Result<Self> {
        let mut fds: [RawFd; 2] = [-1; 2];
        // SAFETY: `fds` is valid for the two descriptors that pipe2 writes.
        if unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_NONBLOCK | libc::O_CLOEXEC) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: pipe2 succeeded, so both descriptors are open and nothing else owns them.
        let (read, write) = unsafe { (OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1])) };
        // SAFETY: F_SETPIPE_SZ takes an integer and touches no memory of this process; the descriptor is open.
        let set = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_CAPACITY as libc::c_int) };
        // The user's limit on pipe memory may be reached; a small pipe still works.
        let capacity = usize::try_from(set).unwrap_or(64 * 1024);
        Ok(Self { read, write, held: 0, capacity })
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Moves available bytes from the socket to the empty pipe; `false` at the socket's end.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>, socket: &TcpStream) -> Poll<io::Result<bool>> {
        debug_assert!(self.is_empty(), "a pipe is filled only when it is empty");
        loop {
            // Registers for readiness; `splice` itself cannot wait.
            ready!(socket.poll_read_ready(cx))?;
            let (from, to, most) = (socket.as_raw_fd(), self.write.as_raw_fd(), self.capacity);
            match socket.try_io(Interest::READABLE, || splice(from, to, most)) {
                // `try_io` has cleared the readiness, so the loop waits for the reactor.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                moved => {
                    // 0 bytes: the socket has ended.
                    self.held = moved?;
                    return Poll::Ready(Ok(self.held > 0));
                }
            }
        }
    }

    /// Moves bytes from the pipe to the socket, and returns how many.
    pub(super) fn poll_drain(&mut self, cx: &mut Context<'_>, socket: &TcpStream) -> Poll<io::Result<usize>> {
        loop {
            ready!(socket.poll_write_ready(cx))?;
            let (from, to, most) = (self.read.as_raw_fd(), socket.as_raw_fd(), self.held);
            match socket.try_io(Interest::WRITABLE, || splice(from, to, most)) {
                // The socket's buffer is full: the bytes stay in the pipe.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                moved => {
                    let moved = moved?;
                    self.held -= moved;
                    return Poll::Ready(Ok(moved));
                }
            }
        }
    }
}

fn splice(from: RawFd, to: RawFd, most: usize) -> io::Result<usize> {
    // NONBLOCK applies to the pipe; the sockets are non-blocking by themselves.
    // `MOVE` asks for pages instead of copies; the kernel may ignore it.
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    loop {
        // SAFETY: both descriptors are open for the whole call, because the caller borrows their owners; no offsets
        // are passed, so no memory of this process is read or written.
        let moved = unsafe { libc::splice(from, std::ptr::null_mut(), to, std::ptr::null_mut(), most, flags) };
        if let Ok(moved) = usize::try_from(moved) {
            return Ok(moved);
        }
        let error = io::Error::last_os_error();
        // A signal: tried again at once.
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
