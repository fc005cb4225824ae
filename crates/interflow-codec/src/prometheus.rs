//! Prometheus's text format, version 0.0.4, written from values read at the time of a scrape.

use std::fmt::{Display, Write as _};

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A page of metrics.
#[derive(Debug, Default)]
pub struct MetricsPage(String);

/// A counted distribution.
#[derive(Clone, Debug)]
pub struct HistogramSample<'a> {
    /// Upper bounds of the buckets, without the infinite one.
    pub bounds: &'a [f64],
    /// Observations in each bucket alone; the last is above all bounds.
    pub counts: &'a [u64],
    pub sum: f64,
}

impl MetricsPage {
    pub fn into_text(self) -> String {
        self.0
    }

    /// A counter without labels.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family("counter", name, help, &[], [([""; 0], value)]);
    }

    /// A gauge without labels.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family("gauge", name, help, &[], [([""; 0], value)]);
    }

    /// A counter or gauge with its label values, in the order of the label names, and values.
    pub fn family<L, S, V>(
        &mut self,
        kind: &str,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = (L, V)>,
    ) where
        L: AsRef<[S]>,
        S: AsRef<str>,
        V: Display,
    {
        self.head(kind, name, help);
        for (of, value) in values {
            self.sample(name, labels, of.as_ref(), None, value);
        }
    }

    /// A histogram with its label values, in the order of the label names.
    pub fn histogram<'a, L, S>(
        &mut self,
        name: &str,
        help: &str,
        labels: &[&str],
        values: impl IntoIterator<Item = (L, HistogramSample<'a>)>,
    ) where
        L: AsRef<[S]>,
        S: AsRef<str>,
    {
        self.head("histogram", name, help);
        for (of, histogram) in values {
            let (of, mut total) = (of.as_ref(), 0);
            for (bound, n) in histogram.bounds.iter().zip(histogram.counts) {
                // Buckets are cumulative in the format.
                total += n;
                self.sample(&format!("{name}_bucket"), labels, of, Some(&bound.to_string()), total);
            }
            // Observations above all bounds.
            total += histogram.counts.get(histogram.bounds.len()).copied().unwrap_or_default();
            self.sample(&format!("{name}_bucket"), labels, of, Some("+Inf"), total);
            self.sample(&format!("{name}_sum"), labels, of, None, histogram.sum);
            self.sample(&format!("{name}_count"), labels, of, None, total);
        }
    }

    fn head(&mut self, kind: &str, name: &str, help: &str) {
        if !help.is_empty() {
            let _ = writeln!(self.0, "# HELP {name} {help}");
        }
        let _ = writeln!(self.0, "# TYPE {name} {kind}");
    }

    fn sample<S: AsRef<str>>(&mut self, name: &str, labels: &[&str], of: &[S], le: Option<&str>, value: impl Display) {
        // The three characters that the format escapes in label values.
        let escaped = |v: &str| v.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let pairs = labels.iter().zip(of).map(|(label, v)| format!("{label}=\"{}\"", escaped(v.as_ref())));
        let pairs: Vec<_> = pairs.chain(le.map(|le| format!("le=\"{le}\""))).collect();
        let _ = match pairs.is_empty() {
            true => writeln!(self.0, "{name} {value}"),
            false => writeln!(self.0, "{name}{{{}}} {value}", pairs.join(",")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_labels_are_escaped_and_histogram_buckets_are_cumulative() {
        let mut page = MetricsPage::default();
        page.gauge("up", "", 0.5);
        page.family("counter", "a", "Some.", &["x", "y"], [(["q\"\n", "\\"], 2)]);
        let histogram = HistogramSample { bounds: &[0.005, 1.0], counts: &[1, 2, 3], sum: 7.5 };
        page.histogram("d", "", &["of"], [(["m"], histogram)]);
        assert_eq!(
            page.into_text(),
            "# TYPE up gauge\nup 0.5\n# HELP a Some.\n# TYPE a counter\na{x=\"q\\\"\\n\",y=\"\\\\\"} 2\n# TYPE d histogram\n\
             d_bucket{of=\"m\",le=\"0.005\"} 1\nd_bucket{of=\"m\",le=\"1\"} 3\nd_bucket{of=\"m\",le=\"+Inf\"} 6\n\
             d_sum{of=\"m\"} 7.5\nd_count{of=\"m\"} 6\n"
        );
    }
}
