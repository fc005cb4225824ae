//! Passwords in places of their own: hashes of password files, lines of `.pgpass`, arguments of commands.

use super::super::Scan;
use super::is_placeholder;
use crate::Kind;
use crate::lexicon::topic;
use crate::token::Token;

/// Bytes of a hash, a line or a command that are looked at; all of them are shorter.
const LONGEST: usize = 256;

/// Names of schemes between the first two `$` of a hash (crypt(5)), those of Apache, Argon2 and scrypt.
const SCHEMES: &[&str] = &[
    "1", "2a", "2b", "2x", "2y", "5", "6", "7", "y", "gy", "apr1", "sha1", "argon2i", "argon2d", "argon2id", "scrypt",
];

/// Names of schemes in the braces of RFC 2307.
const BRACED: &[&str] = &["SHA", "SSHA", "SMD5", "MD5", "CRYPT", "SHA256", "SSHA256", "SHA512", "SSHA512"];

/// `$6$salt$hash`, `pbkdf2_sha256$600000$salt$hash`, `{SSHA}hash` around the token that names the scheme.
pub(super) fn hash(scan: &mut Scan<'_>, token: &Token) -> bool {
    let (word, before, after) = (scan.word(token), scan.byte_before(token.start()), scan.byte_at(token.end()));
    let django =
        before == b'_' && matches!(word, "sha256" | "sha1") && scan.bytes[..token.start()].ends_with(b"pbkdf2_");
    let dollars = after == b'$' && (before == b'$' && SCHEMES.contains(&word) || django);
    let braces = after == b'}' && before == b'{' && BRACED.contains(&word);
    if !dollars && !braces {
        return false;
    }
    let rest = scan.bytes.get(token.end() + 1..).unwrap_or_default();
    let class =
        |b: &&u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'/' | b'+' | b'=' | b'$' | b',' | b'-' | b'_');
    let length = rest.iter().take(LONGEST).take_while(class).count();
    let body = rest.get(..length).unwrap_or_default();
    let last = body.rsplit(|b| *b == b'$').next().unwrap_or_default();
    let varied = last.iter().any(u8::is_ascii_uppercase) && last.iter().any(u8::is_ascii_lowercase);
    if length == LONGEST || last.len() < 20 || !varied {
        return false;
    }
    let start = token.start() - if django { "pbkdf2_".len() } else { 1 };
    scan.push(Kind::Password, start, token.end() + 1 + length, 92);
    true
}

/// Lines of a `.pgpass` file: `host:port:database:user:password`.
pub(in super::super) fn pgpass(scan: &mut Scan<'_>) {
    let colons = &scan.tokens.colons;
    let mut done = 0;
    for four in colons.windows(4) {
        let [a, b, c, d] = [four[0] as usize, four[1] as usize, four[2] as usize, four[3] as usize];
        if a < done || d - a > LONGEST {
            continue;
        }
        let left = &scan.bytes[a.saturating_sub(LONGEST)..a];
        let host = &left[memchr::memrchr(b'\n', left).map_or(0, |n| n + 1)..];
        let right = scan.bytes.get(d + 1..(d + 1 + LONGEST).min(scan.bytes.len())).unwrap_or_default();
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
        if !(numbered && [host, database, user].into_iter().all(|f| named(f) && lettered(f)) && password.len() >= 4) {
            continue;
        }
        let value = scan.text.get(d + 1..d + 1 + password.len()).unwrap_or_default().trim_end_matches(['"', '\'', ',']);
        if !is_placeholder(value) && value.len() < LONGEST && !value.contains("::") {
            scan.found.push(crate::detect::Finding {
                start: d + 1,
                end: d + 1 + value.len(),
                kind: Kind::Password,
                confidence: 82,
                rule: 0,
            });
            done = d;
        }
    }
}

/// A command that takes a password as an argument.
struct Command {
    names: &'static [&'static str],
    flag: &'static str,
    /// The value is written to the flag; else it may be the next argument too.
    glued_only: bool,
}

static COMMANDS: &[Command] = &[
    Command {
        names: &["mysql", "mysqldump", "mysqladmin", "mysqlimport", "mysqlcheck", "mysqlsh", "mariadb"],
        flag: "-p",
        glued_only: true,
    },
    Command { names: &["sshpass"], flag: "-p", glued_only: false },
    Command { names: &["redis"], flag: "-a", glued_only: false },
    Command { names: &["mongo", "mongosh", "mongodump", "mongorestore"], flag: "-p", glued_only: false },
    Command { names: &["ldapsearch", "ldapmodify", "ldapadd", "ldapwhoami"], flag: "-w", glued_only: false },
    Command { names: &["sqlcmd"], flag: "-P", glued_only: false },
    Command { names: &["plink", "pscp"], flag: "-pw", glued_only: false },
    Command { names: &["keytool", "jarsigner"], flag: "-storepass", glued_only: false },
];

/// The password among the arguments of the command that the token names.
pub(super) fn command(scan: &mut Scan<'_>, token: &Token) {
    let name = scan.word(token);
    let Some(command) = COMMANDS.iter().find(|c| c.names.contains(&name)) else { return };
    let rest = scan.text.get(token.end()..).unwrap_or_default();
    let rest = &rest[..rest.floor_char_boundary(LONGEST)];
    let line = rest.split(['\n', '|', ';']).next().unwrap_or_default();
    let mut at = token.end();
    let mut awaited = false;
    for part in line.split(' ') {
        let from = at;
        at += part.len() + 1;
        let value = match part.strip_prefix(command.flag) {
            _ if part.is_empty() => continue,
            _ if awaited => part,
            Some("") => {
                awaited = !command.glued_only;
                continue;
            }
            Some(value) if command.flag.len() == 2 => value,
            _ => continue,
        };
        let begin = from + (part.len() - value.len());
        // A value in quotes may hold spaces.
        let quote = value.chars().next().filter(|c| matches!(c, '"' | '\''));
        let (begin, end) = match quote {
            Some(q) => {
                let inner = &scan.text[begin + 1..token.end() + line.len()];
                (begin + 1, begin + 1 + inner.find(q).unwrap_or(inner.len()))
            }
            None => (begin, begin + value.trim_end_matches(['`', '"', '\'', ')', ',']).len()),
        };
        let value = scan.text.get(begin..end).unwrap_or_default();
        if value.chars().count() >= 4 && !value.starts_with('-') && !is_placeholder(value) {
            scan.push(Kind::Password, begin, end, 85);
        }
        return;
    }
}

/// Whether a key and its value are two arguments of a call: `define('DB_PASSWORD', 'x')`, `setenv("TOKEN", "x")`.
/// Gives where the value begins, counted from the end of the key.
pub(super) fn argument(scan: &Scan<'_>, end: usize) -> Option<usize> {
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

/// The value that stands in a block or a field beside the name: Terraform's `variable "db_password" { default = "x" }`,
/// `- name: DB_PASSWORD` with `value: x` on the next line, `<add key="DbPassword" value="x"/>`.
/// Gives where what stands behind the value's own key begins, counted from the end of the name.
pub(super) fn beside(scan: &Scan<'_>, end: usize) -> Option<usize> {
    let rest = scan.text.get(end..)?;
    let rest = &rest[..rest.floor_char_boundary(LONGEST)];
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

/// What tells that a token names one of the commands.
pub(super) const fn is_command(token: &Token) -> bool {
    token.topics & topic::COMMAND != 0
}
