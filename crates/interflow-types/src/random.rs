//! Random bytes of the operating system.

/// Unpredictable bytes, for keys, nonces and ids.
///
/// # Panics
/// If the operating system has none: nothing that needs them would be safe without.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Blocks only early at boot, before the system's generator is seeded.
    getrandom::fill(&mut bytes).expect("the operating system hands out random bytes");
    bytes
}
