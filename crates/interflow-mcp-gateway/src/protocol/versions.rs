//! Versions of the Model Context Protocol.

/// Supported versions with sessions, the latest last.
pub const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// The supported version without sessions: each request says what it needs.
pub(crate) const STATELESS: &str = "2026-07-28";

/// From this version on, clients know events without data.
pub(crate) const PRIMED_SINCE: &str = "2025-11-25";

/// All supported versions, the latest first.
pub fn supported() -> Vec<&'static str> {
    std::iter::once(STATELESS).chain(VERSIONS.into_iter().rev()).collect()
}
