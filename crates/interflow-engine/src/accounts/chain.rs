//! The chain of an audit log: each line ends with the hash of itself and of the line before it.

use std::fmt::Write as _;
use std::io::BufRead;

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// The hash before the first line.
pub(super) const START: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const MARK: &str = ",\"hash\":\"";

/// Closes a line: `open` is its JSON without the last brace. Gives the whole line and its hash.
pub(super) fn close(open: &str, before: &str, key: Option<&[u8]>) -> (String, String) {
    let mut line = format!("{open},\"prev\":\"{before}\"");
    let hash = hash(line.as_bytes(), key);
    let _ = write!(line, "{MARK}{hash}\"}}");
    (line, hash)
}

fn hash(bytes: &[u8], key: Option<&[u8]>) -> String {
    let digest: [u8; 32] = match key {
        Some(key) => {
            let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
            mac.update(bytes);
            mac.finalize().into_bytes().into()
        }
        None => Sha256::digest(bytes).into(),
    };
    digest.iter().fold(String::with_capacity(64), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// The hash at the end of a line.
pub(super) fn hash_of(line: &str) -> Option<&str> {
    let (_, rest) = line.trim_end().rsplit_once(MARK)?;
    rest.strip_suffix("\"}").filter(|h| h.len() == 64)
}

/// Where a chain does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Broken {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub why: String,
}

/// Checks a whole log. The first line's hash of the one before it is taken as given, since older files are rotated away.
/// Says how many lines there are.
///
/// # Errors
/// The first line that does not hold.
pub fn verify(log: impl BufRead, key: Option<&[u8]>) -> Result<usize, Broken> {
    let mut before: Option<String> = None;
    let mut count = 0;
    for (i, line) in log.lines().enumerate() {
        let broken = |why: &str| Broken { line: i + 1, why: why.to_owned() };
        let line = line.map_err(|e| broken(&format!("it cannot be read: {e}")))?;
        let told = hash_of(&line).ok_or_else(|| broken("it ends without a hash"))?.to_owned();
        let open = line.rsplit_once(MARK).map_or("", |(open, _)| open);
        if hash(open.as_bytes(), key) != told {
            return Err(broken("it was changed, or the key is another"));
        }
        let prev = open.rsplit_once(",\"prev\":\"").and_then(|(_, p)| p.strip_suffix('"'));
        let prev = prev.ok_or_else(|| broken("it does not name the line before it"))?;
        if before.as_deref().is_some_and(|b| b != prev) {
            return Err(broken("the line before it is another: one was taken out, put in or moved"));
        }
        before = Some(told);
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(key: Option<&[u8]>) -> Vec<String> {
        let mut before = START.to_owned();
        (0..4)
            .map(|i| {
                let (line, hash) = close(&format!("{{\"n\":{i}"), &before, key);
                before = hash;
                line
            })
            .collect()
    }

    fn check(lines: &[String], key: Option<&[u8]>) -> Result<usize, Broken> {
        verify(lines.join("\n").as_bytes(), key)
    }

    #[test]
    fn a_chain_holds_until_somebody_touches_it() {
        for key in [None, Some(&b"secret"[..])] {
            let lines = log(key);
            assert_eq!(check(&lines, key), Ok(4));
            assert_eq!(check(&lines[2..], key), Ok(2), "older files may be gone");
            let mut changed = lines.clone();
            changed[1] = changed[1].replace("\"n\":1", "\"n\":7");
            assert_eq!(check(&changed, key).unwrap_err().line, 2);
            let mut shorter = lines.clone();
            shorter.remove(1);
            assert_eq!(check(&shorter, key).unwrap_err().line, 2);
            let mut moved = lines.clone();
            moved.swap(1, 2);
            assert_eq!(check(&moved, key).unwrap_err().line, 2);
        }
        assert_eq!(check(&log(None), Some(b"secret")).unwrap_err().line, 1);
        assert_eq!(check(&["{}".into()], None).unwrap_err().line, 1);
    }
}
