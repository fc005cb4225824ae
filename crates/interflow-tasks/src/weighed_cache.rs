//! A cache of values of different weights.

use std::hash::Hash;

use hashlink::LinkedHashMap;

/// Values with their weights, in the order of their last use. The caller says what is too heavy, and removes the oldest
/// until it is light enough.
#[derive(Debug)]
pub struct WeighedCache<K, V> {
    entries: LinkedHashMap<K, (V, u64)>,
    weight: u64,
}

impl<K, V> Default for WeighedCache<K, V> {
    fn default() -> Self {
        Self { entries: LinkedHashMap::default(), weight: 0 }
    }
}

impl<K: Eq + Hash, V> WeighedCache<K, V> {
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The sum of the weights.
    pub const fn weight(&self) -> u64 {
        self.weight
    }

    /// A value, which is the most recently used one from now on.
    pub fn get(&mut self, key: &K) -> Option<&V> {
        self.entries.to_back(key).map(|(value, _)| &*value)
    }

    /// Adds a value, in place of an earlier one with the same key.
    pub fn insert(&mut self, key: K, value: V, weight: u64) {
        self.weight += weight;
        if let Some((_, earlier)) = self.entries.insert(key, (value, weight)) {
            self.weight -= earlier;
        }
    }

    pub fn remove(&mut self, key: &K) {
        if let Some((_, weight)) = self.entries.remove(key) {
            self.weight -= weight;
        }
    }

    /// Removes the value that was not used for longest; `false` if there is none.
    pub fn remove_oldest(&mut self) -> bool {
        let oldest = self.entries.pop_front();
        self.weight -= oldest.as_ref().map_or(0, |(_, (_, weight))| *weight);
        oldest.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_goes_first_and_weights_are_those_of_what_is_there() {
        let mut cache = WeighedCache::default();
        cache.insert("a", 1, 10);
        cache.insert("b", 2, 20);
        cache.insert("a", 3, 5);
        cache.insert("c", 4, 1);
        assert_eq!((cache.weight(), cache.len(), cache.get(&"b")), (26, 3, Some(&2)));
        assert!(cache.remove_oldest());
        assert_eq!((cache.weight(), cache.get(&"a")), (21, None));
        cache.remove(&"b");
        assert!(cache.remove_oldest() && !cache.remove_oldest());
        assert_eq!((cache.weight(), cache.is_empty()), (0, true));
    }
}
