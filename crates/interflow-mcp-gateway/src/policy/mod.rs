//! Rules about calls by tool and arguments.
//!
//! A value can be written in many ways, and servers differ in which they accept. So a test has two answers: whether every
//! reading of the arguments matches, which is what a rule that allows needs, and whether one does, which suffices for a
//! rule that denies or asks.

mod argument_test;
mod call_rules;
mod readings;

pub(crate) use call_rules::{CallRules, repeats_names};
pub(crate) use readings::any_looks_like;
