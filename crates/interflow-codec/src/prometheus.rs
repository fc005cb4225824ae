//! Prometheus's text format, version 0.0.4, written from values read at the time of a scrape.
//!
//! A family is described once: `# HELP`, `# TYPE`, the label names and the reference page come from there.

use std::fmt::{Display, Write as _};

/// The content type of a page.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

interflow_types::labelled_enum! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum MetricKind {
        Counter "counter",
        Gauge "gauge",
        Histogram "histogram",
    }
}

/// A family of metrics.
#[derive(Debug)]
pub struct MetricFamily {
    pub name: &'static str,
    pub kind: MetricKind,
    /// Label names, in the order in which values are given.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

impl MetricFamily {
    /// The unit, which Prometheus's conventions put at the end of the name.
    pub fn unit(&self) -> Option<&'static str> {
        let name = self.name.strip_suffix("_total").unwrap_or(self.name);
        ["seconds", "bytes", "usd"].into_iter().find(|unit| name.rsplit('_').next() == Some(unit))
    }
}

/// The families of some subsystems, each with a title.
pub type MetricTable = [(&'static str, &'static [&'static MetricFamily])];

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

    /// A counter or gauge without labels.
    pub fn value(&mut self, family: &MetricFamily, value: impl Display) {
        self.samples(family, [([""; 0], value)]);
    }

    /// A counter or gauge with its label values, in the order of the label names, and values.
    pub fn samples<L, S, V>(&mut self, family: &MetricFamily, values: impl IntoIterator<Item = (L, V)>)
    where
        L: AsRef<[S]>,
        S: AsRef<str>,
        V: Display,
    {
        self.head(family);
        for (of, value) in values {
            self.sample(family.name, family.labels, of.as_ref(), None, value);
        }
    }

    /// A histogram with its label values, in the order of the label names.
    pub fn histogram<'a, L, S>(
        &mut self,
        family: &MetricFamily,
        values: impl IntoIterator<Item = (L, HistogramSample<'a>)>,
    ) where
        L: AsRef<[S]>,
        S: AsRef<str>,
    {
        self.head(family);
        let (name, labels) = (family.name, family.labels);
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

    fn head(&mut self, family: &MetricFamily) {
        let MetricFamily { name, kind, help, .. } = family;
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {}", kind.as_str());
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

    const fn family(
        kind: MetricKind,
        name: &'static str,
        labels: &'static [&'static str],
        help: &'static str,
    ) -> MetricFamily {
        MetricFamily { name, kind, labels, help }
    }

    #[test]
    fn metric_labels_are_escaped_and_histogram_buckets_are_cumulative() {
        let mut page = MetricsPage::default();
        page.value(&family(MetricKind::Gauge, "up", &[], "Whether\nit is up."), 0.5);
        page.samples(&family(MetricKind::Counter, "a", &["x", "y"], "Some."), [(["q\"\n", "\\"], 2)]);
        let histogram = HistogramSample { bounds: &[0.005, 1.0], counts: &[1, 2, 3], sum: 7.5 };
        page.histogram(&family(MetricKind::Histogram, "d", &["of"], "Times."), [(["m"], histogram)]);
        assert_eq!(
            page.into_text(),
            "# HELP up Whether\\nit is up.\n# TYPE up gauge\nup 0.5\n# HELP a Some.\n# TYPE a counter\n\
             a{x=\"q\\\"\\n\",y=\"\\\\\"} 2\n# HELP d Times.\n# TYPE d histogram\n\
             d_bucket{of=\"m\",le=\"0.005\"} 1\nd_bucket{of=\"m\",le=\"1\"} 3\nd_bucket{of=\"m\",le=\"+Inf\"} 6\n\
             d_sum{of=\"m\"} 7.5\nd_count{of=\"m\"} 6\n"
        );
    }

    #[test]
    fn a_unit_is_the_end_of_the_name() {
        for (name, unit) in [
            ("a_duration_seconds", Some("seconds")),
            ("a_cost_usd_total", Some("usd")),
            ("a_bytes_total", Some("bytes")),
            ("a_requests_total", None),
        ] {
            assert_eq!(family(MetricKind::Counter, name, &[], "").unit(), unit, "{name}");
        }
    }
}
