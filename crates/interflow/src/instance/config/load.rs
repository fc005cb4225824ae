//! Reads the configuration file. Errors carry line, column and a suggestion.

use std::fmt;
use std::path::{Path, PathBuf};

use interflow_admin::config_masking::mask_config;
use interflow_codec::document::{self, DocumentError};
use interflow_query::with_suggestion;
use interflow_store::RecordConfig;
use interflow_types::secret_names::{is_secret_header, mask_urls};
use serde_json::Value as Json;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::env::{EnvOverride, EnvOverrides};
use super::{InterflowConfig, env, paths};
use crate::instance::features;

#[derive(Debug)]
pub struct LoadedConfig {
    /// Environment overrides included.
    pub config: InterflowConfig,
    pub file: Option<PathBuf>,
    pub warnings: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file and place (`config.toml:3:5`), or the environment variable.
    pub place: String,
    pub what: String,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

impl std::error::Error for LoadError {}

/// Loads the file (`-` for stdin), or the defaults if there is none, and applies the `INTERFLOW_…` variables.
///
/// # Errors
/// The file cannot be read, is not valid TOML, or has an unknown key or an invalid value; or a variable has an invalid
/// value.
pub fn load(file: Option<&Path>) -> Result<LoadedConfig, LoadError> {
    let failed = |place: &str, e| LoadError { place: place.to_owned(), what: format!("cannot read the file: {e}") };
    let (config, overrides) = match file {
        None => load_in("", "defaults", None)?,
        Some(path) if path == Path::new("-") => {
            let place = "standard input";
            let text = std::io::read_to_string(std::io::stdin().lock()).map_err(|e| failed(place, e))?;
            load_in(&text, place, None)?
        }
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|e| failed(&path.display().to_string(), e))?;
            load_text(&text, path)?
        }
    };
    Ok(LoadedConfig { config, file: file.map(Path::to_owned), warnings: overrides.unknown })
}

/// Loads this text as [`load`] loads the file of that name. With it, the environment's overrides.
///
/// # Errors
/// As [`load`].
pub fn load_text(text: &str, file: &Path) -> Result<(InterflowConfig, EnvOverrides), LoadError> {
    load_in(text, &file.display().to_string(), file.parent())
}

/// Loads a text whose relative paths start from this directory.
fn load_in(text: &str, place: &str, directory: Option<&Path>) -> Result<(InterflowConfig, EnvOverrides), LoadError> {
    let utf8 = |os: std::ffi::OsString| os.to_string_lossy().into_owned();
    let vars: Vec<_> = std::env::vars_os().map(|(name, value)| (utf8(name), utf8(value))).collect();
    let overrides = env::overrides(&vars);
    let mut config = parse(text, place, directory, &overrides.values)?;
    refuse_masked(text, place, &overrides.values)?;
    // Whatever the header is called that carries virtual keys, recordings do not hold them.
    let headers = &mut config.record.mask_headers;
    if *headers == RecordConfig::default().mask_headers && !is_secret_header(config.keys.header.as_bytes()) {
        headers.push(config.keys.header.clone());
    }
    #[cfg(all(feature = "media", feature = "compat"))]
    let mut overrides = overrides;
    #[cfg(all(feature = "media", feature = "compat"))]
    {
        use interflow_compat::{MediaSections, SettingError, apply_environment};
        let InterflowConfig { media, gateway, upstream, timeouts, .. } = &mut config;
        let warnings = apply_environment(&mut MediaSections { media, gateway, upstream, timeouts }, &vars)
            .map_err(|SettingError { place, what }| LoadError { place, what })?;
        overrides.unknown.extend(warnings);
    }
    #[cfg(all(feature = "media", not(feature = "compat")))]
    if config.media.compat.enabled {
        return Err(LoadError { place: place.to_owned(), what: features::missing("media.compat", "compat") });
    }
    Ok((config, overrides))
}

