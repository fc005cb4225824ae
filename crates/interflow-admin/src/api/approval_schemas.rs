//! JSON Schemas of approvals: pending requests, decisions, rules, sessions and secrets.

use serde_json::{Value, json};

use super::schemas::{any, flag, instant, list, maybe, named, number, object, span_of_time, text};

pub(super) fn approval_schemas() -> Value {
    let texts = || list(&text());
    let action = json!({"enum": ["allow", "deny"]});
    let mode = json!({"enum": ["observe", "ask", "enforce"]});
    let span = json!({"type": "string", "description": "a duration such as 30m or 7d"});
    let lists = ["hosts", "ports", "methods", "paths", "users", "agents", "processes", "containers", "sessions"]
        .map(|name| (name, texts()));
    let mut optional = lists.to_vec();
    optional.extend([("until", text()), ("note", text())]);
    let rule = object(&[("action", action.clone())], &optional);
    let shown = object(
        &[
            ("action", action.clone()),
            ("id", text()),
            ("layer", json!({"enum": ["builtin", "session", "global"]})),
            ("removable", flag()),
            ("used", number()),
            ("made", instant()),
            ("last_used", maybe(&instant())),
        ],
        &optional,
    );
    let question = [
        ("id", number()),
        ("user", maybe(&text())),
        ("process", maybe(&text())),
        ("client", text()),
        ("sessions", texts()),
        ("host", text()),
        ("port", number()),
        ("method", maybe(&text())),
        ("path", maybe(&text())),
        ("waiting", number()),
        ("flows", texts()),
        ("since", instant()),
        ("until", instant()),
    ];
    let mut answered = question.to_vec();
    answered.extend([("action", maybe(&action)), ("by", text()), ("at", instant())]);
    let secret = object(
        &[
            ("label", text()),
            ("placeholder", text()),
            ("hosts", texts()),
            ("plain_http", flag()),
            ("used", number()),
            ("given", maybe(&instant())),
            ("session", maybe(&text())),
        ],
        &[],
    );
    let new_secret = object(
        &[("label", text()), ("value", text()), ("hosts", texts())],
        &[("placeholder", text()), ("plain_http", flag())],
    );
    let known = || [("agent", maybe(&text())), ("user", maybe(&text())), ("client", maybe(&text()))];
    let known = || known().into_iter().chain([("pid", maybe(&number())), ("process", maybe(&text()))]);
    let mut session = vec![("id", text()), ("began", instant()), ("until", instant()), ("rules", number())];
    session.extend(known().chain([("secrets", list(&named("SecretView")))]));
    let mut announced: Vec<_> = known().collect();
    announced.extend([("id", text()), ("ttl", span.clone()), ("rules", list(&named("NewRule")))]);
    announced.push(("secrets", list(&named("NewSecret"))));
    let suggested = object(&[("flows", number()), ("paths_seen", texts()), ("rule", named("NewRule"))], &[]);
    let pair = json!({"type": "array", "items": text(), "minItems": 2, "maxItems": 2});
    let client = object(
        &[
            ("address", text()),
            ("user", maybe(&text())),
            ("process", maybe(&text())),
            ("container", maybe(&text())),
            ("sessions", texts()),
        ],
        &[],
    );
    let pending = object(
        &[
            ("id", text()),
            ("kind", json!({"enum": ["approval", "rule"]})),
            ("what", json!({"enum": ["request", "tunnel", "response", "message"]})),
            ("method", maybe(&text())),
            ("url", text()),
            ("host", text()),
            ("port", maybe(&number())),
            ("status", maybe(&number())),
            ("headers", list(&pair)),
            ("body", maybe(&text())),
            ("body_size", maybe(&number())),
            ("client", client),
            ("waiting", number()),
            ("flows", texts()),
            ("since", instant()),
            ("until", instant()),
            ("at_end", json!({"enum": ["deny", "continue"]})),
            ("rule", maybe(&text())),
            ("phase", maybe(&text())),
            ("note", maybe(&text())),
        ],
        &[("matches", maybe(&flag()))],
    );
    json!({
        "Pending": object(&[("version", number()), ("pending", list(&pending))], &[]),
        "PendingAnswer": any(),
        "PendingDecided": object(&[("id", text()), ("flows", number()), ("rule", maybe(&named("ApprovalRule")))], &[]),
        "Held": object(&question, &[]),
        "Approvals": object(&[
            ("version", number()), ("mode", mode.clone()), ("mode_until", maybe(&instant())), ("mode_is_configured", flag()),
            ("timeout", span_of_time()), ("held", list(&named("Held"))),
        ], &[]),
        "Answer": object(&[("action", action)], &[
            ("scope", json!({"enum": ["once", "path", "host", "any_port", "subdomains"]})), ("for", span.clone()), ("everyone", flag()),
            ("note", text()), ("body", text()),
        ]),
        "Decided": object(&[("flows", number()), ("rule", maybe(&named("ApprovalRule")))], &[]),
        "Answers": object(&[("answers", list(&object(&answered, &[])))], &[]),
        "Mode": object(&[("mode", mode.clone()), ("mode_until", maybe(&instant())), ("mode_is_configured", flag())], &[]),
        "NewMode": object(&[], &[("mode", maybe(&mode)), ("for", span)]),
        "NewRule": rule,
        "ApprovalRule": shown,
        "ApprovalRules": object(&[("rules", list(&named("ApprovalRule")))], &[]),
        "Suggestions": object(&[("suggestions", list(&suggested)), ("flows_looked_at", number())], &[]),
        "Session": object(&session, &[]),
        "Sessions": object(&[("sessions", list(&named("Session")))], &[]),
        "NewSession": object(&[], &announced),
        "SecretView": secret,
        "Secrets": object(&[("secrets", list(&named("SecretView")))], &[]),
        "NewSecret": new_secret,
    })
}
