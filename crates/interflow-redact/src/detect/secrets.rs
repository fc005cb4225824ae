//! Secrets: keys and tokens with known prefixes, private keys, connection strings, and values where a password or a
//! token is expected. Placeholders and published examples are excluded.

mod known_secrets;
mod secret_locations;

use self::known_secrets::{KnownPrefix, is_placeholder, prefixes_from};
pub(super) use self::secret_locations::pgpass;
use super::ScanState;
use super::byte_runs::RunClass;
use crate::Kind;
use crate::lexicon::{mark, topic};
use crate::text::token::{TokenShape, WordToken};
use crate::word_lists::{WordSet, words};

#[cfg(test)]
pub(crate) fn known_prefixes() -> impl Iterator<Item = &'static str> {
    (0..=u8::MAX).flat_map(prefixes_from).map(|known| &*known.prefix)
}

/// Bytes of keys without dots.
const fn is_key_byte(b: u8) -> bool {
    RunClass::Key.contains(b)
}

/// Bytes of tokens, which may have dots and base64 characters.
const fn is_token_byte(b: u8) -> bool {
    RunClass::Token.contains(b)
}

/// Fast filter: whether a token can begin or announce a secret.
pub(super) const fn may_be_secret(token: &WordToken, after: u8) -> bool {
    token.len() >= 16
        || token.topics & (topic::SECRET | topic::PASSWORD | topic::USER) != 0
        || matches!(after, b'-' | b'_' | b'.' | b'/' | b'$' | b'~' | b':' | b'\\' | b'}')
        || secret_locations::is_command(token)
        || matches!(token.shape, TokenShape::Camel)
}

/// Detects a secret that begins with token `i`, or that token `i` announces.
pub(super) fn detect_token(scan: &mut ScanState<'_>, i: usize) {
    let Some(token) = scan.token(i).copied() else { return };
    let b = scan.byte_at(token.start());
    let after = scan.byte_at(token.end());
    if matches!(after, b'$' | b'}') && secret_locations::password_hash(scan, &token) {
        return;
    }
    if secret_locations::is_command(&token) {
        secret_locations::password_command(scan, &token);
    }
    if (token.len() >= 16 || matches!(after, b'-' | b'_' | b'.' | b'/' | b'$' | b'~' | b':'))
        && ((!prefixes_from(b).is_empty() || b == b'e') && detect_by_prefix(scan, &token)
            || detect_by_shape(scan, &token, after))
    {
        return;
    }
    if matches!(token.len(), 4 | 5) && matches!(scan.byte_at(token.end()), b'/' | b'\\') && scan.wants(Kind::Username) {
        home_folder(scan, &token);
    }
    if token.class != 0 || token.shape == TokenShape::Camel {
        let topics = if token.class != 0 { token.topics } else { camel(scan, &token) };
        if topics & (topic::SECRET | topic::PASSWORD) != 0 {
            detect_announced(scan, i, topics);
        } else if topics & topic::USER != 0 && scan.wants(Kind::Username) {
            user_name(scan, &token, topics);
        }
    }
}

/// The topics of a `camelCase` token; a long one is data rather than a name.
fn camel(scan: &ScanState<'_>, token: &WordToken) -> u32 {
    if token.len() > 40 { 0 } else { super::camel_topics(scan.word(token)) }
}

/// A value with a known prefix, of the right length and not a placeholder.
fn detect_by_prefix(scan: &mut ScanState<'_>, token: &WordToken) -> bool {
    let start = token.start();
    // In the middle of a longer run, a prefix means nothing.
    if is_key_byte(scan.byte_before(start)) {
        return false;
    }
    let rest = &scan.text[start..];
    if rest.starts_with("eyJ") {
        return jwt(scan, start);
    }
    // Of the prefixes with the same first letter, few have the same second one.
    let second = scan.byte_at(start + 1);
    let alike = |known: &&KnownPrefix| known.prefix.as_bytes().get(1).is_none_or(|b| *b == second);
    let mut bucket = prefixes_from(scan.byte_at(start)).iter().filter(alike);
    let Some(known) = bucket.find(|known| rest.starts_with(&*known.prefix)) else { return false };
    let from = start + known.prefix.len();
    let class = if known.dotted { RunClass::Token } else { RunClass::Key };
    let (_, end) = scan.runs.end(scan.bytes, from, class);
    // Checked first: a value of another length costs nothing.
    if !known.fits_length(end - from) {
        return false;
    }
    // The last dot is that of a sentence.
    let body = scan.text[from..end].trim_end_matches('.');
    let kind_fits = !known.hexadecimal || body.bytes().all(|b| b.is_ascii_hexdigit());
    let random = body.bytes().any(|b| b.is_ascii_digit()) || !known.needs_digit && entropy(body) > 3.5;
    if !kind_fits || !random || is_placeholder(body) {
        return false;
    }
    scan.push(known.kind, start, from + body.len(), 95);
    true
}

