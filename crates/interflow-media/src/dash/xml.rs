//! A small tree of XML elements that borrows from the document. Document types are rejected, and with them all
//! expandable entities.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::BufRead as _;

use interflow_types::{Error, Result};
use quick_xml::Reader;
use quick_xml::escape::{escape, unescape};
use quick_xml::events::attributes::Attributes;
use quick_xml::events::{BytesStart, Event};

use super::manifest_error;

/// Maximum number of elements, excluding those of timelines, which are not parsed here.
const MAX_ELEMENTS: usize = 200_000;
/// Maximum nesting depth, since elements are read recursively.
const MAX_DEPTH: usize = 48;

/// An element. Names are without prefix, except those of attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct XmlElement<'a> {
    pub name: &'a str,
    /// The name as written, with its prefix, for writing it again.
    pub written: &'a str,
    pub attributes: Vec<(&'a str, Cow<'a, str>)>,
    pub children: Vec<XmlElement<'a>>,
    pub text: Cow<'a, str>,
    /// The raw content of an element that is not parsed: timelines have thousands of small elements, of which a player
    /// needs one track's.
    pub raw: &'a str,
}

/// Elements kept as text: a timeline may have very many entries, which are parsed one by one instead of into a tree.
const RAW_ELEMENT: &str = "SegmentTimeline";

impl<'a> XmlElement<'a> {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| *n == name).map(|(_, v)| &**v)
    }

    /// An attribute as a number; `None` if it is absent or malformed.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).and_then(|v| v.trim().parse().ok())
    }

    /// Sets an attribute, in place of an earlier value.
    pub fn set(&mut self, name: &'a str, value: impl Into<Cow<'a, str>>) {
        match self.attributes.iter_mut().find(|(n, _)| *n == name) {
            Some((_, old)) => *old = value.into(),
            None => self.attributes.push((name, value.into())),
        }
    }

    pub fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|c| c.name == name)
    }

    pub fn all<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b Self> + 'b {
        self.children.iter().filter(move |c| c.name == name)
    }

    pub fn new(name: &'a str) -> Self {
        Self { name, written: name, ..Self::default() }
    }

    pub fn with(mut self, name: &'a str, value: impl Into<Cow<'a, str>>) -> Self {
        self.set(name, value);
        self
    }

    pub fn write(&self, out: &mut String) {
        self.write_within(out, usize::MAX);
    }

    /// Writes at most about `most` bytes of it; returns whether that was all.
    pub fn write_within(&self, out: &mut String, most: usize) -> bool {
        if out.len() > most {
            return false;
        }
        let _ = write!(out, "<{}", self.written);
        for (name, value) in &self.attributes {
            let _ = write!(out, " {name}=\"{}\"", escape(&**value));
        }
        if self.children.is_empty() && self.text.is_empty() && self.raw.is_empty() {
            out.push_str("/>");
            return out.len() <= most;
        }
        out.push('>');
        out.push_str(&escape(&*self.text));
        out.push_str(self.raw);
        if !self.children.iter().all(|c| c.write_within(out, most)) {
            return false;
        }
        let _ = write!(out, "</{}>", self.written);
        out.len() <= most
    }
}

