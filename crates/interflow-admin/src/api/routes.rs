//! The table of routes. The router and the OpenAPI document are both made from it, and parameters, bodies and responses
//! are documented by the types of the handlers: a route without documentation cannot exist.

use std::sync::Arc;

#[cfg(not(feature = "schema"))]
use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};
#[cfg(feature = "schema")]
use interflow_types::schema::JsonSchema;

use crate::api::edited::{
    approvals, limits, policies, privacy, proposals, rules, settings, shared_settings, spend, teams,
};
use crate::api::flows::{
    self, body, certificates, compose, events, overview, query_assist, replay, transfer, values as flow_values,
};
#[cfg(feature = "schema")]
use crate::api::operation::{ApiSchemas, DocumentedHandler, Operation};
use crate::api::system::{audit, instance, llm, me, setup, tokens};
use crate::api::{conversations, openapi_document, pending};
use crate::identity::Rights;
use crate::identity::enforce::OperationAccess;
use crate::state::AdminState;

const VIEW: Rights = Rights::VIEW;
/// Shows contents of flows.
const BODIES: Rights = VIEW.and(Rights::READ_BODIES);
const OPERATE: Rights = VIEW.and(Rights::OPERATE);
/// Could show contents to the caller in a roundabout way: a rule or a replay can send them anywhere.
const OPERATE_ON_BODIES: Rights = OPERATE.and(Rights::READ_BODIES);
const ADMINISTER: Rights = VIEW.and(Rights::ADMINISTER);

#[cfg(feature = "schema")]
type DescribeFn = fn(&mut Operation, &mut ApiSchemas);

/// Without the document, any handler can be a route.
#[cfg(not(feature = "schema"))]
trait DocumentedHandler<T>: Handler<T, Arc<AdminState>> {}

#[cfg(not(feature = "schema"))]
impl<T, H: Handler<T, Arc<AdminState>>> DocumentedHandler<T> for H {}

pub(crate) struct ApiRoute {
    pub method: Method,
    /// Below `/api/v1`.
    pub path: &'static str,
    pub handler: MethodRouter<Arc<AdminState>>,
    /// The rights that a caller needs: no operation can be listed without them.
    pub needs: Rights,
    /// Whether each call is a line of the audit trail: all that change something, and all that show contents.
    pub is_audited: bool,
    #[cfg(feature = "schema")]
    pub summary: &'static str,
    #[cfg(feature = "schema")]
    pub describe: DescribeFn,
    #[cfg(feature = "schema")]
    pub adjust: Option<DescribeFn>,
}

fn route<H, T>(method: Method, path: &'static str, needs: Rights, handler: H, summary: &'static str) -> ApiRoute
where
    H: DocumentedHandler<T>,
    T: 'static,
{
    // Only the document shows it.
    #[cfg(not(feature = "schema"))]
    let _ = summary;
    let filter = MethodFilter::try_from(method.clone()).expect("the table holds methods that axum knows");
    let is_audited = method != Method::GET || needs.contains(BODIES);
    let handler = on(filter, handler);
    ApiRoute {
        method,
        path,
        handler,
        needs,
        is_audited,
        #[cfg(feature = "schema")]
        summary,
        #[cfg(feature = "schema")]
        describe: H::describe,
        #[cfg(feature = "schema")]
        adjust: None,
    }
}

macro_rules! by_method {
    ($($name:ident $method:ident),*) => {$(
        fn $name<H: DocumentedHandler<T>, T: 'static>(
            path: &'static str, needs: Rights, handler: H, summary: &'static str,
        ) -> ApiRoute {
            route(Method::$method, path, needs, handler, summary)
        }
    )*};
}
by_method!(get GET, post POST, put PUT, patch PATCH, delete DELETE);

impl ApiRoute {
    /// Not in the audit trail: it changes nothing and shows no contents.
    const fn unaudited(mut self) -> Self {
        self.is_audited = false;
        self
    }

    /// In the audit trail although it only reads.
    const fn audited(mut self) -> Self {
        self.is_audited = true;
        self
    }

