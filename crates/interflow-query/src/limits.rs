//! Limits of a query, in either syntax. Queries come from users of the API and are evaluated on every flow, so both
//! parsing and matching must be bounded.

/// The most bytes in a query's text.
pub const MAX_LENGTH: usize = 16 * 1024;

/// The most parentheses within one another, because the parser recurses.
pub const MAX_DEPTH: usize = 32;

/// The most terms in a query.
pub const MAX_TERMS: usize = 512;
