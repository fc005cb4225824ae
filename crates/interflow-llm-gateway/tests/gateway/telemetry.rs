//! The audit log while its configuration changes.

use std::path::Path;
use std::sync::Arc;

use interflow_limits::{NoRedis, QuotaConfig, UsageLimiter};
use interflow_llm_gateway::llm_telemetry::{AuditConfig, LlmTelemetry, TelemetryConfig, verify};
use interflow_proxy::LocalClient;
use interflow_types::units::ByteSize;
use serde_json::json;

#[tokio::test]
async fn the_audit_log_has_one_writer_while_its_configuration_changes() {
    let home = tempfile::tempdir().unwrap();
    let limits = UsageLimiter::with_deps(
        &QuotaConfig::default(),
        Path::new("/"),
        &NoRedis,
        interflow_limits::LimiterDeps::default(),
    )
    .unwrap();
    let telemetry = TelemetryConfig::default();
    let first = AuditConfig { enabled: true, ..AuditConfig::default() };
    let egress = Arc::new(LocalClient::default());
    let service = LlmTelemetry::new(&first, &telemetry, home.path(), limits, egress, 0).unwrap();
    let record = || service.record_settings("127.0.0.1", &json!([]));
    let (other, off) = (AuditConfig { rotate: ByteSize(1 << 20), ..first.clone() }, AuditConfig::default());
    for config in [&other, &off, &other] {
        record();
        let prepared = service.prepare(config, &telemetry, home.path()).unwrap();
        record();
        service.activate(prepared, 0);
    }
    record();
    service.close();
    // While it was off, none was written.
    let verified = verify(&home.path().join("audit.jsonl"), None).unwrap();
    assert_eq!((verified.lines, verified.anchored), (5, true));
}