/// Parses a configuration, resolves its relative paths, and applies these environment overrides, whose own start from the working
/// directory.
///
/// # Errors
/// As [`load`].
pub fn parse(
    text: &str,
    place: &str,
    directory: Option<&Path>,
    overrides: &[EnvOverride],
) -> Result<InterflowConfig, LoadError> {
    let config: InterflowConfig = document::from_toml(text).map_err(|e| describe(&e, place))?;
    let directory = directory.filter(|d| !d.as_os_str().is_empty());
    if overrides.is_empty() && directory.is_none() {
        return Ok(config);
    }
    let mut base: Table = document::from_toml(text).map_err(|e| describe(&e, place))?;
    if let Some(directory) = directory {
        paths::resolve(&mut base, directory);
    }
    let laid = |left_out: Option<&str>| {
        let mut table = base.clone();
        for (_, path, value) in overrides.iter().filter(|(name, ..)| left_out != Some(name)) {
            set(&mut table, path, value.clone());
        }
        document::from_toml::<InterflowConfig>(&toml::to_string(&table).expect("it was read from TOML"))
    };
    // Overrides are validated together, because some keys need each other (`tls.certificate`, `tls.key`). The one whose
    // removal fixes the error is reported.
    laid(None).map_err(|e| {
        let culprit = overrides.iter().map(|(name, ..)| name).find(|name| laid(Some(name)).is_ok());
        LoadError { place: culprit.cloned().unwrap_or_else(|| place.into()), what: suggest(e.message()) }
    })
}

/// Refuses masks, which only stand for secrets: with what was printed, `***` would be the password.
fn refuse_masked(text: &str, place: &str, overrides: &[EnvOverride]) -> Result<(), LoadError> {
    let in_text = masked_key(text).map(|key| {
        let (line, column) = key_position(text, &key).unwrap_or((1, 1));
        format!("{place}:{line}:{column}")
    });
    let in_variables = overrides.iter().find(|(_, path, value)| {
        let mut table = Table::new();
        set(&mut table, path, value.clone());
        masked_key(&table.to_string()).is_some()
    });
    let Some(place) = in_text.or_else(|| Some(in_variables?.0.clone())) else { return Ok(()) };
    let what =
        "`***` stands for a secret where a configuration is printed: write the secret, or `env:NAME` or `file:PATH`";
    Err(LoadError { place, what: what.to_owned() })
}

/// The first key whose value is masked where it holds a secret: elsewhere, `***` is a text like others.
fn masked_key(text: &str) -> Option<String> {
    fn find(value: &Json, masked: &Json, key: &str) -> Option<String> {
        // As `mask_config` and the difference of two texts write it.
        let has_mask =
            |t: &str| t.starts_with("***") || ["***@", "=***", "/***", ":***"].iter().any(|mask| t.contains(mask));
        match value {
            Json::Object(map) => map.iter().find_map(|(name, value)| {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                find(value, &masked[name], &key)
            }),
            Json::Array(list) => {
                list.iter().enumerate().find_map(|(at, value)| find(value, &masked[at], &format!("{key}[{at}]")))
            }
            Json::String(text) => {
                (has_mask(text) && masked.as_str().is_some_and(|masked| masked.contains("***"))).then(|| key.to_owned())
            }
            _ => None,
        }
    }
    if !text.contains("***") {
        return None;
    }
    let parsed = |text: &str| toml::from_str::<Json>(text).unwrap_or_default();
    // With a token in the place of each mask, what is masked again is a secret.
    let mut masked = parsed(&text.replace("***", "0123456789ab"));
    mask_config(&mut masked);
    find(&parsed(text), &masked, "")
}

fn set(table: &mut Table, path: &[String], value: Value) {
    match path {
        [] => {}
        [last] => {
            table.insert(last.clone(), value);
        }
        [first, rest @ ..] => {
            let inner = table.entry(first.clone()).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(inner) = inner {
                set(inner, rest, value);
            }
        }
    }
}

pub(super) fn describe(error: &DocumentError, place: &str) -> LoadError {
    let (line, column) = error.position().unwrap_or((1, 1));
    LoadError { place: format!("{place}:{line}:{column}"), what: suggest(error.message()) }
}

/// The message of serde in plain words, with a remedy.
fn suggest(message: &str) -> String {
    // Only the top level knows `gateway`: there, the section may belong to a feature.
    let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split('`').next());
    if message.contains("`gateway`")
        && let Some((unknown, feature)) = unknown.and_then(|name| Some((name, features::left_out(name)?)))
    {
        return features::missing(unknown, feature);
    }
    let remedy = match message {
        "invalid socket address syntax" => ": write an address with a port, such as 127.0.0.1:8080",
        _ if message.ends_with("but a list belongs here") => ": write [value, …], or [[section]] for each table",
        _ if message.ends_with("but a table belongs here") => {
            ": write [section] or [section.NAME], and its keys below it"
        }
        _ => "",
    };
    mask_urls(&(with_suggestion(&without_value(message)) + remedy))
}

