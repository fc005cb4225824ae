//! Tables that are part of the program as text files: one record per line, fields between `|`, comments behind `#`.

/// The lines of a table, without empty ones and comments.
pub fn lines(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// The records of a table; fields that are left out at the end of a line are empty.
pub fn records<const N: usize>(text: &'static str) -> impl Iterator<Item = [&'static str; N]> {
    lines(text).map(|line| {
        let mut fields = line.split('|').map(str::trim);
        std::array::from_fn(|_| fields.next().unwrap_or_default())
    })
}

/// Whether a name is in a list whose names are divided by spaces.
pub fn has_word(list: &str, name: &str) -> bool {
    list.as_bytes().split(|b| *b == b' ').any(|word| word == name.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_the_fields_of_lines_without_comments() {
        let text = "# A table.\n\na | b c |\nd|e\n";
        assert_eq!(records(text).collect::<Vec<_>>(), [["a", "b c", ""], ["d", "e", ""]]);
        assert_eq!(lines("# x\none\n two \n").collect::<Vec<_>>(), ["one", "two"]);
    }
}
