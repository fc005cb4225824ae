//! Answers in JSON where an API has no such setting, or does not take the client's schema: the model is made to call a
//! tool whose arguments are the answer, and the client gets the arguments as text.

use interflow_types::data_file::has_word;
use serde_json::{Value, json};

use super::settings::{JsonOutput, ToolChoice};
use crate::message::{ContentBlock, ModelReply};

/// The tool. Its name is reserved: a call of it is text to every client.
pub(super) const ANSWER_TOOL: &str = "interflow_json_answer";
const ANSWER_TOOL_DESCRIPTION: &str = "Gives the answer to the user. The answer is these arguments, and nothing else.";

/// How a model is made to answer in JSON.
#[derive(Debug, PartialEq)]
pub(super) enum JsonAnswer<'a> {
    /// By the API's structured outputs.
    Structured(&'a Value),
    /// By a call of [`ANSWER_TOOL`] with arguments of this schema.
    Tool(Value),
    /// Not at all.
    Lost,
}

impl<'a> JsonAnswer<'a> {
    /// `is_structured`: whether the model has structured outputs; `may_force`: whether it can be made to call a tool.
    pub fn new(output: &'a JsonOutput, is_structured: bool, may_force: bool, choice: Option<&ToolChoice>) -> Self {
        let schema = output.schema.as_ref();
        if let Some(schema) = schema.filter(|schema| is_structured && fits(schema)) {
            return Self::Structured(schema);
        }
        let schema = schema.cloned().unwrap_or_else(|| json!({ "type": "object" }));
        // The client wants one of its own tools to be called.
        let is_taken = matches!(choice, Some(ToolChoice::Named(_)));
        if may_force && !is_taken && schema["type"] == "object" { Self::Tool(schema) } else { Self::Lost }
    }

    /// The tool whose arguments are the answer, if there is one.
    pub fn tool(&self) -> Option<AnswerTool<'_>> {
        match self {
            Self::Tool(schema) => Some((ANSWER_TOOL, ANSWER_TOOL_DESCRIPTION, schema)),
            Self::Structured(_) | Self::Lost => None,
        }
    }
}

/// Name, description and schema of the tool.
pub type AnswerTool<'a> = (&'static str, &'static str, &'a Value);

/// Makes calls of the tool in a whole reply the text that they stand for.
pub(super) fn to_text(reply: &mut ModelReply) {
    let mut is_answer = false;
    for block in &mut reply.blocks {
        if let ContentBlock::ToolUse { name, input, .. } = block
            && name == ANSWER_TOOL
        {
            is_answer = true;
            *block = ContentBlock::Text { text: input.as_str().map_or_else(|| input.to_string(), str::to_owned) };
        }
    }
    if is_answer && !reply.blocks.iter().any(|block| matches!(block, ContentBlock::ToolUse { .. })) {
        reply.stop = Some("end_turn".to_owned());
    }
}

/// Keywords that structured outputs of Claude refuse.
const UNSUPPORTED: &str = "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength maxItems uniqueItems oneOf \
    not patternProperties propertyNames";

/// Whether structured outputs take a schema: each object says that it has no further members, and no keyword is one
/// that they refuse.
pub(super) fn fits(schema: &Value) -> bool {
    let Some(members) = schema.as_object() else { return schema.as_bool().is_none() };
    let is_object = schema["type"] == "object" || schema.get("properties").is_some();
    if is_object && schema["additionalProperties"] != false {
        return false;
    }
    if schema["minItems"].as_u64().is_some_and(|least| least > 1) {
        return false;
    }
    // A schema that refers to itself, or to another document.
    if schema["$ref"].as_str().is_some_and(|reference| reference == "#" || !reference.starts_with('#')) {
        return false;
    }
    members.iter().all(|(name, inner)| match name.as_str() {
        // Names of members, not keywords.
        "properties" | "$defs" | "definitions" => inner.as_object().is_some_and(|all| all.values().all(fits)),
        "anyOf" | "allOf" => inner.as_array().is_some_and(|all| all.iter().all(fits)),
        "items" => fits(inner),
        name => !has_word(UNSUPPORTED, name),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_takes_the_form_that_the_model_has_for_it() {
        let closed =
            |inner: Value| json!({ "type": "object", "properties": { "a": inner }, "additionalProperties": false });
        let output = |schema: Option<Value>| JsonOutput { name: "answer".into(), schema, strict: None };
        for (schema, is_structured) in [
            (closed(json!({ "type": "string" })), true),
            (closed(json!({ "type": "array", "items": closed(json!({ "anyOf": [{ "type": "null" }] })) })), true),
            (closed(json!({ "type": "integer", "minimum": 1 })), false),
            (closed(json!({ "type": "object" })), false),
            (closed(json!({ "$ref": "#" })), false),
            (json!({ "type": "object", "properties": {} }), false),
        ] {
            let output = output(Some(schema.clone()));
            let expected =
                if is_structured { JsonAnswer::Structured(&schema) } else { JsonAnswer::Tool(schema.clone()) };
            assert_eq!(JsonAnswer::new(&output, true, true, None), expected);
            assert_eq!(JsonAnswer::new(&output, false, true, None), JsonAnswer::Tool(schema.clone()));
            assert_eq!(JsonAnswer::new(&output, false, false, None), JsonAnswer::Lost);
        }
        let any = output(None);
        assert_eq!(JsonAnswer::new(&any, true, true, None), JsonAnswer::Tool(json!({ "type": "object" })));
        assert_eq!(JsonAnswer::new(&any, true, true, Some(&ToolChoice::Named("f".into()))), JsonAnswer::Lost);
        let list = output(Some(json!({ "type": "array", "minItems": 2 })));
        assert_eq!(JsonAnswer::new(&list, true, true, None), JsonAnswer::Lost, "arguments are objects");
    }
}
