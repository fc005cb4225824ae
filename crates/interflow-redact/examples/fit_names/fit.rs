//! The fit: least squares on one side, towards labelled texts, by coordinate descent from the weights there are.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use interflow_redact::name_training::{
    FEATURES, MODELS, NameScores, NameWeights, TrainingCandidate, candidates, feature_name,
};
use interflow_redact::{Finding, Kind};
use serde::Deserialize;

/// Explains the file to who opens it.
const HEADER: &str = "\
# How much each feature of a possible name counts for each kind, in percent of confidence. The sum over a candidate's
# features is its confidence; the highest kind wins. `interflow redact --explain` shows the contributions.
# Written by `cargo run --release -p interflow-redact --example fit_names`; features: data/features.txt.
";

/// A labelled text, in presidio-research's format.
#[derive(Deserialize)]
pub struct LabelledText {
    pub full_text: String,
    #[serde(default)]
    pub spans: Vec<Label>,
    /// What a model found in it, if there is one; `accuracy --model` adds it.
    #[serde(default)]
    pub model: Option<Vec<Label>>,
}

/// Offsets are in code points.
#[derive(Deserialize)]
pub struct Label {
    pub entity_type: String,
    pub start_position: usize,
    pub end_position: usize,
    /// The confidence to reach, where another detector made the label; a person's label has none.
    pub confidence: Option<u8>,
}

/// What a candidate should become.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// No name: no score may be reported.
    Nothing,
    /// A name of the kind with this index in the scores, at about this confidence.
    Name { kind: usize, confidence: u8, exact: bool },
}

/// Candidates that are alike.
type Examples = BTreeMap<(usize, Vec<usize>, Target), f64>;

/// The confidence of labels without one.
const LABELLED_CONFIDENCE: u8 = 70;
/// The score of what is not a name, at most: less than what is reported.
const NOTHING: f64 = 25.0;
/// The distance from the winning kind to the others, at least.
const MARGIN: f64 = 6.0;
/// Default policies act on this confidence: beyond it, too high a one matters little.
const ACTED_ON: u8 = 50;
/// What a point above the goal counts, in points below it.
const TOO_HIGH: f64 = 0.02;
const SWEEPS: usize = 60;
const ROUNDS: usize = 3;
const KINDS: usize = 3;

/// The texts of a file: a JSON array, or one object per line.
pub fn read_texts(json: &str) -> Result<Vec<LabelledText>, String> {
    if json.trim_start().starts_with('[') {
        return serde_json::from_str(json).map_err(|e| e.to_string());
    }
    let line = |(n, line): (usize, &str)| serde_json::from_str(line).map_err(|e| format!("line {}: {e}", n + 1));
    json.lines().enumerate().filter(|(_, l)| !l.trim().is_empty()).map(line).collect()
}

/// Fits the weights to the texts, each with the number of times that it counts. `strength`: how many examples outweigh
/// a weight of `prior`. `only`: the names of the models or features that move begin with it.
pub fn fit(prior: &NameWeights, texts: &[(LabelledText, f64)], strength: f64, only: &str) -> NameWeights {
    let mut weights = prior.clone();
    // Which features are looked for depends on the weights.
    for _ in 0..ROUNDS {
        let examples = examples(&weights, texts);
        let mut model = Model::from(&weights);
        let anchor = Model::from(prior);
        for _ in 0..SWEEPS {
            model.sweep(&anchor, &examples, strength, only);
        }
        weights = model.rounded();
    }
    weights
}

/// The share of candidates whose kind, or whose absence at the default threshold, is as labelled.
pub fn agreement(weights: &NameWeights, texts: &[(LabelledText, f64)]) -> f64 {
    let model = Model::from(weights);
    let (mut right, mut all) = (0.0, 0.0);
    for ((at, features, target), count) in examples(weights, texts) {
        let scores = model.scores(at, &features);
        let best = (0..KINDS).rev().max_by(|a, b| scores[*a].total_cmp(&scores[*b])).unwrap_or(0);
        let acted = scores[best] >= f64::from(ACTED_ON);
        right += count
            * f64::from(u8::from(match target {
                Target::Name { kind, confidence, .. } if confidence >= ACTED_ON => acted && best == kind,
                _ => !acted,
            }));
        all += count;
    }
    right / f64::max(all, 1.0)
}

/// The candidates of the texts with their targets.
fn examples(weights: &NameWeights, texts: &[(LabelledText, f64)]) -> Examples {
    let mut examples = Examples::new();
    for (text, times) in texts {
        let bytes: Vec<usize> = text.full_text.char_indices().map(|(b, _)| b).chain([text.full_text.len()]).collect();
        let model = text.model.as_ref().map(|spans| findings(spans, &bytes));
        for candidate in candidates(&text.full_text, weights, model.as_deref()) {
            if let Some(target) = target_of(&candidate, text, &bytes) {
                *examples.entry((candidate.model, candidate.features, target)).or_default() += times;
            }
        }
    }
    examples
}

/// What a model found, in bytes.
fn findings(spans: &[Label], bytes: &[usize]) -> Vec<Finding> {
    let finding = |l: &Label| {
        let (start, end) = (*bytes.get(l.start_position)?, *bytes.get(l.end_position)?);
        let kind = Kind::from_name(&l.entity_type)?;
        Some(Finding { start, end, kind, confidence: l.confidence.unwrap_or(100), rule: 0, evidence: None })
    };
    spans.iter().filter_map(finding).collect()
}

