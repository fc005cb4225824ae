//! Classifies the members of request and response bodies as structure or text, and how containers are traversed.

use super::fields::{self, FieldClass, FieldScope};

/// How the content of a container is treated. The rule of a container is that of the one around it, unless its name
/// says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ContainerRule {
    /// By the names of its members, as in the API's documentation.
    #[default]
    Known,
    /// A container unknown to any API: everything in it is text, except what a provider signed or encrypted.
    Unknown,
    /// All strings are text: tool arguments and results, whatever the members' names.
    Free,
    /// A JSON Schema: keywords are structure, descriptions and examples are text.
    Schema,
    /// Metadata: text, if the operator configured it so.
    Metadata,
    /// Words of the API; names and strings that do not look like one are text.
    Settings,
    /// Nothing in it is text, whatever it contains.
    Skip,
}

/// The role of a string, which decides whether it becomes a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StringRole {
    Text,
    Json,
    Metadata,
    /// A client-generated identifier, if it looks like one.
    Identifier,
    /// May be base64 media, or a URL that contains it.
    Blob,
    /// The address of a file, or the provider's name of one.
    Address,
    /// A word of the API, if it looks like one, else text.
    Word,
    /// An identifier that the provider made, if it looks like one, else text.
    Id,
    /// Never text.
    Structure,
}

/// Where a container is: the rule around it, and the names that lead to it.
pub(super) struct ContainerPosition<'a> {
    pub zone: ContainerRule,
    /// The member's name, or that of the enclosing array.
    pub key: &'a [u8],
    pub parent: &'a [u8],
    pub object: bool,
    pub scope: FieldScope,
}

/// The rule for a container, by its name and that of the container around it. The arms are ordered: exceptions come
/// before what they except.
pub(super) fn container_rule(place: &ContainerPosition<'_>) -> ContainerRule {
    match (place.zone, place.key) {
        (ContainerRule::Schema, b"enum" | b"examples" | b"default" | b"const" | b"example") => ContainerRule::Free,
        (ContainerRule::Known, b"input" | b"data" | b"format") if !place.object => ContainerRule::Known,
        (ContainerRule::Known, b"response") => match place.parent {
            b"functionResponse" | b"function_response" => ContainerRule::Free,
            _ => ContainerRule::Known,
        },
        // A part of the input of an interaction; elsewhere arguments of a tool.
        (ContainerRule::Known, b"input") if place.parent.is_empty() => ContainerRule::Known,
        (ContainerRule::Known, b"result") if place.object => ContainerRule::Free,
        (ContainerRule::Known, b"input" | b"data" | b"arguments" | b"args" | b"json" | b"variables" | b"documents") => {
            ContainerRule::Free
        }
        (ContainerRule::Known, b"metadata" | b"labels") => ContainerRule::Metadata,
        (ContainerRule::Known, key) if holds_schema(key) => ContainerRule::Schema,
        (ContainerRule::Known | ContainerRule::Unknown | ContainerRule::Metadata, key)
            if matches!(place.scope.class_of(key), Some(FieldClass::Tool | FieldClass::Numbers)) =>
        {
            ContainerRule::Skip
        }
        (ContainerRule::Known, key) if place.scope.class_of(key) == Some(FieldClass::Settings) => {
            ContainerRule::Settings
        }
        (ContainerRule::Known, key) if !fields::is_known_container(key) => ContainerRule::Unknown,
        (zone, _) => zone,
    }
}

/// Members that have a JSON Schema.
fn holds_schema(key: &[u8]) -> bool {
    matches!(key, b"input_schema" | b"inputSchema" | b"outputSchema" | b"schema" | b"format" | b"parameters")
        || matches!(key, b"responseSchema" | b"response_schema" | b"responseJsonSchema" | b"parameter_definitions")
        || matches!(key, b"parametersJsonSchema" | b"parameters_json_schema")
}