/// Maximum length of a token without a known prefix.
const MAX_TOKEN_BYTES: usize = 256;

/// Tokens without a prefix but with a distinctive format: Telegram and Discord bots, Azure client secrets, Mailchimp
/// keys.
fn detect_by_shape(scan: &mut ScanState<'_>, token: &WordToken, after: u8) -> bool {
    let (start, rest) = (token.start(), &scan.bytes[token.start()..]);
    if is_key_byte(scan.byte_before(start)) && after != b'~' {
        return false;
    }
    let run = |from: usize, f: &dyn Fn(u8) -> bool| {
        rest.get(from..).map_or(0, |r| r.iter().take(MAX_TOKEN_BYTES).take_while(|b| f(**b)).count())
    };
    let length = token.len();
    let secret = match after {
        // curl -u name:password
        b':' if has_login_flag(scan, start) => {
            let from = token.end() + 1;
            let single = scan.byte_before(start) == b'\'';
            let ends = |b: u8| match single {
                true => matches!(b, b'\'' | b'\n'),
                false => b.is_ascii_whitespace() || matches!(b, b'"' | b'\'' | b'$' | b'<'),
            };
            let body = run(length + 1, &|b| !ends(b));
            let value = scan.text.get(from..from + body).unwrap_or_default();
            // In `docker run -u 1000:1000` these are user ids.
            let numbers = value.bytes().all(|b| b.is_ascii_digit()) && token.is_digits();
            if (4..MAX_TOKEN_BYTES).contains(&body) && !numbers && !is_placeholder(value) {
                scan.push(Kind::Password, from, from + body, 85);
            }
            return false;
        }
        // 1234567890:AA…
        b':' if token.is_digits() && (8..=10).contains(&length) && rest.get(length + 1..length + 3) == Some(b"AA") => {
            let body = run(length + 1, &is_key_byte);
            (34..=36).contains(&body).then_some((start, start + length + 1 + body, Kind::Token))
        }
        // Three base64url parts: a number, a time, a signature.
        b'.' if (23..=28).contains(&length) && matches!(rest.first(), Some(b'M' | b'N' | b'O')) => {
            let middle = run(length + 1, &is_key_byte);
            let last = run(length + middle + 2, &is_key_byte);
            let dot = rest.get(length + 1 + middle) == Some(&b'.');
            let end = start + length + middle + 2 + last;
            ((6..=7).contains(&middle) && dot && (27..=45).contains(&last)).then_some((start, end, Kind::Token))
        }
        // abc8Q~…: three characters, a digit, `Q~`
        b'~' if token.end() >= 5
            && scan.bytes[..token.end()].ends_with(b"Q")
            && scan.byte_before(token.end() - 1).is_ascii_digit() =>
        {
            let from = token.end() - 5;
            let body = run(length + 1, &|b| is_key_byte(b) || matches!(b, b'.' | b'~'));
            let end = token.end() + 1 + body;
            let clean = scan.text.is_char_boundary(from) && !is_key_byte(scan.byte_before(from));
            (clean && (31..=34).contains(&body)).then_some((from, end, Kind::CloudCredential))
        }
        b'-' if length == 32 && rest[..32].iter().all(u8::is_ascii_hexdigit) && rest[32..].starts_with(b"-us") => {
            let digits = run(35, &|b| b.is_ascii_digit());
            (1..=2).contains(&digits).then_some((start, start + 35 + digits, Kind::ApiKey))
        }
        _ => None,
    };
    let Some((from, end, kind)) = secret else { return false };
    let random = scan.text.get(from..end).is_some_and(|t| !is_placeholder(t) && entropy(t) > 3.2);
    if random {
        scan.push(kind, from, end, 93);
    }
    random
}

