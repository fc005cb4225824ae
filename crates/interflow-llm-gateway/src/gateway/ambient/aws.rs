//! AWS's credential chain: variables, web identity (IRSA), the shared files, the container endpoint (ECS, EKS Pod
//! Identity), and instance metadata (IMDSv2), in this order.

use std::net::IpAddr;

use interflow_types::{Host, HttpClient, Method};
use serde_json::Value;

use super::super::access_token::{self, AccessToken, Fetched, parse_assumed_role, parse_profile};
use super::super::aws_signature::{self as sigv4, AwsCredentials, SigningScope};
use super::{Answered, Call, Environment, TokenEgress, UNLIMITED, between, lifetime, read_file};
use interflow_llm::LlmUpstreamConfig;

/// Addresses of ECS and of EKS Pod Identity, to which plain HTTP is allowed: they are link-local or unique local, and
/// never leave the host.
const CONTAINER_HOSTS: [&str; 3] = ["169.254.170.2", "169.254.170.23", "fd00:ec2::23"];

/// The settings of the configuration that concern ambient AWS credentials.
pub(super) struct Options {
    region: String,
    role_arn: Option<String>,
    sts: String,
}

impl Options {
    pub fn new(config: &LlmUpstreamConfig, env: &Environment) -> Result<Self, String> {
        let region = config.region.clone();
        let region = region.or_else(|| env.get("AWS_REGION")).or_else(|| env.get("AWS_DEFAULT_REGION"));
        let region = region.unwrap_or_else(|| "us-east-1".into());
        let sts = config.token_url.clone();
        let sts = sts.or_else(|| env.get("AWS_ENDPOINT_URL_STS")).or_else(|| env.get("AWS_ENDPOINT_URL"));
        let sts = sts.unwrap_or_else(|| format!("https://sts.{region}.amazonaws.com"));
        Call::get(&sts).map_err(|e| format!("token_url: {e}"))?;
        Ok(Self { region, role_arn: config.role_arn.clone(), sts })
    }
}

/// The first credentials of the chain; with `role_arn`, those of the role that they assume.
pub(super) async fn fetch(options: &Options, env: &Environment, egress: &TokenEgress) -> Result<Fetched, String> {
    let credentials = first(options, env, egress).await?;
    let (Some(role), (AccessToken::Aws(own), _)) = (&options.role_arn, &credentials) else { return Ok(credentials) };
    let call = role_call(&options.sts, role)?;
    assume_role(call, own, &options.region, &*egress.web)
        .await
        .map_err(|e| format!("the role {role} cannot be assumed: {e}"))
}

/// The request for a role's credentials, not yet signed.
pub(in crate::gateway) fn role_call(sts: &str, role: &str) -> Result<Call, String> {
    let session = ("RoleSessionName", "interflow");
    Call::post_form(sts, &[("Action", "AssumeRole"), ("Version", "2011-06-15"), ("RoleArn", role), session])
}

/// Signs the request and sends it.
pub(in crate::gateway) async fn assume_role(
    mut call: Call,
    own: &AwsCredentials,
    region: &str,
    egress: &dyn HttpClient,
) -> Result<Fetched, String> {
    let time = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    sigv4::sign(&mut call.head, call.body.as_bytes(), own, &SigningScope { service: "sts", region }, &time);
    by_sts(&call.send(egress).await?, "AssumeRole")
}

async fn first(options: &Options, env: &Environment, egress: &TokenEgress) -> Result<Fetched, String> {
    if let Some(found) = by_variables(env)? {
        return Ok(found);
    }
    if let Some(found) = by_web_identity(options, env, egress).await? {
        return Ok(found);
    }
    if let Some(found) = by_shared_files(env)? {
        return Ok(found);
    }
    if let Some(found) = by_container(env, egress).await? {
        return Ok(found);
    }
    let none = "no credentials of AWS are found: none of AWS_ACCESS_KEY_ID, AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN and \
                AWS_CONTAINER_CREDENTIALS_FULL_URI is set, the shared files hold no keys, and there is no instance metadata";
    let remedy = "run it where AWS gives credentials, or set access_key and secret_key of this upstream";
    if env.is_on("AWS_EC2_METADATA_DISABLED") {
        return Err(format!("{none} (AWS_EC2_METADATA_DISABLED is set); {remedy}"));
    }
    by_instance(env, egress).await.map_err(|e| format!("{none} ({e}); {remedy}"))
}

