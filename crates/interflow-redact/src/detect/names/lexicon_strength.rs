//! How likely a word is a first name or a family name, by the lexicon alone.

use crate::lexicon::mark::*;
use crate::text::token::{TokenShape, WordToken};

/// The likelihood of a first name, 0 to 100.
pub(super) fn first_name_score(token: &WordToken) -> i32 {
    let m = token.marks;
    let word = m & (COMMON | WORD) != 0;
    let score = match () {
        // A computing term that is written like a name is more often one than it is the term.
        () if m & TECH != 0 && m & FIRST != 0 && token.shape == TokenShape::Title && m & (COMMON | STOP) == 0 => 80,
        () if m & (STOP | TECH | MONTH | DAY) != 0 && m & FIRST_TOP == 0 => 0,
        // April, June and August are primarily months.
        () if m & (MONTH | DAY) != 0 => 45,
        () if m & FIRST_TOP != 0 && !word => 100,
        () if m & FIRST_TOP != 0 => 60,
        () if m & FIRST != 0 && m & COMMON == 0 && m & WORD == 0 => 85,
        () if m & FIRST != 0 && m & COMMON == 0 => 45,
        () if m & FIRST != 0 => 20,
        () => 0,
    };
    match () {
        () if m & NRP != 0 && m & FIRST_TOP == 0 => 0,
        () if m & (TECH | ORG) != 0 => score / 2,
        () => score,
    }
}

/// The likelihood of a family name, 0 to 100.
pub(super) fn last_name_score(token: &WordToken) -> i32 {
    let m = token.marks;
    match () {
        () if m & (STOP | TECH | MONTH | DAY | ORG) != 0 && m & LAST_TOP == 0 => 0,
        () if m & LAST_TOP != 0 && m & COMMON == 0 => 85,
        () if m & LAST_TOP != 0 => 60,
        () if m & LAST != 0 && m & (COMMON | WORD) == 0 => 75,
        () if m & LAST != 0 && m & COMMON == 0 => 45,
        () if m & LAST != 0 => 25,
        () if m & FIRST != 0 && m & COMMON == 0 => 60,
        () if is_foreign_word(token) => 45,
        () => 0,
    }
}

/// An unknown word: neither English nor a name. Short capitals are abbreviations.
pub(super) fn is_foreign_word(token: &WordToken) -> bool {
    let m = token.marks;
    let unknown = m
        & (COMMON
            | WORD
            | STOP
            | TECH
            | FIRST
            | LAST
            | PLACE
            | REGION
            | NRP
            | MONTH
            | DAY
            | ORG
            | ORG_SUFFIX
            | ORG_WORD
            | UNIT
            | JOB)
        == 0;
    unknown
        && match token.shape {
            TokenShape::Title => token.len() >= 3,
            TokenShape::Upper => token.len() >= 6,
            TokenShape::Lower => token.len() >= 4,
            _ => false,
        }
}
