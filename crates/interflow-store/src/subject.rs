//! Adapts recorded flows to queries, and maps query keys to database columns.

use std::net::SocketAddr;

use interflow_query::sql::{SqlColumn, SqlColumns};
use interflow_query::{Fact, Flag, Key, QuerySubject, Tristate};
use interflow_types::Direction;

use crate::model::{FlowKind, FlowRecord, FlowState, FlowSummary, url_of};

impl FlowRecord {
    /// Bytes of bodies or of a tunnel: to the upstream, and from it.
    pub fn sizes(&self) -> (u64, u64) {
        let body = |d| self.body(d).map_or(0, |b| b.size);
        self.tunnel.map_or_else(|| (body(Direction::Request), body(Direction::Response)), |t| (t.sent, t.received))
    }

    fn types(&self, sides: &[Direction], fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let types: Vec<String> = sides.iter().filter_map(|d| self.media_type(*d)).collect();
        Tristate::any(types.iter().map(String::as_str), fits)
    }
}

impl QuerySubject for FlowRecord {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let request = self.request.as_ref();
        let path = request.map(|r| r.path.split_once('?').map_or((r.path.as_str(), None), |(p, q)| (p, Some(q))));
        let tls = self.client.tls.as_ref();
        match key {
            Key::Word | Key::Url => Tristate::any([self.url().as_str()], fits),
            Key::Host => Tristate::any([&*self.host()], fits),
            Key::Authority => Tristate::any([format!("{}:{}", self.host(), self.authority.port).as_str()], fits),
            Key::Scheme => Tristate::any([self.scheme.as_str()], fits),
            Key::Path => Tristate::any(path.map(|(p, _)| p), fits),
            Key::Query => Tristate::any(path.and_then(|(_, q)| q), fits),
            Key::Method => Tristate::any(request.map(|r| r.method.as_str()), fits),
            Key::Version => {
                let legs = [request.map(|r| &*r.version), self.upstream.as_ref().map(|u| &*u.version)];
                Tristate::any(legs.into_iter().flatten(), fits)
            }
            Key::Type => self.types(&Direction::ALL, fits),
            Key::ReqType => self.types(&[Direction::Request], fits),
            Key::RespType => self.types(&[Direction::Response], fits),
            Key::Error => Tristate::any(self.error.iter().flat_map(|e| [&*e.kind, e.message.as_str()]), fits),
            Key::Tag => Tristate::any(self.tags.iter().map(String::as_str), fits),
            Key::Passthrough => Tristate::any(self.passthrough.as_deref(), fits),
            Key::Comment => Tristate::any(self.comment.as_deref(), fits),
            Key::User => Tristate::any(self.user.as_deref(), fits),
            Key::Listener => Tristate::any([&*self.client.listener], fits),
            Key::Transport => Tristate::any([self.transport.as_str()], fits),
            Key::Sni => Tristate::any(tls.and_then(|t| t.sni.as_deref()), fits),
            Key::Ja3 => Tristate::any(tls.and_then(|t| t.ja3.as_deref()), fits),
            Key::Ja4 => Tristate::any(tls.and_then(|t| t.ja4.as_deref()), fits),
            Key::Ja4h => Tristate::any(self.client.ja4h.as_deref(), fits),
            Key::Http2 => Tristate::any(self.client.http2.as_deref(), fits),
            Key::Process => Tristate::any(self.client.process.as_ref().map(|p| p.name.as_str()), fits),
            Key::Container => Tristate::any(self.client.container.as_deref(), fits),
            Key::Id => Tristate::any([self.id.to_string().as_str()], fits),
            Key::Parent => Tristate::any(self.parent.map(|p| p.to_string()).as_deref(), fits),
            _ => Tristate::Known(false),
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        let (sent, received) = self.sizes();
        Fact::known(match key {
            Key::Port => Some(u64::from(self.authority.port)),
            Key::Pid => self.client.process.as_ref().map(|p| u64::from(p.pid)),
            Key::Status => self.response.as_ref().map(|r| u64::from(r.status)),
            Key::Size => Some(sent + received),
            Key::ReqSize => Some(sent),
            Key::RespSize => Some(received),
            Key::Dur => self.duration(),
            Key::Ttfb => self.timings.first_byte,
            Key::Time => Some(self.started.micros()),
            _ => None,
        })
    }

