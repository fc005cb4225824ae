//! The address of the shared store: a URL of PostgreSQL, as `psql` takes it.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{SslMode, TargetSessionAttrs};

use crate::error::{Result, StoreError};

/// The schema of the tables, unless the URL sets a `search_path`.
const SCHEMA: &str = "interflow";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A parsed URL. Its `Display` shows no password.
#[derive(Clone)]
pub struct PostgresUrl {
    pub(crate) config: Config,
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
            let path = || Some(PathBuf::from(decode_percent(value)));
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
            return Err(Self::error("this is no URL of PostgreSQL"));
        }
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let (rest, tls, required) = Self::take_parameters(query)?;
        let url = if rest.is_empty() { base.to_owned() } else { format!("{base}?{}", rest.join("&")) };
        // The library's messages name the parameter, not its value.
        let mut config: Config = url.parse().map_err(|e: tokio_postgres::Error| {
            Self::error(std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() {
            return Err(Self::error("the host is missing"));
        }
        if required {
            config.ssl_mode(SslMode::Require);
        }
        // Of a primary and its standbys, the one that takes writes, whichever that is by now.
        if config.get_hosts().len() > 1 && !rest.iter().any(|pair| pair.starts_with("target_session_attrs=")) {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("interflow");
        }
        // A server that has gone without a word is noticed within a minute.
        config.keepalives_idle(Duration::from_secs(30));
        config.tcp_user_timeout(Duration::from_secs(30));
        let schema = search_path(config.get_options().unwrap_or_default()).unwrap_or_else(|| SCHEMA.to_owned());
        if schema.is_empty() || !schema.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(Self::error("the search_path names a schema of letters, digits and _"));
        }
        let options = config.get_options().unwrap_or_default().to_owned();
        config.options(format!("{options} -c search_path={schema},public").trim());
        Ok(Self { config, tls, schema, masked: masked(text) })
    }
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

/// A URL without its password, wherever that is.
pub fn masked(url: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let mut out = match (base.split_once("://"), base.rfind('@')) {
        (Some((scheme, _)), Some(at)) => {
            let user = &base[scheme.len() + 3..at.max(scheme.len() + 3)];
            let shown = match user.split_once(':') {
                Some((name, _)) => format!("{name}:***"),
                None => user.to_owned(),
            };
            format!("{scheme}://{shown}{}", &base[at..])
        }
        _ => base.to_owned(),
    };
    if let Some(query) = query {
        let pairs = query.split('&').map(|p| if p.starts_with("password=") { "password=***" } else { p });
        out.push('?');
        out.push_str(&pairs.collect::<Vec<_>>().join("&"));
    }
    out
}

fn decode_percent(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        let hex = after.get(..2).and_then(|h| std::str::from_utf8(h).ok()).and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &after[2..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
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
        assert_eq!(full.config.get_ssl_mode(), SslMode::Require);
        assert_eq!(full.config.get_connect_timeout(), Some(&Duration::from_secs(3)));
        assert_eq!(full.config.get_ports(), [5433]);
        assert_eq!(url("postgres://db/if").config.get_ssl_mode(), SslMode::Prefer);
        assert_eq!(url("postgres://db/if?sslmode=disable").config.get_ssl_mode(), SslMode::Disable);
        let chain = url("postgres://db/if?sslmode=require&sslrootcert=ca.pem");
        assert_eq!(chain.tls.verify, TlsVerification::Chain);
    }

    #[test]
    fn of_several_hosts_the_one_that_takes_writes_is_used() {
        let two = url("postgres://u:p@db-1:5433,db-2/if");
        assert_eq!((two.config.get_hosts().len(), two.config.get_ports()), (2, &[5433, 5432][..]));
        assert_eq!(two.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
        let any = url("postgres://u:p@db-1,db-2/if?target_session_attrs=any");
        assert_eq!(any.config.get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(url("postgres://db/if").config.get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(two.to_string(), "postgres://u:***@db-1:5433,db-2/if");
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
        assert_eq!(masked("postgres://u:p@ss@h/d?sslmode=require"), "postgres://u:***@h/d?sslmode=require");
        assert_eq!(masked("postgres://h/d?password=x&user=u"), "postgres://h/d?password=***&user=u");
        assert_eq!(masked("postgres://u@h/d"), "postgres://u@h/d");
        assert_eq!(format!("{:?}", url("postgres://u:p@h/d")), "postgres://u:***@h/d");
    }
}
