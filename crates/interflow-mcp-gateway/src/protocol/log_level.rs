//! Levels of log messages (MCP 2025-11-25, logging).

use serde_json::json;

/// The request by which a client sets the level from which on it wants log messages.
pub(crate) const SET_LEVEL: &str = "logging/setLevel";
/// A log message of a server.
pub(crate) const LOG_MESSAGE: &str = "notifications/message";

/// The levels of syslog (RFC 5424, section 6.2.1), the least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    const ALL: [Self; 8] = [
        Self::Debug,
        Self::Info,
        Self::Notice,
        Self::Warning,
        Self::Error,
        Self::Critical,
        Self::Alert,
        Self::Emergency,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Notice => "notice",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Alert => "alert",
            Self::Emergency => "emergency",
        }
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }

    /// The params of `logging/setLevel`.
    pub fn params(self) -> String {
        json!({ "level": self.name() }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_by_severity() {
        assert!(LogLevel::ALL.is_sorted());
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.name()), Some(level));
        }
        assert_eq!(LogLevel::parse("fatal"), None);
    }
}
