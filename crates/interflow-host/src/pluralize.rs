//! Formats counts with their nouns.

/// `1 flow`, `2 flows`, `2 matches`.
pub fn pluralize(n: u64, noun: &str) -> String {
    match n {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{n} {noun}es"),
        _ => format!("{n} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::pluralize;

    #[test]
    fn count_of_one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| pluralize(n, "flow")), ["0 flows", "1 flow", "2 flows"]);
        assert_eq!([1, 2].map(|n| pluralize(n, "match")), ["1 match", "2 matches"]);
    }
}
