//! The ways in which origins may read one path, for rules that allow or deny by path.
//!
//! One path may be written in many ways, and origins differ in which of them they understand. Bytes go to the origin as
//! they came, so whoever decides by path has to look at all readings: what allows must hold for each of them, what
//! denies for one.

use crate::percent::decoded_bytes;

/// How often percent-encoding is undone; what is encoded more often has no known readings.
const MAX_DECODED: usize = 3;

/// The readings of a path without its query, the path as it stands first; `None` when they cannot all be told.
pub fn variants(path: &str) -> Option<Vec<String>> {
    let mut all = vec![path.to_owned()];
    let mut text = path.as_bytes().to_vec();
    for _ in 0..=MAX_DECODED {
        // 0xC0 and 0xC1 begin nothing but overlong forms of ASCII, which some decoders take for `.` and `/`.
        if text.iter().any(|b| matches!(b, 0 | 0xc0 | 0xc1)) {
            return None;
        }
        for parameters in [true, false] {
            let reading = normalize(&text, parameters);
            if !all.contains(&reading) {
                all.push(reading);
            }
        }
        let next = decoded_bytes(&text).into_owned();
        if next == text {
            return Some(all);
        }
        text = next;
    }
    None
}

/// `.` and `..` followed, slashes of both kinds joined; `parameters` of segments (`;v=1`) stay or are taken off.
fn normalize(bytes: &[u8], parameters: bool) -> String {
    let text = String::from_utf8_lossy(bytes).replace('\\', "/");
    let mut parts: Vec<&str> = Vec::new();
    for part in text.split('/') {
        let part = if parameters { part } else { part.split(';').next().unwrap_or_default() };
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let end = if text.ends_with('/') && !parts.is_empty() { "/" } else { "" };
    format!("/{}{end}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_path_is_read() {
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
    fn what_cannot_be_told_has_no_readings() {
        for path in ["/pub/%c0%ae%c0%ae/admin", "/pub/%00/x", "/pub/%2525252525252e/x"] {
            assert_eq!(variants(path), None, "{path}");
        }
    }
}
