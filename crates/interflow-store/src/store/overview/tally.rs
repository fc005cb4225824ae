//! Figures by name, of a bounded number of names.

use std::collections::HashMap;

use crate::overview::{NamedFigures, NamedSeries};

/// Names told apart per overview and list; the flows of further ones are summed up.
const MAX_NAMES: usize = 10_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct TallyEntry {
    requests: u64,
    errors: u64,
    bytes: u64,
    /// Requests by bucket; empty unless the tally keeps series.
    series: Vec<u32>,
}

/// Figures by name. The first entry is that of all names over the limit.
pub(crate) struct Tally {
    numbers: HashMap<Box<str>, u32>,
    entries: Vec<TallyEntry>,
    /// Buckets of each series, 0 for none.
    buckets: usize,
}

impl Tally {
    pub(crate) fn new(buckets: usize) -> Self {
        Self { numbers: HashMap::new(), entries: vec![TallyEntry::default()], buckets }
    }

    /// The number of a name, by which [`add`](Self::add) finds its entry.
    pub(crate) fn number(&mut self, name: &str) -> u32 {
        if let Some(known) = self.numbers.get(name) {
            return *known;
        }
        if self.numbers.len() >= MAX_NAMES {
            return 0;
        }
        let number = self.entries.len() as u32;
        self.entries.push(TallyEntry::default());
        self.numbers.insert(name.into(), number);
        number
    }

    pub(crate) fn add(&mut self, number: u32, bucket: usize, is_error: bool, bytes: u64) {
        let Some(entry) = self.entries.get_mut(number as usize) else { return };
        entry.requests += 1;
        entry.errors += u64::from(is_error);
        entry.bytes = entry.bytes.saturating_add(bytes);
        if self.buckets > 0 {
            entry.series.resize(self.buckets, 0);
            if let Some(n) = entry.series.get_mut(bucket) {
                *n += 1;
            }
        }
    }

    /// The names with the most requests, and the entry of those over the limit.
    fn ranked(&self) -> Vec<(Option<&str>, &TallyEntry)> {
        let named = self.numbers.iter().map(|(name, i)| (Some(&**name), *i as usize));
        let all = named.chain([(None, 0)]).filter_map(|(name, i)| Some((name, self.entries.get(i)?)));
        let mut all: Vec<_> = all.filter(|(_, e)| e.requests > 0).collect();
        // By name among equals, so that the order is the same every time.
        all.sort_by(|a, b| b.1.requests.cmp(&a.1.requests).then_with(|| a.0.cmp(&b.0)));
        all
    }

    pub(crate) fn top(&self, most: usize) -> Vec<NamedFigures> {
        let figures = |(name, e): (Option<&str>, &TallyEntry)| NamedFigures {
            name: name.map(str::to_owned),
            requests: e.requests,
            errors: e.errors,
            bytes: e.bytes,
        };
        self.ranked().into_iter().take(most).map(figures).collect()
    }

    /// The series of the first names, and one without a name for the sum of all others.
    pub(crate) fn top_series(&self, most: usize) -> Vec<NamedSeries> {
        let ranked = self.ranked();
        let (named, unnamed): (Vec<_>, Vec<_>) = ranked.into_iter().partition(|(name, _)| name.is_some());
        let values = |e: &TallyEntry| (0..self.buckets).map(|i| e.series.get(i).copied().unwrap_or(0).into()).collect();
        let mut series: Vec<NamedSeries> = named
            .iter()
            .take(most)
            .map(|(name, e)| NamedSeries { name: name.map(str::to_owned), values: values(e) })
            .collect();
        let mut rest = vec![0u64; self.buckets];
        let others = named.iter().skip(most).chain(&unnamed);
        others.for_each(|(_, e)| rest.iter_mut().zip(&e.series).for_each(|(sum, n)| *sum += u64::from(*n)));
        if rest.iter().any(|n| *n > 0) {
            series.push(NamedSeries { name: None, values: rest });
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_over_the_limit_are_summed_up() {
        let mut tally = Tally::new(2);
        for i in 0..MAX_NAMES + 3 {
            let number = tally.number(&format!("host-{i}"));
            tally.add(number, i % 2, i == 0, 10);
        }
        let top = tally.top(2);
        assert_eq!((top[0].name.as_deref(), top[0].requests, top[0].bytes), (None, 3, 30));
        assert_eq!(top[1].name.as_deref(), Some("host-0"));
        let series = tally.top_series(1);
        assert_eq!((series.len(), series[0].values.clone()), (2, vec![1, 0]));
        assert_eq!(series[1].values.iter().sum::<u64>(), MAX_NAMES as u64 + 2);
    }
}
