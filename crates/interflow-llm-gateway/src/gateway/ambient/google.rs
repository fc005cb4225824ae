//! Google's Application Default Credentials: a file (a service account's key, a user's credentials, or workload
//! identity federation), or the metadata server of Compute Engine, GKE and Cloud Run.

use interflow_types::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::access_token::{AccessToken, Fetched, account_request, parse_bearer, without_token};
use super::{Call, Environment, TokenEgress, lifetime, read_file};

const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
pub(in crate::gateway) const TOKEN_URL: &str = "https://oauth2.googleapis.com/token";

/// A user's credentials, as written by `gcloud auth application-default login`: a refresh token (RFC 6749 6).
#[derive(Deserialize)]
struct AuthorizedUser {
    client_id: String,
    client_secret: String,
    refresh_token: String,
    token_uri: Option<String>,
}

/// Workload identity federation: another provider's token is exchanged for Google's (RFC 8693).
#[derive(Deserialize)]
struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: Value,
}

/// The file that is named, else gcloud's own, else the metadata server. A named file that cannot be read is an error:
/// no other account is used in its place.
pub(super) async fn fetch(env: &Environment, egress: &TokenEgress) -> Result<Fetched, String> {
    if let Some(path) = env.get("GOOGLE_APPLICATION_CREDENTIALS") {
        let at = |e: String| format!("GOOGLE_APPLICATION_CREDENTIALS: {e}");
        let text = read_file(&path).map_err(at)?;
        return by_file(&text, egress).await.map_err(at);
    }
    let folder = env.get("CLOUDSDK_CONFIG");
    let folder = folder.or_else(|| env.home().map(|home| format!("{home}/.config/gcloud")));
    let file = folder.map(|folder| format!("{folder}/application_default_credentials.json"));
    if let Some(file) = file.filter(|file| std::path::Path::new(file).is_file()) {
        return by_file(&read_file(&file)?, egress).await.map_err(|e| format!("{file}: {e}"));
    }
    by_metadata(env, egress).await.map_err(|e| {
        format!(
            "no credentials of Google are found: GOOGLE_APPLICATION_CREDENTIALS is not set, `gcloud auth application-default \
             login` was not run, and there is no metadata server ({e}); set one of them up, or service_account of this upstream"
        )
    })
}

async fn by_file(text: &str, egress: &TokenEgress) -> Result<Fetched, String> {
    let value: Value = serde_json::from_str(text).map_err(|e| format!("this is not JSON: {e}"))?;
    let wrong = |kind: &str, e: serde_json::Error| format!("this is not a {kind}: {e}");
    match value["type"].as_str().unwrap_or_default() {
        "service_account" => account_request(text)?.send(&*egress.web).await?.bearer(),
        "authorized_user" => {
            let user: AuthorizedUser = serde_json::from_value(value).map_err(|e| wrong("authorized_user", e))?;
            let pairs = [
                ("grant_type", "refresh_token"),
                ("client_id", user.client_id.as_str()),
                ("client_secret", user.client_secret.as_str()),
                ("refresh_token", user.refresh_token.as_str()),
            ];
            let url = user.token_uri.as_deref().unwrap_or(TOKEN_URL);
            Call::post_form(url, &pairs)?.send(&*egress.web).await?.bearer()
        }
        "external_account" => {
            let account: ExternalAccount = serde_json::from_value(value).map_err(|e| wrong("external_account", e))?;
            by_federation(&account, egress).await
        }
        other => Err(format!(
            "credentials of the type `{other}` are not read; use service_account, authorized_user or external_account"
        )),
    }
}

/// Workload identity federation with a token from a file (RFC 8693), and then, if configured, the impersonation of a
/// service account.
async fn by_federation(account: &ExternalAccount, egress: &TokenEgress) -> Result<Fetched, String> {
    let source = &account.credential_source;
    let Some(file) = source["file"].as_str() else {
        return Err(
            "the credential_source of an external_account must be a file; url, executable and aws are not read".into(),
        );
    };
    let text = read_file(file).map_err(|e| format!("credential_source: {e}"))?;
    let subject = match source["format"]["type"].as_str() {
        Some("json") => {
            let name = source["format"]["subject_token_field_name"].as_str().unwrap_or("access_token");
            let value: Value = serde_json::from_str(&text).map_err(|e| format!("credential_source: {file}: {e}"))?;
            value[name].as_str().ok_or_else(|| format!("credential_source: {file} has no {name}"))?.to_owned()
        }
        _ => text.trim().to_owned(),
    };
    let pairs = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("audience", account.audience.as_str()),
        ("scope", SCOPE),
        ("requested_token_type", "urn:ietf:params:oauth:token-type:access_token"),
        ("subject_token_type", account.subject_token_type.as_str()),
        ("subject_token", subject.as_str()),
    ];
    let exchanged = Call::post_form(&account.token_url, &pairs)?.send(&*egress.web).await?.bearer()?;
    let (Some(url), (AccessToken::Bearer(own), _)) = (&account.service_account_impersonation_url, &exchanged) else {
        return Ok(exchanged);
    };
    let mut call = Call::new(Method::POST, url)?
        .with_known("Content-Type", "application/json")
        .with("Authorization", &format!("Bearer {own}"))?;
    call.body = json!({ "scope": [SCOPE], "lifetime": "3600s" }).to_string();
    let answer = call.send(&*egress.web).await?;
    let reply = answer.granted().map_err(|e| format!("the service account cannot be impersonated: {e}"))?;
    let until = reply["expireTime"].as_str().and_then(|t| t.parse().ok());
    let renamed = json!({ "access_token": reply["accessToken"] });
    let (token, life) = parse_bearer(&renamed).ok_or_else(|| without_token(&answer.at, answer.status))?;
    Ok((token, until.map(lifetime).or(life)))
}

/// A token for the machine's service account, from its metadata server. The `Metadata-Flavor` field is required,  so
/// that a plain GET caused by someone else does not obtain one.
async fn by_metadata(env: &Environment, egress: &TokenEgress) -> Result<Fetched, String> {
    let host = env.get("GCE_METADATA_HOST").unwrap_or_else(|| "metadata.google.internal".into());
    let url = format!("http://{host}/computeMetadata/v1/instance/service-accounts/default/token");
    let call = Call::get(&url)?.with_known("Metadata-Flavor", "Google");
    call.send_near(&*egress.metadata).await?.bearer()
}
