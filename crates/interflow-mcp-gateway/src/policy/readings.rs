//! What a text may stand for: paths, URIs and hosts in the spellings that servers accept.

use std::net::IpAddr;

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use interflow_redact::{NormalizedText, looks_of};
use interflow_types::{Authority, AuthorityError, Host, HostPattern, Scheme, path, percent, wildcard};

/// Longer texts are no paths, URIs or hosts, in bytes.
const MAX_LENGTH: usize = 8192;
/// What the URI of a file begins with.
const FILE: &str = "file://";
/// How often percent-encoding is undone.
const MAX_DECODED: usize = 3;

/// Whether one reading of something matches, and whether all do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    pub any: bool,
    pub all: bool,
}

/// Whether a name looks like one that matches a pattern with `*`: whatever its case, its script and what is invisible in it.
pub(crate) fn any_looks_like(patterns: &[String], name: &str) -> bool {
    let name = looks_of(name);
    patterns.iter().any(|pattern| wildcard::matches(&looks_of(pattern), &name))
}

/// How a text may be read: as it looks, with and without percent-encoding.
pub(super) fn text_readings(text: &str) -> Vec<String> {
    let mut readings = vec![looks_of(text)];
    let mut plain = text.to_owned();
    for _ in 0..MAX_DECODED {
        let decoded = percent::decoded_lossy(&plain);
        if decoded == plain {
            break;
        }
        readings.push(looks_of(&decoded));
        plain = decoded;
    }
    readings
}

/// Globs over paths or URIs: `*` within a segment and `**` across them, where all readings have to match.
pub(super) struct PathPatterns {
    patterns: Vec<String>,
    matches_all: bool,
    exact: GlobSet,
    loose: GlobSet,
}

impl PathPatterns {
    /// # Errors
    /// One is not a glob, or not written plainly.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let (mut exact, mut loose) = (GlobSetBuilder::new(), GlobSetBuilder::new());
        for pattern in patterns {
            if pattern.contains(['%', '\\']) || pattern.split('/').any(|part| [".", ".."].contains(&part)) {
                return Err(format!("`{pattern}` is not plain: write it without `.`, `..`, `%` and backslashes"));
            }
            let build = |form: &str, is_exact: bool| {
                let mut builder = GlobBuilder::new(form);
                builder.literal_separator(is_exact).case_insensitive(!is_exact).backslash_escape(false);
                builder.build().map_err(|e| format!("`{pattern}` is not a glob: {}", e.kind()))
            };
            exact.add(build(&rooted(root_of(pattern), pattern), true)?);
            loose.add(build(&rooted("/", &looks_of(pattern)), false)?);
        }
        let built = |set: GlobSetBuilder| set.build().map_err(|e| e.to_string());
        let matches_all = patterns.iter().any(|pattern| ["*", "**"].contains(&pattern.as_str()));
        Ok(Self { patterns: patterns.to_vec(), matches_all, exact: built(exact)?, loose: built(loose)? })
    }

    /// Whether all that another pattern matches matches one of these, as far as that is plain.
    pub fn covers(&self, pattern: &str) -> bool {
        // What stands for any characters matches only what does so here, too.
        let example = |across: &str| pattern.replace("**", across).replace('*', "\u{1}\u{2}");
        let is_plain = !pattern.contains(['?', '[', '{']);
        let is_within = |across| self.exact.is_match(rooted(root_of(pattern), &example(across)));
        self.matches_all
            || self.patterns.iter().any(|own| own == pattern)
            || is_plain && is_within("\u{1}\u{2}") && is_within("\u{1}\u{2}/\u{2}\u{1}/\u{1}")
    }

    pub fn matches(&self, text: &str) -> Match {
        if self.matches_all {
            return Match { any: true, all: true };
        }
        let text = text.strip_prefix("./").filter(|rest| !rest.starts_with('/')).unwrap_or(text);
        // Where a server expands it, or begins with another directory, it may be any path.
        let climbs = |text: &String| text.split(['/', '\\']).any(|part| part.split(';').next() == Some(".."));
        let is_open = text.starts_with(['~', '$']) || root_of(text) != "/" && text_readings(text).iter().any(climbs);
        let Some(readings) = path_readings(text).filter(|_| !is_open) else { return Match { any: true, all: false } };
        // Two slashes may begin the name of a machine.
        let (scheme, rest) = split_scheme(text);
        let is_plain = !text.starts_with("//") && (scheme.is_empty() || rest.starts_with('/'));
        let all = is_plain && readings.iter().all(|reading| self.exact.is_match(rooted(root_of(text), reading)));
        let mut loose = readings.iter().map(|reading| looks_of(reading));
        let any = all || loose.any(|reading| loose_forms(&reading).any(|form| self.loose.is_match(form)));
        Match { any, all }
    }
}

