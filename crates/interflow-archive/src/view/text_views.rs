//! Text bodies that are easier to read when reformatted: markup, forms, multipart, GraphQL, playlists.
//!
//! All of them accept truncated bodies and render what is there.

use interflow_types::Headers;

use super::{form, graphql, markup, playlist};

/// A text format that can be rendered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextKind {
    /// `application/x-www-form-urlencoded`.
    Form,
    /// `multipart/*` (RFC 2046 5.1).
    Multipart,
    /// XML and its applications: SVG, Atom, SOAP, MPD.
    Xml,
    Html,
    /// A GraphQL query, plain or in JSON.
    GraphQl,
    /// An HLS playlist (RFC 8216).
    Playlist,
}

impl TextKind {
    /// By media type, and by the first bytes if that is ambiguous.
    pub fn detect(headers: &Headers, body: &[u8]) -> Option<Self> {
        let media = interflow_store::media_type(headers).unwrap_or_default();
        Some(match media.as_str() {
            "application/x-www-form-urlencoded" => Self::Form,
            "text/html" | "application/xhtml+xml" => Self::Html,
            "text/xml" | "application/xml" | "application/dash+xml" => Self::Xml,
            "application/graphql" => Self::GraphQl,
            "application/vnd.apple.mpegurl" | "application/x-mpegurl" | "audio/mpegurl" | "audio/x-mpegurl" => {
                Self::Playlist
            }
            m if m.starts_with("multipart/") => Self::Multipart,
            m if m.ends_with("+xml") => Self::Xml,
            // GraphQL has no media type of its own in JSON.
            m if m.ends_with("json") && graphql::is_request(body) => Self::GraphQl,
            "" | "text/plain" | "application/octet-stream" if body.starts_with(b"#EXTM3U") => Self::Playlist,
            _ => return None,
        })
    }
}

/// Renders a body: `text` is the decoded text, `body` its bytes; to about `cap` bytes at most.
pub fn format_text(kind: TextKind, headers: &Headers, body: &[u8], text: &str, cap: usize) -> String {
    let mut out = match kind {
        TextKind::Form => form::fields(text, cap),
        TextKind::Multipart => form::parts(headers, body, cap),
        TextKind::Xml => markup::format_markup(text, false, cap),
        TextKind::Html => markup::format_markup(text, true, cap),
        TextKind::GraphQl => graphql::format_request(text),
        TextKind::Playlist => playlist::format_playlist(text, cap),
    };
    // The renderers stop near the cap; this makes it exact.
    if out.len() > cap {
        out.truncate(out.floor_char_boundary(cap));
        out.push_str("\n…\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_detected_by_media_type_and_first_bytes() {
        for (media, body, kind) in [
            ("application/x-www-form-urlencoded; charset=utf-8", "a=1", Some(TextKind::Form)),
            ("multipart/form-data; boundary=x", "", Some(TextKind::Multipart)),
            ("image/svg+xml", "<svg/>", Some(TextKind::Xml)),
            ("application/dash+xml", "<MPD/>", Some(TextKind::Xml)),
            ("Text/HTML", "<p>", Some(TextKind::Html)),
            ("application/json", r#"{"query":"{ me { id } }"}"#, Some(TextKind::GraphQl)),
            ("application/json", r#"{"query":"shoes"}"#, None),
            ("application/x-mpegURL", "", Some(TextKind::Playlist)),
            ("text/plain", "#EXTM3U\n", Some(TextKind::Playlist)),
            ("text/plain", "hello", None),
        ] {
            let headers: Headers = [("Content-Type", media)].into_iter().collect();
            assert_eq!(TextKind::detect(&headers, body.as_bytes()), kind, "{media} {body}");
        }
    }

    #[test]
    fn text_views_are_bounded_for_hostile_input() {
        let kinds =
            [TextKind::Form, TextKind::Multipart, TextKind::Xml, TextKind::Html, TextKind::GraphQl, TextKind::Playlist];
        let hostile = [
            "<a".repeat(50_000),
            "<a>".repeat(50_000),
            "</a>".repeat(50_000),
            "{".repeat(50_000),
            "--x\r\n".repeat(20_000),
            "&=%".repeat(50_000),
            "#EXT-X-STREAM-INF:".repeat(5_000),
            "\u{202e}\u{1b}[31m\0<!--<![CDATA[".repeat(3_000),
        ];
        let headers: Headers = [("Content-Type", "multipart/mixed; boundary=x")].into_iter().collect();
        for kind in kinds {
            for text in &hostile {
                let out = format_text(kind, &headers, text.as_bytes(), text, 10_000);
                assert!(out.len() <= 10_010, "{kind:?}: {}", out.len());
            }
        }
    }
}
