//! Reasoning in a client's history that another provider made: it is recognised by the marks that translated replies
//! carry, and taken out of a request that is sent in the client's own format.
//!
//! No provider reads another's reasoning: Anthropic and OpenAI refuse the whole request. Everything else keeps its bytes,
//! and a history without such reasoning is not touched, since thoughts are signed over all that precedes them.

use std::borrow::Cow;
use std::ops::Range;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use interflow_codec::json::{self, JsonError, children, replace_ranges};
use interflow_types::FlowId;
use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;

use super::WireFormat;

/// Marks reasoning of OpenAI in a signature that an Anthropic client keeps.
pub(super) const OPENAI_MARK: &str = "openai:";
/// Marks a signature of Anthropic in reasoning that a Responses client keeps.
pub(super) const ANTHROPIC_MARK: &str = "anthropic:";
/// Precedes the format of the upstream that made a thought without a signature.
const UNSIGNED_MARK: &str = "interflow:";
/// How marked signatures begin in base64.
const SEALED_MARKS: [&str; 3] = ["\"b3BlbmFpO", "\"YW50aHJvcGljO", "\"aW50ZXJmbG93O"];
/// Precedes the id of an item of reasoning in the Responses API.
const REASONING_ID: &str = "rs_";
/// Characters of a flow's id, of which the gateway makes ids of items.
const FLOW_ID: usize = 26;

/// Stands where a provider's signature would be, in a thought that has none.
pub(super) fn unsigned(upstream: WireFormat) -> Cow<'static, str> {
    Cow::Owned(format!("{UNSIGNED_MARK}{}", upstream.as_str()))
}

/// Whether the gateway made this signature. Those of providers are base64, which has no colon.
pub(crate) fn has_mark(signature: &[u8]) -> bool {
    [OPENAI_MARK, ANTHROPIC_MARK, UNSIGNED_MARK].iter().any(|mark| signature.starts_with(mark.as_bytes()))
}

/// The signature of a thought at a client of Google's APIs, whose signatures are base64: with a mark in front, unless it
/// has one.
pub(super) fn sealed(signature: &str) -> String {
    let mark = if has_mark(signature.as_bytes()) { "" } else { ANTHROPIC_MARK };
    STANDARD.encode(format!("{mark}{signature}"))
}

/// A signature that such a client returns as a client of Anthropic's API would; `None` if Google made it.
pub(super) fn opened(sealed: &str) -> Option<String> {
    let standard = sealed.trim_end_matches('=').replace('-', "+").replace('_', "/");
    let text = String::from_utf8(STANDARD_NO_PAD.decode(standard).ok()?).ok()?;
    let own = text.strip_prefix(ANTHROPIC_MARK).map(str::to_owned);
    own.or_else(|| Some(text).filter(|text| has_mark(text.as_bytes())))
}

/// Which reasoning an upstream may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// The upstream is the provider that the API is of: reasoning that it never makes is another's, too.
    ItsOwn,
    /// Any server with the API: only what the gateway made itself is known to be another's.
    Unmarked,
}

/// A request in its client's format without the reasoning of other providers; `None` if it has none.
pub fn without_foreign_reasoning(format: WireFormat, keeps: Keeps, body: &[u8]) -> Option<Vec<u8>> {
    if !may_have_foreign_reasoning(format, keeps, body) {
        return None;
    }
    let edits = match format {
        WireFormat::Anthropic => edits_of_messages(body, keeps),
        WireFormat::Bedrock => edits_of_turns(body, ("messages", "content"), &is_foreign_in_converse),
        WireFormat::Gemini => edits_of_turns(body, ("contents", "parts"), &|part| {
            is_sealed(&part["thoughtSignature"]) || is_sealed(&part["thought_signature"])
        }),
        WireFormat::Interactions => edits_of_list(body, "input", &|step| is_sealed(&step["signature"])),
        WireFormat::OpenAiResponses => edits_of_input(body),
        WireFormat::OpenAiChat => edits_of_chat(body),
        _ => return None,
    };
    // What cannot be read is reported by the provider.
    let edits = edits.ok().filter(|edits| !edits.is_empty())?;
    Some(replace_ranges(body, edits.iter().map(|edit| (edit.range.clone(), &edit.bytes[..]))))
}

