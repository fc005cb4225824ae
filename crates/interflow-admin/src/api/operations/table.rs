//! The table of operations. The router, the OpenAPI document, the check of rights, the audit trail, the tools of the MCP
//! server and the calls of the command line are made from it; parameters, bodies and responses are documented by the
//! types of the handlers.

use axum::http::Method;

use crate::api::edited::{
    approvals, limits, policies, privacy, proposals, rules, settings, shared_settings, spend, teams,
};
use crate::api::flows::{
    self, body, certificates, compose, composed_call, composed_socket, events, overview, query_assist, replay,
    transfer, values as flow_values,
};
use crate::api::operations::handler::erase;
use crate::api::operations::{Operation, openapi_document};
#[cfg(feature = "media")]
use crate::api::system::media;
use crate::api::system::{audit, instance, llm, mcp_accounts, me, setup, tokens};
use crate::api::{conversations, pending};
use crate::identity::Rights;

const VIEW: Rights = Rights::VIEW;
/// Shows contents of flows.
const BODIES: Rights = VIEW.and(Rights::READ_BODIES);
const OPERATE: Rights = VIEW.and(Rights::OPERATE);
/// Could show contents to the caller in a roundabout way: a rule or a replay can send them anywhere.
const OPERATE_ON_BODIES: Rights = OPERATE.and(Rights::READ_BODIES);
const ADMINISTER: Rights = VIEW.and(Rights::ADMINISTER);

/// Per operation: its name in the code, its route, the rights that it needs, its handler, and how it differs from others.
macro_rules! operations {
    ($($(#[$attribute:meta])* $id:ident: $method:ident $path:literal, $needs:ident, $handler:expr $(, $trait:ident)?;)*) => {
        /// An operation of the API.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum OperationId {
            $($(#[$attribute])* $id,)*
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
                        Operation::new(Method::$method, $path, $needs, erase($handler))
                            $(.$trait())?
                    })*
                }
            }
        }
    };
}

