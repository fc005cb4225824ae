//! The `[mcp]` section of the config: MCP servers that the gateway offers to its clients.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use interflow_redact::{MediaRule, RedactMode};
use interflow_types::config_sections;
use interflow_types::schema::JsonSchema;
use interflow_types::units::{ByteSize, HumanDuration};
use interflow_types::{Host, Scheme, Url};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::protocol::client_capabilities::ClientRequestKind;
use crate::protocol::client_key::ClientAuth;

config_sections! {
    /// Servers of the Model Context Protocol behind one endpoint: `/mcp` on the gateway listener, or `/mcp/NAME` for
    /// one of them.
    pub struct McpConfig {
        /// Maximum number of sessions of clients; beyond it, the key with the most loses the one that it did not use
        /// for longest.
        pub max_sessions: usize = 1_000,
        /// A session ends after this time without a request.
        pub session_timeout: HumanDuration = HumanDuration::from_secs(3600),
        /// Maximum size of a message of a client or a server.
        pub max_message: ByteSize = ByteSize(16 << 20),
        /// With more tools than this, of all servers without a number of their own, a client sees a tool that searches
        /// them and those that it found. If unset, it sees all.
        pub search_tools_above: Option<usize>,
        /// The URL at which browsers reach the gateway listener, such as `https://gateway.example.com`, for the pages on
        /// which users connect their accounts at servers. If unset, that of `oauth.resource`; without one, the address
        /// that the client used, if it is on this machine.
        pub public_url: Option<String>,
        /// Access tokens of an OAuth issuer, which clients may show in place of virtual keys.
        pub oauth: Option<McpOAuthConfig>,
        /// MCP servers by name, with which the names of their tools and prompts begin at `/mcp`: `NAME__TOOL`.
        pub server: BTreeMap<String, McpServerConfig>,
    }
}

config_sections! {
    /// The endpoints as a protected resource of OAuth 2.1. Each request then needs an access token or a virtual key.
    pub struct McpOAuthConfig {
        /// The issuer of the tokens, as its OpenID Connect discovery document names it.
        pub issuer: String,
        /// The URL of the endpoint `/mcp` as clients know it.
        pub resource: String,
        /// The audience (`aud`) of the tokens. If unset, `resource`.
        pub audience: Option<String>,
        /// Where tokens that are no JWTs are checked. If unset, they are refused.
        pub introspection: Option<McpIntrospection>,
        /// Scopes that a token has to have, all of them.
        pub scopes: Vec<String>,
        /// The gateway as a client of the issuer, at which users log in before they connect their accounts at servers.
        pub login: Option<McpLogin>,
    }
}

config_sections! {
    /// The gateway as a client of the issuer of access tokens, with the redirect URI `/mcp-accounts/callback` at
    /// `mcp.public_url`.
    pub struct McpLogin {
        /// The id of the gateway at the issuer.
        pub client_id: String,
        /// Its secret. A reference: `env:NAME` or `file:PATH`; or the secret itself. Unset for a public client.
        pub client_secret: Option<String>,
        /// The private key with which it signs assertions in place of a secret, as `private_key` of a server's `oauth`.
        pub private_key: Option<String>,
    }
}

config_sections! {
    /// The introspection endpoint of the issuer (RFC 7662), with the credentials of the gateway there.
    pub struct McpIntrospection {
        /// The URL of the endpoint.
        pub url: String,
        /// The id of the gateway at the issuer.
        pub client_id: String,
        /// Its secret. A reference: `env:NAME` or `file:PATH`; or the secret itself.
        pub client_secret: Option<String>,
        /// The private key with which it signs assertions in place of a secret, as `private_key` of a server's `oauth`. Their
        /// audience is the issuer.
        pub private_key: Option<String>,
        /// How long an answer is used. A token that is revoked is accepted for so long.
        pub cache: HumanDuration = HumanDuration::from_secs(30),
    }
}

