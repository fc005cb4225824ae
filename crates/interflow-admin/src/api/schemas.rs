//! JSON Schemas of the API's requests and responses. A test validates real responses against them.

use serde_json::{Map, Value, json};

/// All schemas by name.
pub(crate) fn all_schemas() -> Value {
    let mut all = Map::new();
    for part in [
        vocabulary(),
        flows(),
        conversations(),
        action_schemas(),
        super::approval_schemas::approval_schemas(),
        rules(),
        instance(),
        media(),
        privacy(),
        limits(),
    ] {
        if let Value::Object(part) = part {
            all.extend(part);
        }
    }
    all.into()
}

/// Streams and links of the media component.
fn media() -> Value {
    let stream = object(
        &[
            ("id", number()),
            ("kind", text()),
            ("origin", text()),
            ("client", text()),
            ("user", maybe(&text())),
            ("started", number()),
            ("bytes", number()),
            ("rate", number()),
        ],
        &[],
    );
    let fields = json!({"type": "object"});
    let names = [
        "mediaflow_proxy_url",
        "endpoint",
        "destination_url",
        "stream_transformer",
        "ip",
        "path",
        "user",
        "api_password",
        "filename",
    ];
    let mut link: Vec<(&str, Value)> = names.iter().map(|name| (*name, maybe(&text()))).collect();
    for name in ["query_params", "request_headers", "response_headers", "propagate_response_headers"] {
        link.push((name, fields.clone()));
    }
    link.push(("remove_response_headers", list(&text())));
    link.push(("hosts", list(&text())));
    link.push(("expiration", maybe(&number())));
    link.push(("sealed", maybe(&flag())));
    link.push(("base64_encode_destination", flag()));
    json!({
        "MediaStreams": object(&[("streams", list(&stream)), ("finished", number()), ("bytes", number())], &[]),
        "MediaLink": object(&[("url", text()), ("expires", maybe(&instant()))], &[]),
        "MediaWish": object(&[], &link),
    })
}

fn limits() -> Value {
    let open = json!({"type": "object"});
    json!({
        "Limits": object(
            &[
                ("rules", list(&open)),
                ("counters", list(&object(
                    &[("rule", text()), ("who", text()), ("counter", text()), ("used", json!({"type": "number"})),
                      ("limit", json!({"type": "number"}))],
                    &[],
                ))),
                ("usage", list(&open)),
                ("refused", number()),
                ("shared", maybe(&open)),
                ("problem", maybe(&text())),
                ("prices_as_of", object(&[("built_in", text())], &[("own", text())])),
            ],
            &[],
        ),
        "Keys": object(&[("keys", list(&open))], &[]),
        "NewKey": object(
            &[],
            &[
                ("id", text()), ("owner", text()), ("note", text()), ("expires", text()),
                ("providers", list(&text())), ("models", list(&text())), ("paths", list(&text())), ("limits", open),
            ],
        ),
        "LoginLink": object(&[("path", text()), ("expires_in", number())], &[]),
        "PassFor": object(&[("user", text())], &[]),
        "Pass": object(&[("user", text()), ("password", maybe(&text()))], &[]),
        "MadeKey": object(&[("id", text()), ("key", text())], &[]),
    })
}

/// An object schema from required and optional fields.
pub(super) fn object(required: &[(&str, Value)], optional: &[(&str, Value)]) -> Value {
    let properties: Map<String, Value> =
        required.iter().chain(optional).map(|(name, schema)| ((*name).to_owned(), schema.clone())).collect();
    let names: Vec<&str> = required.iter().map(|(name, _)| *name).collect();
    json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false})
}

pub(super) fn text() -> Value {
    json!({"type": "string"})
}

pub(super) fn number() -> Value {
    json!({"type": "integer"})
}

/// A point in time.
pub(super) fn instant() -> Value {
    json!({"type": "integer", "format": "unix-micros", "description": "microseconds since the Unix epoch"})
}

/// A duration.
pub(super) fn span_of_time() -> Value {
    json!({"type": "integer", "format": "micros", "description": "microseconds"})
}

pub(super) fn flag() -> Value {
    json!({"type": "boolean"})
}

pub(super) fn maybe(schema: &Value) -> Value {
    json!({"anyOf": [schema, {"type": "null"}]})
}

pub(super) fn list(of: &Value) -> Value {
    json!({"type": "array", "items": of})
}