operations! {
    // Flows.
    ListFlows: GET "/flows", VIEW, flows::list;
    CountFlows: GET "/flows/count", VIEW, flows::count;
    FlowValues: GET "/flows/values", VIEW, flow_values::values;
    FlowDetails: GET "/flows/details", VIEW, flow_values::details;
    DeleteFlows: POST "/flows/delete", ADMINISTER, flows::delete_selected;
    FlushRecording: POST "/flows/flush", VIEW, flows::flush, unaudited;
    PruneFlows: POST "/flows/prune", ADMINISTER, flows::prune;
    ShowFlow: GET "/flows/{id}", VIEW, flows::show;
    AnnotateFlow: PATCH "/flows/{id}", OPERATE, flows::annotate;
    DeleteFlow: DELETE "/flows/{id}", ADMINISTER, flows::delete;
    FlowBody: GET "/flows/{id}/{side}/body", BODIES, body::body;
    FlowCertificates: GET "/flows/{id}/certificates", VIEW, certificates::certificates;
    FlowMessages: GET "/flows/{id}/messages", BODIES, flows::messages;
    FlowMessage: GET "/flows/{id}/messages/{index}", BODIES, flows::message;
    ReplayFlow: POST "/flows/{id}/replay", OPERATE_ON_BODIES, replay::replay;
    DiffFlows: GET "/diff", BODIES, replay::diff;
    // Conversations.
    ListConversations: GET "/conversations", BODIES, conversations::list;
    ConversationTotals: GET "/conversations/totals", VIEW, conversations::totals;
    SearchConversations: GET "/conversations/search", BODIES, conversations::search;
    ConversationsOfFlows: GET "/conversations/by-flow", VIEW, conversations::for_flows;
    ToolCallOfFlow: GET "/conversations/tool-call", BODIES, conversations::tool_call;
    RebuildConversations: POST "/conversations/rebuild", ADMINISTER, conversations::rebuild;
    ConversationEndpoints: GET "/conversations/endpoints", VIEW, conversations::endpoints;
    SetConversationEndpoints: PUT "/conversations/endpoints", ADMINISTER, conversations::set_endpoints;
    ShowConversation: GET "/conversations/{conversation}", BODIES, conversations::show;
    AnnotateConversation: PATCH "/conversations/{conversation}", OPERATE_ON_BODIES, conversations::annotate;
    ExportConversation: GET "/conversations/{conversation}/export", BODIES, conversations::export;
    ConversationChanges: GET "/conversations/{conversation}/changes", BODIES, conversations::changes;
    ConversationCache: GET "/conversations/{conversation}/cache", BODIES, conversations::prompt_cache;
    // Archives and searches.
    ExportFlow: GET "/flows/{id}/export", BODIES, transfer::export_one;
    ExportFlows: GET "/export", BODIES, transfer::export;
    ExportChosenFlows: POST "/export", BODIES, transfer::export_by_ids;
    ImportFlows: POST "/import", OPERATE, transfer::import;
    SearchFlows: GET "/search", BODIES, transfer::search;
    // Composed requests.
    SendComposed: POST "/compose", OPERATE, compose::send_composed;
    OpenComposedSocket: POST "/compose/websocket", OPERATE, composed_socket::open;
    SendComposedMessage: POST "/compose/websocket/{id}", OPERATE, composed_socket::send;
    CloseComposedSocket: DELETE "/compose/websocket/{id}", OPERATE, composed_socket::close;
    OpenComposedCall: POST "/compose/grpc", OPERATE, composed_call::open;
    SendComposedCallMessages: POST "/compose/grpc/{id}", OPERATE, composed_call::send;
    CancelComposedCall: DELETE "/compose/grpc/{id}", OPERATE, composed_call::cancel;
    ComposeSchemas: GET "/compose/schemas", VIEW, compose::schemas;
    CompileSchemas: POST "/compose/schemas", OPERATE, compose::compile_schemas, unaudited;
    ComposedCode: POST "/compose/code", VIEW, compose::code, unaudited;
    ComposeHistory: GET "/compose/history", OPERATE_ON_BODIES, compose::history;
    ClearComposeHistory: DELETE "/compose/history", OPERATE_ON_BODIES, compose::clear_history;
    ListCollections: GET "/collections", OPERATE, compose::list;
    ReadCollection: GET "/collections/{name}", OPERATE, compose::read;
    WriteCollection: PUT "/collections/{name}", OPERATE, compose::write;
    DeleteCollection: DELETE "/collections/{name}", OPERATE, compose::remove;
    // Rules.
    ListRules: GET "/rules", VIEW, rules::list;
    RuleSource: GET "/rules/source", OPERATE, rules::source;
    SaveRules: PUT "/rules/source", OPERATE_ON_BODIES, rules::save;
    CheckRules: POST "/rules/check", OPERATE, rules::check, unaudited;
    RuleSchema: GET "/rules/schema", VIEW, rules::schema;
    ExplainRules: GET "/rules/explain/{id}", BODIES, rules::explain_flow;
    ListProposals: GET "/rules/proposals", OPERATE, proposals::list;
    ProposeRules: POST "/rules/proposals", OPERATE_ON_BODIES, proposals::propose;
    ApplyProposal: POST "/rules/proposals/{id}", OPERATE_ON_BODIES, proposals::apply;
    DismissProposal: DELETE "/rules/proposals/{id}", OPERATE, proposals::dismiss;
    ListHeldFlows: GET "/rules/held", VIEW, rules::held_flows;
    DecideHeldFlow: POST "/rules/held/{number}", OPERATE, rules::decide;
    // Redaction.
    RedactionFindings: GET "/privacy", VIEW, privacy::findings;
    RedactionHistory: GET "/privacy/history", VIEW, privacy::history;
    TryPolicy: POST "/privacy/try", VIEW, privacy::try_policy, unaudited;
    ListPolicies: GET "/privacy/policies", VIEW, policies::list;
    PolicySource: GET "/privacy/policies/source", OPERATE, policies::source;
    SavePolicy: PUT "/privacy/policies/source", ADMINISTER, policies::save;
    CheckPolicy: POST "/privacy/check", OPERATE, policies::check, unaudited;
    PolicySchema: GET "/privacy/schema", VIEW, policies::schema;
    // Approvals.
    ListApprovals: GET "/approvals", VIEW, approvals::list;
    ResolveApproval: POST "/approvals/{id}", OPERATE, approvals::resolve;
    ListPending: GET "/pending", VIEW, pending::list;
    DecidePending: POST "/pending/{id}", OPERATE, pending::decide;
    ApprovalHistory: GET "/approvals/history", VIEW, approvals::history;
    SetApprovalMode: POST "/approvals/mode", OPERATE, approvals::mode;
    ListApprovalRules: GET "/approvals/rules", VIEW, approvals::rules;
    AddApprovalRule: POST "/approvals/rules", OPERATE, approvals::add_rule;
    RemoveApprovalRule: DELETE "/approvals/rules/{id}", OPERATE, approvals::remove_rule;
    ApprovalSuggestions: GET "/approvals/suggestions", VIEW, approvals::suggestions;
    ListSessions: GET "/sessions", VIEW, approvals::sessions;
    AddSession: POST "/sessions", OPERATE, approvals::add_session;
    SessionHeartbeat: POST "/sessions/{id}/heartbeat", OPERATE, approvals::heartbeat, unaudited;
    EndSession: DELETE "/sessions/{id}", OPERATE, approvals::end_session;
    ListSecrets: GET "/secrets", VIEW, approvals::secrets;
    AddSecret: POST "/secrets", ADMINISTER, approvals::add_secret;
    RemoveSecret: DELETE "/secrets/{label}", ADMINISTER, approvals::remove_secret;
    // The instance.
    Events: GET "/events", VIEW, events::events;
    Stats: GET "/stats", VIEW, instance::stats;
    ListInstances: GET "/instances", VIEW, instance::instances;
    Overview: GET "/overview", VIEW, overview::overview;
    ShowConfig: GET "/config", VIEW, instance::config;
    Reload: POST "/reload", ADMINISTER, instance::reload;
    ListSettings: GET "/settings", VIEW, settings::list;
    PreviewSettings: POST "/settings/preview", ADMINISTER, settings::preview, unaudited;
    ChangeSettings: POST "/settings", ADMINISTER, settings::change;
    ListSharedSettings: GET "/fleet/settings", ADMINISTER, shared_settings::list;
    SharedSettingRevisions: GET "/fleet/settings/{name}/revisions", ADMINISTER, shared_settings::revisions;
    SharedSettingDiff: GET "/fleet/settings/{name}/diff", ADMINISTER, shared_settings::diff;
    RollBackSharedSetting: POST "/fleet/settings/{name}/rollback", ADMINISTER, shared_settings::roll_back;
    ShowCa: GET "/ca", VIEW, instance::ca;
    Doctor: GET "/doctor", VIEW, instance::doctor;
    ListBypassedClients: GET "/passthrough", VIEW, instance::bypassed_clients;
    ClearBypass: DELETE "/passthrough", OPERATE, instance::clear_bypass;
    IssueCredential: POST "/credentials", ADMINISTER, instance::issue_credential;
    RevokeCredential: POST "/credentials/revoke", ADMINISTER, instance::revoke_credential;
    CreateLoginLink: POST "/login-links", ADMINISTER, instance::login_link;
    Setup: GET "/setup", VIEW, setup::setup;
    SetupQrCode: GET "/setup/qr", VIEW, setup::qr_code;
    StartBrowser: POST "/browsers", ADMINISTER, setup::start_browser;
    CompleteQuery: GET "/query/complete", VIEW, query_assist::complete;
    CheckQuery: GET "/query/check", VIEW, query_assist::check;
    QueryHelp: GET "/query/help", VIEW, query_assist::help;
    OpenApiDocument: GET "/openapi.json", VIEW, openapi_document::document;
    // Media.
    #[cfg(feature = "media")]
    ListStreams: GET "/media/streams", VIEW, media::streams;
    #[cfg(feature = "media")]
    CreateMediaLink: POST "/media/links", OPERATE, media::link;
    // Keys, limits and spending.
    ListLlmRoutes: GET "/llm/routes", VIEW, llm::routes;
    ListModels: GET "/models", VIEW, llm::models;
    ShowLimits: GET "/limits", VIEW, limits::limits;
    ListKeys: GET "/keys", VIEW, limits::keys;
    CreateKey: POST "/keys", ADMINISTER, limits::make_key;
    ChangeKey: PATCH "/keys/{id}", ADMINISTER, limits::change_key;
    RotateKey: POST "/keys/{id}/rotate", ADMINISTER, limits::rotate_key;
    RevokeKey: DELETE "/keys/{id}", ADMINISTER, limits::revoke_key;
    ListMcpAccounts: GET "/mcp/accounts", VIEW, mcp_accounts::list;
    RemoveMcpAccount: POST "/mcp/accounts/remove", ADMINISTER, mcp_accounts::remove;
    ListTeams: GET "/teams", VIEW, teams::teams;
    CreateTeam: POST "/teams/{id}", ADMINISTER, teams::add::<true>;
    ChangeTeam: PATCH "/teams/{id}", ADMINISTER, teams::change::<true>;
    RemoveTeam: DELETE "/teams/{id}", ADMINISTER, teams::remove::<true>;
    CreateOrganisation: POST "/organisations/{id}", ADMINISTER, teams::add::<false>;
    ChangeOrganisation: PATCH "/organisations/{id}", ADMINISTER, teams::change::<false>;
    RemoveOrganisation: DELETE "/organisations/{id}", ADMINISTER, teams::remove::<false>;
    Spend: GET "/spend", VIEW, spend::spend;
    SpendCsv: GET "/spend.csv", VIEW, spend::spend_csv;
    // Access.
    ShowMe: GET "/me", VIEW, me::me;
    ListTokens: GET "/tokens", VIEW, tokens::list;
    CreateToken: POST "/tokens", VIEW, tokens::create;
    RevokeToken: DELETE "/tokens/{id}", VIEW, tokens::revoke;
    ListAudit: GET "/audit", ADMINISTER, audit::list, audited;
}
