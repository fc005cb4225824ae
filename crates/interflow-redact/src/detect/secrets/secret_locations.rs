//! Passwords in special formats: password hashes, `.pgpass` lines, command arguments.

use super::super::ScanState;
use super::is_placeholder;
use crate::Kind;
use crate::detect::Finding;
use crate::lexicon::topic;
use crate::text::token::WordToken;

/// Maximum length in bytes of a hash, a line or a command.
const MAX_LINE_BYTES: usize = 256;

/// Scheme names between the first two `$` of a hash (crypt(5)), and those of Apache, Argon2 and scrypt.
const HASH_SCHEMES: &[&str] = &[
    "1", "2a", "2b", "2x", "2y", "5", "6", "7", "y", "gy", "apr1", "sha1", "argon2i", "argon2d", "argon2id", "scrypt",
];

/// Scheme names in braces (RFC 2307).
const BRACED_SCHEMES: &[&str] = &["SHA", "SSHA", "SMD5", "MD5", "CRYPT", "SHA256", "SSHA256", "SHA512", "SSHA512"];

/// `$6$salt$hash`, `pbkdf2_sha256$600000$salt$hash`, `{SSHA}hash` around the scheme's token.
pub(super) fn password_hash(scan: &mut ScanState<'_>, token: &WordToken) -> bool {
    let (word, before, after) = (scan.word(token), scan.byte_before(token.start()), scan.byte_at(token.end()));
    let django =
        before == b'_' && matches!(word, "sha256" | "sha1") && scan.bytes[..token.start()].ends_with(b"pbkdf2_");
    let dollars = after == b'$' && (before == b'$' && HASH_SCHEMES.contains(&word) || django);
    let braces = after == b'}' && before == b'{' && BRACED_SCHEMES.contains(&word);
    if !dollars && !braces {
        return false;
    }
    let rest = scan.bytes.get(token.end() + 1..).unwrap_or_default();
    let class =
        |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'+' | b'=' | b'$' | b',' | b'-' | b'_');
    let length = rest.iter().take(MAX_LINE_BYTES).take_while(class).count();
    let body = rest.get(..length).unwrap_or_default();
    let last = body.rsplit(|b| *b == b'$').next().unwrap_or_default();
    let varied = last.iter().any(u8::is_ascii_uppercase) && last.iter().any(u8::is_ascii_lowercase);
    if length == MAX_LINE_BYTES || last.len() < 20 || !varied {
        return false;
    }
    let start = token.start() - if django { "pbkdf2_".len() } else { 1 };
    scan.push(Kind::Password, start, token.end() + 1 + length, 92);
    true
}

/// Lines of a `.pgpass` file: `host:port:database:user:password`.
pub(in super::super) fn pgpass(scan: &mut ScanState<'_>) {
    let colons = &scan.tokens.colons;
    let mut done = 0;
    for four in colons.windows(4) {
        let [a, b, c, d] = [four[0] as usize, four[1] as usize, four[2] as usize, four[3] as usize];
        if a < done || d - a > MAX_LINE_BYTES {
            continue;
        }
        let head = &scan.bytes[a.saturating_sub(MAX_LINE_BYTES)..a];
        let host = &head[memchr::memrchr(b'\n', head).map_or(0, |n| n + 1)..];
        let right = scan.bytes.get(d + 1..(d + 1 + MAX_LINE_BYTES).min(scan.bytes.len())).unwrap_or_default();
        let password = &right[..right.iter().position(u8::is_ascii_whitespace).unwrap_or(right.len())];
        let field = |from: usize, to: usize| scan.bytes.get(from + 1..to).unwrap_or_default();
        let (port, database, user) = (field(a, b), field(b, c), field(c, d));
        let named = |f: &[u8]| {
            !f.is_empty()
                && f.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'*' | b'$'))
        };
        let host = host.strip_prefix(b"\"").or_else(|| host.strip_prefix(b"'")).unwrap_or(host);
        let numbered = port == b"*" || (4..=5).contains(&port.len()) && port.iter().all(u8::is_ascii_digit);
        let lettered = |f: &[u8]| f == b"*" || f.iter().any(u8::is_ascii_alphabetic);
        let address = named(host) && host.iter().filter(|b| **b == b'.').count() == 3;
        let fits =
            (address || named(host) && lettered(host)) && [database, user].into_iter().all(|f| named(f) && lettered(f));
        if !numbered || !fits || password.len() < 4 {
            continue;
        }
        let value = scan.text.get(d + 1..d + 1 + password.len()).unwrap_or_default().trim_end_matches(['"', '\'', ',']);
        if !is_placeholder(value) && value.len() < MAX_LINE_BYTES && !value.contains("::") {
            scan.found.push(Finding::new(Kind::Password, d + 1..d + 1 + value.len(), 82));
            // Overlapping windows of the same line are skipped.
            done = d;
        }
    }
}

