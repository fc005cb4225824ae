//! E-mail addresses, URLs, host names, IPv6 and hardware addresses.

use super::ScanState;
use crate::Kind;
use crate::word_lists::{WordList, WordSet, words};

/// Bytes of the local part of an address (RFC 5322 3.2.3), and letters beyond ASCII (RFC 6531).
const fn is_local_part_byte(b: u8) -> bool {
    let is_sign = matches!(b, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-'..=b'/' | b'=' | b'^'..=b'`' | b'{'..=b'~');
    is_sign || b.is_ascii_alphanumeric() || b >= 0x80
}

/// Bytes of a host name, also of an internationalized one.
const fn is_host_byte(b: u8) -> bool {
    b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_') || b >= 0x80
}

/// Host names have at most 253 bytes; the search ends after this many.
const MAX_HOST_BYTES: usize = 512;

/// The end of a host name that begins at `from`, without trailing dots.
fn host_end(scan: &ScanState<'_>, from: usize) -> usize {
    let mut end = from;
    while is_host_byte(scan.byte_at(end)) && end < scan.bytes.len() && end - from < MAX_HOST_BYTES {
        let b = scan.bytes[end];
        if b >= 0x80 {
            let Some(c) = scan.text.get(end..).and_then(|t| t.chars().next()) else { break };
            if !c.is_alphanumeric() {
                break;
            }
            end += c.len_utf8();
        } else {
            end += 1;
        }
    }
    while end > from && matches!(scan.bytes[end - 1], b'.' | b'-' | b'_') {
        end -= 1;
    }
    end
}

/// Reports e-mail addresses around every `@`.
pub(super) fn emails(scan: &mut ScanState<'_>) {
    if !scan.wants(Kind::Email) {
        return;
    }
    for at in &scan.tokens.ats {
        let at = *at as usize;
        let host = scan.text.get(at + 1..host_end(scan, at + 1)).unwrap_or_default();
        let Some((labels, tld)) = split_domain(host) else { continue };
        if labels.is_empty() || labels.contains("..") {
            continue;
        }
        let Some(start) = local_start(scan, at) else { continue };
        let end = at + 1 + labels.len() + 1 + tld.len();
        scan.push(Kind::Email, start, end, 95);
    }
}

/// The labels of a host name and its top-level domain, which has no digits, unless it is in Punycode (RFC 3492). What
/// follows it belongs to a file's name: `anna@nordmail.com.mp3`.
fn split_domain(mut host: &str) -> Option<(&str, &str)> {
    let is_top = |label: &str| {
        label.len() >= 2 && label.chars().all(|c| c.is_alphabetic() || c == '-') || label.starts_with("xn--")
    };
    loop {
        let (labels, last) = host.rsplit_once('.')?;
        if is_top(last) {
            return Some((labels, last));
        }
        host = labels;
    }
}

/// `anna.berg=40nordmail.com`: the `@` of quoted-printable text (RFC 2045 section 6.7). Token `i` begins with the `40`.
pub(super) fn quoted_printable_email(scan: &mut ScanState<'_>, i: usize) {
    let token = scan.list()[i];
    if scan.byte_before(token.start()) != b'=' || !scan.word(&token).starts_with("40") {
        return;
    }
    let from = token.start() + 2;
    let host = scan.text.get(from..host_end(scan, from)).unwrap_or_default();
    let Some((labels, tld)) = split_domain(host) else { return };
    let end = from + labels.len() + 1 + tld.len();
    let Some(start) = local_start(scan, token.start() - 1) else { return };
    let named = scan.text.get(start..token.start() - 1).is_some_and(|l| l.contains(['.', '_', '-']) || l.len() >= 5);
    if named && labels.len() >= 3 && !labels.contains("..") && SAFE_TLDS.contains(&tld.to_ascii_lowercase().as_str()) {
        scan.push(Kind::Email, start, end, 80);
    }
}

/// `anna (at) nordmail.com`, `anna [at] nordmail [dot] com`: token `i` is the `at` in brackets.
pub(super) fn spelled_email(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).filter(|t| scan.word(t).eq_ignore_ascii_case("at")) else { return };
    let bracketed = |i: usize| {
        let (before, after) = (scan.gap_before(i), scan.gap(i));
        before.len() <= 3
            && after.len() <= 3
            && !before.contains('\n')
            && matches!((before.trim(), after.trim()), ("(", ")") | ("[", "]") | ("{", "}"))
    };
    let Some(left) = i.checked_sub(1).and_then(|p| scan.token(p)).filter(|_| bracketed(i)) else { return };
    let Some(start) = local_start(scan, left.end()).filter(|s| *s < token.start()) else { return };
    let (mut last, mut end) = (i + 1, None);
    while let Some(next) = scan.token(last + 1) {
        if scan.gap(last) == "." {
            last += 1;
        } else if scan.word(next).eq_ignore_ascii_case("dot") && bracketed(last + 1) && scan.token(last + 2).is_some() {
            last += 2;
        } else {
            break;
        }
        end = scan.token(last).filter(|t| t.is_word() && t.len() >= 2).map(|t| t.end()).or(end);
    }
    if let Some(end) = end {
        scan.push(Kind::Email, start, end, 90);
    }
}

/// The start of the local part before the `@`.
fn local_start(scan: &ScanState<'_>, at: usize) -> Option<usize> {
    if scan.byte_before(at) == b'"' {
        // "quoted local part"@host, on one line.
        let open = scan.bytes[..at - 1].iter().rposition(|b| matches!(b, b'"' | b'\n'))?;
        return (scan.bytes[open] == b'"' && at - open <= 66).then_some(open);
    }
    let mut start = at;
    while start > 0 && at - start < 128 && is_local_part_byte(scan.bytes[start - 1]) {
        start -= 1;
    }
    while !scan.text.is_char_boundary(start) {
        start += 1;
    }
    // mailto:, key=value, {template} and paths are not part of it.
    let local = scan.text.get(start..at)?;
    let skip = local.rfind(['=', '/', '{', '}', '|', '`', '$', '*', '^', '!', '#', '&']).map_or(0, |i| i + 1);
    let trimmed = local[skip..].trim_start_matches(|c: char| !c.is_alphanumeric() && c != '_');
    let start = at - trimmed.len();
    let password_in_url =
        scan.byte_before(start) == b':' && scan.bytes[..start].ends_with(b":") && is_in_url(scan, start);
    (!trimmed.is_empty() && !password_in_url).then_some(start)
}

/// Whether the position is in the authority of a URL: preceded by `scheme://user:`.
fn is_in_url(scan: &ScanState<'_>, at: usize) -> bool {
    let schemes = &scan.tokens.schemes;
    let nearest = schemes.partition_point(|s| (*s as usize) + 3 < at).checked_sub(1);
    nearest
        .and_then(|n| scan.text.get(schemes[n] as usize + 3..at))
        .is_some_and(|t| t.len() <= MAX_HOST_BYTES && !t.contains([' ', '/', '\n', '"']))
}

/// Well-known public hosts: a link to them reveals nothing personal.
static PUBLIC_HOSTS: WordSet = WordSet::new(|| words("public_hosts"));

/// Hosts of examples: these and what is below them.
static EXAMPLE_HOSTS: WordList = WordList::new(|| words("example_hosts"));

/// Names reserved for examples and local use (RFC 2606, RFC 6761).
fn is_reserved_host(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let host = host.strip_prefix("www.").unwrap_or(&host);
    let last = host.rsplit('.').next().unwrap_or_default();
    !host.contains('.')
        || host.starts_with("127.")
        || host == "0.0.0.0"
        || matches!(
            last,
            "test" | "invalid" | "localhost" | "local" | "internal" | "example" | "svc" | "cluster" | "lan"
        )
        || EXAMPLE_HOSTS.iter().any(|h| host.strip_suffix(h).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

/// Whether a host or one of its parent domains is well known.
fn is_public_host(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    let mut rest = host.as_str();
    loop {
        if PUBLIC_HOSTS.contains(rest) {
            return true;
        }
        match rest.split_once('.') {
            Some((_, parent)) => rest = parent,
            None => return false,
        }
    }
}

/// Total number of bytes scanned for the ends of a text's URLs.
const MAX_URL_SCAN_BYTES: usize = 8 << 20;

/// Length of the scheme before `://` at this position.
pub(super) fn scheme_length(scan: &ScanState<'_>, at: usize) -> usize {
    let is_scheme = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    scan.bytes[..at].iter().rev().take_while(is_scheme).count()
}

/// URLs around every `://`, and `www.` names.
pub(super) fn urls(scan: &mut ScanState<'_>) {
    if !scan.wants.kinds.any(&[Kind::Url, Kind::Domain]) {
        return;
    }
    // The more URLs a text has, the shorter they are: this bounds the time on a text of nothing else.
    let longest = (MAX_URL_SCAN_BYTES / scan.tokens.schemes.len().max(1)).clamp(1024, 8192);
    for at in &scan.tokens.schemes {
        let at = *at as usize;
        let scheme = scheme_length(scan, at);
        if scheme < 2 {
            continue;
        }
        let end = url_end(scan, at + 3, longest);
        let authority = scan.text.get(at + 3..end).unwrap_or_default();
        let authority = authority.split(['/', '?', '#']).next().unwrap_or_default();
        let host = authority.rsplit('@').next().unwrap_or_default();
        let host = if host.starts_with('[') { host } else { host.split(':').next().unwrap_or_default() };
        let name = scan.text.get(at - scheme..at).unwrap_or_default().to_ascii_lowercase();
        if is_webhook(authority, scan.text.get(at + 3..end).unwrap_or_default()) {
            scan.push(Kind::Secret, at - scheme, end, 92);
        }
        let confidence = if end <= at + 4 || host.is_empty() || host.contains(['{', '$', '<', '%']) {
            continue;
        } else if is_reserved_host(host) {
            20
        } else if is_public_host(host) {
            30
        } else if is_documentation_link(scan, at - scheme, end) {
            45
        } else if matches!(name.as_str(), "http" | "https" | "ftp" | "ftps" | "sftp" | "ws" | "wss") {
            90
        } else {
            45
        };
        scan.push(Kind::Url, at - scheme, end, confidence);
    }
}

/// A `www.` name or a domain whose first label is token `i`, which is followed by a dot.
pub(super) fn dotted(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).copied() else { return };
    if token.len() == 3 && scan.word(&token).eq_ignore_ascii_case("www") && scan.byte_before(token.start()) != b'/' {
        let end = url_end(scan, token.start(), 2048);
        let host_end = host_end(scan, token.start());
        let host = scan.text.get(token.start()..host_end).unwrap_or_default();
        if host.matches('.').count() >= 2 && !is_reserved_host(host) {
            scan.push(Kind::Url, token.start(), end, if is_public_host(host) { 30 } else { 85 });
        }
    } else {
        domain(scan, i);
    }
}

/// URLs that grant write access to whoever knows them.
fn is_webhook(authority: &str, rest: &str) -> bool {
    let path = rest.get(authority.len()..).unwrap_or_default();
    match authority {
        "hooks.slack.com" => path.len() > 40 && !path.contains("XXXX"),
        "discord.com" | "discordapp.com" => path.starts_with("/api/webhooks/") && path.len() > 60,
        "hooks.zapier.com" => path.len() > 20,
        "maker.ifttt.com" => path.contains("/with/key/"),
        "chat.googleapis.com" => path.contains("token="),
        _ => authority.ends_with(".webhook.office.com") && path.len() > 60,
    }
}

/// Whether the URL is a reference in documentation (`](https://…)`, `<https://…>`, `[name]: https://…`) without
/// personal data: no query and no credentials.
fn is_documentation_link(scan: &ScanState<'_>, start: usize, end: usize) -> bool {
    let before = &scan.bytes[..start];
    let reference = before.ends_with(b"](") || before.ends_with(b"<") || before.ends_with(b"]: ");
    reference && !scan.bytes[start..end].iter().any(|b| matches!(b, b'?' | b'@'))
}

/// Top-level domains that rarely end anything but a domain.
const SAFE_TLDS: &[&str] = &[
    "com", "org", "net", "edu", "gov", "mil", "info", "biz", "io", "co", "uk", "de", "fr", "it", "es", "nl", "eu",
    "ch", "at", "be", "ca", "au", "us", "jp", "br", "ru", "pl", "se", "no", "fi", "dk", "cz", "hu", "pt", "gr", "ro",
    "tech", "online", "site", "shop", "xyz", "app", "dev", "cloud",
];

/// `name.tld` without a scheme. Code is full of dots, so only lower-case names count whose suffix is not a file
/// extension or a method.
fn domain(scan: &mut ScanState<'_>, i: usize) {
    let (Some(token), Some(next)) = (scan.token(i), scan.token(i + 1)) else { return };
    if next.start() != token.end() + 1 || !scan.wants(Kind::Domain) {
        return;
    }
    let word = scan.word(next);
    if next.shape != crate::text::token::TokenShape::Lower
        || word.len() > 6
        || !SAFE_TLDS.contains(&word)
        || is_host_byte(scan.byte_at(next.end())) && scan.byte_at(next.end()) != b'.'
    {
        return;
    }
    let mut start = token.start();
    while start > 0
        && token.start() - start < MAX_HOST_BYTES
        && is_host_byte(scan.bytes[start - 1])
        && scan.bytes[start - 1] < 0x80
    {
        start -= 1;
    }
    let end = host_end(scan, start);
    let host = scan.text.get(start..end).unwrap_or_default();
    let last = host.rsplit('.').next().unwrap_or_default();
    let code = matches!(scan.byte_before(start), b'@' | b'/' | b'$' | b':' | b'=' | b'\\')
        || matches!(scan.byte_at(end), b'(' | b'[' | b'@' | b':' | b'=' | b'\\');
    if last != word
        || code
        || host.starts_with('.')
        || end != next.end()
        || is_reserved_host(host)
        || host.contains('_')
    {
        return;
    }
    let mut labels = host.split('.');
    let own = labels.next().unwrap_or_default();
    // `com.example.shop`: a package name in reverse domain order.
    if SAFE_TLDS[..8].contains(&own) && host.matches('.').count() >= 2 {
        return;
    }
    let machine =
        matches!(own, "self" | "this") || crate::lexicon::look_up(own).marks & crate::lexicon::mark::TECH != 0;
    let before = scan.byte_before(start);
    let apart = matches!(before, b' ' | b'\n' | b'\t' | b'(' | b'"' | b'\'' | b'|' | b',')
        && matches!(
            scan.byte_at(end),
            b' ' | b'\n' | b'.' | b',' | b')' | b'"' | b'\'' | b'/' | b'!' | b'?' | b';' | b'|'
        )
        && own.len() >= 3;
    let common = matches!(last, "com" | "org" | "net" | "edu" | "gov");
    let confidence = match (common, is_public_host(host)) {
        (_, true) => 25,
        (true, _) => 60,
        _ if apart && !machine && !super::names::is_code_line(scan, i) => 55,
        _ if scan.near_word(i, &["domain", "website", "site", "visit", "web", "homepage", "blog", "at"], 4, 0) => 65,
        _ => 40,
    };
    scan.push(Kind::Domain, start, end, confidence);
}

/// The end of a URL: at a space, a quote or a bracket, without trailing punctuation.
fn url_end(scan: &ScanState<'_>, from: usize, longest: usize) -> usize {
    let rest = scan.text.get(from..).unwrap_or_default();
    let rest = &rest[..rest.floor_char_boundary(longest)];
    let stop = rest
        .find(|c: char| {
            c.is_whitespace()
                || c.is_control()
                || matches!(c, '"' | '<' | '>' | '`' | '\\' | '^' | '{' | '}' | '|' | '“' | '”' | '»')
        })
        .unwrap_or(rest.len());
    // Markdown: a link inside a link's text.
    let url = rest[..stop].split("](").next().unwrap_or_default();
    let unopened = |open: char, close: char| url.matches(close).count().saturating_sub(url.matches(open).count());
    let mut unopened = [unopened('(', ')'), unopened('[', ']')];
    let ends_earlier = |last: char| {
        let Some(kind) = [')', ']'].iter().position(|close| *close == last) else {
            return matches!(last, '.' | ',' | ';' | ':' | '!' | '?' | '\'' | '*' | '…');
        };
        let is_unopened = unopened[kind] > 0;
        unopened[kind] -= usize::from(is_unopened);
        is_unopened
    };
    from + url.trim_end_matches(ends_earlier).len()
}

/// IPv6 and hardware addresses, which both contain colons.
pub(super) fn colon_addresses(scan: &mut ScanState<'_>) {
    let addresses = scan.wants.kinds.any(&[Kind::IpAddress, Kind::MacAddress]);
    let mut done = 0;
    for at in scan.tokens.colons.iter().filter(|_| addresses) {
        let at = *at as usize;
        if at < done {
            continue;
        }
        let inside = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
        let start = at - scan.bytes[..at].iter().rev().take(40).take_while(|b| inside(b)).count();
        let end = at + scan.bytes[at..].iter().take(46).take_while(|b| inside(b)).count();
        done = end;
        let clean = |b: u8| !b.is_ascii_alphanumeric() && b != b'_';
        if !clean(scan.byte_before(start)) || !clean(scan.byte_at(end)) || end - start < 4 {
            continue;
        }
        let address = scan.text.get(start..end).unwrap_or_default().trim_end_matches(['.']);
        let address = if address.ends_with("::") { address } else { address.trim_end_matches(':') };
        let end = start + address.len();
        if address.len() == 17 && is_mac(address.as_bytes()) {
            scan.push(Kind::MacAddress, start, end, 90);
        } else if let Some(confidence) = ipv6_confidence(address) {
            // `fd00::/24` is a network.
            let network = address.ends_with("::") && scan.byte_at(end) == b'/';
            let confidence = if network { 30 } else { confidence };
            scan.push(Kind::IpAddress, start, end, confidence);
        }
    }
}

/// The confidence in an IPv6 address; `None` if the text is none, or a time or a path.
fn ipv6_confidence(address: &str) -> Option<u8> {
    if address.matches(':').count() < 2 || !address.bytes().any(|b| b.is_ascii_digit()) {
        return None;
    }
    let parsed: std::net::Ipv6Addr = address.parse().ok()?;
    let groups = address.split(':').filter(|g| !g.is_empty()).count();
    let plausible = groups >= 4 || address.split(':').next().is_some_and(|g| g.len() == 4) || address.contains('.');
    // A network mask is not a personal address.
    if parsed.is_loopback() || parsed.is_unspecified() || parsed.segments()[0] == 0xffff {
        return Some(20);
    }
    plausible.then_some(90)
}

/// Six pairs of hexadecimal digits with the same separator.
pub(super) fn is_mac(text: &[u8]) -> bool {
    text.len() == 17
        && text
            .iter()
            .enumerate()
            .all(|(i, b)| if i % 3 == 2 { *b == text[2] && matches!(b, b':' | b'-') } else { b.is_ascii_hexdigit() })
        && text.iter().any(|b| !matches!(b, b'0' | b':' | b'-'))
        && text.iter().any(|b| !matches!(b, b'f' | b'F' | b':' | b'-'))
}
