//! Limits of a query, in either syntax.

/// The most bytes.
pub const MAX_LENGTH: usize = 16 * 1024;

/// The most parentheses within one another.
pub const MAX_DEPTH: usize = 32;

/// The most terms.
pub const MAX_TERMS: usize = 512;