config_sections! {
    /// An MCP server: `url` or `command`.
    pub struct McpServerConfig {
        /// The URL of a server with the streamable HTTP transport. Redirects are not followed.
        pub url: Option<String>,
        /// Header fields of requests to `url`, such as `Authorization`. A value may be a reference: `env:NAME` or
        /// `file:PATH`.
        pub headers: BTreeMap<String, String>,
        /// Access tokens for `url`, in place of an `Authorization` in `headers`.
        pub oauth: Option<McpClientCredentials>,
        /// The program of a server with the stdio transport. It is started with the first request and started again if
        /// it ends; all clients share it.
        pub command: Option<String>,
        /// Arguments of `command`.
        pub args: Vec<String>,
        /// Environment variables of `command`, beside `HOME`, `LANG`, `LOGNAME`, `PATH`, `SHELL`, `TERM`, `TMPDIR` and
        /// `USER`; it gets no others. A value may be a reference: `env:NAME` or `file:PATH`.
        pub env: BTreeMap<String, String>,
        /// Working directory of `command`. Defaults to Interflow's own.
        pub directory: Option<PathBuf>,
        /// Tools that clients may use, with `*` for any characters; empty: all.
        pub tools: Vec<String>,
        /// Tools that clients may not use, whatever `tools` says.
        pub deny_tools: Vec<String>,
        /// With more tools of this server than this, a client sees a tool that searches them and those that it found.
        /// If unset, `mcp.search_tools_above` decides.
        pub search_tools_above: Option<usize>,
        /// Tools whose calls wait until a person approves them, for `approvals.timeout` at most; also requests of the
        /// server to the client, by their method: `sampling/createMessage`, `elicitation/create`.
        pub approve: Vec<String>,
        /// Rules about calls by tool and arguments. The first that matches decides, within what `tools`, `deny_tools`
        /// and the client's key leave; calls in `approve` wait for a person in any case.
        pub rules: Vec<CallRule>,
        /// What happens to a call that no rule matches. With `ask`, it waits until a person approves it.
        pub default_action: CallAction = CallAction::Allow,
        /// Whether clients may read the server's resources.
        pub resources: bool = true,
        /// Whether clients may use the server's prompts.
        pub prompts: bool = true,
        /// What is done with personal data and secrets in arguments: of tools and prompts, and in URIs of resources. If
        /// unset, as `redact.gateway`, with `restore` in place of `redact`.
        pub arguments: Option<ArgumentMode>,
        /// What is done with personal data and secrets in results. If unset, as `redact.gateway`. What was redacted in
        /// the arguments of the same session is restored for the client.
        pub results: Option<RedactMode>,
        /// Whether placeholders for what was redacted in results of the same session, of any server, are replaced by
        /// the original values in arguments for this server. If unset, they are, unless `arguments` is `redact`.
        pub restore_arguments: Option<bool>,
        /// What is done with images, audio and binary resources in results that are redacted: they cannot be inspected.
        pub media: MediaRule = MediaRule::Refuse,
        /// The redaction policy, by its name in `redact.policies`; that of the client's key wins. If unset,
        /// `redact.policy`.
        pub policy: Option<String>,
        /// What the server may ask of a client during a session: `elicitation`, `sampling`, `roots`. Only what the
        /// client offers is declared to the server.
        pub client_requests: Vec<ClientRequestKind> = ClientRequestKind::ALL.to_vec(),
        /// Whether each session has a process of `command` of its own. A process that all share cannot ask clients for
        /// anything, because it does not say whom it asks.
        pub process_per_session: bool,
        /// Time limit for a response of the server; it does not run while the client is asked something.
        pub timeout: HumanDuration = HumanDuration(Duration::from_secs(120)),
        /// Time limit for the client's answer to a request of the server.
        pub client_timeout: HumanDuration = HumanDuration(Duration::from_secs(600)),
        /// Time limit for the start of the server, or for the beginning of a session with it.
        pub start_timeout: HumanDuration = HumanDuration(Duration::from_secs(30)),
    }
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum CallAction {
    Allow,
    Ask,
    Deny,
}

/// A rule about calls: of the tools, prompts and resources that it names, or of all if it names none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CallRule {
    /// What errors, approvals and tags call the rule. If unset, `rules[N]`, counted from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `allow` needs every reading of the call to match; for `ask` and `deny`, one suffices.
    pub action: CallAction,
    /// Names of tools, with `*` for any characters.
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Names of prompts, with `*` for any characters.
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "Vec::is_empty")]
    pub prompts: Vec<String>,
    /// URIs of resources: `*` within a segment, `**` across segments.
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    /// Tests of arguments, all of which have to hold, by the name of the argument, or by a JSON pointer to what is in it
    /// (`/options/depth`), with `*` for all members or items (`/files/*/path`). A test is `equals`, `one_of`, `glob`, `regex`,
    /// `path`, `host`, `range` or `absent`.
    #[serde(default, deserialize_with = "interflow_types::not_empty", skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, ArgumentTest>,
}