/// A source that is set up halfway is an error, not a reason to try the next one: the operator meant this one.
fn by_variables(env: &Environment) -> Result<Option<Fetched>, String> {
    let pair = (env.get("AWS_ACCESS_KEY_ID"), env.get("AWS_SECRET_ACCESS_KEY"));
    let token = env.get("AWS_SESSION_TOKEN");
    match pair {
        (Some(id), Some(key)) => Ok(Some((AccessToken::Aws(AwsCredentials { id, key, token }), Some(UNLIMITED)))),
        (None, None) => Ok(None),
        _ => Err("AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together; one of them is not set".into()),
    }
}

/// Web identity: a Kubernetes service account (IRSA), or another OpenID Connect token, exchanged at STS without a
/// signature.
async fn by_web_identity(
    options: &Options,
    env: &Environment,
    egress: &TokenEgress,
) -> Result<Option<Fetched>, String> {
    let Some(file) = env.get("AWS_WEB_IDENTITY_TOKEN_FILE") else { return Ok(None) };
    let role = env.get("AWS_ROLE_ARN").ok_or("AWS_WEB_IDENTITY_TOKEN_FILE is set without AWS_ROLE_ARN")?;
    let session = env.get("AWS_ROLE_SESSION_NAME").unwrap_or_else(|| "interflow".into());
    // The file is read each time: its token is valid for hours only.
    let token = read_file(&file).map_err(|e| format!("AWS_WEB_IDENTITY_TOKEN_FILE: {e}"))?;
    let pairs = [
        ("Action", "AssumeRoleWithWebIdentity"),
        ("Version", "2011-06-15"),
        ("RoleArn", role.as_str()),
        ("RoleSessionName", session.as_str()),
        ("WebIdentityToken", token.trim()),
    ];
    let answer = Call::post_form(&options.sts, &pairs)?.send(&*egress.web).await?;
    let granted = by_sts(&answer, "AssumeRoleWithWebIdentity");
    granted.map(Some).map_err(|e| format!("the web identity is given no role ({role}): {e}"))
}

/// The keys of the profile `AWS_PROFILE`, else `default`, in the credentials file or the config file, in this order
/// as in the SDKs.
fn by_shared_files(env: &Environment) -> Result<Option<Fetched>, String> {
    let named = env.get("AWS_PROFILE");
    let name = named.as_deref().unwrap_or("default");
    let under_home = |file: &str| env.home().map(|home| format!("{home}/.aws/{file}"));
    let files = [
        env.get("AWS_SHARED_CREDENTIALS_FILE").or_else(|| under_home("credentials")),
        env.get("AWS_CONFIG_FILE").or_else(|| under_home("config")),
    ];
    for file in files.into_iter().flatten().filter(|file| std::path::Path::new(file).is_file()) {
        if let Ok(keys) = parse_profile(&read_file(&file)?, name) {
            return Ok(Some((AccessToken::Aws(keys), Some(UNLIMITED))));
        }
    }
    match named {
        Some(name) => Err(format!(
            "AWS_PROFILE names the profile {name}, which has no aws_access_key_id and aws_secret_access_key in the shared files; profiles with sso, credential_process or role_arn are not read"
        )),
        None => Ok(None),
    }
}

/// The credentials endpoint of ECS and EKS Pod Identity. Plain HTTP only to addresses that never leave the host.
async fn by_container(env: &Environment, egress: &TokenEgress) -> Result<Option<Fetched>, String> {
    let of_host = env.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let of_host = of_host.map(|path| format!("http://169.254.170.2/{}", path.trim_start_matches('/')));
    let Some(url) = of_host.or_else(|| env.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")) else { return Ok(None) };
    let mut call = Call::get(&url).map_err(|e| format!("AWS_CONTAINER_CREDENTIALS_FULL_URI: {e}"))?;
    let own = is_of_a_container(&call.head.url.authority.host);
    if !own && call.head.url.scheme == interflow_types::Scheme::Http {
        return Err(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI must be https, or at loopback or the address of ECS or EKS Pod Identity".into()
        );
    }
    let token = match env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
        Some(file) => Some(read_file(&file).map_err(|e| format!("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE: {e}"))?),
        None => env.get("AWS_CONTAINER_AUTHORIZATION_TOKEN"),
    };
    if let Some(token) = token {
        call = call.with("Authorization", token.trim())?;
    }
    let answer = call.send_near(if own { &*egress.metadata } else { &*egress.web }).await?;
    by_json(&answer).map(Some).map_err(|e| format!("the container's credentials: {e}"))
}

