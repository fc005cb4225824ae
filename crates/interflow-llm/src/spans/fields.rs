//! Members of the providers' bodies that are no text, provider by provider, with the reason. A member that is not listed is
//! text; see `docs/llm.md`.

/// Why a member is not redacted like text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldClass {
    /// A word of the API, an identifier that the provider made, or what it checks byte for byte.
    Structure,
    /// An identifier that the client made: passed on when it looks like one, else text.
    Identifier,
    /// A container in which nothing is text.
    Skip,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct FieldEntry {
    /// The member's name.
    pub name: &'static str,
    /// The providers in whose bodies it stands.
    pub providers: &'static str,
    /// What it is.
    pub class: FieldClass,
    /// Why.
    pub reason: &'static str,
}

macro_rules! fields {
    ($($class:ident, $providers:literal, $reason:literal: $($name:literal)*;)*) => {
        /// Every member that is not text.
        pub const FIELDS: &[FieldEntry] = &[$($(
            FieldEntry { name: $name, providers: $providers, class: FieldClass::$class, reason: $reason },
        )*)*];

        /// What the member of this name is; `None` when it is text or a container of texts.
        pub(super) fn field_class(key: &[u8]) -> Option<FieldClass> {
            let key = std::str::from_utf8(key).ok()?;
            match key {
                $($($name)|* => Some(FieldClass::$class),)*
                _ => None,
            }
        }
    };
}

fields! {
    Structure, "all", "the kind of an item, a word of the API":
        "type" "role" "object" "status" "method" "p" "obfuscation";
    Structure, "all", "names of tools and models; a message's `name` is text":
        "name" "model" "modelVersion" "endpoint" "server_label";
    Structure, "all", "why an answer ended, and by whom it was made":
        "finish_reason" "finishReason" "stop_reason" "stopReason" "done_reason" "native_finish_reason" "service_tier"
        "system_fingerprint" "created_at" "createTime";
    Structure, "Anthropic, Bedrock, Gemini, OpenRouter", "signs what the model thought; checked byte for byte":
        "signature" "thoughtSignature" "thought_signature";
    Structure, "OpenAI, Anthropic, Bedrock", "encrypted by the provider; checked byte for byte":
        "encrypted_content" "encrypted_index" "encrypted_stdout" "redactedContent";
    Structure, "all", "the form of a medium or of an answer":
        "media_type" "mediaType" "mime_type" "mimeType" "format" "detail" "size" "quality" "voice" "effort"
        "encoding_format" "response_format" "truncation" "search_context_size";
    Structure, "all", "settings of a request":
        "anthropic_version" "anthropic_beta" "keep_alive" "container" "tool_choice" "completion_window"
        "prompt_cache_retention";
    Structure, "OpenAI, Anthropic", "a tool server's address and credentials, which it needs as they are":
        "authorization" "authorization_token" "server_url";
    Structure, "OpenAI, Gemini, Bedrock", "where the provider finds a file, a cache or a conversation of its own":
        "file_url" "fileUri" "file_uri" "uri" "cachedContent" "conversation";
    Identifier, "OpenAI", "routes a request to the machine that has its prefix cached; another value loses the cache":
        "prompt_cache_key";
    Identifier, "OpenAI, Anthropic", "the client's opaque id of a user or session, made to tell nothing of the person":
        "user" "user_id" "safety_identifier" "session_id" "sessionId" "device_id" "account_uuid";
    Skip, "OpenAI, Anthropic", "what a search tool may look at, and from where; it finds nothing else otherwise":
        "allowed_domains" "blocked_domains" "excluded_domains" "user_location" "userLocation";
    Skip, "Anthropic, Bedrock", "where a prompt cache ends":
        "cache_control" "cachePoint";
    Skip, "all", "settings of a request":
        "include" "modalities" "responseModalities" "response_modalities" "stream_options" "safetySettings"
        "safety_settings" "logit_bias" "betas" "transforms" "turn_detection";
    Skip, "all", "numbers of an answer":
        "logprobs" "top_logprobs" "logprobsResult" "usage" "usageMetadata" "embedding" "embeddings" "timings";
    Skip, "OpenAI", "header fields for a tool server, which it needs as they are":
        "headers";
}

