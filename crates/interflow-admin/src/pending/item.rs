//! What waits for a decision, as the API shows it.

use std::fmt;
use std::str::FromStr;

use interflow_approvals::PendingRequest as Question;
use interflow_rules::{HeldFlow as RuleHold, HeldPart};
use interflow_store::HeaderMasker;
use interflow_types::Timestamp;
use interflow_types::schema::JsonSchema;
use serde::{Deserialize, Serialize};

/// Prefix of the ids of flows held by rules. Both kinds have numbers of their own, which may be equal.
const RULE: &str = "rule-";
const APPROVAL: &str = "approval-";
/// Separates the number from the process that holds it.
const PLACE: char = '@';

/// The id by which something is decided: `approval-3`, `rule-5`, with the process that holds it where several share
/// the recording: `rule-5@8c2f01aa`. A bare number is an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PendingId {
    pub kind: PendingKind,
    pub number: u64,
    pub place: Option<String>,
}

impl PendingId {
    pub const fn local(kind: PendingKind, number: u64) -> Self {
        Self { kind, number, place: None }
    }
}

impl FromStr for PendingId {
    type Err = ();

    fn from_str(id: &str) -> Result<Self, ()> {
        let (id, place) = id.split_once(PLACE).map_or((id, None), |(id, place)| (id, Some(place.to_owned())));
        let (kind, number) = match id.strip_prefix(RULE) {
            Some(number) => (PendingKind::Rule, number),
            None => (PendingKind::Approval, id.strip_prefix(APPROVAL).unwrap_or(id)),
        };
        number.parse().map(|number| Self { kind, number, place }).map_err(drop)
    }
}

impl fmt::Display for PendingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if self.kind == PendingKind::Rule { RULE } else { APPROVAL };
        write!(f, "{prefix}{}", self.number)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(f, "{PLACE}{place}"))
    }
}

// Replicas read it from each other, also those of another version: members that are added have to be optional.
/// A request, tunnel, response or message that waits for a decision.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct PendingItem {
    /// The id by which it is decided.
    pub id: String,
    /// The replica that holds it, if several share the recording.
    pub replica: Option<String>,
    pub kind: PendingKind,
    pub what: PendingPart,
    /// Null for a tunnel, which has no request yet.
    pub method: Option<String>,
    /// For a tunnel, host and port.
    pub url: String,
    pub host: String,
    pub port: Option<u16>,
    /// The response's status, if that is held.
    pub status: Option<u16>,
    pub headers: Vec<(String, String)>,
    /// The body, if it is short text that has arrived, and the caller may read bodies.
    pub body: Option<String>,
    pub body_size: Option<u64>,
    pub client: PendingClient,
    /// Number of flows that wait for the same decision.
    pub waiting: usize,
    /// The first of those flows.
    pub flows: Vec<String>,
    pub since: Timestamp,
    /// When it times out; then `on_timeout` applies.
    pub until: Timestamp,
    pub on_timeout: TimeoutAction,
    pub rule: Option<String>,
    /// The phase in which a rule holds it.
    pub phase: Option<String>,
    /// The rule author's note, or what a guardrail found.
    pub note: Option<String>,
    /// Whether the query selects this; null if there is none, or too little is known.
    pub matches: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PendingKind {
    Approval,
    Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum PendingPart {
    Request,
    Tunnel,
    Response,
    Message,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TimeoutAction {
    Deny,
    Continue,
}

#[derive(Default, Serialize, Deserialize, JsonSchema)]
pub(crate) struct PendingClient {
    pub address: String,
    pub user: Option<String>,
    pub process: Option<String>,
    pub container: Option<String>,
    pub sessions: Vec<String>,
}

impl PendingItem {
    pub fn from_question(held: &Question, mask: &HeaderMasker) -> Self {
        let q = &held.question;
        // Addresses of IPv6 are in brackets in a URL (RFC 3986).
        let host = if q.host.contains(':') { format!("[{}]", q.host) } else { q.host.clone() };
        let question = held.asked.as_ref();
        Self {
            id: PendingId::local(PendingKind::Approval, held.id).to_string(),
            replica: None,
            kind: PendingKind::Approval,
            what: if q.method.is_some() { PendingPart::Request } else { PendingPart::Tunnel },
            method: q.method.clone(),
            url: question.map_or_else(|| format!("{host}:{}", q.port), |a| mask.mask_url(&a.url)),
            host: q.host.clone(),
            port: Some(q.port),
            status: None,
            headers: question.map(|a| mask.mask_fields(&a.headers)).unwrap_or_default(),
            body: question.and_then(|a| a.body()),
            body_size: question.and_then(|a| a.size),
            client: PendingClient {
                address: q.client.clone(),
                user: q.user.clone(),
                process: q.process.clone(),
                container: q.container.clone(),
                sessions: q.sessions.clone(),
            },
            waiting: held.waiting,
            flows: held.flows.clone(),
            since: held.since,
            until: held.until,
            on_timeout: TimeoutAction::Deny,
            rule: None,
            phase: None,
            note: q.reason.clone(),
            matches: None,
        }
    }

    pub fn from_hold(held: RuleHold, mask: &HeaderMasker) -> Self {
        let url = interflow_rules::parse_url(&held.url).ok();
        Self {
            id: PendingId::local(PendingKind::Rule, held.id).to_string(),
            replica: None,
            kind: PendingKind::Rule,
            what: match held.what {
                HeldPart::Request => PendingPart::Request,
                HeldPart::Response => PendingPart::Response,
                HeldPart::Message => PendingPart::Message,
            },
            method: held.method,
            host: url.as_ref().map(|u| u.authority.host.to_string()).unwrap_or_default(),
            port: url.as_ref().map(|u| u.authority.port),
            // Not masked for those who can edit it: the mask would be sent.
            url: held.url,
            status: held.status,
            headers: mask.mask_fields(&held.headers),
            body_size: held.body.as_ref().map(|b| b.len() as u64),
            body: held.body,
            client: PendingClient {
                address: held.client,
                user: held.user,
                process: held.process,
                ..PendingClient::default()
            },
            waiting: 1,
            flows: vec![held.flow],
            since: held.since,
            until: held.until,
            on_timeout: if held.continue_on_timeout { TimeoutAction::Continue } else { TimeoutAction::Deny },
            rule: Some(held.rule),
            phase: Some(held.phase.to_owned()),
            note: held.note,
            matches: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_a_kind_a_number_and_where_it_is_held() {
        for (text, kind, number, place, shown) in [
            ("3", PendingKind::Approval, 3, None, "approval-3"),
            ("approval-3", PendingKind::Approval, 3, None, "approval-3"),
            ("rule-5", PendingKind::Rule, 5, None, "rule-5"),
            ("3@8c2f01aa", PendingKind::Approval, 3, Some("8c2f01aa"), "approval-3@8c2f01aa"),
            ("rule-5@8c2f01aa", PendingKind::Rule, 5, Some("8c2f01aa"), "rule-5@8c2f01aa"),
        ] {
            let id: PendingId = text.parse().unwrap();
            assert_eq!((id.kind, id.number, id.place.as_deref()), (kind, number, place), "{text}");
            assert_eq!(id.to_string(), shown);
        }
        for wrong in ["", "rule-", "rule-x", "x3", "@8c2f01aa", "approval-rule-3"] {
            assert!(wrong.parse::<PendingId>().is_err(), "{wrong}");
        }
    }
}
