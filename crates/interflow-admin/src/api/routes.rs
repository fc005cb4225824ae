//! The table of routes: path, handler, and OpenAPI metadata.

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, MethodRouter, on};

use super::{
    approvals, body, conversations, events, flows, instance, limits, openapi, pending, policies, privacy, query_assist,
    replay, rules, transfer,
};
use crate::server::AdminState;

pub(crate) struct ApiRoute {
    pub method: Method,
    /// Below `/api/v1`.
    pub path: &'static str,
    pub handler: MethodRouter<Arc<AdminState>>,
    pub summary: &'static str,
    pub params: Vec<ApiParam>,
    pub input: Option<ApiContent>,
    pub answer: ApiResponseSpec,
}

/// A query parameter.
pub(crate) struct ApiParam {
    pub name: &'static str,
    /// The JSON Schema type.
    pub kind: &'static str,
    pub required: bool,
    pub doc: &'static str,
}

/// A body: its media type, and the name of its schema if it is JSON.
#[derive(Clone, Copy)]
pub(crate) struct ApiContent {
    pub media: &'static str,
    pub schema: Option<&'static str>,
}

/// The success response.
#[derive(Clone, Copy)]
pub(crate) struct ApiResponseSpec {
    pub status: u16,
    pub content: Option<ApiContent>,
}

const fn json(schema: &'static str) -> ApiContent {
    ApiContent { media: "application/json", schema: Some(schema) }
}

const BYTES: ApiContent = ApiContent { media: "application/octet-stream", schema: None };
const LINES: ApiContent = ApiContent { media: "application/x-ndjson", schema: None };

impl ApiRoute {
    fn new<H, T>(method: Method, path: &'static str, summary: &'static str, answer: ApiContent, handler: H) -> Self
    where
        H: Handler<T, Arc<AdminState>>,
        T: 'static,
    {
        let filter = MethodFilter::try_from(method.clone()).expect("the table holds methods that axum knows");
        Self {
            method,
            path,
            handler: on(filter, handler),
            summary,
            params: Vec::new(),
            input: None,
            answer: ApiResponseSpec { status: 200, content: Some(answer) },
        }
    }

    fn param(mut self, name: &'static str, kind: &'static str, doc: &'static str) -> Self {
        self.params.push(ApiParam { name, kind, required: false, doc });
        self
    }

    fn required(mut self, name: &'static str, kind: &'static str, doc: &'static str) -> Self {
        self.params.push(ApiParam { name, kind, required: true, doc });
        self
    }

    fn with_input(mut self, input: ApiContent) -> Self {
        self.input = Some(input);
        self
    }

    fn no_content(mut self, status: u16) -> Self {
        self.answer = ApiResponseSpec { status, content: None };
        self
    }
}

const QUERY: &str = "the query; every flow when it is empty";
/// Which side's packets to export.
const LEG: &str = "with pcapng: client (default), upstream or both";
const ORIGINALS: &str = "with jsonl: edited requests and responses as they came in, too";
const FORMAT: &str =
    "har (default), jsonl, saz, fxzy, mitm, pcapng, curl, httpie, fetch, python, raw, raw-request, raw-response, table";

pub(crate) fn all_routes() -> Vec<ApiRoute> {
    let mut all = flow_routes();
    all.extend(conversation_routes());
    all.extend(archive_routes());
    all.extend(rule_routes());
    all.extend(privacy_routes());
    all.extend(approval_routes());
    all.extend(instance_routes());
    #[cfg(feature = "media")]
    all.extend(media_routes());
    all.extend(limit_routes());
    all
}

#[cfg(feature = "media")]
fn media_routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(
            Method::GET,
            "/media/streams",
            "Media being streamed now",
            json("MediaStreams"),
            super::media::streams,
        ),
        ApiRoute::new(Method::POST, "/media/links", "Make a link for a player", json("MediaLink"), super::media::link)
            .with_input(json("MediaWish")),
    ]
}