fn is_of_a_container(host: &Host) -> bool {
    match host {
        Host::Ip(ip) => {
            ip.to_canonical().is_loopback()
                || CONTAINER_HOSTS.iter().any(|known| known.parse::<IpAddr>().is_ok_and(|known| known == *ip))
        }
        Host::Name(name) => **name == *"localhost",
    }
}

/// The role of the virtual machine, by IMDSv2: a session token first. It needs a PUT, which most server-side request
/// forgeries cannot send.
async fn by_instance(env: &Environment, egress: &TokenEgress) -> Result<Fetched, String> {
    let ipv6 = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE").is_some_and(|m| m.eq_ignore_ascii_case("ipv6"));
    let usual = if ipv6 { "http://[fd00:ec2::254]" } else { "http://169.254.169.254" };
    let base = env.get("AWS_EC2_METADATA_SERVICE_ENDPOINT").unwrap_or_else(|| usual.into());
    let base = base.trim_end_matches('/');
    let session = Call::new(Method::PUT, &format!("{base}/latest/api/token"))?
        .with_known("X-aws-ec2-metadata-token-ttl-seconds", "21600")
        .send_near(&*egress.metadata)
        .await?;
    session.granted()?;
    let roles = format!("{base}/latest/meta-data/iam/security-credentials/");
    let ask = async |url: &str| {
        let call = Call::get(url)?.with("X-aws-ec2-metadata-token", session.text.trim())?;
        call.send_near(&*egress.metadata).await
    };
    let listed = ask(&roles).await?;
    if listed.status.as_u16() == 404 {
        return Err("the instance has no role".into());
    }
    listed.granted()?;
    let role = listed.text.lines().next().unwrap_or_default().trim();
    // The name comes from the network and becomes part of a URL.
    if role.is_empty() || !role.bytes().all(|b| b.is_ascii_alphanumeric() || b"+=,.@_-".contains(&b)) {
        return Err("the instance has no role".into());
    }
    by_json(&ask(&format!("{roles}{role}")).await?)
}

/// Credentials in the format of metadata services (container and instance).
fn by_json(answer: &Answered) -> Result<Fetched, String> {
    let said = answer.granted()?;
    let text = |name: &str| said[name].as_str().filter(|t| !t.is_empty()).map(str::to_owned);
    let incomplete = || format!("{} answered without keys", answer.at);
    let credentials = AwsCredentials {
        id: text("AccessKeyId").ok_or_else(incomplete)?,
        key: text("SecretAccessKey").ok_or_else(incomplete)?,
        token: text("Token"),
    };
    let until = text("Expiration").and_then(|t| t.parse().ok());
    Ok((AccessToken::Aws(credentials), Some(until.map_or(UNLIMITED, lifetime))))
}

/// Credentials in the format of AWS STS, JSON or XML. STS answers in XML unless JSON is requested; compatible servers
/// may know only one.
fn by_sts(answer: &Answered, action: &str) -> Result<Fetched, String> {
    let reply: Value = answer.granted()?;
    let inside = &reply[format!("{action}Response")][format!("{action}Result")]["Credentials"];
    if let Some(found) = parse_assumed_role(inside) {
        return Ok(found);
    }
    let text = |name: &str| between(&answer.text, name).map(str::to_owned);
    let by_xml = || {
        let (id, key, token) = (text("AccessKeyId")?, text("SecretAccessKey")?, Some(text("SessionToken")?));
        let credentials = AwsCredentials { id, key, token };
        Some((AccessToken::Aws(credentials), Some(lifetime(text("Expiration")?.parse().ok()?))))
    };
    by_xml().ok_or_else(|| access_token::without_token(&answer.at, answer.status))
}