/// A test of an argument. A list holds if one of its items does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ArgumentTest {
    /// This string, number or boolean.
    Equals(Value),
    /// One of these.
    OneOf(#[serde(deserialize_with = "interflow_types::not_empty")] Vec<Value>),
    /// A text, with `*` for any characters.
    Glob(#[serde(deserialize_with = "interflow_types::not_empty")] Vec<String>),
    /// A regular expression: for the whole text with `allow`, and otherwise for a part of it, in any case.
    Regex(String),
    /// A path or a URI, resolved: `*` within a segment, `**` across segments.
    Path(#[serde(deserialize_with = "interflow_types::not_empty")] Vec<String>),
    /// A URL with a host, or a host: host patterns.
    Host(#[serde(deserialize_with = "interflow_types::not_empty")] Vec<String>),
    /// A number: at least `min`, at most `max`.
    Range { min: Option<f64>, max: Option<f64> },
    /// Whether there is no such argument.
    Absent(bool),
}

/// What is done with the arguments for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArgumentMode {
    /// Findings are replaced in the recording, for people who approve, and for guardrails; the server gets the arguments
    /// as the client sent them.
    Restore,
    /// Findings are replaced for the server, too.
    Redact,
    /// Findings are reported by tags; nothing is changed.
    Flag,
    /// Arguments are not inspected.
    Off,
}

/// How access tokens for a server are got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpGrant {
    /// The gateway has one of its own, for all clients (RFC 6749, section 4.4).
    #[default]
    ClientCredentials,
    /// The issuer gives one of the user for the access token that the client showed (RFC 8693), which needs `[mcp.oauth]`.
    TokenExchange,
    /// The gateway has one of its own, for the token of its workload in `workload_token`, such as that of a service account of
    /// Kubernetes (RFC 7523, section 2.1).
    JwtBearer,
    /// Each user connects their account at the server in a browser (RFC 6749, section 4.1). The authorization server and
    /// its endpoints are discovered.
    AuthorizationCode,
}

config_sections! {
    /// The gateway as an OAuth client, for access tokens for a server.
    pub struct McpClientCredentials {
        /// The issuer's token endpoint. With `authorization_code`, it is discovered.
        pub token_url: Option<String>,
        /// The id of the gateway at the issuer. With `authorization_code`, it may be the URL of a client metadata document; if
        /// unset, the gateway registers itself.
        pub client_id: Option<String>,
        /// Its secret. A reference: `env:NAME` or `file:PATH`; or the secret itself.
        pub client_secret: Option<String>,
        /// The private key with which it signs assertions in place of a secret (`private_key_jwt`): RSA (RS256), P-256 (ES256)
        /// or Ed25519 (EdDSA), in PEM or as a JWK. A reference: `file:PATH` or `env:NAME`; or the key itself.
        pub private_key: Option<String>,
        /// The only authorization server that is used with `authorization_code`, as it names itself. Needed with
        /// `client_secret`, which goes to no other. If unset, the first that the server names. Without `authorization_code`, the
        /// audience of assertions, if that is not `token_url`.
        pub issuer: Option<String>,
        /// Whose tokens they are: the gateway's (`client_credentials`, the default; `jwt_bearer`) or each user's
        /// (`token_exchange`, `authorization_code`).
        pub grant: McpGrant,
        /// The token of the workload, with `jwt_bearer`. A reference: `file:PATH`, which is read for each request of a token, or
        /// `env:NAME`; or the token itself.
        pub workload_token: Option<String>,
        /// Whether tokens have to be bound to a key of the gateway (DPoP, RFC 9449). With `authorization_code`, they also are
        /// where the server demands it.
        pub dpop: bool,
        /// Scopes that are asked for.
        pub scopes: Vec<String>,
        /// The resource that the token is for (RFC 8707), if the issuer asks for it.
        pub resource: Option<String>,
        /// The name of the server at the issuer (RFC 8693), if the issuer asks for that.
        pub audience: Option<String>,
    }
}

impl McpServerConfig {
    fn has_grant(&self, grant: McpGrant) -> bool {
        self.oauth.as_ref().is_some_and(|oauth| oauth.grant == grant)
    }

    /// Whether users have access tokens of the server for those that they show.
    pub(crate) fn exchanges(&self) -> bool {
        self.has_grant(McpGrant::TokenExchange)
    }

    /// Whether users connect their accounts at the server.
    pub(crate) fn has_accounts(&self) -> bool {
        self.has_grant(McpGrant::AuthorizationCode)
    }
}

impl McpLogin {
    pub(crate) fn auth(&self) -> ClientAuth<'_> {
        ClientAuth::new("mcp.oauth.login", self.client_secret.as_deref(), self.private_key.as_deref())
    }
}

