//! The table of routes. The router and the OpenAPI document are both made from it, and parameters, bodies and responses
//! are documented by the types of the handlers: a route without documentation cannot exist.

use std::sync::Arc;

use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
use schemars::JsonSchema;

use super::operation::{ApiSchemas, DocumentedHandler, Operation};
use super::{
    approvals, body, certificates, compose, conversations, events, flow_values, flows, instance, limits, llm, openapi,
    overview, pending, policies, privacy, proposals, query_assist, replay, rules, settings, setup, spend, teams,
    transfer,
};
use crate::state::AdminState;

type DescribeFn = fn(&mut Operation, &mut ApiSchemas);

pub(crate) struct ApiRoute {
    pub method: Method,
    /// Below `/api/v1`.
    pub path: &'static str,
    pub handler: MethodRouter<Arc<AdminState>>,
    pub summary: &'static str,
    pub describe: DescribeFn,
    pub adjust: Option<DescribeFn>,
}

fn route<H, T>(method: Method, path: &'static str, handler: H, summary: &'static str) -> ApiRoute
where
    H: DocumentedHandler<T>,
    T: 'static,
{
    let filter = MethodFilter::try_from(method.clone()).expect("the table holds methods that axum knows");
    ApiRoute { method, path, handler: on(filter, handler), summary, describe: H::describe, adjust: None }
}

macro_rules! by_method {
    ($($name:ident $method:ident),*) => {$(
        fn $name<H: DocumentedHandler<T>, T: 'static>(path: &'static str, handler: H, summary: &'static str) -> ApiRoute {
            route(Method::$method, path, handler, summary)
        }
    )*};
}
by_method!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

impl ApiRoute {
    fn lines<T: JsonSchema>(mut self) -> Self {
        self.adjust = Some(|operation, schemas| {
            operation.response.1 = Some(("application/x-ndjson", schemas.responses.subschema_for::<T>().into()));
        });
        self
    }

    /// The WebSocket's messages are JSON of these types: the client's, and the server's.
    fn messages<C: JsonSchema, S: JsonSchema>(mut self) -> Self {
        self.adjust = Some(|operation, schemas| {
            let client = schemas.requests.subschema_for::<C>().into();
            operation.messages = Some((client, schemas.responses.subschema_for::<S>().into()));
        });
        self
    }
}

pub(crate) fn all_routes() -> Vec<ApiRoute> {
    let parts = [
        flow_routes(),
        conversation_routes(),
        archive_routes(),
        compose_routes(),
        rule_routes(),
        privacy_routes(),
        approval_routes(),
        instance_routes(),
        #[cfg(feature = "media")]
        media_routes(),
        limit_routes(),
    ];
    parts.into_iter().flatten().collect()
}

fn flow_routes() -> Vec<ApiRoute> {
    use flows::{annotate, count, delete as delete_one, delete_selected, flush, list, message, messages, prune, show};
    vec![
        get("/flows", list, "Flows of a query, page by page"),
        get("/flows/count", count, "How many flows a query selects"),
        get("/flows/values", flow_values::values, "How often the values of a key occur in the newest flows"),
        get("/flows/details", flow_values::details, "Timings, programs and comments of some flows"),
        post("/flows/delete", delete_selected, "Delete chosen flows"),
        post("/flows/flush", flush, "Wait until everything recorded so far is written"),
        post("/flows/prune", prune, "Delete what a query selects and free its disk space"),
        get("/flows/{id}", show, "One flow with its heads"),
        patch("/flows/{id}", annotate, "Change tags and comment"),
        delete("/flows/{id}", delete_one, "Delete a flow that has ended"),
        get("/flows/{id}/{side}/body", body::body, "A body: its bytes in ranges, or a view of it"),
        get("/flows/{id}/certificates", certificates::certificates, "The certificate chains of both sides"),
        get("/flows/{id}/messages", messages, "Messages of a WebSocket, event stream or gRPC stream"),
        get("/flows/{id}/messages/{index}", message, "The payload of one message"),
        post("/flows/{id}/replay", replay::replay, "Send the request again, possibly changed"),
        get("/diff", replay::diff, "The differences between two flows"),
    ]
}

