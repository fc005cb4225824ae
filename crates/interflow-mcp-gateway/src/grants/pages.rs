//! The steps of connecting an account, in the user's browser: who they are, that they want it, and the access that the
//! authorization server grants. What is between the steps is in a cookie, sealed, so that any replica takes the next one,
//! and the response to one browser is of no use in another.

use std::collections::HashMap;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use interflow_types::percent::decoded_form;
use interflow_types::{
    BoxFuture, Flow, GatewayRequest, LocalHandler, Method, MountTarget, Request, RequestHead, Response, Result,
    StatusCode, Url, is_forwarded, random_token,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::authorization::{Authorization, AuthorizationResponse};
use super::authorization_server::{AuthorizationServer, discover, is_secure};
use super::link::Link;
use super::oauth_client::{OAuthClient, metadata_document};
use super::page::{Confirmation, confirmation, leaving, page, refusal_page};
use super::user::{AccountUser, KEY, LOCAL, SUBJECT, is_near};
use super::vault::Grant;
use super::{AccountServer, CALLBACK_PATH, DOCUMENT_PATH, Grants, KEY_DOCUMENTS, LINK_PATH, PATH, now};
use crate::config::{McpClientCredentials, McpGrant};
use crate::protocol::responses::json_response;
use crate::service::McpService;
use crate::session::request_state::StateBinding;
use crate::settings::McpSettings;
use crate::upstream::server::McpServer;

/// Bounds on the form and on the cookie, in bytes.
const MAX_FORM: usize = 16 << 10;
const MAX_COOKIE: usize = 4000;

/// Serves the pages.
pub(crate) struct AccountPages(Arc<McpService>);

/// A step that the browser takes next.
#[derive(Serialize, Deserialize)]
struct Attempt {
    link: Link,
    /// What an authorization server is asked for; `None` if the user is asked whether they want it.
    asked: Option<(Authorization, Purpose)>,
}

#[derive(Serialize, Deserialize)]
enum Purpose {
    /// The user logs in at the issuer of the access tokens; with the nonce of the ID token.
    Login(String),
    /// Access with these scopes to this resource.
    Connect(Vec<String>, String),
}

/// What a page says in place of what was asked for.
struct Refusal(StatusCode, String);

const USED_UP: &str =
    "the link was used, or too many were in the last minutes; ask for another one in your client, or wait";

type PageResult<T> = std::result::Result<T, Refusal>;

fn binding() -> StateBinding {
    StateBinding::new("", "", "account attempt", "")
}

fn refused(status: StatusCode, why: &str) -> Refusal {
    Refusal(status, why.to_owned())
}

fn bad(why: &str) -> Refusal {
    refused(StatusCode::BAD_REQUEST, why)
}

fn failed(why: String) -> Refusal {
    tracing::warn!(error = why, "cannot connect an account");
    Refusal(StatusCode::BAD_GATEWAY, why)
}

fn account_of(server: &McpServer) -> PageResult<&AccountServer> {
    server.accounts().ok_or_else(|| bad("the server has no accounts"))
}

/// The pages, if the path is one of theirs.
pub(crate) fn find(service: &Arc<McpService>, request: &GatewayRequest<'_>) -> Option<MountTarget> {
    let pages = || MountTarget::Serve(Arc::new(AccountPages(Arc::clone(service))));
    (has(request) && service.settings().has_accounts).then(pages)
}

/// Whether a request is for one of the pages.
pub(crate) fn has(request: &GatewayRequest<'_>) -> bool {
    let path = request.path.split('?').next().unwrap_or_default();
    path.strip_prefix(PATH).is_some_and(|rest| rest.starts_with('/'))
}

impl LocalHandler for AccountPages {
    /// Links, codes and cookies are secrets.
    fn is_private(&self) -> bool {
        true
    }

    fn serve<'a>(&'a self, flow: &'a mut Flow, request: Request) -> BoxFuture<'a, Result<Response>> {
        Box::pin(async move {
            let Request { head, body } = request;
            let query = fields(head.url.query().unwrap_or_default());
            let (service, settings) = (&self.0, &self.0.settings());
            let visit = Visit { service, grants: &service.grants, settings, flow, head: &head };
            let answered = match (&head.method, head.url.path_only()) {
                (&Method::GET, LINK_PATH) => visit.open_link(&query).await,
                (&Method::POST, LINK_PATH) => match body.collect(MAX_FORM).await {
                    Ok((form, _)) => visit.confirm(&fields(&String::from_utf8_lossy(&form))).await,
                    Err(_) => Err(bad("the form is too long")),
                },
                (&Method::GET, CALLBACK_PATH) => visit.come_back(query).await,
                (&Method::GET, DOCUMENT_PATH) => visit.document(None),
                (&Method::GET, path) if path.starts_with(KEY_DOCUMENTS) => visit.document(Some(path)),
                _ => Err(refused(StatusCode::NOT_FOUND, "there is no such page")),
            };
            Ok(answered.unwrap_or_else(|refusal| refusal_page(refusal.0, &refusal.1)))
        })
    }
}

fn fields(text: &str) -> HashMap<String, String> {
    let pairs = text.split('&').filter_map(|field| field.split_once('='));
    pairs.map(|(name, value)| (decoded_form(name), decoded_form(value))).collect()
}

/// A request of a browser.
struct Visit<'a> {
    service: &'a Arc<McpService>,
    grants: &'a Arc<Grants>,
    settings: &'a McpSettings,
    flow: &'a Flow,
    head: &'a RequestHead,
}

