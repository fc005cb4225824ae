//! Pages that a text rests on, in whatever form an API has for them.

use memchr::memmem;
use serde_json::{Value, json};

use super::foreign_reasoning::unsigned;
use super::unread::{CITATIONS, is_filled};
use super::{Losses, WireFormat};
use crate::message::ContentBlock;

/// A page on the web that is cited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Citation {
    pub url: String,
    pub title: String,
    /// The words of the page.
    pub text: String,
}

/// What a reply cites.
#[derive(Debug, Default)]
pub(super) struct Cited {
    /// Each page once, however often it is cited.
    pub pages: Vec<Citation>,
    /// Whether it cites something else, such as a document of the request.
    pub has_others: bool,
}

impl Citation {
    /// The citation that an object of an API is.
    fn of(value: &Value) -> Option<Self> {
        let (source, text) = match value["type"].as_str() {
            Some("url_citation") => (value.get("url_citation").unwrap_or(value), &Value::Null),
            Some("web_search_result_location") => (value, &value["cited_text"]),
            _ if value["location"]["web"].is_object() => {
                (&value["location"]["web"], &value["sourceContent"][0]["text"])
            }
            // A chunk that an answer of Gemini is grounded on.
            _ => (value.get("web")?, &Value::Null),
        };
        let url = source["url"].as_str().or_else(|| source["uri"].as_str())?;
        let title = source["title"].as_str().or_else(|| value["title"].as_str()).unwrap_or_default();
        Some(Self { url: url.into(), title: title.into(), text: text.as_str().unwrap_or_default().into() })
    }

    /// For a client of Anthropic's API. What its provider would read is marked as another's.
    pub fn location(&self, upstream: WireFormat) -> Value {
        json!({
            "type": "web_search_result_location", "url": self.url, "title": self.title, "cited_text": self.text,
            "encrypted_index": unsigned(upstream),
        })
    }

    /// For a client of OpenAI: the page is cited for the text up to here, in characters.
    pub fn annotation(&self, end: usize) -> Value {
        json!({ "type": "url_citation", "url": self.url, "title": self.title, "start_index": 0, "end_index": end })
    }

    /// The citations in blocks of a reply, each page once.
    pub fn in_blocks(blocks: &[ContentBlock]) -> impl Iterator<Item = Self> {
        let mut cited = Cited::default();
        for block in blocks {
            if let ContentBlock::Other { kind, value } = block
                && kind == CITATIONS
            {
                cited.read(value);
            }
        }
        cited.pages.into_iter()
    }
}

impl Cited {
    /// Whether a reply or an event needs a closer look.
    pub fn is_possible(raw: &[u8]) -> bool {
        ["itation", "nnotation", "grounding", "\"reference\""]
            .iter()
            .any(|mark| memmem::find(raw, mark.as_bytes()).is_some())
    }

    pub fn in_value(value: &Value) -> Self {
        let mut cited = Self::default();
        cited.read(value);
        cited
    }

    /// Adds what a reply or an event cites; returns whether it cites a page.
    pub fn read(&mut self, value: &Value) -> bool {
        match value {
            Value::Array(all) => all.iter().fold(false, |any, inner| self.read(inner) | any),
            Value::Object(members) => {
                if let Some(page) = Citation::of(value) {
                    if self.pages.iter().all(|other| other.url != page.url) {
                        self.pages.push(page);
                    }
                    return true;
                }
                self.has_others |= matches!(value["type"].as_str(), Some("reference" | "citation-start"));
                members.iter().fold(false, |any, (name, inner)| match name.as_str() {
                    // What tools are called with is not the model's own.
                    "input" | "args" | "arguments" => any,
                    _ => {
                        let is_cited = name.contains("itation") || name.contains("nnotation");
                        if let (true, Value::Array(all)) = (is_cited || name == "groundingChunks", inner) {
                            return all.iter().fold(any, |any, one| {
                                let is_page = self.read(one);
                                self.has_others |= !is_page;
                                any | is_page
                            });
                        }
                        let is_page = self.read(inner);
                        let is_cited = is_cited || name == "groundingMetadata";
                        let is_any = is_filled(inner) || inner.as_object().is_some_and(|members| !members.is_empty());
                        self.has_others |= is_cited && is_any && !is_page;
                        any | is_page
                    }
                })
            }
            _ => false,
        }
    }
}

/// What a whole reply has that its client does not get. A stream names it by [`ChatEvent::Loss`](super::ChatEvent).
pub fn lost_in_reply(body: &[u8]) -> Losses {
    let mut losses = Losses::default();
    // Most replies have none, and need not be parsed for it.
    if Cited::is_possible(body) && Cited::in_value(&serde_json::from_slice(body).unwrap_or_default()).has_others {
        losses.add(CITATIONS);
    }
    losses
}