    pub fn access(&self) -> OperationAccess {
        let name = format!("{} {}", self.method, self.path);
        OperationAccess { name, needed: self.needs, is_audited: self.is_audited }
    }

    #[cfg(not(feature = "schema"))]
    #[expect(clippy::extra_unused_type_parameters, reason = "only the document shows them")]
    fn lines<T>(self) -> Self {
        self
    }

    #[cfg(not(feature = "schema"))]
    #[expect(clippy::extra_unused_type_parameters, reason = "only the document shows them")]
    fn messages<C, S>(self) -> Self {
        self
    }

    #[cfg(feature = "schema")]
    fn lines<T: JsonSchema>(mut self) -> Self {
        self.adjust = Some(|operation, schemas| {
            operation.response.1 = Some(("application/x-ndjson", schemas.responses.subschema_for::<T>().into()));
        });
        self
    }

    /// The WebSocket's messages are JSON of these types: the client's, and the server's.
    #[cfg(feature = "schema")]
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
        access_routes(),
    ];
    parts.into_iter().flatten().collect()
}

fn flow_routes() -> Vec<ApiRoute> {
    use flows::{annotate, count, delete as delete_one, delete_selected, flush, list, message, messages, prune, show};
    vec![
        get("/flows", VIEW, list, "Flows of a query, page by page"),
        get("/flows/count", VIEW, count, "How many flows a query selects"),
        get("/flows/values", VIEW, flow_values::values, "How often the values of a key occur in the newest flows"),
        get("/flows/details", VIEW, flow_values::details, "Timings, programs and comments of some flows"),
        post("/flows/delete", ADMINISTER, delete_selected, "Delete chosen flows"),
        post("/flows/flush", VIEW, flush, "Wait until everything recorded so far is written").unaudited(),
        post("/flows/prune", ADMINISTER, prune, "Delete what a query selects and free its disk space"),
        get("/flows/{id}", VIEW, show, "One flow with its heads"),
        patch("/flows/{id}", OPERATE, annotate, "Change tags and comment"),
        delete("/flows/{id}", ADMINISTER, delete_one, "Delete a flow that has ended"),
        get("/flows/{id}/{side}/body", BODIES, body::body, "A body: its bytes in ranges, or a view of it"),
        get("/flows/{id}/certificates", VIEW, certificates::certificates, "The certificate chains of both sides"),
        get("/flows/{id}/messages", BODIES, messages, "Messages of a WebSocket, event stream or gRPC stream"),
        get("/flows/{id}/messages/{index}", BODIES, message, "The payload of one message"),
        post("/flows/{id}/replay", OPERATE_ON_BODIES, replay::replay, "Send the request again, possibly changed"),
        get("/diff", BODIES, replay::diff, "The differences between two flows"),
    ]
}

fn conversation_routes() -> Vec<ApiRoute> {
    use conversations::{
        annotate, changes, endpoints, export, for_flows, list, prompt_cache, rebuild, search, set_endpoints, show,
        tool_call, totals,
    };
    vec![
        get("/conversations", BODIES, list, "Conversations with language models, the latest first"),
        get("/conversations/totals", VIEW, totals, "Tokens and cost over time, by user, agent and model"),
        get(
            "/conversations/search",
            BODIES,
            search,
            "Conversations of which a message contains a text, the latest first",
        ),
        get(
            "/conversations/by-flow",
            VIEW,
            for_flows,
            "Which of some flows are exchanges with models, and their conversations",
        ),
        get(
            "/conversations/tool-call",
            BODIES,
            tool_call,
            "The tool call of a conversation that a flow of the MCP gateway carried",
        ),
        post("/conversations/rebuild", ADMINISTER, rebuild, "Build all conversations anew from the recorded flows"),
        get(
            "/conversations/endpoints",
            VIEW,
            endpoints,
            "The API formats that the operator set for endpoints that cannot be recognised",
        ),
        put(
            "/conversations/endpoints",
            ADMINISTER,
            set_endpoints,
            "Set the API formats of endpoints, all at once, for flows that end from then on",
        ),
        get("/conversations/{conversation}", BODIES, show, "One conversation, laid out in turns"),
        patch(
            "/conversations/{conversation}",
            OPERATE_ON_BODIES,
            annotate,
            "Change tags and comment of a conversation or a message",
        ),
        get(
            "/conversations/{conversation}/export",
            BODIES,
            export,
            "One conversation with its sub-agents as a document",
        ),
        get(
            "/conversations/{conversation}/changes",
            BODIES,
            changes,
            "Changes from the preceding request, and why the cache was hit or missed",
        ),
        get(
            "/conversations/{conversation}/cache",
            BODIES,
            prompt_cache,
            "Where the provider's prompt cache broke, why, and what that cost",
        ),
    ]
}

