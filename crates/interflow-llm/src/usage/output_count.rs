//! Output that is counted as it passes, for responses whose provider reports no usage, or not all of it.

/// Bytes of text per token: the usual rule of thumb for English.
const BYTES_PER_TOKEN: u64 = 4;

/// Estimates the tokens of a text of this many bytes, rounded up.
pub const fn estimated_tokens(bytes: usize) -> u64 {
    (bytes as u64).div_ceil(BYTES_PER_TOKEN)
}

/// Counts the text of a response that no usage report covers yet. Reports are running totals, which cover what was sent
/// before them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OutputCounter {
    bytes: usize,
    fragments: u64,
    reported: u64,
}

impl OutputCounter {
    /// A fragment of generated text, of this many bytes.
    pub const fn add_text(&mut self, bytes: usize) {
        if bytes > 0 {
            self.bytes = self.bytes.saturating_add(bytes);
            self.fragments += 1;
        }
    }

    /// The provider reports this many output tokens so far. A report that has not changed although much text came since,
    /// or that says nothing, covers nothing: some servers repeat the first one with every event.
    pub const fn add_report(&mut self, output: u64) {
        if output > self.reported || output > 0 && output >= self.tokens() {
            *self = Self { bytes: 0, fragments: 0, reported: output };
        }
    }

    /// Output tokens beside those that were reported: about four bytes each, and at least one for each fragment.
    pub const fn tokens(&self) -> u64 {
        let by_length = estimated_tokens(self.bytes);
        if by_length > self.fragments { by_length } else { self.fragments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_after_the_last_report_is_counted() {
        let mut counter = OutputCounter::default();
        counter.add_report(1);
        assert_eq!(counter.tokens(), 0, "the beginning of a stream");
        counter.add_text(400);
        assert_eq!(counter.tokens(), 100);
        (0..200).for_each(|_| counter.add_text(1));
        assert_eq!(counter.tokens(), 201, "a fragment is at least a token");
        for repeated in [0, 1] {
            counter.add_report(repeated);
            assert_eq!(counter.tokens(), 201, "{repeated}");
        }
        counter.add_report(150);
        assert_eq!(counter.tokens(), 0, "the provider's count wins");
        counter.add_text(8);
        counter.add_report(150);
        assert_eq!(counter.tokens(), 0, "it may have counted the text before it was sent");
    }
}
