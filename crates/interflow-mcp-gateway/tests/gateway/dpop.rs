//! Tokens that are bound to a key of the gateway (DPoP): each request has a proof, with the nonce that is demanded.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_testkit::{Origin, Reply, Request};
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::Gate;
use crate::accounts::{Browser, config, form, gate, link_of, no_keys, start, who};
use crate::client_keys::{check_assertion, es256};
use crate::stateless::{ask_with, call, said};

/// Checks the proof of a request as a server does (RFC 9449, section 4.3), and returns its public key.
pub fn check_proof(request: &Request, url: &str, token: Option<&str>, nonce: Option<&str>) -> String {
    let proof = request.header("dpop").unwrap_or_else(|| panic!("{} has no proof", request.path()));
    let header = decode_header(proof).unwrap();
    assert_eq!((header.typ.as_deref(), header.alg), (Some("dpop+jwt"), Algorithm::ES256));
    let key = header.jwk.unwrap();
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_exp = false;
    validation.required_spec_claims.clear();
    let claims = decode::<Value>(proof, &DecodingKey::from_jwk(&key).unwrap(), &validation).unwrap().claims;
    assert_eq!((&claims["htm"], &claims["htu"]), (&json!(request.method), &json!(url)), "{claims}");
    let age = interflow_types::Timestamp::now().secs().abs_diff(claims["iat"].as_u64().unwrap());
    assert!(age < 60 && claims["jti"].as_str().is_some_and(|id| id.len() > 16), "{claims}");
    let hash = token.map(|token| URL_SAFE_NO_PAD.encode(Sha256::digest(token)));
    assert_eq!((claims["ath"].as_str(), claims["nonce"].as_str()), (hash.as_deref(), nonce), "{claims}");
    let key = serde_json::to_value(key).unwrap();
    assert!(key["d"].is_null(), "{key}");
    key.to_string()
}