impl McpIntrospection {
    pub(crate) fn auth(&self) -> ClientAuth<'_> {
        ClientAuth::new("mcp.oauth.introspection", self.client_secret.as_deref(), self.private_key.as_deref())
    }
}

impl McpClientCredentials {
    /// # Errors
    /// What is wrong, with its key.
    pub(crate) fn check(&self) -> Result<(), String> {
        let has_credential = self.auth().check()?;
        let is_workload = self.grant == McpGrant::JwtBearer;
        let is_misplaced = is_workload != self.workload_token.is_some();
        wrong_if(is_misplaced, "oauth.workload_token: it is for `grant = \"jwt_bearer\"`, which needs it")?;
        if self.grant == McpGrant::AuthorizationCode {
            return self.check_discovered();
        }
        let is_unused = self.issuer.is_some() && self.private_key.is_none();
        wrong_if(is_unused, "oauth.issuer: it is for `authorization_code` and `private_key`")?;
        let is_incomplete = !has_credential && !is_workload || has_credential && self.id().is_empty();
        wrong_if(is_incomplete, "oauth: it needs `client_id`, and `client_secret` or `private_key`")?;
        self.token_endpoint().map(drop)
    }

    /// # Errors
    /// It is none, or has no TLS.
    pub(crate) fn token_endpoint(&self) -> Result<Url, String> {
        let text = self.token_url.as_deref().unwrap_or_default();
        oauth_endpoint(text).map_err(|why| format!("oauth.token_url: {why}"))
    }

    /// Of the gateway; empty if it has none.
    pub(crate) fn id(&self) -> &str {
        self.client_id.as_deref().unwrap_or_default()
    }

    pub(crate) fn auth(&self) -> ClientAuth<'_> {
        ClientAuth::new("oauth", self.client_secret.as_deref(), self.private_key.as_deref())
    }

    /// Of `authorization_code`.
    fn check_discovered(&self) -> Result<(), String> {
        let is_given = self.token_url.is_some() || self.resource.is_some() || self.audience.is_some();
        wrong_if(is_given, "oauth: `token_url`, `resource` and `audience` are discovered with `authorization_code`")?;
        let may_leak = self.client_secret.is_some() && (self.client_id.is_none() || self.issuer.is_none());
        wrong_if(may_leak, "oauth.client_secret: it needs `client_id` and `issuer`, to which alone it goes")?;
        let issuer = self.issuer.as_deref().map_or(Ok(()), |issuer| oauth_endpoint(issuer).map(drop));
        issuer.map_err(|why| format!("oauth.issuer: {why}"))
    }
}

/// # Errors
/// This, if something is wrong.
pub(crate) fn wrong_if(is_wrong: bool, why: &str) -> Result<(), String> {
    if is_wrong { Err(why.to_owned()) } else { Ok(()) }
}

/// The URL of an endpoint that gets secrets.
///
/// # Errors
/// It is none, or has no TLS.
pub(crate) fn oauth_endpoint(text: &str) -> Result<Url, String> {
    let url = Url::of_service(text).map_err(|e| format!("`{text}` is not a URL: {e}"))?;
    match url.scheme == Scheme::Http && !is_local(&url) {
        true => Err("it is without TLS; http is for issuers on this machine only".to_owned()),
        false => Ok(url),
    }
}

/// Whether a URL is of this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    match &url.authority.host {
        Host::Name(name) => &**name == "localhost",
        Host::Ip(ip) => ip.is_loopback(),
    }
}
