//! The tags that Interflow itself sets on flows; rules, scripts and people add others. Completion and the reference page
//! are made from the table.

/// A tag.
#[derive(Debug)]
pub struct TagInfo {
    /// Its name; if it ends in `:` or a space, that of a family of tags, such as `key:alice`.
    pub name: &'static str,
    /// What it means, as a phrase in Markdown.
    pub doc: &'static str,
}

impl TagInfo {
    /// Whether more follows the name.
    pub fn is_prefix(&self) -> bool {
        self.name.ends_with([':', ' '])
    }
}

const fn tag(name: &'static str, doc: &'static str) -> TagInfo {
    TagInfo { name, doc }
}

/// Every tag, by subject.
pub const TAGS: &[TagInfo] = &[
    tag(
        "answered-locally",
        "the response is Interflow's own: of a rule, the gateway, redaction, an approval or an error",
    ),
    tag("malformed", "the request could not be parsed"),
    tag("no_request", "the client accepted the certificate and closed the connection without a request"),
    tag("host_mismatch", "the request names another host than the tunnel or the TLS handshake"),
    tag("certificate:", "name in the client's certificate, on the gateway port"),
    tag("dns:", "name that the DNS listener returned for the address"),
    tag("replay", "the request was sent again by Interflow"),
    tag("composed", "the request was composed in the web UI or by the API, and sent by Interflow"),
    tag("messages:overloaded", "messages are missing in the record, because the memory budget was exhausted"),
    tag("edited", "request, response or a message was changed on its way; the originals are kept, too"),
    tag("media", "request of the media endpoints"),
    tag("rule-matched", "a rule matched"),
    tag("rule_failed", "a rule could not be applied; `rules.on_failure` or the service's `on_failure` decided"),
    tag("comment:", "comment of a rule"),
    tag("colour:", "colour of a rule"),
    tag("replayed", "the response is from a recording (`replay`)"),
    tag("denied by ", "an external service denied the flow"),
    tag("rewritten by ", "an external service changed the flow"),
    tag("held", "the flow waited for a decision, of an approval or of the rule action `hold`"),
    tag("would_deny", "approvals would have denied the request in another mode"),
    tag("secret:", "label of a secret that was put in place of its placeholder"),
    tag("guardrail:", "name of a guardrail that found something; `guardrail:unread` if something could not be checked"),
    tag("guardrail-finding:", "what a guardrail found: direction, result, score and reasons"),
    tag("key:", "id of the virtual key"),
    tag("team:", "id of the team of the virtual key"),
    tag("mcp", "request to the [MCP gateway](../guides/mcp-gateway.md)"),
    tag("mcp:", "MCP server of the call"),
    tag("mcp-tool:", "tool that was called, by its name at the MCP server"),
    tag("mcp-error", "the call of an MCP server failed, was refused, or its tool reported an error"),
    tag("mcp-unavailable:", "MCP server that is missing in the list, because it failed"),
    tag("upstream:", "provider that answered, if it is not the first of the request"),
    tag("route:", "name of the `[llm.route]` that the request took"),
    tag("deployment:", "deployment that answered, or that the copy for a shadow was sent to"),
    tag("retry:", "number of retries that the request took"),
    tag("retry-budget", "a retry was left out, because `retry_budget` was used up"),
    tag("attempt-failed:", "deployment that failed, or whose response was one to be retried"),
    tag("attempt-timeout:", "deployment whose attempt exceeded `attempt_timeout` or `first_token_timeout`"),
    tag("pinned", "the request continues a response, and was sent to the deployment that made it"),
    tag("hedged", "a second request was sent because the first was slow"),
    tag("thoughts-left-out", "the request was repeated because its thoughts did not fit its history"),
    tag("shadow", "copy of a request for a shadow deployment"),
    tag("experiment:", "variant of the route's experiment, `A` or `B`"),
    tag(
        "cache:",
        "what the [response cache](../guides/response-cache.md) did: `hit` (also `semantic`: found by meaning), `miss`, or `bypass:` and the reason",
    ),
    tag("translated:", "format of the provider, into which the request was translated"),
    tag("estimated:", "charged tokens, as `INPUT+OUTPUT`, if the provider did not report all of them"),
    tag("client-left", "the client left before the response; the gateway read it to its end, for its usage"),
    tag(
        "unaccounted",
        "the provider may bill more than is charged: the request is for files, jobs or media, whose use is neither reported nor counted",
    ),
    tag("refused:", "code of the refusal, such as `rate_limit_exceeded`; see [errors](errors.md#gateway)"),
    tag("redacted", "something in the request was redacted"),
    tag("redact:flagged", "something was detected in the request and, as configured, left in it"),
    tag("unredacted:", "number of findings that were left in the request"),
    tag("redact:media", "the request contained an image, audio or a document"),
    tag("redact:route:", "name of the `[[redact.route]]` that applied"),
    tag("redact:unknown", "the request has no known format, and `redact.unknown` let it pass"),
    tag("unknown-operation:", "endpoint of a provider whose operation is not known; it is metered by its size"),
    tag(
        "redact:unread",
        "the request or the response could not be scanned, or the scan was stopped, and it was only to be flagged",
    ),
    tag("restore:unread", "the response could not be read, and keeps its placeholders"),
    tag("found:", "entity type that was detected in the request"),
    tag("answer:", "entity type that was detected in the response"),
    tag("starred", "the flow was marked in the program from which it was imported"),
];