/// Whether a closer look is worth it: a fast scan, which nearly all requests need only.
pub fn may_have_foreign_reasoning(format: WireFormat, keeps: Keeps, body: &[u8]) -> bool {
    let has = |text: &str| memmem::find(body, text.as_bytes()).is_some();
    let any = |texts: &[&str]| texts.iter().any(|text| has(text));
    match format {
        WireFormat::Anthropic => {
            any(&["\"openai:", "\"interflow:"]) || keeps == Keeps::ItsOwn && has_empty_signature(body)
        }
        WireFormat::OpenAiResponses => any(&["\"anthropic:", "\"interflow:"]) || has_own_id(body),
        WireFormat::Bedrock => any(&["\"openai:", "\"interflow:"]),
        WireFormat::Gemini | WireFormat::Interactions => any(&SEALED_MARKS),
        WireFormat::OpenAiChat => {
            let members = ["\"reasoning_content\"", "\"reasoning\"", "\"reasoning_details\""];
            let has_reasoning = || has("\"reasoning") && any(&members);
            keeps == Keeps::ItsOwn && (has_reasoning() || any(&["\"thinking\"", "\"extra_content\""]))
        }
        _ => false,
    }
}

fn has_empty_signature(body: &[u8]) -> bool {
    const NAME: &[u8] = b"\"signature\"";
    memmem::find_iter(body, NAME).any(|at| {
        let mut rest = body.get(at + NAME.len()..).unwrap_or_default().iter().filter(|b| !b.is_ascii_whitespace());
        b":\"\"".iter().all(|expected| rest.next() == Some(expected))
    })
}

fn is_sealed(signature: &Value) -> bool {
    signature.as_str().and_then(opened).is_some()
}

fn is_foreign_in_converse(block: &Value) -> bool {
    let signature = block["reasoningContent"]["reasoningText"]["signature"].as_str();
    signature.is_some_and(|signature| has_mark(signature.as_bytes()))
}

/// Whether an id may be one of [`is_own_id`]. Those of providers have a single underscore.
fn has_own_id(body: &[u8]) -> bool {
    const BEGINNING: &[u8] = b"\"rs_";
    memmem::find_iter(body, BEGINNING).any(|at| body.get(at + BEGINNING.len() + FLOW_ID) == Some(&b'_'))
}

/// Bytes in place of a range of the body.
struct Edit {
    range: Range<usize>,
    bytes: Vec<u8>,
}

type Edits = Result<Vec<Edit>, JsonError>;

#[derive(Deserialize)]
struct Thought<'b> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'b, str>,
    #[serde(default, borrow)]
    signature: Option<Cow<'b, str>>,
    #[serde(default, borrow)]
    data: Option<Cow<'b, str>>,
}

impl Thought<'_> {
    fn is_foreign(&self, keeps: Keeps) -> bool {
        let signature = match &*self.kind {
            "thinking" => self.signature.as_deref(),
            "redacted_thinking" => self.data.as_deref(),
            _ => return false,
        };
        let signature = signature.unwrap_or_default();
        has_mark(signature.as_bytes()) || signature.is_empty() && keeps == Keeps::ItsOwn
    }
}