/// A command that takes a password as an argument.
struct PasswordCommand {
    names: &'static [&'static str],
    flag: &'static str,
    form: Form,
    /// Number of arguments between the flag and the value.
    skipped: usize,
}

/// How the value is passed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Joined to the flag: `-psecret`.
    Joined,
    /// As a separate argument.
    Apart,
    /// Either way.
    Either,
}

/// The value follows the flag.
const fn flagged(names: &'static [&'static str], flag: &'static str, form: Form) -> PasswordCommand {
    PasswordCommand { names, flag, form, skipped: 0 }
}

/// The value follows the flag and a user name.
const fn behind_user(names: &'static [&'static str], flag: &'static str) -> PasswordCommand {
    PasswordCommand { names, flag, form: Form::Apart, skipped: 1 }
}

static COMMANDS: &[PasswordCommand] = &[
    flagged(
        &["mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck", "mysqlsh", "mariadb"],
        "-p",
        Form::Joined,
    ),
    flagged(&["sshpass"], "-p", Form::Either),
    flagged(&["redis"], "-a", Form::Either),
    flagged(&["mongo", "mongosh", "mongodump", "mongorestore"], "-p", Form::Either),
    flagged(&["ldapsearch", "ldapmodify", "ldapadd", "ldapwhoami"], "-w", Form::Either),
    flagged(&["sqlcmd"], "-P", Form::Either),
    flagged(&["plink", "pscp"], "-pw", Form::Apart),
    flagged(&["keytool", "jarsigner"], "-storepass", Form::Apart),
    flagged(&["unzip", "zip"], "-P", Form::Either),
    flagged(&["openssl"], "-k", Form::Apart),
    behind_user(&["rabbitmqctl"], "add_user"),
    behind_user(&["rabbitmqctl"], "change_password"),
];

/// Reports the password among the arguments of the command at this token.
pub(super) fn password_command(scan: &mut ScanState<'_>, token: &WordToken) {
    let name = scan.word(token);
    for command in COMMANDS.iter().filter(|c| c.names.contains(&name)) {
        argument_of(scan, token, command);
    }
}

/// The end of a command: a line break, or a `|` or `;` outside of quotes.
fn command_end(text: &str) -> usize {
    let mut at = 0;
    while let Some(found) = text[at..].find(['\n', '|', ';', '"', '\'']).map(|n| at + n) {
        let mark = text[found..].chars().next().filter(|c| matches!(c, '"' | '\''));
        let Some(quote) = mark else { return found };
        // Without an end on the line it is an apostrophe.
        let inner = &text[found + 1..];
        at = found + 1 + inner.find([quote, '\n']).filter(|n| !inner[*n..].starts_with('\n')).map_or(0, |n| n + 1);
    }
    text.len()
}

fn argument_of(scan: &mut ScanState<'_>, token: &WordToken, command: &PasswordCommand) {
    let rest = scan.text.get(token.end()..).unwrap_or_default();
    let rest = &rest[..rest.floor_char_boundary(MAX_LINE_BYTES)];
    let line = &rest[..command_end(rest)];
    let mut at = token.end();
    let mut awaited = None;
    for part in line.split(' ') {
        let from = at;
        at += part.len() + 1;
        let value = match part.strip_prefix(command.flag) {
            _ if part.is_empty() => continue,
            _ if awaited == Some(0) => part,
            _ if awaited.is_some() => {
                awaited = awaited.map(|n| n - 1);
                continue;
            }
            Some("") => {
                awaited = (command.form != Form::Joined).then_some(command.skipped);
                continue;
            }
            Some(value) if command.form != Form::Apart => value,
            _ => continue,
        };
        let begin = from + (part.len() - value.len());
        // A quoted value may contain spaces.
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (begin, end) = match quote {
            Some(q) => {
                let inner = &scan.text[begin + 1..token.end() + line.len()];
                (begin + 1, begin + 1 + inner.find(q).unwrap_or(inner.len()))
            }
            None => (begin, begin + value.trim_end_matches(['`', '"', '\'', ')', ',']).len()),
        };
        let value = scan.text.get(begin..end).unwrap_or_default();
        if value.chars().count() >= 4 && !value.starts_with('-') && !value.ends_with(".zip") && !is_placeholder(value) {
            scan.push(Kind::Password, begin, end, 85);
        }
        return;
    }
}