/// Whether credentials are passed to a program here: `-u `, `--user `.
fn has_login_flag(scan: &ScanState<'_>, start: usize) -> bool {
    let before = scan.bytes.get(..start).unwrap_or_default();
    let before = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before);
    [&b" -u "[..], b" --user ", b" --user=", b" --proxy-user "].iter().any(|f| before.ends_with(f))
}

/// Three base64url parts, of which the first is a JSON header (RFC 7519 3).
fn jwt(scan: &mut ScanState<'_>, start: usize) -> bool {
    let (end, trimmed) = scan.runs.end(scan.bytes, start, RunClass::Jwt);
    let (header, _) = scan.runs.end(scan.bytes, start, RunClass::Key);
    let (payload, _) = scan.runs.end(scan.bytes, header + 1, RunClass::Key);
    if header - start < 16 || payload < header + 9 || payload > end {
        return false;
    }
    // Base64url may end in `-` or `_`; only dots after the last part belong to the sentence.
    let mut last = trimmed;
    while last < end.min(trimmed + 64) && matches!(scan.byte_at(last), b'-' | b'_') {
        last += 1;
    }
    scan.push(Kind::Jwt, start, last, 97);
    true
}

/// Maximum distance to the end of a private key; the largest take a tenth of it.
const MAX_PRIVATE_KEY_BYTES: usize = 64 << 10;

/// `-----BEGIN … PRIVATE KEY-----` to its end, or to the end of the text if it is truncated.
pub(super) fn private_keys(scan: &mut ScanState<'_>) {
    // The last end mark of the text: after it, no key has an end to search for. This keeps the search linear in a text
    // with many beginnings.
    let mut done = 0;
    let ends = |d: &&u32| scan.text[**d as usize..].starts_with("-----END ");
    let Some(last_end) = scan.tokens.dashes.first().map(|_| scan.tokens.dashes.iter().rev().find(ends).copied()) else {
        return;
    };
    for at in &scan.tokens.dashes {
        let at = *at as usize;
        let rest = &scan.text[at..];
        let rest = &rest[..rest.floor_char_boundary(MAX_PRIVATE_KEY_BYTES)];
        if at < done || !rest.starts_with("-----BEGIN ") {
            continue;
        }
        let label = &rest["-----BEGIN ".len()..];
        let label = label[..label.floor_char_boundary(64)].split("-----").next().unwrap_or_default();
        let head = "-----BEGIN -----".len() + label.len();
        if !label.ends_with("PRIVATE KEY") && !label.ends_with("PRIVATE KEY BLOCK") {
            continue;
        }
        let end_mark = format!("-----END {label}-----");
        let offset = last_end.filter(|e| (*e as usize) > at).and_then(|_| rest.find(&end_mark));
        let len = match offset {
            Some(end) => end + end_mark.len(),
            // A truncated key is still secret: everything that can be base64 is redacted.
            None => rest
                .bytes()
                .take_while(|b| is_token_byte(*b) || matches!(b, b'\n' | b'\r' | b' ' | b'\\' | b':' | b','))
                .count(),
        };
        let body = rest.get(head..len).unwrap_or_default();
        // Header and footer in a documentation, with nothing or an ellipsis between them.
        if body.bytes().filter(|b| is_token_byte(*b)).count() < 16 + end_mark.len() && offset.is_some() {
            continue;
        }
        done = at + len;
        scan.push(Kind::PrivateKey, at, done, 99);
    }
}

/// Number of bytes after `://` in which credentials and the host are searched for.
const MAX_LOGIN_BYTES: usize = 1024;

