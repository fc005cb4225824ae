//! Splits long texts into overlapping windows at word boundaries.

use std::ops::Range;

/// Byte ranges of at most `size` characters that overlap by about `overlap` of them, at most half of the size.
pub(super) fn windows(text: &str, size: usize, overlap: usize) -> Vec<Range<usize>> {
    let size = size.max(1);
    let overlap = overlap.min(size / 2);
    let mut all = Vec::new();
    let mut start = 0;
    loop {
        let rest = &text[start..];
        let Some((cut, _)) = rest.char_indices().nth(size) else {
            all.push(start..text.len());
            return all;
        };
        // Between words if there is a space in the last quarter, so that no name is split.
        let floor = rest.floor_char_boundary(cut - cut / 4);
        let end = start + rest[floor..cut].rfind(char::is_whitespace).map_or(cut, |gap| floor + gap);
        all.push(start..end);
        let back = text[start..end].char_indices().rev().nth(overlap.saturating_sub(1)).map_or(0, |(at, _)| at);
        let from = start + if overlap == 0 { end - start } else { back };
        let gap = text[from..end].find(char::is_whitespace).map_or(from, |gap| from + gap);
        // Always progresses, also in a text without spaces.
        start = if gap > start { gap } else { end };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_at_a_window_border_are_complete_in_one_window() {
        let text = "one two three four five six seven eight nine ten";
        let all = windows(text, 16, 6);
        assert!(all.len() > 2);
        for word in text.split(' ') {
            assert!(all.iter().any(|w| text[w.clone()].split_whitespace().any(|x| x == word)), "{word}: {all:?}");
        }
    }

    proptest! {
        /// Windows cover every byte, in order, and terminate.
        #[test]
        fn windows_cover_the_whole_text(text in "[a-z \u{e9}\u{1F600}]{0,200}", size in 1usize..40, overlap in 0usize..40) {
            let all = windows(&text, size, overlap);
            let mut reach = 0;
            for w in &all {
                prop_assert!(w.start <= reach && w.end >= reach);
                prop_assert!(text[w.clone()].chars().count() <= size);
                reach = w.end;
            }
            prop_assert_eq!(reach, text.len());
        }
    }
}
