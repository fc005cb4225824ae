//! A small tree of XML elements. Document types are refused, and with them every entity that could grow.

use interflow_flow::Result;
use quick_xml::Reader;
use quick_xml::escape::{escape, unescape};
use quick_xml::events::{BytesStart, Event};

use super::wrong;

/// The most elements of a document.
const MOST: usize = 2_000_000;
/// The deepest nesting.
const DEEPEST: usize = 48;

/// An element. Names are without their prefix, but for those of attributes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// Its local name.
    pub name: String,
    /// Its name as written, prefix included.
    pub written: String,
    /// Its attributes in order.
    pub attributes: Vec<(String, String)>,
    /// The elements inside.
    pub children: Vec<Element>,
    /// The text inside, trimmed.
    pub text: String,
    /// What is inside, as written, of an element that is not taken apart: timelines have thousands of small elements, of
    /// which a player wants one track's.
    pub raw: String,
}

/// Elements that are kept as written.
const KEPT: &[u8] = b"SegmentTimeline";

impl Element {
    /// An attribute.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// An attribute as a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).and_then(|v| v.trim().parse().ok())
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        match self.attributes.iter_mut().find(|(n, _)| n == name) {
            Some((_, old)) => *old = value.into(),
            None => self.attributes.push((name.into(), value.into())),
        }
    }

    /// The first child of this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|c| c.name == name)
    }

    /// All children of this name.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> + 'a {
        self.children.iter().filter(move |c| c.name == name)
    }

    /// A new element.
    pub fn new(name: &str) -> Self {
        Self { name: name.into(), written: name.into(), ..Self::default() }
    }

    /// Writes it.
    pub fn write(&self, out: &mut String) {
        out.push('<');
        out.push_str(&self.written);
        for (name, value) in &self.attributes {
            out.push(' ');
            out.push_str(name);
            out.push_str("=\"");
            out.push_str(&escape(value.as_str()));
            out.push('"');
        }
        if self.children.is_empty() && self.text.is_empty() && self.raw.is_empty() {
            return out.push_str("/>");
        }
        out.push('>');
        out.push_str(&escape(self.text.as_str()));
        out.push_str(&self.raw);
        self.children.iter().for_each(|c| c.write(out));
        out.push_str("</");
        out.push_str(&self.written);
        out.push('>');
    }
}

/// Reads a document.
///
/// # Errors
/// What is wrong with it: not well formed, a document type, too many elements or too deep.
pub fn read(bytes: &[u8]) -> Result<Element> {
    let text = std::str::from_utf8(bytes).map_err(|e| wrong(format!("it is no UTF-8: {e}")))?;
    let mut reader = Reader::from_str(text.trim_start_matches('\u{feff}'));
    let mut open: Vec<Element> = Vec::new();
    let mut count = 0;
    loop {
        let event = reader.read_event().map_err(|e| wrong(e.to_string()))?;
        match event {
            Event::Start(start) => {
                count += 1;
                if count > MOST || open.len() >= DEEPEST {
                    return Err(wrong("it has too many elements"));
                }
                let mut begun = element(&start)?;
                if begun.name.as_bytes() != KEPT || open.is_empty() {
                    open.push(begun);
                    continue;
                }
                let inside = reader.read_text(start.name()).map_err(|e| wrong(e.to_string()))?.into_inner();
                // A document type cannot hide in it; comments may stand there.
                if inside.contains("<!D") || inside.contains("<!E") {
                    return Err(wrong("it has a document type, which is not allowed here"));
                }
                begun.raw = inside.trim().to_owned();
                open.last_mut().expect("there is one, as was just asked").children.push(begun);
            }
            Event::Empty(start) => {
                count += 1;
                let done = element(&start)?;
                match open.last_mut() {
                    Some(_) if count > MOST => return Err(wrong("it has too many elements")),
                    Some(parent) => parent.children.push(done),
                    None => return Ok(done),
                }
            }
            Event::End(_) => {
                let Some(mut done) = open.pop() else { return Err(wrong("an element ends that never began")) };
                done.text = done.text.trim().to_owned();
                match open.last_mut() {
                    Some(parent) => parent.children.push(done),
                    None => return Ok(done),
                }
            }
            Event::Text(t) => add(&mut open, &t.into_inner()),
            Event::CData(t) => add(&mut open, &t.into_inner()),
            Event::GeneralRef(r) => {
                let written = format!("&{};", r.into_inner());
                let text = unescape(&written).map_err(|_| wrong(format!("it uses the entity {written}")))?;
                add(&mut open, &text);
            }
            Event::DocType(_) => return Err(wrong("it has a document type, which is not allowed here")),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
            Event::Eof => return Err(wrong("it ends in the middle of an element")),
        }
    }
}

/// Calls for each element of this name in what an element keeps as written, with its attributes as numbers: those that
/// are no numbers are left out.
pub fn each_in(raw: &str, name: &str, mut see: impl FnMut(&mut dyn FnMut(&str) -> Option<i128>)) {
    let mut reader = Reader::from_str(raw);
    loop {
        let (Ok(Event::Start(found)) | Ok(Event::Empty(found))) = (match reader.read_event() {
            Ok(Event::Eof) | Err(_) => return,
            event => event,
        }) else {
            continue;
        };
        if found.local_name().into_inner() == name {
            see(&mut |wanted| {
                let mut all = found.attributes();
                let value = all.with_checks(false).flatten().find(|a| a.key.into_inner() == wanted)?.value;
                value.trim().parse().ok()
            });
        }
    }
}

fn add(open: &mut [Element], text: &str) {
    if let Some(element) = open.last_mut()
        && (!element.text.is_empty() || !text.trim().is_empty())
    {
        element.text.push_str(text);
    }
}

fn element(start: &BytesStart<'_>) -> Result<Element> {
    let name = start.local_name().into_inner().to_owned();
    let written = start.name().into_inner().to_owned();
    let mut attributes = Vec::new();
    for attribute in start.attributes().with_checks(false) {
        let attribute = attribute.map_err(|e| wrong(format!("<{name}>: {e}")))?;
        let value = unescape(&attribute.value).map_err(|e| wrong(format!("<{name}>: {e}")))?;
        attributes.push((attribute.key.into_inner().to_owned(), value.into_owned()));
    }
    Ok(Element { name, written, attributes, ..Element::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_and_written_again() {
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
    fn bombs_and_stumps_are_refused() {
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
}
