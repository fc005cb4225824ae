//! Conditions of strategies: `token startswith "4" and confidence > 0.8`.

use crate::RedactError;

/// A condition: all of its comparisons must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition(Vec<Comparison>);

#[derive(Clone, Debug, PartialEq)]
struct Comparison {
    field: Field,
    op: Op,
    value: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    Token,
    Context,
    Confidence,
    Type,
    Class,
    /// The inhabitants of a ZIP area: not known here.
    Population,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
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

/// What a condition is asked about.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts<'a> {
    pub token: &'a str,
    pub context: &'a str,
    /// From 0 to 1.
    pub confidence: f64,
    pub type_name: &'a str,
    /// The classification; the type's name where the policy gives none.
    pub class: &'a str,
    /// The text before the value.
    pub before: &'a str,
}

impl Condition {
    /// Reads a condition; an empty one always holds.
    ///
    /// # Errors
    /// When a field, an operator or a number is unknown.
    pub fn parse(text: &str) -> Result<Self, RedactError> {
        let mut words = words(text).into_iter();
        let mut all = Vec::new();
        while let Some(field) = words.next() {
            let bad = |what: &str| RedactError::Policy(format!("condition `{text}`: {what}"));
            let field = match field.to_ascii_lowercase().as_str() {
                "token" => Field::Token,
                "context" => Field::Context,
                "confidence" => Field::Confidence,
                "type" => Field::Type,
                "classification" => Field::Class,
                "population" => Field::Population,
                other => {
                    return Err(bad(&format!(
                        "unknown field `{other}`; there are token, context, confidence, type and population"
                    )));
                }
            };
            let op = words.next().ok_or_else(|| bad("an operator is missing"))?;
            let mut value = words.next().ok_or_else(|| bad("a value is missing"))?;
            let op = match op.to_ascii_lowercase().as_str() {
                "startswith" => Op::StartsWith,
                "==" | "=" => Op::Equal,
                "!=" => Op::NotEqual,
                "<" => Op::Less,
                "<=" => Op::LessOrEqual,
                ">" => Op::Greater,
                ">=" => Op::GreaterOrEqual,
                "is" if value.eq_ignore_ascii_case("not") => {
                    value = words.next().ok_or_else(|| bad("a value is missing"))?;
                    Op::IsNot
                }
                "is" => Op::Is,
                other => return Err(bad(&format!("unknown operator `{other}`"))),
            };
            if field == Field::Confidence && value.parse::<f64>().is_err() {
                return Err(bad("confidence is compared with a number from 0 to 1"));
            }
            all.push(Comparison { field, op, value });
            match words.next() {
                None => break,
                Some(and) if and.eq_ignore_ascii_case("and") => {}
                Some(other) => return Err(bad(&format!("`and` expected, not `{other}`"))),
            }
        }
        Ok(Self(all))
    }

    pub(crate) fn holds(&self, facts: &Facts<'_>) -> bool {
        self.0.iter().all(|c| c.holds(facts))
    }
}

impl Comparison {
    fn holds(&self, facts: &Facts<'_>) -> bool {
        match self.field {
            Field::Token if matches!(self.op, Op::Is | Op::IsNot) => self.date_of_life(facts),
            Field::Token => self.text(facts.token),
            Field::Context => self.text(facts.context),
            Field::Type => self.text(facts.type_name),
            Field::Class => self.text(facts.class),
            Field::Confidence => self.value.parse().is_ok_and(|v: f64| self.number(facts.confidence, v)),
            // Unknown here; that the strategy is carried out is the careful answer.
            Field::Population => true,
        }
    }

    fn text(&self, actual: &str) -> bool {
        match self.op {
            Op::StartsWith => actual.starts_with(&self.value),
            Op::Equal | Op::Is => actual == self.value,
            Op::NotEqual | Op::IsNot => actual != self.value,
            _ => match (actual.parse(), self.value.parse()) {
                (Ok(a), Ok(b)) => self.number(a, b),
                _ => false,
            },
        }
    }

    fn number(&self, actual: f64, wanted: f64) -> bool {
        match self.op {
            Op::Less => actual < wanted,
            Op::LessOrEqual => actual <= wanted,
            Op::Greater => actual > wanted,
            Op::GreaterOrEqual => actual >= wanted,
            Op::Equal | Op::Is => (actual - wanted).abs() < f64::EPSILON,
            Op::NotEqual | Op::IsNot => (actual - wanted).abs() >= f64::EPSILON,
            Op::StartsWith => false,
        }
    }

    /// `token is birthdate`: the words before a date tell.
    fn date_of_life(&self, facts: &Facts<'_>) -> bool {
        let words: &[&str] = match self.value.to_ascii_lowercase().as_str() {
            "birthdate" => &["born", "birth", "birthday", "birthdate", "dob"],
            "deathdate" => &["died", "death", "deceased", "dod", "passed"],
            _ => &[],
        };
        let window = facts.before.split_whitespace().rev().take(6);
        let told = window
            .map(|w| w.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
            .any(|w| words.contains(&w.as_str()));
        told == (self.op == Op::Is)
    }
}

/// Splits at spaces; quotes keep a value together.
fn words(text: &str) -> Vec<String> {
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
    fn conditions_hold_or_do_not() {
        let facts = Facts {
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
            assert_eq!(Condition::parse(text).map(|c| c.holds(&facts)).ok(), Some(holds), "{text}");
        }
    }

    #[test]
    fn broken_conditions_are_refused() {
        for text in ["weight > 3", "token", "token ~ x", "confidence > high", "token == a or token == b"] {
            assert!(Condition::parse(text).is_err(), "{text}");
        }
    }
}
