//! The interface of guardrails: texts in, findings out.

use std::borrow::Cow;
use std::ops::Range;

use interflow_llm::spans::TextPlace;
use interflow_redact::is_stop_requested;
use interflow_types::{Direction, MaybeFuture};

use super::kinds::matcher::TextMatcher;
use super::texts::GuardText;

/// Something that a guardrail found in a text.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The text's index in the input.
    pub text: usize,
    /// The bytes of the text that it is about.
    pub range: Range<usize>,
    /// How sure it is, from 0 to 1.
    pub score: f64,
    /// What was found: a name such as `instruction_override`, or a service's own words. Never part of the text.
    pub reason: Cow<'static, str>,
    /// What a service wants in its place; `None` for the configured mask.
    pub replacement: Option<String>,
}

impl Finding {
    /// One that is replaced by the configured mask.
    pub fn new(text: usize, range: Range<usize>, score: f64, reason: impl Into<Cow<'static, str>>) -> Self {
        Self { text, range, score, reason: reason.into(), replacement: None }
    }
}

/// Facts of the call, for guardrails that ask a service.
#[derive(Clone, Debug, Default)]
pub struct CallFacts {
    pub flow: String,
    pub provider: String,
    pub model: Option<String>,
    pub operation: String,
    pub user: Option<String>,
    pub key: Option<String>,
}

/// The texts of one request or response that a guardrail looks at.
#[derive(Clone, Copy)]
pub struct CheckInput<'a> {
    pub direction: Direction,
    pub facts: &'a CallFacts,
    /// The name of the guardrail that is asked.
    pub guardrail: &'a str,
    pub(super) texts: &'a [GuardText],
    pub(super) selected: &'a [usize],
}

impl<'a> CheckInput<'a> {
    /// Index, place and content of each text.
    pub fn texts(&self) -> impl Iterator<Item = (usize, TextPlace, &'a str)> + use<'a> {
        let texts = self.texts;
        // A check of which nobody waits for the result ends at the next text.
        let selected = self.selected.iter().take_while(|_| !is_stop_requested());
        selected.filter_map(move |i| texts.get(*i).map(|t| (*i, t.place, t.text.as_str())))
    }

    /// The texts of messages with several parts, put together with this between them.
    pub(super) fn joined(&self, between: &str) -> Vec<JoinedTexts> {
        let mut all: Vec<JoinedTexts> = Vec::new();
        let mut last = None;
        for (index, _, text) in self.texts() {
            let continues = self.texts.get(index).is_some_and(|t| t.continues) && last.is_some_and(|l| l + 1 == index);
            last = Some(index);
            match all.last_mut().filter(|_| continues) {
                Some(joined) => {
                    joined.text.push_str(between);
                    joined.parts.push((index, joined.text.len()..joined.text.len() + text.len()));
                    joined.text.push_str(text);
                }
                None => {
                    // Texts of their own are not copied for nothing.
                    all.retain(|joined| joined.parts.len() > 1);
                    all.push(JoinedTexts { text: text.to_owned(), parts: vec![(index, 0..text.len())] });
                }
            }
        }
        all.retain(|joined| joined.parts.len() > 1);
        all
    }
}

/// The texts of one message.
pub(super) struct JoinedTexts {
    pub text: String,
    /// Each text's index, and where it is.
    parts: Vec<(usize, Range<usize>)>,
}

impl JoinedTexts {
    /// The index of the first text.
    pub fn index(&self) -> Option<usize> {
        self.parts.first().map(|(index, _)| *index)
    }

    /// The parts of a range, with the index of their texts, if it belongs to more than one.
    pub fn split(&self, range: &Range<usize>) -> Vec<(usize, Range<usize>)> {
        let overlap = |(index, part): &(usize, Range<usize>)| {
            let own = range.start.max(part.start)..range.end.min(part.end);
            (!own.is_empty()).then(|| (*index, own.start - part.start..own.end - part.start))
        };
        let parts: Vec<_> = self.parts.iter().filter_map(overlap).collect();
        if parts.len() > 1 { parts } else { Vec::new() }
    }
}

/// The findings, or why the texts could not be checked.
pub type CheckResult = Result<Vec<Finding>, String>;

/// A check of texts. One object serves all requests.
pub trait Guardrail: Send + Sync {
    /// Looks for findings. A check without a service returns at once, so that it can run on another thread.
    fn check<'a>(&'a self, input: CheckInput<'a>) -> MaybeFuture<'a, CheckResult>;

    /// Whether it asks a service.
    fn is_remote(&self) -> bool {
        false
    }

    /// What finds its matches in a text that is still arriving; `None` if it needs the whole text.
    fn matcher(&self) -> Option<&TextMatcher> {
        None
    }

    /// Whether it judges the reply as a whole, so that a text in the middle of it (thinking, a tool call) is none of
    /// its business.
    fn wants_replies_only(&self) -> bool {
        false
    }
}
