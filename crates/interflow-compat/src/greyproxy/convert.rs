//! Converts Greyproxy's rules and credentials to Interflow's.

use std::collections::BTreeMap;

use aes_gcm::aead::{Aead as _, KeyInit as _};
use aes_gcm::{Aes256Gcm, Nonce};
use interflow_approvals::config::{ApprovalAction, RuleSpec};
use interflow_types::Timestamp;
use serde_json::Value;

use super::database::{GreyproxyDb, GreyproxyRule};

/// Converts a rule.
///
/// # Errors
/// It has no counterpart; the reason says why.
pub fn convert_rule(rule: &GreyproxyRule) -> Result<RuleSpec, String> {
    let action = match rule.action.as_str() {
        "allow" => ApprovalAction::Allow,
        "deny" => ApprovalAction::Deny,
        other => return Err(format!("`{other}` is not a valid action")),
    };
    let parts = |text: &str| -> Vec<String> {
        let all: Vec<String> = text.split(',').map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect();
        if all.iter().any(|p| p == "*") { Vec::new() } else { all }
    };
    if rule.container.starts_with("unknown-") {
        return Err(format!(
            "it applies to {}, an unnamed client; rewrite it with `processes` or `users`",
            rule.container
        ));
    }
    let mut spec = RuleSpec::new(action);
    spec.agents = parts(&rule.container);
    spec.hosts = parts(&rule.destination);
    spec.ports = parts(&rule.port);
    spec.until = rule.expires.map(|at| {
        let at = i64::try_from(at.micros()).ok().and_then(|m| jiff::Timestamp::from_microsecond(m).ok());
        at.unwrap_or_default().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    });
    spec.note = rule.notes.clone().filter(|n| !n.is_empty());
    Ok(spec)
}

/// A credential with its secret.
#[derive(Debug)]
pub struct DecryptedCredential {
    pub label: String,
    pub placeholder: String,
    pub value: String,
}

/// Decrypts the credentials, including those of active sessions. Also returns how many could not be decrypted.
///
/// # Errors
/// The database cannot be read.
pub fn decrypt_credentials(
    db: &GreyproxyDb,
    key: Option<&[u8]>,
) -> Result<(Vec<DecryptedCredential>, u64), rusqlite::Error> {
    let open = |sealed: &[u8]| key.and_then(|key| decrypt(key, sealed));
    let (mut opened, mut closed) = (Vec::new(), 0);
    for credential in db.credentials()? {
        match open(&credential.sealed) {
            Some(value) => {
                opened.push(DecryptedCredential { label: credential.label, placeholder: credential.placeholder, value })
            }
            None => closed += 1,
        }
    }
    let now = Timestamp::now();
    for session in db.sessions()? {
        if session.expires.is_some_and(|at| at <= now) {
            continue;
        }
        let mappings =
            open(&session.sealed).and_then(|text| serde_json::from_str::<BTreeMap<String, String>>(&text).ok());
        let Some(mappings) = mappings else {
            closed += 1;
            continue;
        };
        let labels: Value = serde_json::from_str(&session.labels).unwrap_or_default();
        for (placeholder, value) in mappings {
            let label = labels[&placeholder].as_str().unwrap_or(&placeholder).to_owned();
            let taken = opened.iter().any(|o| o.label == label);
            let label = if taken { format!("{label}@{}", session.id) } else { label };
            opened.push(DecryptedCredential { label, placeholder, value });
        }
    }
    Ok((opened, closed))
}

/// Decrypts a secret with the key in Greyproxy's `session.key`: nonce, ciphertext and tag of AES-256-GCM.
fn decrypt(key: &[u8], sealed: &[u8]) -> Option<String> {
    let cipher = Aes256Gcm::new_from_slice(key).ok()?;
    let (nonce, sealed) = sealed.split_first_chunk::<12>()?;
    String::from_utf8(cipher.decrypt(&Nonce::from(*nonce), sealed).ok()?).ok()
}