/// Reads a document.
///
/// # Errors
/// The document is malformed, has a document type, or has too many or too deeply nested elements.
pub fn read(bytes: &[u8]) -> Result<XmlElement<'_>> {
    let is_utf16 = matches!(bytes, [0xff | 0xfe | 0, ..] | [_, 0, ..]);
    let text = std::str::from_utf8(bytes).ok().filter(|_| !is_utf16).ok_or_else(|| {
        let encoding = if is_utf16 { "UTF-16" } else { "in another encoding" };
        manifest_error(format!("only UTF-8 is read, and it is {encoding}: have the origin send UTF-8"))
    })?;
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = Reader::from_str(text);
    let mut open: Vec<XmlElement<'_>> = Vec::new();
    let mut count = 0;
    loop {
        let event = reader.read_event().map_err(|e| manifest_error(e.to_string()))?;
        match event {
            Event::Start(start) => {
                count += 1;
                if count > MAX_ELEMENTS || open.len() >= MAX_DEPTH {
                    return Err(too_many());
                }
                let mut begun = element(text, &start)?;
                if begun.name == RAW_ELEMENT && !open.is_empty() {
                    begun.raw = inner_text(text, &mut reader, &start)?;
                }
                open.push(begun);
            }
            Event::Empty(start) => {
                count += 1;
                let done = element(text, &start)?;
                match open.last_mut() {
                    Some(_) if count > MAX_ELEMENTS => return Err(too_many()),
                    Some(parent) => parent.children.push(done),
                    None => return Ok(done),
                }
            }
            Event::End(_) => {
                let Some(mut done) = open.pop() else { return Err(manifest_error("an element ends that never began")) };
                trim(&mut done.text);
                match open.last_mut() {
                    Some(parent) => parent.children.push(done),
                    None => return Ok(done),
                }
            }
            Event::Text(t) => add(&mut open, t.into_inner()),
            Event::CData(t) => add(&mut open, t.into_inner()),
            Event::GeneralRef(r) => {
                let written = format!("&{};", r.into_inner());
                let text = unescape(&written).map_err(|_| manifest_error(format!("it uses the entity {written}")))?;
                add(&mut open, Cow::Owned(text.into_owned()));
            }
            // An internal subset could define entities that expand without bound.
            Event::DocType(_) => return Err(manifest_error("it has a document type, which is not allowed here")),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => return Err(manifest_error("it ends in the middle of an element")),
        }
    }
}

fn too_many() -> Error {
    manifest_error(format!("it has more than {MAX_ELEMENTS} elements, or they are nested more than {MAX_DEPTH} deep"))
}

/// The raw content of an element that just started; the reader continues before its end tag.
fn inner_text<'a>(text: &'a str, reader: &mut Reader<&'a [u8]>, start: &BytesStart<'_>) -> Result<&'a str> {
    let from = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
    let rest = text.get(from..).unwrap_or_default();
    let end = format!("</{}", start.name().into_inner());
    // A comment may contain the end tag. Then its beginning is left in the part before it, which is refused below.
    let length = memchr::memmem::find(rest.as_bytes(), end.as_bytes());
    let length = length.ok_or_else(|| manifest_error("it ends in the middle of an element"))?;
    reader.stream().consume(length);
    let inside = rest.get(..length).unwrap_or_default();
    if !holds_only_comments(inside) {
        return Err(manifest_error("a timeline of it holds what is neither element nor comment"));
    }
    Ok(inside.trim())
}

/// Whether everything starting with `<!` is a complete comment: excludes document types and split comments.
fn holds_only_comments(inside: &str) -> bool {
    let mut rest = inside;
    while let Some(at) = memchr::memmem::find(rest.as_bytes(), b"<!") {
        match rest[at..].strip_prefix("<!--").and_then(|c| c.split_once("-->")) {
            Some((_, behind)) => rest = behind,
            None => return false,
        }
    }
    true
}

/// Calls `see` for every element of this name in raw content, with its raw attributes, which are not unescaped.
pub fn for_each_element<'a>(raw: &'a str, name: &str, mut see: impl FnMut(&[(&'a str, &'a str)])) {
    let mut attributes = Vec::with_capacity(8);
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'<', rest.as_bytes()) {
        rest = &rest[at + 1..];
        if let Some(comment) = rest.strip_prefix("!--") {
            rest = comment.find("-->").and_then(|end| comment.get(end + 3..)).unwrap_or_default();
            continue;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace() || matches!(c, '>' | '/')).unwrap_or(rest.len());
        let tag = &rest[..end];
        rest = &rest[end..];
        // The name without its prefix, as everywhere.
        if tag.is_empty() || tag.rsplit(':').next() != Some(name) {
            continue;
        }
        attributes.clear();
        while let Some((attribute, behind)) = next_attribute(rest) {
            attributes.push(attribute);
            rest = behind;
        }
        see(&attributes);
    }
}

/// The attribute at the start of a text, and the rest; `None` at the end of a tag.
fn next_attribute(text: &str) -> Option<((&str, &str), &str)> {
    let text = text.trim_ascii_start();
    let equals = text.find(['=', '>', '/', '<'])?;
    let (name, behind) = (text[..equals].trim_ascii_end(), text[equals..].strip_prefix('=')?);
    let behind = behind.trim_ascii_start();
    let quote = behind.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let (value, behind) = behind[1..].split_once(quote)?;
    Some(((name, value), behind))
}