impl Visit<'_> {
    fn document(&self, path: Option<&str>) -> PageResult<Response> {
        let base = self.settings.public_url.as_deref().filter(|base| is_secure(base));
        let none = || refused(StatusCode::NOT_FOUND, "the gateway has no public address with TLS (mcp.public_url)");
        let base = base.ok_or_else(none)?;
        let Some(path) = path else { return Ok(json_response(StatusCode::OK, metadata_document(base, None))) };
        let name = path.strip_prefix(KEY_DOCUMENTS).and_then(|rest| rest.strip_suffix(".json")).unwrap_or_default();
        let key = self.settings.get(name).and_then(|server| server.accounts()?.credential.key());
        let key = key.ok_or_else(|| refused(StatusCode::NOT_FOUND, "there is no such server with a private key"))?;
        Ok(json_response(StatusCode::OK, metadata_document(base, Some((name, key)))))
    }

    async fn link(&self, fields: &HashMap<String, String>) -> PageResult<(Link, Option<Grant>)> {
        let token = fields.get("token").map(String::as_str).unwrap_or_default();
        self.unused(Link::open(self.grants, token)).await
    }

    /// The link, with the account that is connected.
    async fn unused(&self, link: Option<Link>) -> PageResult<(Link, Option<Grant>)> {
        let gone = "the link has expired, was used, or is not of this gateway; ask for another one in your client";
        let gone = || refused(StatusCode::GONE, gone);
        let link = link.filter(|link| !self.grants.is_used(&link.id)).ok_or_else(gone)?;
        let user = AccountUser { name: link.user.as_str().into(), since: 0, base: link.base.as_str().into() };
        let grant = self.grants.vault.grant(&user, &link.server).await.map_err(failed)?;
        if grant.as_ref().is_some_and(|grant| link.is_older(grant)) { Err(gone()) } else { Ok((link, grant)) }
    }

    fn server(&self, link: &Link) -> PageResult<Arc<McpServer>> {
        let server = self.settings.get(&link.server).filter(|server| server.accounts().is_some());
        server.cloned().ok_or_else(|| bad("the server of the link is not configured any more"))
    }

    async fn open_link(&self, fields: &HashMap<String, String>) -> PageResult<Response> {
        let (link, grant) = self.link(fields).await?;
        self.server(&link)?;
        if !link.user.starts_with(SUBJECT) {
            return self.ask(link, grant.is_some());
        }
        let server = self.login_server()?;
        let issuer = server.config.issuer.clone().unwrap_or_default();
        let published = AuthorizationServer::discover(&issuer, &server).await.map_err(failed)?;
        let published = published.ok_or_else(|| failed(format!("the issuer {issuer} has no metadata")))?;
        let (client, nonce) = (OAuthClient::configured(&server, &published), random_token());
        let more = [("scope", "openid"), ("nonce", &*nonce)];
        let (authorization, url) = Authorization::begin(&published, client, &link.base, &more);
        self.with_attempt(leaving(&url, &issuer), Attempt { link, asked: Some((authorization, Purpose::Login(nonce))) })
    }

    /// The issuer of the access tokens of users.
    fn login_server(&self) -> PageResult<AccountServer> {
        let resource =
            self.settings.oauth.as_ref().and_then(|oauth| Some((&oauth.config, oauth.config.login.as_ref()?)));
        let (oauth, login) = resource.ok_or_else(|| bad("users cannot log in to the gateway (mcp.oauth.login)"))?;
        let server = || {
            let url = Url::of_service(&oauth.issuer).map_err(|e| e.to_string())?;
            let (client_id, issuer) = (Some(login.client_id.clone()), Some(oauth.issuer.clone()));
            let grant = McpGrant::AuthorizationCode;
            let config = McpClientCredentials { client_id, issuer, grant, ..McpClientCredentials::default() };
            let credential = login.auth().read().map_err(|error| {
                tracing::warn!(error, "cannot read the credential of the gateway at the issuer");
                "the credential of the gateway at the issuer (mcp.oauth.login) cannot be read; its log says why"
                    .to_owned()
            })?;
            AccountServer::new(self.grants, "", url, &config, credential)
        };
        server().map_err(failed)
    }

    /// Asks the user whether they want it.
    fn ask(&self, link: Link, is_connected: bool) -> PageResult<Response> {
        let name = match (link.user.strip_prefix(KEY), link.user.strip_prefix(SUBJECT)) {
            (Some(key), _) => format!("the holder of the virtual key {key}"),
            (_, Some(subject)) => format!("the user {subject}"),
            _ => "any user of this machine".to_owned(),
        };
        let question = confirmation(&Confirmation {
            server: &link.server,
            user: &name,
            token: &link.token(self.grants).map_err(|e| failed(e.message))?,
            is_connected,
            needs_key: link.user.starts_with(KEY) && !self.is_near(&link),
        });
        self.with_attempt(question, Attempt { link, asked: None })
    }

    /// Whether the browser is on this machine.
    fn is_near(&self, link: &Link) -> bool {
        is_near(&link.base) && self.flow.client.peer.ip().is_loopback() && !is_forwarded(&self.head.headers)
    }

    async fn confirm(&self, form: &HashMap<String, String>) -> PageResult<Response> {
        let (link, _) = self.link(form).await?;
        let attempt = self.attempt().filter(|attempt| attempt.asked.is_none() && attempt.link == link);
        let is_own_page = self.head.headers.get_str("origin").is_some_and(|origin| origin == link.base);
        if attempt.is_none() || !is_own_page {
            return Err(bad("the form was not filled in on the page of the link, or the browser takes no cookies"));
        }
        self.check_browser(&link, form.get("key").map(String::as_str).unwrap_or_default())?;
        let server = self.server(&link)?;
        let account = account_of(&server)?;
        if !self.grants.use_once(&link.id, &link.user, link.expires()) {
            return Err(bad(USED_UP));
        }
        if form.get("action").is_some_and(|action| action == "disconnect") {
            self.grants.vault.remove(&link.user, &link.server).await.map_err(failed)?;
            self.tell_clients(&link);
            let body = "<p>The gateway has forgotten the account. You may also withdraw its access at the server.</p>";
            return Ok(page(StatusCode::OK, "Disconnected", "", body));
        }
        let access = discover(account, &link.challenge).await.map_err(failed)?;
        let mut client = OAuthClient::at(account, &access.server, &link.base).await.map_err(failed)?;
        client.is_bound = access.needs_proof;
        let scopes = account.scopes(&link.challenge, &access);
        let (scope, mut more) = (scopes.join(" "), vec![("resource", access.resource.as_str())]);
        if !scope.is_empty() {
            more.push(("scope", &scope));
        }
        if scopes.iter().any(|scope| scope == super::OFFLINE) {
            // Otherwise issuers of OpenID Connect ignore that scope (Core 1.0, section 11).
            more.push(("prompt", "consent"));
        }
        let (authorization, url) = Authorization::begin(&access.server, client, &link.base, &more);
        let asked = Some((authorization, Purpose::Connect(scopes, access.resource.clone())));
        self.with_attempt(leaving(&url, &access.server.issuer), Attempt { link, asked })
    }

    /// Checks that the browser is of the user of a link. Of a subject, it was when the page was shown.
    fn check_browser(&self, link: &Link, key: &str) -> PageResult<()> {
        let is_key = |id: &str| self.grants.vault.key(key).is_some_and(|own| *own.id == *id);
        let why = match link.user.strip_prefix(KEY) {
            _ if self.is_near(link) => return Ok(()),
            Some(id) if !is_key(id) => "this is not the key of the link",
            None if link.user == LOCAL => "open the link on the machine of the gateway",
            _ => return Ok(()),
        };
        Err(refused(StatusCode::FORBIDDEN, why))
    }

    async fn come_back(&self, mut query: HashMap<String, String>) -> PageResult<Response> {
        let [code, state, iss, error] = ["code", "state", "iss", "error"].map(|name| query.remove(name));
        let response = AuthorizationResponse { code, state, iss, error };
        let none = "this browser has not begun to connect an account; open the link of your client in it";
        let attempt = self.attempt().ok_or_else(|| bad(none))?;
        let base = attempt.link.base.clone();
        let answered = self.finish(attempt, &response).await;
        let mut response = answered.unwrap_or_else(|refusal| refusal_page(refusal.0, &refusal.1));
        // Whatever came of it, the attempt is over, unless the next step has replaced it.
        if !response.head.headers.contains("set-cookie") {
            response.head.headers.append_unchecked(b"Set-Cookie", cookie(&base, "", 0).as_bytes());
        }
        Ok(response)
    }

    async fn finish(&self, attempt: Attempt, response: &AuthorizationResponse) -> PageResult<Response> {
        let Attempt { link, asked } = attempt;
        let (authorization, purpose) = asked.ok_or_else(|| bad("nothing was asked for"))?;
        if !self.grants.use_once(&authorization.state, &link.user, link.expires()) {
            return Err(bad(USED_UP));
        }
        match purpose {
            Purpose::Login(nonce) => {
                let server = self.login_server()?;
                let tokens = authorization.redeem(&server, &link.base, response, &[]).await.map_err(failed)?;
                let subject = authorization.subject(&tokens, &nonce).map_err(|why| failed(why.to_owned()))?;
                if link.user.strip_prefix(SUBJECT) != Some(&subject) {
                    let why = "the link is for another user than the one who is logged in at the issuer";
                    return Err(refused(StatusCode::FORBIDDEN, why));
                }
                let (link, grant) = self.unused(Some(link)).await?;
                self.ask(link, grant.is_some())
            }
            Purpose::Connect(scopes, resource) => {
                let server = self.server(&link)?;
                let account = account_of(&server)?;
                let more = [("resource", resource.as_str())];
                let tokens = authorization.redeem(account, &link.base, response, &more).await.map_err(failed)?;
                let Authorization { issuer, token_endpoint, client, .. } = authorization;
                let grant = Grant {
                    expires: tokens.expires().map(|seconds| now().saturating_add(seconds)),
                    access_token: tokens.access_token,
                    refresh_token: tokens.refresh_token,
                    scopes,
                    issuer,
                    token_endpoint,
                    client,
                    resource,
                    connected: now(),
                };
                self.grants.vault.put(&link.user, &link.server, &grant).await.map_err(failed)?;
                self.tell_clients(&link);
                let body = "<p>Your account is connected. You can close this page and go back to your client.</p>";
                Ok(page(StatusCode::OK, "Connected", "", body))
            }
        }
    }

    /// Has the clients of a user list the tools again.
    fn tell_clients(&self, link: &Link) {
        let server = Arc::from(link.server.as_str());
        self.service.sessions.for_each(|session| {
            if session.account_user.as_ref().is_some_and(|user| *user.name == *link.user) {
                session.notify(&server, "notifications/tools/list_changed", &json!({}));
            }
        });
    }

    fn attempt(&self) -> Option<Attempt> {
        let all = self.head.headers.get_all("cookie").filter_map(|field| std::str::from_utf8(field).ok());
        let pairs = all.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
        pairs.filter(|(name, _)| name.contains(COOKIE)).find_map(|(name, sealed)| {
            let packed = self.grants.sealer.open_bytes(sealed, &binding())?;
            let attempt: Attempt = serde_json::from_reader(DeflateDecoder::new(&*packed)).ok()?;
            // A page of a neighbouring host could set a cookie with another name.
            (attempt.link.is_current(self.grants) && name == cookie_name(&attempt.link.base)).then_some(attempt)
        })
    }

    /// The response with a cookie for the next step.
    fn with_attempt(&self, mut response: Response, attempt: Attempt) -> PageResult<Response> {
        // The names of many scopes have much in common.
        let mut packed = DeflateEncoder::new(Vec::new(), Compression::best());
        let written = serde_json::to_writer(&mut packed, &attempt).map_err(Into::into).and_then(|()| packed.finish());
        let packed = written.map_err(|e: std::io::Error| failed(e.to_string()))?;
        let sealed = self.grants.sealer.seal_bytes(&packed, &binding()).map_err(|e| failed(e.message))?;
        if sealed.len() > MAX_COOKIE {
            let why = "the scopes that the server lists do not fit into a cookie; the operator has to name those that are \
                       needed";
            return Err(failed(format!("{why} (mcp.server.{}.oauth.scopes)", attempt.link.server)));
        }
        let cookie = cookie(&attempt.link.base, &sealed, attempt.link.expires().saturating_sub(now()));
        response.head.headers.append_unchecked(b"Set-Cookie", cookie.as_bytes());
        Ok(response)
    }
}

const COOKIE: &str = "interflow-account";

fn cookie_name(base: &str) -> String {
    match is_secure(base) {
        true => format!("__Host-{COOKIE}"),
        // Browsers do not separate cookies by port.
        false => format!("{COOKIE}-{}", base.rsplit([':', '/']).next().unwrap_or_default()),
    }
}

fn cookie(base: &str, value: &str, seconds: u64) -> String {
    let scope = if is_secure(base) { "Path=/; Secure".to_owned() } else { format!("Path={PATH}") };
    // `Lax`, because the browser comes back from another site.
    format!("{}={value}; {scope}; Max-Age={seconds}; HttpOnly; SameSite=Lax", cookie_name(base))
}
