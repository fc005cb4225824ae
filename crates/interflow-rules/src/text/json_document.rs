//! JSON as a flat list of its values, in which JSONPaths are evaluated within bounds on steps and memory: a document is
//! read for conditions, and peers send documents that would take a tree of values gigabytes and a naive search minutes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use bytes::Bytes;
use interflow_codec::json::{self, JsonReader, JsonToken};
use interflow_types::budget::{MemoryReservation, PROCESS_BUDGET};
use interflow_types::{Error, ErrorKind};
use serde_json::Value;
use serde_json_path::JsonPath as Query;

use super::json_steps::{PathStep, StepSelector};

/// The most values of one document.
const MAX_VALUES: usize = 4 << 20;

/// The most steps of one path: visits of a value, or their equivalent in time. About half a second.
const MAX_STEPS: u64 = 50_000_000;

/// How many bytes the values that one path selects may take as text.
const MAX_SELECTED: usize = 32 << 20;

/// A tree of values takes up to this many bytes per value, without its texts.
const TREE_SIZE: u64 = 600;

/// Why a document or a path in it is not evaluated.
#[derive(Debug)]
pub(crate) enum JsonFailure {
    NotJson(json::JsonError),
    /// It exceeds a bound, or can be read in several ways.
    Exceeds(Error),
}

/// A range of a document's text, and what takes its place.
pub(crate) type JsonSplice = (Range<usize>, Bytes);

/// A JSON document, its values in the order of the text.
#[derive(Debug)]
pub(crate) struct JsonDocument {
    source: Bytes,
    values: Vec<JsonNode>,
    _held: MemoryReservation,
}

/// A value: where it is in the text, and which values are inside of it.
#[derive(Debug)]
struct JsonNode {
    start: u32,
    end: u32,
    /// The name of a member, without its quotes; empty at 0 for others.
    name: (u32, u32),
    /// The index of the value after it and all that is inside of it.
    next: u32,
}

impl JsonDocument {
    /// Reads a document.
    ///
    /// # Errors
    /// Text that is not JSON, or a document over a bound.
    pub fn read(source: Bytes) -> Result<Self, JsonFailure> {
        // The values are counted first, so that the list is allocated once, and only if it fits.
        let mut count = 0;
        let mut reader = JsonReader::new(&source);
        while let Some(token) = reader.next_token().map_err(failure)? {
            count += usize::from(!matches!(token, JsonToken::End(_) | JsonToken::Name(_)));
        }
        if count > MAX_VALUES || u32::try_from(source.len()).is_err() {
            return Err(exceeds(format!("its JSON has more than {MAX_VALUES} values")));
        }
        let size = count as u64 * size_of::<JsonNode>() as u64;
        let held = PROCESS_BUDGET.reserve(size).map_err(JsonFailure::Exceeds)?;
        let mut values: Vec<JsonNode> = Vec::with_capacity(count);
        let mut open: Vec<usize> = Vec::new();
        let mut name = (0, 0);
        let mut reader = JsonReader::new(&source);
        while let Some(token) = reader.next_token().map_err(failure)? {
            let (start, end) = match token {
                JsonToken::Name(range) => {
                    name = (range.start as u32, range.end as u32);
                    continue;
                }
                JsonToken::End(at) => {
                    let next = values.len() as u32;
                    if let Some(node) = open.pop().and_then(|i| values.get_mut(i)) {
                        (node.end, node.next) = (at as u32, next);
                    }
                    continue;
                }
                JsonToken::Object(at) | JsonToken::Array(at) => {
                    open.push(values.len());
                    (at, at)
                }
                JsonToken::Text(range) => (range.start - 1, range.end + 1),
                JsonToken::Scalar(range) => (range.start, range.end),
            };
            let next = values.len() as u32 + 1;
            values.push(JsonNode { start: start as u32, end: end as u32, name: std::mem::take(&mut name), next });
        }
        Ok(Self { source, values, _held: held })
    }