/// `scheme://user:password@host/…`.
pub(super) fn connection_strings(scan: &mut ScanState<'_>) {
    for at in &scan.tokens.schemes {
        let at = *at as usize;
        let rest = &scan.text[at + 3..];
        let rest = &rest[..rest.floor_char_boundary(MAX_LOGIN_BYTES)];
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`' | '\\');
        let rest = rest.split(ends).next().unwrap_or_default();
        // A password may contain a slash; it ends at the last @ before a query or a fragment. If there is none, it may
        // contain their signs, too.
        let authority = rest.split(['?', '#']).next().unwrap_or_default();
        let Some((login, host)) = authority.rsplit_once('@').or_else(|| rest.split_once('@')) else { continue };
        let Some((user, password)) = login.split_once(':') else { continue };
        let host = host.split(['?', '#']).next().unwrap_or_default();
        let stop = login.len() + 1 + host.len();
        // `host:8080/path?mail=a@b`
        let digits = password.bytes().take_while(u8::is_ascii_digit).count();
        let is_port = (1..=5).contains(&digits) && password[digits..].starts_with(['/', '?', '#']);
        if login.len() > 256
            || user.contains(['/', '?', '#'])
            || is_port
            || password.is_empty()
            || host.is_empty()
            || is_placeholder(password)
            || password.starts_with("//")
        {
            continue;
        }
        let scheme = super::net::scheme_length(scan, at);
        let query = scan.text[at + 3 + stop..].bytes();
        let more = if scan.byte_at(at + 3 + stop) == b'?' {
            query
                .take(MAX_LOGIN_BYTES)
                .take_while(|b| is_token_byte(*b) || matches!(b, b'?' | b'&' | b',' | b':'))
                .count()
        } else {
            0
        };
        scan.push(Kind::ConnectionString, at - scheme, at + 3 + stop + more, 95);
    }
}

/// The value after `password:`, `API_KEY=`, `"token": "…"`, `Authorization: Bearer …`.
fn detect_announced(scan: &mut ScanState<'_>, i: usize, topics: u32) {
    let Some(token) = scan.token(i).copied() else { return };
    // Only the last part of a compound name announces a value: `secret` in `client_secret_value` is followed by more of
    // the name.
    let mut end = token.end();
    let mut last = i;
    while matches!(scan.byte_at(end), b'_' | b'-')
        && scan.token(last + 1).is_some_and(|t| t.start() == end + 1 && t.is_word())
        && last < i + 4
    {
        last += 1;
        end = scan.list()[last].end();
        if scan.list()[last].class != 0 && scan.list()[last].topics & (topic::SECRET | topic::PASSWORD) != 0 {
            // That part will be examined separately.
            return;
        }
    }
    let Some((from, quoted, assigned)) = value_start(scan, end, topics) else { return };
    let word = scan.word(&token);
    let password = topics & topic::PASSWORD != 0;
    let rate = |value: &str, quoted: u8| {
        let confidence = if password {
            password_confidence(value, word, quoted, assigned)
        } else {
            secret_confidence(value, quoted, assigned)
        };
        confidence.filter(|_| !is_placeholder(value))
    };
    let mut value = value_at(scan, from, quoted);
    let mut confidence = rate(value, quoted);
    if quoted == MEMBER {
        // A text with blanks may be about a secret rather than one.
        let is_whole = !value.contains(char::is_whitespace) || password && value.len() <= MAX_PASSWORD_CHARS;
        if confidence.is_none() || !is_whole {
            let first = value_at(scan, from, 0);
            confidence = rate(first, 0);
            value = if is_whole { value } else { first };
        }
    }
    let Some(confidence) = confidence else { return };
    let mut end = from + value.len();
    if value.len() == MAX_VALUE_BYTES && quoted != MEMBER {
        end = scan.runs.end(scan.bytes, end - 1, RunClass::Token).0.max(end);
    }
    scan.push(if password { Kind::Password } else { Kind::Secret }, from, end, confidence);
}

/// Accounts of machines and examples, whose names reveal nothing.
static MACHINE_ACCOUNTS: WordSet = WordSet::new(|| words("machine_accounts"));

/// The account in `/home/anna/…`, `/Users/anna/…`, `C:\\Users\\anna\\…`.
fn home_folder(scan: &mut ScanState<'_>, token: &WordToken) {
    let separator = scan.byte_at(token.end());
    let word = scan.word(token);
    if scan.byte_before(token.start()) != separator || !matches!(word, "home" | "Users") {
        return;
    }
    let from = token.end() + scan.bytes[token.end()..].iter().take_while(|b| **b == separator).count();
    let name = scan.text.get(from..).unwrap_or_default();
    let len = name.bytes().take_while(|b| is_key_byte(*b) || *b == b'.').count();
    let name = name[..len].trim_end_matches('.');
    if (2..=32).contains(&name.len())
        && !MACHINE_ACCOUNTS.contains(name.to_ascii_lowercase().as_str())
        && !is_placeholder(name)
    {
        scan.push(Kind::Username, from, from + name.len(), 65);
    }
}

/// The value after `username:`, `login = "…"`.
fn user_name(scan: &mut ScanState<'_>, token: &WordToken, topics: u32) {
    let Some((from, quoted, true)) = value_start(scan, token.end(), topics) else { return };
    let value = value_at(scan, from, quoted);
    let name =
        (3..=40).contains(&value.len()) && value.bytes().all(|b| is_key_byte(b) || matches!(b, b'.' | b'@' | b'\\'));
    let word = crate::lexicon::look_up(value).marks & (mark::COMMON | mark::WORD | mark::STOP | mark::TECH) != 0;
    // Unquoted, it may be code: `username: payload.username`.
    let plain = quoted != 0 || value.bytes().any(|b| b.is_ascii_digit()) && !value.contains(['.', '@']);
    if name && plain && !word && !is_placeholder(value) && value.bytes().any(|b| b.is_ascii_alphabetic()) {
        scan.push(Kind::Username, from, from + value.len(), if quoted != 0 { 65 } else { 60 });
    }
}

/// In place of a quote: the value is all of a JSON member's.
const MEMBER: u8 = 0xff;

/// The start of the value, its quote if any, and whether `=` or `:` precedes it.
fn value_start(scan: &ScanState<'_>, end: usize, topics: u32) -> Option<(usize, u8, bool)> {
    let rest = scan.text.get(end..)?;
    let mut at = 0;
    let bytes = rest.as_bytes();
    let skip = |at: &mut usize, set: &[u8], most: usize| {
        let n = bytes[*at..].iter().take(most).take_while(|b| set.contains(b)).count();
        *at += n;
        n
    };
    if let Some(skipped) = secret_locations::argument_value(scan, end) {
        return Some((end + skipped + 1, bytes[skipped], true));
    }
    if let Some(skipped) = secret_locations::called(scan, end).filter(|_| topics & topic::PASSWORD != 0) {
        return Some((end + skipped + 1, bytes[skipped], true));
    }
    if let Some(at) = secret_locations::of_something(rest).filter(|_| topics & topic::PASSWORD != 0) {
        return Some((end + at, 0, false));
    }
    if let Some(beside) = secret_locations::adjacent_value(scan, end) {
        at = beside;
    }
    skip(&mut at, b"\"'`]*", 4);
    skip(&mut at, b" \t", 8);
    let assigned = match bytes.get(at..) {
        Some([b'=', b'>', ..] | [b':', b'=', ..]) => {
            at += 2;
            true
        }
        Some([b'=', b'=', ..]) => return None,
        Some([b'=' | b':', ..]) => {
            at += 1;
            true
        }
        // `<password>x</password>`
        Some([b'>', ..]) if at == 0 && is_element(scan, end) => {
            at += 1;
            true
        }
        Some(behind) if at > 0 && copula(behind) > 0 => {
            at += copula(behind);
            skip(&mut at, b":", 1);
            topics & topic::PASSWORD != 0
        }
        _ if at > 0 => false,
        _ => return None,
    };
    // Asterisks are Markdown, but not in the value of a member.
    let is_member = end + 2 == scan.member_value;
    skip(&mut at, if is_member { b" \t" } else { b" \t*" }, 8);
    for word in ["Bearer ", "Basic ", "Token ", "bearer ", "basic ", "token ", "SSWS ", "ApiKey "] {
        if rest[at..].starts_with(word) {
            at += word.len();
        }
    }
    // Typed declarations: `password: String = "…"`.
    let quote = match bytes.get(at) {
        _ if is_member => MEMBER,
        Some(q @ (b'"' | b'\'' | b'`')) => {
            at += 1;
            *q
        }
        Some(b'\\') if matches!(bytes.get(at + 1), Some(b'"')) => {
            at += 2;
            b'\\'
        }
        _ => 0,
    };
    Some((end + at, quote, assigned))
}

