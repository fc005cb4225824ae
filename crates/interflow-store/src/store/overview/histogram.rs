//! A histogram of durations with buckets that grow with the value, so that percentiles of any span of time are within
//! 2 %, however many flows it has.

/// 32 cells per power of two: the middle of a cell is at most 1/64 away from any value in it.
const CELL_BITS: u32 = 5;
/// Durations above some 25 days count as that.
const MAX_BITS: u32 = 41;
const CELLS: usize = ((MAX_BITS - CELL_BITS + 1) as usize) << CELL_BITS;

/// Counts of durations in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct DurationHistogram {
    cells: Vec<u32>,
    count: u64,
}

impl Default for DurationHistogram {
    fn default() -> Self {
        Self { cells: vec![0; CELLS], count: 0 }
    }
}

impl DurationHistogram {
    pub(crate) fn add(&mut self, micros: u64) {
        if let Some(cell) = self.cells.get_mut(cell_of(micros)) {
            *cell = cell.saturating_add(1);
            self.count += 1;
        }
    }

    /// The value that this share of the durations does not exceed, by the nearest rank; `None` without any.
    pub(crate) fn percentile(&self, share: f64) -> Option<u64> {
        let rank = ((share * self.count as f64).ceil() as u64).max(1);
        let mut count = 0;
        for (i, n) in self.cells.iter().enumerate() {
            count += u64::from(*n);
            if count >= rank {
                return Some(middle_of(i));
            }
        }
        None
    }
}

fn cell_of(micros: u64) -> usize {
    let value = micros.min((1 << MAX_BITS) - 1);
    let bits = 64 - value.leading_zeros();
    // Small values have a cell each; above, the leading bits select one.
    let shift = bits.saturating_sub(CELL_BITS + 1);
    ((shift as usize) << CELL_BITS) + (value >> shift) as usize
}

fn middle_of(cell: usize) -> u64 {
    let shift = (cell >> CELL_BITS).saturating_sub(1);
    let first = ((cell - (shift << CELL_BITS)) as u64) << shift;
    first + ((1u64 << shift) >> 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn percentiles_are_within_two_percent(mut values in proptest::collection::vec(0u64..1 << 36, 1..200)) {
            let mut histogram = DurationHistogram::default();
            values.iter().for_each(|v| histogram.add(*v));
            values.sort_unstable();
            for share in [0.5, 0.95, 0.99, 1.0] {
                let rank = ((share * values.len() as f64).ceil() as usize).max(1);
                let exact = values[rank - 1];
                let found = histogram.percentile(share).unwrap();
                prop_assert!(found.abs_diff(exact) as f64 <= exact as f64 * 0.02, "{found} for {exact}");
            }
        }
    }

    #[test]
    fn there_is_no_percentile_of_nothing() {
        assert_eq!(DurationHistogram::default().percentile(0.5), None);
    }

    #[test]
    fn the_longest_durations_share_the_last_cell() {
        assert_eq!(cell_of(u64::MAX), CELLS - 1);
        let mut histogram = DurationHistogram::default();
        histogram.add(u64::MAX);
        assert!(histogram.percentile(0.5).is_some());
    }
}