/// What a path begins at: the root, as that of a URI does, or a directory that only the server knows.
fn root_of(text: &str) -> &'static str {
    if text.starts_with('/') || !split_scheme(text).0.is_empty() { "/" } else { "./" }
}

fn rooted(root: &str, reading: &str) -> String {
    let (scheme, rest) = split_scheme(reading);
    format!("{scheme}{root}{}", rest.trim_start_matches('/'))
}

/// A directory is also what is in it, whatever ends its name, and a file URI, with or without a host, is also a path.
fn loose_forms(reading: &str) -> impl Iterator<Item = String> {
    let form = rooted("/", reading);
    let file = form.strip_prefix(FILE).map(str::to_owned);
    let local = file.as_ref().and_then(|file| file.get(1..)?.split_once('/')).map(|(_, path)| format!("/{path}"));
    [Some(form), file, local].into_iter().flatten().flat_map(|form| {
        let plain = form.trim_end_matches('/');
        [format!("{plain}/"), plain.to_owned()]
    })
}

/// The scheme of a URI, and what follows. One letter is a drive. Of files, parsers read any number of slashes of both kinds.
fn split_scheme(text: &str) -> (String, &str) {
    let is_scheme = |text: &str| text.len() > 1 && text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) && (rest.starts_with('/') || scheme.eq_ignore_ascii_case("file")) => {
            (scheme.to_ascii_lowercase() + "://", rest)
        }
        _ => (String::new(), text),
    }
}

/// The readings of a path or a URI, also in Unicode's compatibility forms; `None` if they are not all known.
fn path_readings(text: &str) -> Option<Vec<String>> {
    let of_text = |text: &str| -> Option<Vec<String>> {
        let (scheme, rest) = split_scheme(text);
        let mut all = path::variants(rest)?;
        if scheme == FILE {
            // The query and the fragment are no part of the file's name, and a host is often ignored.
            let path = rest.split(['?', '#']).next().unwrap_or_default().replace('\\', "/");
            let host = path.strip_prefix("//").filter(|rest| !rest.starts_with('/'));
            if let Some((_, path)) = host.and_then(|rest| rest.split_once('/')) {
                all.extend(path::variants(path)?);
            }
            all.extend(path::variants(&path)?);
        }
        Some(all.into_iter().map(|reading| format!("{scheme}{reading}")).collect())
    };
    let mut readings = of_text(Some(text).filter(|text| text.len() <= MAX_LENGTH)?)?;
    for normalized in readings.clone().iter().flat_map(|reading| NormalizedText::readings(reading, false)) {
        readings.extend(of_text(&normalized.text)?);
    }
    Some(readings)
}

/// Whether the host of a URL, or a host with or without a port, matches. What parsers read differently is of no known host.
pub(super) fn host_matches(patterns: &[HostPattern], text: &str) -> Match {
    let Some((host, port)) = host_of(text) else { return Match { any: true, all: false } };
    let on_host = || patterns.iter().filter(|pattern| pattern.host.matches(&host));
    let all = on_host().any(|pattern| pattern.port.is_none_or(|own| port == Some(own)));
    Match { any: all || port.is_none() && on_host().next().is_some(), all }
}

/// A host, and its port if it is known.
fn host_of(text: &str) -> Option<(Host, Option<u16>)> {
    if text.len() > MAX_LENGTH || !text.bytes().all(|b| b.is_ascii_graphic() && b != b'\\') {
        return None;
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some((Host::Ip(ip), None));
    }
    let (scheme, rest) = text.split_once("://").map_or((None, text), |(scheme, rest)| (Scheme::parse(scheme), rest));
    // A scheme without slashes, or with more of them, is read as one with two by some.
    let authority = rest.split(['/', '?', '#']).next()?;
    match Authority::parse(authority, scheme.map(Scheme::default_port)) {
        Ok(parsed) => Some((parsed.host, Some(parsed.port))),
        Err(AuthorityError::NoPort) => Some((Host::parse(authority.trim_end_matches(':')).ok()?, None)),
        Err(_) => None,
    }
}