    fn flag(&self, flag: Flag) -> Tristate {
        Tristate::Known(match flag {
            Flag::Error => self.state == FlowState::Failed || self.error.is_some(),
            Flag::Http => self.kind == FlowKind::Http,
            Flag::Answered => self.response.is_some(),
            Flag::Websocket => self.kind == FlowKind::WebSocket,
            Flag::Tunnel => self.kind == FlowKind::Tunnel,
            Flag::Sse => self.media_type(Direction::Response).as_deref() == Some("text/event-stream"),
            Flag::Grpc => self.media_type(Direction::Request).is_some_and(|t| t.starts_with("application/grpc")),
            Flag::Intercepted => self.request.is_some() && self.client.tls.is_some(),
            Flag::Replay => self.parent.is_some(),
            Flag::Imported => self.imported,
            Flag::Open => self.state == FlowState::Open,
            Flag::Cut => self.state == FlowState::Cut,
            Flag::Redacted => self.tags.iter().any(|t| t == "redacted"),
            Flag::Held => self.tags.iter().any(|t| t == "held"),
            _ => false,
        })
    }

    fn address(&self, key: Key) -> Fact<SocketAddr> {
        Fact::known(match key {
            Key::Client => self.client.peer,
            Key::Upstream => self.upstream.as_ref().and_then(|u| u.peer),
            _ => None,
        })
    }

    fn headers(&self, side: Direction, fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        Tristate::Known(FlowRecord::headers(self, side).is_some_and(|h| h.iter().any(|(n, v)| fits(n, v))))
    }
}

/// A live view's filter: facts missing from the summary count as unknown and never match.
impl QuerySubject for FlowSummary {
    fn text(&self, key: Key, fits: &mut dyn FnMut(&str) -> bool) -> Tristate {
        let path = self.path.as_deref().map(|p| p.split_once('?').map_or((p, None), |(p, q)| (p, Some(q))));
        let types = [self.request_type.as_deref(), self.response_type.as_deref()];
        match key {
            Key::Word | Key::Url => {
                let url = |path: &String| url_of(self.scheme, &self.authority, path);
                Tristate::any([self.path.as_ref().map_or_else(|| self.authority.to_string(), url).as_str()], fits)
            }
            Key::Host => Tristate::any([self.authority.host.to_string().trim_matches(['[', ']'])], fits),
            Key::Authority => {
                let host = self.authority.host.to_string();
                let text = format!("{}:{}", host.trim_matches(['[', ']']), self.authority.port);
                Tristate::any([text.as_str()], fits)
            }
            Key::Scheme => Tristate::any([self.scheme.as_str()], fits),
            Key::Path => Tristate::any(path.map(|(p, _)| p), fits),
            Key::Query => Tristate::any(path.and_then(|(_, q)| q), fits),
            Key::Method => Tristate::any(self.method.as_deref(), fits),
            // The summary lacks the upstream's version and the message of an error.
            Key::Version => Tristate::any(Some(&*self.version).filter(|v| !v.is_empty()), fits).or(Tristate::NotYet),
            Key::Type => Tristate::any(types.into_iter().flatten(), fits),
            Key::ReqType => Tristate::any(types[0], fits),
            Key::RespType => Tristate::any(types[1], fits),
            Key::Error if self.error.is_some() => Tristate::any(self.error.as_deref(), fits).or(Tristate::NotYet),
            Key::Error => Tristate::Known(false),
            Key::Passthrough => Tristate::any(self.passthrough.as_deref(), fits),
            Key::Tag => Tristate::any(self.tags.iter().map(String::as_str), fits),
            Key::User => Tristate::any(self.user.as_deref(), fits),
            Key::Id => Tristate::any([self.id.to_string().as_str()], fits),
            _ => Tristate::NotYet,
        }
    }

    fn number(&self, key: Key) -> Fact<u64> {
        match key {
            Key::Port => Fact::Is(u64::from(self.authority.port)),
            Key::Status => Fact::known(self.status.map(u64::from)),
            Key::Size => Fact::Is(self.request_size + self.response_size),
            Key::ReqSize => Fact::Is(self.request_size),
            Key::RespSize => Fact::Is(self.response_size),
            Key::Dur if self.state == FlowState::Open => Fact::NotYet,
            Key::Dur => Fact::Is(self.duration),
            Key::Time => Fact::Is(self.started.micros()),
            _ => Fact::NotYet,
        }
    }