/// `it is the text "x", but a list belongs here` without the value, which may be a secret.
fn without_value(message: &str) -> String {
    let value = message.find(['"', '`']).zip(message.rfind(", but ")).filter(|(from, to)| from < to);
    match value.filter(|_| message.starts_with("it is ")) {
        Some((from, to)) => message[..from].trim_end().replacen("it is the ", "it is a ", 1) + &message[to..],
        None => message.to_owned(),
    }
}

/// Line and column of a key such as `upstream.extra_ca` or `quota.rule[1].allow`, or of its deepest part that the text has.
pub fn key_position(text: &str, key: &str) -> Option<(usize, usize)> {
    let document = DeTable::parse(text).ok()?;
    let (mut table, mut at) = (document.get_ref(), None);
    for part in key.split('.') {
        let (part, index) = part.split_once('[').unwrap_or((part, ""));
        let Some((name, mut value)) = table.iter().find(|(name, _)| name.get_ref().as_ref() == part) else { break };
        at = Some(name.span().start);
        if let DeValue::Array(all) = value.get_ref()
            && let Some(item) = index.trim_end_matches(']').parse().ok().and_then(|i: usize| all.get(i))
        {
            (value, at) = (item, Some(item.span().start));
        }
        let DeValue::Table(inner) = value.get_ref() else { break };
        table = inner;
    }
    let before = &text[..at?];
    Some((before.matches('\n').count() + 1, before.chars().rev().take_while(|&c| c != '\n').count() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fails(text: &str) -> String {
        parse(text, "c.toml", None, &[]).unwrap_err().to_string()
    }

    #[test]
    fn empty_file_is_the_default_config() {
        assert_eq!(parse("", "c.toml", None, &[]), Ok(InterflowConfig::default()));
    }

    #[test]
    fn printed_config_parses_back() {
        let printed = toml::to_string_pretty(&InterflowConfig::default()).unwrap();
        assert_eq!(parse(&printed, "c.toml", None, &[]), Ok(InterflowConfig::default()), "{printed}");
    }

    #[test]
    fn config_errors_have_a_position_and_a_suggestion() {
        for (text, error) in [
            ("[proxi]\n", "c.toml:1:2: unknown key `proxi`: did you mean `proxy`?"),
            ("[proxy]\nlisten = []\nvai = \"x\"\n", "c.toml:3:1: unknown key `vai`: did you mean `via`?"),
            ("[intercept]\nmode = \"al\"", "c.toml:2:8: unknown value `al`: did you mean `all`?"),
            (
                "[timeouts]\nheader_timeout = \"soon\"",
                "c.toml:2:18: `soon` is not a duration: write it as 500ms, 30s, 5m, 2h or 7d",
            ),
        ] {
            assert_eq!(fails(text), error);
        }
        assert!(fails("[proxy]\nlisten = [\"localhost\"]").starts_with("c.toml:2:11: "));
        assert!(fails("x = = 1").starts_with("c.toml:1:"));
        assert!(fails("[workers]\nzzzzzzzzzz = 1").contains("known keys are count"));
        assert!(fails("[compat]\n").starts_with("c.toml:1:2: unknown key `compat`: known keys are data_dir, log"));
    }

    #[test]
    fn errors_do_not_print_what_may_be_a_secret() {
        for (text, error) in [
            (
                "[[upstream.proxy]]\nvia = \"http://u:PXSECRET@h:1\"",
                "c.toml:2:7: it is a text, but a list belongs here: write [value, …], or [[section]] for each table",
            ),
            (
                "[media]\nlink_key = \"KEYSECRET\"",
                "c.toml:2:12: it is a text, but a list belongs here: write [value, …], or [[section]] for each table",
            ),
            ("[media]\napi_password = 12345", "c.toml:2:16: it is a number, but a text belongs here"),
        ] {
            assert_eq!(fails(text), error);
        }
    }

    #[test]
    fn the_header_of_virtual_keys_is_masked_whatever_its_name() {
        let headers = |text: &str| load_in(text, "c.toml", None).unwrap().0.record.mask_headers;
        let all = RecordConfig::default().mask_headers;
        assert_eq!(headers(""), all);
        assert_eq!(headers("[keys]\nheader = \"x-team-key\"\n"), [all, vec!["x-team-key".to_owned()]].concat());
        assert_eq!(headers("[keys]\nheader = \"x-team-key\"\n[record]\nmask_headers = [\"a\"]\n"), ["a"]);
    }

    #[test]
    fn masks_of_a_printed_configuration_are_refused_as_secrets() {
        let refused = |text: &str| refuse_masked(text, "c.toml", &[]).unwrap_err().to_string();
        for (text, place) in [
            ("[media]\napi_password = \"***\"\n", "c.toml:2:1: "),
            ("[[media.user]]\nname = 'a'\npassword = '***'\n", "c.toml:3:1: "),
            ("[[upstream.proxy]]\nvia = [\"http://***@h:1\"]\n", "c.toml:2:8: "),
            ("[record]\nstore = \"postgres://u:***@h/d\"\n", "c.toml:2:1: "),
            ("[mcp.server.x]\nurl = \"http://h/?userApiKey=***\"\n", "c.toml:2:1: "),
            ("[mcp.server.x]\nurl = \"http://h/s/***/mcp\"\n", "c.toml:2:1: "),
            ("[mcp.server.x]\nargs = [\"-v\", \"--token\", \"***\"]\n", "c.toml:2:"),
            ("[mcp.server.x]\nargs = [\"Authorization:***\"]\n", "c.toml:2:"),
            ("[media]\napi_password = \"*** (changed)\"\n", "c.toml:2:1: "),
        ] {
            let error = refused(text);
            assert!(error.starts_with(place) && error.contains("`env:NAME`"), "{error}");
        }
        for text in [
            "# key = \"***\"\n[media]\napi_password = \"a\" # was \"***\"\n",
            "[llm.guardrail.x]\nmask = \"***\"\n[log]\nlevel = \"info\"\n",
            "[rules]\nfiles = [\"/a/***/b\"]\n",
            "[media]\napi_password = \"a***b\"\n",
        ] {
            assert_eq!(refuse_masked(text, "c.toml", &[]), Ok(()), "{text}");
        }
        let vars = [("INTERFLOW_MEDIA_API_PASSWORD".to_owned(), "***".to_owned())];
        let error = refuse_masked("", "defaults", &env::overrides(&vars).values).unwrap_err();
        assert_eq!(error.place, "INTERFLOW_MEDIA_API_PASSWORD");
    }

    #[test]
    fn environment_variables_override_the_file() {
        let vars = |list: &[(&str, &str)]| {
            let list: Vec<_> = list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            env::overrides(&list).values
        };
        let text = "[intercept]\nmode = \"none\"\n[timeouts]\nheader_timeout = \"7s\"";
        let set = vars(&[
            ("INTERFLOW_INTERCEPT_MODE", "listed"),
            ("INTERFLOW_INTERCEPT_EXCLUDE", "[\"a.test\", \"b.test\"]"),
            ("INTERFLOW_LIMITS_CONNECTIONS_PER_CLIENT", "9"),
            ("INTERFLOW_DATA_DIR", "/tmp/x"),
            ("OTHER", "1"),
        ]);
        let c = parse(text, "c.toml", None, &set).unwrap();
        assert_eq!(c.intercept.mode, interflow_proxy::config::InterceptMode::Listed);
        assert_eq!(c.intercept.exclude, ["a.test", "b.test"]);
        assert_eq!((c.limits.connections_per_client, c.timeouts.header_timeout.0.as_secs()), (9, 7));
        let pair = [("INTERFLOW_PROXY_TLS_CERTIFICATE", "c.pem"), ("INTERFLOW_PROXY_TLS_KEY", "k.pem")];
        assert!(parse(text, "c.toml", None, &vars(&pair)).unwrap().proxy.tls.is_some());
        let e = parse(text, "c.toml", None, &vars(&[("INTERFLOW_LIMITS_CONNECTIONS", "many")])).unwrap_err();
        assert!(e.to_string().starts_with("INTERFLOW_LIMITS_CONNECTIONS: "), "{e}");
    }

    #[test]
    fn key_position_is_found_in_the_text() {
        assert_eq!(key_position("a = 1\n[upstream]\nextra_ca = []\n", "upstream.extra_ca"), Some((3, 1)));
        assert_eq!(key_position("", "upstream.extra_ca"), None);
        assert_eq!(key_position("[a]\n", "a.b.c"), Some((1, 2)), "the deepest part that there is");
        let rules = "[[quota.rule]]\nname = \"a\"\n\n[[quota.rule]]\nname = \"b\"\nallow = { burst = 1 }\n";
        assert_eq!(key_position(rules, "quota.rule[1]"), Some((4, 1)));
        assert_eq!(key_position(rules, "quota.rule[1].allow.burst"), Some((6, 11)));
    }
}
