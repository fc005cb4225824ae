//! The table of the API's error kinds: status, meaning, and the remedy that a response has unless it names a closer one.

/// A kind of error of the API. Its name is constant, so that programs can tell errors apart.
#[derive(Debug)]
pub struct ApiErrorKind {
    pub name: &'static str,
    /// The statuses with which it is sent.
    pub statuses: &'static [u16],
    /// When it occurs, as a phrase.
    pub meaning: &'static str,
    /// What to do about it; empty if that depends on the message.
    pub remedy: &'static str,
}

const fn kind(
    name: &'static str,
    statuses: &'static [u16],
    meaning: &'static str,
    remedy: &'static str,
) -> ApiErrorKind {
    ApiErrorKind { name, statuses, meaning, remedy }
}

const RECORD: &str = "set record.enabled = true and start without --no-record";

/// Every kind, by status.
#[rustfmt::skip]
pub const API_ERROR_KINDS: &[ApiErrorKind] = &[
    kind("bad_request", &[400], "a path, a parameter or the body cannot be read, or its value is not allowed", ""),
    kind("bad_query", &[400], "a query cannot be parsed; `column` says where", ""),
    kind("bad_link", &[400], "a media link cannot be made of these parameters", ""),
    kind("bad_user", &[400], "a user name is empty or contains a colon", "choose a name without a colon"),
    kind("broken_upload", &[400], "the upload of an archive broke off", "send it again; `imported` says how many flows came in"),
    kind("two_hosts", &[400], "the request has more than one `Host` field", "send one"),
    kind("no_token", &[401], "the admin token is missing or wrong", "it is in admin.token in the data folder"),
    kind("token_expired", &[401], "the API token has expired", "create another one with interflow tokens create"),
    kind("missing_right", &[403], "the role of the person or token does not allow this", "ask an admin of this instance for the right"),
    kind("no_token_here", &[403], "a token cannot create or revoke tokens, unless it is an admin's", "log in as a person, or ask an admin"),
    kind("wrong_origin", &[403], "a web page of another origin sent the request", ""),
    kind("no_origin", &[403], "a browser sent a change without an `Origin`", ""),
    kind("managed", &[403], "the configuration file is not changed by this instance; the message says why", "change it where it is managed"),
    kind("not_local", &[403], "a browser can only be started from the machine of this instance", "run interflow browser there"),
    kind("not_found", &[404], "there is no such flow, message, conversation, pending request or API token", ""),
    kind("no_file", &[404], "no active rule or policy has this file; `files` lists those that have", ""),
    kind("no_group", &[404], "there is no team or organisation with this id", "GET /api/v1/teams lists them"),
    kind("no_key", &[404], "there is no virtual key with this id", "GET /api/v1/keys lists the keys"),
    kind("not_reachable", &[404], "the proxy listens on loopback only, so that no phone can reach it", "set proxy.listen to an address of the network"),
    kind("no_route", &[404], "there is nothing at this path", "GET /api/v1/openapi.json lists what there is"),
    kind("not_held", &[404], "no flow with this number is held by a rule", "GET /api/v1/rules/held lists what is held"),
    kind("wrong_method", &[405], "the path does not take this method", "GET /api/v1/openapi.json lists what it takes"),
    kind("elsewhere", &[409], "the flow runs at another replica, which has its bodies and messages until it has ended; the message names it", "ask again when the flow has ended, or ask that replica"),
    kind("open", &[409], "the flow is still in progress", "delete it when it has ended"),
    kind("overridden", &[409], "the setting is determined by an environment variable or an option, which override the file", "change it there"),
    kind("changed_meanwhile", &[409], "the file was changed since it was read", "read it anew, and make the change there"),
    kind("too_large", &[413, 422], "the body, or what was asked for, is larger than the limit in the message", ""),
    kind("media_type", &[415], "the body is not `application/json`", "send it with Content-Type: application/json"),
    kind("wrong_host", &[421], "the `Host` header is not allowed on the admin port", "see admin.hosts"),
    kind("browser_failed", &[422], "the browser could not be started", ""),
    kind("bad_policy", &[422], "a redaction policy is invalid; `problems` says where", "nothing has changed: the previous policy is still active"),
    kind("bad_rules", &[422], "a rule file is invalid; `problems` says where", "nothing has changed: the previous rules are still active"),
    kind("invalid_config", &[422], "the configuration was not reloaded", ""),
    kind("malformed_archive", &[422], "an archive cannot be read", "check the format; `imported` says how many flows came in"),
    kind("malformed_collection", &[422], "the file of a collection cannot be read", "correct or remove it in the folder collections of the data directory"),
    kind("not_json", &[422], "the body is not JSON", "ask for view=text"),
    kind("not_readable", &[422], "the body does not have the form that the view shows", "ask for view=hex"),
    kind("not_replayable", &[422], "the flow cannot be sent again", ""),
    kind("too_deep", &[422], "a text has more levels of brackets than the limit in the message", ""),
    kind("too_many", &[422], "there are as many collections as there can be", "delete one, or add the request to one"),
    kind("too_slow", &[422], "checking a text took longer than the limit in the message", "make it shorter or simpler"),
    kind("websocket", &[426], "the path is a WebSocket", "open it as a WebSocket"),
    kind("internal", &[500], "a bug in Interflow, or a failure of its environment", "see the log"),
    kind("damaged", &[500], "the recording is damaged", "run interflow flows check"),
    kind("disk", &[500], "a file in the data directory cannot be read or written", "see the log"),
    kind("store", &[500], "the recording cannot be read or written", "see the log"),
    kind("busy", &[503], "too many long requests are in progress", "try again in a moment"),
    kind("no_audit", &[503], "the audit trail is turned off", "set admin.audit.enabled = true and restart"),
    kind("no_approvals", &[503], "this instance has no approvals", ""),
    kind("no_doctor", &[503], "this instance cannot check itself", "run interflow doctor"),
    kind("no_gateway", &[503], "no gateway port is open", "set gateway.listen"),
    kind("no_limits", &[503], "this instance has no keys and limits", ""),
    kind("no_media", &[503], "this instance serves no media", "set media.enabled = true"),
    kind("no_redaction", &[503], "this instance redacts nothing", "set redact.gateway or redact.proxied"),
    kind("no_reload", &[503], "this instance cannot reload its configuration", "restart it"),
    kind("no_rules", &[503], "this instance has no rules", "start it with --rules FILE"),
    kind("no_settings", &[503], "this instance has no configuration file that could be changed", "start it with interflow run"),
    kind("no_setup", &[503], "this instance cannot list the ways to send traffic through it", ""),
    kind("not_recording", &[503], "nothing is recorded by this instance", RECORD),
    kind("overloaded", &[503], "the memory budget of the process is exhausted", "try again in a moment, or raise limits.held_bytes"),
    kind("replica_silent", &[503], "the replica that holds a pending request does not answer; nothing was decided", "try again; a replica that has ended vanishes from GET /api/v1/pending within seconds"),
    kind("shared_store", &[503], "the shared store does not answer, or refused the request", "read the message; flows are kept on this replica's disk meanwhile"),
    kind("suspended", &[503], "recording is suspended: the disk is full, or refuses writes", "free space on the disk of the recording"),
    kind("unavailable", &[503], "the recording is closed, read-only or busy, or the request was cancelled", "try again in a moment"),
    kind("outcome_unknown", &[504], "the replica that holds a pending request did not say what came of a decision", "GET /api/v1/pending shows whether it still waits"),
];

/// The line of the table with this name.
pub(crate) fn find(name: &str) -> Option<&'static ApiErrorKind> {
    API_ERROR_KINDS.iter().find(|k| k.name == name)
}
