//! Each source of ambient credentials, against fake endpoints that reply by path and record the requests.

use std::collections::BTreeMap;
use std::sync::Mutex;

use interflow_types::{Response, ResponseFuture};
use serde_json::json;

use super::super::access_token::AccessToken;
use super::super::aws_signature::AwsCredentials;
use super::*;

/// Replies of a fake: URL substring, status and body.
type Answers = Vec<(&'static str, u16, String)>;

#[derive(Default)]
struct Fake {
    answers: Answers,
    asked: Mutex<Vec<(RequestHead, String)>>,
}

impl Fake {
    fn new(answers: Answers) -> Self {
        Self { answers, ..Self::default() }
    }

    fn asked(&self) -> Vec<(RequestHead, String)> {
        self.asked.lock().unwrap().clone()
    }
}

impl HttpClient for Fake {
    fn send(&self, request: Request) -> ResponseFuture<'_> {
        Box::pin(async move {
            let (body, _) = request.body.collect(1 << 20).await.unwrap();
            let url = request.head.url.to_string();
            self.asked.lock().unwrap().push((request.head, String::from_utf8(body.to_vec()).unwrap()));
            let found = self.answers.iter().find(|(part, ..)| url.contains(part));
            let (status, body) = found.map_or((404, String::new()), |(_, status, body)| (*status, body.clone()));
            Ok(Response::full(StatusCode::from_u16(status).unwrap(), "application/json", body))
        })
    }
}

/// The result of a fetch, and the requests to both clients.
struct Outcome {
    found: Result<Fetched, String>,
    web: Vec<(RequestHead, String)>,
    metadata: Vec<(RequestHead, String)>,
}

async fn run(
    provider: Provider,
    change: impl FnOnce(&mut LlmUpstreamConfig),
    set: &[(&str, &str)],
    web: Answers,
    metadata: Answers,
) -> Outcome {
    let set: BTreeMap<String, String> = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let mut config = LlmUpstreamConfig { credentials: Some(CredentialsMode::Ambient), ..LlmUpstreamConfig::default() };
    change(&mut config);
    let environment = Environment::new(move |name| set.get(name).cloned());
    let ambient = Ambient::of(&config, provider, environment).unwrap().expect("it is asked for");
    let (web, metadata) = (Arc::new(Fake::new(web)), Arc::new(Fake::new(metadata)));
    let egress = TokenEgress { web: Arc::clone(&web) as _, metadata: Arc::clone(&metadata) as _ };
    let found = ambient.fetch(&egress).await;
    Outcome { found, web: web.asked(), metadata: metadata.asked() }
}

