//! The clients' formats: for each a request with every place that may hold a value.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::values::{Encoding, MAX_PLACES, ValueKind, halves};

/// How a place holds its text.
#[derive(Clone, Copy)]
enum Holder {
    /// A string with a sentence, inside this many strings of JSON.
    Sentence(usize),
    /// The value alone: a name, a key, a member.
    Alone(usize),
    /// A file in base64.
    File,
    /// A part of a URL in a string.
    Url,
    /// The second of two adjacent strings; `Split` puts the halves into both.
    Next,
}

struct Place {
    name: &'static str,
    holder: Holder,
}

/// A client's request; `@@N@@` stands for the text of place N.
pub struct Format {
    pub name: &'static str,
    pub gateway_path: &'static str,
    pub path: &'static str,
    pub fields: String,
    places: Vec<Place>,
    body: String,
}

/// A request with a value in each place.
pub struct Filled {
    pub body: String,
    pub header: Option<String>,
    query: String,
    /// What each place holds.
    pub values: Vec<(&'static str, String)>,
}

impl Filled {
    pub fn target(&self, path: &str) -> String {
        let joint = if path.contains('?') { '&' } else { '?' };
        format!("{path}{joint}note={}", self.query)
    }
}

/// The places while a body is written.
#[derive(Default)]
struct Places(Vec<Place>);

impl Places {
    fn hold(&mut self, name: &'static str, holder: Holder) -> String {
        self.0.push(Place { name, holder });
        format!("@@{}@@", self.0.len() - 1)
    }

    fn text(&mut self, name: &'static str) -> String {
        self.hold(name, Holder::Sentence(1))
    }

    /// A text in JSON in a string.
    fn nested(&mut self, name: &'static str) -> String {
        self.hold(name, Holder::Sentence(2))
    }

    fn alone(&mut self, name: &'static str) -> String {
        self.hold(name, Holder::Alone(1))
    }

    fn file(&mut self, name: &'static str) -> String {
        self.hold(name, Holder::File)
    }

    fn url(&mut self, name: &'static str) -> String {
        format!("https://images.example.net/scan.png?owner={}&size=2", self.hold(name, Holder::Url))
    }

    /// Two texts side by side, the second of which holds the place.
    fn pair(&mut self, name: &'static str) -> (String, String) {
        let second = self.hold(name, Holder::Next);
        (second.replace("@@", "@!"), second)
    }

    /// Arguments of a tool call, as an object or, `nested`, as JSON in a string.
    fn arguments(&mut self, nested: bool) -> Value {
        let levels = usize::from(nested) + 1;
        let name = self.hold("member name in tool arguments", Holder::Alone(levels));
        let deep = json!({ "note": self.hold("JSON in a string in tool arguments", Holder::Sentence(levels + 1)) });
        let mut arguments = json!({
            "query": self.hold("tool arguments", Holder::Sentence(levels)),
            "list": [{ "owner": self.hold("list in tool arguments", Holder::Alone(levels)) }],
            "payload": deep.to_string(),
        });
        arguments[&name] = json!(1);
        if nested { Value::from(arguments.to_string()) } else { arguments }
    }

