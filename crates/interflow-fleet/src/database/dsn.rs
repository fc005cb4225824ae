//! The address of the shared store: a URL of PostgreSQL, as `psql` takes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use interflow_store::{RecordConfig, Result, StoreError};
use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use interflow_files::resolve_secret_ref;
use interflow_types::percent;
use interflow_types::secret_names::mask_url;

/// The schema of the tables, unless the URL sets a `search_path`.
const SCHEMA: &str = "interflow";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Settings of each session, which those of the URL override. A replica that is frozen or cut off must not stop others: what
/// it has locked is released when its transaction has been idle for this long, or its connection is dead; and who waits for
/// a lock tries again later.
const SESSION: &str = "-c idle_in_transaction_session_timeout=30s -c lock_timeout=20s -c tcp_keepalives_idle=30 \
     -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3";

/// A parsed URL. Its `Display` shows no password.
#[derive(Clone)]
pub struct PostgresUrl {
    /// One for each server that the URL names; never empty.
    pub(crate) hosts: Vec<Config>,
    pub(crate) tls: PostgresTls,
    pub(crate) schema: String,
    masked: String,
}

/// What is demanded of the server's certificate, and what is presented to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostgresTls {
    pub verify: TlsVerification,
    /// The CA that signed the server's certificate (PEM), in place of the system's.
    pub root_cert: Option<PathBuf>,
    /// The client certificate and its key (PEM).
    pub client: Option<(PathBuf, PathBuf)>,
}

/// How the server's certificate is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVerification {
    /// Not at all: encryption only.
    #[default]
    None,
    /// Its chain, not its name.
    Chain,
    /// Its chain and its name.
    Full,
}

impl PostgresUrl {
    /// Whether a value of `record.store` is such a URL.
    pub fn is_one(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    fn error(what: impl fmt::Display) -> StoreError {
        StoreError::Shared(format!(
            "record.store: {what}; write it as postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=verify-full"
        ))
    }

    /// Takes the keys out of the query that the client library does not know.
    fn take_parameters(query: &str) -> Result<(Vec<&str>, PostgresTls, bool)> {
        let (mut rest, mut tls, mut required) = (Vec::new(), PostgresTls::default(), false);
        let (mut cert, mut key) = (None, None);
        let mut mode = None;
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let path = || Some(PathBuf::from(percent::decoded_lossy(value)));
            match name {
                "sslmode" => mode = Some(value),
                "sslrootcert" => tls.root_cert = path(),
                "sslcert" => cert = path(),
                "sslkey" => key = path(),
                _ => rest.push(pair),
            }
        }
        match mode {
            None | Some("prefer" | "allow") => {}
            Some("disable") => rest.push("sslmode=disable"),
            // As in libpq: with a root, `require` verifies the chain.
            Some("require") if tls.root_cert.is_some() => (required, tls.verify) = (true, TlsVerification::Chain),
            Some("require") => required = true,
            Some("verify-ca") => (required, tls.verify) = (true, TlsVerification::Chain),
            Some("verify-full") => (required, tls.verify) = (true, TlsVerification::Full),
            Some(_) => {
                return Err(Self::error("sslmode is disable, prefer, require, verify-ca or verify-full"));
            }
        }
        tls.client = match (cert, key) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => return Err(Self::error("sslcert and sslkey belong together")),
        };
        Ok((rest, tls, required))
    }
}

impl FromStr for PostgresUrl {
    type Err = StoreError;

    fn from_str(text: &str) -> Result<Self> {
        if !Self::is_one(text) {
            return Err(Self::error("this is not a URL of PostgreSQL"));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (rest, tls, required) = Self::take_parameters(query)?;
        let query = if rest.is_empty() { String::new() } else { format!("?{}", rest.join("&")) };
        let bases = each_host(base);
        let (mut hosts, mut schema) = (Vec::new(), String::new());
        for base in &bases {
            // The library's messages name the parameter, not its value.
            let mut config: Config = format!("{base}{query}").parse().map_err(|e: tokio_postgres::Error| {
                Self::error(std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string))
            })?;
            if config.get_hosts().is_empty() {
                return Err(Self::error("the host is missing"));
            }
            if required {
                config.ssl_mode(SslMode::Require);
            }
            schema = complete(&mut config, bases.len() > 1)?;
            hosts.push(config);
        }
        Ok(Self { hosts, tls, schema, masked: mask_url(text) })
    }
}

impl PostgresUrl {
    /// What is the same for all servers.
    pub(crate) fn config(&self) -> &Config {
        &self.hosts[0]
    }
}

/// A URL for each server, as each has a time limit of its own: the library has only one for opening a socket.
fn each_host(base: &str) -> Vec<String> {
    let Some((scheme, rest)) = base.split_once("://") else { return vec![base.to_owned()] };
    let (user, rest) = rest.rsplit_once('@').map_or((String::new(), rest), |(user, rest)| (format!("{user}@"), rest));
    let (hosts, database) = rest.split_once('/').map_or((rest, String::new()), |(h, d)| (h, format!("/{d}")));
    hosts.split(',').map(|host| format!("{scheme}://{user}{host}{database}")).collect()
}