fn privacy_routes() -> Vec<ApiRoute> {
    vec![
        ApiRoute::new(
            Method::GET,
            "/privacy",
            "What redaction found since the start, by kind",
            json("Privacy"),
            privacy::findings,
        ),
        ApiRoute::new(
            Method::GET,
            "/privacy/history",
            "Flows in which redaction found something, by time, kind, host and route",
            json("Findings"),
            privacy::history,
        )
        .param("since", "string", "how far back: 24h when not given")
        .param("span", "string", "the length of one span: 1h when not given"),
        ApiRoute::new(
            Method::POST,
            "/privacy/try",
            "What a policy finds in a text",
            json("Tried"),
            privacy::try_policy,
        )
        .with_input(json("Trial")),
        ApiRoute::new(
            Method::GET,
            "/privacy/policies",
            "The active policies, and the requests that each applies to",
            json("Policies"),
            policies::list,
        ),
        ApiRoute::new(
            Method::GET,
            "/privacy/policies/source",
            "The text of a policy",
            json("PolicySource"),
            policies::source,
        )
        .required("file", "string", "the file, as the list of policies names it"),
        ApiRoute::new(
            Method::PUT,
            "/privacy/policies/source",
            "Change a policy: validated, written and activated, or rejected as a whole",
            json("Policies"),
            policies::save,
        )
        .required("file", "string", "the file, as the list of policies names it")
        .with_input(json("PolicyText")),
        ApiRoute::new(
            Method::POST,
            "/privacy/check",
            "What is wrong with the text of a policy",
            json("PolicyChecked"),
            policies::check,
        )
        .with_input(json("PolicyText")),
        ApiRoute::new(
            Method::GET,
            "/privacy/schema",
            "The JSON Schema of policies, and the kinds",
            json("PolicySchema"),
            policies::schema,
        ),
    ]
}

fn flow_routes() -> Vec<ApiRoute> {
    use flows::{annotate, count, delete, delete_selected, list, message, messages, prune, show};
    let get = Method::GET;
    vec![
        ApiRoute::new(get.clone(), "/flows", "Flows of a query, page by page", json("FlowPage"), list)
            .param("query", "string", QUERY)
            .param("limit", "integer", "flows on a page, 1 to 1000; 100 when not given")
            .param("after", "string", "only flows behind the flow of this id, in the order asked for")
            .param("before", "string", "only flows before the flow of this id, those next to it")
            .param("order", "string", "newest (default) or oldest first"),
        ApiRoute::new(get.clone(), "/flows/count", "How many flows a query selects", json("Count"), count)
            .param("query", "string", QUERY),
        ApiRoute::new(Method::POST, "/flows/delete", "Delete chosen flows", json("Deleted"), delete_selected)
            .with_input(json("Chosen")),
        ApiRoute::new(
            Method::POST,
            "/flows/prune",
            "Delete what a query selects and give its disk space back",
            json("Pruned"),
            prune,
        )
        .with_input(json("Prune")),
        ApiRoute::new(get.clone(), "/flows/{id}", "One flow with its heads", json("Flow"), show),
        ApiRoute::new(Method::PATCH, "/flows/{id}", "Change tags and comment", json("Flow"), annotate)
            .with_input(json("Marks")),
        ApiRoute::new(Method::DELETE, "/flows/{id}", "Delete a flow that has ended", BYTES, delete).no_content(204),
        ApiRoute::new(
            get.clone(),
            "/flows/{id}/{side}/body",
            "A body: its bytes in ranges, or a view of it",
            BYTES,
            body::body,
        )
        .param("view", "string", "raw (default), decoded, text, hex, json-pretty or pretty (by the media type)")
        .param("original", "boolean", "as received, before it was edited by a rule or by hand")
        .param("message", "string", "with pretty: the full name of the message of Protocol Buffers")
        .param("offset", "integer", "where the view begins, in bytes of what it shows")
        .param("limit", "integer", "how many bytes it shows; 1 MiB for a view, everything for raw"),
        ApiRoute::new(
            get.clone(),
            "/flows/{id}/messages",
            "Messages of a WebSocket, event stream or gRPC stream",
            json("MessagePage"),
            messages,
        )
        .param("from", "integer", "the number of the first one; 0 when not given")
        .param("limit", "integer", "1 to 1000; 200 when not given")
        .param("payload", "integer", "bytes shown of each payload; 65536 when not given"),
        ApiRoute::new(get.clone(), "/flows/{id}/messages/{index}", "The payload of one message", BYTES, message),
        ApiRoute::new(
            Method::POST,
            "/flows/{id}/replay",
            "Send the request again, changed perhaps",
            json("Replayed"),
            replay::replay,
        )
        .with_input(json("Replay")),
        ApiRoute::new(get, "/diff", "What differs between two flows", json("Diff"), replay::diff)
            .param("original", "boolean", "the first one as it came in, before it was edited here")
            .required("a", "string", "the id of the first flow")
            .required("b", "string", "the id of the second flow"),
    ]
}

