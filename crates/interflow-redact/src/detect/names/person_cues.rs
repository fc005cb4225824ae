//! Evidence for a person in the words and the punctuation beside a possible name.

use super::super::ScanState;
use super::features::Feature;
use crate::lexicon::mark::*;
use crate::lexicon::topic;
use crate::text::token::{TokenShape, WordToken, short_lower};
use crate::word_lists::{WordSet, words};

/// The evidence for a person in the words around: one of these features, of which the stronger are the lesser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PersonCue(pub Feature);

impl PersonCue {
    /// A relative or a signature: a common word is accepted as a name too.
    pub fn is_own(self) -> bool {
        self.0 <= Feature::Signature
    }

    pub fn announces(self) -> bool {
        self.0 <= Feature::Addressed
    }

    pub fn is_strong(self) -> bool {
        self.0 <= Feature::RelationOrJob
    }
}

/// Verbs of personal action, which rarely have another subject.
static DEEDS: WordSet = WordSet::new(|| words("deeds"));

/// What belongs to a person: `Sumaya's kid`.
static KIN: WordSet = WordSet::new(|| words("kin"));

/// The words and the punctuation beside a run.
pub(super) struct CueContext<'s, 't> {
    scan: &'s ScanState<'t>,
    first: usize,
    last: usize,
    gap_before: &'t str,
    gap_after: &'t str,
}

impl<'s, 't> CueContext<'s, 't> {
    pub fn of(scan: &'s ScanState<'t>, first: usize, last: usize) -> Self {
        Self { scan, first, last, gap_before: scan.gap_before(first), gap_after: scan.gap(last) }
    }

