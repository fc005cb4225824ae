//! Every metric as a static, from `data/metrics.txt`: the one place for its name, type, labels and meaning. `# HELP`,
//! `# TYPE` and docs/reference/metrics.md are made from it, and the dashboard and the alerts in deploy/ are checked against it.

use interflow_codec::prometheus::{MetricFamily, MetricKind, MetricTable};

include!(concat!(env!("OUT_DIR"), "/metrics.rs"));