    /// The value at a JSON Pointer (RFC 6901).
    ///
    /// # Errors
    /// It leads through one of several members with the same name.
    pub fn at_pointer(&self, pointer: &str) -> Result<Option<usize>, JsonFailure> {
        let mut at = 0;
        for token in pointer.split('/').skip(1).map(json::unescape_pointer_token) {
            let next = match self.kind(at) {
                b'{' => {
                    let mut members = self.members(at, &token);
                    let first = members.next();
                    if members.next().is_some() {
                        return Err(ambiguous(&token));
                    }
                    first
                }
                b'[' => list_index(&token).and_then(|index| self.children(at).nth(index)),
                _ => None,
            };
            let Some(next) = next else { return Ok(None) };
            at = next;
        }
        Ok(Some(at))
    }

    /// The members of an object with this name.
    pub fn members<'d>(&'d self, object: usize, name: &'d str) -> impl Iterator<Item = usize> + 'd {
        self.children(object).filter(move |child| self.has_name(*child, name))
    }

    /// Puts a text in the place of a value.
    pub fn replace(&self, index: usize, new: Bytes) -> JsonSplice {
        let node = self.node(index);
        (node.start as usize..node.end as usize, new)
    }

    /// Adds an item or a member to a container, before its child at `position`, or at the end.
    pub fn insert(&self, container: usize, position: usize, new: &[u8]) -> JsonSplice {
        let children: Vec<usize> = self.children(container).collect();
        let (at, new) = match (children.get(position), children.last()) {
            (Some(next), _) => (self.outer_start(*next), [new, b","].concat()),
            (None, Some(last)) => (self.node(*last).end as usize, [b",", new].concat()),
            (None, None) => (self.node(container).start as usize + 1, new.to_vec()),
        };
        (at..at, new.into())
    }

    /// Removes values, in ascending order, each with its name and a comma.
    pub fn remove(&self, removed: &[usize]) -> Vec<JsonSplice> {
        if removed.first() == Some(&0) {
            return vec![self.replace(0, Bytes::from_static(b"null"))];
        }
        let mut splices = Vec::new();
        for container in (0..self.values.len()).filter(|i| matches!(self.kind(*i), b'{' | b'[')) {
            let children: Vec<usize> = self.children(container).collect();
            let (mut kept, mut before) = (false, 0);
            for (i, child) in children.iter().enumerate() {
                let (start, end) = (self.outer_start(*child), self.node(*child).end as usize);
                if removed.binary_search(child).is_err() {
                    kept = true;
                } else if kept {
                    splices.push((before..end, Bytes::new()));
                } else {
                    let next = children.get(i + 1).map_or(end, |next| self.outer_start(*next));
                    splices.push((start..next, Bytes::new()));
                }
                before = end;
            }
        }
        splices
    }

    /// The text with these changes; what is inside of a changed value is gone with it. `None` without a change.
    ///
    /// # Errors
    /// The memory budget is exhausted.
    pub fn splice(&self, mut splices: Vec<JsonSplice>) -> Result<Option<Bytes>, JsonFailure> {
        if splices.is_empty() {
            return Ok(None);
        }
        let size =
            splices.iter().map(|(_, new)| new.len() + size_of::<JsonSplice>()).sum::<usize>() + self.source.len();
        let held = PROCESS_BUDGET.reserve(size as u64).map_err(JsonFailure::Exceeds)?;
        splices.sort_by_key(|(range, _)| range.start);
        let edits = splices.iter().map(|(range, new)| (range.clone(), &new[..]));
        Ok(Some(held.attach_to(json::replace_ranges(&self.source, edits))))
    }

    fn depth(&self) -> u64 {
        let (mut open, mut deepest) = (Vec::new(), 1);
        for (index, node) in self.values.iter().enumerate() {
            while open.last().is_some_and(|end| *end <= index) {
                open.pop();
            }
            open.push(node.next as usize);
            deepest = deepest.max(open.len());
        }
        deepest as u64
    }

    fn node(&self, index: usize) -> &JsonNode {
        &self.values[index]
    }

    fn slice(&self, node: &JsonNode) -> &[u8] {
        &self.source[node.start as usize..node.end as usize]
    }