/// Whether key and value are two arguments of a call: `define('DB_PASSWORD', 'x')`, `setenv("TOKEN", "x")`. Returns the
/// start of the value, relative to the end of the key.
pub(super) fn argument_value(scan: &ScanState<'_>, end: usize) -> Option<usize> {
    let quote = scan.byte_at(end);
    if !matches!(quote, b'"' | b'\'') || scan.byte_at(end + 1) != b',' {
        return None;
    }
    let blanks = scan.bytes.get(end + 2..)?.iter().take(8).take_while(|b| matches!(b, b' ' | b'\t')).count();
    let key = scan.bytes[..end]
        .iter()
        .rev()
        .take(48)
        .take_while(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'));
    let open = end.checked_sub(key.count() + 1)?;
    let called = scan.bytes.get(open) == Some(&quote)
        && scan.bytes[..open].iter().rev().take(4).find(|b| **b != b' ') == Some(&b'(');
    (called && matches!(scan.byte_at(end + 2 + blanks), b'"' | b'\'')).then_some(2 + blanks)
}

/// The argument of a call: `set_password("x")`. Returns its start, relative to the end of the name.
pub(super) fn called(scan: &ScanState<'_>, end: usize) -> Option<usize> {
    let rest = scan.bytes.get(end..)?;
    let [b'(', quote @ (b'"' | b'\''), value @ ..] = rest else { return None };
    let length = value.iter().take(128).position(|b| b == quote)?;
    let (value, behind) = value.split_at(length);
    let drawn = value.iter().any(u8::is_ascii_digit) && !value.contains(&b' ');
    (drawn && matches!(behind.get(1), Some(b')' | b','))).then_some(1)
}

/// `password for the printer is x`: returns the start of the value, relative to the space after the word.
pub(super) fn of_something(text: &str) -> Option<usize> {
    const WHAT: &[&str] = &[" for ", " of ", " to ", " on ", " pour ", " du ", " für ", " para ", " del ", " de "];
    const IS: &[&str] = &[" is ", " was ", " est ", " es ", " ist ", " lautet ", " is: ", ": "];
    if !WHAT.iter().any(|w| text.starts_with(w)) {
        return None;
    }
    let line = &text[..text.floor_char_boundary(56)];
    let line = line.split(['\n', '.', ';', ',']).next()?;
    let at = IS.iter().filter_map(|w| line.find(w).map(|at| at + w.len())).min()?;
    let value = text.get(at..)?.split_whitespace().next()?;
    // `is base64-encoded`: few words contain capitals or punctuation.
    let drawn = value.bytes().any(|b| b.is_ascii_uppercase() || b"!@#$%&*?+=^".contains(&b))
        && value.bytes().any(|b| b.is_ascii_digit());
    drawn.then_some(at)
}

/// A value in a block or an adjacent field: Terraform's `variable "db_password" { default = "x" }`, `- name:
/// DB_PASSWORD` with `value: x` on the next line, `<add key="DbPassword" value="x"/>`. Returns the position after the
/// value's own key, relative to the end of the name.
pub(super) fn adjacent_value(scan: &ScanState<'_>, end: usize) -> Option<usize> {
    let rest = scan.text.get(end..)?;
    let rest = &rest[..rest.floor_char_boundary(MAX_LINE_BYTES)];
    let bare = rest.trim_start_matches(['"', '\'']);
    let blanks = bare.trim_start();
    let key = if let Some(block) = blanks.strip_prefix('{').filter(|_| scan.near_word_before(end, "variable")) {
        let block = block.split('}').next()?;
        block.find("default").map(|at| &block[at + "default".len()..])?
    } else {
        blanks.strip_prefix("value").filter(|_| blanks.len() < bare.len())?
    };
    let at = key.as_ptr() as usize - rest.as_ptr() as usize;
    matches!(key.trim_start_matches([' ', '"']).as_bytes().first(), Some(b'=' | b':')).then_some(at)
}

/// Fast filter: whether a token can name one of the commands.
pub(super) const fn is_command(token: &WordToken) -> bool {
    token.topics & topic::COMMAND != 0
}
