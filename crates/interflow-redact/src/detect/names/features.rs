//! The features of a possible name: what is known of its words, and what surrounds them.

include!(concat!(env!("OUT_DIR"), "/features.rs"));

impl Feature {
    pub(crate) const fn name(self) -> &'static str {
        FEATURE_NAMES[self as usize]
    }
}

/// A set of features.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct FeatureSet([u64; 2]);

const _: () = assert!(Feature::ALL.len() <= 128, "a set of features has this many bits");

impl FeatureSet {
    pub(crate) const fn has(self, feature: Feature) -> bool {
        self.0[feature as usize / 64] >> (feature as usize % 64) & 1 != 0
    }

    pub(crate) const fn insert(&mut self, feature: Feature) {
        self.0[feature as usize / 64] |= 1 << (feature as usize % 64);
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Feature> {
        Feature::ALL.iter().copied().filter(move |f| self.has(*f))
    }
}

impl std::fmt::Debug for FeatureSet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.iter().map(Feature::name)).finish()
    }
}