/// What a proof says, unchecked.
fn claims(request: &Request) -> Value {
    let part = request.header("dpop").unwrap().split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

/// An issuer and a server that demand nonces, and the keys of the proofs.
async fn demanding(kind: &'static str, jwks: Value, keys: Arc<Mutex<BTreeSet<String>>>) -> Origin {
    let answer = move |request: &Request| {
        let (origin, has_nonce) = (format!("http://{}", request.header("host").unwrap()), |own: &str| {
            request.header("dpop").is_some() && claims(request)["nonce"] == own
        });
        if request.path() == "/token" {
            check_assertion(
                &form(std::str::from_utf8(&request.body).unwrap()),
                &jwks,
                "gate",
                &format!("{origin}/token"),
            );
            if !has_nonce("of-issuer") {
                let refused = Reply::status(400).header("DPoP-Nonce", "of-issuer");
                return refused.body(r#"{"error":"use_dpop_nonce"}"#);
            }
            keys.lock().unwrap().insert(check_proof(request, &format!("{origin}/token"), None, Some("of-issuer")));
            return Reply::json(&json!({ "access_token": "t", "token_type": kind, "expires_in": 3600 }));
        }
        assert_eq!(request.header("authorization"), Some("DPoP t"));
        let message: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if !has_nonce("of-server") {
            let refused = Reply::status(401).header("DPoP-Nonce", "of-server");
            // It takes other tokens, too (RFC 9449, section 7.1).
            let refused = refused.header("WWW-Authenticate", "Bearer error=\"invalid_token\"");
            return refused.header("WWW-Authenticate", r#"DPoP error="use_dpop_nonce", algs="ES256""#);
        }
        let url = format!("{origin}/mcp");
        keys.lock().unwrap().insert(check_proof(request, &url, Some("t"), Some("of-server")));
        let result = match message["method"].as_str().unwrap_or_default() {
            "initialize" => json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": [{ "name": "who" }] }),
            "tools/call" => json!({ "content": [{ "type": "text", "text": "done" }] }),
            _ => return Reply::status(202),
        };
        Reply::json(&json!({ "jsonrpc": "2.0", "id": message["id"], "result": result }))
    };
    Origin::http().answering(answer).start().await
}

fn bound(origin: &Origin, key: &str) -> String {
    let (url, token_url) = (origin.url("/mcp?tenant=1"), origin.url("/token"));
    let oauth = format!("token_url = '{token_url}', client_id = 'gate', private_key = '{key}', dpop = true");
    format!("[mcp.server.crm]\nurl = '{url}'\noauth = {{ {oauth} }}\nresults = 'off'\n")
}

#[tokio::test]
async fn each_request_has_a_proof_of_the_same_key_and_the_nonce_that_is_demanded() {
    let (folder, keys) = (tempfile::tempdir().unwrap(), Arc::<Mutex<BTreeSet<String>>>::default());
    let (key, jwks) = es256(folder.path()).await;
    let origin = demanding("DPoP", jwks, Arc::clone(&keys)).await;
    // The second gateway is the first one after a restart.
    for _ in 0..2 {
        let gate = Gate::without_session("/mcp/crm", &bound(&origin, &key)).await;
        for _ in 0..2 {
            let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), "").await.json();
            assert_eq!(said(&answer["result"]), "done", "{answer}");
        }
    }
    assert_eq!(keys.lock().unwrap().len(), 1, "{keys:?}");
    let requests = origin.requests();
    let (ids, of_tokens): (BTreeSet<_>, Vec<_>) = (
        requests.iter().map(|request| claims(request)["jti"].to_string()).collect(),
        requests.iter().filter(|request| request.path() == "/token").collect(),
    );
    assert_eq!(ids.len(), requests.len(), "no proof is used twice");
    let assertions: BTreeSet<_> = of_tokens
        .iter()
        .map(|request| form(std::str::from_utf8(&request.body).unwrap())["client_assertion"].clone())
        .collect();
    assert_eq!((of_tokens.len(), assertions.len()), (4, 4), "one more with the nonce, with an assertion of its own");
    let refused = requests.iter().filter(|request| request.path() != "/token" && claims(request)["nonce"].is_null());
    assert_eq!(refused.count(), 2, "a nonce is kept");
}

#[tokio::test]
async fn a_token_that_is_not_bound_is_sent_to_no_server() {
    let folder = tempfile::tempdir().unwrap();
    let (key, jwks) = es256(folder.path()).await;
    let origin = demanding("Bearer", jwks, Arc::default()).await;
    let gate = Gate::without_session("/mcp/crm", &bound(&origin, &key)).await;
    let answer = ask_with(&gate, "tools/call", &call("who", json!({})), &json!({}), "").await.json();
    let error = answer["error"]["message"].as_str().unwrap_or_default();
    assert!(error.contains("not bound to the key of the gateway") && error.contains("oauth.token_url"), "{answer}");
    assert!(origin.requests().iter().all(|request| request.path() == "/token"));
}

#[tokio::test]
async fn accounts_have_bound_tokens_where_the_server_demands_it_also_after_a_restart() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let (file, keys) = (folder.path().join("accounts.json"), no_keys());
    let first = gate(&config(&origin, ""), &file, &keys).await;
    let link = link_of(&first, &who(&first, "").await);
    assert!(Browser::new(&first).connect(&link).await.contains("is connected"));
    assert_eq!(said(&who(&first, "").await), "access 2");
    assert!(!origin.requests().iter().any(|request| request.header("dpop").is_some()), "it is not demanded");
    // From now on it is demanded: the user connects the account again.
    rules.lock().binds = true;
    rules.lock().is_revoked = true;
    let link = link_of(&first, &who(&first, "").await);
    rules.lock().is_revoked = false;
    assert!(Browser::new(&first).connect(&link).await.contains("is connected"));
    let bound = said(&who(&first, "").await).to_owned();
    assert!(bound.starts_with("access "), "{bound}");
    let second = gate(&config(&origin, ""), &file, &keys).await;
    rules.lock().tokens.remove(&bound.replace(' ', "-"));
    let renewed = who(&second, "").await;
    assert!(said(&renewed).starts_with("access ") && said(&renewed) != bound, "{renewed}");
    let used: BTreeSet<_> = rules.lock().keys.iter().cloned().collect();
    assert_eq!(used.len(), 1, "{used:?}");
    // Where the operator demands it, tokens that are not bound are refused.
    rules.lock().binds = false;
    second.service.remove_account("local", "crm").await.unwrap();
    let strict = gate(&strict_config(&origin), &file, &keys).await;
    let link = link_of(&strict, &who(&strict, "").await);
    let page = Browser::new(&strict).connect(&link).await;
    assert!(page.contains("not bound to the key of the gateway"), "{page}");
}

fn strict_config(origin: &Origin) -> String {
    config(origin, "").replace("'authorization_code'", "'authorization_code', dpop = true")
}

#[tokio::test]
async fn an_account_with_a_token_that_is_not_bound_is_connected_again_once_the_operator_demands_it() {
    let (folder, (origin, rules)) = (tempfile::tempdir().unwrap(), start().await);
    let (file, keys) = (folder.path().join("accounts.json"), no_keys());
    let first = gate(&config(&origin, ""), &file, &keys).await;
    assert!(Browser::new(&first).connect(&link_of(&first, &who(&first, "").await)).await.contains("is connected"));
    assert_eq!(said(&who(&first, "").await), "access 2");
    let strict = gate(&strict_config(&origin), &file, &keys).await;
    let answer = ask_with(&strict, "tools/call", &call("connect_account", json!({})), &json!({}), "").await.json();
    assert!(!answer.to_string().contains("is connected"), "{answer}");
    let link = link_of(&strict, &who(&strict, "").await);
    rules.lock().binds = true;
    assert!(Browser::new(&strict).connect(&link).await.contains("is connected"));
    assert_eq!(said(&who(&strict, "").await), "access 4");
    assert!(!rules.lock().keys.is_empty());
}