/// Messages of Anthropic's API without thoughts of others. A message of nothing else is left out.
fn edits_of_messages(body: &[u8], keeps: Keeps) -> Edits {
    let request = Object::read(body, 0..body.len())?;
    let Some(messages) = request.value(body, "messages") else { return Ok(Vec::new()) };
    let (mut edits, mut is_changed, mut kept) = (Vec::new(), false, Vec::new());
    // Whether the last message of the assistant calls tools and lost all of its thoughts.
    let mut is_bare = false;
    for message in elements(body, messages.clone())? {
        let fields = Object::read(body, message.clone())?;
        let content = fields.value(body, "content").filter(|range| body.get(range.start) == Some(&b'['));
        let is_assistant = fields.value(body, "role").is_some_and(|role| body.get(role) == Some(b"\"assistant\""));
        let Some(content) = content.filter(|_| is_assistant) else {
            is_bare &= !is_assistant;
            kept.push(Cow::Borrowed(&body[message]));
            continue;
        };
        let all = elements(body, content.clone())?;
        let thought = |range: &Range<usize>| serde_json::from_slice::<Thought<'_>>(&body[range.clone()]).ok();
        let foreign = |range: &Range<usize>| thought(range).is_some_and(|t| t.is_foreign(keeps));
        let (others, own): (Vec<_>, Vec<_>) = all.into_iter().partition(foreign);
        let has = |kinds: &[&str]| own.iter().filter_map(thought).any(|block| kinds.contains(&&*block.kind));
        is_bare = !others.is_empty() && has(&["tool_use"]) && !has(&["thinking", "redacted_thinking"]);
        let clean: Vec<_> = own.iter().map(|range| without_marked_citations(&body[range.clone()])).collect();
        if others.is_empty() && clean.iter().all(Option::is_none) {
            kept.push(Cow::Borrowed(&body[message]));
            continue;
        }
        is_changed = true;
        if own.is_empty() {
            continue;
        }
        let blocks = own.iter().zip(&clean).map(|(range, clean)| clean.as_deref().unwrap_or(&body[range.clone()]));
        let content_bytes = list(blocks);
        let edit = Edit { range: content, bytes: content_bytes };
        kept.push(Cow::Owned(spliced(body, message, edit)));
    }
    if !is_changed {
        return Ok(edits);
    }
    edits.push(Edit { range: messages, bytes: list(kept.iter().map(|message| &**message)) });
    if is_bare {
        edits.extend(edits_without_thinking(body, &request)?);
    }
    edits.sort_by_key(|edit| edit.range.start);
    Ok(edits)
}

/// A block without citations of pages that another provider read; `None` if it has none.
fn without_marked_citations(block: &[u8]) -> Option<Vec<u8>> {
    memmem::find(block, b"\"interflow:")?;
    let mut block: Value = json::parse(block).ok()?;
    let is_marked = |page: &Value| page["encrypted_index"].as_str().is_some_and(|index| has_mark(index.as_bytes()));
    block["citations"].as_array().filter(|pages| pages.iter().any(is_marked))?;
    block.as_object_mut()?.shift_remove("citations");
    Some(block.to_string().into_bytes())
}

