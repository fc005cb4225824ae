//! Formats counts with their nouns.

/// `1 flow`, `2 flows`.
pub fn pluralize(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::pluralize;

    #[test]
    fn count_of_one_is_singular() {
        assert_eq!([0, 1, 2].map(|n| pluralize(n, "flow")), ["0 flows", "1 flow", "2 flows"]);
    }
}
