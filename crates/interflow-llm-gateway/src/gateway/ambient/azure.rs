//! Azure's credential chain: a client secret in variables, workload identity (AKS), and managed identity (App Service,
//! then the virtual machine's metadata), in this order.

use interflow_types::percent;

use super::super::access_token::{Fetched, parse_bearer, without_token};
use super::{Answered, Call, Environment, TokenEgress, lifetime, read_file};
use interflow_llm::LlmUpstreamConfig;

/// The scope of Azure's AI services, with which a token is requested if the configuration names none.
const SCOPE: &str = "https://cognitiveservices.azure.com/.default";

pub(in crate::gateway) fn scope(options: &LlmUpstreamConfig) -> &str {
    options.scope.as_deref().unwrap_or(SCOPE)
}

pub(super) async fn fetch(
    options: &LlmUpstreamConfig,
    env: &Environment,
    egress: &TokenEgress,
) -> Result<Fetched, String> {
    if let Some(found) = by_entra(options, env, egress).await? {
        return Ok(found);
    }
    if let Some(endpoint) = env.get("IDENTITY_ENDPOINT") {
        return by_app_service(options, env, &endpoint, egress).await;
    }
    by_machine(options, env, egress).await.map_err(|e| {
        format!(
            "no credentials of Azure are found: neither AZURE_CLIENT_SECRET nor AZURE_FEDERATED_TOKEN_FILE (with AZURE_CLIENT_ID \
             and AZURE_TENANT_ID) nor IDENTITY_ENDPOINT is set, and there is no managed identity ({e}); give the machine \
             an identity, or set key, or tenant, client_id and client_secret, of this upstream"
        )
    })
}

/// An Entra application, by its secret or by a Kubernetes service account token (RFC 7523 2.2). `None` if neither is
/// set.
async fn by_entra(
    options: &LlmUpstreamConfig,
    env: &Environment,
    egress: &TokenEgress,
) -> Result<Option<Fetched>, String> {
    let secret = env.get("AZURE_CLIENT_SECRET");
    let federated = env.get("AZURE_FEDERATED_TOKEN_FILE");
    let variable = if secret.is_some() { "AZURE_CLIENT_SECRET" } else { "AZURE_FEDERATED_TOKEN_FILE" };
    if secret.is_none() && federated.is_none() {
        return Ok(None);
    }
    let missing = |what: &str| format!("{variable} is set without {what}");
    let tenant = options.tenant.clone().or_else(|| env.get("AZURE_TENANT_ID"));
    let tenant = tenant.ok_or_else(|| missing("AZURE_TENANT_ID"))?;
    let id = options.client_id.clone().or_else(|| env.get("AZURE_CLIENT_ID"));
    let id = id.ok_or_else(|| missing("AZURE_CLIENT_ID"))?;
    let authority = env.get("AZURE_AUTHORITY_HOST").unwrap_or_else(|| "https://login.microsoftonline.com".into());
    let usual = || format!("{}/{}/oauth2/v2.0/token", authority.trim_end_matches('/'), percent::encoded(&tenant));
    let url = options.token_url.clone().unwrap_or_else(usual);
    let common = [("grant_type", "client_credentials"), ("client_id", id.as_str()), ("scope", scope(options))];
    let call = match (secret, federated) {
        (Some(secret), _) => Call::post_form(&url, &[&common[..], &[("client_secret", secret.trim())]].concat()),
        (None, Some(file)) => {
            // Kubernetes replaces the file before the token expires.
            let token = read_file(&file).map_err(|e| format!("AZURE_FEDERATED_TOKEN_FILE: {e}"))?;
            let assertion = [
                ("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"),
                ("client_assertion", token.trim()),
            ];
            Call::post_form(&url, &[&common[..], &assertion].concat())
        }
        (None, None) => return Ok(None),
    };
    let answer = call.map_err(|e| format!("AZURE_AUTHORITY_HOST: {e}"))?.send(&*egress.web).await?;
    granted(&answer).map(Some)
}

/// The identity endpoint of App Service, Functions and Container Apps, guarded by a header value from the
/// environment.
async fn by_app_service(
    options: &LlmUpstreamConfig,
    env: &Environment,
    endpoint: &str,
    egress: &TokenEgress,
) -> Result<Fetched, String> {
    let header = env.get("IDENTITY_HEADER").ok_or("IDENTITY_ENDPOINT is set without IDENTITY_HEADER")?;
    let url = format!("{endpoint}?{}", query(options, env, "2019-08-01"));
    let call = Call::get(&url).map_err(|e| format!("IDENTITY_ENDPOINT: {e}"))?.with("X-IDENTITY-HEADER", &header)?;
    granted(&call.send_near(&*egress.metadata).await?)
}

/// A token for the virtual machine's managed identity, from its metadata service (IMDS).
async fn by_machine(options: &LlmUpstreamConfig, env: &Environment, egress: &TokenEgress) -> Result<Fetched, String> {
    let host = env.get("AZURE_POD_IDENTITY_AUTHORITY_HOST").unwrap_or_else(|| "http://169.254.169.254".into());
    let query = query(options, env, "2018-02-01");
    let url = format!("{}/metadata/identity/oauth2/token?{query}", host.trim_end_matches('/'));
    granted(&Call::get(&url)?.with_known("Metadata", "true").send_near(&*egress.metadata).await?)
}

fn query(options: &LlmUpstreamConfig, env: &Environment, version: &str) -> String {
    // Managed identity takes a resource rather than a scope: the scope without `/.default`.
    let scope = scope(options);
    let resource = percent::encoded(scope.strip_suffix("/.default").unwrap_or(scope));
    let mut query = format!("api-version={version}&resource={resource}");
    if let Some(id) = options.client_id.clone().or_else(|| env.get("AZURE_CLIENT_ID")) {
        query.push_str(&format!("&client_id={}", percent::encoded(&id)));
    }
    query
}

fn granted(answer: &Answered) -> Result<Fetched, String> {
    let reply = answer.granted()?;
    let (token, life) = parse_bearer(&reply).ok_or_else(|| without_token(&answer.at, answer.status))?;
    // App Service returns the expiry time rather than the lifetime.
    let until = &reply["expires_on"];
    let until = until.as_i64().or_else(|| until.as_str()?.parse().ok()).filter(|_| reply["expires_in"].is_null());
    let until = until.and_then(|s| jiff::Timestamp::from_second(s).ok());
    Ok((token, until.map(lifetime).or(life)))
}
