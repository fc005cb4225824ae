//! Greyproxy's database: its transactions and blocked connections as flows, and its rules, sessions and credentials as
//! stored. Opened read-only.

use std::path::Path;

use interflow_archive::{FlowSink, ImportError, ImportReport};
use interflow_types::Timestamp;
use rusqlite::{Connection, OpenFlags, Row};

pub struct GreyproxyDb {
    pub(super) connection: Connection,
}

/// A rule as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreyproxyRule {
    pub id: i64,
    /// Whom it applies to: a glob over container names.
    pub container: String,
    /// The destination: a glob over hosts.
    pub destination: String,
    /// Ports: `*`, numbers, ranges.
    pub port: String,
    /// `allow` or `deny`.
    pub action: String,
    /// Its expiry.
    pub expires: Option<Timestamp>,
    /// The user's note.
    pub notes: Option<String>,
    /// The session that created it.
    pub session: Option<String>,
}

/// An encrypted credential as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct GreyproxyCredential {
    pub label: String,
    /// The placeholder that stands for it.
    pub placeholder: String,
    /// Its value: nonce, ciphertext and tag of AES-256-GCM.
    pub sealed: Vec<u8>,
}

/// A session as stored.
#[derive(Clone, PartialEq, Eq)]
pub struct GreyproxySession {
    pub id: String,
    pub container: String,
    /// Its expiry.
    pub expires: Option<Timestamp>,
    /// Placeholders and their values, as JSON, encrypted like a credential's value.
    pub sealed: Vec<u8>,
    /// Placeholders and their labels, as JSON.
    pub labels: String,
}

/// A user-defined endpoint format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GreyproxyEndpoint {
    /// A glob over hosts.
    pub host: String,
    /// A glob over paths.
    pub path: String,
    /// A method, or `*`.
    pub method: String,
    /// The name of its decoder.
    pub decoder: String,
    /// Higher priorities take precedence.
    pub priority: i64,
    pub enabled: bool,
}

/// Numbers of items that are not imported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GreyproxyRest {
    /// Conversations; Interflow rebuilds them from the flows.
    pub conversations: u64,
    /// Pending requests.
    pub pending: u64,
    /// Cached names of addresses.
    pub names: u64,
}

type Result<T> = std::result::Result<T, rusqlite::Error>;

impl GreyproxyDb {
    /// Opens a database.
    ///
    /// # Errors
    /// The file cannot be read, or is not a Greyproxy database.
    pub fn open(path: &Path) -> std::result::Result<Self, String> {
        let place = path.display();
        if !path.is_file() {
            return Err(format!("{place}: there is no such file"));
        }
        // While Greyproxy runs, recent data is in the write-ahead log, which is read as well.
        let connection =
            Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(|e| format!("{place}: {e}"))?;
        let db = Self { connection };
        match db.has("rules").and_then(|rules| Ok(rules && db.has("http_transactions")?)) {
            Ok(true) => Ok(db),
            Ok(false) => Err(format!(
                "{place}: this is not a Greyproxy database: it has no tables `rules` and `http_transactions`"
            )),
            Err(e) => Err(format!("{place}: {e}")),
        }
    }

    pub(super) fn has(&self, table: &str) -> Result<bool> {
        let count = "SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = ?1";
        self.connection.query_row(count, [table], |row| row.get::<_, i64>(0)).map(|n| n > 0)
    }

    /// The columns of a table: older databases have fewer.
    pub(super) fn columns(&self, table: &str) -> Result<Vec<String>> {
        let mut statement = self.connection.prepare("SELECT name FROM pragma_table_info(?1)")?;
        statement.query_map([table], |row| row.get(0))?.collect()
    }

    /// A column if it exists, else NULL.
    pub(super) fn column(columns: &[String], name: &'static str) -> &'static str {
        if columns.iter().any(|c| c == name) { name } else { "NULL" }
    }

    pub(super) fn all<T>(&self, table: &str, sql: &str, read: impl Fn(&Row<'_>) -> Result<T>) -> Result<Vec<T>> {
        if !self.has(table)? {
            return Ok(Vec::new());
        }
        let mut statement = self.connection.prepare(sql)?;
        statement.query_map([], |row| read(row))?.collect()
    }

    /// All rules, including expired ones.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn rules(&self) -> Result<Vec<GreyproxyRule>> {
        let session = Self::column(&self.columns("rules")?, "session_id");
        let sql = format!(
            "SELECT id, container_pattern, destination_pattern, port_pattern, action, expires_at, notes, {session} FROM rules \
             ORDER BY id"
        );
        self.all("rules", &sql, |row| {
            Ok(GreyproxyRule {
                id: row.get(0)?,
                container: row.get(1)?,
                destination: row.get(2)?,
                port: text(row, 3)?.unwrap_or_else(|| "*".to_owned()),
                action: row.get(4)?,
                expires: text(row, 5)?.as_deref().and_then(parse_timestamp),
                notes: text(row, 6)?,
                session: text(row, 7)?,
            })
        })
    }

    /// The global credentials.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn credentials(&self) -> Result<Vec<GreyproxyCredential>> {
        let sql = "SELECT label, placeholder, value_enc FROM global_credentials ORDER BY label";
        self.all("global_credentials", sql, |row| {
            Ok(GreyproxyCredential { label: row.get(0)?, placeholder: row.get(1)?, sealed: bytes(row, 2)? })
        })
    }