pub(super) fn named(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

pub(super) fn any() -> Value {
    json!({})
}

fn conversations() -> Value {
    let real = || json!({"type": "number"});
    let used = object(
        &[
            ("exchanges", number()),
            ("input", number()),
            ("output", number()),
            ("cache_read", number()),
            ("cache_write", number()),
            ("reasoning", number()),
            ("cost", real()),
            ("unpriced", number()),
        ],
        &[],
    );
    let facts = [
        ("id", text()),
        ("session", text()),
        ("started", number()),
        ("updated", number()),
        ("agent", text()),
        ("model", text()),
        ("provider", text()),
        ("host", text()),
        ("title", text()),
        ("turns", number()),
        ("used", used.clone()),
    ];
    let optional = [("parent", text()), ("user", text()), ("live", flag())];
    let of_flow = object(
        &[
            ("conversation", text()),
            ("agent", text()),
            ("model", text()),
            ("input", number()),
            ("output", number()),
            ("cost", maybe(&real())),
        ],
        &[],
    );
    let total = object(&[("from", number()), ("agent", text()), ("model", text()), ("used", used)], &[]);
    let thread = object(
        &[("leaf", maybe(&text())), ("turns", list(&any())), ("exchanges", list(&any())), ("branches", list(&any()))],
        &[],
    );
    let opened = [("version", text()), ("link", any()), ("children", list(&any())), ("thread", thread)];
    json!({
        "ConversationPage": object(&[
            ("conversations", list(&object(&facts, &optional))),
            ("next", maybe(&text())),
        ], &[]),
        "Conversation": object(&[opened.as_slice(), &facts].concat(), &optional),
        "Changes": object(&[("changes", any())], &[]),
        "Totals": object(&[("since", number()), ("span", number()), ("totals", list(&total))], &[]),
        "Exchanges": object(&[("flows", json!({"type": "object", "additionalProperties": of_flow}))], &[]),
        "Rebuilt": object(&[("exchanges", number())], &[]),
        "Endpoints": object(&[("endpoints", list(&object(&[
            ("id", number()), ("host", text()), ("path", text()), ("method", text()),
            ("shape", json!({"enum": ["anthropic", "chat", "responses", "gemini", "converse", "ollama"]})),
            ("priority", number()), ("enabled", flag()),
        ], &[])))], &[]),
    })
}

fn rules() -> Value {
    let problem = object(
        &[("file", text()), ("line", number()), ("column", number()), ("rule", maybe(&text())), ("message", text())],
        &[],
    );
    let action = object(&[("name", text()), ("phase", text())], &[]);
    let rule = object(
        &[
            ("name", text()),
            ("file", text()),
            ("line", number()),
            ("when", text()),
            ("actions", list(&action)),
            ("enabled", flag()),
            ("matches", number()),
        ],
        &[],
    );
    let pair = json!({"type": "array", "items": text(), "minItems": 2, "maxItems": 2});
    let held = object(
        &[
            ("id", number()),
            ("flow", text()),
            ("rule", text()),
            ("phase", text()),
            ("what", json!({"enum": ["request", "response", "message"]})),
            ("note", maybe(&text())),
            ("client", text()),
            ("user", maybe(&text())),
            ("process", maybe(&text())),
            ("since", instant()),
            ("until", instant()),
            ("pass", flag()),
            ("method", maybe(&text())),
            ("url", text()),
            ("status", maybe(&number())),
            ("headers", list(&pair)),
            ("body", maybe(&text())),
        ],
        &[],
    );
    let phase = object(
        &[
            ("phase", text()),
            ("outcome", json!({"enum": ["matched", "no", "open"]})),
            ("why", text()),
            ("actions", list(&text())),
        ],
        &[],
    );
    let explained = object(&[("rule", text()), ("place", text()), ("matches", flag()), ("phases", list(&phase))], &[]);
    let decision = object(
        &[("action", json!({"enum": ["continue", "change", "answer", "deny", "drop"]}))],
        &[
            ("method", text()),
            ("url", text()),
            ("status", number()),
            ("headers", list(&pair)),
            ("body", text()),
            ("reason", text()),
        ],
    );
    json!({
        "RuleProblem": problem,
        "Rules": object(
            &[("rules", list(&rule)), ("files", list(&text())), ("notes", list(&named("RuleProblem")))],
            &[],
        ),
        "RuleSource": object(&[("file", text()), ("text", text())], &[]),
        "RuleText": object(&[("text", text())], &[("name", text()), ("was", text())]),
        "RulesChecked": object(
            &[("ok", flag()), ("problems", list(&named("RuleProblem"))), ("rules", maybe(&named("Rules")))],
            &[],
        ),
        "RuleSchema": any(),
        "RulesExplained": object(&[("flow", text()), ("rules", list(&explained))], &[]),
        "HeldFlow": held,
        "HeldFlows": object(&[("held", list(&named("HeldFlow")))], &[]),
        "RuleDecided": object(&[("held", named("HeldFlow"))], &[]),
        "Decision": decision,
    })
}

/// Redaction findings.
fn privacy() -> Value {
    let span = object(
        &[("type", text()), ("start", number()), ("end", number()), ("confidence", number()), ("replacement", text())],
        &[],
    );
    let mode = json!({"enum": ["redact", "flag", "off"]});
    let outbound = json!({"enum": ["off", "flag", "redact", "block"]});
    json!({
        "Privacy": object(
            &[("requests", number()), ("refused", number()), ("found", json!({"type": "object", "additionalProperties": number()}))],
            &[],
        ),
        "Findings": object(
            &[("since", number()), ("span", number()), ("found", list(&object(
                &[("from", number()), ("kind", text()), ("host", text()), ("route", text()), ("flows", number())],
                &[],
            )))],
            &[],
        ),
        "Doctor": object(
            &[("findings", list(&object(&[("what", text()), ("state", json!({"enum": ["good", "notice", "bad"]})), ("text", text())], &[])))],
            &[],
        ),
        "Policies": object(
            &[
                ("policies", list(&object(
                    &[("file", text()), ("written", flag()), ("name", text()), ("routes", list(&text()))],
                    &[],
                ))),
                ("routes", list(&object(
                    &[("name", text()), ("mode", maybe(&mode)), ("outbound", maybe(&outbound)), ("file", text()),
                      ("exception", maybe(&json!({"type": "object"})))],
                    &[],
                ))),
            ],
            &[],
        ),
        "PolicySource": object(&[("file", text()), ("text", text())], &[]),
        "PolicyText": object(&[("text", text())], &[("was", text())]),
        "PolicyChecked": object(
            &[("ok", flag()), ("name", maybe(&text())), ("problems", list(&object(
                &[("line", number()), ("column", number()), ("message", text())],
                &[],
            )))],
            &[],
        ),
        "PolicySchema": object(&[("schema", any()), ("kinds", list(&text()))], &[]),
        "Trial": object(&[("text", text())], &[("policy", text())]),
        "Tried": object(&[("output", text()), ("spans", list(&span))], &[]),
    })
}

fn vocabulary() -> Value {
    let bytes = json!({"oneOf": [{"type": "string"}, {
        "type": "object", "properties": {"base64": {"type": "string"}}, "required": ["base64"], "additionalProperties": false,
    }]});
    let field = json!({"type": "array", "items": named("Bytes"), "minItems": 2, "maxItems": 2});
    json!({
        "Bytes": bytes,
        "Headers": list(&field),
        "State": {"enum": ["open", "complete", "failed", "cut"]},
        "Kind": {"enum": ["http", "websocket", "tunnel"]},
        "Error": object(&[("error", object(
            &[("kind", text()), ("message", text())],
            &[("remedy", text()), ("column", number()), ("start", number()), ("end", number()), ("imported", number())],
        ))], &[]),
    })
}

fn summary() -> Value {
    object(
        &[
            ("id", text()),
            ("state", named("State")),
            ("kind", named("Kind")),
            ("started", number()),
            ("duration", number()),
            ("scheme", text()),
            ("authority", text()),
            ("version", text()),
            ("client", maybe(&text())),
            ("request_size", number()),
            ("response_size", number()),
            ("messages", number()),
        ],
        &[
            ("method", text()),
            ("path", text()),
            ("status", number()),
            ("user", text()),
            ("request_type", text()),
            ("response_type", text()),
            ("error", text()),
            ("passthrough", text()),
            ("tags", list(&text())),
            ("parent", text()),
        ],
    )
}

fn detail() -> Value {
    object(
        &[
            ("id", text()),
            ("state", named("State")),
            ("kind", named("Kind")),
            ("started", number()),
            (
                "transport",
                json!({"enum": ["absolute", "connect", "socks5", "transparent", "reverse", "gateway", "internal"]}),
            ),
            ("scheme", text()),
            ("authority", text()),
            ("client", named("Client")),
            ("timings", named("Timings")),
            ("messages", number()),
            ("imported", flag()),
            ("url", text()),
            ("duration", number()),
            ("masked", list(&text())),
        ],
        &[
            ("user", text()),
            ("upstream", named("Upstream")),
            ("request", named("Request")),
            ("interim", list(&named("Interim"))),
            ("response", named("Response")),
            ("error", object(&[("kind", text()), ("blame", text()), ("message", text())], &[])),
            ("tunnel", object(&[("sent", number()), ("received", number())], &[])),
            ("passthrough", text()),
            ("tags", list(&text())),
            ("comment", text()),
            ("parent", text()),
            ("original", named("Original")),
            ("archive", json!({"type": "object"})),
        ],
    )
}

fn flows() -> Value {
    let timings = [
        "request_head",
        "request_body",
        "blocked",
        "dns",
        "connect",
        "tls",
        "request_sent",
        "first_byte",
        "last_byte",
        "done",
    ];
    let timings: Vec<_> = timings.into_iter().map(|name| (name, number())).collect();
    json!({
        "FlowSummary": summary(),
        "FlowPage": object(&[("flows", list(&named("FlowSummary"))), ("next", maybe(&text()))], &[("damaged", number())]),
        "Flow": detail(),
        "Timings": object(&[], &timings),
        "Client": object(
            &[("connection", number()), ("peer", maybe(&text())), ("local", maybe(&text())), ("listener", text()), ("accepted", number())],
            &[("tls", named("ClientTls")), ("http2", text()), ("ja4h", text()), ("process", named("Process")), ("container", text())],
        ),
        "Process": object(&[("pid", number()), ("name", text())], &[]),
        "ClientTls": object(&[], &[
            ("sni", text()), ("version", text()), ("cipher", text()), ("alpn_offered", list(&text())), ("alpn", text()),
            ("ja3", text()), ("ja4", text()),
        ]),
        "Upstream": object(
            &[("peer", maybe(&text())), ("local", maybe(&text())), ("version", text()), ("connection", number()), ("reused", flag())],
            &[("via", text()), ("tls", named("UpstreamTls"))],
        ),
        "UpstreamTls": object(&[("unverified", flag()), ("resumed", flag())], &[
            ("version", text()), ("cipher", text()), ("alpn", text()), ("problem", text()), ("fingerprint", text()),
        ]),
        "Request": object(
            &[("method", text()), ("path", text()), ("version", text()), ("headers", named("Headers")), ("body", named("Body"))],
            &[("protocol", text()), ("trailers", named("Headers"))],
        ),
        "Original": object(&[], &[("request", named("OriginalRequest")), ("response", named("OriginalResponse"))]),
        "OriginalRequest": object(
            &[("url", text()), ("method", text()), ("path", text()), ("version", text()), ("headers", named("Headers")), ("body", named("Body")), ("body_edited", flag())],
            &[("protocol", text()), ("trailers", named("Headers"))],
        ),
        "OriginalResponse": object(
            &[("status", number()), ("version", text()), ("headers", named("Headers")), ("body", named("Body")), ("body_edited", flag())],
            &[("reason", named("Bytes")), ("trailers", named("Headers"))],
        ),
        "Interim": object(&[("status", number()), ("headers", named("Headers"))], &[]),
        "Response": object(
            &[("status", number()), ("version", text()), ("headers", named("Headers")), ("body", named("Body"))],
            &[("reason", named("Bytes")), ("trailers", named("Headers"))],
        ),
        "Body": object(&[("size", number()), ("kept", number())], &[
            ("missing", json!({"enum": ["capped", "dropped", "lost", "head", "decrypted"]})), ("head_sha256", text()),
        ]),
        "Message": object(&[
            ("index", number()), ("direction", json!({"enum": ["request", "response"]})),
            ("kind", json!({"enum": ["text", "binary", "ping", "pong", "close", "event", "grpc"]})),
            ("at", number()), ("size", number()), ("payload", named("Bytes")),
        ], &[("written", text())]),
        "MessagePage": object(&[("messages", list(&named("Message"))), ("total", number()), ("next", maybe(&number()))], &[]),
        "Count": object(&[("count", number())], &[]),
    })
}

fn action_schemas() -> Value {
    let ids = ("ids", list(&text()));
    let change = object(&[("at", text())], &[("before", text()), ("after", text())]);
    let body = json!({"oneOf": [
        object(&[("kind", json!({"const": "same"}))], &[]),
        object(&[("kind", json!({"const": "json"})), ("changes", list(&change))], &[]),
        object(&[("kind", json!({"const": "lines"})), ("lines", list(&object(
            &[("side", json!({"enum": ["both", "before", "after", "gap"]})), ("text", text())], &[])))], &[]),
        object(&[("kind", json!({"const": "binary"})), ("before", number()), ("after", number())], &[]),
    ]});
    json!({
        "Chosen": object(std::slice::from_ref(&ids), &[]),
        "ExportChosen": object(std::slice::from_ref(&ids), &[("format", text()), ("leg", text()), ("originals", flag())]),
        "Deleted": object(&[("deleted", number())], &[]),
        "Prune": object(&[], &[("query", text()), ("older", json!({"type": "string", "description": "a duration such as 7d"})), ("all", flag())]),
        "Pruned": object(&[("pruned", number())], &[]),
        "Marks": object(&[], &[
            ("tags", list(&text())), ("add_tags", list(&text())), ("remove_tags", list(&text())), ("comment", text()),
        ]),
        "Imported": object(&[("imported", number()), ("present", number()), ("skipped", number()), ("reasons", list(&text()))], &[]),
        "Replay": object(&[], &[
            ("method", text()), ("url", text()),
            ("headers", json!({"type": "array", "items": {"type": "string"}, "description": "`Name: value` sets, `Name:` removes"})),
            ("body", named("Bytes")),
        ]),
        "Replayed": object(&[("id", text()), ("parent", text()), ("left_out", list(&text()))], &[
            ("response", object(&[
                ("status", number()), ("version", text()), ("headers", list(&json!({"type": "array", "items": {"type": "string"}}))),
                ("size", number()), ("complete", flag()),
            ], &[])),
            ("error", object(&[("kind", text()), ("message", text()), ("blame", text())], &[])),
        ]),
        "Diff": object(&[
            ("a", text()), ("b", text()), ("equal", flag()), ("head", list(&change)), ("request_headers", list(&change)),
            ("request_body", body.clone()), ("response_headers", list(&change)), ("response_body", body),
        ], &[]),
    })
}

fn instance() -> Value {
    let engine = [
        "connections",
        "connections_refused",
        "connections_open",
        "requests",
        "active",
        "tunnels",
        "intercepted",
        "leaf_refused",
        "bytes_sent",
        "bytes_received",
        "messages",
        "latency_sum",
    ];
    let mut engine: Vec<_> = engine.into_iter().map(|name| (name, number())).collect();
    engine.extend([("responses", list(&number())), ("errors", list(&any())), ("latency", list(&number()))]);
    let store = [
        "flows",
        "open_flows",
        "segments",
        "segment_bytes",
        "database_bytes",
        "queue_bytes",
        "queue_flows",
        "recorded_flows",
        "dropped_flows",
        "lost_flows",
        "dropped_bytes",
        "waits",
        "expired_flows",
        "damaged_flows",
    ];
    let mut store: Vec<_> = store.into_iter().map(|name| (name, number())).collect();
    store.push(("suspended", maybe(&text())));
    let addresses = object(&[("proxy", list(&text())), ("gateway", list(&text())), ("admin", text())], &[]);
    let completion = object(&[("start", number()), ("text", text()), ("doc", text())], &[]);
    let passing = object(
        &[("client", text()), ("ja4", text()), ("host", text()), ("seconds_left", number())],
        &[("process", text())],
    );
    json!({
        "Stats": object(&[
            ("version", text()), ("uptime", span_of_time()), ("draining", flag()), ("addresses", addresses),
            ("engine", object(&engine, &[])), ("latency_bounds", list(&number())), ("store", maybe(&object(&store, &[]))),
            ("event_clients", number()), ("held", object(&[("approvals", number()), ("rules", number())], &[])),
        ], &[]),
        "Config": object(&[("config", json!({"type": "object"}))], &[]),
        "Ca": object(&[
            ("name", text()), ("fingerprint_sha256", text()), ("not_after", number()), ("pem", text()), ("leaves_signed", number()),
            ("leaves_cached", number()),
        ], &[]),
        "Passing": object(&[("passing", list(&passing))], &[]),
        "Completions": object(&[("completions", list(&completion))], &[]),
        "Checked": object(&[("ok", flag())], &[("query", text()), ("all", flag()), ("error", any())]),
        "Help": object(&[("text", text())], &[]),
        "OpenApi": json!({"type": "object"}),
    })
}
