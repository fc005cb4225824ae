//! File descriptors kept back from the proxy's traffic, so that the admin port and the recording work while clients use up all
//! others.
//!
//! A new descriptor is always the lowest that is free. So a socket within the last [`RESERVED`] numbers below the limit
//! shows that all others are taken, and is closed again.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::net::TcpStream;

/// Descriptors that traffic may not use; at most a quarter of those that the process may open.
pub const RESERVED: u64 = 256;

/// The first number that traffic may not use; everything may be used until [`reserve`] was called.
static FIRST_RESERVED: AtomicU64 = AtomicU64::new(u64::MAX);

/// Keeps descriptors back of the `limit` that the process may open.
pub fn reserve(limit: u64) {
    FIRST_RESERVED.store(first_reserved(limit), Relaxed);
}

const fn first_reserved(limit: u64) -> u64 {
    let quarter = limit / 4;
    limit - if quarter < RESERVED { quarter } else { RESERVED }
}

/// Whether a socket of the traffic has taken a descriptor that is kept back: it is to be closed.
#[cfg(unix)]
pub fn is_reserved(socket: &TcpStream) -> bool {
    use std::os::fd::AsRawFd as _;
    u64::try_from(socket.as_raw_fd()).is_ok_and(|number| number >= FIRST_RESERVED.load(Relaxed))
}

/// Handles are no numbers that are given out in order.
#[cfg(not(unix))]
pub fn is_reserved(_: &TcpStream) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_back_of_few_descriptors_and_a_fixed_number_of_many() {
        for (limit, first) in [(0, 0), (100, 75), (1024, 768), (4096, 3840), (200_000, 199_744)] {
            assert_eq!(first_reserved(limit), first, "{limit}");
        }
    }
}