fn conversation_routes() -> Vec<ApiRoute> {
    use conversations::{changes, endpoints, export, for_flows, list, rebuild, set_endpoints, show, totals};
    let get = Method::GET;
    vec![
        ApiRoute::new(
            get.clone(),
            "/conversations",
            "Conversations with language models, the latest first",
            json("ConversationPage"),
            list,
        )
        .param("query", "string", "keys as for flows: agent:, model:, provider:, host:, user:, tokens:, time:, dur:")
        .param("limit", "integer", "conversations on a page, 1 to 500; 100 when not given")
        .param("after", "string", "only those behind the conversation of this id")
        .param("parent", "string", "only sub-agents of the conversation of this id")
        .param("all", "boolean", "also sub-agents, and conversations of utility calls alone"),
        ApiRoute::new(
            get.clone(),
            "/conversations/totals",
            "Tokens and cost over time, by agent and model",
            json("Totals"),
            totals,
        )
        .param("since", "string", "how far back: 24h, 7d (default)")
        .param("span", "string", "the length of each span: 1h, 1d (default)"),
        ApiRoute::new(
            get.clone(),
            "/conversations/of",
            "Which of some flows are exchanges with models, and of what conversation",
            json("Exchanges"),
            for_flows,
        )
        .required("flows", "string", "ids of flows, parted by commas"),
        ApiRoute::new(
            Method::POST,
            "/conversations/rebuild",
            "Put all conversations together anew from the recorded flows",
            json("Rebuilt"),
            rebuild,
        ),
        ApiRoute::new(
            get.clone(),
            "/conversations/endpoints",
            "The API formats that the operator set for endpoints that cannot be recognised",
            json("Endpoints"),
            endpoints,
        ),
        ApiRoute::new(
            Method::PUT,
            "/conversations/endpoints",
            "Say what is spoken at which endpoint, all of them at once; what ends from then on is read so",
            json("Endpoints"),
            set_endpoints,
        )
        .with_input(json("Endpoints")),
        ApiRoute::new(
            get.clone(),
            "/conversations/{conversation}",
            "One conversation, laid out in turns",
            json("Conversation"),
            show,
        )
        .param("leaf", "string", "the key of the message it leads to; the last one when not given"),
        ApiRoute::new(
            get.clone(),
            "/conversations/{conversation}/export",
            "One conversation with its sub-agents as a document",
            BYTES,
            export,
        )
        .param("format", "string", "markdown (default), jsonl or html"),
        ApiRoute::new(
            get,
            "/conversations/{conversation}/changes",
            "What changed from the request before to this one, and why the cache gave what it gave",
            json("Changes"),
            changes,
        )
        .required("flow", "string", "the flow of the exchange")
        .param("part", "integer", "the exchange's number within a WebSocket; 0 when not given"),
    ]
}

fn archive_routes() -> Vec<ApiRoute> {
    let get = Method::GET;
    vec![
        ApiRoute::new(get.clone(), "/flows/{id}/export", "One flow as a file or command", BYTES, transfer::export_one)
            .param("format", "string", FORMAT)
            .param("leg", "string", LEG)
            .param("originals", "boolean", ORIGINALS),
        ApiRoute::new(get.clone(), "/export", "The flows of a query as a file, oldest first", BYTES, transfer::export)
            .param("query", "string", QUERY)
            .param("format", "string", FORMAT)
            .param("leg", "string", LEG)
            .param("originals", "boolean", ORIGINALS),
        ApiRoute::new(Method::POST, "/export", "Chosen flows as a file", BYTES, transfer::export_by_ids)
            .with_input(json("ExportChosen")),
        ApiRoute::new(
            Method::POST,
            "/import",
            "Take up the flows of a HAR or JSONL file",
            json("Imported"),
            transfer::import,
        )
        .param("format", "string", "har, jsonl, saz, fxzy or mitm; detected from the first bytes if absent")
        .with_input(BYTES),
        ApiRoute::new(
            get,
            "/search",
            "Flows as they are found, by several threads, with progress",
            LINES,
            transfer::search,
        )
        .param("query", "string", QUERY)
        .param("limit", "integer", "stop after so many; 1000 when not given"),
    ]
}