    fn flag(&self, flag: Flag) -> Tristate {
        Tristate::Known(match flag {
            Flag::Error => self.state == FlowState::Failed || self.error.is_some(),
            Flag::Http => self.kind == FlowKind::Http,
            Flag::Answered => self.status.is_some(),
            Flag::Websocket => self.kind == FlowKind::WebSocket,
            Flag::Tunnel => self.kind == FlowKind::Tunnel,
            Flag::Sse => self.response_type.as_deref() == Some("text/event-stream"),
            Flag::Grpc => self.request_type.as_deref().is_some_and(|t| t.starts_with("application/grpc")),
            Flag::Open => self.state == FlowState::Open,
            Flag::Cut => self.state == FlowState::Cut,
            Flag::Redacted => self.tags.iter().any(|t| t == "redacted"),
            Flag::Held => self.tags.iter().any(|t| t == "held"),
            _ => return Tristate::NotYet,
        })
    }

    fn address(&self, key: Key) -> Fact<SocketAddr> {
        if key == Key::Client { Fact::known(self.client) } else { Fact::NotYet }
    }

    fn headers(&self, _side: Direction, _fits: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Tristate {
        Tristate::NotYet
    }

    fn body(&self, _side: Direction, _fits: &mut dyn FnMut(&[u8]) -> bool) -> Tristate {
        Tristate::NotYet
    }
}

/// The embedded store's tables: `flows f`, `hosts h`.
pub(crate) struct SqliteTables;

const fn call_column(value: &'static str) -> SqlColumn {
    SqlColumn::Rows { exists: "f.id IN (SELECT flow FROM conversation_exchanges WHERE {})", value }
}

impl SqlColumns for SqliteTables {
    fn column(&self, key: Key) -> Option<SqlColumn> {
        Some(match key {
            // There are few distinct host names, and the flows of each are found by index.
            Key::Host => SqlColumn::Rows { exists: "f.host IN (SELECT id FROM hosts WHERE {})", value: "name" },
            Key::Method => SqlColumn::Text(&["f.method"]),
            // Facts about model calls are stored in a separate table.
            Key::Model => call_column("model"),
            Key::Provider => call_column("provider"),
            Key::Agent => call_column("agent"),
            Key::Tokens => {
                SqlColumn::Integer("(SELECT sum(e.input + e.output) FROM conversation_exchanges e WHERE e.flow = f.id)")
            }
            Key::User => SqlColumn::Text(&["f.user"]),
            _ => return flow_column(key),
        })
    }

    fn flag(&self, flag: Flag) -> Option<&'static str> {
        flow_flag(flag)
    }
}

/// The columns that flows have in every database, in a table `f`.
pub fn flow_column(key: Key) -> Option<SqlColumn> {
    Some(match key {
        Key::Port => SqlColumn::Integer("f.port"),
        Key::Status => SqlColumn::Integer("f.status"),
        Key::Type => SqlColumn::LowerText(&["f.request_type", "f.response_type"]),
        Key::ReqType => SqlColumn::LowerText(&["f.request_type"]),
        Key::RespType => SqlColumn::LowerText(&["f.response_type"]),
        Key::Size => SqlColumn::Integer("(f.request_size + f.response_size)"),
        Key::ReqSize => SqlColumn::Integer("f.request_size"),
        Key::RespSize => SqlColumn::Integer("f.response_size"),
        Key::Dur => SqlColumn::Integer("f.duration"),
        Key::Time => SqlColumn::Integer("f.started"),
        Key::Listener => SqlColumn::Text(&["f.listener"]),
        _ => return None,
    })
}

/// The flags that follow from such columns.
pub fn flow_flag(flag: Flag) -> Option<&'static str> {
    Some(match flag {
        Flag::Http => "(f.kind = 0)",
        Flag::Websocket => "(f.kind = 1)",
        Flag::Tunnel => "(f.kind = 2)",
        Flag::Answered => "(f.status IS NOT NULL)",
        Flag::Error => "(f.state = 2 OR f.error IS NOT NULL)",
        Flag::Open => "(f.state = 0)",
        Flag::Cut => "(f.state = 3)",
        _ => return None,
    })
}
