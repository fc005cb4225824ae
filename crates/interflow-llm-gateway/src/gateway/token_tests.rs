//! Token fetching against fake endpoints.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use interflow_types::{HttpClient, Request, RequestHead, Response, ResponseFuture, StatusCode};

use super::*;

/// A token endpoint with a fixed reply that records its requests.
struct Endpoint {
    status: u16,
    says: Value,
    asked: AtomicUsize,
    last: std::sync::Mutex<Option<(RequestHead, String)>>,
}

impl Endpoint {
    fn new(status: u16, says: Value) -> Arc<Self> {
        Arc::new(Self { status, says, asked: AtomicUsize::new(0), last: std::sync::Mutex::default() })
    }

    fn last(&self) -> (RequestHead, String) {
        self.last.lock().unwrap().clone().expect("it was asked")
    }
}

impl HttpClient for Endpoint {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            self.asked.fetch_add(1, SeqCst);
            // Others, which run on this thread, arrive while it is busy.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            let (body, _) = request.body.collect(1 << 20).await.unwrap();
            *self.last.lock().unwrap() = Some((request.head, String::from_utf8(body.to_vec()).unwrap()));
            let status = StatusCode::from_u16(self.status).unwrap();
            Ok(Response::full(status, "application/json", self.says.to_string()))
        })
    }
}

/// The same endpoint for both clients.
fn only(endpoint: &Arc<Endpoint>) -> TokenEgress {
    TokenEgress { web: Arc::clone(endpoint) as _, metadata: Arc::clone(endpoint) as _ }
}

fn plain(text: &str) -> Result<String, String> {
    Ok(text.to_owned())
}

fn source(config: &LlmUpstreamConfig) -> AccessTokenSource {
    let own = AwsCredentials { id: "AKIDEXAMPLE".into(), key: "k".into(), token: None };
    AccessTokenSource::from_config(config, Provider::Unknown, Some(&own), &plain).unwrap().expect("a source")
}

fn entra() -> LlmUpstreamConfig {
    LlmUpstreamConfig {
        tenant: Some("t".into()),
        client_id: Some("app".into()),
        client_secret: Some("s&cret".into()),
        ..LlmUpstreamConfig::default()
    }
}

fn bearer_of(token: &AccessToken) -> &str {
    match token {
        AccessToken::Bearer(bearer) => bearer,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn concurrent_callers_share_one_token_fetch() {
    let endpoint = Endpoint::new(200, json!({ "access_token": "tok", "expires_in": 3600 }));
    let shared = Arc::new(source(&entra()));
    let mut all = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let (shared, endpoint) = (Arc::clone(&shared), Arc::clone(&endpoint));
        all.spawn(async move { bearer_of(&shared.get(only(&endpoint)).await.unwrap()).to_owned() });
    }
    assert!(all.join_all().await.iter().all(|t| t == "tok"));
    assert_eq!(endpoint.asked.load(SeqCst), 1);
}

#[tokio::test]
async fn a_token_is_requested_as_client_credentials_grant() {
    let endpoint = Endpoint::new(200, json!({ "access_token": "tok", "expires_in": 3600 }));
    source(&entra()).get(only(&endpoint)).await.unwrap();
    let (head, form) = endpoint.last();
    assert_eq!(head.url.to_string(), "https://login.microsoftonline.com/t/oauth2/v2.0/token");
    for part in ["grant_type=client_credentials", "client_id=app", "client_secret=s%26cret", "cognitiveservices"] {
        assert!(form.contains(part), "{form}");
    }
}

#[tokio::test]
async fn an_expired_token_is_fetched_again() {
    let short = Endpoint::new(200, json!({ "access_token": "tok", "expires_in": "0" }));
    let again = source(&entra());
    for asked in 1..3 {
        again.get(only(&short)).await.unwrap();
        assert_eq!(short.asked.load(SeqCst), asked);
    }
}

#[tokio::test]
async fn token_refusal_is_cached_and_reported_without_secrets() {
    let endpoint = Endpoint::new(401, json!({ "error": "invalid_client", "error_description": "s&cret is wrong" }));
    let refused = source(&entra());
    for _ in 0..5 {
        let why = refused.get(only(&endpoint)).await.unwrap_err();
        assert!(why.contains("invalid_client") && why.contains("401") && !why.contains("s&cret"), "{why}");
    }
    assert_eq!(endpoint.asked.load(SeqCst), 1);
}

#[tokio::test]
async fn a_service_account_signs_its_claim() {
    let key = KeyPair::generate(KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'_> = key.as_der().unwrap();
    let pem = format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()));
    let account = json!({
        "type": "service_account",
        "client_email": "gate@p.iam.gserviceaccount.com",
        "private_key": pem,
        "private_key_id": "kid-1",
        "token_uri": "http://127.0.0.1:9/token"
    });
    let config = LlmUpstreamConfig { service_account: Some(account.to_string()), ..LlmUpstreamConfig::default() };
    let endpoint = Endpoint::new(200, json!({ "access_token": "ya29.x", "expires_in": 3599 }));
    assert_eq!(bearer_of(&source(&config).get(only(&endpoint)).await.unwrap()), "ya29.x");
    let (head, form) = endpoint.last();
    assert_eq!(head.url.to_string(), "http://127.0.0.1:9/token");
    let jwt = form.split("assertion=").nth(1).unwrap();
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let public = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key.public_key().as_ref());
    public.verify(signed.as_bytes(), &URL_SAFE_NO_PAD.decode(signature).unwrap()).expect("the signature holds");
    let part = |n: usize| -> Value {
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(signed.split('.').nth(n).unwrap()).unwrap()).unwrap()
    };
    assert_eq!((part(0)["alg"].as_str(), part(0)["kid"].as_str()), (Some("RS256"), Some("kid-1")));
    assert_eq!(part(1)["iss"], "gate@p.iam.gserviceaccount.com");
    assert_eq!(part(1)["aud"], "http://127.0.0.1:9/token");
    assert_eq!(part(1)["exp"].as_i64().unwrap() - part(1)["iat"].as_i64().unwrap(), 3600);
}

