//! Wildcard patterns for names: `*` matches any sequence of characters; case is ignored.

/// Whether the whole name matches the pattern.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = strip_prefix(name, first) else { return false };
    // Without a star, the whole name must have been the prefix.
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        // The first place is as good as any later one: what follows has more left to match.
        let suffix = (0..=rest.len()).filter_map(|at| strip_prefix(rest.get(at..)?, part)).next();
        let Some(after) = suffix else { return false };
        rest = after;
    }
    // The part after the last star is matched from the end.
    rest.len().checked_sub(last.len()).and_then(|at| rest.get(at..)).is_some_and(|end| end.eq_ignore_ascii_case(last))
}

fn strip_prefix<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters_of_a_name() {
        for (pattern, name, like) in [
            ("claude", "CLAUDE", true),
            ("claude", "claude2", false),
            ("*", "", true),
            ("c*e", "claude", true),
            ("c*e", "c", false),
            ("*a*b*", "xaxbx", true),
            ("*a*b*", "ba", false),
            ("a*a", "a", false),
            ("gréy*", "Gréyproxy", true),
        ] {
            assert_eq!(matches(pattern, name), like, "{pattern} {name}");
        }
    }
}
