//! Conditions of strategies: `token startswith "4" and confidence > 0.8`.

use crate::{RedactError, Result};

/// A condition: a conjunction of comparisons.
#[derive(Clone, Debug, PartialEq)]
pub struct StrategyCondition(Vec<ConditionComparison>);

/// One comparison of a field with a value.
#[derive(Clone, Debug, PartialEq)]
struct ConditionComparison {
    field: ConditionField,
    op: ComparisonOp,
    value: String,
}

interflow_types::labelled_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum ConditionField {
        Token "token",
        Context "context",
        Confidence "confidence",
        Type "type",
        Class "classification",
        /// The population of a ZIP area (Phileas); not available, so that such a condition always holds.
        Population "population",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ComparisonOp {
    StartsWith,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Is,
    IsNot,
}

/// The input of a condition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConditionInput<'a> {
    pub token: &'a str,
    pub context: &'a str,
    /// The confidence from 0 to 1, although policies use percent elsewhere.
    pub confidence: f64,
    pub type_name: &'a str,
    /// The classification; the type's name if the policy has none.
    pub class: &'a str,
    /// Up to 80 bytes of text before the value.
    pub before: &'a str,
}

impl StrategyCondition {
    /// Parses a condition; an empty one always holds.
    ///
    /// # Errors
    /// An unknown field or operator, or an invalid number.
    pub fn parse(text: &str) -> Result<Self> {
        use ComparisonOp::{Equal, Is, IsNot, NotEqual, StartsWith};
        let mut words = split_words(text).into_iter();
        let mut all = Vec::new();
        while let Some(field) = words.next() {
            let bad = |what: &str| RedactError::Policy(format!("condition `{text}`: {what}"));
            let name = field.to_ascii_lowercase();
            let field = ConditionField::ALL.into_iter().find(|field| field.as_str() == name).ok_or_else(|| {
                let fields = ConditionField::ALL.map(ConditionField::as_str).join(", ");
                bad(&format!("unknown field `{name}`; there are {fields}"))
            })?;
            let op = words.next().ok_or_else(|| bad("an operator is missing"))?;
            let mut value = words.next().ok_or_else(|| bad("a value is missing"))?;
            let op = match op.to_ascii_lowercase().as_str() {
                "startswith" => ComparisonOp::StartsWith,
                "==" | "=" => ComparisonOp::Equal,
                "!=" => ComparisonOp::NotEqual,
                "<" => ComparisonOp::Less,
                "<=" => ComparisonOp::LessOrEqual,
                ">" => ComparisonOp::Greater,
                ">=" => ComparisonOp::GreaterOrEqual,
                "is" if value.eq_ignore_ascii_case("not") => {
                    value = words.next().ok_or_else(|| bad("a value is missing"))?;
                    ComparisonOp::IsNot
                }
                "is" => ComparisonOp::Is,
                other => return Err(bad(&format!("unknown operator `{other}`"))),
            };
            let number = value.parse::<f64>().ok();
            let is_order = !matches!(op, StartsWith | Equal | NotEqual | Is | IsNot);
            // A comparison that never holds would leave values in the text.
            match field {
                ConditionField::Confidence if op == StartsWith || !number.is_some_and(|n| (0.0..=1.0).contains(&n)) => {
                    return Err(bad("confidence is compared with a number from 0 to 1"));
                }
                ConditionField::Token if matches!(op, Is | IsNot) && life_words(&value).is_empty() => {
                    return Err(bad("after `token is` there are birthdate and deathdate"));
                }
                _ if is_order && number.is_none() => return Err(bad(&format!("`{value}` is not a number"))),
                _ => {}
            }
            all.push(ConditionComparison { field, op, value });
            match words.next() {
                None => break,
                Some(and) if and.eq_ignore_ascii_case("and") => {}
                Some(other) => return Err(bad(&format!("`and` expected, not `{other}`"))),
            }
        }
        Ok(Self(all))
    }

    /// Whether all comparisons hold.
    pub(crate) fn holds(&self, facts: &ConditionInput<'_>) -> bool {
        self.0.iter().all(|c| c.holds(facts))
    }
}