#[tokio::test]
async fn a_role_is_assumed_with_signed_keys() {
    let config = LlmUpstreamConfig {
        role_arn: Some("arn:aws:iam::1:role/r".into()),
        region: Some("eu-west-1".into()),
        ..LlmUpstreamConfig::default()
    };
    let until = jiff::Timestamp::now().as_second() + 900;
    let credentials =
        json!({ "AccessKeyId": "ASIA", "SecretAccessKey": "sk", "SessionToken": "st", "Expiration": until as f64 });
    let says = json!({ "AssumeRoleResponse": { "AssumeRoleResult": { "Credentials": credentials } } });
    let endpoint = Endpoint::new(200, says);
    match source(&config).get(only(&endpoint)).await.unwrap() {
        AccessToken::Aws(c) => assert_eq!((&*c.id, &*c.key, c.token.as_deref()), ("ASIA", "sk", Some("st"))),
        other => panic!("{other:?}"),
    }
    let (head, form) = endpoint.last();
    assert_eq!(head.url.to_string(), "https://sts.eu-west-1.amazonaws.com/");
    assert!(head.headers.get_str("authorization").unwrap().contains("/eu-west-1/sts/aws4_request"));
    assert!(form.contains("RoleArn=arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fr"), "{form}");
}

#[test]
fn keys_may_expire_later_than_any_date() {
    let keys =
        |until: f64| json!({ "AccessKeyId": "a", "SecretAccessKey": "k", "SessionToken": "t", "Expiration": until });
    let (_, lifetime) = parse_assumed_role(&keys(1e13)).unwrap();
    assert!(lifetime.unwrap() > Duration::from_secs(1 << 32));
}

#[test]
fn profiles_are_parsed_as_by_the_aws_cli() {
    let file = "[default]\naws_access_key_id = A\naws_secret_access_key = B\n\n# a note\n[profile work]\n aws_access_key_id=C\naws_secret_access_key=D=\naws_session_token = E\n[empty]\n";
    let c = parse_profile(file, "work").unwrap();
    assert_eq!((&*c.id, &*c.key, c.token.as_deref()), ("C", "D=", Some("E")));
    assert_eq!(parse_profile(file, "default").unwrap().token, None);
    assert!(parse_profile(file, "empty").is_err() && parse_profile(file, "none").is_err());
}

#[test]
fn incomplete_token_source_is_reported() {
    let wrong = |change: &dyn Fn(&mut LlmUpstreamConfig)| {
        let mut config = LlmUpstreamConfig::default();
        change(&mut config);
        AccessTokenSource::from_config(&config, Provider::Unknown, None, &plain).err().expect("wrong")
    };
    assert!(wrong(&|c| c.tenant = Some("t".into())).contains("client_id"));
    assert!(wrong(&|c| c.role_arn = Some("r".into())).contains("access_key"));
    assert!(wrong(&|c| c.service_account = Some("{}".into())).starts_with("service_account: "));
}
