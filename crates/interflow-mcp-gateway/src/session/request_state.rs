//! The state of a request that the client sends again with its answers (MCP 2026-07-28, multi round-trip requests). The
//! client holds it, sealed: another client, another request or a later time make it worthless.

use std::time::Duration;

use aes_gcm::aead::{Aead, KeyInit, Payload};
use aes_gcm::{Aes256Gcm, Nonce};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use interflow_types::{Timestamp, random_bytes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use serde_json::{Value, json};

use crate::protocol::client_message::ClientMethod;
use crate::protocol::jsonrpc::{INVALID_PARAMS, RpcError};

const CONTEXT: &str = "interflow mcp request state";
const NONCE: usize = 12;
/// Bound on a state, in bytes: clients send it in each retry.
const MAX_STATE: usize = 64 << 10;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RequestState {
    /// The state of the server, which is for it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_server: Option<String>,
    /// The call that waits here for the answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<String>,
    /// In seconds since 1970.
    pub expires: u64,
}

impl RequestState {
    pub fn waiting(call: String) -> Self {
        Self { waiting: Some(call), ..Self::default() }
    }
}

/// What a state is bound to.
pub(crate) struct StateBinding(Vec<u8>);

pub(crate) struct StateSealer(Aes256Gcm);

impl StateSealer {
    /// `master` is the secret of the installation, so that a state of one replica is opened by another.
    pub fn new(master: &[u8; 32]) -> Self {
        Self(Aes256Gcm::new(&blake3::derive_key(CONTEXT, master).into()))
    }

    /// # Errors
    /// The state is too long.
    pub fn seal(&self, state: RequestState, binding: &StateBinding, ttl: Duration) -> Result<String, RpcError> {
        let state = RequestState { expires: now().saturating_add(ttl.as_secs()), ..state };
        let text = serde_json::to_vec(&state).map_err(|e| RpcError::server(e.to_string()))?;
        if text.len() > MAX_STATE {
            return Err(RpcError::server(format!("its `requestState` is larger than {MAX_STATE} bytes")));
        }
        self.seal_bytes(&text, binding)
    }

    /// Seals what only the holder in the binding can give back.
    ///
    /// # Errors
    /// The cipher failed.
    pub fn seal_value(&self, value: &impl Serialize, binding: &StateBinding) -> Result<String, RpcError> {
        self.seal_bytes(&serde_json::to_vec(value).map_err(|e| RpcError::server(e.to_string()))?, binding)
    }

    /// As [`seal_value`](Self::seal_value), of bytes.
    ///
    /// # Errors
    /// The cipher failed.
    pub fn seal_bytes(&self, text: &[u8], binding: &StateBinding) -> Result<String, RpcError> {
        // A nonce must not be used twice with one key; 96 random bits suffice for all states of an installation.
        let nonce = random_bytes::<NONCE>();
        let sealed = self.0.encrypt(&Nonce::from(nonce), Payload { msg: text, aad: &binding.0 });
        let sealed = sealed.map_err(|_| RpcError::server("what the client keeps cannot be sealed"))?;
        Ok(URL_SAFE_NO_PAD.encode([nonce.as_slice(), &sealed].concat()))
    }

    /// What was sealed with this binding.
    pub fn open_value<T: DeserializeOwned>(&self, sealed: &str, binding: &StateBinding) -> Option<T> {
        serde_json::from_slice(&self.open_bytes(sealed, binding)?).ok()
    }

    pub fn open_bytes(&self, sealed: &str, binding: &StateBinding) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, text) = bytes.split_at_checked(NONCE)?;
        let opened = self.0.decrypt(&Nonce::try_from(nonce).ok()?, Payload { msg: text, aad: &binding.0 });
        opened.ok()
    }

    /// # Errors
    /// The state was altered, is of another client, server or request, or expired.
    pub fn open(&self, sealed: &str, binding: &StateBinding) -> Result<RequestState, RpcError> {
        let opened = self.open_value::<RequestState>(sealed, binding).filter(|state| state.expires > now());
        opened.ok_or_else(|| {
            let message = "`requestState` was altered, has expired, or is of another client or request; begin the \
                           request anew, without it";
            RpcError::new(INVALID_PARAMS, message)
        })
    }
}

impl StateBinding {
    /// Of a request of this holder, as it was sent.
    pub fn of_request(holder: &str, server: &str, method: &ClientMethod) -> Self {
        // A client may write the same arguments otherwise.
        let arguments = |json: &str| serde_json::from_str::<Value>(json).unwrap_or_default();
        let (method, params) = match method {
            ClientMethod::CallTool(name, json) => ("tools/call", json!([name, arguments(json)])),
            ClientMethod::GetPrompt(name, json) => ("prompts/get", json!([name, arguments(json)])),
            ClientMethod::ReadResource(uri) => ("resources/read", json!(uri)),
            _ => ("", Value::Null),
        };
        Self::new(holder, server, method, &params.to_string())
    }

    /// `params` are those of the request, without what differs in a retry.
    pub fn new(holder: &str, server: &str, method: &str, params: &str) -> Self {
        // With their lengths: what is before must not pass for what follows.
        let parts = [holder, server, method, params];
        Self(parts.iter().flat_map(|part| [&part.len().to_le_bytes(), part.as_bytes()].concat()).collect())
    }
}

/// In seconds since 1970.
pub(crate) fn now() -> u64 {
    Timestamp::now().secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_opened_only_for_what_it_was_sealed_for() {
        let (sealer, other) = (StateSealer::new(&[1; 32]), StateSealer::new(&[2; 32]));
        let binding = || StateBinding::new("anna", "web", "tools/call", "{}");
        let minute = Duration::from_secs(60);
        let state = RequestState { of_server: Some("s".into()), ..RequestState::default() };
        let sealed = sealer.seal(state, &binding(), minute).unwrap();
        assert!(!sealed.contains("of_server"));
        let opened = StateSealer::new(&[1; 32]).open(&sealed, &binding()).unwrap();
        assert_eq!((opened.of_server.as_deref(), opened.waiting), (Some("s"), None), "on another replica, too");
        for binding in [
            StateBinding::new("bob", "web", "tools/call", "{}"),
            StateBinding::new("anna", "local", "tools/call", "{}"),
            StateBinding::new("anna", "web", "prompts/get", "{}"),
            StateBinding::new("anna", "web", "tools/call", "[]"),
            // The same characters, divided otherwise.
            StateBinding::new("annaw", "eb", "tools/call", "{}"),
        ] {
            assert_eq!(sealer.open(&sealed, &binding).unwrap_err().code, INVALID_PARAMS);
        }
        assert!(other.open(&sealed, &binding()).is_err());
        let altered = format!("{}A", &sealed[..sealed.len() - 1]);
        for wrong in [altered.as_str(), &format!("{sealed}-TAMPERED"), "", "AAAA", "é"] {
            assert!(wrong == sealed || sealer.open(wrong, &binding()).is_err(), "{wrong}");
        }
        let expired = sealer.seal(RequestState::default(), &binding(), Duration::ZERO).unwrap();
        assert!(sealer.open(&expired, &binding()).is_err());
        let long = RequestState { of_server: Some("x".repeat(MAX_STATE)), ..RequestState::default() };
        assert!(sealer.seal(long, &binding(), minute).is_err());
    }
}
