//! Access tokens that are bound to a key of the gateway (DPoP, RFC 9449): each request that gets or uses one has a proof.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_types::{
    Body, Error, ErrorKind, Headers, HttpClient, Request, RequestHead, Response, Result, StatusCode, Timestamp,
    random_token,
};
use parking_lot::Mutex;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::client_key::ClientKey;

const CONTEXT: &str = "interflow mcp dpop key";
/// Bound on a nonce, in bytes.
const MAX_NONCE: usize = 1024;

pub(crate) struct DpopKey {
    key: ClientKey,
    /// The latest nonces: of authorization servers, and of the server.
    nonces: Mutex<[Option<String>; 2]>,
}

impl DpopKey {
    /// The key for a server, of the secret of the installation. So replicas have the same one, also after a restart:
    /// refresh tokens may be bound to it. Who changes the secret loses the sealed tokens, too.
    ///
    /// # Errors
    /// There is none.
    pub fn derive(master: &[u8; 32], server: &str) -> std::result::Result<Self, String> {
        let mut seed = blake3::derive_key(CONTEXT, &[master.as_slice(), server.as_bytes()].concat());
        // Otherwise it could be too large for the curve.
        seed[0] >>= 1;
        // An EC private key of P-256 (RFC 5915).
        let (head, curve) = (b"\x30\x31\x02\x01\x01\x04\x20", b"\xa0\x0a\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07");
        let key = ClientKey::from_der(&[&head[..], &seed, curve].concat()).ok_or("no key can be derived for DPoP")?;
        Ok(Self { key, nonces: Mutex::default() })
    }

    /// Gives a request a proof; for the use of a token, if there is one. Returns the nonce in the proof.
    ///
    /// # Errors
    /// The key does not sign.
    pub fn prove(&self, head: &mut RequestHead, token: Option<&str>) -> Result<Option<String>> {
        let (url, now) = (head.url.to_string(), Timestamp::now().secs());
        let mut claims = json!({ "jti": random_token(), "htm": head.method.as_str(), "htu": url.split('?').next(),
            "iat": now });
        if let Some(token) = token {
            claims["ath"] = URL_SAFE_NO_PAD.encode(Sha256::digest(token)).into();
        }
        let nonce = self.nonces.lock()[usize::from(token.is_some())].clone();
        if let Some(nonce) = &nonce {
            claims["nonce"] = nonce.as_str().into();
        }
        let header = json!({ "alg": self.key.algorithm, "typ": "dpop+jwt", "jwk": self.key.public });
        let proof = self.key.signed(&header, &claims).map_err(|why| Error::new(ErrorKind::Internal, why))?;
        head.headers.remove("dpop");
        head.headers.append_unchecked(b"DPoP", proof.as_bytes());
        Ok(nonce)
    }

    /// Keeps the nonce of a response for the next proof. Returns whether it is another one than that of the request.
    pub fn keep_nonce(&self, headers: &Headers, is_token_used: bool, sent: Option<&str>) -> bool {
        let nonce = headers.get_str("dpop-nonce").filter(|nonce| nonce.len() <= MAX_NONCE);
        if let Some(nonce) = nonce {
            self.nonces.lock()[usize::from(is_token_used)] = Some(nonce.to_owned());
        }
        nonce.is_some() && nonce != sent
    }
}

/// Sends a request with an access token; with a proof if it is bound to a key. A request that is refused with a new nonce is
/// sent again with that, once, whatever the challenges say: there may be several, each with an error of its own.
///
/// # Errors
/// As [`HttpClient::send`].
pub(crate) async fn send_authorized(
    client: &dyn HttpClient,
    mut request: Request,
    token: &str,
    key: Option<&DpopKey>,
) -> Result<Response> {
    let scheme = if key.is_some() { "DPoP" } else { "Bearer" };
    request.head.headers.remove("authorization");
    request.head.headers.append_unchecked(b"Authorization", format!("{scheme} {token}").as_bytes());
    let Some(key) = key else { return client.send(request).await };
    let mut again = copy_of(&request);
    loop {
        let sent = key.prove(&mut request.head, Some(token))?;
        let response = client.send(request).await?;
        let has_new_nonce = key.keep_nonce(&response.head.headers, true, sent.as_deref());
        let is_refused = response.head.status == StatusCode::UNAUTHORIZED;
        match again.take().filter(|_| has_new_nonce && is_refused) {
            Some(copy) => request = copy,
            None => return Ok(response),
        }
    }
}

/// The request for a repetition; `None` if its body cannot be sent twice.
pub(crate) fn copy_of(request: &Request) -> Option<Request> {
    let body = match &request.body {
        Body::Empty => Body::Empty,
        Body::Full(bytes) => Body::Full(bytes.clone()),
        _ => return None,
    };
    Some(Request { head: request.head.clone(), body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_the_same_after_a_restart_and_another_for_each_server_and_installation() {
        let public = |master, server| DpopKey::derive(&[master; 32], server).unwrap().key.public;
        let own = public(1, "crm");
        assert_eq!(own, public(1, "crm"));
        assert!(own != public(1, "wiki") && own != public(2, "crm"), "{own}");
        assert_eq!((&own["kty"], &own["crv"], own.as_object().unwrap().len()), (&json!("EC"), &json!("P-256"), 4));
    }
}
