//! The labels of a model: which output stands for which entity type, and from probabilities per word to spans.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;

use crate::Kind;
use crate::detect::Finding;

/// One output of the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Output {
    kind: Option<Kind>,
    /// Whether it is the first word of an entity (`B-`, `S-`, `U-`).
    begins: bool,
}

/// The outputs of a model in order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LabelMap(Vec<Output>);

/// What a model says of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct WordLabel {
    pub kind: Kind,
    pub begins: bool,
    pub probability: f32,
}

#[derive(Deserialize)]
struct ModelCard {
    id2label: BTreeMap<String, String>,
}

impl LabelMap {
    /// Reads a model's `config.json`; `chosen` are the operator's entity types by label.
    pub fn parse(json: &[u8], chosen: &BTreeMap<String, String>) -> Result<Self, String> {
        let card: ModelCard = serde_json::from_slice(json).map_err(|e| format!("it lists no id2label: {e}"))?;
        let mut outputs = vec![None; card.id2label.len()];
        for (id, label) in &card.id2label {
            let slot = id.parse::<usize>().ok().and_then(|at| outputs.get_mut(at));
            let slot = slot.ok_or(format!("id2label: `{id}` is not a number below {}", card.id2label.len()))?;
            *slot = Some(output(label, chosen)?);
        }
        let bare = |label: &String| parts(label).1.to_owned();
        if let Some(extra) = chosen.keys().find(|c| !card.id2label.values().any(|l| bare(l) == **c)) {
            return Err(format!("redact.model.labels.{extra}: the model has no such label"));
        }
        let outputs: Vec<Output> = outputs.into_iter().flatten().collect();
        if outputs.iter().all(|o| o.kind.is_none()) {
            return Err("none of its labels has an entity type; map them in redact.model.labels".into());
        }
        Ok(Self(outputs))
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The most probable entity type of a word, if its probability is at least `least`.
    pub fn decide(&self, logits: &[f32], least: f32) -> Option<WordLabel> {
        let highest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shares: Vec<f32> = logits.iter().map(|l| (l - highest).exp()).collect();
        let total: f32 = shares.iter().sum();
        let sum = |kind: Kind, begins: Option<bool>| -> f32 {
            let counts = |o: &Output| o.kind == Some(kind) && begins.is_none_or(|b| o.begins == b);
            self.0.iter().zip(&shares).filter(|(o, _)| counts(o)).map(|(_, share)| share / total).sum()
        };
        let kinds = self.0.iter().filter_map(|o| o.kind);
        let (kind, probability) = kinds.map(|kind| (kind, sum(kind, None))).max_by(|a, b| a.1.total_cmp(&b.1))?;
        // Not a number in the output is not a label.
        (probability >= least).then(|| WordLabel {
            kind,
            begins: sum(kind, Some(true)) > sum(kind, Some(false)),
            probability,
        })
    }
}

/// The prefix of a label in BIO or BIOES, and the rest.
fn parts(label: &str) -> (&str, &str) {
    match label.split_once(['-', '_']) {
        Some((mark @ ("B" | "I" | "E" | "S" | "L" | "U"), rest)) => (mark, rest),
        _ => ("", label),
    }
}

fn output(label: &str, chosen: &BTreeMap<String, String>) -> Result<Output, String> {
    let (mark, name) = parts(label);
    let begins = matches!(mark, "B" | "S" | "U");
    let kind = match chosen.get(name).map(String::as_str) {
        Some("none") => None,
        Some(chosen) => Some(Kind::of_entity(chosen).ok_or(format!(
            "redact.model.labels.{name}: `{chosen}` is not an entity type; docs/reference/redaction.md lists them"
        ))?),
        None => usual_type(name).ok_or(format!(
            "its label {name} is unknown; set redact.model.labels.{name} to an entity type, or to none"
        ))?,
    };
    Ok(Output { kind, begins })
}

/// The entity type of a label that many models use; `Some(None)` for what is not an entity.
fn usual_type(label: &str) -> Option<Option<Kind>> {
    let name = label.to_ascii_lowercase();
    match name.as_str() {
        "o" | "misc" => Some(None),
        "per" | "patient" | "hcw" | "doctor" | "staff" => Some(Some(Kind::Person)),
        "loc" | "gpe" | "city" | "country" => Some(Some(Kind::Location)),
        "org" | "hosp" | "hospital" | "vendor" | "company" => Some(Some(Kind::Organization)),
        _ => Kind::of_entity(&name).map(Some),
    }
}

/// Joins the labels of words that follow one another to spans.
pub(super) fn join(words: impl Iterator<Item = (Range<usize>, Option<WordLabel>)>) -> Vec<Finding> {
    let mut spans: Vec<Finding> = Vec::new();
    let (mut open, mut sum, mut count) = (false, 0.0f32, 0.0f32);
    for (bytes, label) in words {
        let Some(label) = label else {
            open = false;
            continue;
        };
        (sum, count) = match spans.last_mut().filter(|s| open && s.kind == label.kind && !label.begins) {
            Some(last) => {
                last.end = bytes.end;
                (sum + label.probability, count + 1.0)
            }
            None => {
                spans.push(Finding::new(label.kind, bytes, 0));
                (label.probability, 1.0)
            }
        };
        if let Some(last) = spans.last_mut() {
            last.confidence = (sum / count * 100.0).round().clamp(0.0, 100.0) as u8;
        }
        open = true;
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(chosen: &[(&str, &str)]) -> Result<LabelMap, String> {
        let chosen = chosen.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect();
        LabelMap::parse(br#"{"id2label":{"0":"O","1":"B-PER","2":"I-PER","3":"B-STREET"}}"#, &chosen)
    }

    #[test]
    fn labels_are_mapped_and_unknown_ones_are_named() {
        let map = labels(&[("STREET", "street-address")]).unwrap();
        assert_eq!(map.0[3], Output { kind: Some(Kind::StreetAddress), begins: true });
        assert_eq!(map.0[2], Output { kind: Some(Kind::Person), begins: false });
        assert_eq!(labels(&[("STREET", "none")]).unwrap().0[3].kind, None);
        for (chosen, said) in [
            (vec![], "redact.model.labels.STREET"),
            (vec![("STREET", "section")], "`section` is not an entity type"),
            (vec![("STREET", "none"), ("PERS", "person")], "redact.model.labels.PERS"),
        ] {
            let error = labels(&chosen).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let gap = LabelMap::parse(br#"{"id2label":{"0":"O","5":"B-PER"}}"#, &BTreeMap::new()).unwrap_err();
        assert!(gap.contains("`5`"), "{gap}");
    }

    #[test]
    fn the_parts_of_a_type_add_up_and_words_are_joined() {
        let map = labels(&[("STREET", "none")]).unwrap();
        let first = map.decide(&[1.0, 2.0, 0.0, 0.0], 0.5).unwrap();
        assert!(first.begins && first.kind == Kind::Person && first.probability > 0.6, "{first:?}");
        let second = map.decide(&[0.0, 0.0, 3.0, 0.0], 0.5).unwrap();
        assert!(!second.begins);
        assert_eq!(map.decide(&[0.0, 0.0, 0.0, 0.0], 0.51), None);
        assert_eq!(map.decide(&[f32::NAN; 4], 0.5), None);
        let words =
            [(0..4, Some(first)), (5..9, Some(second)), (9..10, None), (11..15, Some(second)), (16..20, Some(first))];
        let spans: Vec<_> = join(words.into_iter()).iter().map(|f| (f.start, f.end)).collect();
        assert_eq!(spans, [(0, 9), (11, 15), (16, 20)]);
    }
}
