//! The gateway as a client that signs assertions (`private_key_jwt`).

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use interflow_mcp_gateway::McpConfig;
use interflow_testkit::{Origin, Reply, Request};
use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};

use crate::accounts::{Browser, form, gate, link_of, no_keys, start, who};
use crate::eras::section;
use crate::stateless::{ask_with, call, said};
use crate::{Gate, users};

/// Checks that the form authenticates a client with one of these public keys.
pub fn check_assertion(form: &HashMap<String, String>, jwks: &Value, client: &str, audience: &str) {
    assert_eq!(form["client_assertion_type"], "urn:ietf:params:oauth:client-assertion-type:jwt-bearer");
    assert_eq!((form["client_id"].as_str(), form.get("client_secret")), (client, None));
    let assertion = &form["client_assertion"];
    let keys: JwkSet = serde_json::from_value(jwks.clone()).unwrap();
    let header = decode_header(assertion).unwrap();
    assert_eq!(header.kid, keys.keys[0].common.key_id);
    let mut validation = Validation::new(header.alg);
    validation.set_audience(&[audience]);
    let key = DecodingKey::from_jwk(&keys.keys[0]).unwrap();
    let claims = decode::<Value>(assertion, &key, &validation).unwrap_or_else(|e| panic!("{e}: {form:?}")).claims;
    assert_eq!((&claims["iss"], &claims["sub"]), (&json!(client), &json!(client)));
    let (issued, expires) = (claims["iat"].as_u64().unwrap(), claims["exp"].as_u64().unwrap());
    assert!(expires > issued && expires - issued <= 300, "{claims}");
    assert!(claims["jti"].as_str().is_some_and(|id| id.len() > 16), "{claims}");
}

fn pem(der: &[u8]) -> String {
    format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der))
}

/// Keys in PEM, with their algorithms.
fn keys() -> [(&'static str, String); 3] {
    let random = SystemRandom::new();
    let rsa = AsDer::<Pkcs8V1Der<'_>>::as_der(&RsaKeyPair::generate(KeySize::Rsa2048).unwrap()).unwrap();
    let p256 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let ed25519 = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
    [("RS256", pem(rsa.as_ref())), ("ES256", pem(p256.as_ref())), ("EdDSA", pem(ed25519.as_ref()))]
}

fn written(folder: &Path, text: &str) -> String {
    let file = folder.join("client.key");
    std::fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// A reference to a new key, and its public keys.
pub async fn es256(folder: &Path) -> (String, Value) {
    let [_, (_, key), _] = keys();
    (format!("file:{}", written(folder, &key)), public_keys(&key).await)
}

/// A server whose issuer accepts assertions and no secrets.
async fn issuer_and_server(forms: Arc<Mutex<Vec<HashMap<String, String>>>>) -> Origin {
    let answer = move |request: &Request| {
        if request.path() == "/token" {
            assert_eq!(request.header("authorization"), None);
            forms.lock().unwrap().push(form(std::str::from_utf8(&request.body).unwrap()));
            return Reply::json(&json!({ "access_token": "t", "token_type": "Bearer", "expires_in": 3600 }));
        }
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": [{ "name": "who" }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": request.header("authorization") }] }),
            _ => return Reply::status(400),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    };
    Origin::http().answering(answer).start().await
}

#[tokio::test]
async fn tokens_of_the_gateway_and_of_users_are_fetched_with_an_assertion() {
    let folder = tempfile::tempdir().unwrap();
    let forms = Arc::<Mutex<Vec<HashMap<String, String>>>>::default();
    let origin = issuer_and_server(Arc::clone(&forms)).await;
    for (algorithm, key) in keys() {
        let file = written(folder.path(), &key);
        for (more, audience) in [
            (String::new(), origin.url("/token")),
            (", issuer = 'https://issuer.test'".to_owned(), "https://issuer.test".to_owned()),
            (", grant = 'token_exchange'".to_owned(), origin.url("/token")),
        ] {
            let oauth = format!(
                "oauth = {{ token_url = '{}', client_id = 'gate', private_key = 'file:{file}'{more} }}\nresults = 'off'\n",
                origin.url("/token")
            );
            let users = if more.contains("exchange") { users::OAUTH } else { "" };
            let config = format!("{users}{}", section("crm", &origin, &oauth));
            let gate = Gate::without_session("/mcp/crm", &config).await;
            let token = "Authorization: Bearer eyJanna.mcp.1\r\n";
            let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), token).await.json();
            assert_eq!(said(&answer["result"]), "Bearer t", "{answer}");
            let form = forms.lock().unwrap().pop().unwrap();
            assert_eq!(form.contains_key("subject_token"), more.contains("exchange"));
            check_assertion(&form, &public_keys(&key).await, "gate", &audience);
            assert_eq!(format!("{:?}", decode_header(&form["client_assertion"]).unwrap().alg), algorithm);
        }
    }
}

