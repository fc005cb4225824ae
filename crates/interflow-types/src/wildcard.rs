//! Wildcard patterns for names: `*` matches any sequence of characters.

/// Whether the whole name matches the pattern; case is ignored.
pub fn matches(pattern: &str, name: &str) -> bool {
    fits(pattern, name, true)
}

/// As [`matches`], for names whose case matters.
pub fn matches_case(pattern: &str, name: &str) -> bool {
    fits(pattern, name, false)
}

fn fits(pattern: &str, name: &str, ignores_case: bool) -> bool {
    let is = |text: &str, part: &str| if ignores_case { text.eq_ignore_ascii_case(part) } else { text == part };
    let strip_prefix = |text, part: &str| {
        let (head, rest) = str::split_at_checked(text, part.len())?;
        is(head, part).then_some(rest)
    };
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
    rest.len().checked_sub(last.len()).and_then(|at| rest.get(at..)).is_some_and(|end| is(end, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_matches_any_characters_of_a_name() {
        for (pattern, name, like) in [
            ("claude", "claude", true),
            ("claude", "claude2", false),
            ("", "", true),
            ("*", "", true),
            ("c*e", "claude", true),
            ("c*e", "c", false),
            ("*-mini", "gpt-5-mini-2", false),
            ("claude-*-4*", "claude-opus-4-1", true),
            ("claude-*-4*", "claude-opus-3", false),
            ("a*b*c", "a-b-b-c", true),
            ("*a*b*", "xaxbx", true),
            ("*a*b*", "ba", false),
            ("a*a", "a", false),
            ("/v1/*", "/v1", false),
            ("gréy*", "gréyproxy", true),
        ] {
            assert_eq!((matches(pattern, name), matches_case(pattern, name)), (like, like), "{pattern} {name}");
        }
        for (pattern, name) in [("claude", "CLAUDE"), ("Gréy*", "gréyproxy"), ("*A*b", "xab"), ("a*B", "ab")] {
            assert!(matches(pattern, name) && !matches_case(pattern, name), "{pattern} {name}");
        }
    }
}