/// The role of a string under this name; `named` means that `name` in its object is a person's or a file's, rather
/// than a tool's, which must not be changed.
pub(super) fn string_role(zone: ContainerRule, key: &[u8], named: bool, scope: FieldScope) -> StringRole {
    match zone {
        ContainerRule::Free => StringRole::Text,
        ContainerRule::Metadata if scope.class_of(key) == Some(FieldClass::Identifier) => StringRole::Identifier,
        ContainerRule::Metadata => StringRole::Metadata,
        ContainerRule::Unknown => match key {
            b"type" => StringRole::Word,
            b"signature" | b"thoughtSignature" | b"thought_signature" | b"encrypted_content" => StringRole::Structure,
            key if is_blob(key) => StringRole::Blob,
            _ => StringRole::Text,
        },
        ContainerRule::Settings => StringRole::Word,
        ContainerRule::Skip => StringRole::Structure,
        ContainerRule::Schema => match key {
            b"pattern" => StringRole::Structure,
            b"type" | b"format" | b"$ref" | b"$schema" | b"$id" | b"id" | b"name" | b"contentEncoding"
            | b"contentMediaType" | b"required" => StringRole::Word,
            _ => StringRole::Text,
        },
        ContainerRule::Known => known_string_role(key, named, scope),
    }
}

fn known_string_role(key: &[u8], named: bool, scope: FieldScope) -> StringRole {
    match key {
        b"name" if named => StringRole::Text,
        b"arguments" | b"partial_json" => StringRole::Json,
        b"file_url" | b"fileUri" | b"file_uri" | b"uri" => StringRole::Address,
        key if is_blob(key) => StringRole::Blob,
        _ => match scope.class_of(key) {
            Some(FieldClass::Exact | FieldClass::Tool | FieldClass::Numbers) => StringRole::Structure,
            Some(FieldClass::Word | FieldClass::Settings) => StringRole::Word,
            Some(FieldClass::Identifier) => StringRole::Identifier,
            None if is_id(key) => StringRole::Id,
            None => StringRole::Text,
        },
    }
}

/// Whether a member of this name may contain media. Its value decides: an address, a text, or base64.
fn is_blob(key: &[u8]) -> bool {
    matches!(key, b"data" | b"bytes" | b"b64_json" | b"partial_image_b64" | b"url" | b"file_data" | b"fileData")
        || matches!(key, b"image_url" | b"imageUrl" | b"images" | b"image" | b"input_image" | b"audio")
}

/// Ids generated by the provider, which it must be able to find again.
fn is_id(key: &[u8]) -> bool {
    key == b"id" || key.ends_with(b"_id") || key.ends_with(b"Id") || key.ends_with(b"_ids") || key == b"ids"
}

/// Members that determine which of several texts an event continues.
pub(super) fn is_index(key: &[u8]) -> bool {
    matches!(key, b"index" | b"output_index" | b"content_index" | b"summary_index" | b"contentBlockIndex" | b"thought")
}

/// Event types whose texts are all fragments, whatever the members' names.
pub(super) fn is_piece(kind: &[u8]) -> bool {
    matches!(kind, b"text-generation" | b"tool-calls-chunk" | b"message.output.delta" | b"function.call.delta")
}

/// Event types that end all texts (true), or those of their own block (false).
pub(super) fn ends(kind: &[u8]) -> Option<bool> {
    // Compiled to comparisons by length: every event is looked up.
    match kind {
        b"message_delta" | b"message_stop" | b"messageStop" | b"message-end" | b"error" | b"metadata" => Some(true),
        b"tool-calls-generation" | b"stream-end" | b"response.done" | b"session.closed" => Some(true),
        b"conversation.response.done" | b"conversation.response.error" | b"response.completed" => Some(true),
        b"response.incomplete" | b"response.failed" | b"interaction.completed" => Some(true),
        b"interaction.cancelled" => Some(true),
        b"content_block_stop" | b"contentBlockStop" | b"step.stop" | b"content-end" | b"tool-call-end" => Some(false),
        b"tool-plan-end" | b"conversation.item.input_audio_transcription.completed" => Some(false),
        kind if kind.ends_with(b"Exception") => Some(true),
        kind if kind.starts_with(b"response.") && kind.ends_with(b".done") => Some(false),
        _ => None,
    }
}