/// A turn in which tools were called without thoughts cannot go on with thoughts of a budget. Nor can a request without
/// thoughts have them cleared.
fn edits_without_thinking(body: &[u8], request: &Object) -> Edits {
    let Some(thinking) = request.value(body, "thinking") else { return Ok(Vec::new()) };
    let of = |range: &Range<usize>| json::parse::<Value>(&body[range.clone()]).unwrap_or_default();
    if of(&thinking)["type"] != "enabled" {
        return Ok(Vec::new());
    }
    let mut edits = vec![Edit { range: thinking, bytes: br#"{"type":"disabled"}"#.to_vec() }];
    if let Some(range) = request.value(body, "context_management") {
        let mut management = of(&range);
        if let Some(steps) = management["edits"].as_array_mut() {
            let before = steps.len();
            steps.retain(|step| !step["type"].as_str().is_some_and(|kind| kind.starts_with("clear_thinking")));
            let remaining = if steps.is_empty() { Value::Null } else { management.clone() };
            if management["edits"].as_array().map_or(0, Vec::len) < before {
                edits.push(Edit { range, bytes: remaining.to_string().into_bytes() });
            }
        }
    }
    Ok(edits)
}

/// The input of the Responses API without items of reasoning that the gateway made.
fn edits_of_input(body: &[u8]) -> Edits {
    edits_of_list(body, "input", &|item| {
        let is_ours = item["id"].as_str().is_some_and(is_own_id);
        match item["type"].as_str() {
            Some("reasoning") => is_ours || item["encrypted_content"].as_str().is_some_and(|s| has_mark(s.as_bytes())),
            Some("item_reference") => is_ours,
            _ => false,
        }
    })
}

/// The turns of a history without foreign parts. A turn of nothing else is left out.
fn edits_of_turns(body: &[u8], (turns, parts): (&str, &str), is_foreign: &dyn Fn(&Value) -> bool) -> Edits {
    let request = Object::read(body, 0..body.len())?;
    let Some(turns) = request.value(body, turns) else { return Ok(Vec::new()) };
    let (mut kept, mut is_changed) = (Vec::new(), false);
    for turn in elements(body, turns.clone())? {
        let mut edits = edits_of_list(&body[turn.clone()], parts, is_foreign)?;
        is_changed |= !edits.is_empty();
        kept.extend(match edits.pop() {
            None => Some(Cow::Borrowed(&body[turn])),
            Some(edit) if edit.bytes == b"[]" => None,
            Some(edit) => Some(Cow::Owned(spliced(&body[turn.clone()], 0..turn.len(), edit))),
        });
    }
    let edit = Edit { bytes: list(kept.iter().map(|turn| &**turn)), range: turns };
    Ok(if is_changed { vec![edit] } else { Vec::new() })
}

/// A list that is a member of an object, without its foreign elements; no edit if it has none.
fn edits_of_list(body: &[u8], name: &str, is_foreign: &dyn Fn(&Value) -> bool) -> Edits {
    let list_in = Object::read(body, 0..body.len())?.value(body, name);
    let Some(range) = list_in.filter(|range| body.get(range.start) == Some(&b'[')) else { return Ok(Vec::new()) };
    let all = elements(body, range.clone())?;
    let foreign = |at: &Range<usize>| json::parse(&body[at.clone()]).is_ok_and(|v: Value| is_foreign(&v));
    let own: Vec<_> = all.iter().filter(|at| !foreign(at)).collect();
    if own.len() == all.len() {
        return Ok(Vec::new());
    }
    Ok(vec![Edit { bytes: list(own.into_iter().map(|at| &body[at.clone()])), range }])
}

/// Whether an item of reasoning has an id that the gateway made: of a flow's id and the item's position.
fn is_own_id(id: &str) -> bool {
    let rest = id.strip_prefix(REASONING_ID).and_then(|rest| rest.split_at_checked(FLOW_ID));
    rest.is_some_and(|(flow, at)| {
        let is_position = at.strip_prefix('_').is_some_and(|at| at.parse::<u32>().is_ok());
        is_position && flow.parse::<FlowId>().is_ok()
    })
}

/// Messages of Chat Completions without what OpenAI's models never say: thoughts, and members of other servers' calls.
fn edits_of_chat(body: &[u8]) -> Edits {
    let request = Object::read(body, 0..body.len())?;
    let Some(messages) = request.value(body, "messages") else { return Ok(Vec::new()) };
    let (mut kept, mut is_changed) = (Vec::new(), false);
    for range in elements(body, messages.clone())? {
        let mut message: Value = json::parse(&body[range.clone()]).unwrap_or_default();
        if message["role"] != "assistant" || !drop_thoughts(&mut message) {
            kept.push(Cow::Borrowed(&body[range]));
            continue;
        }
        is_changed = true;
        let is_empty = |value: &Value| match value {
            Value::Null => true,
            Value::Array(list) => list.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => false,
        };
        let members = ["content", "tool_calls", "refusal", "audio", "function_call"];
        if !members.iter().all(|name| is_empty(&message[*name])) {
            kept.push(Cow::Owned(message.to_string().into_bytes()));
        }
    }
    let edit = Edit { bytes: list(kept.iter().map(|message| &**message)), range: messages };
    Ok(if is_changed { vec![edit] } else { Vec::new() })
}

/// Whether a message of the assistant had any.
fn drop_thoughts(message: &mut Value) -> bool {
    let mut is_changed = false;
    for name in ["reasoning_content", "reasoning", "reasoning_details"] {
        is_changed |= message.as_object_mut().is_some_and(|members| members.shift_remove(name).is_some());
    }
    if let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) {
        let before = parts.len();
        parts.retain(|part| part["type"] != "thinking");
        is_changed |= parts.len() < before;
        if parts.is_empty() {
            message["content"] = Value::Null;
        }
    }
    for call in message.get_mut("tool_calls").and_then(Value::as_array_mut).into_iter().flatten() {
        is_changed |= call.as_object_mut().is_some_and(|call| call.shift_remove("extra_content").is_some());
    }
    is_changed
}

/// The members of an object: names and values by their ranges.
struct Object(Vec<(Range<usize>, Range<usize>)>);

impl Object {
    fn read(body: &[u8], range: Range<usize>) -> Result<Self, JsonError> {
        let mut members = Vec::new();
        children(body, range, |name, value| members.extend(name.map(|name| (name, value))))?;
        Ok(Self(members))
    }

    /// Of several members with the same name the last, as most parsers have it.
    fn value(&self, body: &[u8], name: &str) -> Option<Range<usize>> {
        let member = self.0.iter().rev().find(|(range, _)| body.get(range.clone()) == Some(name.as_bytes()));
        member.map(|(_, value)| value.clone())
    }
}

/// The elements of an array; none of another value.
fn elements(body: &[u8], range: Range<usize>) -> Result<Vec<Range<usize>>, JsonError> {
    let mut all = Vec::new();
    children(body, range, |name, value| all.extend(name.is_none().then_some(value)))?;
    Ok(all)
}

/// A JSON array of these values.
fn list<'b>(values: impl Iterator<Item = &'b [u8]>) -> Vec<u8> {
    let values: Vec<&[u8]> = values.collect();
    [b"[", values.join(&b","[..]).as_slice(), b"]"].concat()
}