fn rule_routes() -> Vec<ApiRoute> {
    let get = Method::GET;
    vec![
        ApiRoute::new(
            get.clone(),
            "/rules",
            "The active rules, and how often each matched",
            json("Rules"),
            rules::list,
        ),
        ApiRoute::new(get.clone(), "/rules/source", "The text of a rule file", json("RuleSource"), rules::source)
            .required("file", "string", "the file, as the list of rules names it"),
        ApiRoute::new(
            Method::PUT,
            "/rules/source",
            "Change a rule file: validated, written and activated, or rejected as a whole",
            json("Rules"),
            rules::save,
        )
        .required("file", "string", "the file, as the list of rules names it")
        .with_input(json("RuleText")),
        ApiRoute::new(
            Method::POST,
            "/rules/check",
            "What is wrong with a text of rules",
            json("RulesChecked"),
            rules::check,
        )
        .with_input(json("RuleText")),
        ApiRoute::new(get.clone(), "/rules/schema", "The JSON Schema of rule files", json("RuleSchema"), rules::schema),
        ApiRoute::new(
            get.clone(),
            "/rules/explain/{id}",
            "Why each rule did or did not match a flow, in which phase",
            json("RulesExplained"),
            rules::explain_flow,
        ),
        ApiRoute::new(get, "/rules/held", "Flows that wait for a decision", json("HeldFlows"), rules::held_flows),
        ApiRoute::new(
            Method::POST,
            "/rules/held/{number}",
            "Decide about a held flow",
            json("RuleDecided"),
            rules::decide,
        )
        .with_input(json("Decision")),
    ]
}

fn limit_routes() -> Vec<ApiRoute> {
    use limits::{keys, limits, make_key, revoke_key};
    let get = Method::GET;
    vec![
        ApiRoute::new(
            get.clone(),
            "/limits",
            "Rules, counters, and what was used since the start",
            json("Limits"),
            limits,
        ),
        ApiRoute::new(get, "/keys", "The virtual keys, without the keys themselves", json("Keys"), keys),
        ApiRoute::new(Method::POST, "/keys", "Make a virtual key; it is shown this once", json("MadeKey"), make_key)
            .with_input(json("NewKey")),
        ApiRoute::new(Method::DELETE, "/keys/{id}", "Take a virtual key back, from now on", BYTES, revoke_key)
            .no_content(204),
    ]
}

