//! Who is changing a setting that replicas share: its file becomes a revision a moment later, which should name them
//! rather than the replica.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::identity::Identity;

/// How long after a request a change of the file counts as theirs.
const ATTRIBUTED_WITHIN: Duration = Duration::from_secs(10);

/// Paths of the API by the shared setting that they change.
const SETTINGS: [(&str, &str); 7] = [
    ("/approvals/rules", "approvals"),
    ("/keys", "keys"),
    ("/organisations", "keys"),
    ("/privacy/policies", "policy"),
    ("/rules/", "rules"),
    ("/secrets", "secrets"),
    ("/teams", "keys"),
];

/// The last person or token to change each setting.
#[derive(Default)]
pub struct LastEditors(Mutex<HashMap<&'static str, (String, Instant)>>);

impl LastEditors {
    /// Notes the caller of an operation such as `PUT /rules/source`, before it is carried out.
    pub(crate) fn note(&self, operation: &str, identity: &Identity) {
        let Some((method, path)) = operation.split_once(' ') else { return };
        let setting = SETTINGS.iter().find(|(prefix, _)| path.starts_with(prefix)).filter(|_| method != "GET");
        if let Some((_, setting)) = setting {
            self.0.lock().insert(setting, (identity.name.clone(), Instant::now()));
        }
    }

    /// Who changed a setting a moment ago; `None` if it was nobody over the API.
    pub fn of(&self, setting: &str) -> Option<String> {
        let editors = self.0.lock();
        editors.get(setting).filter(|(_, at)| at.elapsed() < ATTRIBUTED_WITHIN).map(|(name, _)| name.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_over_the_api_names_its_caller_and_reading_does_not() {
        let editors = LastEditors::default();
        let anna = Identity { name: "anna".into(), ..Identity::admin_token() };
        for operation in ["GET /rules/source", "POST /flows/delete", "GET /keys"] {
            editors.note(operation, &anna);
        }
        assert_eq!((editors.of("rules"), editors.of("keys")), (None, None));
        for (operation, setting) in [
            ("PUT /rules/source", "rules"),
            ("POST /keys/{id}/rotate", "keys"),
            ("PATCH /teams/{id}", "keys"),
            ("POST /approvals/rules", "approvals"),
            ("PUT /privacy/policies/source", "policy"),
            ("DELETE /secrets/{label}", "secrets"),
        ] {
            let editors = LastEditors::default();
            editors.note(operation, &anna);
            assert_eq!(editors.of(setting).as_deref(), Some("anna"), "{operation}");
        }
    }
}
