//! Token usage of a call of a language model, in the categories that have prices.

use crate::schema::JsonSchema;

/// Token usage of one call. Streams repeat it; the last count applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallUsage {
    /// Input tokens, including those read from and written to a cache.
    pub input: u64,
    /// Output tokens, including reasoning.
    pub output: u64,
    /// The part of `input` read from a cache.
    pub cache_read: u64,
    /// The part of `input` written to a cache.
    pub cache_write: u64,
    /// The part of `cache_write` that is kept for an hour or longer, at a higher price. Not stored with a conversation.
    #[serde(skip)]
    pub cache_write_long: u64,
    /// The part of `output` used for reasoning.
    pub reasoning: u64,
}

impl CallUsage {
    pub const fn total(&self) -> u64 {
        self.input.saturating_add(self.output)
    }

    /// Adds another call's counts, saturating.
    pub const fn add(&mut self, other: Self) {
        self.input = self.input.saturating_add(other.input);
        self.output = self.output.saturating_add(other.output);
        self.cache_read = self.cache_read.saturating_add(other.cache_read);
        self.cache_write = self.cache_write.saturating_add(other.cache_write);
        self.cache_write_long = self.cache_write_long.saturating_add(other.cache_write_long);
        self.reasoning = self.reasoning.saturating_add(other.reasoning);
    }

    /// The larger of each count: streams report running totals.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            input: self.input.max(other.input),
            output: self.output.max(other.output),
            cache_read: self.cache_read.max(other.cache_read),
            cache_write: self.cache_write.max(other.cache_write),
            cache_write_long: self.cache_write_long.max(other.cache_write_long),
            reasoning: self.reasoning.max(other.reasoning),
        }
    }
}