fn archive_routes() -> Vec<ApiRoute> {
    use transfer::{SearchLine, export, export_by_ids, export_one, import, search};
    vec![
        get("/flows/{id}/export", BODIES, export_one, "One flow as a file or command"),
        get("/export", BODIES, export, "The flows of a query as a file, oldest first"),
        post("/export", BODIES, export_by_ids, "Chosen flows as a file"),
        post("/import", OPERATE, import, "Import the flows of an archive, whose format is detected if not given"),
        get("/search", BODIES, search, "Flows as they are found, by several threads, with progress")
            .lines::<SearchLine>(),
    ]
}

fn compose_routes() -> Vec<ApiRoute> {
    use compose::{clear_history, code, history, list, read, remove, send_composed, write};
    vec![
        post("/compose", OPERATE, send_composed, "Send a request that was written from nothing"),
        post("/compose/code", VIEW, code, "A request as a command or a program").unaudited(),
        get("/compose/history", OPERATE_ON_BODIES, history, "The composed requests that were sent, as written"),
        delete("/compose/history", OPERATE_ON_BODIES, clear_history, "Forget them"),
        get("/collections", OPERATE, list, "The collections of composed requests"),
        get("/collections/{name}", OPERATE, read, "One collection"),
        put("/collections/{name}", OPERATE, write, "Create a collection, or change the revision that was read"),
        delete("/collections/{name}", OPERATE, remove, "Delete a collection"),
    ]
}

fn rule_routes() -> Vec<ApiRoute> {
    use rules::{check, decide, explain_flow, held_flows, list, save, schema, source};
    vec![
        get("/rules", VIEW, list, "The active rules, and how often each matched"),
        get("/rules/source", OPERATE, source, "The text of a rule file"),
        put(
            "/rules/source",
            OPERATE_ON_BODIES,
            save,
            "Change a rule file: validated, written and activated, or rejected as a whole",
        ),
        post("/rules/check", OPERATE, check, "Check a text of rules").unaudited(),
        get("/rules/schema", VIEW, schema, "The JSON Schema of rule files"),
        get("/rules/explain/{id}", BODIES, explain_flow, "Why each rule did or did not match a flow, in which phase"),
        get("/rules/proposals", OPERATE, proposals::list, "Rules that agents propose"),
        post(
            "/rules/proposals",
            OPERATE_ON_BODIES,
            proposals::propose,
            "Propose rules: checked and tried, not activated",
        ),
        post(
            "/rules/proposals/{id}",
            OPERATE_ON_BODIES,
            proposals::apply,
            "Add proposed rules to a rule file, and activate it",
        ),
        delete("/rules/proposals/{id}", OPERATE, proposals::dismiss, "Dismiss proposed rules"),
        get("/rules/held", VIEW, held_flows, "Flows held by rules"),
        post("/rules/held/{number}", OPERATE, decide, "Decide about a held flow"),
    ]
}

fn privacy_routes() -> Vec<ApiRoute> {
    use policies::{check, list, save, schema, source};
    vec![
        get("/privacy", VIEW, privacy::findings, "What redaction found since the start, by kind"),
        get(
            "/privacy/history",
            VIEW,
            privacy::history,
            "Flows in which redaction found something, by time, kind, host and route",
        ),
        post("/privacy/try", VIEW, privacy::try_policy, "What a policy finds in a text").unaudited(),
        get("/privacy/policies", VIEW, list, "The active policies, and the requests that each applies to"),
        get("/privacy/policies/source", OPERATE, source, "The text of a policy"),
        put(
            "/privacy/policies/source",
            ADMINISTER,
            save,
            "Change a policy: validated, written and activated, or rejected as a whole",
        ),
        post("/privacy/check", OPERATE, check, "Check the text of a policy").unaudited(),
        get("/privacy/schema", VIEW, schema, "The JSON Schema of policies, and the kinds"),
    ]
}

