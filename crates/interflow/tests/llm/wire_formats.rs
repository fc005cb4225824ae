//! Wire formats of the providers: for each a request and the echoing response. `$$` is replaced by the text; addresses
//! and members follow the providers' documentation.

use serde_json::Value;

use Framing::{EventStream, Growing, Invoked, Lines, Sse, Whole};

/// Framing of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Whole,
    Sse,
    Lines,
    /// A streamed JSON array.
    Growing,
    /// AWS event stream with this event name.
    EventStream(&'static str),
    /// AWS event stream of `{"bytes": "…"}`, as used by InvokeModel.
    Invoked,
}

/// A request and its response.
pub struct Shape {
    pub name: &'static str,
    /// The gateway endpoint.
    pub at: &'static str,
    pub path: &'static str,
    pub media: &'static str,
    pub ask: &'static str,
    pub framing: Framing,
    /// The response, or one event of it.
    pub event: &'static str,
    /// JSON pointer to the text; empty if the response has none.
    pub text: &'static str,
    /// The last event.
    pub end: &'static str,
    /// Whether the text is in tool call arguments.
    pub arguments: bool,
}

const JSON: &str = "application/json";
/// Boundary of multipart requests.
const FORM: &str = "multipart/form-data; boundary=XX";

const fn whole(
    at: &'static str,
    path: &'static str,
    ask: &'static str,
    event: &'static str,
    text: &'static str,
) -> Shape {
    stream(Whole, at, path, ask, event, text, "")
}

const fn stream(
    framing: Framing,
    at: &'static str,
    path: &'static str,
    ask: &'static str,
    event: &'static str,
    text: &'static str,
    end: &'static str,
) -> Shape {
    Shape { name: "", at, path, media: JSON, ask, framing, event, text, end, arguments: false }
}

impl Shape {
    const fn named(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    const fn arguments(mut self) -> Self {
        self.arguments = true;
        self
    }

    const fn form(mut self) -> Self {
        self.media = FORM;
        self
    }

    /// The provider's host, and whether it uses TLS.
    pub fn host(&self) -> &'static str {
        match self.at {
            "openai" => "api.openai.com",
            "anthropic" => "api.anthropic.com",
            "gemini" => "generativelanguage.googleapis.com",
            "vertex" => "us-central1-aiplatform.googleapis.com",
            "azure" => "firm.openai.azure.com",
            "bedrock" => "bedrock-runtime.us-east-1.amazonaws.com",
            "cohere" => "api.cohere.com",
            "mistral" => "api.mistral.ai",
            _ => "ollama.test:11434",
        }
    }

    pub fn said(&self, event: &Value) -> String {
        event.pointer(self.text).and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

const CHAT: &str = r#"{"choices":[{"index":0,"delta":{"content":"$$"},"finish_reason":null}],"n":1.0}"#;
const CHAT_END: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
const CHAT_WHOLE: &str = r#"{"id":"c1","n":1.0,"choices":[{"index":0,"message":{"role":"assistant","content":"$$"},"finish_reason":"stop"}]}"#;
const CHAT_TEXT: &str = "/choices/0/delta/content";
const CALL: &str = r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"$$"}}]},"finish_reason":null}]}"#;
const CALL_TEXT: &str = "/choices/0/delta/tool_calls/0/function/arguments";
const GEMINI: &str =
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"$$"}]},"index":0}],"modelVersion":"g"}"#;
const GEMINI_END: &str =
    r#"{"candidates":[{"content":{"role":"model","parts":[{"text":""}]},"index":0,"finishReason":"STOP"}]}"#;
const GEMINI_TEXT: &str = "/candidates/0/content/parts/0/text";
const GEMINI_CALL: &str = r#"{"candidates":[{"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{"who":"$$"}}}]},"index":0}]}"#;
const MESSAGE: &str = r#"{"id":"m1","type":"message","role":"assistant","content":[{"type":"text","text":"$$"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
const DELTA: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"$$"}}"#;
const INPUT: &str =
    r#"{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"$$"}}"#;
const STOP: &str = r#"{"type":"message_stop"}"#;