/// The public keys of the document by which authorization servers know the gateway.
async fn public_keys(key: &str) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = written(folder.path(), key);
    let oauth = format!("oauth = {{ grant = 'authorization_code', private_key = 'file:{file}' }}\n");
    let public = "[mcp]\npublic_url = 'https://gate.test'\n[mcp.server.crm]\nurl = 'https://crm.test/mcp'\n";
    let gate = Gate::without_session("/mcp-accounts/clients/crm.json", &format!("{public}{oauth}")).await;
    let document = gate.send("GET", "", "").await.json();
    assert_eq!(document["client_id"], "https://gate.test/mcp-accounts/clients/crm.json", "{document}");
    assert_eq!(document["token_endpoint_auth_method"], "private_key_jwt");
    assert!(["d", "p", "q"].iter().all(|private| document["jwks"]["keys"][0][private].is_null()), "{document}");
    document["jwks"].clone()
}

#[tokio::test]
async fn a_gateway_with_a_key_registers_it_where_assertions_are_taken_and_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    for (algorithm, key) in keys() {
        let (origin, rules) = start().await;
        let file = written(folder.path(), &key);
        let config = format!(
            "[mcp.server.crm]\nurl = '{}'\noauth = {{ grant = 'authorization_code', private_key = 'file:{file}' }}\nresults = 'off'\n",
            origin.url("/mcp")
        );
        rules.lock().metadata = json!({
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "private_key_jwt"],
            "token_endpoint_auth_signing_alg_values_supported": ["PS256", algorithm],
        });
        let accounts = folder.path().join(format!("{algorithm}.json"));
        let gate = gate(&config, &accounts, &no_keys()).await;
        let link = link_of(&gate, &who(&gate, "").await);
        assert!(Browser::new(&gate).connect(&link).await.contains("is connected"));
        assert_eq!(said(&who(&gate, "").await), "access 2");
        let registration = rules.lock().registration.clone();
        assert_eq!(
            (&registration["token_endpoint_auth_method"], &registration["token_endpoint_auth_signing_alg"]),
            (&json!("private_key_jwt"), &json!(algorithm))
        );
        // It is renewed with another assertion.
        rules.lock().tokens.remove("access-2");
        assert_eq!(said(&who(&gate, "").await), "access 3");
        let forms = origin.requests();
        let forms = forms.iter().filter(|request| request.path() == "/token");
        let used: Vec<_> = forms
            .map(|request| form(std::str::from_utf8(&request.body).unwrap())["client_assertion"].clone())
            .collect();
        assert!(used.len() == 2 && used[0] != used[1], "{used:?}");
        // An authorization server that takes none of this algorithm knows the gateway by a secret.
        rules.lock().metadata["token_endpoint_auth_signing_alg_values_supported"] = json!(["PS256"]);
        gate.service.remove_account("local", "crm").await.unwrap();
        let link = link_of(&gate, &who(&gate, "").await);
        assert!(Browser::new(&gate).connect(&link).await.contains("is connected"));
        assert_eq!(rules.lock().registration["jwks"], Value::Null);
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_one_clear_error() {
    let folder = tempfile::tempdir().unwrap();
    let message = |key: &str| {
        let file = written(folder.path(), key);
        let oauth = format!("token_url = 'https://issuer.test/token', client_id = 'gate', private_key = 'file:{file}'");
        let text = format!("[server.crm]\nurl = 'https://crm.test/mcp'\noauth = {{ {oauth} }}\n");
        toml::from_str::<McpConfig>(&text).unwrap()
    };
    let gate = Gate::without_session("/mcp", "[mcp]").await;
    let p384 =
        EcdsaKeyPair::generate_pkcs8(&aws_lc_rs::signature::ECDSA_P384_SHA384_FIXED_SIGNING, &SystemRandom::new());
    for wrong in [
        "",
        "s3cret",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
        &pem(b"s3cret"),
        &pem(p384.unwrap().as_ref()),
        r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#,
        r#"{"kty":"oct","k":"s3cret"}"#,
    ] {
        let error = gate.service.compile(&message(wrong)).err().unwrap_or_default();
        assert!(
            error.starts_with("mcp.server.crm.oauth.private_key: it is not a private key of RSA"),
            "{wrong}: {error}"
        );
        assert!(!error.contains("s3cret"), "{error}");
    }
    // RFC 8037, appendix A.
    let jwk = r#"{"kty":"OKP","crv":"Ed25519","kid":"k","d":"nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
    assert_eq!(gate.service.compile(&message(jwk)).err(), None);
    assert_eq!(public_keys(jwk).await["keys"][0]["kid"], "k");
    for (section, more) in [("login", ""), ("introspection", ", url = 'https://issuer.test/i'")] {
        let text = format!("{}{section} = {{ client_id = 'g', private_key = 's3cret'{more} }}\n", users::OAUTH);
        let config: McpConfig = toml::from_str::<toml::Table>(&text).unwrap()["mcp"].clone().try_into().unwrap();
        let error = gate.service.compile(&config).err().unwrap_or_default();
        let begins = error.starts_with(&format!("mcp.oauth.{section}.private_key: it is not a private key of RSA"));
        assert!(begins && !error.contains("s3cret"), "{error}");
    }
    let missing = message("").server["crm"].oauth.clone().unwrap();
    let both = interflow_mcp_gateway::McpClientCredentials { client_secret: Some("s".into()), ..missing };
    let mut config = message("");
    config.server.get_mut("crm").unwrap().oauth = Some(both);
    assert_eq!(
        config.check().unwrap_err(),
        "mcp.server.crm.oauth: a client has either `client_secret` or `private_key`"
    );
}