fn approval_routes() -> Vec<ApiRoute> {
    use approvals::{add_rule, add_secret, add_session, end_session, heartbeat, history, list, mode, resolve};
    use approvals::{remove_rule, remove_secret, rules, secrets, sessions, suggestions};
    vec![
        get("/approvals", VIEW, list, "Pending requests, and the active mode"),
        post("/approvals/{id}", OPERATE, resolve, "Resolve a pending request"),
        get(
            "/pending",
            VIEW,
            pending::list,
            "Everything that waits for a decision: approvals, and flows held by rules",
        ),
        post("/pending/{id}", OPERATE, pending::decide, "Decide about a pending item"),
        get("/approvals/history", VIEW, history, "Requests that are no longer pending, the latest first"),
        post("/approvals/mode", OPERATE, mode, "Set a temporary mode, or return to the configured one"),
        get("/approvals/rules", VIEW, rules, "The active rules"),
        post("/approvals/rules", OPERATE, add_rule, "Create a rule"),
        delete("/approvals/rules/{id}", OPERATE, remove_rule, "Remove a rule"),
        get("/approvals/suggestions", VIEW, suggestions, "Rules that would allow what was recorded"),
        get("/sessions", VIEW, sessions, "The active sessions"),
        post("/sessions", OPERATE, add_session, "Register a session"),
        post("/sessions/{id}/heartbeat", OPERATE, heartbeat, "Keep a session alive").unaudited(),
        delete("/sessions/{id}", OPERATE, end_session, "End a session"),
        get("/secrets", VIEW, secrets, "The secrets behind placeholders, without values"),
        post("/secrets", ADMINISTER, add_secret, "Add a secret"),
        delete("/secrets/{label}", ADMINISTER, remove_secret, "Remove a secret"),
    ]
}

fn instance_routes() -> Vec<ApiRoute> {
    use events::{ClientCommand, EventMessage, events};
    use instance::{bypassed_clients, ca, clear_bypass, config, doctor, stats};
    use instance::{issue_credential, login_link, reload, revoke_credential};
    use query_assist::{check, complete, help};
    vec![
        get("/events", VIEW, events, "WebSocket: flows as they begin, change and end")
            .messages::<ClientCommand, EventMessage>(),
        get("/stats", VIEW, stats, "Figures of the proxy and the recorder"),
        get("/instances", VIEW, instance::instances, "The processes that record to the shared store"),
        get("/overview", VIEW, overview::overview, "Figures of recorded flows over a span of time, in buckets"),
        get("/config", VIEW, config, "The effective configuration, secrets masked"),
        post("/reload", ADMINISTER, reload, "Reload the configuration and the files that it names"),
        get(
            "/settings",
            VIEW,
            settings::list,
            "The keys of the configuration that can be set, and where their values come from",
        ),
        post("/settings/preview", ADMINISTER, settings::preview, "What a change would do to the configuration file")
            .unaudited(),
        post(
            "/settings",
            ADMINISTER,
            settings::change,
            "Change the configuration file and reload it, or change nothing",
        ),
        get(
            "/fleet/settings",
            ADMINISTER,
            shared_settings::list,
            "Settings that replicas share, and the replicas that refused one or do not have it yet",
        ),
        get(
            "/fleet/settings/{name}/revisions",
            ADMINISTER,
            shared_settings::revisions,
            "Revisions of a shared setting with author and time, the newest first",
        ),
        get(
            "/fleet/settings/{name}/diff",
            ADMINISTER,
            shared_settings::diff,
            "The difference of two revisions of a shared setting",
        ),
        post(
            "/fleet/settings/{name}/rollback",
            ADMINISTER,
            shared_settings::roll_back,
            "Make the text of an earlier revision the newest one, at every replica",
        ),
        get("/ca", VIEW, ca, "The certificate authority"),
        get("/doctor", VIEW, doctor, "Check this machine and instance"),
        get(
            "/passthrough",
            VIEW,
            bypassed_clients,
            "Clients whose TLS is passed through because they refuse our certificate",
        ),
        delete("/passthrough", OPERATE, clear_bypass, "Intercept those clients again"),
        post(
            "/credentials",
            ADMINISTER,
            issue_credential,
            "Issue an ephemeral credential for a program that the operator starts",
        ),
        post("/credentials/revoke", ADMINISTER, revoke_credential, "Revoke such a credential"),
        post("/login-links", ADMINISTER, login_link, "A path that logs one browser in, once and within a minute"),
        get("/setup", VIEW, setup::setup, "How clients reach this instance"),
        get("/setup/qr", VIEW, setup::qr_code, "The address of the page for phones as a QR code (SVG)"),
        post("/browsers", ADMINISTER, setup::start_browser, "Start a browser behind the proxy, on this machine only"),
        get("/query/complete", VIEW, complete, "Completions of a query"),
        get("/query/check", VIEW, check, "Whether a query is valid, and what is wrong with it"),
        get("/query/help", VIEW, help, "The query language on a page"),
        get("/openapi.json", VIEW, openapi_document::document, "This document"),
    ]
}