fn conversation_routes() -> Vec<ApiRoute> {
    use conversations::{
        annotate, changes, endpoints, export, for_flows, list, prompt_cache, rebuild, search, set_endpoints, show,
        totals,
    };
    vec![
        get("/conversations", list, "Conversations with language models, the latest first"),
        get("/conversations/totals", totals, "Tokens and cost over time, by user, agent and model"),
        get("/conversations/search", search, "Conversations of which a message contains a text, the latest first"),
        get(
            "/conversations/by-flow",
            for_flows,
            "Which of some flows are exchanges with models, and their conversations",
        ),
        post("/conversations/rebuild", rebuild, "Build all conversations anew from the recorded flows"),
        get(
            "/conversations/endpoints",
            endpoints,
            "The API formats that the operator set for endpoints that cannot be recognised",
        ),
        put(
            "/conversations/endpoints",
            set_endpoints,
            "Set the API formats of endpoints, all at once, for flows that end from then on",
        ),
        get("/conversations/{conversation}", show, "One conversation, laid out in turns"),
        patch("/conversations/{conversation}", annotate, "Change tags and comment of a conversation or a message"),
        get("/conversations/{conversation}/export", export, "One conversation with its sub-agents as a document"),
        get(
            "/conversations/{conversation}/changes",
            changes,
            "Changes from the preceding request, and why the cache was hit or missed",
        ),
        get(
            "/conversations/{conversation}/cache",
            prompt_cache,
            "Where the provider's prompt cache broke, why, and what that cost",
        ),
    ]
}

fn archive_routes() -> Vec<ApiRoute> {
    use transfer::{SearchLine, export, export_by_ids, export_one, import, search};
    vec![
        get("/flows/{id}/export", export_one, "One flow as a file or command"),
        get("/export", export, "The flows of a query as a file, oldest first"),
        post("/export", export_by_ids, "Chosen flows as a file"),
        post("/import", import, "Import the flows of an archive, whose format is detected if not given"),
        get("/search", search, "Flows as they are found, by several threads, with progress").lines::<SearchLine>(),
    ]
}

fn compose_routes() -> Vec<ApiRoute> {
    use compose::{clear_history, code, history, list, read, remove, send_composed, write};
    vec![
        post("/compose", send_composed, "Send a request that was written from nothing"),
        post("/compose/code", code, "A request as a command or a program"),
        get("/compose/history", history, "The composed requests that were sent, as written"),
        delete("/compose/history", clear_history, "Forget them"),
        get("/collections", list, "The collections of composed requests"),
        get("/collections/{name}", read, "One collection"),
        put("/collections/{name}", write, "Create a collection, or change the revision that was read"),
        delete("/collections/{name}", remove, "Delete a collection"),
    ]
}

fn rule_routes() -> Vec<ApiRoute> {
    use rules::{check, decide, explain_flow, held_flows, list, save, schema, source};
    vec![
        get("/rules", list, "The active rules, and how often each matched"),
        get("/rules/source", source, "The text of a rule file"),
        put("/rules/source", save, "Change a rule file: validated, written and activated, or rejected as a whole"),
        post("/rules/check", check, "Check a text of rules"),
        get("/rules/schema", schema, "The JSON Schema of rule files"),
        get("/rules/explain/{id}", explain_flow, "Why each rule did or did not match a flow, in which phase"),
        get("/rules/proposals", proposals::list, "Rules that agents propose"),
        post("/rules/proposals", proposals::propose, "Propose rules: checked and tried, not activated"),
        post("/rules/proposals/{id}", proposals::apply, "Add proposed rules to a rule file, and activate it"),
        delete("/rules/proposals/{id}", proposals::dismiss, "Dismiss proposed rules"),
        get("/rules/held", held_flows, "Flows held by rules"),
        post("/rules/held/{number}", decide, "Decide about a held flow"),
    ]
}

fn privacy_routes() -> Vec<ApiRoute> {
    use policies::{check, list, save, schema, source};
    vec![
        get("/privacy", privacy::findings, "What redaction found since the start, by kind"),
        get(
            "/privacy/history",
            privacy::history,
            "Flows in which redaction found something, by time, kind, host and route",
        ),
        post("/privacy/try", privacy::try_policy, "What a policy finds in a text"),
        get("/privacy/policies", list, "The active policies, and the requests that each applies to"),
        get("/privacy/policies/source", source, "The text of a policy"),
        put(
            "/privacy/policies/source",
            save,
            "Change a policy: validated, written and activated, or rejected as a whole",
        ),
        post("/privacy/check", check, "Check the text of a policy"),
        get("/privacy/schema", schema, "The JSON Schema of policies, and the kinds"),
    ]
}