#[tokio::test]
async fn the_issuer_is_asked_about_tokens_with_an_assertion() {
    let folder = tempfile::tempdir().unwrap();
    let (key, jwks) = es256(folder.path()).await;
    let used = Arc::<Mutex<Vec<String>>>::default();
    let assertions = Arc::clone(&used);
    let answer = move |request: &Request| {
        let form = form(std::str::from_utf8(&request.body).unwrap());
        check_assertion(&form, &jwks, "gate", "https://issuer.test");
        assertions.lock().unwrap().push(form["client_assertion"].clone());
        let is_known = form["token"].starts_with("opaque");
        Reply::json(&json!({ "active": is_known, "sub": "anna", "aud": "https://gate.test/mcp" }))
    };
    let issuer = Origin::http().answering(answer).start().await;
    let origin = issuer_and_server(Arc::default()).await;
    let url = issuer.url("/introspect");
    let introspection = format!("introspection = {{ url = '{url}', client_id = 'gate', private_key = '{key}' }}\n");
    let config = format!("{}{introspection}{}", users::OAUTH, section("crm", &origin, "results = 'off'\n"));
    let gate = Gate::without_session("/mcp/crm", &config).await;
    for (token, status) in [("opaque-1", 200), ("opaque-2", 200), ("unknown", 401)] {
        let fields = format!("Authorization: Bearer {token}\r\n");
        let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), &fields).await;
        assert_eq!(answer.status, status, "{token}: {}", answer.text());
    }
    let used = used.lock().unwrap();
    assert!(used.len() == 3 && used[0] != used[1] && used[1] != used[2], "{used:?}");
}

#[tokio::test]
async fn the_token_of_a_workload_is_read_for_each_token_of_the_gateway() {
    let (folder, forms) = (tempfile::tempdir().unwrap(), Arc::<Mutex<Vec<HashMap<String, String>>>>::default());
    let (file, origin) = (folder.path().join("token"), issuer_and_server(Arc::clone(&forms)).await);
    for (id, token) in [("", "workload-1\n"), ("client_id = 'w', ", "workload-2\n")] {
        std::fs::write(&file, "workload-0").unwrap();
        let oauth = format!(
            "oauth = {{ grant = 'jwt_bearer', token_url = '{}', {id}scopes = ['a', 'b'], workload_token = 'file:{}' }}\n\
             results = 'off'\n",
            origin.url("/token"),
            file.display()
        );
        let gate = Gate::without_session("/mcp/crm", &section("crm", &origin, &oauth)).await;
        // The file has changed since the gateway started.
        std::fs::write(&file, token).unwrap();
        let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), "").await.json();
        assert_eq!(said(&answer["result"]), "Bearer t", "{answer}");
        let form = forms.lock().unwrap().pop().unwrap();
        let id = (!id.is_empty()).then_some("w");
        assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:jwt-bearer");
        assert_eq!((&*form["assertion"], &*form["scope"]), (token.trim(), "a b"));
        assert_eq!((form.get("client_id").map(String::as_str), form.get("client_assertion")), (id, None));
    }
    std::fs::remove_file(&file).unwrap();
    let oauth = format!(
        "oauth = {{ grant = 'jwt_bearer', token_url = '{}', workload_token = 'file:{}' }}\n",
        origin.url("/token"),
        file.display()
    );
    let gate = Gate::without_session("/mcp/crm", &section("crm", &origin, &oauth)).await;
    let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), "").await.json();
    let error = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("oauth.workload_token") && error.contains("cannot be read"), "{answer}");
    let folder = folder.path().to_str().unwrap();
    assert!(!answer.to_string().contains(folder), "where the token is, is for the log alone: {answer}");
}