/// A range of the body with an edit inside it.
fn spliced(body: &[u8], range: Range<usize>, edit: Edit) -> Vec<u8> {
    let before = body.get(range.start..edit.range.start).unwrap_or_default();
    let after = body.get(edit.range.end..range.end).unwrap_or_default();
    [before, &edit.bytes, after].concat()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cleaned(format: WireFormat, keeps: Keeps, body: &Value) -> Option<Value> {
        let out = without_foreign_reasoning(format, keeps, body.to_string().as_bytes())?;
        Some(serde_json::from_slice(&out).unwrap())
    }

    fn thought(signature: &str) -> Value {
        json!({ "type": "thinking", "thinking": "hm", "signature": signature })
    }

    fn said(content: Value) -> Value {
        json!({ "role": "assistant", "content": content })
    }

    #[test]
    fn thoughts_of_others_are_taken_out_and_signed_ones_keep_every_byte() {
        let user = json!({ "role": "user", "content": "q" });
        let text = json!({ "type": "text", "text": "so" });
        let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": { "signature": "", "thinking": "" } });
        let own = said(json!([thought("EqQB+/=="), call]));
        let mixed = json!({ "model": "m", "messages": [
            user, said(json!([thought("openai:rs_1:gAAA"), text])), user, own,
            user, said(json!([thought("interflow:gemini")])), user, said(json!([text, thought("")])), user,
        ] });
        let rest = [json!([user, said(json!([text])), user, own, user, user]), json!([user])];
        let expected = |last: Value| {
            let all = [rest[0].clone(), json!([said(last)]), rest[1].clone()];
            json!({ "model": "m", "messages": all.iter().flat_map(|l| l.as_array().unwrap().clone()).collect::<Vec<_>>() })
        };
        let kept = expected(json!([text, thought("")]));
        assert_eq!(cleaned(WireFormat::Anthropic, Keeps::Unmarked, &mixed), Some(kept.clone()));
        assert_eq!(cleaned(WireFormat::Anthropic, Keeps::ItsOwn, &mixed), Some(expected(json!([text]))));
        // A second time there is nothing left to take out.
        assert_eq!(cleaned(WireFormat::Anthropic, Keeps::Unmarked, &kept), None);
        let native = json!({ "messages": [user, own, user, said(json!([{ "type": "redacted_thinking", "data": "Eq" }])), user] });
        assert_eq!(cleaned(WireFormat::Anthropic, Keeps::ItsOwn, &native), None);
        let spaced = r#"{ "max_tokens" : 1.0, "messages": [ {"role":"assistant", "content" : [ {"type":"thinking","thinking":"\u00e9","signature":"Eq"} , {"type":"thinking","thinking":"","signature": "" } ] } ] , "x":"\/" }"#;
        let out = without_foreign_reasoning(WireFormat::Anthropic, Keeps::ItsOwn, spaced.as_bytes()).unwrap();
        let expected = r#"{ "max_tokens" : 1.0, "messages": [{"role":"assistant", "content" : [{"type":"thinking","thinking":"\u00e9","signature":"Eq"}] }] , "x":"\/" }"#;
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn a_turn_whose_thoughts_are_taken_out_goes_on_without_a_budget_for_them() {
        let call = json!({ "type": "tool_use", "id": "t", "name": "f", "input": {} });
        let result =
            json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "t", "content": "r" }] });
        let ask = |content: Value, thinking: Value| {
            let edits = json!([{ "type": "clear_thinking_20251015", "keep": "all" }]);
            json!({ "thinking": thinking, "context_management": { "edits": edits },
                "messages": [{ "role": "user", "content": "q" }, said(content), result] })
        };
        let budget = json!({ "type": "enabled", "budget_tokens": 2048 });
        let foreign = json!([thought("openai:rs:x"), call]);
        let out = cleaned(WireFormat::Anthropic, Keeps::Unmarked, &ask(foreign.clone(), budget.clone())).unwrap();
        assert_eq!((&out["thinking"], &out["context_management"]), (&json!({ "type": "disabled" }), &Value::Null));
        let adaptive = json!({ "type": "adaptive" });
        let out = cleaned(WireFormat::Anthropic, Keeps::Unmarked, &ask(foreign, adaptive.clone())).unwrap();
        assert_eq!((&out["thinking"], out["context_management"].is_object()), (&adaptive, true));
        let mixed = json!([thought("Eq"), thought("openai:rs:x"), call]);
        let out = cleaned(WireFormat::Anthropic, Keeps::Unmarked, &ask(mixed, budget.clone())).unwrap();
        assert_eq!(out["thinking"], budget);
    }

    #[test]
    fn items_of_reasoning_that_the_gateway_made_are_taken_out() {
        let own = json!({ "type": "reasoning", "id": "rs_68af4030baa48193b0b43b4c2a176a1a", "summary": [], "encrypted_content": "gAAA" });
        let stored = json!({ "type": "reasoning", "id": "rs_68af4030baa48193b0b43b4c2a176a1a", "summary": [] });
        let call = json!({ "type": "function_call", "id": "fc_01jd3v7t2m00000000000000ab_1", "call_id": "c", "name": "f", "arguments": "{}" });
        let input = json!([
            { "type": "reasoning", "id": "rs_x", "summary": [], "encrypted_content": "anthropic:SIG" }, own,
            { "type": "reasoning", "summary": [], "encrypted_content": "interflow:gemini" }, call,
            { "type": "reasoning", "id": "rs_01jd3v7t2m00000000000000ab_0", "summary": [] }, stored,
            { "type": "item_reference", "id": "rs_01jd3v7t2m00000000000000ab_0" },
        ]);
        let out = cleaned(WireFormat::OpenAiResponses, Keeps::Unmarked, &json!({ "input": input })).unwrap();
        assert_eq!(out, json!({ "input": [own, call, stored] }));
        assert_eq!(cleaned(WireFormat::OpenAiResponses, Keeps::ItsOwn, &out), None);
    }

    #[test]
    fn openai_gets_no_thoughts_in_chat_completions_and_other_servers_do() {
        let call = |extra: Value| {
            let mut call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{}" } });
            if extra.is_object() {
                call["extra_content"] = extra;
            }
            call
        };
        let body = json!({ "reasoning_effort": "low", "messages": [
            { "role": "user", "content": "reasoning_content" },
            { "role": "assistant", "content": null, "reasoning_content": "hm", "tool_calls": [call(json!({ "google": 1 }))] },
            { "role": "assistant", "content": [{ "type": "thinking", "thinking": [] }, { "type": "text", "text": "so" }] },
            { "role": "assistant", "reasoning": "alone" },
        ] });
        let out = cleaned(WireFormat::OpenAiChat, Keeps::ItsOwn, &body).unwrap();
        assert_eq!(
            out,
            json!({ "reasoning_effort": "low", "messages": [
            { "role": "user", "content": "reasoning_content" },
            { "role": "assistant", "content": null, "tool_calls": [call(Value::Null)] },
            { "role": "assistant", "content": [{ "type": "text", "text": "so" }] },
        ] })
        );
        assert_eq!(cleaned(WireFormat::OpenAiChat, Keeps::Unmarked, &body), None);
        assert_eq!(cleaned(WireFormat::OpenAiChat, Keeps::ItsOwn, &out), None);
    }

    #[test]
    fn what_is_no_request_is_left_to_the_provider() {
        for body in
            ["", "[]", r#"{"messages":"openai:"}"#, r#"{"messages":{"a":"openai:"}}"#, r#"{"messages":["interflow:"#]
        {
            for format in [WireFormat::Anthropic, WireFormat::OpenAiChat, WireFormat::OpenAiResponses] {
                assert_eq!(without_foreign_reasoning(format, Keeps::ItsOwn, body.as_bytes()), None, "{body}");
            }
        }
    }
}
