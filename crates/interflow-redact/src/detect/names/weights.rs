//! The weights of the features: a linear model for each way in which a candidate arises.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::features::{Feature, FeatureSet};
use crate::Kind;

/// The committed weights; `examples/fit_names.rs` writes them.
const COMMITTED_WEIGHTS: &str = include_str!("../../../data/names.weights.toml");

interflow_types::labelled_enum! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub(crate) enum NameModel {
        #[default]
        Word "word",
        Phrase "phrase",
        /// Candidates that are recognised by their form: companies, institutions, known phrases.
        Form "form",
        /// Words that only a model takes for a name.
        ModelOnly "model_only",
    }
}

/// The weights of one feature, or their sum over a candidate: evidence for each kind, in percent of confidence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NameScores {
    pub person: i16,
    pub place: i16,
    pub organization: i16,
}

impl NameScores {
    pub(crate) const fn add(&mut self, other: Self) {
        self.person += other.person;
        self.place += other.place;
        self.organization += other.organization;
    }

    pub(crate) fn best(self) -> i16 {
        self.person.max(self.place).max(self.organization)
    }

    /// The kind with the highest score; a person in a tie, then an organisation.
    pub(crate) const fn kind(self) -> Kind {
        if self.organization > self.person && self.organization >= self.place {
            Kind::Organization
        } else if self.place > self.person {
            Kind::Location
        } else {
            Kind::Person
        }
    }

    pub(crate) const fn of(self, kind: Kind) -> i16 {
        match kind {
            Kind::Location => self.place,
            Kind::Organization => self.organization,
            _ => self.person,
        }
    }
}

/// The file of weights: per model, the scores of each feature by its name.
type WeightsFile = BTreeMap<String, BTreeMap<String, NameScores>>;

/// The weights of all models, by model and feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameWeights {
    models: [[NameScores; Feature::ALL.len()]; NameModel::ALL.len()],
}

static COMMITTED: LazyLock<NameWeights> =
    LazyLock::new(|| NameWeights::parse(COMMITTED_WEIGHTS).expect("a test parses the committed weights"));

impl NameWeights {
    /// The weights that the program was built with.
    pub fn committed() -> &'static Self {
        &COMMITTED
    }

    pub const fn zero() -> Self {
        const ZERO: NameScores = NameScores { person: 0, place: 0, organization: 0 };
        Self { models: [[ZERO; Feature::ALL.len()]; NameModel::ALL.len()] }
    }

    /// Reads a file of weights.
    ///
    /// # Errors
    /// The text is not TOML, or it names a model, a feature or a kind that does not exist.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: WeightsFile = interflow_codec::document::from_toml(text).map_err(|e| e.to_string())?;
        let mut weights = Self::zero();
        for (model, features) in file {
            let section = NameModel::ALL.into_iter().find(|m| m.as_str() == model);
            let at = section
                .ok_or_else(|| format!("[{model}] is not a model: use [word], [phrase], [form] and [model_only]"))?
                as usize;
            for (name, scores) in features {
                let entry = Feature::ALL.iter().find(|f| f.name() == name);
                let feature = entry.ok_or_else(|| format!("{name} in [{model}] is not a feature of names"))?;
                weights.models[at][*feature as usize] = scores;
            }
        }
        Ok(weights)
    }

    pub(crate) const fn of(&self, model: NameModel, feature: Feature) -> NameScores {
        self.models[model as usize][feature as usize]
    }

    /// The weights of a feature by the indices of [`name_training`](crate::name_training).
    pub fn row(&mut self, model: usize, feature: usize) -> &mut NameScores {
        &mut self.models[model][feature]
    }
}

/// Why a span counts as a name: the features of the candidate it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameEvidence {
    pub(crate) model: NameModel,
    pub(crate) features: FeatureSet,
}

/// The part of one feature in a finding's confidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FeatureContribution {
    pub feature: &'static str,
    /// In percent of confidence; the sum is limited to 0 to 95.
    pub weight: i16,
}

impl NameEvidence {
    /// The features that count for or against this kind, with their weights.
    pub fn contributions(&self, kind: Kind) -> Vec<FeatureContribution> {
        let weights = NameWeights::committed();
        let part = |f: Feature| FeatureContribution { feature: f.name(), weight: weights.of(self.model, f).of(kind) };
        self.features.iter().map(part).filter(|c| c.weight != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_weights_are_read_and_every_feature_has_one() {
        let weights = NameWeights::parse(COMMITTED_WEIGHTS).expect("the committed weights");
        for feature in Feature::ALL {
            let used = NameModel::ALL.iter().any(|m| weights.of(*m, *feature) != NameScores::default());
            assert!(used, "{} has no weight in any model: remove the feature", feature.name());
        }
    }

    #[test]
    fn an_unknown_name_in_the_file_is_an_error_that_names_it() {
        for (text, said) in [
            ("[word]\ngiven_tip = { person = 1 }", "given_tip"),
            ("[wort]\ngiven_top = { person = 1 }", "[wort]"),
            ("[word]\ngiven_top = { peerson = 1 }", "peerson"),
        ] {
            let error = NameWeights::parse(text).expect_err("an unknown name");
            assert!(error.contains(said), "{error}");
        }
    }
}
