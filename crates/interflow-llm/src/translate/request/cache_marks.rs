//! Where a client of Anthropic's API wants the provider to cache the prompt (`cache_control`). Bedrock has the same marks
//! as blocks of their own.

use serde_json::{Value, json};

use crate::translate::WireFormat;

/// One mark: the prefix up to here is cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheMark {
    /// For an hour, rather than five minutes.
    is_long: bool,
}

/// The marks of a request, by their places.
#[derive(Clone, Debug, Default)]
pub struct CacheMarks {
    system: Vec<Option<CacheMark>>,
    tools: Vec<Option<CacheMark>>,
    messages: Vec<Vec<Option<CacheMark>>>,
    /// Marks at other places: of the request as a whole, or inside the results of tools.
    others: usize,
}

impl CacheMarks {
    pub fn read(client: WireFormat, body: &Value) -> Self {
        let mut marks = Self { others: count(body), ..Self::default() };
        if client != WireFormat::Anthropic || marks.others == 0 {
            return marks;
        }
        let of_list = |list: &Value| list.as_array().into_iter().flatten().map(CacheMark::of).collect::<Vec<_>>();
        marks.system = of_list(&body["system"]);
        marks.tools = of_list(&body["tools"]);
        let messages = body["messages"].as_array().into_iter().flatten();
        marks.messages = messages.map(|message| of_list(&message["content"])).collect();
        let placed = marks.system.iter().chain(&marks.tools).chain(marks.messages.iter().flatten());
        marks.others = marks.others.saturating_sub(placed.flatten().count());
        marks
    }

    pub fn is_empty(&self) -> bool {
        let mut placed = self.system.iter().chain(&self.tools).chain(self.messages.iter().flatten());
        self.others == 0 && placed.all(Option::is_none)
    }

    /// Whether all are at places that Bedrock has, too.
    pub const fn are_all_placed(&self) -> bool {
        self.others == 0
    }

    pub fn of_system(&self, part: usize) -> Option<&CacheMark> {
        self.system.get(part)?.as_ref()
    }

    pub fn of_tool(&self, tool: usize) -> Option<&CacheMark> {
        self.tools.get(tool)?.as_ref()
    }

    pub fn of_block(&self, message: usize, block: usize) -> Option<&CacheMark> {
        self.messages.get(message)?.get(block)?.as_ref()
    }

    pub fn has_tools(&self) -> bool {
        self.tools.iter().any(Option::is_some)
    }
}

impl CacheMark {
    fn of(block: &Value) -> Option<Self> {
        let control = block.get("cache_control").filter(|c| c.is_object())?;
        Some(Self { is_long: control["ttl"] == "1h" })
    }

    /// The block of Bedrock's Converse.
    pub fn block(self) -> Value {
        let point = if self.is_long { json!({ "type": "default", "ttl": "1h" }) } else { json!({ "type": "default" }) };
        json!({ "cachePoint": point })
    }
}

/// How many objects anywhere inside have a mark. The parser has bounded the depth.
fn count(value: &Value) -> usize {
    match value {
        Value::Object(members) => {
            let own = members.get("cache_control").is_some_and(|v| !v.is_null());
            usize::from(own) + members.values().map(count).sum::<usize>()
        }
        Value::Array(list) => list.iter().map(count).sum(),
        _ => 0,
    }
}
