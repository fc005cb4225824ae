//! Media types by file name, for files that are served.

use std::path::Path;

/// The media type of a file by the extension of its name, in either case.
pub fn by_file_name(name: &str) -> Option<&'static str> {
    // By extension alone: files are served as their names promise, without looking into them.
    let ending = Path::new(name).extension()?.to_str()?.to_ascii_lowercase();
    Some(match ending.as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" | "map" => "application/json",
        "txt" | "md" | "log" => "text/plain; charset=utf-8",
        "xml" => "application/xml",
        "csv" => "text/csv; charset=utf-8",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        "m3u8" => "application/vnd.apple.mpegurl",
        "mpd" => "application/dash+xml",
        "ts" => "video/mp2t",
        "proto" => "application/x-protobuf",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn media_type_follows_the_file_extension() {
        assert_eq!(by_file_name("x/a.HTML"), Some("text/html; charset=utf-8"));
        assert_eq!((by_file_name("a.unknown"), by_file_name("a")), (None, None));
    }
}