    /// All sessions, including expired ones.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn sessions(&self) -> Result<Vec<GreyproxySession>> {
        let sql = "SELECT session_id, container_name, expires_at, mappings_enc, labels_json FROM sessions ORDER BY session_id";
        self.all("sessions", sql, |row| {
            Ok(GreyproxySession {
                id: row.get(0)?,
                container: row.get(1)?,
                expires: text(row, 2)?.as_deref().and_then(parse_timestamp),
                sealed: bytes(row, 3)?,
                labels: text(row, 4)?.unwrap_or_default(),
            })
        })
    }

    /// The user-defined endpoint formats, without the built-in ones.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn endpoints(&self) -> Result<Vec<GreyproxyEndpoint>> {
        let columns = self.columns("endpoint_rules")?;
        if !columns.iter().any(|c| c == "user_defined") {
            return Ok(Vec::new());
        }
        let sql = "SELECT host_pattern, path_pattern, method, decoder_name, priority, enabled FROM endpoint_rules \
                   WHERE user_defined ORDER BY id";
        self.all("endpoint_rules", sql, |row| {
            let pattern = |at| -> Result<String> {
                Ok(text(row, at)?.filter(|t| !t.is_empty()).unwrap_or_else(|| "*".to_owned()))
            };
            Ok(GreyproxyEndpoint {
                host: pattern(0)?,
                path: pattern(1)?,
                method: pattern(2)?,
                decoder: text(row, 3)?.unwrap_or_default(),
                priority: row.get::<_, Option<i64>>(4)?.unwrap_or_default(),
                enabled: row.get::<_, Option<bool>>(5)?.unwrap_or(true),
            })
        })
    }

    /// Counts the items that are not imported.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn rest(&self) -> Result<GreyproxyRest> {
        let count = |table: &str| -> Result<u64> {
            let sql = format!("SELECT COUNT(*) FROM {table}");
            let found = self.all(table, &sql, |row| row.get::<_, i64>(0))?;
            Ok(found.first().map_or(0, |n| u64::try_from(*n).unwrap_or(0)))
        };
        Ok(GreyproxyRest {
            conversations: count("conversations")?,
            pending: count("pending_requests")?,
            names: count("dns_cache")?,
        })
    }

    /// Imports its transactions (the frames of one WebSocket as one flow), blocked connections, and tunnels passed
    /// through without inspection.
    ///
    /// # Errors
    /// The database cannot be read, or a flow cannot be stored.
    pub fn flows(&self, sink: FlowSink<'_>) -> std::result::Result<ImportReport, ImportError> {
        super::flows::import(self, sink)
    }
}

pub(super) fn text(row: &Row<'_>, at: usize) -> Result<Option<String>> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(at)? {
        ValueRef::Null => None,
        ValueRef::Integer(n) => Some(n.to_string()),
        ValueRef::Real(n) => Some(n.to_string()),
        ValueRef::Text(t) | ValueRef::Blob(t) => Some(String::from_utf8_lossy(t).into_owned()),
    })
}

pub(super) fn bytes(row: &Row<'_>, at: usize) -> Result<Vec<u8>> {
    use rusqlite::types::ValueRef;
    Ok(match row.get_ref(at)? {
        ValueRef::Text(t) | ValueRef::Blob(t) => t.to_vec(),
        _ => Vec::new(),
    })
}

/// A time as SQLite and Go write it: `2026-04-23 10:11:12`, with optional fraction, offset and zone name.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let mut words = text.split_whitespace();
    let (date, rest) = match words.next()?.split_once('T') {
        Some((date, rest)) => (date.to_owned(), rest.to_owned()),
        None => (text.split_whitespace().next()?.to_owned(), words.next().unwrap_or("00:00:00").to_owned()),
    };
    let has_offset = rest.ends_with(['Z', 'z']) || rest.contains('+') || rest.contains('-');
    let offset = match words.next().filter(|w| w.starts_with(['+', '-'])) {
        Some(offset) if !has_offset => offset,
        _ if has_offset => "",
        _ => "Z",
    };
    let at: jiff::Timestamp = format!("{date}T{rest}{offset}").parse().ok()?;
    u64::try_from(at.as_microsecond()).ok().map(Timestamp::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_parsed_in_every_form() {
        let at = Timestamp::from_micros(1_776_939_072_000_000);
        for text in [
            "2026-04-23 10:11:12",
            "2026-04-23T10:11:12Z",
            "2026-04-23 10:11:12+00:00",
            "2026-04-23 12:11:12 +0200 CEST",
            "2026-04-23T10:11:12.000Z",
        ] {
            assert_eq!(parse_timestamp(text), Some(at), "{text}");
        }
        assert_eq!(parse_timestamp("2026-04-23 10:11:12.25"), Some(Timestamp::from_micros(at.micros() + 250_000)));
        assert_eq!(parse_timestamp("yesterday"), None);
        assert_eq!(parse_timestamp(""), None);
    }
}
