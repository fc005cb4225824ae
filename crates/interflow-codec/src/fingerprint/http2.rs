//! The HTTP/2 connection preface as a fingerprint, to and from Akamai's text format.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

/// What a client sends before its first request, and how that request begins: SETTINGS in order, the increment of the
/// connection's window (0 if no WINDOW_UPDATE is sent), priorities, the order of pseudo-header fields, and the id of
/// the first stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Http2Fingerprint {
    pub settings: Vec<(u16, u32)>,
    pub window: u32,
    pub priorities: Vec<StreamPriority>,
    pub pseudo: Vec<PseudoHeader>,
    pub first_stream: u32,
    /// The priority in the first HEADERS frame, which Akamai's text does not include.
    pub headers: Option<StreamPriority>,
}

/// The priority of a stream (RFC 7540 5.3.1 and 5.3.2, deprecated by RFC 9113, but still sent by browsers). `stream` is
/// 0 in the priority of a HEADERS frame; `weight` is as on the wire, one less than its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize)]
pub struct StreamPriority {
    pub stream: u32,
    pub exclusive: bool,
    pub depends_on: u32,
    pub weight: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PseudoHeader {
    Method,
    Authority,
    Scheme,
    Path,
}

impl PseudoHeader {
    const LETTERS: [(char, Self); 4] =
        [('m', Self::Method), ('a', Self::Authority), ('s', Self::Scheme), ('p', Self::Path)];

    fn letter(self) -> char {
        Self::LETTERS.iter().find(|(_, p)| *p == self).map_or('?', |(l, _)| *l)
    }
}

impl FromStr for Http2Fingerprint {
    type Err = String;

    /// Parses `1:65536;4:6291456|15663105|0|m,a,s,p`; settings may be separated by commas too.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split('|').collect();
        let [settings, window, priorities, pseudo] = parts.as_slice() else {
            return Err(format!("an HTTP/2 fingerprint has four parts between |, this has {}", parts.len()));
        };
        let setting = |text: &str| {
            let (id, value) = text.split_once(':')?;
            Some((id.parse().ok()?, value.parse().ok()?))
        };
        let list = settings.split([';', ',']).filter(|s| !s.is_empty());
        let settings = list
            .map(|s| setting(s).ok_or_else(|| format!("`{s}` is not a setting such as 4:65536")))
            .collect::<Result<_, _>>()?;
        let window = window.parse().map_err(|_| format!("`{window}` is not a window increment"))?;
        // Akamai's text has a single 0 for none.
        let priorities = match *priorities {
            "0" | "" => Vec::new(),
            list => list.split(',').map(parse_priority).collect::<Result<_, _>>()?,
        };
        let pseudo = pseudo.split(',').filter(|p| !p.is_empty()).map(parse_pseudo_header).collect::<Result<_, _>>()?;
        Ok(Self { settings, window, priorities, pseudo, first_stream: 1, headers: None })
    }
}

fn parse_pseudo_header(text: &str) -> Result<PseudoHeader, String> {
    let pseudo_header = PseudoHeader::LETTERS.iter().find(|(l, _)| text.len() == 1 && text.starts_with(*l));
    pseudo_header.map(|(_, p)| *p).ok_or_else(|| format!("`{text}` is not a pseudo-header field: use m, a, s or p"))
}

/// `stream:exclusive:depends on:weight`
fn parse_priority(text: &str) -> Result<StreamPriority, String> {
    let wrong = || format!("`{text}` is not a priority such as 3:0:0:201");
    let numbers = text.split(':').map(|n| n.parse().ok()).collect::<Option<Vec<u32>>>().ok_or_else(wrong)?;
    let [stream, exclusive, depends_on, weight] = numbers.as_slice() else { return Err(wrong()) };
    // In text as its value, 1 to 256; on the wire one less.
    let weight = weight.checked_sub(1).and_then(|w| u8::try_from(w).ok()).ok_or_else(wrong)?;
    Ok(StreamPriority { stream: *stream, exclusive: *exclusive != 0, depends_on: *depends_on, weight })
}

impl fmt::Display for Http2Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (id, value)) in self.settings.iter().enumerate() {
            write!(f, "{}{id}:{value}", if i > 0 { ";" } else { "" })?;
        }
        match self.window {
            0 => f.write_str("|00|")?,
            n => write!(f, "|{n}|")?,
        }
        for (i, p) in self.priorities.iter().enumerate() {
            let (by, exclusive) = (if i > 0 { "," } else { "" }, u8::from(p.exclusive));
            write!(f, "{by}{}:{exclusive}:{}:{}", p.stream, p.depends_on, u16::from(p.weight) + 1)?;
        }
        f.write_str(if self.priorities.is_empty() { "0|" } else { "|" })?;
        for (i, p) in self.pseudo.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { "," } else { "" }, p.letter())?;
        }
        Ok(())
    }
}
