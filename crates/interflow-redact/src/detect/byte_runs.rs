//! Cached runs of bytes of one class.
//!
//! A detector that recognizes a prefix needs the end of the value after it. Scanning for it at each prefix takes
//! quadratic time on a text of nothing but prefixes (`sl.sl.sl.…`). The end of a run is the same for every byte inside
//! it, so caching the last run makes all scans together linear.

/// The bytes that belong to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunClass {
    /// Letters, digits, `_` and `-`.
    Key,
    /// The characters of a dotted token: base64, base64url, dots, `~` and `%`.
    Token,
    /// Base64url with dots: a JSON Web Token (RFC 7519 section 3).
    Jwt,
}

impl RunClass {
    pub(crate) const fn contains(self, byte: u8) -> bool {
        let key = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match self {
            Self::Key => key,
            Self::Token => key || matches!(byte, b'.' | b'/' | b'+' | b'=' | b'~' | b'%'),
            Self::Jwt => key || byte == b'.',
        }
    }
}

/// A scanned run, by byte offsets.
#[derive(Clone, Copy, Debug, Default)]
struct ByteRun {
    start: usize,
    end: usize,
    /// The end without trailing punctuation.
    trimmed: usize,
}

#[derive(Debug, Default)]
pub(crate) struct ByteRunCache {
    last: [ByteRun; 3],
}

impl ByteRunCache {
    /// The end of the run of `class` that contains the byte at `at`, and its end without trailing `.`, `-` and `_`.
    /// Both are `at` if that byte is not of the class.
    pub(crate) fn end(&mut self, bytes: &[u8], at: usize, class: RunClass) -> (usize, usize) {
        let run = &mut self.last[class as usize];
        if !(run.start..run.end).contains(&at) {
            let rest = bytes.get(at..).unwrap_or_default();
            let len = rest.iter().take_while(|b| class.contains(**b)).count();
            let solid = rest[..len].iter().rposition(|b| !matches!(b, b'.' | b'-' | b'_')).map_or(0, |i| i + 1);
            #[cfg(test)]
            super::steps::count(2 * len as u64 + 1);
            *run = ByteRun { start: at, end: at + len, trimmed: at + solid };
        }
        (run.end, run.trimmed.max(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_run_end_is_the_same_from_every_byte() {
        let text = b"x sl.ab-c.. sl.=/";
        let mut runs = ByteRunCache::default();
        assert_eq!(runs.end(text, 2, RunClass::Token), (11, 9));
        assert_eq!(runs.end(text, 5, RunClass::Token), (11, 9));
        assert_eq!(runs.end(text, 10, RunClass::Token), (11, 10));
        assert_eq!(runs.end(text, 11, RunClass::Token), (11, 11));
        assert_eq!(runs.end(text, 5, RunClass::Key), (9, 9));
        assert_eq!(runs.end(text, 12, RunClass::Jwt), (15, 14));
        assert_eq!(runs.end(text, 99, RunClass::Jwt), (99, 99));
    }
}