    /// The text of a value.
    pub fn raw(&self, index: usize) -> Bytes {
        self.source.slice_ref(self.slice(self.node(index)))
    }

    /// Where a value begins with its name.
    fn outer_start(&self, index: usize) -> usize {
        let node = self.node(index);
        if node.name.0 == 0 { node.start as usize } else { node.name.0 as usize - 1 }
    }

    /// The first byte: which kind of value it is.
    pub fn kind(&self, index: usize) -> u8 {
        self.source[self.node(index).start as usize]
    }

    pub fn children(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.node(index).next as usize;
        let mut at = index + 1;
        std::iter::from_fn(move || {
            let child = (at < end).then_some(at)?;
            at = self.node(child).next as usize;
            Some(child)
        })
    }

    fn has_name(&self, index: usize, name: &str) -> bool {
        let node = self.node(index);
        let raw = &self.source[node.name.0 as usize..node.name.1 as usize];
        raw == name.as_bytes() || raw.contains(&b'\\') && unescape(raw) == name.as_bytes()
    }

    /// Checks that no object in a value has two members of the same name.
    fn check_names(&self, index: usize) -> Result<(), JsonFailure> {
        for object in (index..self.node(index).next as usize).filter(|i| self.kind(*i) == b'{') {
            let mut names = HashSet::new();
            for child in self.children(object) {
                let (start, end) = self.node(child).name;
                let name = unescape(&self.source[start as usize..end as usize]);
                if let Some(again) = names.replace(name) {
                    return Err(ambiguous(&String::from_utf8_lossy(&again)));
                }
            }
        }
        Ok(())
    }

    /// A value with everything inside of it as a tree, whose memory is reserved before it is made.
    fn tree(&self, index: usize) -> Result<Value, JsonFailure> {
        let node = self.node(index);
        self.check_names(index)?;
        let size = u64::from(node.next - index as u32) * TREE_SIZE + u64::from(node.end - node.start);
        let _held = PROCESS_BUDGET.reserve(size).map_err(JsonFailure::Exceeds)?;
        serde_json::from_slice(self.slice(node)).map_err(|e| exceeds(format!("a filter cannot read its JSON ({e})")))
    }
}

fn failure(e: json::JsonError) -> JsonFailure {
    match e.reason {
        json::TOO_DEEP => exceeds(format!("its JSON is nested deeper than {} levels", json::MAX_DEPTH)),
        _ => JsonFailure::NotJson(e),
    }
}

/// Of members with the same name, parsers take the first, the last, or none.
fn ambiguous(name: &str) -> JsonFailure {
    unfit(format!("its JSON has two members `{name}`"))
}

fn exceeds(why: impl Into<String>) -> JsonFailure {
    JsonFailure::Exceeds(Error::new(ErrorKind::BodyTooLarge, why.into()))
}

/// What does not fit the document.
pub(crate) fn unfit(why: impl Into<String>) -> JsonFailure {
    JsonFailure::Exceeds(Error::new(ErrorKind::StageFailed, why.into()))
}

/// An index without leading zeros (RFC 6901 4).
pub(crate) fn list_index(token: &str) -> Option<usize> {
    let plain = token == "0" || (!token.starts_with('0') && token.bytes().all(|b| b.is_ascii_digit()));
    token.parse().ok().filter(|_| plain)
}

/// The content of a string without escapes; one that is not Unicode stays as it is written.
fn unescape(raw: &[u8]) -> Vec<u8> {
    let quoted = [b"\"", raw, b"\""].concat();
    serde_json::from_slice::<String>(&quoted).map_or_else(|_| raw.to_vec(), String::into_bytes)
}

/// The evaluation of one path, until `stop` is set.
pub(crate) struct JsonSearch<'d> {
    document: &'d JsonDocument,
    left: u64,
    stop: &'d AtomicBool,
    /// For an edit: of members with the same name each is selected, since recipients take the first or the last.
    /// Otherwise they are an error, and the values are read as text.
    every: bool,
}

