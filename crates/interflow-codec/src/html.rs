//! Escaping for HTML.

/// Escapes text for HTML, for elements and for quoted attribute values.
pub fn escape(text: &str) -> String {
    // The ampersand first, since the other references begin with it.
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}
