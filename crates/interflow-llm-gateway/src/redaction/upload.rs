//! Files that are uploaded, in forms or apart from the request that names them (Google's resumable uploads), and what they
//! hold.

use interflow_llm::spans::MediaKind;
use interflow_llm::spans::multipart::FormPart;
use interflow_llm::{LlmRefusal, Provider};
use interflow_types::RequestHead;

use crate::exchange::{bad_request, is_binary_file};

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

/// The kind of a part's content that is not text, and its name in errors.
pub(super) fn media_kind(part: &FormPart, content: &[u8]) -> Option<(MediaKind, &'static str)> {
    let media_type = part.media_type.as_deref().unwrap_or_default();
    if media_type.starts_with("audio/") || media_type.starts_with("video/") {
        Some((MediaKind::Audio, "audio"))
    } else if media_type.starts_with("image/") {
        Some((MediaKind::Image, "image"))
    } else {
        is_binary_file(part, content).then(|| kind_of_bytes(content))
    }
}

/// The kind of a file of an unknown type, by its first bytes.
fn kind_of_bytes(content: &[u8]) -> (MediaKind, &'static str) {
    let begins = |marks: &[&[u8]]| marks.iter().any(|mark| content.starts_with(mark));
    let inner = content.get(4..12).unwrap_or_default();
    let riff = |form: &[u8]| begins(&[b"RIFF"]) && inner.ends_with(form);
    if begins(&[b"\x89PNG", b"\xff\xd8\xff", b"GIF8"]) || riff(b"WEBP") {
        (MediaKind::Image, "image")
    } else if begins(&[b"ID3", b"OggS", b"fLaC", b"\xff\xfb"]) || riff(b"WAVE") || inner.starts_with(b"ftyp") {
        (MediaKind::Audio, "audio")
    } else {
        (MediaKind::Document, "document")
    }
}