/// Sets what the URL leaves open; returns the schema.
fn complete(config: &mut Config, one_of_many: bool) -> Result<String> {
    if config.get_connect_timeout().is_none_or(Duration::is_zero) {
        config.connect_timeout(CONNECT_TIMEOUT);
    }
    if config.get_application_name().is_none() {
        config.application_name("interflow");
    }
    // Of several servers, the one that takes writes.
    if (one_of_many || config.get_hosts().len() > 1) && config.get_target_session_attrs() == TargetSessionAttrs::Any {
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    }
    // A server that has gone without a word is noticed within a minute.
    config.keepalives_idle(Duration::from_secs(30));
    config.tcp_user_timeout(Duration::from_secs(30));
    let options = config.get_options().unwrap_or_default().to_owned();
    let schema = search_path(&options).unwrap_or_else(|| SCHEMA.to_owned());
    if schema.is_empty() || !schema.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(PostgresUrl::error("the search_path names a schema of letters, digits and _"));
    }
    config.options(format!("{SESSION} {options} -c search_path={schema},public"));
    Ok(schema)
}

impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked)
    }
}

impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.masked)
    }
}

/// The first schema of a `search_path` in the options of a connection, such as `-c search_path=team`.
fn search_path(options: &str) -> Option<String> {
    let (_, value) = options.split_once("search_path=")?;
    let value = value.split([' ', ',']).next()?;
    Some(value.trim_matches('"').to_owned())
}

/// The URL of the shared store, if the configuration names one.
///
/// # Errors
/// The variable or file that holds it does not exist; it is not a URL of PostgreSQL.
pub fn shared_url(config: &RecordConfig) -> Result<Option<PostgresUrl>> {
    let Some(text) = &config.store else { return Ok(None) };
    let url = resolve_secret_ref(text).map_err(|e| StoreError::Shared(format!("record.store: {e}")))?;
    url.parse().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> PostgresUrl {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn parameters_of_tls_are_read_and_the_rest_is_the_librarys() {
        let full = url("postgres://a:b@db:5433/if?sslmode=verify-full&sslrootcert=%2Fetc%2Fca.pem&connect_timeout=3");
        assert_eq!(full.tls.verify, TlsVerification::Full);
        assert_eq!(full.tls.root_cert.as_deref(), Some(std::path::Path::new("/etc/ca.pem")));
        assert_eq!(full.config().get_ssl_mode(), SslMode::Require);
        assert_eq!(full.config().get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(full.config().get_ports(), [5433]);
        assert_eq!(url("postgres://db/if").config().get_ssl_mode(), SslMode::Prefer);
        assert_eq!(url("postgres://db/if?sslmode=disable").config().get_ssl_mode(), SslMode::Disable);
        let chain = url("postgres://db/if?sslmode=require&sslrootcert=ca.pem");
        assert_eq!(chain.tls.verify, TlsVerification::Chain);
    }

    #[test]
    fn of_several_servers_each_has_a_config_and_the_one_that_takes_writes_is_wanted() {
        let two = url("postgres://u:p@one:5433,two:5434/d?connect_timeout=2");
        assert_eq!(two.hosts.iter().map(|h| h.get_ports()[0]).collect::<Vec<_>>(), [5433, 5434]);
        assert_eq!(two.hosts[1].get_user(), Some("u"));
        assert_eq!(two.config().get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        assert_eq!(url("postgres://one/d").config().get_target_session_attrs(), TargetSessionAttrs::Any);
    }

    #[test]
    fn settings_of_the_url_come_after_those_of_each_session() {
        let own = url("postgres://db/if?options=-c%20lock_timeout%3D1s");
        let options = own.config().get_options().unwrap();
        assert!(options.find("lock_timeout=20s") < options.find("lock_timeout=1s"), "{options}");
    }

    #[test]
    fn the_schema_is_the_first_of_the_search_path() {
        assert_eq!(url("postgres://db/if").schema, "interflow");
        assert_eq!(url("postgres://db/if?options=-c%20search_path%3Dteam").schema, "team");
    }

    #[test]
    fn what_is_wrong_is_said_with_the_right_form_and_without_the_password() {
        for bad in [
            "mysql://u:secret@h/d",
            "postgres://u:secret@h/d?sslmode=maybe",
            "postgres://u:secret@h/d?sslcert=a",
            "postgres://u:secret@h:port/d",
            "postgres://u:secret@h/d?colour=red",
            "postgres:///d",
        ] {
            let error = bad.parse::<PostgresUrl>().expect_err(bad).to_string();
            assert!(error.contains("postgres://USER:PASSWORD@HOST"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn passwords_are_masked_in_both_places() {
        for (text, masked) in [
            ("postgres://u:p/w@h/d?sslmode=disable", "postgres://***@h/d?sslmode=disable"),
            ("postgres://h/d?password=x&user=u", "postgres://h/d?password=***&user=u"),
        ] {
            assert_eq!(format!("{0} {0:?}", url(text)), format!("{masked} {masked}"));
        }
    }
}
