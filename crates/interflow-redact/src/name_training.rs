//! For fitting the weights of names: the candidates of a text with their features, and the weights as numbers.

use crate::detect::{self, Finding, KindFilter, NameModel, ScanState};
use crate::text::normalized_text::normalize;
use crate::text::token::TokenList;

pub use crate::detect::{NameScores, NameWeights};

/// A run of words that may be a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrainingCandidate {
    pub start: usize,
    /// End offset in bytes, exclusive; both refer to the original text.
    pub end: usize,
    /// Index of the model that scores it, below [`MODELS`].
    pub model: usize,
    /// Indices of its features, below [`FEATURES`].
    pub features: Vec<usize>,
}

/// Number of models: one for each way in which a candidate arises.
pub const MODELS: usize = NameModel::ALL.len();

/// Number of features, the same for all models.
pub const FEATURES: usize = detect::Feature::ALL.len();

/// The name of a model and of a feature in it.
///
/// # Panics
/// When one of the indices is too large.
pub fn feature_name(model: usize, feature: usize) -> (&'static str, &'static str) {
    (NameModel::ALL[model].as_str(), detect::Feature::ALL[feature].name())
}

/// The candidates of a text under these weights: costly features are only looked for where the others suggest a name.
/// `model` is what a model found in the text, if there is one.
pub fn candidates(text: &str, weights: &NameWeights, model: Option<&[Finding]>) -> Vec<TrainingCandidate> {
    let (plain, map) = normalize(text);
    let model = model.map(|m| detect::ModelVotes::new(m.to_vec(), &map));
    let mut tokens = TokenList::default();
    tokens.tokenize(&plain);
    tokens.capitalize_known_words(&plain);
    let mut scan = ScanState {
        text: &plain,
        bytes: plain.as_bytes(),
        tokens: &tokens,
        wants: &KindFilter::default(),
        names: weights,
        model: model.as_ref(),
        member_value: usize::MAX,
        found: &mut Vec::new(),
        runs: detect::ByteRunCache::default(),
        languages: std::cell::OnceCell::new(),
    };
    let identity = map.is_identity();
    let training = |(start, end, evidence): (usize, usize, detect::NameEvidence)| TrainingCandidate {
        start: if identity { start } else { map.start(start) },
        end: if identity { end } else { map.end(end) },
        model: evidence.model as usize,
        features: evidence.features.iter().map(|f| f as usize).collect(),
    };
    detect::name_candidates(&mut scan).into_iter().map(training).collect()
}