fn approval_routes() -> Vec<ApiRoute> {
    use approvals::{add_rule, add_secret, add_session, end_session, heartbeat, history, list, mode, resolve};
    use approvals::{remove_rule, remove_secret, rules, secrets, sessions, suggestions};
    let (get, post, delete) = (Method::GET, Method::POST, Method::DELETE);
    vec![
        ApiRoute::new(get.clone(), "/approvals", "Pending requests, and the active mode", json("Approvals"), list)
            .param("after", "integer", "wait until the version is another than this")
            .param("wait", "string", "how long, at most: 25s"),
        ApiRoute::new(post.clone(), "/approvals/{id}", "Answer a question", json("Decided"), resolve)
            .with_input(json("Answer")),
        ApiRoute::new(
            get.clone(),
            "/pending",
            "Everything that waits for a decision: approval questions, and flows held by rules",
            json("Pending"),
            pending::list,
        )
        .param("after", "integer", "wait until the version is another than this")
        .param("wait", "string", "how long, at most: 25s")
        .param(
            "query",
            "string",
            "each member reports whether this query selects it; null if too little is known about it",
        ),
        ApiRoute::new(
            post.clone(),
            "/pending/{id}",
            "Decide: an Answer for an approval, a Decision for a flow that a rule holds; `allow` and `deny` for both",
            json("PendingDecided"),
            pending::decide,
        )
        .with_input(json("PendingAnswer")),
        ApiRoute::new(get.clone(), "/approvals/history", "Answers given, the latest first", json("Answers"), history),
        ApiRoute::new(
            post.clone(),
            "/approvals/mode",
            "Another mode for a while, or the configured one",
            json("Mode"),
            mode,
        )
        .with_input(json("NewMode")),
        ApiRoute::new(get.clone(), "/approvals/rules", "The active rules", json("ApprovalRules"), rules),
        ApiRoute::new(post.clone(), "/approvals/rules", "Make a rule", json("ApprovalRule"), add_rule)
            .with_input(json("NewRule")),
        ApiRoute::new(delete.clone(), "/approvals/rules/{id}", "Take a rule back", BYTES, remove_rule).no_content(204),
        ApiRoute::new(
            get.clone(),
            "/approvals/suggestions",
            "Rules that would allow what was recorded",
            json("Suggestions"),
            suggestions,
        )
        .param("query", "string", QUERY),
        ApiRoute::new(get.clone(), "/sessions", "The sessions that live", json("Sessions"), sessions),
        ApiRoute::new(post.clone(), "/sessions", "Announce a session", json("Session"), add_session)
            .with_input(json("NewSession")),
        ApiRoute::new(post.clone(), "/sessions/{id}/heartbeat", "A session lives on", json("Session"), heartbeat),
        ApiRoute::new(delete.clone(), "/sessions/{id}", "End a session", BYTES, end_session).no_content(204),
        ApiRoute::new(get, "/secrets", "Secrets that placeholders stand for, without values", json("Secrets"), secrets),
        ApiRoute::new(post, "/secrets", "Keep a secret", json("SecretView"), add_secret).with_input(json("NewSecret")),
        ApiRoute::new(delete, "/secrets/{label}", "Forget a secret", BYTES, remove_secret).no_content(204),
    ]
}

fn instance_routes() -> Vec<ApiRoute> {
    use instance::{
        bypassed_clients, ca, clear_bypass, config, doctor, issue_credential, login_link, revoke_credential, stats,
    };
    let get = Method::GET;
    vec![
        ApiRoute::new(get.clone(), "/events", "WebSocket: flows as they begin, go on and end", BYTES, events::events)
            .no_content(101),
        ApiRoute::new(get.clone(), "/stats", "Figures of the engine and the recorder", json("Stats"), stats),
        ApiRoute::new(get.clone(), "/config", "The effective configuration, secrets masked", json("Config"), config),
        ApiRoute::new(get.clone(), "/ca", "The certificate authority", json("Ca"), ca),
        ApiRoute::new(get.clone(), "/doctor", "What is wrong with this machine and instance", json("Doctor"), doctor),
        ApiRoute::new(
            get.clone(),
            "/passthrough",
            "Programs whose TLS passes uninspected since they refuse our certificate",
            json("Passing"),
            bypassed_clients,
        ),
        ApiRoute::new(Method::DELETE, "/passthrough", "Intercept those programs again", BYTES, clear_bypass)
            .param("host", "string", "only their connections to this host")
            .no_content(204),
        ApiRoute::new(
            Method::POST,
            "/passes",
            "Credentials for a program that the operator starts",
            json("Pass"),
            issue_credential,
        )
        .with_input(json("PassFor")),
        ApiRoute::new(
            Method::POST,
            "/login-links",
            "A path that logs one browser in, once and within a minute",
            json("LoginLink"),
            login_link,
        ),
        ApiRoute::new(Method::POST, "/passes/revoke", "Take such credentials back", BYTES, revoke_credential)
            .with_input(json("Pass"))
            .no_content(204),
        ApiRoute::new(
            get.clone(),
            "/query/complete",
            "What the last word of a query may become",
            json("Completions"),
            query_assist::complete,
        )
        .param("q", "string", "the query so far"),
        ApiRoute::new(
            get.clone(),
            "/query/check",
            "Whether a query can be read, and what is wrong with it",
            json("Checked"),
            query_assist::check,
        )
        .param("q", "string", "the query"),
        ApiRoute::new(get.clone(), "/query/help", "The query language on a page", json("Help"), query_assist::help),
        ApiRoute::new(get, "/openapi.json", "This document", json("OpenApi"), openapi::document),
    ]
}