    fn schema(&mut self) -> Value {
        json!({ "type": "object", "required": ["who"], "properties": { "who": {
            "type": "string",
            "description": self.text("schema description"),
            "enum": ["nobody", self.alone("schema enum")],
            "default": self.alone("schema default"),
            "examples": [self.alone("schema example")],
        } } })
    }
}

/// A text as the content of a JSON string, inside `levels` strings.
fn escaped(text: &str, levels: usize, every: bool) -> String {
    let mut out: String = if every {
        text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect()
    } else {
        let quoted = Value::from(text).to_string();
        quoted[1..quoted.len() - 1].to_owned()
    };
    for _ in 1..levels {
        let quoted = Value::from(out).to_string();
        out = quoted[1..quoted.len() - 1].to_owned();
    }
    out
}

impl Format {
    fn new(
        name: &'static str,
        [gateway_path, path]: [&'static str; 2],
        write: impl FnOnce(&mut Places) -> Value,
    ) -> Self {
        let mut places = Places::default();
        let body = write(&mut places).to_string();
        assert!(places.0.len() + 2 <= MAX_PLACES);
        Self { name, gateway_path, path, fields: String::new(), places: places.0, body }
    }

    fn with_fields(mut self, fields: impl Into<String>) -> Self {
        self.fields = fields.into();
        self
    }

    /// The request with a value of this kind and encoding in each place. Only two adjacent strings can hold a split
    /// value.
    pub fn fill(&self, kind: ValueKind, encoding: Encoding) -> Filled {
        let every = encoding == Encoding::JsonEscapes;
        let split = encoding == Encoding::Split;
        let (mut body, mut values) = (self.body.clone(), Vec::new());
        for (n, place) in self.places.iter().enumerate() {
            let value = kind.value(n);
            let written = encoding.encode(&value);
            let sentence = kind.sentence(&written);
            let text = match place.holder {
                Holder::Next if split => {
                    let (first, second) = halves(&value);
                    body = body.replace(&format!("@!{n}@!"), &escaped(&format!("It is {first}"), 1, false));
                    escaped(&format!("{second} as you know."), 1, false)
                }
                Holder::File if split => STANDARD.encode("nothing"),
                _ if split => "nothing".to_owned(),
                Holder::Next => {
                    body = body.replace(&format!("@!{n}@!"), "As follows.");
                    escaped(&sentence, 1, every)
                }
                Holder::Sentence(levels) => escaped(&sentence, levels, every),
                Holder::Alone(levels) => escaped(&written, levels, every),
                Holder::File => escaped(&STANDARD.encode(&sentence), 1, every),
                Holder::Url => escaped(&Encoding::Percent.encode(&written), 1, every),
            };
            body = body.replace(&format!("@@{n}@@"), &text);
            if !split || matches!(place.holder, Holder::Next) {
                values.push((place.name, value));
            }
        }
        let (url, field) = (kind.value(self.places.len()), kind.value(self.places.len() + 1));
        let inside = !split && !every;
        // A URL has its own encoding, and a field holds neither line breaks nor, here, characters beyond ASCII.
        let query = if inside { percent_encoded(&encoding.encode(&url)) } else { "none".to_owned() };
        let header = Some(encoding.encode(&field)).filter(|v| inside && v.is_ascii() && !v.contains('\n'));
        if inside {
            values.push(("query of the request", url));
        }
        if header.is_some() {
            values.push(("header field", field));
        }
        Filled { body, header, query, values }
    }
}

fn percent_encoded(text: &str) -> String {
    let byte = |b: u8| match b {
        b if b.is_ascii_alphanumeric() => char::from(b).to_string(),
        b => format!("%{b:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// Every format. `session` is the field with the session of the MCP gateway.
pub fn all(session: &str) -> Vec<Format> {
    let version = "anthropic-version: 2023-06-01\r\n";
    vec![
        Format::new("OpenAI Chat", ["/openai/v1/chat/completions", "/v1/chat/completions"], chat),
        Format::new("OpenAI Chat, functions", ["/openai/v1/chat/completions", "/v1/chat/completions"], functions),
        Format::new("OpenAI Responses", ["/openai/v1/responses", "/v1/responses"], responses),
        Format::new("OpenAI Completions", ["/openai/v1/completions", "/v1/completions"], completions),
        Format::new("OpenAI Embeddings", ["/openai/v1/embeddings", "/v1/embeddings"], embeddings),
        Format::new("Anthropic Messages", ["/anthropic/v1/messages", "/v1/messages"], messages).with_fields(version),
        Format::new("Anthropic Complete", ["/anthropic/v1/complete", "/v1/complete"], complete).with_fields(version),
        Format::new("Gemini", ["/gemini/v1beta/models/g:generateContent", "/v1beta/models/g:generateContent"], gemini),
        Format::new("Ollama chat", ["/ollama/api/chat", "/api/chat"], ollama),
        Format::new("Ollama generate", ["/ollama/api/generate", "/api/generate"], generate),
        Format::new("Cohere chat", ["/cohere/v1/chat", "/v1/chat"], cohere),
        Format::new("MCP tools/call", ["/mcp", "/mcp"], tools_call).with_fields(session),
    ]
}

fn chat(p: &mut Places) -> Value {
    let (first, second) = p.pair("second of two content parts");
    json!({
        "model": "m", "user": p.alone("user field"), "metadata": { "owner": p.alone("metadata") },
        "stop": [p.alone("stop sequence")],
        "prediction": { "type": "content", "content": p.text("predicted output") },
        "messages": [
            { "role": "system", "content": p.text("system prompt") },
            { "role": "user", "name": p.alone("author's name"), "content": [
                { "type": "text", "text": p.text("content part") },
                { "type": "text", "text": first },
                { "type": "text", "text": second },
                { "type": "image_url", "image_url": { "url": p.url("query of an image's URL") } },
                { "type": "file", "file": { "filename": p.alone("file name"),
                    "file_data": format!("data:text/plain;base64,{}", p.file("text file in base64")) } },
            ] },
            { "role": "assistant", "content": p.text("earlier answer"), "reasoning_content": p.text("reasoning"),
              "tool_calls": [{ "id": "c1", "type": "function",
                  "function": { "name": "f", "arguments": p.arguments(true) } }] },
            { "role": "tool", "tool_call_id": "c1", "content": json!({ "row": p.nested("JSON in a tool result") }).to_string() },
            { "role": "tool", "tool_call_id": "c1", "content": p.text("tool result") },
            { "role": "user", "content": p.text("user text") },
        ],
        "tools": [{ "type": "function", "function": { "name": "f", "description": p.text("tool description"),
            "parameters": p.schema() } }],
        "response_format": { "type": "json_schema", "json_schema": { "name": "s",
            "description": p.text("schema of the answer"), "schema": { "type": "object" } } },
    })
}

fn functions(p: &mut Places) -> Value {
    json!({
        "model": "m", "user": p.alone("user field"),
        "messages": [
            { "role": "system", "content": p.text("system prompt") },
            { "role": "assistant", "content": null, "function_call": { "name": "f", "arguments": p.arguments(true) } },
            { "role": "function", "name": "f", "content": p.text("tool result") },
            { "role": "user", "content": p.text("user text") },
        ],
        "functions": [{ "name": "f", "description": p.text("tool description"), "parameters": p.schema() }],
    })
}

fn responses(p: &mut Places) -> Value {
    let (first, second) = p.pair("second of two content parts");
    json!({
        "model": "m", "instructions": p.text("system prompt"), "safety_identifier": p.alone("user field"),
        "metadata": { "owner": p.alone("metadata") },
        "prompt": { "id": "pmpt_1", "variables": { "who": p.alone("prompt variable") } },
        "input": [
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": p.text("content part") },
                { "type": "input_text", "text": first },
                { "type": "input_text", "text": second },
                { "type": "input_image", "image_url": p.url("query of an image's URL") },
                { "type": "input_file", "filename": p.alone("file name"),
                  "file_data": format!("data:text/plain;base64,{}", p.file("text file in base64")) },
            ] },
            { "type": "reasoning", "id": "r1", "summary": [{ "type": "summary_text", "text": p.text("reasoning") }] },
            { "type": "message", "role": "assistant", "content": [
                { "type": "output_text", "text": p.text("earlier answer") }] },
            { "type": "function_call", "call_id": "c1", "name": "f", "arguments": p.arguments(true) },
            { "type": "function_call_output", "call_id": "c1", "output": p.text("tool result") },
            { "type": "custom_tool_call", "call_id": "c2", "name": "g", "input": p.text("input of a custom tool") },
            { "type": "function_call_output", "call_id": "c1",
              "output": json!({ "row": p.nested("JSON in a tool result") }).to_string() },
            { "role": "user", "content": p.text("user text") },
        ],
        "tools": [{ "type": "function", "name": "f", "description": p.text("tool description"),
            "parameters": p.schema() }],
    })
}

fn completions(p: &mut Places) -> Value {
    json!({ "model": "m", "prompt": [p.text("user text"), p.text("content part")], "suffix": p.text("suffix"),
        "user": p.alone("user field"), "stop": [p.alone("stop sequence")] })
}

fn embeddings(p: &mut Places) -> Value {
    json!({ "model": "m", "input": [p.text("user text"), p.text("content part")], "user": p.alone("user field") })
}

fn messages(p: &mut Places) -> Value {
    let (first, second) = p.pair("second of two content parts");
    json!({
        "model": "m", "max_tokens": 9, "metadata": { "user_id": p.alone("metadata") },
        "stop_sequences": [p.alone("stop sequence")],
        "system": [{ "type": "text", "text": p.text("system prompt") }],
        "messages": [
            { "role": "user", "content": [
                { "type": "text", "text": p.text("content part") },
                { "type": "text", "text": first },
                { "type": "text", "text": second },
                { "type": "image", "source": { "type": "url", "url": p.url("query of an image's URL") } },
                { "type": "document", "title": p.alone("file name"), "context": p.text("context of a document"),
                  "source": { "type": "text", "media_type": "text/plain", "data": p.text("document") } },
                { "type": "document",
                  "source": { "type": "base64", "media_type": "text/plain", "data": p.file("text file in base64") } },
            ] },
            { "role": "assistant", "content": [
                { "type": "thinking", "thinking": p.text("reasoning") },
                { "type": "text", "text": p.text("earlier answer") },
                { "type": "tool_use", "id": "t1", "name": "f", "input": p.arguments(false) },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "t1", "content": [{ "type": "text", "text": p.text("tool result") }] },
                { "type": "tool_result", "tool_use_id": "t1",
                  "content": json!({ "row": p.nested("JSON in a tool result") }).to_string() },
                { "type": "text", "text": p.text("user text") },
            ] },
        ],
        "tools": [{ "name": "f", "description": p.text("tool description"), "input_schema": p.schema() }],
    })
}

fn complete(p: &mut Places) -> Value {
    json!({ "model": "m", "max_tokens_to_sample": 9, "prompt": format!("\n\nHuman: {}\n\nAssistant:", p.text("user text")),
        "metadata": { "user_id": p.alone("metadata") } })
}

fn gemini(p: &mut Places) -> Value {
    let (first, second) = p.pair("second of two content parts");
    json!({
        "systemInstruction": { "parts": [{ "text": p.text("system prompt") }] },
        "labels": { "owner": p.alone("metadata") },
        "generationConfig": { "stopSequences": [p.alone("stop sequence")] },
        "contents": [
            { "role": "user", "parts": [
                { "text": p.text("content part") }, { "text": first }, { "text": second },
                { "inlineData": { "mimeType": "text/plain", "data": p.file("text file in base64") } },
            ] },
            { "role": "model", "parts": [
                { "text": p.text("reasoning"), "thought": true },
                { "text": p.text("earlier answer") },
                { "functionCall": { "name": "f", "args": p.arguments(false) } },
            ] },
            { "role": "user", "parts": [
                { "functionResponse": { "name": "f", "response": { "result": p.text("tool result") } } },
                { "functionResponse": { "name": "f", "response": {
                    "result": json!({ "row": p.nested("JSON in a tool result") }).to_string() } } },
                { "text": p.text("user text") },
            ] },
        ],
        "tools": [{ "functionDeclarations": [{ "name": "f", "description": p.text("tool description"),
            "parameters": p.schema() }] }],
    })
}

fn ollama(p: &mut Places) -> Value {
    json!({
        "model": "m", "stream": false, "options": { "stop": [p.alone("stop sequence")] },
        "messages": [
            { "role": "system", "content": p.text("system prompt") },
            { "role": "assistant", "content": p.text("earlier answer"), "thinking": p.text("reasoning"),
              "tool_calls": [{ "function": { "name": "f", "arguments": p.arguments(false) } }] },
            { "role": "tool", "tool_name": "f", "content": p.text("tool result") },
            { "role": "user", "content": p.text("user text") },
        ],
        "tools": [{ "type": "function", "function": { "name": "f", "description": p.text("tool description"),
            "parameters": p.schema() } }],
        "format": { "type": "object", "description": p.text("schema of the answer") },
    })
}

fn generate(p: &mut Places) -> Value {
    json!({ "model": "m", "stream": false, "system": p.text("system prompt"), "prompt": p.text("user text"),
        "suffix": p.text("suffix"), "template": p.text("template") })
}

fn cohere(p: &mut Places) -> Value {
    json!({
        "model": "m", "preamble": p.text("system prompt"), "message": p.text("user text"),
        "chat_history": [{ "role": "USER", "message": p.text("content part") },
            { "role": "CHATBOT", "message": p.text("earlier answer") }],
        "documents": [{ "title": p.alone("file name"), "snippet": p.text("document") }],
        "tools": [{ "name": "f", "description": p.text("tool description"), "parameter_definitions": {
            "who": { "type": "str", "description": p.text("schema description") } } }],
        "tool_results": [{ "call": { "name": "f", "parameters": { "who": p.alone("tool arguments") } },
            "outputs": [{ "row": p.text("tool result") }] }],
    })
}

fn tools_call(p: &mut Places) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": { "name": "notes__get", "arguments": p.arguments(false) } })
}