/// The length of a copula between `password` and its value: `is`, `est`, `es`, `ist`, `lautet`.
fn copula(text: &[u8]) -> usize {
    let words =
        [&b"is"[..], b"was", b"est", b"es", b"ist", b"lautet", b"war", b"era", b"is set to", b"\xc3\xa8", b"\xc3\xa9"];
    let fits = |w: &&&[u8]| text.strip_prefix(**w).is_some_and(|rest| matches!(rest.first(), Some(b' ' | b':')));
    words.iter().filter(fits).map(|w| w.len()).max().unwrap_or(0)
}

/// Whether the name that ends here is an element name: `<db:password>`.
fn is_element(scan: &ScanState<'_>, end: usize) -> bool {
    let name = |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    let length = scan.bytes[..end].iter().rev().take(48).take_while(name).count();
    scan.byte_before(end - length) == b'<'
}

/// Maximum length of the part of a value that is examined, unless it is that of a member.
const MAX_VALUE_BYTES: usize = 512;

/// The value at a position, up to its quote or, without one, to what may follow a value.
fn value_at<'t>(scan: &ScanState<'t>, from: usize, quote: u8) -> &'t str {
    let rest = scan.text.get(from..).unwrap_or_default();
    if quote == MEMBER {
        return rest.trim_end();
    }
    let rest = &rest[..rest.floor_char_boundary(MAX_VALUE_BYTES)];
    let stop = match quote {
        0 => {
            rest.char_indices()
                .find(|(at, c)| {
                    // `password=x&user=y` ends at the `&`, `x&y` contains it.
                    let next = *c == '&'
                        && rest[at + 1..]
                            .find([' ', '\n', '&'])
                            .map_or(&rest[at + 1..], |n| &rest[at + 1..at + 1 + n])
                            .contains('=');
                    c.is_whitespace() || next || matches!(c, '"' | '\'' | ',' | ';' | '<' | '>' | '`' | '\\')
                })
                .map(|(at, _)| at)
        }
        q => quote_end(rest, q),
    };
    let value = &rest[..stop.unwrap_or(rest.len())];
    // Of a longer value, this is not the end.
    let is_cut = value.len() == MAX_VALUE_BYTES;
    if quote == 0 && !is_cut { value.trim_end_matches(['.', ')', ']', '}', '!', '?', ':']) } else { value }
}

