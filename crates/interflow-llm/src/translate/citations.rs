//! Pages and documents that a text rests on, in whatever form an API has for them.

use std::sync::LazyLock;

use interflow_types::data_file;
use memchr::memmem::Finder;
use serde_json::{Value, json};

use super::foreign_reasoning::unsigned;
use super::reply::part;
use super::unread::{CITATIONS, is_filled};
use super::{Losses, PROVIDER_CALL, WireFormat};
use crate::message::{ContentBlock, take_list};

/// A page on the web, or a place in a document or a search result of the request, that is cited.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Citation {
    /// Empty for a document or a search result.
    pub url: String,
    pub title: String,
    /// The words that are cited.
    pub text: String,
    /// The place in a document or a search result, as Anthropic's members for it; null for a page.
    place: Value,
}

/// Places in documents and search results: Anthropic's type, Converse's member, and the end of the names of Anthropic's
/// members.
static PLACES: LazyLock<Vec<[&str; 3]>> =
    LazyLock::new(|| data_file::records(include_str!("../../data/cited_places.txt")).collect());

/// One of them is in each reply that cites.
static CITATION_MARKS: LazyLock<[Finder<'static>; 4]> =
    LazyLock::new(|| ["itation", "nnotation", "grounding", "\"reference\""].map(Finder::new));

/// What a reply cites.
#[derive(Debug, Default)]
pub(super) struct Cited {
    /// Each page once, however often it is cited; documents each time.
    pub pages: Vec<Citation>,
    /// Whether it cites something else.
    pub has_others: bool,
}

impl Citation {
    /// The citation that an object of an API is.
    fn of(value: &Value) -> Option<Self> {
        if let Some(place) = document_place(value) {
            let title = value["document_title"].as_str().or_else(|| value["title"].as_str()).unwrap_or_default();
            let parts = value["sourceContent"].as_array().into_iter().flatten();
            let text = parts.chain([value]).filter_map(|part| part["text"].as_str().or(part["cited_text"].as_str()));
            return Some(Self { title: title.into(), text: text.collect(), place, ..Self::default() });
        }
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
        let (url, title, text) = (url.into(), title.into(), text.as_str().unwrap_or_default().into());
        Some(Self { url, title, text, place: Value::Null })
    }

    /// Whether an API has a form for it.
    pub fn is_carried_to(&self, format: WireFormat) -> bool {
        self.place.is_null() || matches!(format, WireFormat::Anthropic | WireFormat::Bedrock)
    }

    /// For Anthropic's API. What its provider would read of a page is marked as another's.
    pub fn location(&self, upstream: WireFormat) -> Value {
        if self.place.is_object() {
            let mut location = self.place.clone();
            location["cited_text"] = self.text.as_str().into();
            let title = if location["source"].is_string() { "title" } else { "document_title" };
            location[title] = Some(&*self.title).filter(|title| !title.is_empty()).into();
            return location;
        }
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
        CITATION_MARKS.iter().any(|mark| mark.find(raw).is_some())
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
                    if page.place.is_object() || self.pages.iter().all(|other| other.url != page.url) {
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

/// The place in a document or a search result that a citation of Anthropic or Converse names.
fn document_place(value: &Value) -> Option<Value> {
    PLACES.iter().find_map(|[kind, member, unit]| {
        let (start, end) = (format!("start_{unit}"), format!("end_{unit}"));
        let place = &value["location"][member];
        let is_search = *kind == "search_result_location";
        let (own, other) =
            if is_search { ("search_result_index", "searchResultIndex") } else { ("document_index", "documentIndex") };
        let [index, from, to] = match place {
            Value::Object(_) => [&place[other], &place["start"], &place["end"]],
            _ if value["type"] == *kind => [&value[own], &value[&start], &value[&end]],
            _ => return None,
        };
        let mut place = json!({ "type": kind, own: index, start: from, end: to });
        if is_search {
            place["source"] = value["source"].as_str().unwrap_or_default().into();
        }
        Some(place)
    })
}

/// The type of a call that the provider answers itself.
pub const SERVER_TOOL: &str = "server_tool_use";

/// Gives a call that the provider answered itself, or its result, an id that says so: any server may have ids of its
/// own.
fn mark_call_of_provider(block: &mut Value) {
    let kind = block["type"].as_str().unwrap_or_default();
    let (call, id) = match kind {
        SERVER_TOOL | "mcp_tool_use" => (block, "id"),
        kind if kind.ends_with("_tool_result") => (block, "tool_use_id"),
        _ if block["toolUse"]["type"] == SERVER_TOOL => (&mut block["toolUse"], "toolUseId"),
        _ if block["toolResult"].is_object() => (&mut block["toolResult"], "toolUseId"),
        _ => return,
    };
    call[id] = format!("{PROVIDER_CALL}{}", call[id].as_str().unwrap_or_default()).into();
}

/// Puts the citations of each block of the model's message behind it, as a block of their own, and marks the calls that
/// the provider answered itself.
pub fn detach(content: &mut Value) {
    for block in content.as_array_mut().map(std::mem::take).into_iter().flatten() {
        let Value::Array(all) = content else { return };
        all.push(block);
        let Some(block) = all.last_mut() else { return };
        mark_call_of_provider(block);
        let is_converse = block["citationsContent"].is_object();
        let own = if is_converse { &mut block["citationsContent"] } else { block };
        if is_filled(&own[CITATIONS]) {
            let cites = take_list(own, CITATIONS);
            all.push(if is_converse {
                json!({ CITATIONS: cites })
            } else {
                json!({ "type": CITATIONS, CITATIONS: cites })
            });
        }
    }
}

/// Gives the last text of a message to an upstream its citations. Those of pages are lost: their provider alone can read
/// what a citation of its search refers to.
pub fn attach(format: WireFormat, cites: &ContentBlock, content: &mut [Value], losses: &mut Losses) {
    let (documents, pages): (Vec<_>, Vec<_>) =
        Citation::in_blocks(std::slice::from_ref(cites)).partition(|cited| cited.place.is_object());
    let text = content.iter_mut().rfind(|block| block["text"].is_string());
    let Some(block) = text.filter(|_| pages.is_empty() && !documents.is_empty()) else { return losses.add(CITATIONS) };
    let documents: Value = documents.iter().map(|cited| cited.location(format)).collect();
    *block = json!({ "type": "text", "text": block["text"], CITATIONS: documents });
    if format == WireFormat::Bedrock {
        *block = part(format, "parts", block);
    }
}
