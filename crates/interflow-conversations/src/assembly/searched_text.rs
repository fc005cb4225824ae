//! The search of one text for many phrases.

use memchr::memmem;

/// Every how many bytes a run of the text is marked.
const STEP: usize = 4;
/// Binary logarithm of the number of marks: a prompt of 350,000 bytes leaves half of them unset.
const MARKS_LOG2: u32 = 17;
/// The longest needle for which `memmem` needs no preparation.
const NEEDLE: usize = 32;
/// Places that begin like the phrase and are compared with it, before the whole phrase is searched: what precedes the
/// phrase may repeat its beginning any number of times.
const MAX_COMPARED: usize = 64;

/// A text that is searched for many phrases, most of them in vain. To prepare the search for a phrase takes longer than to
/// search a short prompt for it, so marks for runs of eight bytes of the text first rule out nearly every phrase that is not
/// in it.
pub(super) struct SearchedText<'t> {
    text: &'t str,
    marks: Vec<u64>,
}

impl<'t> SearchedText<'t> {
    pub fn new(text: &'t str) -> Self {
        let mut marks = vec![0; 1 << (MARKS_LOG2 - 6)];
        for run in text.as_bytes().array_windows().step_by(STEP) {
            let mark = mark_of(run);
            marks[mark / 64] |= 1_u64 << (mark % 64);
        }
        Self { text, marks }
    }

    /// As `str::contains`.
    pub fn contains(&self, phrase: &str) -> bool {
        let phrase = phrase.as_bytes();
        let is_marked = |run: &[u8; 8]| self.marks[mark_of(run) / 64] >> (mark_of(run) % 64) & 1 == 1;
        // Wherever the phrase stands, one of its first bytes is at a step.
        let may_begin = |part: &[u8]| part.as_chunks().0.iter().all(is_marked);
        (0..STEP).any(|at| phrase.get(at..).is_none_or(may_begin)) && find(self.text.as_bytes(), phrase)
    }
}

/// The preparation for a phrase of some hundred bytes takes longer than the search of a prompt, so its beginning is searched
/// first.
fn find(mut text: &[u8], phrase: &[u8]) -> bool {
    let head = memmem::Finder::new(phrase.get(..NEEDLE).unwrap_or(phrase));
    for _ in 0..MAX_COMPARED {
        let Some(rest) = head.find(text).and_then(|at| text.get(at..)) else { return false };
        if rest.starts_with(phrase) {
            return true;
        }
        text = rest.get(1..).unwrap_or_default();
    }
    memmem::find(text, phrase).is_some()
}

/// Fibonacci hashing.
const fn mark_of(run: &[u8; 8]) -> usize {
    (u64::from_le_bytes(*run).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - MARKS_LOG2)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phrase_is_found_wherever_it_stands_and_whatever_precedes_it() {
        let long = "ab".repeat(20) + "c" + &"the last words ".repeat(20);
        for phrase in ["", "x", "words", &"ab".repeat(16), &"ab".repeat(17), &long] {
            for before in ["", "x", "ab", "abc", "abcd", &"ab".repeat(100), &"ab".repeat(3000), &"ä".repeat(40)] {
                for text in [[before, phrase].concat(), [before, phrase, "ab"].concat(), before.to_owned()] {
                    assert_eq!(
                        SearchedText::new(&text).contains(phrase),
                        text.contains(phrase),
                        "{phrase:?} in {text:?}"
                    );
                }
                let mut cut = [before, phrase].concat();
                cut.pop();
                assert_eq!(SearchedText::new(&cut).contains(phrase), cut.contains(phrase), "{phrase:?} in {cut:?}");
            }
        }
    }
}
