//! The place of a text in the message model, by the names, types and roles of the containers around it.

use super::TextPlace;

/// What a container says about itself.
pub(super) struct ContainerNames<'a> {
    /// The member's name, or that of the enclosing array.
    pub key: &'a [u8],
    /// Its member `type`.
    pub kind: &'a [u8],
    /// Its member `role`.
    pub role: &'a [u8],
    /// How many containers are around it.
    pub depth: usize,
}

/// The place of a string by its own name; `at_root` means that it is a member of the body itself.
pub(super) fn place_of_string(name: &[u8], at_root: bool) -> TextPlace {
    match name {
        b"thinking" | b"reasoning_content" | b"reasoning" => TextPlace::Thinking,
        b"arguments" | b"partial_json" => TextPlace::ToolCall,
        b"system" | b"instructions" | b"system_instruction" | b"preamble" if at_root => TextPlace::System,
        b"prompt" | b"input" | b"message" if at_root => TextPlace::User,
        _ => TextPlace::Unknown,
    }
}

/// The place of the texts in a container that do not have one yet: its type is more specific than its name, and that
/// more than the message's role.
pub(super) fn place_of_container(names: &ContainerNames<'_>) -> TextPlace {
    let by_kind = place_of_kind(names.kind);
    if by_kind != TextPlace::Unknown {
        return by_kind;
    }
    match names.key {
        b"toolResult" | b"functionResponse" | b"function_response" | b"tool_results" => TextPlace::ToolResult,
        b"toolUse" | b"functionCall" | b"function_call" | b"tool_calls" => TextPlace::ToolCall,
        b"reasoningContent" => TextPlace::Thinking,
        b"documents" => TextPlace::Document,
        b"tools" | b"functions" | b"toolConfig" if names.depth == 1 => TextPlace::ToolDefinition,
        b"system" | b"systemInstruction" | b"system_instruction" if names.depth == 1 => TextPlace::System,
        b"prompt" if names.depth == 1 => TextPlace::User,
        _ => place_of_role(names.role),
    }
}

fn place_of_kind(kind: &[u8]) -> TextPlace {
    match kind {
        b"tool_result" => TextPlace::ToolResult,
        kind if kind.ends_with(b"_tool_result") || kind.ends_with(b"_call_output") => TextPlace::ToolResult,
        b"tool_use" | b"server_tool_use" | b"mcp_tool_use" | b"function_call" | b"custom_tool_call" | b"mcp_call" => {
            TextPlace::ToolCall
        }
        b"document" | b"search_result" | b"input_file" | b"file" => TextPlace::Document,
        b"thinking" | b"thinking_delta" | b"reasoning" | b"thought" | b"thought_summary" => TextPlace::Thinking,
        // Steps of an interaction.
        b"user_input" => TextPlace::User,
        b"model_output" => TextPlace::Assistant,
        kind if kind.ends_with(b"_result") => TextPlace::ToolResult,
        // Events of the Responses API.
        kind if kind.starts_with(b"response.reasoning") => TextPlace::Thinking,
        kind if kind.starts_with(b"response.") && memchr::memmem::find(kind, b"arguments").is_some() => {
            TextPlace::ToolCall
        }
        kind if kind.starts_with(b"response.custom_tool_call_input") => TextPlace::ToolCall,
        _ => TextPlace::Unknown,
    }
}

fn place_of_role(role: &[u8]) -> TextPlace {
    match role {
        b"system" | b"developer" | b"SYSTEM" => TextPlace::System,
        b"user" | b"USER" => TextPlace::User,
        b"assistant" | b"model" | b"CHATBOT" => TextPlace::Assistant,
        b"tool" | b"function" | b"TOOL" => TextPlace::ToolResult,
        _ => TextPlace::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{TextPlace, mark_body};

    fn places(body: &Value) -> Vec<(String, TextPlace)> {
        let text = body.to_string();
        let marked = mark_body(text.as_bytes(), true).unwrap();
        marked.spans.iter().map(|s| (text[s.range.clone()].to_owned(), s.place)).collect()
    }

    fn assert_places(body: &Value, expected: &[(&str, TextPlace)]) {
        let found = places(body);
        for (text, place) in expected {
            assert!(found.iter().any(|(t, p)| t == text && p == place), "{text} {place:?}: {found:?}");
        }
    }

    #[test]
    fn texts_of_each_format_have_their_place() {
        use TextPlace::{Assistant, Document, System, Thinking, ToolCall, ToolDefinition, ToolResult, User};
        assert_places(
            &json!({
                "model": "claude", "system": [{"type": "text", "text": "s1"}],
                "tools": [{"name": "t", "description": "d1", "input_schema": {"type": "object", "description": "d2"}}],
                "messages": [
                    {"role": "user", "content": "u1"},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "th", "signature": "sig-long-enough"},
                        {"type": "text", "text": "a1"},
                        {"type": "tool_use", "id": "x", "name": "t", "input": {"q": "c1"}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "x", "content": [{"type": "text", "text": "r1"}]},
                        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "doc"}},
                        {"type": "text", "text": "u2"}]}
                ]
            }),
            &[
                ("s1", System),
                ("d1", ToolDefinition),
                ("d2", ToolDefinition),
                ("u1", User),
                ("th", Thinking),
                ("a1", Assistant),
                ("c1", ToolCall),
                ("r1", ToolResult),
                ("doc", Document),
                ("u2", User),
            ],
        );
        assert_places(
            &json!({
                "messages": [
                    {"role": "developer", "content": "s1"},
                    {"role": "user", "content": [{"type": "text", "text": "u1"}]},
                    {"role": "assistant", "content": "a1", "tool_calls": [
                        {"id": "x", "type": "function", "function": {"name": "t", "arguments": "{}"}}]},
                    {"role": "tool", "tool_call_id": "x", "content": "r1"}],
                "tools": [{"type": "function", "function": {"name": "t", "description": "d1"}}]
            }),
            &[
                ("s1", System),
                ("u1", User),
                ("a1", Assistant),
                ("{}", ToolCall),
                ("r1", ToolResult),
                ("d1", ToolDefinition),
            ],
        );
        assert_places(
            &json!({
                "instructions": "s1",
                "input": [
                    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u1"}]},
                    {"type": "function_call", "call_id": "x", "name": "t", "arguments": "{}"},
                    {"type": "function_call_output", "call_id": "x", "output": "r1"},
                    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a1"}]}]
            }),
            &[("s1", System), ("u1", User), ("{}", ToolCall), ("r1", ToolResult), ("a1", Assistant)],
        );
        assert_places(
            &json!({
                "systemInstruction": {"parts": [{"text": "s1"}]},
                "contents": [
                    {"role": "user", "parts": [{"text": "u1"}, {"functionResponse": {"name": "t", "response": {"x": "r1"}}}]},
                    {"role": "model", "parts": [{"text": "a1"}, {"functionCall": {"name": "t", "args": {"q": "c1"}}}]}]
            }),
            &[("s1", System), ("u1", User), ("r1", ToolResult), ("a1", Assistant), ("c1", ToolCall)],
        );
        assert_places(&json!({"input": "u1"}), &[("u1", User)]);
    }
}