impl Outcome {
    #[track_caller]
    fn keys(&self) -> (String, Option<String>, Option<Duration>) {
        match &self.found {
            Ok((AccessToken::Aws(AwsCredentials { id, token, .. }), life)) => (id.clone(), token.clone(), *life),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn bearer(&self) -> (&str, Option<Duration>) {
        match &self.found {
            Ok((AccessToken::Bearer(bearer), life)) => (bearer, *life),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn says(&self) -> &str {
        self.found.as_ref().expect_err("there are no credentials")
    }
}

fn in_an_hour() -> String {
    (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string()
}

fn is_an_hour(life: Option<Duration>) -> bool {
    life.is_some_and(|life| (3_500..=3_600).contains(&life.as_secs()))
}

fn metadata_keys(id: &str) -> String {
    json!({"Code": "Success", "AccessKeyId": id, "SecretAccessKey": "sk", "Token": "st", "Expiration": in_an_hour()})
        .to_string()
}

fn sts(action: &str, id: &str) -> String {
    let until = jiff::Timestamp::now().as_second() + 3_600;
    let keys = json!({"AccessKeyId": id, "SecretAccessKey": "sk", "SessionToken": "st", "Expiration": until as f64});
    let mut inside = serde_json::Map::new();
    inside.insert(format!("{action}Result"), json!({ "Credentials": keys }));
    let mut whole = serde_json::Map::new();
    whole.insert(format!("{action}Response"), inside.into());
    Value::from(whole).to_string()
}

fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it").display().to_string();
    std::fs::write(&path, text).unwrap();
    (folder, path)
}

#[tokio::test]
async fn aws_environment_credentials_come_first_with_an_optional_role() {
    let set = [("AWS_ACCESS_KEY_ID", "AKIA1"), ("AWS_SECRET_ACCESS_KEY", "s"), ("AWS_REGION", "eu-west-1")];
    let it = run(Provider::Bedrock, |_| (), &set, vec![], vec![]).await;
    assert_eq!((it.keys().0.as_str(), it.web.len(), it.metadata.len()), ("AKIA1", 0, 0));
    let role = |c: &mut LlmUpstreamConfig| c.role_arn = Some("arn:aws:iam::1:role/r".into());
    let it = run(Provider::Bedrock, role, &set, vec![("sts.eu-west-1", 200, sts("AssumeRole", "ASIA2"))], vec![]).await;
    assert_eq!(it.keys().0, "ASIA2");
    let (head, form) = &it.web[0];
    assert!(head.headers.get_str("authorization").unwrap().contains("AKIA1/"), "{head:?}");
    assert!(form.contains("Action=AssumeRole&") && form.contains("role%2Fr"), "{form}");
    let half = run(Provider::Bedrock, |_| (), &set[..1], vec![], vec![]).await;
    assert!(half.says().contains("AWS_SECRET_ACCESS_KEY"), "{}", half.says());
}

#[tokio::test]
async fn aws_exchanges_a_web_identity_for_a_role_in_json_and_in_xml() {
    let (_folder, path) = file("ey.token\n");
    let set = [
        ("AWS_WEB_IDENTITY_TOKEN_FILE", path.as_str()),
        ("AWS_ROLE_ARN", "arn:aws:iam::1:role/pod"),
        ("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:9/sts"),
    ];
    let xml = format!(
        "<R><Credentials><AccessKeyId>ASIAW</AccessKeyId><SecretAccessKey>a+/=</SecretAccessKey>\
         <SessionToken>st</SessionToken><Expiration>{}</Expiration></Credentials></R>",
        in_an_hour()
    );
    for answer in [sts("AssumeRoleWithWebIdentity", "ASIAW"), xml] {
        let it = run(Provider::Bedrock, |_| (), &set, vec![("127.0.0.1:9/sts", 200, answer)], vec![]).await;
        let (id, token, life) = it.keys();
        assert_eq!((id.as_str(), token.as_deref()), ("ASIAW", Some("st")));
        assert!(is_an_hour(life), "{life:?}");
        let (head, form) = &it.web[0];
        assert!(form.contains("WebIdentityToken=ey.token") && form.contains("RoleArn=arn%3Aaws"), "{form}");
        assert!(!head.headers.contains("authorization"), "the token is the proof");
    }
    let refusal = "<ErrorResponse><Error><Code>AccessDenied</Code><Message>ey.token</Message></Error></ErrorResponse>";
    let it = run(Provider::Bedrock, |_| (), &set, vec![("sts", 403, refusal.into())], vec![]).await;
    assert!(it.says().contains("AccessDenied") && !it.says().contains("ey.token"), "{}", it.says());
    let it = run(Provider::Bedrock, |_| (), &set[..1], vec![], vec![]).await;
    assert!(it.says().contains("AWS_ROLE_ARN"), "{}", it.says());
}

#[tokio::test]
async fn aws_reads_the_shared_files() {
    let (_folder, path) = file(
        "[default]\naws_access_key_id=D\naws_secret_access_key=s\n[work]\naws_access_key_id=W\naws_secret_access_key=s\n",
    );
    let set = [("AWS_SHARED_CREDENTIALS_FILE", path.as_str()), ("AWS_PROFILE", "work")];
    assert_eq!(run(Provider::Bedrock, |_| (), &set, vec![], vec![]).await.keys().0, "W");
    assert_eq!(run(Provider::Bedrock, |_| (), &set[..1], vec![], vec![]).await.keys().0, "D");
    let set = [("AWS_SHARED_CREDENTIALS_FILE", path.as_str()), ("AWS_PROFILE", "none")];
    let it = run(Provider::Bedrock, |_| (), &set, vec![], vec![]).await;
    assert!(it.says().contains("the profile none"), "{}", it.says());
}

#[tokio::test]
async fn aws_container_endpoint_is_queried_with_its_token() {
    let (_folder, path) = file("pod-token\n");
    let set = [
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://169.254.170.23/v1/credentials"),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path.as_str()),
    ];
    let it = run(Provider::Bedrock, |_| (), &set, vec![], vec![("170.23/v1/credentials", 200, metadata_keys("ASIAP"))])
        .await;
    assert_eq!(it.keys().0, "ASIAP");
    assert!(is_an_hour(it.keys().2) && it.web.is_empty());
    assert_eq!(it.metadata[0].0.headers.get_str("authorization"), Some("pod-token"));
    let set = [("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/v2/x")];
    let it =
        run(Provider::Bedrock, |_| (), &set, vec![], vec![("http://169.254.170.2/v2/x", 200, metadata_keys("ASIAE"))])
            .await;
    assert_eq!(it.keys().0, "ASIAE");
    // Keys are not fetched over plain HTTP from other hosts.
    let set = [("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://evil.test/x")];
    let it = run(Provider::Bedrock, |_| (), &set, vec![], vec![]).await;
    assert!(it.says().contains("must be https") && it.web.is_empty() && it.metadata.is_empty(), "{}", it.says());
}

#[tokio::test]
async fn aws_instance_metadata_is_queried_with_imdsv2() {
    let roles = "/latest/meta-data/iam/security-credentials/";
    let answers = vec![
        ("/latest/api/token", 200, "session-1".to_owned()),
        ("/security-credentials/node-role", 200, metadata_keys("ASIAI")),
        (roles, 200, "node-role\n".to_owned()),
    ];
    let set = [("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://127.0.0.1:9/")];
    let it = run(Provider::Bedrock, |_| (), &set, vec![], answers.clone()).await;
    assert_eq!(it.keys().0, "ASIAI");
    let asked: Vec<_> = it.metadata.iter().map(|(h, _)| format!("{} {}", h.method, h.url)).collect();
    assert_eq!(
        asked,
        [
            "PUT http://127.0.0.1:9/latest/api/token".to_owned(),
            format!("GET http://127.0.0.1:9{roles}"),
            format!("GET http://127.0.0.1:9{roles}node-role")
        ]
    );
    assert!(it.metadata[1..].iter().all(|(h, _)| h.headers.get_str("x-aws-ec2-metadata-token") == Some("session-1")));
    let usual = run(Provider::Bedrock, |_| (), &[], vec![], answers).await;
    assert_eq!(usual.metadata[0].0.url.authority.to_string(), "169.254.169.254:80");
    let off = run(Provider::Bedrock, |_| (), &[("AWS_EC2_METADATA_DISABLED", "true")], vec![], vec![]).await;
    assert!(off.metadata.is_empty() && off.says().contains("set access_key"), "{}", off.says());
    let none = run(Provider::Bedrock, |_| (), &[], vec![], vec![("/latest/api/token", 200, "s".into())]).await;
    assert!(
        none.says().contains("the instance has no role") && none.says().contains("AWS_ROLE_ARN"),
        "{}",
        none.says()
    );
}

#[tokio::test]
async fn azure_federated_identity_is_exchanged_for_a_token() {
    let (_folder, path) = file("k8s.jwt\n");
    let set = [
        ("AZURE_FEDERATED_TOKEN_FILE", path.as_str()),
        ("AZURE_CLIENT_ID", "app"),
        ("AZURE_TENANT_ID", "ten"),
        ("AZURE_AUTHORITY_HOST", "http://127.0.0.1:9/"),
    ];
    let token = json!({"access_token": "eyA", "expires_in": 3599}).to_string();
    let it = run(Provider::Azure, |_| (), &set, vec![("/ten/oauth2/v2.0/token", 200, token)], vec![]).await;
    assert_eq!(it.bearer().0, "eyA");
    let (head, form) = &it.web[0];
    assert_eq!(head.url.to_string(), "http://127.0.0.1:9/ten/oauth2/v2.0/token");
    for part in ["client_assertion=k8s.jwt", "client_id=app", "assertion-type%3Ajwt-bearer", "cognitiveservices"] {
        assert!(form.contains(part), "{form}");
    }
    let refused = json!({"error": "invalid_client", "error_description": "k8s.jwt is bad"}).to_string();
    let it = run(Provider::Azure, |_| (), &set, vec![("token", 401, refused)], vec![]).await;
    assert!(it.says().contains("invalid_client") && !it.says().contains("k8s.jwt"), "{}", it.says());
    let it = run(Provider::Azure, |_| (), &set[..2], vec![], vec![]).await;
    assert!(it.says().contains("without AZURE_TENANT_ID"), "{}", it.says());
}

#[tokio::test]
async fn azure_managed_identity_token_is_requested() {
    let until = jiff::Timestamp::now().as_second() + 3_600;
    let token = json!({"access_token": "eyM", "expires_on": until.to_string()}).to_string();
    let set =
        [("IDENTITY_ENDPOINT", "http://127.0.0.1:9/msi/token"), ("IDENTITY_HEADER", "h-1"), ("AZURE_CLIENT_ID", "u a")];
    let it = run(Provider::Azure, |_| (), &set, vec![], vec![("/msi/token", 200, token.clone())]).await;
    assert_eq!(it.bearer().0, "eyM");
    assert!(is_an_hour(it.bearer().1));
    let (head, _) = &it.metadata[0];
    assert_eq!(head.headers.get_str("x-identity-header"), Some("h-1"));
    assert_eq!(
        head.url.path.as_str(),
        "/msi/token?api-version=2019-08-01&resource=https%3A%2F%2Fcognitiveservices.azure.com&client_id=u%20a"
    );
    for (set, at) in [
        (vec![], "169.254.169.254:80"),
        (vec![("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:9")], "127.0.0.1:9"),
    ] {
        let it =
            run(Provider::Azure, |_| (), &set, vec![], vec![("/metadata/identity/oauth2/token", 200, token.clone())])
                .await;
        assert_eq!(it.bearer().0, "eyM");
        assert_eq!(it.metadata[0].0.url.authority.to_string(), at);
        assert_eq!(it.metadata[0].0.headers.get_str("metadata"), Some("true"));
    }
    let none = run(Provider::Azure, |_| (), &[], vec![], vec![]).await;
    assert!(none.says().contains("AZURE_FEDERATED_TOKEN_FILE") && none.says().contains("404"), "{}", none.says());
}

#[tokio::test]
async fn google_reads_the_files_of_application_default_credentials() {
    let token = |t: &str| json!({"access_token": t, "expires_in": 3599}).to_string();
    let user = json!({"type": "authorized_user", "client_id": "c", "client_secret": "cs", "refresh_token": "1//r"});
    let (_folder, path) = file(&user.to_string());
    let set = [("GOOGLE_APPLICATION_CREDENTIALS", path.as_str())];
    let it =
        run(Provider::Vertex, |_| (), &set, vec![("oauth2.googleapis.com/token", 200, token("ya.u"))], vec![]).await;
    assert_eq!(it.bearer().0, "ya.u");
    assert!(it.web[0].1.contains("grant_type=refresh_token") && it.web[0].1.contains("refresh_token=1%2F%2Fr"));

    let (_subject_folder, subject) = file(&json!({"id_token": "sub.jwt"}).to_string());
    let external = json!({
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/x",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "http://127.0.0.1:9/v1/token",
        "service_account_impersonation_url": "http://127.0.0.1:9/v1/projects/-/serviceAccounts/s:generateAccessToken",
        "credential_source": {"file": subject, "format": {"type": "json", "subject_token_field_name": "id_token"}}
    });
    let (_folder, path) = file(&external.to_string());
    let set = [("GOOGLE_APPLICATION_CREDENTIALS", path.as_str())];
    let impersonated = json!({"accessToken": "ya.sa", "expireTime": in_an_hour()}).to_string();
    let answers = vec![("/v1/token", 200, token("ya.fed")), (":generateAccessToken", 200, impersonated)];
    let it = run(Provider::Vertex, |_| (), &set, answers, vec![]).await;
    assert_eq!(it.bearer().0, "ya.sa");
    assert!(is_an_hour(it.bearer().1));
    assert!(it.web[0].1.contains("subject_token=sub.jwt"), "{}", it.web[0].1);
    assert_eq!(it.web[1].0.headers.get_str("authorization"), Some("Bearer ya.fed"));

    let (_folder, path) = file(r#"{"type":"impersonated_service_account"}"#);
    let it = run(Provider::Vertex, |_| (), &[("GOOGLE_APPLICATION_CREDENTIALS", path.as_str())], vec![], vec![]).await;
    assert!(
        it.says().contains("impersonated_service_account") && it.says().contains("use service_account"),
        "{}",
        it.says()
    );
}

#[tokio::test]
async fn google_metadata_server_is_queried() {
    let answers = vec![(
        "/service-accounts/default/token",
        200,
        json!({"access_token": "ya.m", "expires_in": 1_800}).to_string(),
    )];
    for (set, at) in
        [(vec![], "metadata.google.internal:80"), (vec![("GCE_METADATA_HOST", "127.0.0.1:9")], "127.0.0.1:9")]
    {
        let it = run(Provider::Vertex, |_| (), &set, vec![], answers.clone()).await;
        assert_eq!(it.bearer(), ("ya.m", Some(Duration::from_secs(1_800))));
        let head = &it.metadata[0].0;
        assert_eq!(
            (head.url.authority.to_string().as_str(), head.headers.get_str("metadata-flavor")),
            (at, Some("Google"))
        );
        assert!(it.web.is_empty());
    }
    let none = run(Provider::Vertex, |_| (), &[], vec![], vec![]).await;
    assert!(none.says().contains("gcloud auth") && none.says().contains("404"), "{}", none.says());
}

#[test]
fn ambient_credentials_are_exclusive_and_only_for_clouds() {
    let of = |provider, change: &dyn Fn(&mut LlmUpstreamConfig)| {
        let mut config =
            LlmUpstreamConfig { credentials: Some(CredentialsMode::Ambient), ..LlmUpstreamConfig::default() };
        change(&mut config);
        Ambient::of(&config, provider, Environment::new(|_| None)).err().unwrap_or_default()
    };
    assert!(of(Provider::OpenAi, &|_| ()).contains("not for openai"));
    assert!(of(Provider::Bedrock, &|c| c.access_key = Some("A".into())).contains("access_key"));
    assert!(of(Provider::Bedrock, &|c| c.token_url = Some("sts".into())).contains("token_url"));
    assert_eq!(of(Provider::Azure, &|_| ()), "");
}
