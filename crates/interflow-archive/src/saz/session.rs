//! The metadata of an exchange: `N_m.xml`.

use std::collections::HashMap;
use std::io::{self, Write};

use interflow_codec::html;
use interflow_types::percent::{self, AsciiSet, CONTROLS};
use interflow_types::{Scheme, Timestamp};

use super::flag;
use crate::har::{from_iso, iso};
use interflow_store::{FlowKind, FlowRecord};

/// What is escaped in a tag: tags are separated by spaces.
const TAG: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SazSession {
    pub flags: u32,
    /// Times by Fiddler's names, such as `ClientBeginRequest`.
    pub times: HashMap<String, Timestamp>,
    /// Durations in milliseconds by Fiddler's names.
    pub durations: HashMap<String, u64>,
    /// The named flags: addresses, comment.
    pub named: HashMap<String, String>,
}

impl SazSession {
    /// Parses what is present; damaged XML yields less.
    pub fn parse(xml: &[u8]) -> Self {
        let text = String::from_utf8_lossy(xml);
        let mut session = Self::default();
        for (element, attributes) in elements(&text) {
            match element {
                "Session" => session.flags = attributes.get("BitFlags").and_then(|f| number(f)).unwrap_or(0),
                "SessionTimers" => {
                    for (name, value) in attributes {
                        // Durations are integers, everything else is a time; year 1 stands for none.
                        match value.parse::<u64>() {
                            Ok(millis) => drop(session.durations.insert(name, millis)),
                            Err(_) => {
                                session.times.extend(from_iso(&value).filter(|at| at.micros() > 0).map(|at| (name, at)))
                            }
                        }
                    }
                }
                "SessionFlag" => {
                    if let (Some(n), Some(v)) = (attributes.get("N"), attributes.get("V")) {
                        // Names of flags are not case-sensitive.
                        session.named.insert(n.to_ascii_lowercase(), v.clone());
                    }
                }
                _ => {}
            }
        }
        session
    }
}

/// Decimal, or hexadecimal after `0x`: versions differ.
fn number(text: &str) -> Option<u32> {
    if let Some(hex) = text.strip_prefix("0x") { u32::from_str_radix(hex, 16).ok() } else { text.parse().ok() }
}

/// The elements with their attributes, in document order. Fiddler writes no text between them.
fn elements(xml: &str) -> impl Iterator<Item = (&str, HashMap<String, String>)> {
    xml.split('<').skip(1).filter_map(|part| {
        let end = part.find(|c: char| c.is_whitespace() || c == '>' || c == '/')?;
        let (name, mut rest) = part.split_at(end);
        let mut attributes = HashMap::new();
        while let Some((key, behind)) = rest.split_once('=') {
            let behind = behind.trim_start();
            // An attribute without quotes ends the reading of this element.
            let Some(quote) = behind.chars().next().filter(|q| matches!(q, '"' | '\'')) else { break };
            let Some((value, after)) = behind[1..].split_once(quote) else { break };
            attributes.insert(key.trim().to_owned(), unescape(value));
            rest = after;
        }
        Some((name, attributes))
    })
}

fn unescape(text: &str) -> String {
    let plain = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
        ("&#xA;", "\n"),
        ("&#xD;", "\r"),
    ];
    // The ampersand comes last, so that an escaped escape is not decoded twice.
    let text = plain.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to));
    text.replace("&amp;", "&")
}

/// Escapes an attribute. XML has no other control characters, and turns literal line ends into spaces.
fn escape(text: &str) -> String {
    html::escape(text).replace('\n', "&#xA;").replace('\r', "&#xD;").replace(char::is_control, " ")
}