#[cfg(feature = "media")]
fn media_routes() -> Vec<ApiRoute> {
    use crate::api::system::media;
    vec![
        get("/media/streams", VIEW, media::streams, "Active streams"),
        post("/media/links", OPERATE, media::link, "Create a link for a player"),
    ]
}

fn limit_routes() -> Vec<ApiRoute> {
    use limits::{change_key, keys, limits, make_key, revoke_key, rotate_key};
    vec![
        get("/llm/routes", VIEW, llm::routes, "Routes of models to deployments, with the state of each deployment"),
        get("/limits", VIEW, limits, "Rules, counters, and usage since the start"),
        get("/keys", VIEW, keys, "The virtual keys, without the keys themselves"),
        post("/keys", ADMINISTER, make_key, "Create a virtual key; it is shown this once"),
        patch(
            "/keys/{id}",
            ADMINISTER,
            change_key,
            "Disable or enable a virtual key, or change its expiry, team or tags",
        ),
        post(
            "/keys/{id}/rotate",
            ADMINISTER,
            rotate_key,
            "Replace the secret of a virtual key; the new one is shown this once",
        ),
        delete("/keys/{id}", ADMINISTER, revoke_key, "Revoke a virtual key"),
        get("/teams", VIEW, teams::teams, "Teams and organisations, to which virtual keys belong"),
        post("/teams/{id}", ADMINISTER, teams::add::<true>, "Create a team"),
        patch("/teams/{id}", ADMINISTER, teams::change::<true>, "Change a team"),
        delete("/teams/{id}", ADMINISTER, teams::remove::<true>, "Remove a team without keys"),
        post("/organisations/{id}", ADMINISTER, teams::add::<false>, "Create an organisation"),
        patch("/organisations/{id}", ADMINISTER, teams::change::<false>, "Change an organisation"),
        delete("/organisations/{id}", ADMINISTER, teams::remove::<false>, "Remove an organisation without teams"),
        get("/spend", VIEW, spend::spend, "Spending by key, team, tag and other columns"),
        get("/spend.csv", VIEW, spend::spend_csv, "The same as CSV"),
    ]
}

fn access_routes() -> Vec<ApiRoute> {
    use tokens::{create, list, revoke};
    vec![
        get("/me", VIEW, me::me, "Who you are, and what you may do"),
        get("/tokens", VIEW, list, "Your API tokens without their secrets; those of everybody for an admin"),
        post("/tokens", VIEW, create, "Create an API token; it is shown this once"),
        delete("/tokens/{id}", VIEW, revoke, "Revoke an API token at once"),
        get("/audit", ADMINISTER, audit::list, "Who looked at contents and changed what, the latest first").audited(),
    ]
}
