//! Secrets in a text of which any character may be escaped: as in JSON, in a URL, or in HTML.

/// Escapes of escapes that are followed: JSON in a JSON string in a JSON string, and `%2525`.
const MAX_BACKSLASHES: usize = 8;
const MAX_NESTED_PERCENT: usize = 3;
/// The longest form of a character: backslashes and `u002b`.
pub(crate) const MAX_UNIT: usize = MAX_BACKSLASHES + 5;
/// Zeros before the number of an HTML entity.
const MAX_ZEROS: usize = 4;

/// Whether bytes begin with a form of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EscapedMatch {
    /// They do; the length of the form.
    Whole(usize),
    /// They end before that is certain.
    Cut,
    None,
}

use EscapedMatch::{Cut, None as Other, Whole};

/// Whether a form of the secret may begin with this byte.
pub(crate) fn may_begin(secret: &[u8], byte: u8) -> bool {
    matches!(byte, b'\\' | b'%' | b'&') || secret.first() == Some(&byte)
}

/// Whether the bytes begin with a form of the secret.
pub(crate) fn match_start(secret: &[u8], bytes: &[u8]) -> EscapedMatch {
    #[cfg(test)]
    crate::detect::steps::count(1);
    let (mut at, mut is_cut) = (0, false);
    for wanted in secret {
        let rest = bytes.get(at..).unwrap_or_default();
        if rest.is_empty() {
            return Cut;
        }
        match escape(*wanted, rest) {
            Whole(length) => at += length,
            kind => {
                is_cut |= kind == Cut;
                if rest.first() != Some(wanted) {
                    return if is_cut { Cut } else { Other };
                }
                at += 1;
            }
        }
    }
    Whole(at)
}

/// Whether the bytes begin with an escape for this byte.
fn escape(wanted: u8, bytes: &[u8]) -> EscapedMatch {
    match bytes.first() {
        Some(b'\\') => backslashes(wanted, bytes),
        Some(b'%') => percent(wanted, bytes),
        Some(b'&') => entity(wanted, bytes),
        _ => Other,
    }
}

/// `\u002b`, and `\/` for characters that JSON may escape so, with any number of backslashes.
fn backslashes(wanted: u8, bytes: &[u8]) -> EscapedMatch {
    let run = bytes.iter().take(MAX_BACKSLASHES + 1).take_while(|b| **b == b'\\').count();
    #[cfg(test)]
    crate::detect::steps::count(run as u64);
    if run > MAX_BACKSLASHES {
        return Other;
    }
    let rest = &bytes[run..];
    match rest.first() {
        None => Cut,
        Some(b'u') => match digits(&rest[1..], 4, 16) {
            Whole(value) if value == usize::from(wanted) && wanted.is_ascii() => Whole(run + 5),
            Whole(_) | Other => Other,
            Cut => Cut,
        },
        Some(c @ (b'/' | b'"' | b'\'')) if *c == wanted => Whole(run + 1),
        Some(_) if wanted == b'\\' && run > 1 => Whole(run),
        Some(_) => Other,
    }
}

/// `%2b`, and `%252b`.
fn percent(wanted: u8, bytes: &[u8]) -> EscapedMatch {
    let mut at = 1;
    for _ in 0..MAX_NESTED_PERCENT {
        match digits(&bytes[at..], 2, 16) {
            Whole(value) if value == usize::from(wanted) => return Whole(at + 2),
            Whole(0x25) => at += 2,
            Whole(_) | Other => return Other,
            Cut => return Cut,
        }
    }
    Other
}

/// `&#43;`, `&#x2b;`, and the names that HTML has for its own characters.
fn entity(wanted: u8, bytes: &[u8]) -> EscapedMatch {
    let named: &[&[u8]] = match wanted {
        b'&' => &[b"&amp;"],
        b'<' => &[b"&lt;"],
        b'>' => &[b"&gt;"],
        b'"' => &[b"&quot;"],
        b'\'' => &[b"&apos;"],
        _ => &[],
    };
    for name in named {
        if bytes.starts_with(name) {
            return Whole(name.len());
        }
        if name.starts_with(bytes) {
            return Cut;
        }
    }
    let Some(rest) = bytes.get(1..).filter(|rest| rest.first().is_none_or(|b| *b == b'#')) else { return Other };
    let (radix, head) = match rest.get(1) {
        None => return Cut,
        Some(b'x' | b'X') => (16, 3),
        Some(_) => (10, 2),
    };
    let zeros = bytes[head..].iter().take(MAX_ZEROS).take_while(|b| **b == b'0').count();
    let start = head + zeros;
    let most = if radix == 16 { 2 } else { 3 };
    let number = bytes[start..].iter().take(most).take_while(|b| (**b as char).is_digit(radix)).count();
    match bytes.get(start + number) {
        None => Cut,
        Some(b';') if digits(&bytes[start..], number, radix) == Whole(usize::from(wanted)) => Whole(start + number + 1),
        Some(_) => Other,
    }
}

/// The value of so many digits.
fn digits(bytes: &[u8], count: usize, radix: u32) -> EscapedMatch {
    let mut value = 0;
    for i in 0..count {
        let Some(byte) = bytes.get(i) else { return Cut };
        let Some(digit) = (*byte as char).to_digit(radix) else { return Other };
        value = value * radix as usize + digit as usize;
    }
    Whole(value)
}
