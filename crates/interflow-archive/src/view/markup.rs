//! XML and HTML, one element per line, indented by nesting. Nothing is repaired or omitted: only whitespace between
//! tags changes.

use super::indent;

/// Maximum indentation depth.
const MAX_INDENT: usize = 40;
/// An element with a text up to this length stays on one line.
const MAX_INLINE_LEN: usize = 100;
/// Void elements of HTML (HTML 13.1.2).
const VOID: [&str; 14] =
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"];
/// HTML elements whose content is not markup, or preserves whitespace.
const VERBATIM_ELEMENTS: [&str; 4] = ["script", "style", "pre", "textarea"];

enum MarkupToken<'a> {
    Open(&'a str),
    Close(&'a str),
    /// Comments, declarations, CDATA, self-closing elements.
    Alone(&'a str),
    Text(&'a str),
}

/// Indents markup, up to `cap` bytes of output.
pub(super) fn format_markup(text: &str, html: bool, cap: usize) -> String {
    let mut tokens = MarkupTokens { rest: text, html, raw: None }.peekable();
    let mut out = String::new();
    let mut depth = 0_usize;
    while let Some(token) = tokens.next() {
        if out.len() > cap {
            break;
        }
        match token {
            MarkupToken::Open(tag) => {
                line(&mut out, depth, tag);
                // An element that contains only a short text stays on one line.
                if let Some(MarkupToken::Text(inner)) =
                    tokens.next_if(|t| matches!(t, MarkupToken::Text(inner) if is_short(inner)))
                {
                    out.push_str(inner.trim());
                }
                match tokens.next_if(|t| matches!(t, MarkupToken::Close(_))) {
                    Some(MarkupToken::Close(end)) => out.push_str(end),
                    _ => depth += 1,
                }
            }
            MarkupToken::Close(tag) => {
                // Unbalanced markup must not underflow.
                depth = depth.saturating_sub(1);
                line(&mut out, depth, tag);
            }
            MarkupToken::Alone(tag) => line(&mut out, depth, tag),
            MarkupToken::Text(inner) => {
                for part in inner.lines().map(str::trim_end).filter(|l| !l.trim().is_empty()) {
                    line(&mut out, depth, part.trim_start());
                }
            }
        }
    }
    out.push('\n');
    out
}

fn is_short(text: &str) -> bool {
    let text = text.trim();
    text.len() <= MAX_INLINE_LEN && !text.contains('\n')
}

fn line(out: &mut String, depth: usize, what: &str) {
    if !out.is_empty() {
        out.push('\n');
    }
    indent(out, depth.min(MAX_INDENT));
    out.push_str(what);
}

struct MarkupTokens<'a> {
    rest: &'a str,
    html: bool,
    /// The element whose content is copied verbatim.
    raw: Option<&'a str>,
}

impl<'a> MarkupTokens<'a> {
    fn take(&mut self, len: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// The length of what begins with `<`.
    fn tag_len(&self) -> usize {
        let ends = |mark: &str| self.rest.find(mark).map_or(self.rest.len(), |at| at + mark.len());
        if self.rest.starts_with("<!--") {
            return ends("-->");
        }
        if self.rest.starts_with("<![CDATA[") {
            return ends("]]>");
        }
        // A `>` within a quoted attribute does not end the tag.
        let mut quote = None;
        for (at, c) in self.rest.char_indices().skip(1) {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(q), c) if c == q => quote = None,
                (None, '>') => return at + 1,
                _ => {}
            }
        }
        self.rest.len()
    }

    /// The length up to the end tag of the verbatim element.
    fn raw_len(&self, name: &str) -> usize {
        let bytes = self.rest.as_bytes();
        let mut from = 0;
        while let Some(at) = memchr::memmem::find(&bytes[from..], b"</") {
            let at = from + at;
            if bytes[at + 2..].get(..name.len()).is_some_and(|n| n.eq_ignore_ascii_case(name.as_bytes())) {
                return at;
            }
            from = at + 2;
        }
        bytes.len()
    }
}

fn name_of(tag: &str) -> &str {
    let inner = tag.trim_start_matches(['<', '/']);
    inner.split(|c: char| c.is_whitespace() || c == '>' || c == '/').next().unwrap_or_default()
}

impl<'a> Iterator for MarkupTokens<'a> {
    type Item = MarkupToken<'a>;

    fn next(&mut self) -> Option<MarkupToken<'a>> {
        if let Some(name) = self.raw.take() {
            let len = self.raw_len(name);
            // An empty element continues with its end tag.
            if len > 0 {
                return Some(MarkupToken::Text(self.take(len)));
            }
        }
        while !self.rest.is_empty() {
            if !self.rest.starts_with('<') {
                let len = self.rest.find('<').unwrap_or(self.rest.len());
                let text = self.take(len);
                if text.trim().is_empty() {
                    continue;
                }
                return Some(MarkupToken::Text(text));
            }
            let len = self.tag_len();
            let tag = self.take(len);
            let name = name_of(tag);
            // XML has no void elements: there, `<br>` needs an end tag.
            let is_one_of = |list: &[&str]| self.html && list.iter().any(|n| n.eq_ignore_ascii_case(name));
            return Some(match tag.as_bytes().get(1) {
                Some(b'/') => MarkupToken::Close(tag),
                Some(b'!' | b'?') => MarkupToken::Alone(tag),
                _ if tag.ends_with("/>") || is_one_of(&VOID) => MarkupToken::Alone(tag),
                _ => {
                    if is_one_of(&VERBATIM_ELEMENTS) {
                        self.raw = Some(name);
                    }
                    MarkupToken::Open(tag)
                }
            });
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_elements_are_indented_and_short_text_stays_inline() {
        let xml = "<?xml version=\"1.0\"?><MPD a=\"x > y\"><Period><BaseURL>v/</BaseURL><S t='0'/></Period><!-- c --><![CDATA[ <raw> ]]></MPD>";
        let shown = "<?xml version=\"1.0\"?>\n<MPD a=\"x > y\">\n  <Period>\n    <BaseURL>v/</BaseURL>\n    <S t='0'/>\n  </Period>\n  <!-- c -->\n  <![CDATA[ <raw> ]]>\n</MPD>\n";
        assert_eq!(format_markup(xml, false, 1 << 20), shown);
    }

    #[test]
    fn html_void_elements_and_scripts_are_formatted_correctly() {
        let html = "<!doctype html><head><meta charset=x><script>if (a < b) { x(\"</p>\") }\nlet c</script></head><p>a<br>b</p><i></i>";
        let shown = "<!doctype html>\n<head>\n  <meta charset=x>\n  <script>\n    if (a < b) { x(\"</p>\") }\n    let c\n  </script>\n</head>\n<p>a\n  <br>\n  b\n</p>\n<i></i>\n";
        assert_eq!(format_markup(html, true, 1 << 20), shown);
    }

    #[test]
    fn truncated_markup_is_formatted_up_to_its_end() {
        assert_eq!(format_markup("<a><b attr=\"x", false, 100), "<a>\n  <b attr=\"x\n");
        assert_eq!(format_markup("</a></a>text", false, 100), "</a>\n</a>\ntext\n");
    }
}