impl ConditionComparison {
    fn holds(&self, facts: &ConditionInput<'_>) -> bool {
        match self.field {
            ConditionField::Token if matches!(self.op, ComparisonOp::Is | ComparisonOp::IsNot) => {
                self.is_life_date(facts)
            }
            ConditionField::Token => self.compare_text(facts.token),
            ConditionField::Context => self.compare_text(facts.context),
            ConditionField::Type => self.compare_text(facts.type_name),
            ConditionField::Class => self.compare_text(facts.class),
            ConditionField::Confidence => {
                self.value.parse().is_ok_and(|v: f64| self.compare_number(facts.confidence, v))
            }
            // Not available; applying the strategy is the safe choice.
            ConditionField::Population => true,
        }
    }

    /// Compares as text; with an order operator as numbers, where both are numbers.
    fn compare_text(&self, actual: &str) -> bool {
        match self.op {
            ComparisonOp::StartsWith => actual.starts_with(&self.value),
            ComparisonOp::Equal | ComparisonOp::Is => actual == self.value,
            ComparisonOp::NotEqual | ComparisonOp::IsNot => actual != self.value,
            _ => match (actual.parse(), self.value.parse()) {
                (Ok(a), Ok(b)) => self.compare_number(a, b),
                _ => false,
            },
        }
    }

    fn compare_number(&self, actual: f64, wanted: f64) -> bool {
        match self.op {
            ComparisonOp::Less => actual < wanted,
            ComparisonOp::LessOrEqual => actual <= wanted,
            ComparisonOp::Greater => actual > wanted,
            ComparisonOp::GreaterOrEqual => actual >= wanted,
            ComparisonOp::Equal | ComparisonOp::Is => (actual - wanted).abs() < f64::EPSILON,
            ComparisonOp::NotEqual | ComparisonOp::IsNot => (actual - wanted).abs() >= f64::EPSILON,
            ComparisonOp::StartsWith => false,
        }
    }

    /// `token is birthdate`: decided by the words before a date.
    fn is_life_date(&self, facts: &ConditionInput<'_>) -> bool {
        let words = life_words(&self.value);
        let window = facts.before.split_whitespace().rev().take(6);
        let word = window
            .map(|w| w.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
            .any(|w| words.contains(&w.as_str()));
        word == (self.op == ComparisonOp::Is)
    }
}

/// The words before a date of birth or death; none for other values of `token is`.
fn life_words(value: &str) -> &'static [&'static str] {
    match value.to_ascii_lowercase().as_str() {
        "birthdate" => &["born", "birth", "birthday", "birthdate", "dob"],
        "deathdate" => &["died", "death", "deceased", "dod", "passed"],
        _ => &[],
    }
}

/// Splits at spaces; quoted values stay together.
fn split_words(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        out.push(word.to_owned());
        rest = after.trim_start();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strategy_conditions_are_evaluated() {
        let facts = ConditionInput {
            token: "90210",
            context: "court",
            confidence: 0.8,
            type_name: "zip-code",
            class: "zip-code",
            before: "was born on ",
        };
        for (text, holds) in [
            ("", true),
            ("token startswith \"90\"", true),
            ("token == \"90211\"", false),
            ("token != \"90211\" and confidence > 0.5", true),
            ("confidence >= 0.9", false),
            ("context == \"court\"", true),
            ("context == court and type == zip-code", true),
            ("token is birthdate", true),
            ("token is not birthdate", false),
            ("token is deathdate", false),
            ("population < 20000", true),
        ] {
            assert_eq!(StrategyCondition::parse(text).map(|c| c.holds(&facts)).ok(), Some(holds), "{text}");
        }
    }

    #[test]
    fn broken_conditions_are_refused() {
        for text in [
            "weight > 3",
            "token",
            "token ~ x",
            "confidence > high",
            "confidence startswith 0.8",
            "confidence > 80",
            "token == a or token == b",
            "token is \"x\"",
            "token is not x",
            "token > abc",
        ] {
            assert!(StrategyCondition::parse(text).is_err(), "{text}");
        }
        let error = StrategyCondition::parse("weight > 3").unwrap_err().to_string();
        assert!(error.ends_with("there are token, context, confidence, type, classification, population"), "{error}");
    }
}
