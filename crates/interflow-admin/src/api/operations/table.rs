//! The table of operations. The router, the OpenAPI document, the check of rights, the audit trail, the tools of the MCP
//! server and the calls of the command line are made from it; parameters, bodies and responses are documented by the
//! types of the handlers.

use axum::http::Method;

use crate::api::edited::{
    approvals, limits, policies, privacy, proposals, rules, settings, shared_settings, spend, teams,
};
use crate::api::flows::{
    self, body, certificates, compose, events, overview, query_assist, replay, transfer, values as flow_values,
};
use crate::api::operations::Operation;
use crate::api::operations::handler::erase;
use crate::api::operations::openapi_document;
#[cfg(feature = "media")]
use crate::api::system::media;
use crate::api::system::{audit, instance, llm, me, setup, tokens};
use crate::api::{conversations, pending};
use crate::identity::Rights;

const VIEW: Rights = Rights::VIEW;
/// Shows contents of flows.
const BODIES: Rights = VIEW.and(Rights::READ_BODIES);
const OPERATE: Rights = VIEW.and(Rights::OPERATE);
/// Could show contents to the caller in a roundabout way: a rule or a replay can send them anywhere.
const OPERATE_ON_BODIES: Rights = OPERATE.and(Rights::READ_BODIES);
const ADMINISTER: Rights = VIEW.and(Rights::ADMINISTER);

