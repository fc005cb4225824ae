//! Catch-up of IPTV lists: the URLs of past programmes, which players build from a template (`catchup-source`) by
//! filling in times. An archive is fetched through the gateway like its channel, so the template becomes a URL of the
//! gateway that carries the placeholders behind its signature.

use super::{PlaylistRewriter, UriReplacer};
use crate::hls::tags::{lines, loose_attribute};
use crate::relay::address::is_http;

/// Maximum number of placeholders in a template.
const MAX_PLACEHOLDERS: usize = 32;

/// How a channel's archive is addressed.
#[derive(Clone, Debug, Default)]
pub(super) struct CatchupTemplate {
    mode: Option<String>,
    source: Option<String>,
}

impl CatchupTemplate {
    fn read(line: &[u8]) -> Self {
        let get = |name| {
            let value = line.get(loose_attribute(line, name)?)?;
            Some(String::from_utf8_lossy(value).into_owned()).filter(|v| !v.trim().is_empty())
        };
        Self { mode: get("catchup").or_else(|| get("catchup-type")), source: get("catchup-source") }
    }

    /// The absolute URL of the archive of a channel, with placeholders; `None` if players build it by other rules.
    fn address(&self, channel: &str) -> Option<String> {
        let source = self.source.as_deref();
        match self.mode.as_deref().unwrap_or("default").to_ascii_lowercase().as_str() {
            "default" | "vod" => source.filter(|s| is_http(s.as_bytes())).map(str::to_owned),
            "append" => Some(format!("{channel}{}", source?)),
            "shift" | "timeshift" => {
                let mark = if channel.contains('?') { '&' } else { '?' };
                Some(format!("{channel}{mark}utc={{utc}}&lutc={{lutc}}"))
            }
            _ => None,
        }
        .filter(|address| !authority_of(address).contains('{'))
    }
}

fn authority_of(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// The placeholders of a template in order, as players write them: `{utc}`, `${start}`, `{duration:60}`. Positions in
/// bytes.
pub fn placeholders(template: &str) -> Vec<std::ops::Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(open) = template.get(at..).and_then(|rest| rest.find('{')).map(|n| at + n) {
        let Some(close) = template[open..].find('}').map(|n| open + n + 1) else { break };
        let start = if open > 0 && template.as_bytes()[open - 1] == b'$' { open - 1 } else { open };
        if found.len() < MAX_PLACEHOLDERS {
            found.push(start..close);
        }
        at = close;
    }
    found
}

/// Fills in a template. `value` gives the value of each placeholder by its index; `None` if one is missing, or is more
/// than a time or a name.
pub fn fill_placeholders<'v>(template: &str, value: impl Fn(usize) -> Option<&'v str>) -> Option<String> {
    let (mut out, mut at) = (String::with_capacity(template.len() + 64), 0);
    for (i, place) in placeholders(template).into_iter().enumerate() {
        let value = value(i)?;
        // It must not lead to another resource than the template's.
        let is_plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b':' | b'+');
        if value.is_empty() || value.len() > 64 || value.contains("..") || !value.bytes().all(is_plain) {
            return None;
        }
        out.push_str(&template[at..place.start]);
        out.push_str(value);
        at = place.end;
    }
    out.push_str(&template[at..]);
    Some(out)
}

impl<P: UriReplacer> PlaylistRewriter<'_, P> {
    /// Remembers the template of a list's first line, for channels without their own.
    pub(super) fn note_catchup(&mut self, line: &[u8]) {
        if self.has_catchup {
            self.catchup = CatchupTemplate::read(line);
        }
    }

    /// Replaces the template of a channel by one that leads through the gateway.
    pub(super) fn catchup(&mut self, line: &[u8], at: usize) {
        let mut template = CatchupTemplate::read(line);
        template.mode = template.mode.or_else(|| self.catchup.mode.clone());
        template.source = template.source.or_else(|| self.catchup.source.clone());
        if template.mode.is_none() && template.source.is_none() {
            return;
        }
        // The lines up to the channel's URL.
        let text = self.text.get(at + line.len()..).unwrap_or_default();
        let (mut options, mut channel) = (Vec::new(), None);
        for next in lines(text).filter_map(|next| std::str::from_utf8(next.content(text)).ok()).take(64) {
            match next.trim() {
                "" => {}
                inf if inf.starts_with("#EXTINF") => break,
                option if option.starts_with('#') => options.push(option),
                url => {
                    channel = Some(url);
                    break;
                }
            }
        }
        let Some((url, fields)) = channel.map(|url| url.split_once('|').unwrap_or((url, ""))) else { return };
        let url = self.filled(url).into_owned();
        let url = self.base.resolve(url.trim());
        let Some(address) = template.address(&url).filter(|a| is_http(a.as_bytes())) else { return };
        let mut written = Vec::new();
        if !self.place.write_catchup(&address, &options, fields, &mut written) {
            return;
        }
        // In the order of the line; what is not there follows the duration.
        let start = b"#EXTINF:".len().min(line.len());
        let behind = line.iter().skip(start).position(|b| matches!(b, b' ' | b',')).map_or(line.len(), |n| start + n);
        let attributes =
            [("catchup", b"default".to_vec()), ("catchup-type", b"default".to_vec()), ("catchup-source", written)];
        let mut changes: Vec<_> = attributes
            .into_iter()
            .filter_map(|(name, value)| match loose_attribute(line, name) {
                Some(range) => Some((range, value)),
                None if name == "catchup-type" => None,
                None => Some((behind..behind, [format!(" {name}=\"").as_bytes(), &value, b"\""].concat())),
            })
            .collect();
        changes.sort_by_key(|(range, _)| range.start);
        for (range, value) in changes {
            let range = at + range.start..at + range.end;
            if self.is_unquoted(range.start) {
                self.replace_quoted(range, &value);
            } else {
                self.replace(range, |r| r.out.extend_from_slice(&value));
            }
        }
    }
}
