//! Tags: names with values that say what spending is for. Keys, teams and organisations have them, and clients may add
//! their own in a header.

use std::collections::BTreeMap;

/// Tags by name.
pub type TagSet = BTreeMap<String, String>;

/// The header in which a client says what its request is for: `project=search,env=test`. Never sent upstream.
pub const TAGS_HEADER: &str = "x-interflow-tags";
/// The tag of requests that the gateway copies to a shadow deployment; its value is the deployment. Clients and keys
/// cannot have it.
pub const SHADOW_TAG: &str = "shadow";

/// Bound on the tags of one request, key, team or organisation: each combination is a row of the spend ledger.
const MAX_TAGS: usize = 8;
const MAX_NAME: usize = 32;
const MAX_VALUE: usize = 64;

/// Parses `name=value,name=value`.
///
/// # Errors
/// What is wrong, and how tags are written.
pub fn parse_tags(text: &str) -> Result<TagSet, String> {
    let mut tags = TagSet::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(format!("`{}` has no value: write name=value,name=value", shortened(part)));
        };
        let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
        check_tag(&name, &value)?;
        if tags.insert(name.clone(), value).is_some() {
            return Err(format!("the tag `{name}` occurs twice"));
        }
        if tags.len() > MAX_TAGS {
            return Err(format!("more than {MAX_TAGS} tags"));
        }
    }
    Ok(tags)
}

/// Checks the tags of a key, a team or an organisation.
///
/// # Errors
/// As [`parse_tags`].
pub(crate) fn check_tags(tags: &TagSet) -> Result<(), String> {
    if tags.len() > MAX_TAGS {
        return Err(format!("more than {MAX_TAGS} tags"));
    }
    tags.iter().try_for_each(|(name, value)| check_tag(name, value))
}

fn check_tag(name: &str, value: &str) -> Result<(), String> {
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let good_name = name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(letter)
        && name.bytes().all(|b| letter(b) || b"_-.".contains(&b));
    if !good_name {
        return Err(format!(
            "`{}` is not the name of a tag: 1 to {MAX_NAME} of a-z, 0-9, _, - and ., with a letter or digit first",
            shortened(name)
        ));
    }
    if name == SHADOW_TAG {
        return Err(format!("the tag `{SHADOW_TAG}` is set by the gateway: choose another name"));
    }
    // The first character keeps spreadsheets from reading a value as a formula.
    let good_value = value.len() <= MAX_VALUE
        && value.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
        && value.bytes().all(|b| b.is_ascii_alphanumeric() || b" _-./:@+".contains(&b));
    match good_value {
        true => Ok(()),
        false => Err(format!(
            "the value of the tag `{name}` is not 1 to {MAX_VALUE} letters, digits, spaces and _-./:@+, with a letter or digit first"
        )),
    }
}

/// Text of a client in a message, without control characters and not without end.
fn shortened(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(40).collect()
}

/// The tags of an outer level overridden by those of an inner one.
pub(crate) fn merged(outer: &TagSet, inner: &TagSet) -> TagSet {
    let mut all = outer.clone();
    all.extend(inner.iter().map(|(name, value)| (name.clone(), value.clone())));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_parsed_and_bounded() {
        let tags = parse_tags(" project=search, env=test ,").unwrap();
        assert_eq!(
            tags.into_iter().collect::<Vec<_>>(),
            [("env".to_owned(), "test".to_owned()), ("project".to_owned(), "search".to_owned())]
        );
        assert!(parse_tags("").unwrap().is_empty());
        let many = (0..9).map(|i| format!("t{i}=1")).collect::<Vec<_>>().join(",");
        for (text, says) in [
            ("project", "no value"),
            ("Project=a", "not the name"),
            ("=a", "not the name"),
            ("-a=b", "not the name"),
            (&format!("{}=b", "a".repeat(33)), "not the name"),
            ("a=", "the value"),
            ("a==1+1", "the value"),
            ("a=x\ny", "the value"),
            (&format!("a={}", "b".repeat(65)), "the value"),
            ("a=1,a=2", "twice"),
            ("shadow=1", "set by the gateway"),
            (&many, "more than 8"),
        ] {
            let e = parse_tags(text).unwrap_err();
            assert!(e.contains(says), "{text}: {e}");
        }
    }
}