impl<'d> JsonSearch<'d> {
    pub const fn new(document: &'d JsonDocument, stop: &'d AtomicBool, every: bool) -> Self {
        Self { document, left: MAX_STEPS, stop, every }
    }

    /// The values that the steps select, by index.
    ///
    /// # Errors
    /// More steps than allowed, or `stop` was set.
    pub fn find(&mut self, steps: &[PathStep]) -> Result<Vec<usize>, JsonFailure> {
        steps.iter().try_fold(vec![0], |selected, step| self.take_step(step, selected))
    }

    /// The values that a path selects that can only be evaluated in a tree of values, because a filter in it refers to
    /// the whole document. `descents` is how often it descends (`..`), `roots` how often it refers to the document.
    ///
    /// # Errors
    /// A document for which that might take too long: a value is visited once for each way to it.
    pub fn find_in_tree(&self, query: &Query, descents: u32, roots: u32) -> Result<Vec<usize>, JsonFailure> {
        let document = self.document;
        let values = document.values.len() as u64;
        // Text is one more descent: it is written for every value with everything inside of it.
        let ways = document.depth().saturating_pow(descents.saturating_add(u32::from(!self.every)));
        if values.saturating_mul(values.saturating_pow(roots)).saturating_mul(ways) > MAX_STEPS {
            return Err(exceeds("its JSON has too many values, or is nested too deeply, for the path"));
        }
        let tree = document.tree(0)?;
        let nodes = query.query_located(&tree);
        let indexes = nodes.locations().map(|at| document.at_pointer(&at.to_json_pointer()));
        Ok(indexes.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect())
    }

    fn spend(&mut self, steps: u64) -> Result<(), JsonFailure> {
        let before = self.left;
        self.left = before.checked_sub(steps).ok_or_else(|| exceeds("the evaluation of its path takes too long"))?;
        // Not at each step: the flag is shared between cores.
        if before >> 12 != self.left >> 12 && self.stop.load(Relaxed) {
            return Err(exceeds("the evaluation of its path was given up"));
        }
        Ok(())
    }

    /// The values as text, all of them held in memory together: a string without quotes and escapes, anything else as
    /// JSON.
    ///
    /// # Errors
    /// More steps or memory than allowed, or `stop` was set.
    pub fn texts(&mut self, selected: Vec<usize>) -> Result<Vec<Bytes>, JsonFailure> {
        let mut size = 0;
        let mut held = PROCESS_BUDGET.reserve(0).map_err(JsonFailure::Exceeds)?;
        let mut texts = Vec::new();
        for index in selected {
            let text = self.text(index)?;
            size += text.len() + size_of::<Bytes>();
            if size > MAX_SELECTED {
                return Err(exceeds(format!("what it selects has more than {MAX_SELECTED} bytes")));
            }
            held.grow_to(size as u64).map_err(JsonFailure::Exceeds)?;
            texts.push(Bytes::from(text));
        }
        // The texts of one path are held together and dropped together.
        if let Some(last) = texts.pop() {
            texts.push(held.attach_to(last));
        }
        Ok(texts)
    }

    fn take_step(&mut self, step: &PathStep, from: Vec<usize>) -> Result<Vec<usize>, JsonFailure> {
        let mut selected = Vec::new();
        if !step.descends {
            for index in from {
                self.select_children(step, index, &mut selected)?;
            }
            return Ok(selected);
        }
        // What is inside of another is visited with it, and only once: otherwise `$..a..a..a` would visit a value as
        // often as there are ways to it.
        for range in self.merged(from) {
            for index in range {
                self.select_children(step, index, &mut selected)?;
            }
        }
        Ok(selected)
    }

    /// The values with everything inside of them, each once.
    fn merged(&self, mut from: Vec<usize>) -> Vec<Range<usize>> {
        from.sort_unstable();
        let mut ranges: Vec<Range<usize>> = Vec::new();
        for index in from {
            if ranges.last().is_none_or(|last| index >= last.end) {
                ranges.push(index..self.document.node(index).next as usize);
            }
        }
        ranges
    }

