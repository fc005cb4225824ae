//! Waiting for what another process or thread does.

use std::process::Child;
use std::time::{Duration, Instant};

/// How long a test waits before it fails.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The value, once there is one.
///
/// # Panics
/// There is none for a minute and a half; the message says what was expected.
#[track_caller]
pub fn until<T>(expected: &str, mut value: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {expected}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process that does not outlive a test that fails.
pub struct KilledOnDrop(pub Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
