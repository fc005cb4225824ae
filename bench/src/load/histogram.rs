//! Durations in buckets of about 1.6 % width, from a nanosecond to minutes, without allocation per value.

use crate::load::spec::Quantiles;

/// Buckets per power of two.
const STEPS: u64 = 64;
const BITS: u32 = STEPS.trailing_zeros();

/// A histogram of nanoseconds.
pub struct Histogram {
    counts: Vec<u64>,
    count: u64,
    sum: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; index(u64::MAX >> 20) + 1], count: 0, sum: 0, max: 0 }
    }
}

impl Histogram {
    /// Counts one value.
    pub fn add(&mut self, nanos: u64) {
        let at = index(nanos).min(self.counts.len() - 1);
        self.counts[at] += 1;
        self.count += 1;
        self.sum += nanos;
        self.max = self.max.max(nanos);
    }

    /// Takes in another's values.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The distribution in microseconds.
    pub fn quantiles(&self) -> Quantiles {
        let us = |q| self.quantile(q) as f64 / 1000.0;
        Quantiles {
            count: self.count,
            mean: if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 / 1000.0 },
            p50: us(0.5),
            p90: us(0.9),
            p95: us(0.95),
            p99: us(0.99),
            p999: us(0.999),
            max: self.max as f64 / 1000.0,
        }
    }

    /// The value below which the share `q` of all values lies, in nanoseconds.
    fn quantile(&self, q: f64) -> u64 {
        let rank = (self.count as f64 * q).ceil() as u64;
        let mut seen = 0;
        for (at, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank && *n > 0 {
                return middle(at).min(self.max);
            }
        }
        self.max
    }
}

fn index(value: u64) -> usize {
    if value < STEPS {
        return value as usize;
    }
    let power = value.ilog2() - BITS;
    (u64::from(power + 1) * STEPS + ((value >> power) - STEPS)) as usize
}

fn middle(index: usize) -> u64 {
    let index = index as u64;
    if index < STEPS {
        return index;
    }
    let power = (index / STEPS - 1) as u32;
    let low = (STEPS + index % STEPS) << power;
    low + (1 << power) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_falls_into_a_bucket_within_one_percent_of_it() {
        for value in (0..40).flat_map(|p| [1_u64 << p, (1 << p) + 1, (3 << p) / 2]) {
            let shown = middle(index(value));
            assert!(shown.abs_diff(value) <= value / 64 + 1, "{value} is shown as {shown}");
        }
    }

    #[test]
    fn quantiles_of_a_ramp_are_correct() {
        let mut all = Histogram::default();
        let mut half = Histogram::default();
        (1..=500).for_each(|i| all.add(i * 1000));
        (501..=1000).for_each(|i| half.add(i * 1000));
        all.merge(&half);
        let q = all.quantiles();
        assert_eq!((q.count, q.max), (1000, 1000.0));
        for (shown, meant) in [(q.p50, 500.0), (q.p90, 900.0), (q.p99, 990.0), (q.mean, 500.5)] {
            assert!((shown - meant).abs() < meant * 0.02, "{shown} for {meant}");
        }
    }

    #[test]
    fn an_empty_histogram_has_zeros() {
        assert_eq!(Histogram::default().quantiles().p99, 0.0);
    }
}