/// Appends text to the innermost open element; white space before any text is dropped.
fn add<'a>(open: &mut [XmlElement<'a>], text: Cow<'a, str>) {
    let Some(element) = open.last_mut() else { return };
    if element.text.is_empty() {
        if !text.trim_ascii_start().is_empty() {
            element.text = text;
        }
    } else {
        element.text.to_mut().push_str(&text);
    }
}

fn trim(text: &mut Cow<'_, str>) {
    match text {
        Cow::Borrowed(text) => *text = text.trim(),
        Cow::Owned(owned) => *owned = owned.trim().to_owned(),
    }
}

/// An element with its attributes. `text` is the document, which contains the tag.
fn element<'a>(text: &'a str, start: &BytesStart<'_>) -> Result<XmlElement<'a>> {
    let (tag, length): (&str, _) = (start, start.name().into_inner().len());
    let at = (tag.as_ptr() as usize).wrapping_sub(text.as_ptr() as usize);
    let tag = at.checked_add(tag.len()).and_then(|end| text.get(at..end)).unwrap_or_default();
    let written = tag.get(..length).unwrap_or_default();
    let name = written.rsplit_once(':').map_or(written, |(_, name)| name);
    let mut attributes = Vec::new();
    for attribute in Attributes::new(tag, length).with_checks(false) {
        let attribute = attribute.map_err(|e| manifest_error(format!("<{name}>: {e}")))?;
        let value = match attribute.value {
            Cow::Borrowed(value) => unescape(value).map_err(|e| manifest_error(format!("<{name}>: {e}")))?,
            Cow::Owned(value) => {
                Cow::Owned(unescape(&value).map_err(|e| manifest_error(format!("<{name}>: {e}")))?.into_owned())
            }
        };
        attributes.push((attribute.key.into_inner(), value));
    }
    Ok(XmlElement { name, written, attributes, ..XmlElement::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xml_documents_round_trip() {
        let text =
            "<?xml version=\"1.0\"?><!-- c --><a x=\"1&amp;2\" p:y='z'><b/><p:c> t&lt;u <![CDATA[<v>]]></p:c></a>";
        let root = read(text.as_bytes()).unwrap();
        assert_eq!((root.get("x"), root.get("p:y")), (Some("1&2"), Some("z")));
        assert_eq!(root.child("c").unwrap().text, "t<u <v>");
        let mut out = String::new();
        root.write(&mut out);
        assert_eq!(out, "<a x=\"1&amp;2\" p:y=\"z\"><b/><p:c>t&lt;u &lt;v&gt;</p:c></a>");
        assert_eq!(read(out.as_bytes()).unwrap(), root);
    }

    #[test]
    fn entity_bombs_and_truncated_documents_are_refused() {
        let bomb = "<!DOCTYPE a [<!ENTITY b \"bbbb\"><!ENTITY c \"&b;&b;&b;\">]><a>&c;</a>";
        for (text, says) in [
            (bomb, "document type"),
            ("<a>&c;</a>", "entity"),
            ("<a x=\"&c;\"/>", "<a>"),
            ("<a><b>", "in the middle"),
            ("", "in the middle"),
            ("<a></b>", "cannot be read"),
        ] {
            assert!(read(text.as_bytes()).unwrap_err().to_string().contains(says), "{text}");
        }
        assert!(read("<a>".repeat(100).as_bytes()).is_err());
    }

    #[test]
    fn timelines_are_kept_as_written() {
        let of = |inside: &str| format!("<a><p:SegmentTimeline x='1'>{inside}</p:SegmentTimeline ><b/></a>");
        for inside in ["", "<S d='1'/>", "<S d='1'></S><!-- <S/> --> ", "<!----><S/>"] {
            let text = of(inside);
            let root = read(text.as_bytes()).unwrap();
            let kept = root.child("SegmentTimeline").unwrap();
            assert_eq!(
                (kept.raw, kept.get("x"), root.child("b").is_some()),
                (inside.trim(), Some("1"), true),
                "{inside}"
            );
            let mut out = String::new();
            root.write(&mut out);
            assert_eq!(read(out.as_bytes()).unwrap(), root);
        }
        for inside in ["<!DOCTYPE a>", "<![CDATA[x]]>", "<!-- </p:SegmentTimeline> -->", "</p:SegmentTimelines>"] {
            assert!(read(of(inside).as_bytes()).is_err(), "{inside}");
        }
        assert!(read(b"<a><SegmentTimeline><S/>").unwrap_err().to_string().contains("in the middle"));
    }
}