const ASK_CHAT: &str = r#"{"model":"m", "n":1.0,"messages":[{"role":"system","content":"terse"},{"role":"user","content":[{"type":"text","text":"$$"}]}],"temperature":0.10,"unknown":{"kept":[9007199254740993,null]}}"#;
const ASK_STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"$$"}]}"#;
const ASK_CLAUDE: &str = r#"{"model":"claude-x","max_tokens":64,"system":[{"type":"text","text":"terse"}],"messages":[{"role":"user","content":[{"type":"text","text":"$$"}]}]}"#;
const ASK_GEMINI: &str = r#"{"systemInstruction":{"parts":[{"text":"terse"}]},"contents":[{"role":"user","parts":[{"text":"$$"}]}],"generationConfig":{"temperature":0.10}}"#;
const ASK_CONVERSE: &str = r#"{"system":[{"text":"terse"}],"messages":[{"role":"user","content":[{"text":"$$"}]}],"inferenceConfig":{"maxTokens":64},"toolConfig":{"tools":[{"toolSpec":{"name":"f","inputSchema":{"json":{"type":"object"}}}}]}}"#;
const ASK_INVOKE: &str =
    r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":64,"messages":[{"role":"user","content":"$$"}]}"#;

/// OpenAI and compatible servers.
pub const OPENAI: &[Shape] = &[
    whole("openai", "/v1/chat/completions", ASK_CHAT, CHAT_WHOLE, "/choices/0/message/content").named("chat"),
    stream(Sse, "openai", "/v1/chat/completions", ASK_STREAM, CHAT, CHAT_TEXT, CHAT_END).named("chat, stream"),
    stream(Sse, "openai", "/v1/chat/completions", ASK_STREAM, CALL, CALL_TEXT, CHAT_END).arguments().named("chat, tool, stream"),
    whole("openai", "/v1/chat/completions", ASK_CHAT, r#"{"choices":[{"message":{"tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"$$"}}]}}]}"#, "/choices/0/message/tool_calls/0/function/arguments").arguments().named("chat, tool"),
    whole("openai", "/v1/responses", r#"{"model":"m","instructions":"terse","input":[{"role":"user","content":[{"type":"input_text","text":"$$"}]}]}"#, r#"{"id":"r1","object":"response","output":[{"type":"message","content":[{"type":"output_text","text":"$$","annotations":[]}]}]}"#, "/output/0/content/0/text").named("responses"),
    stream(Sse, "openai", "/v1/responses", r#"{"model":"m","stream":true,"input":"$$"}"#, r#"{"type":"response.output_text.delta","output_index":0,"content_index":0,"item_id":"i","delta":"$$"}"#, "/delta", r#"{"type":"response.output_text.done","output_index":0,"content_index":0,"item_id":"i"}"#).named("responses, stream"),
    stream(Sse, "openai", "/v1/responses", r#"{"model":"m","stream":true,"input":"$$"}"#, r#"{"type":"response.function_call_arguments.delta","output_index":0,"item_id":"i","delta":"$$"}"#, "/delta", r#"{"type":"response.function_call_arguments.done","output_index":0,"item_id":"i"}"#).arguments().named("responses, tool, stream"),
    whole("openai", "/v1/completions", r#"{"model":"m","prompt":["$$"],"suffix":"end","max_tokens":9}"#, r#"{"choices":[{"index":0,"text":"$$","logprobs":null}]}"#, "/choices/0/text").named("completions"),
    stream(Sse, "openai", "/v1/completions", r#"{"model":"m","stream":true,"prompt":"$$"}"#, r#"{"choices":[{"index":0,"text":"$$","finish_reason":null}]}"#, "/choices/0/text", r#"{"choices":[{"index":0,"text":"","finish_reason":"stop"}]}"#).named("completions, stream"),
    whole("openai", "/v1/embeddings", r#"{"model":"m","input":["$$","other"],"encoding_format":"float"}"#, r#"{"data":[{"embedding":[0.10,1e-7],"index":0}]}"#, "").named("embeddings"),
    whole("openai", "/v1/moderations", r#"{"model":"m","input":[{"type":"text","text":"$$"}]}"#, r#"{"results":[{"flagged":false}]}"#, "").named("moderations"),
    whole("openai", "/v1/images/generations", r#"{"model":"m","prompt":"$$","size":"1024x1024","n":1}"#, r#"{"data":[{"url":"https://a/b.png","revised_prompt":"$$"}]}"#, "/data/0/revised_prompt").named("images"),
    whole("openai", "/v1/audio/speech", r#"{"model":"tts-1","voice":"alloy","input":"$$"}"#, r#"{"sound":"any"}"#, "").named("speech"),
    whole("openai", "/v1/audio/transcriptions", "--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nwhisper-1\r\n--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n$$\r\n--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.wav\"\r\nContent-Type: audio/wav\r\n\r\nRIFF\0\u{1}\r\n--XX--\r\n", r#"{"text":"$$"}"#, "/text").form().named("transcriptions"),
    stream(Sse, "openai", "/v1/audio/transcriptions", "--XX\r\nContent-Disposition: form-data; name=\"stream\"\r\n\r\ntrue\r\n--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n$$\r\n--XX--\r\n", r#"{"type":"transcript.text.delta","delta":"$$"}"#, "/delta", r#"{"type":"transcript.text.done"}"#).form().named("transcriptions, stream"),
    whole("openai", "/v1/images/edits", "--XX\r\nContent-Disposition: form-data; name=\"prompt\"\r\n\r\n$$\r\n--XX\r\nContent-Disposition: form-data; name=\"image\"; filename=\"a.png\"\r\nContent-Type: image/png\r\n\r\n\u{1}PNG\r\n--XX--\r\n", r#"{"data":[{"revised_prompt":"$$"}]}"#, "/data/0/revised_prompt").form().named("images, edits"),
    whole("openai", "/v1/files", "--XX\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"b.jsonl\"\r\nContent-Type: application/jsonl\r\n\r\n{\"custom_id\":\"1\",\"url\":\"/v1/chat/completions\",\"body\":{\"messages\":[{\"role\":\"user\",\"content\":\"$$\"}]}}\n{\"custom_id\":\"2\"}\n\r\n--XX--\r\n", r#"{"id":"file-1"}"#, "").form().named("files"),
    whole("openai", "/v1/files", "--XX\r\nContent-Disposition: form-data; name=\"file\"; filename=\"notes.txt\"\r\nContent-Type: text/plain\r\n\r\n$$\r\n--XX--\r\n", r#"{"id":"file-2"}"#, "").form().named("files, text"),
    whole("openai", "/v1/batches", r#"{"input_file_id":"file-1","endpoint":"/v1/chat/completions","completion_window":"24h"}"#, r#"{"id":"b"}"#, "").named("batches"),
    whole("azure", "/openai/deployments/d/chat/completions?api-version=2024-10-21", ASK_CHAT, CHAT_WHOLE, "/choices/0/message/content").named("chat"),
    stream(Sse, "azure", "/openai/deployments/d/chat/completions?api-version=1", ASK_STREAM, CHAT, CHAT_TEXT, CHAT_END).named("chat, stream"),
    whole("azure", "/openai/v1/responses", r#"{"model":"m","input":"$$"}"#, r#"{"output":[{"type":"message","content":[{"type":"output_text","text":"$$"}]}]}"#, "/output/0/content/0/text").named("responses"),
    whole("azure", "/openai/deployments/d/embeddings?api-version=1", r#"{"input":"$$"}"#, r#"{"data":[]}"#, "").named("embeddings"),
    whole("mistral", "/v1/chat/completions", r#"{"model":"mistral-large","messages":[{"role":"user","content":"$$"}],"safe_prompt":false}"#, CHAT_WHOLE, "/choices/0/message/content").named("chat"),
    stream(Sse, "mistral", "/v1/chat/completions", ASK_STREAM, CHAT, CHAT_TEXT, CHAT_END).named("chat, stream"),
    stream(Sse, "mistral", "/v1/chat/completions", ASK_STREAM, CALL, CALL_TEXT, CHAT_END).arguments().named("chat, tool, stream"),
    whole("mistral", "/v1/fim/completions", r#"{"model":"codestral","prompt":"$$","suffix":"end"}"#, CHAT_WHOLE, "/choices/0/message/content").named("fill in the middle"),
    whole("mistral", "/v1/agents/completions", r#"{"agent_id":"a","messages":[{"role":"user","content":"$$"}]}"#, CHAT_WHOLE, "/choices/0/message/content").named("agents"),
    whole("mistral", "/v1/conversations", r#"{"agent_id":"a","inputs":[{"role":"user","content":"$$"}]}"#, r#"{"conversation_id":"c","outputs":[{"type":"message.output","content":"$$","role":"assistant"}]}"#, "/outputs/0/content").named("conversations"),
    stream(Sse, "mistral", "/v1/conversations", r#"{"agent_id":"a","stream":true,"inputs":"$$"}"#, r#"{"type":"message.output.delta","output_index":0,"content_index":0,"id":"i","content":"$$","role":"assistant"}"#, "/content", r#"{"type":"conversation.response.done","usage":{"prompt_tokens":1}}"#).named("conversations, stream"),
    whole("mistral", "/v1/embeddings", r#"{"model":"mistral-embed","input":["$$"]}"#, r#"{"data":[]}"#, "").named("embeddings"),
    whole("mistral", "/v1/moderations", r#"{"model":"m","input":"$$"}"#, r#"{"results":[]}"#, "").named("moderations"),
];

/// All other providers.
pub const OTHERS: &[Shape] = &[
    whole("anthropic", "/v1/messages", ASK_CLAUDE, MESSAGE, "/content/0/text").named("messages"),
    stream(Sse, "anthropic", "/v1/messages", r#"{"model":"c","max_tokens":64,"stream":true,"messages":[{"role":"user","content":"$$"}]}"#, DELTA, "/delta/text", STOP).named("messages, stream"),
    stream(Sse, "anthropic", "/v1/messages", r#"{"model":"c","max_tokens":64,"stream":true,"messages":[{"role":"user","content":"$$"}]}"#, INPUT, "/delta/partial_json", STOP).arguments().named("messages, tool, stream"),
    whole("anthropic", "/v1/messages", ASK_CLAUDE, r#"{"type":"message","content":[{"type":"tool_use","id":"t","name":"f","input":{"type":"x","who":"$$"}}]}"#, "/content/0/input/who").named("messages, tool"),
    whole("anthropic", "/v1/messages/count_tokens", ASK_CLAUDE, r#"{"input_tokens":7}"#, "").named("count_tokens"),
    whole("anthropic", "/v1/messages/batches", r#"{"requests":[{"custom_id":"1","params":{"model":"c","max_tokens":9,"messages":[{"role":"user","content":"$$"}]}}]}"#, r#"{"id":"msgbatch_1"}"#, "").named("batches"),
    whole("gemini", "/v1beta/models/g:generateContent", ASK_GEMINI, GEMINI, GEMINI_TEXT).named("generateContent"),
    whole("gemini", "/v1beta/models/g:generateContent?key=k", ASK_GEMINI, GEMINI_CALL, "/candidates/0/content/parts/0/functionCall/args/who").named("generateContent, tool"),
    stream(Sse, "gemini", "/v1beta/models/g:streamGenerateContent?alt=sse", ASK_GEMINI, GEMINI, GEMINI_TEXT, GEMINI_END).named("streamGenerateContent, alt=sse"),
    stream(Growing, "gemini", "/v1beta/models/g:streamGenerateContent", ASK_GEMINI, GEMINI, GEMINI_TEXT, GEMINI_END).named("streamGenerateContent"),
    whole("gemini", "/v1beta/models/g:countTokens", r#"{"contents":[{"parts":[{"text":"$$"}]}]}"#, r#"{"totalTokens":7}"#, "").named("countTokens"),
    whole("gemini", "/v1beta/models/g:embedContent", r#"{"content":{"parts":[{"text":"$$"}]}}"#, r#"{"embedding":{"values":[0.1]}}"#, "").named("embedContent"),
    whole("gemini", "/v1beta/models/g:batchEmbedContents", r#"{"requests":[{"model":"models/g","content":{"parts":[{"text":"$$"}]}}]}"#, r#"{"embeddings":[]}"#, "").named("batchEmbedContents"),
    stream(Sse, "gemini", "/v1beta/openai/chat/completions", ASK_STREAM, CHAT, CHAT_TEXT, CHAT_END).named("OpenAI's chat, stream"),
    whole("vertex", "/v1/projects/p/locations/us-central1/publishers/google/models/g:generateContent", ASK_GEMINI, GEMINI, GEMINI_TEXT).named("generateContent"),
    stream(Sse, "vertex", "/v1/projects/p/locations/us-central1/publishers/google/models/g:streamGenerateContent?alt=sse", ASK_GEMINI, GEMINI, GEMINI_TEXT, GEMINI_END).named("streamGenerateContent, alt=sse"),
    stream(Growing, "vertex", "/v1/projects/p/locations/us-central1/publishers/google/models/g:streamGenerateContent", ASK_GEMINI, GEMINI, GEMINI_TEXT, GEMINI_END).named("streamGenerateContent"),
    whole("vertex", "/v1/projects/p/locations/us-central1/publishers/anthropic/models/c:rawPredict", r#"{"anthropic_version":"vertex-2023-10-16","max_tokens":9,"messages":[{"role":"user","content":"$$"}]}"#, MESSAGE, "/content/0/text").named("rawPredict"),
    stream(Sse, "vertex", "/v1/projects/p/locations/us-central1/publishers/anthropic/models/c:streamRawPredict", r#"{"anthropic_version":"vertex-2023-10-16","max_tokens":9,"stream":true,"messages":[{"role":"user","content":"$$"}]}"#, DELTA, "/delta/text", STOP).named("streamRawPredict"),
    whole("vertex", "/v1/projects/p/locations/us-central1/publishers/google/models/e:predict", r#"{"instances":[{"content":"$$","task_type":"RETRIEVAL_QUERY"}]}"#, r#"{"predictions":[{"embeddings":{"values":[0.1]}}]}"#, "").named("predict"),
    whole("bedrock", "/model/c/converse", ASK_CONVERSE, r#"{"output":{"message":{"role":"assistant","content":[{"text":"$$"}]}},"stopReason":"end_turn"}"#, "/output/message/content/0/text").named("converse"),
    whole("bedrock", "/model/c/converse", ASK_CONVERSE, r#"{"output":{"message":{"role":"assistant","content":[{"toolUse":{"toolUseId":"t","name":"f","input":{"who":"$$"}}}]}},"stopReason":"tool_use"}"#, "/output/message/content/0/toolUse/input/who").named("converse, tool"),
    stream(EventStream("contentBlockDelta"), "bedrock", "/model/c/converse-stream", ASK_CONVERSE, r#"{"contentBlockIndex":0,"delta":{"text":"$$"},"p":"abc"}"#, "/delta/text", r#"{"contentBlockIndex":0}"#).named("converse-stream"),
    stream(EventStream("contentBlockDelta"), "bedrock", "/model/c/converse-stream", ASK_CONVERSE, r#"{"contentBlockIndex":1,"delta":{"toolUse":{"input":"$$"}}}"#, "/delta/toolUse/input", r#"{"contentBlockIndex":1}"#).arguments().named("converse-stream, tool"),
    whole("bedrock", "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fc/invoke", ASK_INVOKE, MESSAGE, "/content/0/text").named("invoke, Claude"),
    whole("bedrock", "/model/amazon.titan/invoke", r#"{"inputText":"$$","textGenerationConfig":{"maxTokenCount":9}}"#, r#"{"results":[{"outputText":"$$","completionReason":"FINISH"}]}"#, "/results/0/outputText").named("invoke, Titan"),
    whole("bedrock", "/model/meta.llama/invoke", r#"{"prompt":"$$","max_gen_len":9}"#, r#"{"generation":"$$","stop_reason":"stop"}"#, "/generation").named("invoke, Llama"),
    whole("bedrock", "/model/amazon.nova/invoke", r#"{"messages":[{"role":"user","content":[{"text":"$$"}]}]}"#, r#"{"output":{"message":{"content":[{"text":"$$"}]}}}"#, "/output/message/content/0/text").named("invoke, Nova"),
    stream(Invoked, "bedrock", "/model/c/invoke-with-response-stream", ASK_INVOKE, DELTA, "/delta/text", STOP).named("invoke-with-response-stream, Claude"),
    stream(Invoked, "bedrock", "/model/c/invoke-with-response-stream", ASK_INVOKE, INPUT, "/delta/partial_json", STOP).arguments().named("invoke-with-response-stream, tool"),
    stream(Invoked, "bedrock", "/model/meta.llama/invoke-with-response-stream", r#"{"prompt":"$$"}"#, r#"{"generation":"$$","stop_reason":null}"#, "/generation", r#"{"generation":"","stop_reason":"stop"}"#).named("invoke-with-response-stream, Llama"),
    stream(Invoked, "bedrock", "/model/amazon.titan/invoke-with-response-stream", r#"{"inputText":"$$"}"#, r#"{"outputText":"$$","index":0,"completionReason":null}"#, "/outputText", r#"{"outputText":"","index":0,"completionReason":"FINISH"}"#).named("invoke-with-response-stream, Titan"),
    whole("ollama", "/api/chat", r#"{"model":"l","stream":false,"messages":[{"role":"user","content":"$$"}],"options":{"num_ctx":4096}}"#, r#"{"model":"l","message":{"role":"assistant","content":"$$"},"done":true}"#, "/message/content").named("chat"),
    stream(Lines, "ollama", "/api/chat", r#"{"model":"l","messages":[{"role":"user","content":"$$"}]}"#, r#"{"model":"l","message":{"role":"assistant","content":"$$"},"done":false}"#, "/message/content", r#"{"model":"l","message":{"role":"assistant","content":""},"done":true}"#).named("chat, stream"),
    whole("ollama", "/api/chat", r#"{"model":"l","stream":false,"messages":[{"role":"user","content":"$$"}]}"#, r#"{"message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{"who":"$$"}}}]},"done":true}"#, "/message/tool_calls/0/function/arguments/who").named("chat, tool"),
    whole("ollama", "/api/generate", r#"{"model":"l","stream":false,"prompt":"$$","system":"terse","keep_alive":"5m"}"#, r#"{"response":"$$","done":true}"#, "/response").named("generate"),
    stream(Lines, "ollama", "/api/generate", r#"{"model":"l","prompt":"$$"}"#, r#"{"response":"$$","done":false}"#, "/response", r#"{"response":"","done":true}"#).named("generate, stream"),
    whole("ollama", "/api/embed", r#"{"model":"l","input":["$$"]}"#, r#"{"embeddings":[[0.1]]}"#, "").named("embed"),
    whole("cohere", "/v2/chat", r#"{"model":"command-a","messages":[{"role":"user","content":"$$"}],"documents":[{"id":"d","data":{"text":"other"}}]}"#, r#"{"id":"c","message":{"role":"assistant","content":[{"type":"text","text":"$$"}]},"finish_reason":"COMPLETE"}"#, "/message/content/0/text").named("v2 chat"),
    stream(Sse, "cohere", "/v2/chat", r#"{"model":"command-a","stream":true,"messages":[{"role":"user","content":"$$"}]}"#, r#"{"type":"content-delta","index":0,"delta":{"message":{"content":{"text":"$$"}}}}"#, "/delta/message/content/text", r#"{"type":"content-end","index":0}"#).named("v2 chat, stream"),
    stream(Sse, "cohere", "/v2/chat", r#"{"model":"command-a","stream":true,"messages":[{"role":"user","content":"$$"}]}"#, r#"{"type":"tool-call-delta","index":0,"delta":{"message":{"tool_calls":{"function":{"arguments":"$$"}}}}}"#, "/delta/message/tool_calls/function/arguments", r#"{"type":"tool-call-end","index":0}"#).arguments().named("v2 chat, tool, stream"),
    whole("cohere", "/v1/chat", r#"{"model":"command-r","message":"$$","chat_history":[{"role":"USER","message":"hi"}],"preamble":"terse"}"#, r#"{"text":"$$","generation_id":"g","finish_reason":"COMPLETE"}"#, "/text").named("v1 chat"),
    stream(Lines, "cohere", "/v1/chat", r#"{"model":"command-r","stream":true,"message":"$$"}"#, r#"{"is_finished":false,"event_type":"text-generation","text":"$$"}"#, "/text", r#"{"is_finished":true,"event_type":"stream-end","finish_reason":"COMPLETE"}"#).named("v1 chat, stream"),
    whole("cohere", "/v1/generate", r#"{"model":"command","prompt":"$$"}"#, r#"{"generations":[{"text":"$$"}]}"#, "/generations/0/text").named("v1 generate"),
    whole("cohere", "/v2/embed", r#"{"model":"embed-v4","texts":["$$"],"input_type":"search_query","embedding_types":["float"]}"#, r#"{"embeddings":{"float":[[0.1]]}}"#, "").named("embed"),
    whole("cohere", "/v2/rerank", r#"{"model":"rerank","query":"$$","documents":["other"]}"#, r#"{"results":[]}"#, "").named("rerank"),
];