/// The end of a quoted value. A quote behind a backslash belongs to it, unless a blank follows, as behind a path; where the
/// quotes around are escaped, one behind three.
fn quote_end(rest: &str, quote: u8) -> Option<usize> {
    let nested = usize::from(quote == b'\\');
    let mark = if nested == 1 { '"' } else { char::from(quote) };
    rest.match_indices([mark, '\n']).find_map(|(at, end)| {
        let run = rest[..at].bytes().rev().take_while(|b| *b == b'\\').count();
        let own = run % 2 == 1 && run > 2 * nested && !rest[at + 1..].starts_with([' ', '\n']);
        (end == "\n" || !own).then_some(at - run.min(nested))
    })
}

/// Maximum length of a password.
const MAX_PASSWORD_CHARS: usize = 128;

/// The confidence that a value is a password; `None` if it looks like code or an ordinary word.
fn password_confidence(value: &str, announced_by: &str, quoted: u8, assigned: bool) -> Option<u8> {
    let pin = announced_by.eq_ignore_ascii_case("pin")
        || announced_by.eq_ignore_ascii_case("pass")
        || announced_by.eq_ignore_ascii_case("passcode");
    let length = value.chars().count();
    let mixed = value.bytes().any(|b| b.is_ascii_digit())
        || value.bytes().any(|b| b.is_ascii_punctuation() && !matches!(b, b'.' | b'_' | b'-'));
    let code = value.contains(['(', '[', '{']) && quoted == 0 || value.contains("::") || value.contains("->");
    if !(4..=MAX_PASSWORD_CHARS).contains(&length) || code || value.contains(' ') && quoted == 0 {
        return None;
    }
    // A `dowel pin M10x1.5` has a thread, and no letters are dialled.
    let dialled = assigned || quoted != 0 || value.bytes().all(|b| b.is_ascii_digit());
    // `"pass": "ページには1つの…"`: in a script without case and blanks, a sentence is one word.
    let is_prose = || value.chars().any(|c| c.is_alphabetic() && !c.is_lowercase() && !c.is_uppercase());
    if pin && (!value.bytes().any(|b| b.is_ascii_digit()) || is_prose())
        || announced_by.eq_ignore_ascii_case("pin") && !dialled
    {
        return None;
    }
    match (assigned, quoted != 0) {
        (true, true) if !value.contains(' ') => Some(85),
        (true, false) if mixed => Some(85),
        // DB_PASSWORD=kqXuRTmb: letters only, but not words.
        (true, false) if length >= 8 && distinct_chars(value) >= 2 && has_jumbled_case(value) => Some(75),
        (false, true) if mixed => Some(60),
        (false, false) if mixed && length >= 6 && distinct_chars(value) >= 3 => Some(60),
        _ => None,
    }
}