/// The target by the label that covers most of the candidate; `None` where the label says nothing of names.
fn target_of(candidate: &TrainingCandidate, text: &LabelledText, bytes: &[usize]) -> Option<Target> {
    let at = |position: usize| bytes.get(position).copied().unwrap_or(text.full_text.len());
    let shared =
        |l: &Label| at(l.end_position).min(candidate.end).saturating_sub(at(l.start_position).max(candidate.start));
    let Some(label) = text.spans.iter().filter(|l| shared(l) > 0).max_by_key(|l| shared(l)) else {
        return Some(Target::Nothing);
    };
    let kind = match label.entity_type.to_ascii_uppercase().as_str() {
        "PERSON" => 0,
        "LOCATION" | "GPE" => 1,
        "ORGANIZATION" => 2,
        _ => return None,
    };
    let confidence = label.confidence.unwrap_or(LABELLED_CONFIDENCE);
    Some(Target::Name { kind, confidence, exact: label.confidence.is_some() })
}

/// The weights as numbers that can move by less than one.
struct Model(Vec<[f64; KINDS]>);

impl Model {
    fn from(weights: &NameWeights) -> Self {
        let mut weights = weights.clone();
        let row = |at: usize| {
            let row = *weights.row(at / FEATURES, at % FEATURES);
            [row.person, row.place, row.organization].map(f64::from)
        };
        Self((0..MODELS * FEATURES).map(row).collect())
    }

    fn rounded(&self) -> NameWeights {
        let mut weights = NameWeights::zero();
        for (at, row) in self.0.iter().enumerate() {
            let [person, place, organization] = row.map(|w| w.round() as i16);
            *weights.row(at / FEATURES, at % FEATURES) = NameScores { person, place, organization };
        }
        weights
    }

    fn scores(&self, model: usize, features: &[usize]) -> [f64; KINDS] {
        let mut sum = [0.0; KINDS];
        for feature in features {
            let row = self.0[model * FEATURES + feature];
            (0..KINDS).for_each(|k| sum[k] += row[k]);
        }
        sum
    }

    /// One Newton step for each weight in turn.
    fn sweep(&mut self, anchor: &Self, examples: &Examples, strength: f64, only: &str) {
        let mut scores: Vec<[f64; KINDS]> = examples.keys().map(|(m, f, _)| self.scores(*m, f)).collect();
        let mut having: Vec<Vec<usize>> = vec![Vec::new(); self.0.len()];
        for (n, (model, features, _)) in examples.keys().enumerate() {
            features.iter().for_each(|f| having[model * FEATURES + f].push(n));
        }
        let all: Vec<(Target, f64)> = examples.iter().map(|((_, _, target), count)| (*target, *count)).collect();
        let moves = |at: usize| {
            let (model, feature) = feature_name(at / FEATURES, at % FEATURES);
            model.starts_with(only) || feature.starts_with(only)
        };
        for (at, having) in having.iter().enumerate().filter(|(at, h)| !h.is_empty() && moves(*at)) {
            for kind in 0..KINDS {
                let pull = |(slope, curve), n: &usize| {
                    let (s, c) = all[*n].0.slope(&scores[*n], kind);
                    (slope + s * all[*n].1, curve + c * all[*n].1)
                };
                let (slope, curve) = having.iter().fold((0.0, 0.0), pull);
                let slope = slope + strength * (self.0[at][kind] - anchor.0[at][kind]);
                let step = -slope / (curve + strength);
                self.0[at][kind] += step;
                having.iter().for_each(|n| scores[*n][kind] += step);
            }
        }
    }
}

impl Target {
    /// Half the first and the second derivative of the loss by the score of a kind.
    fn slope(self, scores: &[f64; KINDS], kind: usize) -> (f64, f64) {
        let above = |limit: f64| if scores[kind] > limit { (scores[kind] - limit, 1.0) } else { (0.0, 0.0) };
        let Self::Name { kind: wanted, confidence, exact } = self else { return above(NOTHING) };
        let goal = f64::from(confidence);
        if kind != wanted {
            return above(if confidence < ACTED_ON { goal } else { scores[wanted].max(goal) } - MARGIN);
        }
        let short = goal - scores[kind];
        match () {
            () if short > 0.0 || confidence < ACTED_ON => (-short, 1.0),
            () if exact && confidence < 95 => (-short * TOO_HIGH, TOO_HIGH),
            () => (0.0, 0.0),
        }
    }
}

/// The file of weights, which [`NameWeights::parse`] reads.
pub fn to_toml(weights: &NameWeights) -> String {
    let (mut text, mut weights) = (HEADER.to_owned(), weights.clone());
    for model in 0..MODELS {
        let _ = write!(text, "\n[{}]\n", feature_name(model, 0).0);
        for feature in 0..FEATURES {
            let scores = *weights.row(model, feature);
            let kinds = [("person", scores.person), ("place", scores.place), ("organization", scores.organization)];
            let parts: Vec<String> =
                kinds.iter().filter(|(_, n)| *n != 0).map(|(kind, n)| format!("{kind} = {n}")).collect();
            if !parts.is_empty() {
                let _ = writeln!(text, "{} = {{ {} }}", feature_name(model, feature).1, parts.join(", "));
            }
        }
    }
    text
}