    fn select_children(&mut self, step: &PathStep, index: usize, out: &mut Vec<usize>) -> Result<(), JsonFailure> {
        self.spend(1)?;
        let kind = self.document.kind(index);
        if !matches!(kind, b'{' | b'[') {
            return Ok(());
        }
        let document = self.document;
        for selector in &step.selectors {
            match selector {
                StepSelector::Name(name) if kind == b'{' => {
                    let mut member = None;
                    for child in document.children(index) {
                        self.spend(1)?;
                        if document.has_name(child, name) {
                            if member.replace(child).is_some() && !self.every {
                                return Err(ambiguous(name));
                            }
                            out.push(child);
                        }
                    }
                }
                StepSelector::Wildcard => {
                    for child in document.children(index) {
                        self.spend(1)?;
                        out.push(child);
                    }
                }
                StepSelector::Index(_) | StepSelector::Slice(..) if kind == b'[' => {
                    let children: Vec<usize> = document.children(index).collect();
                    self.spend(children.len() as u64)?;
                    match selector {
                        StepSelector::Index(at) => {
                            let at = if *at < 0 { *at + children.len() as i64 } else { *at };
                            out.extend(usize::try_from(at).ok().and_then(|at| children.get(at)));
                        }
                        StepSelector::Slice(slice) => out.extend(slice.of(&children)),
                        _ => {}
                    }
                }
                StepSelector::Filter(filter) => {
                    for child in document.children(index) {
                        let size = u64::from(document.node(child).next) - child as u64;
                        self.spend(filter.steps(size, || document.depth()))?;
                        let one = Value::Array(vec![document.tree(child)?]);
                        if !filter.query.query(&one).is_empty() {
                            out.push(child);
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A value as text.
    fn text(&mut self, index: usize) -> Result<Vec<u8>, JsonFailure> {
        let document = self.document;
        let node = document.node(index);
        let raw = document.slice(node);
        self.spend(1)?;
        Ok(match raw {
            [b'"', text @ .., b'"'] if !text.contains(&b'\\') => text.to_vec(),
            [b'"', text @ .., b'"'] => unescape(text),
            [b'{' | b'[', ..] => {
                let mut out = Vec::new();
                self.write_compact(index, &mut out)?;
                out
            }
            scalar => canonical_scalar(scalar),
        })
    }

    /// A value as JSON without white space. The depth is that of the document, which is bounded.
    fn write_compact(&mut self, index: usize, out: &mut Vec<u8>) -> Result<(), JsonFailure> {
        self.spend(2)?;
        let document = self.document;
        let raw = document.slice(document.node(index));
        let quote = |text: &[u8], out: &mut Vec<u8>| match std::str::from_utf8(&unescape(text)) {
            Ok(text) => out.extend(Value::from(text).to_string().into_bytes()),
            Err(_) => out.extend([b"\"", text, b"\""].concat()),
        };
        match raw.first() {
            Some(b'{' | b'[') => {
                let object = raw.first() == Some(&b'{');
                out.push(if object { b'{' } else { b'[' });
                for (i, child) in document.children(index).enumerate() {
                    if i > 0 {
                        out.push(b',');
                    }
                    if object {
                        let (start, end) = document.node(child).name;
                        quote(&document.source[start as usize..end as usize], out);
                        out.push(b':');
                    }
                    self.write_compact(child, out)?;
                    if out.len() > MAX_SELECTED {
                        return Err(exceeds(format!("what it selects has more than {MAX_SELECTED} bytes")));
                    }
                }
                out.push(if object { b'}' } else { b']' });
            }
            Some(b'"') => quote(&raw[1..raw.len() - 1], out),
            _ => out.extend(canonical_scalar(raw)),
        }
        Ok(())
    }
}

/// A number or literal as serde_json writes it, such as `100.0` for `1e2`.
fn canonical_scalar(raw: &[u8]) -> Vec<u8> {
    serde_json::from_slice::<Value>(raw).map_or_else(|_| raw.to_vec(), |value| value.to_string().into_bytes())
}
