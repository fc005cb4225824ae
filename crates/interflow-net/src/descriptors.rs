//! Reserves file descriptors, so that the admin port and recording work while clients use up all others.
//!
//! A new descriptor is always the lowest free one. So a socket within the last [`RESERVED`] numbers below the limit
//! shows that all others are in use, and is closed again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::net::TcpStream;

/// Descriptors that traffic must not use; at most a quarter of the process's limit.
pub const RESERVED: u64 = 256;

/// The first descriptor that traffic must not use; unlimited until [`reserve`] was called.
static FIRST_RESERVED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Reserves descriptors of the process's `limit` on open files: from then on, [`is_reserved`] holds for the last
/// ones.
pub fn reserve(limit: u64) {
    FIRST_RESERVED.store(first_reserved(limit), Relaxed);
}

const fn first_reserved(limit: u64) -> u64 {
    // With a low limit, a fixed reserve could leave nothing for traffic.
    let quarter = limit / 4;
    limit - if quarter < RESERVED { quarter } else { RESERVED }
}

/// Whether a traffic socket uses a reserved descriptor, so that it must be closed.
#[cfg(unix)]
pub fn is_reserved(socket: &TcpStream) -> bool {
    use std::os::fd::AsRawFd as _;
    u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= FIRST_RESERVED.load(Relaxed))
}

/// Handles are not allocated in order, so the number of one says nothing about how many are in use.
#[cfg(not(unix))]
pub fn is_reserved(_: &TcpStream) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptor_reserve_is_a_quarter_up_to_a_fixed_maximum() {
        for (limit, first) in [(0, 0), (100, 75), (1024, 768), (4096, 3840), (200_000, 199_744)] {
            assert_eq!(first_reserved(limit), first, "{limit}");
        }
    }
}
