//! What detectors besides the built-in ones find in the texts of a request.

use interflow_llm::LlmRefusal;
use interflow_redact::{AdditionalFindings, RedactError};
use interflow_types::StatusCode;

use super::effective_policy::RedactSettings;

/// Asks every configured detector about all texts.
///
/// # Errors
/// One failed and is configured to fail closed.
pub(super) async fn collect(settings: &RedactSettings, texts: &[String]) -> Result<AdditionalFindings, LlmRefusal> {
    settings.detectors.find_all(texts).await.map_err(|e| detector_failed(&e))
}

/// A detector failed, and redaction is configured to fail closed. The client is not told which one.
fn detector_failed(e: &RedactError) -> LlmRefusal {
    tracing::error!("{e}");
    let message = "a detector of redaction is unavailable; the request was not sent";
    LlmRefusal::new(StatusCode::BAD_GATEWAY, "redaction_error", "request_failed", message)
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use interflow_redact::{ModelConfig, RedactConfig};
    use interflow_types::{Error, ErrorKind, HttpClient, Request, ResponseFuture};

    use crate::redaction::RedactionService;

    struct NoNetwork;

    impl HttpClient for NoNetwork {
        fn send(&self, _: Request) -> ResponseFuture<'_> {
            Box::pin(async { Err(Error::new(ErrorKind::Internal, "no network")) })
        }
    }

    #[test]
    fn a_model_that_cannot_be_loaded_prevents_the_start_and_a_reload() {
        let with_model = RedactConfig {
            model: Some(ModelConfig { path: "nowhere".into(), ..ModelConfig::default() }),
            ..RedactConfig::default()
        };
        let start = |config: &RedactConfig| RedactionService::new(config, Path::new("/"), [1; 32], Arc::new(NoNetwork));
        assert!(start(&with_model).err().is_some_and(|e| e.contains("redact.model.sha256")));
        let running = start(&RedactConfig::default()).expect("the built-in detectors need no files");
        assert!(running.compile(&with_model, Path::new("/")).err().is_some_and(|e| e.contains("redact.model.sha256")));
    }
}
