//! Adapts pending items to queries, like recorded flows in the same state. Facts missing from an item count as unknown,
//! so that a filter on them does not decide.

use interflow_query::{Fact, Flag, Key, QuerySubject, Tristate};
use interflow_types::Direction;
use serde_json::Value;

/// A member of the list in `GET /pending`.
pub(super) struct PendingSubject<'v>(pub &'v Value);

impl PendingSubject<'_> {
    fn member(&self, name: &str) -> Option<&str> {
        self.0[name].as_str()
    }

    fn is_tunnel(&self) -> bool {
        self.member("what") == Some("tunnel")
    }

    /// The side whose head and body are included.
    fn side(&self) -> Direction {
        if self.member("what") == Some("response") { Direction::Response } else { Direction::Request }
    }

    /// A later side has not arrived yet; an earlier one is not included in the item.
    fn elsewhere(&self, side: Direction) -> Tristate {
        match side {
            Direction::Response => Tristate::Known(false),
            Direction::Request => Tristate::NotYet,
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        let fields = self.0["headers"].as_array().into_iter().flatten();
        fields.filter_map(|f| Some((f[0].as_str()?, f[1].as_str()?)))
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
        let (_, rest) = self.member("url")?.split_once("://")?;
        let path = rest.find('/').map_or("/", |at| &rest[at..]);
        Some(path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query))))
    }
}

impl QuerySubject for PendingSubject<'_> {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let client = |name: &str| self.0["client"][name].as_str();
        let host = || self.member("host").map(|h| h.trim_matches(['[', ']']).to_ascii_lowercase());
        match key {
            Key::Word | Key::Url => Tristate::any(self.member("url"), fits),
            Key::Host => Tristate::any(host().as_deref(), fits),
            Key::Authority => {
                let port = self.0["port"].as_u64();
                Tristate::any(host().zip(port).map(|(host, port)| format!("{host}:{port}")).as_deref(), fits)
            }
            Key::Scheme if !self.is_tunnel() => {
                Tristate::any(self.member("url").and_then(|u| u.split_once("://")).map(|(scheme, _)| scheme), fits)
            }
            Key::Path => Tristate::any(self.path().map(|(path, _)| path), fits),
            Key::Query => Tristate::any(self.path().and_then(|(_, query)| query), fits),
            Key::Method => Tristate::any(self.member("method"), fits),
            Key::User => Tristate::any(client("user"), fits),
            Key::Process => Tristate::any(client("process"), fits),
            // Not reported for a flow held by a rule.
            Key::Container if self.member("kind") == Some("approval") => Tristate::any(client("container"), fits),
            Key::Id => Tristate::any(self.0["flows"].as_array().into_iter().flatten().filter_map(Value::as_str), fits),
            Key::ReqType => self.media_type(Direction::Request, fits),
            Key::RespType => self.media_type(Direction::Response, fits),
            Key::Type => {
                let request = self.media_type(Direction::Request, fits);
                if request.holds() { request } else { request.or(self.media_type(Direction::Response, fits)) }
            }
            Key::Error | Key::Comment => Tristate::Known(false),
            _ => Tristate::NotYet,
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Port => Fact::known(self.0["port"].as_u64()),
            Key::Status => Fact::known(self.0["status"].as_u64()),
            _ => Fact::NotYet,
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        Tristate::Known(match flag {
            Flag::Held | Flag::Open => true,
            Flag::Error => false,
            Flag::Tunnel => self.is_tunnel(),
            Flag::Answered => self.0["status"].is_u64(),
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
        match self.member("body") {
            _ if side != self.side() => self.elsewhere(side),
            Some(body) => Tristate::Known(fits(body.as_bytes())),
            None if self.0["body_size"].is_null() && self.member("kind") == Some("approval") => Tristate::Known(false),
            None => Tristate::NotYet,
        }
    }
}

#[cfg(test)]
mod tests {
    use interflow_query::Query;
    use serde_json::json;

    use super::*;

    #[test]
    fn pending_items_match_by_the_facts_they_contain() {
        let request = json!({
            "kind": "approval", "what": "request", "method": "POST", "url": "http://api.test:81/pay/now?user=7", "host": "api.test",
            "port": 81, "status": null, "headers": [["Content-Type", "Application/JSON; a=b"], ["X-Plan", "b"]],
            "body": "amount=10", "body_size": 9, "flows": ["01-2"],
            "client": {"address": "127.0.0.1", "user": "ann", "process": "curl", "container": null},
        });
        let response = json!({
            "kind": "rule", "what": "response", "method": "GET", "url": "https://b.test/", "host": "b.test", "port": 443,
            "status": 404, "headers": [["Content-Type", "text/html"]], "body": null, "body_size": null, "flows": [],
            "client": {"address": "127.0.0.1", "user": null, "process": null, "container": null},
        });
        let tunnel = json!({
            "kind": "approval", "what": "tunnel", "method": null, "url": "c.test:443", "host": "c.test", "port": 443,
            "status": null, "headers": [], "body": null, "body_size": null, "flows": [], "client": {},
        });
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