/// Whether a container is one that the providers' APIs know; the members of others are texts, their names and numbers
/// too.
pub(super) fn is_known_container(key: &[u8]) -> bool {
    let Ok(key) = std::str::from_utf8(key) else { return false };
    matches!(
        key,
        "" | "messages"
            | "message"
            | "content"
            | "contents"
            | "parts"
            | "part"
            | "input"
            | "output"
            | "choices"
            | "delta"
            | "candidates"
            | "outputs"
            | "inputs"
            | "items"
            | "item"
            | "response"
            | "responses"
            | "session"
            | "tools"
            | "tool"
            | "function"
            | "functions"
            | "functionDeclarations"
            | "function_declarations"
            | "toolConfig"
            | "tool_config"
            | "toolSpec"
            | "tool_choice"
            | "toolChoice"
            | "custom"
            | "custom_tool_call"
            | "functionCallingConfig"
            | "function_calling_config"
            | "allowed_tools"
            | "allowedTools"
            | "system"
            | "systemInstruction"
            | "system_instruction"
            | "instructions"
            | "source"
            | "image_url"
            | "video_url"
            | "audio_url"
            | "document_url"
            | "inlineData"
            | "inline_data"
            | "fileData"
            | "file_data"
            | "file"
            | "files"
            | "input_audio"
            | "audio"
            | "document"
            | "image"
            | "images"
            | "video"
            | "toolUse"
            | "toolResult"
            | "tool_result"
            | "reasoningContent"
            | "reasoningText"
            | "guardContent"
            | "text"
            | "functionCall"
            | "function_call"
            | "functionResponse"
            | "function_response"
            | "tool_calls"
            | "toolCalls"
            | "tool_call"
            | "generationConfig"
            | "generation_config"
            | "thinkingConfig"
            | "thinking_config"
            | "speechConfig"
            | "speech_config"
            | "voiceConfig"
            | "prebuiltVoiceConfig"
            | "inferenceConfig"
            | "guardrailConfig"
            | "performanceConfig"
            | "options"
            | "reasoning"
            | "reasoning_details"
            | "thinking"
            | "response_format"
            | "format"
            | "json_schema"
            | "summary"
            | "web_search_options"
            | "filters"
            | "ranking_options"
            | "prediction"
            | "context_management"
            | "edits"
            | "trigger"
            | "keep"
            | "clear_at_least"
            | "mcp_servers"
            | "tool_configuration"
            | "requests"
            | "params"
            | "body"
            | "instances"
            | "texts"
            | "chat_history"
            | "citations"
            | "annotations"
            | "sources"
            | "prompt"
            | "prompts"
            | "queries"
            | "query"
            | "error"
            | "error_detail"
            | "details"
            | "metadata_filter"
            | "output_config"
            | "executableCode"
            | "executable_code"
            | "codeExecutionResult"
            | "code_execution_result"
            | "action"
            | "actions"
            | "results"
            | "result"
            | "groundingMetadata"
            | "promptFeedback"
            | "content_block"
            | "chunk"
            | "chunks"
            | "serverContent"
            | "clientContent"
            | "realtimeInput"
            | "modelTurn"
            | "turns"
            | "setup"
            | "toolResponse"
            | "functionResponses"
            | "functionCalls"
            | "toolCall"
            | "setupComplete"
            | "transcription"
            | "inputTranscription"
            | "outputTranscription"
            | "input_audio_transcription"
            | "input_audio_format"
            | "conversation"
            | "container"
            | "skills"
            | "title"
            | "context"
            | "stop"
            | "stop_sequences"
            | "stopSequences"
            | "provider"
            | "plugins"
            | "models"
            | "web_search"
            | "google_search"
            | "googleSearch"
            | "urlContext"
            | "codeExecution"
            | "code_execution"
            | "googleSearchRetrieval"
            | "search_parameters"
            | "embedding_types"
            | "input_type"
            | "dimensions"
            | "truncate"
            | "examples"
            | "data"
            | "output_text"
            | "refusal"
            | "encrypted_reasoning"
            | "connectors"
            | "outputConfig"
            | "textFormat"
            | "caller"
            | "tool_uses"
    )
}

/// Members that hold what a client tells every model it talks to, in every session.
pub(super) fn is_fixed_prompt(key: &[u8]) -> bool {
    matches!(
        key,
        b"system"
            | b"systemInstruction"
            | b"system_instruction"
            | b"instructions"
            | b"preamble"
            | b"tools"
            | b"toolConfig"
            | b"tool_config"
            | b"functions"
    )
}

/// Whether the text of an identifier looks like one: letters, digits and the signs between them, a digit at least, no
/// address and no long number; or an object of such.
pub(super) fn is_opaque(raw: &[u8]) -> bool {
    let object = raw.starts_with(b"{");
    let (mut letters, mut digits, mut run) = (0usize, 0usize, 0usize);
    for b in raw {
        match b {
            b'0'..=b'9' => {
                (digits, run) = (digits + 1, run + 1);
                if run > MAX_DIGIT_RUN {
                    return false;
                }
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' => letters += 1,
            b'-' | b'_' | b'.' | b':' | b'/' | b'+' | b'=' | b'|' => {}
            b'{' | b'}' | b'"' | b'\\' | b',' | b' ' if object => {}
            _ => return false,
        }
        run = 0;
    }
    letters > 0 && digits > 0 && raw.len() <= MAX_IDENTIFIER_LEN
}

/// Longest identifier that is passed on.
const MAX_IDENTIFIER_LEN: usize = 1024;
/// Longest run of digits in one: a payment card has more, a time in milliseconds has not.
const MAX_DIGIT_RUN: usize = 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_told_from_addresses_names_and_numbers() {
        for id in ["019a-4f2c", "user_ab12_account__session_9f", r#"{\"device_id\":\"ab12\",\"session_id\":\"9f\"}"#] {
            assert!(is_opaque(id.as_bytes()), "{id}");
        }
        for text in
            ["anna", "Anna Berg 1", "anna.berg1@firm.com", "4111111111111111", "u-4111111111111111", "123-45-6789", ""]
        {
            assert!(!is_opaque(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn every_row_gives_a_reason_and_stands_once() {
        let mut names: Vec<_> = FIELDS.iter().map(|f| f.name).collect();
        assert!(FIELDS.iter().all(|f| !f.reason.is_empty() && !f.providers.is_empty()));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIELDS.len());
    }
}