pub(super) fn write(out: &mut dyn Write, number: u64, row: &FlowRecord) -> io::Result<()> {
    let https = if row.scheme == Scheme::Https { flag::HTTPS } else { 0 };
    let kind = match row.kind {
        FlowKind::Http => 0,
        FlowKind::WebSocket => flag::WEB_SOCKET,
        FlowKind::Tunnel => flag::BLIND_TUNNEL,
    };
    let bits = https | kind | flag::IMPORTED;
    write!(out, "<?xml version=\"1.0\" encoding=\"utf-8\"?>\r\n<Session SID=\"{number}\" BitFlags=\"{bits}\">\r\n")?;
    timers(out, row)?;
    out.write_all(b"  <PipeInfo />\r\n  <SessionFlags>\r\n")?;
    let mut named = vec![("x-interflow-id", row.id.to_string())];
    if let Some(peer) = row.client.peer {
        named.push(("x-clientip", peer.ip().to_canonical().to_string()));
        named.push(("x-clientport", peer.port().to_string()));
    }
    let upstream = row.upstream.iter();
    named.extend(upstream.clone().filter_map(|u| Some(("x-hostip", u.peer?.ip().to_canonical().to_string()))));
    named.extend(upstream.filter_map(|u| Some(("x-egressport", u.local?.port().to_string()))));
    named.extend(row.comment.iter().map(|c| ("ui-comments", c.clone())));
    let tags: Vec<String> = row.tags.iter().map(|tag| percent::encoded_as(tag, TAG)).collect();
    named.extend((!tags.is_empty()).then(|| ("x-interflow-tags", tags.join(" "))));
    named.extend(row.error.iter().map(|e| ("x-interflow-error", format!("{}: {}", e.kind, e.message))));
    for (name, value) in named {
        write!(out, "    <SessionFlag N=\"{name}\" V=\"{}\" />\r\n", escape(&value))?;
    }
    out.write_all(b"  </SessionFlags>\r\n</Session>\r\n")
}

fn timers(out: &mut dyn Write, row: &FlowRecord) -> io::Result<()> {
    let t = &row.timings;
    let at = |micros: Option<u64>| match micros {
        Some(n) => iso(Timestamp::from_micros(row.started.micros().saturating_add(n))),
        // .NET's smallest time, which stands for none.
        None => "0001-01-01T00:00:00".to_owned(),
    };
    let last = t.last_byte.or(t.done);
    let moments = [
        ("ClientConnected", Some(0)),
        ("ClientBeginRequest", Some(0)),
        ("GotRequestHeaders", t.request_head.or(Some(0))),
        ("ClientDoneRequest", t.request_body.or(t.request_sent).or(t.request_head)),
        ("ServerConnected", None),
        ("FiddlerBeginRequest", t.request_head),
        ("ServerGotRequest", t.request_sent),
        ("ServerBeginResponse", t.first_byte),
        ("GotResponseHeaders", t.first_byte),
        ("ServerDoneResponse", last),
        ("ClientBeginResponse", t.first_byte),
        ("ClientDoneResponse", t.done.or(last)),
    ];
    let millis = |micros: Option<u64>| micros.unwrap_or(0) / 1000;
    let lengths = [
        ("GatewayTime", 0),
        ("DNSTime", millis(t.dns)),
        ("TCPConnectTime", millis(t.connect)),
        ("HTTPSHandshakeTime", millis(t.tls)),
    ];
    out.write_all(b"  <SessionTimers")?;
    moments.iter().try_for_each(|(name, micros)| write!(out, " {name}=\"{}\"", at(*micros)))?;
    lengths.iter().try_for_each(|(name, n)| write!(out, " {name}=\"{n}\""))?;
    out.write_all(b" />\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fiddler_session_metadata_is_parsed() {
        let xml = br#"<?xml version="1.0" encoding="utf-8"?>
            <Session SID="3" BitFlags="0x1f">
              <SessionTimers ClientConnected="2014-03-05T12:03:00.2590000-06:00" ServerConnected="0001-01-01T00:00:00"
                DNSTime="12" TCPConnectTime='7' />
              <PipeInfo CltReuse="true" Reused="true" />
              <SessionFlags><SessionFlag N="x-ClientIP" V="::ffff:127.0.0.1" />
              <SessionFlag N="ui-comments" V="a &lt;b&gt; &amp;amp; &quot;c&quot;" /></SessionFlags></Session>"#;
        let session = SazSession::parse(xml);
        assert_eq!(session.flags, 0x1f);
        assert_eq!(session.times.get("ClientConnected"), from_iso("2014-03-05T18:03:00.259Z").as_ref());
        assert_eq!((session.durations["DNSTime"], session.durations["TCPConnectTime"]), (12, 7));
        assert_eq!(session.named["ui-comments"], "a <b> &amp; \"c\"");
        assert_eq!(session.named["x-clientip"], "::ffff:127.0.0.1");
        for damaged in
            [&b"<Session BitFlags="[..], b"<", b"", b"<SessionFlag N=x V=y>", b"<a b=\"c", b"\xff<\xff=\"\xff"]
        {
            assert_eq!(SazSession::parse(damaged), SazSession::default());
        }
    }

    #[test]
    fn xml_attribute_escaping_round_trips() {
        let odd = "a & b < c > d \" e ' f \n g";
        assert_eq!(unescape(&escape(odd)), odd);
    }
}