    fn before(&self, n: usize) -> Option<&'t WordToken> {
        self.first.checked_sub(n).and_then(|p| self.scan.list().get(p))
    }

    fn after(&self, n: usize) -> Option<&'t WordToken> {
        self.scan.list().get(self.last + n)
    }

    fn word_before(&self, n: usize) -> &'t str {
        self.before(n).map_or("", |t| self.scan.word(t))
    }

    fn word_after(&self, n: usize) -> &'t str {
        self.after(n).map_or("", |t| self.scan.word(t))
    }

    fn has_before(&self, n: usize, marks: u32) -> bool {
        self.before(n).is_some_and(|t| t.has(marks))
    }

    pub fn person_cue(&self) -> Option<PersonCue> {
        let topics = self.before(1).map_or(0, |t| t.topics);
        let near = is_near_gap(self.gap_before);
        self.own_cue(topics)
            .or_else(|| self.is_announced(near).then_some(PersonCue(Feature::Announced)))
            .or_else(|| self.is_addressed().then_some(PersonCue(Feature::Addressed)))
            .or_else(|| self.strong_cue(topics, near))
            .or_else(|| self.weak_cue(topics, near))
    }

    /// `my niece Destiny`, and the line below `Cheers,`.
    fn own_cue(&self, topics: u32) -> Option<PersonCue> {
        let gap = self.gap_before;
        // `her maiden name is Key`
        if gap == " " && self.word_before(1) == "is" && self.word_before(2) == "name" {
            let whole = matches!(self.word_before(3), "maiden" | "last" | "family" | "birth");
            return whole.then_some(PersonCue(Feature::OwnRelation));
        }
        if gap == " " && self.has_before(1, RELATION) {
            let mut buffer = [0; 8];
            let whose = short_lower(self.word_before(2), &mut buffer);
            return matches!(whose, "my" | "his" | "her" | "our" | "your" | "their")
                .then_some(PersonCue(Feature::OwnRelation));
        }
        let alone = || self.gap_after.is_empty() || self.gap_after.starts_with(['\n', '\r']);
        let signed = topics & topic::ADDRESSED != 0 && matches!(gap, ",\n" | ",\n\n" | ",\r\n") && alone();
        signed.then_some(PersonCue(Feature::Signature))
    }

    /// `my name is`, `call me`, `on behalf of`.
    fn is_announced(&self, near: bool) -> bool {
        let (mut one, mut two) = ([0; 8], [0; 8]);
        let b1 = short_lower(self.word_before(1), &mut one);
        let is = || matches!(b1, "is" | "was" | "to" | "s" | "me" | "as" | "be" | "of" | "are" | "się" | "on");
        let question = || (1..=5).any(|n| matches!(short_lower(self.word_before(n), &mut [0; 8]), "name" | "names"));
        near && (self.has_before(1, NAME_CUE) || is() && self.has_before(2, NAME_CUE))
            || self.gap_before.contains([':', '?']) && question()
            || matches!(
                (short_lower(self.word_before(2), &mut two), b1),
                ("call" | "calls" | "called" | "named" | "name" | "names", "me" | "him" | "her" | "us" | "it")
                    | ("i", "m" | "am")
                    | ("this" | "that", "is")
                    | ("name", "s")
                    | ("everyone", "calls")
                    | ("under" | "account", "of")
                    | ("of", "name")
            )
    }

    /// `Jakobine, can you …`, `Duqyaha shouted at`, `Sumaya's kid`: addressed, or acting as only people do.
    fn is_addressed(&self) -> bool {
        let hailed = || {
            matches!(self.word_after(1), "can" | "could" | "would" | "will" | "please" | "do" | "are" | "have" | "did")
                && matches!(self.word_after(2), "you" | "I" | "we" | "your")
        };
        let human = || match self.word_after(1) {
            "began" => self.word_after(2).ends_with("ing"),
            "lives" | "lived" => matches!(self.word_after(2), "in" | "at" | "on" | "near" | "with"),
            // `Tomomi is from Norwood`
            "is" => self.word_after(2) == "from" && self.after(3).is_some_and(|t| t.shape == TokenShape::Title),
            deed => DEEDS.contains(deed),
        };
        match self.gap_after {
            ", " => hailed() && self.begins_sentence(),
            " " => human() && self.begins_sentence(),
            "'" | "’" | "\\'" => self.word_after(1) == "s" && KIN.contains(self.word_after(2)),
            _ => false,
        }
    }

    /// Whether the run is at the beginning of a sentence or a quotation.
    fn begins_sentence(&self) -> bool {
        let gap = self.gap_before;
        gap.trim_start_matches([' ', '"', '\'', '(', '“', '>']).is_empty()
            || gap.ends_with(['\n', '“'])
            || gap.contains(['.', '!', '?'])
    }

    /// Evidence that is about a person in most texts.
    fn strong_cue(&self, topics: u32, near: bool) -> Option<PersonCue> {
        let (before, after) = (self.gap_before, self.gap_after);
        let says =
            matches!(after, " " | ", ") && self.after(1).is_some_and(|t| t.has(SAY) && t.shape == TokenShape::Lower);
        if says {
            return Some(PersonCue(Feature::SaysAfter));
        }
        if topics & topic::ADDRESSED != 0 && near {
            return Some(PersonCue(Feature::Greeting));
        }
        if matches!(after, ": \"" | ":\"" | ": “" | ": \\\"" | ":\\\"" | ": '")
            || after == ": " && before.contains('\n')
        {
            return Some(PersonCue(Feature::Speaker));
        }
        // `", says Iwase.`
        let quoted = || self.first.checked_sub(1).is_some_and(|p| self.scan.gap_before(p).contains(['"', '”', '»']));
        if before == " " && self.has_before(1, SAY) && !after.starts_with(' ') && quoted() {
            return Some(PersonCue(Feature::SaysAfter));
        }
        let at = || matches!(short_lower(self.word_before(1), &mut [0; 8]), "at" | "to");
        // `said to Logan`, `said Gladys to Logan`
        let speech = || self.has_before(2, SAY) || self.has_before(3, SAY) && self.has_before(2, FIRST | LAST);
        if before == " " && speech() && at() {
            return Some(PersonCue(Feature::SpokenTo));
        }
        let beside = before == " " || before == ", " && matches!(after, ", " | ".");
        (beside && self.has_before(1, RELATION | JOB)).then_some(PersonCue(Feature::RelationOrJob))
    }

    /// Evidence that is as often about something else.
    fn weak_cue(&self, topics: u32, near: bool) -> Option<PersonCue> {
        let possessive = matches!(self.gap_after, "'" | "’" | "\\'") && self.word_after(1) == "s";
        let acts = self.gap_after == " "
            && self.after(1).is_some_and(|t| t.shape == TokenShape::Lower && t.topics & topic::ACTS != 0);
        if topics & topic::GREETED != 0 && near && (acts || self.gap_after != " " || possessive) {
            return Some(PersonCue(Feature::WeakGreeting));
        }
        if possessive && self.gap_before == " " {
            return Some(PersonCue(Feature::Possessive));
        }
        let apart = self.gap_before.trim().is_empty() || self.gap_before.ends_with([' ', '"', '\n']);
        (acts && apart).then_some(PersonCue(Feature::ActsAfter))
    }
}

/// Punctuation between a cue and a name.
fn is_near_gap(gap: &str) -> bool {
    matches!(
        gap,
        " " | ",\n" | ",\n\n" | ">" | "=" | ": " | " \"" | ", " | " '" | "? " | " “" | ":" | ":    " | ":  " | "\": \""
    )
}
