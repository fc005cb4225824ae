//! Suggestions for misspelled names.

/// The most similar name, for a suggestion; `None` if more than a third of the letters differ.
pub fn closest_name<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let written = written.to_ascii_lowercase();
    names
        .into_iter()
        .filter(|n| !n.is_empty())
        .map(|n| (strsim::damerau_levenshtein(&written, &n.to_ascii_lowercase()), n))
        .filter(|(distance, n)| *distance <= (n.len().max(written.len()) / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, n)| n)
}

/// `unknown key ...`, with the closest known key or the list of known keys.
pub fn unknown_key_message(what: &str, written: &str, known: &[&str]) -> String {
    match closest_name(written, known.iter().copied()) {
        Some(near) => format!("unknown {what} `{written}`: did you mean `{near}`?"),
        None => format!("unknown {what} `{written}`: known {what}s are {}", known.join(", ")),
    }
}

/// The first line of an error of serde, whose list of expected keys becomes a suggestion.
pub fn with_suggestion(message: &str) -> String {
    let message = message.lines().next().unwrap_or(message);
    for (start, what) in [("unknown field `", "key"), ("unknown variant `", "value")] {
        let Some((_, rest)) = message.split_once(start) else { continue };
        let Some((written, expected)) = rest.split_once('`') else { continue };
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        return unknown_key_message(what, written, &names);
    }
    message.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KEYS;

    #[test]
    fn misspelled_keys_get_a_suggestion() {
        let names = || KEYS.iter().map(|k| k.name);
        for (slip, meant) in [("stats", Some("status")), ("hots", Some("host")), ("zzzzzz", None)] {
            assert_eq!(closest_name(slip, names()), meant, "{slip}");
        }
    }

    #[test]
    fn serde_field_lists_become_suggestions() {
        let message = "rules[0]: unknown field `naem`, expected one of `name`, `when`";
        assert_eq!(with_suggestion(message), "unknown key `naem`: did you mean `name`?");
        assert_eq!(
            with_suggestion("unknown field `zzzzzz`, expected `name` or `when`"),
            "unknown key `zzzzzz`: known keys are name, when"
        );
        assert_eq!(with_suggestion("missing field `to`"), "missing field `to`");
    }
}