/// Per operation: its name in the code, its route, the rights that it needs, its handler, its summary, and how it differs
/// from others.
macro_rules! operations {
    ($($(#[$attribute:meta])* $id:ident: $method:ident $path:literal, $needs:ident, $handler:expr,
       $summary:literal $(, $trait:ident)?;)*) => {
        /// An operation of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OperationId {
            $($(#[$attribute])* #[doc = $summary] $id,)*
        }

        impl OperationId {
            pub(crate) const ALL: &[Self] = &[$($(#[$attribute])* Self::$id,)*];

            /// Method, and path below `/api/v1`.
            pub const fn route(self) -> (&'static str, &'static str) {
                match self {
                    $($(#[$attribute])* Self::$id => (stringify!($method), $path),)*
                }
            }

            pub(crate) fn operation(self) -> Operation {
                match self {
                    $($(#[$attribute])* Self::$id => {
                        Operation::new(Method::$method, $path, $needs, erase($handler), $summary)
                            $(.$trait())?
                    })*
                }
            }
        }
    };
}

operations! {
    // Flows.
    ListFlows: GET "/flows", VIEW, flows::list, "Flows of a query, page by page";
    CountFlows: GET "/flows/count", VIEW, flows::count, "How many flows a query selects";
    FlowValues: GET "/flows/values", VIEW, flow_values::values,
        "How often the values of a key occur in the newest flows";
    FlowDetails: GET "/flows/details", VIEW, flow_values::details, "Timings, programs and comments of some flows";
    DeleteFlows: POST "/flows/delete", ADMINISTER, flows::delete_selected, "Delete chosen flows";
    FlushRecording: POST "/flows/flush", VIEW, flows::flush,
        "Wait until everything recorded so far is written", unaudited;
    PruneFlows: POST "/flows/prune", ADMINISTER, flows::prune, "Delete what a query selects and free its disk space";
    ShowFlow: GET "/flows/{id}", VIEW, flows::show, "One flow with its heads";
    AnnotateFlow: PATCH "/flows/{id}", OPERATE, flows::annotate, "Change tags and comment";
    DeleteFlow: DELETE "/flows/{id}", ADMINISTER, flows::delete, "Delete a flow that has ended";
    FlowBody: GET "/flows/{id}/{side}/body", BODIES, body::body, "A body: its bytes in ranges, or a view of it";
    FlowCertificates: GET "/flows/{id}/certificates", VIEW, certificates::certificates,
        "The certificate chains of both sides";
    FlowMessages: GET "/flows/{id}/messages", BODIES, flows::messages,
        "Messages of a WebSocket, event stream or gRPC stream";
    FlowMessage: GET "/flows/{id}/messages/{index}", BODIES, flows::message, "The payload of one message";
    ReplayFlow: POST "/flows/{id}/replay", OPERATE_ON_BODIES, replay::replay,
        "Send the request again, possibly changed";
    DiffFlows: GET "/diff", BODIES, replay::diff, "The differences between two flows";
    // Conversations.
    ListConversations: GET "/conversations", BODIES, conversations::list,
        "Conversations with language models, the latest first";
    ConversationTotals: GET "/conversations/totals", VIEW, conversations::totals,
        "Tokens and cost over time, by user, agent and model";
    SearchConversations: GET "/conversations/search", BODIES, conversations::search,
        "Conversations of which a message contains a text, the latest first";
    ConversationsOfFlows: GET "/conversations/by-flow", VIEW, conversations::for_flows,
        "Which of some flows are exchanges with models, and their conversations";
    ToolCallOfFlow: GET "/conversations/tool-call", BODIES, conversations::tool_call,
        "The tool call of a conversation that a flow of the MCP gateway carried";
    RebuildConversations: POST "/conversations/rebuild", ADMINISTER, conversations::rebuild,
        "Build all conversations anew from the recorded flows";
    ConversationEndpoints: GET "/conversations/endpoints", VIEW, conversations::endpoints,
        "The API formats that the operator set for endpoints that cannot be recognised";
    SetConversationEndpoints: PUT "/conversations/endpoints", ADMINISTER, conversations::set_endpoints,
        "Set the API formats of endpoints, all at once, for flows that end from then on";
    ShowConversation: GET "/conversations/{conversation}", BODIES, conversations::show,
        "One conversation, laid out in turns";
    AnnotateConversation: PATCH "/conversations/{conversation}", OPERATE_ON_BODIES, conversations::annotate,
        "Change tags and comment of a conversation or a message";
    ExportConversation: GET "/conversations/{conversation}/export", BODIES, conversations::export,
        "One conversation with its sub-agents as a document";
    ConversationChanges: GET "/conversations/{conversation}/changes", BODIES, conversations::changes,
        "Changes from the preceding request, and why the cache was hit or missed";
    ConversationCache: GET "/conversations/{conversation}/cache", BODIES, conversations::prompt_cache,
        "Where the provider's prompt cache broke, why, and what that cost";
    // Archives and searches.
    ExportFlow: GET "/flows/{id}/export", BODIES, transfer::export_one, "One flow as a file or command";
    ExportFlows: GET "/export", BODIES, transfer::export, "The flows of a query as a file, oldest first";
    ExportChosenFlows: POST "/export", BODIES, transfer::export_by_ids, "Chosen flows as a file";
    ImportFlows: POST "/import", OPERATE, transfer::import,
        "Import the flows of an archive, whose format is detected if not given";
    SearchFlows: GET "/search", BODIES, transfer::search,
        "Flows as they are found, by several threads, with progress";
    // Composed requests.
    SendComposed: POST "/compose", OPERATE, compose::send_composed, "Send a request that was written from nothing";
    ComposedCode: POST "/compose/code", VIEW, compose::code, "A request as a command or a program", unaudited;
    ComposeHistory: GET "/compose/history", OPERATE_ON_BODIES, compose::history,
        "The composed requests that were sent, as written";
    ClearComposeHistory: DELETE "/compose/history", OPERATE_ON_BODIES, compose::clear_history, "Forget them";
    ListCollections: GET "/collections", OPERATE, compose::list, "The collections of composed requests";
    ReadCollection: GET "/collections/{name}", OPERATE, compose::read, "One collection";
    WriteCollection: PUT "/collections/{name}", OPERATE, compose::write,
        "Create a collection, or change the revision that was read";
    DeleteCollection: DELETE "/collections/{name}", OPERATE, compose::remove, "Delete a collection";
    // Rules.
    ListRules: GET "/rules", VIEW, rules::list, "The active rules, and how often each matched";
    RuleSource: GET "/rules/source", OPERATE, rules::source, "The text of a rule file";
    SaveRules: PUT "/rules/source", OPERATE_ON_BODIES, rules::save,
        "Change a rule file: validated, written and activated, or rejected as a whole";
    CheckRules: POST "/rules/check", OPERATE, rules::check, "Check a text of rules", unaudited;
    RuleSchema: GET "/rules/schema", VIEW, rules::schema, "The JSON Schema of rule files";
    ExplainRules: GET "/rules/explain/{id}", BODIES, rules::explain_flow,
        "Why each rule did or did not match a flow, in which phase";
    ListProposals: GET "/rules/proposals", OPERATE, proposals::list, "Rules that agents propose";
    ProposeRules: POST "/rules/proposals", OPERATE_ON_BODIES, proposals::propose,
        "Propose rules: checked and tried, not activated";
    ApplyProposal: POST "/rules/proposals/{id}", OPERATE_ON_BODIES, proposals::apply,
        "Add proposed rules to a rule file, and activate it";
    DismissProposal: DELETE "/rules/proposals/{id}", OPERATE, proposals::dismiss, "Dismiss proposed rules";
    ListHeldFlows: GET "/rules/held", VIEW, rules::held_flows, "Flows held by rules";
    DecideHeldFlow: POST "/rules/held/{number}", OPERATE, rules::decide, "Decide about a held flow";
    // Redaction.
    RedactionFindings: GET "/privacy", VIEW, privacy::findings, "What redaction found since the start, by kind";
    RedactionHistory: GET "/privacy/history", VIEW, privacy::history,
        "Flows in which redaction found something, by time, kind, host and route";
    TryPolicy: POST "/privacy/try", VIEW, privacy::try_policy, "What a policy finds in a text", unaudited;
    ListPolicies: GET "/privacy/policies", VIEW, policies::list,
        "The active policies, and the requests that each applies to";
    PolicySource: GET "/privacy/policies/source", OPERATE, policies::source, "The text of a policy";
    SavePolicy: PUT "/privacy/policies/source", ADMINISTER, policies::save,
        "Change a policy: validated, written and activated, or rejected as a whole";
    CheckPolicy: POST "/privacy/check", OPERATE, policies::check, "Check the text of a policy", unaudited;
    PolicySchema: GET "/privacy/schema", VIEW, policies::schema, "The JSON Schema of policies, and the kinds";
    // Approvals.
    ListApprovals: GET "/approvals", VIEW, approvals::list, "Pending requests, and the active mode";
    ResolveApproval: POST "/approvals/{id}", OPERATE, approvals::resolve, "Resolve a pending request";
    ListPending: GET "/pending", VIEW, pending::list,
        "Everything that waits for a decision: approvals, and flows held by rules";
    DecidePending: POST "/pending/{id}", OPERATE, pending::decide, "Decide about a pending item";
    ApprovalHistory: GET "/approvals/history", VIEW, approvals::history,
        "Requests that are no longer pending, the latest first";
    SetApprovalMode: POST "/approvals/mode", OPERATE, approvals::mode,
        "Set a temporary mode, or return to the configured one";
    ListApprovalRules: GET "/approvals/rules", VIEW, approvals::rules, "The active rules";
    AddApprovalRule: POST "/approvals/rules", OPERATE, approvals::add_rule, "Create a rule";
    RemoveApprovalRule: DELETE "/approvals/rules/{id}", OPERATE, approvals::remove_rule, "Remove a rule";
    ApprovalSuggestions: GET "/approvals/suggestions", VIEW, approvals::suggestions,
        "Rules that would allow what was recorded";
    ListSessions: GET "/sessions", VIEW, approvals::sessions, "The active sessions";
    AddSession: POST "/sessions", OPERATE, approvals::add_session, "Register a session";
    SessionHeartbeat: POST "/sessions/{id}/heartbeat", OPERATE, approvals::heartbeat, "Keep a session alive", unaudited;
    EndSession: DELETE "/sessions/{id}", OPERATE, approvals::end_session, "End a session";
    ListSecrets: GET "/secrets", VIEW, approvals::secrets, "The secrets behind placeholders, without values";
    AddSecret: POST "/secrets", ADMINISTER, approvals::add_secret, "Add a secret";
    RemoveSecret: DELETE "/secrets/{label}", ADMINISTER, approvals::remove_secret, "Remove a secret";
    // The instance.
    Events: GET "/events", VIEW, events::events,
        "WebSocket: flows as they begin, change and end";
    Stats: GET "/stats", VIEW, instance::stats, "Figures of the proxy and the recorder";
    ListInstances: GET "/instances", VIEW, instance::instances, "The processes that record to the shared store";
    Overview: GET "/overview", VIEW, overview::overview, "Figures of recorded flows over a span of time, in buckets";
    ShowConfig: GET "/config", VIEW, instance::config, "The effective configuration, secrets masked";
    Reload: POST "/reload", ADMINISTER, instance::reload, "Reload the configuration and the files that it names";
    ListSettings: GET "/settings", VIEW, settings::list,
        "The keys of the configuration that can be set, and where their values come from";
    PreviewSettings: POST "/settings/preview", ADMINISTER, settings::preview,
        "What a change would do to the configuration file", unaudited;
    ChangeSettings: POST "/settings", ADMINISTER, settings::change,
        "Change the configuration file and reload it, or change nothing";
    ListSharedSettings: GET "/fleet/settings", ADMINISTER, shared_settings::list,
        "Settings that replicas share, and the replicas that refused one or do not have it yet";
    SharedSettingRevisions: GET "/fleet/settings/{name}/revisions", ADMINISTER, shared_settings::revisions,
        "Revisions of a shared setting with author and time, the newest first";
    SharedSettingDiff: GET "/fleet/settings/{name}/diff", ADMINISTER, shared_settings::diff,
        "The difference of two revisions of a shared setting";
    RollBackSharedSetting: POST "/fleet/settings/{name}/rollback", ADMINISTER, shared_settings::roll_back,
        "Make the text of an earlier revision the newest one, at every replica";
    ShowCa: GET "/ca", VIEW, instance::ca, "The certificate authority";
    Doctor: GET "/doctor", VIEW, instance::doctor, "Check this machine and instance";
    ListBypassedClients: GET "/passthrough", VIEW, instance::bypassed_clients,
        "Clients whose TLS is passed through because they refuse our certificate";
    ClearBypass: DELETE "/passthrough", OPERATE, instance::clear_bypass, "Intercept those clients again";
    IssueCredential: POST "/credentials", ADMINISTER, instance::issue_credential,
        "Issue an ephemeral credential for a program that the operator starts";
    RevokeCredential: POST "/credentials/revoke", ADMINISTER, instance::revoke_credential, "Revoke such a credential";
    CreateLoginLink: POST "/login-links", ADMINISTER, instance::login_link,
        "A path that logs one browser in, once and within a minute";
    Setup: GET "/setup", VIEW, setup::setup, "How clients reach this instance";
    SetupQrCode: GET "/setup/qr", VIEW, setup::qr_code, "The address of the page for phones as a QR code (SVG)";
    StartBrowser: POST "/browsers", ADMINISTER, setup::start_browser,
        "Start a browser behind the proxy, on this machine only";
    CompleteQuery: GET "/query/complete", VIEW, query_assist::complete, "Completions of a query";
    CheckQuery: GET "/query/check", VIEW, query_assist::check, "Whether a query is valid, and what is wrong with it";
    QueryHelp: GET "/query/help", VIEW, query_assist::help, "The query language on a page";
    OpenApiDocument: GET "/openapi.json", VIEW, openapi_document::document, "This document";
    // Media.
    #[cfg(feature = "media")]
    ListStreams: GET "/media/streams", VIEW, media::streams, "Active streams";
    #[cfg(feature = "media")]
    CreateMediaLink: POST "/media/links", OPERATE, media::link, "Create a link for a player";
    // Keys, limits and spending.
    ListLlmRoutes: GET "/llm/routes", VIEW, llm::routes,
        "Routes of models to deployments, with the state of each deployment";
    ListModels: GET "/models", VIEW, llm::models,
        "Models with their prices, what they take, and what translation changes in requests for them";
    ShowLimits: GET "/limits", VIEW, limits::limits, "Rules, counters, and usage since the start";
    ListKeys: GET "/keys", VIEW, limits::keys, "The virtual keys, without the keys themselves";
    CreateKey: POST "/keys", ADMINISTER, limits::make_key, "Create a virtual key; it is shown this once";
    ChangeKey: PATCH "/keys/{id}", ADMINISTER, limits::change_key,
        "Disable or enable a virtual key, or change its expiry, team or tags";
    RotateKey: POST "/keys/{id}/rotate", ADMINISTER, limits::rotate_key,
        "Replace the secret of a virtual key; the new one is shown this once";
    RevokeKey: DELETE "/keys/{id}", ADMINISTER, limits::revoke_key, "Revoke a virtual key";
    ListTeams: GET "/teams", VIEW, teams::teams, "Teams and organisations, to which virtual keys belong";
    CreateTeam: POST "/teams/{id}", ADMINISTER, teams::add::<true>, "Create a team";
    ChangeTeam: PATCH "/teams/{id}", ADMINISTER, teams::change::<true>, "Change a team";
    RemoveTeam: DELETE "/teams/{id}", ADMINISTER, teams::remove::<true>, "Remove a team without keys";
    CreateOrganisation: POST "/organisations/{id}", ADMINISTER, teams::add::<false>, "Create an organisation";
    ChangeOrganisation: PATCH "/organisations/{id}", ADMINISTER, teams::change::<false>, "Change an organisation";
    RemoveOrganisation: DELETE "/organisations/{id}", ADMINISTER, teams::remove::<false>,
        "Remove an organisation without teams";
    Spend: GET "/spend", VIEW, spend::spend, "Spending by key, team, tag and other columns";
    SpendCsv: GET "/spend.csv", VIEW, spend::spend_csv, "The same as CSV";
    // Access.
    ShowMe: GET "/me", VIEW, me::me, "Who you are, and what you may do";
    ListTokens: GET "/tokens", VIEW, tokens::list,
        "Your API tokens without their secrets; those of everybody for an admin";
    CreateToken: POST "/tokens", VIEW, tokens::create, "Create an API token; it is shown this once";
    RevokeToken: DELETE "/tokens/{id}", VIEW, tokens::revoke, "Revoke an API token at once";
    ListAudit: GET "/audit", ADMINISTER, audit::list,
        "Who looked at contents and changed what, the latest first", audited;
}