fn approval_routes() -> Vec<ApiRoute> {
    use approvals::{add_rule, add_secret, add_session, end_session, heartbeat, history, list, mode, resolve};
    use approvals::{remove_rule, remove_secret, rules, secrets, sessions, suggestions};
    vec![
        get("/approvals", list, "Pending requests, and the active mode"),
        post("/approvals/{id}", resolve, "Resolve a pending request"),
        get("/pending", pending::list, "Everything that waits for a decision: approvals, and flows held by rules"),
        post("/pending/{id}", pending::decide, "Decide about a pending item"),
        get("/approvals/history", history, "Requests that are no longer pending, the latest first"),
        post("/approvals/mode", mode, "Set a temporary mode, or return to the configured one"),
        get("/approvals/rules", rules, "The active rules"),
        post("/approvals/rules", add_rule, "Create a rule"),
        delete("/approvals/rules/{id}", remove_rule, "Remove a rule"),
        get("/approvals/suggestions", suggestions, "Rules that would allow what was recorded"),
        get("/sessions", sessions, "The active sessions"),
        post("/sessions", add_session, "Register a session"),
        post("/sessions/{id}/heartbeat", heartbeat, "Keep a session alive"),
        delete("/sessions/{id}", end_session, "End a session"),
        get("/secrets", secrets, "The secrets behind placeholders, without values"),
        post("/secrets", add_secret, "Add a secret"),
        delete("/secrets/{label}", remove_secret, "Remove a secret"),
    ]
}

fn instance_routes() -> Vec<ApiRoute> {
    use events::{ClientCommand, EventMessage, events};
    use instance::{bypassed_clients, ca, clear_bypass, config, doctor, stats};
    use instance::{issue_credential, login_link, reload, revoke_credential};
    use query_assist::{check, complete, help};
    vec![
        get("/events", events, "WebSocket: flows as they begin, change and end")
            .messages::<ClientCommand, EventMessage>(),
        get("/stats", stats, "Figures of the proxy and the recorder"),
        get("/overview", overview::overview, "Figures of recorded flows over a span of time, in buckets"),
        get("/config", config, "The effective configuration, secrets masked"),
        post("/reload", reload, "Reload the configuration and the files that it names"),
        get(
            "/settings",
            settings::list,
            "The keys of the configuration that can be set, and where their values come from",
        ),
        post("/settings/preview", settings::preview, "What a change would do to the configuration file"),
        post("/settings", settings::change, "Change the configuration file and reload it, or change nothing"),
        get("/ca", ca, "The certificate authority"),
        get("/doctor", doctor, "Check this machine and instance"),
        get(
            "/passthrough",
            bypassed_clients,
            "Clients whose TLS is passed through because they refuse our certificate",
        ),
        delete("/passthrough", clear_bypass, "Intercept those clients again"),
        post("/credentials", issue_credential, "Issue an ephemeral credential for a program that the operator starts"),
        post("/credentials/revoke", revoke_credential, "Revoke such a credential"),
        post("/login-links", login_link, "A path that logs one browser in, once and within a minute"),
        get("/setup", setup::setup, "How clients reach this instance"),
        get("/setup/qr", setup::qr_code, "The address of the page for phones as a QR code (SVG)"),
        post("/browsers", setup::start_browser, "Start a browser behind the proxy, on this machine only"),
        get("/query/complete", complete, "Completions of a query"),
        get("/query/check", check, "Whether a query is valid, and what is wrong with it"),
        get("/query/help", help, "The query language on a page"),
        get("/openapi.json", openapi::document, "This document"),
    ]
}

#[cfg(feature = "media")]
fn media_routes() -> Vec<ApiRoute> {
    use super::media;
    vec![
        get("/media/streams", media::streams, "Active streams"),
        post("/media/links", media::link, "Create a link for a player"),
    ]
}

fn limit_routes() -> Vec<ApiRoute> {
    use limits::{change_key, keys, limits, make_key, revoke_key, rotate_key};
    use teams::{add_organisation, add_team, change_organisation, change_team, remove_organisation, remove_team};
    vec![
        get("/llm/routes", llm::routes, "Routes of models to deployments, with the state of each deployment"),
        get("/limits", limits, "Rules, counters, and usage since the start"),
        get("/keys", keys, "The virtual keys, without the keys themselves"),
        post("/keys", make_key, "Create a virtual key; it is shown this once"),
        patch("/keys/{id}", change_key, "Disable or enable a virtual key, or change its expiry, team or tags"),
        post("/keys/{id}/rotate", rotate_key, "Replace the secret of a virtual key; the new one is shown this once"),
        delete("/keys/{id}", revoke_key, "Revoke a virtual key"),
        get("/teams", teams::teams, "Teams and organisations, to which virtual keys belong"),
        post("/teams/{id}", add_team, "Create a team"),
        patch("/teams/{id}", change_team, "Change a team"),
        delete("/teams/{id}", remove_team, "Remove a team without keys"),
        post("/organisations/{id}", add_organisation, "Create an organisation"),
        patch("/organisations/{id}", change_organisation, "Change an organisation"),
        delete("/organisations/{id}", remove_organisation, "Remove an organisation without teams"),
        get("/spend", spend::spend, "Spending by key, team, tag and other columns"),
        get("/spend.csv", spend::spend_csv, "The same as CSV"),
    ]
}
