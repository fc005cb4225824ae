//! Metrics of components that the admin side does not know.

use interflow_codec::prometheus::MetricsPage;
use parking_lot::Mutex;

/// Writes metrics that the admin side does not know.
pub type MetricsSource = Box<dyn Fn(&mut MetricsPage) + Send + Sync>;

pub(crate) struct MetricsSources(Mutex<Vec<MetricsSource>>);

impl MetricsSources {
    pub(crate) fn new(sources: Vec<MetricsSource>) -> Self {
        Self(Mutex::new(sources))
    }

    pub(crate) fn add(&self, source: MetricsSource) {
        self.0.lock().push(source);
    }

    pub(crate) fn write(&self, page: &mut MetricsPage) {
        self.0.lock().iter().for_each(|write| write(page));
    }
}
