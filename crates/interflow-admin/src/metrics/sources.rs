//! Metrics of components that the admin side does not know.

use interflow_codec::prometheus::MetricsPage;

/// Writes metrics that the admin side does not know.
pub type MetricsSource = Box<dyn Fn(&mut MetricsPage) + Send + Sync>;