/// The confidence that a value is a secret, by its length, character classes and entropy.
fn secret_confidence(value: &str, quoted: u8, assigned: bool) -> Option<u8> {
    let length = value.len();
    // Keys of Django and WordPress contain any punctuation.
    let signs = quoted != 0 && assigned && length >= 24 && value.bytes().filter(|b| *b == b' ').count() * 10 <= length;
    let drawn = signs
        && value.bytes().all(|b| (b' '..=b'~').contains(&b))
        && distinct_chars(value) >= 3
        && entropy(value) >= 4.0;
    if drawn
        && value.bytes().filter(u8::is_ascii_digit).count() >= 2
        && !value.contains("://")
        && alternates_kinds(value)
    {
        return Some(80);
    }
    if length < 12 || !value.bytes().all(is_token_byte) {
        return None;
    }
    let classes = distinct_chars(value);
    let bits = entropy(value);
    let digits = value.bytes().filter(u8::is_ascii_digit).count();
    let random = (bits >= 3.5 && classes >= 3 || bits >= 3.0 && classes >= 2 && length >= 20) && digits >= 2;
    let wordy =
        value.split(['-', '_', '.', '/']).filter(|p| p.len() > 2).all(|p| p.bytes().all(|b| b.is_ascii_lowercase()));
    match (random && !wordy && !is_slug(value), assigned || quoted != 0) {
        (true, true) if length >= 16 => Some(80),
        (true, true) => Some(60),
        (true, false) if length >= 20 && classes >= 3 => Some(60),
        _ => None,
    }
}

/// Whether punctuation and digits alternate with letters, unlike in prose and code: at a third of all positions.
fn alternates_kinds(value: &str) -> bool {
    let letters = |b: &u8| b.is_ascii_alphabetic();
    let bytes = value.as_bytes();
    bytes.windows(2).filter(|w| letters(&w[0]) != letters(&w[1])).count() * 3 >= bytes.len()
}

/// `linux-x64-node-18-npm-2f5d3a`: a sequence of words and numbers.
fn is_slug(value: &str) -> bool {
    let parts = value.split(['-', '_', '.', '/']).filter(|p| !p.is_empty());
    let (all, words) = parts.fold((0, 0), |(all, words), p| {
        (all + 1, words + usize::from(p.len() > 2 && p.bytes().all(|b| b.is_ascii_lowercase())))
    });
    all >= 4 && words * 2 >= all && !value.bytes().any(|b| b.is_ascii_uppercase())
}

/// Whether upper and lower case alternate unlike in words and camelCase.
fn has_jumbled_case(value: &str) -> bool {
    let bytes = value.as_bytes();
    let humps = bytes.windows(2).filter(|w| w[0].is_ascii_lowercase() != w[1].is_ascii_lowercase()).count();
    bytes.iter().all(u8::is_ascii_alphabetic) && humps * 3 >= bytes.len()
}

/// How many character classes a text contains: lower case, upper case, digits, punctuation.
fn distinct_chars(text: &str) -> usize {
    let has = |f: fn(&u8) -> bool| usize::from(text.bytes().any(|b| f(&b)));
    has(u8::is_ascii_lowercase) + has(u8::is_ascii_uppercase) + has(u8::is_ascii_digit) + has(u8::is_ascii_punctuation)
}

/// Shannon entropy in bits per byte.
fn entropy(text: &str) -> f64 {
    let mut counts = [0u32; 256];
    text.bytes().for_each(|b| counts[usize::from(b)] += 1);
    let n = text.len() as f64;
    counts.iter().filter(|c| **c > 0).map(|c| f64::from(*c) / n).map(|p| -p * p.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_secret_prefixes_precede_their_own_prefixes() {
        let all: Vec<&str> = known_prefixes().collect();
        assert!(all.len() > 200 && all.iter().all(|prefix| prefix.is_ascii() && prefix.len() > 1));
        for (i, prefix) in all.iter().enumerate() {
            assert!(
                !all[i + 1..].iter().any(|later| later.starts_with(prefix)),
                "{prefix} is there twice or too early"
            );
        }
    }

    #[test]
    fn placeholders_are_distinguished_from_secrets() {
        for text in [
            "<your-api-key>",
            "${API_KEY}",
            "xxxxxxxxxxxx",
            "IOSFODNN7EXAMPLE",
            "changeme",
            "********",
            "{{ token }}",
            "password",
        ] {
            assert!(is_placeholder(text), "{text}");
        }
        for text in ["wJalrXUtnFEMIK7MDENGbPxRfiCY", "hunter2!", "S3cr3t#9"] {
            assert!(!is_placeholder(text), "{text}");
        }
    }
}
