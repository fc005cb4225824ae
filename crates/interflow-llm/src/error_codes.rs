//! The table of error codes of LLM traffic: the statuses with which a code is sent, its cause and its remedy.

/// The machine-readable cause of a refusal. Its name is constant, so that programs can tell causes apart.
#[derive(Debug)]
pub struct LlmErrorCode {
    pub code: &'static str,
    /// The statuses with which it is sent.
    pub statuses: &'static [u16],
    /// A phrase in Markdown.
    pub cause: &'static str,
    /// What the client or the operator can do, in Markdown; empty if there is nothing to suggest.
    pub remedy: &'static str,
}

const fn code(code: &'static str, statuses: &'static [u16], cause: &'static str, remedy: &'static str) -> LlmErrorCode {
    LlmErrorCode { code, statuses, cause, remedy }
}

/// Every code, by status.
#[rustfmt::skip]
pub const LLM_ERROR_CODES: &[LlmErrorCode] = &[
    code("bad_request", &[400, 501, 508], "the request is malformed, has an unsupported method or would come back to this proxy", "see the message"),
    code("bad_json", &[400], "the body is not valid JSON, so that it cannot be redacted", "send valid JSON"),
    code("bad_form", &[400], "a form cannot be parsed, or a field of it is not UTF-8", "send a valid form"),
    code("bad_file", &[400], "a text file in the request is not UTF-8, or not base64 of it, so that it cannot be redacted", "send it as UTF-8"),
    code("bad_text", &[400], "a text for the redaction API is not UTF-8", "send it as UTF-8"),
    code("body_read", &[400, 408], "the request's body did not arrive completely", "send it again"),
    code("path_not_canonical", &[400], "the path, or the name of a model that belongs in it, contains `//`, `.` or `..`; for a key with paths or models, also in any encoding", "send the path or model that is meant"),
    code("unknown_event", &[400], "a WebSocket's event has an unknown type; the connection stays open", "`redact.unknown = \"scan\"` takes all of it for text; `\"pass\"` forwards it unchanged"),
    code("unknown_operation", &[400], "the request has no format that can be redacted reliably", "`redact.unknown = \"scan\"` takes all of it for text; `\"pass\"` forwards it unchanged"),
    code("unsupported_content_encoding", &[400], "the body cannot be decompressed", "send it without compression"),
    code("untranslatable_request", &[400], "the request contains what the API of the provider has no counterpart of", "leave it out, or use a provider with the same API"),
    code("guardrail_blocked", &[400], "a guardrail, or a person whom it asked, blocked the request or the response", "see the message, and `llm.guardrail`"),
    code("previous_response_not_found", &[400], "the deployment that made the response is no longer on the route", "send the whole conversation without `previous_response_id`"),
    code("invalid_max_tokens", &[400], "a limit or a budget applies, and the maximum of output tokens (`max_tokens` and the like) is not a whole number from 0 to 4294967295", "send a positive number, or leave it out"),
    code("invalid_tags", &[400], "`X-Interflow-Tags` cannot be read", "write `name=value,name=value`"),
    code("missing_api_key", &[401], "a virtual key is required, and none was sent", "send one; `interflow keys add` creates it"),
    code("invalid_api_key", &[401, 407], "the key is unknown, expired, disabled or revoked, or its team is, or the proxy's credentials are wrong", "send another"),
    code("address_refused", &[403], "something was detected in the URL or a header field", "see `redact.url` and `redact.headers`"),
    code("denied", &[403], "an access rule or an approval decision refuses the request", "see the access rules and approvals"),
    code("media_refused", &[403], "the request contains an image, audio or document that cannot be inspected", "see `redact.images`, `redact.audio`, `redact.documents`"),
    code("outbound_blocked", &[403], "something was detected in the response", "see `redact.responses`"),
    code("scope_denied_model", &[403], "the virtual key does not cover this model", "use another model or key"),
    code("scope_denied_path", &[403], "the virtual key does not cover this path, or is restricted to models and the request does not select its model", "use another path, or a key with `--path`"),
    code("scope_denied_provider", &[403], "the virtual key does not cover this provider, or the request goes to no known one", "use another provider or key"),
    code("telemetry_refused", &[403], "the request is telemetry of an agent", "see `llm.telemetry`"),
    code("azure_disabled", &[404], "the provider has no address or credentials", "set `url`, and `api_key` or `credentials`, of `llm.provider.NAME`"),
    code("bedrock_disabled", &[404], "the gateway has no credentials for the provider, and the request has none", "set `access_key` and `secret_key`, `profile` or `credentials` of `llm.provider.NAME`"),
    code("upstream_disabled", &[404], "the provider has no address", "set `llm.provider.NAME.url`"),
    code("vertex_disabled", &[404], "the gateway has no credentials for the provider, and the request has none", "set `service_account` or `credentials` of `llm.provider.NAME`"),
    code("unsupported_path", &[404], "the provider has no counterpart of the path", "use another provider or path"),
    code("request_body_too_large", &[413], "the body is larger than a limit", "see `redact.max_body` and `llm.max_body`"),
    code("request_head_too_large", &[414, 431], "the URL or the header fields are larger than a limit", "see `limits.max_header_bytes`, `limits.max_headers` and `limits.request_line_bytes`"),
    code("unsupported_content_type", &[415], "the redaction API takes text", "send it as `text/plain`"),
    code("daily_quota_exceeded", &[429], "the budget of the day is used up, does not cover the maximum of the request (`max_tokens`), or is reserved by requests in progress", "see `[[quota.rule]]` and the key's limits"),
    code("monthly_quota_exceeded", &[429], "the budget of the month is used up, does not cover the maximum of the request (`max_tokens`), or is reserved by requests in progress", "see `[[quota.rule]]` and the key's limits"),
    code("model_unpriced", &[403], "a limit counts money, and the price of a model that may serve the request is not known", "add it to the file of `quota.prices`, or set `quota.unpriced = \"allow\"`"),
    code("rate_limit_exceeded", &[429], "too many requests or tokens in the period", "wait for `Retry-After`"),
    code("concurrency_exceeded", &[429, 503], "too many requests at the same time: of a quota (429), or of the gateway, the origin's connections or a shutdown (503)", "wait for `Retry-After`; see `gateway.max_concurrent_requests`"),
    code("internal_error", &[500], "a bug in Interflow, or a stage that failed", "see the log"),
    code("bedrock_sign_failed", &[500], "the client signed a request that was changed, and the gateway has no keys to sign it anew", "give the gateway credentials"),
    code("provider_key_missing", &[500], "the gateway has no key for the provider", "set `keys.provider.\"NAME\"`"),
    code("unknown_policy", &[404, 500], "the policy that the key or the redaction API names does not exist", "add it to `redact.policies`"),
    code("request_failed", &[400, 500, 502], "the request could not be redacted, or an external detector failed; it was not sent", "see the log"),
    code("websocket_unscannable", &[501], "a WebSocket at this path cannot be redacted, or a guardrail cannot check it", "use the path of a known API, or HTTP"),
    code("auth_failed", &[502], "the gateway got no credentials for the provider", "see the message; `Retry-After: 1`"),
    code("azure_auth_failed", &[502], "Azure issued no token", "see the message; `Retry-After: 1`"),
    code("bedrock_auth_failed", &[502], "AWS issued no credentials", "see the message; `Retry-After: 1`"),
    code("vertex_auth_failed", &[502], "Google issued no token", "see the message; `Retry-After: 1`"),
    code("open_placeholder", &[502], "a stream ended inside a placeholder; it ends with this error", ""),
    code("response_cut", &[502], "a stream broke off, or ended inside an event; it ends with this error", "send the request again"),
    code("response_read_failed", &[502], "the provider's response is not valid HTTP", "send the request again"),
    code("response_too_large", &[502], "the response is too large to be scanned", "see `redact.max_body` and `llm.max_body`"),
    code("response_unreadable", &[502], "the response cannot be scanned, or a list of models cannot be filtered", ""),
    code("unreachable", &[502, 504], "no provider responded", "check the address and the network"),
    code("guardrail_unavailable", &[503], "a guardrail's service failed, and `llm.guardrail.NAME.on_error` closes", "wait for `Retry-After`; see the log"),
    code("limits_unavailable", &[503], "the counters of the limits cannot be reached, and `quota.shared.failure` closes", "check Redis"),
    code("overloaded", &[503], "the memory budget of the process is exhausted", "wait for `Retry-After`; see `limits.held_bytes`"),
    code("upstream_unavailable", &[503], "the provider failed repeatedly and is not asked for a while (circuit breaker)", "wait for `Retry-After`"),
    code("timeout", &[504], "the provider did not respond in time", "see `llm.provider.NAME.budget` and `timeouts.response_header_timeout`"),
];

/// Whether the table has this code with this status.
pub(crate) fn is_listed(code: &str, status: u16) -> bool {
    LLM_ERROR_CODES.iter().any(|c| c.code == code && c.statuses.contains(&status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_listed_once() {
        let mut codes: Vec<_> = LLM_ERROR_CODES.iter().map(|c| c.code).collect();
        let listed = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), listed);
    }
}
