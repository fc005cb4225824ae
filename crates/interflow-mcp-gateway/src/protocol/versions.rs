//! Versions of the Model Context Protocol.

/// Supported versions, the latest last.
pub(crate) const VERSIONS: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// From this version on, clients know events without data.
pub(crate) const PRIMED_SINCE: &str = "2025-11-25";
