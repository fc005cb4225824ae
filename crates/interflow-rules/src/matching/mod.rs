//! Conditions of rules: how they are written, compiled, evaluated and indexed.

pub(crate) mod condition;
pub(crate) mod exec;
pub(crate) mod graphql;
pub(crate) mod host_matcher;
pub(crate) mod index;
pub(crate) mod matchers;
pub(crate) mod path_mode;
pub(crate) mod patterns;
pub(crate) mod regex_limits;
pub(crate) mod text_predicate;
