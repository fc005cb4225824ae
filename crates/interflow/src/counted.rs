//! Numbers with their nouns.

/// `1 flow`, `2 flows`.
pub fn counted(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::counted;

    #[test]
    fn one_is_no_plural() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "flow")), ["0 flows", "1 flow", "2 flows"]);
    }
}
