//! The ways in which origins may interpret one path, for rules that allow or deny by path.
//!
//! A path can be written in many equivalent ways (percent-encoding, dot segments, backslashes), and origins differ in
//! which they accept. The path is forwarded as received, so a rule must consider every interpretation: an allow rule
//! must match all of them, a deny rule any.

use crate::percent::decoded_bytes;

/// How many layers of percent-encoding are decoded; paths with more are treated as uninterpretable.
const MAX_DECODED: usize = 3;

/// The interpretations of a path (without its query), the path as written first; `None` if they cannot all be
/// determined.
pub fn variants(path: &str) -> Option<Vec<String>> {
    let (all, is_complete) = known_variants(path);
    is_complete.then_some(all)
}

/// The interpretations of a path that can be determined, the path as written first, and whether these are all of them.
/// A rule that denies considers those that are known; a rule that allows needs all.
pub fn known_variants(path: &str) -> (Vec<String>, bool) {
    let mut all = vec![path.to_owned()];
    let mut is_understood = true;
    let mut text = path.as_bytes().to_vec();
    // One round per layer, and one more to see that nothing changes.
    for _ in 0..=MAX_DECODED {
        let null = text.iter().position(|b| *b == 0);
        // 0xC0 and 0xC1 begin only overlong encodings of ASCII, which some decoders take for `.` and `/`.
        is_understood &= null.is_none() && !text.iter().any(|b| matches!(b, 0xc0 | 0xc1));
        // To some origins, a path ends at a null character.
        for end in [Some(text.len()), null].into_iter().flatten() {
            // Some origins ignore segment parameters, so `/admin;x` may be `/admin`.
            for parameters in [true, false] {
                let reading = normalize(&text[..end], parameters);
                // What two layers have in common is listed once.
                if !all.contains(&reading) {
                    all.push(reading);
                }
            }
        }
        // Decoding ends when nothing changes; a path that still does after the last layer is not understood.
        let next = decoded_bytes(&text).into_owned();
        if next == text {
            return (all, is_understood);
        }
        text = next;
    }
    (all, false)
}

/// Resolves `.` and `..`, and joins slashes of both kinds; segment parameters (`;v=1`) are kept or removed.
fn normalize(bytes: &[u8], parameters: bool) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\\', "/");
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        // A parameter ends with its segment.
        let part = if parameters { part } else { part.split(';').next().unwrap_or_default() };
        match part {
            "" | "." => {}
            // `..` at the root stays at the root, as in browsers and servers.
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    // A final slash is kept, since rules may tell `/admin` from `/admin/`.
    let end = if text.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_spellings_of_a_path_are_found() {
        for path in [
            "/pub/../admin",
            "/pub/..;/admin",
            "/pub/..;x=1/admin",
            "/pub/%2e%2e/admin",
            "/pub/%2E./admin",
            "/pub/%5c..%5cadmin",
            "/pub/..%5cadmin",
            "/pub/..%2fadmin",
            "/pub/%252e%252e/admin",
            "/pub/%25252e%25252e/admin",
            "/pub/..%3b/admin",
            "/pub\\..\\admin",
            "//admin",
            "/./admin",
            "/;/admin",
            "/%61dmin",
        ] {
            let all = variants(path).unwrap_or_default();
            assert!(all.iter().any(|r| r == "/admin"), "{path}: {all:?}");
            assert_eq!(all.first().map(String::as_str), Some(path));
        }
        assert_eq!(variants("/pub/a.b/c").unwrap(), ["/pub/a.b/c"]);
        assert_eq!(variants("/pub/").unwrap(), ["/pub/"]);
    }

    #[test]
    fn uninterpretable_paths_have_no_variants() {
        for path in ["/pub/%c0%ae%c0%ae/admin", "/pub/%00/x", "/pub/%2525252525252e/x"] {
            assert_eq!(variants(path), None, "{path}");
        }
    }

    #[test]
    fn known_interpretations_of_uninterpretable_paths_are_found() {
        for path in ["/%61dmin", "/%61dmin%00.png", "/x%c1/../%61dmin", "/pub/%00/%2e%2e/%2e%2e/admin"] {
            let all = known_variants(path).0;
            assert!(all.iter().any(|r| r == "/admin"), "{path}: {all:?}");
        }
        let (all, is_complete) = known_variants("/%61dmin/%25252525");
        assert!(!is_complete && all.iter().any(|r| r == "/admin/%25"), "{all:?}");
    }
}
