//! Files that are uploaded to Google apart from the request that names them (resumable), in one piece or several.

use interflow_llm::spans::multipart::FormPart;
use interflow_llm::{LlmRefusal, Provider};
use interflow_types::RequestHead;

use super::form_body::media_kind;
use crate::exchange::bad_request;

/// Whether a request belongs to such an upload.
pub(super) fn is_upload(provider: Provider, head: &RequestHead) -> bool {
    matches!(provider, Provider::Gemini | Provider::Vertex) && head.url.path_only().contains("/upload/")
}

/// Checks that what is uploaded of a text is all of it.
///
/// # Errors
/// It is a piece of a text, in which values may be cut.
pub(super) fn check_piece(head: &RequestHead, is_upload: bool, content: &[u8]) -> Result<(), LlmRefusal> {
    let field = |name| head.headers.get_str(name).unwrap_or_default().to_ascii_lowercase();
    let is_whole = matches!(field("x-goog-upload-offset").as_str(), "" | "0")
        && (field("x-goog-upload-command").contains("finalize") || field("x-goog-upload-protocol") == "raw");
    let file = FormPart { file: Some(String::new()), ..FormPart::default() };
    if !is_upload || is_whole || media_kind(&file, content).is_some() {
        return Ok(());
    }
    let message = "a piece of a text file cannot be redacted: send the file in one request (X-Goog-Upload-Command: upload, finalize)";
    Err(bad_request("bad_file", message))
}
