//! Adapts pending items to queries, like recorded flows in the same state. Facts missing from an item count as unknown,
//! so that a filter on them does not decide.

use interflow_query::{Fact, Flag, Key, QuerySubject, Tristate};
use interflow_types::Direction;

use crate::pending::item::{PendingItem, PendingKind, PendingPart};

pub(crate) struct PendingSubject<'i>(pub &'i PendingItem);

impl PendingSubject<'_> {
    fn is_tunnel(&self) -> bool {
        self.0.what == PendingPart::Tunnel
    }

    /// The side whose head and body are included.
    fn side(&self) -> Direction {
        if self.0.what == PendingPart::Response { Direction::Response } else { Direction::Request }
    }

    /// A later side has not arrived yet; an earlier one is not included in the item.
    fn elsewhere(&self, side: Direction) -> Tristate {
        match side {
            Direction::Response => Tristate::Known(false),
            Direction::Request => Tristate::NotYet,
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn media_type(&self, side: Direction, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        if side != self.side() {
            return self.elsewhere(side);
        }
        let types = self.fields().filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        let plain = types.map(|(_, v)| v.split(';').next().unwrap_or(v).trim().to_ascii_lowercase());
        Tristate::any(plain.collect::<Vec<_>>().iter().map(String::as_str), fits)
    }

    /// Path and query; `None` for a tunnel.
    fn path(&self) -> Option<(&str, Option<&str>)> {
        let (_, rest) = self.0.url.split_once("://")?;
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        Some(path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query))))
    }
}

impl QuerySubject for PendingSubject<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let item = self.0;
        let host = || item.host.trim_matches(['[', ']']).to_ascii_lowercase();
        match key {
            Key::Word | Key::Url => Tristate::any([item.url.as_str()], fits),
            Key::Host => Tristate::any([host().as_str()], fits),
            Key::Authority => Tristate::any(item.port.map(|port| format!("{}:{port}", host())).as_deref(), fits),
            Key::Scheme if !self.is_tunnel() => {
                Tristate::any(item.url.split_once("://").map(|(scheme, _)| scheme), fits)
            }
            Key::Path => Tristate::any(self.path().map(|(path, _)| path), fits),
            Key::Query => Tristate::any(self.path().and_then(|(_, query)| query), fits),
            Key::Method => Tristate::any(item.method.as_deref(), fits),
            Key::User => Tristate::any(item.client.user.as_deref(), fits),
            Key::Process => Tristate::any(item.client.process.as_deref(), fits),
            // Not reported for a flow held by a rule.
            Key::Container if item.kind == PendingKind::Approval => {
                Tristate::any(item.client.container.as_deref(), fits)
            }
            Key::Id => Tristate::any(item.flows.iter().map(String::as_str), fits),
            Key::ReqType => self.media_type(Direction::Request, fits),
            Key::RespType => self.media_type(Direction::Response, fits),
            Key::Type => {
                let request = self.media_type(Direction::Request, fits);
                // The request alone may decide; otherwise the unknown other side counts.
                if request.holds() { request } else { request.or(self.media_type(Direction::Response, fits)) }
            }
            Key::Error | Key::Comment => Tristate::Known(false),
            _ => Tristate::NotYet,
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Port => Fact::known(self.0.port.map(u64::from)),
            Key::Status => Fact::known(self.0.status.map(u64::from)),
            _ => Fact::NotYet,
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        Tristate::Known(match flag {
            Flag::Held | Flag::Open => true,
            Flag::Error => false,
            Flag::Tunnel => self.is_tunnel(),
            Flag::Answered => self.0.status.is_some(),
            _ => return Tristate::NotYet,
        })
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        match side == self.side() {
            true => Tristate::Known(self.fields().any(|(name, value)| fits(name.as_bytes(), value.as_bytes()))),
            false => self.elsewhere(side),
        }
    }

    fn body(&self, side: Direction, fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        match &self.0.body {
            _ if side != self.side() => self.elsewhere(side),
            Some(body) => Tristate::Known(fits(body.as_bytes())),
            // An approval without a size has no body at all.
            None if self.0.body_size.is_none() && self.0.kind == PendingKind::Approval => Tristate::Known(false),
            None => Tristate::NotYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use interflow_query::Query;
    use interflow_types::Timestamp;

    use super::*;
    use crate::pending::item::{PendingClient, TimeoutAction};

    fn item(kind: PendingKind, what: PendingPart, url: &str, (host, port): (&str, u16)) -> PendingItem {
        PendingItem {
            id: String::new(),
            replica: None,
            kind,
            what,
            method: None,
            url: url.into(),
            host: host.into(),
            port: Some(port),
            status: None,
            headers: Vec::new(),
            body: None,
            body_size: None,
            client: PendingClient::default(),
            waiting: 1,
            flows: Vec::new(),
            since: Timestamp::default(),
            until: Timestamp::default(),
            on_timeout: TimeoutAction::Deny,
            rule: None,
            phase: None,
            note: None,
            matches: None,
        }
    }

    #[test]
    fn pending_items_match_by_the_facts_they_contain() {
        let headers = |all: &[(&str, &str)]| all.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let text = |t: &str| Some(t.to_owned());
        let request = PendingItem {
            method: text("POST"),
            headers: headers(&[("Content-Type", "Application/JSON; a=b"), ("X-Plan", "b")]),
            body: text("amount=10"),
            body_size: Some(9),
            flows: vec!["01-2".into()],
            client: PendingClient { user: text("ann"), process: text("curl"), ..PendingClient::default() },
            ..item(PendingKind::Approval, PendingPart::Request, "http://api.test:81/pay/now?user=7", ("api.test", 81))
        };
        let response = PendingItem {
            method: text("GET"),
            status: Some(404),
            headers: headers(&[("Content-Type", "text/html")]),
            ..item(PendingKind::Rule, PendingPart::Response, "https://b.test/", ("b.test", 443))
        };
        let tunnel = item(PendingKind::Approval, PendingPart::Tunnel, "c.test:443", ("c.test", 443));
        let (yes, no, open) = (Tristate::Known(true), Tristate::Known(false), Tristate::NotYet);
        for (query, expected) in [
            ("", [yes, yes, yes]),
            ("host:api.test", [yes, no, no]),
            ("-host:api.test", [no, yes, yes]),
            ("method:POST path:/pay* port:81", [yes, no, no]),
            ("qs:user=7", [yes, no, no]),
            ("is:tunnel", [no, no, yes]),
            ("is:held", [yes, yes, yes]),
            ("status:>=400", [no, yes, no]),
            ("-status:404", [yes, no, yes]),
            ("req.header.x-plan:b", [yes, open, no]),
            ("req.body:amount", [yes, open, no]),
            ("resp.type:html", [no, yes, no]),
            ("user:ann process:curl", [yes, no, no]),
            ("tag:starred", [open, open, open]),
            ("host:api.test tag:starred", [open, no, no]),
        ] {
            let parsed = Query::parse(query).unwrap_or_else(|e| panic!("{query}: {e}"));
            let found = [&request, &response, &tunnel].map(|item| parsed.evaluate(&PendingSubject(item)));
            assert_eq!(found, expected, "{query}");
        }
    }
}
