//! Levels of log messages (MCP 2025-11-25, logging).

use interflow_types::labelled_enum;
use serde_json::json;

/// The request by which a client sets the level from which on it wants log messages.
pub(crate) const SET_LEVEL: &str = "logging/setLevel";
/// A log message of a server.
pub(crate) const LOG_MESSAGE: &str = "notifications/message";

labelled_enum! {
    /// The levels of syslog (RFC 5424, section 6.2.1), the least severe first.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) enum LogLevel {
        Debug "debug",
        Info "info",
        Notice "notice",
        Warning "warning",
        Error "error",
        Critical "critical",
        Alert "alert",
        Emergency "emergency",
    }
}

impl LogLevel {
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }

    /// The params of `logging/setLevel`.
    pub fn params(self) -> String {
        json!({ "level": self.as_str() }).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_ordered_by_severity() {
        assert!(LogLevel::ALL.is_sorted());
        for level in LogLevel::ALL {
            assert_eq!(LogLevel::parse(level.as_str()), Some(level));
        }
        assert_eq!(LogLevel::parse("fatal"), None);
    }
}
